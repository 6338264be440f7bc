/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns of block-sparse attention: `sparse.fixed(...)` and its like, read by a table of their arguments. What
 * depends on the sequence is checked by the op's rule. */
#include <zplan/sparse.h>
#include "elaborate.h"
#include "reference_internal.h"

static const char prefix[] = "sparse.";

typedef enum argument_kind {
  COUNT, /* a whole number of at least `least` */
  LIST,  /* whole numbers of at least `least` */
  FLAG,  /* true or false */
} argument_kind;

typedef struct argument {
  const char *name;
  argument_kind kind;
  size_t offset;          /* in zp_sparse */
  int64_t least, missing; /* LIST: [missing] */
} argument;

#define COUNTED(name, least, missing)                                                                                  \
  { #name, COUNT, offsetof(zp_sparse, name), least, missing }
#define LISTED(name, field, least, missing)                                                                            \
  { name, LIST, offsetof(zp_sparse, field), least, missing }
#define BLOCK COUNTED(block, 1, 64)
#define RANDOM(missing) COUNTED(random, 0, missing), COUNTED(seed, 0, 0)
#define HORIZONTAL                                                                                                     \
  { "horizontal", FLAG, offsetof(zp_sparse, horizontal), 0, false }

/* Defaults are DeepSpeed's but for the block, which is 16 there. */
enum { MAX_ARGUMENTS = 7 };
static const argument arguments[][MAX_ARGUMENTS] = {
    [ZP_SPARSE_FIXED] = {BLOCK, COUNTED(local, 1, 4), COUNTED(global, 1, 1), COUNTED(patterns, 1, 1), HORIZONTAL},
    [ZP_SPARSE_VARIABLE] = {BLOCK, LISTED("windows", windows, 1, 4), LISTED("global", globals, 0, 0), RANDOM(0),
                            HORIZONTAL},
    [ZP_SPARSE_SLIDING] = {BLOCK, COUNTED(window, 1, 3)},
    [ZP_SPARSE_BIGBIRD] = {BLOCK, COUNTED(window, 1, 3), COUNTED(global, 0, 1), RANDOM(1)},
    [ZP_SPARSE_LONGFORMER] = {BLOCK, COUNTED(window, 1, 3), LISTED("global", globals, 0, 0)},
    [ZP_SPARSE_STRIDED] = {BLOCK, COUNTED(local, 1, 4), COUNTED(stride, 1, 4)},
};
enum { N_KINDS = sizeof arguments / sizeof *arguments };

bool zp_is_sparse(const char *name) { return strncmp(name, prefix, strlen(prefix)) == 0; }

static bool whole(const zp_value *value, int64_t least, int64_t *number) {
  *number = (int64_t)value->number;
  return value->kind == ZP_VAL_NUMBER && value->dimension == ZP_DIM_NONE && value->is_integer &&
         value->number >= (double)least && value->number <= INT32_MAX;
}

static bool reject(zp_elab *e, const zp_value *value, const argument *arg, const char *what) {
  if (value->kind != ZP_VAL_POISON)
    zp_report(e->diags, value->kind == ZP_VAL_NUMBER ? ZP_Z0237 : ZP_Z0202, value->span,
              "`%s` must be %s of at least %lld, this is %s", arg->name, what, (long long)arg->least,
              zp_value_text(e->arena, value));
  return false;
}

static bool read_list(zp_elab *e, const argument *arg, const zp_slot *slot, zp_ints *list) {
  static const char what[] = "a list of whole numbers";
  if (!slot->given) {
    zp_push(e->arena, list, (int)arg->missing);
    return true;
  }
  if (slot->value.kind != ZP_VAL_LIST) return reject(e, &slot->value, arg, what);
  for (int i = 0; i < slot->value.list.len; i++) {
    int64_t number;
    if (!whole(&slot->value.list.data[i], arg->least, &number)) return reject(e, &slot->value.list.data[i], arg, what);
    zp_push(e->arena, list, (int)number);
  }
  return true;
}

static bool read_argument(zp_elab *e, const argument *arg, const zp_slot *slot, zp_sparse *sparse) {
  void *field = (char *)sparse + arg->offset;
  if (arg->kind == FLAG) return zp_slot_bool(e, slot, arg->name, arg->missing, field);
  if (arg->kind == LIST) return read_list(e, arg, slot, field);
  *(int64_t *)field = arg->missing;
  return !slot->given || whole(&slot->value, arg->least, field) || reject(e, &slot->value, arg, "a whole number");
}

/* What goes together, of arguments that are right by themselves; NULL: all. */
static const char *contradiction(zp_elab *e, const zp_sparse *s) {
  if (s->block % ZP_SPARSE_UNIT)
    return zp_format(e->arena, "`block` must be a multiple of %d, this is %lld", ZP_SPARSE_UNIT, (long long)s->block);
  if (s->window && s->window % 2 == 0)
    return zp_format(e->arena, "`window` is centred on a block, so it must be odd, this is %lld", (long long)s->window);
  if (s->kind == ZP_SPARSE_FIXED && s->global > s->local)
    return zp_format(e->arena, "`global` is %lld of `local` = %lld blocks", (long long)s->global, (long long)s->local);
  if (s->kind == ZP_SPARSE_FIXED && s->patterns * s->global > s->local)
    return zp_format(e->arena, "%lld `patterns` of `global` = %lld blocks need as many blocks, `local` is %lld",
                     (long long)s->patterns, (long long)s->global, (long long)s->local);
  if (s->kind == ZP_SPARSE_VARIABLE && s->windows.len == 0) return "`windows` must have a size at least";
  return NULL;
}

/* Places of a pattern's arguments. */
static int argument_names(zp_sparse_kind kind, const char **names) {
  int count = 0;
  while (count < MAX_ARGUMENTS && arguments[kind][count].name) {
    names[count] = arguments[kind][count].name;
    count++;
  }
  return count;
}

static bool read_pattern(zp_elab *e, const zp_expr *call, zp_sparse_kind kind, zp_value *value) {
  const char *names[MAX_ARGUMENTS], *callee = zp_format(e->arena, "%s%s", prefix, zp_sparse_name(kind));
  int count = argument_names(kind, names);
  zp_slot slots[MAX_ARGUMENTS] = {0};
  zp_sparse *sparse = ZP_NEW(e->arena, zp_sparse);
  sparse->kind = kind;
  if (!zp_elab_collect(e, call, callee, names, count, slots)) return false;
  for (int i = 0; i < count; i++)
    if (!read_argument(e, &arguments[kind][i], &slots[i], sparse)) return false;
  const char *why = contradiction(e, sparse);
  if (why) zp_report(e->diags, ZP_Z0237, call->span, "%s", why);
  *value = (zp_value){.kind = ZP_VAL_PATTERN, .sparse = sparse, .span = call->span};
  return why == NULL;
}

bool zp_elab_sparse(zp_elab *e, const zp_expr *call, const char *name, zp_value *value) {
  const char *word = name + strlen(prefix), *names[N_KINDS], *list = "";
  for (int kind = 0; kind < N_KINDS; kind++) {
    names[kind] = zp_sparse_name((zp_sparse_kind)kind);
    if (strcmp(names[kind], word) == 0) return read_pattern(e, call, (zp_sparse_kind)kind, value);
    list = zp_format(e->arena, "%s%s`%s%s`", list, kind ? ", " : "", prefix, names[kind]);
  }
  zp_diag *d = zp_report(e->diags, ZP_Z0215, call->at, "no pattern of attention is called `%s`", name);
  if (!zp_diag_did_you_mean(d, word, names, N_KINDS)) zp_diag_help(d, "patterns are %s", list);
  return false;
}

bool zp_slot_sparse(zp_elab *e, const zp_slot *slot, const char *name, const zp_sparse **sparse) {
  *sparse = slot->given ? slot->value.sparse : NULL;
  if (!slot->given || slot->value.kind == ZP_VAL_PATTERN) return true;
  if (slot->value.kind == ZP_VAL_POISON) return false;
  zp_diag *d = zp_report(e->diags, ZP_Z0202, slot->value.span, "`%s` must be a pattern of attention, this is %s", name,
                         zp_value_kind_name(&slot->value));
  zp_diag_help(d, "for instance `%s = sparse.sliding(block = 64, window = 3)`", name);
  return false;
}

/* ---- the reference ---- */

static const struct {
  const char *name, *meaning;
} argument_words[] = {
    {"block", "positions on a side of a block"},
    {"local", "blocks of a local window"},
    {"global", "blocks that all see: their number, or a list of which"},
    {"patterns", "different choices of global blocks, over the heads"},
    {"horizontal", "global blocks also see all"},
    {"windows", "blocks of the local windows, one after the other; the last is repeated"},
    {"random", "blocks drawn at random for every row of blocks"},
    {"seed", "seed of the draw"},
    {"window", "blocks around the diagonal, an odd number"},
    {"stride", "blocks from one column that all see to the next"},
};

static const char *const pattern_words[] = {
    [ZP_SPARSE_FIXED] = "local windows and fixed global blocks (Sparse Transformer)",
    [ZP_SPARSE_VARIABLE] = "local windows of several sizes, global and random blocks",
    [ZP_SPARSE_SLIDING] = "a window around the diagonal",
    [ZP_SPARSE_BIGBIRD] = "a window, global and random blocks (BigBird)",
    [ZP_SPARSE_LONGFORMER] = "a window and global blocks (Longformer)",
    [ZP_SPARSE_STRIDED] = "a local window and every so many columns (Sparse Transformer)",
};

static zp_reference_row row_of(zp_arena *arena, const argument *arg) {
  zp_reference_row row = {.key = arg->name, .range = "", .meaning = "", .example = arg->name};
  const char *missing = zp_format(arena, "%lld", (long long)arg->missing);
  for (size_t i = 0; i < sizeof argument_words / sizeof *argument_words; i++)
    if (strcmp(argument_words[i].name, arg->name) == 0) row.meaning = argument_words[i].meaning;
  row.type = arg->kind == COUNT ? "whole number" : arg->kind == LIST ? "list of whole numbers" : "true, false";
  row.unless = arg->kind == COUNT  ? missing
               : arg->kind == LIST ? zp_format(arena, "[%s]", missing)
               : arg->missing      ? "true"
                                   : "false";
  if (arg->kind != FLAG) row.range = zp_format(arena, "%lld or more", (long long)arg->least);
  row.written = zp_format(arena, "%s = %s", arg->name, row.unless);
  row.outside = zp_format(arena, arg->kind == FLAG ? "%s = 5" : arg->kind == LIST ? "%s = [-1]" : "%s = -1", arg->name);
  return row;
}

void zp_reference_sparse(zp_arena *arena, zp_reference_pages *pages) {
  for (int kind = 0; kind < N_KINDS; kind++) {
    const char *name = zp_format(arena, "%s%s", prefix, zp_sparse_name((zp_sparse_kind)kind));
    zp_reference_page page = {
        .name = name,
        .within = "attention.pattern",
        .kind = ZP_REFERENCE_OPERATION,
        .meaning = pattern_words[kind],
        .example = zp_format(arena, "y = attention(x, x, x, heads = 2, pattern = %s(block = 16))", name)};
    for (int i = 0; i < MAX_ARGUMENTS && arguments[kind][i].name; i++) {
      zp_reference_row row = row_of(arena, &arguments[kind][i]);
      zp_push(arena, &page.rows, row);
    }
    zp_push(arena, pages, page);
  }
}
