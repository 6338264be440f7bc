/* SPDX-License-Identifier: Apache-2.0 */
/* Rows sorted by expert to the ranks of an expert group and back, on memory of the host: as many as routing decides.
 *
 * Own rows for one member stand together, because they are sorted by expert. What comes is sorted by the rank's experts
 * and then by member, so that of one member an expert's rows stand together. Members tell each other how many before
 * any row moves; then either end knows every message, and none is empty. */
#include <assert.h>
#include <string.h>
#include "comm.h"

/* The parts of counts (zpr_spread_counts), and where they are of. */
typedef struct routing {
  const int32_t *first, *sent, *came; /* [experts + 1], [n][experts], [n][experts] */
  int64_t experts, row_bytes;
} routing;

static routing routing_of(const zpr_spread *s, const int32_t *counts, int64_t n, int64_t row_bytes) {
  const int32_t *sent = counts + s->experts + 1;
  return (routing){counts, sent, sent + n * s->experts, s->experts, row_bytes};
}

static int64_t rows_of(const routing *x, const int32_t *counts, int64_t member) {
  int64_t rows = 0;
  for (int64_t j = 0; j < x->experts; j++) rows += counts[member * x->experts + j];
  return rows;
}

/* Where rows for a member begin among the rank's own. */
static int64_t own_place(const routing *x, int64_t member) {
  int64_t rows = 0;
  for (int64_t r = 0; r < member; r++) rows += rows_of(x, x->sent, r);
  return rows * x->row_bytes;
}

/* Bytes [begin, end) of the rows with a member between where experts have them and a packed piece. */
static void copy_pieces(const routing *x, int64_t member, int64_t begin, int64_t end, char *there, char *packed,
                        bool pack) {
  for (int64_t j = 0, at = 0; j < x->experts && at < end; j++) {
    int64_t row = x->first[j], bytes = x->came[member * x->experts + j] * x->row_bytes;
    for (int64_t r = 0; r < member; r++) row += x->came[r * x->experts + j];
    int64_t from = begin > at ? begin - at : 0, to = end - at < bytes ? end - at : bytes;
    if (from < to) {
      char *place = there + row * x->row_bytes + from, *piece = packed + at + from - begin;
      memcpy(pack ? piece : place, pack ? place : piece, (size_t)(to - from));
    }
    at += bytes;
  }
}

/* own: the rank's rows, for all members; there: those of its experts. Messages of the latter are packed. */
static void exchange_rows(zpr *c, const routing *x, bool spread, char *own, char *there) {
  zpr_comm *comm = c->state->comm;
  zpr_group g = comm->axis[ZPR_EXPERT];
  int64_t most = ZPR_STAGING_BYTES / g.n / 64 * 64, longest = 0;
  for (int64_t r = 0; r < g.n; r++) {
    int64_t out = rows_of(x, x->sent, r), in = rows_of(x, x->came, r), leaves = spread ? out : in;
    if (r == g.me) continue;
    comm->routed_bytes += leaves * x->row_bytes;
    if (out * x->row_bytes > longest) longest = out * x->row_bytes;
    if (in * x->row_bytes > longest) longest = in * x->row_bytes;
  }
  copy_pieces(x, g.me, 0, rows_of(x, x->came, g.me) * x->row_bytes, there, own + own_place(x, g.me), !spread);
  for (int64_t begin = 0; begin < longest; begin += most) {
    for (int r = 0; r < g.n; r++) {
      int *receive = &comm->handles[r], *send = &comm->handles[g.n + r];
      *receive = *send = -1;
      if (r == g.me) continue;
      int64_t n_own = rows_of(x, x->sent, r) * x->row_bytes - begin,
              n_there = rows_of(x, x->came, r) * x->row_bytes - begin;
      if (n_own > most) n_own = most;
      if (n_there > most) n_there = most;
      char *mine = own + own_place(x, r) + begin, *packed = comm->staging + r * most;
      int64_t n_in = spread ? n_there : n_own, n_out = spread ? n_own : n_there;
      if (!spread && n_there > 0) copy_pieces(x, r, begin, begin + n_there, there, packed, true);
      if (n_in > 0) *receive = comm->transport->irecv(spread ? packed : mine, n_in, g.rank[r], ZPR_EXPERT);
      if (n_out > 0) *send = zpr_post_send(c, ZPR_EXPERT, spread ? mine : packed, n_out, g.rank[r], ZPR_EXPERT);
    }
    zpr_wait_handles(c, comm->handles, g.n);
    for (int r = 0; r < g.n && spread; r++) {
      int64_t n_there = rows_of(x, x->came, r) * x->row_bytes - begin;
      if (r != g.me && n_there > 0)
        copy_pieces(x, r, begin, begin + (n_there < most ? n_there : most), there, comm->staging + r * most, false);
    }
    zpr_wait_handles(c, comm->handles + g.n, g.n);
  }
}

static void exchange_counts(zpr *c, int64_t experts, int32_t *sent, int32_t *came) {
  zpr_comm *comm = c->state->comm;
  zpr_group g = comm->axis[ZPR_EXPERT];
  int64_t bytes = experts * (int64_t)sizeof *sent;
  memcpy(came + g.me * experts, sent + g.me * experts, (size_t)bytes);
  for (int r = 0; r < g.n; r++) {
    bool other = r != g.me;
    comm->handles[r] = other ? comm->transport->irecv(came + r * experts, bytes, g.rank[r], ZPR_EXPERT) : -1;
    comm->handles[g.n + r] =
        other ? zpr_post_send(c, ZPR_EXPERT, sent + r * experts, bytes, g.rank[r], ZPR_EXPERT) : -1;
  }
  zpr_wait_handles(c, comm->handles, 2 * g.n);
}

void zpr_spread_counts(zpr *c, const zpr_spread *s, const int32_t *first, int64_t n, int32_t *counts) {
  zpr_group g = zpr_axis_group(c, ZPR_EXPERT);
  int64_t all = g.n * s->experts;
  int32_t *sent = counts + s->experts + 1, *came = sent + all;
  assert(s->experts >= 1 && n >= s->experts + 1 + 2 * all && s->choices <= INT32_MAX && s->room <= INT32_MAX);
  memset(counts, 0, (size_t)n * sizeof *counts);
  for (int64_t e = 0; e < all; e++) sent[e] = (e + 1 < all ? first[e + 1] : (int32_t)s->choices) - first[e];
  exchange_counts(c, s->experts, sent, came);
  for (int64_t j = 0; j < s->experts; j++) {
    counts[j + 1] = counts[j];
    for (int64_t r = 0; r < g.n; r++) counts[j + 1] += came[r * s->experts + j];
  }
  if (counts[s->experts] > s->room)
    zpr_fail(c, "Z0855", "step %lld: gates send rank %d %d rows for its experts, and it has room for %lld",
             (long long)c->step + 1, c->rank, counts[s->experts], (long long)s->room);
}

void zpr_spread_rows(zpr *c, const zpr_spread *s, const int32_t *counts, const void *in, int64_t cols, void *out) {
  int64_t row_bytes = cols * zpk_bytes(c->program->dtype), rows = counts[s->experts];
  routing x = routing_of(s, counts, zpr_axis_group(c, ZPR_EXPERT).n, row_bytes);
  exchange_rows(c, &x, true, (char *)(uintptr_t)in, out);
  memset((char *)out + rows * row_bytes, 0, (size_t)((s->room - rows) * row_bytes));
}

void zpr_return_rows(zpr *c, const zpr_spread *s, const int32_t *counts, const void *in, int64_t cols, void *out) {
  routing x = routing_of(s, counts, zpr_axis_group(c, ZPR_EXPERT).n, cols * zpk_bytes(c->program->dtype));
  exchange_rows(c, &x, false, out, (char *)(uintptr_t)in);
}
