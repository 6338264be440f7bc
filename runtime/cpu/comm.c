/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives and messages of an arena that is memory of the host: those of comm.c as they are. */
#include <assert.h>
#include <string.h>
#include "device.h"
#include "state.h"

void zpr_group_all_reduce(zpr *c, const zpr_group *group, zpr_axis counted_as, zpk_dtype dtype, void *data,
                          int64_t count) {
  zpr_host_all_reduce(c, group, counted_as, dtype, data, count);
}

void zpr_group_reduce_scatter(zpr *c, const zpr_group *group, zpr_axis counted_as, zpk_dtype dtype, void *data,
                              int64_t shard_count) {
  zpr_host_reduce_scatter(c, group, counted_as, dtype, data, shard_count);
}

void zpr_group_all_gather(zpr *c, const zpr_group *group, zpr_axis counted_as, void *data, int64_t shard_count) {
  zpr_host_all_gather(c, group, counted_as, data, shard_count);
}

bool zpr_sends_as_planned(const zpr *c) {
  (void)c;
  return true;
}

void zpr_together(zpr *c, bool begin) { (void)c, (void)begin; }

void zpr_all_reduce(zpr *c, zpr_axis axis, void *data, int64_t count) {
  assert(axis < ZPR_AXIS_COUNT && count >= 0);
  zpr_group g = zpr_axis_group(c, axis);
  zpr_host_all_reduce(c, &g, axis, c->program->dtype, data, count);
}

void zpr_all_gather(zpr *c, zpr_axis axis, const void *in, int64_t count, void *out) {
  assert(axis < ZPR_AXIS_COUNT && count >= 0);
  zpr_group g = zpr_axis_group(c, axis);
  int64_t bytes = count * zpk_bytes(c->program->dtype);
  char *place = (char *)out + g.me * bytes;
  if (in != place) memmove(place, in, (size_t)bytes);
  zpr_host_all_gather(c, &g, axis, out, count);
}

void zpr_all_gather_sequence(zpr *c, const void *in, int64_t samples, int64_t elements, void *out) {
  assert(samples >= 0 && elements >= 0);
  zpr_group g = zpr_axis_group(c, ZPR_TENSOR);
  int64_t bytes = elements * zpk_bytes(c->program->dtype);
  for (int64_t b = 0; b < samples; b++) {
    char *sample = (char *)out + b * g.n * bytes;
    memcpy(sample + g.me * bytes, (const char *)in + b * bytes, (size_t)bytes);
    zpr_host_all_gather(c, &g, ZPR_TENSOR, sample, elements);
  }
}

void zpr_reduce_scatter_sequence(zpr *c, const void *in, int64_t samples, int64_t elements, void *out) {
  assert(samples >= 0 && elements >= 0);
  zpr_group g = zpr_axis_group(c, ZPR_TENSOR);
  int64_t bytes = elements * zpk_bytes(c->program->dtype);
  for (int64_t b = 0; b < samples; b++)
    zpr_host_reduce_scatter_to(c, &g, ZPR_TENSOR, (const char *)in + b * g.n * bytes, elements,
                               (char *)out + b * bytes);
}

void zpr_exchange_slots(zpr *c, zpr_axis axis, bool spread, const void *in, int64_t samples, int64_t experts,
                        int64_t elements, void *out) {
  assert(samples >= 0 && experts >= 1 && elements >= 0);
  zpr_host_exchange_slots(c, axis, spread, in, samples, experts, elements, out);
}

void zpr_group_exchange(zpr *c, const zpr_group *group, zpr_axis counted_as, const void *send, int64_t stride,
                        int64_t bytes, void *recv) {
  zpr_host_exchange(c, group, counted_as, send, stride, bytes, recv);
}

void zpr_stage_send(zpr *c, const zpr_message *to, const void *data, int64_t count) {
  zpr_host_send(c, to, data, count);
}

void zpr_stage_send_wait(zpr *c, const zpr_message *to) { zpr_host_send_wait(c, to); }

void zpr_stage_recv(zpr *c, const zpr_message *from, void *data, int64_t count) { zpr_host_recv(c, from, data, count); }

void zpr_overlapped_join(zpr *c) { (void)c; }

void zpr_messages_begin(zpr *c) { (void)c; }

void zpr_transfer_start(zpr *c, int i, const zpr_transfer *t) { zpr_host_transfer_start(c, i, t); }

void zpr_transfer_wait(zpr *c, int i) { zpr_host_transfer_wait(c, i); }
