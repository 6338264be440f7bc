/* SPDX-License-Identifier: Apache-2.0 */
/* Why this plan: from the terms of its price, and from layouts of what it does not do. */
#include <math.h>
#include <zplan/buf.h>
#include <zplan/cost.h>
#include "report_internal.h"

static double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

/* Units of a rank's share, padding included. */
static int64_t units_of_share(const zp_plan *plan, const zp_param_split *split, int param) {
  int64_t size = plan->spec->model->params.data[param].shape.dim[split->split_dim];
  return split->local.dim[split->split_dim] * split->units / size;
}

/* The parameter of which padding takes the largest share; NULL: the tensor ranks divide all evenly. */
static const zp_param_split *most_padded(const zp_plan *plan, int *param) {
  const zp_sharding *sharding = plan->program->lowered->sharding;
  const zp_param_split *most = NULL;
  double worst = 1;
  for (int p = 0; p < plan->spec->model->params.len; p++) {
    const zp_param_split *split = &sharding->param[p];
    if (split->split_dim < 0) continue;
    int64_t shares = split->spread ? sharding->tensor * (int64_t)sharding->expert : sharding->tensor;
    double padded = (double)(units_of_share(plan, split, p) * shares) / (double)split->units;
    if (padded > worst) worst = padded, most = split, *param = p;
  }
  return most;
}

/* The largest parameter whose share is no multiple of the 16 bytes that products of a GPU load at once, though the
 * whole is one; NULL: there is none. */
static const zp_param_split *most_ragged(const zp_plan *plan, int *param) {
  const zp_lowered *l = plan->program->lowered;
  const zp_param_split *most = NULL;
  int64_t largest = 0;
  if (plan->machine.node->device.is_cpu) return NULL;
  for (int p = 0; p < plan->spec->model->params.len; p++) {
    const zp_param_split *split = &l->sharding->param[p];
    int rank = split->local.rank; /* experts are the first of three dimensions, and no width of theirs */
    if (split->split_dim < 0 || rank < 2 || split->split_dim < rank - 2) continue;
    int64_t whole = plan->spec->model->params.data[p].shape.dim[split->split_dim];
    bool ragged = split->local.dim[split->split_dim] * l->compute_bytes % 16 != 0 && whole * l->compute_bytes % 16 == 0;
    if (!ragged || l->param_elements[p] <= largest) continue;
    largest = l->param_elements[p], most = split, *param = p;
  }
  return most;
}

/* Padding is computed like everything else. */
static void explain_padding(zp_buf *out, const zp_plan *plan, const zp_param_split *split, int param) {
  int64_t shares = plan->program->lowered->sharding->tensor;
  if (split->spread) shares *= plan->program->lowered->sharding->expert;
  int64_t each = units_of_share(plan, split, param);
  zp_buf_printf(
      out,
      "tensor %d does not divide every layer: a rank has %lld of the %lld units of `%s`, so that %.1f%% of the "
      "work on them is padding; ",
      plan->best.choice.tensor, (long long)each, (long long)split->units, plan->spec->model->params.data[param].name,
      100 - percent((double)split->units, (double)(each * shares)));
}

static void explain_ragged(zp_buf *out, const zp_plan *plan) {
  int param = 0;
  const zp_param_split *split = most_ragged(plan, &param);
  if (!split) return;
  zp_buf_printf(out, "a rank's %lld of `%s` are no multiple of 16 bytes: products of such rows run slower; ",
                (long long)split->local.dim[split->split_dim], plan->spec->model->params.data[param].name);
}

static void explain_tensor(zp_buf *out, const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  if (c->tensor == 1) return;
  zp_group_link link = zp_machine_tensor_group(&plan->machine, c->tensor, c->pipeline, c->data);
  int param = 0;
  const zp_param_split *padded = most_padded(plan, &param);
  if (padded)
    explain_padding(out, plan, padded, param);
  else
    zp_buf_printf(out, "tensor %d divides every layer; ", c->tensor);
  explain_ragged(out, plan);
  zp_buf_printf(out, "its all-reduces %s and take %.1f%% of the step. ",
                link.nodes == 1 ? "stay inside a node" : "cross nodes",
                percent(plan->best.estimate.tensor_comm_s, plan->best.estimate.step_s));
}

/* The first matrix of experts on one rank; NULL: the model has none. */
static const zp_tensor *matrix_of_experts(const zp_lowered *lowered) {
  for (int s = 0; s < lowered->n_segments; s++) {
    const zp_graph *graph = lowered->segments[s].graph;
    for (int n = 0; n < graph->n_forward; n++)
      if (graph->nodes.data[n].op == ZP_OP_BATCHED_MATMUL) return &graph->tensors.data[graph->nodes.data[n].in.data[1]];
  }
  return NULL;
}

/* The stage whose ranks exchange longest counts: others may have no experts at all. */
static double expert_exchanges(const zp_plan *plan) {
  const zp_program *p = plan->program;
  zp_arena *scratch = zp_arena_new("exchanges");
  zp_pipeline_run run = zp_cost_pipeline(scratch, p, &plan->machine);
  double most_s = 0;
  for (int s = 0; s < run.stages; s++) most_s = fmax(most_s, zp_cost_stage_time(&run, s).expert_s);
  zp_arena_free(scratch);
  return (double)p->microbatches * most_s;
}

/* Sorted rows come as gates send them: what is predicted, and what there is room for. */
static void explain_routed(zp_buf *out, const zp_plan *plan) {
  const zp_lowered *lowered = plan->program->lowered;
  for (int s = 0; s < lowered->n_segments; s++) {
    const zp_graph *graph = lowered->segments[s].graph;
    for (int n = 0; n < graph->n_forward; n++) {
      const zp_op_attr *attr = &graph->nodes.data[n].attr;
      if (graph->nodes.data[n].op != ZP_OP_SPREAD_COUNTS) continue;
      zp_buf_printf(
          out,
          "Their rows go where gates send them: bytes and seconds are those of an even load, %lld rows a rank "
          "and micro-batch; memory has room for %lld, %s. ",
          (long long)(lowered->microbatch * attr->slots * attr->top_k),
          (long long)(lowered->microbatch * zp_graph_room(attr)),
          attr->room > 0 ? "beyond which a run stops" : "all that could come");
      return;
    }
  }
}

/* Whole experts on every rank, or all of them cut: the sharder's choice, read off a matrix of experts. */
static void explain_experts(zp_buf *out, const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  const zp_tensor *w = matrix_of_experts(plan->program->lowered);
  int expert = zp_expert_ranks(c);
  if (!w || w->split_dim < 0) return;
  if (w->split_dim > 0) {
    zp_buf_printf(out, "every tensor rank has a part of all %lld experts. ", (long long)w->shape.dim[0]);
    return;
  }
  zp_buf_printf(out, "a %srank has %lld of %lld experts. ", expert > 1 ? "" : "tensor ", (long long)w->shape.dim[0],
                (long long)w->full_dim);
  if (expert == 1) return;
  zp_group_link link = zp_machine_expert_group(&plan->machine, c->tensor, c->pipeline, c->data, expert, c->order);
  zp_buf_printf(out, "expert %d spreads them over data ranks, whose exchanges %s and take %s%.1f%% of the step. ",
                expert, link.nodes == 1 ? "stay inside a node" : "cross nodes", c->pipeline > 1 ? "up to " : "",
                percent(expert_exchanges(plan), plan->best.estimate.step_s));
  explain_routed(out, plan);
}

static void explain_context(zp_buf *out, const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  if (zp_context_ranks(c) == 1) return;
  zp_group_link link = zp_machine_expert_group(&plan->machine, c->tensor, c->pipeline, c->data, c->context, c->order);
  zp_buf_printf(out,
                "context %d gives a rank 1/%d of every sample's positions; exchanges of %s %s and take %s%.1f%% of "
                "the step. ",
                c->context, c->context, c->context_by ? "keys and values" : "heads",
                link.nodes == 1 ? "stay inside a node" : "cross nodes", c->pipeline > 1 ? "up to " : "",
                percent(plan->best.estimate.context_comm_s, plan->best.estimate.step_s));
}

static void explain_pipeline(zp_buf *out, const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  if (c->pipeline == 1) return;
  int64_t units = zp_words_units(plan);
  double each = (double)units / c->pipeline;
  zp_buf_printf(out, "pipeline %d puts %.*f of %lld units on a stage%s; %lld micro-batches keep the bubble at %.1f%%. ",
                c->pipeline, each >= 100 || each == floor(each) ? 0 : 1, each, (long long)units,
                c->fine ? ", evened out by cuts inside layers" : "", (long long)plan->program->microbatches,
                percent(plan->best.estimate.bubble_s, plan->best.estimate.step_s));
}

static void explain_data(zp_buf *out, const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  if (c->data == 1) return;
  static const char *const kept[] = {"", "optimizer state", "optimizer state and gradients",
                                     "optimizer state, gradients and weights"};
  zp_buf_printf(out, "data %d%s costs %.1f%% of the step for gradients", zp_replicas(c),
                zp_context_ranks(c) > 1 ? zp_format(out->arena, " x context %d", c->context) : "",
                percent(plan->best.estimate.data_comm_s, plan->best.estimate.step_s));
  if (c->zero) zp_buf_printf(out, "; zero %d keeps 1/%d of %s on a rank", c->zero, zp_shard_ranks(c), kept[c->zero]);
  if (c->zero && zp_expert_ranks(c) > 1)
    zp_buf_printf(out, ", of its experts' 1/%d", zp_shard_ranks(c) / zp_expert_ranks(c));
  if (c->shard > 0) zp_buf_printf(out, ", and %d shard groups have a copy each", zp_shard_copies(c));
  if (c->hpz > 0) zp_buf_printf(out, ", and 1/%d of a second copy of the parameters for backward", c->hpz);
  zp_buf_puts(out, ". ");
}

/* The fullest stage if everything was kept: by how much it is over what may be used there; bytes 0: it is not, or the
 * plan keeps everything. Lays out the plan's cuts with everything kept, instead of guessing. */
typedef struct kept {
  int64_t bytes, usable_bytes, there_bytes;
} kept;

static kept fullest_without_recomputation(zp_arena *arena, const zp_plan *plan) {
  zp_choice keep = plan->best.choice;
  kept most = {0};
  if (!zp_choice_has_modes(&keep) && keep.recompute == ZP_RECOMPUTE_NONE) return most;
  keep.stage_recompute = NULL;
  keep.mix = NULL;
  keep.recompute = ZP_RECOMPUTE_NONE;
  keep.recompute_shard = false;
  const char *reason = NULL;
  zp_lowered **lowered = zp_lower_stages(arena, plan->spec, plan->program->lowered->sharding, &keep, &reason);
  int64_t most_over = 0;
  for (int s = 0; s < keep.pipeline && lowered; s++) {
    zp_stage layout;
    zp_layout_stage(arena, lowered[s], &keep, s, &layout);
    int64_t bytes = zp_memory_on_device(&layout.memory) + plan->machine.context_bytes;
    int64_t usable = zp_words_usable_bytes(plan, s);
    if (bytes - usable <= most_over) continue;
    most_over = bytes - usable;
    most = (kept){bytes, usable, zp_machine_of_stage(&plan->machine, &plan->best.choice, s).memory_bytes};
  }
  return most;
}

static void explain_recompute(zp_buf *out, const zp_plan *plan) {
  kept most = fullest_without_recomputation(out->arena, plan);
  if (most.bytes > 0)
    zp_buf_printf(out, "without recomputation the fullest stage would need %s, and %s may be used of %s. ",
                  zp_show_bytes(out->arena, most.bytes), zp_show_bytes(out->arena, most.usable_bytes),
                  zp_show_bytes(out->arena, most.there_bytes));
}

const char *zp_words_why(zp_arena *arena, const zp_plan *plan) {
  zp_buf out = zp_buf_new(arena);
  explain_tensor(&out, plan);
  explain_experts(&out, plan);
  explain_context(&out, plan);
  explain_pipeline(&out, plan);
  explain_data(&out, plan);
  explain_recompute(&out, plan);
  if (out.len == 0) return "one rank: nothing to divide";
  while (out.len && (out.data[out.len - 1] == ' ' || out.data[out.len - 1] == '.')) out.data[--out.len] = 0;
  return out.data;
}

/* ---- the same in two sentences: where the time goes, what makes it fit ---- */

static const char *tensor_exchanges(const zp_plan *plan) {
  const zp_choice *c = &plan->best.choice;
  zp_group_link link = zp_machine_tensor_group(&plan->machine, c->tensor, c->pipeline, c->data);
  return link.nodes == 1 ? "exchanges between tensor ranks inside a node"
                         : "exchanges between tensor ranks across nodes";
}

static const char *time_words(zp_arena *arena, const zp_plan *plan) {
  const zp_estimate *e = &plan->best.estimate;
  const struct {
    const char *what;
    double seconds;
  } losses[] = {
      {"the pipeline bubble", e->bubble_s},
      {tensor_exchanges(plan), e->tensor_comm_s},
      {"exchanges between ranks that share experts", e->expert_comm_s},
      {"exchanges between ranks that share positions", e->context_comm_s},
      {"messages between stages", e->pipeline_comm_s},
      {"exchanges between data ranks", e->data_comm_s},
      {"the optimizer", e->optimizer_s},
      {"waiting for offloaded state", e->offload_s},
  };
  enum { N_LOSSES = sizeof losses / sizeof *losses };
  int most = 0;
  for (int i = 1; i < N_LOSSES; i++)
    if (losses[i].seconds > losses[most].seconds) most = i;
  double lost = percent(losses[most].seconds, e->step_s);
  const char *rest =
      lost < 0.05 ? "" : zp_format(arena, "; most of the rest is %s, " ZP_ESTIMATED "%.1f%%", losses[most].what, lost);
  return zp_format(arena, "Compute takes " ZP_ESTIMATED "%.1f%% of a step%s", percent(e->compute_s, e->step_s), rest);
}

static const char *room_words(zp_arena *arena, const zp_plan *plan) {
  static const char *const shared[] = {"", "optimizer state", "gradients and optimizer state",
                                       "weights, gradients and optimizer state"};
  const zp_choice *c = &plan->best.choice;
  kept most = fullest_without_recomputation(arena, plan);
  if (most.bytes > 0)
    return zp_format(arena, "Without recomputation the fullest stage would need " ZP_ESTIMATED "%s",
                     zp_show_bytes(arena, most.bytes));
  if (c->zero && c->data > 1)
    return zp_format(arena, "Zero %d keeps 1/%d of %s on a rank", c->zero, zp_shard_ranks(c), shared[c->zero]);
  if (c->pipeline > 1)
    return zp_format(arena, "A stage has %.3g of %lld units", (double)zp_words_units(plan) / c->pipeline,
                     (long long)zp_words_units(plan));
  if (c->tensor > 1) return zp_format(arena, "A tensor rank has 1/%d of the layers that are divided", c->tensor);
  return c->data > 1 ? "Every rank has the whole model" : "One rank has nothing to divide";
}

const char *zp_words_why_briefly(zp_arena *arena, const zp_plan *plan) {
  const char *slow = zp_why_no_tensor_cores(arena, plan->spec);
  return zp_format(arena, "%s. %s.%s", time_words(arena, plan), room_words(arena, plan),
                   slow ? zp_format(arena, " Attention is not on tensor cores: %s.", slow) : "");
}
