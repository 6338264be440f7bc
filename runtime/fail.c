/* SPDX-License-Identifier: Apache-2.0 */
/* How a run ends early. Two ways:
 *   zpr_agree  at points that all ranks reach: they compare notes, the lowest rank in trouble speaks, all leave in
 * order; zpr_fail   anywhere: this rank speaks and ends all ranks. Either way the user sees one line. */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "checkpoint.h"
#include "state.h"

static void print_error(zpr *c, const char *code, const char *text) {
  if (c) zpr_log_clear(c);
  fflush(stdout);
  if (c && c->ranks > 1)
    zpr_say_line(stderr, "error[%s]: %s (rank %d of %d)", code, text, c->rank, c->ranks);
  else
    zpr_say_line(stderr, "error[%s]: %s", code, text);
}

static int status_of(const char *code) {
  static const struct {
    const char *code;
    int status;
  } table[] = {{"Z0821", ZPR_EXIT_FAILED}, {"Z0823", ZPR_EXIT_FAILED}, {"Z0822", ZPR_EXIT_MEMORY},
               {"Z0830", ZPR_EXIT_FAILED}, {"Z0852", ZPR_EXIT_FAILED}, {"Z0855", ZPR_EXIT_FAILED},
               {"Z0862", ZPR_EXIT_FAILED}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strcmp(table[i].code, code) == 0) return table[i].status;
  return ZPR_EXIT_REFUSED;
}

/* Is this the first rank here that fails? Whoever has the name is, until its process ends; the name is that of the
 * launcher's process, so that runs side by side do not meet. Where there are no such names, all are. */
static bool is_first_on_host(void) {
  struct sockaddr_un name = {.sun_family = AF_UNIX}; /* a name that begins with 0 is in no folder */
  int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "zplan-failed-%lld-%lld", (long long)getuid(),
                        (long long)getppid());
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  size_t size = offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length;
  return fd < 0 || bind(fd, (const struct sockaddr *)&name, (socklen_t)size) == 0 || errno != EADDRINUSE;
}

enum { LAUNCHER_S = 60 }; /* it ends ranks sooner */

/* Ranks often meet the same trouble at the same moment (a file that is gone, a corrupt checkpoint), and the user reads
 * one message and not one per rank. Of a host the first one speaks and takes the others down: mostly rank 0, which asks
 * at once, while the others wait their turn. Who is not the first waits for the launcher, which ends ranks with
 * SIGTERM; a rank that trains would survive that. */
static void wait_my_turn(const zpr *c) {
  enum { TURN_US = 100000, MOST_TURNS = 20 };
  signal(SIGTERM, SIG_DFL);
  usleep((useconds_t)(c->rank < MOST_TURNS ? c->rank : MOST_TURNS) * TURN_US);
  if (is_first_on_host()) return;
  for (unsigned left = LAUNCHER_S; left > 0;) left = sleep(left);
}

_Noreturn void zpr_fail(zpr *c, const char *code, const char *format, ...) {
  assert(code && format);
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  bool ranks_run = c && c->state && c->state->comm;
  if (ranks_run) wait_my_turn(c);
  print_error(c, code, text);
  zpr_drop_unfinished();
  zpr_unlock_folder();
  signal(SIGALRM, SIG_DFL);
  alarm(LAUNCHER_S); /* MPI asks a launcher that may be out of reach */
  if (ranks_run) zpr_linked_transport->abort(status_of(code));
  exit(status_of(code));
}

void zpr_error_set(zpr_error *error, const char *code, const char *format, ...) {
  if (error->code[0]) return; /* the first reason is the one to tell */
  snprintf(error->code, sizeof error->code, "%s", code);
  va_list args;
  va_start(args, format);
  vsnprintf(error->text, sizeof error->text, format, args);
  va_end(args);
}

void zpr_agree(zpr *c, const zpr_error *error) {
  int64_t first = zpr_world_min(c, error->code[0] ? c->rank : INT64_MAX);
  if (first == INT64_MAX) return;
  if (c->rank == first) {
    zpr_log_clear(c);
    fflush(stdout);
    /* Rank 0 speaks for all when all have it; a single rank says who it is. */
    if (first == 0)
      zpr_say_line(stderr, "error[%s]: %s", error->code, error->text);
    else
      print_error(c, error->code, error->text);
  }
  zpr_unlock_folder(); /* while nobody has left: then the launcher ends this rank */
  /* All end alike, and not before the message is out: the first exit makes the launcher end the others. */
  int64_t status = zpr_world_min(c, c->rank == first ? status_of(error->code) : INT64_MAX);
  zpr_comm_finish(c);
  exit((int)status);
}

void *zpr_alloc(zpr *c, size_t count, size_t size) {
  void *p = calloc(count ? count : 1, size);
  if (!p) zpr_fail(c, "Z0822", "cannot get %zu bytes of memory", count * size);
  return p;
}
