/* SPDX-License-Identifier: Apache-2.0 */
/* Windows over positions in one dtype: see unfold.c. */

static void NAME(unfold)(const zpk_unfold_args *a, int64_t begin, int64_t end) {
  int64_t places = a->kernel[0] * a->kernel[1];
  for (int64_t r = begin; r < end; r++) {
    int64_t b = r / a->n, window = a->first + r % a->n, down = window / a->count[1], right = window % a->count[1];
    const ELEM *x = (const ELEM *)a->from + b * a->size[0] * a->size[1] * a->cols;
    for (int64_t k = 0; k < places; k++) {
      int64_t row = down * a->stride[0] - a->padding[0] + k / a->kernel[1];
      int64_t col = right * a->stride[1] - a->padding[1] + k % a->kernel[1];
      ELEM *to = (ELEM *)a->to + r * a->cols * places + k;
      const ELEM *from = x + (row * a->size[1] + col) * a->cols;
      if (row >= 0 && row < a->size[0] && col >= 0 && col < a->size[1])
        for (int64_t c = 0; c < a->cols; c++) to[c * places] = from[c];
      else
        for (int64_t c = 0; c < a->cols; c++) to[c * places] = PUT(0);
    }
  }
}

/* Columns in blocks, so that a sum is rounded to ELEM once. */
static void NAME(unfold_grad)(const zpk_unfold_args *a, int64_t begin, int64_t end) {
  REAL sum[BLOCK];
  int64_t places = a->kernel[0] * a->kernel[1], positions = a->size[0] * a->size[1];
  for (int64_t r = begin; r < end; r++) {
    int64_t b = r / positions, row = r % positions / a->size[1], col = r % a->size[1];
    reach down = windows_with(a, 0, row), right = windows_with(a, 1, col);
    for (int64_t at = 0; at < a->cols; at += BLOCK) {
      int64_t n = a->cols - at < BLOCK ? a->cols - at : BLOCK;
      ELEM *to = (ELEM *)a->to + r * a->cols + at;
      for (int64_t j = 0; j < n; j++) sum[j] = 0;
      for (int64_t i = down.first; i < down.end; i++)
        for (int64_t k = right.first; k < right.end; k++) {
          int64_t place =
              (row + a->padding[0] - i * a->stride[0]) * a->kernel[1] + col + a->padding[1] - k * a->stride[1];
          int64_t window = i * a->count[1] + k - a->first;
          if (window < 0 || window >= a->n) continue;
          const ELEM *from = (const ELEM *)a->from + ((b * a->n + window) * a->cols + at) * places + place;
          for (int64_t j = 0; j < n; j++) sum[j] += GET(from[j * places]);
        }
      for (int64_t j = 0; j < n; j++) to[j] = PUT(sum[j]);
    }
  }
}
