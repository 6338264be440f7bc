/* SPDX-License-Identifier: Apache-2.0 */
/* No threads: pthread_create fails as where the system has no room for one, locks are always free. */
#ifndef ZPLAN_ABSENT_PTHREAD_H
#define ZPLAN_ABSENT_PTHREAD_H

#include <errno.h>
#include <signal.h>
#include <time.h>

typedef int pthread_t, pthread_mutex_t, pthread_cond_t, pthread_once_t;
#define PTHREAD_ONCE_INIT 0
#define PTHREAD_MUTEX_INITIALIZER 0
#define PTHREAD_COND_INITIALIZER 0

static inline int pthread_create(pthread_t *thread, const void *attributes, void *(*run)(void *), void *of) {
  return (void)thread, (void)attributes, (void)run, (void)of, EAGAIN;
}
static inline int pthread_join(pthread_t thread, void **result) { return (void)thread, (void)result, ESRCH; }
static inline int pthread_mutex_lock(pthread_mutex_t *mutex) { return (void)mutex, 0; }
static inline int pthread_mutex_unlock(pthread_mutex_t *mutex) { return (void)mutex, 0; }
static inline int pthread_once(pthread_once_t *done, void (*run)(void)) {
  if (!*done) *done = 1, run();
  return 0;
}
static inline int pthread_cond_signal(pthread_cond_t *cond) { return (void)cond, 0; }
static inline int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
  return (void)cond, (void)mutex, (void)until, ETIMEDOUT;
}
static inline int pthread_sigmask(int how, const sigset_t *now, sigset_t *before) {
  return sigprocmask(how, now, before);
}

#endif
