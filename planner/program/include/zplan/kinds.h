/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of parameters: what they have, and who holds the same of them. Flat buffers have the kinds one after the other
 * in this order, and whatever counts elements of parameters counts them by kind. The trainer's tables have the same
 * order (zpr_kind in zplan/rt_tables.h). */
#ifndef ZPLAN_KINDS_H
#define ZPLAN_KINDS_H

#include <zplan/choice.h>

typedef enum zp_param_kind { ZP_KIND_WHOLE, ZP_KIND_SPREAD, ZP_KIND_FROZEN, ZP_KINDS } zp_param_kind;

typedef struct zp_kind_row {
  bool trained;       /* has gradients and optimizer state, and data ranks own shards of it with ZeRO 1 to 3 */
  bool by_place;      /* held by data ranks at one place of their expert groups; otherwise by all data ranks */
  const char *prefix; /* of its names in plan files and trainers: "spread_base" */
  const char *place;  /* in plan files: where a parameter of a repeat stands */
} zp_kind_row;

/* clang-format off */
static const zp_kind_row zp_kinds[ZP_KINDS] = {
  /*                  trained  by_place  prefix     place */
  [ZP_KIND_WHOLE]  = {true,    false,    "",        "param"},
  [ZP_KIND_SPREAD] = {true,    true,     "spread_", "spread"}, /* matrices of experts, spread over expert groups */
  [ZP_KIND_FROZEN] = {false,   false,    "frozen_", "frozen"}, /* not trained; with ZeRO 3 ranks keep shards of it */
};
/* clang-format on */

/* Data ranks of a shard group that hold the same of it. */
static inline int zp_holders(const zp_choice *choice, zp_param_kind kind) {
  int ranks = zp_shard_ranks(choice);
  return zp_kinds[kind].by_place ? ranks / zp_expert_ranks(choice) : ranks;
}

/* Into how many shards these ranks divide it: each updates one, or keeps one of what is not trained. 1: it is whole. */
static inline int zp_owners(const zp_choice *choice, zp_param_kind kind) {
  bool shards = zp_kinds[kind].trained ? zp_shards_state(choice) : zp_shards_params(choice);
  return shards ? zp_holders(choice, kind) : 1;
}

/* Elements of parameters, or places of them, by kind. */
typedef struct zp_flat {
  int64_t of[ZP_KINDS];
} zp_flat;

static inline void zp_flat_add(zp_flat *sum, const zp_flat *more, int64_t times) {
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) sum->of[kind] += more->of[kind] * times;
}

/* Elements of the kinds before this one: where it begins. */
static inline int64_t zp_flat_before(const zp_flat *flat, zp_param_kind kind) {
  int64_t elements = 0;
  for (zp_param_kind before = 0; before < kind; before++) elements += flat->of[before];
  return elements;
}

static inline int64_t zp_flat_all(const zp_flat *flat) { return zp_flat_before(flat, ZP_KINDS); }

/* Elements of the kinds that are trained. */
static inline int64_t zp_flat_trained(const zp_flat *flat) {
  int64_t elements = 0;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) elements += zp_kinds[kind].trained ? flat->of[kind] : 0;
  return elements;
}

/* What a data rank has of these: its shards, or all of them. */
static inline int64_t zp_flat_held(const zp_choice *choice, const zp_flat *flat, bool sharded) {
  int64_t elements = 0;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    if (zp_kinds[kind].trained) elements += sharded ? flat->of[kind] / zp_holders(choice, kind) : flat->of[kind];
  return elements;
}

#endif
