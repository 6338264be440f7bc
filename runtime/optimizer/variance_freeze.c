/* SPDX-License-Identifier: Apache-2.0 */
/* When 1-bit Adam freezes its variance by itself: as soon as the sum of the variance's elements is near what it was
 * 1 / (1 - beta2) updates ago (arXiv 2102.02888: the two norms have a ratio of 0.96), and not while the learning rate
 * still warms up. The ratio is that of the smaller to the larger, so that a variance that falls fast is as little at
 * rest as one that grows fast.
 *
 * The variance is the moving average of squares, so the sum of its elements is the moving average of the squared norm
 * of what Adam was given: the gradient after clipping. That norm is one number which all ranks have the bits of, so all
 * decide alike, and nothing is computed or sent for it. Decay inside the gradient would be missing in that norm, so
 * the language refuses it (Adam with weight_decay).
 *
 * Norms of every update would be many where beta2 is near 1: kept are at most ZPR_NORMS, at multiples of a step. */
#include "variance_freeze.h"
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "checkpoint.h"
#include "one_bit.h"
#include "optimizer.h"

/* Updates from one kept norm to the next, and how many kept norms the comparison goes back. */
typedef struct spacing {
  int64_t every, back;
} spacing;

static spacing spacing_of(double beta2) {
  double delta = round(1 / (1 - beta2));
  int64_t most = delta < 1 ? 1 : delta > 1e12 ? INT64_C(1000000000000) : (int64_t)delta;
  spacing s = {.every = (most + ZPR_NORMS - 1) / ZPR_NORMS};
  s.back = most / s.every;
  return s;
}

int64_t zpr_variance_freeze_span(const zpr_program *program) {
  spacing s = spacing_of(program->beta2);
  return s.every * s.back;
}

static double change(double a, double b) { return 1 - fmin(a, b) / fmax(a, b); }

void zpr_variance_freeze_count(zpr *c, double norm) {
  const zpr_program *p = c->program;
  zpr_variance_freeze *f = &c->state->freeze;
  assert(p->freeze_threshold > 0 && f->at == 0 && isfinite(norm));
  spacing s = spacing_of(p->beta2);
  f->norm = p->beta2 * f->norm + (1 - p->beta2) * norm * norm;
  f->updates++;
  if (f->updates % s.every != 0) return;
  int64_t turn = f->updates / s.every;
  double then = turn >= s.back ? f->before[(turn - s.back) % ZPR_NORMS] : 0;
  f->before[turn % ZPR_NORMS] = f->norm;
  if (!(then > 0) || c->step + 1 < p->warmup) return;
  f->change = change(then, f->norm);
  if (1 - f->change >= p->freeze_threshold) f->at = c->step + 1 - c->skipped_steps;
}

void zpr_variance_freeze_report(zpr *c) {
  const zpr_program *p = c->program;
  char why[96] = "", event[96] = "", line[320];
  if (p->freeze_threshold > 0) {
    double change = c->state->freeze.change;
    long long span = (long long)zpr_variance_freeze_span(p);
    snprintf(why, sizeof why, "the variance changed by %.2f %% in %lld updates; ", change * 100, span);
    snprintf(event, sizeof event, "\"change\": %.17g, \"updates\": %lld, ", change, span);
  }
  zpr_log_note(c, "1-bit %s from step %lld on: %sover data ranks %lld bytes a step, before %lld",
               zpr_one_bit_of(p)->name, (long long)c->step + 1, why, (long long)p->predicted_bytes[ZPR_DATA],
               (long long)p->predicted_warmup_data_bytes);
  snprintf(line, sizeof line, "{\"event\": \"freeze\", \"step\": %lld, %s\"bytes\": %lld, \"bytes_before\": %lld}",
           (long long)c->step + 1, event, (long long)p->predicted_bytes[ZPR_DATA],
           (long long)p->predicted_warmup_data_bytes);
  zpr_log_event(c, line);
}

/* The newest norm first. A decimal of 17 digits is the number to its last bit. */
void zpr_variance_freeze_write(const zpr *c, FILE *out) {
  const zpr_variance_freeze *f = &c->state->freeze;
  spacing s = spacing_of(c->program->beta2);
  if (c->program->freeze_threshold <= 0) return;
  if (f->at > 0) {
    fprintf(out, "  \"freezes_at\": %" PRId64 ",\n", f->at);
    return;
  }
  fprintf(out, "  \"variance\": {\"beta2\": \"%.17g\", \"updates\": %" PRId64 ", \"norm\": \"%.17g\", \"before\": [",
          c->program->beta2, f->updates, f->norm);
  int64_t turn = f->updates / s.every;
  for (int64_t k = 0; k < s.back && k < turn; k++)
    fprintf(out, "%s\"%.17g\"", k ? ", " : "", f->before[(turn - k) % ZPR_NORMS]);
  fputs("]},\n", out);
}

static bool read_number(zpr_json *j, double *number) {
  char text[40], *end;
  if (!zpr_json_string(j, text, sizeof text)) return false;
  *number = strtod(text, &end);
  if (end == text || *end || !isfinite(*number) || *number < 0) j->failed = true;
  return !j->failed;
}

bool zpr_variance_freeze_read(zpr_json *j, zpr_variance *v) {
  char key[32];
  double ignored;
  *v = (zpr_variance){0};
  zpr_json_object(j);
  while (zpr_json_key(j, key, sizeof key)) {
    if (strcmp(key, "beta2") == 0)
      read_number(j, &v->beta2);
    else if (strcmp(key, "norm") == 0)
      read_number(j, &v->norm);
    else if (strcmp(key, "updates") == 0)
      zpr_json_int(j, &v->updates);
    else if (strcmp(key, "before") == 0)
      for (zpr_json_array(j); zpr_json_item(j);) read_number(j, v->n < ZPR_NORMS ? &v->before[v->n++] : &ignored);
    else
      zpr_json_skip(j);
  }
  return !j->failed;
}

/* The numbers of rank 0 to all: others add zeros, which changes no bit. */
static void share(zpr *c, double *values, int count) {
  enum { AT_ONCE = ZPR_GATHER_BYTES / (int)sizeof(double) };
  for (int i = 0; i < count && c->rank > 0; i++) values[i] = 0;
  for (int i = 0; i < count; i += AT_ONCE) zpr_world_sum(c, values + i, count - i < AT_ONCE ? count - i : AT_ONCE);
}

void zpr_variance_freeze_resume(zpr *c, const zpr_variance *v, int64_t freezes_at, int64_t applied, int64_t frozen) {
  const zpr_program *p = c->program;
  zpr_variance_freeze *f = &c->state->freeze;
  if (p->freeze_threshold <= 0) return;
  *f = (zpr_variance_freeze){.at = freezes_at > 0 ? freezes_at
                                   : frozen > 0   ? applied - frozen + (applied == frozen)
                                                  : 0};
  if (f->at > 0) return;
  spacing s = spacing_of(p->beta2);
  double value[2 + ZPR_NORMS] = {0};
  if (c->rank == 0 && v->beta2 == p->beta2) {
    value[0] = v->norm;
    value[1] = (double)v->updates;
    memcpy(value + 2, v->before, sizeof v->before);
  } else if (c->rank == 0 && applied > 0) {
    fprintf(stderr,
            "note: the checkpoint does not say how the variance has changed with this beta2: the switch to 1-bit "
            "Adam is looked for from here on\n");
  }
  share(c, value, 2 + ZPR_NORMS);
  f->norm = value[0];
  f->updates = (int64_t)value[1];
  int64_t turn = f->updates / s.every;
  for (int64_t k = 0; k < s.back && k < turn; k++) f->before[(turn - k) % ZPR_NORMS] = value[2 + k];
}
