/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that are undefined for some numbers, compiled as the layers are (planted.c). */
#ifndef PLANTED_H
#define PLANTED_H

int planted_sum(int a, int b);
int planted_shift(int a, int by);
int planted_quotient(int a, int b);
int planted_row(int i); /* of 4 */
int planted_read(const int *x, int i);
void planted_write(int *x, int i);

#endif
