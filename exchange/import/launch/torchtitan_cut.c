/* SPDX-License-Identifier: Apache-2.0 */
/* Where a launch of torchtitan cuts the model: modules of every part by name, layers at which parts begin, else parts
 * of equal size. */
#include "torchtitan.h"

#include <ctype.h>
#include <stdlib.h>

enum { MOST_PARTS = 4096 };

static const char of_parts[] = "parallelism.module_fqns_per_model_part";
static const char of_points[] = "parallelism.pipeline_parallel_split_points";

static int64_t chunks_of(config *d, int64_t pipeline) {
  launch *l = d->l;
  const char *path = "parallelism.pipeline_parallel_layers_per_stage";
  if (!config_has(d, path) || l->model.layers == 0) return 2; /* pipelining: two stages a rank */
  int64_t size = config_int(d, path, 1, 1, MOST_RANKS);
  int64_t units = l->model.layers + config_int(d, "parallelism.pipeline_parallel_first_stage_less_layers", 1, 0, 1000) +
                  config_int(d, "parallelism.pipeline_parallel_last_stage_less_layers", 1, 0, 1000);
  int64_t stages = (units + size - 1) / size;
  if (stages % pipeline == 0) return stages / pipeline;
  launch_complain(l, config_at(d, path), "%lld stages of %lld layers are no multiple of pipeline_parallel_degree %lld",
                  (long long)stages, (long long)size, (long long)pipeline);
  return 1;
}

/* ---- parts of equal size ---- */

/* torchtitan divides layers evenly, the first stages have one more where they do not divide, and the embedding and the
 * head count as so many layers of the first and the last stage. Where these numbers do not say it, the search cuts. */
static void equal_parts(config *d, int64_t pipeline, int64_t chunks) {
  launch *l = d->l;
  const char *first_less = "parallelism.pipeline_parallel_first_stage_less_layers";
  const char *last_less = "parallelism.pipeline_parallel_last_stage_less_layers";
  int64_t stages = pipeline * chunks,
          less[] = {config_int(d, first_less, 1, 0, 1000), config_int(d, last_less, 1, 0, 1000)};
  int64_t units = l->model.layers + less[0] + less[1];
  if (l->model.layers == 0) {
    launch_pin(l, "cut", "\"layer\"", "the plan cuts stages between layers where it finds best");
    return;
  }
  int64_t each = units / stages; /* at least */
  for (int i = 0; i < 2; i++)
    if (less[i] > each || each == 0) {
      launch_complain(
          l, config_at(d, i ? last_less : first_less),
          "%lld layers less than the others in a stage of %lld, as %lld stages of %lld layers have at least",
          (long long)less[i], (long long)each, (long long)stages, (long long)units);
      return;
    }
  int64_t *layers = ZP_NEW_ARRAY(l->arena, int64_t, stages);
  for (int64_t s = 0; s < stages; s++)
    layers[s] = each + (s < units % stages) - (s == 0 ? less[0] : 0) - (s == stages - 1 ? less[1] : 0);
  launch_pin_cut(l, layers, stages,
                 config_has(d, first_less)  ? config_from(d, first_less)
                 : config_has(d, last_less) ? config_from(d, last_less)
                                            : "stages of equal size, embedding and head counted as a layer each");
}

/* ---- modules by name ---- */

typedef ZP_VEC(int64_t) parts; /* layers of every part */

/* The text in an element of a list; NULL: it is none. The reader of TOML puts elements into objects. */
static const char *text_of(const zp_json *element) {
  return zp_json_string(zp_json_is_object(element) ? zp_json_get(element, "value") : element, NULL);
}

static const zp_json *list_of(const zp_json *element) {
  const zp_json *list = element && zp_json_is_object(element) ? zp_json_get(element, "value") : element;
  return list && zp_json_is_array(list) ? list : NULL;
}

/* N of "layers.N"; -1: another name. */
static int64_t layer_of(const char *name) {
  static const char begin[] = "layers.";
  size_t n = sizeof begin - 1;
  if (strncmp(name, begin, n) != 0 || !isdigit((unsigned char)name[n])) return -1;
  char *end = NULL;
  long long layer = strtoll(name + n, &end, 10);
  return *end || layer >= MOST_RANKS ? -1 : layer;
}

/* Takes a module into the last part. false after complaining. A plan has the table of tokens in its first part, and
 * norm and head in its last. */
static bool take_module(config *d, parts *to, const char *name, int64_t *next, bool last) {
  launch *l = d->l;
  int64_t layer = name ? layer_of(name) : -1;
  if (layer >= 0 && layer == *next) {
    ++*next;
    to->data[to->len - 1]++;
    return true;
  }
  bool first = to->len == 1;
  if (name && ((strcmp(name, "tok_embeddings") == 0 && first) || (launch_among("norm output lm_head", name) && last)))
    return true;
  if (layer >= 0)
    launch_complain(l, config_at(d, of_parts), "`%s` has `layers.%lld` where `layers.%lld` comes next", of_parts,
                    (long long)layer, (long long)*next);
  else
    launch_refuse(l, config_at(d, of_parts),
                  "`%s` has `%s` in part %d: a plan has tok_embeddings in its first part, norm and output in its last, "
                  "and no other modules than layers",
                  of_parts, name ? name : "no text", to->len);
  return false;
}

static bool read_parts(config *d, parts *to) {
  const zp_json *all = config_value(d, of_parts);
  int count = all && zp_json_is_array(all) ? zp_json_count(all) : 0;
  int64_t next = 0;
  if (count == 0 || count > MOST_PARTS) {
    launch_complain(d->l, config_at(d, of_parts), "`%s` is no list of lists of modules", of_parts);
    return false;
  }
  for (int k = 0; k < count; k++) {
    const zp_json *part = list_of(zp_json_at(all, k));
    if (!part) {
      launch_complain(d->l, config_at(d, of_parts), "part %d of `%s` is no list of modules", k + 1, of_parts);
      return false;
    }
    zp_push(d->l->arena, to, 0);
    for (int i = 0; i < zp_json_count(part); i++)
      if (!take_module(d, to, text_of(zp_json_at(part, i)), &next, k + 1 == count)) return false;
  }
  return true;
}

/* Layers at which parts begin after the first one: a list, or in a word of the command line with commas between. */
static bool read_points(config *d, int64_t all, parts *to) {
  const zp_json *points = config_value(d, of_points);
  zp_strings names = {0};
  if (zp_json_is_array(points))
    for (int i = 0; i < zp_json_count(points); i++) zp_push(d->l->arena, &names, text_of(zp_json_at(points, i)));
  else
    for (const char *at = zp_json_string(points, ""); *at; at += strspn(at, ",")) {
      size_t n = strcspn(at, ",");
      zp_push(d->l->arena, &names, zp_strndup(d->l->arena, at, n));
      at += n;
    }
  if (names.len >= MOST_PARTS) {
    launch_complain(d->l, config_at(d, of_points), "`%s` has %d layers, more than %d", of_points, names.len,
                    MOST_PARTS - 1);
    return false;
  }
  int64_t begin = 0;
  for (int i = 0; i < names.len; i++) {
    int64_t layer = names.data[i] ? layer_of(names.data[i]) : -1;
    if (layer <= begin || layer >= all) {
      launch_complain(d->l, config_at(d, of_points), "`%s` has `%s`, no layer from layers.%lld to layers.%lld",
                      of_points, names.data[i] ? names.data[i] : "no text", (long long)begin + 1, (long long)all - 1);
      return false;
    }
    zp_push(d->l->arena, to, layer - begin);
    begin = layer;
  }
  zp_push(d->l->arena, to, all - begin);
  return true;
}

/* Pins the layers of parts that are named. `several`: the schedule has more than one a rank. */
static void named_parts(config *d, int64_t pipeline, bool several, const char *path) {
  launch *l = d->l;
  int64_t all = l->model.layers ? l->model.layers : launch_layers(l), sum = 0;
  parts named = {0};
  if (!(path == of_parts ? read_parts(d, &named) : read_points(d, all, &named))) return;
  for (int k = 0; k < named.len; k++) {
    sum += named.data[k];
    if (named.data[k] == 0) {
      launch_refuse(l, config_at(d, path), "part %d of `%s` has no layers: a plan's parts have some", k + 1, path);
      return;
    }
  }
  if (sum != all) {
    launch_complain(l, config_at(d, path), "`%s` has %lld layers, the model has %lld", path, (long long)sum,
                    (long long)all);
    return;
  }
  int64_t chunks = named.len / pipeline;
  if (named.len % pipeline != 0 || (several ? chunks < 2 : chunks != 1)) {
    launch_complain(l, config_at(d, path), "`%s` has %d parts, which %lld stages of that schedule do not have", path,
                    named.len, (long long)pipeline);
    return;
  }
  if (several) launch_pin_int(l, "chunks", chunks, zp_format(l->arena, "%d parts of %s", named.len, path));
  launch_pin_cut(l, named.data, named.len, path);
}

void torchtitan_cut(config *d, int64_t pipeline, bool several) {
  const char *path = config_has(d, of_parts) ? of_parts : config_has(d, of_points) ? of_points : NULL;
  if (path) {
    named_parts(d, pipeline, several, path);
    return;
  }
  int64_t chunks = several ? chunks_of(d, pipeline) : 1;
  if (several) launch_pin_int(d->l, "chunks", chunks, config_from(d, "parallelism.pipeline_parallel_layers_per_stage"));
  equal_parts(d, pipeline, chunks);
}
