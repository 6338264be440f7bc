/* SPDX-License-Identifier: Apache-2.0 */
/* Private to this folder: what prints the call of one step, chosen by its operation in steps.c. */
#ifndef ZPLAN_TRAINER_STEPS_H
#define ZPLAN_TRAINER_STEPS_H

#include "procedure.h"

typedef void zp_step_printer(zp_frame *f, const zp_step *s);
/* rows.c, products.c, attention.c */
zp_step_printer zp_print_rows, zp_print_product, zp_print_keep_operand, zp_print_attention;
/* experts.c */
zp_step_printer zp_print_expert_products, zp_print_route, zp_print_expert_load, zp_print_spread_counts,
    zp_print_spread_rows;
/* positions.c */
zp_step_printer zp_print_mean, zp_print_slice, zp_print_slice_grad, zp_print_column, zp_print_concat, zp_print_reduce,
    zp_print_gather, zp_print_unfold;
/* columns.c */
zp_step_printer zp_print_reshape, zp_print_transpose, zp_print_columns, zp_print_join_columns, zp_print_repeat;
/* losses.c */
zp_step_printer zp_print_squared_error, zp_print_ce_stats, zp_print_ce_loss, zp_print_ce_grad;
/* products.c: operands and epilogue of a product, for the comment of a step; "" of other steps. Arena. */
const char *zp_product_words(const zp_frame *f, const zp_step *s);
/* What follows the name of a product's function: "(c, " of 16 bits; of 8 bits how its operands are rounded, too. */
const char *zp_product_call(const zp_frame *f, const zp_step *s, zp_product_side a, zp_product_side b);

#endif
