/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the runtime: signals that end a run, and calls that they must not end. */
#ifndef ZPLAN_RT_SIGNALS_H
#define ZPLAN_RT_SIGNALS_H

#include <pthread.h>
#include <stdint.h>

enum { ZPR_END_SIGNALS = 3 };
extern const int zpr_end_signals[ZPR_END_SIGNALS];

/* From here on until the process ends: the first signal of a kind is noted, the second one ends the process. Forgets
 * what was noted. */
void zpr_signals_catch(void);

/* The signal that came last since then; 0: none. */
int zpr_signal_caught(void);

/* pthread_create of a thread that leaves these signals to the main one. Every thread that computes is started so. */
int zpr_thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

/* posix_fallocate from byte 0 on, begun anew where a signal has ended it, as POSIX allows. */
int zpr_reserve_file(int fd, int64_t bytes);

#endif
