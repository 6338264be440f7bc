/* Shape rules: which operands an op takes and what shape comes out, with the message for a person when they do not fit.
 * Logical and local graphs follow the same rules; in local graphs the sharder gives attr.head_size, and heads are
 * local. */
#include <assert.h>
#include <math.h>
#include <zplan/sparse.h>
#include "graph_internal.h"

static const zp_tensor *operand(const zp_rule *rule, int i) { return &rule->graph->tensors.data[rule->in[i]]; }
static const zp_shape *shape_of(const zp_rule *rule, int i) { return &operand(rule, i)->shape; }
static const char *text_of(const zp_rule *rule, int i) { return zp_shape_text(rule->graph->arena, shape_of(rule, i)); }

__attribute__((format(printf, 3, 4))) static zp_diag *fail(zp_rule *rule, zp_diag_code code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  rule->error = zp_vformat(rule->graph->arena, format, args);
  va_end(args);
  return rule->diags ? zp_report(rule->diags, code, rule->span, "%s", rule->error) : NULL;
}

static void help(zp_diag *diag, const char *text) {
  if (diag) zp_diag_help(diag, "%s", text);
}

static void answer(zp_rule *rule, zp_element element, zp_shape shape) {
  rule->element[rule->n_out] = element;
  rule->shape[rule->n_out++] = shape;
}

/* Puts dimension j of `from`, its extent with it, at place i. */
static void put_dim(zp_shape *to, int i, const zp_shape *from, int j) {
  to->dim[i] = from->dim[j];
  to->extent[i] = from->extent[j];
}

static zp_shape with_last(const zp_shape *shape, int64_t last, const zp_extent *extent) {
  zp_shape result = *shape;
  result.dim[result.rank - 1] = last;
  result.extent[result.rank - 1] = extent;
  return result;
}

static zp_shape with_last_of(const zp_shape *shape, const zp_shape *from, int j) {
  return with_last(shape, from->dim[j], from->extent[j]);
}

static void resize(const zp_rule *rule, zp_shape *shape, int i, int64_t size) {
  zp_shape_resize(rule->graph->arena, shape, i, size);
}

/* ---- checks shared by rules; false after reporting ---- */

static const char *const element_name[] = {"floating point values", "i32 ids", "row statistics"};

static bool want_element(zp_rule *rule, int i, zp_element want) {
  if (operand(rule, i)->element == want) return true;
  fail(rule, ZP_Z0206, "operand %d of `%s` must hold %s, but `%s` holds %s", i + 1, zp_op_name(rule->op),
       element_name[want], operand(rule, i)->name, element_name[operand(rule, i)->element]);
  return false;
}

static bool want_param(zp_rule *rule, int i) {
  if (operand(rule, i)->role == ZP_ROLE_PARAM) return true;
  help(fail(rule, ZP_Z0207, "operand %d of `%s` must be a parameter, but `%s` is computed", i + 1, zp_op_name(rule->op),
            operand(rule, i)->name),
       "matrices, embedding tables, norm weights and broadcast operands are trained directly; declare a `param`");
  return false;
}

static bool want_activation(zp_rule *rule, int i) {
  const zp_tensor *t = operand(rule, i);
  if (!want_element(rule, i, ZP_ELEM_FLOAT)) return false;
  if (t->role != ZP_ROLE_PARAM && t->shape.rank >= 2 && t->shape.dim[0] == ZP_DIM_B) return true;
  help(fail(rule, ZP_Z0207, "operand %d of `%s` must be an activation, but `%s` %s is %s", i + 1, zp_op_name(rule->op),
            t->name, text_of(rule, i), t->role == ZP_ROLE_PARAM ? "a parameter" : "not one"),
       "activations have the micro-batch B as their first dimension; apply the op to the result of `embedding` or "
       "`matmul`");
  return false;
}

static bool want_rank(zp_rule *rule, int i, int rank) {
  if (shape_of(rule, i)->rank == rank) return true;
  fail(rule, ZP_Z0209, "operand %d of `%s` must have %d dimensions, but `%s` is %s", i + 1, zp_op_name(rule->op), rank,
       operand(rule, i)->name, text_of(rule, i));
  return false;
}

static bool want_same_shape(zp_rule *rule, int i, int j) {
  if (zp_shape_equal(shape_of(rule, i), shape_of(rule, j))) return true;
  fail(rule, ZP_Z0204, "operands %d and %d of `%s` must have one shape, but `%s` is %s and `%s` is %s", i + 1, j + 1,
       zp_op_name(rule->op), operand(rule, i)->name, text_of(rule, i), operand(rule, j)->name, text_of(rule, j));
  return false;
}

static bool want_positive(zp_rule *rule, const char *what, double value) {
  if (value > 0 && isfinite(value)) return true;
  fail(rule, ZP_Z0208, "`%s` of `%s` must be positive, not %g", what, zp_op_name(rule->op), value);
  return false;
}

/* ids [B, S] beside rows [B, S, n], or [B] beside [B, n]. */
static bool want_labels(zp_rule *rule, int ids, int rows) {
  const zp_shape *a = shape_of(rule, ids), *b = shape_of(rule, rows);
  if (!want_element(rule, ids, ZP_ELEM_I32)) return false;
  bool fits = a->rank >= 1 && a->rank <= 2 && b->rank == a->rank + 1;
  for (int i = 0; fits && i < a->rank; i++) fits = a->dim[i] == b->dim[i];
  if (fits) return true;
  fail(rule, ZP_Z0204, "`%s` needs one label per row, but `%s` is %s and `%s` is %s", zp_op_name(rule->op),
       operand(rule, rows)->name, text_of(rule, rows), operand(rule, ids)->name, text_of(rule, ids));
  return false;
}

/* ---- rules ---- */

static void embedding(zp_rule *rule) {
  if (!want_element(rule, 0, ZP_ELEM_I32) || !want_element(rule, 1, ZP_ELEM_FLOAT) || !want_param(rule, 1) ||
      !want_rank(rule, 0, 2) || !want_rank(rule, 1, 2))
    return;
  zp_shape shape = *shape_of(rule, 0);
  put_dim(&shape, shape.rank++, shape_of(rule, 1), 1);
  answer(rule, ZP_ELEM_FLOAT, shape);
}

static void matmul(zp_rule *rule) {
  if (!want_activation(rule, 0) || !want_element(rule, 1, ZP_ELEM_FLOAT) || !want_param(rule, 1) ||
      !want_rank(rule, 1, 2))
    return;
  const zp_shape *w = shape_of(rule, 1);
  int64_t k = w->dim[rule->attr.trans ? 1 : 0];
  if (zp_shape_cols(shape_of(rule, 0)) != k) {
    fail(rule, ZP_Z0204, "cannot multiply `%s` %s by %s`%s` %s: %lld columns meet %lld rows", operand(rule, 0)->name,
         text_of(rule, 0), rule->attr.trans ? "the transpose of " : "", operand(rule, 1)->name, text_of(rule, 1),
         (long long)zp_shape_cols(shape_of(rule, 0)), (long long)k);
    return;
  }
  answer(rule, ZP_ELEM_FLOAT, with_last_of(shape_of(rule, 0), w, rule->attr.trans ? 0 : 1));
}

/* Operand i beside the rows of operand 0: as they are, or a broadcast parameter. */
static bool want_broadcast(zp_rule *rule, int i) {
  zp_operand kind;
  if (!want_element(rule, i, ZP_ELEM_FLOAT)) return false;
  if (!zp_operand_kind(shape_of(rule, 0), shape_of(rule, i), &kind)) {
    zp_diag *diag =
        fail(rule, ZP_Z0204, "the shapes of `%s` %s and `%s` %s do not fit for `%s`", operand(rule, 0)->name,
             text_of(rule, 0), operand(rule, i)->name, text_of(rule, i), zp_op_name(rule->op));
    help(diag, "the second shape must be equal, or its last dimension alone, or sequence and last dimension");
    return false;
  }
  return kind == ZP_OPERAND_ROWS ? want_activation(rule, i) : want_param(rule, i);
}

static void binary(zp_rule *rule) {
  zp_operand kind;
  if (rule->op == ZP_OP_DIV && !zp_shape_equal(shape_of(rule, 0), shape_of(rule, 1)) &&
      zp_operand_kind(shape_of(rule, 1), shape_of(rule, 0), &kind)) {
    help(fail(rule, ZP_Z0204, "cannot divide the smaller `%s` %s by `%s` %s", operand(rule, 0)->name, text_of(rule, 0),
              operand(rule, 1)->name, text_of(rule, 1)),
         "only the second operand of `/` can be broadcast");
    return;
  }
  if (want_activation(rule, 0) && want_broadcast(rule, 1)) answer(rule, ZP_ELEM_FLOAT, *shape_of(rule, 0));
}

static bool want_vector_of(zp_rule *rule, int i, const char *what, int64_t n) {
  if (!want_element(rule, i, ZP_ELEM_FLOAT) || !want_param(rule, i) || !want_rank(rule, i, 1)) return false;
  if (shape_of(rule, i)->dim[0] == n) return true;
  fail(rule, ZP_Z0204, "the %s of `%s` needs %lld elements for rows of `%s` %s, but `%s` is %s", what,
       zp_op_name(rule->op), (long long)n, operand(rule, 0)->name, text_of(rule, 0), operand(rule, i)->name,
       text_of(rule, i));
  return false;
}

static bool want_vector(zp_rule *rule, int i, const char *what) {
  return want_vector_of(rule, i, what, zp_shape_cols(shape_of(rule, 0)));
}

static bool want_heads(zp_rule *rule, int i, int64_t heads, const char *what);

/* Each head by itself. Heads are rows of a kernel, which must follow one another. */
static void norm_of_heads(zp_rule *rule) {
  if (!want_activation(rule, 0) || !want_rank(rule, 0, 3) || !want_heads(rule, 0, rule->attr.heads, "heads") ||
      !want_vector_of(rule, 1, "weight", rule->attr.head_size) || !want_positive(rule, "eps", rule->attr.eps))
    return;
  if (operand(rule, 0)->base >= 0) {
    help(fail(rule, ZP_Z0216, "`%s` over the heads of `%s`, a part of a split, is known but not built yet",
              zp_op_name(rule->op), operand(rule, 0)->name),
         "give queries and keys a product each, and norm its result");
    return;
  }
  answer(rule, ZP_ELEM_FLOAT, *shape_of(rule, 0));
}

static void norm(zp_rule *rule) {
  if (rule->attr.heads) {
    norm_of_heads(rule);
    return;
  }
  if (!want_activation(rule, 0) || !want_vector(rule, 1, "weight") || !want_positive(rule, "eps", rule->attr.eps))
    return;
  if (rule->op == ZP_OP_LAYER_NORM && !want_vector(rule, 2, "bias")) return;
  answer(rule, ZP_ELEM_FLOAT, *shape_of(rule, 0));
}

static void dropout(zp_rule *rule) {
  if (!want_activation(rule, 0)) return;
  if (!(rule->attr.rate >= 0 && rule->attr.rate < 1)) {
    fail(rule, ZP_Z0208, "`rate` of `dropout` must be at least 0 and below 1, not %g", rule->attr.rate);
    return;
  }
  answer(rule, ZP_ELEM_FLOAT, *shape_of(rule, 0));
}

/* heads into columns; fills in attr.head_size where the sharder has not. */
static bool want_heads(zp_rule *rule, int i, int64_t heads, const char *what) {
  int64_t cols = zp_shape_cols(shape_of(rule, i));
  if (!want_positive(rule, what, (double)heads)) return false;
  if (cols % heads || (rule->attr.head_size && cols / heads != rule->attr.head_size)) {
    zp_diag *diag;
    if (cols % heads)
      diag = fail(rule, ZP_Z0205, "%lld %s do not divide the %lld columns of `%s` %s", (long long)heads, what,
                  (long long)cols, operand(rule, i)->name, text_of(rule, i));
    else
      diag = fail(rule, ZP_Z0205, "`%s` %s has %lld columns, not %lld %s of %lld", operand(rule, i)->name,
                  text_of(rule, i), (long long)cols, (long long)heads, what, (long long)rule->attr.head_size);
    help(diag, "columns = heads * head size, with one head size for q, k and v");
    return false;
  }
  rule->attr.head_size = cols / heads;
  return true;
}

static void rope(zp_rule *rule) {
  if (!want_activation(rule, 0) || !want_rank(rule, 0, 3) || !want_heads(rule, 0, rule->attr.heads, "heads") ||
      !want_positive(rule, "theta", rule->attr.theta))
    return;
  if (rule->attr.head_size % 2) {
    fail(rule, ZP_Z0205, "`rope` turns pairs of columns, but %lld heads of `%s` %s have %lld columns each",
         (long long)rule->attr.heads, operand(rule, 0)->name, text_of(rule, 0), (long long)rule->attr.head_size);
    return;
  }
  answer(rule, ZP_ELEM_FLOAT, *shape_of(rule, 0));
}

static void split(zp_rule *rule) {
  int64_t cols = zp_shape_cols(shape_of(rule, 0)), parts = rule->attr.parts;
  if (!want_activation(rule, 0) || !want_positive(rule, "parts", (double)parts)) return;
  if (cols % parts) {
    fail(rule, ZP_Z0205, "cannot split the %lld columns of `%s` %s into %lld equal parts", (long long)cols,
         operand(rule, 0)->name, text_of(rule, 0), (long long)parts);
    return;
  }
  const zp_extent *whole = shape_of(rule, 0)->extent[shape_of(rule, 0)->rank - 1];
  zp_arena *arena = rule->graph->arena;
  const zp_extent *part = zp_extent_quotient(arena, whole, zp_extent_number(arena, parts));
  answer(rule, ZP_ELEM_FLOAT, with_last(shape_of(rule, 0), cols / parts, part));
  rule->n_out = (int)parts;
}

/* Checks call rules again with attributes that are filled in. */
static bool want_layout(zp_rule *rule) {
  zp_op_attr *attr = &rule->attr;
  int64_t sequence = shape_of(rule, 0)->dim[1];
  if (!attr->sparse || (attr->layout && attr->layout->n * attr->layout->block == sequence)) return true;
  const char *error;
  attr->layout = zp_layout_make(rule->graph->arena, attr->sparse, sequence, attr->causal, &error);
  if (!attr->layout) fail(rule, ZP_Z0205, "`attention` with a pattern: %s", error);
  return attr->layout != NULL;
}

/* Lengths are of samples: an input of the model. */
static bool want_lengths(zp_rule *rule, int i) {
  const zp_tensor *t = operand(rule, i);
  if (t->role == ZP_ROLE_INPUT && t->element == ZP_ELEM_I32 && shape_of(rule, i)->rank == 1) return true;
  fail(rule, ZP_Z0204, "`lengths` of `attention` is the model's `input lengths: i32[B]`, not `%s` %s", t->name,
       text_of(rule, i));
  return false;
}

/* A window that reaches over the whole sequence is none. */
static bool want_window(zp_rule *rule) {
  zp_op_attr *attr = &rule->attr;
  if (attr->window >= shape_of(rule, 0)->dim[1]) attr->window = 0;
  if (!attr->window || !attr->sparse) return true;
  help(fail(rule, ZP_Z0216, "`attention` with a pattern and a window is known but not built yet"),
       "a pattern says already which blocks are seen: leave one of the two away");
  return false;
}

static void attention(zp_rule *rule) {
  zp_op_attr *attr = &rule->attr;
  for (int i = 0; i < 3; i++)
    if (!want_activation(rule, i) || !want_rank(rule, i, 3)) return;
  if (!attr->kv_heads) attr->kv_heads = attr->heads;
  if (!want_heads(rule, 0, attr->heads, "heads") || !want_positive(rule, "kv_heads", (double)attr->kv_heads)) return;
  if (attr->heads % attr->kv_heads) {
    fail(rule, ZP_Z0205, "kv_heads %lld does not divide heads %lld", (long long)attr->kv_heads, (long long)attr->heads);
    return;
  }
  if (!want_heads(rule, 1, attr->kv_heads, "kv_heads") || !want_same_shape(rule, 1, 2)) return;
  if (shape_of(rule, 0)->dim[1] != shape_of(rule, 1)->dim[1]) {
    fail(rule, ZP_Z0204, "`attention` needs queries and keys of one sequence length, but `%s` is %s and `%s` is %s",
         operand(rule, 0)->name, text_of(rule, 0), operand(rule, 1)->name, text_of(rule, 1));
    return;
  }
  if (!(attr->softcap >= 0 && isfinite(attr->softcap))) {
    fail(rule, ZP_Z0208, "`softcap` of `attention` must be positive, not %g", attr->softcap);
    return;
  }
  if (!want_window(rule) || !want_layout(rule) || (rule->n_in > 3 && !want_lengths(rule, 3))) return;
  if (attr->scale == 0) attr->scale = 1 / sqrt((double)attr->head_size);
  answer(rule, ZP_ELEM_FLOAT, *shape_of(rule, 0));
  const zp_extent *heads = attr->heads_extent;
  answer(rule, ZP_ELEM_STAT,
         with_last(shape_of(rule, 0), attr->heads, heads && heads->value == attr->heads ? heads : NULL));
}

/* ---- positions ---- */

/* Kernels of positions read whole rows, one behind the other. */
static bool want_samples(zp_rule *rule, int i) {
  if (!want_activation(rule, i) || !want_rank(rule, i, 3)) return false;
  if (operand(rule, i)->base < 0) return true;
  help(fail(rule, ZP_Z0216, "`%s` of `%s`, a part of a split, is known but not built yet", zp_op_name(rule->op),
            operand(rule, i)->name),
       "apply it to what is split, or to something that is computed from the part");
  return false;
}

/* Positions of whole samples, also where x is a rank's share of them. */
static int64_t positions_of(const zp_tensor *x) { return x->split_dim == 1 ? x->full_dim : x->shape.dim[1]; }

static zp_shape without_positions(const zp_shape *x) {
  zp_shape shape = {.rank = 2, .dim = {x->dim[0]}};
  put_dim(&shape, 1, x, 2);
  return shape;
}

static void mean(zp_rule *rule) {
  if (!want_samples(rule, 0)) return;
  if (rule->attr.value == 0) rule->attr.value = 1 / (double)positions_of(operand(rule, 0));
  answer(rule, ZP_ELEM_FLOAT, without_positions(shape_of(rule, 0)));
}

static void slice(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  if (!want_samples(rule, 0)) return;
  int64_t count = attr->count ? attr->count : 1, positions = positions_of(operand(rule, 0));
  if (attr->begin < 0 || count < 1 || attr->begin >= positions || count > positions - attr->begin) {
    fail(rule, ZP_Z0208, "`%s` has positions 0 to %lld, not %lld to %lld", operand(rule, 0)->name,
         (long long)positions - 1, (long long)attr->begin, (long long)(attr->begin + count - 1));
    return;
  }
  zp_shape some = *shape_of(rule, 0);
  some.dim[1] = count;
  some.extent[1] = NULL;
  answer(rule, ZP_ELEM_FLOAT, attr->count ? some : without_positions(&some));
}

/* Rows of every sample, or of a parameter: the same rows of all samples. */
static bool want_rows_of_samples(zp_rule *rule, int i) {
  if (operand(rule, i)->role != ZP_ROLE_PARAM) return want_samples(rule, i);
  return want_element(rule, i, ZP_ELEM_FLOAT) && want_rank(rule, i, 2);
}

static void concat(zp_rule *rule) {
  if (!want_rows_of_samples(rule, 0) || !want_rows_of_samples(rule, 1)) return;
  int of_samples = operand(rule, 0)->role == ZP_ROLE_PARAM;
  if (of_samples == 1 && !want_samples(rule, 1)) return;
  const zp_shape *a = shape_of(rule, 0), *b = shape_of(rule, 1);
  if (zp_shape_cols(a) != zp_shape_cols(b)) {
    help(fail(rule, ZP_Z0204, "cannot put `%s` %s and `%s` %s one behind the other", operand(rule, 0)->name,
              text_of(rule, 0), operand(rule, 1)->name, text_of(rule, 1)),
         "both are [B, positions, d], or a parameter [positions, d] for all samples, with one d");
    return;
  }
  zp_arena *arena = rule->graph->arena;
  zp_shape joined = *shape_of(rule, of_samples);
  joined.extent[1] = zp_extent_sum(arena, a->extent[a->rank - 2], b->extent[b->rank - 2]);
  joined.dim[1] = a->dim[a->rank - 2] + b->dim[b->rank - 2];
  if (rule->attr.parts > 1) resize(rule, &joined, 1, joined.dim[1] / rule->attr.parts);
  answer(rule, ZP_ELEM_FLOAT, joined);
}

/* ---- experts ---- */

/* Most slots of a sample: they are numbered in 32 bits. */
#define MAX_SLOTS ((double)INT32_MAX)

/* Slots of one expert: its share of the choices times the capacity, and never more than there are tokens, because a
 * token chooses an expert once. The small factor keeps a product such as 1.1 * 80 / 8 from being rounded up twice. */
static int64_t slots_of(const zp_op_attr *attr, int64_t positions) {
  double share = attr->capacity * (double)positions * (double)attr->top_k / (double)attr->experts;
  return (int64_t)fmin(ceil(share * (1 - 1e-12)), (double)positions);
}

static void top_k_gate(zp_rule *rule) {
  zp_op_attr *attr = &rule->attr;
  if (!want_activation(rule, 0) || !want_rank(rule, 0, 3) || !want_positive(rule, "capacity", attr->capacity)) return;
  attr->experts = zp_shape_cols(shape_of(rule, 0));
  if (attr->top_k < 1 || attr->top_k > attr->experts) {
    fail(rule, ZP_Z0208, "`k` of `top_k_gate` is %lld, but `%s` %s has scores of %lld experts", (long long)attr->top_k,
         operand(rule, 0)->name, text_of(rule, 0), (long long)attr->experts);
    return;
  }
  if (attr->top_k > ZP_MAX_TOP_K || attr->experts > ZP_MAX_EXPERTS) {
    fail(rule, ZP_Z0208, "a gate chooses at most %d of at most %d experts, not %lld of %lld", ZP_MAX_TOP_K,
         ZP_MAX_EXPERTS, (long long)attr->top_k, (long long)attr->experts);
    return;
  }
  if (attr->top_k == 1 && attr->normalize) {
    help(fail(rule, ZP_Z0208, "with k = 1 a normalized weight is always 1, and the router would not learn"),
         "write `normalize = false`: the weight is then the probability among all experts");
    return;
  }
  if (!(attr->balance >= 0 && isfinite(attr->balance))) {
    fail(rule, ZP_Z0208, "`balance` of `top_k_gate` must not be negative, and is %g", attr->balance);
    return;
  }
  attr->slots = slots_of(attr, shape_of(rule, 0)->dim[1]);
  if ((double)attr->slots * (double)attr->experts > MAX_SLOTS) {
    fail(rule, ZP_Z0208, "%lld experts of %lld slots are more than 32 bits number", (long long)attr->experts,
         (long long)attr->slots);
    return;
  }
  zp_shape choices = with_last(shape_of(rule, 0), attr->top_k, NULL);
  answer(rule, ZP_ELEM_FLOAT, choices);
  answer(rule, ZP_ELEM_I32, choices);
}

/* Takes experts and slots over from the gate that made operand i; the passes have them in the attributes already. */
static bool want_slots(zp_rule *rule, int i) {
  const zp_tensor *slot = operand(rule, i);
  if (!want_element(rule, i, ZP_ELEM_I32)) return false;
  if (rule->attr.slots) return true;
  const zp_node *gate = slot->producer >= 0 ? &rule->graph->nodes.data[slot->producer] : NULL;
  if (!gate || gate->op != ZP_OP_TOP_K_GATE) {
    help(fail(rule, ZP_Z0207, "operand %d of `%s` must be the slots of a `top_k_gate`, but `%s` is not", i + 1,
              zp_op_name(rule->op), slot->name),
         "write `weight, slot = top_k_gate(scores, k = 2)`");
    return false;
  }
  rule->attr.experts = gate->attr.experts;
  rule->attr.slots = gate->attr.slots;
  rule->attr.top_k = gate->attr.top_k;
  return true;
}

static bool want_positions(zp_rule *rule, int i, int j) {
  if (shape_of(rule, i)->dim[1] == shape_of(rule, j)->dim[1]) return true;
  fail(rule, ZP_Z0204, "`%s` needs the tokens that the gate saw, but `%s` is %s and `%s` is %s", zp_op_name(rule->op),
       operand(rule, i)->name, text_of(rule, i), operand(rule, j)->name, text_of(rule, j));
  return false;
}

/* The number of experts as the scores of the gate have it that made operand i. */
static const zp_extent *experts_extent(const zp_rule *rule, int i) {
  const zp_tensor *slot = operand(rule, i);
  const zp_node *gate = slot->producer >= 0 ? &rule->graph->nodes.data[slot->producer] : NULL;
  if (!gate || gate->op != ZP_OP_TOP_K_GATE) return NULL;
  const zp_shape *scores = &rule->graph->tensors.data[gate->in.data[0]].shape;
  const zp_extent *experts = scores->extent[scores->rank - 1];
  return experts && experts->value == rule->attr.experts ? experts : NULL;
}

static void dispatch(zp_rule *rule) {
  if (!want_activation(rule, 0) || !want_rank(rule, 0, 3) || !want_slots(rule, 1) || !want_positions(rule, 0, 1))
    return;
  const zp_shape *x = shape_of(rule, 0);
  zp_shape slots = {.rank = 4, .dim = {x->dim[0], rule->attr.experts, rule->attr.slots}};
  slots.extent[1] = experts_extent(rule, 1);
  put_dim(&slots, 3, x, 2);
  answer(rule, ZP_ELEM_FLOAT, slots);
}

static void batched_matmul(zp_rule *rule) {
  if (!want_activation(rule, 0) || !want_element(rule, 1, ZP_ELEM_FLOAT) || !want_param(rule, 1) ||
      !want_rank(rule, 0, 4) || !want_rank(rule, 1, 3))
    return;
  const zp_shape *x = shape_of(rule, 0), *w = shape_of(rule, 1);
  int64_t k = w->dim[rule->attr.trans ? 2 : 1];
  if (w->dim[0] != x->dim[1] || x->dim[3] != k) {
    fail(rule, ZP_Z0204,
         "cannot multiply `%s` %s by %s`%s` %s, one product an expert: %lld experts and %lld columns meet"
         " %lld experts and %lld rows",
         operand(rule, 0)->name, text_of(rule, 0), rule->attr.trans ? "the transposes of " : "", operand(rule, 1)->name,
         text_of(rule, 1), (long long)x->dim[1], (long long)x->dim[3], (long long)w->dim[0], (long long)k);
    return;
  }
  answer(rule, ZP_ELEM_FLOAT, with_last_of(x, w, rule->attr.trans ? 1 : 2));
}

static void combine(zp_rule *rule) {
  if (!want_activation(rule, 0) || !want_rank(rule, 0, 4) || !want_activation(rule, 1) || !want_slots(rule, 2)) return;
  const zp_shape *y = shape_of(rule, 0), *weight = shape_of(rule, 1);
  if (y->dim[1] != rule->attr.experts || y->dim[2] != rule->attr.slots) {
    fail(rule, ZP_Z0204, "the gate has %lld experts of %lld slots, but `%s` is %s", (long long)rule->attr.experts,
         (long long)rule->attr.slots, operand(rule, 0)->name, text_of(rule, 0));
    return;
  }
  if (!want_same_shape(rule, 1, 2)) return;
  zp_shape combined = {.rank = 3, .dim = {y->dim[0]}};
  put_dim(&combined, 1, weight, 1);
  put_dim(&combined, 2, y, 3);
  answer(rule, ZP_ELEM_FLOAT, combined);
}

/* Empty slots hold zeros, whose derivative these functions do not have. */
static bool want_defined_at_zero(zp_rule *rule) {
  int i = rule->op == ZP_OP_DIV ? 1 : 0;
  if (shape_of(rule, i)->rank < 4 || operand(rule, i)->role == ZP_ROLE_PARAM) return true;
  fail(rule, ZP_Z0207, "`%s` of `%s` %s: slots that no token took may hold zeros, where `%s` has no derivative",
       zp_op_name(rule->op), operand(rule, i)->name, text_of(rule, i), zp_op_name(rule->op));
  return false;
}

static void unary(zp_rule *rule) {
  if (want_activation(rule, 0) && want_defined_at_zero(rule)) answer(rule, ZP_ELEM_FLOAT, *shape_of(rule, 0));
}

static void cross_entropy(zp_rule *rule) {
  if (!want_activation(rule, 0) || !want_labels(rule, 1, 0)) return;
  if (rule->op == ZP_OP_CE_STATS)
    answer(rule, ZP_ELEM_STAT, with_last(shape_of(rule, 0), 3, NULL));
  else
    answer(rule, ZP_ELEM_STAT, (zp_shape){0});
}

static void collective(zp_rule *rule) {
  if (want_activation(rule, 0)) answer(rule, ZP_ELEM_FLOAT, *shape_of(rule, 0));
}

/* Between [B, S, n] and the rank's share of the positions [B, S / parts, n]. */
static void sequence_collective(zp_rule *rule) {
  int64_t parts = rule->attr.parts;
  if (!want_activation(rule, 0) || !want_rank(rule, 0, 3) || !want_positive(rule, "parts", (double)parts)) return;
  zp_shape shape = *shape_of(rule, 0);
  if (rule->op == ZP_OP_ALL_GATHER_SEQ) {
    resize(rule, &shape, 1, shape.dim[1] * parts);
  } else if (shape.dim[1] % parts == 0) {
    resize(rule, &shape, 1, shape.dim[1] / parts);
  } else {
    fail(rule, ZP_Z0205, "%lld ranks do not divide the %lld positions of `%s` %s", (long long)parts,
         (long long)shape.dim[1], operand(rule, 0)->name, text_of(rule, 0));
    return;
  }
  answer(rule, ZP_ELEM_FLOAT, shape);
}

/* Between [B, experts, slots, d] and the rank's experts with the slots of all members' samples. */
static void slots_collective(zp_rule *rule) {
  int64_t parts = rule->attr.parts;
  if (!want_activation(rule, 0) || !want_rank(rule, 0, 4) || !want_positive(rule, "parts", (double)parts)) return;
  zp_shape shape = *shape_of(rule, 0);
  bool spread = rule->op == ZP_OP_SPREAD_SLOTS;
  int cut = spread ? 1 : 2, joined = spread ? 2 : 1;
  if (shape.dim[cut] % parts) {
    fail(rule, ZP_Z0205, "%lld ranks do not divide the %lld %s of `%s` %s", (long long)parts, (long long)shape.dim[cut],
         spread ? "experts" : "slots", operand(rule, 0)->name, text_of(rule, 0));
    return;
  }
  resize(rule, &shape, cut, shape.dim[cut] / parts);
  resize(rule, &shape, joined, shape.dim[joined] * parts);
  answer(rule, ZP_ELEM_FLOAT, shape);
}

/* Shapes name B in front only, so [ranks, B*S, 3] is written [B, ranks*S, 3]; rank-major in memory all the same. */
static void gather_stats(zp_rule *rule) {
  zp_shape shape = *shape_of(rule, 0);
  if (!want_element(rule, 0, ZP_ELEM_STAT) || (shape.rank != 2 && !want_rank(rule, 0, 3)) ||
      !want_positive(rule, "parts", (double)rule->attr.parts))
    return;
  answer(rule, ZP_ELEM_STAT, zp_gathered_stats(rule->graph->arena, &shape, rule->attr.parts));
}

static void ce_loss(zp_rule *rule) {
  if (!want_element(rule, 0, ZP_ELEM_STAT) || !want_element(rule, 1, ZP_ELEM_I32)) return;
  const zp_shape *stat = shape_of(rule, 0), *labels = shape_of(rule, 1);
  bool fits = labels->rank == 1 ? stat->rank == 2 || stat->rank == 3
                                : labels->rank == 2 && stat->rank == 3 && stat->dim[1] % labels->dim[1] == 0;
  if (!fits || zp_shape_cols(stat) != 3) {
    fail(rule, ZP_Z0204, "statistics `%s` %s do not belong to labels `%s` %s", operand(rule, 0)->name, text_of(rule, 0),
         operand(rule, 1)->name, text_of(rule, 1));
    return;
  }
  answer(rule, ZP_ELEM_STAT, *shape_of(rule, 1));
}

bool zp_rule_apply(zp_rule *rule) {
  assert(zp_op_takes(rule->op, rule->n_in));
  rule->error = NULL;
  rule->n_out = 0;
  switch (rule->op) {
  case ZP_OP_EMBEDDING: embedding(rule); break;
  case ZP_OP_MATMUL: matmul(rule); break;
  case ZP_OP_ADD:
  case ZP_OP_SUB:
  case ZP_OP_MUL: binary(rule); break;
  case ZP_OP_DIV:
    if (want_defined_at_zero(rule)) binary(rule);
    break;
  case ZP_OP_LOG:
  case ZP_OP_SQRT:
  case ZP_OP_RSQRT: unary(rule); break;
  case ZP_OP_LAYER_NORM:
  case ZP_OP_RMS_NORM: norm(rule); break;
  case ZP_OP_DROPOUT: dropout(rule); break;
  case ZP_OP_ROPE: rope(rule); break;
  case ZP_OP_SPLIT: split(rule); break;
  case ZP_OP_ATTENTION: attention(rule); break;
  case ZP_OP_MEAN: mean(rule); break;
  case ZP_OP_SLICE: slice(rule); break;
  case ZP_OP_CONCAT: concat(rule); break;
  case ZP_OP_TOP_K_GATE: top_k_gate(rule); break;
  case ZP_OP_DISPATCH: dispatch(rule); break;
  case ZP_OP_BATCHED_MATMUL: batched_matmul(rule); break;
  case ZP_OP_COMBINE: combine(rule); break;
  case ZP_OP_CROSS_ENTROPY:
  case ZP_OP_CE_STATS: cross_entropy(rule); break;
  case ZP_OP_ALL_GATHER_SEQ:
  case ZP_OP_REDUCE_SCATTER_SEQ: sequence_collective(rule); break;
  case ZP_OP_SPREAD_SLOTS:
  case ZP_OP_RETURN_SLOTS: slots_collective(rule); break;
  case ZP_OP_GATHER_STATS: gather_stats(rule); break;
  case ZP_OP_CE_LOSS: ce_loss(rule); break;
  default: collective(rule); break; /* the collectives and the elementwise functions of one operand keep the shape */
  }
  return rule->error == NULL;
}
