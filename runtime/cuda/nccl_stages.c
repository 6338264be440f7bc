/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the pipeline by NCCL, also between several chunks of a stage. It has not run on GPUs yet.
 *
 * A channel is a communicator of two ranks in which one sends, upwards or downwards, and the other receives; messages
 * in it have no tags, they are matched in order. Both ends agree on the order, because all stages take the (chunk,
 * micro-batch) pairs of forward in one order, and those of backward in one order: the receiver asks for messages in the
 * order in which they were sent. With folded parts the two chunks of a stage send in opposite directions, so each has
 * channels of its own. zp_messages_in_order proves it of a program's order tables before a trainer is printed.
 *
 * Nothing can wait for ever:
 *  - A send has its channel's stream. It waits for its receiver and for earlier sends of the channel, which the
 * receiver takes before; it holds up no kernel. A receive has a stream of its channel, too, and waits there for its
 * place to be free and for its sender. The compute stream waits for it where a chunk begins that reads it, after what
 * the order table has before that. So a rank waits for a message only as long as the sender has not computed it, and
 * with zpr_send_wait for a buffer no longer than until the receiver has reached that message: at most when ranks wait
 * for each other over MPI, where the order tables and numbers of buffers are known to end.
 *  - Communicators of two are joined and connected before the first message, in the order that nccl.c explains.
 *  - Two, if folded four, streams of either kind alongside those of units, of what moves alongside them and of copies,
 * are fewer than the hardware queues that streams are laid on (32, device.c), so no stream stands after another one's
 * wait.
 *
 * A message travels when it was sent, not when somebody wants it, as the plan is priced (planner/cost/pipeline.c): the
 * receiver has asked for it before. The chunk that will read it has often no place for it yet: the slot is that of the
 * backward pass before it, the gradients' buffer is in use until that one ends. So every channel has a place of its own
 * in the arena where its next message lands (zp_stage_landings). A chunk begins by copying it away, and then the next
 * one may land. Which one that is, and how long, the rehearsal has noted. Between them are two events:
 *
 *   units      ... wait(landed)  copy to the chunk's buffer  record(taken)  chunk ...
 *   arrivals   ... wait(taken)   receive                     record(landed) ...
 *
 * With one place for a channel message k + 1 travels when k was taken: while a chunk computes, which is longer, or the
 * messages set the pace anyway. What the price leaves out is the copy, two passes over the message on the device. */
#include <assert.h>
#include <stdlib.h>
#include "nccl.h"

static int channels_of(const zpr_program *p) { return p->folded ? 4 : 2; }

/* Messages of a channel go up, or down; with folded parts those of chunk `channel / 2`. The stage to which `stage`
 * sends in it, -1: it sends nothing, or keeps what it sends. */
static int receiver_of(const zpr_program *p, int channel, int stage) {
  bool up = channel % 2, back = channel / 2;
  int to = stage + (up != back ? 1 : -1);
  if (to < 0 || to >= p->pipeline) to = p->chunks > 1 && !p->folded ? (to + p->pipeline) % p->pipeline : -1;
  return to == stage ? -1 : to;
}

static zpr_channel *channel_of(zpr *c, const zpr_message *m) {
  int chunk = c->program->folded ? zpr_message_chunk(c->program, m) : 0;
  return &c->state->device->nccl->channels[2 * chunk + m->up];
}

/* ---- opening ---- */

static void join_channel(zpr *c, int channel, zpr_nccl_id *ids) {
  const zpr_program *p = c->program;
  zpr_channel *h = &c->state->device->nccl->channels[channel];
  zpr_group g = zpr_axis_group(c, ZPR_PIPELINE);
  zpr_nccl_exchange_ids(c, receiver_of(p, channel, c->p) >= 0, ids);
  for (int s = 0; s < p->pipeline; s++) {
    int to = receiver_of(p, channel, s);
    if (to >= 0 && s == c->p) h->out = zpr_nccl_join(c, &ids[g.rank[s]], 2, 0);
    if (to >= 0 && to == c->p) h->in = zpr_nccl_join(c, &ids[g.rank[s]], 2, 1);
  }
}

/* A byte through every channel, all in one group, in which the order does not matter: stages of a pipeline have
 * none. */
void zpr_nccl_connect_channels(zpr *c) {
  zpr_device *d = c->state->device;
  if (c->program->pipeline == 1) return;
  const nccl_api *nccl = &d->nccl->api;
  char *byte = zpr_gpu_host(d->nccl->scratch);
  zpr_nccl_check(c, nccl->group_start(), "connect stages");
  for (int i = 0; i < channels_of(c->program); i++) {
    const zpr_channel *h = &d->nccl->channels[i];
    if (h->out) zpr_nccl_check(c, nccl->send(byte + i, 1, NCCL_U8, 1, h->out, d->stream), "connect stages");
    if (h->in)
      zpr_nccl_check(c, nccl->receive(byte + ZPR_CHANNELS + i, 1, NCCL_U8, 0, h->in, d->stream), "connect stages");
  }
  zpr_nccl_check(c, nccl->group_end(), "connect stages");
}

/* The arena has a place for every channel that comes in, in their order; it is opened later. */
static void open_landings(zpr *c) {
  zpr_device *d = c->state->device;
  int64_t at = c->stage->arrivals;
  for (int i = 0; i < channels_of(c->program) && c->stage->arrival_stride > 0; i++) {
    zpr_channel *h = &d->nccl->channels[i];
    if (!h->in) continue;
    h->landing_at = at;
    at += c->stage->arrival_stride;
    zpr_cuda(c, d->api.new_stream(&h->arrivals, 1), "make a stream for messages"); /* CU_STREAM_NON_BLOCKING */
    zpr_cuda(c, d->api.new_event(&h->landed, 2), "make an event");                 /* CU_EVENT_DISABLE_TIMING */
    zpr_cuda(c, d->api.new_event(&h->taken, 2), "make an event");
  }
}

void zpr_nccl_open_channels(zpr *c, zpr_nccl_id *ids) {
  zpr_device *d = c->state->device;
  zpr_nccl *n = d->nccl;
  int64_t buffers = zpr_message_buffers(c->program);
  if (c->program->pipeline == 1) return;
  for (int i = 0; i < channels_of(c->program); i++) {
    join_channel(c, i, ids);
    zpr_cuda(c, d->api.new_stream(&n->channels[i].stream, 1),
             "make a stream for messages"); /* CU_STREAM_NON_BLOCKING */
  }
  open_landings(c);
  n->sent = zpr_alloc(c, (size_t)buffers, sizeof *n->sent);
  n->leaves = zpr_alloc(c, (size_t)buffers, sizeof *n->leaves);
  zpr_cuda(c, d->api.new_event(&n->ready, 2), "make an event"); /* CU_EVENT_DISABLE_TIMING */
  for (int64_t i = 0; i < buffers; i++) zpr_cuda(c, d->api.new_event(&n->sent[i], 2), "make an event");
}

void zpr_nccl_close_channels(zpr *c) {
  zpr_device *d = c->state->device;
  zpr_nccl *n = d->nccl;
  if (!n->sent) return; /* one stage */
  for (int i = 0; i < channels_of(c->program); i++) {
    zpr_channel *h = &n->channels[i];
    if (h->in) n->api.leave(h->in);
    if (h->out) n->api.leave(h->out);
    d->api.release_stream(h->stream);
    if (!h->arrivals) continue;
    d->api.release_stream(h->arrivals);
    d->api.release_event(h->landed);
    d->api.release_event(h->taken);
    free(h->count);
  }
  for (int64_t i = 0; i < zpr_message_buffers(c->program); i++) d->api.release_event(n->sent[i]);
  d->api.release_event(n->ready);
  free(n->sent);
  free(n->leaves);
}

/* ---- what comes in ahead ---- */

void zpr_nccl_expect(zpr *c, const zpr_message *from, int64_t count) {
  zpr_channel *h = channel_of(c, from);
  if (c->stage->arrival_stride == 0) return;
  assert(count * zpk_bytes(c->program->dtype) <= c->stage->arrival_stride && "the plan has room for every message");
  h->count = zpr_longer_list(c, h->count, h->messages, &h->room, sizeof *h->count);
  h->count[h->messages++] = count;
}

/* The next message of the channel may land when the one before was copied away. */
static void post(zpr *c, zpr_channel *h) {
  zpr_device *d = c->state->device;
  zpr_cuda(c, d->api.stream_waits(h->arrivals, h->taken, 0), "wait for a place to land");
  zpr_nccl_check(c,
                 d->nccl->api.receive(zpr_at(c, h->landing_at), (size_t)h->count[h->posted++], zpr_nccl_type(c), 0,
                                      h->in, h->arrivals),
                 "receive from another stage");
  zpr_cuda(c, d->api.record(h->landed, h->arrivals), "mark a message as received");
}

void zpr_nccl_begin_walk(zpr *c) {
  for (int i = 0; i < channels_of(c->program); i++) {
    zpr_channel *h = &c->state->device->nccl->channels[i];
    bool gradients = i % 2 == 0;
    assert(h->used == h->posted && (h->used == 0 || h->used == h->messages) && "the walk before took all that came");
    h->posted = h->used = 0;
    if (h->messages > 0 && (c->training || !gradients)) post(c, h);
  }
}

/* What the compute stream does next finds the message in `data`. */
static void take(zpr *c, zpr_channel *h, void *data, int64_t count) {
  zpr_device *d = c->state->device;
  assert(h->used < h->posted && h->count[h->used] == count && "walks take the messages of the rehearsal");
  zpr_cuda(c, d->api.stream_waits(d->stream, h->landed, 0), "wait for a message");
  zpr_copy(c, data, zpr_at(c, h->landing_at), count * zpk_bytes(c->program->dtype));
  zpr_cuda(c, d->api.record(h->taken, d->stream), "mark a message as copied");
  if (++h->used < h->messages) post(c, h);
}

/* ---- messages ---- */

void zpr_nccl_send(zpr *c, const zpr_message *to, const void *data, int64_t count) {
  zpr_device *d = c->state->device;
  zpr_nccl *n = d->nccl;
  const zpr_channel *h = channel_of(c, to);
  zpr_cuda(c, d->api.record(n->ready, d->stream), "mark a message as complete");
  zpr_cuda(c, d->api.stream_waits(h->stream, n->ready, 0), "wait for a message to be complete");
  zpr_nccl_check(c, n->api.send(data, (size_t)count, zpr_nccl_type(c), 1, h->out, h->stream), "send to the next stage");
  zpr_cuda(c, d->api.record(n->sent[to->buffer], h->stream), "mark a message as sent");
  n->leaves[to->buffer] = true;
  zpr_comm_count(c, ZPR_PIPELINE, count * zpk_bytes(c->program->dtype), to->peer);
}

/* What the compute stream does next may write the buffer. */
void zpr_nccl_send_wait(zpr *c, const zpr_message *to) {
  zpr_device *d = c->state->device;
  zpr_nccl *n = d->nccl;
  if (!n->sent || !n->leaves[to->buffer]) return;
  zpr_cuda(c, d->api.stream_waits(d->stream, n->sent[to->buffer], 0), "wait for a message to be sent");
  n->leaves[to->buffer] = false;
}

void zpr_nccl_recv(zpr *c, const zpr_message *from, void *data, int64_t count) {
  zpr_device *d = c->state->device;
  zpr_channel *h = channel_of(c, from);
  if (h->messages > 0)
    take(c, h, data, count);
  else
    zpr_nccl_check(c, d->nccl->api.receive(data, (size_t)count, zpr_nccl_type(c), 0, h->in, d->stream),
                   "receive from another stage");
}
