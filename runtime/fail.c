/* How a run ends early. Two ways:
 *   zpr_agree  at points that all ranks reach: they compare notes, the lowest rank in trouble speaks, all leave in
 * order; zpr_fail   anywhere: this rank speaks and ends all ranks. Either way the user sees one line. */
#include <assert.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "checkpoint.h"
#include "state.h"

static void print_error(zpr *c, const char *code, const char *text) {
  if (c) zpr_log_clear(c);
  fflush(stdout);
  if (c && c->ranks > 1)
    fprintf(stderr, "error[%s]: %s (rank %d of %d)\n", code, text, c->rank, c->ranks);
  else
    fprintf(stderr, "error[%s]: %s\n", code, text);
}

static int status_of(const char *code) {
  static const struct {
    const char *code;
    int status;
  } table[] = {{"Z0821", ZPR_EXIT_FAILED},
               {"Z0822", ZPR_EXIT_MEMORY},
               {"Z0830", ZPR_EXIT_FAILED},
               {"Z0852", ZPR_EXIT_FAILED},
               {"Z0862", ZPR_EXIT_FAILED}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (strcmp(table[i].code, code) == 0) return table[i].status;
  return ZPR_EXIT_REFUSED;
}

/* Ranks often meet the same trouble at the same moment (a file that is gone, a corrupt checkpoint). Rank 0 speaks at
 * once and takes the others down; they wait their turn, so that the user reads one message and not one per rank. The
 * launcher ends them with SIGTERM, which a rank that trains would survive. */
static void wait_my_turn(const zpr *c) {
  signal(SIGTERM, SIG_DFL);
  int turns = c->rank < 20 ? c->rank : 20;
  usleep((useconds_t)turns * 100000);
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
      fprintf(stderr, "error[%s]: %s\n", error->code, error->text);
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
