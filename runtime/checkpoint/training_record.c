/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of a training, as its checkpoints keep them: one table, from which it is written, and with which a run
 * that goes on tells what was changed since. Changes are taken, as no state depends on them; only not in silence.
 *
 * Batch, sequence, seed and data are not here: what they change is where the run goes on (resume.c). Nor is what only
 * the names and shapes of a checkpoint's tensors say. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "checkpoint.h"
#include "optimizer.h"
#include "state.h"

typedef enum kind { NUMBER, COUNT, TEXT, OPTIMIZER, SCHEDULE, DECAY, FACTORS } kind;

/* A line is of all trainings, or with `own` of those whose optimizer records it. */
static const struct field {
  const char *name;
  kind kind;
  size_t offset;
  bool own;
} table[] = {
    {"model name", TEXT, offsetof(zpr_program, name), false},
    {"model", TEXT, offsetof(zpr_program, model_hash), false},
    {"optimizer", OPTIMIZER, offsetof(zpr_program, optimizer), false},
    {"lr", NUMBER, offsetof(zpr_program, lr), false},
    {"schedule", SCHEDULE, offsetof(zpr_program, schedule), false},
    {"min_lr", NUMBER, offsetof(zpr_program, min_lr), false},
    {"warmup", COUNT, offsetof(zpr_program, warmup), false},
    {"decay_steps", COUNT, offsetof(zpr_program, decay_steps), false},
    {"steps", COUNT, offsetof(zpr_program, steps), false},
#define SETTING(name) {#name, NUMBER, offsetof(zpr_program, name), true},
    ZPK_SETTINGS(SETTING){"weight_decay", DECAY, 0, false},
    {"lr_factor", FACTORS, 0, false},
    {"clip", NUMBER, offsetof(zpr_program, clip), false},
    {"ema", NUMBER, offsetof(zpr_program, ema), false},
    {"decay_rate", NUMBER, offsetof(zpr_program, decay_rate), true},
    {"clip_threshold", NUMBER, offsetof(zpr_program, clip_threshold), true},
};
enum { FIELDS = ZPR_RECORD_FIELDS };
_Static_assert(sizeof table / sizeof *table == ZPR_RECORD_FIELDS, "zpr_record has a text for each");

/* The shortest text that is read as x again. */
static void number_text(char buf[ZPR_RECORD_TEXT], double x) {
  for (int digits = 1; digits <= 17; digits++) {
    snprintf(buf, ZPR_RECORD_TEXT, "%.*g", digits, x);
    if (strtod(buf, NULL) == x) return;
  }
}

/* The largest of any parameter: biases and gains mostly have none. */
static double weight_decay(const zpr_program *p) {
  double most = 0;
  for (int s = 0; s < p->pipeline; s++)
    for (int r = 0; r < p->stages[s].n_runs; r++)
      for (int k = 0; k < p->stages[s].runs[r].n_params; k++) {
        double here = p->stages[s].runs[r].params[k].recipe.weight_decay;
        most = here > most ? here : most;
      }
  return most;
}

/* "1", or of groups of parameters the least and the largest: "0.1 to 1". */
static void factors_text(char buf[ZPR_RECORD_TEXT], const zpr_program *p) {
  double least = INFINITY, most = -INFINITY;
  for (int s = 0; s < p->pipeline; s++)
    for (int r = 0; r < p->stages[s].n_runs; r++)
      for (int k = 0; k < p->stages[s].runs[r].n_params; k++) {
        double here = p->stages[s].runs[r].params[k].recipe.lr_factor;
        least = here < least ? here : least;
        most = here > most ? here : most;
      }
  char low[ZPR_RECORD_TEXT], high[ZPR_RECORD_TEXT];
  if (!(least <= most)) return;
  number_text(low, least);
  number_text(high, most);
  if (least < most)
    snprintf(buf, ZPR_RECORD_TEXT, "%.30s to %.30s", low, high);
  else
    snprintf(buf, ZPR_RECORD_TEXT, "%.30s", low);
}

static bool records(const zpr_optimizer_row *row, const char *name) {
  for (int i = 0; i < ZPR_MOST_RECORDED && row->recorded[i]; i++)
    if (strcmp(row->recorded[i], name) == 0) return true;
  return false;
}

static void field_text(char buf[ZPR_RECORD_TEXT], const zpr_program *p, const struct field *f) {
  static const char *const schedules[] = {[ZPR_RATE_CONSTANT] = "constant",
                                          [ZPR_RATE_LINEAR] = "linear",
                                          [ZPR_RATE_COSINE] = "cosine",
                                          [ZPR_RATE_STABLE_DECAY] = "wsd",
                                          [ZPR_RATE_RELATIVE] = "relative"};
  const char *at = (const char *)p + f->offset, *text = NULL;
  buf[0] = 0;
  if (f->own && !records(zpr_optimizer_of(p), f->name)) return;
  switch (f->kind) {
  case NUMBER: number_text(buf, *(const double *)(const void *)at); return;
  case COUNT: snprintf(buf, ZPR_RECORD_TEXT, "%lld", (long long)*(const int64_t *)(const void *)at); return;
  case TEXT: text = *(const char *const *)(const void *)at; break;
  case OPTIMIZER: text = zpr_optimizer_of(p)->name; break;
  case SCHEDULE: text = schedules[p->schedule]; break;
  case DECAY: number_text(buf, weight_decay(p)); return;
  case FACTORS: factors_text(buf, p); return;
  }
  snprintf(buf, ZPR_RECORD_TEXT, "%s", text ? text : "");
}

void zpr_record_write(const zpr *c, FILE *out) {
  char text[ZPR_RECORD_TEXT];
  fputs("  \"training\": {", out);
  for (int i = 0, put = 0; i < FIELDS; i++) {
    field_text(text, c->program, &table[i]);
    if (!text[0]) continue;
    fprintf(out, "%s\"%s\": ", put++ ? ", " : "", table[i].name);
    zpr_put_json(out, text);
  }
  fputs("},\n", out);
}

bool zpr_record_read(zpr_json *j, zpr_training_record *record) {
  char key[32], text[ZPR_RECORD_TEXT];
  zpr_json_object(j);
  while (zpr_json_key(j, key, sizeof key)) {
    if (!zpr_json_string(j, text, sizeof text)) return false;
    for (int i = 0; i < FIELDS; i++)
      if (strcmp(key, table[i].name) == 0) memcpy(record->text[i], text, sizeof text);
  }
  return !j->failed;
}

void zpr_record_tell(const zpr *c, const zpr_manifest *m) {
  assert(c->rank == 0);
  int64_t sequence = c->state->data ? zpr_data_length(c->state->data) : c->program->sequence;
  for (int i = 0; i < FIELDS; i++) {
    char now[ZPR_RECORD_TEXT];
    const char *was = m->training.text[i];
    field_text(now, c->program, &table[i]);
    if (!was[0] || !now[0] || strcmp(was, now) == 0) continue;
    if (strcmp(table[i].name, "model") != 0)
      zpr_say_line(stderr, "note: %s has changed since the checkpoint of step %lld: %s -> %s", table[i].name,
                   (long long)m->step, was, now);
    else if (m->sequence == sequence) /* of another length it is another text, and the length is reported */
      zpr_say_line(
          stderr,
          "note: the model has changed since the checkpoint of step %lld: the same parameters, other operations "
          "(%s -> %s)",
          (long long)m->step, was, now);
  }
}
