/* SPDX-License-Identifier: Apache-2.0 */
/* Everything of attention for one instruction set, all dtypes, and its table. Expects LEVEL, VECTOR_BYTES and
 * VECTORS. */
#include <assert.h>
#include <string.h>
#include "attention_drop.h"

#define TEMPLATE "attention_template.h"
#include "every_dtype.h"

const zpk_attention_level LEVEL = {
    .forward = {forward_f32, forward_f64, forward_bf16, forward_f16},
    .backward = {backward_f32, backward_f64, backward_bf16, backward_f16},
    .stretch = {some_queries_f32, some_queries_f64, some_queries_bf16, some_queries_f16},
    .bias_grad = {add_bias_grad_f32, add_bias_grad_f64, add_bias_grad_bf16, add_bias_grad_f16}};
