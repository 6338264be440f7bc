/* SPDX-License-Identifier: Apache-2.0 */
/* What a run prints: a line a step on rank 0's standard output, and one JSON object a line in the log file.
 *
 * On a terminal the current step is a status line with a progress bar that is rewritten in place; every log_every steps
 * it stays. Elsewhere there are only lines. Trouble with the log file after it was opened is told once and training
 * goes on: a full disk must not cost the run. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint.h"
#include "state.h"

struct zpr_log {
  FILE *json;       /* NULL: none, or given up */
  const char *path; /* borrowed */
  bool status_line; /* rewritten in place */
  bool shown;       /* a status line stands on the screen */
  int64_t every, first;
};

/* What cannot be made shows when the file is opened. */
static void make_folder_of(const char *file) {
  char folder[ZPR_PATH];
  zpr_error ignored = {0};
  zpr_path(folder, "%s", file);
  char *slash = strrchr(folder, '/');
  if (!slash || slash == folder) return;
  *slash = 0;
  zpr_make_folders(folder, &ignored);
}

/* A log is another run's record: it is kept under a name that is free, "log.jsonl.1". False with errno. */
static bool put_aside(const char *path) {
  char aside[ZPR_PATH];
  for (int n = 1; n < INT_MAX; n++) {
    zpr_path(aside, "%s.%d", path, n);
    if (link(path, aside) == 0) {
      zpr_say_line(stderr, "note: the log of an earlier run is kept as \"%s\"", aside);
      return unlink(path) == 0;
    }
    if (errno != EEXIST) break;
  }
  /* A file system without links. */
  if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) return false;
  for (int n = 1; access(zpr_path(aside, "%s.%d", path, n), F_OK) == 0;) n++;
  if (rename(path, aside) != 0) return false;
  zpr_say_line(stderr, "note: the log of an earlier run is kept as \"%s\"", aside);
  return true;
}

/* Opens and locks; -1 with an error. A model names its log, which may be a pipe: it is not waited for. The lock is the
 * kernel's and ends with the process. Lines of two runs in one file would be nobody's log; where a file system has no
 * locks nothing is said, the file only loses what it is for. */
static int open_locked(const char *path, int flags, struct stat *status, zpr_error *error) {
  int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | flags, 0666);
  if (fd < 0 && errno == ENXIO) {
    zpr_error_set(error, "Z0841", "cannot write the log \"%s\": it is a pipe that nobody reads", path);
  } else if (fd < 0 || fstat(fd, status) != 0 || fcntl(fd, F_SETFL, flags & O_APPEND) != 0) {
    zpr_error_set(error, "Z0841", "cannot write the log \"%s\": %s", path, strerror(errno));
  } else if (S_ISREG(status->st_mode) && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    zpr_error_set(error, "Z0817", "another run writes the log \"%s\": wait for it, or name another --log", path);
  } else {
    return fd;
  }
  if (fd >= 0) close(fd);
  return -1;
}

enum keeping { APPEND, KEEP_ASIDE, REPLACE }; /* what is there */

static FILE *open_json(const char *path, enum keeping keeping, zpr_error *error) {
  struct stat status;
  int flags = keeping == APPEND ? O_APPEND : 0, fd = open_locked(path, flags, &status, error);
  if (fd < 0) return NULL;
  bool good = true, filled = S_ISREG(status.st_mode) && status.st_size > 0;
  if (filled && keeping == KEEP_ASIDE) {
    good = put_aside(path); /* with its lock, until there is another file of that name */
    int other = good ? open_locked(path, O_EXCL, &status, error) : -1;
    if (good && other < 0) {
      close(fd);
      return NULL;
    }
    if (good) close(fd), fd = other;
  } else if (filled && keeping == REPLACE) {
    good = ftruncate(fd, 0) == 0;
  }
  FILE *json = good ? fdopen(fd, keeping == APPEND ? "a" : "w") : NULL;
  if (!json) {
    zpr_error_set(error, "Z0841", "cannot write the log \"%s\": %s", path, strerror(errno));
    close(fd);
  }
  return json;
}

/* mpirun gives rank 0 a terminal of its own whether or not a person watches: `zplan run` knows, and passes
 * --no-progress. */
void zpr_log_open(zpr *c, const char *jsonl, bool append, bool progress) {
  zpr_error error = {0};
  if (c->rank == 0) {
    zpr_log *log = c->state->log = zpr_alloc(c, 1, sizeof *log);
    log->path = jsonl;
    log->status_line = progress && isatty(STDOUT_FILENO);
    log->every = c->program->log_every > 0 ? c->program->log_every : 1;
    log->first = -1;
    if (jsonl) make_folder_of(jsonl);
    enum keeping keeping = append ? APPEND : c->state->options.overwrite ? REPLACE : KEEP_ASIDE;
    if (jsonl) log->json = open_json(jsonl, keeping, &error);
  }
  zpr_agree(c, &error);
}

void zpr_log_clear(zpr *c) {
  zpr_log *log = c->state ? c->state->log : NULL;
  if (!log || !log->shown) return;
  fputs("\r\033[K", stdout);
  log->shown = false;
}

void zpr_log_note(zpr *c, const char *format, ...) {
  if (!c->state->log) return;
  zpr_log_clear(c);
  va_list args;
  va_start(args, format);
  zpr_say_list(stdout, format, args);
  va_end(args);
  fflush(stdout);
}

/* ---- JSON lines ---- */

enum { LOSSES_TEXT = 2048 }; /* of ZPR_MOST_LOSSES names of 64 bytes and twice as many numbers */
enum { EPOCHS_TEXT = 24 * (ZPR_MOST_PARTS + 1) };

void zpr_log_event(zpr *c, const char *json) {
  zpr_log *log = c->state->log;
  if (!log || !log->json) return;
  if (fprintf(log->json, "%s\n", json) >= 0 && fflush(log->json) == 0) return;
  zpr_log_clear(c);
  zpr_say_line(stderr, "warning: could not write the log \"%s\": %s; training goes on without it", log->path,
               strerror(errno));
  fclose(log->json);
  log->json = NULL;
}

/* JSON has no infinities. */
static const char *number(char buf[32], double x) {
  if (isfinite(x))
    snprintf(buf, 32, "%.17g", x);
  else
    snprintf(buf, 32, "null");
  return buf;
}

/* ", \"losses\": {\"start\": 1.5, \"end\": 1.25}", with their accuracies, which squared errors have not, where asked;
 * "" of a single loss. */
static void put_losses(char *buf, size_t size, const zpr_program *p, const zpr_tally *tally, bool accuracies) {
  char text[32];
  size_t n = 0;
  buf[0] = 0;
  for (int kind = 0; kind <= accuracies && zpr_n_losses(p) > 1; kind++) {
    n += (size_t)snprintf(buf + n, size - n, ", \"%s\": {", kind ? "accuracies" : "losses");
    for (int i = 0, put = 0; i < zpr_n_losses(p) && n < size; i++)
      if (!kind || !zpr_is_error(p, i))
        n += (size_t)snprintf(buf + n, size - n, "%s\"%.64s\": %s", put++ ? ", " : "", zpr_loss_name(p, i),
                              number(text, kind ? tally[i].right : tally[i].loss));
    if (n < size) n += (size_t)snprintf(buf + n, size - n, "}");
    assert(n < size);
  }
}

/* "  (start 1.500000, end 1.250000)"; "" of a single loss. */
static void show_losses(char *buf, size_t size, const zpr_program *p, const zpr_tally *tally, bool accuracies) {
  size_t n = 0;
  buf[0] = 0;
  for (int i = 0; i < zpr_n_losses(p) && zpr_n_losses(p) > 1 && n < size; i++) {
    n += (size_t)snprintf(buf + n, size - n, "%s%.64s ", i ? ", " : "  (", zpr_loss_name(p, i));
    n += (size_t)snprintf(buf + n, size - n, isnan(tally[i].right) ? "no label" : "%.6f", tally[i].loss);
    if (accuracies && n < size && !zpr_is_error(p, i) && !isnan(tally[i].right))
      n += (size_t)snprintf(buf + n, size - n, " accuracy %.2f%%", 100 * tally[i].right);
  }
  if (n > 0 && n < size) n += (size_t)snprintf(buf + n, size - n, ")");
}

/* ", \"epochs\": [0.35, 1.2]" of sources that are mixed, in their order; "" of one. */
static void put_epochs(char *buf, size_t size, const zpr *c, int64_t samples) {
  zpr_passes passes[ZPR_MOST_PARTS];
  int n = c->state->data ? zpr_data_passes(c->state->data, samples, passes) : 0;
  size_t used = 0;
  buf[0] = 0;
  for (int i = 0; i < n; i++)
    used += (size_t)snprintf(buf + used, size - used, "%s%.9g", i ? ", " : ", \"epochs\": [", passes[i].passes);
  if (n > 0) used += (size_t)snprintf(buf + used, size - used, "]");
  assert(used < size);
}

static void log_step_json(zpr *c, const zpr_record *r) {
  char line[640 + EPOCHS_TEXT + LOSSES_TEXT], loss[32], norm[32], lr[32], mfu[32], peak[32],
      scale[96] = "", stale[32] = "", losses[LOSSES_TEXT], epochs[EPOCHS_TEXT];
  put_epochs(epochs, sizeof epochs, c, r->samples);
  put_losses(losses, sizeof losses, c->program, r->tally, false);
  if (r->loss_scale > 0)
    snprintf(scale, sizeof scale, ", \"scale\": %lld, \"skipped\": %lld", (long long)r->loss_scale,
             (long long)r->skipped);
  if (r->staleness >= 0) snprintf(stale, sizeof stale, ", \"staleness\": %d", r->staleness);
  snprintf(line, sizeof line,
           "{\"step\": %lld, \"loss\": %s%s, \"grad_norm\": %s, \"lr\": %s, \"step_ms\": %.3f, \"tokens_per_s\": %.1f, "
           "\"mfu\": %s, \"device_peak_bytes\": %s%s%s%s%s}",
           (long long)r->step, number(loss, r->loss), losses, number(norm, r->grad_norm), number(lr, r->lr), r->step_ms,
           r->tokens_per_s, number(mfu, r->mfu),
           number(peak, r->device_peak_bytes > 0 ? (double)r->device_peak_bytes : NAN), epochs, scale, stale,
           r->spike ? ", \"loss_spike\": true" : "");
  zpr_log_event(c, line);
}

void zpr_log_validation(zpr *c, int64_t step, double loss, const zpr_tally *tally, const double *exact_match,
                        int64_t samples) {
  char line[192 + LOSSES_TEXT], text[32], right[32], losses[LOSSES_TEXT], accuracy[64] = "", exact[64] = "";
  bool alone = zpr_n_losses(c->program) == 1 && !zpr_is_error(c->program, 0);
  put_losses(losses, sizeof losses, c->program, tally, true);
  if (alone) snprintf(accuracy, sizeof accuracy, ", \"accuracy\": %s", number(right, tally->right));
  if (exact_match) snprintf(exact, sizeof exact, ", \"exact_match\": %s", number(right, *exact_match));
  snprintf(line, sizeof line, "{\"event\": \"validate\", \"step\": %lld, \"loss\": %s%s%s%s, \"samples\": %lld}",
           (long long)step, number(text, loss), accuracy, losses, exact, (long long)samples);
  zpr_log_event(c, line);
  if (alone && isnan(tally->right)) {
    zpr_log_note(c, "validation after step %lld: no sample has a label", (long long)step);
    return;
  }
  show_losses(losses, sizeof losses, c->program, tally, true);
  if (alone) snprintf(accuracy, sizeof accuracy, "  accuracy %.2f%%", 100 * tally->right);
  if (exact_match) snprintf(exact, sizeof exact, "  exact match %.2f%%", 100 * *exact_match);
  zpr_log_note(c, "validation after step %lld  loss %.6f%s%s%s", (long long)step, loss, alone ? accuracy : "", losses,
               exact);
}

void zpr_log_checkpoint(zpr *c, int64_t step, const char *dir) {
  char line[128];
  snprintf(line, sizeof line, "{\"event\": \"checkpoint\", \"step\": %lld}", (long long)step);
  zpr_log_event(c, line);
  zpr_log_note(c, "checkpoint %s/step_%06lld", dir, (long long)step);
}

/* ---- the line of a step ---- */

/* columns: fields that matter less are left out, one after another, until the line is no longer; 0: none is. */
static void format_step(zpr *c, char *buf, size_t size, const zpr_record *r, double cpu_ms, int64_t steps, double eta_s,
                        int columns) {
  char plan[48] = "", mfu[32] = "", scale[32] = "", cpu[48], lr[32], losses[LOSSES_TEXT];
  char *const spared[] = {cpu, plan, mfu, lr, scale};
  show_losses(losses, sizeof losses, c->program, r->tally, false);
  if (c->program->predicted_step_s > 0)
    snprintf(plan, sizeof plan, " (plan ~%.1f)", c->program->predicted_step_s * 1e3);
  if (isfinite(r->mfu)) snprintf(mfu, sizeof mfu, "  mfu %.1f%%", r->mfu * 100);
  if (r->loss_scale > 0) snprintf(scale, sizeof scale, "  scale %lld", (long long)r->loss_scale);
  snprintf(cpu, sizeof cpu, "  cpu %.1f", cpu_ms);
  snprintf(lr, sizeof lr, "  lr %.2e", r->lr);
  long long eta = (long long)(eta_s + 0.5);
  for (size_t i = 0;; *spared[i++] = 0) {
    int n = snprintf(buf, size,
                     "step %lld/%lld  loss %.6f%s  gnorm %.4f%s%s  ms %.1f%s%s  tok/s %.0f%s  eta %lld:%02lld:%02lld",
                     (long long)r->step, (long long)steps, r->loss, losses, fabs(r->grad_norm), scale, lr, r->step_ms,
                     plan, cpu, r->tokens_per_s, mfu, eta / 3600, eta / 60 % 60, eta % 60);
    if (columns == 0 || n <= columns || i == sizeof spared / sizeof *spared) return;
  }
}

/* Columns of the screen. The terminal that mpirun makes has none; `zplan run` passes those of the real one in
 * COLUMNS. */
static int screen_columns(void) {
  struct winsize size = {0};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char *columns = getenv("COLUMNS");
  int n = columns ? atoi(columns) : 0;
  return n > 0 ? n : 80;
}

enum { WIDTH = 20, BAR_COLUMNS = WIDTH + 4 };

static void show_status(zpr_log *log, const char *line, int64_t step, int64_t steps) {
  char bar[WIDTH + 1];
  int full = steps > 0 ? (int)(step * WIDTH / steps) : WIDTH;
  for (int i = 0; i < WIDTH; i++) bar[i] = i < full ? '=' : i == full ? '>' : ' ';
  bar[WIDTH] = 0;
  int room = screen_columns() - BAR_COLUMNS; /* a line that wraps could not be rewritten */
  printf("\r\033[K[%s] %.*s", bar, room > 0 ? room : 0, line);
  fflush(stdout);
  log->shown = true;
}

void zpr_log_step(zpr *c, const zpr_record *record, double cpu_ms, int64_t steps, double eta_s) {
  zpr_log *log = c->state->log;
  if (!log) return;
  log_step_json(c, record);
  if (log->first < 0) log->first = record->step;
  char line[320 + LOSSES_TEXT];
  bool stays = record->step % log->every == 0 || record->step == log->first || record->step == steps;
  int columns = log->status_line ? screen_columns() - (stays ? 0 : BAR_COLUMNS) : 0;
  format_step(c, line, sizeof line, record, cpu_ms, steps, eta_s, columns);
  if (stays)
    zpr_log_note(c, "%s", line);
  else if (log->status_line)
    show_status(log, line, record->step, steps);
}

void zpr_log_close(zpr *c) {
  zpr_log *log = c->state->log;
  if (!log) return;
  zpr_log_clear(c);
  if (log->json && fclose(log->json) != 0)
    zpr_say_line(stderr, "warning: could not write the log \"%s\": %s", log->path, strerror(errno));
  free(log);
  c->state->log = NULL;
}
