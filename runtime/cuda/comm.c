/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives and messages of an arena on a GPU: by NCCL (nccl.c), or staged: pieces go down to pinned memory of the
 * host, through comm.c as on CPU ranks, and up again. Either way the bytes that a plan predicts are those that are
 * counted. */
#include "cuda.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- choosing ---- */

/* A GPU as all ranks know it. */
typedef struct identity {
  char host[64];
  unsigned char id[16];
  int64_t nccl; /* version of NCCL, 0: there is none */
} identity;

/* Ranks on one GPU cannot be two members of a communicator of NCCL. */
static bool share_a_gpu(const zpr *c, const identity *all) {
  for (int a = 0; a < c->ranks; a++)
    for (int b = 0; b < a; b++)
      if (memcmp(&all[a], &all[b], offsetof(identity, nccl)) == 0) return true;
  return false;
}

/* NCCLs of several versions do not understand each other, and few say so: some wait for ever. */
static void check_versions(zpr *c, const identity *all) {
  zpr_error error = {0};
  for (int r = 1; r < c->ranks; r++)
    if (all[r].nccl && all[0].nccl && all[r].nccl != all[0].nccl)
      zpr_error_set(&error, "Z0853",
                    "rank %d has NCCL %lld.%lld.%lld and rank 0 %lld.%lld.%lld: all need the same one, or "
                    "--comm staged",
                    r, (long long)all[r].nccl / 10000, (long long)all[r].nccl / 100 % 100, (long long)all[r].nccl % 100,
                    (long long)all[0].nccl / 10000, (long long)all[0].nccl / 100 % 100, (long long)all[0].nccl % 100);
  zpr_agree(c, &error);
}

/* NULL when NCCL can be used. The same on all ranks. An emulated GPU has an emulated NCCL for those who ask for it. */
static const char *why_not_nccl(zpr *c, bool asked) {
  zpr_device *d = c->state->device;
  static char reason[160];
  const char *missing = "";
  int version = 0;
  identity mine = {0}, *all = zpr_alloc(c, (size_t)c->ranks, sizeof *all);
  gethostname(mine.host, sizeof mine.host - 1);
  zpr_cuda(c, d->api.device_id(mine.id, d->ordinal), "ask for the GPU's identity");
  if ((!d->emulated || asked) && zpr_nccl_available(d->emulated, &version, &missing)) mine.nccl = version;
  zpr_world_gather(c, &mine, sizeof mine, all);
  bool shared = share_a_gpu(c, all);
  int without = -1;
  for (int r = c->ranks; r-- > 0;)
    if (!all[r].nccl) without = r;
  if (asked || (!d->emulated && !shared && without < 0)) check_versions(c, all);
  free(all);
  if (d->emulated) return asked ? NULL : "the GPU is emulated";
  if (shared) return "several ranks share a GPU";
  if (without < 0) return NULL;
  snprintf(reason, sizeof reason, "rank %d has no NCCL%s%s", without, *missing ? ": " : "", missing);
  return reason;
}

void zpr_cuda_comm_open(zpr *c) {
  const char *asked = c->state->options.comm, *why_not = why_not_nccl(c, asked && strcmp(asked, "nccl") == 0);
  c->state->device->sends = zpr_alloc(c, (size_t)zpr_message_buffers(c->program), sizeof(zpr_message_buffer));
  zpr_error error = {0};
  if (asked && strcmp(asked, "nccl") == 0 && why_not)
    zpr_error_set(&error, "Z0853", "--comm nccl cannot be had: %s", why_not);
  zpr_agree(c, &error);
  if (c->ranks > 1 && !why_not && (!asked || strcmp(asked, "nccl") == 0)) zpr_nccl_open(c);
}

void zpr_cuda_comm_close(zpr *c) {
  zpr_device *d = c->state->device;
  if (d->nccl) zpr_nccl_close(c);
  for (int64_t i = 0; d->sends && i < zpr_message_buffers(c->program); i++)
    if (d->sends[i].memory) d->api.release_host(d->sends[i].memory);
  if (d->receive.memory) d->api.release_host(d->receive.memory);
  if (d->exchange.memory) d->api.release_host(d->exchange.memory);
  free(d->sends);
}

/* ---- staged pieces ---- */

static int64_t element_bytes(const zpr *c) { return zpk_bytes(c->program->dtype); }

/* Pieces pass through the pinned memory of windows. The stream keeps a copy up and the next copy down in order; the
 * host writes only after it has waited for the latter. */
static void fetch(zpr *c, char *to, const char *from, int64_t bytes) {
  zpr_device *d = c->state->device;
  if (bytes > 0) zpr_cuda(c, d->api.to_host(to, zpr_gpu(from), (size_t)bytes, d->stream), "copy from the GPU");
}

static void put(zpr *c, char *to, const char *from, int64_t bytes) {
  zpr_device *d = c->state->device;
  if (bytes > 0) zpr_cuda(c, d->api.to_device(zpr_gpu(to), from, (size_t)bytes, d->stream), "copy to the GPU");
  d->pinned_busy = true; /* for the next window */
}

static void staged_all_reduce(zpr *c, const zpr_group *g, zpr_axis axis, zpk_dtype dtype, char *data, int64_t count) {
  int64_t size = zpk_bytes(dtype), most = ZPR_PINNED_BYTES / size;
  for (int64_t at = 0; at < count; at += most) {
    int64_t n = count - at < most ? count - at : most;
    char *host = c->state->device->pinned;
    fetch(c, host, data + at * size, n * size);
    zpr_cuda_wait(c);
    zpr_host_all_reduce(c, g, axis, dtype, host, n);
    put(c, data + at * size, host, n * size);
  }
}

/* Piece `at` of every shard, side by side. The sum of this rank's goes to `sum`, which may be its place in data. */
static void staged_reduce_scatter(zpr *c, const zpr_group *g, zpr_axis axis, zpk_dtype dtype, const char *data,
                                  int64_t shard, char *sum) {
  int64_t size = zpk_bytes(dtype), most = ZPR_PINNED_BYTES / size / g->n;
  for (int64_t at = 0; at < shard; at += most) {
    int64_t n = shard - at < most ? shard - at : most;
    char *host = c->state->device->pinned;
    for (int r = 0; r < g->n; r++) fetch(c, host + r * n * size, data + (r * shard + at) * size, n * size);
    zpr_cuda_wait(c);
    zpr_host_reduce_scatter(c, g, axis, dtype, host, n);
    put(c, sum + at * size, host + g->me * n * size, n * size);
  }
}

static void staged_all_gather(zpr *c, const zpr_group *g, zpr_axis axis, char *data, int64_t shard) {
  int64_t size = element_bytes(c), most = ZPR_PINNED_BYTES / size / g->n;
  for (int64_t at = 0; at < shard; at += most) {
    int64_t n = shard - at < most ? shard - at : most;
    char *host = c->state->device->pinned;
    fetch(c, host + g->me * n * size, data + (g->me * shard + at) * size, n * size);
    zpr_cuda_wait(c);
    zpr_host_all_gather(c, g, axis, host, n);
    for (int r = 0; r < g->n; r++)
      if (r != g->me) put(c, data + (r * shard + at) * size, host + r * n * size, n * size);
  }
}

/* ---- collectives ---- */

void zpr_group_all_reduce(zpr *c, const zpr_group *group, zpr_axis counted_as, zpk_dtype dtype, void *data,
                          int64_t count) {
  if (group->n == 1 || c->state->rehearses) return;
  if (c->state->device->nccl)
    zpr_nccl_group_all_reduce(c, group, counted_as, dtype, data, count);
  else
    staged_all_reduce(c, group, counted_as, dtype, data, count);
}

void zpr_group_reduce_scatter(zpr *c, const zpr_group *group, zpr_axis counted_as, zpk_dtype dtype, void *data,
                              int64_t shard_count) {
  if (group->n == 1 || c->state->rehearses) return;
  if (c->state->device->nccl)
    zpr_nccl_group_reduce_scatter(c, group, counted_as, dtype, data, shard_count);
  else
    staged_reduce_scatter(c, group, counted_as, dtype, data, shard_count,
                          (char *)data + group->me * shard_count * zpk_bytes(dtype));
}

void zpr_group_all_gather(zpr *c, const zpr_group *group, zpr_axis counted_as, void *data, int64_t shard_count) {
  if (group->n == 1 || c->state->rehearses) return;
  if (c->state->device->nccl)
    zpr_nccl_group_all_gather(c, group, counted_as, data, shard_count);
  else
    staged_all_gather(c, group, counted_as, data, shard_count);
}

bool zpr_sends_as_planned(const zpr *c) { return c->state->device->nccl != NULL; }

void zpr_together(zpr *c, bool begin) {
  if (c->state->device->nccl && !c->state->rehearses) zpr_nccl_together(c, begin);
}

void zpr_all_reduce(zpr *c, zpr_axis axis, void *data, int64_t count) {
  assert(axis < ZPR_AXIS_COUNT && count >= 0);
  zpr_group g = zpr_axis_group(c, axis);
  if (g.n == 1 || c->state->rehearses) return;
  if (c->state->device->nccl)
    zpr_nccl_all_reduce(c, axis, data, count);
  else
    staged_all_reduce(c, &g, axis, c->program->dtype, data, count);
}

void zpr_all_gather(zpr *c, zpr_axis axis, const void *in, int64_t count, void *out) {
  assert(axis < ZPR_AXIS_COUNT && count >= 0);
  zpr_group g = zpr_axis_group(c, axis);
  int64_t bytes = count * element_bytes(c);
  char *place = (char *)out + g.me * bytes;
  if (in != place) zpr_copy(c, place, in, bytes);
  zpr_group_all_gather(c, &g, axis, out, count);
}

void zpr_all_gather_sequence(zpr *c, const void *in, int64_t samples, int64_t elements, void *out) {
  assert(samples >= 0 && elements >= 0);
  zpr_group g = zpr_axis_group(c, ZPR_TENSOR);
  int64_t bytes = elements * element_bytes(c);
  zpr_together(c, true);
  for (int64_t b = 0; b < samples; b++)
    zpr_all_gather(c, ZPR_TENSOR, (const char *)in + b * bytes, elements, (char *)out + b * g.n * bytes);
  zpr_together(c, false);
}

void zpr_reduce_scatter_sequence(zpr *c, const void *in, int64_t samples, int64_t elements, void *out) {
  assert(samples >= 0 && elements >= 0);
  zpr_group g = zpr_axis_group(c, ZPR_TENSOR);
  int64_t bytes = elements * element_bytes(c);
  if (c->state->rehearses) return;
  zpr_together(c, true);
  for (int64_t b = 0; b < samples; b++) {
    const char *from = (const char *)in + b * g.n * bytes;
    char *to = (char *)out + b * bytes;
    if (g.n == 1)
      zpr_copy(c, to, from, bytes);
    else if (c->state->device->nccl)
      zpr_nccl_reduce_scatter(c, ZPR_TENSOR, from, elements, to);
    else
      staged_reduce_scatter(c, &g, ZPR_TENSOR, c->program->dtype, from, elements, to);
  }
  zpr_together(c, false);
}

/* ---- pipeline neighbours ---- */

void zpr_messages_begin(zpr *c) {
  if (c->state->device->nccl) zpr_nccl_begin_walk(c);
}

static void *room(zpr *c, zpr_message_buffer *buffer, int64_t bytes) {
  zpr_device *d = c->state->device;
  if (buffer->bytes < bytes) {
    if (buffer->memory) zpr_cuda(c, d->api.release_host(buffer->memory), "free pinned memory of the host");
    buffer->memory = NULL;
    zpr_cuda(c, d->api.allocate_host(&buffer->memory, (size_t)bytes), "get pinned memory of the host for messages");
    buffer->bytes = bytes;
  }
  return buffer->memory;
}

void zpr_stage_send(zpr *c, const zpr_message *to, const void *data, int64_t count) {
  zpr_device *d = c->state->device;
  if (c->state->rehearses) return;
  if (d->nccl) {
    zpr_nccl_send(c, to, data, count);
    return;
  }
  zpr_host_send_wait(c, to);
  void *host = room(c, &d->sends[to->buffer], count * element_bytes(c));
  fetch(c, host, data, count * element_bytes(c));
  zpr_cuda_wait(c);
  zpr_host_send(c, to, host, count);
}

void zpr_stage_send_wait(zpr *c, const zpr_message *to) {
  if (c->state->device->nccl)
    zpr_nccl_send_wait(c, to);
  else
    zpr_host_send_wait(c, to);
}

void zpr_stage_recv(zpr *c, const zpr_message *from, void *data, int64_t count) {
  zpr_device *d = c->state->device;
  if (c->state->rehearses) {
    zpr_nccl_expect(c, from, count);
    return;
  }
  if (d->nccl) {
    zpr_nccl_recv(c, from, data, count);
    return;
  }
  if (d->receive_busy) zpr_cuda_wait(c);
  void *host = room(c, &d->receive, count * element_bytes(c));
  zpr_host_recv(c, from, host, count);
  zpr_cuda(c, d->api.to_device(zpr_gpu(data), host, (size_t)(count * element_bytes(c)), d->stream), "copy to the GPU");
  d->receive_busy = true;
}
