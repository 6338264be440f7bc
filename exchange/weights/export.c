/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint of zplan as a folder of Hugging Face: config.json, safetensors in files of a stated size, and what is
 * copied alongside them. The folder is made under a hidden name and renamed when everything in it is on the disk.
 *
 * A tensor is in memory at a time, and what it is made of. */
#include "weights_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <zplan/buf.h>
#include <zplan/json.h>

/* A tensor to be written: which file, and where in it. */
typedef struct written {
  const zp_mapped_tensor *tensor;
  const char *name;
  int64_t elements, begin; /* begin: bytes after the file's header */
  int file;
} written;

typedef struct exporter {
  zp_arena *arena;
  zp_diags *diags;
  const zp_weight_export *job;
  zp_out_folder *out;
  written *list; /* in the order of the map, then by file and name */
  int n, n_files;
  const char *dtype;
  int size;                     /* of an element */
  const zp_strings *like_files; /* names of files; NULL: by size */
  zp_gather values;             /* where tensors come from, adapters that weights take in */
} exporter;

static const char *file_name(const exporter *e, int file) {
  if (e->like_files) return e->like_files->data[file];
  if (e->n_files == 1) return "model.safetensors";
  return zp_format(e->arena, "model-%05d-of-%05d.safetensors", file + 1, e->n_files);
}

/* ---- which tensor goes where ---- */

/* Files of at most shard_bytes, or of one tensor that is larger. */
static void divide(exporter *e) {
  int64_t bytes = 0;
  int file = 0;
  for (int i = 0; i < e->n; i++) {
    int64_t size = e->list[i].elements * e->size;
    if (bytes > 0 && bytes + size > e->job->shard_bytes) {
      file++;
      bytes = 0;
    }
    e->list[i].file = file;
    bytes += size;
  }
  e->n_files = file + 1;
}

/* As the files of the folder that it came from, where these hold the same tensors. */
static bool divide_alike(exporter *e) {
  const zp_weight_folder *like = e->job->like;
  if (e->job->shard_bytes > 0 || !like) return false;
  for (int i = 0; i < e->n; i++)
    if (!zp_weights_find(like, e->list[i].name)) return false;
  for (int i = 0; i < e->n; i++) e->list[i].file = zp_weights_find(like, e->list[i].name)->file;
  zp_strings *names = ZP_NEW(e->arena, zp_strings);
  for (int i = 0; i < like->files.len; i++) {
    const char *slash = strrchr(like->files.data[i].path, '/');
    zp_push(e->arena, names, slash ? slash + 1 : like->files.data[i].path);
  }
  e->n_files = names->len;
  e->like_files = names;
  return true;
}

static int by_file_and_name(const void *a, const void *b) {
  const written *x = a, *y = b;
  return x->file != y->file ? x->file - y->file : strcmp(x->name, y->name);
}

static void lay_out(exporter *e) {
  const zp_weight_map *map = e->job->map;
  e->n = map->tensors.len;
  e->list = ZP_NEW_ARRAY(e->arena, written, e->n);
  const char *left_out = e->job->like ? zp_weights_prefix_left_out(map, e->job->like) : "";
  for (int i = 0; i < e->n; i++) {
    const zp_mapped_tensor *t = &map->tensors.data[i];
    bool shorter = strncmp(t->name, left_out, strlen(left_out)) == 0;
    e->list[i] = (written){.tensor = t, .name = t->name + (shorter ? strlen(left_out) : 0), .elements = 1};
    for (int k = 0; k < t->rank; k++) e->list[i].elements *= t->shape[k];
  }
  if (!divide_alike(e)) {
    if (e->job->shard_bytes > 0)
      divide(e);
    else
      e->n_files = 1;
  }
  qsort(e->list, (size_t)e->n, sizeof *e->list, by_file_and_name);
  for (int i = 0; i < e->n; i++)
    e->list[i].begin =
        i > 0 && e->list[i - 1].file == e->list[i].file ? e->list[i - 1].begin + e->list[i - 1].elements * e->size : 0;
}

static zp_buf header_of(exporter *e, int begin, int end) {
  zp_out_tensor *list = ZP_NEW_ARRAY(e->arena, zp_out_tensor, end - begin + 1);
  for (int i = begin; i < end; i++) {
    const written *w = &e->list[i];
    list[i - begin] =
        (zp_out_tensor){.name = w->name, .rank = w->tensor->rank, .begin = w->begin, .bytes = w->elements * e->size};
    memcpy(list[i - begin].shape, w->tensor->shape, sizeof w->tensor->shape);
  }
  return zp_safetensors_header(e->arena, e->dtype, list, end - begin);
}

static bool write_file(exporter *e, int begin, int end) {
  zp_buf header = header_of(e, begin, end);
  const char *name = file_name(e, e->list[begin].file);
  bool good = zp_out_begin(e->out, name) && zp_out_put(e->out, header.data, header.len);
  for (int i = begin; good && i < end; i++) {
    size_t bytes = (size_t)(e->list[i].elements * e->size);
    void *data = calloc(1, bytes ? bytes : 1);
    if (!data) zp_report(e->diags, ZP_Z0695, ZP_NO_SPAN, "no memory for tensor %s", e->list[i].name);
    good = data && zp_weights_gather(&e->values, e->list[i].tensor, data) && zp_out_put(e->out, data, bytes);
    free(data);
  }
  return zp_out_end(e->out) && good;
}

static int compare_name(const void *a, const void *b) {
  return strcmp((*(const written *const *)a)->name, (*(const written *const *)b)->name);
}

/* model.safetensors.index.json, by name. */
static bool write_index(exporter *e) {
  if (e->n_files == 1) return true;
  const written **sorted = ZP_NEW_ARRAY(e->arena, const written *, e->n);
  int64_t elements = 0;
  for (int i = 0; i < e->n; i++) {
    sorted[i] = &e->list[i];
    elements += e->list[i].elements;
  }
  qsort(sorted, (size_t)e->n, sizeof *sorted, compare_name);
  zp_json *root = zp_json_object(), *data = zp_json_set(root, "metadata", zp_json_object());
  zp_json_set_int(data, "total_parameters", elements);
  zp_json_set_int(data, "total_size", elements * e->size);
  zp_json *map = zp_json_set(root, "weight_map", zp_json_object());
  for (int i = 0; i < e->n; i++) zp_json_set_string(map, sorted[i]->name, file_name(e, sorted[i]->file));
  const char *text = zp_format(e->arena, "%s\n", zp_json_text(e->arena, root, true));
  zp_json_free(root);
  return zp_out_file(e->out, "model.safetensors.index.json", text, strlen(text));
}

/* A weight that is a head, too, has no adapter there. */
static bool can_merge(zp_diags *diags, const zp_model *model) {
  for (int i = 0; i < model->adapters.len; i++) {
    if (!zp_model_is_tied(model, model->adapters.data[i].weight)) continue;
    const zp_param *w = &model->params.data[model->adapters.data[i].weight];
    zp_diag *d = zp_report(diags, ZP_Z0682, w->span,
                           "the adapter of `%s` is of its embedding alone, and what else "
                           "reads it has none: there is no one weight with the adapter added",
                           w->name);
    zp_diag_help(d, "`zplan export peft` writes the adapters by themselves");
    return false;
  }
  return true;
}

bool zp_weights_export(zp_arena *arena, zp_diags *diags, const zp_weight_export *job) {
  exporter e = {.arena = arena, .diags = diags, .job = job, .dtype = job->dtype};
  e.size = zp_weight_dtype_bytes(job->dtype);
  assert(e.size > 0 && job->map && job->checkpoint && job->config);
  e.values = (zp_gather){arena, diags, job->checkpoint, zp_merges_of(arena, job->model), job->dtype};
  if (!can_merge(diags, job->model)) return false;
  lay_out(&e);
  e.out = zp_out_open(arena, diags, job->folder);
  if (!e.out) return false;
  bool good = zp_out_file(e.out, "config.json", job->config, job->config_len);
  for (int begin = 0, end; good && begin < e.n; begin = end) {
    for (end = begin + 1; end < e.n && e.list[end].file == e.list[begin].file;) end++;
    good = write_file(&e, begin, end);
  }
  good = good && write_index(&e);
  for (int i = 0; good && i < job->copies.len; i++) good = zp_out_copy(e.out, job->copies.data[i]);
  return zp_out_close(e.out, good);
}
