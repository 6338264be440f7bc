/* Adafactor on CPU ranks (formulas: kernels/adafactor.c), in three passes over the elements that a rank updates.
 *   1  sums of squared gradients by row and column, an instance of a run at a time. Ranks that have parts of tensors
 *      add theirs, in f64: tensor ranks of what they share, with ZeRO the data ranks of all. So every rank has the
 *      statistics of whole tensors, and copies stay equal to the bit.
 *   2  squares of parameters and of updates, which all ranks sum as they do for the norm.
 *   3  parameters.
 * The scratch region has the sums of an instance, what arrives of them, and the factors of the tensor at work. */
#include "adafactor.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "home.h"
#include "lamb.h"

enum { PIECE = 65536 }; /* elements that a thread takes, so that sums do not depend on the threads */

typedef struct tensor {
  const zpr_run *run;
  const zpr_param *param;
  int64_t instance;
  zpr_statistics has;
  int64_t state;   /* its first statistic */
  int64_t sums;    /* its first sum among those of the instance */
  int64_t number;  /* lamb.h */
  zpr_block own;   /* what this rank updates, */
  int64_t first;   /* from this element of its share of the parameter on */
  zpr_share share; /* of the tensor rank */
  bool counted;
} tensor;

struct zpr_adafactor {
  zpr_stretches stretches;
  int64_t n, tensors; /* here; of all stages */
  tensor *item;
  double *squares; /* [tensors][2]: of parameters, of updates */
  double *pieces;  /* [pieces of the largest][2] */
};

static int64_t padded(int64_t n, int64_t shares) { return (n + shares - 1) / shares * shares; }

static bool is_split(const zpr *c, const zpr_param *param) { return param->split_dim >= 0 && c->program->tensor > 1; }

static int64_t split_sums(const zpr *c, const zpr_run *run) {
  int64_t n = 0;
  for (int k = 0; k < run->n_params; k++) {
    zpr_statistics s = zpr_statistics_of(&run->params[k]);
    if (is_split(c, &run->params[k])) n += s.rows + s.cols;
  }
  return padded(n, c->program->tensor);
}

/* Those that tensor ranks share stand first. */
static int64_t all_sums(const zpr *c, const zpr_run *run) {
  int64_t n = split_sums(c, run);
  for (int k = 0; k < run->n_params; k++) {
    zpr_statistics s = zpr_statistics_of(&run->params[k]);
    if (!is_split(c, &run->params[k])) n += s.rows + s.cols;
  }
  return n;
}

static int64_t sums_at(const zpr *c, const zpr_run *run, int k) {
  bool split = is_split(c, &run->params[k]);
  int64_t at = split ? 0 : split_sums(c, run);
  for (int i = 0; i < k; i++) {
    zpr_statistics s = zpr_statistics_of(&run->params[i]);
    if (is_split(c, &run->params[i]) == split) at += s.rows + s.cols;
  }
  return at;
}

static tensor tensor_of(zpr *c, const zpr_stretches *stretches, int r, int64_t i, int k) {
  const zpr_run *run = &c->stage->runs[r];
  tensor t = {.run = run, .param = &run->params[k], .instance = i, .has = zpr_statistics_of(&run->params[k])};
  t.state = zpr_statistics_at(c, run, i, k);
  t.sums = sums_at(c, run, k);
  t.number = zpr_tensor_number(c, r, i, k);
  t.own = zpr_own_block(c, stretches, run, i, t.param, &t.first);
  t.share = zpr_share_of(c->program, t.param, c->t);
  t.counted = zpr_counts(c, run, i, t.param);
  return t;
}

zpr_adafactor *zpr_adafactor_open(zpr *c) {
  zpr_adafactor *a = zpr_alloc(c, 1, sizeof *a);
  int64_t n = 0, most = 1;
  assert(zpr_expert_ranks(c->program) == 1);
  a->stretches = zpr_find_stretches(c);
  for (int p = 0; p < c->program->pipeline; p++) a->tensors += zpr_tensors_of(&c->program->stages[p]);
  a->squares = zpr_alloc(c, (size_t)a->tensors * 2 + 1, sizeof *a->squares);
  n = zpr_tensors_of(c->stage);
  a->item = zpr_alloc(c, (size_t)n + 1, sizeof *a->item);
  for (int r = 0; r < c->stage->n_runs; r++)
    for (int64_t i = 0; i < c->stage->runs[r].count && !c->stage->runs[r].frozen; i++)
      for (int k = 0; k < c->stage->runs[r].n_params; k++) {
        tensor t = tensor_of(c, &a->stretches, r, i, k);
        int64_t pieces = (t.own.end - t.own.begin) / PIECE + 1;
        most = most > pieces ? most : pieces;
        a->item[a->n++] = t;
      }
  a->pieces = zpr_alloc(c, (size_t)most * 2, sizeof *a->pieces);
  return a;
}

void zpr_adafactor_close(zpr_adafactor *a) {
  if (!a) return;
  free(a->stretches.item);
  free(a->item);
  free(a->squares);
  free(a->pieces);
  free(a);
}

/* ---- elements ---- */

typedef struct work {
  zpr *c;
  zpr_adafactor *a;
  const tensor *t; /* of the passes behind the sums; else the first of the instance */
  zpk_update rule;
  double *sums; /* of the instance */
  const char *rows, *cols;
  double factor;
} work;

typedef enum pass { SUMS, SQUARES, APPLY } pass;

/* Elements [begin, end) of the tensor's own part, which are neighbours in the tensor from element `global` on. */
static void work_on(const work *w, const tensor *t, pass which, int64_t begin, int64_t end, int64_t global,
                    double sums[2]) {
  zpr *c = w->c;
  const zpr_stage *s = c->stage;
  zpk_rows at = {.rows = t->has.height, .cols = t->has.width, .first = global, .count = end - begin};
  bool mixed = zpk_is_narrow(w->rule.dtype);
  int64_t size = zpk_bytes(w->rule.dtype), real = zpk_real_bytes(w->rule.dtype), here = t->own.begin + begin,
          state = (here + t->own.to_state) * real;
  const char *grad = (char *)zpr_at(c, s->grads) + here * size;
  char *weights = (char *)zpr_at(c, s->params) + (here + t->own.to_params) * size,
       *param = mixed ? (char *)zpr_at(c, s->master) + state : weights;
  switch (which) {
  case SUMS:
    zpk_adafactor_sums(&w->rule, &at, grad, t->has.rows > 0 ? w->sums + t->sums : NULL,
                       w->sums + t->sums + t->has.rows);
    break;
  case SQUARES: zpk_adafactor_squares(&w->rule, &at, param, grad, w->rows, w->cols, sums); break;
  case APPLY:
    zpk_adafactor_apply(&w->rule, &at, param, grad, w->rule.beta1 > 0 ? (char *)zpr_at(c, s->moment1) + state : NULL,
                        w->rows, w->cols, w->factor);
    if (w->rule.ema > 0) zpk_average(&w->rule, param, (char *)zpr_at(c, s->average) + state, 0, at.count);
    if (mixed) zpk_round(w->rule.dtype, (const float *)(const void *)param, (uint16_t *)(void *)weights, at.count);
    break;
  }
}

/* Works on what is no padding of elements [begin, end) of the own part. */
static void walk(const work *w, const tensor *t, pass which, int64_t begin, int64_t end, double sums[2]) {
  int64_t first = t->first + begin, last = t->first + end;
  for (int64_t b = first / t->share.local_stride; b < t->share.blocks && b * t->share.local_stride < last; b++) {
    int64_t block = b * t->share.local_stride, from = block > first ? block : first, to = block + t->share.width;
    if (to > last) to = last;
    if (from < to)
      work_on(w, t, which, from - t->first, to - t->first, t->share.first + b * t->share.stride + from - block, sums);
  }
}

static void sum_tensors(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const work *w = arg;
  for (int64_t k = begin; k < end; k++) walk(w, &w->t[k], SUMS, 0, w->t[k].own.end - w->t[k].own.begin, NULL);
}

static int64_t end_of(const tensor *t, int64_t piece) {
  int64_t n = t->own.end - t->own.begin;
  return (piece + 1) * PIECE < n ? (piece + 1) * PIECE : n;
}

static void square_pieces(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const work *w = arg;
  for (int64_t i = begin; i < end; i++) {
    double *sums = &w->a->pieces[2 * i];
    sums[0] = sums[1] = 0;
    walk(w, w->t, SQUARES, i * PIECE, end_of(w->t, i), sums);
  }
}

static void apply_pieces(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const work *w = arg;
  for (int64_t i = begin; i < end; i++) walk(w, w->t, APPLY, i * PIECE, end_of(w->t, i), NULL);
}

static int64_t pieces_of(const tensor *t) { return (t->own.end - t->own.begin + PIECE - 1) / PIECE; }

/* ---- statistics ---- */

static double get(const zpr *c, const char *x, int64_t i) {
  return zpk_real_bytes(c->program->dtype) == 8 ? ((const double *)(const void *)x)[i]
                                                : (double)((const float *)(const void *)x)[i];
}

static void put(const zpr *c, char *x, int64_t i, double value) {
  if (zpk_real_bytes(c->program->dtype) == 8)
    ((double *)(void *)x)[i] = value;
  else
    ((float *)(void *)x)[i] = (float)value;
}

/* Adds what the ranks of a group have, in their order, the same bits everywhere; count: whole shares of all. */
static void add_sums(zpr *c, zpr_axis axis, double *sums, int64_t count, double *arriving) {
  zpr_group g = zpr_axis_group(c, axis);
  int64_t share = count / g.n, bytes = share * (int64_t)sizeof *sums;
  zpr_group_exchange(c, &g, axis, sums, bytes, bytes, arriving);
  for (int64_t i = 0; i < share; i++) {
    double sum = 0;
    for (int r = 0; r < g.n; r++) sum += arriving[r * share + i];
    sums[g.me * share + i] = sum;
  }
  zpr_group_all_gather(c, &g, axis, sums, bytes / zpk_bytes(c->program->dtype));
}

/* new = beta2 old + (1 - beta2) (sum / of + eps) */
static void update_means(zpr *c, const zpk_update *rule, int64_t at, const double *sums, int64_t n, int64_t of) {
  char *state = (char *)zpr_at(c, c->stage->statistics) + at * zpk_real_bytes(c->program->dtype);
  for (int64_t i = 0; i < n; i++)
    put(c, state, i, rule->beta2 * get(c, state, i) + (1 - rule->beta2) * (sums[i] / (double)of + rule->eps));
}

static void sum_instance(zpr *c, work *w, int n) {
  const zpr_run *run = w->t->run;
  int64_t data = zpr_shards_state(c->program) ? c->program->data : 1, split = split_sums(c, run),
          all = padded(all_sums(c, run), data);
  double *arriving = w->sums + all;
  assert(2 * all * (int64_t)sizeof *w->sums <= c->stage->scratch_bytes);
  memset(w->sums, 0, (size_t)all * sizeof *w->sums);
  zpr_parallel(c, n, 1, sum_tensors, w);
  if (split > 0) add_sums(c, ZPR_TENSOR, w->sums, split, arriving);
  if (data > 1) add_sums(c, ZPR_DATA, w->sums, all, arriving);
  for (int k = 0; k < n; k++) {
    const tensor *t = &w->t[k];
    update_means(c, &w->rule, t->state, w->sums + t->sums, t->has.rows, t->has.width);
    update_means(c, &w->rule, t->state + t->has.rows, w->sums + t->sums + t->has.rows, t->has.cols, t->has.height);
  }
}

/* 1 / sqrt(row / mean of the matrix' rows), 1 / sqrt(col), where the sums stood. */
static void find_factors(zpr *c, work *w, const tensor *t) {
  int64_t real = zpk_real_bytes(c->program->dtype);
  const char *state = (char *)zpr_at(c, c->stage->statistics) + t->state * real;
  char *to = zpr_at(c, c->stage->scratch);
  assert((t->has.rows + t->has.cols) * real <= c->stage->scratch_bytes);
  for (int64_t first = 0; first < t->has.rows; first += t->has.height) {
    double mean = 0;
    for (int64_t i = 0; i < t->has.height; i++) mean += get(c, state, first + i);
    mean /= (double)t->has.height;
    for (int64_t i = 0; i < t->has.height; i++) put(c, to, first + i, 1 / sqrt(get(c, state, first + i) / mean));
  }
  for (int64_t i = 0; i < t->has.cols; i++) put(c, to, t->has.rows + i, 1 / sqrt(get(c, state, t->has.rows + i)));
  w->t = t;
  w->rows = t->has.rows > 0 ? to : NULL;
  w->cols = to + t->has.rows * real;
}

static void sum_over_ranks(zpr *c, double *values, int64_t n) {
  enum { AT_ONCE = ZPR_GATHER_BYTES / (int)sizeof(double) };
  for (int64_t i = 0; i < n; i += AT_ONCE) zpr_world_sum(c, values + i, (int)(n - i < AT_ONCE ? n - i : AT_ONCE));
}

void zpr_adafactor_update(zpr *c, zpr_adafactor *a, const zpk_update *rule, int64_t step) {
  const zpr_program *p = c->program;
  work w = {.c = c, .a = a, .rule = *rule, .sums = zpr_at(c, c->stage->scratch)};
  w.rule.beta2 = 1 - pow((double)step, -p->decay_rate);
  for (int64_t i = 0; i < a->n; i += a->item[i].run->n_params) {
    w.t = &a->item[i];
    sum_instance(c, &w, w.t->run->n_params);
  }
  memset(a->squares, 0, (size_t)a->tensors * 2 * sizeof *a->squares);
  for (int64_t i = 0; i < a->n; i++) {
    const tensor *t = &a->item[i];
    if (!t->counted) continue;
    find_factors(c, &w, t);
    zpr_parallel(c, pieces_of(t), 1, square_pieces, &w);
    for (int64_t k = 0; k < 2 * pieces_of(t); k++) a->squares[2 * t->number + k % 2] += a->pieces[k];
  }
  sum_over_ranks(c, a->squares, 2 * a->tensors);
  for (int64_t i = 0; i < a->n; i++) {
    const tensor *t = &a->item[i];
    double params = sqrt(a->squares[2 * t->number] / (double)t->has.elements),
           updates = sqrt(a->squares[2 * t->number + 1] / (double)t->has.elements);
    find_factors(c, &w, t);
    w.rule.lr = rule->lr * t->param->recipe.lr_factor * (p->scale_parameter ? fmax(p->least_scale, params) : 1);
    w.rule.weight_decay = t->param->recipe.weight_decay;
    w.factor = w.rule.lr / fmax(1, updates / p->clip_threshold);
    zpr_parallel(c, pieces_of(t), 1, apply_pieces, &w);
  }
}
