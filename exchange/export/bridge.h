/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the export for Megatron-Bridge: the fields of its ConfigContainer. */
#ifndef ZPLAN_BRIDGE_H
#define ZPLAN_BRIDGE_H

#include "megatron.h"

#define ZP_BRIDGE_VERSION "0.7.0, commit 067f987d"

typedef enum zp_bridge_part {
#define BRIDGE_PART(id, keyword, class, module) ZP_BRIDGE_##id,
#include "bridge.def"
  ZP_BRIDGE_PARTS
} zp_bridge_part;

typedef struct zp_bridge_field {
  const char *name, *text; /* text: an expression of Python */
} zp_bridge_field;

typedef struct zp_bridge {
  const zp_megatron *m;
  ZP_VEC(zp_bridge_field) fields[ZP_BRIDGE_PARTS];
} zp_bridge;

/* The fields of all arguments, and those that no argument has. Refuses what has none. */
void zp_bridge_fill(zp_bridge *b); /* bridge_fields.c */

#endif
