/* SPDX-License-Identifier: Apache-2.0 */
/* Faults that test_sanitizers.c has found. */
#include "planted.h"

static const int table[] = {1, 2, 3, 4};

int planted_sum(int a, int b) { return a + b; }
int planted_shift(int a, int by) { return a << by; }
int planted_quotient(int a, int b) { return a / b; }
int planted_row(int i) { return table[i]; }
int planted_read(const int *x, int i) { return x[i]; }
void planted_write(int *x, int i) { x[i] = 1; }
