/* SPDX-License-Identifier: Apache-2.0 */
/* No signals come to a page: handlers are accepted and never called. raise ends the program, as no handler is there. */
#ifndef ZPLAN_ABSENT_SIGNAL_H
#define ZPLAN_ABSENT_SIGNAL_H

#include <stddef.h>

typedef int sig_atomic_t;
typedef unsigned sigset_t;
typedef void zp_absent_handler(int);
struct sigaction {
  zp_absent_handler *sa_handler;
  sigset_t sa_mask;
  int sa_flags;
};

#define SIG_DFL ((zp_absent_handler *)0)
#define SIG_IGN ((zp_absent_handler *)1)
enum { SIGHUP = 1, SIGINT = 2, SIGPIPE = 13, SIGTERM = 15, SIGXFSZ = 25 };
enum { SA_RESTART = 1, SA_RESETHAND = 2, SA_NODEFER = 4 };
enum { SIG_BLOCK, SIG_SETMASK };

static inline zp_absent_handler *signal(int number, zp_absent_handler *handler) {
  return (void)number, (void)handler, SIG_DFL;
}
static inline int sigaction(int number, const struct sigaction *now, struct sigaction *before) {
  (void)number, (void)now;
  if (before) *before = (struct sigaction){0};
  return 0;
}
static inline int sigemptyset(sigset_t *set) { return *set = 0, 0; }
static inline int sigfillset(sigset_t *set) { return *set = ~0u, 0; }
static inline int sigaddset(sigset_t *set, int number) { return *set |= 1u << number, 0; }
static inline int sigprocmask(int how, const sigset_t *now, sigset_t *before) {
  (void)how, (void)now;
  if (before) *before = 0;
  return 0;
}
static inline _Noreturn void raise(int number) { (void)number, __builtin_trap(); }

#endif
