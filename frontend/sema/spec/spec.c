/* SPDX-License-Identifier: Apache-2.0 */
/* From the main file's cluster, train and plan blocks, and the command line, to a zp_spec. This file chooses the
 * blocks; spec_cluster.c, spec_train.c and spec_plan.c read them. */
#include "spec_internal.h"

static const zp_item *first_item(zp_reader *reader, zp_item_kind kind) {
  const zp_file *file = reader->main->file;
  for (int i = 0; i < file->items.len; i++)
    if (file->items.data[i]->kind == kind) return file->items.data[i];
  return NULL;
}

/* A train block is chosen by nothing, so there can be one. */
static void refuse_second(zp_reader *reader, const zp_item *first) {
  const zp_file *file = reader->main->file;
  for (int i = 0; i < file->items.len; i++) {
    const zp_item *item = file->items.data[i];
    if (item->kind != first->kind || item == first) continue;
    zp_diag *d = zp_report(reader->diags, ZP_Z0501, item->span, "a file has one `train` block");
    zp_diag_also(d, first->span, "the first one");
    zp_diag_help(d, "change single values of a run with --set, for example `--set batch=64`");
  }
}

/* Which cluster a plan is for is not left to the order of the blocks without a word. */
static void warn_of_others(zp_reader *reader, const zp_item *taken) {
  enum { SHOWN = 4 };
  const zp_file *file = reader->main->file;
  zp_diag *d = NULL;
  const char *other = NULL;
  int more = 0;
  for (int i = 0; i < file->items.len; i++) {
    const zp_item *item = file->items.data[i];
    if (item->kind != ZP_ITEM_CLUSTER || item == taken) continue;
    if (!d)
      d = zp_report(reader->diags, ZP_Z0409, item->span, "cluster `%s` is not used: `%s` is the first one",
                    item->name.text, taken->name.text);
    else if (++more < SHOWN)
      zp_diag_also(d, item->span, "nor is this one");
    if (!other) other = item->name.text;
  }
  if (more >= SHOWN) zp_diag_note(d, "nor are %d more", more - SHOWN + 1);
  if (d)
    zp_diag_help(d, "--cluster %s takes this one, --cluster %s the first without this warning", other,
                 taken->name.text);
}

static void read_cluster(zp_reader *reader, const zp_settings *settings) {
  const zp_load_options *options = reader->options;
  zp_module *where = reader->main;
  const zp_item *machine = reader->main->machine;
  const zp_item *item = machine ? machine
                        : options->cluster
                            ? zp_module_find(reader->main, options->cluster, 1u << ZP_ITEM_CLUSTER, &where)
                            : first_item(reader, ZP_ITEM_CLUSTER);
  if (item) {
    zp_env env = {.module = where, .scope = where->lets, .item = item};
    zp_attrs attrs = zp_override_attrs(reader, &item->attrs, &settings->cluster);
    zp_read_cluster(reader, &env, &attrs, item->name, &reader->spec->cluster);
    if (!machine && !options->cluster && !options->model_only) warn_of_others(reader, item);
  } else if (options->cluster) {
    zp_strings names = {0};
    zp_module_names(reader->arena, reader->main, 1u << ZP_ITEM_CLUSTER, &names);
    zp_diag *d =
        zp_report(reader->diags, ZP_Z0402, ZP_NO_SPAN, "unknown cluster `%s` (from --cluster)", options->cluster);
    zp_diag_did_you_mean(d, options->cluster, names.data, names.len);
  } else if (!options->model_only) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0401, ZP_NO_SPAN, "%s has no `cluster` block", reader->spec->path);
    zp_diag_help(d, "for example `use std.hw` and `cluster mine { nodes = 1  node = std.hw.cpu_generic(cores = 4) }`");
  }
}

static void read_train(zp_reader *reader, const zp_settings *settings, const zp_expr **model_call) {
  const zp_item *item = first_item(reader, ZP_ITEM_TRAIN);
  const zp_attrs none = {0};
  zp_env env = {.module = reader->main, .scope = reader->main->lets, .item = item};
  zp_attrs attrs = zp_override_attrs(reader, item ? &item->attrs : &none, &settings->train);
  const zp_attr *model = zp_find_attr(&attrs, "model");
  *model_call = model ? model->value : NULL;
  if (item) {
    refuse_second(reader, item);
    zp_read_train(reader, &env, &attrs, item->span, &reader->spec->train);
  } else if (!reader->options->model_only) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0501, ZP_NO_SPAN, "%s has no `train` block", reader->spec->path);
    zp_diag_help(
        d, "for example `train { batch = 16  steps = 1000  optimizer = adamw(lr = 6e-4)  data = text(\"book.txt\") }`");
  }
}

/* How much of a device's memory a plan may use unless it says otherwise. */
static double default_memory_fraction(const zp_cluster *cluster) {
  return (cluster->node.device.is_cpu ? ZP_CPU_MEMORY_PERCENT : ZP_GPU_MEMORY_PERCENT) / 100.0;
}

static void read_one_plan(zp_reader *reader, const zp_item *item, const zp_settings *settings) {
  const zp_attrs none = {0};
  zp_env env = {.module = reader->main, .scope = reader->main->lets, .item = item};
  zp_constraints plan = *(const zp_constraints *)zp_plan_schema.unwritten;
  plan.name = item ? item->name.text : NULL;
  plan.span = item ? item->span : ZP_NO_SPAN;
  plan.memory_fraction = default_memory_fraction(&reader->spec->cluster);
  zp_attrs attrs = zp_override_attrs(reader, item ? &item->attrs : &none, &settings->plan);
  zp_read_plan(reader, &env, &attrs, &plan);
  zp_push(reader->arena, &reader->spec->plans, plan);
}

static bool same_plan_name(const char *a, const char *b) { return a && b ? strcmp(a, b) == 0 : a == b; }

/* Two plans of one name are refused by the module loader, which does not know about plans without one. */
static void refuse_second_unnamed(zp_reader *reader, const zp_item *item) {
  for (int i = 0; i < reader->spec->plans.len && !item->name.text; i++) {
    const zp_constraints *other = &reader->spec->plans.data[i];
    if (other->name) continue;
    zp_diag *d = zp_report(reader->diags, ZP_Z0624, item->span, "two `plan` blocks have no name");
    zp_diag_also(d, other->span, "the first one");
    zp_diag_help(d, "give each plan a name of its own: `plan wide { ... }`");
    return;
  }
}

/* --plan NAME, else the unnamed plan, else the first. */
static void choose_plan(zp_reader *reader) {
  zp_spec *spec = reader->spec;
  const char *wanted = reader->options->plan;
  zp_strings names = {0};
  spec->plan = 0;
  for (int i = 0; i < spec->plans.len; i++) {
    const char *name = spec->plans.data[i].name;
    if (name) zp_push(reader->arena, &names, name);
    if (same_plan_name(name, wanted)) {
      spec->plan = i;
      return;
    }
  }
  if (!wanted) return;
  zp_diag *d = zp_report(reader->diags, ZP_Z0625, ZP_NO_SPAN, "unknown plan `%s` (from --plan)", wanted);
  if (!names.len)
    zp_diag_note(d, "%s has no named `plan` block", spec->path);
  else if (!zp_diag_did_you_mean(d, wanted, names.data, names.len))
    zp_diag_help(d, "for example `--plan %s`", names.data[0]);
}

static void read_plans(zp_reader *reader, const zp_settings *settings) {
  const zp_file *file = reader->main->file;
  for (int i = 0; i < file->items.len; i++) {
    const zp_item *item = file->items.data[i];
    if (item->kind != ZP_ITEM_PLAN) continue;
    refuse_second_unnamed(reader, item);
    read_one_plan(reader, item, settings);
  }
  if (reader->spec->plans.len == 0) read_one_plan(reader, NULL, settings);
  choose_plan(reader);
}

/* A precision that the device has no rate for could not be priced. */
static void check_precision(zp_reader *reader) {
  const zp_device *device = &reader->spec->cluster.node.device;
  const zp_train *train = &reader->spec->train;
  if (!device->name || train->batch == 0) return;
  bool is_half = zp_is_mixed(train);
  const char *missing = NULL, *help = "use `precision = \"fp32\"`";
  if (is_half && device->flop_per_s_half == 0)
    missing = "16-bit compute rate (`half`)";
  else if (zp_computes_bf16(train->precision) && !device->has_bf16) {
    missing = "bf16 arithmetic";
    help = "use `precision = \"mixed_fp16\"`";
  } else if (train->precision == ZP_PREC_F64 && device->flop_per_s_fp64 == 0)
    missing = "64-bit compute rate (`fp64`)";
  if (!missing && device->is_cpu && zp_precision_recipe(train->precision) &&
      !zp_precision_rounded(train->precision, ZP_SIDE_VALUE)) {
    missing = "such products: CPU ranks emulate those of `\"mixed_fp8\"`, `\"mixed_fp8_block\"` and `\"mixed_mxfp8\"`";
    help = "use `precision = \"mixed_fp8\"`";
  }
  if (!missing) return;
  zp_diag *d =
      zp_report(reader->diags, ZP_Z0505, train->precision_span, "device `%s` has no %s", device->name, missing);
  zp_diag_help(d, "%s", help);
}

bool zp_spec_read(zp_arena *arena, zp_diags *diags, zp_spec *spec, zp_module *main, const zp_load_options *options,
                  const zp_expr **model_call) {
  zp_reader reader = {.arena = arena, .diags = diags, .spec = spec, .main = main, .options = options};
  zp_settings settings = {0};
  int before = zp_diags_errors(diags);
  *model_call = NULL;
  zp_parse_settings(&reader, &settings);
  read_cluster(&reader, &settings);
  read_train(&reader, &settings, model_call);
  read_plans(&reader, &settings);
  if (zp_diags_errors(diags) == before) check_precision(&reader);
  return zp_diags_errors(diags) == before;
}
