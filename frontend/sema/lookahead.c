/* SPDX-License-Identifier: Apache-2.0 */
/* Labels are the tokens that follow, but of masked data and arrays. Where attention sees them, the loss falls because
 * they are copied, and nothing is learned that helps without them. The model is legal and cheap to train by mistake: a
 * warning. */
#include "eval.h"
#include <string.h>

static bool has_labels(const zp_model *model) {
  if (!zp_model_reads_tokens(model)) return false;
  for (int i = 0; i < model->inputs.len; i++)
    if (strcmp(model->inputs.data[i].name, "labels") == 0) return true;
  return false;
}

/* Blocks are inlined: one call in the text can stand for many nodes. */
static bool is_told(zp_span span, const zp_span *told, int n) {
  for (int i = 0; i < n; i++)
    if (told[i].file == span.file && told[i].begin == span.begin) return true;
  return false;
}

void zp_check_lookahead(zp_diags *diags, const zp_spec *spec) {
  enum { MOST = 8 }; /* a model has few kinds of attention */
  zp_span told[MOST];
  int n = 0;
  bool others = spec->train.data.mask_rate > 0 || zp_data_is_arrays(&spec->train.data);
  if (others || !has_labels(spec->model)) return;
  for (int s = 0; s < spec->model->segments.len; s++) {
    const zp_graph *graph = spec->model->segments.data[s].graph;
    for (int i = 0; i < graph->nodes.len && n < MOST; i++) {
      const zp_node *node = &graph->nodes.data[i];
      if (node->op != ZP_OP_ATTENTION || node->attr.causal || is_told(node->span, told, n)) continue;
      told[n++] = node->span;
      zp_diag *d =
          zp_report(diags, ZP_Z0905, node->span, "attention with `causal = false` sees the tokens that are its labels");
      zp_diag_note(
          d, "`labels` are the tokens that follow: position i is to predict token i + 1, which this attention reads");
      zp_diag_help(d, "leave `causal = false` out, so that a position sees itself and what stands before it");
    }
  }
}
