/* SPDX-License-Identifier: Apache-2.0 */
/* Calibration files: reading, writing, and what they change in a cluster. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <zplan/calibration.h>
#include <zplan/cpu_kernels.h>
#include <zplan/hash.h>

static const char format_name[] = "zplan-calibration";
/* 2: kernels of CPU trainers by their sizes (README.md of runtime/calibrate); before, one curve and one memory rate. */
enum { VERSION = 2 };

/* ---- files ---- */

static bool read_row(zp_arena *arena, const zp_json *json, int index, zp_measurement *row, const char **error) {
  const char *name = zp_json_get_string(json, "name", NULL);
  double value = zp_json_get_real(json, "value", NAN);
  if (!name || !isfinite(value) || value < 0) {
    *error = zp_format(arena, "row %d wants a name and a value of at least 0", index);
    return false;
  }
  *row = (zp_measurement){.name = zp_strdup(arena, name),
                          .value = value,
                          .unit = zp_strdup(arena, zp_json_get_string(json, "unit", "")),
                          .how = zp_strdup(arena, zp_json_get_string(json, "how", ""))};
  return true;
}

static bool too_many(zp_arena *arena, int rows, const char **error) {
  if (rows <= ZP_MOST_CALIBRATION_ROWS) return false;
  *error = zp_format(arena, "it has %d rows, at most %d are read", rows, ZP_MOST_CALIBRATION_ROWS);
  return true;
}

zp_calibration *zp_calibration_read(zp_arena *arena, const zp_json *json, const char **error) {
  assert(error);
  const zp_json *rows = zp_json_get(json, "rows");
  if (strcmp(zp_json_get_string(json, "format", ""), format_name) != 0 || !zp_json_is_array(rows)) {
    *error = zp_format(arena, "it is no calibration: \"format\" must be \"%s\" and \"rows\" a list", format_name);
    return NULL;
  }
  if (zp_json_get_int(json, "version", 0) != VERSION) {
    *error = zp_format(arena, "its version is %lld, this zplan reads %d: `zplan calibrate` measures again",
                       (long long)zp_json_get_int(json, "version", 0), VERSION);
    return NULL;
  }
  zp_calibration *c = ZP_NEW(arena, zp_calibration);
  c->machine = zp_strdup(arena, zp_json_get_string(json, "machine", ""));
  c->date = zp_strdup(arena, zp_json_get_string(json, "date", ""));
  c->identity = zp_strdup(arena, zp_json_get_string(json, "identity", ""));
  if (too_many(arena, zp_json_count(rows), error)) return NULL;
  for (int i = 0; i < zp_json_count(rows); i++) {
    zp_measurement row;
    if (!read_row(arena, zp_json_at(rows, i), i + 1, &row, error)) return NULL;
    if (zp_calibration_value(c, row.name, -1) >= 0) {
      *error = zp_format(arena, "row %d names %s again", i + 1, row.name);
      return NULL;
    }
    zp_push(arena, &c->rows, row);
  }
  return c;
}

zp_json *zp_calibration_json(const zp_calibration *c) {
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "format", format_name);
  zp_json_set_int(o, "version", VERSION);
  zp_json_set_string(o, "machine", c->machine);
  zp_json_set_string(o, "date", c->date);
  if (c->identity && *c->identity) zp_json_set_string(o, "identity", c->identity);
  zp_json *rows = zp_json_set(o, "rows", zp_json_array());
  for (int i = 0; i < c->rows.len; i++) {
    zp_json *row = zp_json_append(rows, zp_json_object());
    zp_json_set_string(row, "name", c->rows.data[i].name);
    zp_json_set_real(row, "value", c->rows.data[i].value);
    zp_json_set_string(row, "unit", c->rows.data[i].unit);
    zp_json_set_string(row, "how", c->rows.data[i].how);
  }
  return o;
}

double zp_calibration_value(const zp_calibration *c, const char *name, double missing) {
  assert(name);
  for (int i = 0; i < c->rows.len; i++)
    if (strcmp(c->rows.data[i].name, name) == 0) return c->rows.data[i].value;
  return missing;
}

/* ---- in plan files ---- */

/* Values as JSON keeps them: 12 significant digits. */
const char *zp_calibration_hash(zp_arena *arena, const zp_calibration *c) {
  uint64_t hash = zp_hash(ZP_HASH_START, c->machine, strlen(c->machine) + 1);
  hash = zp_hash(hash, c->date, strlen(c->date) + 1);
  for (int i = 0; i < c->rows.len; i++) {
    char value[40];
    int length = snprintf(value, sizeof value, "%.11e", c->rows.data[i].value);
    hash = zp_hash(hash, c->rows.data[i].name, strlen(c->rows.data[i].name) + 1);
    hash = zp_hash(hash, value, (size_t)length);
  }
  return zp_format(arena, "%016llx", (unsigned long long)hash);
}

zp_json *zp_calibration_in_plan(zp_arena *arena, const zp_calibration *c) {
  zp_json *o = zp_json_object();
  zp_json_set_string(o, "hash", zp_calibration_hash(arena, c));
  zp_json_set_string(o, "of", c->machine);
  zp_json_set_string(o, "date", c->date);
  zp_json *rows = zp_json_set(o, "rows", zp_json_object());
  for (int i = 0; i < c->rows.len; i++) zp_json_set_real(rows, c->rows.data[i].name, c->rows.data[i].value);
  return o;
}

zp_calibration *zp_calibration_from_plan(zp_arena *arena, const zp_json *json, const char **error) {
  assert(error);
  const zp_json *rows = zp_json_get(json, "rows"), *value;
  if (!zp_json_is_object(rows)) {
    *error = "its `rows` must be an object";
    return NULL;
  }
  zp_calibration *c = ZP_NEW(arena, zp_calibration);
  c->machine = zp_strdup(arena, zp_json_get_string(json, "of", ""));
  c->date = zp_strdup(arena, zp_json_get_string(json, "date", ""));
  c->identity = "";
  void *at = NULL;
  const char *name;
  while (zp_json_next(rows, &at, &name, &value)) {
    zp_measurement row = {zp_strdup(arena, name), zp_json_real(value, NAN), "", ""};
    if (!isfinite(row.value) || row.value < 0) {
      *error = zp_format(arena, "its row %s wants a value of at least 0", name);
      return NULL;
    }
    zp_push(arena, &c->rows, row);
    if (too_many(arena, c->rows.len, error)) return NULL;
  }
  return c;
}

/* ---- use ---- */

/* Requires: the kernels are applied. */
static void apply_links(const zp_calibration *c, zp_spec *spec) {
  zp_link *link = &spec->cluster.node.link;
  const zp_cpu_kernels *kernels = spec->cluster.node.device.measured;
  if (kernels->n_pairs > 0) { /* where sizes and ranks do not count: those of two ranks */
    link->bytes_per_s = kernels->link_bytes_per_s;
    link->latency_s = kernels->pair[0].latency_s[ZP_PAIR_LARGE];
    return;
  }
  double rate = zp_calibration_value(c, "all_reduce_bytes_per_s", 0);
  if (rate > 0) link->bytes_per_s = rate;
  link->latency_s = zp_calibration_value(c, "all_reduce_latency_s", link->latency_s);
}

bool zp_calibration_apply(zp_arena *arena, const zp_calibration *c, zp_spec *spec, const char **error) {
  assert(c && spec && error);
  if (spec->cluster.groups.len > 0) {
    *error = zp_format(arena, "cluster `%s` has several node types; a calibration is of one", spec->cluster.name);
    return false;
  }
  if (!spec->cluster.node.device.is_cpu) {
    if (!zp_calibration_apply_gpu(arena, c, spec, error)) return false;
  } else {
    if (!zp_calibration_apply_kernels(arena, c, spec, error)) return false;
    apply_links(c, spec);
  }
  spec->cluster.calibration = c;
  return true;
}

const char *zp_calibration_words(zp_arena *arena, const zp_cluster *cluster) {
  const zp_calibration *c = cluster->calibration;
  if (!c) return NULL;
  return zp_format(arena, "calibration %s of %s (%s)", zp_calibration_hash(arena, c),
                   *c->machine ? c->machine : "an unknown machine", *c->date ? c->date : "no date");
}
