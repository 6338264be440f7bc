/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of weights from one type to another, rounded to nearest, ties to even. */
#ifndef ZPLAN_WEIGHTS_ELEMENT_H
#define ZPLAN_WEIGHTS_ELEMENT_H

#include <stdint.h>

/* dtype: "F32", "F64", "BF16", "F16". */
double zp_element_read(const char *dtype, const void *data, int64_t at);
void zp_element_write(const char *dtype, void *data, int64_t at, double value);

#endif
