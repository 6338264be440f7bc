/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors that a checkpoint of a model has, and where their elements stand in the model's parameters.
 *
 * Hugging Face: config.json -> .dz text (exchange/import) -> a model, which is matched with the user's. Its parameters
 * are named as in checkpoints, which know nothing of adapters, and exchange/import says how each stands in one; here
 * that is carried over to the user's parameters, of which one may be a part of theirs, or hold several. */
#include "weights_internal.h"

#include <assert.h>
#include <zplan/buf.h>

typedef struct mapper {
  zp_arena *arena;
  const zp_model *ours, *theirs;
  zp_param_matches matches;
  zp_weight_map *map;
} mapper;

static int64_t elements_of(const int64_t *extents, int n) {
  int64_t all = 1;
  for (int k = 0; k < n; k++) all *= extents[k];
  return all;
}

/* Elements [low, high) of a part alone. They are whole rows of it, so that one cut suffices in every dimension. */
static void slice(zp_weight_part *p, int64_t low, int64_t high) {
  for (;;) {
    int64_t inner = elements_of(p->extents + 1, p->n - 1), index = low / inner;
    p->from += index * p->strides[0];
    if (low % inner == 0 && high % inner == 0) {
      p->extents[0] = (high - low) / inner;
      return;
    }
    assert(index == (high - 1) / inner && p->n > 1);
    low -= index * inner;
    high -= index * inner;
    p->n--;
    memmove(p->extents, p->extents + 1, sizeof *p->extents * (size_t)p->n);
    memmove(p->strides, p->strides + 1, sizeof *p->strides * (size_t)p->n);
  }
}

/* From [out, in] to [in, out]: the dimensions that make the rows go after those of the columns. */
static void turn(zp_weight_part *p, int64_t rows) {
  int split = 0;
  for (int64_t done = 1; done < rows; split++) done *= p->extents[split];
  zp_weight_part old = *p;
  for (int k = 0; k < p->n; k++) {
    p->extents[k] = old.extents[(split + k) % p->n];
    p->strides[k] = old.strides[(split + k) % p->n];
  }
}

/* What of a tensor of theirs lies in the rows of a match. */
static void push_part(mapper *m, zp_mapped_tensor *tensor, const zp_hf_part *part, const zp_param_match *match,
                      int64_t iteration) {
  const zp_param *ours = &m->ours->params.data[match->ours], *theirs = &m->theirs->params.data[match->theirs];
  int64_t row = zp_shape_elements(&theirs->shape, 1) / theirs->shape.dim[0];
  int64_t begin = match->turned ? 0 : match->their_row * row, count = elements_of(part->extents, part->n);
  int64_t end = match->turned ? zp_shape_elements(&theirs->shape, 1) : begin + match->rows * row;
  int64_t low = begin > part->begin ? begin : part->begin, high = end < part->begin + count ? end : part->begin + count;
  if (low >= high) return;
  zp_weight_part p = {.ours = zp_param_instance_name(m->arena, ours, iteration), .param = ours->name, .n = part->n};
  memcpy(p.extents, part->extents, sizeof part->extents);
  memcpy(p.strides, part->strides, sizeof part->strides);
  slice(&p, low - part->begin, high - part->begin);
  p.begin = match->our_row * row + low - begin;
  if (match->turned) turn(&p, match->rows);
  zp_push(m->arena, &tensor->parts, p);
}

static void map_param(mapper *m, int theirs, int64_t iteration) {
  const zp_param *param = &m->theirs->params.data[theirs];
  zp_hf_param p = {.name = zp_param_instance_name(m->arena, param, iteration), .rank = param->shape.rank};
  for (int k = 0; k < p.rank; k++) p.shape[k] = param->shape.dim[k];
  zp_hf_parts parts = zp_hf_parts_of(m->arena, m->map->imported, &p);
  for (int i = 0; i < parts.len; i++) {
    zp_mapped_tensor tensor = {.name = parts.data[i].name, .rank = parts.data[i].rank};
    memcpy(tensor.shape, parts.data[i].shape, sizeof tensor.shape);
    for (int k = 0; k < m->matches.len; k++)
      if (m->matches.data[k].theirs == theirs) push_part(m, &tensor, &parts.data[i], &m->matches.data[k], iteration);
    zp_push(m->arena, &m->map->tensors, tensor);
  }
}

static int64_t iterations_of(const zp_model *model, const zp_param *param) {
  return param->segment < 0 ? 1 : model->segments.data[param->segment].count;
}

/* ---- sizes ---- */

/* Rows of a parameter, ours or theirs, that matches hold. */
static int64_t matched_rows(const mapper *m, int param, bool ours) {
  int64_t rows = 0;
  for (int i = 0; i < m->matches.len; i++) {
    const zp_param_match *f = &m->matches.data[i];
    if ((ours ? f->ours : f->theirs) == param) rows += f->rows;
  }
  return rows;
}

/* "`wte` is [256, 128], config.json says [512, 128]", of all parameters and of the number of layers. */
static zp_strings other_sizes(const mapper *m, const zp_name_patterns *drawn, const char *path) {
  zp_strings found = {0};
  for (int s = 0; s < m->ours->segments.len; s++) {
    const zp_segment *a = &m->ours->segments.data[s], *b = &m->theirs->segments.data[s];
    if (a->count != b->count)
      zp_push(m->arena, &found,
              zp_format(m->arena, "`%s` is repeated %lld times here, and %lld times by %s", a->name,
                        (long long)a->count, (long long)b->count, path));
  }
  for (int i = 0; i < m->matches.len; i++) {
    const zp_param_match *f = &m->matches.data[i];
    const zp_param *a = &m->ours->params.data[f->ours], *b = &m->theirs->params.data[f->theirs];
    if (drawn && zp_matches_some(drawn, a->name)) continue;
    int64_t x = zp_shape_elements(&a->shape, 1), y = zp_shape_elements(&b->shape, 1);
    int64_t our_rows = f->turned ? a->shape.dim[1] : a->shape.dim[0], their_rows = b->shape.dim[0];
    /* A layer and a part of one have as many columns, and parts make up all of it. */
    bool whole = f->our_row == 0 && f->their_row == 0 && our_rows == their_rows;
    bool good = x / our_rows == y / their_rows && x == x / our_rows * our_rows &&
                matched_rows(m, f->ours, true) == our_rows && matched_rows(m, f->theirs, false) == their_rows;
    if (whole && !f->turned) good = zp_shape_equal(&a->shape, &b->shape);
    if (!good)
      zp_push(m->arena, &found,
              zp_format(m->arena, "`%s` is %s here, and `%s` is %s by %s", a->name, zp_shape_text(m->arena, &a->shape),
                        b->name, zp_shape_text(m->arena, &b->shape), path));
  }
  return found;
}

static bool same_sizes(const mapper *m, zp_diags *diags, const zp_name_patterns *drawn, const char *path) {
  enum { MOST = 24 };
  zp_strings found = other_sizes(m, drawn, path);
  if (found.len == 0) return true;
  zp_diag *d = zp_report(diags, ZP_Z0694, m->ours->span, "the model has other sizes than %s", path);
  for (int i = 0; i < found.len && i < MOST; i++) zp_diag_note(d, "%s", found.data[i]);
  if (found.len > MOST) zp_diag_note(d, "and %d more", found.len - MOST);
  zp_diag_help(d, "`zplan import hf %s` writes the model that it means", path);
  return false;
}

/* ---- Hugging Face ---- */

static const zp_model *model_of(zp_arena *arena, zp_diags *diags, const zp_imported *imported, const zp_model *ours,
                                const char *library_dir, const char *path) {
  const char *set = zp_format(arena, "model.S=%lld", (long long)ours->sequence);
  zp_source_text source = {.path = "imported.dz", .text = imported->text, .len = strlen(imported->text)};
  zp_load_options options = {.set = &set, .n_set = 1, .library_dir = library_dir, .model_only = true};
  zp_diags *own = zp_diags_new(arena);
  const zp_spec *spec = zp_load(arena, own, source.path, &source, 1, &options);
  if (spec && zp_diags_errors(own) == 0) return spec->model;
  zp_diag *d = zp_report(diags, ZP_Z0684, ZP_NO_SPAN, "%s means a model that cannot be written for samples of %lld",
                         path, (long long)ours->sequence);
  zp_diag_help(d, "`zplan import hf %s` and `zplan check` say what it lacks", path);
  return NULL;
}

/* The model with another head of its family, where that one is the user's: a fine-tuning begins with what stands below.
 * False: none is. */
static bool try_heads(mapper *m, const char *library_dir, const char *path, const char *json, size_t len) {
  zp_diags *quiet = zp_diags_new(m->arena);
  int as_written = zp_hf_head(m->map->imported), heads = zp_hf_heads(m->map->imported);
  for (int head = 0; head < heads; head++) {
    if (head == as_written) continue;
    const zp_imported *imported = zp_import_hf_head(m->arena, quiet, path, json, len, head);
    if (imported && zp_hf_longest(imported) && m->ours->sequence > zp_hf_longest(imported)) continue;
    const zp_model *theirs = imported ? model_of(m->arena, quiet, imported, m->ours, library_dir, path) : NULL;
    if (!theirs) continue;
    zp_model_difference difference;
    zp_param_matches matches = zp_match_models(m->arena, m->ours, theirs, path, &difference);
    if (difference.text) continue;
    m->map->imported = imported;
    m->theirs = theirs;
    m->matches = matches;
    return true;
  }
  return false;
}

zp_weight_map *zp_weights_map_hf(zp_arena *arena, zp_diags *diags, const zp_spec *spec, const char *library_dir,
                                 const char *path, const char *json, size_t len, const zp_name_patterns *drawn) {
  mapper m = {.arena = arena, .ours = zp_spec_base(spec), .map = ZP_NEW(arena, zp_weight_map)};
  m.map->imported = zp_import_hf_weights(arena, diags, path, json, len);
  if (!m.map->imported) return NULL;
  zp_model_difference difference = {NULL, m.ours->span};
  m.theirs = model_of(arena, zp_diags_new(arena), m.map->imported, m.ours, library_dir, path);
  if (m.theirs) m.matches = zp_match_models(arena, m.ours, m.theirs, path, &difference);
  bool same = m.theirs && !difference.text;
  if (!same && !try_heads(&m, library_dir, path, json, len)) {
    if (!m.theirs) return model_of(arena, diags, m.map->imported, m.ours, library_dir, path), NULL; /* tells why */
    bool of_library = zp_diags_in_library(diags, difference.span); /* a place there would not help */
    zp_diag *d = zp_report(diags, ZP_Z0693, of_library ? m.ours->span : difference.span,
                           "the model computes something else than that of %s", path);
    zp_diag_label(d, "%s", difference.text);
    zp_diag_help(d, "`zplan import hf %s` writes the model that it means", path);
    return NULL;
  }
  if (!same_sizes(&m, diags, drawn, path)) return NULL;
  for (int i = 0; i < m.theirs->params.len; i++)
    for (int64_t n = 0; n < iterations_of(m.theirs, &m.theirs->params.data[i]); n++) map_param(&m, i, n);
  return m.map;
}

/* ---- zplan ---- */

zp_weight_map *zp_weights_map_own(zp_arena *arena, const zp_spec *spec) {
  zp_weight_map *map = ZP_NEW(arena, zp_weight_map);
  for (int i = 0; i < spec->model->params.len; i++) {
    const zp_param *param = &spec->model->params.data[i];
    for (int64_t n = 0; n < iterations_of(spec->model, param); n++) {
      const char *name = zp_param_instance_name(arena, param, n);
      zp_mapped_tensor tensor = {
          .name = name, .rank = param->shape.rank, .optional = zp_model_is_adapter(spec->model, i)};
      for (int k = 0; k < tensor.rank; k++) tensor.shape[k] = param->shape.dim[k];
      zp_weight_part part = {
          .ours = name, .param = param->name, .n = 1, .extents = {zp_shape_elements(&param->shape, 1)}, .strides = {1}};
      zp_push(arena, &tensor.parts, part);
      zp_push(arena, &map->tensors, tensor);
    }
  }
  return map;
}
