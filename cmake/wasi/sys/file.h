/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of files: one program has them all. */
#ifndef ZPLAN_ABSENT_FILE_H
#define ZPLAN_ABSENT_FILE_H

#include_next <sys/file.h>

static inline int zp_absent_flock(int fd, int how) { return (void)fd, (void)how, 0; }
#define flock zp_absent_flock

#endif
