/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of the runs as JSON: numbers in base units, null where the log does not say. */
#include <zplan/watch.h>

#include <math.h>

/* Below 0: null. */
static void set_count(zp_json *o, const char *key, int64_t count) {
  if (count >= 0)
    zp_json_set_int(o, key, count);
  else
    zp_json_set_string(o, key, NULL);
}

static void set_text(zp_json *o, const char *key, const char *text) {
  zp_json_set_string(o, key, text && *text ? text : NULL);
}

static zp_json *troubles_json(zp_arena *arena, const zp_watched *w, bool at_once) {
  zp_json *list = zp_json_array();
  zp_troubles troubles = zp_watched_troubles(arena, w, at_once);
  for (int i = 0; i < troubles.len; i++) {
    zp_json *one = zp_json_append(list, zp_json_object());
    zp_json_set_string(one, "kind", zp_trouble_name(troubles.data[i].kind));
    zp_json_set_bool(one, "now", troubles.data[i].now);
    zp_json_set_string(one, "text", troubles.data[i].text);
  }
  return list;
}

static zp_json *log_json(zp_arena *arena, const zp_watched *w, bool at_once) {
  const zp_run_view *v = &w->view;
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "log", w->path);
  zp_json_set_string(o, "state", zp_watched_state(w));
  set_text(o, "program", v->program);
  set_text(o, "plan", v->plan);
  set_count(o, "ranks", v->ranks > 0 ? v->ranks : -1);
  set_count(o, "step", v->step);
  set_count(o, "steps", v->steps > 0 ? v->steps : -1);
  zp_json_set_real(o, "loss", v->loss);
  zp_json_set_real(o, "smoothed_loss", v->smooth_loss);
  zp_json_set_real(o, "validation_loss", v->validation_loss);
  set_count(o, "validation_step", v->validation_step);
  zp_json_set_real(o, "grad_norm", v->grad_norm);
  zp_json_set_real(o, "lr", v->lr);
  zp_json_set_real(o, "step_s", v->step_ms / 1e3);
  zp_json_set_real(o, "median_step_s", zp_run_view_median_ms(v) / 1e3);
  zp_json_set_real(o, "predicted_step_s", v->predicted_ms / 1e3);
  zp_json_set_real(o, "tokens_per_s", zp_run_view_tokens_per_s(v));
  zp_json_set_real(o, "mfu", v->mfu);
  set_count(o, "memory_bytes", v->memory_bytes > 0 ? v->memory_bytes : -1);
  zp_json_set_real(o, "eta_s", zp_run_view_eta_s(v));
  set_count(o, "checkpoint_step", v->checkpoint_step);
  set_count(o, "slow_stage", v->slow_stage);
  zp_json_set_int(o, "spikes", v->spikes);
  zp_json_set_int(o, "unread_lines", v->unread);
  zp_json_set(o, "warnings", troubles_json(arena, w, at_once));
  return o;
}

void zp_watched_json(zp_arena *arena, const zp_watched_list *all, bool at_once, zp_json *into) {
  bool healthy = true;
  zp_json *logs = zp_json_array();
  for (int i = 0; i < all->len; i++) {
    zp_json_append(logs, log_json(arena, &all->data[i], at_once));
    healthy &= zp_watched_is_healthy(arena, &all->data[i], at_once);
  }
  int slowest = zp_slowest(all);
  zp_json_set_bool(into, "healthy", healthy);
  set_text(into, "slowest", slowest >= 0 ? all->data[slowest].path : NULL);
  zp_json_set(into, "logs", logs);
}
