/* SPDX-License-Identifier: Apache-2.0 */
/* Tells a profile: means over the ranks of every stage, as one JSON line for `zplan report` and a few lines on the
 * screen. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "comm.h"
#include "profile.h"
#include "state.h"

static const struct {
  zpr_step_kind kind;
  const char *name;
} fixed_steps[ZPR_FIXED_COUNT] = {
#define ZPR_FIXED_STEP(id, kind, name) [id] = {kind, name},
    ZPR_FIXED_STEPS(ZPR_FIXED_STEP)
#undef ZPR_FIXED_STEP
};
static const char *const kind_names[ZPR_STEP_KINDS] = {
    [ZPR_STEP_KERNEL] = "kernel",   [ZPR_STEP_PRODUCT] = "product", [ZPR_STEP_ATTENTION] = "attention",
    [ZPR_STEP_MESSAGE] = "message", [ZPR_STEP_COPY] = "copy",       [ZPR_STEP_UPDATE] = "update",
    [ZPR_STEP_OTHER] = "other"};

/* ---- what all ranks have measured ---- */

/* Collective. All ranks' `count` equal pieces of memory: all[rank * count + i]. */
static void *gather(zpr *c, const void *mine, size_t count, size_t size) {
  char *all = zpr_alloc(c, (size_t)c->ranks * count, size);
  size_t at_once = ZPR_GATHER_BYTES / size;
  char *round = zpr_alloc(c, (size_t)c->ranks, ZPR_GATHER_BYTES);
  for (size_t at = 0; at < count; at += at_once) {
    size_t n = count - at < at_once ? count - at : at_once;
    zpr_world_gather(c, (const char *)mine + at * size, (int64_t)(n * size), round);
    for (int r = 0; r < c->ranks; r++)
      memcpy(all + ((size_t)r * count + at) * size, round + (size_t)r * n * size, n * size);
  }
  free(round);
  return all;
}

/* Numbers of a stage, of one training step, on the mean of its ranks. */
typedef struct stage_times {
  double *ns, *calls; /* [n] */
  double total_ns;
  int ranks;
} stage_times;

static int stage_of_rank(const zpr_program *p, int rank) { return rank / zpr_pipeline_stride(p) % p->pipeline; }

static stage_times add_up(zpr *c, const zpr_measured *m, const zpr_step_time *all, int stage) {
  stage_times s = {.ns = zpr_alloc(c, (size_t)m->n, sizeof *s.ns),
                   .calls = zpr_alloc(c, (size_t)m->n, sizeof *s.calls)};
  for (int r = 0; r < c->ranks; r++) {
    if (stage_of_rank(c->program, r) != stage) continue;
    s.ranks++;
    for (int i = 0; i < m->n; i++) {
      s.ns[i] += all[(size_t)r * (size_t)m->n + (size_t)i].ns / (double)m->steps;
      s.calls[i] += (double)all[(size_t)r * (size_t)m->n + (size_t)i].calls / (double)m->steps;
    }
  }
  for (int i = 0; i < m->n; i++) {
    s.ns[i] /= s.ranks;
    s.calls[i] /= s.ranks;
    s.total_ns += s.ns[i];
  }
  return s;
}

/* ns of a training step; negative: the plan does not say. */
static double predicted_ns(const zpr_program *p, const stage_times *s, int stage, int i) {
  const zpr_profile_stage *plan = &p->profile->stages[stage];
  int n = p->profile->n_steps;
  return i < n ? plan->step_ns[i] * s->calls[i] : plan->fixed_s[i - n] * 1e9;
}

/* ---- the JSON line ---- */

static void put_text(FILE *f, const char *name, const char *text) {
  fprintf(f, "\"%s\": ", name);
  zpr_put_json(f, text);
  fputs(", ", f);
}

static void put_row(FILE *f, const zpr_program *p, const stage_times *s, int stage, int i) {
  const zpr_profile_table *table = p->profile;
  bool fixed = i >= table->n_steps;
  int f_i = i - table->n_steps;
  double plan = predicted_ns(p, s, stage, i);
  put_text(f, "procedure", fixed ? "" : table->steps[i].procedure);
  put_text(f, "name", fixed ? fixed_steps[f_i].name : table->steps[i].name);
  put_text(f, "place", fixed ? "" : table->steps[i].place);
  fprintf(f, "\"kind\": \"%s\", \"calls\": %.6g, ", kind_names[fixed ? fixed_steps[f_i].kind : table->steps[i].kind],
          s->calls[i]);
  if (plan >= 0)
    fprintf(f, "\"predicted_ms\": %.9g, ", plan / 1e6);
  else
    fprintf(f, "\"predicted_ms\": null, ");
  fprintf(f, "\"measured_ms\": %.9g}", s->ns[i] / 1e6);
}

/* Steps that neither ran nor should have are left out: those of other stages' segments. */
static bool is_shown(const zpr_program *p, const stage_times *s, int stage, int i) {
  return s->calls[i] > 0 || s->ns[i] > 0 || predicted_ns(p, s, stage, i) > 0;
}

static void put_span(FILE *f, const zpr_program *p, const zpr_span *span) {
  if (!span->action)
    fprintf(f, "[\"%s\", ", fixed_steps[span->fixed].name);
  else if (p->chunks > 1)
    fprintf(f, "[\"%c%d.%d\", ", span->action, span->chunk, (int)span->microbatch);
  else
    fprintf(f, "[\"%c%d\", ", span->action, (int)span->microbatch);
  fprintf(f, "%.6f, %.6f]", span->begin_ns / 1e6, span->end_ns / 1e6);
}

typedef struct timeline {
  int64_t n, cut;
} timeline;

static void put_stage(FILE *f, const zpr_program *p, const zpr_measured *m, const stage_times *s, int stage,
                      const timeline *line, const zpr_span *spans) {
  fprintf(f, "%s{\"stage\": %d, \"ranks\": %d, \"measured_ms\": %.9g, \"steps\": [", stage ? ", " : "", stage, s->ranks,
          s->total_ns / 1e6);
  bool first = true;
  for (int i = 0; i < m->n; i++) {
    if (!is_shown(p, s, stage, i)) continue;
    fputs(first ? "{" : ", {", f);
    put_row(f, p, s, stage, i);
    first = false;
  }
  fprintf(f, "], \"timeline_cut\": %s, \"timeline\": [", line->cut ? "true" : "false");
  for (int64_t i = 0; i < line->n; i++) {
    if (i > 0) fputs(", ", f);
    put_span(f, p, &spans[i]);
  }
  fputs("]}", f);
}

/* How much longer steps are that are measured, as a share; NAN: all were. */
static double slower_by(const zpr_measured *m) { return m->without_ms > 0 ? m->with_ms / m->without_ms - 1 : NAN; }

static void put_head(FILE *f, const zpr *c, const zpr_measured *m) {
  fprintf(f,
          "{\"event\": \"profile\", \"step\": %lld, \"plan\": \"%s\", \"steps\": %lld, \"predicted_step_ms\": %.9g, "
          "\"measured_step_ms\": %.9g, ",
          (long long)c->step, c->program->plan_hash, (long long)m->steps, c->program->predicted_step_s * 1e3,
          m->with_ms);
  if (m->without_ms > 0)
    fprintf(f, "\"other_step_ms\": %.9g, \"slower_by\": %.6g, ", m->without_ms, slower_by(m));
  else
    fprintf(f, "\"other_step_ms\": null, \"slower_by\": null, ");
  fputs("\"stages\": [", f);
}

/* ---- the screen ---- */

enum { SCREEN_ROWS = 8 };

typedef struct row {
  int stage, step;
  double plan_ns, ns;
} row;

static double difference(const row *r) { return fabs(r->ns - fmax(r->plan_ns, 0)); }

static int by_difference(const void *a, const void *b) {
  const row *x = a, *y = b;
  double dx = difference(x), dy = difference(y);
  if (dx != dy) return dx < dy ? 1 : -1;
  return x->stage != y->stage ? x->stage - y->stage : x->step - y->step;
}

static void show_row(zpr *c, const row *r) {
  const zpr_profile_table *table = c->program->profile;
  char name[128], plan[24] = "-";
  if (r->plan_ns >= 0) snprintf(plan, sizeof plan, "%.3f", r->plan_ns / 1e6);
  if (r->step < table->n_steps)
    snprintf(name, sizeof name, "%s: %s", table->steps[r->step].procedure, table->steps[r->step].name);
  else
    snprintf(name, sizeof name, "%s", fixed_steps[r->step - table->n_steps].name);
  zpr_log_note(c, "%-6d %-60s %12s %12.3f", r->stage, name, plan, r->ns / 1e6);
}

static void show_rows(zpr *c, const zpr_measured *m, const stage_times *stages) {
  row *rows = zpr_alloc(c, (size_t)c->program->pipeline * (size_t)m->n, sizeof *rows);
  size_t n = 0;
  for (int s = 0; s < c->program->pipeline; s++)
    for (int i = 0; i < m->n; i++)
      if (is_shown(c->program, &stages[s], s, i))
        rows[n++] = (row){s, i, predicted_ns(c->program, &stages[s], s, i), stages[s].ns[i]};
  qsort(rows, n, sizeof *rows, by_difference);
  zpr_log_note(c, "%-6s %-60s %12s %12s", "stage", "where a step differs most from the plan (ms)", "plan", "measured");
  for (size_t i = 0; i < n && i < SCREEN_ROWS; i++) show_row(c, &rows[i]);
  free(rows);
}

static void show(zpr *c, const zpr_measured *m, const stage_times *stages) {
  show_rows(c, m, stages);
  if (m->without_ms > 0)
    zpr_log_note(c, "profile: %lld steps measured, median %.1f ms; the others took %.1f ms (measuring: %+.1f%%)",
                 (long long)m->steps, m->with_ms, m->without_ms, slower_by(m) * 100);
  else
    zpr_log_note(c, "profile: %lld steps measured, median %.1f ms", (long long)m->steps, m->with_ms);
}

/* ---- all of it ---- */

/* `spans`: `most` of every rank. A stage's timeline is that of its first rank. */
static void put_all(zpr *c, const zpr_measured *m, const stage_times *stages, const timeline *lines,
                    const zpr_span *spans, int64_t most) {
  const zpr_program *p = c->program;
  char *text = NULL;
  size_t size;
  FILE *f = open_memstream(&text, &size);
  if (!f) zpr_fail(c, "Z0822", "cannot get memory for the profile");
  put_head(f, c, m);
  for (int s = 0; s < p->pipeline; s++) {
    int r = 0;
    while (stage_of_rank(p, r) != s) r++;
    put_stage(f, p, m, &stages[s], s, &lines[r], spans + r * most);
  }
  fputs("]}", f);
  if (fclose(f) == 0) zpr_log_event(c, text);
  free(text);
}

void zpr_profile_log(zpr *c, const zpr_measured *m) {
  timeline mine = {m->n_spans, m->spans_cut};
  zpr_step_time *times = gather(c, m->time, (size_t)m->n, sizeof *m->time);
  timeline *lines = gather(c, &mine, 1, sizeof mine);
  int64_t most = 0;
  for (int r = 0; r < c->ranks; r++)
    if (lines[r].n > most) most = lines[r].n;
  zpr_span *spans = gather(c, m->spans, (size_t)most, sizeof *spans);
  stage_times *stages = zpr_alloc(c, (size_t)c->program->pipeline, sizeof *stages);
  for (int s = 0; s < c->program->pipeline; s++) stages[s] = add_up(c, m, times, s);
  if (c->rank == 0) {
    put_all(c, m, stages, lines, spans, most);
    show(c, m, stages);
  }
  for (int s = 0; s < c->program->pipeline; s++) {
    free(stages[s].ns);
    free(stages[s].calls);
  }
  free(stages);
  free(spans);
  free(lines);
  free(times);
}
