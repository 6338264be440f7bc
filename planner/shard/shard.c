/* SPDX-License-Identifier: Apache-2.0 */
/* zp_shard: every segment's best states, with one split per parameter. Parameters that several segments use (tied
 * embeddings) couple them: their splits are enumerated, and for each combination the segments are solved alone. */
#include <assert.h>
#include <zplan/own_gpu.h>
#include "shard_internal.h"

/* 4 states each, or 5: at most 4,096 combinations, or 15,625. More tied parameters than that are refused. */
enum { MAX_TIED = 6 };

typedef struct sharder {
  zp_arena *arena;   /* of the result */
  zp_arena *scratch; /* of the search */
  const zp_model *model;
  zp_shard_problem problem;
  int *fixed; /* per model parameter, see zp_shard_problem */
  int tied[MAX_TIED], n_tied;
} sharder;

static const zp_tensor *param_tensor(const zp_graph *graph, int param) {
  for (int i = 0; i < graph->params.len; i++)
    if (graph->params.data[i].param == param) return &graph->tensors.data[graph->params.data[i].tensor];
  return NULL;
}

/* Parameters of two and more segments; false when there are too many. */
static bool find_tied(sharder *s) {
  for (int p = 0; p < s->model->params.len; p++) {
    int users = 0;
    for (int i = 0; i < s->model->segments.len; i++) users += param_tensor(s->model->segments.data[i].graph, p) != NULL;
    if (users < 2) continue;
    if (s->n_tied == MAX_TIED) return false;
    s->tied[s->n_tied++] = p;
  }
  return true;
}

/* All segments under the current `fixed`. False when one has no answer. */
static bool solve_all(sharder *s, zp_shard_answer *answers, zp_shard_cost *total) {
  *total = (zp_shard_cost){0};
  for (int i = 0; i < s->model->segments.len; i++) {
    const zp_segment *segment = &s->model->segments.data[i];
    s->problem.graph = segment->graph;
    answers[i] = zp_shard_solve(s->scratch, &s->problem);
    if (!answers[i].found) return false;
    double count = (double)segment->count;
    total->replicated += count * answers[i].cost.replicated;
    total->seconds += count * answers[i].cost.seconds;
  }
  for (int i = 0; i < s->n_tied; i++) {
    const zp_shape *shape = &s->model->params.data[s->tied[i]].shape;
    int form = s->fixed[s->tied[i]];
    if ((form == ZP_PARAM_REPLICATED || form == ZP_PARAM_SHARED) && shape->rank >= 2)
      total->replicated += (double)zp_shape_elements(shape, 1);
  }
  return true;
}

/* Next combination of forms of the tied parameters. Tensor degree 1 has the one combination of replicated
 * parameters. */
static bool next_combination(sharder *s) {
  int last = s->problem.sequence ? ZP_PARAM_SHARED : s->problem.tensor > 1 ? ZP_PARAM_SPLIT_2 : ZP_PARAM_REPLICATED;
  for (int i = 0; i < s->n_tied; i++) {
    int *state = &s->fixed[s->tied[i]];
    if (*state < last) {
      (*state)++;
      return true;
    }
    *state = ZP_PARAM_REPLICATED;
  }
  return false;
}

static bool solve_best(sharder *s, zp_shard_answer *best, zp_shard_cost *best_cost) {
  int n = s->model->segments.len;
  bool found = false;
  for (int i = 0; i < s->n_tied; i++) s->fixed[s->tied[i]] = ZP_PARAM_REPLICATED;
  zp_shard_answer *answers = ZP_NEW_ARRAY(s->scratch, zp_shard_answer, n);
  do {
    zp_shard_cost cost;
    if (!solve_all(s, answers, &cost) || (found && !zp_shard_cheaper(&cost, best_cost))) continue;
    found = true;
    *best_cost = cost;
    memcpy(best, answers, sizeof *best * (size_t)n);
  } while (next_combination(s));
  return found;
}

/* ---- the result ---- */

static bool is_shared(const zp_graph *graph, const zp_pattern *pattern, int param) {
  for (int n = 0; n < graph->nodes.len; n++)
    for (int i = 0; i < graph->nodes.data[n].in.len; i++) {
      const zp_tensor *t = &graph->tensors.data[graph->nodes.data[n].in.data[i]];
      if (t->role == ZP_ROLE_PARAM && t->index == param && pattern[n].in[i] == ZP_NEED_SHARED) return true;
    }
  return false;
}

static bool is_matrix_of_experts(const zp_graph *graph, int param) {
  for (int n = 0; n < graph->nodes.len; n++) {
    const zp_node *node = &graph->nodes.data[n];
    if (node->op != ZP_OP_BATCHED_MATMUL) continue;
    const zp_tensor *w = &graph->tensors.data[node->in.data[1]];
    if (w->index == param) return true;
  }
  return false;
}

/* Tied uses must also agree on the units of the split dimension. On its form they agree: the uses of a segment take one
 * (solve.c, use_param), segments that share a parameter the one in `fixed`. So a replicated parameter's gradient is
 * complete on every rank in all segments, or a part in all of them: `grad_partial` is true of each. */
static bool record_splits(const sharder *s, const zp_shard_answer *answers, zp_sharding *sharding) {
  sharding->partial = false;
  for (int p = 0; p < s->model->params.len; p++) {
    zp_param_split *split = &sharding->param[p];
    *split = (zp_param_split){.split_dim = -1, .outer = 1, .units = 1, .local = s->model->params.data[p].shape};
    bool first = true;
    for (int i = 0; i < s->model->segments.len; i++) {
      const zp_tensor *t = param_tensor(sharding->local[i], p);
      if (!t) continue;
      zp_parts parts = t->split_dim >= 0 ? t->parts[t->split_dim] : (zp_parts){1, 1};
      zp_param_split here = {.split_dim = t->split_dim, .outer = parts.outer, .units = parts.units, .local = t->shape};
      if (t->position_parts > 1) zp_shape_resize(s->arena, &here.local, 0, t->shape.dim[0] * t->position_parts);
      if (!first && (here.split_dim != split->split_dim || here.outer != split->outer || here.units != split->units))
        return false;
      here.spread = sharding->expert > 1 && is_matrix_of_experts(sharding->local[i], p);
      here.grad_partial =
          !s->model->params.data[p].frozen && is_shared(s->model->segments.data[i].graph, answers[i].pattern, p);
      assert(first || here.grad_partial == split->grad_partial);
      sharding->partial = sharding->partial || here.grad_partial;
      *split = here;
      first = false;
    }
  }
  return true;
}

static bool divides_something(const zp_sharding *sharding, int n_params) {
  for (int p = 0; p < n_params; p++)
    if (sharding->param[p].split_dim >= 0) return true;
  return false;
}

/* zplan's own trainer on GPUs multiplies by cuBLASLt, whose epilogues take in row operations, and whose tensor cores
 * want widths of whole 16 bytes. f64 is not among what its epilogues are said to support. */
static bool has_tensor_cores(const zp_machine *machine) {
  return zp_cost_is_own_gpu(machine) && machine->precision != ZP_PREC_F64;
}

static zp_graph *trained_graph(const zp_graph *local, const zp_sharding *s) {
  zp_graph *fused = zp_fuse(local);
  if (!s->epilogues) return zp_differentiate(fused);
  return zp_fold_gradients(zp_differentiate(zp_fold_epilogues(fused)), s->gelu_gradients);
}

/* Divides the positions of all local graphs; false with the reason. */
static bool divide_positions(zp_sharding *sharding, int segments, int context, zp_graph **divided,
                             const char **reason) {
  for (int i = 0; i < segments; i++)
    if (!(divided[i] =
              zp_graph_divide_positions(sharding->local[i], sharding->tensor, context, sharding->context_by, reason)))
      return false;
  return true;
}

/* ", but context 2 or 4 would do". */
static const char *name_contexts(sharder *s, zp_sharding *sharding, const char *reason) {
  enum { MOST = 1024 };
  int segments = s->model->segments.len, last = 0;
  zp_graph **divided = ZP_NEW_ARRAY(s->scratch, zp_graph *, segments);
  const char *list = "", *ignored;
  for (int context = 2; context <= MOST; context++) {
    if (s->model->sequence % context || !divide_positions(sharding, segments, context, divided, &ignored)) continue;
    if (last) list = zp_format(s->scratch, "%s%s%d", list, *list ? ", " : "", last);
    last = context;
  }
  if (!last) return reason;
  return zp_format(s->arena, "%s; context %s%s%d would do", reason, list, *list ? " or " : "", last);
}

static zp_sharding *build(sharder *s, const zp_shard_answer *answers, const char **reason) {
  const zp_model *model = s->model;
  zp_sharding *sharding = ZP_NEW(s->arena, zp_sharding);
  sharding->tensor = s->problem.tensor;
  sharding->expert = s->problem.expert;
  sharding->context = s->problem.context;
  sharding->context_by = s->problem.context_by;
  sharding->sequence = s->problem.sequence;
  sharding->epilogues = has_tensor_cores(s->problem.machine);
  sharding->gelu_gradients = sharding->epilogues && zp_products_do_gelu_gradients(s->problem.machine);
  sharding->local = ZP_NEW_ARRAY(s->arena, zp_graph *, model->segments.len);
  sharding->trained = ZP_NEW_ARRAY(s->arena, zp_graph *, model->segments.len);
  sharding->pieces = ZP_NEW(s->arena, zp_shard_pieces);
  sharding->in_chunks = ZP_NEW(s->arena, zp_shard_chunks_list);
  sharding->param = ZP_NEW_ARRAY(s->arena, zp_param_split, model->params.len);
  for (int i = 0; i < model->segments.len; i++) {
    s->problem.graph = model->segments.data[i].graph;
    sharding->local[i] = zp_shard_localize(s->arena, &s->problem, answers[i].pattern);
    if (s->problem.expert > 1)
      sharding->local[i] = zp_graph_spread_experts(sharding->local[i], s->problem.expert, reason);
    if (!sharding->local[i]) return NULL;
  }
  if (has_tensor_cores(s->problem.machine)) zp_shard_pad(s->scratch, model, sharding);
  if (sharding->context > 1) {
    zp_graph **divided = ZP_NEW_ARRAY(s->arena, zp_graph *, model->segments.len);
    if (!divide_positions(sharding, model->segments.len, sharding->context, divided, reason)) {
      *reason = name_contexts(s, sharding, *reason);
      return NULL;
    }
    sharding->local = divided;
  }
  for (int i = 0; i < model->segments.len; i++) sharding->trained[i] = trained_graph(sharding->local[i], sharding);
  return sharding;
}

/* Why the carried tensors cannot be split along the sequence; NULL when they can. */
static const char *refuse_sequence(const sharder *s) {
  int tensor = s->problem.tensor;
  if (tensor < 2) return "splitting along the sequence needs two or more tensor ranks";
  for (int i = 0; i < s->model->segments.len; i++) {
    const zp_graph *graph = s->model->segments.data[i].graph;
    for (int k = 0; k < graph->carry_in.len; k++) {
      const zp_tensor *t = &graph->tensors.data[graph->carry_in.data[k]];
      if (zp_divides_sequence(t, tensor)) continue;
      return zp_format(s->arena, "`%s` %s cannot be split along the sequence over %d tensor ranks: they must divide it",
                       t->name, zp_shape_text(s->arena, &t->shape), tensor);
    }
  }
  return NULL;
}

/* Experts of one matrix on a tensor rank. */
static int64_t experts_of(const zp_graph *graph, const zp_node *node, int tensor) {
  return zp_local_size(graph->tensors.data[node->in.data[1]].shape.dim[0],
                       (zp_parts){1, graph->tensors.data[node->in.data[1]].shape.dim[0]}, tensor);
}

bool zp_model_has_experts(const zp_model *model) {
  for (int i = 0; i < model->segments.len; i++)
    for (int n = 0; n < model->segments.data[i].graph->nodes.len; n++)
      if (model->segments.data[i].graph->nodes.data[n].op == ZP_OP_BATCHED_MATMUL) return true;
  return false;
}

bool zp_model_drops_tokens(const zp_model *model) {
  for (int i = 0; i < model->segments.len; i++) {
    const zp_graph *graph = model->segments.data[i].graph;
    for (int n = 0; n < graph->nodes.len; n++) {
      const zp_node *node = &graph->nodes.data[n];
      if (node->op == ZP_OP_TOP_K_GATE && node->attr.slots < graph->tensors.data[node->in.data[0]].shape.dim[1])
        return true;
    }
  }
  return false;
}

/* Their rows are cut by columns over tensor ranks, and matrices of experts have one dimension that is divided. */
const char *zp_model_dropless_refusal(zp_arena *arena, const zp_model *model, int tensor) {
  for (int i = 0; i < model->segments.len && tensor > 1; i++) {
    const zp_graph *graph = model->segments.data[i].graph;
    for (int n = 0; n < graph->nodes.len; n++)
      if (graph->nodes.data[n].op == ZP_OP_TOP_K_GATE && graph->nodes.data[n].attr.dropless)
        return zp_format(arena,
                         "experts with `capacity = dropless` (`%s`) are spread over data ranks, or cut over tensor "
                         "ranks, not both: `tensor` or `expert` is 1",
                         graph->nodes.data[n].name);
  }
  return NULL;
}

const char *zp_shard_refuse_experts(zp_arena *arena, const zp_model *model, int tensor, int expert) {
  assert(tensor >= 1 && expert >= 0);
  if (expert == 1) return NULL;
  if (!zp_model_has_experts(model)) return "the model has no experts to spread over data ranks";
  const char *dropless = zp_model_dropless_refusal(arena, model, tensor);
  if (dropless) return dropless;
  for (int i = 0; i < model->segments.len; i++) {
    const zp_graph *graph = model->segments.data[i].graph;
    for (int n = 0; n < graph->nodes.len; n++) {
      const zp_node *node = &graph->nodes.data[n];
      int64_t experts = node->op == ZP_OP_BATCHED_MATMUL ? experts_of(graph, node, tensor) : expert;
      if (experts % expert == 0) continue;
      return zp_format(arena, "expert %d does not divide the %lld experts that a rank of tensor %d has of `%s`", expert,
                       (long long)experts, tensor, node->name);
    }
  }
  return NULL;
}

/* Why a degree cannot be had at all. */
static const char *refuse(const sharder *s) {
  const char *refused = s->problem.sequence ? refuse_sequence(s) : NULL;
  return refused ? refused : zp_shard_refuse_experts(s->arena, s->model, s->problem.tensor, s->problem.expert);
}

static zp_sharding *shard(sharder *s, const char **reason) {
  int tensor = s->problem.tensor;
  const char *refused = refuse(s);
  if (refused) {
    *reason = refused;
    return NULL;
  }
  if (!find_tied(s)) {
    *reason = zp_format(s->arena, "more than %d parameters are shared between segments", MAX_TIED);
    return NULL;
  }
  zp_shard_answer *answers = ZP_NEW_ARRAY(s->scratch, zp_shard_answer, s->model->segments.len);
  zp_shard_cost cost;
  if (!solve_best(s, answers, &cost)) {
    if (s->problem.expert > 1)
      *reason = zp_format(s->arena, "whole experts cannot be divided over %d tensor ranks, which expert %d wants",
                          tensor, s->problem.expert);
    else
      *reason =
          s->problem.sequence
              ? zp_format(s->arena,
                          "no way to keep what is between blocks split along the sequence over %d tensor ranks", tensor)
              : zp_format(s->arena, "too many ways to split the model over %d tensor ranks to compare them all",
                          tensor);
    return NULL;
  }
  zp_sharding *sharding = build(s, answers, reason);
  if (!sharding) return NULL;
  if (!record_splits(s, answers, sharding)) {
    *reason = "a shared parameter falls into different units in its uses";
    return NULL;
  }
  if (tensor > 1 && !divides_something(sharding, s->model->params.len)) {
    *reason = zp_format(s->arena, "no parameter of the model can be split over %d tensor ranks", tensor);
    return NULL;
  }
  return sharding;
}

static zp_sharding *shard_problem(zp_arena *arena, const zp_model *model, zp_shard_problem problem,
                                  const char **reason) {
  for (int i = 0; i < model->segments.len; i++) zp_graph_infer_parts(model->segments.data[i].graph);
  zp_arena *scratch = zp_arena_new_alongside("shard", arena);
  sharder s = {.arena = arena, .scratch = scratch, .model = model, .problem = problem};
  s.fixed = ZP_NEW_ARRAY(scratch, int, model->params.len + 1);
  s.problem.fixed = s.fixed;
  zp_sharding *sharding = shard(&s, reason);
  zp_arena_free(scratch);
  return sharding;
}

zp_sharding *zp_shard(zp_arena *arena, const zp_model *model, const zp_machine *machine, int tensor, int64_t microbatch,
                      bool sequence, const char **reason) {
  assert(tensor >= 1 && microbatch >= 1 && reason);
  return shard_problem(arena, model,
                       (zp_shard_problem){.machine = machine,
                                          .tensor = tensor,
                                          .expert = 1,
                                          .context = 1,
                                          .microbatch = microbatch,
                                          .sequence = sequence},
                       reason);
}

zp_sharding *zp_shard_experts(zp_arena *arena, const zp_model *model, const zp_machine *machine, int tensor, int expert,
                              bool sequence, const char **reason) {
  assert(tensor >= 1 && expert >= 0 && reason);
  return zp_shard_choice(arena, model, machine, &(zp_choice){.tensor = tensor, .expert = expert, .sequence = sequence},
                         reason);
}

zp_sharding *zp_shard_choice(zp_arena *arena, const zp_model *model, const zp_machine *machine, const zp_choice *choice,
                             const char **reason) {
  assert(choice->tensor >= 1 && reason);
  return shard_problem(arena, model,
                       (zp_shard_problem){.machine = machine,
                                          .tensor = choice->tensor,
                                          .expert = zp_expert_ranks(choice),
                                          .context = zp_context_ranks(choice),
                                          .context_by = choice->context_by,
                                          .microbatch = 1,
                                          .sequence = choice->sequence},
                       reason);
}

const zp_shard_pieces *zp_shard_find_pieces(const zp_sharding *sharding, const zp_model *model) {
  assert(sharding && model);
  zp_shard_pieces *p = sharding->pieces;
  if (p->known) return p;
  zp_arena *arena = sharding->local[0]->arena;
  p->known = true;
  p->pieces = zp_pieces_divided(arena, model);
  if (!p->pieces) return p;
  p->trained = ZP_NEW_ARRAY(arena, zp_graph *, p->pieces->n);
  for (int i = p->pieces->n_whole; i < p->pieces->n; i++) {
    const zp_graph *whole = sharding->local[p->pieces->piece[i].whole];
    zp_graph *piece = zp_piece_localize(whole, p->pieces, i, sharding->sequence);
    if (piece) p->trained[i] = trained_graph(piece, sharding);
  }
  return p;
}

const zp_graph *zp_shard_chunk_loss(const zp_sharding *sharding, int segment, int chunks, const char **reason) {
  assert(sharding && sharding->trained[segment]->losses.len > 0 && chunks >= 2 && reason);
  zp_shard_chunks_list *known = sharding->in_chunks;
  zp_shard_chunks fresh = {.segment = segment, .chunks = chunks};
  for (int i = 0; i < known->len; i++) {
    *reason = known->data[i].reason;
    if (known->data[i].segment == segment && known->data[i].chunks == chunks) return known->data[i].trained;
  }
  fresh.trained = zp_chunk_loss(sharding->trained[segment], chunks, &fresh.reason);
  zp_push(sharding->trained[segment]->arena, known, fresh);
  *reason = fresh.reason;
  return fresh.trained;
}
