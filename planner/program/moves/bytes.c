/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the list: bytes that ranks send in a step, by axis, and that cross between a device, its host and disks.
 * They are those that trainers count (`zplan run --check-memory`). */
#include "strategy.h"

#include <assert.h>

int64_t zp_move_all_bytes(const zp_move *m) {
  assert(m->all_elements >= 0 && m->element_bytes >= 1 && m->times >= 0 && m->count >= 1);
  return m->mirrored ? 0 : m->all_elements * m->element_bytes * m->times * m->count;
}

/* Each of n ranks sends n - 1 parts of n, in an all-reduce twice, as a ring and by messages between all. In an exchange
 * one of n parts stays at home. */
int64_t zp_move_sent_bytes(const zp_move *m) {
  assert(m->ranks >= 1);
  int64_t bytes = zp_move_all_bytes(m);
  switch (m->way) {
  case ZP_WAY_PASS:
  case ZP_WAY_SEND: return bytes;
  case ZP_WAY_ALL_REDUCE: return 2 * (m->ranks - 1) * bytes - m->spared_bytes;
  case ZP_WAY_REDUCE_SCATTER: return (m->ranks - 1) * bytes - m->spared_bytes;
  case ZP_WAY_ALL_GATHER:
  case ZP_WAY_EXCHANGE: return (m->ranks - 1) * bytes;
  case ZP_WAY_COPY:
  case ZP_WAY_COUNT: break;
  }
  return 0;
}

typedef void on_stage(void *sum, int stage, const zp_move_list *list);

static void for_stages(const zp_program *program, on_stage *add, void *sum) {
  zp_arena *scratch = zp_arena_new("moves");
  for (int s = 0; s < program->choice.pipeline; s++) {
    zp_arena_mark mark = zp_arena_get_mark(scratch);
    zp_move_list list = zp_stage_moves(scratch, program, s);
    add(sum, s, &list);
    zp_arena_rewind(scratch, mark);
  }
  zp_arena_free(scratch);
}

static void add_sent(void *sum, int stage, const zp_move_list *list) {
  (void)stage;
  zp_traffic *t = sum;
  int64_t none = 0;
  for (int i = 0; i < list->len; i++) {
    const zp_move *m = &list->data[i];
    int64_t *const axis[ZP_END_COUNT] = {[ZP_END_DATA_RANKS] = m->warmup ? &t->warmup_data : &t->data,
                                         [ZP_END_REPLICAS] = &t->data,
                                         [ZP_END_COPIES] = &t->data,
                                         [ZP_END_HPZ] = &t->data,
                                         [ZP_END_TENSOR_RANKS] = &t->tensor,
                                         [ZP_END_EXPERT_RANKS] = &t->expert,
                                         [ZP_END_CONTEXT_RANKS] = &t->context,
                                         [ZP_END_NEIGHBOUR] = &t->pipeline,
                                         [ZP_END_TIED_STAGES] = &t->tie};
    zp_move_end peers = zp_move_peers(m);
    *(axis[peers] ? axis[peers] : &none) += zp_move_sent_bytes(m);
    if (m->routed) t->routed += zp_move_sent_bytes(m);
    if (peers == ZP_END_DATA_RANKS || peers == ZP_END_REPLICAS || peers == ZP_END_COPIES || peers == ZP_END_HPZ)
      t->average_data += m->share * (double)zp_move_sent_bytes(m);
  }
}

zp_traffic zp_program_traffic(const zp_program *program) {
  zp_traffic traffic = {0};
  for_stages(program, add_sent, &traffic);
  return traffic;
}

typedef struct across_sum {
  const zp_program *program;
  zp_across bytes;
} across_sum;

static void add_across(void *sum, int stage, const zp_move_list *list) {
  across_sum *all = sum;
  zp_across *b = &all->bytes;
  zp_arena *scratch = zp_arena_new("crossing bytes");
  for (int i = 0; i < list->len; i++) {
    const zp_move *m = &list->data[i];
    int64_t *const axis[ZP_END_COUNT] = {[ZP_END_DATA_RANKS] = m->warmup ? &b->warmup_data : &b->data,
                                         [ZP_END_REPLICAS] = &b->data,
                                         [ZP_END_COPIES] = &b->data,
                                         [ZP_END_HPZ] = &b->data,
                                         [ZP_END_TENSOR_RANKS] = &b->tensor,
                                         [ZP_END_EXPERT_RANKS] = &b->expert,
                                         [ZP_END_CONTEXT_RANKS] = &b->context,
                                         [ZP_END_NEIGHBOUR] = &b->pipeline,
                                         [ZP_END_TIED_STAGES] = &b->tie};
    int64_t *to = axis[zp_move_peers(m)], more = to ? zp_move_across_bytes(scratch, all->program, stage, m) : 0;
    if (to) *to = more == ZP_ACROSS_UNKNOWN || *to == ZP_ACROSS_UNKNOWN ? ZP_ACROSS_UNKNOWN : *to + more;
  }
  zp_arena_free(scratch);
}

zp_across zp_program_across(const zp_program *program) {
  across_sum all = {.program = program};
  for_stages(program, add_across, &all);
  return all.bytes;
}

static void add_spared(void *sum, int stage, const zp_move_list *list) {
  (void)stage;
  for (int i = 0; i < list->len; i++) *(int64_t *)sum += list->data[i].spared_bytes;
}

int64_t zp_program_spared_bytes(const zp_program *program) {
  int64_t bytes = 0;
  for_stages(program, add_spared, &bytes);
  return bytes;
}

static void add_copied(void *sum, int stage, const zp_move_list *list) {
  (void)stage;
  zp_tier_bytes *b = sum;
  for (int i = 0; i < list->len; i++) {
    const zp_move *m = &list->data[i];
    int64_t *const way[ZP_QUEUE_COUNT] = {
        [ZP_QUEUE_DOWN] = &b->down, [ZP_QUEUE_UP] = &b->up, [ZP_QUEUE_READ] = &b->read, [ZP_QUEUE_WRITE] = &b->written};
    int64_t bytes = zp_move_all_bytes(m), more = m->frozen ? bytes : m->warmup ? -bytes : 0;
    b->signs_down += m->queue == ZP_QUEUE_DOWN ? more : 0;
    b->signs_up += m->queue == ZP_QUEUE_UP ? more : 0;
    if (way[m->queue] && !m->frozen) *way[m->queue] += bytes;
  }
}

zp_tier_bytes zp_program_tier_bytes(const zp_program *program) {
  zp_tier_bytes bytes = {0};
  for_stages(program, add_copied, &bytes);
  return bytes;
}

typedef struct of_strategy {
  const zp_move_strategy *strategy;
  int64_t bytes;
} of_strategy;

static void add_strategy(void *sum, int stage, const zp_move_list *list) {
  (void)stage;
  of_strategy *of = sum;
  for (int i = 0; i < list->len; i++) {
    const zp_move *m = &list->data[i];
    if (m->strategy == of->strategy && !m->warmup)
      of->bytes += m->way == ZP_WAY_COPY ? zp_move_all_bytes(m) : zp_move_sent_bytes(m);
  }
}

int64_t zp_program_strategy_bytes(const zp_program *program, const zp_move_strategy *strategy) {
  assert(strategy);
  of_strategy of = {.strategy = strategy};
  for_stages(program, add_strategy, &of);
  return of.bytes;
}
