/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the reference: who makes its pages. */
#ifndef ZPLAN_SEMA_REFERENCE_INTERNAL_H
#define ZPLAN_SEMA_REFERENCE_INTERNAL_H

#include <zplan/reference.h>

/* spec/reference_blocks.c: blocks and the calls that stand in them; reference_operations.c; sparse.c. */
void zp_reference_blocks(zp_arena *arena, zp_reference_pages *pages);
void zp_reference_operations(zp_arena *arena, zp_reference_pages *pages);
void zp_reference_sparse(zp_arena *arena, zp_reference_pages *pages);

#endif
