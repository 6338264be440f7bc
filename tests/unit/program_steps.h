/* SPDX-License-Identifier: Apache-2.0 */
/* The arenas of program_machine.h, and single steps in them. Arithmetic comes from the graph interpreter, one step at a
 * time; collectives and losses of divided tensors are written out here. */
#ifndef PROGRAM_STEPS_H
#define PROGRAM_STEPS_H

#include <math.h>
#include <zplan/philox.h>
#include "../oracle/interpret.h"
#include "planner_models.h"

enum { PM_TENSOR = 4, PM_STAGES = 8, PM_CHUNKS = 3, PM_SLOTS = 64 };

typedef struct pm_rank {
  char *arena;
  zp_interpreter **in; /* per segment */
} pm_rank;

/* One unit at work on one stage: the same places on every tensor rank. */
typedef struct pm_unit {
  const zp_stage *stage;
  const zp_segment_program *seg;
  const zp_procedure *p;
  int64_t base, iteration, mb;
  int64_t slot;                         /* that the chunk's streams stand first in */
  uint64_t streams;                     /* of the chunk */
  const zp_segment_program *next;       /* whose input y is; NULL: a message */
  int64_t saved, pending, x, y, dy, dx; /* byte offsets in the arena; -1 absent */
} pm_unit;

typedef struct pm {
  zp_arena *memory;
  const zp_program *program;
  const zp_lowered *l;
  int t;
  pm_rank rank[PM_STAGES][PM_TENSOR];
  int64_t sent[PM_STAGES * PM_CHUNKS][2],
      taken[PM_STAGES * PM_CHUNKS][2]; /* messages of a chunk of the model, [1]: up */
  int64_t owner[PM_STAGES][PM_SLOTS];  /* of the slots of a pool: 1 + chunk * micro-batches + micro-batch; 0: free */
  double loss;
} pm;

static inline const zp_segment_program *pm_segments(const pm *m, int stage) {
  return zp_program_lowered(m->program, stage)->segments;
}

/* Its number, whatever the mode of its layers: modes share a segment's graph. */
static inline int pm_index(const pm *m, int stage, const zp_segment_program *seg) {
  const zp_lowered *l = zp_program_lowered(m->program, stage), *rest = l->rest;
  bool of_rest = rest && seg >= rest->segments && seg < rest->segments + rest->n_segments;
  return (int)(seg - (of_rest ? rest : l)->segments);
}

static inline void pm_poison(char *at, int64_t bytes) { memset(at, 0xff, (size_t)bytes); } /* a NaN in every double */

/* A reproducible value in [-1, 1) for logical element i of one instance of a parameter. */
static inline double pm_weight(const zp_model *model, int param, int64_t iteration, int64_t i) {
  double v = 2 * zp_philox_uniform(3, 0, (uint64_t)param, 1, (uint64_t)iteration, (uint64_t)i) - 1;
  return model->params.data[param].shape.rank == 1 ? 0.8 + 0.2 * v : 0.5 * v;
}

static inline int32_t pm_token(const zp_model *model, int input, int64_t sample, int64_t position) {
  double u = zp_philox_uniform(4, 0, (uint64_t)sample, (uint64_t)input, 0, (uint64_t)position);
  return (int32_t)(u * (double)model->vocabulary);
}

/* Logical element of local element i of a parameter on tensor rank t; -1: padding. */
static inline int64_t pm_logical_element(const zp_shape *shape, const zp_param_split *split, int t, int64_t i) {
  if (split->split_dim < 0) return i;
  int64_t inner = 1, size = shape->dim[split->split_dim];
  int64_t share = split->local.dim[split->split_dim] / (size / split->units);
  for (int d = split->split_dim + 1; d < shape->rank; d++) inner *= shape->dim[d];
  int64_t unit_size = size / (split->outer * split->units), local = split->outer * share * unit_size;
  int64_t column = i % inner, at = i / inner % local, row = i / inner / local;
  int64_t within = at % unit_size, unit = t * share + at / unit_size % share, outer = at / unit_size / share;
  if (unit >= split->units) return -1;
  return (row * size + (outer * split->units + unit) * unit_size + within) * inner + column;
}

/* ---- memory ---- */

static inline double *pm_flat(const pm *m, int s, int t, bool grads) {
  const zp_stage *stage = &m->program->stages[s];
  return (double *)(void *)(m->rank[s][t].arena + (grads ? stage->at[ZP_REGION_GRADS] : stage->at[ZP_REGION_PARAMS]));
}

/* Calls on(...) for every parameter instance of a stage, with its element offset in the flat buffers. */
typedef void pm_on_param(pm *m, int s, int param, int64_t iteration, int64_t offset, void *arg);
static inline void pm_for_params(pm *m, int s, pm_on_param *on, void *arg) {
  const zp_stage *stage = &m->program->stages[s];
  for (int i = 0; i < stage->shared.len; i++)
    on(m, s, stage->shared.data[i].param, 0, stage->shared.data[i].offset, arg);
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_run *run = &stage->runs.data[r];
    const zp_segment_program *seg = zp_run_segment(zp_program_lowered(m->program, s), run);
    for (int64_t k = 0; k < run->count; k++)
      for (int i = 0; i < seg->graph->params.len; i++)
        if (seg->param_offset[i] >= 0)
          on(m, s, seg->graph->params.data[i].param, run->first + k,
             zp_run_at(run, ZP_KIND_WHOLE, k) + seg->param_offset[i], arg);
  }
}

static inline void pm_load_param(pm *m, int s, int param, int64_t iteration, int64_t offset, void *arg) {
  (void)arg;
  const zp_model *model = m->l->spec->model;
  for (int t = 0; t < m->t; t++)
    for (int64_t i = 0; i < m->l->param_elements[param]; i++) {
      int64_t e = pm_logical_element(&model->params.data[param].shape, &m->l->sharding->param[param], t, i);
      pm_flat(m, s, t, false)[offset + i] = e < 0 ? 0 : pm_weight(model, param, iteration, e);
      if (m->l->zero_first[param]) pm_flat(m, s, t, true)[offset + i] = 0;
    }
}

static inline void pm_load_inputs(pm *m, int s) {
  const zp_model *model = m->l->spec->model;
  int64_t batch = m->program->microbatches * m->l->microbatch, S = model->sequence;
  for (int t = 0; t < m->t; t++) {
    int32_t *to = (int32_t *)(void *)(m->rank[s][t].arena + m->program->stages[s].at[ZP_REGION_INPUTS]);
    for (int i = 0; i < model->inputs.len; i++)
      for (int64_t k = 0; k < batch * S; k++) *to++ = pm_token(model, i, k / S, k % S);
  }
}

static inline pm *pm_new(zp_arena *memory, const zp_program *program) {
  pm *m = ZP_NEW(memory, pm);
  *m = (pm){.memory = memory, .program = program, .l = program->lowered, .t = program->choice.tensor};
  cr_assert_eq(m->l->compute_bytes, 8);
  cr_assert(m->t <= PM_TENSOR && program->choice.pipeline <= PM_STAGES);
  for (int s = 0; s < program->choice.pipeline; s++) {
    for (int t = 0; t < m->t; t++) {
      pm_rank *r = &m->rank[s][t];
      r->arena = ZP_NEW_ARRAY(memory, char, program->stages[s].arena_bytes);
      pm_poison(r->arena, program->stages[s].arena_bytes);
      r->in = ZP_NEW_ARRAY(memory, zp_interpreter *, m->l->n_segments);
      for (int i = 0; i < m->l->n_segments; i++) {
        r->in[i] = zp_interpreter_new(memory, pm_segments(m, s)[i].graph, m->l->microbatch);
        r->in[i]->rank = t; /* what its shares of tables, experts and dropout counters start from */
      }
    }
    pm_for_params(m, s, pm_load_param, NULL);
    pm_load_inputs(m, s);
  }
  return m;
}

/* Offset of what comes into a unit: a stream of the slot, or of the unit's own input. */
static inline int64_t pm_carried_at(const pm *m, const pm_unit *u, const zp_segment_program *seg, int64_t own, int i) {
  const zp_carry *c = &seg->carries[i];
  int64_t at = c->stream < 0 ? own : u->slot;
  cr_assert(at >= 0, "`%s` has no place", seg->graph->tensors.data[seg->graph->carry_in.data[i]].name);
  return at + (c->stream < 0 ? c->at * 8 : zp_stream_at(m->l, u->streams, c->stream));
}

/* Address of a buffer's first element on tensor rank t. */
static inline void *pm_address(const pm *m, const pm_unit *u, int t, int b) {
  int64_t elements;
  const zp_buffer *root = zp_buffer_root(u->p, b, &elements);
  char *arena = m->rank[u->stage->index][t].arena;
  int64_t at = -1, S = m->l->spec->model->sequence;
  switch (root->place) {
  case ZP_AT_PARAM: /* the machine has one data rank, and trains everything */
    if (root->kind == ZP_KIND_WHOLE) at = u->stage->at[ZP_REGION_PARAMS] + (u->base + root->offset) * 8;
    break;
  case ZP_AT_SHARED:
    at = u->stage->at[ZP_REGION_PARAMS] + zp_stage_shared(u->stage, u->seg->graph->params.data[root->index].param) * 8;
    break;
  case ZP_AT_SAVED: at = u->saved + root->offset; break;
  case ZP_AT_PENDING: at = u->pending + root->offset; break;
  case ZP_AT_TRANSIENT: at = u->stage->at[ZP_REGION_TRANSIENT] + root->offset; break;
  case ZP_AT_INPUT:
    return arena + u->stage->at[ZP_REGION_INPUTS] +
           (root->index * m->program->microbatches + u->mb) * m->l->microbatch * S * 4 + elements * 4;
  case ZP_AT_CARRY_IN: return arena + pm_carried_at(m, u, u->seg, u->x, root->index) + elements * 8;
  case ZP_AT_CARRY_OUT:
    if (u->next) return arena + pm_carried_at(m, u, u->next, u->y, root->index) + elements * 8;
    at = u->y + root->offset;
    break;
  case ZP_AT_GRAD_IN: at = u->dy; break;
  case ZP_AT_GRAD_OUT: at = u->dx; break;
  }
  cr_assert(at >= 0, "%s: `%s` has no place", u->p->name, root->name);
  return arena + at + elements * 8;
}

/* ---- steps that need more than one rank, or know which part of a divided tensor a rank has ---- */

static inline double *pm_doubles(const pm *m, const pm_unit *u, int t, int b) { return pm_address(m, u, t, b); }

static inline const zp_tensor *pm_tensor(const pm_unit *u, int tensor) { return &u->seg->graph->tensors.data[tensor]; }

static inline int64_t pm_first(const zp_tensor *tensor, int dim, int t) {
  return tensor->split_dim == dim ? t * tensor->shape.dim[dim] : 0;
}

static inline void pm_all_reduce(pm *m, const pm_unit *u, const zp_step *step) {
  for (int64_t i = 0; i < step->comm_elements; i++) {
    double sum = 0;
    for (int t = 0; t < m->t; t++) {
      sum += pm_doubles(m, u, t, step->in.data[0])[i];
      cr_assert_eq(pm_address(m, u, t, step->in.data[0]), pm_address(m, u, t, step->out.data[0]));
    }
    for (int t = 0; t < m->t; t++) pm_doubles(m, u, t, step->out.data[0])[i] = sum;
  }
}

static inline void pm_all_gather(pm *m, const pm_unit *u, const zp_step *step) {
  int64_t n = step->comm_elements;
  for (int to = 0; to < m->t; to++)
    for (int t = 0; t < m->t; t++)
      memcpy(pm_doubles(m, u, to, step->out.data[0]) + t * n, pm_doubles(m, u, t, step->in.data[0]), (size_t)n * 8);
}

static inline void pm_keep_shard(pm *m, const pm_unit *u, const zp_step *step) {
  int64_t n = u->seg->carry_kept_elements, all = u->seg->carry_own_elements;
  for (int t = 0; t < m->t; t++)
    for (int64_t i = 0; i < n; i++)
      pm_doubles(m, u, t, step->out.data[0])[i] =
          t * n + i < all ? pm_doubles(m, u, t, step->in.data[0])[t * n + i] : 0;
}

static inline void pm_copy(pm *m, const pm_unit *u, const zp_step *step) {
  const zp_buffer *to = &u->p->buffers.data[step->out.data[0]], *from = &u->p->buffers.data[step->in.data[0]];
  cr_assert(from->ld == from->cols && to->ld == to->cols);
  if (step->hands_on && pm_address(m, u, 0, step->out.data[0]) == pm_address(m, u, 0, step->in.data[0])) return;
  for (int t = 0; t < m->t; t++)
    memcpy(pm_address(m, u, t, step->out.data[0]), pm_address(m, u, t, step->in.data[0]),
           (size_t)(to->rows * to->cols) * 8);
}

/* Columns of the logits that rank t really has. */
static inline int64_t pm_valid_columns(const pm *m, const zp_tensor *logits, int t) {
  int64_t cols = zp_shape_cols(&logits->shape), left = m->l->spec->model->vocabulary - pm_first(logits, 2, t);
  return left < 0 ? 0 : left < cols ? left : cols;
}

static inline void pm_ce_stats(pm *m, const pm_unit *u, const zp_step *step, int t) {
  const zp_tensor *x = pm_tensor(u, step->node->in.data[0]);
  int64_t rows = zp_shape_rows(&x->shape, m->l->microbatch), cols = zp_shape_cols(&x->shape),
          valid = pm_valid_columns(m, x, t);
  const double *logits = pm_address(m, u, t, step->in.data[0]);
  const int32_t *labels = pm_address(m, u, t, step->in.data[1]);
  double *stat = pm_address(m, u, t, step->out.data[0]);
  for (int64_t r = 0; r < rows; r++, logits += cols, stat += 3) {
    int64_t label = labels[r] - pm_first(x, 2, t);
    stat[0] = -1e300, stat[1] = 0;
    for (int64_t c = 0; c < valid; c++) stat[0] = fmax(stat[0], logits[c]);
    for (int64_t c = 0; c < valid; c++) stat[1] += exp(logits[c] - stat[0]);
    stat[2] = label >= 0 && label < valid ? logits[label] : 0;
  }
}

static inline void pm_ce_loss(pm *m, const pm_unit *u, const zp_step *step, int t) {
  const zp_buffer *in = &u->p->buffers.data[step->in.data[0]], *out = &u->p->buffers.data[step->out.data[0]];
  int64_t rows = out->rows * out->cols;
  int64_t parts = in->rows * in->cols / (3 * rows);
  const double *stat = pm_address(m, u, t, step->in.data[0]);
  double *lse = pm_address(m, u, t, step->out.data[0]), scale = m->rank[0][0].in[0]->loss_scale;
  for (int64_t r = 0; r < rows; r++) {
    double max = -1e300, sum = 0, label = 0;
    for (int64_t k = 0; k < parts; k++) max = fmax(max, stat[(k * rows + r) * 3]);
    for (int64_t k = 0; k < parts; k++) {
      sum += stat[(k * rows + r) * 3 + 1] * exp(stat[(k * rows + r) * 3] - max);
      label += stat[(k * rows + r) * 3 + 2];
    }
    lse[r] = max + log(sum);
    if (t == 0) m->loss += (lse[r] - label) * scale * step->node->attr.weight;
  }
}

static inline void pm_ce_grad(pm *m, const pm_unit *u, const zp_step *step, int t) {
  const zp_tensor *x = pm_tensor(u, step->node->in.data[0]);
  int64_t rows = zp_shape_rows(&x->shape, m->l->microbatch), cols = zp_shape_cols(&x->shape),
          valid = pm_valid_columns(m, x, t);
  const double *logits = pm_address(m, u, t, step->in.data[0]), *lse = pm_address(m, u, t, step->in.data[2]);
  const int32_t *labels = pm_address(m, u, t, step->in.data[1]);
  double *grad = pm_address(m, u, t, step->out.data[0]), scale = m->rank[0][0].in[0]->loss_scale;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < cols; c++) {
      const zp_op_attr *attr = &step->node->attr;
      double p = exp(logits[r * cols + c] - lse[r]) * (1 + 2 * attr->z_loss * lse[r]);
      p -= (1 - attr->smoothing) * (labels[r] == c + pm_first(x, 2, t));
      p -= attr->smoothing / (double)attr->classes;
      grad[r * cols + c] = c < valid ? p * scale * attr->weight : 0;
    }
}

/* ---- steps of one rank: the interpreter between copies ---- */

static inline void pm_read(pm *m, const pm_unit *u, const zp_step *step, int t, int i) {
  const zp_buffer *b = &u->p->buffers.data[step->in.data[i]];
  double *to = m->rank[u->stage->index][t].in[pm_index(m, u->stage->index, u->seg)]->value[step->node->in.data[i]];
  const void *from = pm_address(m, u, t, step->in.data[i]);
  for (int64_t r = 0; r < b->rows; r++)
    for (int64_t c = 0; c < b->cols; c++)
      *to++ = b->element == ZP_ELEM_I32 ? (double)((const int32_t *)from)[r * b->ld + c]
                                        : ((const double *)from)[r * b->ld + c];
}

static inline void pm_write(pm *m, const pm_unit *u, const zp_step *step, int t, int i) {
  const zp_buffer *b = &u->p->buffers.data[step->out.data[i]];
  const double *from =
      m->rank[u->stage->index][t].in[pm_index(m, u->stage->index, u->seg)]->value[step->node->out.data[i]];
  void *to = pm_address(m, u, t, step->out.data[i]);
  for (int64_t r = 0; r < b->rows; r++)
    for (int64_t c = 0; c < b->cols; c++, from++)
      if (b->element == ZP_ELEM_I32)
        ((int32_t *)to)[r * b->ld + c] = (int32_t)*from;
      else
        ((double *)to)[r * b->ld + c] = *from;
}

static inline double *pm_grad(const pm *m, const pm_unit *u, int t, int use) {
  int64_t own = u->seg->param_offset[use];
  int64_t at = own >= 0 ? u->base + own : zp_stage_shared(u->stage, u->seg->graph->params.data[use].param);
  return pm_flat(m, u->stage->index, t, true) + at;
}

static inline void pm_interpret(pm *m, const pm_unit *u, const zp_step *step, int t) {
  zp_interpreter *in = m->rank[u->stage->index][t].in[pm_index(m, u->stage->index, u->seg)];
  in->instance = (uint64_t)u->iteration;
  in->first_sample = (uint64_t)(u->mb * m->l->microbatch);
  for (int i = 0; i < step->in.len; i++) pm_read(m, u, step, t, i);
  for (int i = 0; i < step->sums.len; i++) { /* sums of one step into the same parameter add up in the interpreter */
    const zp_param_sum *sum = &step->sums.data[i];
    int64_t n = m->l->param_elements[u->seg->graph->params.data[sum->use].param];
    if (sum->accumulate || u->mb > 0)
      memcpy(in->param_grad[sum->use], pm_grad(m, u, t, sum->use), (size_t)n * 8);
    else
      memset(in->param_grad[sum->use], 0, (size_t)n * 8);
  }
  if (step->workspace >= 0) pm_poison(pm_address(m, u, t, step->workspace), u->p->buffers.data[step->workspace].bytes);
  zp_interpret_node(in, step->node);
  for (int i = 0; i < step->out.len; i++) pm_write(m, u, step, t, i);
  for (int i = 0; i < step->sums.len; i++) {
    int use = step->sums.data[i].use;
    memcpy(pm_grad(m, u, t, use), in->param_grad[use],
           (size_t)m->l->param_elements[u->seg->graph->params.data[use].param] * 8);
  }
}

static inline void pm_step(pm *m, const pm_unit *u, const zp_step *step) {
  if (step->kind == ZP_STEP_KEEP_SHARD)
    pm_keep_shard(m, u, step);
  else if (step->kind == ZP_STEP_COPY)
    pm_copy(m, u, step);
  else if (step->kind == ZP_STEP_GATHER_SHARD || step->op == ZP_OP_GATHER_STATS)
    pm_all_gather(m, u, step);
  else if (step->op == ZP_OP_ALL_REDUCE || step->op == ZP_OP_GRAD_ALL_REDUCE)
    pm_all_reduce(m, u, step);
  else
    for (int t = 0; t < m->t; t++) {
      if (step->op == ZP_OP_CE_STATS)
        pm_ce_stats(m, u, step, t);
      else if (step->op == ZP_OP_CE_LOSS)
        pm_ce_loss(m, u, step, t);
      else if (step->op == ZP_OP_CE_GRAD)
        pm_ce_grad(m, u, step, t);
      else
        pm_interpret(m, u, step, t);
    }
}

#endif
