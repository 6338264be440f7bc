/* SPDX-License-Identifier: Apache-2.0 */
/* Logits of a forward pass for whoever looks at them, copied to the host: the rows that are asked for, of a vocabulary
 * that is split over the tensor ranks all of it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "cuda.h"

/* Through the window, piece by piece; owned. NULL of NULL. */
static void *bring(zpr *c, const void *from, int64_t bytes) {
  if (!from) return NULL;
  char *to = zpr_alloc(c, (size_t)bytes, 1);
  for (int64_t at = 0; at < bytes; at += ZPR_PINNED_BYTES) {
    int64_t n = bytes - at < ZPR_PINNED_BYTES ? bytes - at : ZPR_PINNED_BYTES;
    memcpy(to + at, zpr_window_open(c, (char *)(uintptr_t)from + at, n, true), (size_t)n);
    zpr_window_close(c);
  }
  return to;
}

/* The ranks' parts one after the other, in place of mine; owned. */
static void *gather_parts(zpr *c, void *mine, int64_t count) {
  zpr_group group = zpr_axis_group(c, ZPR_TENSOR);
  int64_t size = zpk_bytes(c->program->dtype);
  char *all = zpr_alloc(c, (size_t)(group.n * count), (size_t)size);
  memcpy(all + group.me * count * size, mine, (size_t)(count * size));
  zpr_host_all_gather(c, &group, ZPR_TENSOR, all, count);
  free(mine);
  return all;
}

/* Collective over the tensor axis where somebody looks, which all ranks then do. Labels are those of all rows. */
void zpr_show(zpr *c, const zpr_looked *part) {
  const struct zpr_state *state = c->state;
  if (!zpr_looks(c, part->loss)) return;
  zpr_looked seen = *part;
  int64_t size = zpk_bytes(c->program->dtype), ints = seen.rows * (int64_t)sizeof(int32_t);
  assert(seen.first == 0);
  if (state->look_row >= 0) {
    if (state->look_row >= seen.rows) return;
    seen.first = state->look_row;
    seen.rows = 1;
    seen.labels = seen.lengths = NULL;
  }
  int32_t *labels = bring(c, seen.labels, ints), *lengths = bring(c, seen.lengths, ints);
  char *logits = bring(c, (const char *)seen.logits + seen.first * seen.V * size, seen.rows * seen.V * size);
  if (seen.V < seen.classes) {
    logits = gather_parts(c, logits, seen.rows * seen.V);
    seen.ranks = c->program->tensor;
  }
  seen.logits = logits;
  seen.labels = labels;
  seen.lengths = lengths;
  state->look(state->look_arg, &seen);
  free(logits);
  free(labels);
  free(lengths);
}

/* Statistics of squared errors, of which nobody asks for one row. */
void zpr_cuda_show_errors(zpr *c, int loss, const void *stat, int64_t rows) {
  const struct zpr_state *state = c->state;
  if (!zpr_looks(c, loss)) return;
  void *here = bring(c, stat, rows * 3 * zpk_real_bytes(c->program->dtype));
  state->look(state->look_arg, &(zpr_looked){.loss = loss, .logits = here, .rows = rows});
  free(here);
}

void zpr_show_logits(zpr *c, int loss, const void *logits, int64_t V, int64_t classes) {
  zpr_show(c, &(zpr_looked){.loss = loss, .logits = logits, .ranks = 1, .rows = 1, .V = V, .classes = classes});
}
