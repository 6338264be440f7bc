/* SPDX-License-Identifier: Apache-2.0 */
/* Name tables. Scopes are small (tens of names), so a list that keeps the order of definition serves. */
#include "eval.h"

typedef struct entry {
  const char *name;
  zp_value value;
} entry;

struct zp_scope {
  zp_arena *arena;
  zp_scope *parent;
  ZP_VEC(entry) entries;
};

zp_scope *zp_scope_new(zp_arena *arena, zp_scope *parent) {
  zp_scope *scope = ZP_NEW(arena, zp_scope);
  scope->arena = arena;
  scope->parent = parent;
  return scope;
}

static entry *own_entry(const zp_scope *scope, const char *name) {
  for (int i = 0; i < scope->entries.len; i++)
    if (strcmp(scope->entries.data[i].name, name) == 0) return &scope->entries.data[i];
  return NULL;
}

void zp_scope_set(zp_scope *scope, const char *name, zp_value value) {
  entry *old = own_entry(scope, name);
  if (old) {
    old->value = value;
    return;
  }
  entry fresh = {name, value};
  zp_push(scope->arena, &scope->entries, fresh);
}

const zp_value *zp_scope_get(const zp_scope *scope, const char *name) {
  for (; scope; scope = scope->parent) {
    const entry *found = own_entry(scope, name);
    if (found) return &found->value;
  }
  return NULL;
}

void zp_scope_names(zp_arena *arena, const zp_scope *scope, zp_strings *out) {
  for (; scope; scope = scope->parent)
    for (int i = 0; i < scope->entries.len; i++) zp_push(arena, out, scope->entries.data[i].name);
}
