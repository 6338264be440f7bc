/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of weights: one file, files of an index, or a checkpoint of zplan; other formats by their name. */
#include "weights_internal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zplan/buf.h>
#include <zplan/json.h>

static const char *in(zp_arena *arena, const char *folder, const char *file) {
  size_t n = strlen(folder);
  return zp_format(arena, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", file);
}

static bool is_there(zp_arena *arena, const char *folder, const char *file) {
  return access(in(arena, folder, file), F_OK) == 0;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const zp_weight_tensor *)a)->name, ((const zp_weight_tensor *)b)->name);
}

static bool sort(zp_diags *diags, zp_weight_folder *f) {
  if (f->tensors.len > 1) qsort(f->tensors.data, (size_t)f->tensors.len, sizeof *f->tensors.data, by_name);
  for (int i = 1; i < f->tensors.len; i++)
    if (by_name(&f->tensors.data[i - 1], &f->tensors.data[i]) == 0) {
      zp_report(diags, ZP_Z0691, ZP_NO_SPAN, "tensor \"%s\" stands twice in the files of %s", f->tensors.data[i].name,
                f->path);
      return false;
    }
  return true;
}

const zp_weight_tensor *zp_weights_find(const zp_weight_folder *f, const char *name) {
  zp_weight_tensor wanted = {.name = name};
  if (f->tensors.len == 0) return NULL;
  return bsearch(&wanted, f->tensors.data, (size_t)f->tensors.len, sizeof wanted, by_name);
}

static const zp_weight_tensor *find_kind(zp_arena *arena, const zp_weight_folder *f, const char *name,
                                         const char *kind) {
  return f->of_zplan ? zp_weights_find(f, zp_format(arena, "%s.%s", name, kind)) : NULL;
}

const zp_weight_tensor *zp_weights_source(zp_arena *arena, const zp_weight_folder *f, const char *name, bool exact) {
  const zp_weight_tensor *average = f->averages ? find_kind(arena, f, name, "ema") : NULL;
  if (average) return average; /* frozen parameters have none: they are the same after every step */
  const zp_weight_tensor *master = exact ? find_kind(arena, f, name, "master") : NULL;
  return master ? master : zp_weights_find(f, name);
}

bool zp_weights_take_averages(zp_arena *arena, zp_diags *diags, zp_weight_folder *f) {
  for (int i = 0; i < f->tensors.len && !f->averages; i++)
    f->averages = find_kind(arena, f, f->tensors.data[i].name, "ema") != NULL;
  if (f->averages) return true;
  zp_diag *d =
      zp_report(diags, ZP_Z0691, ZP_NO_SPAN, "%s holds no average of the weights, which --ema asks for", f->path);
  zp_diag_help(d, "a training keeps one where it says so: `train { ema = 0.999 }`");
  return false;
}

const char *zp_weight_shape(zp_arena *arena, int rank, const int64_t *shape) {
  zp_buf out = zp_buf_new(arena);
  zp_buf_puts(&out, "[");
  for (int k = 0; k < rank; k++) zp_buf_printf(&out, "%s%lld", k ? ", " : "", (long long)shape[k]);
  zp_buf_puts(&out, "]");
  return out.data;
}

/* {"metadata": ..., "weight_map": {"TENSOR": "FILE", ...}}: files in the order in which they are named first. */
static bool read_index(zp_arena *arena, zp_diags *diags, zp_weight_folder *f, const char *path) {
  size_t len;
  const char *error = NULL, *tensor, *text = zp_read_file(arena, path, &len, &error);
  zp_json *root = text ? zp_json_parse(arena, text, len, &error) : NULL;
  const zp_json *map = zp_json_get(root, "weight_map"), *value;
  zp_strings files = {0};
  if (root && !zp_json_is_object(map)) error = "it has no `weight_map`";
  for (void *at = NULL; !error && zp_json_next(map, &at, &tensor, &value);) {
    const char *file = zp_json_string(value, "");
    if (!*file || strchr(file, '/')) error = zp_format(arena, "\"%.100s\" is in no file of the folder", tensor);
    int i = 0;
    while (i < files.len && strcmp(files.data[i], file) != 0) i++;
    if (i == files.len) zp_push(arena, &files, zp_strdup(arena, file));
  }
  if (!error && files.len == 0) error = "it names no file";
  if (error) zp_report(diags, ZP_Z0691, ZP_NO_SPAN, "cannot read the index %s: %s", path, error);
  bool good = !error;
  for (int i = 0; good && i < files.len; i++)
    good = zp_safetensors_read(arena, diags, f, in(arena, f->path, files.data[i]));
  good = good && sort(diags, f);
  for (void *at = NULL; good && zp_json_next(map, &at, &tensor, &value);)
    if (!zp_weights_find(f, tensor)) {
      zp_report(diags, ZP_Z0691, ZP_NO_SPAN, "the index %s has tensor \"%s\" in %s, and it is not there", path, tensor,
                zp_json_string(value, ""));
      good = false;
    }
  if (root) zp_json_free(root);
  return good;
}

/* What a folder without safetensors files has instead. */
static void refuse(zp_arena *arena, zp_diags *diags, const char *path) {
  static const char *const others[] = {
      "pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin",
      "tf_model.h5",       "flax_model.msgpack",           "consolidated.00.pth"};
  if (is_there(arena, path, "adapter_model.safetensors")) {
    zp_diag *d = zp_report(diags, ZP_Z0692, ZP_NO_SPAN, "%s holds adapters, and no weights of a model", path);
    zp_diag_help(d, "they are read alongside those of the model: --init FOLDER --adapters %s", path);
    return;
  }
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    if (!is_there(arena, path, others[i])) continue;
    zp_diag *d = zp_report(diags, ZP_Z0692, ZP_NO_SPAN, "%s holds %s, and no safetensors file", path, others[i]);
    zp_diag_help(d,
                 "save it once more in Python: AutoModelForCausalLM.from_pretrained(\"%s\").save_pretrained(\"NEW\"), "
                 "or the class that "
                 "config.json names",
                 path);
    return;
  }
  zp_diag *d = zp_report(diags, ZP_Z0691, ZP_NO_SPAN, "%s holds no weights%s", path,
                         access(path, F_OK) == 0 ? "" : ": there is no such folder");
  zp_diag_help(
      d, "a folder of Hugging Face has model.safetensors or model.safetensors.index.json, alongside config.json; a "
         "checkpoint of zplan has model.safetensors and manifest.json");
}

/* FOLDER, FOLDER/step_000120 where `latest` of a folder of checkpoints says so. */
static const char *newest(zp_arena *arena, const char *path) {
  char name[64] = "";
  const char *ignored;
  int fd = zp_open_file(arena, in(arena, path, "latest"), &ignored);
  if (fd < 0) return path;
  ssize_t got = read(fd, name, sizeof name - 1);
  name[got > 0 ? got : 0] = '\0';
  close(fd);
  name[strcspn(name, "\r\n")] = '\0';
  return strncmp(name, "step_", 5) == 0 && !strchr(name, '/') ? in(arena, path, name) : path;
}

zp_weight_folder *zp_weights_open(zp_arena *arena, zp_diags *diags, const char *path) {
  zp_weight_folder *f = ZP_NEW(arena, zp_weight_folder);
  f->path = newest(arena, path);
  f->of_zplan = is_there(arena, f->path, "manifest.json");
  if (!f->of_zplan && is_there(arena, f->path, "config.json")) f->config_path = in(arena, f->path, "config.json");
  if (is_there(arena, f->path, "model.safetensors")) {
    bool good = zp_safetensors_read(arena, diags, f, in(arena, f->path, "model.safetensors"));
    if (good && f->of_zplan && is_there(arena, f->path, "optimizer.safetensors")) /* it may have masters */
      good = zp_safetensors_read(arena, diags, f, in(arena, f->path, "optimizer.safetensors"));
    return good && sort(diags, f) ? f : NULL;
  }
  if (is_there(arena, f->path, "model.safetensors.index.json"))
    return read_index(arena, diags, f, in(arena, f->path, "model.safetensors.index.json")) ? f : NULL;
  refuse(arena, diags, f->path);
  return NULL;
}

zp_weight_folder *zp_weights_open_peft(zp_arena *arena, zp_diags *diags, const char *path) {
  zp_weight_folder *f = ZP_NEW(arena, zp_weight_folder);
  f->path = path;
  f->config_path = in(arena, path, "adapter_config.json");
  const char *tensors = in(arena, path, "adapter_model.safetensors");
  if (access(tensors, F_OK) == 0) return zp_safetensors_read(arena, diags, f, tensors) && sort(diags, f) ? f : NULL;
  bool pickled = is_there(arena, path, "adapter_model.bin");
  zp_diag *d = zp_report(diags, pickled ? ZP_Z0692 : ZP_Z0691, ZP_NO_SPAN, "%s holds %s", path,
                         pickled                   ? "adapter_model.bin, and no safetensors file"
                         : access(path, F_OK) == 0 ? "no adapters of PEFT"
                                                   : "no adapters: there is no such folder");
  zp_diag_help(
      d, "a folder of PEFT has adapter_config.json and adapter_model.safetensors, as save_pretrained writes them");
  return NULL;
}
