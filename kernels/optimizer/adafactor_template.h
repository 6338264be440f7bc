/* SPDX-License-Identifier: Apache-2.0 */
/* Adafactor in one dtype: see adafactor.c. A piece of a tensor is walked row by row. */

static void NAME(adafactor_sums)(const zpk_update *u, const zpk_rows *at, const REAL *grad, double *rows,
                                 double *cols) {
  REAL scale = (REAL)u->grad_scale;
  int64_t done = 0;
  while (done < at->count) {
    zpk_row r = zpk_row_at(at, done);
    double sum = 0, *col = cols + r.col;
    for (int64_t i = 0; i < r.count; i++) {
      double g = (double)(grad[done + i] * scale);
      sum += g * g;
      col[i] += g * g;
    }
    if (rows) rows[r.row] += sum;
    done += r.count;
  }
}

ZPK_CLONES static void NAME(adafactor_squares)(const zpk_update *u, const zpk_rows *at, const REAL *param,
                                               const REAL *grad, const REAL *rows, const REAL *cols, double sums[2]) {
  REAL scale = (REAL)u->grad_scale;
  int64_t done = 0;
  while (done < at->count) {
    zpk_row r = zpk_row_at(at, done);
    const REAL *col = cols + r.col, row = rows ? rows[r.row] : 1;
    double params = 0, updates = 0;
    for (int64_t i = 0; i < r.count; i++) {
      REAL x = param[done + i], step = row * col[i] * (grad[done + i] * scale);
      params += (double)x * (double)x;
      updates += (double)step * (double)step;
    }
    sums[0] += params;
    sums[1] += updates;
    done += r.count;
  }
}

/* m NULL: no momentum. */
ZPK_CLONES static void NAME(adafactor_apply)(const zpk_update *u, const zpk_rows *at, REAL *param, const REAL *grad,
                                             REAL *m, const REAL *rows, const REAL *cols, double factor) {
  REAL scale = (REAL)(u->grad_scale * factor), keep = (REAL)(1 - u->lr * u->weight_decay);
  REAL b1 = (REAL)u->beta1, rest = (REAL)(1 - u->beta1);
  int64_t done = 0;
  while (done < at->count) {
    zpk_row r = zpk_row_at(at, done);
    const REAL *col = cols + r.col, row = rows ? rows[r.row] : 1;
    for (int64_t i = 0; i < r.count; i++) {
      REAL step = row * col[i] * (grad[done + i] * scale);
      if (m) step = m[done + i] = b1 * m[done + i] + rest * step;
      param[done + i] = param[done + i] * keep - step;
    }
    done += r.count;
  }
}
