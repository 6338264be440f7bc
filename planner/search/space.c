/* The space: tensor x pipeline x data = devices, ZeRO, micro-batch, recomputation; inside the plan block's constraints.
 *
 * Bounded so: without a constraint on it, micro-batches go up to 64 sequences; saved inputs are split over the tensor
 * ranks only with full recomputation; a GPU tensor group stays inside a node unless its size is pinned; ZeRO-1 with one
 * data rank is ZeRO-0. A triple of degrees that is rejected as a whole counts as one candidate. */
#include "search_internal.h"

enum { MAX_FREE_MICROBATCH = 64 };

static void reject(zp_searcher *s, zp_rejection why) {
  s->certificate.candidates++;
  s->certificate.rejected[why]++;
}

static bool pinned(const zp_limit *limit) {
  return limit->set && (limit->in.len == 1 || (limit->in.len == 0 && limit->low == limit->high));
}

static void note_miss(zp_searcher *s, const zp_point *point) {
  int64_t context = s->machine.context_bytes, have = s->limit_bytes + context;
  int64_t *cut = ZP_NEW_ARRAY(s->arena, int64_t, point->choice.pipeline + 1);
  double total = s->variants.data[point->variant].prefix_s[s->n_units];
  if (have <= 0) have = 1;
  if (s->miss_ratio > 0) { /* not nearer than the nearest so far? one pass instead of a bisection */
    int64_t beat = (int64_t)(s->miss_ratio * (double)have * (1 - 1e-6)) - context;
    if (!zp_cut_within(s, point, total, beat, false, cut)) return;
  }
  s->miss_ratio = (double)(zp_cut_least_memory(s, point, cut) + context) / (double)have;
  s->miss = (zp_miss){.choice = point->choice, .have_bytes = have};
  s->miss.choice.cut = cut;
  for (int stage = 0; stage < point->choice.pipeline; stage++) {
    zp_stage layout;
    zp_layout_stage(s->arena, s->variants.data[point->variant].lowered, &s->miss.choice, stage, &layout);
    if (layout.arena_bytes + context <= s->miss.need_bytes) continue;
    s->miss.stage = stage;
    s->miss.need_bytes = layout.arena_bytes + context;
    s->miss.memory = layout.memory;
    s->miss.memory.context = context;
  }
}

static void try_point(zp_searcher *s, zp_choice choice) {
  int variant = zp_search_variant(s, choice.tensor, choice.microbatch, choice.recompute, choice.recompute_shard);
  if (variant < 0) {
    reject(s, ZP_REJECT_SPLIT);
    return;
  }
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  zp_point point = {choice, variant, 0};
  int64_t *cut = ZP_NEW_ARRAY(s->arena, int64_t, choice.pipeline + 1);
  double total = s->variants.data[variant].prefix_s[s->n_units];
  bool fits = zp_cut_within(s, &point, total, s->limit_bytes, false, cut);
  zp_arena_rewind(s->arena, mark);
  if (!fits) {
    reject(s, ZP_REJECT_MEMORY);
    if (s->points.len == 0) note_miss(s, &point);
    return;
  }
  point.bound_s = zp_bound(s, &point, 0);
  s->certificate.candidates++;
  zp_push(s->arena, &s->points, point);
}

static void try_recompute(zp_searcher *s, zp_choice choice) {
  const zp_constraints *c = s->constraints;
  for (int recompute = ZP_RECOMPUTE_NONE; recompute <= ZP_RECOMPUTE_FULL; recompute++)
    for (int shard = 0; shard <= 1; shard++) {
      if (shard && (recompute != ZP_RECOMPUTE_FULL || choice.tensor == 1)) continue;
      choice.recompute = (zp_recompute)recompute;
      choice.recompute_shard = shard;
      if (!zp_limit_allows(&c->recompute, recompute) || !zp_limit_allows(&c->recompute_shard, shard))
        reject(s, ZP_REJECT_CONSTRAINT);
      else
        try_point(s, choice);
    }
}

static void try_zero(zp_searcher *s, zp_choice choice) {
  for (int zero = 0; zero <= 1; zero++) {
    if (zero == 1 && choice.data == 1 && zp_limit_allows(&s->constraints->zero, 0)) continue;
    choice.zero = zero;
    if (!zp_limit_allows(&s->constraints->zero, zero))
      reject(s, ZP_REJECT_CONSTRAINT);
    else
      try_recompute(s, choice);
  }
}

static void try_microbatches(zp_searcher *s, zp_choice choice) {
  int64_t samples = s->spec->train.batch / choice.data; /* of one replica and step */
  const zp_limit *limit = &s->constraints->microbatch;
  bool any = false;
  for (int64_t b = 1; b <= samples && (limit->set || b <= MAX_FREE_MICROBATCH); b++) {
    if (samples % b || !zp_limit_allows(limit, (double)b)) continue;
    any = true;
    choice.microbatch = b;
    try_zero(s, choice);
  }
  if (!any) reject(s, ZP_REJECT_BATCH);
}

static void try_degrees(zp_searcher *s, int tensor, int pipeline, int data) {
  const zp_constraints *c = s->constraints;
  bool is_cpu = s->spec->cluster.node.device.is_cpu;
  if (!zp_limit_allows(&c->tensor, tensor) || !zp_limit_allows(&c->pipeline, pipeline) ||
      !zp_limit_allows(&c->data, data))
    reject(s, ZP_REJECT_CONSTRAINT);
  else if (s->spec->train.batch % data)
    reject(s, ZP_REJECT_BATCH);
  else if (pipeline > s->n_units)
    reject(s, ZP_REJECT_UNITS);
  else if (!is_cpu && tensor > s->machine.devices_per_node && !pinned(&c->tensor))
    reject(s, ZP_REJECT_NODE);
  else
    try_microbatches(s, (zp_choice){.tensor = tensor, .pipeline = pipeline, .data = data});
}

void zp_search_enumerate(zp_searcher *s) {
  int devices = s->machine.devices;
  for (int tensor = 1; tensor <= devices; tensor++) {
    if (devices % tensor) continue;
    for (int pipeline = 1; pipeline <= devices / tensor; pipeline++)
      if (devices / tensor % pipeline == 0) try_degrees(s, tensor, pipeline, devices / tensor / pipeline);
  }
}
