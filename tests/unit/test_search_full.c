/* SPDX-License-Identifier: Apache-2.0 */
/* The search over all dimensions against brute force, on small random instances. */
#include "search_instances.h"

enum { INSTANCES = 280, MIXED_INSTANCES = 84, OFFLOAD_INSTANCES = 96, MUON_INSTANCES = 80, PROGRAM_INSTANCES = 80 };

TestSuite(search_full, .init = setup, .fini = teardown, .timeout = 1200);

/* ---- brute force: every choice, every cut, every way to give stages modes ---- */

/* One instance in seven has so many plans that brute force would spend most of its time on it: it is left out. Every
 * eighth may have ten times as many. */
enum { MODES = 4, MOST_WAYS = 81, MOST_SIMULATIONS = 10000 };

/* One mode, priced on every set of the node types in use; a plain cluster has set 1. */
typedef struct priced {
  const zp_lowered *any, *on[8];
} priced;

typedef struct brute {
  const zp_spec *spec;
  zp_machine machine;
  priced mode[MODES];        /* of the current choice, fastest first */
  int n_modes, first, n_set; /* stages choose among mode[first .. first + n_set - 1] */
  bool every_cut;            /* of several chunks a stage; else two: */
  int cut_by;                /* by the times of this mode */
  int simulations, most_simulations;
  double best_s;
} brute;

static bool has_enough(const brute *b) { return b->simulations > b->most_simulations; }

static void simulate(brute *b, const zp_choice *choice, const zp_lowered *const *stages) {
  if (has_enough(b)) return;
  b->simulations++;
  zp_arena *scratch = zp_arena_new("brute");
  zp_choice c = *choice;
  zp_stage_mode *modes = ZP_NEW_ARRAY(scratch, zp_stage_mode, c.pipeline);
  for (int s = 0; s < c.pipeline; s++) modes[s] = zp_stage_mode_of(stages[s]->recompute, stages[s]->recompute_shard);
  zp_stage_mix *mix = ZP_NEW_ARRAY(scratch, zp_stage_mix, c.pipeline);
  for (int s = 0; s < c.pipeline; s++) {
    const zp_lowered *rest = stages[s]->rest;
    mix[s] = (zp_stage_mix){ZP_ALL_LAYERS, modes[s]};
    if (rest) mix[s] = (zp_stage_mix){stages[s]->layers, zp_stage_mode_of(rest->recompute, rest->recompute_shard)};
  }
  zp_choice_set_modes(&c, modes);
  zp_choice_set_mix(&c, mix);
  b->best_s = fmin(b->best_s, zp_simulate(scratch, zp_program_make(scratch, stages, &c), &b->machine).step_s);
  zp_arena_free(scratch);
}

/* Does a stage fit; the seconds of its units. */
static bool stage_fits(const brute *b, const zp_choice *choice, int stage, const zp_lowered *own, double *seconds) {
  zp_machine at = zp_machine_of_stage(&b->machine, choice, stage);
  double share = b->spec->plans.data[0].memory_fraction;
  int here = at.devices < at.node->devices ? at.devices : at.node->devices;
  zp_stage x;
  zp_arena *scratch = zp_arena_new("brute");
  zp_layout_stage(scratch, own, choice, stage, &x);
  bool fits = x.arena_bytes <= (int64_t)(share * (double)at.memory_bytes) - at.context_bytes &&
              x.memory.host <= (int64_t)(share * (double)at.node->host_memory_bytes) / here &&
              x.memory.nvme <= (int64_t)(share * (double)at.node->nvme_bytes) / here;
  *seconds = 0;
  for (int r = 0; r < x.runs.len; r++) {
    const zp_segment_program *run = zp_run_segment(own, &x.runs.data[r]);
    *seconds += (double)x.runs.data[r].count * (run->forward.cost_s + run->backward.cost_s);
  }
  zp_arena_free(scratch);
  return fits;
}

/* The pair of modes and the number of first layers that fits and has the least work, if that is less. */
static const zp_lowered *find_mix(const brute *b, const zp_choice *choice, int stage, double least) {
  const zp_lowered *best = NULL;
  bool needs_matrices = zp_optimizer_facts(&b->spec->train)->needs == ZP_NEEDS_MATRICES;
  if (choice->pipeline == 1 || choice->chunks > 1 || b->spec->cluster.groups.len || needs_matrices) return NULL;
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (choice->home[i].eighths > 0) return NULL;
  for (int i = b->first; i < b->first + b->n_set; i++)
    for (int k = b->first; k < b->first + b->n_set; k++)
      for (int64_t n = 1; n < choice->cut[stage + 1] - choice->cut[stage] && i != k; n++) {
        double seconds;
        zp_lowered *rest = (zp_lowered *)(uintptr_t)b->mode[k].any;
        zp_lowered *own = zp_lower_mixed(arena, b->mode[i].any, rest, n);
        if (!stage_fits(b, choice, stage, own, &seconds) || seconds >= least * (1 - 1e-12)) continue;
        least = seconds;
        best = own;
      }
  return best;
}

/* What of the set fits on a stage, a mix of two modes first where that is faster than all of them: their number. */
static int find_fitting(const brute *b, const zp_choice *choice, int stage, const zp_lowered **fitting) {
  zp_node_set types = zp_machine_of_stage(&b->machine, choice, stage).types;
  double seconds, least = INFINITY;
  int n = 0;
  for (int i = b->first; i < b->first + b->n_set; i++) {
    if (!stage_fits(b, choice, stage, b->mode[i].any, &seconds)) continue;
    fitting[n++] = b->mode[i].on[types];
    least = fmin(least, seconds);
  }
  const zp_lowered *mix = n > 0 && fitting[0] != b->mode[b->first].any ? find_mix(b, choice, stage, least) : NULL;
  if (!mix) return n;
  for (int i = n++; i > 0; i--) fitting[i] = fitting[i - 1];
  fitting[0] = mix;
  return n;
}

/* All ways to give the stages modes that fit, where they are few; else the fastest everywhere but on one stage. */
static void try_cut(brute *b, zp_choice *choice) {
  const zp_lowered *fitting[16][MODES + 1], *stages[16];
  int n[16], ways = 1, P = choice->pipeline;
  bool chunked = choice->chunks > 1;
  if (has_enough(b)) return;
  for (int s = 0; s < P; s++) {
    if ((n[s] = find_fitting(b, choice, s, fitting[s])) == 0) return;
    if (ways <= MOST_WAYS) ways *= n[s];
  }
  if (chunked && b->every_cut) ways = 1; /* all cuts, each with the fastest modes that fit */
  if (ways <= MOST_WAYS) {
    for (int way = 0; way < ways; way++) {
      for (int s = 0, rest = way; s < P; rest /= n[s++]) stages[s] = fitting[s][rest % n[s]];
      simulate(b, choice, stages);
    }
    return;
  }
  for (int other = 0; other < P; other++)
    for (int k = other == 0 ? 0 : 1; k < n[other]; k++) {
      for (int s = 0; s < P; s++) stages[s] = fitting[s][s == other ? k : 0];
      simulate(b, choice, stages);
    }
}

/* Whole layers on several node types: on the fastest type, each way. */
static double least_unit_s(const priced *mode, int64_t unit) {
  int segment, n = 0;
  int64_t iteration;
  double forward = INFINITY, backward = INFINITY;
  zp_unit(mode->any, unit, &segment, &iteration);
  for (int set = 1; set < 8; set *= 2) {
    if (!mode->on[set]) continue;
    forward = fmin(forward, mode->on[set]->segments[segment].forward.cost_s);
    backward = fmin(backward, mode->on[set]->segments[segment].backward.cost_s);
    n++;
  }
  return n == 1 ? unit_s(mode->any, unit) : forward + backward;
}

/* Cuts with the shortest longest chunk: the first and the last of them in lexicographic order. */
typedef struct balanced {
  double longest_s;
  int64_t least[64], most[64];
} balanced;

static void note_cut(const brute *b, const zp_choice *choice, int chunks, balanced *best) {
  double longest = 0;
  for (int k = 0; k < chunks; k++) {
    double seconds = 0;
    for (int64_t u = choice->cut[k]; u < choice->cut[k + 1]; u++) seconds += least_unit_s(&b->mode[b->cut_by], u);
    longest = fmax(longest, seconds);
  }
  size_t bytes = sizeof *choice->cut * (size_t)(chunks + 1);
  if (longest < best->longest_s * (1 - 1e-9)) memcpy(best->least, choice->cut, bytes);
  if (longest <= best->longest_s * (1 + 1e-9)) {
    memcpy(best->most, choice->cut, bytes);
    best->longest_s = fmin(longest, best->longest_s);
  }
}

static void all_cuts(brute *b, zp_choice *choice, int chunks, int chunk, balanced *best) {
  if (chunk == chunks) {
    if (choice->cut[chunk] != b->mode[0].any->n_units) return;
    if (best)
      note_cut(b, choice, chunks, best);
    else
      try_cut(b, choice);
    return;
  }
  for (int64_t end = choice->cut[chunk] + 1; end <= b->mode[0].any->n_units - (chunks - 1 - chunk); end++) {
    choice->cut[chunk + 1] = end;
    all_cuts(b, choice, chunks, chunk + 1, best);
  }
}

static void try_cuts(brute *b, zp_choice *choice) {
  int chunks = choice->pipeline * (choice->chunks > 1 ? choice->chunks : 1);
  if (chunks > b->mode[0].any->n_units) return;
  if (choice->chunks <= 1 || b->every_cut) {
    all_cuts(b, choice, chunks, 0, NULL);
    return;
  }
  for (b->cut_by = b->first; b->cut_by < b->first + b->n_set; b->cut_by++) {
    balanced best = {.longest_s = 1e300};
    all_cuts(b, choice, chunks, 0, &best);
    memcpy(choice->cut, best.least, sizeof *choice->cut * (size_t)(chunks + 1));
    try_cut(b, choice);
    memcpy(choice->cut, best.most, sizeof *choice->cut * (size_t)(chunks + 1));
    try_cut(b, choice);
  }
}

/* Is no mode longer than the next slower one, forward or backward, in any segment? Else all stages take one mode, says
 * the space (planner/search/README.md). Node types that are mixed are left out: their instances were all ordered. */
static bool modes_are_ordered(const brute *b) {
  for (int i = 0; i + 1 < b->n_modes; i++) {
    const zp_lowered *fast = b->mode[i].any, *slow = b->mode[i + 1].any;
    for (int k = 0; k < fast->n_segments; k++)
      if (fast->segments[k].forward.cost_s > slow->segments[k].forward.cost_s * (1 + 1e-12) ||
          fast->segments[k].backward.cost_s > slow->segments[k].backward.cost_s * (1 + 1e-12))
        return false;
  }
  return true;
}

/* With state off the device every cut is in the space up to 32,768 of them. */
static bool has_few_cuts(const brute *b, const zp_choice *choice) {
  int chunks = choice->pipeline * (choice->chunks > 1 ? choice->chunks : 1);
  double ways = 1;
  for (int k = 1; k < chunks; k++) ways *= (double)(b->mode[0].any->n_units - k) / k;
  return ways < 32768.5;
}

/* The sets of modes that the stages choose among: all, or every mode alone. */
static void try_homes(brute *b, const zp_choice *choice) {
  bool leaves = false, acts = choice->home[ZP_STATE_ACTIVATIONS].eighths > 0, chunked = choice->chunks > 1;
  for (int i = 0; i < ZP_STATE_COUNT; i++) leaves |= choice->home[i].eighths > 0;
  bool one = (chunked && leaves) || acts || (!b->spec->cluster.groups.len && !modes_are_ordered(b));
  zp_choice c = *choice;
  if (zp_choice_refusal(&c, b->spec) || zp_trainer_refusal(b->spec->cluster.trainer, &b->spec->train, &c)) return;
  for (int i = 0; i < ZP_STATE_COUNT; i++) { /* = pins all of a class */
    const zp_limit *limit = &b->spec->plans.data[0].offload[i];
    if (!zp_limit_allows(limit, ZP_TIER_DEVICE) && choice->home[i].eighths < 8) return;
  }
  for (int k = 0; k < (one ? b->n_modes : 1); k++) {
    b->every_cut = !b->spec->cluster.groups.len && (!leaves || has_few_cuts(b, &c));
    b->first = k;
    b->n_set = one ? 1 : b->n_modes;
    try_cuts(b, &c);
  }
}

/* Every share of the first class from `class` on that may leave, and with all of it offloaded every share of the
 * next. */
static void try_tiers(brute *b, zp_choice choice, int class) {
  const zp_constraints *c = &b->spec->plans.data[0];
  while (class < ZP_STATE_COUNT && !zp_limit_leaves_device(&c->offload[class])) class ++;
  if (class == ZP_STATE_COUNT) return;
  for (int tier = ZP_TIER_HOST; tier <= ZP_TIER_NVME; tier++) {
    if (!zp_limit_allows(&c->offload[class], tier)) continue;
    for (int eighths = 1; eighths <= 8; eighths++) {
      choice.home[class] = (zp_home){(zp_tier)tier, eighths};
      try_homes(b, &choice);
    }
    try_tiers(b, choice, class + 1);
  }
}

static void try_orders(brute *b, zp_choice choice) {
  const zp_constraints *c = &b->spec->plans.data[0];
  bool only = choice.pipeline == 1 && zp_limit_allows(&c->schedule, ZP_SCHEDULE_1F1B);
  bool alone = choice.data == 1 && zp_limit_allows(&c->zero, 0);
  for (int schedule = 0; schedule < ZP_SCHEDULE_COUNT; schedule++)
    for (int chunks = 1; chunks <= 8; chunks++)
      for (int zero = 0; zero <= 3; zero++)
        for (int compress = 0; compress <= 1; compress++) {
          choice.schedule = (zp_schedule)schedule;
          choice.chunks = chunks;
          choice.zero = zero;
          choice.compress = compress;
          if (!zp_limit_allows(&c->schedule, schedule) || !zp_limit_allows(&c->zero, zero)) continue;
          if (compress ? !c->compress.set || !zp_limit_allows(&c->compress, 1) : !zp_limit_allows(&c->compress, 0))
            continue;
          if ((only && schedule != ZP_SCHEDULE_1F1B) || (alone && zero > 0)) continue;
          try_homes(b, &choice);
          try_tiers(b, choice, 0);
        }
}

static double work_of(const priced *mode) {
  double seconds = 0;
  for (int64_t u = 0; u < mode->any->n_units; u++) seconds += least_unit_s(mode, u);
  return seconds;
}

static bool price_mode(const brute *b, const zp_choice *c, const zp_sharding *sharding, zp_recompute recompute,
                       bool shard, priced *mode) {
  const char *reason = NULL;
  *mode = (priced){0};
  for (unsigned set = 1; set <= b->machine.types; set++) {
    if (set & ~b->machine.types) continue;
    zp_machine at = b->spec->cluster.groups.len ? zp_machine_of_types(&b->machine, set) : b->machine;
    zp_lowered *l = zp_lower(arena, b->spec, sharding, c->microbatch, recompute, shard, &reason);
    if (l && c->fine) l = zp_lower_pieces(arena, l, NULL, &reason);
    if (!l) return false;
    zp_price(l, &at, c->tensor, c->pipeline, c->data);
    mode->any = mode->on[set] = l;
  }
  return true;
}

/* All modes that the constraints allow, the fastest first; of equals, the one that keeps most. */
static void find_modes(brute *b, const zp_choice *choice) {
  static const zp_recompute order[] = {ZP_RECOMPUTE_NONE, ZP_RECOMPUTE_SELECTIVE, ZP_RECOMPUTE_FULL, ZP_RECOMPUTE_FULL};
  const zp_constraints *c = &b->spec->plans.data[0];
  const char *reason = NULL;
  zp_sharding *sharding = zp_shard(arena, b->spec->model, &b->machine, choice->tensor, 1, choice->sequence, &reason);
  b->n_modes = 0;
  for (int i = 0; i < MODES && sharding; i++) {
    bool shard = i == 3;
    if (!zp_limit_allows(&c->recompute, order[i]) || !zp_limit_allows(&c->recompute_shard, shard)) continue;
    if (shard && (choice->tensor == 1 || choice->sequence)) continue;
    priced mode;
    if (!price_mode(b, choice, sharding, order[i], shard, &mode)) continue;
    int at = b->n_modes++;
    for (; at > 0 && work_of(&mode) < work_of(&b->mode[at - 1]); at--) b->mode[at] = b->mode[at - 1];
    b->mode[at] = mode;
  }
}

static void try_rank_orders(brute *b, zp_choice choice, bool allowed) {
  for (int order = 0; order < ZP_ORDER_COUNT && b->n_modes && allowed; order++) {
    choice.order = (zp_rank_order)order;
    try_orders(b, choice);
  }
}

static void try_degrees(brute *b, int tensor, int pipeline, int data) {
  const zp_constraints *c = &b->spec->plans.data[0];
  bool one_host = b->spec->cluster.node.device.is_cpu;
  if ((!one_host && tensor > b->machine.devices_per_node) || has_enough(b)) return;
  for (int64_t microbatch = 1; microbatch <= 4; microbatch++)
    for (int sequence = 0; sequence <= (tensor > 1); sequence++) {
      if (b->spec->train.batch % (data * microbatch) || !zp_limit_allows(&c->microbatch, (double)microbatch) ||
          !zp_limit_allows(&c->sequence, sequence))
        continue;
      zp_choice choice = {.tensor = tensor,
                          .pipeline = pipeline,
                          .data = data,
                          .microbatch = microbatch,
                          .sequence = sequence,
                          .cut = ZP_NEW_ARRAY(arena, int64_t, 64)};
      find_modes(b, &choice);
      try_rank_orders(b, choice, zp_limit_allows(&c->cut, 0));
      choice.fine = b->n_modes && looks_inside_layers(b->mode[0].any, &c->cut, pipeline);
      if (!choice.fine) continue;
      find_modes(b, &choice);
      try_rank_orders(b, choice, true);
    }
}

/* `instance`: its number. NAN: too many plans. */
static double brute_force(const zp_spec *spec, int devices, int instance) {
  brute b = {.spec = spec, .best_s = INFINITY};
  b.most_simulations = instance % 8 ? MOST_SIMULATIONS : 10 * MOST_SIMULATIONS;
  int units = 0;
  for (int i = 0; i < spec->model->segments.len; i++) units += 2 * (int)spec->model->segments.data[i].count;
  for (int tensor = 1; tensor <= devices; tensor++)
    for (int pipeline = 1; pipeline <= units; pipeline++)
      for (int data = 1; data <= devices / tensor / pipeline; data++) {
        int ranks = tensor * pipeline * data;
        if (spec->train.batch % data || !zp_limit_allows(&spec->plans.data[0].idle, devices - ranks)) continue;
        b.machine = zp_machine_make(&spec->cluster, spec->train.precision, ranks);
        try_degrees(&b, tensor, pipeline, data);
      }
  return has_enough(&b) ? NAN : b.best_s;
}

typedef struct scaling {
  double share;
  int64_t kept; /* bytes */
} scaling;

static void scale_memory(zp_node_type *node, const void *user) {
  const scaling *to = user;
  node->device.memory_bytes = to->kept + (int64_t)(to->share * (double)(node->device.memory_bytes - to->kept));
}

/* Takes away some of the memory that the best plan uses alongside scratch. */
static void squeeze(zp_spec *spec, int devices) {
  const zp_plan *plan = zp_search(arena, spec, devices, NULL);
  double share = 0.6 + 0.004 * (double)random_below(100);
  if (!plan->feasible) return;
  const int64_t scratch = zp_products_bytes(spec), kept = scratch_bytes(spec);
  double used = 0; /* on the fullest stage, of its device */
  for (int s = 0; s < plan->best.choice.pipeline; s++) {
    zp_machine at = zp_machine_of_stage(&plan->machine, &plan->best.choice, s);
    used = fmax(used, (double)(plan->program->stages[s].arena_bytes - scratch + at.context_bytes) /
                          (double)(at.memory_bytes - kept));
  }
  const scaling to = {share * used / spec->plans.data[0].memory_fraction, kept};
  zp_cluster_change(arena, &spec->cluster, scale_memory, &to);
}

/* Sometimes a class that may leave the device has to. */
static bool pins_homes;

/* Brute force takes up to 33 times as long where state may leave: these instances are fewer. */
static void set_offload(zp_constraints *c, bool offload) {
  for (int i = 0; i < ZP_STATE_COUNT && !offload; i++) {
    c->offload[i] = (zp_limit){0};
    allow(&c->offload[i], ZP_TIER_DEVICE);
  }
  if (!offload) return;
  zp_limit *limit = &c->offload[random_below(ZP_STATE_COUNT)];
  if (pins_homes && random_below(2)) *limit = (zp_limit){0};
  allow(limit, 1 + random_below(2));
}

/* An update that takes longer where layers are, and whose matrices are whole. */
static bool takes_muon, takes_adafactor;
static void take_muon(zp_spec *spec) {
  zp_constraints *c = &spec->plans.data[0];
  spec->train.optimizer = takes_adafactor ? ZP_OPT_ADAFACTOR : ZP_OPT_MUON;
  spec->train.precision = ZP_PREC_F32; /* 16 bits have tiles that are larger than these devices */
  spec->cluster.node.device.is_cpu = true;
  spec->cluster.node.device.memory_bytes *= 16;
  if (!c->idle.set) c->idle = (zp_limit){.set = true, .high = 4}; /* else CPU ranks are all started */
}
/* Updates that pass twice over what is off the device. */
static bool asks_for_lengths;

/* Some parameters are frozen. */
static bool freezes;

/* Updates alongside the next step, on hosts so slow that it is often the longer one. */
static bool delays;
static void delay_updates(zp_spec *spec) {
  zp_node_type *node = &spec->cluster.node;
  spec->train.delayed = true;
  if (node->device.is_cpu) node->device.is_cpu = false;
  node->host_bytes_per_s /= 1 << random_below(12);
}

/* Nodes in any order: no plan of the written one is faster, `written_s` is its optimum; and of the order that is chosen
 * none at all. Is it another one? */
static bool compare_any_order(const zp_spec *spec, int devices, int instance, double written_s) {
  zp_spec any = *spec;
  zp_constraints constraints = spec->plans.data[0];
  constraints.node_order = (zp_limit){0};
  any.plans.data = &constraints;
  any.plans.len = any.plans.cap = 1;
  const zp_plan *plan = zp_search(arena, &any, devices, NULL);
  cr_assert(plan->feasible || !isfinite(written_s), "instance %d: nothing fits in any order", instance);
  if (!plan->feasible) return false;
  double found = plan->best.estimate.step_s;
  cr_assert(found <= written_s * (1 + 1e-9), "instance %d: found %.9g, as written %.9g", instance, found, written_s);
  if (!plan->spec->cluster.arranged) return false;
  double best = brute_force(plan->spec, devices, instance);
  if (!isnan(best))
    cr_assert(fabs(found / best - 1) < 1e-9, "instance %d: found %.9g, optimum %.9g", instance, found, best);
  return true;
}

static void expect_optima(bool several_types, bool offload, int instances) {
  int feasible = 0, mixed = 0, layers = 0, left_out = 0, arranged = 0;
  for (int i = 0; i < instances; i++) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    int devices;
    zp_spec *spec = random_spec_on(several_types, &devices);
    set_offload(&spec->plans.data[0], offload);
    if (takes_muon) take_muon(spec);
    if (freezes) freeze_some(spec);
    if (asks_for_lengths) spec->train.optimizer = i % 3 ? ZP_OPT_LAMB : ZP_OPT_ADAFACTOR;
    if (delays) delay_updates(spec);
    plan_for(spec, "zplan");
    spec->plans.data[0].node_order = (zp_limit){.set = true}; /* ZP_NODES_WRITTEN */
    if (i % 2) squeeze(spec, devices);
    double best = brute_force(spec, devices, i);
    if (isnan(best)) {
      left_out++;
      zp_arena_rewind(arena, mark);
      continue;
    }
    const zp_plan *plan = zp_search(arena, spec, devices, NULL);
    cr_assert(plan->feasible == isfinite(best), "instance %d: search says %d, optimum %g", i, plan->feasible, best);
    if (plan->feasible) {
      double found = plan->best.estimate.step_s;
      cr_assert(fabs(found / best - 1) < 1e-9, "instance %d: found %.9g, optimum %.9g", i, found, best);
      cr_assert(plan->certificate.searched_s == found, "instance %d: a gap in a settled space", i);
      cr_assert(plan->certificate.bound_s <= found);
      feasible++;
      mixed += plan->best.choice.stage_recompute != NULL;
      layers += plan->best.choice.mix != NULL;
    }
    if (several_types) arranged += compare_any_order(spec, devices, i, best);
    zp_arena_rewind(arena, mark);
  }
  cr_expect_eq(arranged > 0, several_types, "%d plans with nodes in another order", arranged);
  cr_expect(4 * feasible >= instances && feasible < instances, "%d of %d", feasible, instances);
  cr_expect(mixed > instances / 100 || offload, "%d plans with stages that differ", mixed);
  cr_expect(layers > 0 || offload || several_types || takes_muon || instances < INSTANCES / 4,
            "no plan with a stage whose layers differ");
  cr_expect(left_out <= instances / 5 + 2, "%d of %d have too many plans", left_out, instances);
}

Test(search_full, equals_brute_force) {
  state = 2;
  expect_optima(false, false, sample_of(INSTANCES));
}

Test(search_full, equals_brute_force_with_muon) {
  state = 3;
  takes_muon = true;
  expect_optima(false, false, sample_of(MUON_INSTANCES));
}

/* State that no element has a share of, and sums that bounds leave out. */
Test(search_full, equals_brute_force_with_adafactor) {
  state = 5;
  takes_muon = takes_adafactor = true;
  expect_optima(false, false, MUON_INSTANCES / 2);
}

/* In a quarter of the instances all parameters but one: what is left has next to no state, and weights fill the
 * memory. */
Test(search_full, equals_brute_force_with_frozen_parameters) {
  state = 21;
  freezes = true;
  expect_optima(false, false, sample_of(INSTANCES / 2));
}

Test(search_full, equals_brute_force_with_frozen_parameters_and_offloading) {
  state = 25;
  freezes = true;
  expect_optima(false, true, sample_of(OFFLOAD_INSTANCES / 2));
}

Test(search_full, equals_brute_force_on_mixed_nodes) {
  state = 5;
  expect_optima(true, false, MIXED_INSTANCES);
}

Test(search_full, equals_brute_force_with_offloading) {
  state = 9;
  expect_optima(false, true, sample_of(OFFLOAD_INSTANCES));
}

Test(search_full, equals_brute_force_with_offloading_on_mixed_nodes) {
  state = 3;
  expect_optima(true, true, OFFLOAD_INSTANCES / 6);
}

Test(search_full, equals_brute_force_with_lengths_off_the_device) {
  state = 29;
  asks_for_lengths = pins_homes = true;
  expect_optima(false, true, sample_of(OFFLOAD_INSTANCES / 3));
}

Test(search_full, equals_brute_force_with_pinned_homes) {
  state = 17;
  pins_homes = true;
  expect_optima(false, true, sample_of(OFFLOAD_INSTANCES / 3));
}

Test(search_full, equals_brute_force_with_delayed_updates) {
  state = 21;
  delays = true;
  expect_optima(false, false, sample_of(OFFLOAD_INSTANCES / 3));
}

/* ---- other programs: their profiles change prices and what bounds them ---- */

static void set_program(zp_spec *spec, const char *profile) {
  zp_constraints *c = &spec->plans.data[0];
  zp_limit *sound[] = {&c->schedule, &c->zero, &c->sequence, &c->cut, &c->compress};
  for (size_t i = 0; i < sizeof sound / sizeof *sound; i++) *sound[i] = (zp_limit){0};
  for (int zero = 2 * (strcmp(profile, "fsdp") == 0); zero <= 3; zero++) allow(&c->zero, zero);
  allow(&c->compress, 0);
  plan_for(spec, profile);
}

Test(search_full, finds_the_optimum_of_other_programs) {
  static const char *const profiles[] = {"megatron", "megatron-lm-v3", "deepspeed", "fsdp", "deepspeed-zero3-2022"};
  const int instances = sample_of(PROGRAM_INSTANCES);
  int compared = 0;
  for (int i = 0; i < instances; i++) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    int devices;
    zp_spec *spec = random_spec_on(false, &devices);
    const char *profile = profiles[i % 5];
    set_offload(&spec->plans.data[0], false);
    if (!spec->cluster.node.device.is_cpu) {
      set_program(spec, profile);
      if (i % 2) squeeze(spec, devices);
      double best = brute_force(spec, devices, i);
      const zp_plan *plan = isnan(best) ? NULL : zp_search(arena, spec, devices, NULL);
      if (plan) cr_assert(plan->feasible == isfinite(best), "%s, instance %d", profile, i);
      if (plan && plan->feasible) {
        double found = plan->best.estimate.step_s;
        cr_assert(plan->certificate.bound_s <= best * (1 + 1e-9), "%s, instance %d: bound %.9g, optimum %.9g", profile,
                  i, plan->certificate.bound_s, best);
        cr_assert(fabs(found / best - 1) < 1e-9, "%s, instance %d: found %.9g, optimum %.9g", profile, i, found, best);
        compared++;
      }
    }
    zp_arena_rewind(arena, mark);
  }
  cr_assert(compared >= instances / 4, "%d instances were compared", compared);
}
