/* Words and groupings that several reports share. */
#include <math.h>
#include <zplan/buf.h>
#include <zplan/cost.h>
#include "report_internal.h"

static void put_homes(zp_buf *out, const zp_choice *c) {
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (c->home[i].eighths)
      zp_buf_printf(out, "  %s %d/8 on %s", zp_state_name((zp_state)i), c->home[i].eighths,
                    zp_tier_name(c->home[i].tier));
}

const char *zp_words_choice(zp_arena *arena, const zp_choice *c) {
  zp_buf out = zp_buf_new(arena);
  zp_buf_printf(&out, "tensor %d  pipeline %d (%s", c->tensor, c->pipeline, zp_schedule_name(c->schedule));
  if (c->chunks > 1) zp_buf_printf(&out, ", %d chunks", c->chunks);
  if (c->own_order) zp_buf_puts(&out, ", in an order of its own");
  zp_buf_printf(&out, ")  data %d  zero %d  microbatch %lld  recompute %s", c->data, c->zero, (long long)c->microbatch,
                zp_choice_recompute_words(arena, c));
  if (zp_expert_ranks(c) > 1) zp_buf_printf(&out, "  expert %d", c->expert);
  if (c->loss_chunks > 1) zp_buf_printf(&out, "  loss in %d chunks", c->loss_chunks);
  if (c->fine) zp_buf_puts(&out, "  cuts inside layers");
  if (c->sequence) zp_buf_puts(&out, "  norms split along the sequence");
  if (c->order != ZP_ORDER_TDP) zp_buf_printf(&out, "  rank order %s", zp_rank_order_name(c->order));
  if (c->compress) zp_buf_puts(&out, "  1-bit data-parallel communication");
  put_homes(&out, c);
  return out.data;
}

const char *zp_words_stage(zp_arena *arena, const zp_lowered *lowered, const zp_stage *stage) {
  zp_buf out = zp_buf_new(arena);
  for (int r = 0; r < stage->runs.len; r++) {
    const zp_run *run = &stage->runs.data[r];
    int whole = lowered->pieces->piece[run->segment].whole;
    const zp_segment *segment = lowered->segments[whole].segment;
    if (r) zp_buf_puts(&out, ", ");
    zp_buf_puts(&out, segment->name);
    if (!segment->is_repeat) continue;
    zp_buf_printf(&out, ".%lld", (long long)run->first);
    if (run->segment != whole) /* "h.6.attn" for piece `h.attn` of layer 6 */
      zp_buf_puts(&out, lowered->segments[run->segment].segment->name + strlen(segment->name));
    if (run->count > 1) zp_buf_printf(&out, "-%s.%lld", segment->name, (long long)(run->first + run->count - 1));
  }
  return out.data ? out.data : "";
}

const char *zp_words_bytes(zp_arena *arena, int64_t bytes) { return bytes == 0 ? "-" : zp_show_bytes(arena, bytes); }

const char *zp_words_devices(zp_arena *arena, const zp_plan *plan) {
  const zp_cluster *c = &plan->spec->cluster;
  const zp_machine given = zp_machine_make(c, plan->machine.precision, plan->devices), *m = &given;
  zp_buf devices = zp_buf_new(arena), nodes = zp_buf_new(arena);
  int64_t left = m->devices;
  for (int g = 0; g < c->groups.len && left > 0; g++) {
    const zp_node_type *type = &c->groups.data[g].type;
    int64_t all = (int64_t)c->groups.data[g].nodes * type->devices, here = left < all ? left : all;
    const char *plus = g ? " + " : "";
    zp_buf_printf(&devices, "%s%lld x %s, %s each", plus, (long long)here, type->device.name,
                  zp_show_bytes(arena, type->device.memory_bytes));
    zp_buf_printf(&nodes, "%s%lld x %s", plus, (long long)((here + type->devices - 1) / type->devices), type->name);
    left -= here;
  }
  if (c->groups.len) return zp_format(arena, "%s (%s)", devices.data, nodes.data);
  return zp_format(arena, "%d x %s, %s each (%lld x %s)", m->devices, c->node.device.name,
                   zp_show_bytes(arena, m->memory_bytes), (long long)zp_machine_nodes(m),
                   m->node->name ? m->node->name : "node");
}

int64_t zp_words_usable_bytes(const zp_plan *plan, int stage) {
  const zp_constraints *c = &plan->spec->plans.data[plan->spec->plan];
  zp_machine at = zp_machine_of_stage(&plan->machine, &plan->best.choice, stage);
  return (int64_t)(c->memory_fraction * (double)at.memory_bytes);
}

/* ---- memory ---- */

static const char *const class_name[ZP_MEMORY_CLASSES] = {"weights", "gradients", "optimizer", "saved",
                                                          "buffers", "context",   "NCCL"};

const char *zp_memory_class_name(int class) { return class_name[class]; }

int64_t zp_memory_class_bytes(const zp_memory *m, int class) {
  const int64_t bytes[ZP_MEMORY_CLASSES] = {m->weights, m->gradients, m->optimizer,    m->saved,
                                            m->buffers, m->context,   m->communicators};
  return bytes[class];
}

int zp_memory_classes(const zp_plan *plan) {
  return plan->program->stages[0].memory.communicators > 0 ? ZP_MEMORY_CLASSES : ZP_MEMORY_CLASSES - 1;
}

zp_memory zp_stage_memory(const zp_plan *plan, int stage) {
  zp_memory memory = plan->program->stages[stage].memory;
  memory.context = plan->machine.context_bytes;
  return memory;
}

static bool equal_memory(const zp_stage *a, const zp_stage *b, bool whatever_saved) {
  zp_memory x = a->memory, y = b->memory;
  if (whatever_saved) x.saved = y.saved = 0;
  for (int c = 0; c < ZP_MEMORY_CLASSES; c++)
    if (zp_memory_class_bytes(&x, c) != zp_memory_class_bytes(&y, c)) return false;
  return true;
}

/* Does stage s belong to the group: equal, and as far behind its last stage as the others lie apart? */
static bool continues(const zp_program *program, const zp_stage_group *g, int s, bool whatever_saved) {
  int step = s - g->last;
  if (step > ZP_LONGEST_PATTERN || (g->last > g->first && step != g->step)) return false;
  return zp_choice_mode(&program->choice, g->first) == zp_choice_mode(&program->choice, s) &&
         equal_memory(&program->stages[g->first], &program->stages[s], whatever_saved);
}

zp_stage_groups zp_group_stages(zp_arena *arena, const zp_program *program, bool whatever_saved) {
  zp_stage_groups groups = {0};
  for (int s = 0; s < program->choice.pipeline; s++) {
    int g = groups.len - 1;
    while (g >= 0 && !continues(program, &groups.data[g], s, whatever_saved)) g--;
    if (g >= 0) {
      groups.data[g].step = s - groups.data[g].last;
      groups.data[g].last = s;
    } else {
      zp_stage_group fresh = {s, s, 1};
      zp_push(arena, &groups, fresh);
    }
  }
  return groups;
}

const char *zp_words_group(zp_arena *arena, zp_stage_group g) {
  if (g.first == g.last) return zp_format(arena, "%d", g.first);
  if (g.step == 1) return zp_format(arena, "%d-%d", g.first, g.last);
  const char *between = g.first + g.step == g.last ? "" : zp_format(arena, "%d..", g.first + g.step);
  return zp_format(arena, "%d,%s%d", g.first, between, g.last);
}

const char *zp_words_group_runs(zp_arena *arena, const zp_plan *plan, zp_stage_group g) {
  const zp_program *p = plan->program;
  const char *first = zp_words_stage(arena, p->lowered, &p->stages[g.first]);
  if (g.first == g.last) return first;
  return zp_format(arena, "%s to %s", first, zp_words_stage(arena, p->lowered, &p->stages[g.last]));
}

static int64_t class_or_total(const zp_plan *plan, int stage, int class) {
  zp_memory m = zp_stage_memory(plan, stage);
  if (class < ZP_MEMORY_CLASSES) return zp_memory_class_bytes(&m, class);
  return zp_memory_on_device(&m) + m.context;
}

const char *zp_words_group_bytes(zp_arena *arena, const zp_plan *plan, zp_stage_group g, int class) {
  int64_t low = INT64_MAX, high = 0;
  for (int s = g.first; s <= g.last; s += g.step) {
    int64_t bytes = class_or_total(plan, s, class);
    if (bytes < low) low = bytes;
    if (bytes > high) high = bytes;
  }
  const char *most = zp_words_bytes(arena, high), *least = zp_words_bytes(arena, low);
  return strcmp(most, least) == 0 ? most : zp_format(arena, "%s-%s", least, most);
}

const char *zp_words_outside(zp_arena *arena, const zp_plan *plan) {
  const zp_cluster *cluster = &plan->spec->cluster;
  zp_communicators made = zp_communicators_of(cluster, &plan->best.choice, plan->program->lowered->ties);
  zp_buf out = zp_buf_new(arena);
  bool cpu = cluster->node.device.is_cpu;
  zp_buf_printf(&out, "context %s (%s)", zp_words_bytes(arena, plan->machine.context_bytes),
                cpu ? "code, libraries, MPI" : "CUDA, libraries, their workspace");
  if (made.total_bytes == 0) return out.data;
  zp_buf_printf(&out, ", NCCL %s (", zp_words_bytes(arena, made.total_bytes));
  const char *comma = "";
  for (int g = 0; g < ZP_COMMUNICATOR_COUNT; g++) {
    if (made.bytes[g] == 0) continue;
    zp_buf_printf(&out, "%s%s %s", comma, zp_communicator_name((zp_communicator_kind)g),
                  zp_words_bytes(arena, made.bytes[g]));
    comma = ", ";
  }
  zp_buf_puts(&out, ")");
  return out.data;
}

/* ---- lines ---- */

enum { COLUMNS = 100 };

const char *zp_words_wrap(zp_arena *arena, const char *text, int indent) {
  zp_buf out = zp_buf_new(arena);
  int column = indent;
  while (*text) {
    int word = (int)strcspn(text, " ");
    if (column > indent && column + 1 + word > COLUMNS) {
      zp_buf_printf(&out, "\n%*s", indent, "");
      column = indent;
    } else if (out.len) {
      zp_buf_puts(&out, " ");
      column++;
    }
    zp_buf_put(&out, text, (size_t)word);
    column += word;
    text += word + (text[word] == ' ');
  }
  return out.data ? out.data : "";
}

/* ---- why ---- */

int64_t zp_words_units(const zp_plan *plan) {
  int64_t units = 0;
  for (int s = 0; s < plan->spec->model->segments.len; s++) units += plan->spec->model->segments.data[s].count;
  return units;
}

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
  zp_buf_printf(out, "data %d costs %.1f%% of the step for gradients", c->data,
                percent(plan->best.estimate.data_comm_s, plan->best.estimate.step_s));
  if (c->zero) zp_buf_printf(out, "; zero %d keeps 1/%d of %s on a rank", c->zero, c->data, kept[c->zero]);
  if (c->zero && zp_expert_ranks(c) > 1) zp_buf_printf(out, ", of its experts' 1/%d", c->data / zp_expert_ranks(c));
  zp_buf_puts(out, ". ");
}

/* Is recomputation needed? Lays out the plan's cuts with everything kept, instead of guessing. */
static void explain_recompute(zp_buf *out, const zp_plan *plan) {
  zp_choice keep = plan->best.choice;
  if (!keep.stage_recompute && keep.recompute == ZP_RECOMPUTE_NONE) return;
  keep.stage_recompute = NULL;
  keep.recompute = ZP_RECOMPUTE_NONE;
  keep.recompute_shard = false;
  const char *reason = NULL;
  zp_lowered **lowered = zp_lower_stages(out->arena, plan->spec, plan->program->lowered->sharding, &keep, &reason);
  if (!lowered) return;
  int64_t most_over = 0, most = 0;
  int fullest = 0;
  for (int s = 0; s < keep.pipeline; s++) {
    zp_stage layout;
    zp_layout_stage(out->arena, lowered[s], &keep, s, &layout);
    int64_t bytes = zp_memory_on_device(&layout.memory) + plan->machine.context_bytes;
    int64_t over = bytes - zp_words_usable_bytes(plan, s);
    if (over <= most_over) continue;
    most_over = over;
    most = bytes;
    fullest = s;
  }
  if (most > 0)
    zp_buf_printf(
        out, "without recomputation the fullest stage would need %s, and %s may be used of %s. ",
        zp_show_bytes(out->arena, most), zp_show_bytes(out->arena, zp_words_usable_bytes(plan, fullest)),
        zp_show_bytes(out->arena, zp_machine_of_stage(&plan->machine, &plan->best.choice, fullest).memory_bytes));
}

const char *zp_words_why(zp_arena *arena, const zp_plan *plan) {
  zp_buf out = zp_buf_new(arena);
  explain_tensor(&out, plan);
  explain_experts(&out, plan);
  explain_pipeline(&out, plan);
  explain_data(&out, plan);
  explain_recompute(&out, plan);
  if (out.len == 0) return "one rank: nothing to divide";
  while (out.len && (out.data[out.len - 1] == ' ' || out.data[out.len - 1] == '.')) out.data[--out.len] = 0;
  return out.data;
}
