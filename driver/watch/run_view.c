/* SPDX-License-Identifier: Apache-2.0 */
/* What the records of one log add up to. */
#include <zplan/watch.h>

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FORGETS 0.1 /* a step's share of the smoothed loss */

zp_run_view zp_run_view_new(void) {
  return (zp_run_view){.predicted_ms = NAN,
                       .step = -1,
                       .loss = NAN,
                       .smooth_loss = NAN,
                       .grad_norm = NAN,
                       .lr = NAN,
                       .step_ms = NAN,
                       .tokens_per_step = NAN,
                       .mfu = NAN,
                       .validation_loss = NAN,
                       .validation_step = -1,
                       .checkpoint_step = -1,
                       .slow_stage = -1,
                       .slow_stage_ms = NAN,
                       .spike_step = -1,
                       .not_finite_step = -1,
                       .spike_loss = NAN};
}

/* A trainer without a prediction writes 0. */
static double prediction_ms(const zp_record *r) {
  double ms = zp_json_get_real(r->json, "predicted_step_ms", NAN);
  return ms > 0 ? ms : NAN;
}

/* A start or a resume. Logs of older trainers say neither when nor for how many steps. */
static void take_start(zp_run_view *v, const zp_record *r) {
  snprintf(v->program, sizeof v->program, "%s", zp_json_get_string(r->json, "program", ""));
  snprintf(v->plan, sizeof v->plan, "%s", zp_json_get_string(r->json, "plan", ""));
  v->ranks = zp_json_get_int(r->json, "ranks", 0);
  v->steps = zp_json_get_int(r->json, "steps", 0);
  v->predicted_ms = prediction_ms(r);
  v->n_steps = 0; /* it may be on another machine */
  v->ended = false;
  v->not_finite_step = -1;
}

static void take_step(zp_run_view *v, const zp_record *r) {
  v->step = r->step;
  v->loss = r->loss;
  v->grad_norm = r->grad_norm;
  v->lr = r->lr;
  v->step_ms = r->step_ms;
  v->mfu = r->mfu;
  v->tokens_per_step = r->tokens_per_s * r->step_ms / 1e3;
  v->recent_ms[v->n_steps++ % ZP_RECENT_STEPS] = r->step_ms;
  if (isfinite(r->loss))
    v->smooth_loss = isfinite(v->smooth_loss) ? (1 - FORGETS) * v->smooth_loss + FORGETS * r->loss : r->loss;
  if (r->device_peak_bytes > v->memory_bytes) v->memory_bytes = r->device_peak_bytes, v->memory_of_all = false;
  if (r->spike) v->spikes++, v->spike_step = r->step, v->spike_loss = r->loss;
  v->not_finite += r->not_finite;
  v->not_finite_step = r->not_finite ? r->step : -1;
}

static void take_profile(zp_run_view *v, const zp_record *r) {
  const zp_json *stages = zp_json_get(r->json, "stages");
  v->slow_stage = -1;
  v->slow_stage_ms = NAN;
  for (int i = 0; i < zp_json_count(stages) && zp_json_count(stages) > 1; i++) {
    double ms = zp_json_get_real(zp_json_at(stages, i), "measured_ms", NAN);
    if (isfinite(ms) && !(ms <= v->slow_stage_ms)) v->slow_stage = i, v->slow_stage_ms = ms;
  }
}

static void take_end(zp_run_view *v, const zp_record *r) {
  int64_t most = zp_largest_of(zp_json_get(r->json, "device_peak_bytes"));
  if (most > 0) v->memory_bytes = most, v->memory_of_all = true;
  if (!isfinite(v->predicted_ms)) v->predicted_ms = prediction_ms(r);
  v->ended = true;
}

bool zp_run_view_take(zp_run_view *v, const zp_record *r) {
  v->lines++;
  if (r->kind == ZP_RECORD_BLANK) return true;
  if (r->kind == ZP_RECORD_UNREAD || r->kind == ZP_RECORD_FOREIGN) {
    if (v->unread++ == 0) v->unread_line = v->lines;
    return false;
  }
  v->records++;
  switch (r->kind) {
  case ZP_RECORD_START:
  case ZP_RECORD_RESUME: take_start(v, r); break;
  case ZP_RECORD_STEP: take_step(v, r); break;
  case ZP_RECORD_VALIDATE:
    v->validation_step = r->step;
    v->validation_loss = r->loss;
    break;
  case ZP_RECORD_CHECKPOINT: v->checkpoint_step = r->step; break;
  case ZP_RECORD_PROFILE: take_profile(v, r); break;
  case ZP_RECORD_END: take_end(v, r); break;
  case ZP_RECORD_EVENT:
  case ZP_RECORD_UNREAD:
  case ZP_RECORD_BLANK:
  case ZP_RECORD_FOREIGN: break;
  }
  return true;
}

int zp_run_view_recent(const zp_run_view *v) {
  return v->n_steps < ZP_RECENT_STEPS ? (int)v->n_steps : ZP_RECENT_STEPS;
}

double zp_run_view_median_ms(const zp_run_view *v) {
  double ms[ZP_RECENT_STEPS];
  memcpy(ms, v->recent_ms, sizeof ms);
  return zp_median(ms, zp_run_view_recent(v));
}

double zp_run_view_tokens_per_s(const zp_run_view *v) { return v->tokens_per_step / zp_run_view_median_ms(v) * 1e3; }

double zp_run_view_eta_s(const zp_run_view *v) {
  if (v->ended || (v->steps > 0 && v->step >= v->steps)) return 0;
  if (v->steps <= 0 || v->step < 0) return NAN;
  return (double)(v->steps - v->step) * zp_run_view_median_ms(v) / 1e3;
}
