/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of a rank: a pool for the steps, and one for an update alongside them. A pool has one task at a time;
 * every thread gets one contiguous range, the caller takes the first. Which thread computes what never changes a
 * result, so the cut may depend on the number of threads. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "signals.h"
#include "state.h"

/* About 50 microseconds: longer than the gap between two kernels of a step, far shorter than a wait for another
 * rank. */
enum { SPINS = 1500 };

typedef struct worker {
  zpr_pool *pool;
  int index;
  pthread_t thread;
} worker;

struct zpr_pool {
  int threads, spins;
  worker workers[ZPR_MAX_WORKERS];
  /* The current task; written by the caller before it raises `round`, read by workers after they see it. */
  zpr_task *task;
  void *arg;
  int64_t count, grain;
  atomic_uint round;  /* number of the current task */
  atomic_int pending; /* workers that have not finished it */
  atomic_bool stop;
  pthread_mutex_t lock; /* guards sleeping on either condition */
  pthread_cond_t work, done;
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

static void run_share(const zpr_pool *pool, int index) {
  int64_t blocks = (pool->count + pool->grain - 1) / pool->grain;
  int64_t begin = blocks * index / pool->threads * pool->grain;
  int64_t end = blocks * (index + 1) / pool->threads * pool->grain;
  if (end > pool->count) end = pool->count;
  if (begin < end) pool->task(pool->arg, begin, end, index);
}

static void await_round(zpr_pool *pool, unsigned seen) {
  for (int i = 0; i < pool->spins; i++) {
    if (atomic_load_explicit(&pool->round, memory_order_acquire) != seen) return;
    relax();
  }
  pthread_mutex_lock(&pool->lock);
  while (atomic_load_explicit(&pool->round, memory_order_acquire) == seen) pthread_cond_wait(&pool->work, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}

static void *work(void *arg) {
  worker *me = arg;
  zpr_pool *pool = me->pool;
  for (unsigned seen = 0;; seen++) {
    await_round(pool, seen);
    if (atomic_load(&pool->stop)) return NULL;
    run_share(pool, me->index);
    if (atomic_fetch_sub(&pool->pending, 1) == 1) {
      pthread_mutex_lock(&pool->lock);
      pthread_cond_signal(&pool->done);
      pthread_mutex_unlock(&pool->lock);
    }
  }
}

static void raise_round(zpr_pool *pool) {
  pthread_mutex_lock(&pool->lock);
  atomic_fetch_add_explicit(&pool->round, 1, memory_order_release);
  pthread_cond_broadcast(&pool->work);
  pthread_mutex_unlock(&pool->lock);
}

static void await_workers(zpr_pool *pool) {
  for (int i = 0; i < pool->spins; i++) {
    if (atomic_load(&pool->pending) == 0) return;
    relax();
  }
  pthread_mutex_lock(&pool->lock);
  while (atomic_load(&pool->pending) != 0) pthread_cond_wait(&pool->done, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}

zpr_pool *zpr_pool_open(zpr *c, int threads, bool spin) {
  assert(threads >= 1 && threads <= ZPR_MAX_WORKERS);
  zpr_pool *pool = zpr_alloc(c, 1, sizeof *pool);
  pool->threads = threads;
  pool->spins = spin ? SPINS : 0;
  pthread_mutex_init(&pool->lock, NULL);
  pthread_cond_init(&pool->work, NULL);
  pthread_cond_init(&pool->done, NULL);
  for (int i = 1; i < threads; i++) {
    worker *w = &pool->workers[i];
    *w = (worker){.pool = pool, .index = i};
    int error = zpr_thread_start(&w->thread, work, w);
    if (error) zpr_fail(c, "Z0822", "cannot start thread %d of %d: %s", i + 1, threads, strerror(error));
  }
  return pool;
}

void zpr_pool_close(zpr_pool *pool) {
  if (!pool) return;
  atomic_store(&pool->stop, true);
  raise_round(pool);
  for (int i = 1; i < pool->threads; i++) pthread_join(pool->workers[i].thread, NULL);
  pthread_mutex_destroy(&pool->lock);
  pthread_cond_destroy(&pool->work);
  pthread_cond_destroy(&pool->done);
  free(pool);
}

void zpr_pool_run(zpr_pool *pool, int64_t count, int64_t grain, zpr_task *task, void *arg) {
  if (count <= 0) return;
  if (pool->threads == 1 || count <= grain) {
    task(arg, 0, count, 0);
    return;
  }
  pool->task = task;
  pool->arg = arg;
  pool->count = count;
  pool->grain = grain;
  atomic_store(&pool->pending, pool->threads - 1);
  raise_round(pool);
  run_share(pool, 0);
  await_workers(pool);
}

void zpr_pool_start(zpr *c, int threads, bool spin) { c->state->pool = zpr_pool_open(c, threads, spin); }

void zpr_pool_stop(zpr *c) {
  zpr_pool_close(c->state->pool);
  c->state->pool = NULL;
}

void zpr_parallel(zpr *c, int64_t count, int64_t grain, zpr_task *task, void *arg) {
  zpr_pool_run(c->state->pool, count, grain, task, arg);
}

int zpr_threads(const zpr *c) { return c->state->pool->threads; }

int zpr_pool_clocks(const zpr *c, clockid_t clocks[]) {
  const zpr_pool *pool = c->state->pool;
  for (int i = 1; i < pool->threads; i++) pthread_getcpuclockid(pool->workers[i].thread, &clocks[i - 1]);
  return pool->threads - 1;
}
