/* SPDX-License-Identifier: Apache-2.0 */
/* What an eager framework keeps from forward to backward: of every operation the tensors that its derivative reads,
 * each tensor once, in the precision it was computed in. The planner's own program keeps less: it rebuilds norms and
 * gates. And the most that one unit's backward holds: what is still kept, and gradients that are on their way.
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
#include "software_memory.h"

typedef struct keeper {
  const zp_graph *graph;
  bool *kept; /* per tensor */
} keeper;

static void keep(keeper *k, int tensor) {
  if (k->graph->tensors.data[tensor].role != ZP_ROLE_PARAM) k->kept[tensor] = true;
}

static void keep_derivative(keeper *k, const zp_node *node) {
  for (int i = 0; i < node->in.len && zp_op_has(node->op, ZP_FLAG_AUTOGRAD_OPERANDS); i++) keep(k, node->in.data[i]);
  for (int i = 0; i < node->out.len && zp_op_has(node->op, ZP_FLAG_AUTOGRAD_RESULTS); i++) keep(k, node->out.data[i]);
}

static void keep_listed(keeper *k, const zp_node *node, int *products) {
  bool product = node->op == ZP_OP_MATMUL, attention = node->op == ZP_OP_ATTENTION;
  if (product) ++*products;
  if (attention || (product && *products % 2 == 1))
    for (int i = 0; i < node->out.len; i++) keep(k, node->out.data[i]);
}

/* Context ranks that gather keys and values. */
static bool is_read_by_keys(const zp_graph *graph, int tensor) {
  for (int i = 0; i < graph->nodes.len; i++) {
    const zp_node *node = &graph->nodes.data[i];
    bool by_keys = node->op == ZP_OP_ATTENTION && node->attr.parts > 1;
    if (by_keys && (node->in.data[1] == tensor || node->in.data[2] == tensor)) return true;
  }
  return false;
}

/* An input that a gather made is kept as the share it was gathered from: tensor parallelism with a split sequence
 * gathers again in backward (arXiv 2205.05198, section 4.2.2), and so do context ranks. */
static int before_gather(const zp_graph *graph, int tensor) {
  int producer = graph->tensors.data[tensor].producer;
  if (producer < 0) return tensor;
  const zp_node *node = &graph->nodes.data[producer];
  bool keys = node->op == ZP_OP_SPREAD_HEADS && is_read_by_keys(graph, tensor);
  return keys || node->op == ZP_OP_ALL_GATHER_SEQ || node->op == ZP_OP_ENTER ? node->in.data[0] : tensor;
}

static int64_t tensor_bytes(const zp_graph *graph, int tensor, int64_t microbatch, int compute_bytes) {
  const zp_tensor *t = &graph->tensors.data[tensor];
  return zp_shape_elements(&t->shape, microbatch) * (t->element == ZP_ELEM_FLOAT ? compute_bytes : 4);
}

static void keep_shares(keeper *k) {
  for (int t = k->graph->tensors.len - 1; t >= 0; t--) { /* gathers follow their shares: those are seen later */
    int share = before_gather(k->graph, t);
    if (share == t || !k->kept[t]) continue;
    k->kept[t] = false;
    keep(k, share);
  }
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
  keep_shares(&k);
  int64_t bytes = 0;
  for (int t = 0; t < local->tensors.len; t++)
    if (k.kept[t]) bytes += tensor_bytes(local, t, microbatch, compute_bytes);
  zp_arena_rewind(arena, mark);
  return bytes;
}

/* ---- backward ---- */

typedef struct walk {
  const zp_graph *graph;
  int64_t microbatch;
  int compute_bytes;
  int *freed_at;     /* per tensor: the node whose backward is its last reader; -1: not kept */
  int64_t *gradient; /* bytes of the tensor's gradient that are taken now */
  bool fresh;        /* weights' gradients are tensors of their own before they are added */
  int64_t live, most;
} walk;

/* Nodes run backwards, so the first that reads a tensor is the last that needs it. */
static void find_last_readers(zp_arena *arena, walk *w) {
  const zp_graph *graph = w->graph;
  for (int t = 0; t < graph->tensors.len; t++) w->freed_at[t] = -1;
  for (int i = graph->nodes.len - 1; i >= 0; i--) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    keeper k = {graph, ZP_NEW_ARRAY(arena, bool, graph->tensors.len)};
    keep_derivative(&k, &graph->nodes.data[i]);
    keep_shares(&k);
    for (int t = 0; t < graph->tensors.len; t++)
      if (k.kept[t]) w->freed_at[t] = i;
    zp_arena_rewind(arena, mark);
  }
}

static void take(walk *w, int64_t bytes) {
  w->live += bytes;
  if (w->live > w->most) w->most = w->live;
}

/* A gradient that is another's: its bytes are counted there. */
enum { SHARED = -1 };

/* Whose gradient is the result's own: sums, and collectives that are the identity one way and work in place the
 * other. */
static bool passes_on(const zp_node *node) {
  return node->op == ZP_OP_ADD || node->op == ZP_OP_ALL_REDUCE || node->op == ZP_OP_ENTER;
}

/* What the results' gradients hold when their node runs backwards. */
typedef struct arrived {
  int64_t bytes;
  bool shared;
} arrived;

static void pass_on(walk *w, int t, int64_t bytes, bool first, arrived *from) {
  if (w->gradient[t]) return; /* added in place */
  bool takes = first && !from->shared;
  w->gradient[t] = takes ? bytes : SHARED;
  from->bytes -= takes ? bytes : 0;
}

/* The gradient of one input: the result's own, a new one, or one that is added to what another reader left. */
static void reach(walk *w, const zp_node *node, int index, arrived *from) {
  int t = node->in.data[index];
  const zp_tensor *tensor = &w->graph->tensors.data[t];
  bool parameter = tensor->role == ZP_ROLE_PARAM;
  if (tensor->element != ZP_ELEM_FLOAT || (parameter && !w->fresh)) return;
  int64_t bytes = tensor_bytes(w->graph, t, w->microbatch, w->compute_bytes);
  if (passes_on(node) && !parameter) {
    pass_on(w, t, bytes, index == 0, from);
    return;
  }
  take(w, bytes);
  if (parameter || w->gradient[t])
    w->live -= bytes; /* added, and gone */
  else
    w->gradient[t] = bytes;
}

static void go_back(walk *w, int i) {
  const zp_node *node = &w->graph->nodes.data[i];
  arrived from = {0, false};
  for (int o = 0; o < node->out.len; o++) {
    int64_t bytes = w->gradient[node->out.data[o]];
    from.shared |= bytes == SHARED;
    from.bytes += bytes > 0 ? bytes : 0;
  }
  for (int k = 0; k < node->in.len; k++) reach(w, node, k, &from);
  w->live -= from.bytes;
  for (int o = 0; o < node->out.len; o++) w->gradient[node->out.data[o]] = 0;
  for (int t = 0; t < w->graph->tensors.len; t++)
    if (w->freed_at[t] == i) w->live -= tensor_bytes(w->graph, t, w->microbatch, w->compute_bytes);
}

int64_t zp_autograd_backward_bytes(zp_arena *arena, const zp_graph *local, int64_t microbatch, int compute_bytes,
                                   const zp_autograd_scores *scores, bool fresh) {
  zp_arena_mark mark = zp_arena_get_mark(arena);
  int n = local->tensors.len;
  walk w = {.graph = local,
            .microbatch = microbatch,
            .compute_bytes = compute_bytes,
            .freed_at = ZP_NEW_ARRAY(arena, int, n),
            .gradient = ZP_NEW_ARRAY(arena, int64_t, n),
            .fresh = fresh};
  find_last_readers(arena, &w);
  for (int t = 0; t < n; t++)
    if (w.freed_at[t] >= 0) take(&w, tensor_bytes(local, t, microbatch, compute_bytes));
  take(&w, scores->kept);
  for (int i = 0; i < local->carry_out.len; i++) {
    int t = local->carry_out.data[i];
    take(&w, w.gradient[t] = tensor_bytes(local, t, microbatch, compute_bytes));
  }
  for (int i = local->nodes.len - 1; i >= 0; i--) {
    bool attention = local->nodes.data[i].op == ZP_OP_ATTENTION;
    if (attention) take(&w, scores->gradient);
    go_back(&w, i);
    if (attention) w.live -= scores->gradient + scores->kept;
  }
  zp_arena_rewind(arena, mark);
  return w.most;
}

int64_t zp_autograd_joint_bytes(const zp_graph *local, int64_t microbatch, int compute_bytes) {
  int64_t bytes = 0;
  for (int i = 0; i < local->nodes.len; i++) {
    const zp_node *node = &local->nodes.data[i];
    if (node->op != ZP_OP_ATTENTION || node->attr.heads != node->attr.kv_heads) continue;
    for (int k = 1; k < 3; k++) bytes += tensor_bytes(local, node->in.data[k], microbatch, compute_bytes);
  }
  return bytes;
}
