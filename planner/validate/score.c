/* SPDX-License-Identifier: Apache-2.0 */
/* Error statistics of predictions, by family. */
#include <assert.h>
#include <math.h>
#include "validate_internal.h"

double zp_kendall_tau(const double *x, const double *y, int n) {
  assert(n >= 0);
  double agree = 0, x_pairs = 0, y_pairs = 0;
  for (int i = 0; i < n; i++)
    for (int j = i + 1; j < n; j++) {
      int a = (x[i] > x[j]) - (x[i] < x[j]), b = (y[i] > y[j]) - (y[i] < y[j]);
      agree += a * b;
      x_pairs += a != 0;
      y_pairs += b != 0;
    }
  return x_pairs > 0 && y_pairs > 0 ? agree / sqrt(x_pairs * y_pairs) : NAN;
}

typedef struct series {
  double *measured, *predicted;
  int n;
} series;

static void add_time(zp_family_score *f, series *s, const zp_prediction *p) {
  if (p->measured_s <= 0) return;
  double error = 100 * p->error;
  f->mean_abs_error_pct += fabs(error);
  f->bias_pct += error;
  if (fabs(error) > fabs(f->max_error_pct)) f->max_error_pct = error;
  s->measured[s->n] = p->measured_s;
  s->predicted[s->n++] = p->estimate.step_s;
  f->n++;
}

static void add_memory(zp_family_score *f, const zp_prediction *p) {
  if (p->run->memory_bytes > 0 && !p->run->memory_reserved) {
    f->memory_mean_abs_error_pct += 100 * fabs((double)p->peak_bytes / p->run->memory_bytes - 1);
    f->memory_n++;
  }
  /* A run that was measured has fitted; an explicit claim says so, or that it did not. */
  int fits = p->run->fits >= 0 ? p->run->fits : p->measured_s > 0 ? 1 : -1;
  if (fits < 0) return;
  if (p->fit_open) {
    f->fit_open++;
    return;
  }
  f->fit_total++;
  f->fit_agree += p->fits == (fits == 1);
}

static void score_family(zp_arena *arena, const zp_validation *v, zp_family_score *f) {
  series s = {ZP_NEW_ARRAY(arena, double, v->rows.len + 1), ZP_NEW_ARRAY(arena, double, v->rows.len + 1), 0};
  for (int i = 0; i < v->rows.len; i++) {
    const zp_prediction *p = &v->rows.data[i];
    if (!p->predicted || strcmp(p->run->family, f->name) != 0) continue;
    add_time(f, &s, p);
    add_memory(f, p);
  }
  f->kendall_tau = zp_kendall_tau(s.measured, s.predicted, s.n);
  if (f->n) f->mean_abs_error_pct /= f->n, f->bias_pct /= f->n;
  if (f->memory_n) f->memory_mean_abs_error_pct /= f->memory_n;
}

static bool known(const zp_validation *v, const char *family) {
  for (int i = 0; i < v->families.len; i++)
    if (strcmp(v->families.data[i].name, family) == 0) return true;
  return false;
}

static void count_open(zp_arena *arena, zp_validation *v, const char *column) {
  int at = 0;
  while (at < v->open.len && strcmp(v->open.data[at].column, column) != 0) at++;
  zp_open_count none = {column, 0};
  if (at == v->open.len) zp_push(arena, &v->open, none);
  v->open.data[at].rows++;
}

static void count_left_out(zp_arena *arena, zp_validation *v, const char *why) {
  int at = 0;
  while (at < v->left_out.len && strcmp(v->left_out.data[at].why, why) != 0) at++;
  zp_left_out none = {why, 0};
  if (at == v->left_out.len) zp_push(arena, &v->left_out, none);
  v->left_out.data[at].rows++;
}

void zp_validation_score(zp_arena *arena, zp_validation *v) {
  for (int i = 0; i < v->rows.len; i++)
    if (!v->rows.data[i].predicted) count_left_out(arena, v, v->rows.data[i].why_not);
  for (int i = 0; i < v->rows.len; i++)
    for (int k = 0; k < v->rows.data[i].open.len; k++) count_open(arena, v, v->rows.data[i].open.data[k].column);
  for (int i = 0; i < v->rows.len; i++) {
    zp_family_score family = {.name = v->rows.data[i].run->family};
    if (!v->rows.data[i].predicted || known(v, family.name)) continue;
    score_family(arena, v, &family);
    zp_push(arena, &v->families, family);
  }
}
