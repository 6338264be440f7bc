/* SPDX-License-Identifier: Apache-2.0 */
/* What optimizers move that need more than their own shard: whole matrices (Muon), sums of rows and columns
 * (Adafactor), signs and their errors (1-bit Adam, 1-bit LAMB, 0/1 Adam). Counted by hand (moves_testing.h). */
#include "moves_testing.h"

TestSuite(moves_optimizers, .init = setup, .fini = teardown);

#define WHOLE(elements, times, queue)                                                                                  \
  { "whole matrices", ZP_WHEN_AT_DEVICE_UPDATE, 0, -1, 0, 1, elements, 4, times, queue, 2 }
/* Two data ranks exchange two of the three layers, then one and what stands for a second, there and back. */
Test(moves_optimizers, muon_exchanges_shards) {
  zp_program *p = program_with(ZP_OPT_MUON, &TINY, false, choice_of(1, 2, 1), 8);
  EXPECT_ROWS(p, 0, SUM(ZP_WHEN_AFTER_BACKWARD, BEGIN, 1, TABLE), SUM(ZP_WHEN_AFTER_BACKWARD, BEGIN, 1, POSITIONS),
              SUM(ZP_WHEN_AFTER_BACKWARD, LAYERS, 3, PADDED), SUM(ZP_WHEN_AFTER_BACKWARD, END, 1, NORM_PADDED),
              SUM(ZP_WHEN_AFTER_BACKWARD, END, 1, NORM_PADDED), WHOLE(PADDED, 4, ZP_QUEUE_DATA), BACK(BEGIN, 1, TABLE),
              BACK(BEGIN, 1, POSITIONS), BACK(LAYERS, 3, PADDED), BACK(END, 1, NORM_PADDED), BACK(END, 1, NORM_PADDED));
}

/* Two tensor ranks gather a layer's four matrices, which both work on: three times; and with ZeRO each pair those of
 * one layer, and a pair of the two those of the third. */
Test(moves_optimizers, muon_gathers_matrices) {
  static const int64_t matrices[] = {64 * 192, 64 * 64, 64 * 256, 256 * 64};
  for (int zero = 0; zero <= 1; zero++) {
    zp_choice c = choice_of(1, 1 + zero, zero);
    c.tensor = 2;
    zp_move_list list = zp_stage_moves(arena, program_with(ZP_OPT_MUON, &TINY, false, c, 8), 0);
    int64_t found = 0, bytes = 0;
    for (int i = 0; i < list.len; i++) {
      if (strcmp(list.data[i].strategy->name, "whole matrices") || list.data[i].queue != ZP_QUEUE_TENSOR) continue;
      cr_expect_eq(list.data[i].elements, matrices[found++ / (1 + zero)]);
      bytes += zp_move_sent_bytes(&list.data[i]);
    }
    cr_expect_eq(found, 4 * (1 + zero));
    cr_expect_eq(bytes, 3 * 12 * 64 * 64 * 4, "every layer once, half of it from either rank to the other");
  }
}

#define STATISTICS(elements, times)                                                                                    \
  { "statistics", ZP_WHEN_AT_DEVICE_UPDATE, 0, -1, 0, 1, elements, 8, times, ZP_QUEUE_DATA, 2 }
/* Rows and columns of a layer's four matrices: 64 + 192, 64 + 64, 64 + 256 and 256 + 64; all of its vectors: 192 + 64 +
 * 256 + 64 and four of 64. The table has 256 + 64, positions 32 + 64, the last norm two vectors. */
enum { OF_LAYER = 1024 + 832, OF_TABLE = 320, OF_POSITIONS = 96 };
Test(moves_optimizers, adafactor_sums_rows_and_columns) {
  zp_program *p = program_with(ZP_OPT_ADAFACTOR, &TINY, false, choice_of(1, 2, 2), 8);
  zp_move_list list = zp_stage_moves(arena, p, 0);
  static const row rows[] = {STATISTICS(OF_LAYER, 3), STATISTICS(OF_TABLE, 1), STATISTICS(OF_POSITIONS, 1),
                             STATISTICS(NORM, 1), STATISTICS(NORM, 1)};
  int found = 0;
  for (int i = 0; i < list.len; i++) {
    if (strcmp(list.data[i].strategy->name, "statistics")) continue;
    cr_assert_lt(found, 10); /* shares there, and sums back */
    cr_expect(list.data[i].elements == rows[found / 2].elements && list.data[i].times == rows[found / 2].times,
              "record %d: %lld", found, (long long)list.data[i].elements);
    cr_expect_eq(list.data[i].way, found % 2 ? ZP_WAY_ALL_GATHER : ZP_WAY_EXCHANGE);
    cr_expect_eq(zp_move_sent_bytes(&list.data[i]), rows[found / 2].elements * 8 * rows[found / 2].times);
    found++;
  }
  cr_expect_eq(found, 10);
  cr_expect_eq(p->stages[0].statistics, 3 * OF_LAYER + OF_TABLE + OF_POSITIONS + 2 * NORM);
  cr_expect_eq(p->stages[0].memory.optimizer, p->stages[0].statistics * 4, "no other state");
}

/* Two tensor ranks share a layer's matrices and the vectors of the split sides, 192 and 256, and the table's rows. */
Test(moves_optimizers, adafactor_sums_what_tensor_ranks_share) {
  zp_choice c = choice_of(1, 1, 0);
  c.tensor = 2;
  zp_move_list list = zp_stage_moves(arena, program_with(ZP_OPT_ADAFACTOR, &TINY, false, c, 8), 0);
  int64_t bytes = 0;
  for (int i = 0; i < list.len; i++)
    if (strcmp(list.data[i].strategy->name, "statistics") == 0) bytes += zp_move_sent_bytes(&list.data[i]);
  cr_expect_eq(bytes, 2 * (3 * (1024 + 192 + 256) + OF_TABLE) * 8);
}

/* 168512 elements are 2633 blocks of 64, which two ranks share: 2634. A sign an element and 4 bytes a block, two
 * passes. */
Test(moves_optimizers, one_bit_exchange) {
  zp_choice c = choice_of(1, 2, 0);
  c.compress = true;
  zp_program *p = program_of(&TINY, true, c, 8);
#define SIGNS(elements, bytes)                                                                                         \
  {"1-bit exchange", ZP_WHEN_AFTER_BACKWARD, 0, -1, 0, 1, elements, bytes, 1, ZP_QUEUE_DATA, 2}
  EXPECT_ROWS(p, 0, SIGNS(2634, 12), SIGNS(2634, 12),
              COPY("1-bit exchange", ZP_WHEN_AFTER_BACKWARD, 0, -1, 0, 1, 2634 * 64, 16, 1, ZP_QUEUE_DEVICE_MEMORY),
              COPY("1-bit exchange", ZP_WHEN_AFTER_BACKWARD, 0, -1, 0, 1, 1317 * 64, 12, 1, ZP_QUEUE_DEVICE_MEMORY),
              SIGNS(2634 * 64, 4));
  zp_traffic t = zp_program_traffic(p);
  cr_expect_eq(t.data, 2 * 2634 * 12);
  cr_expect_eq(t.warmup_data, 2 * 2634 * 64 * 4);
}

/* With ZeRO 1 the same records once the variance is frozen; before, shards of gradients go to their owners and weights
 * come back. A worker has an error of every element, an owner one of its own; what is tied is summed whole. */
Test(moves_optimizers, one_bit_exchange_of_shards) {
  zp_choice c = choice_of(1, 2, 1);
  zp_program *plain = program_of(&TINY, true, c, 8);
  c.compress = true;
  zp_program *p = program_of(&TINY, true, c, 8);
  zp_traffic t = zp_program_traffic(p), before = zp_program_traffic(plain);
  int64_t all = zp_flat_trained(&p->stages[0].flat);
  cr_expect_eq(all, zp_flat_trained(&plain->stages[0].flat));
  cr_expect_eq(t.data, 2 * (all / 64) * 12);
  cr_expect_eq(t.warmup_data, before.data);
  cr_expect_eq(p->stages[0].memory.optimizer, plain->stages[0].memory.optimizer + all * 4 + all / 2 * 4);
}

/* 1-bit LAMB keeps the variance as it would be, and without ZeRO the momentum before the step. */
Test(moves_optimizers, one_bit_lamb) {
  for (int zero = 0; zero <= 1; zero++) {
    zp_choice c = choice_of(1, 2, zero);
    c.compress = true;
    zp_program *adam = program_of(&TINY, true, c, 8), *lamb = program_with(ZP_OPT_LAMB, &TINY, true, c, 8);
    int64_t shard = zp_flat_trained(&lamb->stages[0].shard);
    cr_expect_eq(lamb->stages[0].memory.optimizer, adam->stages[0].memory.optimizer + (zero ? 1 : 2) * shard * 4);
    cr_expect_eq(zp_program_traffic(lamb).data, zp_program_traffic(adam).data);
  }
}

/* 0/1 Adam: the variance follows until ranks go on by themselves; exchanges at the ends of intervals, before another
 * kind of interval begins, before checkpoints, and at the end. */
Test(moves_optimizers, intervals) {
  zp_train t = {.steps = 20, .variance_every = 2, .local_after = 6, .local_doubles = 5, .local_most = 4};
  static const int64_t variance[] = {0, 1, 2, 4};
  zp_intervals x = zp_train_intervals(arena, &t);
  cr_assert_eq(x.variance.len, 4);
  cr_expect_arr_eq(x.variance.data, variance, sizeof variance);
  cr_assert_eq(x.phases.len, 3);
  cr_expect(x.phases.data[1].begin == 6 && x.phases.data[1].every == 2);
  cr_expect(x.phases.data[2].begin == 11 && x.phases.data[2].every == 4);
  cr_expect_eq(x.sums, 4);
  cr_expect_eq(x.exchanges, 6 + 3 + 2 + 1, "%lld", (long long)x.exchanges); /* 0 .. 5; 7, 9, 10; 14, 18; 19 */
  t.checkpoint_every = 7;
  x = zp_train_intervals(arena, &t);
  cr_expect_eq(x.exchanges, 12 + 2, "%lld", (long long)x.exchanges); /* 6, 13 */
  t.variance_every = 0;
  cr_expect_eq(zp_train_intervals(arena, &t).phases.len, 0);
}

/* Two ranks, and all state on the host: of 2634 records each rank sends all up, has half of the two ranks' come down,
 * the same number, half of the means go up and all of them down. Gradients and weights move in every step. */
Test(moves_optimizers, one_bit_exchange_on_the_host) {
  zp_choice c = choice_of(1, 2, 0);
  c.compress = true;
  c.home[ZP_STATE_OPTIMIZER] = HOST;
  zp_program *p = program_of(&TINY, true, c, 8);
  zp_tier_bytes b = zp_program_tier_bytes(p);
  int64_t gone = 2634 * 64, blocks = 2634;
  cr_expect_eq(p->stages[0].offloaded[ZP_STATE_OPTIMIZER], gone);
  cr_expect_eq(b.signs_up, (2 * blocks + blocks) * 12);
  cr_expect_eq(b.signs_down, (2 * blocks + 2 * blocks) * 12);
  cr_expect(b.down == 2 * gone * 4 && b.up == 2 * gone * 4);
  c.compress = false;
  b = zp_program_tier_bytes(program_of(&TINY, true, c, 8));
  cr_expect(b.signs_up == 0 && b.signs_down == 0);
}

/* With ZeRO 1 a rank's host gets what both ranks sent of its half, and sends up the change; gradients and weights,
 * which are f32, move no longer. On the device stays the worker's error. */
Test(moves_optimizers, one_bit_exchange_of_shards_on_the_host) {
  zp_choice c = choice_of(1, 2, 1);
  c.compress = true;
  c.home[ZP_STATE_OPTIMIZER] = HOST;
  zp_program *p = program_of(&TINY, true, c, 8);
  const zp_stage *s = &p->stages[0];
  zp_tier_bytes b = zp_program_tier_bytes(p);
  int64_t gone = zp_flat_trained(&s->flat) / 2, blocks = gone / 64;
  cr_expect_eq(s->offloaded[ZP_STATE_OPTIMIZER], gone);
  cr_expect_eq(s->memory.optimizer, zp_flat_trained(&s->flat) * 4);
  cr_expect(s->at[ZP_REGION_HOST_ERROR] < 0 && s->at[ZP_REGION_HOST_SERVER_ERROR] >= 0);
  cr_expect(b.down == 2 * gone * 4 && b.up == 2 * gone * 4);
  cr_expect_eq(b.signs_down, 2 * (2 * blocks * 12 - gone * 4));
  cr_expect_eq(b.signs_up, 2 * (blocks * 12 - gone * 4));
}
