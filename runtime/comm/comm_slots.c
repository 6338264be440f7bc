/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of slots in an expert group, or of heads in a context group, on memory of the host. */
#include <string.h>
#include "comm.h"

/* What travels between two members is a stream of blocks, sample by sample and expert by expert of the rank that has
 * them: block b * experts + j, b of samples. Together for one rank's own samples, or for its experts. */
typedef struct exchange {
  int64_t n, samples, experts, block_bytes;
  zpr_axis axis;
  bool spread;
} exchange;

/* Where block `at` of the stream from or to member r stands in what a rank sends, or receives. */
static int64_t block_place(const exchange *x, bool by_samples, int64_t r, int64_t at) {
  int64_t b = at / x->experts, j = at % x->experts;
  return (by_samples ? (b * x->n + r) * x->experts + j : (b * x->experts + j) * x->n + r) * x->block_bytes;
}

/* Copies bytes [begin, end) of the stream with member r between a rank's buffer and a packed piece. */
static void copy_stream(const exchange *x, bool by_samples, int64_t r, int64_t begin, int64_t end, char *buffer,
                        char *packed, bool pack) {
  while (begin < end) {
    int64_t at = begin / x->block_bytes, inside = begin % x->block_bytes, bytes = x->block_bytes - inside;
    if (bytes > end - begin) bytes = end - begin;
    char *place = buffer + block_place(x, by_samples, r, at) + inside;
    memcpy(pack ? packed : place, pack ? place : packed, (size_t)bytes);
    packed += bytes;
    begin += bytes;
  }
}

static void exchange_slots(zpr *c, const exchange *x, char *in, char *out) {
  zpr_comm *comm = c->state->comm;
  zpr_group g = comm->axis[x->axis];
  int64_t stream = x->samples * x->experts * x->block_bytes, most = ZPR_STAGING_BYTES / (2 * x->n) / 64 * 64;
  for (int64_t at = 0; at < x->samples * x->experts; at++)
    memcpy(out + block_place(x, !x->spread, g.me, at), in + block_place(x, x->spread, g.me, at),
           (size_t)x->block_bytes);
  for (int64_t begin = 0; begin < stream; begin += most) {
    int64_t end = begin + most < stream ? begin + most : stream;
    for (int r = 0; r < g.n; r++) {
      int *receive = &comm->handles[r], *send = &comm->handles[g.n + r];
      char *packed = comm->staging + (g.n + r) * most;
      *receive = *send = -1;
      if (r == g.me) continue;
      *receive = comm->transport->irecv(comm->staging + r * most, end - begin, g.rank[r], (int)x->axis);
      copy_stream(x, x->spread, r, begin, end, in, packed, true);
      *send = zpr_post_send(c, x->axis, packed, end - begin, g.rank[r], (int)x->axis);
    }
    zpr_wait_handles(c, comm->handles, g.n);
    for (int r = 0; r < g.n; r++)
      if (r != g.me) copy_stream(x, !x->spread, r, begin, end, out, comm->staging + r * most, false);
    zpr_wait_handles(c, comm->handles + g.n, g.n);
  }
}

void zpr_host_exchange_slots(zpr *c, zpr_axis axis, bool spread, const void *in, int64_t samples, int64_t experts,
                             int64_t elements, void *out) {
  exchange x = {zpr_axis_group(c, axis).n, samples, experts, elements * zpk_bytes(c->program->dtype), axis, spread};
  exchange_slots(c, &x, (char *)(uintptr_t)in, out);
}

void zpr_spread_slots(zpr *c, const void *in, int64_t samples, int64_t experts, int64_t elements, void *out) {
  zpr_exchange_slots(c, ZPR_EXPERT, true, in, samples, experts, elements, out);
}

void zpr_return_slots(zpr *c, const void *in, int64_t samples, int64_t experts, int64_t elements, void *out) {
  zpr_exchange_slots(c, ZPR_EXPERT, false, in, samples, experts, elements, out);
}
