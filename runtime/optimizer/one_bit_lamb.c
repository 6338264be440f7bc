/* SPDX-License-Identifier: Apache-2.0 */
/* 1-bit LAMB (arXiv 2104.06069): once the variance is frozen ranks exchange momentum as 1-bit Adam's do, and nobody
 * knows the ratio |x| / |update| that LAMB would scale a tensor's update by had the variance gone on. So while it is
 * LAMB a moving average of the ratio is kept, and then it is scaled by how far the variance has moved: by the largest
 * sqrt(v) / sqrt(fresh) of the tensor's elements, where `fresh` is the variance that goes on by the gradients which the
 * exchanged momenta stand for (kernels/optimizer/one_bit.c). That factor keeps within bounds (factor_min, factor_max),
 * and moves by a share of itself a step at most (factor_threshold). Ratios of LAMB here are not bounded, nor is their
 * average, of which a step leaves coeff_beta. With ZeRO 1 owners know the gradient (one_bit_shards.c), and the largest
 * ratio of a tensor is that of all who own parts of it.
 *
 * The average begins with the first ratio. */
#include "one_bit_lamb.h"
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "checkpoint.h"
#include "one_bit.h"
#include "lamb.h"
#include "optimizer.h"

zpr_coefficients *zpr_coefficients_of(zpr *c) {
  zpr_coefficients *k = c->state->coefficients;
  if (k) return k;
  k = c->state->coefficients = zpr_alloc(c, 1, sizeof *k);
  for (int p = 0; p < c->program->pipeline; p++) k->n += zpr_tensors_of(&c->program->stages[p]);
  k->average = zpr_alloc(c, (size_t)k->n + 1, sizeof *k->average);
  k->factor = zpr_alloc(c, (size_t)k->n + 1, sizeof *k->factor);
  for (int64_t i = 0; i < k->n; i++) k->factor[i] = 1;
  return k;
}

/* own: as of update. */
static void close_lamb(zpr *c, void *own) {
  zpr_coefficients *k = c->state->coefficients;
  if (own) zpr_one_bit_shards_close(c, own);
  if (!k) return;
  free(k->average);
  free(k->factor);
  free(k);
  c->state->coefficients = NULL;
}

void zpr_coefficients_average(zpr *c, const double *ratio) {
  zpr_coefficients *k = zpr_coefficients_of(c);
  double beta = c->program->coeff_beta;
  for (int64_t i = 0; i < k->n; i++)
    k->average[i] = k->average[i] > 0 ? beta * k->average[i] + (1 - beta) * ratio[i] : ratio[i];
}

/* ---- frozen steps ---- */

/* The largest of all ranks' values. */
static void largest_of_ranks(zpr *c, double *values, int64_t n) {
  enum { AT_ONCE = ZPR_GATHER_BYTES / (int)sizeof(double) };
  double *all = zpr_alloc(c, (size_t)c->ranks * AT_ONCE, sizeof *all);
  for (int64_t i = 0; i < n; i += AT_ONCE) {
    int64_t some = n - i < AT_ONCE ? n - i : AT_ONCE;
    zpr_world_gather(c, values + i, some * (int64_t)sizeof *all, all);
    for (int64_t k = 0; k < some * c->ranks; k++) values[i + k % some] = fmax(values[i + k % some], all[k]);
  }
  free(all);
}

static double within(double x, double low, double high) { return fmax(low, fmin(high, x)); }

static void move_factors(const zpr_program *p, zpr_coefficients *k, const double *most) {
  assert(p->factor_min > 0 && p->factor_min <= p->factor_max);
  for (int64_t i = 0; i < k->n; i++) {
    if (!(most[i] > 0)) continue; /* no element of the tensor has a variance */
    double factor = within(most[i], p->factor_min, p->factor_max), move = p->factor_threshold;
    k->factor[i] = within(factor, k->factor[i] * (1 - move), k->factor[i] * (1 + move));
  }
}

static void keep_moments(zpr *c, zpr_coefficients *k) {
  const zpr_stage *s = c->stage;
  int64_t bytes = zpr_shard_elements(s) * zpk_real_bytes(c->program->dtype);
  if (s->momentum_before >= 0) zpr_copy(c, zpr_at(c, s->momentum_before), zpr_at(c, s->moment1), bytes);
  if (!k->followed) zpr_copy(c, zpr_at(c, s->fresh), zpr_at(c, s->moment2), bytes);
  k->followed = true;
}

/* own: with ZeRO 1 the error, else NULL. */
static void update(zpr *c, void *own, const zpr_update_set *set, const zpk_update *rule) {
  zpr_one_bit_shards *shards = own;
  zpr_block_list *list = set->here;
  /* By all updates that the parameters have had. */
  double fresh_bias2 = 1 - pow(c->program->beta2, (double)(c->step + 1 - c->skipped_steps));
  const void *records = NULL;
  zpr_coefficients *k = zpr_coefficients_of(c);
  double *of_block = zpr_alloc(c, (size_t)list->n + 1, sizeof *of_block);
  double *most = zpr_alloc(c, (size_t)k->n + 1, sizeof *most);
  keep_moments(c, k);
  if (shards)
    records = zpr_one_bit_shards_send(c, shards, rule);
  else
    zpr_exchange_momentum(c, list->block, list->n, NULL, rule);
  zpr_lamb_fresh(c, list, rule, fresh_bias2, records, of_block);
  for (int64_t i = 0; i < list->n; i++) most[list->block[i].tensor] = fmax(most[list->block[i].tensor], of_block[i]);
  largest_of_ranks(c, most, k->n);
  move_factors(c->program, k, most);
  for (int64_t i = 0; i < list->n; i++)
    of_block[i] = k->average[list->block[i].tensor] * k->factor[list->block[i].tensor];
  if (shards) {
    zpr_owner_update(c, list->block, list->n, rule, of_block, NULL, zpr_one_bit_shards_record(c));
    zpr_one_bit_shards_share(c, shards);
  } else {
    zpr_lamb_frozen(c, list, rule, of_block);
  }
  free(of_block);
  free(most);
}

static bool applies(const zpr_program *program) { return !zpr_shards_state(program); }

const zpr_one_bit_row zpr_one_bit_lamb = {
    .name = "LAMB", .applies = applies, .arrays = 1u << ZPR_FRESH, .close = close_lamb, .update = update};

const zpr_one_bit_row zpr_one_bit_lamb_shards = {.name = "LAMB",
                                                 .applies = zpr_shards_state,
                                                 .arrays = 1u << ZPR_FRESH,
                                                 .open = zpr_one_bit_shards_open,
                                                 .close = close_lamb,
                                                 .squares = zpr_one_bit_shards_squares,
                                                 .update = update};

static bool is_one_bit_lamb(const zpr *c) {
  const zpr_one_bit_row *row = zpr_one_bit_of(c->program);
  return row && row->update == update;
}

/* ---- checkpoints ---- */

/* Names and numbers of all tensors, tied ones on their first stage. */
typedef void on_tensor(void *arg, const char *name, int64_t number);

static void for_tensors(zpr *c, on_tensor *fn, void *arg) {
  char name[ZPR_TENSOR_NAME];
  for (int p = 0; p < c->program->pipeline; p++) {
    const zpr_stage *stage = &c->program->stages[p];
    for (int r = 0; r < stage->n_runs; r++)
      for (int64_t i = 0; i < stage->runs[r].count; i++)
        for (int k = 0; k < stage->runs[r].n_params; k++)
          fn(arg, zpr_instance_name(name, sizeof name, stage->runs[r].params[k].name, stage->runs[r].first + i),
             zpr_tensor_number_on(c, p, r, i, k));
  }
}

typedef struct writing {
  const zpr_coefficients *k;
  FILE *out;
  const char *before;
} writing;

static void write_one(void *arg, const char *name, int64_t number) {
  writing *w = arg;
  if (!(w->k->average[number] > 0)) return;
  fputs(w->before, w->out);
  zpr_put_json(w->out, name);
  fprintf(w->out, ": [\"%.17g\", \"%.17g\"]", w->k->average[number], w->k->factor[number]);
  w->before = ", ";
}

void zpr_coefficients_write(zpr *c, FILE *out) {
  if (!is_one_bit_lamb(c)) return;
  writing w = {zpr_coefficients_of(c), out, ""};
  fputs("  \"coefficients\": {", out);
  for_tensors(c, write_one, &w);
  fputs("},\n", out);
}

static double read_number(zpr_json *j) {
  char text[40], *end;
  if (!zpr_json_item(j) || !zpr_json_string(j, text, sizeof text)) return -1;
  double number = strtod(text, &end);
  return end == text || *end || !isfinite(number) ? -1 : number;
}

bool zpr_coefficients_read(zpr *c, zpr_json *j, zpr_saved_coefficients *saved) {
  int64_t room = 0;
  zpr_saved_coefficient one;
  zpr_json_object(j);
  while (zpr_json_key(j, one.name, sizeof one.name)) {
    zpr_json_array(j);
    one.average = read_number(j);
    one.factor = read_number(j);
    if (zpr_json_item(j) || !(one.average > 0) || !(one.factor > 0)) j->failed = true;
    if (j->failed) return false;
    if (saved->n == room) {
      room = room ? 2 * room : 64;
      zpr_saved_coefficient *more = realloc(saved->item, (size_t)room * sizeof *more);
      if (!more) zpr_fail(c, "Z0822", "cannot get memory for %lld coefficients of 1-bit LAMB", (long long)room);
      saved->item = more;
    }
    saved->item[saved->n++] = one;
  }
  return !j->failed;
}

static const zpr_saved_coefficient *find(const zpr_saved_coefficients *saved, const char *name) {
  for (int64_t i = 0; i < saved->n; i++)
    if (strcmp(saved->item[i].name, name) == 0) return &saved->item[i];
  return NULL;
}

typedef struct resuming {
  const zpr_saved_coefficients *saved;
  const char *missing;
  char name[ZPR_TENSOR_NAME];
  double *value; /* [tensors][2]; NULL: none is wanted */
} resuming;

static void resume_one(void *arg, const char *name, int64_t number) {
  resuming *r = arg;
  const zpr_saved_coefficient *one = find(r->saved, name);
  if (!one && !r->missing) {
    snprintf(r->name, sizeof r->name, "%s", name);
    r->missing = r->name;
  }
  if (!one || !r->value) return;
  r->value[2 * number] = one->average;
  r->value[2 * number + 1] = one->factor;
}

bool zpr_coefficients_check(zpr *c, const zpr_saved_coefficients *saved, bool frozen, zpr_error *error) {
  resuming r = {.saved = saved};
  if (!is_one_bit_lamb(c) || !frozen) return true;
  for_tensors(c, resume_one, &r);
  if (r.missing)
    zpr_error_set(error, "Z0813", "the checkpoint is of frozen steps and has no coefficient of 1-bit LAMB for \"%s\"",
                  r.missing);
  return !r.missing;
}

/* Other ranks add zeros, which changes no bit; tensors that are not known stay as they began. */
void zpr_coefficients_resume(zpr *c, const zpr_saved_coefficients *saved, bool followed) {
  if (!is_one_bit_lamb(c)) return;
  enum { AT_ONCE = ZPR_GATHER_BYTES / (int)sizeof(double) };
  zpr_coefficients *k = zpr_coefficients_of(c);
  resuming r = {.saved = saved, .value = zpr_alloc(c, (size_t)k->n * 2 + 1, sizeof *r.value)};
  if (c->rank == 0) for_tensors(c, resume_one, &r);
  for (int64_t i = 0; i < 2 * k->n; i += AT_ONCE)
    zpr_world_sum(c, r.value + i, (int)(2 * k->n - i < AT_ONCE ? 2 * k->n - i : AT_ONCE));
  for (int64_t i = 0; i < k->n; i++) {
    k->average[i] = r.value[2 * i];
    if (r.value[2 * i + 1] > 0) k->factor[i] = r.value[2 * i + 1];
  }
  k->followed = followed;
  free(r.value);
}
