/* SPDX-License-Identifier: Apache-2.0 */
/* Signals that end a run: SIGINT, SIGTERM and SIGUSR1. The first of a kind is noted, and the loop ends after its step;
 * a second one ends the process at once.
 *
 * They are caught until the process ends, not only as long as the loop runs: mpirun hands a signal to one rank after
 * another, and the loop of all ends with the first. A rank that hears of it later, while it publishes the checkpoint or
 * leaves, must not die of it.
 *
 * Handlers have a stack of their own and run on the main thread alone. Kernels of oneDNN (2.6.3, avx512) keep what
 * they need below the stack pointer, farther than the ABI's red zone, and a handler's frame would be written over it:
 * with one signal every 100 microseconds a training of four ranks lost its heap within seconds, on a stack of its own
 * never. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include "signals.h"

const int zpr_end_signals[ZPR_END_SIGNALS] = {SIGINT, SIGTERM, SIGUSR1};

static volatile sig_atomic_t caught;

static void on_signal(int signal) { caught = signal; }

/* A frame holds the registers: 3 KB with avx512, 11 KB with amx. A sanitizer brings a stack that it wants back. */
static void open_stack(void) {
  static _Alignas(64) char memory[64 << 10];
  stack_t ours = {.ss_sp = memory, .ss_size = sizeof memory}, there;
  if (sigaltstack(NULL, &there) == 0 && (there.ss_flags & SS_DISABLE)) sigaltstack(&ours, NULL);
}

void zpr_signals_catch(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK | (int)SA_RESETHAND};
  open_stack();
  caught = 0;
  for (int i = 0; i < ZPR_END_SIGNALS; i++) sigaction(zpr_end_signals[i], &action, NULL);
}

int zpr_signal_caught(void) { return caught; }

int zpr_thread_start(pthread_t *thread, void *(*run)(void *), void *arg) {
  sigset_t ends, before;
  sigemptyset(&ends);
  for (int i = 0; i < ZPR_END_SIGNALS; i++) sigaddset(&ends, zpr_end_signals[i]);
  pthread_sigmask(SIG_BLOCK, &ends, &before);
  int error = pthread_create(thread, NULL, run, arg);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return error;
}

int zpr_reserve_file(int fd, int64_t bytes) {
  int error;
  do error = posix_fallocate(fd, 0, bytes);
  while (error == EINTR);
  return error;
}
