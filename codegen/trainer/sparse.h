/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the trainer printer: tables of block-sparse attention. */
#ifndef ZPLAN_TRAINER_SPARSE_H
#define ZPLAN_TRAINER_SPARSE_H

#include <zplan/buf.h>
#include <zplan/choice.h>
#include <zplan/model.h>
#include <zplan/sparse.h>

/* Kernels have the model's layouts; where context ranks go by pairs of stretches, what a stretch of queries sees of one
 * of keys. Their tables have numbers, those of a layout's sets one after the other, from 1 on; this is the first one's
 * of a layout of the model. 0: dense. */
int zp_layout_number(const zp_model *model, const zp_layout *layout);
/* The place of a layout among the model's, from 1 on: of `pattern1`, by [stretch of queries][stretch of keys]. */
int zp_pattern_number(const zp_model *model, const zp_layout *layout);
/* The tables `layout1`, ... of trainer.c, and `pattern1`, ... Those of a GPU trainer only name the ones that its
 * kernels have. */
void zp_print_layouts(zp_buf *out, const zp_model *model, const zp_choice *choice, bool gpu);
/* Prints the layouts as tables in CUDA C, with what finds them by number. */
void zp_print_device_layouts(zp_buf *out, const zp_model *model, const zp_choice *choice);

#endif
