/* SPDX-License-Identifier: Apache-2.0 */
/* What the settings of two operations of one kind make different, a rule for each kind: the first difference in a
 * sentence, or NULL. x: our settings, y: theirs. */
#include "weights_internal.h"

#include <assert.h>
#include <math.h>

enum { OURS, THEIRS };

/* Numbers that files write in decimal, or compute in another order. */
static bool same_number(double a, double b) { return fabs(a - b) <= 1e-9 * fmax(fabs(a), fabs(b)); }

/* As a multiple of the usual scale, 1 / sqrt(head size): sizes are compared elsewhere. */
static double scale_of(const zp_node_pair *p, int side) {
  const zp_node *n = p->node[side];
  double columns = (double)zp_shape_cols(&p->graph[side]->tensors.data[n->in.data[0]].shape);
  return n->attr.scale == 0 ? 1 : n->attr.scale * sqrt(columns / (double)n->attr.heads);
}

static const char *attention(const zp_node_pair *p, const zp_op_attr *x, const zp_op_attr *y) {
  int64_t kv_x = x->kv_heads ? x->kv_heads : x->heads, kv_y = y->kv_heads ? y->kv_heads : y->heads;
  if (x->heads != y->heads)
    return zp_format(p->arena, "attention has %lld heads here, and %lld in %s", (long long)x->heads,
                     (long long)y->heads, p->their_name);
  if (kv_x != kv_y)
    return zp_format(p->arena, "attention has %lld key/value heads here, and %lld in %s", (long long)kv_x,
                     (long long)kv_y, p->their_name);
  if (x->window != y->window)
    return zp_format(p->arena, "attention sees a window of %lld positions here, and of %lld in %s (0: all)",
                     (long long)x->window, (long long)y->window, p->their_name);
  if (x->causal != y->causal || x->cross != y->cross || x->max_distance != y->max_distance || x->sparse)
    return zp_format(p->arena, "attention sees other positions here than in %s, where it sees all before",
                     p->their_name);
  if (!same_number(x->softcap, y->softcap))
    return zp_format(p->arena, "attention's scores are capped at %g here, and at %g in %s (0: not)", x->softcap,
                     y->softcap, p->their_name);
  if (x->alibi_heads != y->alibi_heads)
    return zp_format(p->arena, "attention has %s here, and %s in %s", x->alibi_heads ? "ALiBi" : "no ALiBi",
                     y->alibi_heads ? "it" : "none", p->their_name);
  double ours = scale_of(p, OURS), theirs = scale_of(p, THEIRS);
  if (same_number(ours, theirs)) return NULL;
  return zp_format(p->arena, "attention's scale is %g of the usual here, and %g of it in %s", ours, theirs,
                   p->their_name);
}

static const char *norm(const zp_node_pair *p, const zp_op_attr *x, const zp_op_attr *y) {
  if (x->heads != y->heads)
    return zp_format(p->arena, "a norm is of %lld heads here, and of %lld in %s (0: of whole rows)",
                     (long long)x->heads, (long long)y->heads, p->their_name);
  if (!same_number(x->value, y->value))
    return zp_format(p->arena, "a norm's weight has offset %g here, and %g in %s", x->value, y->value, p->their_name);
  if (same_number(x->eps, y->eps)) return NULL;
  return zp_format(p->arena, "`eps` is %g here, and %g in %s", x->eps, y->eps, p->their_name);
}

static const char *rope(const zp_node_pair *p, const zp_op_attr *x, const zp_op_attr *y) {
  if (x->interleaved != y->interleaved)
    return zp_format(p->arena, "rotary positions turn %s here, and %s in %s", x->interleaved ? "neighbours" : "halves",
                     y->interleaved ? "neighbours" : "halves", p->their_name);
  if (x->heads != y->heads)
    return zp_format(p->arena, "rotary positions are of %lld heads here, and of %lld in %s", (long long)x->heads,
                     (long long)y->heads, p->their_name);
  if (same_number(x->theta, y->theta)) return NULL;
  return zp_format(p->arena, "`theta` is %g here, and %g in %s", x->theta, y->theta, p->their_name);
}

static const char *gelu(const zp_node_pair *p, const zp_op_attr *x, const zp_op_attr *y) {
  if (x->tanh_form == y->tanh_form) return NULL;
  return zp_format(p->arena, "gelu is computed by %s here, and by %s in %s", x->tanh_form ? "tanh" : "erf",
                   y->tanh_form ? "tanh" : "erf", p->their_name);
}

static const char *constant(const zp_node_pair *p, const zp_op_attr *x, const zp_op_attr *y) {
  if (same_number(x->value, y->value)) return NULL;
  return zp_format(p->arena, "the number is %g here, and %g in %s", x->value, y->value, p->their_name);
}

static const char *place(const zp_node_pair *p, const zp_op_attr *x, const zp_op_attr *y) {
  if (x->begin == y->begin && x->count == y->count) return NULL;
  return zp_format(p->arena, "another %s is taken here than in %s",
                   p->node[OURS]->op == ZP_OP_COLUMN ? "column" : "position", p->their_name);
}

static const char *head_columns(const zp_node_pair *p, const zp_op_attr *x, const zp_op_attr *y) {
  if (x->heads == y->heads) return NULL;
  return zp_format(p->arena, "columns are of %lld heads here, and of %lld in %s", (long long)x->heads,
                   (long long)y->heads, p->their_name);
}

static const char *columns(const zp_node_pair *p, const zp_op_attr *x, const zp_op_attr *y) {
  const char *other_heads = head_columns(p, x, y);
  if (other_heads || (x->begin == y->begin && x->count == y->count)) return other_heads;
  return zp_format(p->arena, "%lld columns of a head from %lld on are taken here, and %lld from %lld on in %s",
                   (long long)x->count, (long long)x->begin, (long long)y->count, (long long)y->begin, p->their_name);
}

static const char *unfold(const zp_node_pair *p, const zp_op_attr *x, const zp_op_attr *y) {
  if (memcmp(x->windows, y->windows, sizeof *x->windows) == 0) return NULL;
  return zp_format(p->arena,
                   "windows of %lld x %lld lie over %lld x %lld positions here, and of %lld x %lld over %lld x %lld "
                   "in %s, or have another stride or padding",
                   (long long)x->windows->kernel[0], (long long)x->windows->kernel[1], (long long)x->windows->size[0],
                   (long long)x->windows->size[1], (long long)y->windows->kernel[0], (long long)y->windows->kernel[1],
                   (long long)y->windows->size[0], (long long)y->windows->size[1], p->their_name);
}

static const char *gate(const zp_node_pair *p, const zp_op_attr *x, const zp_op_attr *y) {
  if (x->sigmoid != y->sigmoid)
    return zp_format(p->arena, "affinities to experts are %s here, and %s in %s", x->sigmoid ? "sigmoids" : "a softmax",
                     y->sigmoid ? "sigmoids" : "a softmax", p->their_name);
  if (x->normalize != y->normalize)
    return zp_format(p->arena, "weights of experts are normalized over %s here, and not so in %s",
                     x->normalize ? "those that a token takes" : "all", p->their_name);
  if (x->groups != y->groups || x->top_groups != y->top_groups)
    return zp_format(p->arena, "a token's experts lie in %lld of %lld groups here, and in %lld of %lld in %s (0: not)",
                     (long long)x->top_groups, (long long)x->groups, (long long)y->top_groups, (long long)y->groups,
                     p->their_name);
  if (x->top_k == y->top_k) return NULL;
  return zp_format(p->arena, "a token takes %lld experts here, and %lld in %s", (long long)x->top_k,
                   (long long)y->top_k, p->their_name);
}

/* Operations without a row have no settings but shapes, and elementwise ones their number. */
static const char *(*const rules[ZP_OP_COUNT])(const zp_node_pair *, const zp_op_attr *, const zp_op_attr *) = {
    [ZP_OP_GELU] = gelu,
    [ZP_OP_LAYER_NORM] = norm,
    [ZP_OP_RMS_NORM] = norm,
    [ZP_OP_ROPE] = rope,
    [ZP_OP_ATTENTION] = attention,
    [ZP_OP_TOP_K_GATE] = gate,
    [ZP_OP_SLICE] = place,
    [ZP_OP_COLUMN] = place,
    [ZP_OP_UNFOLD] = unfold,
    [ZP_OP_COLUMNS] = columns,
    [ZP_OP_JOIN_COLUMNS] = head_columns,
};

const char *zp_settings_difference(const zp_node_pair *pair) {
  zp_op op = pair->node[OURS]->op;
  assert(pair->node[THEIRS]->op == op);
  const zp_op_attr *x = &pair->node[OURS]->attr, *y = &pair->node[THEIRS]->attr;
  if (rules[op]) return rules[op](pair, x, y);
  return zp_op_has(op, ZP_FLAG_ELEMENTWISE) ? constant(pair, x, y) : NULL;
}
