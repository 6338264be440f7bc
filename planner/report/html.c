/* SPDX-License-Identifier: Apache-2.0 */
/* The HTML report: page/page.html with its style, its scripts and one JSON object in it. Nothing is fetched, and a
 * policy lets the page's own script run alone, so that no text of a plan or a log can. */
#include "page_internal.h"

#include <assert.h>
#include <zplan/constants.h>
#include <zplan/cost.h>
#include <zplan/plan_file.h>
#include "page_text.h" /* page_html, page_style, page_script, and the hashes of the last two; made by CMake */

static zp_json *copy_of(zp_arena *arena, const zp_json *json) {
  const char *text = zp_json_text(arena, json, false), *error = NULL;
  return zp_json_parse(arena, text, strlen(text), &error);
}

/* What only the search knew that wrote the file. */
static void take_search(zp_arena *arena, zp_json *plan, const zp_json *file) {
  static const char *const keys[] = {"certificate", "rejected", "fastest", "alternatives"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const zp_json *value = zp_json_get(file, keys[i]);
    bool list = strcmp(keys[i], "alternatives") == 0;
    if (!value || !(list ? zp_json_is_array(value) : zp_json_is_object(value))) continue;
    zp_json *copy = copy_of(arena, value);
    if (copy) zp_json_set(plan, keys[i], copy);
  }
}

/* The plan file without what the page does not need: addresses, procedures (steps are in `segments`), sources. */
static void set_plan(zp_arena *arena, zp_json *page, const zp_report_page *in) {
  zp_json *plan = zp_json_set(page, "plan", zp_plan_to_json(arena, in->plan));
  zp_json *stages = (zp_json *)zp_json_get(plan, "stages");
  for (int s = 0; s < zp_json_count(stages); s++) {
    zp_json *stage = (zp_json *)zp_json_at(stages, s);
    zp_json_remove(stage, "arena");
    zp_json_remove(stage, "shared");
  }
  static const char *const unused[] = {"program", "sources", "model_folder", "options", "calibration"};
  for (size_t i = 0; i < sizeof unused / sizeof *unused; i++) zp_json_remove(plan, unused[i]);
  if (in->file) take_search(arena, plan, in->file);
}

static void set_words(zp_arena *arena, zp_json *page, const zp_plan *plan) {
  const zp_program *p = plan->program;
  zp_json *words = zp_json_set(page, "words", zp_json_object());
  zp_json_set_string(words, "choice", zp_words_choice(arena, &plan->best.choice));
  zp_json_set_string(words, "devices", zp_words_devices(arena, plan));
  zp_json_set_string(words, "why", zp_words_why(arena, plan));
  zp_json_set_string(words, "outside", zp_words_outside(arena, plan));
  zp_json *runs = zp_json_set(page, "stage_runs", zp_json_array());
  zp_json *usable = zp_json_set(page, "usable_bytes", zp_json_array());
  for (int s = 0; s < p->choice.pipeline; s++) {
    zp_json_append_string(runs, zp_words_stage(arena, p->lowered, &p->stages[s]));
    zp_json_append_int(usable, zp_words_usable_bytes(plan, s));
  }
  zp_json *groups = zp_json_set(page, "stage_groups", zp_json_array());
  zp_stage_groups equal = zp_group_stages(arena, p, true);
  for (int g = 0; g < equal.len; g++) {
    zp_json *o = zp_json_append(groups, zp_json_object());
    zp_json_set_string(o, "stages", zp_words_group(arena, equal.data[g]));
    zp_json_set_int(o, "first", equal.data[g].first);
    zp_json_set_int(o, "last", equal.data[g].last);
    zp_json_set_int(o, "step", equal.data[g].step);
  }
}

/* The whole training; absent where its length is not known. */
static void set_training(zp_json *page, const zp_plan *plan) {
  const zp_spec *spec = plan->spec;
  if (spec->train.steps <= 0) return;
  zp_json *o = zp_json_set(page, "training", zp_json_object());
  double seconds = (double)spec->train.steps * plan->best.estimate.step_s, hours = seconds / 3600 * plan->devices;
  double dollars = hours * zp_cluster_price(&spec->cluster, plan->devices);
  zp_json_set_int(o, "steps", spec->train.steps);
  zp_json_set_real(o, "tokens", (double)spec->train.steps * (double)spec->train.batch * (double)spec->model->sequence);
  zp_json_set_real(o, "seconds", seconds);
  zp_json_set_real(o, "device_hours", hours);
  if (dollars > 0) zp_json_set_real(o, "dollars", dollars);
}

static void set_rejections(zp_json *page) {
  zp_json *list = zp_json_set(page, "rejections", zp_json_array());
  for (int i = 0; i < ZP_REJECT_COUNT; i++) {
    zp_json *o = zp_json_append(list, zp_json_object());
    zp_json_set_string(o, "key", zp_rejection_key((zp_rejection)i));
    zp_json_set_string(o, "text", zp_rejection_text((zp_rejection)i));
  }
}

static void set_constants(zp_json *page) {
  zp_json *list = zp_json_set(page, "constants", zp_json_array());
  for (int i = 0; i < ZP_COST_CONSTANT_COUNT; i++) {
    const zp_cost_row *row = &zp_cost_rows()[i];
    zp_json *o = zp_json_append(list, zp_json_object());
    zp_json_set_string(o, "name", row->name);
    zp_json_set_real(o, "value", row->value);
    zp_json_set_string(o, "unit", row->unit);
    zp_json_set_string(o, "source", row->source);
  }
}

/* ---- the file ---- */

/* A JSON text as the content of a script element: without what could end it, or begin a comment. */
static void put_json(zp_buf *out, const char *json) {
  for (; *json; json++) {
    size_t plain = strcspn(json, "<");
    zp_buf_put(out, json, plain);
    json += plain;
    if (!*json) return;
    zp_buf_puts(out, "\\u003c");
  }
}

typedef struct page_part {
  const char *mark, *text;
  bool json;
} page_part;

/* page.html has a mark where a part stands. */
static const char *fill_page(zp_arena *arena, const page_part *parts, int n) {
  zp_buf out = zp_buf_new(arena);
  for (const char *at = page_html; *at;) {
    const page_part *part = NULL;
    for (int i = 0; i < n && !part; i++)
      if (strncmp(at, parts[i].mark, strlen(parts[i].mark)) == 0) part = &parts[i];
    if (!part) {
      size_t plain = 1 + strcspn(at + 1, "{");
      zp_buf_put(&out, at, plain);
      at += plain;
      continue;
    }
    if (part->json)
      put_json(&out, part->text);
    else
      zp_buf_puts(&out, part->text);
    at += strlen(part->mark);
  }
  return out.data;
}

static const char *write_page(zp_arena *arena, zp_json *data, const char *title, const char *text) {
  const page_part parts[] = {
      {"{{title}}", zp_quote_html(arena, title), false},    {"{{text}}", zp_quote_html(arena, text), false},
      {"{{data}}", zp_json_text(arena, data, false), true}, {"{{style}}", page_style, false},
      {"{{style hash}}", page_style_hash, false},           {"{{script}}", page_script, false},
      {"{{script hash}}", page_script_hash, false},
  };
  zp_json_free(data);
  return fill_page(arena, parts, sizeof parts / sizeof *parts);
}

const char *zp_report_html(zp_arena *arena, const zp_report_page *in) {
  const zp_plan *plan = in->plan;
  assert(plan->feasible);
  zp_json *page = zp_json_object();
  zp_json_set_string(page, "kind", "plan");
  set_plan(arena, page, in);
  set_words(arena, page, plan);
  set_training(page, plan);
  zp_page_set_machine(page, plan);
  zp_page_set_timeline(arena, page, plan);
  zp_page_set_steps(page, plan);
  zp_page_set_moves(arena, page, plan);
  if (in->log) zp_page_set_run(arena, page, plan, in->log);
  if (in->profile) zp_page_set_profile(page, in->profile);
  if (in->front) zp_json_set(page, "front", copy_of(arena, in->front));
  set_rejections(page);
  set_constants(page);
  const char *title = zp_format(arena, "%s: training plan", plan->spec->model->name);
  zp_page memory = zp_page_new(arena, zp_plain_screen(160), 0); /* the page scrolls */
  zp_report_memory(&memory, plan);
  const char *text = zp_format(arena, "%s\n%s", zp_report_summary(arena, plan), memory.out.data);
  return write_page(arena, page, title, text);
}

const char *zp_report_compare_html(zp_arena *arena, const zp_json *sides, const char *text) {
  zp_json *page = zp_json_object();
  zp_json_set_string(page, "kind", "compare");
  zp_json_set(page, "sides", copy_of(arena, sides));
  return write_page(arena, page, "training plans side by side", text);
}
