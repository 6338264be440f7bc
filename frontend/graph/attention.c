/* What attention sees: keys of a query on average, as a share of dense attention, in words. */
#include <assert.h>
#include <math.h>
#include <string.h>
#include <zplan/sparse.h>
#include "graph_internal.h"

/* In a window: of causal attention `window` keys, but for the first queries, before which fewer stand; as in dense
 * attention half of a query's pair with itself is counted. Both ways there are as many on the other side. */
static double window_keys(const zp_op_attr *attr, double sequence) {
  double window = (double)attr->window, one_side = window - 0.5 - window * (window - 1) / (2 * sequence);
  return attr->causal ? one_side : 2 * one_side;
}

double zp_attention_keys(const zp_op_attr *attr, int64_t sequence) {
  assert(sequence >= 1 && attr->window >= 0 && attr->window < sequence + 1);
  if (attr->layout) return zp_layout_longest(attr->layout, attr->heads).seen / (double)sequence;
  if (attr->window) return window_keys(attr, (double)sequence);
  return (double)sequence * (attr->causal ? 0.5 : 1);
}

double zp_attention_reach(const zp_op_attr *attr, double sequence) {
  assert(sequence >= 1);
  return attr->window ? fmin((double)attr->window, sequence) : sequence;
}

double zp_attention_density(const zp_op_attr *attr, int64_t sequence) {
  return zp_attention_keys(attr, sequence) / ((double)sequence * (attr->causal ? 0.5 : 1));
}

static void add_new(zp_arena *arena, zp_strings *list, const char *text) {
  for (int i = 0; i < list->len; i++)
    if (strcmp(list->data[i], text) == 0) return;
  zp_push(arena, list, text);
}

zp_strings zp_attention_texts(zp_arena *arena, const zp_model *model) {
  zp_strings list = {0};
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++) {
      const zp_op_attr *attr = &graph->nodes.data[n].attr;
      if (attr->layout) add_new(arena, &list, zp_layout_text(arena, attr->layout));
      if (attr->window)
        add_new(arena, &list,
                zp_format(arena, "window of %lld tokens, %s: %.3g%% of dense attention", (long long)attr->window,
                          attr->causal ? "causal" : "both ways", 100 * zp_attention_density(attr, model->sequence)));
    }
  }
  return list;
}
