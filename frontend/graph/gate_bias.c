/* SPDX-License-Identifier: Apache-2.0 */
/* Biases of gates (arXiv 2412.19437, section 2.1.2): which parameters they are. No gradient reaches them: a step moves
 * them by a fixed amount against the load of their experts, which ZP_OP_LOAD_GRAD counts. */
#include <zplan/model.h>

/* The parameter that a node reads as operand i; -1: none. */
static int param_of(const zp_graph *graph, const zp_node *node, int i) {
  const zp_tensor *t = &graph->tensors.data[node->in.data[i]];
  if (t->role != ZP_ROLE_PARAM) return -1;
  for (int p = 0; p < graph->params.len; p++)
    if (graph->params.data[p].tensor == node->in.data[i]) return graph->params.data[p].param;
  return -1;
}

static bool is_bias(const zp_node *node, int i) { return node->op == ZP_OP_TOP_K_GATE && i == 1; }

typedef const zp_node *visitor(const zp_node *node, zp_param *param, bool bias);

static const zp_node *visit(zp_model *model, visitor *each) {
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++)
      for (int i = 0; i < graph->nodes.data[n].in.len; i++) {
        const zp_node *node = &graph->nodes.data[n];
        int param = param_of(graph, node, i);
        const zp_node *wrong = param < 0 ? NULL : each(node, &model->params.data[param], is_bias(node, i));
        if (wrong) return wrong;
      }
  }
  return NULL;
}

static const zp_node *set_rate(const zp_node *node, zp_param *param, bool bias) {
  if (!bias) return NULL;
  if (param->sign_rate > 0 && param->sign_rate != node->attr.bias_rate) return node;
  param->sign_rate = node->attr.bias_rate;
  return NULL;
}

static const zp_node *find_other_use(const zp_node *node, zp_param *param, bool bias) {
  return param->sign_rate > 0 && !bias ? node : NULL;
}

const zp_node *zp_model_find_biases(zp_model *model) {
  const zp_node *wrong = visit(model, set_rate);
  return wrong ? wrong : visit(model, find_other_use);
}

bool zp_model_has_gate_biases(const zp_model *model) {
  for (int p = 0; p < model->params.len; p++)
    if (model->params.data[p].sign_rate > 0 && !model->params.data[p].frozen) return true;
  return false;
}
