/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces: what a pipeline stage may run of a model besides whole segments.
 *
 * The body of a repeat falls into *parts* at the places where what flows on is like what the body carries: the residual
 * stream alongside what passes by (an encoder's output, skip connections), or several residual streams. A *piece* is a
 * range of neighbouring parts of one body, and a segment itself is the piece of all its parts. So a stage that begins
 * or ends inside a layer runs a piece of it, and whole layers in between as before: fused as a whole, with one kept
 * input each.
 *
 * Units number the parts along the model: part by part, iteration by iteration, segment by segment. Where no body is
 * divided a unit is one iteration of a segment. */
#ifndef ZPLAN_PIECES_H
#define ZPLAN_PIECES_H

#include <assert.h>
#include <zplan/model.h>

enum { ZP_MOST_PARTS = 4 }; /* of one body: bounds the pieces, which are parts * (parts + 1) / 2 */

typedef struct zp_piece {
  zp_segment segment;       /* "h", "h.attn": name, count and span; its logical graph */
  int whole;                /* the segment of the model */
  int first, end;           /* its parts */
  int first_node, end_node; /* of the whole segment's logical graph */
} zp_piece;

typedef struct zp_pieces {
  int n, n_whole; /* pieces; the first n_whole are the segments of the model, in order */
  zp_piece *piece;
  int *parts; /* per segment of the model: 1 or more */
  int *range; /* per segment: its first piece that is not the whole; by first part, then by end */
  int64_t n_units;
} zp_pieces;

/* Every segment is one part. */
zp_pieces *zp_pieces_whole(zp_arena *arena, const zp_model *model);
/* The bodies of repeats divided where they can be; NULL when none can. A place stands between two matrix products or
 * attentions; what crosses it has the shapes of what the body carries, and no parameter is used on both sides (unless
 * its gradient is a sum over iterations anyway). Of several places between the same two the last one is taken; of more
 * parts than ZP_MOST_PARTS neighbours with the least work are joined. */
zp_pieces *zp_pieces_divided(zp_arena *arena, const zp_model *model);

/* Index of the piece of parts first .. end - 1. */
static inline int zp_pieces_find(const zp_pieces *p, int segment, int first, int end) {
  assert(segment >= 0 && segment < p->n_whole);
  int parts = p->parts[segment], at = p->range[segment];
  assert(first >= 0 && first < end && end <= parts);
  if (end - first == parts) return segment;
  for (int i = 0; i < first; i++) at += parts - i - (i == 0); /* ranges that begin with part i, the whole left out */
  return at + end - first - 1;
}
/* The piece of one part, and the iteration, that a unit is. */
void zp_pieces_unit(const zp_pieces *pieces, int64_t unit, int *piece, int64_t *iteration);
/* What unit `unit` is called where no body is divided; -1 when it does not begin an iteration. One past the last unit
 * is known, too. */
int64_t zp_pieces_whole_unit(const zp_pieces *pieces, int64_t unit);
/* Calls fn for what runs units first .. end - 1: at most three pieces of a segment, the end of an iteration, whole
 * iterations, the beginning of one. */
typedef void zp_on_piece(void *arg, int piece, int64_t iteration, int64_t count);
void zp_pieces_walk(const zp_pieces *pieces, int64_t first, int64_t end, zp_on_piece *fn, void *arg);

/* The graph of a piece, cut out of the local graph of its whole segment (whose nodes are the logical ones in order,
 * with collectives between). Tensors keep their indices. NULL when the tensors at its ends do not have the form that
 * carried tensors have: split along the sequence or replicated, and no partial sum. */
zp_graph *zp_piece_localize(const zp_graph *local, const zp_pieces *pieces, int piece, bool sequence);

#endif
