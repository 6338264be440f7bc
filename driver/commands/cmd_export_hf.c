/* SPDX-License-Identifier: Apache-2.0 */
/* zplan export hf: a checkpoint of zplan as a folder of Hugging Face, adapters added to their weights. zplan export
 * peft: its adapters alone. The model is that of the plan in the checkpoint,
 * or of the file that is named after it; config.json is that of the weights that the run began with, or of --like, or
 * made from the model. */
#include "driver.h"
#include <zplan/buf.h>
#include <zplan/export.h>
#include <zplan/json.h>
#include <zplan/tokenizer.h>
#include <zplan/weights.h>

#include <stdio.h>
#include <unistd.h>

typedef struct export_hf {
  zp_run_state *run;
  const zp_spec *spec;
  zp_weight_export job;
} export_hf;

static const char *in(zp_run_state *run, const char *folder, const char *file) {
  size_t n = strlen(folder);
  return zp_format(run->arena, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", file);
}

static bool check_words(zp_run_state *run, const char *word) {
  zp_strings *files = &run->options.files;
  if (files->len == 1 || files->len == 2) {
    if (run->options.output) return true;
    return zp_usage_error("`zplan export %s` wants the folder to make: -o FOLDER", word), false;
  }
  return zp_usage_error("usage: zplan export %s CHECKPOINT [FILE.dz|PLAN.json] -o FOLDER", word), false;
}

const zp_spec *zp_spec_of_checkpoint(zp_run_state *run, const zp_weight_folder *checkpoint, const char *file) {
  const char *plan = in(run, checkpoint->path, "plan.json");
  if (!file && access(plan, R_OK) != 0) {
    zp_diag *d =
        zp_report(run->diags, ZP_Z0691, ZP_NO_SPAN, "%s carries no plan, so its model is not known", checkpoint->path);
    zp_diag_help(d, "name the model: zplan %s %s FILE.dz",
                 strcmp(run->command, "export") == 0 ? "export hf" : run->command, checkpoint->path);
    return NULL;
  }
  run->options.files = (zp_strings){0};
  zp_push(run->arena, &run->options.files, file ? file : plan);
  zp_json *json = NULL;
  const zp_spec *spec = zp_load_input(run, &json);
  if (json) zp_json_free(json);
  return spec;
}

/* The weights that the run began with, where the manifest names a folder that is there. */
static const char *began_with(zp_run_state *run, const char *checkpoint) {
  const char *error = NULL, *folder = NULL;
  size_t len;
  const char *text = zp_read_file(run->arena, in(run, checkpoint, "manifest.json"), &len, &error);
  zp_json *root = text ? zp_json_parse(run->arena, text, len, &error) : NULL;
  const char *named = zp_json_get_string(root, "initial_weights", NULL);
  if (named && access(in(run, named, "config.json"), R_OK) == 0) folder = zp_strdup(run->arena, named);
  if (root) zp_json_free(root);
  return folder;
}

static const char *folder_like(const export_hf *e) {
  return e->run->options.like ? e->run->options.like : began_with(e->run, e->job.checkpoint->path);
}

/* Is the model that of the folder's config.json still? One that began with a part of its weights may have other
 * sizes. */
static bool is_model_of(const export_hf *e, const char *folder) {
  zp_run_state *run = e->run;
  zp_diags *quiet = zp_diags_new(run->arena);
  const char *error = NULL, *path = in(run, folder, "config.json");
  size_t len;
  const char *json = zp_read_file(run->arena, path, &len, &error);
  return !json || zp_weights_map_hf(run->arena, quiet, e->spec, run->options.load.library_dir, path, json, len, NULL);
}

/* config.json and, where they are the same model's, names and files of the folder it is in. */
static bool take_config(export_hf *e) {
  zp_run_state *run = e->run;
  const char *folder = folder_like(e);
  const char *error = NULL, *path = "the model's own config.json";
  if (folder && !run->options.like && !is_model_of(e, folder)) {
    zp_say_line(stderr, "note: the model is another one than that of %s, so config.json is written anew", folder);
    folder = NULL;
  }
  if (folder) {
    path = in(run, folder, "config.json");
    e->job.config = zp_read_file(run->arena, path, &e->job.config_len, &error);
    if (!e->job.config) return zp_report(run->diags, ZP_Z0691, ZP_NO_SPAN, "%s", error), false;
    zp_diags *quiet = zp_diags_new(run->arena); /* a folder may have a config.json and no weights */
    e->job.like = zp_weights_open(run->arena, quiet, folder);
    zp_say_line(stderr, "note: config.json is that of %s", folder);
  } else {
    static const char *const names[][2] = {
        {"F32", "float32"}, {"F64", "float64"}, {"BF16", "bfloat16"}, {"F16", "float16"}};
    const char *reason = NULL, *dtype = NULL;
    zp_span span;
    for (int i = 0; i < 4; i++)
      if (strcmp(names[i][0], e->job.dtype) == 0) dtype = names[i][1];
    e->job.config = zp_export_hf_config(run->arena, zp_spec_base(e->spec), dtype, &reason, &span);
    if (!e->job.config) {
      zp_diag *d = zp_report(run->diags, ZP_Z0682, span, "transformers has no model like this one: %s", reason);
      zp_diag_help(d, "where it has one that is written otherwise, name a folder with its config.json: --like FOLDER");
      return false;
    }
    e->job.config_len = strlen(e->job.config);
  }
  e->job.map = zp_weights_map_hf(run->arena, run->diags, e->spec, run->options.load.library_dir, path, e->job.config,
                                 e->job.config_len, NULL);
  if (!e->job.map) return false;
  const char *changed = zp_hf_config_of_head(run->arena, e->job.map->imported, e->job.config, e->job.config_len);
  if (changed) e->job.config = changed, e->job.config_len = strlen(changed);
  return true;
}

/* What of a folder transformers' tokenizers are made of. */
static bool take_tokenizer(export_hf *e) {
  static const char *const names[] = {"tokenizer.json",
                                      "tokenizer_config.json",
                                      "vocab.txt",
                                      "vocab.json",
                                      "merges.txt",
                                      "special_tokens_map.json",
                                      "tokenizer.model",
                                      "spiece.model",
                                      "generation_config.json"};
  zp_run_state *run = e->run;
  const char *given = run->options.tokenizer, *slash = given ? strrchr(given, '/') : NULL;
  const char *name = slash ? slash + 1 : given;
  for (size_t i = 0; e->job.like && i < sizeof names / sizeof *names; i++) {
    const char *path = in(run, e->job.like->path, names[i]);
    bool replaced = given && (i == 0 || strcmp(names[i], "vocab.txt") == 0);
    if (!replaced && access(path, R_OK) == 0) zp_push(run->arena, &e->job.copies, path);
  }
  if (!given) return true;
  size_t len;
  const char *json = zp_tokenizer_text(run->arena, run->diags, given, &len);
  if (!json) return false;
  zp_tokenizer *tokenizer = zp_tokenizer_read(run->arena, run->diags, given, json, len);
  if (!tokenizer) return false;
  bool fits = zp_tokenizer_fits(run, given, tokenizer, e->spec->model);
  zp_tokenizer_free(tokenizer);
  if (!fits) return false;
  if (strcmp(name, "tokenizer.json") != 0 && strcmp(name, "vocab.txt") != 0) {
    zp_report(run->diags, ZP_Z0806, ZP_NO_SPAN,
              "%s would be copied under its own name: transformers reads tokenizer.json, or vocab.txt", given);
    return false;
  }
  zp_push(run->arena, &e->job.copies, given);
  return true;
}

static const char *dtype_of(const zp_run_state *run, const zp_spec *spec) {
  static const char *const words[][2] = {{"f32", "F32"}, {"f64", "F64"}, {"bf16", "BF16"}, {"f16", "F16"}};
  static const char *const trained[ZP_PRECISIONS] = {
#define PRECISION(id, word, operand, real, dtype, ...) #dtype,
#include <zplan/precisions.def>
  };
  for (int i = 0; run->options.dtype && i < 4; i++)
    if (strcmp(words[i][0], run->options.dtype) == 0) return words[i][1];
  return trained[spec->train.precision];
}

/* Names and shapes of the checkpoint against the model. */
static bool check_checkpoint(export_hf *e) {
  zp_strings notes = {0};
  zp_run_state *run = e->run;
  return zp_weights_place(run->arena, run->diags, e->spec, zp_weights_map_own(run->arena, e->spec), e->job.checkpoint,
                          &notes) != NULL;
}

/* A checkpoint of the model before it had adapters has none to give. */
static bool check_adapters(export_hf *e) {
  zp_run_state *run = e->run;
  const zp_model *model = e->spec->model;
  for (int i = 0; i < model->adapters.len; i++) {
    const zp_param *a = &model->params.data[model->adapters.data[i].a];
    const char *name = zp_param_instance_name(run->arena, a, 0);
    if (zp_weights_find(e->job.checkpoint, name)) continue;
    zp_report(run->diags, ZP_Z0694, model->span, "%s has no adapter `%s`", e->job.checkpoint->path, name);
    return false;
  }
  return true;
}

/* transformers' experts take every token that chose them. */
static void note_dropped_tokens(const zp_model *model) {
  for (int s = 0; s < model->segments.len; s++)
    for (int i = 0; i < model->segments.data[s].graph->nodes.len; i++) {
      const zp_node *n = &model->segments.data[s].graph->nodes.data[i];
      if (n->op != ZP_OP_DISPATCH || n->attr.slots >= model->sequence) continue;
      zp_say_lines(stderr,
                   "note: an expert has %lld slots for a sample of %lld here, and tokens beyond them are dropped; in "
                   "transformers none is, so losses differ\n",
                   (long long)n->attr.slots, (long long)model->sequence);
      return;
    }
}

/* The checkpoint, its model, and which of its elements are which of a model of Hugging Face. */
static bool prepare(export_hf *e, const char *word) {
  zp_run_state *run = e->run;
  zp_strings files = run->options.files;
  zp_weight_folder *checkpoint = zp_weights_open(run->arena, run->diags, files.data[0]);
  if (checkpoint && !checkpoint->of_zplan) {
    zp_report(run->diags, ZP_Z0691, ZP_NO_SPAN, "%s is no checkpoint of zplan: it has no manifest.json",
              checkpoint->path);
    checkpoint = NULL;
  }
  bool averages = checkpoint && run->options.ema;
  if (averages && !zp_weights_take_averages(run->arena, run->diags, checkpoint)) checkpoint = NULL;
  e->job.checkpoint = checkpoint;
  if (checkpoint) e->spec = zp_spec_of_checkpoint(run, checkpoint, files.len == 2 ? files.data[1] : NULL);
  if (!e->spec) return false;
  e->job.model = e->spec->model;
  e->job.dtype = dtype_of(run, e->spec);
  e->job.shard_bytes = run->options.shard_bytes;
  e->job.folder = run->options.output;
  if (strcmp(word, "peft") == 0 && e->spec->model->adapters.len == 0) {
    zp_diag *d =
        zp_report(run->diags, ZP_Z0682, e->spec->model->span, "model `%s` has no adapters", e->spec->model->name);
    zp_diag_help(d, "`zplan export hf` writes whole models; adapters are those of `adapt = lora(...)` in `train`");
    return false;
  }
  return check_checkpoint(e) && check_adapters(e) && take_config(e);
}

int zp_export_hf(zp_run_state *run) {
  export_hf e = {.run = run};
  if (!check_words(run, "hf")) return ZP_EXIT_USAGE;
  bool good = prepare(&e, "hf") && take_tokenizer(&e) && zp_weights_export(run->arena, run->diags, &e.job);
  if (!zp_flush_diags(run) || !good) return ZP_EXIT_ERROR;
  note_dropped_tokens(e.spec->model);
  zp_say_lines(stdout, "%s: %s, %d tensors of %s\n", run->options.output, zp_hf_type(e.job.map->imported),
               e.job.map->tensors.len, e.job.dtype);
  return ZP_EXIT_OK;
}

int zp_export_peft(zp_run_state *run) {
  export_hf e = {.run = run};
  const zp_options *o = &run->options;
  if (!check_words(run, "peft")) return ZP_EXIT_USAGE;
  if (o->shard_bytes || o->tokenizer)
    return zp_usage_error("%s is of `zplan export hf`; adapters are one file",
                          o->tokenizer ? "--tokenizer" : "--shard-size");
  int tensors = 0;
  if (prepare(&e, "peft")) {
    zp_peft_export job = {.checkpoint = e.job.checkpoint,
                          .map = e.job.map,
                          .spec = e.spec,
                          .base = folder_like(&e),
                          .dtype = e.job.dtype,
                          .folder = e.job.folder};
    tensors = zp_weights_export_peft(run->arena, run->diags, &job);
  }
  if (!zp_flush_diags(run) || tensors == 0) return ZP_EXIT_ERROR;
  zp_say_lines(stdout, "%s: adapters for %s, %d tensors of %s\n", run->options.output, zp_hf_type(e.job.map->imported),
               tensors, e.job.dtype);
  return ZP_EXIT_OK;
}
