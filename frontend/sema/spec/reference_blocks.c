/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of the reference for blocks and calls: the tables of fields, followed from the three blocks of a file. */
#include "../reference_internal.h"
#include "spec_internal.h"

#include <ctype.h>
#include <zplan/decimal.h>

typedef struct walk {
  zp_arena *arena;
  zp_reference_pages *pages;
  ZP_VEC(const void *) seen; /* calls and tables of blocks that have a page: some stand in several places */
} walk;

/* ---- values ---- */

static const char *with_unit(zp_arena *arena, double value, double unit, const char *name) {
  return zp_format(arena, "%s%s", zp_decimal(arena, value / unit), name);
}

static const char *bytes_text(zp_arena *arena, int64_t bytes) {
  const int64_t gib = INT64_C(1) << 30;
  return bytes % gib == 0 && bytes ? with_unit(arena, (double)bytes, (double)gib, "GiB")
                                   : with_unit(arena, (double)bytes, 1e9, "GB");
}

static const char *word_text(zp_arena *arena, const zp_word *words, int value) {
  while (words->text && words->value != value) words++;
  return words->text ? zp_format(arena, "\"%s\"", words->text) : NULL;
}

/* What a field is in a struct, as it is written in a file. NULL: it cannot be written, or is not kept. */
static const char *stored_text(zp_arena *arena, const zp_field *field, const void *base) {
  static const union {
    zp_train train;
    zp_constraints plan;
    zp_cluster cluster;
    zp_node_type node;
    zp_device device;
  } zeros;
  if (!base) base = &zeros;
  const void *at = (const char *)base + field->offset;
  if (field->offset == ZP_CHECK_ONLY) return NULL;
  switch (field->kind) {
  case ZP_FIELD_BYTES: return bytes_text(arena, *(const int64_t *)at);
  case ZP_FIELD_RATE: return with_unit(arena, *(const double *)at, 1e9, "GB/s");
  case ZP_FIELD_SECONDS: return with_unit(arena, *(const double *)at, 1, "s");
  case ZP_FIELD_FLOPS: return with_unit(arena, *(const double *)at, 1e12, "TFLOPS");
  case ZP_FIELD_LENGTH: return with_unit(arena, *(const double *)at, 86400, "d");
  case ZP_FIELD_WATTS: return with_unit(arena, *(const double *)at, 1, "W");
  case ZP_FIELD_SHARE: return zp_format(arena, "%.12g%%", *(const double *)at * 100);
  case ZP_FIELD_INT: return zp_format(arena, "%d", *(const int *)at);
  case ZP_FIELD_INT64: return zp_format(arena, "%lld", (long long)*(const int64_t *)at);
  case ZP_FIELD_REAL: return zp_decimal(arena, *(const double *)at);
  case ZP_FIELD_BOOL: return *(const bool *)at ? "true" : "false";
  case ZP_FIELD_WORD: return word_text(arena, field->words, *(const int *)at);
  case ZP_FIELD_CUSTOM: return field->words && field->offset ? word_text(arena, field->words, *(const int *)at) : NULL;
  case ZP_FIELD_LIST: {
    zp_buf list = zp_buf_new(arena);
    for (int i = 0; i < field->n; i++)
      zp_buf_printf(&list, "%s%s", i ? ", " : "[",
                    zp_decimal(arena, *(const double *)(const void *)((const char *)base + field->each[i])));
    return zp_format(arena, "%s]", list.data);
  }
  default: return NULL;
  }
}

/* ---- columns ---- */

/* The value in `key = value`. */
static const char *value_of(const char *example) {
  const char *equals = strchr(example, '=');
  return equals ? equals + 1 + strspn(equals + 1, " ") : "";
}

static const char *type_of(zp_arena *arena, const zp_field *field) {
  char first = value_of(field->example)[0];
  switch (field->kind) {
  case ZP_FIELD_BYTES: return "size";
  case ZP_FIELD_RATE: return "rate";
  case ZP_FIELD_SECONDS: return "time";
  case ZP_FIELD_FLOPS: return "FLOP/s";
  case ZP_FIELD_LENGTH: return "time";
  case ZP_FIELD_WATTS: return "power";
  case ZP_FIELD_SHARE: return "share";
  case ZP_FIELD_INT:
  case ZP_FIELD_INT64: return "whole number";
  case ZP_FIELD_REAL: return "number";
  case ZP_FIELD_LIST: return zp_format(arena, "list of %d numbers", field->n);
  case ZP_FIELD_BOOL: return "true, false";
  case ZP_FIELD_STRING: return "text";
  case ZP_FIELD_WORD: return "word";
  case ZP_FIELD_BLOCK: return "block";
  default: break;
  }
  return field->words                            ? "word"
         : field->calls                          ? "call"
         : field->block                          ? "name or block"
         : first == '['                          ? "list"
         : first == '"'                          ? "text"
         : strchr(value_of(field->example), '%') ? "share"
         : isdigit((unsigned char)first)         ? "number"
         : strchr(value_of(field->example), '(') ? "call"
                                                 : "name";
}

static const char *words_of(zp_arena *arena, const zp_word *words) {
  zp_buf list = zp_buf_new(arena);
  for (const zp_word *w = words; w->text; w++) zp_buf_printf(&list, "%s\"%s\"", w == words ? "" : ", ", w->text);
  return list.data;
}

static const char *calls_of(zp_arena *arena, const zp_functions *calls) {
  zp_buf list = zp_buf_new(arena);
  for (int i = 0; i < calls->count; i++) zp_buf_printf(&list, "%s%s", i ? ", " : "", calls->data[i].name);
  return list.data;
}

static const char *range_of(zp_arena *arena, const zp_field *field) {
  if (field->words && field->kind != ZP_FIELD_BLOCK) return words_of(arena, field->words);
  if (field->calls) return calls_of(arena, field->calls);
  bool number = field->kind <= ZP_FIELD_LIST || (field->kind == ZP_FIELD_CUSTOM && field->range),
       ranged = number && zp_range_of(field) != ZP_RANGE_ANY;
  const char *range = ranged ? zp_range_text(zp_range_of(field)) : "";
  const char *plausible = number && zp_range_of(field) != ZP_RANGE_LATENCY ? zp_plausible_text(field->kind) : "";
  if (field->most > 0) plausible = zp_format(arena, "at most %.0f", field->most);
  return zp_format(arena, "%s%s%s", range, *range && *plausible ? ", " : "", plausible);
}

/* A value that the field refuses. */
static const char *refused_value(const zp_field *field) {
  static const char *const beyond[] = {
      [ZP_RANGE_ANY] = "\"no number\"", [ZP_RANGE_POSITIVE] = "0",   [ZP_RANGE_NOT_NEGATIVE] = "-1",
      [ZP_RANGE_BELOW_ONE] = "1",       [ZP_RANGE_FRACTION] = "1.5", [ZP_RANGE_ONE_OR_MORE] = "0",
      [ZP_RANGE_LATENCY] = "2",         [ZP_RANGE_INSIDE] = "1"};
  switch (field->kind) {
  case ZP_FIELD_BYTES: return "1000000GB";
  case ZP_FIELD_RATE: return "1000000000GB/s";
  case ZP_FIELD_SECONDS: return field->range == ZP_RANGE_LATENCY ? "2s" : "2000000s";
  case ZP_FIELD_FLOPS: return "10000000TFLOPS";
  case ZP_FIELD_LENGTH: return "40000d";
  case ZP_FIELD_WATTS: return "2MW";
  case ZP_FIELD_SHARE: return "150%";
  case ZP_FIELD_INT:
  case ZP_FIELD_INT64:
  case ZP_FIELD_REAL: return beyond[field->range];
  case ZP_FIELD_WORD: return "\"no such word\"";
  default: return field->kind == ZP_FIELD_CUSTOM ? "-1" : "5";
  }
}

/* "[optimizer]" of `offload[optimizer] = "cpu"`. */
static const char *index_of(zp_arena *arena, const char *example) {
  const char *open = strchr(example, '['), *equals = strchr(example, '=');
  if (!open || (equals && equals < open)) return "";
  return zp_strndup(arena, open, strcspn(open, "]") + 1);
}

static void add_row(walk *w, zp_reference_page *page, const zp_schema *schema, const zp_field *field) {
  zp_reference_row row = {.key = field->key, .meaning = field->meaning, .example = field->example};
  bool is_limit = schema == &zp_plan_schema && field->kind == ZP_FIELD_CUSTOM && !field->read;
  const char *stored = field->missing ? NULL : stored_text(w->arena, field, schema->unwritten);
  if (field->missing && field->missing[0] == '=') stored = field->missing + 1;
  row.unless = stored ? stored : field->missing ? field->missing : "none";
  if (stored) row.written = zp_format(w->arena, "%s%s = %s", field->key, index_of(w->arena, field->example), stored);
  row.type = type_of(w->arena, field);
  row.range = is_limit ? "" : range_of(w->arena, field);
  row.outside = field->outside ? field->outside : zp_format(w->arena, "%s = %s", field->key, refused_value(field));
  if (is_limit) zp_describe_limit(w->arena, field->key, &row.type, &row.range, &row.outside);
  zp_push(w->arena, &page->rows, row);
}

/* ---- pages ---- */

static bool is_seen(walk *w, const void *table) {
  for (int i = 0; i < w->seen.len; i++)
    if (w->seen.data[i] == table) return true;
  zp_push(w->arena, &w->seen, table);
  return false;
}

static void add_page(walk *w, const zp_schema *schema, const char *within, zp_reference_kind kind, const char *meaning,
                     const char *example);

/* All calls of a place are its own, also those that stand in one of them as well. */
static void add_calls(walk *w, const zp_functions *calls, const char *within) {
  bool *fresh = ZP_NEW_ARRAY(w->arena, bool, calls->count ? calls->count : 1);
  for (int i = 0; i < calls->count; i++) fresh[i] = !is_seen(w, &calls->data[i]);
  for (int i = 0; i < calls->count; i++) {
    const zp_function *f = &calls->data[i];
    if (fresh[i]) add_page(w, &f->schema, within, ZP_REFERENCE_CALL, f->meaning, f->example);
  }
}

static bool is_usable(const zp_field *field) {
  return field->kind != ZP_FIELD_REFUSED && field->kind != ZP_FIELD_FOREIGN;
}

static void add_page(walk *w, const zp_schema *schema, const char *within, zp_reference_kind kind, const char *meaning,
                     const char *example) {
  zp_reference_page page = {
      .name = schema->name, .within = within, .kind = kind, .meaning = meaning, .example = example};
  for (int i = 0; i < schema->count; i++)
    if (is_usable(&schema->fields[i])) add_row(w, &page, schema, &schema->fields[i]);
  zp_push(w->arena, w->pages, page);
  const char *path =
      *within && kind == ZP_REFERENCE_BLOCK ? zp_format(w->arena, "%s.%s", within, schema->name) : schema->name;
  for (int i = 0; i < schema->count; i++) {
    const zp_field *f = &schema->fields[i];
    const char *place = zp_format(w->arena, "%s.%s", path, f->key);
    zp_functions optimizers = {0};
    if (schema == &zp_train_schema && strcmp(f->key, "optimizer") == 0) optimizers = zp_optimizer_calls(w->arena);
    add_calls(w, &optimizers, place);
    if (f->calls) add_calls(w, f->calls, place);
    if (f->block && !is_seen(w, f->block->fields))
      add_page(w, f->block, path, ZP_REFERENCE_BLOCK, f->meaning, f->example);
  }
}

void zp_reference_blocks(zp_arena *arena, zp_reference_pages *pages) {
  walk w = {.arena = arena, .pages = pages};
  add_page(&w, &zp_train_schema, "", ZP_REFERENCE_BLOCK, "the training: model, data, length, optimizer",
           "train { model = tiny  data = text(\"text.txt\")  batch = 16  steps = 2000  optimizer = adamw(lr = 6e-4) }");
  add_page(&w, &zp_plan_schema, "", ZP_REFERENCE_BLOCK,
           "limits of the search: `=`, `<=`, `>=`, `<`, `>` or `in [...]`; what is not limited it chooses",
           "plan { tensor <= 8  zero in [0, 1]  recompute = \"auto\" }");
  add_page(&w, &zp_cluster_schema, "", ZP_REFERENCE_BLOCK, "the machine",
           "cluster mine { nodes = 4  node = std.hw.dgx_a100 }");
}
