/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes of operations as a table, and the hash of a node that is made with it. */
#include <assert.h>
#include <stddef.h>
#include <zplan/hash.h>
#include "graph_internal.h"

typedef enum attr_kind { END_OF_GROUP, NUMBER, COUNT, SET, CONTENT, NONE } attr_kind;

/* size: of the attribute, of CONTENT what it points to. */
typedef struct attribute {
  attr_kind kind;
  int place;
  size_t offset, size;
} attribute;

enum { NUMBERS = 9, COUNTS = 23, MOST_OF_A_GROUP = 14 }; /* with its end */

#define SIZE_NUMBER(name) sizeof(((zp_op_attr *)0)->name)
#define SIZE_COUNT SIZE_NUMBER
#define SIZE_SET SIZE_NUMBER
#define SIZE_NONE SIZE_NUMBER
#define SIZE_CONTENT(name) sizeof(*((zp_op_attr *)0)->name)

/* clang-format off */
static const attribute groups[ZP_ATTRS_COUNT][MOST_OF_A_GROUP] = {
  [ZP_ATTRS_NONE] = {
#define COMMON(type, name, kind, place) {kind, place, offsetof(zp_op_attr, name), SIZE_##kind(name)},
#define GROUP(id)
#define OWN(...)
#define END
#include <zplan/attributes.def>
    {END_OF_GROUP, 0, 0, 0},
  },
#define COMMON(...)
#define GROUP(id) [ZP_ATTRS_##id] = {
#define OWN(type, name, kind, place) {kind, place, offsetof(zp_op_attr, name), SIZE_##kind(name)},
#define END {END_OF_GROUP, 0, 0, 0} },
#include <zplan/attributes.def>
};
/* clang-format on */

static int64_t count_at(const char *at, size_t size) {
  if (size == sizeof(bool)) return *(const bool *)at;
  if (size == sizeof(int)) return *(const int *)(const void *)at;
  assert(size == sizeof(int64_t));
  return *(const int64_t *)(const void *)at;
}

/* What a node has of the numbers and counts of all operations; 0: it has no such. */
typedef struct values {
  double number[NUMBERS];
  int64_t count[COUNTS];
} values;

static void put_group(values *v, zp_attr_group group, const zp_op_attr *attr) {
  for (const attribute *a = groups[group]; a->kind != END_OF_GROUP; a++) {
    const char *at = (const char *)attr + a->offset;
    assert(a->place < (a->kind == NUMBER ? NUMBERS : COUNTS));
    if (a->kind == NUMBER) v->number[a->place] = *(const double *)(const void *)at;
    if (a->kind == COUNT) v->count[a->place] = count_at(at, a->size);
  }
}

/* Only where some are set: models without them keep the hash that their checkpoints have. */
static uint64_t add_set(uint64_t hash, zp_attr_group group, const zp_op_attr *attr) {
  double set[MOST_OF_A_GROUP];
  int n = 0;
  bool any = false;
  for (const attribute *a = groups[group]; a->kind != END_OF_GROUP; a++) {
    if (a->kind != SET) continue;
    set[n] = *(const double *)(const void *)((const char *)attr + a->offset);
    any = any || set[n] != 0;
    n++;
  }
  return any ? zp_hash(hash, set, sizeof *set * (size_t)n) : hash;
}

static uint64_t add_content(uint64_t hash, zp_attr_group group, const zp_op_attr *attr) {
  for (const attribute *a = groups[group]; a->kind != END_OF_GROUP; a++) {
    if (a->kind != CONTENT) continue;
    const void *content = *(const void *const *)(const void *)((const char *)attr + a->offset);
    if (content) hash = zp_hash(hash, content, a->size);
  }
  return hash;
}

uint64_t zp_node_hash(uint64_t hash, const zp_node *node) {
  zp_attr_group group = zp_op_get_attributes(node->op);
  values v = {0};
  put_group(&v, ZP_ATTRS_NONE, &node->attr);
  if (group != ZP_ATTRS_NONE) put_group(&v, group, &node->attr);
  hash = zp_hash(zp_hash(hash, v.number, sizeof v.number), v.count, sizeof v.count);
  return add_content(add_set(hash, group, &node->attr), group, &node->attr);
}
