/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of measured rates: made from samples on a grid, asked between them. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <zplan/cpu_kernels.h>

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

/* The different sizes of one axis, ascending; false: more than a table holds. */
static bool find_sides(zp_arena *arena, const zp_rate_sample *samples, int n, int axis, zp_rate_table *table) {
  double *size = ZP_NEW_ARRAY(arena, double, n);
  for (int i = 0; i < n; i++) size[i] = log(samples[i].size[axis]);
  qsort(size, (size_t)n, sizeof *size, by_size);
  int sides = 0;
  for (int i = 0; i < n; i++) {
    if (i > 0 && size[i] == size[i - 1]) continue;
    if (sides == ZP_RATE_SIDES) return false;
    table->log_size[axis][sides++] = size[i];
  }
  table->sides[axis] = sides;
  return true;
}

static int place_of(const zp_rate_table *t, const zp_rate_sample *sample) {
  int at = 0;
  for (int a = 0; a < t->axes; a++) {
    int side = 0;
    while (t->log_size[a][side] != log(sample->size[a])) side++;
    at = at * t->sides[a] + side;
  }
  return at;
}

static bool is_positive(const zp_rate_sample *sample, int axes) {
  bool positive = sample->share > 0 && isfinite(sample->share);
  for (int a = 0; a < axes; a++) positive = positive && sample->size[a] > 0 && isfinite(sample->size[a]);
  return positive;
}

bool zp_rate_table_make(zp_arena *arena, const zp_rate_sample *samples, int n, int axes, bool whole,
                        zp_rate_table *table, const char **error) {
  assert(axes >= 1 && axes <= ZP_RATE_AXES);
  assert(n >= 0 && table && error);
  *table = (zp_rate_table){.axes = axes, .whole = whole};
  int crossings = 1;
  for (int i = 0; i < n; i++)
    if (!is_positive(&samples[i], axes)) {
      *error = "sizes and rates must be positive";
      return false;
    }
  for (int a = 0; a < axes; a++) {
    if (!find_sides(arena, samples, n, a, table)) {
      *error = zp_format(arena, "more than %d different sizes", ZP_RATE_SIDES);
      return false;
    }
    crossings *= table->sides[a];
  }
  bool *known = ZP_NEW_ARRAY(arena, bool, crossings > 0 ? crossings : 1);
  double *share = ZP_NEW_ARRAY(arena, double, crossings > 0 ? crossings : 1);
  for (int i = 0; i < n; i++) {
    int at = place_of(table, &samples[i]);
    known[at] = true;
    share[at] = log(samples[i].share);
  }
  for (int i = 0; i < crossings; i++)
    if (!known[i]) {
      *error = zp_format(arena, "%d of the %d sizes of a grid are missing", crossings - n, crossings);
      return false;
    }
  if (n == 0) *error = "there is none";
  if (n > 0) table->log_share = share;
  return n > 0;
}

/* Where a size lies on its axis: between sides `low` and low + 1, or at `low` alone. */
typedef struct place {
  int low;
  double part; /* of the way to low + 1 */
} place;

static place place_on(const double *log_size, int sides, double x) {
  int low = 0;
  if (x <= log_size[0] || sides == 1) return (place){0, 0};
  if (x >= log_size[sides - 1]) return (place){sides - 1, 0};
  while (x >= log_size[low + 1]) low++;
  return (place){low, (x - log_size[low]) / (log_size[low + 1] - log_size[low])};
}

/* The mean of the corners around the point, weighted by nearness. */
static double between(const zp_rate_table *t, const place *at, int axis, int index) {
  if (axis == t->axes) return t->log_share[index];
  index = index * t->sides[axis] + at[axis].low;
  double low = between(t, at, axis + 1, index), part = at[axis].part;
  return part > 0 ? low + part * (between(t, at, axis + 1, index + 1) - low) : low;
}

static bool is_size(const double *size, int axes) {
  for (int a = 0; a < axes; a++)
    if (!(size[a] > 0)) return false;
  return true;
}

double zp_rate_at(const zp_rate_table *table, const double *size) {
  assert(table->log_share && is_size(size, table->axes));
  place at[ZP_RATE_AXES];
  double below = 0;
  for (int a = 0; a < table->axes; a++) {
    double x = log(size[a]), least = table->log_size[a][0];
    at[a] = place_on(table->log_size[a], table->sides[a], x);
    if (table->whole && x < least) below += x - least;
  }
  return exp(between(table, at, 0, 0) + below);
}
