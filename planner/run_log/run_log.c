/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the records of a run's log. A log that was cut off in the middle of a line is still a log. */
#include <zplan/run_log.h>

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The log may be a stranger's: a time that no step takes is no measurement. */
static bool is_step(const zp_json *json) {
  enum { MOST_STEP_MS = 1000000000 }; /* eleven days */
  double ms = zp_json_get_real(json, "step_ms", 0);
  return zp_json_is_int(zp_json_get(json, "step")) && ms > 0 && ms <= MOST_STEP_MS;
}

/* Steps are multiplied and counted on: numbers near the largest whole one would overflow. */
static bool is_in_range(int64_t step) { return step >= 0 && step <= INT64_C(1000000000000000); }

static zp_record_kind kind_of(const zp_json *json) {
  static const struct {
    const char *event;
    zp_record_kind kind;
  } kinds[] = {{"start", ZP_RECORD_START},           {"resume", ZP_RECORD_RESUME},   {"validate", ZP_RECORD_VALIDATE},
               {"checkpoint", ZP_RECORD_CHECKPOINT}, {"profile", ZP_RECORD_PROFILE}, {"end", ZP_RECORD_END}};
  const char *event = zp_json_get_string(json, "event", NULL);
  if (!is_in_range(zp_json_get_int(json, "step", 0))) return ZP_RECORD_FOREIGN;
  if (!event) return is_step(json) ? ZP_RECORD_STEP : ZP_RECORD_FOREIGN;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(event, kinds[i].event) == 0) return kinds[i].kind;
  return ZP_RECORD_EVENT;
}

zp_record zp_record_read(zp_arena *arena, const char *line, size_t length) {
  assert(line);
  const char *error = NULL;
  zp_record record = {.kind = ZP_RECORD_BLANK};
  size_t blank = 0;
  while (blank < length && strchr(" \t\r", line[blank]) && line[blank]) blank++;
  if (blank == length) return record;
  zp_json *json = record.json = zp_json_parse(arena, line, length, &error);
  if (!json) return record.kind = ZP_RECORD_UNREAD, record;
  record.kind = kind_of(json);
  record.step = zp_json_get_int(json, "step", 0);
  record.loss = zp_json_get_real(json, "loss", NAN);
  record.grad_norm = zp_json_get_real(json, "grad_norm", NAN);
  record.lr = zp_json_get_real(json, "lr", NAN);
  record.step_ms = zp_json_get_real(json, "step_ms", NAN);
  record.tokens_per_s = zp_json_get_real(json, "tokens_per_s", NAN);
  record.mfu = zp_json_get_real(json, "mfu", NAN);
  double bytes = zp_json_get_real(json, "device_peak_bytes", 0); /* a trainer prints them as a real number */
  record.device_peak_bytes = bytes > 0 && bytes < 9e18 ? (int64_t)bytes : 0;
  record.spike = zp_json_get_bool(json, "loss_spike", false);
  record.not_finite = zp_json_is_null(zp_json_get(json, "loss")) ||
                      (zp_json_is_null(zp_json_get(json, "grad_norm")) && !zp_json_get(json, "scale"));
  return record;
}

void zp_record_free(zp_record *record) {
  if (record->json) zp_json_free(record->json);
  record->json = NULL;
}

bool zp_next_line(const char **text, const char **line, size_t *length) {
  assert(text && *text && line && length);
  if (!**text) return false;
  *line = *text;
  *length = strcspn(*text, "\n");
  *text += *length + ((*text)[*length] == '\n');
  return true;
}

int64_t zp_largest_of(const zp_json *list) {
  int64_t most = 0;
  for (int i = 0; i < zp_json_count(list); i++) {
    int64_t value = zp_json_int(zp_json_at(list, i), 0);
    if (value > most) most = value;
  }
  return most;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double zp_median(double *values, int n) {
  if (n <= 0) return NAN;
  qsort(values, (size_t)n, sizeof *values, ascending);
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
