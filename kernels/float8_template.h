/* SPDX-License-Identifier: Apache-2.0 */
/* The largest magnitude of an array of one 16-bit format: see float8.c. NaN counts as nothing. */

ZPK_CLONES static float NAME(largest)(const ELEM *restrict x, int64_t count) {
  float most = 0;
  for (int64_t i = 0; i < count; i++) {
    float size = fabsf(GET(x[i]));
    most = size > most ? size : most;
  }
  return most;
}
