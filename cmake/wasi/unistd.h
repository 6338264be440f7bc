/* SPDX-License-Identifier: Apache-2.0 */
/* WASI's programs cannot duplicate descriptors; wasi.js does it. */
#ifndef ZPLAN_ABSENT_UNISTD_H
#define ZPLAN_ABSENT_UNISTD_H

#include_next <unistd.h>

__attribute__((import_module("zplan"), import_name("dup"))) int dup(int fd);
__attribute__((import_module("zplan"), import_name("dup2"))) int dup2(int from, int to);

#endif
