/* SPDX-License-Identifier: Apache-2.0 */
/* Where the elements of a logical parameter live: which of them this rank holds, their initial values (drawn, or given
 * by a map of files), and the padding that fills up a rank with fewer units than the others.
 *
 * The split dimension is [outer][units][unit]: a fused q,k,v projection has outer = 3, units = heads, unit = head size.
 * Share i holds units [i * L, i * L + L) of every outer block, L >= ceil(units / shares) as the rank's elements say;
 * tensor ranks have a share each, and of experts that are spread over an expert group every rank of it. Local layout:
 * [before][outer][L][unit][after], with `before` and `after` the products of the dimensions on either side. Padding is
 * zero from the start, and its gradients are: what the planner pads keeps zeros (tests/unit/test_shard_numeric.c). */
#include <assert.h>
#include <string.h>
#include "one_bit.h"
#include "device.h"
#include "given.h"
#include "host_grads.h"
#include "offloaded.h"
#include "state.h"
#include "param_home.h"
#include "state_home.h"

typedef struct split {
  int64_t blocks;        /* before * outer */
  int64_t unit_elements; /* unit * after */
  int64_t units, local;  /* of a block: logical, and L */
  int64_t first, held;   /* this rank: its first unit and how many are not padding */
} split;

static int shares_of(const zpr_program *program, const zpr_param *param) {
  return program->tensor * (param->spread ? zpr_expert_ranks(program) : 1);
}

static split split_among(const zpr_program *program, const zpr_param *param, int share) {
  int64_t before = 1, after = 1, all = 1;
  for (int k = 0; k < param->rank; k++) {
    all *= param->shape[k];
    if (k < param->split_dim) before *= param->shape[k];
    if (k > param->split_dim) after *= param->shape[k];
  }
  if (param->split_dim < 0) return (split){1, all, 1, 1, 0, 1};
  int64_t unit = param->shape[param->split_dim] / (param->outer * param->units);
  split s = {.blocks = before * param->outer, .unit_elements = unit * after, .units = param->units};
  int shares = shares_of(program, param);
  s.local = param->elements / (s.blocks * s.unit_elements);
  s.first = share * s.local;
  s.held = s.units - s.first;
  if (s.held > s.local) s.held = s.local;
  if (s.held < 0) s.held = 0;
  assert(param->elements == s.blocks * s.local * s.unit_elements && s.local * shares >= s.units);
  return s;
}

static int share_of(const zpr *c, const zpr_param *param) {
  int experts = zpr_expert_ranks(c->program);
  return param->spread ? c->t * experts + c->d % experts : c->t;
}

static split split_of(const zpr *c, const zpr_param *param) {
  return split_among(c->program, param, share_of(c, param));
}

zpr_share zpr_share_of(const zpr_program *program, const zpr_param *param, int share) {
  split s = split_among(program, param, share);
  return (zpr_share){.blocks = s.blocks,
                     .width = s.held * s.unit_elements,
                     .first = s.first * s.unit_elements,
                     .stride = s.units * s.unit_elements,
                     .local_stride = s.local * s.unit_elements};
}

zpr_share zpr_my_share(const zpr *c, const zpr_param *param) {
  return zpr_share_of(c->program, param, share_of(c, param));
}

void zpr_param_pieces(zpr *c, const zpr_run *run, int64_t i, int k, zpr_piece_fn *fn, void *arg) {
  const zpr_param *param = &run->params[k];
  split s = split_of(c, param);
  int64_t local = run->base + i * run->stride + param->offset;
  if (s.local == s.units) { /* not split: the blocks are neighbours on both sides */
    fn(arg, local, 0, s.blocks * s.units * s.unit_elements);
    return;
  }
  if (s.held == 0) return;
  for (int64_t b = 0; b < s.blocks; b++)
    fn(arg, local + b * s.local * s.unit_elements, (b * s.units + s.first) * s.unit_elements, s.held * s.unit_elements);
}

const char *zpr_instance_name(char *buf, size_t size, const char *pattern, int64_t instance) {
  const char *hole = strstr(pattern, "{}");
  if (hole)
    snprintf(buf, size, "%.*s%lld%s", (int)(hole - pattern), pattern, (long long)instance, hole + 2);
  else
    snprintf(buf, size, "%s", pattern);
  return buf;
}

/* ---- initial values ---- */

/* What is initialised: the weights of the flat buffers, or this rank's shards of their f32 master copy, or of their
 * average, which begins with them. */
typedef struct init_target {
  zpk_dtype dtype;
  bool of_state; /* `array` of the optimizer's state */
  zpr_array array;
  zpr_slice kept; /* elements of the flat buffers that are there */
} init_target;

typedef struct init_args {
  zpr *c;
  const zpr_param *param;
  uint64_t name_hash;
  init_target to;
  void *values;   /* of the window in work */
  int64_t global; /* its first element in the logical tensor */
  const char *name;
  zpr_given *given; /* NULL: values are drawn */
  zpr_error *error;
} init_args;

uint64_t zpr_name_hash(const char *name) { /* FNV-1a, 64 bits */
  uint64_t hash = UINT64_C(14695981039346656037);
  for (; *name; name++) hash = (hash ^ (unsigned char)*name) * UINT64_C(1099511628211);
  return hash;
}

static void init_range(void *arg, int64_t begin, int64_t end, int worker) {
  enum { AT_ONCE = 256 };
  (void)worker;
  const init_args *a = arg;
  for (int64_t e = begin, n; e < end; e += n) {
    double x[AT_ONCE];
    float narrow[AT_ONCE];
    n = end - e < AT_ONCE ? end - e : AT_ONCE;
    zpk_initial_weights(a->c->program->seed, a->name_hash, (uint64_t)(a->global + e), n, a->param->init,
                        a->param->init_a, a->param->init_b, x);
    for (int64_t i = 0; i < n; i++) narrow[i] = (float)x[i];
    switch (a->to.dtype) {
    case ZPK_F32: memcpy((float *)a->values + e, narrow, (size_t)n * sizeof *narrow); break;
    case ZPK_F64: memcpy((double *)a->values + e, x, (size_t)n * sizeof *x); break;
    case ZPK_BF16:
    case ZPK_F16: zpk_round(a->to.dtype, narrow, (uint16_t *)a->values + e, n); break;
    }
  }
}

/* The part of a piece that this rank keeps: all of it unless it has only shards. */
static void init_piece(void *arg, int64_t local, int64_t global, int64_t count) {
  init_args *a = arg;
  zpr *c = a->c;
  int64_t begin = local > a->to.kept.begin ? local : a->to.kept.begin,
          end = local + count < a->to.kept.end ? local + count : a->to.kept.end;
  int64_t size = zpk_bytes(a->to.dtype), most = zpr_window_bytes(c) / size;
  for (int64_t at = begin, n; at < end; at += n) {
    int64_t stored = a->to.kept.stored + at - a->to.kept.begin;
    n = end - at < most ? end - at : most;
    a->values =
        a->to.of_state ? zpr_state_open(c, a->to.array, stored, &n, false) : zpr_params_open(c, stored, &n, false);
    a->global = global + at - local;
    if (!a->given)
      zpr_parallel(c, n, 1024, init_range, a);
    else if (!a->error->code[0])
      zpr_given_read(c, a->given, a->name, a->global, n, a->to.dtype, a->values, a->error);
    if (a->to.of_state)
      zpr_state_close(c);
    else
      zpr_params_close(c);
  }
}

static void init_param(zpr *c, const zpr_run *run, int64_t i, int k, zpr_given *given, zpr_error *error) {
  char name[256];
  const zpr_stage *stage = c->stage;
  bool mixed = zpk_is_narrow(c->program->dtype), sharded = zpr_shards_params(c->program);
  zpk_dtype real = mixed ? ZPK_F32 : c->program->dtype;
  zpr_slice all = {0, zpr_all_elements(stage), 0}, shard = all;
  const bool has[ZPR_ARRAYS] = {[ZPR_WEIGHTS] = mixed && zpr_is_trained(run->kind),
                                [ZPR_AVERAGE] = c->program->ema > 0 && zpr_is_trained(run->kind)};
  if (has[ZPR_WEIGHTS] || sharded || has[ZPR_AVERAGE]) shard = zpr_slice_of(c, run, i);
  init_args a = {.c = c, .param = &run->params[k], .name = name, .given = given, .error = error};
  a.name_hash = zpr_name_hash(zpr_instance_name(name, sizeof name, run->params[k].name, run->first + i));
  if (given && run->params[k].adapter && !zpr_given_find(given, name, 0)) a.given = NULL;
  if (given && zpr_given_draws(given, name)) a.given = NULL;
  a.to = (init_target){.dtype = c->program->dtype, .kept = sharded ? shard : all};
  zpr_param_pieces(c, run, i, k, init_piece, &a);
  for (int array = 0; array < ZPR_ARRAYS; array++) {
    a.to = (init_target){real, true, (zpr_array)array, shard};
    if (has[array]) zpr_param_pieces(c, run, i, k, init_piece, &a);
  }
}

void zpr_init_weights(zpr *c, zpr_given *given, zpr_error *error) {
  assert(!given || error);
  const zpr_stage *stage = c->stage;
  /* Alignment gaps take part in collectives: they are zero from the start, like the state. */
  zpr_params_zero(c);
  zpr_zero_all_gradients(c);
  zpr_state_zero(c);
  if (zpr_is_one_bit(c->program)) zpr_errors_zero(c);
  for (int r = 0; r < stage->n_runs; r++)
    for (int64_t i = 0; i < stage->runs[r].count; i++)
      for (int k = 0; k < stage->runs[r].n_params; k++) init_param(c, &stage->runs[r], i, k, given, error);
  zpr_state_flush(c);
  zpr_offloaded_flush(c);
}
