/* SPDX-License-Identifier: Apache-2.0 */
/* Runs that are going on: their logs followed while they grow, what they say shown and handed to TensorBoard and
 * Prometheus. Knows logs alone, no plans. */
#ifndef ZPLAN_WATCH_H
#define ZPLAN_WATCH_H

#include <zplan/page.h>
#include <zplan/run_log.h>
#include <zplan/vec.h>

/* ---- run_view.c: what the records of one log add up to ---- */

enum { ZP_RECENT_STEPS = 64 };

/* Numbers that no record said are NAN, counts 0, steps of what never happened -1. */
typedef struct zp_run_view {
  char program[64], plan[40];
  int64_t ranks, steps; /* steps: to train; 0: not said */
  double predicted_ms;
  int64_t step; /* the newest; -1: none yet */
  double loss, smooth_loss, grad_norm, lr, step_ms, tokens_per_step, mfu;
  double recent_ms[ZP_RECENT_STEPS]; /* a ring */
  int64_t n_steps;                   /* read since the log, or what is left of it, began */
  int64_t memory_bytes;              /* of the fullest rank known; 0: not measured */
  bool memory_of_all;                /* of all ranks, not rank 0 alone */
  double validation_loss;
  int64_t validation_step, checkpoint_step;
  int64_t slow_stage; /* of the newest profile; -1: none, or one stage */
  double slow_stage_ms;
  bool ended; /* the newest run of the log has its end record */
  int64_t spikes, spike_step, not_finite, not_finite_step;
  double spike_loss;
  int64_t lines, records, unread, unread_line; /* unread_line: of the first that cannot be read */
} zp_run_view;

zp_run_view zp_run_view_new(void);
/* False: the line is nothing that a trainer writes. */
bool zp_run_view_take(zp_run_view *view, const zp_record *record);
int zp_run_view_recent(const zp_run_view *view);          /* how many steps are recent */
double zp_run_view_median_ms(const zp_run_view *view);    /* of the recent steps; NAN: none */
double zp_run_view_tokens_per_s(const zp_run_view *view); /* at that time; NAN: not said */
double zp_run_view_eta_s(const zp_run_view *view);        /* NAN: not known; 0: it has ended */

/* ---- follow.c: the lines of a file that grows ---- */

typedef enum zp_follow_news {
  ZP_FOLLOW_READ,    /* to its end */
  ZP_FOLLOW_MISSING, /* there is no such file now, and none was read */
  ZP_FOLLOW_FAILED   /* *error */
} zp_follow_news;

typedef struct zp_follower zp_follower;
typedef struct zp_follow_calls {
  void (*line)(void *user, const char *line, size_t length); /* whole lines, without their ends */
  void (*anew)(void *user, const char *why); /* what was read is not what the file holds: it begins again */
  void *user;
} zp_follow_calls;

/* Owned by the caller; path is borrowed. */
zp_follower *zp_follower_new(const char *path);
void zp_follower_free(zp_follower *f);
/* Reads what is new. */
zp_follow_news zp_follow(zp_arena *arena, zp_follower *f, const zp_follow_calls *calls, const char **error);
/* Seconds since the file was last written; 0 where there is none. */
double zp_follower_age_s(const zp_follower *f);
/* Does a process of this machine hold the lock that trainers have on their log? 1, 0; -1: not known. */
int zp_follower_has_writer(const zp_follower *f);

/* ---- health.c: what is wrong with a run ---- */

typedef struct zp_watched {
  const char *path;
  zp_run_view view;
  double age_s; /* since the last record */
  int writer;   /* as zp_follower_has_writer */
  bool missing;
  const char *failed; /* why it is not read any more; NULL */
} zp_watched;
typedef ZP_VEC(zp_watched) zp_watched_list;

typedef enum zp_trouble_kind {
  ZP_TROUBLE_SPIKE,
  ZP_TROUBLE_NOT_FINITE,
  ZP_TROUBLE_STALL,
  ZP_TROUBLE_NO_END,
  ZP_TROUBLE_DAMAGED,
  ZP_TROUBLE_KINDS
} zp_trouble_kind;
typedef struct zp_trouble {
  zp_trouble_kind kind;
  bool now; /* the run is not healthy now; else it was not once */
  const char *text;
} zp_trouble;
typedef ZP_VEC(zp_trouble) zp_troubles;
const char *zp_trouble_name(zp_trouble_kind kind); /* "spike" */
/* at_once: nobody will look again, so that a log without a writer is not given time. */
zp_troubles zp_watched_troubles(zp_arena *arena, const zp_watched *watched, bool at_once);
/* The file is there, can be read, and has no trouble now. */
bool zp_watched_is_healthy(zp_arena *arena, const zp_watched *watched, bool at_once);
/* "missing", "empty", "running", "silent", "ended", "failed" */
const char *zp_watched_state(const zp_watched *watched);
/* The log with the longest median step, at least 2 % above the median of the logs of its plan; -1: none stands out, or
 * there is nothing to compare. */
int zp_slowest(const zp_watched_list *all);
double zp_slowest_by(const zp_watched_list *all, int slowest); /* its step as a multiple of the median */

/* ---- show.c, watch_json.c ---- */

/* One line without its end: "run.jsonl: step 3/10  loss 5.1 ...". */
const char *zp_watched_line(zp_arena *arena, const zp_watched *watched);
/* All that is known: fields of one log, a table of several. */
void zp_watched_page(zp_page *page, const zp_watched_list *all, bool at_once);
/* Adds "healthy", "slowest" and "logs" to an object. */
void zp_watched_json(zp_arena *arena, const zp_watched_list *all, bool at_once, zp_json *into);

/* ---- prometheus.c ---- */

/* The textfile format, gauges with a label `log`. Arena. */
const char *zp_prometheus_text(zp_arena *arena, const zp_watched_list *all, bool at_once);

/* ---- event_file.c: TensorBoard ---- */

typedef struct zp_event_file zp_event_file;
/* log: whose file it is. Nothing is opened yet. folder, log: borrowed. force: a file of the same name that holds
 * something else is written anew, files of other runs are no reason to refuse. */
zp_event_file *zp_event_file_new(const char *folder, const char *log, bool force);
/* The log begins again: another run, another file. */
void zp_event_file_restart(zp_event_file *file);
void zp_event_file_take(zp_event_file *file, const zp_record *record);
/* Writes what was taken. False with *error (arena): nothing is written to it any more. */
bool zp_event_file_flush(zp_arena *arena, zp_event_file *file, const char **error);
void zp_event_file_free(zp_event_file *file);
/* CRC-32C (Castagnoli), bit-reflected. */
uint32_t zp_crc32c(const void *data, size_t length);

#endif
