/* SPDX-License-Identifier: Apache-2.0 */
/* The constants of the cost model as a table. */
#include <zplan/constants.h>

#include <assert.h>

static const zp_cost_row rows[ZP_COST_CONSTANT_COUNT] = {
#define ZP_CONSTANT_ROW(name, value, unit, source) {#name, value, unit, source},
    ZP_COST_CONSTANTS(ZP_CONSTANT_ROW)
#undef ZP_CONSTANT_ROW
};

const zp_cost_row *zp_cost_rows(void) { return rows; }
double zp_cost_constant(enum zp_cost_constant which) {
  assert(which < ZP_COST_CONSTANT_COUNT);
  return rows[which].value;
}
