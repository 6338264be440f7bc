/* SPDX-License-Identifier: Apache-2.0 */
/* Rates that the words of a command or a plan file name: --calibration, $ZPLAN_CALIBRATION. The one that run and bench
 * make and keep is backend/kept_calibration.c's. */
#include "driver.h"

#include <stdlib.h>

static bool is_word(const char *text, const char *word) { return text && strcmp(text, word) == 0; }

/* --calibration, else $ZPLAN_CALIBRATION, which is for CPU clusters in general: it does not disturb a GPU cluster, nor
 * a plan file, which says itself what it was made with. */
static const char *word_of(const zp_run_state *run, const zp_spec *spec, bool from_plan) {
  const char *word = run->options.calibration;
  if (!word && !from_plan && spec->cluster.node.device.is_cpu) word = getenv("ZPLAN_CALIBRATION");
  return word && *word ? word : NULL;
}

static const zp_calibration *read_named(zp_arena *arena, const char *path, const char **error) {
  size_t len;
  char *text = zp_read_file(arena, path, &len, error);
  zp_json *json = text ? zp_json_parse(arena, text, len, error) : NULL;
  const zp_calibration *c = json ? zp_calibration_read(arena, json, error) : NULL;
  zp_json_free(json);
  return c;
}

/* Commands that start trainers measure what is not kept yet. */
static bool measures(const zp_run_state *run) { return is_word(run->command, "run") || is_word(run->command, "bench"); }

bool zp_wants_measured_rates(const zp_run_state *run, const zp_spec *spec) {
  const char *word = word_of(run, spec, false);
  return measures(run) && (!word || is_word(word, "kept"));
}

bool zp_cannot_calibrate(zp_run_state *run, const char *what, const char *error) {
  zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "cannot use %s: %s", what, error);
  return zp_flush_diags(run);
}

bool zp_calibrate_by_word(zp_run_state *run, zp_spec *spec, const zp_json *plan) {
  const char *word = word_of(run, spec, plan != NULL), *error = NULL;
  const zp_json *own = zp_json_get(plan, "calibration");
  if (is_word(word, "none")) return true;
  if (is_word(word, "kept")) return (measures(run) && !plan) || zp_use_kept_calibration(run, spec);
  if (!word && !own) return true;
  const zp_calibration *c =
      word ? read_named(run->arena, word, &error) : zp_calibration_from_plan(run->arena, own, &error);
  if (c && zp_calibration_apply(run->arena, c, spec, &error)) return true;
  return zp_cannot_calibrate(run, word ? zp_format(run->arena, "the calibration %s", word) : "the plan's calibration",
                             error);
}
