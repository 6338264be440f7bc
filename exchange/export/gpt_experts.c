/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises a mixture of experts in place of a layer's MLP: router, top-k gate, SwiGLU experts. */
#include "export_internal.h"

/* batched_matmul(x, w) with w a parameter. */
static bool match_product(zp_gpt_reader *r, int tensor, int *x, int *param, int64_t *out) {
  const zp_node *n = zp_gpt_node(r, tensor);
  const zp_tensor *w = n && n->op == ZP_OP_BATCHED_MATMUL ? &r->graph->tensors.data[n->in.data[1]] : NULL;
  if (!w || w->role != ZP_ROLE_PARAM)
    return zp_gpt_stop(r, r->graph->tensors.data[tensor].span, "`%s` is not a product of the experts' matrices",
                       r->graph->tensors.data[tensor].name);
  *x = n->in.data[0];
  *param = w->index;
  *out = zp_shape_cols(&r->graph->tensors.data[n->out.data[0]].shape);
  return true;
}

/* y = silu(x w1) * (x w3), then y w2 */
static bool match_network(zp_gpt_reader *r, int result, int *dispatched) {
  int hidden, w2, w[2], from[2];
  int64_t width, ff[2];
  if (!match_product(r, result, &hidden, &w2, &width) || !zp_gpt_note_std(r, w2, ZP_GPT_RESIDUAL)) return false;
  const zp_node *product = zp_gpt_node(r, hidden);
  if (!product || product->op != ZP_OP_MUL)
    return zp_gpt_stop(r, r->graph->tensors.data[hidden].span, "experts are no SwiGLU networks");
  bool silu = false;
  for (int i = 0; i < 2; i++) {
    int half = product->in.data[i];
    const zp_node *n = zp_gpt_node(r, half);
    if (n && n->op == ZP_OP_SILU && !silu) {
      silu = true;
      half = n->in.data[0];
    }
    if (!match_product(r, half, &from[i], &w[i], &ff[i]) || !zp_gpt_note_std(r, w[i], ZP_GPT_INNER)) return false;
  }
  if (!silu || from[0] != from[1] || ff[0] != ff[1])
    return zp_gpt_stop(r, product->span, "experts are no SwiGLU networks");
  r->gpt->expert_param = w2;
  r->gpt->ff = ff[0];
  *dispatched = from[0];
  return true;
}

bool zp_gpt_match_experts(zp_gpt_reader *r, const zp_node *combine, int *x) {
  int dispatched = -1;
  zp_gpt_linear router;
  if (!match_network(r, combine->in.data[0], &dispatched)) return false;
  const zp_node *gate = zp_gpt_node(r, combine->in.data[1]), *dispatch = zp_gpt_node(r, dispatched);
  if (!gate || gate->op != ZP_OP_TOP_K_GATE || !dispatch || dispatch->op != ZP_OP_DISPATCH)
    return zp_gpt_stop(r, combine->span, "experts are not fed by a top-k gate");
  if (gate->attr.sigmoid) return zp_gpt_stop(r, gate->span, "affinities to experts are sigmoids");
  if (!zp_gpt_match_linear(r, gate->in.data[0], &router) || !zp_gpt_note_std(r, router.param, ZP_GPT_INNER))
    return false;
  if (router.bias) return zp_gpt_stop(r, router.span, "the router has a bias");
  if (router.x != dispatch->in.data[0])
    return zp_gpt_stop(r, dispatch->span, "the router and the experts do not read the same tensor");
  zp_gpt *gpt = r->gpt;
  gpt->experts = router.out;
  gpt->top_k = gate->attr.top_k;
  gpt->slots = r->graph->tensors.data[dispatch->out.data[0]].shape.dim[2];
  gpt->capacity = gate->attr.capacity;
  gpt->balance = gate->attr.balance;
  gpt->normalize = gate->attr.normalize;
  gpt->activation = ZP_GPT_SWIGLU;
  *x = router.x;
  return true;
}
