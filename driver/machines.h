/* SPDX-License-Identifier: Apache-2.0 */
/* Machines by name, and this one, as texts of cluster blocks. */
#ifndef ZPLAN_MACHINES_H
#define ZPLAN_MACHINES_H

#include "driver.h"

typedef struct zp_machine_row {
  const char *name;    /* "dgx-h100", or of a device "h100_pcie" */
  const char *node;    /* of std.hw */
  const char *devices; /* its argument; "": as the library has it; of a device: its name */
  const char *source;
  bool is_device;
} zp_machine_row;
int zp_machine_count(void);
const zp_machine_row *zp_machine_at(int index);
/* Small letters, `-` for `_`. Arena. */
const char *zp_plain_name(zp_arena *arena, const char *name);
/* The node as an expression or a block: of a device with so many of them, at most 8; 0: 8. */
const char *zp_machine_node(zp_arena *arena, const zp_machine_row *row, int64_t devices);
/* What stands in the cluster block of a machine by name (or `this`), and a word that names it. NULL after saying that
 * there is none (exit status 2). */
const char *zp_machine_block(zp_run_state *run, const char *name, int64_t nodes, const char **word);
bool zp_is_machine(zp_arena *arena, const char *name);           /* of the table, whatever its capitals */
int64_t zp_machine_devices(zp_run_state *run, const char *name); /* of one node; 0: no such machine */
/* The block of the machine that zplan runs on. *shown (may be NULL): what was found, for people. */
const char *zp_this_machine(zp_run_state *run, const char **word, const char **shown);

#endif
