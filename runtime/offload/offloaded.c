/* SPDX-License-Identifier: Apache-2.0 */
/* Windows take turns. One of them is free for the next turn when nothing is copied from it or to it, and what was put
 * into it is in the file; of what was read ahead the reader has its turn first. */
#include "offloaded.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "state.h"
#include "tier.h"

typedef struct window {
  int64_t first, count;     /* elements that it has; count 0: none */
  bool ahead, put;          /* read, and not asked for yet; to be written when `copied` is done */
  int64_t copied;           /* the last copy between it and the device */
  int64_t reading, writing; /* tickets of the file */
} window;

struct zpr_offload {
  window window[ZPR_CLASSES][ZPR_OFFLOADED_WINDOWS];
  int turn[ZPR_CLASSES];
  int open; /* 1 + the window that zpr_offloaded_open_some has; 0: none */
  zpr_class open_class;
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static const zpr_offloaded *offloaded_of(const zpr *c, zpr_class class) {
  return class == ZPR_CLASS_PARAMS ? &c->stage->params_offloaded : &c->stage->grads_offloaded;
}

static int64_t element_bytes(const zpr *c, zpr_class class) {
  return class == ZPR_CLASS_PARAMS ? zpk_bytes(c->program->dtype) : zpr_gradient_bytes(c);
}

void zpr_offloaded_open(zpr *c) { c->state->offload = zpr_alloc(c, 1, sizeof *c->state->offload); }

void zpr_offloaded_close(zpr *c) {
  free(c->state->offload);
  c->state->offload = NULL;
}

int64_t zpr_offloaded_most(const zpr *c, zpr_class class) {
  const zpr_offloaded *offloaded = offloaded_of(c, class);
  return offloaded->on_disk ? offloaded->window : INT64_MAX;
}

static char *window_at(zpr *c, zpr_class class, int number) {
  const zpr_offloaded *offloaded = offloaded_of(c, class);
  int64_t bytes = offloaded->window * element_bytes(c, class);
  zpr_host_used(c, offloaded->host + (number + 1) * bytes);
  return (char *)zpr_host_at(c, offloaded->host) + number * bytes;
}

static char *on_host(zpr *c, zpr_class class, int64_t first) {
  return (char *)zpr_host_at(c, offloaded_of(c, class)->host) + first * element_bytes(c, class);
}

/* ---- the file ---- */

static int64_t place(const zpr *c, zpr_class class, int64_t first) {
  return offloaded_of(c, class)->file + first * element_bytes(c, class);
}

static void start_write(zpr *c, zpr_class class, int number) {
  window *w = &c->state->offload->window[class][number];
  if (!w->put) return;
  zpr_copy_wait(c, w->copied);
  w->copied = 0;
  w->put = false;
  w->writing =
      zpr_file_write(c, window_at(c, class, number), place(c, class, w->first), w->count * element_bytes(c, class));
}

static void finish(zpr *c, zpr_class class, int number) {
  window *w = &c->state->offload->window[class][number];
  start_write(c, class, number);
  zpr_copy_wait(c, w->copied);
  zpr_file_wait(c, w->reading);
  zpr_file_wait(c, w->writing);
  *w = (window){0};
}

static bool overlaps(const window *w, int64_t first, int64_t count) {
  return first < w->first + w->count && w->first < first + count;
}

/* The next window whose turn it is; -1: all of them wait for their readers. */
static int next_window(zpr *c, zpr_class class) {
  zpr_offload *a = c->state->offload;
  for (int i = 0; i < ZPR_OFFLOADED_WINDOWS; i++) {
    int number = a->turn[class];
    a->turn[class] = (number + 1) % ZPR_OFFLOADED_WINDOWS;
    if (a->window[class][number].ahead) continue;
    finish(c, class, number);
    return number;
  }
  return -1;
}

static void start_read(zpr *c, zpr_class class, int number, int64_t first, int64_t count) {
  window *all = c->state->offload->window[class], *w = &all[number];
  for (int i = 0; i < ZPR_OFFLOADED_WINDOWS; i++) {
    if (!overlaps(&all[i], first, count)) continue;
    start_write(c, class, i);
    zpr_file_wait(c, all[i].writing);
    all[i].writing = 0;
  }
  w->first = first;
  w->count = count;
  w->reading = zpr_file_read(c, window_at(c, class, number), place(c, class, first), count * element_bytes(c, class));
}

/* ---- views ---- */

void zpr_offloaded_ahead(zpr *c, zpr_class class, int64_t first, int64_t count) {
  if (!offloaded_of(c, class)->on_disk || count == 0) return;
  int number = next_window(c, class);
  if (number < 0) return;
  start_read(c, class, number, first, count);
  c->state->offload->window[class][number].ahead = true;
}

static int read_ahead(const zpr_offload *a, zpr_class class, int64_t first, int64_t count) {
  for (int i = 0; i < ZPR_OFFLOADED_WINDOWS; i++) {
    const window *w = &a->window[class][i];
    if (w->ahead && w->first == first && w->count == count) return i;
  }
  return -1;
}

zpr_view zpr_offloaded_read(zpr *c, zpr_class class, int64_t first, int64_t count) {
  zpr_offload *a = c->state->offload;
  assert(count <= zpr_offloaded_most(c, class));
  if (!offloaded_of(c, class)->on_disk) return (zpr_view){on_host(c, class, first), -1};
  int number = read_ahead(a, class, first, count);
  if (number < 0) {
    number = next_window(c, class);
    assert(number >= 0); /* nobody reads ahead what he does not ask for next */
    start_read(c, class, number, first, count);
  }
  window *w = &a->window[class][number];
  w->ahead = false;
  zpr_file_wait(c, w->reading);
  w->reading = 0;
  return (zpr_view){window_at(c, class, number), number};
}

zpr_view zpr_offloaded_room(zpr *c, zpr_class class, int64_t first, int64_t count) {
  assert(count <= zpr_offloaded_most(c, class));
  if (!offloaded_of(c, class)->on_disk) return (zpr_view){on_host(c, class, first), -1};
  int number = next_window(c, class);
  assert(number >= 0);
  return (zpr_view){window_at(c, class, number), number};
}

void zpr_offloaded_leaves(zpr *c, zpr_class class, zpr_view view, int64_t ticket) {
  if (view.window >= 0) c->state->offload->window[class][view.window].copied = ticket;
}

/* A copy that is under way is waited for when the next one has been given. */
void zpr_offloaded_put(zpr *c, zpr_class class, zpr_view view, int64_t first, int64_t count, int64_t ticket) {
  if (view.window < 0) return;
  window *all = c->state->offload->window[class];
  for (int i = 0; i < ZPR_OFFLOADED_WINDOWS; i++)
    if (i != view.window) start_write(c, class, i);
  all[view.window] = (window){.first = first, .count = count, .put = true, .copied = ticket};
  if (ticket == 0) start_write(c, class, view.window);
}

void zpr_offloaded_settle(zpr *c, zpr_class class) {
  if (!offloaded_of(c, class)->on_disk) return;
  for (int i = 0; i < ZPR_OFFLOADED_WINDOWS; i++) finish(c, class, i);
}

/* ---- between steps ---- */

void zpr_offloaded_flush(zpr *c) {
  zpr_offload *a = c->state->offload;
  if (!a || a->open == 0) return; /* NULL: nothing was ever opened */
  finish(c, a->open_class, a->open - 1);
  a->open = 0;
}

void *zpr_offloaded_open_some(zpr *c, zpr_class class, int64_t first, int64_t *count, bool to_read) {
  zpr_offload *a = c->state->offload;
  const zpr_offloaded *offloaded = offloaded_of(c, class);
  if (!offloaded->on_disk) return on_host(c, class, first);
  window *w = a->open ? &a->window[a->open_class][a->open - 1] : NULL;
  if (!w || a->open_class != class || !overlaps(w, first, 1)) {
    int64_t begin = first / offloaded->window * offloaded->window, held = zpr_held(c, class) - zpr_held_here(c, class);
    zpr_offloaded_flush(c);
    a->open = 1 + zpr_offloaded_read(c, class, begin, least(offloaded->window, held - begin)).window;
    a->open_class = class;
    w = &a->window[class][a->open - 1];
  }
  w->put |= !to_read;
  *count = least(*count, w->first + w->count - first);
  return window_at(c, class, a->open - 1) + (first - w->first) * element_bytes(c, class);
}

void zpr_offloaded_zero(zpr *c, zpr_class class, int64_t count) {
  for (int64_t first = 0, n; first < count; first += n) {
    n = least(count - first, zpr_offloaded_most(c, class));
    zpr_view view = zpr_offloaded_room(c, class, first, n);
    memset(view.at, 0, (size_t)(n * element_bytes(c, class)));
    zpr_offloaded_put(c, class, view, first, n, 0);
  }
  zpr_offloaded_settle(c, class);
}
