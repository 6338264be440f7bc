/* SPDX-License-Identifier: Apache-2.0 */
/* Private: elements of parameters or gradients that are off the device, in the host arena or in the rank's file. Users
 * see them in memory either way: on the host where they stand, of those in the file a copy in one of four windows
 * (zpr_offloaded). Elements are numbered as home.h numbers what is off the device.
 *
 * A view is good until the next one of its class is asked for. Reads see what was put before. */
#ifndef ZPLAN_RT_OFFLOADED_H
#define ZPLAN_RT_OFFLOADED_H

#include "home.h"

typedef struct zpr_view {
  char *at;
  int window; /* -1: the place itself */
} zpr_view;

void zpr_offloaded_open(zpr *c);
void zpr_offloaded_close(zpr *c);
/* The most elements that a view has. */
int64_t zpr_offloaded_most(const zpr *c, zpr_class class);
/* Starts to read what zpr_offloaded_read will ask for with the same numbers; only a hint where windows are short. */
void zpr_offloaded_ahead(zpr *c, zpr_class class, int64_t first, int64_t count);
/* The elements [first, first + count). */
zpr_view zpr_offloaded_read(zpr *c, zpr_class class, int64_t first, int64_t count);
/* Room for them, which has anything in it (on the host: what it was). */
zpr_view zpr_offloaded_room(zpr *c, zpr_class class, int64_t first, int64_t count);
/* A copy from the view to the device ends with this ticket. */
void zpr_offloaded_leaves(zpr *c, zpr_class class, zpr_view view, int64_t ticket);
/* The view is what the elements [first, first + count) are from now on. ticket: of the copy that fills it; 0: it is
 * filled. */
void zpr_offloaded_put(zpr *c, zpr_class class, zpr_view view, int64_t first, int64_t count, int64_t ticket);
/* Until everything that was put is where it belongs. */
void zpr_offloaded_settle(zpr *c, zpr_class class);

/* Host access between steps: some of the elements from `first` on; *count becomes what there is at once. What is
 * changed stays when zpr_offloaded_flush is called, or another one is opened. */
void *zpr_offloaded_open_some(zpr *c, zpr_class class, int64_t first, int64_t *count, bool to_read);
void zpr_offloaded_flush(zpr *c);
/* All `count` elements become 0. */
void zpr_offloaded_zero(zpr *c, zpr_class class, int64_t count);

#endif
