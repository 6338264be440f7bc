/* SPDX-License-Identifier: Apache-2.0 */
/* zplan watch: runs that are going on, by their logs; for TensorBoard and Prometheus, too. Ends when every run has its
 * end record, with Ctrl-C, and with --once after one look. */
#include "driver.h"
#include <zplan/interrupt.h>
#include <zplan/watch.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { POLL_MS = 500 };

typedef struct one_log {
  int *shown_lines;      /* of the watch: a message takes their place on the terminal */
  zp_follower *follower; /* owned */
  zp_event_file *events; /* owned; NULL: none */
  zp_watched watched;
  bool changed;  /* since it was shown */
  unsigned said; /* kinds of trouble that were said, a bit each */
  int64_t spikes_said, not_finite_said;
} one_log;

typedef struct watch {
  zp_run_state *run;
  one_log *log;
  int n;
  bool terminal, failed; /* failed: a log or an export */
  int shown_lines;       /* on the terminal */
  char *prometheus;      /* the text that was written last, owned; NULL: none */
  bool prometheus_failed;
} watch;

static void take_line(void *user, const char *line, size_t length) {
  one_log *log = user;
  zp_arena *arena = zp_arena_new("a record");
  zp_record record = zp_record_read(arena, line, length);
  bool known = zp_run_view_take(&log->watched.view, &record);
  if (known && log->events) zp_event_file_take(log->events, &record);
  zp_record_free(&record);
  zp_arena_free(arena);
  log->changed = true;
}

static void begin_anew(void *user, const char *why) {
  one_log *log = user;
  *log->shown_lines = 0;
  zp_say_line(stderr, "note: %s: %s; it is read from its beginning", log->watched.path, why);
  log->watched.view = zp_run_view_new();
  log->said = 0;
  log->spikes_said = log->not_finite_said = 0;
  log->changed = true;
  if (log->events) zp_event_file_restart(log->events);
}

static void report_error(watch *w, zp_diag_code code, const char *text) {
  zp_report(w->run->diags, code, ZP_NO_SPAN, "%s", text);
  zp_flush_diags(w->run);
  w->shown_lines = 0;
  w->failed = true;
}

static void fail_log(watch *w, one_log *log, const char *why) {
  log->watched.failed = zp_strdup(w->run->arena, why);
  log->changed = true;
  report_error(w, ZP_Z0640, why);
}

static void poll_log(watch *w, one_log *log, zp_arena *scratch) {
  const char *error = NULL;
  const zp_follow_calls calls = {take_line, begin_anew, log};
  bool was_missing = log->watched.missing;
  if (log->watched.failed) return;
  zp_follow_news news = zp_follow(scratch, log->follower, &calls, &error);
  log->watched.missing = news == ZP_FOLLOW_MISSING;
  log->changed |= log->watched.missing != was_missing;
  if (news == ZP_FOLLOW_FAILED) fail_log(w, log, error);
  log->watched.age_s = zp_follower_age_s(log->follower);
  log->watched.writer = zp_follower_has_writer(log->follower);
  const zp_run_view *v = &log->watched.view;
  if (!log->watched.failed && v->records == 0 && v->unread > 0)
    fail_log(w, log,
             zp_format(scratch, "%s: it is no log of a training: `zplan run --log FILE` writes a line of JSON a step",
                       log->watched.path));
  if (log->events && !zp_event_file_flush(scratch, log->events, &error)) report_error(w, ZP_Z0641, error);
}

static zp_watched_list listed(const watch *w, zp_arena *scratch) {
  zp_watched_list all = {0};
  for (int i = 0; i < w->n; i++) zp_push(scratch, &all, w->log[i].watched);
  return all;
}

/* A disk that is full now may have room later: the next change is tried again. */
static void put_prometheus(watch *w, const zp_watched_list *all, bool at_once, zp_arena *scratch) {
  const char *path = w->run->options.prometheus, *error = NULL;
  if (!path) return;
  zp_run_state marking = {.arena = scratch};
  const char *text = zp_mark_output(&marking, "#", zp_prometheus_text(scratch, all, at_once));
  if (w->prometheus && strcmp(text, w->prometheus) == 0) return;
  bool good = zp_write_file(scratch, path, text, strlen(text), &error);
  free(w->prometheus);
  w->prometheus = good ? strdup(text) : NULL;
  if (!good && !w->prometheus_failed) report_error(w, ZP_Z0641, error);
  w->prometheus_failed = !good;
}

/* ---- what people see ---- */

/* Each kind once, and again when there is more of it. */
static void say_troubles(one_log *log, bool at_once, zp_arena *scratch) {
  zp_troubles troubles = zp_watched_troubles(scratch, &log->watched, at_once);
  const zp_run_view *v = &log->watched.view;
  unsigned said = 0;
  for (int i = 0; i < troubles.len; i++) {
    unsigned bit = 1u << troubles.data[i].kind;
    bool more = (troubles.data[i].kind == ZP_TROUBLE_SPIKE && v->spikes > log->spikes_said) ||
                (troubles.data[i].kind == ZP_TROUBLE_NOT_FINITE && v->not_finite > log->not_finite_said);
    if (more || !(log->said & bit)) zp_say_line(stderr, "warning: %s: %s", log->watched.path, troubles.data[i].text);
    said |= bit;
  }
  log->said = said; /* a stall that ended may come again */
  log->spikes_said = v->spikes;
  log->not_finite_said = v->not_finite;
}

static void say_lines(watch *w, zp_arena *scratch) {
  for (int i = 0; i < w->n; i++) {
    if (w->log[i].changed) zp_say_line(stdout, "%s", zp_watched_line(scratch, &w->log[i].watched));
    w->log[i].changed = false;
    say_troubles(&w->log[i], false, scratch);
  }
  fflush(stdout);
}

/* The page in place of the one before; no taller than the terminal, where the cursor could not go back to its top. */
static void redraw(watch *w, const zp_watched_list *all, zp_arena *scratch) {
  zp_run_state drawing = {.arena = scratch, .options = w->run->options};
  struct winsize size = {0};
  int most = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 2 ? size.ws_row - 1 : 23, lines = 0;
  zp_page page = zp_page_for(&drawing, stdout, ZP_FIRST_LABEL);
  zp_watched_page(&page, all, false);
  char *end = page.out.data;
  for (char *c = page.out.data; *c; c++)
    if (*c == '\n' && ++lines <= most) end = c + 1;
  if (lines > most) lines = most, page.out.len = (size_t)(end - page.out.data), *end = '\0';
  if (w->shown_lines > 0) printf("\r\x1b[%dA", w->shown_lines);
  printf("\x1b[J");
  zp_page_put(&page, stdout);
  fflush(stdout);
  w->shown_lines = lines;
}

static void show(watch *w, const zp_watched_list *all, zp_arena *scratch) {
  if (w->run->options.json) {
    for (int i = 0; i < w->n; i++) say_troubles(&w->log[i], false, scratch);
  } else if (w->terminal) {
    redraw(w, all, scratch);
  } else {
    say_lines(w, scratch);
  }
}

/* ---- one look, or many ---- */

static bool all_ended(const watch *w) {
  for (int i = 0; i < w->n; i++)
    if (!w->log[i].watched.view.ended && !w->log[i].watched.failed) return false;
  return true;
}

static void look(watch *w, bool at_once) {
  zp_arena *scratch = zp_arena_new("a look");
  for (int i = 0; i < w->n; i++) poll_log(w, &w->log[i], scratch);
  zp_watched_list all = listed(w, scratch);
  put_prometheus(w, &all, at_once, scratch);
  if (!at_once) show(w, &all, scratch);
  zp_arena_free(scratch);
}

static void follow(watch *w) {
  const struct timespec pause = {POLL_MS / 1000, POLL_MS % 1000 * 1000000L};
  zp_interrupt_catch();
  for (;;) {
    look(w, false);
    if (all_ended(w) || zp_interrupted()) break;
    nanosleep(&pause, NULL);
    if (zp_interrupted()) break;
  }
  w->run->interrupted = zp_interrupt_release();
}

/* The state when it ends: the status says whether all is well. */
static int conclude(watch *w, bool once) {
  zp_run_state *run = w->run;
  zp_watched_list all = listed(w, run->arena);
  bool healthy = !w->failed && !w->prometheus_failed;
  for (int i = 0; i < all.len; i++) {
    healthy &= zp_watched_is_healthy(run->arena, &all.data[i], once);
    if (once && all.data[i].missing)
      report_error(w, ZP_Z0640, zp_format(run->arena, "%s: there is no such file", all.data[i].path));
  }
  if (run->options.json) {
    zp_watched_json(run->arena, &all, once, zp_result_object(run));
  } else if (once) {
    zp_page page = zp_page_for(run, stdout, ZP_FIRST_LABEL);
    zp_watched_page(&page, &all, true);
    zp_page_put(&page, stdout);
  }
  return run->interrupted ? ZP_EXIT_INTERRUPTED : healthy ? ZP_EXIT_OK : ZP_EXIT_ERROR;
}

/* One log's events stand in the folder itself, those of several in one of their own each. */
static const char *event_folder(const zp_run_state *run, int index) {
  const zp_options *o = &run->options;
  if (o->files.len == 1) return o->tensorboard;
  char *name = zp_strdup(run->arena, o->files.data[index]);
  for (char *c = name; *c; c++)
    if (*c == '/') *c = '_';
  return zp_format(run->arena, "%s/%d-%s", o->tensorboard, index + 1, name[0] == '.' ? name + 1 : name);
}

int zp_cmd_watch(zp_run_state *run) {
  const zp_options *o = &run->options;
  if (o->files.len == 0)
    return zp_usage_error("zplan watch wants logs of runs: `zplan run FILE --log F.jsonl` writes one");
  if (o->prometheus && !zp_may_replace(run, o->prometheus, NULL)) return ZP_EXIT_ERROR;
  watch w = {.run = run, .n = o->files.len, .terminal = !o->json && isatty(STDOUT_FILENO)};
  w.log = ZP_NEW_ARRAY(run->arena, one_log, w.n);
  for (int i = 0; i < w.n; i++) {
    const char *path = o->files.data[i];
    w.log[i] = (one_log){.shown_lines = &w.shown_lines, .follower = zp_follower_new(path), .changed = true};
    w.log[i].watched = (zp_watched){.path = path, .view = zp_run_view_new(), .writer = -1};
    if (o->tensorboard) w.log[i].events = zp_event_file_new(event_folder(run, i), path, o->force);
  }
  if (o->once)
    look(&w, true);
  else
    follow(&w);
  int status = conclude(&w, o->once);
  for (int i = 0; i < w.n; i++) {
    zp_follower_free(w.log[i].follower);
    zp_event_file_free(w.log[i].events);
  }
  free(w.prometheus);
  return status;
}
