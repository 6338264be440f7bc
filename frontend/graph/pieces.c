/* SPDX-License-Identifier: Apache-2.0 */
/* Where the body of a repeat may be cut, and the pieces that come of it. slice.c cuts the graphs. */
#include <assert.h>
#include <zplan/buf.h>
#include <zplan/pieces.h>
#include "graph_internal.h"

/* ---- places ---- */

static bool is_heavy(const zp_node *node) {
  zp_op_class class = zp_op_get_class(node->op);
  return class == ZP_CLASS_MATMUL || class == ZP_CLASS_ATTENTION || class == ZP_CLASS_GROUPED;
}

static double heavy_flop(const zp_graph *graph, int first, int end) {
  double flop = 0;
  for (int n = first; n < end; n++)
    if (is_heavy(&graph->nodes.data[n])) flop += zp_node_flop(graph, &graph->nodes.data[n], 1);
  return flop;
}

/* A gradient that one micro-batch writes once may be written by one piece only; what all iterations of a repeat share
 * is added to from everywhere (zp_lowered.zero_first). */
static bool splits_a_parameter(const zp_model *model, const zp_segment *segment, int node) {
  const zp_graph *g = segment->graph;
  for (int i = 0; i < g->params.len; i++) {
    bool summed = model->params.data[g->params.data[i].param].segment < 0 && segment->count > 1;
    int tensor = g->params.data[i].tensor;
    if (!summed && zp_graph_reads(g, tensor, 0, node) && zp_graph_reads(g, tensor, node, g->nodes.len)) return true;
  }
  return false;
}

/* Is what crosses before `node` like what the body carries, so that stages exchange and keep the same there? */
static bool is_place(const zp_model *model, const zp_segment *segment, int node) {
  const zp_graph *g = segment->graph;
  zp_ints crossing = {0};
  if (!zp_graph_crossing(g, node, &crossing) || splits_a_parameter(model, segment, node)) return false;
  for (int i = 0; i < crossing.len; i++)
    if (g->tensors.data[crossing.data[i]].base >= 0) return false;
  return true;
}

/* The last place after heavy node `heavy` and before the next one; -1. */
static int place_after(const zp_model *model, const zp_segment *segment, int heavy) {
  int place = -1;
  for (int n = heavy + 1; n < segment->graph->nodes.len; n++) {
    if (is_place(model, segment, n)) place = n;
    if (is_heavy(&segment->graph->nodes.data[n])) return place;
  }
  return -1; /* nothing heavy follows */
}

/* Joins the two neighbours with the least work. bounds: places with 0 and the end around them. */
static void join_lightest(const zp_graph *graph, zp_ints *bounds) {
  int lightest = 1;
  double least = -1;
  for (int i = 1; i + 1 < bounds->len; i++) {
    double flop = heavy_flop(graph, bounds->data[i - 1], bounds->data[i + 1]);
    if (least >= 0 && flop >= least) continue;
    least = flop;
    lightest = i;
  }
  for (int i = lightest; i + 1 < bounds->len; i++) bounds->data[i] = bounds->data[i + 1];
  bounds->len--;
}

/* First nodes of the parts, then the number of nodes. */
static zp_ints find_bounds(zp_arena *arena, const zp_model *model, const zp_segment *segment) {
  const zp_graph *g = segment->graph;
  zp_ints bounds = {0};
  zp_push(arena, &bounds, 0);
  for (int n = 0; n < g->nodes.len && segment->is_repeat; n++) {
    int place = is_heavy(&g->nodes.data[n]) ? place_after(model, segment, n) : -1;
    if (place >= 0) zp_push(arena, &bounds, place);
  }
  zp_push(arena, &bounds, g->nodes.len);
  while (bounds.len - 1 > ZP_MOST_PARTS) join_lightest(g, &bounds);
  return bounds;
}

/* ---- names ---- */

/* The block that all products of the nodes belong to ("attn" of "attn.c_proj"); NULL when there are several. */
static const char *block_of(zp_arena *arena, const zp_graph *graph, int first, int end) {
  const char *block = NULL;
  for (int n = first; n < end; n++) {
    const zp_node *node = &graph->nodes.data[n];
    if (!is_heavy(node)) continue;
    const char *own = zp_format(arena, "%.*s", (int)strcspn(node->name, "."), node->name);
    if (block && strcmp(block, own) != 0) return NULL;
    block = own;
  }
  return block;
}

/* Names of the parts: their blocks where these tell them apart, else numbers. */
static const char **name_parts(zp_arena *arena, const zp_graph *graph, const zp_ints *bounds) {
  int n = bounds->len - 1;
  const char **name = ZP_NEW_ARRAY(arena, const char *, n);
  bool distinct = true;
  for (int i = 0; i < n; i++) {
    name[i] = block_of(arena, graph, bounds->data[i], bounds->data[i + 1]);
    distinct = distinct && name[i];
    for (int k = 0; k < i && distinct; k++) distinct = strcmp(name[k], name[i]) != 0;
  }
  for (int i = 0; i < n && !distinct; i++) name[i] = zp_format(arena, "part%d", i + 1);
  return name;
}

static const char *name_piece(zp_arena *arena, const char *whole, const char **part, int first, int end) {
  zp_buf name = zp_buf_new(arena);
  zp_buf_puts(&name, whole);
  for (int i = first; i < end; i++) zp_buf_printf(&name, "%s%s", i == first ? "." : "+", part[i]);
  return name.data;
}

/* ---- pieces ---- */

static void add_ranges(zp_arena *arena, zp_pieces *p, int whole, const zp_ints *bounds) {
  const zp_segment *segment = &p->piece[whole].segment;
  const char **name = name_parts(arena, segment->graph, bounds);
  int parts = bounds->len - 1;
  p->range[whole] = p->n;
  for (int first = 0; first < parts; first++)
    for (int end = first + 1; end <= parts; end++) {
      if (end - first == parts) continue;
      zp_piece piece = {*segment, whole, first, end, bounds->data[first], bounds->data[end]};
      piece.segment.name = name_piece(arena, segment->name, name, first, end);
      piece.segment.graph = zp_graph_slice(segment->graph, piece.first_node, piece.end_node);
      p->piece[p->n++] = piece;
    }
}

static zp_pieces *make_pieces(zp_arena *arena, const zp_model *model, const zp_ints *bounds) {
  zp_pieces *p = ZP_NEW(arena, zp_pieces);
  int n = model->segments.len, ranges = 0;
  p->n = p->n_whole = n;
  p->parts = ZP_NEW_ARRAY(arena, int, n);
  p->range = ZP_NEW_ARRAY(arena, int, n);
  for (int s = 0; s < n; s++) {
    p->parts[s] = bounds ? bounds[s].len - 1 : 1;
    p->n_units += p->parts[s] * model->segments.data[s].count;
    ranges += p->parts[s] * (p->parts[s] + 1) / 2 - 1;
  }
  p->piece = ZP_NEW_ARRAY(arena, zp_piece, n + ranges);
  for (int s = 0; s < n; s++) {
    const zp_segment *segment = &model->segments.data[s];
    p->piece[s] = (zp_piece){*segment, s, 0, p->parts[s], 0, segment->graph->nodes.len};
  }
  for (int s = 0; s < n && bounds; s++) add_ranges(arena, p, s, &bounds[s]);
  assert(p->n == n + ranges);
  return p;
}

zp_pieces *zp_pieces_whole(zp_arena *arena, const zp_model *model) { return make_pieces(arena, model, NULL); }

zp_pieces *zp_pieces_divided(zp_arena *arena, const zp_model *model) {
  zp_ints *bounds = ZP_NEW_ARRAY(arena, zp_ints, model->segments.len);
  bool any = false;
  for (int s = 0; s < model->segments.len; s++) {
    bounds[s] = find_bounds(arena, model, &model->segments.data[s]);
    any |= bounds[s].len > 2;
  }
  return any ? make_pieces(arena, model, bounds) : NULL;
}

void zp_pieces_unit(const zp_pieces *p, int64_t unit, int *piece, int64_t *iteration) {
  assert(unit >= 0 && unit < p->n_units);
  int s = 0;
  for (; unit >= p->parts[s] * p->piece[s].segment.count; s++) unit -= p->parts[s] * p->piece[s].segment.count;
  assert(s < p->n_whole);
  int part = (int)(unit % p->parts[s]);
  *piece = zp_pieces_find(p, s, part, part + 1);
  *iteration = unit / p->parts[s];
}

int64_t zp_pieces_whole_unit(const zp_pieces *p, int64_t unit) {
  assert(unit >= 0 && unit <= p->n_units);
  int64_t before = 0;
  for (int s = 0; s < p->n_whole; s++) {
    int64_t count = p->piece[s].segment.count, n = p->parts[s] * count;
    if (unit < n) return unit % p->parts[s] ? -1 : before + unit / p->parts[s];
    unit -= n;
    before += count;
  }
  return before;
}

/* Calls fn for units [first, end) of one segment, counted from the segment's first. */
static void walk_segment(const zp_pieces *p, int s, int64_t first, int64_t end, zp_on_piece *fn, void *arg) {
  int parts = p->parts[s];
  if (parts == 1) {
    fn(arg, s, first, end - first);
    return;
  }
  int from = (int)(first % parts), to = (int)(end % parts);
  int64_t i = first / parts, last = end / parts;
  if (i == last) {
    fn(arg, zp_pieces_find(p, s, from, to), i, 1);
    return;
  }
  if (from > 0) fn(arg, zp_pieces_find(p, s, from, parts), i++, 1);
  if (i < last) fn(arg, s, i, last - i);
  if (to > 0) fn(arg, zp_pieces_find(p, s, 0, to), last, 1);
}

void zp_pieces_walk(const zp_pieces *p, int64_t first, int64_t end, zp_on_piece *fn, void *arg) {
  assert(first >= 0 && first <= end && end <= p->n_units);
  int64_t start = 0;
  for (int s = 0; s < p->n_whole && start < end; s++) {
    int64_t n = p->parts[s] * p->piece[s].segment.count;
    int64_t a = first > start ? first : start, b = end < start + n ? end : start + n;
    if (a < b) walk_segment(p, s, a - start, b - start, fn, arg);
    start += n;
  }
}

/* ---- local graphs ---- */

/* Does all that crosses before node n have the form that carried tensors have? */
static bool carries_across(const zp_graph *local, int n, bool sequence) {
  zp_ints crossing = {0};
  bool whole = zp_graph_crossing(local, n, &crossing);
  for (int i = 0; i < crossing.len && whole; i++) {
    const zp_tensor *t = &local->tensors.data[crossing.data[i]];
    whole = t->base < 0 && !t->partial && t->split_dim == (sequence ? 1 : -1);
  }
  return whole;
}

/* Where the local graph has done the first `logical` logical nodes and what flows on has carried tensors' form;
 * conversions for later readers may stand before that place. -1 when it never has. */
static int local_place(const zp_graph *local, int logical, bool sequence) {
  int n = 0;
  for (int done = 0; done < logical; n++) done += zp_op_get_class(local->nodes.data[n].op) != ZP_CLASS_COMM;
  for (; n < local->nodes.len; n++) {
    if (carries_across(local, n, sequence)) return n;
    if (zp_op_get_class(local->nodes.data[n].op) != ZP_CLASS_COMM) return -1;
  }
  return -1;
}

zp_graph *zp_piece_localize(const zp_graph *local, const zp_pieces *pieces, int piece, bool sequence) {
  assert(piece >= 0 && piece < pieces->n);
  const zp_piece *p = &pieces->piece[piece];
  int first = p->first > 0 ? local_place(local, p->first_node, sequence) : 0;
  int end = p->end < pieces->parts[p->whole] ? local_place(local, p->end_node, sequence) : local->nodes.len;
  return first < 0 || end < 0 ? NULL : zp_graph_slice(local, first, end);
}
