/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: sharded segments -> procedures of steps over buffers.
 *
 * Owns: what a procedure consists of, and the steps around it (kept shards, copies). storage.c owns what is kept from
 * forward to backward, split.c backward in two parts, memory.c places transients, layout.c places everything on a
 * stage.
 *
 * Without recomputation every forward value that backward reads stays in the unit's slot. With full recomputation a
 * repeated segment keeps its input only; backward begins with the forward nodes that its own nodes need (dead ones,
 * such as the last matmul and its all-reduce, are left out). selective.c owns the middle way. Segments outside repeats
 * are never recomputed: the first reads token ids only and the last has one micro-batch in flight. */
#include "lower_internal.h"

#include <assert.h>
#include <zplan/moves.h>

/* Forward nodes that the backward part needs, transitively. */
static bool *find_needed(const zp_lowering *l) {
  const zp_graph *g = l->graph;
  bool *keep = ZP_NEW_ARRAY(l->scratch, bool, g->nodes.len + 1);
  bool *want = ZP_NEW_ARRAY(l->scratch, bool, g->tensors.len + 1);
  for (int n = g->nodes.len - 1; n >= 0; n--) {
    const zp_node *node = &g->nodes.data[n];
    bool live = n >= g->n_forward;
    for (int i = 0; i < node->out.len && !live; i++) {
      live = want[node->out.data[i]];
      for (int t = 0; t < g->tensors.len && !live; t++) live = want[t] && g->tensors.data[t].base == node->out.data[i];
    }
    if (!live) continue;
    keep[n] = true;
    for (int i = 0; i < node->in.len; i++) want[node->in.data[i]] = true;
  }
  return keep;
}

static void add_copy(zp_lowering *l, zp_procedure *p, int from, int to) {
  zp_step step = {.kind = ZP_STEP_COPY, .workspace = -1};
  zp_push(l->details, &step.in, from);
  zp_push(l->details, &step.out, to);
  step.bytes = 2.0 * (double)(p->buffers.data[to].rows * p->buffers.data[to].cols * l->lowered->compute_bytes);
  zp_push(l->scratch, &p->steps, step);
}

/* A buffer shaped like a tensor of the graph. */
static zp_buffer shaped_like(const zp_lowering *l, int tensor, const char *name) {
  const zp_tensor *t = &l->graph->tensors.data[tensor];
  int64_t rows = zp_shape_rows(&t->shape, l->lowered->microbatch), cols = zp_shape_cols(&t->shape);
  return (zp_buffer){.name = name,
                     .element = ZP_ELEM_FLOAT,
                     .rows = rows,
                     .cols = cols,
                     .ld = cols,
                     .base = -1,
                     .tensor = -1,
                     .index = -1};
}

/* What flows out of a procedure: carried tensors, or the gradients of what came in. */
typedef struct flow {
  const zp_ints *tensors;
  zp_place place;
  const char *name; /* of the first one; the others have their own */
} flow;

/* A buffer for tensor `index` of them among the procedure's arguments. */
static int flow_buffer(zp_lowering *l, zp_procedure *p, const flow *f, int index, int tensor) {
  zp_buffer b = shaped_like(l, tensor, index > 0 ? l->graph->tensors.data[tensor].name : f->name);
  zp_lower_place_carried(l, &b, f->place, index);
  return zp_lower_add_buffer(l, p, b);
}

static int *no_buffers(const zp_lowering *l) {
  int *buffer_of = ZP_NEW_ARRAY(l->scratch, int, l->graph->tensors.len + 1);
  for (int t = 0; t < l->graph->tensors.len; t++) buffer_of[t] = -1;
  return buffer_of;
}

static int kept_shard_buffer(zp_lowering *l, zp_procedure *p) {
  int64_t kept = l->out->carry_kept_elements;
  return zp_lower_add_buffer(l, p,
                             (zp_buffer){.name = "kept_input",
                                         .place = ZP_AT_SAVED,
                                         .element = ZP_ELEM_FLOAT,
                                         .rows = 1,
                                         .cols = kept,
                                         .ld = kept,
                                         .bytes = kept * l->lowered->compute_bytes,
                                         .base = -1,
                                         .tensor = -1,
                                         .index = -1});
}

/* Tensors whose storage is an argument: assigned before the steps are made. A value that must also be kept, that is the
 * input itself, or that flows out twice, is copied at the end instead: `copy`, for each. */
static void bind_outputs(zp_lowering *l, zp_procedure *p, int *buffer_of, const flow *f, bool *copy) {
  for (int i = 0; i < f->tensors->len; i++) {
    int tensor = f->tensors->data[i], root = zp_lower_root(l, tensor);
    const zp_tensor *t = &l->graph->tensors.data[root];
    copy[i] = t->role != ZP_ROLE_VALUE || (l->saved[root] && l->operand[root] < 0 && !l->recompute) ||
              buffer_of[root] >= 0 || !zp_shape_equal(&t->shape, &l->graph->tensors.data[tensor].shape);
    if (copy[i]) continue;
    buffer_of[root] = flow_buffer(l, p, f, i, root);
    p->buffers.data[buffer_of[root]].tensor = root;
  }
}

static void copy_outputs(zp_lowering *l, zp_procedure *p, int *buffer_of, const flow *f, const bool *copy) {
  for (int i = 0; i < f->tensors->len; i++) {
    if (!copy[i]) continue;
    int from = zp_lower_buffer(l, p, buffer_of, f->tensors->data[i]);
    add_copy(l, p, from, flow_buffer(l, p, f, i, f->tensors->data[i]));
    if (f->place != ZP_AT_CARRY_OUT || i >= l->graph->carry_in.len || !l->out->carries[i].passes) continue;
    zp_step *step = &p->steps.data[p->steps.len - 1];
    step->hands_on = true;
    step->bytes = 0; /* once a chunk: moves/stream_ends.c */
  }
}

/* The first tensor from `i` on that comes in and is no stream; graph->carry_in.len: there is none more. */
static int next_own(const zp_lowering *l, int i) {
  while (i < l->graph->carry_in.len && l->out->carries[i].stream >= 0) i++;
  return i;
}

/* A buffer for every tensor and workspace, a step for every node, and what is around them. */
static void make_room(zp_lowering *l, zp_procedure *p, int tensors, int nodes) {
  int around = 4 + l->graph->carry_in.len + l->graph->carry_out.len;
  zp_reserve(l->scratch, &p->buffers, tensors + nodes + around);
  zp_reserve(l->scratch, &p->steps, nodes + around);
}

static void lower_forward(zp_lowering *l, zp_procedure *p) {
  const zp_graph *g = l->graph;
  make_room(l, p, g->tensors.len, g->n_forward);
  int *buffer_of = no_buffers(l);
  flow out = {&g->carry_out, ZP_AT_CARRY_OUT, "y"};
  bool *copy = ZP_NEW_ARRAY(l->scratch, bool, g->carry_out.len + 1);
  bind_outputs(l, p, buffer_of, &out, copy);
  if (l->shard) { /* the first tensor of its own stands where all of them begin */
    zp_step keep = {.kind = ZP_STEP_KEEP_SHARD, .workspace = -1};
    zp_push(l->details, &keep.in, zp_lower_buffer(l, p, buffer_of, g->carry_in.data[next_own(l, 0)]));
    int kept = kept_shard_buffer(l, p);
    zp_push(l->details, &keep.out, kept);
    keep.bytes = 2.0 * (double)p->buffers.data[kept].bytes;
    zp_push(l->scratch, &p->steps, keep);
  }
  zp_lower_nodes(l, p, buffer_of, 0, g->n_forward - g->n_loss, NULL);
  copy_outputs(l, p, buffer_of, &out, copy);
  zp_color_transients(l->scratch, p);
}

/* The loss without gradients: reads what forward keeps. */
static void lower_loss(zp_lowering *l, zp_procedure *p) {
  const zp_graph *g = l->graph;
  make_room(l, p, g->tensors.len, g->n_loss);
  zp_lower_nodes(l, p, no_buffers(l), g->n_forward - g->n_loss, g->n_forward, NULL);
  zp_color_transients(l->scratch, p);
}

/* Backward's own input x: the argument, or gathered from the shards into a transient buffer, where several tensors are
 * parts of it. */
static void gather_input(zp_lowering *l, zp_procedure *p, int *buffer_of) {
  const zp_graph *g = l->graph;
  int64_t all = l->out->carry_kept_elements * l->lowered->sharding->tensor;
  zp_step gather = {.kind = ZP_STEP_GATHER_SHARD, .workspace = -1, .comm_elements = l->out->carry_kept_elements};
  zp_push(l->details, &gather.in, kept_shard_buffer(l, p));
  int first = next_own(l, 0);
  bool one = next_own(l, first + 1) == g->carry_in.len;
  zp_buffer whole = shaped_like(l, g->carry_in.data[first], "x");
  whole.place = ZP_AT_TRANSIENT;
  whole.bytes = all * l->lowered->compute_bytes;
  if (one)
    whole.tensor = g->carry_in.data[first];
  else
    whole.rows = 1, whole.cols = whole.ld = all;
  int b = zp_lower_add_buffer(l, p, whole);
  if (one) buffer_of[g->carry_in.data[first]] = b;
  for (int i = first; i < g->carry_in.len && !one; i = next_own(l, i + 1)) {
    int tensor = g->carry_in.data[i];
    zp_buffer part = shaped_like(l, tensor, g->tensors.data[tensor].name);
    part.place = ZP_AT_TRANSIENT;
    part.offset = l->out->carries[i].at;
    part.base = b;
    part.tensor = tensor;
    buffer_of[tensor] = zp_lower_add_buffer(l, p, part);
  }
  zp_push(l->details, &gather.out, b);
  gather.bytes = 2.0 * (double)p->buffers.data[b].bytes;
  zp_push(l->scratch, &p->steps, gather);
}

static void lower_backward(zp_lowering *l, zp_procedure *p) {
  const zp_graph *g = l->graph;
  make_room(l, p, g->tensors.len, g->nodes.len);
  int *buffer_of = no_buffers(l);
  l->reads_kept = true;
  flow out = {&g->grad_out, ZP_AT_GRAD_OUT, "dx"};
  bool *copy = ZP_NEW_ARRAY(l->scratch, bool, g->grad_out.len + 1);
  for (int i = 0; i < g->carry_in.len; i++)
    if (i >= g->grad_out.len || g->grad_out.data[i] < 0) {
      l->reason = zp_format(l->arena, "no gradient flows back through segment `%s`", l->out->segment->name);
      return;
    }
  bind_outputs(l, p, buffer_of, &out, copy);
  if (l->shard) gather_input(l, p, buffer_of);
  if (l->recompute) zp_lower_nodes(l, p, buffer_of, 0, g->n_forward, find_needed(l));
  for (int i = 0; i < l->rebuilds.len; i++) zp_lower_node(l, p, buffer_of, l->rebuilds.data[i]);
  p->n_recompute = p->steps.len;
  zp_lower_nodes(l, p, buffer_of, g->n_forward, g->nodes.len, NULL);
  copy_outputs(l, p, buffer_of, &out, copy);
  zp_color_transients(l->scratch, p);
}

/* Kernels that take no leading dimension: losses, collectives, lookups, routing, positions, copies. */
static bool wants_whole_rows(const zp_step *step) {
  if (step->kind != ZP_STEP_NODE) return true;
  zp_op_class class = zp_op_get_class(step->op);
  return class == ZP_CLASS_LOSS || class == ZP_CLASS_COMM || class == ZP_CLASS_ROUTING || class == ZP_CLASS_POSITIONS ||
         (class == ZP_CLASS_LOOKUP && step->op != ZP_OP_POSITION_GRAD);
}

/* Exchanges of heads put together what goes to a rank, so their own side may be columns of a wider tensor. */
static bool takes_columns(const zp_step *step, int operand) {
  return (step->op == ZP_OP_SPREAD_HEADS && operand == 0) || (step->op == ZP_OP_RETURN_HEADS && operand == 1);
}

static void refuse_strided(zp_lowering *l, const zp_procedure *p) {
  for (int s = 0; s < p->steps.len; s++) {
    const zp_step *step = &p->steps.data[s];
    if (!wants_whole_rows(step)) continue;
    for (int i = 0; i < step->in.len + step->out.len; i++) {
      const zp_buffer *b = &p->buffers.data[i < step->in.len ? step->in.data[i] : step->out.data[i - step->in.len]];
      if (b->ld != b->cols && !takes_columns(step, i))
        l->reason = zp_format(l->arena, "`%s` is a part of a wider tensor where %s needs one of its own", b->name,
                              step->node ? zp_op_name(step->op) : "the carried tensor");
    }
  }
}

/* What they name is in scratch memory. */
static void leave_details(zp_procedure *p) {
  p->buffers.len = 0;
  for (int i = 0; i < p->steps.len; i++) {
    zp_step *step = &p->steps.data[i];
    memset(&step->in, 0, sizeof step->in);
    memset(&step->out, 0, sizeof step->out);
  }
}

/* From where it grew to where it stays. */
static void move_procedure(zp_arena *arena, zp_procedure *p) {
  zp_buffer *buffers = ZP_NEW_ARRAY(arena, zp_buffer, p->buffers.len);
  zp_step *steps = ZP_NEW_ARRAY(arena, zp_step, p->steps.len);
  if (p->buffers.len) memcpy(buffers, p->buffers.data, sizeof *buffers * (size_t)p->buffers.len);
  if (p->steps.len) memcpy(steps, p->steps.data, sizeof *steps * (size_t)p->steps.len);
  p->buffers.data = buffers, p->buffers.cap = p->buffers.len;
  p->steps.data = steps, p->steps.cap = p->steps.len;
}

static bool has_products(const zp_procedure *p) {
  for (int i = 0; i < p->steps.len; i++) {
    const zp_step *step = &p->steps.data[i];
    zp_op_class class = step->kind == ZP_STEP_NODE ? zp_op_get_class(step->op) : ZP_CLASS_VIEW;
    if (class == ZP_CLASS_MATMUL || class == ZP_CLASS_GROUPED) return true;
  }
  return false;
}

/* Segment or piece `index`; graph: of one tensor rank, fused and differentiated. */
static void lower_segment(zp_arena *arena, zp_arena *scratch, zp_lowered *lowered, int index, const zp_graph *graph,
                          const char **reason) {
  const zp_segment *segment = &lowered->pieces->piece[index].segment;
  zp_segment_program *out = &lowered->segments[index];
  zp_arena_mark mark = zp_arena_get_mark(scratch);
  zp_lowering l = {.arena = arena, .scratch = scratch, .lowered = lowered, .out = out};
  l.details = lowered->outline ? scratch : arena;
  l.steps = lowered->outline ? lowered->outline : arena;
  l.graph = out->graph = graph;
  zp_lower_set_carries(arena, lowered, index, out);
  l.recompute = lowered->recompute == ZP_RECOMPUTE_FULL && segment->is_repeat;
  l.shard = l.recompute && lowered->recompute_shard && lowered->sharding->tensor > 1 && !lowered->sharding->sequence &&
            out->carry_own_elements > 0;
  out->segment = segment;
  out->uses_shared = ZP_NEW_ARRAY(arena, bool, lowered->shared.len + 1);
  for (int i = 0; i < out->graph->params.len; i++)
    for (int k = 0; k < lowered->shared.len; k++)
      out->uses_shared[k] |= lowered->shared.data[k] == out->graph->params.data[i].param;
  out->param_offset = ZP_NEW_ARRAY(arena, int64_t, out->graph->params.len + 1);
  for (int i = 0; i < out->graph->params.len; i++) {
    int param = out->graph->params.data[i].param;
    bool shared = lowered->spec->model->params.data[param].segment < 0;
    int64_t *sum = &out->elements.of[zp_kind_of(lowered, param)];
    out->param_offset[i] = shared ? -1 : *sum;
    if (!shared) *sum += zp_round_up(lowered->param_elements[param], ZP_ALIGN_ELEMENTS);
  }
  zp_moves_lower_segment(lowered, out);
  int64_t t = lowered->sharding->tensor;
  out->carry_in_elements = zp_carried_elements(graph, &graph->carry_in, graph->carry_in.len, lowered->microbatch);
  out->carry_out_elements = zp_carried_elements(graph, &graph->carry_out, graph->carry_out.len, lowered->microbatch);
  out->carry_kept_elements = l.shard ? (out->carry_own_elements + t - 1) / t : out->carry_own_elements;
  zp_lower_find_aliases(&l);
  zp_lower_find_saved(&l);
  zp_lower_find_operands(&l);
  zp_lower_select(&l);
  zp_lower_place_saved(&l);
  out->forward.name = zp_format(arena, "%s_forward", segment->name);
  out->backward.name = zp_format(arena, "%s_backward", segment->name);
  out->loss.name = zp_format(arena, "%s_loss", segment->name);
  if (!l.reason) lower_forward(&l, &out->forward);
  if (!l.reason && l.graph->n_loss > 0) lower_loss(&l, &out->loss);
  if (!l.reason) lower_backward(&l, &out->backward);
  if (!l.reason) zp_lower_mark_deferred(&out->backward);
  if (!l.reason && lowered->splits) zp_lower_split(&l);
  if (!l.reason) refuse_strided(&l, &out->forward);
  if (!l.reason) refuse_strided(&l, &out->backward);
  if (!l.reason) refuse_strided(&l, &out->loss);
  if (l.reason && !*reason) *reason = l.reason;
  out->reads_numbers = zp_graph_reads_numbers(out->graph);
  if (has_products(&out->forward) || has_products(&out->backward))
    out->products_bytes = zp_products_bytes(lowered->spec);
  zp_procedure *const all[] = {&out->forward, &out->backward, &out->split, &out->loss};
  for (int i = 0; i < 4; i++) {
    if (lowered->outline) leave_details(all[i]);
    move_procedure(l.steps, all[i]);
  }
  zp_arena_rewind(scratch, mark);
}

int64_t zp_element_bytes(const zp_lowered *lowered, zp_element element) {
  assert(element <= ZP_ELEM_STAT);
  return element == ZP_ELEM_I32 ? 4 : element == ZP_ELEM_STAT ? lowered->stat_bytes : lowered->compute_bytes;
}

/* Bytes of the storage formats. Mixed precision as in the ZeRO paper (arXiv 1910.02054, section 3.1), but for the
 * gradients, which are sums: 2-byte weights, 4-byte gradients and master weights; moments and the average of the
 * weights have the accumulation type. */
static void set_formats(zp_lowered *l, const zp_train *train, const zp_software *software) {
  bool mixed = zp_is_mixed(train);
  l->compute_bytes = zp_precision_bytes(train->precision);
  l->stat_bytes = zp_precision_real_bytes(train->precision);
  l->param_bytes = l->compute_bytes;
  l->least_param_bytes = zp_software_least_weight_bytes(software, train, l->param_bytes);
  l->grad_bytes = zp_software_grad_bytes(software, train->precision, l->compute_bytes);
  l->sum_bytes = train->stochastic_sums ? 2 : l->grad_bytes;
  l->average_bytes = train->ema > 0 ? l->stat_bytes : 0;
  l->state_bytes = zp_n_kept(train) * l->stat_bytes + (mixed ? 4 : 0) + l->average_bytes;
}

/* Tables whose rows are looked up: of embeddings, of relative biases. */
static bool feeds_lookup(const zp_graph *g, int tensor) {
  for (int n = 0; n < g->nodes.len; n++) {
    const zp_node *node = &g->nodes.data[n];
    if (node->op == ZP_OP_EMBEDDING && node->in.data[1] == tensor) return true;
    if (node->op == ZP_OP_ATTENTION && zp_attention_bias(node) == tensor) return true;
  }
  return false;
}

/* Gradients that no step need write: of parameters that several units use and of lookup tables, which are only ever
 * added to, and of biases of gates, which take the sign of a count when the step is done (runtime/comm/loads.c). Frozen
 * parameters have none. */
static void set_zero_first(zp_arena *scratch, zp_lowered *l, const zp_model *model) {
  int64_t *uses = ZP_NEW_ARRAY(scratch, int64_t, model->params.len + 1);
  for (int s = 0; s < model->segments.len; s++) {
    const zp_segment *segment = &model->segments.data[s];
    for (int i = 0; i < segment->graph->params.len; i++) {
      int param = segment->graph->params.data[i].param;
      uses[param] += model->params.data[param].segment < 0 ? segment->count : 1;
      if (feeds_lookup(segment->graph, segment->graph->params.data[i].tensor)) l->zero_first[param] = true;
    }
  }
  for (int s = 0; s < model->segments.len && l->sharding->context > 1; s++) /* others have the rest of its rows */
    for (int i = 0; i < l->sharding->local[s]->params.len; i++) {
      const zp_param_use *use = &l->sharding->local[s]->params.data[i];
      if (l->sharding->local[s]->tensors.data[use->tensor].position_parts > 1) l->zero_first[use->param] = true;
    }
  for (int p = 0; p < model->params.len; p++) {
    if (uses[p] > 1 || model->params.data[p].sign_rate > 0) l->zero_first[p] = true;
    if (model->params.data[p].frozen) l->zero_first[p] = false;
  }
}

/* A parameter that the loss does not depend on has gradient zero, which no step writes. */
static void zero_unreached(zp_arena *scratch, zp_lowered *l, const zp_model *model) {
  bool *reached = ZP_NEW_ARRAY(scratch, bool, model->params.len + 1);
  for (int s = 0; s < l->n_segments; s++) {
    const zp_segment_program *seg = &l->segments[s];
    for (int k = 0; k < seg->backward.steps.len; k++)
      for (int i = 0; i < seg->backward.steps.data[k].sums.len; i++)
        reached[seg->graph->params.data[seg->backward.steps.data[k].sums.data[i].use].param] = true;
  }
  for (int p = 0; p < model->params.len; p++)
    if (!reached[p] && !model->params.data[p].frozen) l->zero_first[p] = true;
}

/* The segment's graph of one tensor rank, with its loss by parts where it has one. */
static const zp_graph *graph_to_lower(const zp_lowered *l, int segment, const char **reason) {
  const zp_graph *graph = l->sharding->trained[segment];
  if (l->loss_chunks < 2 || graph->losses.len == 0 || *reason) return graph;
  const char *why;
  const zp_graph *parts = zp_shard_chunk_loss(l->sharding, segment, l->loss_chunks, &why);
  if (parts) return parts;
  *reason =
      zp_format(l->sharding->trained[segment]->arena, "the loss is not made in %d chunks: %s", l->loss_chunks, why);
  return graph;
}

zp_lowered *zp_lower(zp_arena *arena, const zp_spec *spec, const zp_sharding *sharding, int64_t microbatch,
                     zp_recompute recompute, bool recompute_shard, const char **reason) {
  const zp_procedures_for what = {
      .microbatch = microbatch, .mode = zp_stage_mode_of(recompute, recompute_shard), .loss_chunks = 1, .splits = true};
  return zp_lower_for(arena, spec, sharding, &what, NULL, reason);
}

zp_lowered *zp_lower_for(zp_arena *arena, const zp_spec *spec, const zp_sharding *sharding,
                         const zp_procedures_for *what, const zp_lowered_list *before, const char **reason) {
  assert(spec && sharding && what && reason);
  assert(what->microbatch >= 1 && what->loss_chunks >= 1);
  const zp_model *model = spec->model;
  zp_lowered *l = ZP_NEW(arena, zp_lowered);
  l->spec = spec;
  l->sharding = sharding;
  l->microbatch = what->microbatch;
  l->recompute = zp_stage_mode_recompute(what->mode);
  l->recompute_shard = zp_stage_mode_split(what->mode);
  l->loss_chunks = what->loss_chunks;
  l->splits = what->splits;
  l->outline = what->outline;
  set_formats(l, &spec->train, spec->cluster.software);
  l->pieces = zp_pieces_whole(arena, model);
  l->n_segments = l->pieces->n;
  l->n_units = l->pieces->n_units;
  l->segments = ZP_NEW_ARRAY(arena, zp_segment_program, model->segments.len);
  l->param_elements = ZP_NEW_ARRAY(arena, int64_t, model->params.len + 1);
  l->zero_first = ZP_NEW_ARRAY(arena, bool, model->params.len + 1);
  for (int p = 0; p < model->params.len; p++) l->param_elements[p] = zp_shape_elements(&sharding->param[p].local, 1);
  for (int p = 0; p < model->params.len; p++)
    if (model->params.data[p].segment < 0) zp_push(arena, &l->shared, p);
  l->ties = zp_count_ties(model);
  zp_arena *scratch = zp_arena_new_alongside("lower", arena);
  set_zero_first(scratch, l, model);
  zp_lower_find_streams(arena, l);
  zp_moves_lower(scratch, l);
  *reason = NULL;
  for (int s = 0; s < l->n_segments; s++) {
    const zp_graph *graph = graph_to_lower(l, s, reason);
    if (!zp_lower_find_segment(arena, l, s, graph, before)) lower_segment(arena, scratch, l, s, graph, reason);
  }
  if (!l->outline) zero_unreached(scratch, l, model);
  zp_arena_free(scratch);
  return *reason ? NULL : l;
}

zp_lowered *zp_lower_pieces(zp_arena *arena, const zp_lowered *whole, const zp_lowered_list *before,
                            const char **reason) {
  assert(whole && reason);
  zp_lowered *l = ZP_NEW(arena, zp_lowered);
  *l = *whole;
  *reason = "no layer of the model can be cut: nowhere inside one does a single tensor carry all that follows";
  const zp_shard_pieces *pieces = zp_shard_find_pieces(whole->sharding, whole->spec->model);
  l->pieces = pieces->pieces;
  if (!l->pieces) return NULL;
  *reason = NULL;
  l->n_segments = l->pieces->n;
  l->n_units = l->pieces->n_units;
  l->segments = ZP_NEW_ARRAY(arena, zp_segment_program, l->n_segments);
  memcpy(l->segments, whole->segments, sizeof *l->segments * (size_t)whole->n_segments);
  zp_arena *scratch = zp_arena_new_alongside("lower", arena);
  for (int i = l->pieces->n_whole; i < l->n_segments && !*reason; i++) {
    if (!pieces->trained[i])
      *reason = zp_format(arena, "what flows on after a part of `%s` is divided over the tensor ranks",
                          l->pieces->piece[l->pieces->piece[i].whole].segment.name);
    else if (!zp_lower_find_segment(arena, l, i, pieces->trained[i], before))
      lower_segment(arena, scratch, l, i, pieces->trained[i], reason);
  }
  zp_arena_free(scratch);
  return *reason ? NULL : l;
}

zp_lowered *zp_lower_mixed(zp_arena *arena, const zp_lowered *first, zp_lowered *rest, int64_t layers) {
  assert(!first->rest && !rest->rest && layers > 0);
  assert(first->spec == rest->spec && first->sharding == rest->sharding && first->microbatch == rest->microbatch);
  zp_lowered *l = ZP_NEW(arena, zp_lowered);
  *l = *first;
  l->rest = rest;
  l->layers = layers;
  return l;
}

/* What was lowered so far for stages: one of every mode and set of node types. */
typedef struct modes_of_types {
  zp_node_set types;
  zp_lowered *of[ZP_STAGE_MODES];
} modes_of_types;

typedef struct lowering_modes {
  zp_arena *arena;
  const zp_spec *spec;
  const zp_sharding *sharding;
  const zp_choice *choice;
  modes_of_types *known; /* [pipeline]; of stages with the types of an earlier one empty */
} lowering_modes;

/* Stages with equal modes on equal node types share one, because prices are written into it. */
static zp_lowered *lower_mode(lowering_modes *x, int stage, zp_stage_mode mode, const char **reason) {
  int first = 0;
  while (x->known[first].types != x->known[stage].types) first++;
  zp_lowered **known = &x->known[first].of[mode];
  if (*known) return *known;
  const zp_procedures_for what = {.microbatch = x->choice->microbatch,
                                  .mode = mode,
                                  .loss_chunks = zp_loss_chunks(x->choice),
                                  .splits = zp_schedule_splits(x->choice->schedule)};
  zp_lowered *l = zp_lower_for(x->arena, x->spec, x->sharding, &what, NULL, reason);
  return *known = l && x->choice->fine ? zp_lower_pieces(x->arena, l, NULL, reason) : l;
}

static zp_lowered *lower_mix(lowering_modes *x, zp_lowered **stages, int stage, const char **reason) {
  const zp_stage_mix *mix = &x->choice->mix[stage];
  zp_stage_mode mode = zp_choice_mode(x->choice, stage);
  for (int k = 0; k < stage; k++)
    if (x->known[k].types == x->known[stage].types && zp_choice_mode(x->choice, k) == mode &&
        x->choice->mix[k].layers == mix->layers && x->choice->mix[k].rest == mix->rest)
      return stages[k];
  zp_lowered *first = lower_mode(x, stage, mode, reason),
             *rest = first ? lower_mode(x, stage, mix->rest, reason) : NULL;
  return rest ? zp_lower_mixed(x->arena, first, rest, mix->layers) : NULL;
}

zp_lowered **zp_lower_stages(zp_arena *arena, const zp_spec *spec, const zp_sharding *sharding, const zp_choice *choice,
                             const char **reason) {
  assert(zp_choice_has_degrees(choice) && choice->tensor == sharding->tensor && reason);
  zp_machine machine =
      zp_machine_make(&spec->cluster, spec->train.precision, choice->tensor * choice->pipeline * choice->data);
  zp_lowered **stages = ZP_NEW_ARRAY(arena, zp_lowered *, choice->pipeline);
  lowering_modes x = {.arena = arena, .spec = spec, .sharding = sharding, .choice = choice};
  x.known = ZP_NEW_ARRAY(arena, modes_of_types, choice->pipeline);
  for (int s = 0; s < choice->pipeline; s++) {
    x.known[s].types = zp_machine_of_stage(&machine, choice, s).types;
    stages[s] = zp_choice_layers(choice, s) == ZP_ALL_LAYERS ? lower_mode(&x, s, zp_choice_mode(choice, s), reason)
                                                             : lower_mix(&x, stages, s, reason);
    if (!stages[s]) return NULL;
  }
  return stages;
}
