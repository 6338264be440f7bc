/* SPDX-License-Identifier: Apache-2.0 */
/* What a call takes, as `zplan calibrate` measures it: never less than the processor time of the thread that worked
 * longest, on a machine as busy as it may be. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <time.h>
#include "calibrate.h"
#include "state.h"

static const double work_s = 1e-3; /* less than a tick of the scheduler */

static double worked(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void work_a_while(void *arg, int64_t begin, int64_t end, int worker) {
  (void)arg, (void)worker;
  for (double start = worked(); begin < end && worked() - start < work_s;) {
  }
}

static void on_all_threads(void *arg) { zpr_parallel(arg, ZPR_MAX_WORKERS, 1, work_a_while, NULL); }
static void on_the_caller(void *arg) { zpr_parallel(arg, 1, 1, work_a_while, NULL); }

static void check_time(int threads, void (*work)(void *)) {
  zpr c = {.ranks = 1};
  c.state = zpr_alloc(&c, 1, sizeof *c.state);
  zpr_pool_start(&c, threads, true);
  time_threads(&c);
  timing turns[2] = {{.work = work, .arg = &c}, {.work = work, .arg = &c, .warm = true}};
  time_in_turns(turns, 2, 0.03);
  double once = time_call(work, &c, 0.01);
  time_threads(NULL);
  zpr_pool_stop(&c);
  free(c.state);
  cr_assert_geq(once, work_s);
  for (int i = 0; i < 2; i++) cr_assert_geq(turns[i].seconds, work_s);
}

Test(calibrate, a_call_takes_as_long_as_its_busiest_thread) {
  for (int threads = 1; threads <= 4; threads++) {
    check_time(threads, on_all_threads);
    check_time(threads, on_the_caller);
  }
}
