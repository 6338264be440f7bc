/* SPDX-License-Identifier: Apache-2.0 */
/* The bigram trainer as a program: trainer T D ZERO f32|f64|f16 [options of zpr_main]. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "../device/image.h"
#include "bigram.h"

/* BIGRAM_KILL=R: rank R dies in its fifth step. */
static void die_in_a_step(zpr *c) {
  if (c->step == 4 && c->rank == atoi(getenv("BIGRAM_KILL"))) raise(SIGKILL);
  bigram_micro_batches(c);
}

/* BIGRAM_LATE=R: rank 0 is asked to end in its fifth step, and rank R when it has ended. */
static void ask_rank_0(zpr *c) {
  if (c->step == 4 && c->rank == 0) raise(SIGUSR1);
  bigram_micro_batches(c);
}

/* BIGRAM_STILL: all ranks have the same trouble, and the launcher stands still longer than they take turns. */
static void fail_in_a_step(zpr *c) {
  pid_t launcher = getppid();
  if (c->rank == 0) kill(launcher, SIGSTOP);
  zpr_barrier(c);
  if (c->rank == 0 && fork() == 0) {
    usleep(1000000);
    kill(launcher, SIGCONT);
    _exit(0);
  }
  zpr_fail(c, "Z0803", "the launcher stands still");
}

/* BIGRAM_OVERFLOW=R: the gradients of rank R alone are not finite in three steps. */
static void overflow_in_one_rank(zpr *c) {
  the_bigram.poisoned = c->step >= 2 && c->step < 5 && c->rank == atoi(getenv("BIGRAM_OVERFLOW"));
  bigram_micro_batches(c);
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: %s TENSOR DATA ZERO f32|f64|f16 [OPTIONS]\n", argv[0]);
    return 2;
  }
  zpk_dtype dtype = strcmp(argv[4], "f64") == 0 ? ZPK_F64 : strcmp(argv[4], "f16") == 0 ? ZPK_F16 : ZPK_F32;
  zpr_program *program = bigram_program(atoi(argv[1]), atoi(argv[2]), atoi(argv[3]), dtype);
  device_image(program);
  the_bigram.poisoned = getenv("BIGRAM_NAN") != NULL;
  if (getenv("BIGRAM_OVERFLOW")) program->micro_batches = overflow_in_one_rank;
  if (getenv("BIGRAM_KILL")) program->micro_batches = die_in_a_step;
  if (getenv("BIGRAM_STILL")) program->micro_batches = fail_in_a_step;
  if (getenv("BIGRAM_LATE")) program->micro_batches = ask_rank_0;
  argv[4] = argv[0];
  int status = zpr_main(argc - 4, argv + 4, program);
  if (getenv("BIGRAM_LATE") && atoi(getenv("BIGRAM_LATE")) == atoi(getenv("OMPI_COMM_WORLD_RANK"))) raise(SIGUSR1);
  return status;
}
