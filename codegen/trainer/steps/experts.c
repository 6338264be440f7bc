/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of experts: one product an expert, and the kernels that route tokens to slots and back. */
#include "steps.h"

#include <assert.h>
#include <zplan/rt.h>

static const char *result_call(const zp_frame *f, const zp_step *s) {
  return zp_product_call(f, s, s->op == ZP_OP_BATCHED_MATMUL ? ZP_SIDE_VALUE : ZP_SIDE_GRADIENT, ZP_SIDE_WEIGHT);
}

/* w is [n, k]: dy' x; [k, n]: x' dy. */
static const char *gradient_call(const zp_frame *f, const zp_step *s) {
  bool trans = s->node->attr.trans;
  return zp_product_call(f, s, trans ? ZP_SIDE_GRADIENT : ZP_SIDE_VALUE, trans ? ZP_SIDE_VALUE : ZP_SIDE_GRADIENT);
}

/* One product an expert, of the rows that it has: the last operand says where they begin, of all samples together, and
 * how many come from other ranks where they do. */
static void print_ragged(zp_frame *f, const zp_step *s) {
  const zp_shape *rows = &zp_frame_tensor(f, s->in.data[0])->shape;
  const zp_sorted_rows sorted = zp_graph_sorted_rows(f->seg->graph, s->node, 1);
  int64_t experts = sorted.experts;
  const char *first = zp_frame_name(f, s->in.data[2]),
             *room = zp_format(f->e->arena, "MICROBATCH * %lld", ZP_LL(rows->dim[1] * rows->dim[2])),
             *all = sorted.counts ? zp_format(f->e->arena, "%s[%lld]", first, ZP_LL(experts)) : room;
  bool trans = s->node->attr.trans;
  if (s->op == ZP_OP_BATCHED_MATMUL_WGRAD) { /* w is [n, k]: dy' x; [k, n]: x' dy */
    int a = s->in.data[trans ? 0 : 1], b = s->in.data[trans ? 1 : 0];
    zp_buf_line(&f->e->out, "zpr_ragged_wgrad%s%s, %lld, %lld, %lld, %s, %lld, %s, %lld, %s, %s, %s);",
                gradient_call(f, s), all, ZP_LL(experts), ZP_LL(zp_frame_buffer(f, a)->cols),
                ZP_LL(zp_frame_buffer(f, b)->cols), zp_frame_name(f, a), ZP_LL(zp_frame_buffer(f, a)->ld),
                zp_frame_name(f, b), ZP_LL(zp_frame_buffer(f, b)->ld), first, zp_frame_accumulate(f, &s->sums.data[0]),
                zp_frame_gradient(f, s->sums.data[0].use));
    return;
  }
  const zp_buffer *x = zp_frame_buffer(f, s->in.data[0]), *y = zp_frame_buffer(f, s->out.data[0]);
  bool other = (s->op == ZP_OP_BATCHED_MATMUL) == trans; /* dx = dy w' */
  zp_buf_line(&f->e->out, "zpr_ragged_gemm%s%s, %s, %s, %lld, %lld, %lld, %s, %lld, %s, %s, %s, %lld);",
              result_call(f, s), other ? "true" : "false", all, room, ZP_LL(experts), ZP_LL(y->cols), ZP_LL(x->cols),
              zp_frame_name(f, s->in.data[0]), ZP_LL(x->ld), zp_frame_name(f, s->in.data[1]), first,
              zp_frame_name(f, s->out.data[0]), ZP_LL(y->ld));
}

/* One product an expert; rows of a buffer are the slots of all experts and samples. */
void zp_print_expert_products(zp_frame *f, const zp_step *s) {
  if (s->in.len > 2) {
    print_ragged(f, s);
    return;
  }
  const zp_shape *rows = &zp_frame_tensor(f, s->in.data[0])->shape;
  int64_t experts = rows->dim[1], slots = rows->dim[2];
  bool trans = s->node->attr.trans;
  zp_buf *out = &f->e->out;
  if (s->op == ZP_OP_BATCHED_MATMUL_WGRAD) { /* w is [n, k]: dy' x; [k, n]: x' dy */
    int a = s->in.data[trans ? 0 : 1], b = s->in.data[trans ? 1 : 0];
    zp_buf_line(out, "zpr_batched_wgrad%sMICROBATCH, %lld, %lld, %lld, %lld, %s, %lld, %s, %lld, %s, %s);",
                gradient_call(f, s), ZP_LL(experts), ZP_LL(slots), ZP_LL(zp_frame_buffer(f, a)->cols),
                ZP_LL(zp_frame_buffer(f, b)->cols), zp_frame_name(f, a), ZP_LL(zp_frame_buffer(f, a)->ld),
                zp_frame_name(f, b), ZP_LL(zp_frame_buffer(f, b)->ld), zp_frame_accumulate(f, &s->sums.data[0]),
                zp_frame_gradient(f, s->sums.data[0].use));
    return;
  }
  const zp_buffer *x = zp_frame_buffer(f, s->in.data[0]), *y = zp_frame_buffer(f, s->out.data[0]);
  bool other = (s->op == ZP_OP_BATCHED_MATMUL) == trans; /* dx = dy w' */
  if (f->stretch) {
    zp_buf_line(out, "zpr_chosen_gemm(c, %s, %lld, %lld, %s, %lld, %s, %s, %lld, %s);", other ? "true" : "false",
                ZP_LL(y->cols), ZP_LL(x->cols), zp_frame_name(f, s->in.data[0]), ZP_LL(x->ld),
                zp_frame_name(f, s->in.data[1]), zp_frame_name(f, s->out.data[0]), ZP_LL(y->ld),
                zp_frame_chosen(f, s->out.data[0]));
    return;
  }
  zp_buf_line(out, "zpr_batched_gemm%s%s, MICROBATCH, %lld, %lld, %lld, %lld, %s, %lld, %s, %s, %lld);",
              result_call(f, s), other ? "true" : "false", ZP_LL(experts), ZP_LL(slots), ZP_LL(y->cols), ZP_LL(x->cols),
              zp_frame_name(f, s->in.data[0]), ZP_LL(x->ld), zp_frame_name(f, s->in.data[1]),
              zp_frame_name(f, s->out.data[0]), ZP_LL(y->ld));
}

/* Calls of routing steps. Operands count through a step's inputs and outputs; `slots` is the one that lies in slots or
 * sorted rows, none for gates, which see all experts; operands that are left out say where sorted rows begin. Dispatch
 * backward is a combination without weights. */
enum { NOTHING = -1 };
typedef struct route {
  zp_op op;
  int inputs; /* of steps with so many; 0: any */
  const char *function;
  int slots, n_args, args[6];
} route;
static const route routes[] = {
    {ZP_OP_TOP_K_GATE, 1, "zpr_top_k_gate", NOTHING, 4, {0, NOTHING, 1, 2}},
    {ZP_OP_TOP_K_GATE, 2, "zpr_top_k_gate", NOTHING, 4, {0, 1, 2, 3}},
    {ZP_OP_TOP_K_GATE_GRAD, 3, "zpr_top_k_gate_grad", NOTHING, 4, {0, 1, 2, 3}},
    {ZP_OP_TOP_K_GATE_GRAD, 4, "zpr_top_k_gate_grad", NOTHING, 4, {0, 1, 2, 4}}, /* 3: choices */
    {ZP_OP_GATHER_CHOICES, 0, "zpr_gather_choices", NOTHING, 2, {0, 1}},
    {ZP_OP_EXPERT_ROWS, 0, "zpr_expert_rows", NOTHING, 2, {0, 1}},
    {ZP_OP_DISPATCH, 2, "zpr_dispatch", 2, 3, {0, 1, 2}},
    {ZP_OP_DISPATCH, 3, "zpr_dispatch", 3, 3, {0, 1, 3}},
    {ZP_OP_DISPATCH_GRAD, 2, "zpr_combine", 1, 4, {1, NOTHING, 0, 2}},
    {ZP_OP_DISPATCH_GRAD, 3, "zpr_combine", 1, 4, {1, NOTHING, 0, 3}},
    {ZP_OP_COMBINE, 3, "zpr_combine", 0, 4, {0, 1, 2, 3}},
    {ZP_OP_COMBINE, 4, "zpr_combine", 0, 4, {0, 1, 2, 4}},
    {ZP_OP_COMBINE_GRAD, 4, "zpr_combine_grad", 0, 6, {0, 1, 2, 3, 4, 5}},
    {ZP_OP_COMBINE_GRAD, 5, "zpr_combine_grad", 0, 6, {0, 1, 2, 3, 5, 6}},
};

static int operand_of(const zp_step *s, int i) { return i < s->in.len ? s->in.data[i] : s->out.data[i - s->in.len]; }

/* Where this rank's slots begin, and how many it has: its experts', padding included. */
static void emit_slots(zp_frame *f, int b) {
  const zp_tensor *t = zp_frame_tensor(f, b);
  int64_t n_slots = t->shape.dim[1] * t->shape.dim[2];
  const char *first = t->split_dim == 1 ? zp_format(f->e->arena, "c->t * %lld", ZP_LL(n_slots)) : "0";
  zp_buf_line(&f->e->out, "    .d = %lld, .first_slot = %s, .n_slots = %lld,", ZP_LL(t->shape.dim[3]), first,
              ZP_LL(n_slots));
}

/* Where experts begin is the last operand, i32[B, E] as slots are not. */
static bool is_sorted(const zp_frame *f, const zp_step *s) {
  const zp_tensor *last = zp_frame_tensor(f, s->in.data[s->in.len - 1]);
  return last->element == ZP_ELEM_I32 && last->shape.rank == 2;
}

static void emit_sorted(zp_frame *f, const zp_step *s, int rows) {
  int first = s->in.data[s->in.len - 1];
  zp_buf_line(&f->e->out, "    .d = %lld, .experts = %lld, .slots = %lld, .first_row = %s,",
              ZP_LL(zp_frame_buffer(f, rows)->cols), ZP_LL(zp_frame_tensor(f, first)->shape.dim[1]),
              ZP_LL(s->node->attr.slots), zp_frame_name(f, first));
}

/* Positions of a sample: of the first operand that has them, as token by token the gate, weights and slots have. */
static int64_t positions_of(const zp_frame *f, const zp_step *s) {
  int i = 0;
  while (zp_frame_tensor(f, operand_of(s, i))->shape.rank != 3) i++;
  return zp_frame_tensor(f, operand_of(s, i))->shape.dim[1];
}

void zp_print_route(zp_frame *f, const zp_step *s) {
  zp_buf *out = &f->e->out;
  const zp_op_attr *attr = &s->node->attr;
  const route *r = routes;
  while (r->op != s->op || (r->inputs > 0 && r->inputs != s->in.len)) r++;
  bool gate = r->slots == NOTHING, some = f->stretch && !gate;
  zp_buf_line(out, "%s%s(c, &(zpk_routing){", r->function, some ? "_stretch" : "");
  zp_buf_line(out, "    .dtype = DTYPE, .B = MICROBATCH, .S = %s, .k = %lld,",
              f->stretch && gate ? "p.first + p.n" : zp_frame_positions(f, positions_of(f, s)), ZP_LL(attr->top_k));
  if (gate) {
    assert(attr->top_k <= ZPK_MAX_TOP_K && attr->experts <= ZPK_MAX_EXPERTS);
    zp_buf_line(out, "    .experts = %lld, .slots = %lld, .normalize = %s, .balance = %s,", ZP_LL(attr->experts),
                ZP_LL(attr->slots), attr->normalize ? "true" : "false", zp_decimal(f->e->arena, attr->balance));
    if (s->op == ZP_OP_TOP_K_GATE_GRAD && s->in.len > 3)
      zp_buf_line(out, "    .choices = %s, .ranks = CONTEXT,", zp_frame_name(f, s->in.data[3]));
    if (attr->sigmoid) zp_buf_line(out, "    .sigmoid = true,");
    if (attr->groups)
      zp_buf_line(out, "    .groups = %lld, .top_groups = %lld,", ZP_LL(attr->groups), ZP_LL(attr->top_groups));
  } else if (is_sorted(f, s)) {
    emit_sorted(f, s, operand_of(s, r->slots));
  } else {
    emit_slots(f, operand_of(s, r->slots));
  }
  const char *list = "";
  for (int i = 0; i < r->n_args; i++)
    list = zp_format(f->e->arena, "%s, %s", list,
                     r->args[i] == NOTHING ? "NULL" : zp_frame_name(f, operand_of(s, r->args[i])));
  zp_buf_line(out, "}%s%s);", list, some ? ", p" : "");
}

static void print_spread(zp_frame *f, const zp_step *s, const char *call, const char *tail) {
  const zp_op_attr *attr = &s->node->attr;
  zp_buf_line(&f->e->out,
              "zpr_%s(c, &(zpr_spread){.experts = %lld, .choices = MICROBATCH * %lld, .room = MICROBATCH * %lld}, %s);",
              call, ZP_LL(attr->experts / attr->parts), ZP_LL(attr->slots * attr->top_k), ZP_LL(zp_graph_room(attr)),
              tail);
}

void zp_print_spread_counts(zp_frame *f, const zp_step *s) {
  print_spread(f, s, "spread_counts",
               zp_format(f->e->arena, "%s, MICROBATCH * %lld, %s", zp_frame_name(f, s->in.data[0]),
                         ZP_LL(zp_frame_tensor(f, s->out.data[0])->shape.dim[1]), zp_frame_name(f, s->out.data[0])));
}

void zp_print_spread_rows(zp_frame *f, const zp_step *s) {
  print_spread(f, s, s->op == ZP_OP_SPREAD_SLOTS ? "spread_rows" : "return_rows",
               zp_format(f->e->arena, "%s, %s, %lld, %s", zp_frame_name(f, s->in.data[1]),
                         zp_frame_name(f, s->in.data[0]), ZP_LL(zp_frame_buffer(f, s->in.data[0])->cols),
                         zp_frame_name(f, s->out.data[0])));
}

void zp_print_expert_load(zp_frame *f, const zp_step *s) {
  const zp_op_attr *attr = &s->node->attr;
  zp_buf_line(&f->e->out, "zpr_count_load(c, &(zpk_routing){");
  zp_buf_line(&f->e->out, "    .dtype = DTYPE, .B = MICROBATCH, .S = %s, .k = %lld, .experts = %lld, .slots = %lld,",
              zp_frame_positions(f, positions_of(f, s)), ZP_LL(attr->top_k), ZP_LL(attr->experts), ZP_LL(attr->slots));
  zp_buf_line(&f->e->out, "}, %s, %s);", zp_frame_name(f, s->in.data[0]), zp_frame_flat(f, s->sums.data[0].use));
}
