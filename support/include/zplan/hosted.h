/* SPDX-License-Identifier: Apache-2.0 */
/* The compiler inside of another process (libzplan), for one call of one thread: its text goes to streams of the call,
 * and what would end the command ends the call. In the command nothing of this is set. */
#ifndef ZPLAN_HOSTED_H
#define ZPLAN_HOSTED_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>

typedef struct zp_hosted {
  jmp_buf failed;            /* set by the caller; zp_give_up returns there */
  FILE *out, *err;           /* in place of standard output and standard error */
  const volatile int *leave; /* long work ends early once it is not 0; NULL: it never does */
  int status;                /* of zp_give_up, as an exit status */
  char why[512];             /* its message */
  int descriptor;            /* open while a file is read; -1: none */
} zp_hosted;

/* A call of this thread begins. Arenas made from here on go with zp_hosted_end. Requires: no other call of the thread.
 * `host` stays until zp_hosted_end. */
void zp_hosted_begin(zp_hosted *host);
/* The call has ended, also after zp_give_up: gives its arenas back and closes what it was reading. */
void zp_hosted_end(void);
/* This thread's call from now on, NULL: none; the one before. For zp_hosted_begin and zp_hosted_end. */
zp_hosted *zp_host_replace(zp_hosted *host);
bool zp_is_hosted(void);
/* Does the host want long work to end? */
bool zp_host_leaves(void);
/* Where text for standard output or standard error goes. */
FILE *zp_stream(FILE *out);
/* A file that is being read, -1: no longer. Where the call is given up meanwhile, zp_hosted_end closes it. */
void zp_hold_descriptor(int descriptor);
/* Work cannot go on: the command prints "error: ..." and ends with this status; a call of a host ends with it. */
_Noreturn void zp_give_up(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
