/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of one 16-bit format: see narrow.c. */

ZPK_CLONES static void NAME(widen)(const ELEM *restrict from, float *restrict to, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = GET(from[i]);
}

ZPK_CLONES static void NAME(round)(const float *restrict from, ELEM *restrict to, int64_t count) {
  for (int64_t i = 0; i < count; i++) to[i] = PUT(from[i]);
}
