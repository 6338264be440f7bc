/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for other ranks: reported after a while, ended when they last too long (watch.c). */
#ifndef ZPLAN_RT_WATCH_H
#define ZPLAN_RT_WATCH_H

#include "state.h"

enum { ZPR_WAIT_WARN_S = 30, ZPR_WAIT_END_S = 600, ZPR_WAIT_END_OUTSIDE_S = 3600, ZPR_WAIT_GRACE_S = 30 };

/* One wait, zeroed when it begins. */
typedef struct zpr_wait {
  int64_t asked_ms, waited_ms, reported_ms; /* 0: not asked yet, or not reported */
} zpr_wait;

/* Asked again and again by who waits for a message of `axis` from or to rank `peer`, and for `others` more. Says a line
 * when the wait is long, and does not return when it is too long (Z0823). */
void zpr_watch(zpr *c, zpr_wait *wait, int peer, zpr_axis axis, int others);
/* zpr_watch for a rank that waits for its GPU, whose work waits for other ranks. */
void zpr_watch_gpu(zpr *c, zpr_wait *wait);
/* Around a call that returns when all ranks have come, and that cannot be asked meanwhile: it is watched by a timer. */
void zpr_watch_call(const zpr_options *options, const char *what);
void zpr_watch_call_end(void);

#endif
