/* SPDX-License-Identifier: Apache-2.0 */
/* Published models as files: --model NAME without a file, and what `zplan new` writes around a model. */
#include "new_file.h"
#include "machines.h"

#include <zplan/buf.h>
#include <zplan/known_models.h>

#include <math.h>
#include <unistd.h>

const zp_cluster *zp_cluster_of_block(zp_run_state *run, const char *block) {
  static const char model[] =
      "use std.hw\nuse std.nn\n"
      "model m(V = 8, S = 8, d = 8) {\n"
      "  input tokens: i32[B, S]\n  input labels: i32[B, S]\n  param table: [V, d]\n"
      "  output loss = cross_entropy(matmul(embedding(tokens, table), transpose(table)), labels)\n}\n"
      "train { model = m  batch = 1  steps = 1  optimizer = adam(lr = 1e-4) }\n";
  zp_source_text source = {.path = "machine.dz", .text = zp_format(run->arena, "%scluster c {\n%s}\n", model, block)};
  source.len = strlen(source.text);
  zp_load_options options = {.library_dir = run->options.load.library_dir};
  const zp_spec *spec = zp_load(run->arena, run->diags, source.path, &source, 1, &options);
  return spec ? &spec->cluster : NULL;
}

const zp_model *zp_model_of_text(zp_run_state *run, const char *text) {
  zp_source_text source = {.path = "model.dz", .text = text, .len = strlen(text)};
  zp_load_options options = {.library_dir = run->options.load.library_dir, .model_only = true};
  const zp_spec *spec = zp_load(run->arena, run->diags, source.path, &source, 1, &options);
  return spec ? spec->model : NULL;
}

const char *zp_precision_of(const zp_cluster *cluster) {
  const zp_device *device = &cluster->node.device;
  return device->is_cpu ? "fp32" : device->has_bf16 ? "mixed_bf16" : "mixed_fp16";
}

/* Tokens of a step: GPT-2's half a million, LLaMA 2's four (arXiv 2307.09288). */
static int64_t batch_of(double parameters, int64_t sequence) {
  int64_t tokens = parameters < 1e9 ? (int64_t)1 << 19 : (int64_t)1 << 22;
  return tokens > sequence ? tokens / sequence : 1;
}

/* "1.4e12": two digits. */
static const char *two_digits(zp_arena *arena, double number) {
  int exponent = (int)floor(log10(number));
  return zp_format(arena, "%.1fe%d", number / pow(10, exponent), exponent);
}

const char *zp_pretraining_block(zp_run_state *run, const zp_imported *imported, const zp_model *model,
                                 const char *precision) {
  double parameters = (double)zp_model_parameters(model);
  bool large = parameters >= 1e10;
  int64_t batch = batch_of(parameters, model->sequence);
  bool arrays = zp_hf_takes_arrays(imported);
  zp_buf out = zp_buf_new(run->arena);
  zp_buf_printf(&out, "train {\n  model     = %s\n", zp_hf_model_name(imported));
  zp_buf_puts(&out,
              arrays ? "  data      = arrays(\"data\")      # a file of NumPy for every input\n"
                     : "  data      = synthetic(seed = 1)  # or tokens(\"data/*.bin\"), which `zplan data` writes\n");
  zp_buf_printf(&out, "  batch     = %lld  # samples a step: %s tokens\n", (long long)batch,
                zp_show_count(run->arena, (double)(batch * model->sequence)));
  zp_buf_printf(&out, "  tokens    = %s  # 20 a parameter (arXiv 2203.15556)\n",
                two_digits(run->arena, 20 * parameters));
  zp_buf_printf(&out, "  precision = \"%s\"\n", precision);
  if (zp_hf_dropout(imported) > 0) zp_buf_printf(&out, "  dropout   = %g\n", zp_hf_dropout(imported));
  zp_buf_printf(&out,
                "  optimizer = adamw(lr = %s, betas = [0.9, 0.95], weight_decay = 0.1)\n"
                "  schedule  = cosine(warmup = 2000, min_lr = %s)\n  clip      = 1.0\n}\n",
                large ? "1.5e-4" : "3e-4", large ? "1.5e-5" : "3e-5");
  return out.data;
}

/* ---- --model without a file ---- */

bool zp_take_known_models(zp_run_state *run) {
  zp_options *o = &run->options;
  if (strcmp(run->command, "new") == 0 || o->files.len > 0 || o->models.len == 0) return true;
  for (int i = 0; i < o->models.len; i++) {
    const char *name = o->models.data[i];
    if (!zp_find_known_model(name)) return zp_refuse_model(run, name), false;
    zp_push(run->arena, &o->files, name);
  }
  o->load.model = NULL;
  return true;
}

/* The published model that the hub calls so: "meta-llama/Meta-Llama-3-8B"; NULL: none. */
static const char *name_of_hub(const char *hub) {
  for (int i = 0; i < zp_known_model_count(); i++)
    if (*hub && strcasecmp(zp_known_model_at(i)->hub, hub) == 0) return zp_known_model_at(i)->name;
  return NULL;
}

int zp_refuse_model(zp_run_state *run, const char *name) {
  const char *here = name_of_hub(name);
  if (here) return zp_usage_error("the published model `%s` is called `%s` here", name, here);
  if (zp_is_machine(run->arena, name))
    return zp_usage_error("`%s` is a machine: the model comes first, as in llama3-8b on %s", name, name);
  zp_strings names = {0};
  for (int i = 0; i < zp_known_model_count(); i++) zp_push(run->arena, &names, zp_known_model_at(i)->name);
  const char *near = zp_closest(zp_plain_name(run->arena, name), names.data, names.len);
  if (near)
    return zp_usage_error("no published model is called `%s`; did you mean `%s`? `zplan models` lists them", name,
                          near);
  return zp_usage_error("no published model is called `%s`; `zplan models` lists them, and a model of your own stands "
                        "in a file: zplan plan FILE.dz --model %s",
                        name, name);
}

/* The machine that counts where no file names one. */
static const char *block_of_run(zp_run_state *run) {
  const char *word;
  return run->options.machine ? zp_machine_block(run, run->options.machine, 1, &word)
                              : zp_this_machine(run, &word, NULL);
}

const zp_source_text *zp_known_model_file(zp_run_state *run, const char *name) {
  const zp_known_model *known = strchr(name, '/') || access(name, F_OK) == 0 ? NULL : zp_find_known_model(name);
  if (!known) return NULL;
  const zp_imported *imported = zp_import_known_model(run->arena, run->diags, known);
  const zp_model *model = imported ? zp_model_of_text(run, imported->text) : NULL;
  const zp_cluster *cluster = model ? zp_cluster_of_block(run, block_of_run(run)) : NULL;
  zp_source_text *source = ZP_NEW(run->arena, zp_source_text);
  source->path = zp_format(run->arena, "%s.dz", zp_hf_model_name(imported));
  source->text = zp_format(run->arena, "%s\n%s", imported->text,
                           zp_pretraining_block(run, imported, model, zp_precision_of(cluster)));
  source->len = strlen(source->text);
  return source;
}
