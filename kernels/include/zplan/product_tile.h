/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles that CPU ranks make products of: the runtime works in them, and the planner prices what is rounded for each. */
#ifndef ZPLAN_PRODUCT_TILE_H
#define ZPLAN_PRODUCT_TILE_H

/* Rows and columns of a result, and how deep its sums are before the next tile of operands. */
enum { ZPK_PRODUCT_M = 128, ZPK_PRODUCT_N = 128, ZPK_PRODUCT_K = 256 };

#endif
