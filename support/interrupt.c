/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT noted. */
#include <zplan/hosted.h>
#include <zplan/interrupt.h>

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t came;
static bool catches;

static void note(int signal_number) {
  (void)signal_number;
  came = 1;
}

void zp_interrupt_catch(void) {
  if (zp_is_hosted()) return; /* signals are the host's */
  struct sigaction before, handler = {.sa_handler = note, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
  if (sigaction(SIGINT, NULL, &before) != 0 || before.sa_handler != SIG_DFL) return;
  sigemptyset(&handler.sa_mask);
  catches = sigaction(SIGINT, &handler, NULL) == 0;
}

bool zp_interrupted(void) { return came != 0 || zp_host_leaves(); }

bool zp_interrupt_release(void) {
  if (zp_is_hosted()) return zp_host_leaves();
  bool had_come = came != 0;
  if (catches) signal(SIGINT, SIG_DFL);
  catches = false;
  came = 0;
  return had_come;
}
