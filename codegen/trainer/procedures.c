/* Prints procedures: one C function per segment and direction, one call per step. */
#include "emit.h"

#include <assert.h>
#include <zplan/rt.h>

typedef struct frame {
  zp_emit *e;
  const zp_segment_program *seg;
  const zp_procedure *p;
  const zp_model *model;
  bool backward;
  const char **name; /* C identifier per buffer, NULL when no step names it */
  bool uses_t, uses_saved, uses_w, uses_g, uses_x, uses_y, uses_dy, uses_dx, uses_layer;
} frame;

#define LL(x) ((long long)(x))

static const char *name_of(frame *f, int b) { return f->name[b]; }

/* A name not taken by a buffer before it, nor by the function's own. */
static const char *unique_name(frame *f, int b, const char *wanted) {
  static const char *const own[] = {"c", "s", "t", "w", "g", "x", "y", "dx", "dy", "mb", "layer", "saved"};
  const char *name = wanted;
  for (int suffix = 2;; suffix++) {
    bool taken = false;
    for (int i = 0; i < b && !taken; i++) taken = f->name[i] && strcmp(f->name[i], name) == 0;
    for (size_t i = 0; i < sizeof own / sizeof *own && !taken; i++) taken = strcmp(own[i], name) == 0;
    if (!taken) return name;
    name = zp_format(f->e->arena, "%s_%d", wanted, suffix);
  }
}

static const char *param_name(const frame *f, int use) {
  return f->model->params.data[f->seg->graph->params.data[use].param].name;
}

/* "h.{}.mlp.c_fc.weight" -> "mlp_c_fc_weight": the part after the iteration. */
static const char *param_identifier(const frame *f, int use) {
  const char *name = param_name(f, use), *hole = strstr(name, "{}.");
  return zp_emit_identifier(f->e->arena, hole ? hole + 3 : name);
}

static void name_buffers(frame *f) {
  f->name = ZP_NEW_ARRAY(f->e->arena, const char *, f->p->buffers.len + 1);
  for (int b = 0; b < f->p->buffers.len; b++) {
    const zp_buffer *x = &f->p->buffers.data[b];
    if (x->base < 0 && x->place == ZP_AT_CARRY_IN)
      f->name[b] = "x";
    else if (x->base < 0 && x->place == ZP_AT_CARRY_OUT)
      f->name[b] = "y";
    else if (x->base < 0 && x->place == ZP_AT_GRAD_IN)
      f->name[b] = "dy";
    else if (x->base < 0 && x->place == ZP_AT_GRAD_OUT)
      f->name[b] = "dx";
    else if (x->base < 0 && (x->place == ZP_AT_PARAM || x->place == ZP_AT_SHARED))
      f->name[b] = unique_name(f, b, param_identifier(f, x->index));
    else
      f->name[b] = unique_name(f, b, zp_emit_identifier(f->e->arena, x->name));
  }
}

/* Which buffers and arguments the steps really name. */
static void note_use(frame *f, bool *used, int b) {
  used[b] = true;
  const zp_buffer *x = &f->p->buffers.data[b];
  if (x->base >= 0) note_use(f, used, x->base);
}

static bool *find_used(frame *f) {
  bool *used = ZP_NEW_ARRAY(f->e->arena, bool, f->p->buffers.len + 1);
  for (int s = 0; s < f->p->steps.len; s++) {
    const zp_step *step = &f->p->steps.data[s];
    for (int i = 0; i < step->in.len; i++) note_use(f, used, step->in.data[i]);
    for (int i = 0; i < step->out.len; i++) note_use(f, used, step->out.data[i]);
    if (step->workspace >= 0) note_use(f, used, step->workspace);
    if (step->sums.len) f->uses_g = true;
  }
  for (int b = 0; b < f->p->buffers.len; b++) {
    const zp_buffer *x = &f->p->buffers.data[b];
    if (!used[b]) continue;
    f->uses_t |= x->place == ZP_AT_TRANSIENT;
    f->uses_saved |= x->place == ZP_AT_SAVED;
    f->uses_w |= x->place == ZP_AT_PARAM || x->place == ZP_AT_SHARED;
    f->uses_x |= x->place == ZP_AT_CARRY_IN;
    f->uses_y |= x->place == ZP_AT_CARRY_OUT;
    f->uses_dy |= x->place == ZP_AT_GRAD_IN;
    f->uses_dx |= x->place == ZP_AT_GRAD_OUT;
  }
  return used;
}

static const char *shared_field(const frame *f, int use) { return zp_emit_identifier(f->e->arena, param_name(f, use)); }

static void declare_buffer(frame *f, int b) {
  zp_buf *out = &f->e->out;
  const zp_buffer *x = &f->p->buffers.data[b];
  const char *name = f->name[b];
  if (x->base >= 0) {
    const char *base = name_of(f, x->base);
    if (x->element == ZP_ELEM_I32)
      zp_buf_line(out, "const int32_t *%s = %s;", name, base);
    else if (x->offset == 0)
      zp_buf_line(out, "real *%s = %s;", name, base);
    else
      zp_buf_line(out, "real *%s = %s + %lld; /* columns %lld..%lld of %s */", name, base, LL(x->offset), LL(x->offset),
                  LL(x->offset + x->cols), base);
    return;
  }
  if (x->element == ZP_ELEM_I32 && x->place != ZP_AT_INPUT) { /* slots of tokens */
    zp_buf_line(out, "int32_t *%s = (int32_t *)(void *)(%s + %lld); /* [%lld, %lld] */", name,
                x->place == ZP_AT_SAVED ? "saved" : "t", LL(x->offset), LL(x->rows), LL(x->cols));
    return;
  }
  switch (x->place) {
  case ZP_AT_PARAM: zp_buf_line(out, "const real *%s = w + %lld;", name, LL(x->offset)); break;
  case ZP_AT_SHARED: zp_buf_line(out, "const real *%s = params(c) + s->%s;", name, shared_field(f, x->index)); break;
  case ZP_AT_INPUT: zp_buf_line(out, "const int32_t *%s = zpr_input(c, %d, mb);", name, x->index); break;
  case ZP_AT_SAVED:
    zp_buf_line(out, "real *%s = at(saved, %lld); /* [%lld, %lld] kept for backward */", name, LL(x->offset),
                LL(x->rows), LL(x->cols));
    break;
  case ZP_AT_TRANSIENT:
    if (x->tensor < 0)
      zp_buf_line(out, "real *%s = at(t, %lld); /* scratch, %lld bytes */", name, LL(x->offset), LL(x->bytes));
    else
      zp_buf_line(out, "real *%s = at(t, %lld); /* [%lld, %lld] */", name, LL(x->offset), LL(x->rows), LL(x->cols));
    break;
  case ZP_AT_CARRY_IN:
  case ZP_AT_CARRY_OUT:
  case ZP_AT_GRAD_IN:
  case ZP_AT_GRAD_OUT: break;
  }
}

static const zp_buffer *buf_at(const frame *f, int b) { return &f->p->buffers.data[b]; }

/* Address of a parameter's gradient. */
static const char *grad_of(const frame *f, int use) {
  int64_t offset = f->seg->param_offset[use];
  if (offset < 0) return zp_format(f->e->arena, "grads(c) + s->%s", shared_field(f, use));
  return zp_format(f->e->arena, "g + %lld", LL(offset));
}

static const char *accumulate_of(const zp_param_sum *sum) { return sum->accumulate ? "true" : "mb > 0"; }

static const zp_tensor *tensor_of(const frame *f, int b) { return &f->seg->graph->tensors.data[buf_at(f, b)->tensor]; }

/* ---- one function per kind of step ---- */

static void emit_matmul(frame *f, const zp_step *s) {
  const zp_buffer *x = buf_at(f, s->in.data[0]), *w = buf_at(f, s->in.data[1]), *y = buf_at(f, s->out.data[0]);
  const char *xn = name_of(f, s->in.data[0]), *wn = name_of(f, s->in.data[1]), *yn = name_of(f, s->out.data[0]);
  bool trans = s->node->attr.trans;
  if (s->op == ZP_OP_MATMUL)
    zp_buf_line(&f->e->out, "zpr_gemm(c, false, %s, %lld, %lld, %lld, %s, %lld, %s, %lld, false, %s, %lld);",
                trans ? "true" : "false", LL(x->rows), LL(y->cols), LL(x->cols), xn, LL(x->ld), wn, LL(w->ld), yn,
                LL(y->ld));
  else /* dx = dy w: x here is dy */
    zp_buf_line(&f->e->out, "zpr_gemm(c, false, %s, %lld, %lld, %lld, %s, %lld, %s, %lld, false, %s, %lld);",
                trans ? "false" : "true", LL(x->rows), LL(y->cols), LL(x->cols), xn, LL(x->ld), wn, LL(w->ld), yn,
                LL(y->ld));
}

static void emit_wgrad(frame *f, const zp_step *s) {
  int d = s->in.data[0], x = s->in.data[1];
  const zp_buffer *dy = buf_at(f, d), *xb = buf_at(f, x);
  int a = s->node->attr.trans ? d : x, b = s->node->attr.trans ? x : d; /* w is [n, k]: dy' x; [k, n]: x' dy */
  const zp_buffer *ab = buf_at(f, a), *bb = buf_at(f, b);
  assert(dy->rows == xb->rows);
  zp_buf_line(&f->e->out, "zpr_gemm(c, true, false, %lld, %lld, %lld, %s, %lld, %s, %lld, %s, %s, %lld);", LL(ab->cols),
              LL(bb->cols), LL(ab->rows), name_of(f, a), LL(ab->ld), name_of(f, b), LL(bb->ld),
              accumulate_of(&s->sums.data[0]), grad_of(f, s->sums.data[0].use), LL(bb->cols));
}

/* One product an expert; rows of a buffer are the slots of all experts and samples. */
static void emit_grouped(frame *f, const zp_step *s) {
  const zp_shape *rows = &tensor_of(f, s->in.data[0])->shape;
  int64_t experts = rows->dim[1], slots = rows->dim[2];
  bool trans = s->node->attr.trans;
  zp_buf *out = &f->e->out;
  if (s->op == ZP_OP_BATCHED_MATMUL_WGRAD) { /* w is [n, k]: dy' x; [k, n]: x' dy */
    int a = s->in.data[trans ? 0 : 1], b = s->in.data[trans ? 1 : 0];
    zp_buf_line(out, "zpr_batched_wgrad(c, MICROBATCH, %lld, %lld, %lld, %lld, %s, %lld, %s, %lld, %s, %s);",
                LL(experts), LL(slots), LL(buf_at(f, a)->cols), LL(buf_at(f, b)->cols), name_of(f, a),
                LL(buf_at(f, a)->ld), name_of(f, b), LL(buf_at(f, b)->ld), accumulate_of(&s->sums.data[0]),
                grad_of(f, s->sums.data[0].use));
    return;
  }
  const zp_buffer *x = buf_at(f, s->in.data[0]), *y = buf_at(f, s->out.data[0]);
  bool other = (s->op == ZP_OP_BATCHED_MATMUL) == trans; /* dx = dy w' */
  zp_buf_line(out, "zpr_batched_gemm(c, %s, MICROBATCH, %lld, %lld, %lld, %lld, %s, %lld, %s, %s, %lld);",
              other ? "true" : "false", LL(experts), LL(slots), LL(y->cols), LL(x->cols), name_of(f, s->in.data[0]),
              LL(x->ld), name_of(f, s->in.data[1]), name_of(f, s->out.data[0]), LL(y->ld));
}

/* Calls of routing steps. Operands count through a step's inputs and outputs; `slots` is the one that lies in slots,
 * none for gates, which see all experts. Dispatch backward is a combination without weights. */
enum { NOTHING = -1 };
typedef struct route {
  zp_op op;
  const char *function;
  int slots, n_args, args[6];
} route;
static const route routes[] = {
    {ZP_OP_TOP_K_GATE, "zpr_top_k_gate", NOTHING, 3, {0, 1, 2}},
    {ZP_OP_TOP_K_GATE_GRAD, "zpr_top_k_gate_grad", NOTHING, 4, {0, 1, 2, 3}},
    {ZP_OP_DISPATCH, "zpr_dispatch", 2, 3, {0, 1, 2}},
    {ZP_OP_DISPATCH_GRAD, "zpr_combine", 1, 4, {1, NOTHING, 0, 2}},
    {ZP_OP_COMBINE, "zpr_combine", 0, 4, {0, 1, 2, 3}},
    {ZP_OP_COMBINE_GRAD, "zpr_combine_grad", 0, 6, {0, 1, 2, 3, 4, 5}},
};

static int operand_of(const zp_step *s, int i) { return i < s->in.len ? s->in.data[i] : s->out.data[i - s->in.len]; }

/* Where this rank's slots begin, and how many it has: its experts', padding included. */
static void emit_slots(frame *f, int b) {
  const zp_tensor *t = tensor_of(f, b);
  int64_t n_slots = t->shape.dim[1] * t->shape.dim[2];
  const char *first = t->split_dim == 1 ? zp_format(f->e->arena, "c->t * %lld", LL(n_slots)) : "0";
  zp_buf_line(&f->e->out, "    .d = %lld, .first_slot = %s, .n_slots = %lld,", LL(t->shape.dim[3]), first, LL(n_slots));
}

static void emit_route(frame *f, const zp_step *s) {
  zp_buf *out = &f->e->out;
  const zp_op_attr *attr = &s->node->attr;
  const route *r = routes;
  while (r->op != s->op) r++;
  zp_buf_line(out, "%s(c, &(zpk_routing){", r->function);
  zp_buf_line(out, "    .dtype = DTYPE, .B = MICROBATCH, .S = SEQUENCE, .k = %lld,", LL(attr->top_k));
  if (r->slots == NOTHING) {
    assert(attr->top_k <= ZPK_MAX_TOP_K && attr->experts <= ZPK_MAX_EXPERTS);
    zp_buf_line(out, "    .experts = %lld, .slots = %lld, .normalize = %s, .balance = %.17g,", LL(attr->experts),
                LL(attr->slots), attr->normalize ? "true" : "false", attr->balance);
  } else {
    emit_slots(f, operand_of(s, r->slots));
  }
  const char *list = "";
  for (int i = 0; i < r->n_args; i++)
    list =
        zp_format(f->e->arena, "%s, %s", list, r->args[i] == NOTHING ? "NULL" : name_of(f, operand_of(s, r->args[i])));
  zp_buf_line(out, "}%s);", list);
}

static void emit_list(zp_buf *out, const char *field, const char *type, const zp_strings *items) {
  if (items->len == 0) return;
  zp_buf_printf(out, " .%s = (%s[]){", field, type);
  for (int i = 0; i < items->len; i++) zp_buf_printf(out, "%s%s", i ? ", " : "", items->data[i]);
  zp_buf_puts(out, "},");
}

static void emit_list_line(zp_emit *e, const char *field, const char *type, const zp_strings *items, const char *field2,
                           const zp_strings *items2) {
  if (items->len == 0) return;
  zp_buf_puts(&e->out, "     ");
  emit_list(&e->out, field, type, items);
  emit_list(&e->out, field2, "const int64_t", items2);
  zp_buf_puts(&e->out, "\n");
}

/* Columns of the group's random stream: only dropout reads them. */
static void emit_stream(frame *f, const zp_step *s) {
  bool dropout = false;
  for (int i = 0; i < s->node->fused->ops.len; i++) dropout |= s->node->fused->ops.data[i].op == ZP_OP_DROPOUT;
  if (!dropout) return;
  const zp_tensor *rows = NULL;
  for (int i = 0; i < s->out.len && !rows; i++) rows = tensor_of(f, s->out.data[i]);
  for (int i = 0; i < s->in.len && !rows; i++)
    if (buf_at(f, s->in.data[i])->rows > 1) rows = tensor_of(f, s->in.data[i]);
  int64_t local = zp_shape_cols(&rows->shape);
  bool split = s->node->fused->split, split_rows = s->node->fused->split_rows;
  zp_buf_printf(&f->e->out, "      .instance = %s, .first_sample = c->first_sample + mb * MICROBATCH,",
                f->seg->segment->is_repeat ? "layer" : "0");
  f->uses_layer |= f->seg->segment->is_repeat;
  if (split) zp_buf_printf(&f->e->out, " .first_column = c->t * %lld,", LL(local));
  if (split_rows) /* whole rows of a share: experts */
    zp_buf_printf(&f->e->out, " .first_column = c->t * %lld,", LL(s->node->fused->rows_per_sample * local));
  zp_buf_printf(&f->e->out, " .logical_columns = %lld,\n", LL(split ? rows->full_dim : local));
}

static int64_t step_rows(const frame *f, const zp_step *s) {
  int64_t rows = 1;
  if (s->op == ZP_OP_FUSED) return buf_at(f, s->out.data[0])->rows;
  for (int i = 0; i < s->in.len; i++) {
    zp_grad_arg arg = s->node->grad_in.data[i];
    bool is_rows = arg.use != ZP_USE_SAVED || arg.value >= s->node->fused->n_in ||
                   s->node->fused->operand[arg.value] == ZP_OPERAND_ROWS;
    if (is_rows) rows = buf_at(f, s->in.data[i])->rows;
  }
  return rows;
}

static void emit_rows(frame *f, const zp_step *s) {
  zp_emit *e = f->e;
  const char *hint =
      zp_format(e->arena, "%s_%s%s", f->seg->segment->name, s->node->name, s->op == ZP_OP_FUSED_GRAD ? "_grad" : "");
  const char *kernel = zp_kernels_add(e->kernels, f->seg->graph, s->node, zp_emit_identifier(e->arena, hint));
  zp_strings in = {0}, in_ld = {0}, out = {0}, out_ld = {0}, sum = {0}, cols = {0}, acc = {0};
  for (int i = 0; i < s->in.len; i++) {
    zp_push(e->arena, &in, name_of(f, s->in.data[i]));
    zp_push(e->arena, &in_ld, zp_format(e->arena, "%lld", LL(buf_at(f, s->in.data[i])->ld)));
  }
  for (int i = 0; i < s->out.len; i++) {
    zp_push(e->arena, &out, name_of(f, s->out.data[i]));
    zp_push(e->arena, &out_ld, zp_format(e->arena, "%lld", LL(buf_at(f, s->out.data[i])->ld)));
  }
  for (int i = 0; i < s->sums.len; i++) {
    int param = f->seg->graph->params.data[s->sums.data[i].use].param;
    zp_push(e->arena, &sum, grad_of(f, s->sums.data[i].use));
    zp_push(e->arena, &cols, zp_format(e->arena, "%lld", LL(e->lowered->param_elements[param])));
    zp_push(e->arena, &acc, accumulate_of(&s->sums.data[i]));
  }
  zp_buf_line(&e->out, "zpr_rows(c, &(zpr_rows_call){");
  zp_buf_line(&e->out, "    .kernel = %s, .rows = %lld,", kernel, LL(step_rows(f, s)));
  emit_list_line(e, "in", "const void *const", &in, "in_ld", &in_ld);
  emit_list_line(e, "out", "void *const", &out, "out_ld", &out_ld);
  if (sum.len) {
    zp_buf_printf(&e->out, "      .n_sums = %d,", sum.len);
    emit_list(&e->out, "sum", "void *const", &sum);
    emit_list(&e->out, "sum_cols", "const int64_t", &cols);
    zp_buf_puts(&e->out, "\n     ");
    emit_list(&e->out, "accumulate", "const bool", &acc);
    zp_buf_printf(&e->out, " .workspace = %s,\n", name_of(f, s->workspace));
  }
  emit_stream(f, s);
  zp_buf_line(&e->out, "});");
}

static void emit_attention(frame *f, const zp_step *s) {
  const zp_node *n = s->node;
  bool grad = s->op == ZP_OP_ATTENTION_GRAD;
  zpk_dtype dtype = f->e->lowered->compute_bytes == 8 ? ZPK_F64 : ZPK_F32;
  assert(buf_at(f, s->workspace)->bytes ==
         ZPR_MAX_WORKERS * zpk_attention_workspace(dtype, f->model->sequence, n->attr.head_size, grad));
  zp_buf *out = &f->e->out;
  const int *in = s->in.data, *o = s->out.data;
  const zp_tensor *k = tensor_of(f, in[1]);
  int64_t G = n->attr.kv_heads,
          total = (k->split_dim >= 0 ? k->full_dim : zp_shape_cols(&k->shape)) / n->attr.head_size;
  zp_buf_line(out, "zpr_attention%s(c, &(zpk_attention_args){", grad ? "_grad" : "");
  zp_buf_line(out, "    .dtype = DTYPE, .B = MICROBATCH, .S = SEQUENCE, .H = %lld, .G = %lld, .hd = %lld,",
              LL(n->attr.heads), LL(G), LL(n->attr.head_size));
  if (k->split_dim >= 0 && total != G * f->e->program->choice.tensor)
    zp_buf_line(out, "    .kv_heads_valid = valid_units(c, %lld, %lld), .scale = %.17g, .causal = %s,", LL(total),
                LL(G), n->attr.scale, n->attr.causal ? "true" : "false");
  else
    zp_buf_line(out, "    .kv_heads_valid = %lld, .scale = %.17g, .causal = %s,", LL(G), n->attr.scale,
                n->attr.causal ? "true" : "false");
  zp_buf_line(out, "    .q = %s, .q_ld = %lld, .k = %s, .k_ld = %lld, .v = %s, .v_ld = %lld,", name_of(f, in[0]),
              LL(buf_at(f, in[0])->ld), name_of(f, in[1]), LL(buf_at(f, in[1])->ld), name_of(f, in[2]),
              LL(buf_at(f, in[2])->ld));
  int ob = grad ? in[3] : o[0], lse = grad ? in[4] : o[1];
  zp_buf_line(out, "    .o = %s, .o_ld = %lld, .lse = %s,", name_of(f, ob), LL(buf_at(f, ob)->ld), name_of(f, lse));
  if (grad) {
    zp_buf_line(out, "    .d_o = %s, .d_o_ld = %lld,", name_of(f, in[5]), LL(buf_at(f, in[5])->ld));
    zp_buf_line(out, "    .dq = %s, .dq_ld = %lld, .dk = %s, .dk_ld = %lld, .dv = %s, .dv_ld = %lld,", name_of(f, o[0]),
                LL(buf_at(f, o[0])->ld), name_of(f, o[1]), LL(buf_at(f, o[1])->ld), name_of(f, o[2]),
                LL(buf_at(f, o[2])->ld));
  }
  zp_buf_line(out, "    .workspace = %s,", name_of(f, s->workspace));
  zp_buf_line(out, "});");
}

/* First logical row or column of this rank's share: "c->t * 25152" or "0". */
static const char *first_of(const frame *f, const zp_tensor *t, int dim) {
  if (t->split_dim != dim || f->e->program->choice.tensor == 1) return "0";
  return zp_format(f->e->arena, "c->t * %lld", LL(t->shape.dim[dim]));
}

static void emit_lookup(frame *f, const zp_step *s) {
  zp_buf *out = &f->e->out;
  if (s->op == ZP_OP_EMBEDDING) {
    const zp_buffer *table = buf_at(f, s->in.data[1]), *y = buf_at(f, s->out.data[0]);
    zp_buf_line(out, "zpr_embedding(c, %s, %s, %s, %lld, %lld, %lld, %s);", name_of(f, s->in.data[0]),
                name_of(f, s->in.data[1]), first_of(f, tensor_of(f, s->in.data[1]), 0), LL(table->rows), LL(y->rows),
                LL(y->cols), name_of(f, s->out.data[0]));
    return;
  }
  const zp_buffer *dy = buf_at(f, s->in.data[0]);
  int use = s->sums.data[0].use;
  const zp_tensor *param = &f->seg->graph->tensors.data[f->seg->graph->params.data[use].tensor];
  if (s->op == ZP_OP_EMBEDDING_GRAD)
    zp_buf_line(out, "zpr_embedding_grad(c, %s, %s, %s, %lld, %lld, %lld, %s);", name_of(f, s->in.data[1]),
                name_of(f, s->in.data[0]), first_of(f, param, 0), LL(param->shape.dim[0]), LL(dy->rows), LL(dy->cols),
                grad_of(f, use));
  else
    zp_buf_line(out, "zpr_position_grad(c, %s, %lld, MICROBATCH, SEQUENCE, %lld, %s, %s);", name_of(f, s->in.data[0]),
                LL(dy->ld), LL(dy->cols), accumulate_of(&s->sums.data[0]), grad_of(f, use));
}

static void emit_loss(frame *f, const zp_step *s) {
  zp_buf *out = &f->e->out;
  const char *in0 = name_of(f, s->in.data[0]), *in1 = name_of(f, s->in.data[1]), *o = name_of(f, s->out.data[0]);
  const zp_tensor *x = tensor_of(f, s->in.data[0]);
  const zp_buffer *b = buf_at(f, s->in.data[0]);
  if (s->op == ZP_OP_CE_STATS)
    zp_buf_line(out, "zpr_ce_stats(c, %s, %lld, %s, VOCABULARY, %s, %lld, %s);", in0, LL(b->cols),
                first_of(f, x, x->shape.rank - 1), in1, LL(b->rows), o);
  else if (s->op == ZP_OP_CE_LOSS) {
    int64_t rows = f->e->lowered->microbatch * f->model->sequence;
    zp_buf_line(out, "zpr_ce_loss(c, %s, %lld, %lld, VOCABULARY, %s, %s);", in0, LL(b->rows * b->cols / (3 * rows)),
                LL(rows), in1, o);
  } else
    zp_buf_line(out, "zpr_ce_grad(c, %s, %lld, %s, VOCABULARY, %s, %s, %lld, %s);", in0, LL(b->cols),
                first_of(f, x, x->shape.rank - 1), in1, name_of(f, s->in.data[2]), LL(b->rows), o);
}

static void emit_comm(frame *f, const zp_step *s) {
  if (s->op == ZP_OP_GATHER_STATS)
    zp_buf_line(&f->e->out, "zpr_all_gather(c, ZPR_TENSOR, %s, %lld, %s);", name_of(f, s->in.data[0]),
                LL(s->comm_elements), name_of(f, s->out.data[0]));
  else
    zp_buf_line(&f->e->out, "zpr_all_reduce(c, ZPR_TENSOR, %s, %lld);", name_of(f, s->out.data[0]),
                LL(s->comm_elements));
}

static void emit_made_step(frame *f, const zp_step *s) {
  const char *in = name_of(f, s->in.data[0]), *out = name_of(f, s->out.data[0]);
  if (s->kind == ZP_STEP_KEEP_SHARD)
    zp_buf_line(&f->e->out, "keep_shard(c, %s, %s, %lld, %lld);", out, in, LL(f->seg->carry_in_elements),
                LL(f->seg->carry_kept_elements));
  else if (s->kind == ZP_STEP_GATHER_SHARD)
    zp_buf_line(&f->e->out, "zpr_all_gather(c, ZPR_TENSOR, %s, %lld, %s);", in, LL(s->comm_elements), out);
  else
    zp_buf_line(&f->e->out, "zpr_copy(c, %s, %s, %lld * (int64_t)sizeof(real));", out, in,
                LL(buf_at(f, s->out.data[0])->rows * buf_at(f, s->out.data[0])->cols));
}

static void emit_step(frame *f, const zp_step *s) {
  static const char *const made[] = {"", "keep this rank's shard of x", "gather the kept shards of x", "copy"};
  zp_emit *e = f->e;
  const char *place = s->node ? zp_emit_place(e, s->node->span) : "";
  zp_buf_line(&e->out, "/* %s%s%s: %.0f ns, %lld bytes%s%s */", s->node ? zp_op_name(s->op) : made[s->kind],
              s->node ? " " : "", s->node ? s->node->name : "", s->cost_s * 1e9, LL(s->bytes), *place ? "; " : "",
              place);
  if (s->kind != ZP_STEP_NODE) {
    emit_made_step(f, s);
    return;
  }
  switch (zp_op_get_class(s->op)) {
  case ZP_CLASS_MATMUL: s->op == ZP_OP_MATMUL_WGRAD ? emit_wgrad(f, s) : emit_matmul(f, s); break;
  case ZP_CLASS_GROUPED: emit_grouped(f, s); break;
  case ZP_CLASS_ROUTING: emit_route(f, s); break;
  case ZP_CLASS_FUSED: emit_rows(f, s); break;
  case ZP_CLASS_ATTENTION: emit_attention(f, s); break;
  case ZP_CLASS_LOOKUP: emit_lookup(f, s); break;
  case ZP_CLASS_LOSS: emit_loss(f, s); break;
  case ZP_CLASS_COMM: emit_comm(f, s); break;
  case ZP_CLASS_ROW:
  case ZP_CLASS_VIEW: assert(!"fused or storage only"); break;
  }
}

void zp_emit_procedure(zp_emit *e, int segment, zp_stage_mode mode, bool backward) {
  const zp_segment_program *seg = zp_emit_variant(e, segment, mode);
  frame f = {
      .e = e, .seg = seg, .p = backward ? &seg->backward : &seg->forward, .model = e->model, .backward = backward};
  name_buffers(&f);
  bool *used = find_used(&f);
  const char *id = zp_emit_function_name(e, segment, mode, backward);
  bool tells = e->program->choice.stage_recompute && seg->segment->is_repeat;
  zp_buf_line(&e->out, "/* Segment `%s`%s%s, %s; %s. Predicted %.0f ns a call. */", seg->segment->name,
              tells ? ", recompute " : "", tells ? zp_stage_mode_name(mode) : "",
              backward ? "backward: dy -> dx, gradients of its parameters" : "forward: x -> y",
              zp_emit_place(e, seg->segment->span), f.p->cost_s * 1e9);
  zp_buf_line(&e->out, "static void %s(zpr *c, const layout *s, const unit *u, int64_t mb) {", id);
  e->out.indent++;
  zp_buf outer = e->out;
  e->out = zp_buf_new(e->arena);
  e->out.indent = outer.indent;
  for (int s = 0; s < f.p->steps.len; s++) {
    if (s == f.p->n_recompute && f.p->n_recompute > 0)
      zp_buf_line(&e->out, "/* -- forward values are rebuilt; backward proper -- */");
    emit_step(&f, &f.p->steps.data[s]);
  }
  zp_buf steps = e->out;
  e->out = outer;
  if (f.uses_t) zp_buf_line(&e->out, "char *t = zpr_at(c, s->transient);");
  if (f.uses_saved) zp_buf_line(&e->out, "char *saved = u->saved;");
  bool own_w = false, own_g = false, shared = false;
  for (int i = 0; i < seg->graph->params.len; i++) {
    own_w |= seg->param_offset[i] >= 0 && f.uses_w;
    own_g |= seg->param_offset[i] >= 0 && f.uses_g;
    shared |= seg->param_offset[i] < 0 && (f.uses_w || f.uses_g);
  }
  if (own_w) zp_buf_line(&e->out, "const real *w = params(c) + u->base;");
  if (own_g) zp_buf_line(&e->out, "real *g = grads(c) + u->base;");
  if (f.uses_x) zp_buf_line(&e->out, "real *x = u->x;");
  if (f.uses_y) zp_buf_line(&e->out, "real *y = u->y;");
  if (f.uses_dy) zp_buf_line(&e->out, "real *dy = u->dy;");
  if (f.uses_dx) zp_buf_line(&e->out, "real *dx = u->dx;");
  if (f.uses_layer) zp_buf_line(&e->out, "const int64_t layer = u->layer;");
  for (int b = 0; b < f.p->buffers.len; b++)
    if (used[b]) declare_buffer(&f, b);
  (void)shared;
  zp_buf_line(&e->out, "(void)s, (void)u, (void)mb;");
  zp_buf_put(&e->out, steps.data, steps.len);
  e->out.indent--;
  zp_buf_line(&e->out, "}");
  zp_buf_puts(&e->out, "\n");
}
