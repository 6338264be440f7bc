/* SPDX-License-Identifier: Apache-2.0 */
/* Steps and buffers of one procedure: graph nodes in order, every tensor mapped to a buffer on first use. */
#include "lower_internal.h"

#include <assert.h>
#include <zplan/sparse.h>

int zp_lower_add_buffer(zp_lowering *l, zp_procedure *p, zp_buffer buffer) {
  zp_push(l->scratch, &p->buffers, buffer);
  return p->buffers.len - 1;
}

static int param_use(const zp_graph *g, int tensor) {
  for (int i = 0; i < g->params.len; i++)
    if (g->params.data[i].tensor == tensor) return i;
  return -1;
}

void zp_lower_place_carried(const zp_lowering *l, zp_buffer *b, zp_place place, int index) {
  const zp_graph *g = l->graph;
  b->place = place;
  b->index = index;
  int64_t at = place == ZP_AT_CARRY_IN ? l->out->carries[index].at
                                       : zp_carried_elements(g, place == ZP_AT_GRAD_OUT ? &g->carry_in : &g->carry_out,
                                                             index, l->lowered->microbatch);
  b->offset = at * l->lowered->compute_bytes;
}

static void place_own(zp_lowering *l, zp_buffer *b, const zp_tensor *t, int tensor) {
  switch (t->role) {
  case ZP_ROLE_INPUT:
    b->place = ZP_AT_INPUT;
    b->index = t->index;
    break;
  case ZP_ROLE_PARAM:
    b->index = param_use(l->graph, tensor);
    b->kind = zp_kind_of(l->lowered, t->index);
    b->place = l->out->param_offset[b->index] < 0 ? ZP_AT_SHARED : ZP_AT_PARAM;
    b->offset = b->place == ZP_AT_SHARED ? 0 : l->out->param_offset[b->index];
    break;
  case ZP_ROLE_CARRY_IN: zp_lower_place_carried(l, b, ZP_AT_CARRY_IN, t->index); break;
  case ZP_ROLE_GRAD_IN: zp_lower_place_carried(l, b, ZP_AT_GRAD_IN, t->index); break;
  case ZP_ROLE_VALUE:
    if (l->saved[tensor] && l->operand[tensor] < 0 && !l->recompute) {
      b->place = ZP_AT_SAVED;
      b->offset = l->saved_offset[tensor];
    } else {
      b->place = ZP_AT_TRANSIENT;
    }
    break;
  }
}

int zp_lower_buffer(zp_lowering *l, zp_procedure *p, int *buffer_of, int tensor) {
  if (buffer_of[tensor] >= 0) return buffer_of[tensor];
  int kept = zp_lower_root(l, tensor);
  if (l->reads_kept && l->operand[kept] >= 0) {
    if (buffer_of[kept] < 0) buffer_of[kept] = zp_lower_operand_buffer(l, p, kept);
    return buffer_of[tensor] = buffer_of[kept];
  }
  const zp_tensor *t = &l->graph->tensors.data[tensor];
  zp_buffer b = {.name = t->name, .element = t->element, .base = -1, .tensor = tensor, .index = -1};
  b.rows = zp_shape_rows(&t->shape, l->lowered->microbatch);
  b.cols = zp_shape_cols(&t->shape);
  b.ld = b.cols;
  int storage = l->alias[tensor];
  if (storage >= 0) {
    b.base = zp_lower_buffer(l, p, buffer_of, storage);
    const zp_buffer *base = &p->buffers.data[b.base];
    b.place = base->place;
    b.kind = base->kind;
    b.ld = base->ld;
    b.index = base->index;
    b.offset = (base->base >= 0 ? base->offset : 0) + (t->base == storage ? t->column : 0);
    if (t->row_parts > 0) { /* rows of a tensor that has its storage alone */
      b.ld = b.cols;
      b.offset += t->row_part * b.rows * b.cols;
    }
    if (base->base >= 0) b.base = base->base;
  } else {
    b.bytes = b.rows * b.cols * zp_element_bytes(l->lowered, t->element);
    place_own(l, &b, t, tensor);
  }
  return buffer_of[tensor] = zp_lower_add_buffer(l, p, b);
}

const zp_buffer *zp_buffer_root(const zp_procedure *procedure, int b, int64_t *element_offset) {
  assert(b >= 0 && b < procedure->buffers.len && element_offset);
  const zp_buffer *buffer = &procedure->buffers.data[b];
  *element_offset = buffer->base >= 0 ? buffer->offset : 0;
  return buffer->base >= 0 ? &procedure->buffers.data[buffer->base] : buffer;
}

/* Rows of the operands that have any. */
static int64_t rows_of(const zp_lowering *l, const zp_node *node) {
  int64_t most = 1;
  for (int i = 0; i < node->in.len; i++) {
    const zp_shape *shape = &l->graph->tensors.data[node->in.data[i]].shape;
    int64_t rows = zp_shape_elements(shape, l->lowered->microbatch) / zp_shape_cols(shape);
    if (rows > most) most = rows;
  }
  return most;
}

static int row_chunks(const zp_lowering *l, const zp_node *node) {
  if (node->op != ZP_OP_FUSED_GRAD || node->param_grad.len == 0) return 0;
  if (l->lowered->spec->cluster.node.device.is_cpu) return ZP_ROW_CHUNKS_CPU;
  int64_t chunks = rows_of(l, node) * node->fused->row_parts / ZP_ROWS_OF_CHUNK_GPU;
  return chunks < 1 ? 1 : chunks < ZP_ROW_CHUNKS_GPU ? (int)chunks : ZP_ROW_CHUNKS_GPU;
}

/* A product whose epilogue adds up a bias's gradient writes the sum, and cannot add it to what is there. */
static int64_t bias_sum_bytes(const zp_lowering *l, const zp_node *node) {
  int last = node->param_grad.len - 1;
  if (zp_op_get_class(node->op) != ZP_CLASS_MATMUL || !node->fused || last < 0) return 0;
  return l->lowered->param_elements[l->graph->params.data[node->param_grad.data[last]].param] * l->lowered->grad_bytes;
}

/* Elements of an exchange of heads where all positions are: every rank has a part for every other. */
static int64_t exchanged_heads(const zp_lowering *l, const zp_node *node) {
  int there = node->op == ZP_OP_SPREAD_HEADS ? node->out.data[0] : node->in.data[0];
  return zp_shape_elements(&l->graph->tensors.data[there].shape, l->lowered->microbatch);
}

static bool exchanges_heads(const zp_node *node) {
  return node->op == ZP_OP_SPREAD_HEADS || node->op == ZP_OP_RETURN_HEADS;
}

/* Scratch memory of a step: partial column sums, or a bias's sum; attention tiles (GPUs have theirs in shared memory),
 * and what backward on tensor cores knows of queries. 0: none. */
static int64_t workspace_bytes(const zp_lowering *l, const zp_node *node, int chunks) {
  if (node->op == ZP_OP_FUSED_GRAD) {
    int64_t cols = 0;
    for (int i = 0; i < node->param_grad.len; i++)
      cols += l->lowered->param_elements[l->graph->params.data[node->param_grad.data[i]].param];
    return cols * chunks * l->lowered->stat_bytes;
  }
  /* What goes to a rank, or comes from it, stands together; sums of heads that several ranks had, side by side. */
  if (exchanges_heads(node))
    return exchanged_heads(l, node) * l->lowered->compute_bytes *
           (node->op == ZP_OP_RETURN_HEADS && node->attr.heads % node->attr.parts ? 2 : 1);
  bool attends = node->op == ZP_OP_ATTENTION || node->op == ZP_OP_ATTENTION_GRAD;
  bool grad = node->op == ZP_OP_ATTENTION_GRAD;
  int64_t positions = attends ? zp_attention_most(l->graph, node) : 0;
  if (l->lowered->spec->cluster.node.device.is_cpu && attends)
    return zp_attention_workspace(l->lowered->compute_bytes, positions, node->attr.head_size,
                                  node->attr.heads / node->attr.kv_heads, grad) *
               zp_attention_shares(l, node) +
           zp_attention_bias_bytes(l, node, grad) + zp_attention_merge_bytes(l, node, grad);
  if (attends && l->lowered->spec->cluster.trainer == ZP_TRAINER_ZPLAN)
    return zp_attention_bias_bytes(l, node, grad) + zp_attention_merge_bytes(l, node, grad) +
           (grad && zp_tensor_core_head(l->lowered->spec) > 0
                ? zp_attention_facts_bytes(l->lowered->microbatch, node->attr.heads, positions)
                : 0);
  return bias_sum_bytes(l, node);
}

static bool is_routed(const zp_node *node) {
  return (node->op == ZP_OP_SPREAD_SLOTS || node->op == ZP_OP_RETURN_SLOTS) && node->in.len > 1;
}

static zp_ring ring_of(const zp_lowering *l, const zp_node *node) {
  if (zp_op_get_class(node->op) != ZP_CLASS_ATTENTION || node->attr.parts <= 1) return (zp_ring){0};
  const zp_layout *layout = node->attr.layout;
  const double *pairs = layout ? zp_layout_between(l->steps, layout, 2 * (int)node->attr.parts) : NULL;
  if (!node->attr.ring) return (zp_ring){.pairs = pairs};
  const zp_shape *keys = &l->graph->tensors.data[node->in.data[1]].shape;
  return (zp_ring){.ranks = (int)node->attr.parts,
                   .pairs = pairs,
                   .rows = keys->dim[1] / 2,
                   .window = node->attr.window,
                   .half_elements = zp_shape_elements(keys, l->lowered->microbatch),
                   .causal = node->attr.causal};
}

static int64_t comm_elements(const zp_lowering *l, const zp_node *node, const zp_ring *ring) {
  if (ring->ranks > 0) return zp_ring_elements(ring) * (node->op == ZP_OP_ATTENTION_GRAD ? 2 : 1); /* and gradients */
  if (exchanges_heads(node)) return exchanged_heads(l, node);
  if (node->op == ZP_OP_GATHER_CHOICES) return l->lowered->microbatch * node->attr.experts; /* a rank's counts */
  if (node->op == ZP_OP_SPREAD_COUNTS) return node->attr.experts;
  if (is_routed(node)) { /* as many rows as the rank has choices: an even load, of which one rank's share stays */
    const zp_shape *rows = &l->graph->tensors.data[node->in.data[0]].shape;
    return l->lowered->microbatch * node->attr.slots * node->attr.top_k * zp_shape_cols(rows);
  }
  if (zp_op_get_class(node->op) != ZP_CLASS_COMM || node->op == ZP_OP_ENTER) return 0;
  return zp_shape_elements(&l->graph->tensors.data[node->in.data[0]].shape, l->lowered->microbatch);
}

bool zp_lower_is_written(const zp_lowering *l, const zp_procedure *p, const zp_step *step, int use) {
  if (l->lowered->zero_first[l->graph->params.data[use].param]) return true;
  for (int s = 0; s < p->steps.len; s++)
    for (int i = 0; i < p->steps.data[s].sums.len; i++)
      if (p->steps.data[s].sums.data[i].use == use) return true;
  for (int i = 0; i < step->sums.len; i++)
    if (step->sums.data[i].use == use) return true;
  return false;
}

static zp_ints buffers_of(zp_lowering *l, zp_procedure *p, int *buffer_of, const zp_ints *tensors) {
  int n = tensors->len;
  zp_ints buffers = {ZP_ROOM_FOR(l->details, int, n), n, n};
  for (int i = 0; i < n; i++) buffers.data[i] = zp_lower_buffer(l, p, buffer_of, tensors->data[i]);
  return buffers;
}

/* Is an operand of the weight's gradient there as its product reads it? */
static bool reads_kept(const zp_lowering *l, const zp_node *node) {
  return node->op == ZP_OP_MATMUL_WGRAD && l->reads_kept && l->operand[zp_lower_root(l, node->in.data[1])] >= 0;
}

void zp_lower_node(zp_lowering *l, zp_procedure *p, int *buffer_of, const zp_node *node) {
  zp_step step = {.kind = ZP_STEP_NODE, .op = node->op, .node = node, .workspace = -1};
  step.in = buffers_of(l, p, buffer_of, &node->in);
  step.out = buffers_of(l, p, buffer_of, &node->out);
  zp_reserve(l->steps, &step.sums, node->param_grad.len);
  for (int i = 0; i < node->param_grad.len; i++) {
    int use = node->param_grad.data[i];
    zp_param_sum sum = {use, zp_lower_is_written(l, p, &step, use)};
    zp_push(l->steps, &step.sums, sum);
  }
  step.row_chunks = row_chunks(l, node);
  int64_t scratch = workspace_bytes(l, node, step.row_chunks);
  if (scratch > 0)
    step.workspace = zp_lower_add_buffer(l, p,
                                         (zp_buffer){.name = zp_format(l->details, "%s.workspace", node->name),
                                                     .place = ZP_AT_TRANSIENT,
                                                     .rows = 1,
                                                     .cols = scratch / l->lowered->compute_bytes,
                                                     .ld = scratch / l->lowered->compute_bytes,
                                                     .bytes = scratch,
                                                     .base = -1,
                                                     .tensor = -1,
                                                     .index = -1});
  step.flop = zp_node_flop(l->graph, node, l->lowered->microbatch);
  int compute = l->lowered->compute_bytes, sum = l->lowered->spec->cluster.software ? compute : l->lowered->grad_bytes;
  step.bytes = zp_node_bytes(l->graph, node, l->lowered->microbatch, compute, sum); /* others' sums: their profiles */
  step.ring = ring_of(l, node);
  step.comm_elements = comm_elements(l, node, &step.ring);
  step.routed = is_routed(node);
  step.reads_kept = reads_kept(l, node);
  zp_push(l->scratch, &p->steps, step);
}

void zp_lower_nodes(zp_lowering *l, zp_procedure *p, int *buffer_of, int first, int last, const bool *keep) {
  for (int n = first; n < last; n++) {
    const zp_node *node = &l->graph->nodes.data[n];
    if (keep && !keep[n]) continue;
    if (zp_op_get_class(node->op) == ZP_CLASS_VIEW || node->op == ZP_OP_ENTER) { /* storage only, nothing to do */
      for (int i = 0; i < node->out.len; i++) zp_lower_buffer(l, p, buffer_of, node->out.data[i]);
      continue;
    }
    zp_lower_node(l, p, buffer_of, node);
    if (l->keeps_operands && !l->reads_kept) zp_lower_keep_operands(l, p, buffer_of, n);
  }
}
