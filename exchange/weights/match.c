/* SPDX-License-Identifier: Apache-2.0 */
/* Two models laid alongside each other from the loss backward: which parameter is which, or where they differ.
 *
 * Both graphs are walked together. Two tensors match when the same operation with the same settings made them of
 * tensors that match; of sums and products either order of operands is tried. A linear layer matches a part of a split
 * one (fused q, k, v), whose rows are then those of that part. Dropout is passed over: it is a setting of the training.
 * Where no order of operands works, the difference that was met after most matches is told. */
#include "weights_internal.h"

typedef struct matcher {
  zp_arena *arena;
  const zp_model *model[2];
  const zp_graph *graph[2];
  const char *their_name;
  zp_param_matches found;
  int *input;           /* of an input of ours: 1 + that of theirs which stands for it; 0: none yet */
  int *partner;         /* of a tensor of ours in the graph in work: 1 + its partner; 0: none yet */
  int n_sums;           /* that were tried in other orders */
  int n_matched, depth; /* tensors that match, and operations between the output and here */
  int best;             /* their sum where the difference was met that is told */
  zp_model_difference difference;
} matcher;

enum { OURS, THEIRS };

static bool match(matcher *m, int a, int b);

__attribute__((format(printf, 3, 4))) static bool differ(matcher *m, zp_span span, const char *format, ...) {
  if (m->difference.text && m->n_matched + m->depth <= m->best) return false;
  va_list args;
  va_start(args, format);
  m->difference = (zp_model_difference){zp_vformat(m->arena, format, args), span};
  va_end(args);
  m->best = m->n_matched + m->depth;
  return false;
}

static const zp_tensor *tensor_of(const matcher *m, int side, int tensor) {
  return &m->graph[side]->tensors.data[tensor];
}

static const zp_node *node_of(const matcher *m, int side, int tensor) {
  const zp_tensor *t = tensor_of(m, side, tensor);
  return t->producer >= 0 ? &m->graph[side]->nodes.data[t->producer] : NULL;
}

static int without_dropout(const matcher *m, int side, int tensor) {
  const zp_node *n = node_of(m, side, tensor);
  return n && n->op == ZP_OP_DROPOUT ? without_dropout(m, side, n->in.data[0]) : tensor;
}

static bool is_param(const matcher *m, int side, int tensor) {
  return tensor_of(m, side, tensor)->role == ZP_ROLE_PARAM;
}

static const zp_param *param_of(const matcher *m, int side, int tensor) {
  return &m->model[side]->params.data[tensor_of(m, side, tensor)->index];
}

/* ---- parameters ---- */

static bool overlap(int64_t a, int64_t b, int64_t rows) { return a < b + rows && b < a + rows; }

static bool bind(matcher *m, zp_param_match one, zp_span span) {
  const char *ours = m->model[OURS]->params.data[one.ours].name,
             *theirs = m->model[THEIRS]->params.data[one.theirs].name;
  for (int i = 0; i < m->found.len; i++) {
    const zp_param_match *f = &m->found.data[i];
    if (memcmp(f, &one, sizeof one) == 0) return true;
    bool same_ours = f->ours == one.ours && overlap(f->our_row, one.our_row, f->rows),
         same_theirs = f->theirs == one.theirs && overlap(f->their_row, one.their_row, f->rows);
    if (same_ours)
      return differ(m, span, "`%s` is used twice here (tied), and %s has `%s` and `%s` for it", ours, m->their_name,
                    m->model[THEIRS]->params.data[f->theirs].name, theirs);
    if (same_theirs)
      return differ(m, span, "`%s` and `%s` are one parameter in %s, used twice (tied)",
                    m->model[OURS]->params.data[f->ours].name, ours, m->their_name);
  }
  zp_push(m->arena, &m->found, one);
  return true;
}

/* Outputs of a linear layer's weight, rows of other parameters. */
static int64_t rows_of(const zp_param *p, bool inputs_first) {
  return p->shape.rank == 2 && inputs_first ? p->shape.dim[1] : p->shape.dim[0];
}

static bool bind_whole(matcher *m, int a, int b, bool inputs_first, bool turned, zp_span span) {
  const zp_param *ours = param_of(m, OURS, a), *theirs = param_of(m, THEIRS, b);
  if (ours->shape.rank != theirs->shape.rank)
    return differ(m, span, "`%s` is %s here, and `%s` of %s is %s", ours->name, zp_shape_text(m->arena, &ours->shape),
                  theirs->name, m->their_name, zp_shape_text(m->arena, &theirs->shape));
  zp_param_match one;
  memset(&one, 0, sizeof one); /* compared as bytes */
  one.ours = tensor_of(m, OURS, a)->index;
  one.theirs = tensor_of(m, THEIRS, b)->index;
  one.rows = rows_of(ours, inputs_first);
  one.turned = turned;
  return bind(m, one, span);
}

/* ---- linear layers, whole or a part of one ---- */

typedef struct linear {
  const zp_node *product;
  int x, weight, bias; /* bias -1: none */
} linear;

static bool read_linear(const matcher *m, int side, int tensor, linear *l) {
  const zp_node *n = node_of(m, side, tensor);
  *l = (linear){.bias = -1};
  if (n && n->op == ZP_OP_ADD && is_param(m, side, n->in.data[1]) &&
      tensor_of(m, side, n->in.data[1])->shape.rank == 1) {
    l->bias = n->in.data[1];
    n = node_of(m, side, n->in.data[0]);
  }
  if (!n || n->op != ZP_OP_MATMUL || !is_param(m, side, n->in.data[1]) || !n->attr.trans) return false;
  l->product = n;
  l->x = n->in.data[0];
  l->weight = n->in.data[1];
  return true;
}

/* Inputs stand in any order and have any names; one of theirs is one of ours. */
static bool bind_input(matcher *m, const zp_tensor *ours, const zp_tensor *theirs) {
  const zp_input *a = &m->model[OURS]->inputs.data[ours->index], *b = &m->model[THEIRS]->inputs.data[theirs->index];
  bool taken = false;
  for (int i = 0; i < m->model[OURS]->inputs.len; i++) taken |= i != ours->index && m->input[i] == 1 + theirs->index;
  if (taken || (m->input[ours->index] && m->input[ours->index] != 1 + theirs->index) || a->element != b->element)
    return differ(m, ours->span, "`%s` stands where %s reads another input", ours->name, m->their_name);
  m->input[ours->index] = 1 + theirs->index;
  return true;
}

static bool bind_rows(matcher *m, int a, int b, int64_t our_row, int64_t their_row, int64_t rows, zp_span span) {
  zp_param_match one;
  memset(&one, 0, sizeof one);
  one.ours = tensor_of(m, OURS, a)->index;
  one.theirs = tensor_of(m, THEIRS, b)->index;
  one.our_row = our_row;
  one.their_row = their_row;
  one.rows = rows;
  return bind(m, one, span);
}

/* A view of one side's layer and the whole result of the other's. */
static bool match_part(matcher *m, int a, int b, int side_of_view) {
  const zp_tensor *view = tensor_of(m, side_of_view, side_of_view == OURS ? a : b);
  int base = view->base;
  int64_t rows = zp_shape_cols(&view->shape), row = view->column;
  linear ours, theirs;
  zp_span span = tensor_of(m, OURS, a)->span;
  if (!read_linear(m, OURS, side_of_view == OURS ? base : a, &ours) ||
      !read_linear(m, THEIRS, side_of_view == THEIRS ? base : b, &theirs))
    return differ(m, span, "`%s` is %s a larger tensor here, and not in %s", tensor_of(m, OURS, a)->name,
                  side_of_view == OURS ? "a part of" : "no part of", m->their_name);
  if ((ours.bias >= 0) != (theirs.bias >= 0))
    return differ(m, span, "this layer has %s bias, and in %s it has %s", ours.bias >= 0 ? "a" : "no", m->their_name,
                  theirs.bias >= 0 ? "one" : "none");
  int64_t our_row = side_of_view == OURS ? row : 0, their_row = side_of_view == THEIRS ? row : 0;
  return match(m, ours.x, theirs.x) && bind_rows(m, ours.weight, theirs.weight, our_row, their_row, rows, span) &&
         (ours.bias < 0 || bind_rows(m, ours.bias, theirs.bias, our_row, their_row, rows, span));
}

/* ---- operations ---- */

static int output_index(const zp_node *n, int tensor) {
  for (int i = 0; i < n->out.len; i++)
    if (n->out.data[i] == tensor) return i;
  return -1;
}

/* State before a try, to come back to. */
typedef struct saved {
  int found, n_matched;
  int *partner, *input;
} saved;

static saved save(matcher *m) {
  int n = m->graph[OURS]->tensors.len, inputs = m->model[OURS]->inputs.len;
  saved s = {m->found.len, m->n_matched, ZP_NEW_ARRAY(m->arena, int, n), ZP_NEW_ARRAY(m->arena, int, inputs)};
  memcpy(s.partner, m->partner, sizeof *s.partner * (size_t)n);
  memcpy(s.input, m->input, sizeof *s.input * (size_t)inputs);
  return s;
}

static void restore(matcher *m, const saved *s) {
  m->found.len = s->found;
  m->n_matched = s->n_matched;
  memcpy(m->partner, s->partner, sizeof *m->partner * (size_t)m->graph[OURS]->tensors.len);
  memcpy(m->input, s->input, sizeof *m->input * (size_t)m->model[OURS]->inputs.len);
}

/* ---- sums of three terms and more, which may be written in any order ---- */

/* Where models differ below, every sum above is tried again: so only so many are. */
enum { MOST_TERMS = 4, MOST_SUMS = 1000 };

/* Made by the same operation, or both the same kind of leaf? */
static bool alike(const matcher *m, int a, int b) {
  const zp_node *x = node_of(m, OURS, a), *y = node_of(m, THEIRS, b);
  return x && y ? x->op == y->op : !x && !y && tensor_of(m, OURS, a)->role == tensor_of(m, THEIRS, b)->role;
}

/* The terms of a sum. False: there are too many to try all orders. */
static bool terms_of(const matcher *m, int side, int tensor, int terms[MOST_TERMS], int *n) {
  tensor = without_dropout(m, side, tensor);
  const zp_node *node = node_of(m, side, tensor);
  if (node && node->op == ZP_OP_ADD && tensor_of(m, side, tensor)->base < 0)
    return terms_of(m, side, node->in.data[0], terms, n) && terms_of(m, side, node->in.data[1], terms, n);
  if (*n == MOST_TERMS) return false;
  terms[(*n)++] = tensor;
  return true;
}

/* Terms i and up of ours against those of theirs that are not taken yet. */
static bool match_terms(matcher *m, const int *ours, int *theirs, int i, int n) {
  if (i == n) return true;
  for (int k = i; k < n; k++) {
    if (!alike(m, ours[i], theirs[k])) continue;
    saved before = save(m);
    int chosen = theirs[k];
    theirs[k] = theirs[i];
    theirs[i] = chosen;
    if (match(m, ours[i], chosen) && match_terms(m, ours, theirs, i + 1, n)) return true;
    theirs[i] = theirs[k];
    theirs[k] = chosen;
    restore(m, &before);
  }
  return false;
}

static bool match_sum(matcher *m, const zp_node *a, const zp_node *b) {
  int ours[MOST_TERMS], theirs[MOST_TERMS], n = 0, k = 0;
  if (m->n_sums++ >= MOST_SUMS) return false;
  bool few = terms_of(m, OURS, a->out.data[0], ours, &n) && terms_of(m, THEIRS, b->out.data[0], theirs, &k);
  return few && n > 2 && n == k && match_terms(m, ours, theirs, 0, n);
}

/* Without where sorted experts begin: with slots for every token the function is the same. */
static int operands_of(const matcher *m, int side, const zp_node *node) {
  const zp_node *last = node->in.len ? node_of(m, side, node->in.data[node->in.len - 1]) : NULL;
  return node->in.len - (last && last->op == ZP_OP_EXPERT_ROWS);
}

static bool match_operands(matcher *m, const zp_node *a, const zp_node *b) {
  bool commutes = a->op == ZP_OP_ADD || a->op == ZP_OP_MUL;
  int n = operands_of(m, OURS, a), k = operands_of(m, THEIRS, b);
  if (n != k)
    return differ(m, a->span, "`%s` has %d operands here, and %d in %s", zp_op_name(a->op), n, k, m->their_name);
  saved before = commutes ? save(m) : (saved){0};
  bool good = true;
  for (int i = 0; good && i < n; i++) good = match(m, a->in.data[i], b->in.data[i]);
  if (good || !commutes) return good;
  restore(m, &before);
  if (match(m, a->in.data[0], b->in.data[1]) && match(m, a->in.data[1], b->in.data[0])) return true;
  restore(m, &before);
  return a->op == ZP_OP_ADD && match_sum(m, a, b);
}

/* q, k, v, and a bias; lengths only where both have them: without, every position is there. */
static bool match_attention(matcher *m, const zp_node *a, const zp_node *b) {
  for (int i = 0; i < 3; i++)
    if (!match(m, a->in.data[i], b->in.data[i])) return false;
  int lengths[2] = {zp_attention_lengths(a), zp_attention_lengths(b)};
  if (lengths[OURS] >= 0 && lengths[THEIRS] >= 0 && !match(m, lengths[OURS], lengths[THEIRS])) return false;
  if (lengths[OURS] >= 0 && lengths[THEIRS] < 0)
    return differ(m, a->span, "attention sees as far as lengths say here, and all positions in %s", m->their_name);
  int bias[2] = {zp_attention_bias(a), zp_attention_bias(b)};
  return bias[OURS] < 0 || match(m, bias[OURS], bias[THEIRS]);
}

/* Logits and labels; where samples have classes of their own, lengths as well. */
static bool match_loss(matcher *m, const zp_node *a, const zp_node *b) {
  return match(m, a->in.data[0], b->in.data[0]) && match(m, a->in.data[1], b->in.data[1]) &&
         (a->in.len < 3 || b->in.len < 3 || match(m, a->in.data[2], b->in.data[2]));
}

/* x W: the weight may be written [out, in] or [in, out]. */
static bool match_product(matcher *m, const zp_node *a, const zp_node *b) {
  int w = a->in.data[1], v = b->in.data[1];
  if (!match(m, a->in.data[0], b->in.data[0])) return false;
  if (!is_param(m, OURS, w) || !is_param(m, THEIRS, v))
    return differ(m, a->span, "a product is not of a parameter here or in %s", m->their_name);
  bool grouped = a->op == ZP_OP_BATCHED_MATMUL, turned = a->attr.trans != b->attr.trans;
  if (grouped && turned)
    return differ(m, a->span, "matrices of experts are [in, out] here or in %s, and [out, in] in the other",
                  m->their_name);
  return bind_whole(m, w, v, !a->attr.trans, turned, a->span);
}

/* How operands are matched where they are not all alike. */
static bool (*const match_by_op[ZP_OP_COUNT])(matcher *, const zp_node *, const zp_node *) = {
    [ZP_OP_MATMUL] = match_product,
    [ZP_OP_BATCHED_MATMUL] = match_product,
    [ZP_OP_ATTENTION] = match_attention,
    [ZP_OP_CROSS_ENTROPY] = match_loss,
};

static bool same_settings(matcher *m, const zp_node *a, const zp_node *b) {
  zp_node_pair pair = {m->arena, {m->graph[OURS], m->graph[THEIRS]}, {a, b}, m->their_name};
  const char *difference = zp_settings_difference(&pair);
  return !difference || differ(m, a->span, "%s", difference);
}

static bool match_nodes(matcher *m, int a, int b) {
  const zp_node *x = node_of(m, OURS, a), *y = node_of(m, THEIRS, b);
  zp_span span = tensor_of(m, OURS, a)->span;
  if (!x || !y) return differ(m, span, "the input of a layer stands elsewhere here than in %s", m->their_name);
  if (x->op != y->op || output_index(x, a) != output_index(y, b))
    return differ(m, x->span, "`%s` stands here, and `%s` in %s", zp_op_name(x->op), zp_op_name(y->op), m->their_name);
  m->depth++;
  bool good = same_settings(m, x, y) && (match_by_op[x->op] ? match_by_op[x->op] : match_operands)(m, x, y);
  m->depth--;
  return good;
}

static bool match_views(matcher *m, int a, int b) {
  const zp_tensor *x = tensor_of(m, OURS, a), *y = tensor_of(m, THEIRS, b);
  if (x->base < 0 || y->base < 0) return match_part(m, a, b, x->base >= 0 ? OURS : THEIRS);
  int64_t our_width = zp_shape_cols(&x->shape), their_width = zp_shape_cols(&y->shape);
  int64_t our_parts = zp_shape_cols(&tensor_of(m, OURS, x->base)->shape) / our_width,
          their_parts = zp_shape_cols(&tensor_of(m, THEIRS, y->base)->shape) / their_width;
  if (our_parts != their_parts || x->column / our_width != y->column / their_width)
    return differ(m, x->span, "`%s` is another part of a split here than in %s", x->name, m->their_name);
  return match(m, x->base, y->base);
}

static bool match(matcher *m, int a, int b) {
  a = without_dropout(m, OURS, a);
  b = without_dropout(m, THEIRS, b);
  if (m->partner[a] == 1 + b) return true;
  const zp_tensor *x = tensor_of(m, OURS, a), *y = tensor_of(m, THEIRS, b);
  bool good;
  if (x->role != y->role)
    good = differ(m, x->span, "`%s` is made otherwise here than in %s", x->name, m->their_name);
  else if (x->role == ZP_ROLE_PARAM)
    good = bind_whole(m, a, b, false, false, x->span);
  else if (x->role == ZP_ROLE_INPUT)
    good = bind_input(m, x, y);
  else if (x->role != ZP_ROLE_VALUE)
    good =
        x->index == y->index || differ(m, x->span, "`%s` stands where %s reads another input", x->name, m->their_name);
  else if (x->base >= 0 || y->base >= 0)
    good = match_views(m, a, b);
  else
    good = match_nodes(m, a, b);
  if (!good) return false;
  m->partner[a] = 1 + b;
  m->n_matched++;
  return true;
}

/* ---- segments ---- */

static bool match_segment(matcher *m, int s) {
  const zp_segment *a = &m->model[OURS]->segments.data[s], *b = &m->model[THEIRS]->segments.data[s];
  const zp_graph *x = m->graph[OURS] = a->graph, *y = m->graph[THEIRS] = b->graph;
  m->partner = ZP_NEW_ARRAY(m->arena, int, x->tensors.len);
  m->n_matched = 0;
  m->best = -1;
  if (a->is_repeat != b->is_repeat || x->carry_in.len != y->carry_in.len || x->carry_out.len != y->carry_out.len)
    return differ(m, a->span, "`%s` is another part of the model here than in %s", a->name, m->their_name);
  for (int i = 0; i < x->carry_out.len; i++)
    if (!match(m, x->carry_out.data[i], y->carry_out.data[i])) return false;
  if (x->losses.len != y->losses.len)
    return differ(m, a->span, "`%s` has %d losses here, and %d in %s", a->name, x->losses.len, y->losses.len,
                  m->their_name);
  for (int i = 0; i < x->losses.len; i++)
    if (!match(m, x->losses.data[i], y->losses.data[i])) return false;
  return true;
}

zp_param_matches zp_match_models(zp_arena *arena, const zp_model *ours, const zp_model *theirs, const char *their_name,
                                 zp_model_difference *difference) {
  matcher m = {.arena = arena, .model = {ours, theirs}, .their_name = their_name, .best = -1};
  m.input = ZP_NEW_ARRAY(arena, int, ours->inputs.len + 1);
  *difference = (zp_model_difference){NULL, ours->span};
  bool good =
      ours->segments.len == theirs->segments.len ||
      differ(&m, ours->span, "the model has %d parts (what stands before, in and after repeats) here, and %d in %s",
             ours->segments.len, theirs->segments.len, their_name);
  for (int s = 0; good && s < ours->segments.len; s++) good = match_segment(&m, s);
  if (!good) {
    *difference = m.difference;
    if (!difference->text)
      *difference = (zp_model_difference){zp_format(arena, "the model differs from %s", their_name), ours->span};
  }
  return m.found;
}
