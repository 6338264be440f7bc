/* SPDX-License-Identifier: Apache-2.0 */
/* Messages along the pipeline: which rank has the neighbouring part of the model, tags, buffers; and how they go
 * between ranks over the host's transport.
 *
 * Part k of the model is chunk k / stages of a stage. Between two ranks messages of several chunks may be on their way
 * in both directions at once, and the ranks take them in different orders: so the tag tells them apart. */
#include <assert.h>
#include "comm.h"
#include "profile.h"

enum {
  FIRST_TAG = 64,
  TAGS = 32704 /* MPI promises tags up to 32767 */
};

static int chunks_of(const zpr_program *p) { return p->chunks > 1 ? p->chunks : 1; }

static int64_t buffers_each_way(const zpr_program *p) { return p->messages > 1 ? p->messages : 1; }

int64_t zpr_message_buffers(const zpr_program *program) { return 2 * chunks_of(program) * buffers_each_way(program); }

int zpr_message_chunk(const zpr_program *program, const zpr_message *message) {
  return (int)(message->buffer / (2 * buffers_each_way(program)));
}

static int part_of(const zpr *c, int chunk) {
  int stages = c->program->pipeline;
  return c->program->folded && chunk == 1 ? 2 * stages - 1 - c->p : chunk * stages + c->p;
}

static int stage_of(const zpr *c, int part) {
  int stages = c->program->pipeline;
  return c->program->folded && part >= stages ? 2 * stages - 1 - part : part % stages;
}

/* The tag of a message that `sender` sends: equal on both ends. */
static int tag_of(const zpr *c, int sender, bool up, int64_t mb) {
  int streams = 2 * chunks_of(c->program) * c->program->pipeline, turns = TAGS / streams > 1 ? TAGS / streams : 1;
  return FIRST_TAG + ((2 * sender + up) * turns + (int)(mb % turns)) % TAGS;
}

static int64_t buffer_of(const zpr *c, int chunk, bool up, int64_t mb) {
  assert(chunk >= 0 && chunk < chunks_of(c->program));
  int64_t each = buffers_each_way(c->program);
  return (2 * chunk + up) * each + mb % each;
}

/* What chunk sends to the neighbouring part. */
static zpr_message sent_by(const zpr *c, int chunk, bool up, int64_t mb) {
  int part = part_of(c, chunk), other = part + (up ? 1 : -1);
  assert(other >= 0 && other < chunks_of(c->program) * c->program->pipeline);
  return (zpr_message){.up = up,
                       .peer = c->rank + (stage_of(c, other) - c->p) * zpr_pipeline_stride(c->program),
                       .tag = tag_of(c, part, up, mb),
                       .buffer = buffer_of(c, chunk, up, mb)};
}

/* What chunk receives: sent upwards from below. */
static zpr_message received_by(const zpr *c, int chunk, bool from_below, int64_t mb) {
  int other = part_of(c, chunk) + (from_below ? -1 : 1);
  assert(other >= 0 && other < chunks_of(c->program) * c->program->pipeline);
  int there = other / c->program->pipeline;
  return (zpr_message){.up = from_below,
                       .peer = c->rank + (stage_of(c, other) - c->p) * zpr_pipeline_stride(c->program),
                       .tag = tag_of(c, other, from_below, mb),
                       .buffer = buffer_of(c, there, from_below, mb)}; /* of the sender */
}

void zpr_send(zpr *c, int chunk, bool up, const void *data, int64_t count, int64_t mb) {
  assert(count >= 0 && mb >= 0 && mb < c->program->microbatches);
  zpr_message to = sent_by(c, chunk, up, mb);
  if (to.peer != c->rank) {
    int before = zpr_enter(c, ZPR_AT_SEND);
    zpr_stage_send(c, &to, data, count);
    zpr_leave(c, before);
    return;
  }
  assert(!c->state->comm->stays[to.buffer] && "the order of micro-batches leaves its buffer free");
  c->state->comm->stays[to.buffer] = data;
}

void zpr_send_wait(zpr *c, int chunk, bool up, int64_t mb) {
  assert(mb >= 0 && mb < c->program->microbatches);
  int before = zpr_enter(c, ZPR_AT_SEND);
  zpr_stage_send_wait(c, &(zpr_message){.up = up, .peer = -1, .buffer = buffer_of(c, chunk, up, mb)});
  zpr_leave(c, before);
}

void zpr_recv(zpr *c, int chunk, bool from_below, void *data, int64_t count, int64_t mb) {
  assert(count >= 0 && mb >= 0 && mb < c->program->microbatches);
  zpr_message from = received_by(c, chunk, from_below, mb);
  if (from.peer != c->rank) {
    int before = zpr_enter(c, ZPR_AT_RECEIVE);
    zpr_stage_recv(c, &from, data, count);
    zpr_leave(c, before);
    return;
  }
  const void **stays = &c->state->comm->stays[from.buffer];
  assert(*stays && "the order of micro-batches wrote it before");
  zpr_copy(c, data, *stays, count * zpk_bytes(c->program->dtype));
  *stays = NULL;
}

void zpr_wait_sends(zpr *c) {
  int before = zpr_enter(c, ZPR_AT_SEND);
  for (int64_t i = 0; i < zpr_message_buffers(c->program); i++)
    zpr_stage_send_wait(c, &(zpr_message){.up = i / buffers_each_way(c->program) % 2, .peer = -1, .buffer = i});
  zpr_leave(c, before);
}

/* ---- over the transport ---- */

void zpr_host_send(zpr *c, const zpr_message *to, const void *data, int64_t count) {
  pending_send *send = &c->state->comm->sends[to->buffer];
  zpr_host_send_wait(c, to);
  int64_t bytes = count * zpk_bytes(c->program->dtype);
  if (bytes > (int64_t)ZPR_MAX_SPLITS * ZPR_SPLIT_BYTES)
    zpr_fail(c, "Z0821", "a message of %lld bytes between pipeline stages is too long", (long long)bytes);
  for (int64_t at = 0; at < bytes; at += ZPR_SPLIT_BYTES) {
    int64_t part = bytes - at < ZPR_SPLIT_BYTES ? bytes - at : ZPR_SPLIT_BYTES;
    send->handle[send->n++] = zpr_post_send(c, ZPR_PIPELINE, (const char *)data + at, part, to->peer, to->tag);
  }
}

void zpr_host_send_wait(zpr *c, const zpr_message *to) {
  pending_send *send = &c->state->comm->sends[to->buffer];
  zpr_wait_handles(c, send->handle, send->n);
  send->n = 0;
}

void zpr_host_recv(zpr *c, const zpr_message *from, void *data, int64_t count) {
  int64_t bytes = count * zpk_bytes(c->program->dtype);
  for (int64_t at = 0; at < bytes; at += ZPR_SPLIT_BYTES) {
    int64_t part = bytes - at < ZPR_SPLIT_BYTES ? bytes - at : ZPR_SPLIT_BYTES;
    int handle = c->state->comm->transport->irecv((char *)data + at, part, from->peer, from->tag);
    zpr_wait_handles(c, &handle, 1);
  }
}
