/* SPDX-License-Identifier: Apache-2.0 */
/* The most parts of layers that a stage of one chunk has room for, in whole numbers and with the bytes of its pieces.
 *
 * The parts of a stage follow one after another as in the model, so they are whole layers between two pieces: the end
 * of one layer, the first parts of another; either may be missing. Or they are a piece inside one layer. A piece of a
 * layer keeps what its neighbours need, and with full recomputation that may be many times what the layer keeps, so
 * shares of a layer (least_parts.c) say little of it. In the letters of least_parts.c: a stage needs the sum of b + w a
 * + q e of its layers and pieces, and no less alongside them than any of these by itself; so for a given pair of pieces
 * the most layers are the whole part of what is left over what a layer needs. In one mode; where stages may be mixed,
 * every layer and piece takes its least of all modes. Loose by what other units of the stage need. */
#include <math.h>
#include <zplan/schedule.h>
#include "bound.h"
#include "procedures.h"

/* Pieces of other segments are left out, so what a stage needs alongside them may be less than here by nothing. */
zp_part_bytes zp_bytes_of_parts(zp_search_cache *s, const zp_point *point, const zp_alongside *alongside) {
  const zp_choice *c = &point->choice;
  const zp_variant *all = zp_variant_of(s, point);
  const zp_shares shares = zp_shares_here(c);
  const zp_state_bytes each = zp_bytes_of_state(c, all->lowered, &shares);
  zp_part_bytes b = {.parts = all->lowered->pieces->parts[zp_parts_segment(s, point)],
                     .modes = point->n_modes,
                     .mixes = zp_may_mix(s, point),
                     .limit = (double)s->limit_bytes * (1 + ZP_BOUND_SLACK)};
  for (int mode = 0; mode < b.modes; mode++) {
    const zp_lowered *l = s->variants.data[point->modes[mode]].lowered;
    for (int first = 0; first < b.parts; first++)
      for (int end = first + 1; end <= b.parts; end++) {
        const zp_segment_program *piece =
            &l->segments[zp_pieces_find(l->pieces, zp_parts_segment(s, point), first, end)];
        const zp_unit_bytes unit = zp_bytes_of_unit(piece, c->schedule);
        zp_piece_bytes *to = &b.piece[mode][first][end];
        for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
          to->state += each.of[kind] * (double)piece->elements.of[kind];
        to->kept = shares.of[ZP_STATE_ACTIVATIONS] * (double)unit.saved;
        to->waits = (double)zp_unit_pending_bytes(piece, c);
        to->alongside = zp_bytes_alongside(alongside, &unit);
      }
  }
  return b;
}

/* A piece with so many micro-batches. */
typedef struct need {
  double bytes, alongside;
} need;

static need need_of(const zp_part_bytes *b, int mode, int first, int end, double flight, double waiting) {
  const zp_piece_bytes *p = &b->piece[mode][first][end];
  return (need){p->state + flight * p->kept + waiting * p->waits, p->alongside};
}

/* mode: of all modes together where it is their number. */
static need need_in(const zp_part_bytes *b, int mode, int first, int end, double flight, double waiting) {
  if (first == end) return (need){0, 0};
  if (mode < b->modes) return need_of(b, mode, first, end, flight, waiting);
  need least = need_of(b, 0, first, end, flight, waiting);
  for (int i = 1; i < b->modes; i++) {
    need one = need_of(b, i, first, end, flight, waiting);
    least.bytes = zp_sooner(least.bytes, one.bytes);
    least.alongside = zp_sooner(least.alongside, one.alongside);
  }
  return least;
}

static double most_in(const zp_part_bytes *b, int mode, double flight, double waiting) {
  need head[ZP_MOST_PARTS + 1], tail[ZP_MOST_PARTS + 1]; /* from a part on; up to a part */
  const need layer = need_in(b, mode, 0, b->parts, flight, waiting);
  double most = 0;
  for (int i = 0; i < b->parts; i++) {
    head[i] = need_in(b, mode, i ? i : b->parts, b->parts, flight, waiting);
    tail[i] = need_in(b, mode, 0, i, flight, waiting);
    for (int end = i + 1; end < b->parts && i > 0; end++) {
      need inside = need_in(b, mode, i, end, flight, waiting);
      if (inside.bytes + inside.alongside <= b->limit) most = zp_later(most, end - i);
    }
  }
  for (int first = 0; first < b->parts; first++)
    for (int end = 0; end < b->parts; end++) {
      double ends = (first ? b->parts - first : 0) + end, bytes = head[first].bytes + tail[end].bytes,
             alongside = zp_later(head[first].alongside, tail[end].alongside);
      if (bytes + alongside > b->limit) continue;
      most = zp_later(most, ends);
      double left = b->limit - bytes - zp_later(alongside, layer.alongside);
      if (left < layer.bytes) continue;
      if (layer.bytes <= 0) return HUGE_VAL;
      most = zp_later(most, ends + floor(left / layer.bytes) * b->parts);
    }
  return most;
}

double zp_most_parts(const zp_part_bytes *b, double flight, double waiting) {
  double most = 0;
  if (b->mixes) return most_in(b, b->modes, flight, waiting);
  for (int mode = 0; mode < b->modes; mode++) most = zp_later(most, most_in(b, mode, flight, waiting));
  return most;
}
