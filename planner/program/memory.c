/* SPDX-License-Identifier: Apache-2.0 */
/* Transient memory of a procedure: live ranges, then offsets so that buffers alive at the same step never overlap.
 *
 * Interval colouring by first fit on buffers sorted by size (largest first), workspaces before everything else: they
 * may be used only in part, and the top of the region must be a buffer that is written to its last byte, because the
 * runtime measures the highest byte ever written and the plan promises it exactly. */
#include "lower_internal.h"

#include <stdlib.h>

static void touch(zp_procedure *p, int buffer, int step) {
  zp_buffer *b = &p->buffers.data[buffer];
  if (b->base >= 0) b = &p->buffers.data[b->base];
  if (b->first_step < 0) b->first_step = step;
  b->last_step = step;
}

static void find_live_ranges(zp_procedure *p) {
  for (int b = 0; b < p->buffers.len; b++) p->buffers.data[b].first_step = p->buffers.data[b].last_step = -1;
  for (int s = 0; s < p->steps.len; s++) {
    const zp_step *step = &p->steps.data[s];
    for (int i = 0; i < step->in.len; i++) touch(p, step->in.data[i], s);
    for (int i = 0; i < step->out.len; i++) touch(p, step->out.data[i], s);
    if (step->workspace >= 0) touch(p, step->workspace, s);
  }
}

typedef struct entry {
  int buffer;
  bool workspace;
  int64_t bytes;
  int first_step, last_step; /* of the buffer */
  int64_t begin, end;        /* where it is, once it is placed */
} entry;

static int by_size(const void *a, const void *b) {
  const entry *x = a, *y = b;
  if (x->workspace != y->workspace) return x->workspace ? -1 : 1;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return x->buffer - y->buffer;
}

static bool overlap_in_time(const entry *a, const entry *b) {
  return a->first_step <= b->last_step && b->first_step <= a->last_step;
}

/* The lowest offset where buffer e fits alongside the ones already placed, which stand in the order of their begin. */
static int64_t first_fit(entry *const *placed, int n_placed, const entry *e) {
  int64_t offset = 0;
  for (int i = 0; i < n_placed; i++) {
    const entry *o = placed[i];
    if (!overlap_in_time(o, e)) continue;
    if (o->begin >= offset + e->bytes) break;
    if (offset < o->end) offset = zp_round_up(o->end, ZP_ALIGN_BYTES);
  }
  return offset;
}

static void insert(entry **placed, int n_placed, entry *e) {
  int at = n_placed;
  for (; at > 0 && placed[at - 1]->begin > e->begin; at--) placed[at] = placed[at - 1];
  placed[at] = e;
}

void zp_color_transients(zp_arena *arena, zp_procedure *p) {
  find_live_ranges(p);
  entry *entries = ZP_NEW_ARRAY(arena, entry, p->buffers.len + 1);
  int n = 0;
  for (int b = 0; b < p->buffers.len; b++) {
    const zp_buffer *buffer = &p->buffers.data[b];
    if (buffer->place == ZP_AT_TRANSIENT && buffer->base < 0 && buffer->first_step >= 0)
      entries[n++] =
          (entry){b, buffer->tensor < 0, buffer->bytes, buffer->first_step, buffer->last_step, .begin = 0, .end = 0};
  }
  qsort(entries, (size_t)n, sizeof *entries, by_size);
  entry **placed = ZP_NEW_ARRAY(arena, entry *, n + 1);
  p->transient_bytes = 0;
  for (int i = 0; i < n; i++) {
    entry *e = &entries[i];
    e->begin = p->buffers.data[e->buffer].offset = first_fit(placed, i, e);
    e->end = e->begin + e->bytes;
    insert(placed, i, e);
    if (p->transient_bytes < e->end) p->transient_bytes = e->end;
  }
}
