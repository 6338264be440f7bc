/* SPDX-License-Identifier: Apache-2.0 */
/* What a step moves, record by record: lists of small plans, counted by hand (moves_testing.h). */
#include "moves_testing.h"

TestSuite(moves, .init = setup, .fini = teardown);

/* One device and nothing offloaded: the update alone. 7 numbers of 4 bytes an element: gradient; weight and two
 * moments, read and written. */
Test(moves, one_device) {
  zp_program *p = program_of(&TINY, true, choice_of(1, 1, 0), 8);
  expect_rows(p, 0, NULL, 0);
  zp_move_list list = zp_stage_moves(arena, p, 0);
  int64_t all = 3 * LAYER + TABLE + POSITIONS + 2 * NORM;
  cr_assert_eq(list.len, 2);
  cr_expect(list.data[0].when == ZP_WHEN_AT_NORM && list.data[0].elements == all && list.data[0].element_bytes == 4);
  cr_expect(list.data[1].when == ZP_WHEN_AT_DEVICE_UPDATE && list.data[1].elements == all &&
            list.data[1].element_bytes == UPDATE_BYTES);
}

/* An average of the weights is read and written once more; LAMB's first pass does not look at it. */
Test(moves, an_average_is_read_and_written) {
  zp_program *p = program_of(&TINY, true, choice_of(1, 1, 0), 8);
  zp_spec *spec = (zp_spec *)(uintptr_t)p->spec;
  zp_lowered *l = (zp_lowered *)(uintptr_t)zp_program_lowered(p, 0);
  spec->train.ema = 0.999;
  l->average_bytes = 4, l->state_bytes += 4;
  zp_move_list list = zp_stage_moves(arena, p, 0);
  cr_assert_eq(list.len, 2);
  cr_expect_eq(list.data[1].element_bytes, UPDATE_BYTES + 8);
  spec->train.optimizer = ZP_OPT_LAMB; /* weight and two moments once more */
  cr_expect_eq(zp_stage_moves(arena, p, 0).data[1].element_bytes, UPDATE_BYTES + 8 + 12);
}

/* GPUs bucket by bucket alongside backward, the table once; CPU ranks all at once. */
Test(moves, zero_0) {
  EXPECT_ROWS(program_of(&TINY, true, choice_of(1, 2, 0), 8), 0, SUM(ZP_WHEN_OVERLAPPED_BACKWARD, BEGIN, 1, TABLE),
              SUM(ZP_WHEN_OVERLAPPED_BACKWARD, BEGIN, 1, POSITIONS), SUM(ZP_WHEN_OVERLAPPED_BACKWARD, LAYERS, 3, LAYER),
              SUM(ZP_WHEN_OVERLAPPED_BACKWARD, END, 1, NORM), SUM(ZP_WHEN_OVERLAPPED_BACKWARD, END, 1, NORM));
  EXPECT_ROWS(program_of(&TINY, false, choice_of(1, 2, 0), 8), 0,
              SUM(ZP_WHEN_AFTER_BACKWARD, -1, 1, 3 * LAYER + TABLE + POSITIONS + 2 * NORM));
}

/* A reduce-scatter and an all-gather; CPU ranks bucket by bucket, GPUs gather all at once. */
Test(moves, zero_1) {
  zp_program *gpu = program_of(&TINY, true, choice_of(1, 2, 1), 8),
             *cpu = program_of(&TINY, false, choice_of(1, 2, 1), 8);
  EXPECT_ROWS(
      gpu, 0, SUM(ZP_WHEN_OVERLAPPED_BACKWARD, BEGIN, 1, TABLE), SUM(ZP_WHEN_OVERLAPPED_BACKWARD, BEGIN, 1, POSITIONS),
      SUM(ZP_WHEN_OVERLAPPED_BACKWARD, LAYERS, 3, PADDED), SUM(ZP_WHEN_OVERLAPPED_BACKWARD, END, 1, NORM_PADDED),
      SUM(ZP_WHEN_OVERLAPPED_BACKWARD, END, 1, NORM_PADDED),
      BACK(-1, 1, 3 * PADDED + TABLE + POSITIONS + 2 * NORM_PADDED));
  EXPECT_ROWS(cpu, 0, SUM(ZP_WHEN_AFTER_BACKWARD, BEGIN, 1, TABLE), SUM(ZP_WHEN_AFTER_BACKWARD, BEGIN, 1, POSITIONS),
              SUM(ZP_WHEN_AFTER_BACKWARD, LAYERS, 3, PADDED), SUM(ZP_WHEN_AFTER_BACKWARD, END, 1, NORM_PADDED),
              SUM(ZP_WHEN_AFTER_BACKWARD, END, 1, NORM_PADDED), BACK(BEGIN, 1, TABLE), BACK(BEGIN, 1, POSITIONS),
              BACK(LAYERS, 3, PADDED), BACK(END, 1, NORM_PADDED), BACK(END, 1, NORM_PADDED));
  cr_expect_eq(zp_stage_moves(arena, gpu, 0).data[0].way, ZP_WAY_REDUCE_SCATTER);
}

/* Every unit's gradients after each of 4 micro-batches, the table for both ends. */
Test(moves, zero_2) {
  zp_program *p = program_of(&TINY, true, choice_of(1, 2, 2), 8);
  EXPECT_ROWS(p, 0, SCATTER(BEGIN, 1, TABLE), SCATTER(BEGIN, 1, POSITIONS), SCATTER(LAYERS, 3, PADDED),
              SCATTER(END, 1, TABLE), SCATTER(END, 1, NORM_PADDED), SCATTER(END, 1, NORM_PADDED),
              BACK(-1, 1, 3 * PADDED + TABLE + POSITIONS + 2 * NORM_PADDED));
  int64_t units = 3 * PADDED + 2 * TABLE + POSITIONS + 2 * NORM_PADDED;
  cr_expect_eq(zp_program_traffic(p).data, 4 * (4 * units + units - TABLE), "one ring pass of two ranks sends it once");
  cr_expect_eq(zp_stage_moves(arena, p, 0).data[0].wait, ZP_WAIT_BY_BUFFER);
  p = program_of(&TINY, false, choice_of(1, 2, 2), 8);
  cr_expect_eq(zp_stage_moves(arena, p, 0).data[0].wait, ZP_WAIT_AT_ONCE, "CPU ranks copy their messages themselves");
}

/* ZeRO 3 scatters gradients as ZeRO 2 does, and gathers parameters before either pass; nothing after the update. */
Test(moves, zero_3) {
  zp_program *p = program_of(&TINY, true, choice_of(1, 2, 3), 8);
#define GATHERS(act)                                                                                                   \
  GATHER(act, BEGIN, 1, TABLE), GATHER(act, BEGIN, 1, POSITIONS), GATHER(act, LAYERS, 3, PADDED),                      \
      GATHER(act, END, 1, TABLE), GATHER(act, END, 1, NORM_PADDED), GATHER(act, END, 1, NORM_PADDED)
#define BOTH(run, count, elements) GATHER(ZP_ACT_B, run, count, elements), SCATTER(run, count, elements)
  EXPECT_ROWS(p, 0, GATHERS(ZP_ACT_F), GATHER(ZP_ACT_B, BEGIN, 1, TABLE), GATHER(ZP_ACT_B, BEGIN, 1, POSITIONS),
              SCATTER(BEGIN, 1, TABLE), SCATTER(BEGIN, 1, POSITIONS), BOTH(LAYERS, 3, PADDED),
              GATHER(ZP_ACT_B, END, 1, TABLE), GATHER(ZP_ACT_B, END, 1, NORM_PADDED),
              GATHER(ZP_ACT_B, END, 1, NORM_PADDED), SCATTER(END, 1, TABLE), SCATTER(END, 1, NORM_PADDED),
              SCATTER(END, 1, NORM_PADDED));
  zp_move first = zp_stage_moves(arena, p, 0).data[0];
  cr_expect(first.wait == ZP_WAIT_BY_UNIT && first.from == ZP_END_DATA_RANKS && first.to == ZP_END_DEVICE);
}

/* Casts that stand alone are gathered as such: matrices of three layers, 12 d^2 of 49152 elements each, d = 64. With
 * ZeRO 1 MXFP8 comes in 16 bits. */
Test(moves, casts_are_gathered_in_their_bits) {
  enum { MATRICES = 49152, MICRO = 4 };
  static const struct {
    zp_precision precision;
    int zero, bits;
  } rows[] = {{ZP_PREC_MIXED_FP8, 1, 8},   {ZP_PREC_MIXED_FP8_DELAYED, 1, 8}, {ZP_PREC_MIXED_MXFP8, 1, 16},
              {ZP_PREC_MIXED_NVFP4, 1, 4}, {ZP_PREC_MIXED_FP8, 2, 8},         {ZP_PREC_MIXED_FP8, 3, 8},
              {ZP_PREC_MIXED_MXFP8, 3, 8}, {ZP_PREC_MIXED_NVFP4, 3, 16}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    for (int whole = 0; whole < 2; whole++) {
      zp_spec *spec = build_spec(arena, &TINY, gpu_cluster(1), 8);
      narrow_products(arena, spec, rows[i].precision);
      spec->train.bf16_weights = whole;
      zp_program *p = program_of_spec(spec, choice_of(1, 2, rows[i].zero));
      zp_move_list list = zp_stage_moves(arena, p, 0);
      int64_t casts = 0, others = 0, bits = whole ? 16 : rows[i].bits;
      for (int m = 0; m < list.len; m++) {
        const zp_move *move = &list.data[m];
        if (move->what != ZP_MOVE_PARAMETERS || move->way != ZP_WAY_ALL_GATHER) continue;
        cr_expect_eq(move->times, rows[i].zero == 3 ? MICRO : 1);
        *(move->element_bytes == 1 ? &casts : &others) += move->elements * move->element_bytes * move->count;
      }
      int64_t layers = 3 * PADDED, ends = TABLE + POSITIONS + 2 * NORM_PADDED, narrow = bits < 16 ? 3 * MATRICES : 0;
      int64_t times = rows[i].zero == 3 ? 2 : 1; /* forward and backward, and the table is read at both ends */
      cr_expect_eq(casts, times * narrow * bits / 8, "row %zu: %lld bytes of casts", i, (long long)casts);
      cr_expect_eq(others, times * 2 * (layers + ends + (times - 1) * TABLE - narrow), "row %zu: %lld bytes", i,
                   (long long)others);
    }
}

/* Four data ranks, a second copy in groups of two: forward gathers over four and keeps a half, backward gathers the
 * halves over two. */
Test(moves, hpz) {
  zp_choice c = choice_of(1, 4, 3);
  const int64_t before = zp_program_traffic(program_of(&TINY, false, c, 8)).data;
  c.hpz = 2;
  zp_program *p = program_of(&TINY, false, c, 8);
  const zp_stage *s = &p->stages[0];
  cr_expect_eq(s->bytes[ZP_REGION_HPZ_PARAMS], s->bytes[ZP_REGION_PARAMS] * 2, "of four parts two");
  int64_t kept = 0, copied = 0, gathered = 0, others = 0;
  zp_move_list list = zp_stage_moves(arena, p, 0);
  for (int i = 0; i < list.len; i++) {
    const zp_move *m = &list.data[i];
    int64_t elements = m->elements * m->count * m->times;
    if (m->what != ZP_MOVE_PARAMETERS) continue;
    cr_expect_eq(m->wait, ZP_WAIT_AT_ONCE, "CPU ranks");
    if (m->way == ZP_WAY_COPY) *(m->act == ZP_ACT_F ? &kept : &copied) += elements;
    if (m->way != ZP_WAY_ALL_GATHER) continue;
    bool group = m->from == ZP_END_HPZ;
    cr_expect(m->ranks == (group ? 2 : 4) && (m->act == ZP_ACT_F) == !group);
    *(group ? &gathered : &others) += elements;
  }
  cr_expect(gathered > 0 && gathered == others && kept == copied && 2 * kept == gathered);
  const int64_t after = zp_program_traffic(p).data;
  cr_expect(before % 9 == 0 && after == before / 9 * 8, "a ring pass of four sends 3, two of two send 2 together");
}

/* What leaves first: of eight eighths 3, of 168512 elements 3 * 21064 = 63192, in whole 64: 63168. The flat buffer has
 * table, positions, norms (18560), then layers: of the last one all, of the one before the last 13184. */
Test(moves, parameters_offloaded) {
  zp_choice c = choice_of(1, 1, 0);
  c.home[ZP_STATE_PARAMS] = (zp_home){ZP_TIER_HOST, 3};
  zp_program *p = program_of(&TINY, true, c, 8);
#define UP(act, first, elements)                                                                                       \
  COPY("parameters offloaded", ZP_WHEN_BEFORE_UNIT, act, LAYERS, first, 1, elements, 4, 8, ZP_QUEUE_UP)
  EXPECT_ROWS(p, 0, UP(ZP_ACT_F, 1, 63168 - LAYER), UP(ZP_ACT_F, 2, LAYER), UP(ZP_ACT_B, 1, 63168 - LAYER),
              UP(ZP_ACT_B, 2, LAYER),
              COPY("parameters offloaded", ZP_WHEN_AT_DEVICE_UPDATE, 0, -1, 0, 1, 63168, 4, 1, ZP_QUEUE_UP),
              COPY("parameters offloaded", ZP_WHEN_AT_DEVICE_UPDATE, 0, -1, 0, 1, 63168, 4, 1, ZP_QUEUE_DOWN));
  zp_tier_bytes moved = zp_program_tier_bytes(p);
  cr_expect_eq(moved.up, 4 * INT64_C(63168) * (2 * 8 + 1));
  cr_expect_eq(moved.down, 4 * INT64_C(63168));
}

/* All gradients and all of the state: the sum on the host, two reads and a write for 7 of 8 micro-batches; the norm
 * there; weights up. Disks: whole pages of 2048 elements. */
enum { PAGES = 83 * 2048 };
Test(moves, gradients_and_optimizer_offloaded) {
  zp_choice c = choice_of(1, 1, 0);
  c.home[ZP_STATE_GRADIENTS] = HOST;
  c.home[ZP_STATE_OPTIMIZER] = DISK;
  cr_assert_eq(3 * LAYER + TABLE + POSITIONS + 2 * NORM, 168512);
#define DOWN_AND_SUM(run, count, elements, sums)                                                                       \
  COPY("gradients offloaded", ZP_WHEN_AFTER_UNIT, ZP_ACT_B, run, 0, count, elements, 4, 8, ZP_QUEUE_DOWN),             \
      COPY("gradients offloaded", ZP_WHEN_AFTER_UNIT, ZP_ACT_B, run, 0, count, elements, 12, sums,                     \
           ZP_QUEUE_HOST_MEMORY)
#define DOWN(run, count, elements) DOWN_AND_SUM(run, count, elements, 7)
#define HOST_UPDATE(elements, bytes, queue)                                                                            \
  COPY("optimizer offloaded", ZP_WHEN_AT_HOST_UPDATE, 0, -1, 0, 1, elements, bytes, 1, queue)
  EXPECT_ROWS(program_of(&TINY, true, c, 8), 0, DOWN(BEGIN, 1, TABLE), DOWN(BEGIN, 1, POSITIONS),
              DOWN(LAYERS, 3, LAYER), DOWN_AND_SUM(END, 1, TABLE, 8), DOWN(END, 1, NORM), DOWN(END, 1, NORM),
              COPY("gradients offloaded", ZP_WHEN_AT_NORM, 0, -1, 0, 1, 168512, 4, 1, ZP_QUEUE_HOST_MEMORY),
              HOST_UPDATE(168512, 4, ZP_QUEUE_UP), HOST_UPDATE(168512, 4, ZP_QUEUE_HOST_MEMORY),
              HOST_UPDATE(168512, UPDATE_BYTES, ZP_QUEUE_HOST_MEMORY), HOST_UPDATE(PAGES, 12, ZP_QUEUE_READ),
              HOST_UPDATE(PAGES, 12, ZP_QUEUE_WRITE));
}

#define LENGTHS(elements, bytes, queue)                                                                                \
  COPY("lengths offloaded", ZP_WHEN_AT_HOST_LENGTHS, 0, -1, 0, 1, elements, bytes, 1, queue)
#define ALL_DOWN                                                                                                       \
  DOWN(BEGIN, 1, TABLE), DOWN(BEGIN, 1, POSITIONS), DOWN(LAYERS, 3, LAYER), DOWN_AND_SUM(END, 1, TABLE, 8),            \
      DOWN(END, 1, NORM), DOWN(END, 1, NORM),                                                                          \
      COPY("gradients offloaded", ZP_WHEN_AT_NORM, 0, -1, 0, 1, 168512, 4, 1, ZP_QUEUE_HOST_MEMORY)

/* LAMB reads weight and moments (12), and writes moments (8), with the gradient (4); then it reads these again and
 * writes weights (4). */
Test(moves, lamb_on_disks_reads_twice_and_writes_once) {
  zp_choice c = choice_of(1, 1, 0);
  c.home[ZP_STATE_GRADIENTS] = HOST;
  c.home[ZP_STATE_OPTIMIZER] = DISK;
  zp_program *p = program_with(ZP_OPT_LAMB, &TINY, true, c, 8);
  EXPECT_ROWS(p, 0, ALL_DOWN, LENGTHS(168512, 20, ZP_QUEUE_HOST_MEMORY), LENGTHS(PAGES, 12, ZP_QUEUE_READ),
              LENGTHS(PAGES, 8, ZP_QUEUE_WRITE), LENGTHS(168512, 4, ZP_QUEUE_HOST_MEMORY),
              HOST_UPDATE(168512, 4, ZP_QUEUE_UP), HOST_UPDATE(168512, 4, ZP_QUEUE_HOST_MEMORY),
              HOST_UPDATE(168512, 16, ZP_QUEUE_HOST_MEMORY), HOST_UPDATE(PAGES, 12, ZP_QUEUE_READ),
              HOST_UPDATE(PAGES, 4, ZP_QUEUE_WRITE));
  zp_tier_bytes moved = zp_program_tier_bytes(p), adam = zp_program_tier_bytes(program_of(&TINY, true, c, 8));
  cr_expect(moved.read == 2 * adam.read && moved.written == adam.written && moved.down == adam.down);
}

/* Without momentum weights are all the state that a disk has. Gradients are summed, then squared as updates. */
Test(moves, adafactor_on_disks_reads_weights_twice) {
  zp_choice c = choice_of(1, 1, 0);
  c.home[ZP_STATE_GRADIENTS] = HOST;
  c.home[ZP_STATE_OPTIMIZER] = DISK;
  EXPECT_ROWS(program_with(ZP_OPT_ADAFACTOR, &TINY, true, c, 8), 0, ALL_DOWN, LENGTHS(168512, 4, ZP_QUEUE_HOST_MEMORY),
              LENGTHS(PAGES, 4, ZP_QUEUE_READ), LENGTHS(168512, 8, ZP_QUEUE_HOST_MEMORY),
              HOST_UPDATE(168512, 4, ZP_QUEUE_UP), HOST_UPDATE(168512, 4, ZP_QUEUE_HOST_MEMORY),
              HOST_UPDATE(168512, 12, ZP_QUEUE_HOST_MEMORY), HOST_UPDATE(PAGES, 4, ZP_QUEUE_READ),
              HOST_UPDATE(PAGES, 4, ZP_QUEUE_WRITE));
}

/* Gradients and parameters no further than state; nothing in 1 bit. */
Test(moves, what_lamb_refuses_off_the_device) {
  zp_choice c = choice_of(1, 2, 0);
  zp_spec *spec = (zp_spec *)(uintptr_t)program_with(ZP_OPT_LAMB, &TINY, true, c, 8)->spec;
  spec->cluster.node.pcie_bytes_per_s = spec->cluster.node.host_bytes_per_s = 1e10;
  c.home[ZP_STATE_OPTIMIZER] = c.home[ZP_STATE_PARAMS] = HOST;
  cr_expect_null(zp_choice_refusal(&c, spec));
  c.home[ZP_STATE_OPTIMIZER].eighths = 5;
  cr_expect_str_eq(
      zp_choice_refusal(&c, spec),
      "of lamb and adafactor no more of gradients or parameters is off the device than of optimizer state");
  c.home[ZP_STATE_PARAMS] = (zp_home){0};
  c.compress = true;
  spec->cluster.node.device.is_cpu = true;
  cr_expect_str_eq(zp_choice_refusal(&c, spec), "1-bit lamb does not go with optimizer state off the device");
}

/* Gradients on the device come down once, LAMB's for lengths, Adafactor's for the update: the device squares them. */
Test(moves, gradients_on_the_device_come_down_once) {
  static const struct {
    zp_optimizer_kind optimizer;
    zp_move_when when;
  } cases[] = {{ZP_OPT_LAMB, ZP_WHEN_AT_HOST_LENGTHS}, {ZP_OPT_ADAFACTOR, ZP_WHEN_AT_HOST_UPDATE}};
  for (int k = 0; k < 2; k++) {
    zp_choice c = choice_of(1, 1, 0);
    c.home[ZP_STATE_OPTIMIZER] = HOST;
    zp_move_list list = zp_stage_moves(arena, program_with(cases[k].optimizer, &TINY, true, c, 8), 0);
    int down = 0;
    int64_t here = 0;
    for (int i = 0; i < list.len; i++) {
      const zp_move *m = &list.data[i];
      if (m->queue == ZP_QUEUE_DOWN) down += m->when == cases[k].when && m->elements == 168512 ? 1 : 2;
      if (m->queue == ZP_QUEUE_DEVICE_MEMORY) here += m->elements * m->element_bytes;
    }
    cr_expect_eq(down, 1);
    cr_expect_eq(here, 168512 * (k == 0 ? 4 : 4 + 8), "the norm, Adafactor's sums and squares");
  }
}

/* A delayed update: of 3/8 of the gradients, which are on the host already, a copy there instead of the way down;
 * weights up; and the update alongside the next step. */
Test(moves, a_delayed_update) {
  zp_choice c = choice_of(1, 1, 0);
  c.home[ZP_STATE_GRADIENTS] = (zp_home){ZP_TIER_HOST, 3};
  c.home[ZP_STATE_OPTIMIZER] = HOST;
  enum { ALL = 168512, THERE = ALL / 8 * 3 / 64 * 64 };
  zp_program *p = program_of(&TINY, true, c, 8);
  ((zp_spec *)(uintptr_t)p->spec)->train.delayed = true;
  zp_move_list list = zp_stage_moves(arena, p, 0);
  const row rows[] = {
      HOST_UPDATE(ALL - THERE, 4, ZP_QUEUE_DOWN), HOST_UPDATE(ALL, 4, ZP_QUEUE_UP),
      HOST_UPDATE(ALL, 4, ZP_QUEUE_HOST_MEMORY), HOST_UPDATE(THERE, 8, ZP_QUEUE_HOST_MEMORY),
      COPY("optimizer offloaded", ZP_WHEN_OVERLAPPED_NEXT, 0, -1, 0, 1, ALL, UPDATE_BYTES, 1, ZP_QUEUE_HOST_MEMORY)};
  int n = 0;
  for (int i = 0; i < list.len; i++) {
    const zp_move *m = &list.data[i];
    if (strcmp(m->strategy->name, "optimizer offloaded") != 0) continue;
    cr_assert_lt(n, 5);
    cr_expect(m->when == rows[n].when && m->elements == rows[n].elements && m->element_bytes == rows[n].element_bytes &&
                  m->queue == rows[n].queue,
              "record %d", n);
    cr_expect_eq(m->wait, n == 4 ? ZP_WAIT_BY_NEXT : ZP_WAIT_BY_STEP);
    n++;
  }
  cr_expect_eq(n, 5);
}

/* All on disks, in whole pages of 2048 elements of 2 bytes. Every micro-batch reads the parameters of every unit twice
 * and writes its gradients, to all but the first of which it adds what it reads; once a step gradients are read for the
 * norm and for the update, and parameters are written. */
Test(moves, everything_on_disks) {
  zp_choice c = choice_of(1, 1, 0);
  c.home[ZP_STATE_PARAMS] = c.home[ZP_STATE_GRADIENTS] = c.home[ZP_STATE_OPTIMIZER] = DISK;
  enum { PAGE = 2048 };
  const int64_t table = ((TABLE + PAGE - 1) / PAGE * PAGE), all = 3 * ((LAYER + PAGE - 1) / PAGE * PAGE) + table +
                                                                  ((POSITIONS + PAGE - 1) / PAGE * PAGE) + 2 * PAGE;
  const int64_t units = all + table;
  zp_tier_bytes moved = zp_program_tier_bytes(program_of(&TINY, true, c, 8));
  cr_expect_eq(moved.up, 4 * 2 * 8 * units);
  cr_expect_eq(moved.down, 4 * 8 * units);
  cr_expect_eq(moved.read, 4 * (2 * 8 * units + (8 * units - all) + 2 * all) + 12 * all);
  cr_expect_eq(moved.written, 4 * (8 * units + all) + 12 * all);
}

/* Two data ranks that own halves and hold all: of a rank's half 3/8 in whole 64 are offloaded, of the other rank's as
 * many, and they lie in the layers, which one unit each uses. Gradients go down after each of 4 micro-batches; once a
 * step all come up to be summed, and a rank's own go down; the host's weights go up. */
Test(moves, gradients_offloaded_with_zero_1) {
  zp_choice c = choice_of(1, 2, 1);
  c.home[ZP_STATE_GRADIENTS] = c.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 3};
  zp_program *p = program_of(&TINY, true, c, 8);
  const int64_t half = (3 * PADDED + TABLE + POSITIONS + 2 * NORM_PADDED) / 2, own = half / 8 * 3 / 64 * 64;
  cr_assert(zp_flat_trained(&p->stages[0].shard) == half && own < PADDED);
  cr_expect(p->stages[0].offloaded[ZP_STATE_GRADIENTS] == own && zp_stage_offloaded(&c, &p->stages[0], own) == 2 * own);
  cr_expect_eq(p->stages[0].memory.gradients / 256, (2 * half - 2 * own) * 4 / 256);
  zp_tier_bytes moved = zp_program_tier_bytes(p);
  cr_expect_eq(moved.down, 2 * 4 * (4 * 2 * own + own));
  cr_expect_eq(moved.up, 2 * 4 * (2 * own + own));
  zp_move_list list = zp_stage_moves(arena, p, 0);
  for (int i = 0; i < list.len; i++)
    cr_expect(list.data[i].when != ZP_WHEN_OVERLAPPED_BACKWARD, "sums wait for what is on the host");
}

/* Without ZeRO both ranks have all, and all sums go down again. */
Test(moves, gradients_offloaded_without_zero) {
  zp_choice c = choice_of(1, 2, 0);
  c.home[ZP_STATE_GRADIENTS] = c.home[ZP_STATE_OPTIMIZER] = HOST;
  const int64_t all = 3 * LAYER + TABLE + POSITIONS + 2 * NORM, units = all + TABLE; /* the table is used twice */
  zp_tier_bytes moved = zp_program_tier_bytes(program_of(&TINY, true, c, 8));
  cr_expect_eq(moved.down, 2 * 4 * (4 * units + all));
  cr_expect_eq(moved.up, 2 * 4 * (all + all));
}

/* Parameters come up forward and backward of 4 micro-batches; a rank's own come up to be updated and go down; then they
 * come up once more for the other rank, and the other's go down. */
Test(moves, parameters_offloaded_with_zero_1_and_2) {
  for (int zero = 1; zero <= 2; zero++) {
    zp_choice c = choice_of(1, 2, zero);
    c.home[ZP_STATE_PARAMS] = (zp_home){ZP_TIER_HOST, 3};
    zp_program *p = program_of(&TINY, true, c, 8);
    const int64_t own = p->stages[0].offloaded[ZP_STATE_PARAMS];
    cr_expect_eq(own, (3 * PADDED + TABLE + POSITIONS + 2 * NORM_PADDED) / 2 / 8 * 3 / 64 * 64);
    zp_tier_bytes moved = zp_program_tier_bytes(p);
    cr_expect_eq(moved.up, 2 * 4 * (2 * 4 * 2 * own + own + own), "ZeRO %d", zero);
    cr_expect_eq(moved.down, 2 * 4 * (own + own), "ZeRO %d", zero);
  }
}

/* The optimizer alone: gradients go down for it. With ZeRO 1 a rank's half. */
Test(moves, optimizer_offloaded) {
  zp_choice c = choice_of(1, 2, 1);
  c.home[ZP_STATE_OPTIMIZER] = HOST;
  enum { SHARD = (3 * PADDED + TABLE + POSITIONS + 2 * NORM_PADDED) / 2 };
  zp_move_list list = zp_stage_moves(arena, program_of(&TINY, true, c, 8), 0);
  int64_t down = 0, up = 0;
  for (int i = 0; i < list.len; i++) {
    if (list.data[i].queue == ZP_QUEUE_DOWN) down += list.data[i].elements;
    if (list.data[i].queue == ZP_QUEUE_UP) up += list.data[i].elements;
    cr_expect(list.data[i].when != ZP_WHEN_AT_DEVICE_UPDATE, "nothing is left to update on the device");
  }
  cr_expect_eq(down, SHARD);
  cr_expect_eq(up, SHARD);
}

/* A layer keeps its input alone, S d elements of 4 bytes, with full recomputation. Half of it leaves; the other half
 * moves inside the device, read and written. The first unit keeps nothing; the last one, which is not recomputed, keeps
 * more: half of it leaves, rounded down to 256 bytes. On disks whole pages. */
Test(moves, saved_values_offloaded) {
  zp_choice c = choice_of(1, 1, 0);
  c.recompute = ZP_RECOMPUTE_FULL;
  c.home[ZP_STATE_ACTIVATIONS] = (zp_home){ZP_TIER_HOST, 4};
  zp_program *p = program_of(&TINY, true, c, 8);
  cr_assert_eq(p->lowered->segments[LAYERS].saved_bytes, 4 * MESSAGE);
  cr_assert_eq(p->lowered->segments[BEGIN].saved_bytes, 0);
  int64_t last = p->lowered->segments[END].saved_bytes, gone = last / 8 * 4 / 256 * 256;
  cr_assert_gt(gone, 0);
#define SAVED(when, act, run, count, elements, bytes, queue)                                                           \
  COPY("saved values offloaded", when, act, run, 0, count, elements, bytes, 8, queue)
#define OUT(run, count, offloaded, stays)                                                                              \
  SAVED(ZP_WHEN_AFTER_UNIT, ZP_ACT_F, run, count, offloaded, 1, ZP_QUEUE_DOWN),                                        \
      SAVED(ZP_WHEN_AFTER_UNIT, ZP_ACT_F, run, count, stays, 2, ZP_QUEUE_DEVICE_MEMORY)
#define IN(run, count, offloaded, stays)                                                                               \
  SAVED(ZP_WHEN_BEFORE_UNIT, ZP_ACT_B, run, count, offloaded, 1, ZP_QUEUE_UP),                                         \
      SAVED(ZP_WHEN_BEFORE_UNIT, ZP_ACT_B, run, count, stays, 2, ZP_QUEUE_DEVICE_MEMORY)
  const row rows[] = {OUT(LAYERS, 3, 2 * MESSAGE, 2 * MESSAGE), OUT(END, 1, gone, last - gone),
                      IN(LAYERS, 3, 2 * MESSAGE, 2 * MESSAGE), IN(END, 1, gone, last - gone)};
  expect_rows(p, 0, rows, sizeof rows / sizeof *rows);
  c.home[ZP_STATE_ACTIVATIONS] = DISK;
  zp_tier_bytes moved = zp_program_tier_bytes(program_of(&TINY, true, c, 8));
  cr_expect_eq(moved.down, 8 * (3 * 4 * MESSAGE + last));
  cr_expect_eq(moved.written, 8 * (3 * 4 * MESSAGE + (last + 4095) / 4096 * 4096),
               "a layer's 8192 bytes are two pages");
}

/* Two stages: activations up, gradients down; the table stands on both, and the first stage counts its sum. */
Test(moves, pipeline_and_ties) {
  zp_program *p = program_of(&TINY, true, choice_of(2, 1, 0), 8);
#define SEND(act) {"pipeline messages", ZP_WHEN_AFTER_ACTION, act, -1, 0, 1, MESSAGE, 4, 8, ZP_QUEUE_MESSAGES, 2}
#define TIE                                                                                                            \
  { "tied weights", ZP_WHEN_AFTER_BACKWARD, 0, -1, 0, 1, TABLE, 4, 1, ZP_QUEUE_TIES, 2 }
  EXPECT_ROWS(p, 0, SEND(ZP_ACT_F), TIE);
  EXPECT_ROWS(p, 1, SEND(ZP_ACT_B), TIE);
  zp_traffic t = zp_program_traffic(p);
  cr_expect_eq(t.pipeline, 2 * 8 * MESSAGE * 4);
  cr_expect_eq(t.tie, 2 * TABLE * 4);
}

/* Backward in two parts: the first one sends down, the second one completes gradients. */
Test(moves, split_backward) {
  zp_choice c = choice_of(2, 2, 2);
  c.schedule = ZP_SCHEDULE_ZB_H1;
  zp_move_list list = zp_stage_moves(arena, program_of(&TINY, true, c, 8), 1);
  int sends = 0, scatters = 0;
  for (int i = 0; i < list.len; i++) {
    const zp_move *m = &list.data[i];
    bool send = m->way == ZP_WAY_SEND, scatter = m->when == ZP_WHEN_AFTER_UNIT;
    if (send) cr_expect_eq(m->act, ZP_ACT_BI);
    if (scatter) cr_expect_eq(m->act, ZP_ACT_BW);
    sends += send;
    scatters += scatter;
  }
  cr_expect_eq(sends, 1);
  cr_expect_eq(scatters, 4, "layers; table and two vectors of the last unit");
}

/* Folded over two stages: begin | layer, two layers | end. The second stage has both middle chunks, which copy what
 * flows between them, read and written; nobody sends that, and no other schedule has it. */
Test(moves, folded_chunks_hand_over_on_their_stage) {
  static int64_t cut[] = {0, 1, 2, 4, 5};
  zp_choice c = {.tensor = 1, .pipeline = 2, .data = 1, .microbatch = 1, .cut = cut, .chunks = 2};
  c.schedule = ZP_SCHEDULE_ZB_V;
  zp_program *p = program_of(&TINY, true, c, 8);
#define SEND_DOWN {"pipeline messages", ZP_WHEN_AFTER_ACTION, ZP_ACT_BI, -1, 0, 1, MESSAGE, 4, 8, ZP_QUEUE_MESSAGES, 2}
#define HAND(act)                                                                                                      \
  { "hand-over on a stage", ZP_WHEN_AFTER_ACTION, act, -1, 0, 1, MESSAGE, 2 * 4, 8, ZP_QUEUE_DEVICE_MEMORY, 1 }
  EXPECT_ROWS(p, 0, SEND(ZP_ACT_F), SEND_DOWN);
  EXPECT_ROWS(p, 1, HAND(ZP_ACT_F), SEND(ZP_ACT_F), SEND_DOWN, HAND(ZP_ACT_BI));
  cr_expect_eq(zp_program_traffic(p).pipeline, 4 * 8 * MESSAGE * 4);
  c.schedule = ZP_SCHEDULE_INTERLEAVED;
  zp_move_list list = zp_stage_moves(arena, program_of(&TINY, true, c, 8), 1);
  for (int i = 0; i < list.len; i++)
    cr_expect(list.data[i].what != ZP_MOVE_MESSAGE || list.data[i].way == ZP_WAY_SEND, "%s",
              list.data[i].strategy->name);
}

/* 8 experts over two data ranks: a rank has slots of all 8, [8, 8, 64] rows a sample, out and back in either pass.
 * Experts of different ranks are not the same, so nobody sums them. */
Test(moves, experts) {
  static const model_size size = {STYLE_EXPERTS, 256, 32, 64, 3, 4, 8, 96, false};
  zp_choice c = choice_of(1, 2, 0);
  c.expert = 2;
  zp_program *p = program_of(&size, true, c, 8);
  zp_move_list list = zp_stage_moves(arena, p, 0);
  int64_t exchanged = 0, spread = 0;
  for (int i = 0; i < list.len; i++) {
    const zp_move *m = &list.data[i];
    if (m->way == ZP_WAY_EXCHANGE) {
      cr_expect(m->run == LAYERS && m->count == 3 && m->ranks == 2 && m->when == ZP_WHEN_IN_UNIT);
      exchanged += m->elements;
    }
    if (m->to == ZP_END_REPLICAS) spread += m->elements * (m->ranks - 1);
  }
  cr_expect_eq(exchanged, 4 * 8 * 8 * 64);
  cr_expect_eq(spread, 0);
}

/* Half the norms' gradients on each of two tensor ranks: two norms a layer and the last one, two vectors of 64 each;
 * and biases of projections, which are added once: two of 64 a layer. */
Test(moves, partial_sums) {
  zp_choice c = choice_of(1, 1, 0);
  c.tensor = 2;
  c.sequence = true;
  zp_move_list list = zp_stage_moves(arena, program_of(&TINY, true, c, 8), 0);
  int found = 0;
  for (int i = 0; i < list.len; i++) {
    if (list.data[i].queue != ZP_QUEUE_TENSOR) continue;
    found++;
    cr_expect_eq(list.data[i].elements, 3 * (4 + 2) * 64 + 2 * 64, "%lld", (long long)list.data[i].elements);
    cr_expect_eq(zp_move_sent_bytes(&list.data[i]), 2 * list.data[i].elements * 4);
  }
  cr_expect_eq(found, 1);
}

/* Every strategy that applies says so in one line, and the text names it. */
Test(moves, text) {
  zp_choice c = choice_of(2, 2, 3);
  c.home[ZP_STATE_PARAMS] = c.home[ZP_STATE_GRADIENTS] = c.home[ZP_STATE_OPTIMIZER] = HOST;
  c.home[ZP_STATE_ACTIVATIONS] = DISK;
  zp_program *p = program_of(&TINY, true, c, 8);
  const char *text = zp_moves_text(arena, p);
  zp_move_scope scope = zp_move_scope_of(p->lowered, &p->choice);
  scope.program = p;
  int n = 0;
  for (int i = 0; zp_move_strategies[i]; i++) {
    const zp_move_strategy *s = zp_move_strategies[i];
    if (!s->applies(&scope)) continue;
    const char *words = s->explain(arena, &scope);
    cr_expect(strlen(words) > 0 && !strchr(words, '\n'), "%s", s->name);
    cr_expect_not_null(strstr(text, words), "%s", s->name);
    n++;
  }
  cr_expect_eq(n, 9, "gather, scatter, four classes offloaded, messages, ties, update");
}

/* A choice that needs what no strategy of the list provides is refused: every need has exactly one that does. */
Test(moves, every_need_has_its_strategy) {
  unsigned provided = 0;
  for (int i = 0; zp_move_strategies[i]; i++) {
    cr_expect(!(provided & zp_move_strategies[i]->provides), "%s", zp_move_strategies[i]->name);
    provided |= zp_move_strategies[i]->provides;
  }
  cr_expect_eq(provided, (1u << ZP_MOVE_NEED_COUNT) - 1);
}
