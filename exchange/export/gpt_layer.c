/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises one layer of a GPT: attention and MLP (or experts) as branches of the residual stream. */
#include "export_internal.h"

#include <math.h>
#include <zplan/sparse.h>

/* sum = x + branch, in either order; x is known. */
static bool match_residual(const zp_gpt_reader *r, int sum, int x, int *branch) {
  const zp_node *n = zp_gpt_node(r, sum);
  if (!n || n->op != ZP_OP_ADD) return false;
  int a = n->in.data[0], b = n->in.data[1];
  if (a != x && b != x) return false;
  *branch = a == x ? b : a;
  return true;
}

/* rope(linear(x)); a key or query. */
static bool match_rope(zp_gpt_reader *r, int tensor, int *x) {
  zp_gpt *gpt = r->gpt;
  const zp_node *n = zp_gpt_node(r, tensor);
  bool is = n && n->op == ZP_OP_ROPE;
  *x = is ? n->in.data[0] : tensor;
  if (!r->seen_rope) {
    gpt->rope = is;
    gpt->theta = is ? n->attr.theta : 0;
    gpt->rope_interleaved = is && n->attr.interleaved;
    r->seen_rope = true;
  }
  zp_span span = is ? n->span : r->graph->tensors.data[tensor].span;
  if (is != gpt->rope) return zp_gpt_stop(r, span, "only one of queries and keys has rotary positions");
  if (is && (n->attr.theta != gpt->theta || n->attr.interleaved != gpt->rope_interleaved))
    return zp_gpt_stop(r, span, "rotary positions of queries and keys differ");
  return true;
}

/* q, k, v as three parts of one linear layer. */
static bool match_fused_qkv(zp_gpt_reader *r, const zp_node *split, const int qkv[3], int *x) {
  zp_gpt_linear all;
  if (split->attr.parts != 3) return zp_gpt_stop(r, split->span, "q, k and v are not the three parts of one split");
  for (int i = 0; i < 3; i++)
    if (split->out.data[i] != qkv[i])
      return zp_gpt_stop(r, split->span, "the parts of the split are not q, k, v in order");
  if (!zp_gpt_match_linear(r, split->in.data[0], &all)) return false;
  r->gpt->qkv_bias = all.bias;
  *x = all.x;
  return zp_gpt_note_std(r, all.param, ZP_GPT_INNER);
}

static bool match_qkv(zp_gpt_reader *r, const zp_node *attention, int *x) {
  int qkv[3] = {attention->in.data[0], attention->in.data[1], attention->in.data[2]};
  for (int i = 0; i < 2; i++)
    if (!match_rope(r, qkv[i], &qkv[i])) return false;
  for (int n = 0; n < r->graph->nodes.len; n++) {
    const zp_node *split = &r->graph->nodes.data[n];
    if (split->op == ZP_OP_SPLIT && split->out.data[0] == qkv[0]) return match_fused_qkv(r, split, qkv, x);
  }
  zp_gpt_linear part[3];
  for (int i = 0; i < 3; i++)
    if (!zp_gpt_match_linear(r, qkv[i], &part[i]) || !zp_gpt_note_std(r, part[i].param, ZP_GPT_INNER)) return false;
  for (int i = 1; i < 3; i++) {
    if (part[i].x != part[0].x) return zp_gpt_stop(r, part[i].span, "q, k and v do not come from the same tensor");
    if (part[i].bias != part[0].bias)
      return zp_gpt_stop(r, part[i].span, "some of q, k and v have a bias, some have none");
  }
  r->gpt->qkv_bias = part[0].bias;
  *x = part[0].x;
  return true;
}

static bool match_attention(zp_gpt_reader *r, int branch, int carry) {
  zp_gpt *gpt = r->gpt;
  zp_gpt_linear proj;
  int y, x = -1, from;
  if (!zp_gpt_match_dropout(r, branch, &y) || !zp_gpt_match_linear(r, y, &proj)) return false;
  const zp_node *n = zp_gpt_node(r, proj.x);
  if (!n || n->op != ZP_OP_ATTENTION)
    return zp_gpt_stop(r, proj.span, "the first branch of a layer is no attention with an output projection");
  gpt->proj_bias = proj.bias;
  gpt->attention_dropout = n->attr.rate;
  gpt->heads = n->attr.heads;
  gpt->kv_heads = n->attr.kv_heads ? n->attr.kv_heads : n->attr.heads;
  gpt->head_size = zp_shape_cols(&r->graph->tensors.data[n->in.data[0]].shape) / gpt->heads;
  if (n->attr.sparse)
    return zp_gpt_stop(r, n->span, "attention is block-sparse: `pattern = sparse.%s(...)`",
                       zp_sparse_name(n->attr.sparse->kind));
  if (n->attr.window)
    return zp_gpt_stop(r, n->span, "attention has a window of %lld tokens", (long long)n->attr.window);
  if (n->attr.softcap > 0) return zp_gpt_stop(r, n->span, "attention has `softcap = %g`", n->attr.softcap);
  if (n->attr.alibi_heads) return zp_gpt_stop(r, n->span, "attention has ALiBi");
  if (n->attr.documents) gpt->documents = n;
  if (zp_attention_lengths(n) >= 0) return zp_gpt_stop(r, n->span, "attention is told the lengths of samples");
  if (!n->attr.causal) return zp_gpt_stop(r, n->span, "attention looks ahead: `causal = false`");
  const double ROUNDING = 1e-12; /* a file may compute 1 / sqrt(head size) in another order */
  double usual = 1 / sqrt((double)gpt->head_size);
  if (n->attr.scale != 0 && fabs(n->attr.scale - usual) > ROUNDING)
    return zp_gpt_stop(r, n->span, "attention has `scale = %g`, not 1 / sqrt(head size) = %g", n->attr.scale, usual);
  if (!match_qkv(r, n, &x) || !zp_gpt_match_norm(r, x, &from) || !zp_gpt_note_std(r, proj.param, ZP_GPT_RESIDUAL))
    return false;
  return from == carry || zp_gpt_stop(r, n->span, "attention does not read what the layer was given");
}

/* silu(gate) * up, in either order. */
static bool match_gated(zp_gpt_reader *r, const zp_node *product, int *x) {
  zp_gpt_linear gate, up;
  int silu = -1;
  for (int i = 0; i < 2 && silu < 0; i++) {
    const zp_node *n = zp_gpt_node(r, product->in.data[i]);
    if (n && n->op == ZP_OP_SILU) silu = i;
  }
  if (silu < 0) return zp_gpt_stop(r, product->span, "the gate of the MLP is not `silu`");
  if (!zp_gpt_match_linear(r, zp_gpt_node(r, product->in.data[silu])->in.data[0], &gate) ||
      !zp_gpt_match_linear(r, product->in.data[1 - silu], &up) || !zp_gpt_note_std(r, gate.param, ZP_GPT_INNER) ||
      !zp_gpt_note_std(r, up.param, ZP_GPT_INNER))
    return false;
  if (gate.x != up.x || gate.bias != up.bias || gate.out != up.out)
    return zp_gpt_stop(r, product->span, "the two halves of the gated MLP are not alike");
  r->gpt->activation = ZP_GPT_SWIGLU;
  r->gpt->ff = gate.out;
  r->gpt->mlp_bias = gate.bias;
  *x = gate.x;
  return true;
}

static bool match_plain(zp_gpt_reader *r, const zp_node *act, int *x) {
  zp_gpt_linear up;
  if (act->op == ZP_OP_GELU)
    r->gpt->activation = act->attr.tanh_form ? ZP_GPT_GELU_TANH : ZP_GPT_GELU_ERF;
  else if (act->op == ZP_OP_RELU)
    r->gpt->activation = ZP_GPT_RELU;
  else
    return zp_gpt_stop(r, act->span, "`%s` stands where the activation of the MLP is expected", zp_op_name(act->op));
  if (!zp_gpt_match_linear(r, act->in.data[0], &up) || !zp_gpt_note_std(r, up.param, ZP_GPT_INNER)) return false;
  r->gpt->ff = up.out;
  r->gpt->mlp_bias = up.bias;
  *x = up.x;
  return true;
}

static bool match_mlp(zp_gpt_reader *r, int branch, int middle) {
  zp_gpt_linear down;
  int y, x = -1, from;
  if (!zp_gpt_match_dropout(r, branch, &y)) return false;
  const zp_node *n = zp_gpt_node(r, y);
  if (n && n->op == ZP_OP_COMBINE) {
    if (!zp_gpt_match_experts(r, n, &x)) return false;
  } else {
    if (!zp_gpt_match_linear(r, y, &down) || !zp_gpt_note_std(r, down.param, ZP_GPT_RESIDUAL)) return false;
    const zp_node *act = zp_gpt_node(r, down.x);
    if (!act) return zp_gpt_stop(r, down.span, "the MLP has no activation");
    if (!(act->op == ZP_OP_MUL ? match_gated(r, act, &x) : match_plain(r, act, &x))) return false;
    if (down.bias != r->gpt->mlp_bias)
      return zp_gpt_stop(r, down.span, "one linear layer of the MLP has a bias, the other has none");
  }
  if (!zp_gpt_match_norm(r, x, &from)) return false;
  if (from != middle)
    return zp_gpt_stop(r, zp_gpt_node(r, r->graph->carry_out.data[0])->span,
                       "attention and MLP read the same tensor (a parallel layer), or the norm stands elsewhere");
  return true;
}

bool zp_gpt_match_layer(zp_gpt_reader *r) {
  const zp_graph *g = r->graph;
  zp_span span = g->nodes.len ? g->nodes.data[g->nodes.len - 1].span : r->model->span;
  if (g->carry_in.len != 1 || g->carry_out.len != 1) return zp_gpt_stop(r, span, "layers carry more than one tensor");
  int carry = g->carry_in.data[0], out = g->carry_out.data[0], attention, mlp = -1, middle = -1;
  const zp_node *last = zp_gpt_node(r, out);
  for (int i = 0; last && last->op == ZP_OP_ADD && i < 2 && middle < 0; i++)
    if (match_residual(r, last->in.data[i], carry, &attention)) {
      middle = last->in.data[i];
      mlp = last->in.data[1 - i];
    }
  if (middle < 0)
    return zp_gpt_stop(r, span, "a layer is not x + attention(norm(x)), then x + mlp(norm(x)): it ends with `%s`",
                       last ? zp_op_name(last->op) : "its input");
  return match_attention(r, attention, carry) && match_mlp(r, mlp, middle);
}
