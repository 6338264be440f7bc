/* What an eager framework keeps from forward to backward: of every operation the tensors that its derivative reads,
 * each tensor once, in the precision it was computed in. The planner's own program keeps less: it rebuilds norms and
 * gates.
 *
 *   product        its input                     norm, activation   its input
 *   a * b          both                          softmax, exp, ...  its result
 *   attention      q, k, v, result, log-sum-exp (fused)
 *   sums, constants, rotary positions, views, collectives: nothing (PyTorch derivatives.yaml)
 *
 * Without dropout's masks a GPT layer keeps 32 bytes a token and column, of the 34 of arXiv 2205.05198, equation 1.
 *
 * Checkpointing by operations (torchtitan, selective_ac_option "op"; torchtitan/parallelisms/parallelize_llama.py)
 * replays the layer but for results on a list: every second product, counted from the first, and attention. */
#include "validate_internal.h"

typedef struct keeper {
  const zp_graph *graph;
  bool *kept; /* per tensor */
} keeper;

static void keep(keeper *k, int tensor) {
  if (k->graph->tensors.data[tensor].role != ZP_ROLE_PARAM) k->kept[tensor] = true;
}

static void keep_derivative(keeper *k, const zp_node *node) {
  const int *in = node->in.data;
  switch (node->op) {
  case ZP_OP_MATMUL:
  case ZP_OP_LAYER_NORM:
  case ZP_OP_RMS_NORM:
  case ZP_OP_GELU:
  case ZP_OP_SILU:
  case ZP_OP_LOG: keep(k, in[0]); break;
  case ZP_OP_MUL:
  case ZP_OP_DIV:
    keep(k, in[0]);
    keep(k, in[1]);
    break;
  case ZP_OP_EXP:
  case ZP_OP_SQRT:
  case ZP_OP_RSQRT:
  case ZP_OP_TANH:
  case ZP_OP_SIGMOID:
  case ZP_OP_RELU:
  case ZP_OP_SOFTMAX: keep(k, node->out.data[0]); break;
  case ZP_OP_ATTENTION:
    for (int i = 0; i < node->in.len; i++) keep(k, in[i]);
    for (int i = 0; i < node->out.len; i++) keep(k, node->out.data[i]);
    break;
  default: break;
  }
}

static void keep_listed(keeper *k, const zp_node *node, int *products) {
  bool product = node->op == ZP_OP_MATMUL, attention = node->op == ZP_OP_ATTENTION;
  if (product) ++*products;
  if (attention || (product && *products % 2 == 1))
    for (int i = 0; i < node->out.len; i++) keep(k, node->out.data[i]);
}

/* An input that a gather made is kept as the share it was gathered from: tensor parallelism with a split sequence
 * gathers again in backward (arXiv 2205.05198, section 4.2.2). */
static int before_gather(const zp_graph *graph, int tensor) {
  int producer = graph->tensors.data[tensor].producer;
  if (producer < 0) return tensor;
  const zp_node *node = &graph->nodes.data[producer];
  return node->op == ZP_OP_ALL_GATHER_SEQ || node->op == ZP_OP_ENTER ? node->in.data[0] : tensor;
}

static int64_t element_bytes(const zp_tensor *tensor, int compute_bytes) {
  return tensor->element == ZP_ELEM_FLOAT ? compute_bytes : 4;
}

int64_t zp_autograd_kept_bytes(zp_arena *arena, const zp_graph *local, int64_t microbatch, int compute_bytes,
                               bool by_operations) {
  zp_arena_mark mark = zp_arena_get_mark(arena);
  keeper k = {local, ZP_NEW_ARRAY(arena, bool, local->tensors.len)};
  int products = 0;
  for (int i = 0; i < local->nodes.len; i++) {
    if (by_operations)
      keep_listed(&k, &local->nodes.data[i], &products);
    else
      keep_derivative(&k, &local->nodes.data[i]);
  }
  if (by_operations)
    for (int i = 0; i < local->carry_in.len; i++) keep(&k, local->carry_in.data[i]);
  for (int t = local->tensors.len - 1; t >= 0; t--) { /* gathers follow their shares: those are seen later */
    int share = before_gather(local, t);
    if (!k.kept[t] || share == t) continue;
    k.kept[t] = false;
    keep(&k, share);
  }
  int64_t bytes = 0;
  for (int t = 0; t < local->tensors.len; t++)
    if (k.kept[t])
      bytes += zp_shape_elements(&local->tensors.data[t].shape, microbatch) *
               element_bytes(&local->tensors.data[t], compute_bytes);
  zp_arena_rewind(arena, mark);
  return bytes;
}
