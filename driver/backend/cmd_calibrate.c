/* SPDX-License-Identifier: Apache-2.0 */
/* zplan calibrate: measures, writes the file for --calibration. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DEFAULT_SECONDS = 30, LEAST_SECONDS = 10, MOST_SECONDS = 600 };
static const char default_file[] = "machine.zcal.json";

/* What the file holds now; NULL: no calibration. */
static const zp_calibration *read_old(zp_arena *arena, const char *path) {
  size_t len;
  const char *error;
  const char *text = access(path, R_OK) == 0 ? zp_read_file(arena, path, &len, &error) : NULL;
  zp_json *json = text ? zp_json_parse(arena, text, len, &error) : NULL;
  const zp_calibration *old = json ? zp_calibration_read(arena, json, &error) : NULL;
  zp_json_free(json);
  return old;
}

/* "+12%" against the file that is replaced. */
static const char *change_of(zp_arena *arena, const zp_calibration *old, const zp_measurement *row) {
  double before = old ? zp_calibration_value(old, row->name, 0) : 0;
  return before > 0 ? zp_format(arena, "%+.0f%%", 100 * (row->value / before - 1)) : old ? "new" : "";
}

/* Rows without sizes; those of products and of attention are hundreds and only in the file. */
static void print_rows(zp_run_state *run, const zp_calibration *c, const zp_calibration *old) {
  for (int i = 0; i < c->rows.len; i++) {
    const zp_measurement *row = &c->rows.data[i];
    if ((strstr(row->name, "gemm_") || strstr(row->name, "attention_")) && strchr(row->name, 'x')) continue;
    const char *value = strcmp(row->unit, "s") == 0 ? zp_show_seconds(run->arena, row->value)
                        : row->value < 1000
                            ? zp_format(run->arena, "%.3g %s", row->value, row->unit)
                            : zp_format(run->arena, "%s%s", zp_show_count(run->arena, row->value), row->unit);
    zp_say_lines(stdout, "  %-26s %16s %*s   %s\n", row->name, value, old ? 6 : 0, change_of(run->arena, old, row),
                 row->how);
  }
}

static int cannot_write(zp_run_state *run, const char *error) {
  zp_report(run->diags, ZP_Z0641, ZP_NO_SPAN, "cannot write the calibration: %s", error);
  zp_flush_diags(run);
  return ZP_EXIT_ERROR;
}

int zp_cmd_calibrate(zp_run_state *run) {
  const zp_options *o = &run->options;
  if (o->files.len) return zp_usage_error("`zplan calibrate` takes no file; -o says where to write");
  if (o->seconds && (o->seconds < LEAST_SECONDS || o->seconds > MOST_SECONDS))
    return zp_usage_error("-t wants %d to %d seconds, not %lld", LEAST_SECONDS, MOST_SECONDS, (long long)o->seconds);
  const char *path = o->output ? o->output : default_file, *slash = strrchr(path, '/');
  const char *folder = slash ? zp_strndup(run->arena, path, (size_t)(slash - path)) : ".";
  double seconds = o->seconds ? (double)o->seconds : DEFAULT_SECONDS;
  const char *error = NULL;
  if (!zp_can_write(run->arena, path, &error)) return cannot_write(run, error);
  const zp_calibration *old = read_old(run->arena, path); /* what this one is compared with, and takes the place of */
  if (!old && !zp_may_replace(run, path, NULL)) return ZP_EXIT_ERROR;
  zp_calibration c = zp_no_measurements(run->arena);
  zp_say_lines(stderr, "measuring %s for about %.0f s\n", c.machine, seconds);
  zp_warn_busy();
  zp_measuring measured = zp_measure_cores(run, seconds, folder, &c);
  if (measured == ZP_MEASURED_NOTHING) return ZP_EXIT_ERROR;
  zp_measure_gpu(run, seconds, &c);
  zp_json *json = zp_calibration_json(&c);
  const char *text = zp_json_text(run->arena, json, true);
  zp_json_free(json);
  if (!zp_write_file(run->arena, path, text, strlen(text), &error)) return cannot_write(run, error);
  zp_result_text(run, "file", path);
  zp_result_text(run, "hash", zp_calibration_hash(run->arena, &c));
  print_rows(run, &c, old);
  if (old)
    zp_say_lines(stdout, "%%: against what %s held before, of %s on %s\n", path,
                 old->date ? old->date : "an unknown day", old->machine ? old->machine : "an unknown machine");
  zp_say_lines(stdout, "calibration %s written to %s (zplan FILE.dz --calibration %s)\n",
               zp_calibration_hash(run->arena, &c), path, path);
  return measured == ZP_MEASURED_NO_LINKS ? ZP_EXIT_ERROR : ZP_EXIT_OK;
}
