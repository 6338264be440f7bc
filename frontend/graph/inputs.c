/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs of a model: what trainers may feed, and where it stands in memory. */
#include <assert.h>
#include <string.h>
#include "ops.h"

int64_t zp_model_input_bytes(const zp_model *model, int i, int64_t microbatch, int compute_bytes) {
  assert(i >= 0 && i < model->inputs.len && microbatch >= 1);
  const zp_input *input = &model->inputs.data[i];
  int64_t elements = zp_shape_elements(&input->shape, microbatch);
  if (input->element == ZP_ELEM_I32) return elements * 4;
  return (elements * compute_bytes + ZP_INPUT_ALIGN - 1) / ZP_INPUT_ALIGN * ZP_INPUT_ALIGN;
}

int64_t zp_model_inputs_bytes(const zp_model *model, int n, int64_t microbatch, int compute_bytes, bool numbers) {
  assert(n >= 0 && n <= model->inputs.len);
  int64_t bytes = 0;
  for (int i = 0; i < n; i++)
    if (numbers || model->inputs.data[i].element == ZP_ELEM_I32)
      bytes += zp_model_input_bytes(model, i, microbatch, compute_bytes);
  return bytes;
}

bool zp_graph_reads_numbers(const zp_graph *graph) {
  for (int n = 0; n < graph->nodes.len; n++)
    for (int i = 0; i < graph->nodes.data[n].in.len; i++) {
      const zp_tensor *t = &graph->tensors.data[graph->nodes.data[n].in.data[i]];
      if (t->role == ZP_ROLE_INPUT && t->element == ZP_ELEM_FLOAT) return true;
    }
  return false;
}

const zp_input *zp_model_foreign_input(const zp_model *model) {
  bool tokens = false;
  for (int i = 0; i < model->inputs.len; i++) {
    const zp_input *input = &model->inputs.data[i];
    bool lengths = strcmp(input->name, "lengths") == 0, is_tokens = strcmp(input->name, "tokens") == 0;
    if (input->element != ZP_ELEM_I32 || input->shape.rank != (lengths ? 1 : 2)) return input;
    if (!lengths && !is_tokens && strcmp(input->name, "labels") != 0) return input;
    tokens |= is_tokens;
  }
  return tokens || model->inputs.len == 0 ? NULL : &model->inputs.data[0];
}

bool zp_model_reads_tokens(const zp_model *model) {
  return model->inputs.len > 0 && zp_model_foreign_input(model) == NULL;
}

/* Narrows the range of an input that a node reads as operand i. */
static void narrow(zp_input *input, const zp_graph *graph, const zp_node *node, int i) {
  const zp_op_row *row = zp_op_get_row(node->op);
  zp_input_range range = row->range ? row->range(input, graph, node, i) : (zp_input_range){0, INT32_MAX};
  if (range.limit < input->limit) input->limit = range.limit;
  if (range.least > input->least) input->least = range.least;
}

void zp_model_find_ranges(zp_model *model) {
  for (int i = 0; i < model->inputs.len; i++) {
    model->inputs.data[i].least = -1;
    model->inputs.data[i].limit = INT32_MAX;
  }
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++)
      for (int i = 0; i < graph->nodes.data[n].in.len; i++) {
        const zp_tensor *t = &graph->tensors.data[graph->nodes.data[n].in.data[i]];
        if (t->role == ZP_ROLE_INPUT && t->element == ZP_ELEM_I32)
          narrow(&model->inputs.data[t->index], graph, &graph->nodes.data[n], i);
      }
  }
}
