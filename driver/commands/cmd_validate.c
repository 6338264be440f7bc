/* SPDX-License-Identifier: Apache-2.0 */
/* zplan validate: predicts every run of measured tables and prints how far off the predictions are. Devices and blocks
 * of models come from the library, the same that plans use. */
#include "driver.h"
#include <zplan/validate.h>

#include <stdio.h>

/* The smallest file that names a device: its model is never considered. */
static const char device_file[] =
    "use std.hw\n"
    "model m(V = 2, S = 2, d = 2) {\n"
    "  input tokens: i32[B, S]\n"
    "  input labels: i32[B, S]\n"
    "  param table: [V, d]\n"
    "  output loss = cross_entropy(matmul(embedding(tokens, table), transpose(table)), labels)\n"
    "}\n"
    "cluster c { nodes = 1  node = std.hw.workstation(devices = 1 * std.hw.%s) }\n"
    "train { model = m  batch = 1  steps = 1  precision = \"mixed_fp16\"  optimizer = adam(lr = 1e-4) }\n";

typedef struct library_cache {
  zp_run_state *run;
  zp_strings names, texts;
  ZP_VEC(const zp_device *) devices;
  ZP_VEC(zp_model *) models;
} library_cache;

/* NULL where the text is not sound: the row's problem, reported there. */
static zp_spec *load_text(zp_run_state *run, const char *text) {
  zp_source_text source = {.path = "row.dz", .text = text, .len = strlen(text)};
  zp_load_options options = {.library_dir = run->options.load.library_dir};
  return zp_load(run->arena, zp_diags_new(run->arena), source.path, &source, 1, &options);
}

static const zp_device *look_up(void *user, const char *name) {
  library_cache *cache = user;
  for (int i = 0; i < cache->names.len; i++)
    if (strcmp(cache->names.data[i], name) == 0) return cache->devices.data[i];
  const zp_spec *spec = load_text(cache->run, zp_format(cache->run->arena, device_file, name));
  const zp_device *device = spec ? &spec->cluster.node.device : NULL;
  zp_push(cache->run->arena, &cache->names, name);
  zp_push(cache->run->arena, &cache->devices, device);
  return device;
}

/* Rows of one model share it. */
static zp_model *write_model(void *user, const char *text) {
  library_cache *cache = user;
  for (int i = 0; i < cache->texts.len; i++)
    if (strcmp(cache->texts.data[i], text) == 0) return cache->models.data[i];
  zp_spec *spec = load_text(cache->run, text);
  zp_model *model = spec ? spec->model : NULL;
  zp_push(cache->run->arena, &cache->texts, text);
  zp_push(cache->run->arena, &cache->models, model);
  return model;
}

static const char *base_name(zp_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
  return dot ? zp_strndup(arena, base, (size_t)(dot - base)) : base;
}

/* Reads one table and predicts its rows. False when something in it was malformed. */
static bool add_table(zp_run_state *run, library_cache *cache, const char *path, zp_validation *validation) {
  size_t len;
  const char *error = NULL, *text = zp_read_input(run->arena, path, &len, &error);
  const zp_measured_table *table =
      text ? zp_measured_read(run->arena, text, len, base_name(run->arena, path), &error) : NULL;
  if (!table) {
    zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s", text ? zp_format(run->arena, "%s: %s", path, error) : error);
    return false;
  }
  for (int i = 0; i < table->ignored.len; i++)
    zp_report(run->diags, ZP_Z0904, ZP_NO_SPAN, "%s: %s", path, table->ignored.data[i]);
  for (int i = 0; i < table->malformed.len; i++)
    zp_report(run->diags, ZP_Z0640, ZP_NO_SPAN, "%s: %s", path, table->malformed.data[i]);
  const zp_run_library library = {.device = look_up, .model = write_model, .user = cache};
  for (int i = 0; i < table->runs.len; i++) {
    zp_prediction row = zp_predict_run(run->arena, table, &table->runs.data[i], &library);
    zp_push(run->arena, &validation->rows, row);
  }
  return table->malformed.len == 0;
}

int zp_cmd_validate(zp_run_state *run) {
  if (run->options.files.len == 0) return zp_usage_error("`zplan validate` wants at least one table of measured runs");
  zp_validation validation = {0};
  library_cache cache = {.run = run};
  bool sound = true;
  for (int i = 0; i < run->options.files.len; i++)
    sound &= add_table(run, &cache, run->options.files.data[i], &validation);
  zp_flush_diags(run);
  if (!sound && validation.rows.len == 0) return ZP_EXIT_ERROR;
  zp_validation_score(run->arena, &validation);
  if (run->options.json) {
    zp_json *json = zp_validation_json(&validation);
    zp_say(stdout, "%s\n", zp_json_text(run->arena, json, true));
    zp_json_free(json);
  } else {
    zp_page page = zp_page_for(run, stdout, 0);
    zp_validation_show(&page, &validation);
    zp_page_put(&page, stdout);
  }
  return sound ? ZP_EXIT_OK : ZP_EXIT_ERROR;
}
