/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix games by the simplex method: which mean of rows is largest in its smallest column? Of rows r and columns c
 * with values above 0 the columns' side is
 *   maximize the sum of y_c with sum over c of value_rc y_c <= 1 for every r, y >= 0,
 * where y = 0 is a start, and its dual variables are the rows' shares, up to a factor (Dantzig 1951). Columns and rows
 * are added to the solved tableau: a column by the slacks' part of it, which is the inverse of the basis, a row by
 * eliminating what is in the basis; then the dual method makes it feasible, and the primal one best again. */
#include <math.h>
#include <zplan/lanes.h>
#include "cut_space.h"

struct zp_matrix_game {
  zp_arena *arena; /* rows come when they are added: most games stay small */
  int most_columns, rows, columns, width;
  double **x; /* [row + 1][columns, slacks, right side]; row 0: the objective */
  int *basis; /* [row] */
  bool solved;
  int64_t work; /* numbers of the tableau that were changed */
};

static double *objective(const zp_matrix_game *g) { return g->x[0]; }

zp_matrix_game *zp_matrix_game_new(zp_arena *arena, int most_rows, int most_columns, int columns) {
  zp_matrix_game *g = ZP_NEW(arena, zp_matrix_game);
  *g = (zp_matrix_game){.arena = arena, .most_columns = most_columns, .width = most_rows + most_columns + 1};
  g->x = ZP_NEW_ARRAY(arena, double *, most_rows + 1);
  g->x[0] = ZP_NEW_ARRAY(arena, double, g->width);
  g->basis = ZP_NEW_ARRAY(arena, int, most_rows);
  g->columns = columns;
  for (int c = 0; c < columns; c++) objective(g)[c] = -1;
  return g;
}

static double *row_of(const zp_matrix_game *g, int row) { return g->x[row + 1]; }
static int slack(const zp_matrix_game *g, int row) { return g->most_columns + row; }
static int right(const zp_matrix_game *g) { return g->width - 1; }

/* Only columns and slacks that are there. */
static int next_column(const zp_matrix_game *g, int column) {
  column++;
  if (column == g->columns) column = g->most_columns;
  return column;
}
static bool is_column(const zp_matrix_game *g, int column) { return column < g->most_columns + g->rows; }

static void subtract_some(double *from, const double *row, double factor, int n) {
  const zp_lanes all = zp_lanes_all(factor);
  int c = 0;
  for (; c + ZP_LANES <= n; c += ZP_LANES)
    zp_lanes_put(&from[c], zp_lanes_less(zp_lanes_at(&from[c]), zp_lanes_times(all, zp_lanes_at(&row[c]))));
  for (; c < n; c++) from[c] -= factor * row[c];
}

static void subtract(const zp_matrix_game *g, double *from, const double *row, double factor) {
  if (factor == 0) return;
  subtract_some(from, row, factor, g->columns);
  subtract_some(from + g->most_columns, row + g->most_columns, factor, g->rows);
  from[right(g)] -= factor * row[right(g)];
}

static void pivot(zp_matrix_game *g, int row, int column) {
  double *by = row_of(g, row), factor = 1 / by[column];
  for (int c = 0; c < g->width; c++) by[c] *= factor;
  for (int r = -1; r < g->rows; r++)
    if (r != row) subtract(g, row_of(g, r), by, row_of(g, r)[column]);
  g->basis[row] = column;
  g->work += (int64_t)g->rows * (g->rows + g->columns);
}

/* One step of the primal method; false: nothing is better. */
static bool improve(zp_matrix_game *g) {
  int column = -1, row = -1;
  double least = -ZP_GAME_STEP, ratio = HUGE_VAL;
  for (int c = g->columns ? 0 : g->most_columns; is_column(g, c); c = next_column(g, c))
    if (objective(g)[c] < least) column = c, least = objective(g)[c];
  for (int r = 0; r < g->rows && column >= 0; r++) {
    const double *x = row_of(g, r);
    if (x[column] > ZP_GAME_PIVOT && x[right(g)] / x[column] < ratio) row = r, ratio = x[right(g)] / x[column];
  }
  if (row >= 0) pivot(g, row, column);
  return row >= 0;
}

/* One step of the dual method; false: no right side is below 0. */
static bool repair(zp_matrix_game *g) {
  int row = -1, column = -1;
  double least = -ZP_GAME_STEP, ratio = HUGE_VAL;
  for (int r = 0; r < g->rows; r++)
    if (row_of(g, r)[right(g)] < least) row = r, least = row_of(g, r)[right(g)];
  for (int c = g->columns ? 0 : g->most_columns; row >= 0 && is_column(g, c); c = next_column(g, c)) {
    double x = row_of(g, row)[c];
    if (x < -ZP_GAME_PIVOT && objective(g)[c] / -x < ratio) column = c, ratio = objective(g)[c] / -x;
  }
  if (column >= 0) pivot(g, row, column);
  return column >= 0;
}

/* Degenerate steps need not end; any shares will do. */
static void solve(zp_matrix_game *g) {
  if (g->solved) return;
  g->solved = true;
  int turns = 4 * (g->rows + g->columns);
  while (turns-- > 0 && repair(g)) continue;
  while (turns-- > 0 && improve(g)) continue;
}

void zp_matrix_game_add_row(zp_matrix_game *g, const double *value) {
  int row = g->rows++;
  double *x = g->x[row + 1] = ZP_NEW_ARRAY(g->arena, double, g->width);
  memcpy(x, value, sizeof *value * (size_t)g->columns);
  x[slack(g, row)] = x[right(g)] = 1;
  g->basis[row] = slack(g, row);
  for (int r = 0; r < row; r++)
    if (g->basis[r] < g->columns) subtract(g, x, row_of(g, r), x[g->basis[r]]);
  g->solved = false;
}

/* Rows are solved for before a column joins them: it may be neither feasible nor best then. */
void zp_matrix_game_add_column(zp_matrix_game *g, const double *value) {
  solve(g);
  int column = g->columns++;
  for (int r = -1; r < g->rows; r++) {
    double sum = r < 0 ? -1 : 0;
    for (int k = 0; k < g->rows; k++) sum += row_of(g, r)[slack(g, k)] * value[k];
    row_of(g, r)[column] = sum;
  }
  g->solved = false;
}

int64_t zp_matrix_game_shares(zp_matrix_game *g, double *share) {
  double sum = 0;
  solve(g);
  for (int r = 0; r < g->rows; r++) sum += share[r] = fmax(0, objective(g)[slack(g, r)]);
  for (int r = 0; r < g->rows; r++) share[r] = sum > 0 ? share[r] / sum : 1.0 / g->rows;
  int64_t work = g->work;
  g->work = 0;
  return work;
}
