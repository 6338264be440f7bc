/* SPDX-License-Identifier: Apache-2.0 */
/* From the tensors that a model has and those of a folder to the trainer's map (runtime/checkpoint/given_map.c). All
 * that is missing, too much or of another shape is said at once. */
#include "weights_internal.h"

#include <stdlib.h>
#include <zplan/buf.h>
#include <zplan/json.h>

enum { MOST_TOLD = 64 };

/* What is wrong with a tensor, and with how many of other layers likewise. */
typedef struct fault {
  const char *text, *like; /* like: with a star in place of the first number */
  int more;
} fault;

typedef struct placer {
  zp_arena *arena;
  const zp_weight_map *map;
  const zp_weight_folder *folder;
  zp_strings *notes;
  ZP_VEC(fault) wrong;
  bool *used, *used_of_peft; /* of the folders' tensors */
  zp_json *parts;
} placer;

static bool begins_with(const char *text, const char *beginning) {
  return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* A checkpoint that was saved without its head has no prefix. */
const char *zp_weights_prefix_left_out(const zp_weight_map *map, const zp_weight_folder *folder) {
  if (!map->imported) return "";
  const char *prefix = zp_hf_prefix(map->imported);
  for (int i = 0; i < map->tensors.len; i++) {
    const char *name = map->tensors.data[i].name;
    if (!begins_with(name, prefix) || zp_weights_find(folder, name)) continue;
    if (zp_weights_find(folder, name + strlen(prefix))) return prefix;
  }
  return "";
}

/* "missing: h.3.ln_1.bias [48]" -> "missing: h.*.ln_1.bias [48]" */
static const char *with_star(zp_arena *arena, const char *text) {
  static const char digits[] = "0123456789";
  const char *dot = text;
  while ((dot = strchr(dot, '.')) && strspn(dot + 1, digits) == 0) dot++;
  if (!dot || dot[1 + strspn(dot + 1, digits)] != '.') return text;
  return zp_format(arena, "%.*s.*%s", (int)(dot - text), text, dot + 1 + strspn(dot + 1, digits));
}

__attribute__((format(printf, 2, 3))) static void wrong(placer *p, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fault f = {.text = zp_vformat(p->arena, format, args)};
  va_end(args);
  f.like = with_star(p->arena, f.text);
  for (int i = 0; i < p->wrong.len; i++)
    if (strcmp(p->wrong.data[i].like, f.like) == 0) {
      p->wrong.data[i].more++;
      return;
    }
  zp_push(p->arena, &p->wrong, f);
}

/* Rows after the last one that the model has are not read: positions that its samples do not reach. */
static bool shape_fits(placer *p, const zp_mapped_tensor *want, const zp_weight_tensor *got) {
  bool same = want->rank == got->rank;
  for (int k = 1; same && k < want->rank; k++) same = want->shape[k] == got->shape[k];
  if (!same || got->rank == 0) return false;
  if (want->shape[0] == got->shape[0]) return true;
  bool positions = p->map->imported && zp_hf_is_position_table(want->name);
  if (!positions || got->shape[0] < want->shape[0]) return false;
  zp_push(p->arena, p->notes,
          zp_format(p->arena, "`%s` has %lld positions, of which samples of %lld use the first ones", got->name,
                    (long long)got->shape[0], (long long)want->shape[0]));
  return true;
}

static void write_parts(placer *p, const zp_mapped_tensor *tensor, const zp_weight_tensor *place) {
  for (int i = 0; i < tensor->parts.len; i++) {
    const zp_weight_part *part = &tensor->parts.data[i];
    zp_json *o = zp_json_append(p->parts, zp_json_object());
    zp_json_set_string(o, "name", part->ours);
    zp_json_set_int(o, "begin", part->begin);
    zp_json_set_int(o, "file", place->file + (tensor->of_peft ? p->folder->files.len : 0));
    zp_json_set_int(o, "offset", place->offset + part->from * zp_weight_dtype_bytes(place->dtype));
    zp_json_set_string(o, "dtype", place->dtype);
    zp_json *extents = zp_json_set(o, "extents", zp_json_array());
    zp_json *strides = zp_json_set(o, "strides", zp_json_array());
    for (int k = 0; k < part->n; k++) {
      zp_json_append_int(extents, part->extents[k]);
      zp_json_append_int(strides, part->strides[k]);
    }
  }
}

static const zp_weight_tensor *find_source(placer *p, const zp_mapped_tensor *tensor, const char *name) {
  if (tensor->of_peft) return zp_weights_find(p->map->peft, name);
  const zp_weight_tensor *found = zp_weights_source(p->arena, p->folder, name, true);
  const char *old = !found && p->map->imported ? zp_hf_old_name(p->arena, p->map->imported, name) : NULL;
  return old ? zp_weights_find(p->folder, old) : found;
}

static void mark_used(placer *p, const zp_mapped_tensor *tensor, const zp_weight_tensor *found) {
  if (tensor->of_peft)
    p->used_of_peft[found - p->map->peft->tensors.data] = true;
  else
    p->used[found - p->folder->tensors.data] = true;
}

static void place(placer *p, const zp_mapped_tensor *tensor, const char *left_out) {
  const char *name = tensor->name + (begins_with(tensor->name, left_out) ? strlen(left_out) : 0);
  const zp_weight_tensor *found = find_source(p, tensor, name);
  if (!found && tensor->optional) return;
  if (!found) {
    wrong(p, "missing: %s %s", name, zp_weight_shape(p->arena, tensor->rank, tensor->shape));
    return;
  }
  mark_used(p, tensor, found);
  if (!shape_fits(p, tensor, found))
    wrong(p, "another shape: %s is %s, the model has %s", name, zp_weight_shape(p->arena, found->rank, found->shape),
          zp_weight_shape(p->arena, tensor->rank, tensor->shape));
  else if (zp_weight_dtype_bytes(found->dtype) == 0)
    wrong(p, "another type: %s is of %s; F32, F64, BF16 and F16 are read", name, found->dtype);
  else if (tensor->same_as && !zp_weights_are_equal(p->map->peft, found, p->map->peft, tensor->same_as))
    wrong(p, "another adapter: %s is not %s, and both are of one weight here", name, tensor->same_as);
  else
    write_parts(p, tensor, found);
}

static bool is_left(const zp_weight_map *map, const char *name) {
  for (int i = 0; i < map->left.len; i++)
    if (strcmp(map->left.data[i], name) == 0) return true;
  return false;
}

/* The tensor that another is once more by config.json, as the folder has it; NULL: it is of its own. */
static const char *tied_to(const placer *p, const char *name) {
  const char *other = zp_hf_tied_to(p->map->imported, name);
  if (!other || zp_weights_find(p->folder, other)) return other;
  const char *left_out = zp_weights_prefix_left_out(p->map, p->folder);
  return begins_with(other, left_out) ? other + strlen(left_out) : other;
}

/* What nobody asked for. The optimizer's file of a checkpoint of zplan holds more, which is not considered. */
static void look_for_more(placer *p) {
  const zp_imported *imported = p->map->imported;
  for (int i = 0; i < p->folder->tensors.len; i++) {
    const zp_weight_tensor *t = &p->folder->tensors.data[i];
    if (p->used[i] || (t->file > 0 && p->folder->of_zplan)) continue;
    if (p->folder->of_zplan && zp_weights_source(p->arena, p->folder, t->name, true) != t) continue;
    if (imported && zp_hf_is_buffer(t->name)) continue;
    if ((p->map->unread && zp_matches_some(p->map->unread, t->name)) || is_left(p->map, t->name)) continue;
    const char *other = imported ? tied_to(p, t->name) : NULL;
    if (other && zp_weights_are_equal(p->folder, t, p->folder, other))
      zp_push(p->arena, p->notes, zp_format(p->arena, "`%s` is not read: it is `%s` once more", t->name, other));
    else if (other)
      wrong(p, "another head: %s is not %s, and by config.json they are one (`tie_word_embeddings`)", t->name, other);
    else
      wrong(p, "too much: %s %s", t->name, zp_weight_shape(p->arena, t->rank, t->shape));
  }
}

/* PEFT saves the weight of an embedding alongside its adapter; the same numbers are no loss. */
static bool is_copy_of_base(placer *p, const zp_weight_tensor *t) {
  static const char front[] = "base_model.model.", layer[] = ".base_layer";
  if (!begins_with(t->name, front)) return false;
  const char *name = t->name + sizeof front - 1, *at = strstr(name, layer);
  if (at) name = zp_format(p->arena, "%.*s%s", (int)(at - name), name, at + sizeof layer - 1);
  const char *left_out = zp_weights_prefix_left_out(p->map, p->folder);
  if (begins_with(name, left_out)) name += strlen(left_out);
  if (!zp_weights_are_equal(p->map->peft, t, p->folder, name)) return false;
  zp_push(p->arena, p->notes, zp_format(p->arena, "`%s` is not read: it is the model's `%s` once more", t->name, name));
  return true;
}

static void look_for_more_adapters(placer *p) {
  for (int i = 0; p->map->peft && i < p->map->peft->tensors.len; i++) {
    const zp_weight_tensor *t = &p->map->peft->tensors.data[i];
    if (!p->used_of_peft[i] && !is_copy_of_base(p, t))
      wrong(p, "too much: %s %s", t->name, zp_weight_shape(p->arena, t->rank, t->shape));
  }
}

static void report(const placer *p, zp_diags *diags, const zp_spec *spec) {
  const char *alongside = p->map->peft ? zp_format(p->arena, " and the adapters in %s", p->map->peft->path) : "";
  zp_diag *d = zp_report(diags, ZP_Z0694, spec->model->span, "the weights in %s%s are not those of this model",
                         p->folder->path, alongside);
  for (int i = 0; i < p->map->differences.len; i++) zp_diag_note(d, "%s", p->map->differences.data[i]);
  for (int i = 0; i < p->wrong.len && i < MOST_TOLD; i++) {
    const fault *f = &p->wrong.data[i];
    if (f->more == 0) zp_diag_note(d, "%s", f->text);
    if (f->more > 0) zp_diag_note(d, "%s, and %d more like it", f->text, f->more);
  }
  if (p->wrong.len > MOST_TOLD) zp_diag_note(d, "and %d kinds more", p->wrong.len - MOST_TOLD);
}

static void write_files(zp_json *files, const zp_weight_folder *folder) {
  for (int i = 0; i < folder->files.len; i++) {
    zp_json *file = zp_json_append(files, zp_json_object());
    zp_json_set_string(file, "path", folder->files.data[i].path);
    zp_json_set_int(file, "bytes", folder->files.data[i].bytes);
  }
}

static const char *text_of(placer *p) {
  zp_json *root = zp_json_object();
  zp_json_set_string(root, "format", "zplan-weights");
  zp_json_set_int(root, "version", 1);
  char *whole = realpath(p->folder->path, NULL);
  zp_json_set_string(root, "source", whole ? whole : p->folder->path);
  free(whole);
  zp_json *files = zp_json_set(root, "files", zp_json_array());
  write_files(files, p->folder);
  if (p->map->peft) write_files(files, p->map->peft);
  zp_json *drawn = p->map->drawn.len ? zp_json_set(root, "drawn", zp_json_array()) : NULL;
  for (int i = 0; i < p->map->drawn.len; i++) zp_json_append_string(drawn, p->map->drawn.data[i]);
  zp_json_set(root, "parts", p->parts);
  const char *text = zp_json_text(p->arena, root, false);
  zp_json_free(root);
  return text;
}

const char *zp_weights_place(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const zp_weight_map *map,
                             const zp_weight_folder *folder, zp_strings *notes) {
  placer p = {.arena = arena, .map = map, .folder = folder, .notes = notes, .parts = zp_json_array()};
  p.used = ZP_NEW_ARRAY(arena, bool, folder->tensors.len + 1);
  p.used_of_peft = ZP_NEW_ARRAY(arena, bool, map->peft ? map->peft->tensors.len + 1 : 1);
  const char *left_out = zp_weights_prefix_left_out(map, folder);
  for (int i = 0; i < map->tensors.len; i++) place(&p, &map->tensors.data[i], left_out);
  look_for_more(&p);
  look_for_more_adapters(&p);
  if (p.wrong.len == 0 && map->differences.len == 0) return text_of(&p);
  report(&p, diags, spec);
  zp_json_free(p.parts);
  return NULL;
}

zp_weight_map *zp_weights_map(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const char *library_dir,
                              const zp_weight_folder *folder, const zp_name_patterns *drawn) {
  if (folder->of_zplan) return zp_weights_map_own(arena, spec);
  size_t len;
  const char *error = NULL, *json = NULL;
  if (folder->config_path) json = zp_read_file(arena, folder->config_path, &len, &error);
  if (json) return zp_weights_map_hf(arena, diags, spec, library_dir, folder->config_path, json, len, drawn);
  zp_diag *d = zp_report(diags, ZP_Z0691, ZP_NO_SPAN, "%s",
                         error ? error : zp_format(arena, "%s has no config.json", folder->path));
  zp_diag_help(d, "the names of tensors and the heads of attention follow from it");
  return NULL;
}

const char *zp_weights_for(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const char *library_dir,
                           const char *path, const char *adapters, zp_strings *notes) {
  const zp_weight_folder *folder = zp_weights_open(arena, diags, path);
  zp_weight_map *map = folder ? zp_weights_map(arena, diags, spec, library_dir, folder, &spec->train.init.drawn) : NULL;
  if (map && !zp_weights_take_part(arena, diags, &spec->train.init, map, folder)) return NULL;
  if (map && adapters && !zp_weights_add_adapters(arena, diags, spec, map, adapters, notes)) return NULL;
  return map ? zp_weights_place(arena, diags, spec, map, folder, notes) : NULL;
}
