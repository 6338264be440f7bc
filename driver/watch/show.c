/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of the runs, for people: a line, or a page. */
#include <zplan/table.h>
#include <zplan/watch.h>

#include <assert.h>
#include <math.h>

enum { BAR = 20 };

static const char *steps_words(zp_arena *arena, const zp_run_view *v, const char *of) {
  if (v->step < 0) return "no step yet";
  if (v->steps <= 0) return zp_format(arena, "%lld", (long long)v->step);
  return zp_format(arena, "%lld%s%lld", (long long)v->step, of, (long long)v->steps);
}

static const char *loss_words(zp_arena *arena, double loss) {
  return isfinite(loss) ? zp_format(arena, "%.6f", loss) : "not finite";
}

static const char *memory_words(zp_arena *arena, const zp_run_view *v) {
  return v->memory_bytes > 0 ? zp_show_bytes(arena, v->memory_bytes) : "not measured";
}

/* "0:01:39" */
static const char *eta_words(zp_arena *arena, const zp_run_view *v) {
  enum { MOST_S = 1000000000 };
  double eta_s = zp_run_view_eta_s(v);
  if (!(eta_s >= 0 && eta_s < MOST_S)) return "unknown";
  long long s = (long long)(eta_s + 0.5);
  return zp_format(arena, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
}

const char *zp_watched_line(zp_arena *arena, const zp_watched *w) {
  const zp_run_view *v = &w->view;
  if (v->step < 0 || w->failed || w->missing) return zp_format(arena, "%s: %s", w->path, zp_watched_state(w));
  const char *plan = isfinite(v->predicted_ms) ? zp_format(arena, " (plan " ZP_ESTIMATED "%.1f)", v->predicted_ms) : "";
  const char *rest = v->ended ? "ended" : zp_format(arena, "eta %s", eta_words(arena, v));
  double tokens = zp_run_view_tokens_per_s(v);
  return zp_format(arena, "%s: step %s  loss %s (smooth %s)  ms %.1f%s  tok/s %s  memory %s  %s", w->path,
                   steps_words(arena, v, "/"), loss_words(arena, v->loss), loss_words(arena, v->smooth_loss),
                   v->step_ms, plan, isfinite(tokens) ? zp_format(arena, "%.0f", tokens) : "unknown",
                   memory_words(arena, v), rest);
}

/* ---- a page of one log ---- */

static void put_steps(zp_page *page, const zp_watched *w) {
  zp_arena *arena = page->out.arena;
  const zp_run_view *v = &w->view;
  char bar[BAR + 1] = "";
  if (v->steps > 0 && v->step >= 0) {
    int full = v->step >= v->steps ? BAR : (int)(v->step * BAR / v->steps);
    for (int i = 0; i < BAR; i++) bar[i] = i < full ? '=' : '.'; /* no spaces: a page joins them */
  }
  const char *shown = *bar ? zp_format(arena, "[%s] ", bar) : "";
  const char *rest = v->ended ? ", ended" : zp_format(arena, ", %s, ETA %s", zp_watched_state(w), eta_words(arena, v));
  zp_page_field(page, "step", "%s%s%s", shown, steps_words(arena, v, " of "), rest);
}

static void put_loss(zp_page *page, const zp_run_view *v) {
  zp_arena *arena = page->out.arena;
  zp_page_field(page, "loss", "%s, smoothed %s", loss_words(arena, v->loss), loss_words(arena, v->smooth_loss));
  if (v->validation_step >= 0)
    zp_page_field(page, "", "validation after step %lld: %s", (long long)v->validation_step,
                  loss_words(arena, v->validation_loss));
  if (isfinite(v->lr))
    zp_page_field(page, "", "learning rate %.2e, gradient norm %s", v->lr,
                  isfinite(v->grad_norm) ? zp_format(arena, "%.4f", v->grad_norm) : "not finite");
}

static void put_speed(zp_page *page, const zp_run_view *v) {
  zp_arena *arena = page->out.arena;
  double median_s = zp_run_view_median_ms(v) / 1e3, tokens = zp_run_view_tokens_per_s(v);
  const char *plan = "the log has no prediction";
  if (isfinite(v->predicted_ms))
    plan = zp_format(arena, "plan " ZP_ESTIMATED "%s: measured / predicted %.2f",
                     zp_show_seconds(arena, v->predicted_ms / 1e3), median_s * 1e3 / v->predicted_ms);
  zp_page_field(page, "speed", "step %s, median of the last %d; %s", zp_show_seconds(arena, median_s),
                zp_run_view_recent(v), plan);
  if (isfinite(tokens))
    zp_page_field(page, "", "%s tokens/s%s", zp_show_count(arena, tokens),
                  isfinite(v->mfu) ? zp_format(arena, ", MFU %.1f%%", v->mfu * 100) : "");
}

static void put_one(zp_page *page, const zp_watched *w) {
  zp_arena *arena = page->out.arena;
  const zp_run_view *v = &w->view;
  const char *ranks =
      v->ranks > 0 ? zp_format(arena, ", %lld rank%s", (long long)v->ranks, v->ranks == 1 ? "" : "s") : "";
  const char *plan = v->plan[0] ? zp_format(arena, ", plan %s", v->plan) : "";
  zp_page_field(page, "log", "%s%s%s%s%s", w->path, v->program[0] ? ": " : "", v->program, plan, ranks);
  if (w->failed || w->missing || v->records == 0) {
    zp_page_field(page, "state", "%s", zp_watched_state(w));
    return;
  }
  put_steps(page, w);
  if (v->step >= 0 && v->n_steps > 0) {
    put_loss(page, v);
    put_speed(page, v);
  }
  zp_page_field(page, "memory", "%s%s", memory_words(arena, v),
                v->memory_bytes <= 0 ? ""
                : v->memory_of_all   ? " on the fullest rank"
                                     : " on rank 0; the end record has the other ranks");
  if (v->checkpoint_step >= 0) zp_page_field(page, "saved", "step %lld", (long long)v->checkpoint_step);
  if (v->slow_stage >= 0)
    zp_page_field(page, "slowest", "stage %lld: %s of work in a step, by the newest profile", (long long)v->slow_stage,
                  zp_show_seconds(arena, v->slow_stage_ms / 1e3));
}

/* ---- several ---- */

static const zp_column columns[] = {
    {"log", 12, 12, 0},     {"state", 7, 0, 0}, {"step", 5, 0, 0},     {"loss", 8, 0, 0},   {"smoothed", 8, 0, 3},
    {"step time", 9, 0, 0}, {"plan", 6, 0, 4},  {"tokens/s", 8, 0, 2}, {"memory", 8, 0, 1}, {"ETA", 7, 0, 0}};

static void put_table(zp_page *page, const zp_watched_list *all) {
  zp_arena *arena = page->out.arena;
  zp_table table = {.columns = columns, .n = sizeof columns / sizeof *columns};
  for (int i = 0; i < all->len; i++) {
    const zp_watched *w = &all->data[i];
    const zp_run_view *v = &w->view;
    double median_s = zp_run_view_median_ms(v) / 1e3, tokens = zp_run_view_tokens_per_s(v);
    bool any = v->step >= 0;
    const char *cells[] = {w->path,
                           zp_watched_state(w),
                           any ? steps_words(arena, v, "/") : "",
                           any ? loss_words(arena, v->loss) : "",
                           any ? loss_words(arena, v->smooth_loss) : "",
                           isfinite(median_s) ? zp_show_seconds(arena, median_s) : "",
                           isfinite(v->predicted_ms)
                               ? zp_format(arena, ZP_ESTIMATED "%s", zp_show_seconds(arena, v->predicted_ms / 1e3))
                               : "",
                           isfinite(tokens) ? zp_show_count(arena, tokens) : "",
                           any ? memory_words(arena, v) : "",
                           any && !v->ended ? eta_words(arena, v) : ""};
    zp_table_add(arena, &table, cells);
  }
  zp_page_table(page, &table);
  int slowest = zp_slowest(all);
  if (slowest >= 0)
    zp_page_field(page, "slowest", "%s: its median step is %.2f times that of the logs of its plan",
                  all->data[slowest].path, zp_slowest_by(all, slowest));
}

void zp_watched_page(zp_page *page, const zp_watched_list *all, bool at_once) {
  assert(all->len > 0);
  if (all->len == 1)
    put_one(page, &all->data[0]);
  else
    put_table(page, all);
  for (int i = 0; i < all->len; i++) {
    const zp_watched *w = &all->data[i];
    zp_troubles troubles = zp_watched_troubles(page->out.arena, w, at_once);
    for (int t = 0; t < troubles.len; t++)
      zp_page_field(page, "warning", "%s%s%s", all->len > 1 ? w->path : "", all->len > 1 ? ": " : "",
                    troubles.data[t].text);
  }
}
