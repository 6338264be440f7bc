/* SPDX-License-Identifier: Apache-2.0 */
/* Where layers may be cut, the pieces that come of it, and what they add up to. That a program over pieces computes the
 * model is shown in test_program_run.c. */
#include "program_reference.h"
#include <zplan/pieces.h>

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(pieces, .init = setup, .fini = teardown);

static const model_size GPT = {STYLE_GPT, 11, 5, 12, 3, 3, 3, 10, true};
static const model_size LLAMA = {STYLE_LLAMA, 13, 4, 24, 3, 6, 3, 14, false};
static const model_size PARALLEL = {STYLE_PARALLEL, 11, 4, 12, 3, 3, 3, 9, true};
static const model_size DROPOUT = {STYLE_DROPOUT, 11, 5, 12, 3, 3, 3, 10, true};
static const model_size EXPERTS = {STYLE_EXPERTS, 11, 5, 12, 3, 3, 4, 10, false}; /* 4 experts */
enum { BEGIN, LAYER, END };

static zp_pieces *divide(const model_size *size) { return zp_pieces_divided(arena, build_model(arena, size)); }

Test(pieces, attention_and_mlp) {
  zp_pieces *p = divide(&GPT);
  cr_assert_eq(p->n_whole, 3);
  cr_assert_eq(p->n, 5);
  cr_expect_eq(p->n_units, 1 + 2 * 3 + 1);
  cr_expect_str_eq(p->piece[3].segment.name, "h.attn");
  cr_expect_str_eq(p->piece[4].segment.name, "h.mlp");
  cr_expect_eq(p->piece[4].whole, LAYER);
  cr_expect_eq(p->piece[4].segment.count, 3);
  cr_expect_eq(zp_pieces_find(p, LAYER, 0, 2), LAYER);
  cr_expect_eq(zp_pieces_find(p, LAYER, 1, 2), 4);
  cr_expect_eq(p->parts[BEGIN], 1);
  p = divide(&LLAMA); /* products without a common block: numbers */
  cr_expect_str_eq(p->piece[3].segment.name, "h.part1");
  cr_expect_str_eq(p->piece[4].segment.name, "h.part2");
}

Test(pieces, side_by_side_there_is_no_place) { cr_expect_null(divide(&PARALLEL)); }

/* One decoder layer with two attentions: three parts, so five pieces besides the whole. */
static zp_model *two_attentions(builder *b, int64_t count) {
  static const model_size m = {STYLE_GPT, 11, 5, 12, 3, 3, 3, 10, true};
  *b = (builder){.model = zp_model_new(arena, "test"), .diags = zp_diags_new(arena), .segment = 0};
  b->graph = open_segment(b, &m, "h", count, true);
  int x = b->graph->carry_in.data[0];
  x = add2(b, x, gpt_attention(b, &m, layer_norm(b, x, m.d), false));
  x = gpt_layer(b, &m, x);
  zp_push(arena, &b->graph->carry_out, x);
  return b->model;
}

Test(pieces, three_parts) {
  builder b;
  zp_pieces *p = zp_pieces_divided(arena, two_attentions(&b, 4));
  cr_assert_eq(p->parts[0], 3);
  cr_assert_eq(p->n, 6);
  cr_expect_eq(p->n_units, 12);
  for (int first = 0; first < 3; first++)
    for (int end = first + 1; end <= 3; end++) {
      const zp_piece *piece = &p->piece[zp_pieces_find(p, 0, first, end)];
      cr_expect(piece->first == first && piece->end == end);
      cr_expect_null(zp_graph_check(arena, piece->segment.graph));
    }
  cr_expect_str_eq(p->piece[2].segment.name, "h.part1+part2");
}

/* ---- several tensors ---- */

static builder body_of_two(const char *first, const char *second) {
  static const zp_shape carry[2] = {{.rank = 3, .dim = {ZP_DIM_B, 5, 12}}, {.rank = 3, .dim = {ZP_DIM_B, 5, 12}}};
  builder b = {.model = zp_model_new(arena, "test"), .diags = zp_diags_new(arena), .segment = 0};
  b.graph = zp_model_add_segment(b.model, "h", 2, true, carry, (const char *[]){first, second}, 2, ZP_NO_SPAN)->graph;
  return b;
}

static const zp_graph *graph_of(const zp_pieces *p, int first, int end) {
  const zp_graph *g = p->piece[zp_pieces_find(p, 0, first, end)].segment.graph;
  cr_expect_null(zp_graph_check(arena, g));
  return g;
}

/* Neighbours agree: what one hands on comes into the next, place by place. */
static void expect_joined(const zp_pieces *p, int part) {
  const zp_graph *before = graph_of(p, part - 1, part), *after = graph_of(p, part, part + 1);
  cr_assert(before->carry_out.len == 2 && after->carry_in.len == 2);
  for (int i = 0; i < 2; i++) {
    cr_expect_eq(before->carry_out.data[i], after->carry_in.data[i]);
    const zp_tensor *t = &after->tensors.data[after->carry_in.data[i]];
    cr_expect(t->role == ZP_ROLE_CARRY_IN && t->index == i);
  }
}

/* The decoder of a translation: it reads a memory, which is handed on. */
Test(pieces, what_passes_by_keeps_its_place) {
  static const model_size m = {STYLE_GPT, 11, 5, 12, 3, 3, 3, 10, true};
  builder b = body_of_two("memory", "x");
  int memory = b.graph->carry_in.data[0], x = b.graph->carry_in.data[1];
  x = add2(&b, x, gpt_attention(&b, &m, layer_norm(&b, x, m.d), false));
  x = add2(&b, x, linear(&b, memory, m.d, m.d, "cross"));
  x = add2(&b, x, linear(&b, linear(&b, x, m.d, 24, "up"), 24, m.d, "down"));
  zp_push(arena, &b.graph->carry_out, memory);
  zp_push(arena, &b.graph->carry_out, x);
  zp_pieces *p = zp_pieces_divided(arena, b.model);
  cr_assert_eq(p->parts[0], 3);
  for (int part = 0; part < 3; part++) {
    const zp_graph *g = graph_of(p, part, part + 1);
    cr_expect(g->carry_in.data[0] == memory && g->carry_out.data[0] == memory);
    cr_expect_neq(g->carry_in.data[1], g->carry_out.data[1]);
    if (part > 0) expect_joined(p, part);
  }
  cr_expect_null(zp_graph_check(arena, graph_of(p, 0, 2)));
}

/* Two residual streams, as of reversible layers; the second one is changed first. What is complete stands where it
 * flows on, whatever was made before it. */
Test(pieces, streams_that_change_in_turn) {
  builder b = body_of_two("x", "y");
  int x = b.graph->carry_in.data[0], y = b.graph->carry_in.data[1];
  int y2 = add2(&b, y, linear(&b, linear(&b, x, 12, 24, "f.up"), 24, 12, "f.down"));
  int x2 = add2(&b, x, linear(&b, linear(&b, y2, 12, 24, "g.up"), 24, 12, "g.down"));
  int x3 = add2(&b, x2, linear(&b, linear(&b, y2, 12, 24, "h.up"), 24, 12, "h.down"));
  zp_push(arena, &b.graph->carry_out, x3);
  zp_push(arena, &b.graph->carry_out, y2);
  zp_pieces *p = zp_pieces_divided(arena, b.model);
  cr_assert_eq(p->parts[0], 3);
  const zp_graph *second = graph_of(p, 1, 2);
  cr_expect(second->carry_in.data[0] == x && second->carry_in.data[1] == y2);
  cr_expect(second->carry_out.data[0] == x2 && second->carry_out.data[1] == y2);
  expect_joined(p, 1);
  expect_joined(p, 2);
}

/* What is between two products that both come to the stream is no place: three tensors flow there. */
Test(pieces, more_than_the_body_carries) {
  builder b = body_of_two("x", "y");
  int x = b.graph->carry_in.data[0], y = b.graph->carry_in.data[1];
  int a = linear(&b, x, 12, 12, "a"), c = linear(&b, x, 12, 12, "c");
  zp_push(arena, &b.graph->carry_out, add2(&b, x, add2(&b, a, c)));
  zp_push(arena, &b.graph->carry_out, y);
  cr_expect_null(zp_pieces_divided(arena, b.model));
}

/* A body of many products in a row: the number of parts is bounded, and they are even. */
Test(pieces, light_neighbours_are_joined) {
  static const model_size m = {STYLE_GPT, 11, 5, 12, 2, 3, 3, 10, true};
  builder b = {.model = zp_model_new(arena, "test"), .diags = zp_diags_new(arena), .segment = 0};
  b.graph = open_segment(&b, &m, "h", 2, true);
  int x = b.graph->carry_in.data[0];
  for (int i = 0; i < 8; i++) x = linear(&b, x, m.d, m.d, "w");
  zp_push(arena, &b.graph->carry_out, x);
  zp_pieces *p = zp_pieces_divided(arena, b.model);
  cr_assert_eq(p->parts[0], ZP_MOST_PARTS);
  for (int i = 0; i < ZP_MOST_PARTS; i++)
    cr_expect_eq(p->piece[zp_pieces_find(p, 0, i, i + 1)].segment.graph->params.len, 4, "two weights, two biases");
}

/* Used before and after the place: its gradient would be written by two pieces, unless iterations are summed anyway. */
static zp_model *shared_weight(int segment, int64_t count) {
  static const model_size m = {STYLE_GPT, 11, 5, 12, 3, 3, 3, 10, true};
  builder b = {.model = zp_model_new(arena, "test"), .diags = zp_diags_new(arena), .segment = segment};
  b.graph = zp_model_add_segment(b.model, "h", count, true, &(zp_shape){.rank = 3, .dim = {ZP_DIM_B, m.S, m.d}},
                                 &(const char *){"x"}, 1, ZP_NO_SPAN)
                ->graph;
  int w = weight(&b, "w", shape_of_rank(2, m.d, m.d, 0)), x = b.graph->carry_in.data[0];
  for (int i = 0; i < 2; i++) x = add2(&b, x, apply(&b, ZP_OP_MATMUL, x, w, -1, (zp_op_attr){0}, "product"));
  zp_push(arena, &b.graph->carry_out, x);
  return b.model;
}

Test(pieces, parameters_on_both_sides) {
  cr_expect_null(zp_pieces_divided(arena, shared_weight(0, 3)));
  cr_expect_null(zp_pieces_divided(arena, shared_weight(-1, 1)));
  cr_expect_not_null(zp_pieces_divided(arena, shared_weight(-1, 3)));
}

/* ---- units ---- */

typedef struct cover {
  const zp_pieces *pieces;
  int64_t next;
  int calls_of_segment[8];
} cover;

/* Every part that the call runs is the next unit. */
static void check_cover(void *arg, int index, int64_t iteration, int64_t count) {
  cover *c = arg;
  const zp_piece *piece = &c->pieces->piece[index];
  c->calls_of_segment[piece->whole]++;
  cr_assert(count == 1 || index < c->pieces->n_whole);
  for (int64_t i = iteration; i < iteration + count; i++)
    for (int part = piece->first; part < piece->end; part++) {
      int64_t at;
      int unit;
      zp_pieces_unit(c->pieces, c->next++, &unit, &at);
      cr_assert(at == i && unit == zp_pieces_find(c->pieces, piece->whole, part, part + 1));
    }
}

static void check_ranges(const zp_pieces *p) {
  for (int64_t first = 0; first < p->n_units; first++)
    for (int64_t end = first; end <= p->n_units; end++) {
      cover c = {p, first, {0}};
      zp_pieces_walk(p, first, end, check_cover, &c);
      cr_assert_eq(c.next, end);
      for (int s = 0; s < p->n_whole; s++) cr_assert_leq(c.calls_of_segment[s], 3);
    }
}

Test(pieces, every_range_of_units_is_covered_in_order) {
  builder b;
  check_ranges(divide(&GPT));
  check_ranges(zp_pieces_divided(arena, two_attentions(&b, 3)));
  check_ranges(zp_pieces_whole(arena, build_model(arena, &LLAMA)));
}

Test(pieces, units_that_begin_iterations) {
  zp_pieces *p = divide(&GPT); /* begin, 3 x (attn, mlp), end */
  static const int64_t whole[] = {0, 1, -1, 2, -1, 3, -1, 4, 5};
  for (int64_t u = 0; u <= p->n_units; u++) cr_expect_eq(zp_pieces_whole_unit(p, u), whole[u]);
}

/* ---- sums ---- */

static double matmul_flop(const zp_graph *g) {
  double flop = 0;
  for (int n = 0; n < g->nodes.len; n++) {
    zp_op_class class = zp_op_get_class(g->nodes.data[n].op);
    if (class == ZP_CLASS_MATMUL || class == ZP_CLASS_ATTENTION || class == ZP_CLASS_GROUPED)
      flop += zp_node_flop(g, &g->nodes.data[n], 1);
  }
  return flop;
}

static int64_t parameters(const zp_model *model, const zp_graph *g) {
  int64_t elements = 0;
  for (int i = 0; i < g->params.len; i++)
    elements += zp_shape_elements(&model->params.data[g->params.data[i].param].shape, 1);
  return elements;
}

Test(pieces, parts_add_up_to_the_layer) {
  static const model_size *const sizes[] = {&GPT, &LLAMA, &DROPOUT, &EXPERTS};
  for (int i = 0; i < 4; i++) {
    zp_model *model = build_model(arena, sizes[i]);
    zp_pieces *p = zp_pieces_divided(arena, model);
    const zp_graph *layer = model->segments.data[LAYER].graph;
    double flop = 0;
    int64_t elements = 0;
    int nodes = 0;
    for (int part = 0; part < p->parts[LAYER]; part++) {
      const zp_graph *g = p->piece[zp_pieces_find(p, LAYER, part, part + 1)].segment.graph;
      flop += matmul_flop(g);
      elements += parameters(model, g);
      nodes += g->nodes.len;
    }
    cr_expect_eq(flop, matmul_flop(layer));
    cr_expect_eq(elements, parameters(model, layer));
    cr_expect_eq(nodes, layer->nodes.len);
  }
}

/* ---- one layer and its parts, forward and backward ---- */

static double probe(int64_t i) { return sin(0.7 * (double)i + 0.3); }

static zp_interpreter *start(const zp_model *model, const zp_graph *logical) {
  zp_interpreter *in = zp_interpreter_new(arena, zp_differentiate(zp_fuse(zp_graph_localize_trivial(logical))), 2);
  in->instance = 1;
  pm_fill_outside(in, model, 1, 2);
  return in;
}

static void fill(const zp_interpreter *in, int tensor) {
  for (int64_t i = 0; i < zp_shape_elements(&in->graph->tensors.data[tensor].shape, 2); i++)
    in->value[tensor][i] = probe(i);
}

static void expect_same(const double *a, const double *b, int64_t n, const char *what) {
  double largest = 1e-3;
  for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(b[i]));
  for (int64_t i = 0; i < n; i++) cr_assert(fabs(a[i] - b[i]) <= 1e-12 * largest, "%s[%lld]", what, (long long)i);
}

static void expect_same_gradients(const zp_interpreter *part, const zp_interpreter *whole, const zp_model *model) {
  for (int i = 0; i < part->graph->params.len; i++)
    for (int k = 0; k < whole->graph->params.len; k++) {
      int param = part->graph->params.data[i].param;
      if (whole->graph->params.data[k].param == param)
        expect_same(part->param_grad[i], whole->param_grad[k], zp_shape_elements(&model->params.data[param].shape, 1),
                    model->params.data[param].name);
    }
}

static void check_numbers(const model_size *size) {
  zp_model *model = build_model(arena, size);
  zp_pieces *p = zp_pieces_divided(arena, model);
  zp_interpreter *whole = start(model, model->segments.data[LAYER].graph);
  zp_interpreter *first = start(model, p->piece[zp_pieces_find(p, LAYER, 0, 1)].segment.graph);
  zp_interpreter *second = start(model, p->piece[zp_pieces_find(p, LAYER, 1, 2)].segment.graph);
  const zp_graph *w = whole->graph, *a = first->graph, *b = second->graph;
  fill(whole, w->carry_in.data[0]);
  fill(first, a->carry_in.data[0]);
  zp_interpret(whole, 0, w->n_forward);
  zp_interpret(first, 0, a->n_forward);
  pm_hand_over(first, a->carry_out.data[0], second, b->carry_in.data[0], 2);
  zp_interpret(second, 0, b->n_forward);
  int64_t n = zp_shape_elements(&w->tensors.data[w->carry_out.data[0]].shape, 2);
  expect_same(second->value[b->carry_out.data[0]], whole->value[w->carry_out.data[0]], n, "y");
  fill(whole, w->grad_in.data[0]);
  fill(second, b->grad_in.data[0]);
  zp_interpret(whole, w->n_forward, w->nodes.len);
  zp_interpret(second, b->n_forward, b->nodes.len);
  pm_hand_over(second, b->grad_out.data[0], first, a->grad_in.data[0], 2);
  zp_interpret(first, a->n_forward, a->nodes.len);
  expect_same(first->value[a->grad_out.data[0]], whole->value[w->grad_out.data[0]], n, "dx");
  expect_same_gradients(first, whole, model);
  expect_same_gradients(second, whole, model);
}

Test(pieces, parts_compute_the_layer) {
  check_numbers(&GPT);
  check_numbers(&LLAMA);
  check_numbers(&DROPOUT);
  check_numbers(&EXPERTS);
}
