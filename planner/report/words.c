/* SPDX-License-Identifier: Apache-2.0 */
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
  zp_buf_printf(&out, ")%s  data %d  zero %d  microbatch %lld  recompute %s",
                zp_context_ranks(c) > 1 ? zp_format(arena, "  context %d%s", c->context,
                                                    c->context_by == ZP_BY_RING ? " in a ring"
                                                    : c->context_by             ? " by keys"
                                                                                : "")
                                        : "",
                zp_replicas(c), c->zero, (long long)c->microbatch, zp_choice_recompute_words(arena, c));
  if (zp_expert_ranks(c) > 1) zp_buf_printf(&out, "  expert %d", c->expert);
  if (c->shard > 0) zp_buf_printf(&out, "  shard %d", c->shard);
  if (c->hpz > 0) zp_buf_printf(&out, "  hpz %d", c->hpz);
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
         zp_choice_layers(&program->choice, g->first) == zp_choice_layers(&program->choice, s) &&
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

/* ---- units ---- */

int64_t zp_words_units(const zp_plan *plan) {
  int64_t units = 0;
  for (int s = 0; s < plan->spec->model->segments.len; s++) units += plan->spec->model->segments.data[s].count;
  return units;
}
