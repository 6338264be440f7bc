/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a step on the GPU: loss, norm, decision, optimizer. Norm and optimizer are one launch each, over a table
 * of the blocks (kernels/cuda/zpd_step.cuh).
 *
 * Where nobody else has a say the GPU decides itself and the host hears of it later: the outcome of a step is copied to
 * pinned memory after it, while the host starts the next one. */
#include "cuda.h"
#include "update.h"
#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const int64_t zpr_block_elements = INT64_MAX / 2;

/* ---- tables ---- */

typedef struct tables {
  zpr_table table[ZPR_TABLES];
} tables;

int64_t zpr_blocks_of_norm(int64_t count) {
  int64_t blocks = (count + ZPD_SQUARES_ELEMENTS - 1) / ZPD_SQUARES_ELEMENTS;
  return blocks < ZPD_SQUARES_BLOCKS ? blocks : ZPD_SQUARES_BLOCKS;
}

static int64_t blocks_of_update(int64_t count) { return (count + ZPD_UPDATE_ELEMENTS - 1) / ZPD_UPDATE_ELEMENTS; }

static zpd_segment segment_of(const zpr_block *b) {
  return (zpd_segment){.begin = b->begin,
                       .count = b->end - b->begin,
                       .to_params = b->to_params,
                       .to_state = b->to_state,
                       .lr_factor = b->recipe.lr_factor,
                       .weight_decay = b->recipe.weight_decay,
                       .sign_rate = b->recipe.sign_rate};
}

/* Is the block in the table? */
static bool belongs(const zpr_block *b, zpr_table_kind kind) {
  return zpr_block_is_there(b) && (kind != ZPR_TABLE_NORM || b->counted);
}

static int64_t sums_of(zpr_table_kind kind) { return kind == ZPR_TABLE_LAMB ? 2 : kind == ZPR_TABLE_NORM; }

static void put_segments(zpr *c, const zpr_table *t, const zpd_segment *segments) {
  int64_t bytes = t->n * (int64_t)sizeof *segments, at = 0;
  while (at < bytes) {
    int64_t some = bytes - at < zpr_window_bytes(c) ? bytes - at : zpr_window_bytes(c);
    memcpy(zpr_window_open(c, zpr_gpu_host(t->memory + (gpu_pointer)at), some, false), (const char *)segments + at,
           (size_t)some);
    zpr_window_close(c);
    at += some;
  }
}

static void make_table(zpr *c, const zpr_block_list *list, zpr_table *t, zpr_table_kind kind) {
  zpd_segment *segments = zpr_alloc(c, (size_t)list->n + 1, sizeof *segments);
  for (int64_t i = 0; i < list->n; i++) {
    if (!belongs(&list->block[i], kind)) continue;
    zpd_segment *s = &segments[t->n++];
    *s = segment_of(&list->block[i]);
    s->first = t->blocks;
    t->blocks += sums_of(kind) ? zpr_blocks_of_norm(s->count) : blocks_of_update(s->count);
  }
  size_t bytes = (size_t)t->n * sizeof *segments + (size_t)(t->blocks * sums_of(kind)) * sizeof(double);
  if (bytes > 0) {
    zpr_cuda(c, c->state->device->api.allocate(&t->memory, bytes), "get memory for a table of parameters");
    put_segments(c, t, segments);
  }
  free(segments);
}

const zpr_table *zpr_table_of(zpr *c, zpr_block_list *list, zpr_table_kind kind) {
  if (!list->there) list->there = zpr_alloc(c, 1, sizeof(tables));
  zpr_table *t = &((tables *)list->there)->table[kind];
  if (!t->memory && t->blocks == 0) make_table(c, list, t, kind);
  return t;
}

void zpr_block_list_close(zpr *c, zpr_block_list *list) {
  tables *all = list->there;
  if (!all) return;
  zpr_cuda_wait(c);
  for (int i = 0; i < ZPR_TABLES; i++)
    if (all->table[i].memory) c->state->device->api.release(all->table[i].memory);
  free(all);
  list->there = NULL;
}

const zpd_segment *zpr_segments_in(const zpr_table *t) { return (const zpd_segment *)(void *)zpr_gpu_host(t->memory); }

double *zpr_sums_in(const zpr_table *t) {
  return (double *)(void *)zpr_gpu_host(t->memory + (gpu_pointer)t->n * sizeof(zpd_segment));
}

/* ---- norm ---- */

static void square_segments(zpr *c, const zpr_table *t) {
  zpd_squares a = {.grads = zpr_at(c, c->stage->grads),
                   .segments = zpr_segments_in(t),
                   .n = t->n,
                   .sums = t->n ? zpr_sums_in(t) : NULL};
  if (t->blocks > 0) ZPR_START(c, square_segments, &a, t->blocks);
}

/* Parts are added in order, as zpd_decide does. */
void zpr_square_blocks(zpr *c, zpr_block_list *list, double *squares) {
  const zpr_table *t = zpr_table_of(c, list, ZPR_TABLE_NORM);
  int64_t bytes = t->blocks * (int64_t)sizeof(double);
  assert(bytes <= zpr_window_bytes(c));
  square_segments(c, t);
  const double *sum = bytes > 0 ? zpr_window_open(c, zpr_sums_in(t), bytes, true) : NULL;
  for (int64_t i = 0; i < list->n; i++) {
    const zpr_block *b = &list->block[i];
    squares[i] = 0;
    if (!belongs(b, ZPR_TABLE_NORM)) continue;
    for (int64_t k = zpr_blocks_of_norm(b->end - b->begin); k > 0; k--) squares[i] += *sum++;
  }
  if (bytes > 0) zpr_window_close(c);
}

/* ---- optimizer ---- */

static zpd_step *step_of(zpr *c) { return &((zpr_scalars *)(void *)zpr_gpu_host(c->state->device->scalars))->step; }

/* What the host has decided, to where kernels read it. */
void zpr_put_decision(zpr *c, const zpk_update *rule) {
#define BIAS(bias, beta) rule->bias,
  const double decided[] = {rule->grad_scale, ZPK_BIASES(BIAS) 1};
#undef BIAS
  static_assert(offsetof(zpd_step, applies) - offsetof(zpd_step, grad_scale) == sizeof decided - sizeof *decided,
                "side by side");
  memcpy(zpr_window_open(c, &step_of(c)->grad_scale, sizeof decided, false), decided, sizeof decided);
  zpr_window_close(c);
}

zpd_updates zpr_updates_of(zpr *c, const zpk_update *rule) {
  const zpr_stage *stage = c->stage;
  zpd_updates a = {.kind = rule->kind,
                   .lr = rule->lr,
#define COPY(name) .name = rule->name,
                   ZPK_SETTINGS(COPY)
#undef COPY
                       .ema = rule->ema,
                   .step = step_of(c),
                   .params = zpr_at(c, stage->params),
                   .master = zpk_is_narrow(rule->dtype) ? zpr_at(c, stage->master) : NULL,
                   .grads = zpr_at(c, stage->grads),
                   .average = rule->ema > 0 && stage->average >= 0 ? zpr_at(c, stage->average) : NULL};
  zpr_moments_here(c, a.moment);
  return a;
}

zpd_updates zpr_updates_over(zpr *c, const zpr_table *t, const zpk_update *rule) {
  zpd_updates a = zpr_updates_of(c, rule);
  a.segments = zpr_segments_in(t);
  a.n = t->n;
  a.blocks = t->blocks;
  return a;
}

/* One block needs no table: it goes along with the arguments. */
static void update_blocks(zpr *c, zpr_block_list *list, const zpk_update *rule) {
  zpd_updates a;
  if (list->n == 1) {
    a = zpr_updates_of(c, rule);
    a.one = segment_of(list->block);
    a.blocks = blocks_of_update(a.one.count);
  } else {
    a = zpr_updates_over(c, zpr_table_of(c, list, ZPR_TABLE_UPDATE), rule);
  }
  if (a.blocks > 0) ZPR_START(c, optimizer, &a, zpr_grid(c, a.blocks));
}

void zpr_update_blocks(zpr *c, zpr_block_list *list, const zpk_update *rule) {
  zpr_put_decision(c, rule);
  update_blocks(c, list, rule);
}

zpd_update zpr_update_args(zpr *c, const zpr_block *b, const zpk_update *rule) {
  zpr_block_arrays x = zpr_arrays_of(c, b);
  return (zpd_update){.kind = rule->kind,
                      .lr = rule->lr * b->recipe.lr_factor,
                      .beta1 = rule->beta1,
                      .beta2 = rule->beta2,
                      .eps = rule->eps,
                      .weight_decay = b->recipe.weight_decay,
                      .momentum = rule->momentum,
                      .bias1 = rule->bias1,
                      .bias2 = rule->bias2,
                      .grad_scale = rule->grad_scale,
                      .param = x.param,
                      .weight = x.weight,
                      .grad = x.grad,
                      .m = x.m,
                      .v = x.v,
                      .count = b->end - b->begin};
}

/* ---- loss ---- */

void zpr_collect_loss(zpr *c) {
  enum { BYTES = offsetof(zpd_step, tally) + sizeof(((zpd_step *)NULL)->tally) };
  static_assert(offsetof(zpd_step, loss) == 0, "the loss and the tallies stand side by side");
  zpd_step sums;
  memcpy(&sums, zpr_window_open(c, step_of(c), BYTES, true), BYTES);
  zpr_window_close(c);
  c->loss += sums.loss;
  for (int i = 0; i < ZPR_MOST_LOSSES; i++) {
    c->tally[i].loss += sums.tally[i].loss;
    c->tally[i].right += sums.tally[i].right;
  }
  zpr_zero(c, step_of(c), BYTES);
}

/* ---- decisions of the GPU ---- */

/* Other ranks' norms would have to reach this GPU. */
bool zpr_device_decides(const zpr *c) { return c->ranks == 1; }

void zpr_decide_begin(zpr *c) {
  zpr_device *d = c->state->device;
  enum { NO_TIMING = 2 /* CU_EVENT_DISABLE_TIMING */ };
  zpd_step step = {.loss_scale = (double)c->loss_scale,
                   .scale_steps = (double)c->scale_steps,
                   .skipped_steps = (double)c->skipped_steps};
  memcpy(zpr_window_open(c, step_of(c), sizeof step, false), &step, sizeof step);
  zpr_window_close(c);
  for (int i = 0; i < ZPR_DECISIONS && !d->decides; i++)
    zpr_cuda(c, d->api.new_event(&d->told[i], NO_TIMING), "make an event");
  if (!d->decides)
    zpr_cuda(c, d->api.allocate_host((void **)&d->outcome, ZPR_DECISIONS * sizeof *d->outcome),
             "get pinned memory of the host");
  d->decides = true;
}

void zpr_cuda_decide_close(zpr *c) {
  zpr_device *d = c->state->device;
  if (!d->decides) return;
  for (int i = 0; i < ZPR_DECISIONS; i++) d->api.release_event(d->told[i]);
  d->api.release_host(d->outcome);
}

const double *zpr_loss_scale_there(zpr *c) { return c->state->device->decides ? &step_of(c)->loss_scale : NULL; }

void zpr_decide(zpr *c, zpr_block_list *counted, zpr_block_list *updated, const zpk_update *rule,
                const zpr_biases *biases) {
  zpr_device *d = c->state->device;
  const zpr_program *p = c->program;
  const zpr_table *t = zpr_table_of(c, counted, ZPR_TABLE_NORM);
  int turn = (int)(d->decided % ZPR_DECISIONS);
  zpd_outcome *outcome = &((zpr_scalars *)(void *)zpr_gpu_host(d->scalars))->outcome[turn];
  zpd_decision a = {.sums = t->n ? zpr_sums_in(t) : NULL,
                    .segments = zpr_segments_in(t),
                    .n = t->n,
                    .blocks = t->blocks,
                    .clip = p->clip,
                    .skipped_steps = (double)c->skipped_steps,
                    .scale_window = zpr_loss_scale_moves(p) ? (double)p->scale_window : 0,
                    .most_scale = ZPR_MOST_LOSS_SCALE,
                    .step = step_of(c),
                    .outcome = outcome};
#define BIAS(bias, beta) memcpy(a.bias, biases->bias, sizeof a.bias);
  ZPK_BIASES(BIAS)
#undef BIAS
  assert(d->decides && d->decided - d->heard < ZPR_DECISIONS);
  square_segments(c, t);
  ZPR_START(c, decide, &a, 1);
  zpr_cuda(c, d->api.to_host(&d->outcome[turn], zpr_gpu(outcome), sizeof *outcome, d->stream), "copy from the GPU");
  zpr_cuda(c, d->api.record(d->told[turn], d->stream), "mark a place in a stream");
  d->decided++;
  update_blocks(c, updated, rule);
}

zpr_decided zpr_decided_wait(zpr *c) {
  zpr_device *d = c->state->device;
  assert(d->heard < d->decided);
  int turn = (int)(d->heard++ % ZPR_DECISIONS);
  zpr_cuda(c, d->api.await_event(d->told[turn]), "finish a step");
  const zpd_outcome *o = &d->outcome[turn];
  zpr_decided told = {
      .loss = o->loss, .grad_norm = o->grad_norm, .loss_scale = o->loss_scale, .applied = o->applied != 0};
  static_assert((int)ZPR_MOST_LOSSES == (int)ZPD_MOST_LOSSES, "tallies of all losses");
  for (int i = 0; i < ZPR_MOST_LOSSES; i++) told.tally[i] = (zpr_tally){o->tally[i].loss, o->tally[i].right};
  return told;
}
