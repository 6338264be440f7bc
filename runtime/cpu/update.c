/* SPDX-License-Identifier: Apache-2.0 */
/* Norm and optimizer over the blocks of the flat buffers: a block is a task of the threads. */
#include <assert.h>
#include "device.h"
#include "state.h"

const int64_t zpr_block_elements = 65536; /* a multiple of the 4096 that zpk_sum_squares asks for */

typedef struct blocks_task {
  zpr *c;
  const zpr_block *blocks;
  double *squares;
  const zpk_update *rule;
} blocks_task;

static void square_blocks(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const blocks_task *a = arg;
  const void *grads = zpr_at(a->c, a->c->stage->grads);
  for (int64_t i = begin; i < end; i++) {
    const zpr_block *b = &a->blocks[i];
    a->squares[i] = b->counted ? zpk_sum_squares(zpr_sum_type(a->c), grads, b->begin, b->end) : 0;
  }
}

void zpr_block_list_close(zpr *c, zpr_block_list *list) { (void)c, (void)list; }

void zpr_square_blocks(zpr *c, zpr_block_list *list, double *squares) {
  blocks_task a = {.c = c, .blocks = list->block, .squares = squares};
  zpr_parallel(c, list->n, 1, square_blocks, &a);
}

/* Elements [begin, end) of the state, and of the gradients from `grads` on, counted as they are. */
static void update_some(const zpr *c, const zpk_update *rule, void *weights, const char *grads, void *const *moment,
                        void *average, int64_t begin, int64_t end) {
  enum { AT_ONCE = 2048 };
  float wide[AT_ONCE];
  int64_t size = zpr_sum_bytes(c), n = end - begin;
  for (int64_t at = begin; at < end; at += n) {
    const void *some = grads;
    if (c->program->stochastic_sums) {
      n = end - at < AT_ONCE ? end - at : AT_ONCE;
      zpk_widen(ZPK_BF16, grads + at * size, wide, n);
      some = wide - at;
    }
    zpk_optimizer_and_average(rule, weights, some, moment, average, at, at + n);
  }
}

static void update_blocks(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const blocks_task *a = arg;
  zpr *c = a->c;
  const zpr_stage *stage = c->stage;
  bool mixed = zpk_is_narrow(a->rule->dtype);
  int64_t size = zpk_bytes(a->rule->dtype);
  char *param = zpr_at(c, stage->params), *grad = zpr_at(c, stage->grads);
  float *master = mixed ? zpr_at(c, stage->master) : NULL;
  void *moment[ZPK_MOMENTS];
  zpr_moments_here(c, moment);
  void *average = a->rule->ema > 0 && stage->average >= 0 ? zpr_at(c, stage->average) : NULL;
  for (int64_t i = begin; i < end; i++) {
    const zpr_block *b = &a->blocks[i];
    int64_t at = b->begin + b->to_state, n = b->end - b->begin;
    char *first = param + (b->begin + b->to_params) * size;
    /* all count in elements of the state */
    const zpk_update rule = zpr_rule_with(a->rule, b->recipe);
    update_some(c, &rule, mixed ? (char *)(void *)master : first - at * size, grad - b->to_state * zpr_sum_bytes(c),
                moment, average, at, at + n);
    if (mixed) zpk_round(a->rule->dtype, master + at, first, n);
  }
}

void zpr_update_blocks(zpr *c, zpr_block_list *list, const zpk_update *rule) {
  blocks_task a = {.c = c, .blocks = list->block, .rule = rule};
  zpr_parallel(c, list->n, 1, update_blocks, &a);
}

/* zpr_ce_loss adds to c->loss itself. */
void zpr_collect_loss(zpr *c) { (void)c; }

/* The host computes: what it decides it knows at once. */
bool zpr_device_decides(const zpr *c) {
  (void)c;
  return false;
}

void zpr_decide_begin(zpr *c) {
  (void)c;
  assert(!"the host decides");
}

void zpr_decide(zpr *c, zpr_block_list *counted, zpr_block_list *updated, const zpk_update *rule,
                const zpr_biases *biases) {
  (void)c, (void)counted, (void)updated, (void)rule, (void)biases;
  assert(!"the host decides");
}

zpr_decided zpr_decided_wait(zpr *c) {
  (void)c;
  assert(!"the host decides");
  return (zpr_decided){0};
}
