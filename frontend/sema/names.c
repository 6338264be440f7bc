/* SPDX-License-Identifier: Apache-2.0 */
/* The table of names.h: open addressing, at most half full. */
#include "names.h"

#include <assert.h>
#include <string.h>
#include <zplan/hash.h>

enum { FIRST_SLOTS = 32, FIRST_SUFFIX = 2 };

/* Where the name is, or the free slot where it belongs. */
static zp_taken_name *slot_of(const zp_taken_names *names, const char *name) {
  uint64_t at = zp_hash(ZP_HASH_START, name, strlen(name));
  for (;; at++) {
    zp_taken_name *slot = &names->slots[at & (uint64_t)(names->n_slots - 1)];
    if (!slot->name || strcmp(slot->name, name) == 0) return slot;
  }
}

static void grow(zp_arena *arena, zp_taken_names *names) {
  zp_taken_names old = *names;
  names->n_slots = old.n_slots ? 2 * old.n_slots : FIRST_SLOTS;
  names->slots = ZP_NEW_ARRAY(arena, zp_taken_name, names->n_slots);
  for (int i = 0; i < old.n_slots; i++)
    if (old.slots[i].name) *slot_of(names, old.slots[i].name) = old.slots[i];
}

const char *zp_taken_names_give(zp_arena *arena, zp_taken_names *names, const char *name) {
  assert(name);
  if (2 * (names->len + 2) > names->n_slots) grow(arena, names);
  zp_taken_name *base = slot_of(names, name), *slot = base;
  while (slot->name) {
    name = zp_format(arena, "%s_%d", base->name, base->next++);
    slot = slot_of(names, name);
  }
  *slot = (zp_taken_name){name, FIRST_SUFFIX};
  names->len++;
  return name;
}

void zp_taken_names_clear(zp_taken_names *names) {
  if (names->n_slots > 0) memset(names->slots, 0, (size_t)names->n_slots * sizeof *names->slots);
  names->len = 0;
}
