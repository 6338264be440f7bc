/* Shape rules: which operands an op takes and what shape comes out, with the message for a person when they do not fit.
 * Logical and local graphs follow the same rules; in local graphs the sharder gives attr.head_size, and heads are
 * local. */
#include <assert.h>
#include <math.h>
#include <zplan/sparse.h>
#include "rules.h"

static void embedding(zp_rule *rule) {
  if (!zp_want_element(rule, 0, ZP_ELEM_I32) || !zp_want_element(rule, 1, ZP_ELEM_FLOAT) || !zp_want_param(rule, 1) ||
      !zp_want_rank(rule, 0, 2) || !zp_want_rank(rule, 1, 2))
    return;
  zp_shape shape = *zp_rule_shape(rule, 0);
  zp_rule_put_dim(&shape, shape.rank++, zp_rule_shape(rule, 1), 1);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

static void matmul(zp_rule *rule) {
  if (!zp_want_activation(rule, 0) || !zp_want_element(rule, 1, ZP_ELEM_FLOAT) || !zp_want_param(rule, 1) ||
      !zp_want_rank(rule, 1, 2))
    return;
  const zp_shape *w = zp_rule_shape(rule, 1);
  int64_t k = w->dim[rule->attr.trans ? 1 : 0];
  if (zp_shape_cols(zp_rule_shape(rule, 0)) != k) {
    zp_rule_fail(rule, ZP_Z0204, "cannot multiply `%s` %s by %s`%s` %s: %lld columns meet %lld rows",
                 zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), rule->attr.trans ? "the transpose of " : "",
                 zp_rule_operand(rule, 1)->name, zp_rule_text(rule, 1),
                 (long long)zp_shape_cols(zp_rule_shape(rule, 0)), (long long)k);
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last_of(zp_rule_shape(rule, 0), w, rule->attr.trans ? 0 : 1));
}

/* Operand i beside the rows of operand 0: as they are, or a broadcast parameter. */
static bool want_broadcast(zp_rule *rule, int i) {
  zp_operand kind;
  if (!zp_want_element(rule, i, ZP_ELEM_FLOAT)) return false;
  if (!zp_operand_kind(zp_rule_shape(rule, 0), zp_rule_shape(rule, i), &kind)) {
    zp_diag *diag = zp_rule_fail(rule, ZP_Z0204, "the shapes of `%s` %s and `%s` %s do not fit for `%s`",
                                 zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), zp_rule_operand(rule, i)->name,
                                 zp_rule_text(rule, i), zp_op_name(rule->op));
    zp_rule_help(diag, "the second shape must be equal, or its last dimension alone, or sequence and last dimension");
    return false;
  }
  return kind == ZP_OPERAND_ROWS ? zp_want_activation(rule, i) : zp_want_param(rule, i);
}

static void binary(zp_rule *rule) {
  zp_operand kind;
  if (rule->op == ZP_OP_DIV && !zp_shape_equal(zp_rule_shape(rule, 0), zp_rule_shape(rule, 1)) &&
      zp_operand_kind(zp_rule_shape(rule, 1), zp_rule_shape(rule, 0), &kind)) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0204, "cannot divide the smaller `%s` %s by `%s` %s",
                              zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), zp_rule_operand(rule, 1)->name,
                              zp_rule_text(rule, 1)),
                 "only the second operand of `/` can be broadcast");
    return;
  }
  if (zp_want_activation(rule, 0) && want_broadcast(rule, 1))
    zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

static bool want_vector_of(zp_rule *rule, int i, const char *what, int64_t n) {
  if (!zp_want_element(rule, i, ZP_ELEM_FLOAT) || !zp_want_param(rule, i) || !zp_want_rank(rule, i, 1)) return false;
  if (zp_rule_shape(rule, i)->dim[0] == n) return true;
  zp_rule_fail(rule, ZP_Z0204, "the %s of `%s` needs %lld elements for rows of `%s` %s, but `%s` is %s", what,
               zp_op_name(rule->op), (long long)n, zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0),
               zp_rule_operand(rule, i)->name, zp_rule_text(rule, i));
  return false;
}

static bool want_vector(zp_rule *rule, int i, const char *what) {
  return want_vector_of(rule, i, what, zp_shape_cols(zp_rule_shape(rule, 0)));
}

static bool want_heads(zp_rule *rule, int i, int64_t heads, const char *what);

/* Each head by itself. Heads are rows of a kernel, which must follow one another. */
static void norm_of_heads(zp_rule *rule) {
  if (!zp_want_activation(rule, 0) || !zp_want_rank(rule, 0, 3) || !want_heads(rule, 0, rule->attr.heads, "heads") ||
      !want_vector_of(rule, 1, "weight", rule->attr.head_size) || !zp_want_positive(rule, "eps", rule->attr.eps))
    return;
  if (zp_rule_operand(rule, 0)->base >= 0) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0216,
                              "`%s` over the heads of `%s`, a part of a split, is known but not built yet",
                              zp_op_name(rule->op), zp_rule_operand(rule, 0)->name),
                 "give queries and keys a product each, and norm its result");
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

static void norm(zp_rule *rule) {
  if (rule->attr.heads) {
    norm_of_heads(rule);
    return;
  }
  if (!zp_want_activation(rule, 0) || !want_vector(rule, 1, "weight") || !zp_want_positive(rule, "eps", rule->attr.eps))
    return;
  if (rule->op == ZP_OP_LAYER_NORM && !want_vector(rule, 2, "bias")) return;
  zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

static void dropout(zp_rule *rule) {
  if (!zp_want_activation(rule, 0)) return;
  if (!(rule->attr.rate >= 0 && rule->attr.rate < 1)) {
    zp_rule_fail(rule, ZP_Z0208, "`rate` of `dropout` must be at least 0 and below 1, not %g", rule->attr.rate);
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

/* heads into columns; fills in attr.head_size where the sharder has not. */
static bool want_heads(zp_rule *rule, int i, int64_t heads, const char *what) {
  int64_t cols = zp_shape_cols(zp_rule_shape(rule, i));
  if (!zp_want_positive(rule, what, (double)heads)) return false;
  if (cols % heads || (rule->attr.head_size && cols / heads != rule->attr.head_size)) {
    zp_diag *diag;
    if (cols % heads)
      diag = zp_rule_fail(rule, ZP_Z0205, "%lld %s do not divide the %lld columns of `%s` %s", (long long)heads, what,
                          (long long)cols, zp_rule_operand(rule, i)->name, zp_rule_text(rule, i));
    else
      diag =
          zp_rule_fail(rule, ZP_Z0205, "`%s` %s has %lld columns, not %lld %s of %lld", zp_rule_operand(rule, i)->name,
                       zp_rule_text(rule, i), (long long)cols, (long long)heads, what, (long long)rule->attr.head_size);
    zp_rule_help(diag, "columns = heads * head size, with one head size for q, k and v");
    return false;
  }
  rule->attr.head_size = cols / heads;
  return true;
}

static void rope(zp_rule *rule) {
  if (!zp_want_activation(rule, 0) || !zp_want_rank(rule, 0, 3) || !want_heads(rule, 0, rule->attr.heads, "heads") ||
      !zp_want_positive(rule, "theta", rule->attr.theta))
    return;
  if (rule->attr.head_size % 2) {
    zp_rule_fail(rule, ZP_Z0205, "`rope` turns pairs of columns, but %lld heads of `%s` %s have %lld columns each",
                 (long long)rule->attr.heads, zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0),
                 (long long)rule->attr.head_size);
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

static void split(zp_rule *rule) {
  int64_t cols = zp_shape_cols(zp_rule_shape(rule, 0)), parts = rule->attr.parts;
  if (!zp_want_activation(rule, 0) || !zp_want_positive(rule, "parts", (double)parts)) return;
  if (cols % parts) {
    zp_rule_fail(rule, ZP_Z0205, "cannot split the %lld columns of `%s` %s into %lld equal parts", (long long)cols,
                 zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), (long long)parts);
    return;
  }
  const zp_extent *whole = zp_rule_shape(rule, 0)->extent[zp_rule_shape(rule, 0)->rank - 1];
  zp_arena *arena = rule->graph->arena;
  const zp_extent *part = zp_extent_quotient(arena, whole, zp_extent_number(arena, parts));
  zp_rule_answer(rule, ZP_ELEM_FLOAT, zp_rule_with_last(zp_rule_shape(rule, 0), cols / parts, part));
  rule->n_out = (int)parts;
}

/* Checks call rules again with attributes that are filled in. */
static bool want_layout(zp_rule *rule) {
  zp_op_attr *attr = &rule->attr;
  int64_t sequence = zp_rule_shape(rule, 0)->dim[1];
  if (!attr->sparse || (attr->layout && attr->layout->n * attr->layout->block == sequence)) return true;
  const char *error;
  attr->layout = zp_layout_make(rule->graph->arena, attr->sparse, attr->heads, sequence, attr->causal, &error);
  if (!attr->layout) zp_rule_fail(rule, ZP_Z0205, "`attention` with a pattern: %s", error);
  return attr->layout != NULL;
}

/* Lengths are of samples: an input of the model. */
static bool want_lengths(zp_rule *rule, int i) {
  const zp_tensor *t = zp_rule_operand(rule, i);
  if (t->role == ZP_ROLE_INPUT && t->element == ZP_ELEM_I32 && zp_rule_shape(rule, i)->rank == 1) return true;
  zp_rule_fail(rule, ZP_Z0204, "`lengths` of `attention` is the model's `input lengths: i32[B]`, not `%s` %s", t->name,
               zp_rule_text(rule, i));
  return false;
}

/* Documents are of positions: an input of its own, of as many positions as there are queries. */
static bool want_documents(zp_rule *rule, int i) {
  const zp_tensor *t = zp_rule_operand(rule, i);
  const zp_shape *shape = zp_rule_shape(rule, i);
  int64_t positions = zp_rule_shape(rule, 0)->dim[1];
  bool taken = strcmp(t->name, "tokens") == 0 || strcmp(t->name, "labels") == 0;
  if (t->role != ZP_ROLE_INPUT || t->element != ZP_ELEM_I32 || shape->rank != 2 || shape->dim[1] != positions ||
      taken) {
    zp_diag *d = zp_rule_fail(rule, ZP_Z0204, "`documents` of `attention` are an input i32[B, %lld], not `%s` %s",
                              (long long)positions, t->name, zp_rule_text(rule, i));
    zp_rule_help(d,
                 "declare `input documents: i32[B, S]`, which says of every position which document it is of; `zplan "
                 "data jsonl --pack --documents` makes it");
    return false;
  }
  if (!rule->attr.cross && !rule->attr.sparse) return true;
  zp_rule_help(zp_rule_fail(rule, ZP_Z0216, "`attention` with documents and %s is known but not built yet",
                            rule->attr.cross ? "keys of another sequence" : "a pattern"),
               rule->attr.cross ? "where documents are apart, let each be a sample, with `lengths`"
                                : "dense attention of documents computes no pair of two of them, either");
  return false;
}

/* A window that reaches over the whole sequence is none. */
static bool want_window(zp_rule *rule) {
  zp_op_attr *attr = &rule->attr;
  if (attr->window >= zp_rule_shape(rule, 0)->dim[1]) attr->window = 0;
  if (!attr->window || !attr->sparse) return true;
  zp_rule_help(zp_rule_fail(rule, ZP_Z0216, "`attention` with a pattern and a window is known but not built yet"),
               "a pattern says already which blocks are seen: leave one of the two away");
  return false;
}

/* Queries and keys are of one sequence, or of two that are told apart. */
static bool want_sequences(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  if (!attr->cross && zp_rule_shape(rule, 0)->dim[1] != zp_rule_shape(rule, 1)->dim[1]) {
    zp_rule_help(
        zp_rule_fail(rule, ZP_Z0204,
                     "`attention` needs queries and keys of one sequence length, but `%s` is %s and `%s` is %s",
                     zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0), zp_rule_operand(rule, 1)->name,
                     zp_rule_text(rule, 1)),
        "where keys are of another sequence, as an encoder's output is, write `cross = true, causal = false`");
    return false;
  }
  const char *along = attr->causal         ? "`causal = true`"
                      : attr->sparse       ? "a pattern"
                      : attr->window       ? "a window"
                      : attr->alibi_heads  ? "ALiBi"
                      : attr->max_distance ? "a relative bias"
                                           : NULL;
  if (!attr->cross || !along) return true;
  zp_rule_help(zp_rule_fail(rule, ZP_Z0205,
                            "`attention` with `cross = true` has %s, which counts positions of one sequence", along),
               "positions of two sequences have no distance: write `cross = true, causal = false`");
  return false;
}

/* A parameter [buckets, heads]. Without causality half of the buckets are for keys behind the query; of those of a
 * side, half are single distances and the others longer and longer stretches. */
static bool want_bias(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  if (!attr->max_distance) return true;
  int i = rule->n_in - 1;
  const zp_tensor *t = zp_rule_operand(rule, i);
  const zp_shape *shape = zp_rule_shape(rule, i);
  if (t->role != ZP_ROLE_PARAM || shape->rank != 2 || shape->dim[1] != attr->heads) {
    zp_rule_fail(rule, ZP_Z0204, "`relative_bias` of `attention` is a parameter [buckets, heads], not `%s` %s", t->name,
                 zp_rule_text(rule, i));
    return false;
  }
  int64_t side = attr->causal ? shape->dim[0] : shape->dim[0] / 2;
  if (side < 2 || side % 2 || (!attr->causal && shape->dim[0] % 2) || attr->max_distance <= side / 2) {
    zp_rule_fail(
        rule, ZP_Z0205,
        "a relative bias has an even number of buckets for each side that is seen, and `max_distance` is above "
        "half of it: not %lld buckets and %lld",
        (long long)shape->dim[0], (long long)attr->max_distance);
    return false;
  }
  if (!attr->sparse && !attr->alibi_heads) return true;
  zp_rule_fail(rule, ZP_Z0216, "`attention` with a relative bias and %s is known but not built yet",
               attr->sparse ? "a pattern" : "ALiBi");
  return false;
}

/* The numbers of a sample's pairs of positions must have room in the counter, in which rows of keys begin at multiples
 * of four. */
static bool want_dropout(zp_rule *rule) {
  const zp_op_attr *attr = &rule->attr;
  double keys = ceil((double)zp_rule_shape(rule, 1)->dim[1] / 4) * 4;
  double pairs = (double)attr->heads * (double)zp_rule_shape(rule, 0)->dim[1] * keys;
  if (!(attr->rate >= 0 && attr->rate < 1)) {
    zp_rule_fail(rule, ZP_Z0208, "`dropout` of `attention` must be at least 0 and below 1, not %g", attr->rate);
    return false;
  }
  if (attr->rate == 0 || pairs <= 0x1p34) return true;
  zp_rule_help(zp_rule_fail(rule, ZP_Z0208,
                            "`dropout` of `attention` has numbers for 2^34 pairs of positions, not for %.4g", pairs),
               "heads * queries * keys of one sample: shorter samples, or no dropout on probabilities");
  return false;
}

static void attention(zp_rule *rule) {
  zp_op_attr *attr = &rule->attr;
  for (int i = 0; i < 3; i++)
    if (!zp_want_activation(rule, i) || !zp_want_rank(rule, i, 3)) return;
  if (!attr->kv_heads) attr->kv_heads = attr->heads;
  if (!want_heads(rule, 0, attr->heads, "heads") || !zp_want_positive(rule, "kv_heads", (double)attr->kv_heads)) return;
  if (attr->heads % attr->kv_heads) {
    zp_rule_fail(rule, ZP_Z0205, "kv_heads %lld does not divide heads %lld", (long long)attr->kv_heads,
                 (long long)attr->heads);
    return;
  }
  if (!want_heads(rule, 1, attr->kv_heads, "kv_heads") || !zp_want_same_shape(rule, 1, 2)) return;
  if (!want_sequences(rule)) return;
  if (!(attr->softcap >= 0 && isfinite(attr->softcap))) {
    zp_rule_fail(rule, ZP_Z0208, "`softcap` of `attention` must be positive, not %g", attr->softcap);
    return;
  }
  if (!want_dropout(rule)) return;
  bool extents = rule->n_in - (attr->max_distance > 0) > 3;
  if (extents && !(attr->documents ? want_documents : want_lengths)(rule, 3)) return;
  if (!want_window(rule) || !want_layout(rule) || !want_bias(rule)) return;
  if (attr->scale == 0) attr->scale = 1 / sqrt((double)attr->head_size);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
  const zp_extent *heads = attr->heads_extent;
  zp_rule_answer(
      rule, ZP_ELEM_STAT,
      zp_rule_with_last(zp_rule_shape(rule, 0), attr->heads, heads && heads->value == attr->heads ? heads : NULL));
}

/* Empty slots hold zeros, whose derivative these functions do not have. */
static bool want_defined_at_zero(zp_rule *rule) {
  int i = rule->op == ZP_OP_DIV ? 1 : 0;
  if (zp_rule_shape(rule, i)->rank < 4 || zp_rule_operand(rule, i)->role == ZP_ROLE_PARAM) return true;
  zp_rule_fail(rule, ZP_Z0207, "`%s` of `%s` %s: slots that no token took may hold zeros, where `%s` has no derivative",
               zp_op_name(rule->op), zp_rule_operand(rule, i)->name, zp_rule_text(rule, i), zp_op_name(rule->op));
  return false;
}

static void unary(zp_rule *rule) {
  if (zp_want_activation(rule, 0) && want_defined_at_zero(rule))
    zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

/* Classes of a sample: all positions of its logits have labels of their own, so these are [B, V]. */
static bool want_lengths_of_classes(zp_rule *rule) {
  const zp_shape *lengths = zp_rule_shape(rule, 2);
  if (!zp_want_element(rule, 2, ZP_ELEM_I32) || !zp_want_rank(rule, 0, 2)) return false;
  if (lengths->rank == 1 && zp_rule_operand(rule, 2)->role == ZP_ROLE_INPUT) return true;
  zp_rule_fail(rule, ZP_Z0204, "lengths are an input i32[B], `%s` is %s", zp_rule_operand(rule, 2)->name,
               zp_rule_text(rule, 2));
  return false;
}

static void cross_entropy(zp_rule *rule) {
  if (!zp_want_activation(rule, 0) || !zp_want_labels(rule, 1, 0)) return;
  if (rule->n_in > 2 && !want_lengths_of_classes(rule)) return;
  if (!rule->attr.classes) rule->attr.classes = zp_shape_cols(zp_rule_shape(rule, 0));
  if (rule->op == ZP_OP_CE_STATS)
    zp_rule_answer(rule, ZP_ELEM_STAT, zp_rule_with_last(zp_rule_shape(rule, 0), 3, NULL));
  else
    zp_rule_answer(rule, ZP_ELEM_STAT, (zp_shape){0});
}

/* Numbers beside numbers of the data. */
static void squared_error(zp_rule *rule) {
  if (!zp_want_activation(rule, 0) || !zp_want_element(rule, 1, ZP_ELEM_FLOAT)) return;
  const zp_tensor *x = zp_rule_operand(rule, 0), *target = zp_rule_operand(rule, 1);
  if (target->role != ZP_ROLE_INPUT || !zp_shape_equal(&x->shape, &target->shape)) {
    zp_rule_help(zp_rule_fail(rule, ZP_Z0204, "`target` of `mse` is an input of the shape of `%s` %s, not `%s` %s",
                              x->name, zp_rule_text(rule, 0), target->name, zp_rule_text(rule, 1)),
                 "declare `input target: f32[B, n]` or `f32[B, S, n]`");
    return;
  }
  if (rule->attr.value == 0) rule->attr.value = 1;
  zp_rule_answer(rule, ZP_ELEM_STAT,
                 rule->op == ZP_OP_SE_STATS ? zp_rule_with_last(&x->shape, 3, NULL) : (zp_shape){0});
}

static void collective(zp_rule *rule) {
  if (zp_want_activation(rule, 0)) zp_rule_answer(rule, ZP_ELEM_FLOAT, *zp_rule_shape(rule, 0));
}

/* Between [B, S, n] and the rank's share of the positions [B, S / parts, n]. */
static void sequence_collective(zp_rule *rule) {
  int64_t parts = rule->attr.parts;
  if (!zp_want_activation(rule, 0) || !zp_want_rank(rule, 0, 3) || !zp_want_positive(rule, "parts", (double)parts))
    return;
  zp_shape shape = *zp_rule_shape(rule, 0);
  if (rule->op == ZP_OP_ALL_GATHER_SEQ) {
    zp_rule_resize(rule, &shape, 1, shape.dim[1] * parts);
  } else if (shape.dim[1] % parts == 0) {
    zp_rule_resize(rule, &shape, 1, shape.dim[1] / parts);
  } else {
    zp_rule_fail(rule, ZP_Z0205, "%lld ranks do not divide the %lld positions of `%s` %s", (long long)parts,
                 (long long)shape.dim[1], zp_rule_operand(rule, 0)->name, zp_rule_text(rule, 0));
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

/* Between [B, experts, slots, d] and the rank's experts with the slots of all members' samples. */
static void slots_collective(zp_rule *rule) {
  int64_t parts = rule->attr.parts;
  if (!zp_want_activation(rule, 0) || !zp_want_rank(rule, 0, 4) || !zp_want_positive(rule, "parts", (double)parts))
    return;
  zp_shape shape = *zp_rule_shape(rule, 0);
  bool spread = rule->op == ZP_OP_SPREAD_SLOTS;
  int cut = spread ? 1 : 2, joined = spread ? 2 : 1;
  if (shape.dim[cut] % parts) {
    zp_rule_fail(rule, ZP_Z0205, "%lld ranks do not divide the %lld %s of `%s` %s", (long long)parts,
                 (long long)shape.dim[cut], spread ? "experts" : "slots", zp_rule_operand(rule, 0)->name,
                 zp_rule_text(rule, 0));
    return;
  }
  zp_rule_resize(rule, &shape, cut, shape.dim[cut] / parts);
  zp_rule_resize(rule, &shape, joined, shape.dim[joined] * parts);
  zp_rule_answer(rule, ZP_ELEM_FLOAT, shape);
}

/* Shapes name B in front only, so [ranks, B*S, 3] is written [B, ranks*S, 3]; rank-major in memory all the same. */
static void gather_stats(zp_rule *rule) {
  zp_shape shape = *zp_rule_shape(rule, 0);
  if (!zp_want_element(rule, 0, ZP_ELEM_STAT) || (shape.rank != 2 && !zp_want_rank(rule, 0, 3)) ||
      !zp_want_positive(rule, "parts", (double)rule->attr.parts))
    return;
  zp_rule_answer(rule, ZP_ELEM_STAT, zp_gathered_stats(rule->graph->arena, &shape, rule->attr.parts));
}

/* Statistics of one rank that say all of a row. */
static void loss_alone(zp_rule *rule) {
  zp_shape rows = *zp_rule_shape(rule, 0);
  rows.rank--;
  zp_rule_answer(rule, ZP_ELEM_STAT, rows);
}

static void ce_loss(zp_rule *rule) {
  if (!zp_want_element(rule, 0, ZP_ELEM_STAT)) return;
  if (rule->n_in == 1) {
    loss_alone(rule);
    return;
  }
  if (!zp_want_element(rule, 1, ZP_ELEM_I32)) return;
  const zp_shape *stat = zp_rule_shape(rule, 0), *labels = zp_rule_shape(rule, 1);
  bool fits = labels->rank == 1 ? stat->rank == 2 || stat->rank == 3
                                : labels->rank == 2 && stat->rank == 3 && stat->dim[1] % labels->dim[1] == 0;
  if (!fits || zp_shape_cols(stat) != 3) {
    zp_rule_fail(rule, ZP_Z0204, "statistics `%s` %s do not belong to labels `%s` %s", zp_rule_operand(rule, 0)->name,
                 zp_rule_text(rule, 0), zp_rule_operand(rule, 1)->name, zp_rule_text(rule, 1));
    return;
  }
  zp_rule_answer(rule, ZP_ELEM_STAT, *zp_rule_shape(rule, 1));
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
  case ZP_OP_MEAN: zp_rule_mean(rule); break;
  case ZP_OP_SLICE: zp_rule_slice(rule); break;
  case ZP_OP_COLUMN: zp_rule_column(rule); break;
  case ZP_OP_CONCAT: zp_rule_concat(rule); break;
  case ZP_OP_REDUCE: zp_rule_reduce(rule); break;
  case ZP_OP_REDUCE_COLUMNS: zp_rule_reduce_columns(rule); break;
  case ZP_OP_GATHER: zp_rule_gather(rule); break;
  case ZP_OP_RESHAPE: zp_rule_reshape(rule); break;
  case ZP_OP_TRANSPOSE: zp_rule_transpose(rule); break;
  case ZP_OP_UNFOLD: zp_rule_unfold(rule); break;
  case ZP_OP_COLUMNS: zp_rule_columns(rule); break;
  case ZP_OP_JOIN_COLUMNS: zp_rule_join_columns(rule); break;
  case ZP_OP_REPEAT_COLUMNS: zp_rule_repeat_columns(rule); break;
  case ZP_OP_TOP_K_GATE: zp_rule_top_k_gate(rule); break;
  case ZP_OP_DISPATCH: zp_rule_dispatch(rule); break;
  case ZP_OP_BATCHED_MATMUL: zp_rule_batched_matmul(rule); break;
  case ZP_OP_COMBINE: zp_rule_combine(rule); break;
  case ZP_OP_CROSS_ENTROPY:
  case ZP_OP_CE_STATS: cross_entropy(rule); break;
  case ZP_OP_SQUARED_ERROR:
  case ZP_OP_SE_STATS: squared_error(rule); break;
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
