/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between members of a context group, on memory of the host: posted, and waited for later. Of two between the
 * same ranks both ends post in one order, so their tag may be the same. */
#include <assert.h>
#include "comm.h"
#include "device.h"

static int64_t split_at(int64_t at, int64_t bytes) {
  return bytes - at < ZPR_SPLIT_BYTES ? bytes - at : ZPR_SPLIT_BYTES;
}

void zpr_host_transfer_start(zpr *c, int i, const zpr_transfer *t) {
  assert(i >= 0 && i < ZPR_TRANSFERS && t->out_bytes >= 0 && t->in_bytes >= 0);
  zpr_comm *comm = c->state->comm;
  zpr_group g = zpr_axis_group(c, ZPR_CONTEXT);
  pending_transfer *p = &comm->transfers[i];
  assert(p->n == 0 && "the one before was waited for");
  int64_t more = t->out_bytes > t->in_bytes ? t->out_bytes : t->in_bytes;
  if (more > (int64_t)ZPR_MAX_SPLITS * ZPR_SPLIT_BYTES)
    zpr_fail(c, "Z0821", "a message of %lld bytes between context ranks is too long", (long long)more);
  for (int64_t at = 0; at < t->in_bytes; at += ZPR_SPLIT_BYTES)
    p->handle[p->n++] =
        comm->transport->irecv((char *)t->in + at, split_at(at, t->in_bytes), g.rank[t->from], ZPR_CONTEXT);
  for (int64_t at = 0; at < t->out_bytes; at += ZPR_SPLIT_BYTES)
    p->handle[p->n++] = zpr_post_send(c, ZPR_CONTEXT, (const char *)t->out + at, split_at(at, t->out_bytes),
                                      g.rank[t->to], ZPR_CONTEXT);
}

void zpr_host_transfer_wait(zpr *c, int i) {
  assert(i >= 0 && i < ZPR_TRANSFERS);
  pending_transfer *p = &c->state->comm->transfers[i];
  zpr_wait_handles(c, p->handle, p->n);
  p->n = 0;
}
