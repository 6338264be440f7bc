/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the trainer printer: tables of block-sparse attention. */
#ifndef ZPLAN_TRAINER_SPARSE_H
#define ZPLAN_TRAINER_SPARSE_H

#include <zplan/buf.h>
#include <zplan/model.h>
#include <zplan/sparse.h>

/* The tables of a layout have numbers, those of its sets one after the other; this is the first one's. They count from
 * 1 on, layouts in the order of the model's ops; 0: dense. */
int zp_layout_number(const zp_model *model, const zp_layout *layout);
/* The tables `layout1`, ... of trainer.c. Those of a GPU trainer only name the ones that its kernels have. */
void zp_print_layouts(zp_buf *out, const zp_model *model, bool gpu);
/* Prints the layouts as tables in CUDA C, with what finds them by number. */
void zp_print_device_layouts(zp_buf *out, const zp_model *model);

#endif
