/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that end a run: where their handlers run, who hears them, until when. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include "signals.h"

/* What a kernel may keep below the stack pointer. Frames of raise() are smaller than NEAR, one of a handler, with the
 * registers, reaches beyond it. */
enum { NEAR = 768, FAR = 4096, MARK = 0x5a };

__attribute__((noinline, no_sanitize("address"))) static int changed_below_the_stack(int signal) {
  volatile unsigned char here = 0;
  volatile unsigned char *stack = &here;
  for (int i = NEAR; i < FAR; i++) stack[-i] = MARK;
  raise(signal);
  int changed = 0;
  for (int i = NEAR; i < FAR; i++) changed += stack[-i] != MARK;
  return changed;
}

static void ignore(int signal) { (void)signal; }

Test(signals, handlers_leave_alone_what_lies_below_the_stack) {
  struct sigaction plain = {.sa_handler = ignore};
  sigaction(SIGUSR2, &plain, NULL);
  raise(0); /* the linker has found it */
  cr_assert_eq(changed_below_the_stack(0), 0, "raise alone reaches farther than %d bytes", NEAR);
  cr_assert_gt(changed_below_the_stack(SIGUSR2), 0, "a handler on the ordinary stack must be seen");
  zpr_signals_catch();
  for (int i = 0; i < ZPR_END_SIGNALS; i++) {
    cr_assert_eq(changed_below_the_stack(zpr_end_signals[i]), 0);
    cr_assert_eq(zpr_signal_caught(), zpr_end_signals[i]);
  }
}

Test(signals, the_second_one_ends_the_process, .signal = SIGUSR1) {
  zpr_signals_catch();
  raise(SIGTERM);
  raise(SIGUSR1);
  cr_assert_eq(zpr_signal_caught(), SIGUSR1);
  raise(SIGUSR1);
}

static void *read_mask(void *mask) {
  pthread_sigmask(SIG_SETMASK, NULL, mask);
  return NULL;
}

Test(signals, threads_leave_them_to_the_main_one) {
  sigset_t theirs, ours;
  pthread_t thread;
  cr_assert_eq(zpr_thread_start(&thread, read_mask, &theirs), 0);
  pthread_join(thread, NULL);
  read_mask(&ours);
  for (int i = 0; i < ZPR_END_SIGNALS; i++) {
    cr_assert(sigismember(&theirs, zpr_end_signals[i]));
    cr_assert_not(sigismember(&ours, zpr_end_signals[i]));
  }
  cr_assert_not(sigismember(&theirs, SIGSEGV));
}
