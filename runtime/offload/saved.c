/* SPDX-License-Identifier: Apache-2.0 */
/* Saved values that leave the device. A unit works in a buffer; afterwards the first bytes are copied to its slot here,
 * the others go down to the host, and where they live on disks through one of four buffers there into the file. Before
 * backward all that comes back. Copies to and from the host run alongside the kernels of other units. */
#include <assert.h>
#include <stdlib.h>
#include "device.h"
#include "profile.h"
#include "state.h"
#include "tier.h"

enum { BUFFERS = 4, MOST_UNDER_WAY = 4 };

/* A copy between device and host; down to a disk: then also what is written where. */
typedef struct moving {
  int64_t ticket;
  int buffer; /* of the host; -1: the values live there */
  bool down;
  int64_t at, bytes;
} moving;

struct zpr_saving {
  moving under_way[MOST_UNDER_WAY]; /* the oldest first */
  int n;
  int64_t turn;                            /* the next buffer */
  int64_t read[BUFFERS], written[BUFFERS]; /* tickets of the file */
  int64_t up[BUFFERS];                     /* of the last copy from a buffer */
  int ready[BUFFERS], n_ready;             /* buffers that are read, in the order in which they are asked for */
};

static int64_t pages(int64_t bytes) { return (bytes + ZPR_PAGE - 1) / ZPR_PAGE * ZPR_PAGE; }

void zpr_saved_open(zpr *c) { c->state->saving = zpr_alloc(c, 1, sizeof *c->state->saving); }

void zpr_saved_close(zpr *c) {
  free(c->state->saving);
  c->state->saving = NULL;
}

static char *buffer_at(zpr *c, int buffer) {
  return zpr_host_at(c, c->stage->saved_staging + buffer * c->stage->saved_staging_bytes);
}

/* The next buffer of the host, which nobody reads or writes any more. */
static int take_buffer(zpr *c, zpr_saving *s) {
  int b = (int)(s->turn++ % BUFFERS);
  zpr_host_used(c, c->stage->saved_staging + (b + 1) * c->stage->saved_staging_bytes);
  zpr_file_wait(c, s->written[b]);
  zpr_copy_wait(c, s->up[b]);
  s->written[b] = s->up[b] = 0;
  return b;
}

static void push(zpr_saving *s, moving m) {
  assert(s->n < MOST_UNDER_WAY);
  s->under_way[s->n++] = m;
}

static void put(zpr *c, zpr_saved v) {
  assert(v.here_bytes >= 0 && v.offloaded_bytes >= 0);
  zpr_saving *s = c->state->saving;
  const char *from = (const char *)v.at + v.here_bytes;
  moving m = {.buffer = -1, .down = true, .at = v.offloaded, .bytes = pages(v.offloaded_bytes)};
  zpr_copy(c, v.here, v.at, v.here_bytes);
  if (v.offloaded_bytes == 0) { /* its share is less than a line or a page; it still has its turn */
    push(s, m);
    return;
  }
  if (c->stage->saved_on_disk)
    m.buffer = take_buffer(c, s);
  else
    zpr_host_used(c, v.offloaded + v.offloaded_bytes);
  m.ticket = zpr_copy_down(c, m.buffer < 0 ? zpr_host_at(c, v.offloaded) : (void *)buffer_at(c, m.buffer), from,
                           v.offloaded_bytes);
  push(s, m);
}

void zpr_saved_put(zpr *c, zpr_saved v) {
  if (c->state->rehearses) return;
  int before = zpr_enter(c, ZPR_AT_MOVE);
  put(c, v);
  zpr_leave(c, before);
}

void zpr_saved_read(zpr *c, zpr_saved v) {
  assert(v.offloaded_bytes >= 0);
  if (c->state->rehearses) return;
  zpr_saving *s = c->state->saving;
  if (v.offloaded_bytes == 0) return;
  int b = take_buffer(c, s);
  s->read[b] = zpr_file_read(c, buffer_at(c, b), v.offloaded, pages(v.offloaded_bytes));
  s->ready[s->n_ready++] = b;
}

static int take_read(zpr *c, zpr_saving *s) {
  int b = s->ready[0];
  assert(s->n_ready > 0);
  s->n_ready--;
  for (int i = 0; i < s->n_ready; i++) s->ready[i] = s->ready[i + 1];
  zpr_file_wait(c, s->read[b]);
  return b;
}

static void get(zpr *c, zpr_saved v) {
  assert(v.here_bytes >= 0 && v.offloaded_bytes >= 0);
  zpr_saving *s = c->state->saving;
  zpr_copy(c, v.at, v.here, v.here_bytes);
  if (v.offloaded_bytes == 0) {
    push(s, (moving){.buffer = -1});
    return;
  }
  int b = c->stage->saved_on_disk ? take_read(c, s) : -1;
  int64_t ticket = zpr_copy_up(c, (char *)v.at + v.here_bytes,
                               b < 0 ? zpr_host_at(c, v.offloaded) : (void *)buffer_at(c, b), v.offloaded_bytes, 0);
  if (b >= 0) s->up[b] = ticket;
  push(s, (moving){.ticket = ticket, .buffer = b});
}

void zpr_saved_get(zpr *c, zpr_saved v) {
  if (c->state->rehearses) return;
  int before = zpr_enter(c, ZPR_AT_MOVE);
  get(c, v);
  zpr_leave(c, before);
}

/* Kernels that are given from now on find the copy done; what is for a disk goes on to it. */
static void finish(zpr *c, zpr_saving *s, const moving *m) {
  zpr_copy_before(c, m->ticket);
  if (!m->down || m->buffer < 0) return;
  zpr_copy_wait(c, m->ticket);
  s->written[m->buffer] = zpr_file_write(c, buffer_at(c, m->buffer), m->at, m->bytes);
}

void zpr_saved_wait(zpr *c, int under_way) {
  assert(under_way >= 0);
  if (c->state->rehearses) return;
  zpr_saving *s = c->state->saving;
  int done = s->n > under_way ? s->n - under_way : 0, before = zpr_enter(c, ZPR_AT_MOVE);
  for (int i = 0; i < done; i++) finish(c, s, &s->under_way[i]);
  for (int i = done; i < s->n; i++) s->under_way[i - done] = s->under_way[i];
  s->n -= done;
  for (int b = 0; b < BUFFERS && under_way == 0; b++) {
    zpr_file_wait(c, s->written[b]);
    s->written[b] = 0;
  }
  zpr_leave(c, before);
}
