/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout and rotary leaves as every target computes them. The interpreter, being the oracle, has its own. */
#include <math.h>
#include "rowprog.h"

int64_t zp_row_pair_of(zp_row_pairs pairs, int64_t c) { return pairs.interleaved ? c / 2 : c % (pairs.head / 2); }
bool zp_row_first_of_pair(zp_row_pairs pairs, int64_t c) { return pairs.interleaved ? c % 2 == 0 : c < pairs.head / 2; }

double zp_row_frequency(const zp_row_value *rotary, int64_t pair) {
  return pow(rotary->imm, -2.0 * (double)pair / (double)rotary->table.head);
}
