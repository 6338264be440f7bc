/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises a GPT: embedding, one repeat of equal layers, norm and head. Only exports ask for it; planning never does.
 * gpt_layer.c has the layer. Every node is reached from the loss, so what is matched is the whole model. */
#include "export_internal.h"

#include <math.h>

bool zp_gpt_stop(zp_gpt_reader *r, zp_span span, const char *format, ...) {
  if (r->reason) return false;
  va_list args;
  va_start(args, format);
  r->reason = zp_vformat(r->arena, format, args);
  va_end(args);
  r->span = span;
  return false;
}

const zp_node *zp_gpt_node(const zp_gpt_reader *r, int tensor) {
  const zp_tensor *t = &r->graph->tensors.data[tensor];
  if (t->base >= 0) t = &r->graph->tensors.data[t->base];
  return t->producer >= 0 ? &r->graph->nodes.data[t->producer] : NULL;
}

static zp_span span_of(const zp_gpt_reader *r, int tensor) { return r->graph->tensors.data[tensor].span; }

bool zp_gpt_match_norm(zp_gpt_reader *r, int tensor, int *x) {
  const zp_node *n = zp_gpt_node(r, tensor);
  if (!n || (n->op != ZP_OP_LAYER_NORM && n->op != ZP_OP_RMS_NORM))
    return zp_gpt_stop(r, span_of(r, tensor), "`%s` is not the result of a norm", r->graph->tensors.data[tensor].name);
  bool rms = n->op == ZP_OP_RMS_NORM;
  if (n->attr.heads) return zp_gpt_stop(r, n->span, "a norm is of every head by itself");
  if (n->attr.value != 0) return zp_gpt_stop(r, n->span, "a norm's weight has `offset = %g`", n->attr.value);
  if (!r->seen_norm) {
    r->gpt->rms_norm = rms;
    r->gpt->norm_eps = n->attr.eps;
    r->seen_norm = true;
  }
  if (rms != r->gpt->rms_norm) return zp_gpt_stop(r, n->span, "layer norms and RMS norms are mixed");
  if (n->attr.eps != r->gpt->norm_eps)
    return zp_gpt_stop(r, n->span, "norms have different `eps`: %g and %g", r->gpt->norm_eps, n->attr.eps);
  *x = n->in.data[0];
  return true;
}

bool zp_gpt_match_dropout(zp_gpt_reader *r, int tensor, int *x) {
  const zp_node *n = zp_gpt_node(r, tensor);
  bool is = n && n->op == ZP_OP_DROPOUT;
  double rate = is ? n->attr.rate : 0;
  *x = is ? n->in.data[0] : tensor;
  if (!r->seen_dropout) r->gpt->dropout = rate;
  r->seen_dropout = true;
  return rate == r->gpt->dropout ||
         zp_gpt_stop(r, is ? n->span : span_of(r, tensor),
                     "dropout is %g here and %g elsewhere: the embedding and both branches of a layer have one rate",
                     rate, r->gpt->dropout);
}

static const zp_tensor *as_param(const zp_gpt_reader *r, int tensor) {
  const zp_tensor *t = &r->graph->tensors.data[tensor];
  return t->role == ZP_ROLE_PARAM ? t : NULL;
}

bool zp_gpt_note_std(zp_gpt_reader *r, int param, zp_gpt_matrix kind) {
  const zp_param *p = &r->model->params.data[param];
  if (p->init != ZP_INIT_NORMAL || p->init_a != 0)
    return zp_gpt_stop(r, p->span, "`%s` does not start from a normal distribution around 0", p->name);
  double *std = &r->gpt->std[kind];
  if (*std == 0) *std = p->init_b;
  if (*std != p->init_b) r->gpt->one_std = false;
  return true;
}

bool zp_gpt_match_linear(zp_gpt_reader *r, int tensor, zp_gpt_linear *linear) {
  *linear = (zp_gpt_linear){.param = -1};
  const zp_node *n = zp_gpt_node(r, tensor);
  if (n && n->op == ZP_OP_ADD && as_param(r, n->in.data[1]) && as_param(r, n->in.data[1])->shape.rank == 1) {
    linear->bias = true;
    n = zp_gpt_node(r, n->in.data[0]);
  }
  if (!n || n->op != ZP_OP_MATMUL || !as_param(r, n->in.data[1]))
    return zp_gpt_stop(r, span_of(r, tensor), "`%s` is not the result of a linear layer",
                       r->graph->tensors.data[tensor].name);
  linear->x = n->in.data[0];
  linear->param = as_param(r, n->in.data[1])->index;
  linear->out = zp_shape_cols(&r->graph->tensors.data[n->out.data[0]].shape);
  linear->span = n->span;
  return true;
}

/* x = dropout(embedding(tokens, wte) + wpe) */
static bool match_begin(zp_gpt_reader *r, int *table) {
  const zp_graph *g = r->graph;
  if (g->carry_in.len != 0 || g->carry_out.len != 1)
    return zp_gpt_stop(r, r->model->span, "the model does not begin with one embedding");
  int x;
  if (!zp_gpt_match_dropout(r, g->carry_out.data[0], &x)) return false;
  const zp_node *n = zp_gpt_node(r, x);
  if (n && n->op == ZP_OP_ADD) {
    const zp_tensor *position = as_param(r, n->in.data[1]);
    if (!position || position->shape.rank != 2)
      return zp_gpt_stop(r, n->span, "what is added to the embedding is not a table of positions");
    r->gpt->positions = position->shape.dim[0];
    if (!zp_gpt_note_std(r, position->index, ZP_GPT_TABLE)) return false;
    n = zp_gpt_node(r, n->in.data[0]);
  }
  if (!n || n->op != ZP_OP_EMBEDDING)
    return zp_gpt_stop(r, n ? n->span : r->model->span, "`%s` stands where the embedding of the tokens is expected",
                       n ? zp_op_name(n->op) : "nothing");
  const zp_tensor *wte = as_param(r, n->in.data[1]);
  if (!wte) return zp_gpt_stop(r, n->span, "the embedding's table is no parameter");
  *table = wte->index;
  r->gpt->vocabulary = wte->shape.dim[0];
  r->gpt->hidden = wte->shape.dim[1];
  return zp_gpt_note_std(r, wte->index, ZP_GPT_TABLE);
}

/* cross_entropy(linear(norm(x)), labels) */
static bool match_end(zp_gpt_reader *r, int table) {
  const zp_graph *g = r->graph;
  const zp_node *loss = g->losses.len == 1 ? zp_gpt_node(r, g->losses.data[0]) : NULL;
  if (!loss || loss->op != ZP_OP_CROSS_ENTROPY || g->carry_in.len != 1)
    return zp_gpt_stop(r, r->model->span, "the model does not end with a cross-entropy");
  if (loss->attr.smoothing > 0 || loss->attr.z_loss > 0)
    return zp_gpt_stop(r, loss->span, "the loss has `label_smoothing = %g, z_loss = %g`", loss->attr.smoothing,
                       loss->attr.z_loss);
  zp_gpt_linear head;
  int x, carry;
  if (!zp_gpt_match_linear(r, loss->in.data[0], &head)) return false;
  if (head.bias) return zp_gpt_stop(r, head.span, "the head has a bias");
  r->gpt->tied = head.param == table;
  if (head.out != r->gpt->vocabulary)
    return zp_gpt_stop(r, head.span, "the head has %lld rows and the embedding %lld", (long long)head.out,
                       (long long)r->gpt->vocabulary);
  x = head.x;
  if (!zp_gpt_match_norm(r, x, &carry) || !zp_gpt_note_std(r, head.param, ZP_GPT_TABLE)) return false;
  return carry == g->carry_in.data[0] || zp_gpt_stop(r, head.span, "something stands between the layers and the norm");
}

const zp_gpt *zp_gpt_recognise(zp_arena *arena, const zp_model *model, const char **reason, zp_span *span) {
  zp_gpt *gpt = ZP_NEW(arena, zp_gpt);
  gpt->expert_param = -1;
  gpt->one_std = true;
  gpt->sequence = model->sequence;
  zp_gpt_reader r = {.arena = arena, .model = model, .gpt = gpt};
  int table = -1;
  bool ok = model->segments.len == 3 && model->segments.data[1].is_repeat;
  if (!ok)
    zp_gpt_stop(&r, model->span,
                "the model has %d segments: an embedding, one repeat of layers and a head are expected",
                model->segments.len);
  for (int s = 0; ok && s < 3; s++) {
    r.graph = model->segments.data[s].graph;
    ok = s == 0 ? match_begin(&r, &table) : s == 1 ? zp_gpt_match_layer(&r) : match_end(&r, table);
  }
  gpt->layers = ok ? model->segments.data[1].count : 0;
  if (ok && !gpt->rope && gpt->positions == 0) ok = zp_gpt_stop(&r, model->span, "tokens have no positions");
  if (ok && gpt->rope && gpt->positions > 0) ok = zp_gpt_stop(&r, model->span, "positions are both learned and rotary");
  *reason = r.reason;
  *span = r.span;
  return ok ? gpt : NULL;
}
