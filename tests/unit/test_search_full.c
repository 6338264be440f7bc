/* The search over all dimensions against brute force, its bounds against the simulation, and what is monotone. Small
 * random instances from a fixed seed. */
#include <math.h>
#include "../../planner/search/search_internal.h"
#include "planner_models.h"

#ifdef __SANITIZE_ADDRESS__
enum { INSTANCES = 60, MIXED_INSTANCES = 120, PARTIAL_PLANS = 4000 };
#else
enum { INSTANCES = 1000, MIXED_INSTANCES = 250, PARTIAL_PLANS = 100000 };
#endif

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(search_full, .init = setup, .fini = teardown, .timeout = 120);

static uint64_t state;
static int64_t random_below(int64_t n) {
  state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (int64_t)((state >> 33) % (uint64_t)n);
}

/* ---- random instances ---- */

static zp_cluster random_cluster(int *devices) {
  static const int counts[] = {1, 2, 3, 4, 4, 6, 8, 8, 12, 16};
  *devices = counts[random_below(10)];
  zp_cluster c = gpu_cluster(1);
  c.node.devices = (int)(random_below(3) == 0 ? *devices : 1 + random_below(8));
  c.nodes = (*devices + c.node.devices - 1) / c.node.devices;
  c.node.device.context_bytes = 1000;
  c.node.device.flop_per_s_fp32 = 1e9 * (double)(1 + random_below(2000));
  c.node.device.memory_bytes = (int64_t)(30000 * exp(0.01 * (double)random_below(600)));
  c.node.link.bytes_per_s = 1e8 * (double)(1 + random_below(100));
  c.node.nic.bytes_per_s = 1e7 * (double)(1 + random_below(100));
  c.node.nic.latency_s = 1e-6 * (double)random_below(100);
  c.node.host_memory_bytes = (int64_t)(30000 * exp(0.01 * (double)random_below(700)));
  c.node.host_bytes_per_s = 1e9, c.node.pcie_bytes_per_s = 3e8;
  c.node.nvme_bytes = 1000 * (1 + random_below(10000));
  c.node.nvme_read_bytes_per_s = 1e8, c.node.nvme_write_bytes_per_s = 5e7;
  return c;
}

/* The nodes of a cluster become two or three types that differ in everything that is priced. */
static void mix_nodes(zp_cluster *c) {
  zp_node_type plain = c->node;
  int left = c->nodes;
  while (left > 0 && c->groups.len < 3) {
    int nodes = c->groups.len == 2 ? left : 1 + (int)random_below(left);
    zp_node_group group = {.nodes = nodes, .type = plain};
    group.type.devices = c->groups.len ? 1 + (int)random_below(2 * plain.devices) : plain.devices;
    group.type.device.flop_per_s_fp32 *= 0.3 + 0.1 * (double)random_below(15);
    group.type.device.flop_per_s_half *= 0.3 + 0.1 * (double)random_below(15);
    group.type.device.memory_bytes = plain.device.memory_bytes * (20 + random_below(60)) / 20;
    group.type.device.memory_bytes_per_s *= 0.5 + 0.1 * (double)random_below(10);
    group.type.link.bytes_per_s *= 0.5 + 0.5 * (double)random_below(4);
    group.type.nic.bytes_per_s *= 0.5 + 0.5 * (double)random_below(4);
    group.type.host_memory_bytes = plain.host_memory_bytes * (1 + random_below(4)) / 2;
    zp_push(arena, &c->groups, group);
    left -= nodes;
  }
}

/* Mixed nodes whose devices are all in use or not. */
static void mix_cluster(zp_cluster *c, int devices) {
  c->nodes = 2 + (int)random_below(3);
  mix_nodes(c);
  while (zp_cluster_devices(c) < devices) c->groups.data[random_below(c->groups.len)].nodes++;
  zp_cluster_mix(arena, c);
}

static void allow(zp_limit *limit, int64_t value) {
  limit->set = true;
  zp_push(arena, &limit->in, (double)value);
}

/* One to three of the values 0 .. n - 1. */
static void allow_some(zp_limit *limit, int64_t n) {
  for (int64_t k = random_below(3); k >= 0; k--) allow(limit, random_below(n));
}

static void constrain(zp_constraints *c) {
  allow_some(&c->zero, 4);
  if (random_below(4) == 0) allow_some(&c->recompute, 3); /* mostly all, so that stages have something to choose */
  allow_some(&c->schedule, ZP_SCHEDULE_COUNT);
  allow_some(&c->sequence, 2);
  if (random_below(4) == 0) allow_some(&c->recompute_shard, 2);
  for (int64_t b = 1; b <= 4; b *= 2)
    if (b == 1 || random_below(2)) allow(&c->microbatch, b);
  if (random_below(4) == 0) allow_some(&c->compress, 2);
  for (int i = 0; i < ZP_STATE_COUNT; i++) {
    bool open = random_below(6) == 0;
    allow(&c->offload[i], ZP_TIER_DEVICE);
    if (open) allow(&c->offload[i], 1 + random_below(2));
  }
}

static zp_spec *random_spec_on(bool mixed, int *devices) {
  static const model_style styles[] = {STYLE_GPT, STYLE_GPT, STYLE_LLAMA, STYLE_PARALLEL};
  model_size size = {.style = styles[random_below(4)], .V = 40 + random_below(200), .S = 8 << random_below(2)};
  size.heads = size.kv_heads = 2 << random_below(2);
  size.d = size.heads * (4 << random_below(2));
  size.layers = 1 + random_below(random_below(4) ? 5 : 10);
  size.ff = size.d * 4;
  size.tied = random_below(2);
  zp_cluster cluster = random_cluster(devices);
  if (mixed) mix_cluster(&cluster, *devices);
  zp_spec *spec = build_spec(arena, &size, cluster, (1 << random_below(5)) * (1 + random_below(3)));
  if (random_below(2)) spec->train.precision = ZP_PREC_MIXED_FP16;
  constrain(&spec->plans.data[0]);
  zp_limit *cut = &spec->plans.data[0].cut;
  if (size.layers > 4) /* brute force has to end */
    allow(cut, 0);
  else if (size.style != STYLE_PARALLEL && size.V % 3 > 0) /* a third of the instances leave it to the search */
    allow(cut, size.V % 3 - 1);
  if (mixed) { /* without a word about it, layers stay whole */
    *cut = (zp_limit){0};
    allow(cut, 0);
  }
  return spec;
}

static zp_spec *random_spec(int *devices) { return random_spec_on(false, devices); }

/* ---- brute force: every choice, every cut, every way to give stages modes ---- */

enum { MODES = 4, MOST_WAYS = 81 };

/* One mode, priced on every set of the node types in use; a plain cluster has set 1. */
typedef struct priced {
  const zp_lowered *any, *on[8];
} priced;

typedef struct brute {
  const zp_spec *spec;
  zp_machine machine;
  priced mode[MODES];        /* of the choice at hand, fastest first */
  int n_modes, first, n_set; /* stages choose among mode[first .. first + n_set - 1] */
  int cut_by;                /* several chunks a stage: cut by the times of this one */
  double best_s;
  bool fits; /* some cut of the choice at hand */
} brute;

static void simulate(brute *b, const zp_choice *choice, const zp_lowered *const *stages) {
  zp_arena *scratch = zp_arena_new("brute");
  zp_choice c = *choice;
  zp_stage_mode *modes = ZP_NEW_ARRAY(scratch, zp_stage_mode, c.pipeline);
  for (int s = 0; s < c.pipeline; s++) modes[s] = zp_stage_mode_of(stages[s]->recompute, stages[s]->recompute_shard);
  zp_choice_set_modes(&c, modes);
  b->best_s = fmin(b->best_s, zp_simulate(scratch, zp_program_make(scratch, stages, &c), &b->machine).step_s);
  zp_arena_free(scratch);
}

/* What of the set fits on a stage: the number of modes. */
static int find_fitting(const brute *b, const zp_choice *choice, int stage, const zp_lowered **fitting) {
  zp_machine at = zp_machine_of_stage(&b->machine, choice, stage);
  double share = b->spec->plans.data[0].memory_fraction;
  int n = 0, here = at.devices < at.node->devices ? at.devices : at.node->devices;
  for (int i = b->first; i < b->first + b->n_set; i++) {
    zp_stage x;
    zp_arena *scratch = zp_arena_new("brute");
    zp_layout_stage(scratch, b->mode[i].any, choice, stage, &x);
    if (x.arena_bytes <= (int64_t)(share * (double)at.memory_bytes) - at.context_bytes &&
        x.memory.host <= (int64_t)(share * (double)at.node->host_memory_bytes) / here &&
        x.memory.nvme <= (int64_t)(share * (double)at.node->nvme_bytes) / here)
      fitting[n++] = b->mode[i].on[at.types];
    zp_arena_free(scratch);
  }
  return n;
}

/* All ways to give the stages modes that fit, where they are few; else the fastest everywhere but on one stage. */
static void try_cut(brute *b, zp_choice *choice) {
  const zp_lowered *fitting[16][MODES], *stages[16];
  int n[16], ways = 1, P = choice->pipeline;
  for (int s = 0; s < P; s++) {
    if ((n[s] = find_fitting(b, choice, s, fitting[s])) == 0) return;
    if (ways <= MOST_WAYS) ways *= n[s];
  }
  b->fits = true;
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

/* Of all cuts in lexicographic order: those with the shortest longest chunk, the first and the last of them. */
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
  if (choice->chunks <= 1) {
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

/* The first step of the offload chain that fits. */
static void try_chain(brute *b, const zp_choice *choice, const zp_tier *tier) {
  zp_choice c = *choice;
  int last = 0;
  for (int i = 0; i < ZP_STATE_COUNT; i++) last += tier[i] == ZP_TIER_DEVICE ? 0 : 8;
  b->fits = false;
  for (int step = 0; step <= last && !b->fits; step++) {
    int left = step;
    for (int i = 0; i < ZP_STATE_COUNT; i++) {
      int eighths = tier[i] == ZP_TIER_DEVICE ? 0 : left < 8 ? left : 8;
      left -= eighths;
      c.home[i] = (zp_home){eighths ? tier[i] : ZP_TIER_DEVICE, eighths};
    }
    if (!zp_choice_refusal(&c, b->spec)) try_cuts(b, &c);
  }
}

/* The sets of modes that the stages choose among. */
static void try_homes(brute *b, const zp_choice *choice, const zp_tier *tier) {
  bool leaves = false, chunked = choice->chunks > 1;
  for (int i = 0; i < ZP_STATE_COUNT; i++) leaves |= tier[i] != ZP_TIER_DEVICE;
  bool one = (chunked && leaves) || tier[ZP_STATE_ACTIVATIONS] != ZP_TIER_DEVICE;
  for (int last = one || leaves ? 0 : b->n_modes - 1; last < b->n_modes; last++) {
    b->first = one ? last : 0;
    b->n_set = last + 1 - b->first;
    try_chain(b, choice, tier);
  }
}

static void try_tiers(brute *b, const zp_choice *choice, zp_tier *tier, int class) {
  if (class == ZP_STATE_COUNT) {
    try_homes(b, choice, tier);
    return;
  }
  const zp_limit *limit = &b->spec->plans.data[0].offload[class];
  bool host = zp_limit_allows(limit, ZP_TIER_HOST), nvme = zp_limit_allows(limit, ZP_TIER_NVME);
  for (int t = ZP_TIER_DEVICE; t <= ZP_TIER_NVME; t++) {
    if (t == ZP_TIER_DEVICE ? host || nvme : t == ZP_TIER_HOST ? !host : !nvme) continue;
    tier[class] = (zp_tier)t;
    try_tiers(b, choice, tier, class + 1);
  }
}

static void try_orders(brute *b, zp_choice choice) {
  const zp_constraints *c = &b->spec->plans.data[0];
  zp_tier tier[ZP_STATE_COUNT];
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
          if (!zp_choice_refusal(&choice, b->spec)) try_tiers(b, &choice, tier, 0);
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
    if (l && c->fine) l = zp_lower_pieces(arena, l, &reason);
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

static void try_degrees(brute *b, int tensor, int pipeline, int data) {
  const zp_constraints *c = &b->spec->plans.data[0];
  if (tensor > b->machine.devices_per_node) return;
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
      for (int order = 0; order < ZP_ORDER_COUNT && b->n_modes; order++) {
        choice.order = (zp_rank_order)order;
        choice.fine = false;
        find_modes(b, &choice);
        if (zp_limit_allows(&c->cut, 0)) try_orders(b, choice);
        if (!looks_inside_layers(b->mode[0].any, &c->cut, pipeline)) continue;
        choice.fine = true;
        find_modes(b, &choice);
        if (b->n_modes) try_orders(b, choice);
        b->n_modes = 1; /* those of whole layers are there */
      }
    }
}

static double brute_force(const zp_spec *spec, int devices) {
  brute b = {
      .spec = spec, .machine = zp_machine_make(&spec->cluster, spec->train.precision, devices), .best_s = INFINITY};
  int units = 0;
  for (int i = 0; i < spec->model->segments.len; i++) units += 2 * (int)spec->model->segments.data[i].count;
  for (int tensor = 1; tensor <= devices; tensor++)
    for (int pipeline = 1; pipeline <= units; pipeline++)
      for (int data = 1; data <= devices; data++)
        if (tensor * pipeline * data == devices) try_degrees(&b, tensor, pipeline, data);
  return b.best_s;
}

static void scale_memory(zp_node_type *node, const void *user) {
  node->device.memory_bytes = (int64_t)(*(const double *)user * (double)node->device.memory_bytes);
}

/* Takes away some of the memory that the best plan uses. */
static void squeeze(zp_spec *spec, int devices) {
  const zp_plan *plan = zp_search(arena, spec, devices, NULL);
  double share = 0.6 + 0.004 * (double)random_below(100);
  if (!plan->feasible) return;
  double used = 0; /* on the fullest stage, of its device */
  for (int s = 0; s < plan->best.choice.pipeline; s++) {
    zp_machine at = zp_machine_of_stage(&plan->machine, &plan->best.choice, s);
    used = fmax(used, (double)(plan->program->stages[s].arena_bytes + at.context_bytes) / (double)at.memory_bytes);
  }
  share *= used / spec->plans.data[0].memory_fraction;
  zp_cluster_change(arena, &spec->cluster, scale_memory, &share);
}

static void expect_optima(bool several_types, int instances) {
  int feasible = 0, mixed = 0;
  for (int i = 0; i < instances; i++) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    int devices;
    zp_spec *spec = random_spec_on(several_types, &devices);
    if (i % 2) squeeze(spec, devices);
    double best = brute_force(spec, devices);
    const zp_plan *plan = zp_search(arena, spec, devices, NULL);
    cr_assert(plan->feasible == isfinite(best), "instance %d: search says %d, optimum %g", i, plan->feasible, best);
    if (plan->feasible) {
      double found = plan->best.estimate.step_s;
      cr_assert(fabs(found / best - 1) < 1e-9, "instance %d: found %.9g, optimum %.9g", i, found, best);
      cr_assert(plan->certificate.bound_s == found, "instance %d: a gap in a settled space", i);
      feasible++;
      mixed += plan->best.choice.stage_recompute != NULL;
    }
    zp_arena_rewind(arena, mark);
  }
  cr_expect(feasible > instances / 4 && feasible < instances, "%d of %d", feasible, instances);
  cr_expect(mixed > instances / 100, "%d plans with stages that differ", mixed);
}

Test(search_full, equals_brute_force) {
  state = 1;
  expect_optima(false, INSTANCES);
}

Test(search_full, equals_brute_force_on_mixed_nodes) {
  state = 5;
  expect_optima(true, MIXED_INSTANCES);
}

/* ---- bounds ---- */

typedef struct trial {
  zp_searcher s;
  zp_spec *spec;
  int devices;
} trial;

static void random_degrees(zp_choice *c, int devices, int64_t units) {
  do c->tensor = 1 + (int)random_below(devices);
  while (devices % c->tensor);
  do c->pipeline = 1 + (int)random_below(devices / c->tensor);
  while (devices / c->tensor % c->pipeline || c->pipeline > units);
  c->data = devices / c->tensor / c->pipeline;
}

static bool random_point(trial *t, zp_point *point) {
  zp_choice c = {.zero = (int)random_below(4), .microbatch = 1 << random_below(2)};
  c.order = (zp_rank_order)random_below(ZP_ORDER_COUNT);
  random_degrees(&c, t->devices, t->s.most_units);
  c.fine = c.pipeline > 1 && random_below(2);
  if (t->spec->train.batch % (c.data * c.microbatch)) return false;
  c.schedule = (zp_schedule)random_below(ZP_SCHEDULE_COUNT);
  if (c.schedule == ZP_SCHEDULE_ZB_V) c.chunks = 2;
  if (c.schedule == ZP_SCHEDULE_INTERLEAVED) c.chunks = 2 + (int)random_below(3);
  c.sequence = c.tensor > 1 && random_below(2);
  c.compress = c.data > 1 && c.zero == 0 && random_below(4) == 0;
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (!c.compress && random_below(6) == 0)
      c.home[i] = (zp_home){random_below(2) ? ZP_TIER_HOST : ZP_TIER_NVME, 1 + (int)random_below(8)};
  if (zp_choice_refusal(&c, t->spec)) return false;
  zp_mode_set modes = zp_set_of_mode((zp_stage_mode)random_below(3)), more = (zp_mode_set)random_below(8);
  if (c.tensor > 1 && !c.sequence && random_below(4) == 0) more |= zp_set_of_mode(ZP_RECOMPUTE_FULL | ZP_STAGE_SPLIT);
  return zp_search_point(&t->s, &c, modes | more, point) && zp_model_chunks(&c) <= zp_point_units(&t->s, point);
}

static void random_cut(int64_t *cut, int chunks, int64_t units) {
  cut[0] = 0, cut[chunks] = units;
  for (int k = 1; k < chunks; k++) {
    int64_t most = units - (chunks - k) - cut[k - 1], mean = 2 * (units - cut[k - 1]) / (chunks - k + 1);
    cut[k] = cut[k - 1] + 1 + random_below(mean < most ? mean : most);
  }
}

static void check_bounds(trial *t, zp_point *point) {
  zp_arena *scratch = zp_arena_new("bounds");
  int chunks = zp_model_chunks(&point->choice);
  zp_choice c = point->choice;
  c.cut = ZP_NEW_ARRAY(scratch, int64_t, chunks + 1);
  random_cut(c.cut, chunks, zp_point_units(&t->s, point));
  if (c.chunks > 1) { /* bounds hold for the cuts of the space */
    zp_limits all = {INT64_MAX, INT64_MAX, INT64_MAX};
    cr_assert(zp_cut_chunks(&t->s, point, &all, (int)random_below(point->n_modes), random_below(2), c.cut));
  }
  const zp_variant **own = ZP_NEW_ARRAY(scratch, const zp_variant *, c.pipeline);
  for (int i = 0; i < c.pipeline; i++)
    own[i] = zp_on_stage(&t->s, &c, &t->s.variants.data[point->modes[random_below(point->n_modes)]], i);
  c = zp_choice_of_cut(&t->s, point, c.cut, own);
  const zp_program *program = zp_program_make(scratch, zp_search_stages(&t->s, &c), &c);
  int64_t most = 0;
  for (int s = 0; s < c.pipeline; s++)
    if (program->stages[s].arena_bytes > most) most = program->stages[s].arena_bytes;
  t->s.limit_bytes = most; /* what memory forces is a bound of plans that fit */
  zp_find_least_work(&t->s, point, true);
  double step = zp_simulate(scratch, program, &t->s.machine).step_s;
  double whole = zp_bound(&t->s, point), of_cut = zp_bound_of_cut(&t->s, point, c.cut, own);
  cr_assert(whole <= step && of_cut <= step && whole <= of_cut,
            "%s, %d x %d x %d, zero %d, chunks %d, %lld micro-batches: bounds %.9g, %.9g of %.9g",
            zp_schedule_name(c.schedule), c.tensor, c.pipeline, c.data, c.zero, c.chunks,
            (long long)program->microbatches, whole, of_cut, step);
  cr_assert(zp_memory_floor(&t->s, point) <= most);
  zp_arena_free(scratch);
}

static void expect_bounds(bool mixed, int plans) {
  int checked = 0;
  while (checked < plans) {
    trial t = {.s.arena = zp_arena_new("trial")};
    zp_arena_mark mark = zp_arena_get_mark(arena);
    t.spec = random_spec_on(mixed, &t.devices);
    zp_machine machine = zp_machine_make(&t.spec->cluster, t.spec->train.precision, t.devices);
    zp_search_start(&t.s, t.spec, &machine, NULL);
    for (int k = 0; k < 400; k++) {
      zp_point point;
      if (!random_point(&t, &point)) continue;
      check_bounds(&t, &point);
      checked++;
    }
    zp_arena_free(t.s.arena);
    zp_arena_rewind(arena, mark);
  }
}

Test(search_full, bounds_are_below_the_simulation) {
  state = 2;
  expect_bounds(false, PARTIAL_PLANS);
}

Test(search_full, bounds_are_below_the_simulation_on_mixed_nodes) {
  state = 6;
  expect_bounds(true, PARTIAL_PLANS / 4);
}

/* ---- what is monotone ---- */

static double best_s(zp_spec *spec, int devices) {
  const zp_plan *plan = zp_search(arena, spec, devices, NULL);
  return plan->feasible ? plan->best.estimate.step_s : INFINITY;
}

/* Without offload, more memory on the device only adds plans to the space. */
Test(search_full, more_device_memory_is_never_worse) {
  state = 3;
  for (int i = 0; i < INSTANCES / 10; i++) {
    int devices;
    zp_spec *spec = random_spec(&devices);
    for (int k = 0; k < ZP_STATE_COUNT; k++) spec->plans.data[0].offload[k] = (zp_limit){0};
    double before = INFINITY;
    for (int k = 0; k < 4; k++) {
      double now = best_s(spec, devices);
      cr_assert(now <= before * (1 + 1e-9), "instance %d: %g after %g", i, now, before);
      before = now;
      spec->cluster.node.device.memory_bytes *= 2;
    }
  }
}

/* Faster devices and wider constraints never hurt, either. */
Test(search_full, wider_constraints_are_never_worse) {
  state = 4;
  for (int i = 0; i < INSTANCES / 10; i++) {
    int devices;
    zp_spec *spec = random_spec(&devices);
    zp_constraints *c = &spec->plans.data[0];
    for (int k = 0; k < ZP_STATE_COUNT; k++) c->offload[k] = (zp_limit){0};
    double narrow = best_s(spec, devices);
    allow(&c->schedule, random_below(ZP_SCHEDULE_COUNT));
    allow(&c->zero, random_below(4));
    if (c->recompute.set) allow(&c->recompute, random_below(3));
    double wide = best_s(spec, devices);
    cr_assert(wide <= narrow * (1 + 1e-9), "instance %d: %g, wider %g", i, narrow, wide);
  }
}

/* ---- options ---- */

Test(search_full, generated_only_says_what_is_not_generated) {
  model_size size = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};
  zp_spec *spec = build_spec(arena, &size, cpu_cluster(), 8);
  pin(&spec->plans.data[0].schedule, ZP_SCHEDULE_ZB_H1);
  pin(&spec->plans.data[0].pipeline, 2);
  zp_search_options options = {.generated_only = true};
  zp_plan *plan = zp_search(arena, spec, 4, &options);
  cr_expect(!plan->feasible);
  cr_assert_not_null(plan->why_not);
  cr_expect(strstr(plan->why_not, "planned, not generated"), "%s", plan->why_not);
  plan = zp_search(arena, spec, 4, NULL);
  cr_assert(plan->feasible);
  cr_expect_eq(plan->best.choice.schedule, ZP_SCHEDULE_ZB_H1);
}

Test(search_full, cpu_clusters_plan_what_is_generated) {
  model_size size = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};
  zp_plan *plan = zp_search(arena, build_spec(arena, &size, cpu_cluster(), 8), 4, NULL);
  cr_assert(plan->feasible);
  const char *why;
  cr_expect(zp_choice_is_generated(&plan->best.choice, &why), "%s", why);
}

Test(search_full, a_gap_is_kept) {
  model_size size = {STYLE_GPT, 512, 64, 128, 20, 4, 4, 512, true};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(1), 64);
  double best = zp_search(arena, spec, 16, NULL)->best.estimate.step_s;
  zp_search_options options = {.gap = 0.05};
  const zp_plan *plan = zp_search(arena, spec, 16, &options);
  cr_expect(plan->best.estimate.step_s <= 1.05 * best);
  cr_expect(plan->certificate.bound_s <= best);
}

/* Early stages keep more micro-batches: as memory shrinks they recompute first, and never less than a later stage of
 * as many layers. */
Test(search_full, early_stages_recompute_first) {
  model_size size = {STYLE_GPT, 64, 64, 128, 16, 4, 4, 512, false};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(1), 32);
  zp_constraints *c = &spec->plans.data[0];
  pin(&c->tensor, 1), pin(&c->pipeline, 4), pin(&c->microbatch, 1), pin(&c->zero, 0);
  pin(&c->schedule, ZP_SCHEDULE_1F1B), pin(&c->cut, 0); /* as many units are then as many bytes */
  zp_plan *plan = zp_search(arena, spec, 4, NULL);
  cr_assert(plan->feasible && !plan->best.choice.stage_recompute && plan->best.choice.recompute == ZP_RECOMPUTE_NONE);
  double before = plan->best.estimate.step_s;
  int mixed = 0;
  for (int64_t peak = plan->best.estimate.peak_bytes; plan->feasible; peak = plan->best.estimate.peak_bytes) {
    spec->cluster.node.device.memory_bytes = (int64_t)((double)(peak - 1000) / c->memory_fraction);
    plan = zp_search(arena, spec, 4, NULL);
    if (!plan->feasible) break;
    const zp_choice *choice = &plan->best.choice;
    cr_expect(plan->best.estimate.step_s >= before);
    before = plan->best.estimate.step_s;
    mixed += choice->stage_recompute != NULL;
    for (int s = 1; s < 4; s++) {
      int64_t here = choice->cut[s + 1] - choice->cut[s], earlier = choice->cut[s] - choice->cut[s - 1];
      bool keeps_all = zp_choice_mode(choice, s - 1) == ZP_RECOMPUTE_NONE;
      cr_expect(!keeps_all || here > earlier || s == 3 || zp_choice_mode(choice, s) == ZP_RECOMPUTE_NONE);
    }
  }
  cr_expect(mixed > 2, "%d mixed plans", mixed);
}

Test(search_full, offload_takes_the_least_share_that_fits) {
  model_size size = {STYLE_GPT, 250, 32, 64, 4, 4, 4, 256, true};
  zp_cluster c = gpu_cluster(1);
  c.node.device.context_bytes = 1000;
  c.node.host_memory_bytes = INT64_C(1) << 32;
  c.node.host_bytes_per_s = 100e9, c.node.pcie_bytes_per_s = 10e9;
  zp_spec *spec = build_spec(arena, &size, c, 8);
  allow(&spec->plans.data[0].offload[ZP_STATE_OPTIMIZER], ZP_TIER_HOST);
  pin(&spec->plans.data[0].recompute, ZP_RECOMPUTE_FULL);
  pin(&spec->plans.data[0].microbatch, 1);
  zp_plan *plan = zp_search(arena, spec, 1, NULL);
  cr_assert(plan->feasible);
  cr_expect_eq(plan->best.choice.home[ZP_STATE_OPTIMIZER].eighths, 0, "everything fits on the device");
  int64_t state_bytes = plan->program->stages[0].memory.optimizer;
  spec->cluster.node.device.memory_bytes =
      (int64_t)((double)(plan->best.estimate.peak_bytes - state_bytes / 3) / spec->plans.data[0].memory_fraction) + 1;
  plan = zp_search(arena, spec, 1, NULL);
  cr_assert(plan->feasible);
  cr_expect_eq(plan->best.choice.home[ZP_STATE_OPTIMIZER].eighths, 3, "a third has to leave: three eighths do");
  cr_expect_eq(plan->best.choice.home[ZP_STATE_OPTIMIZER].tier, ZP_TIER_HOST);
  spec->cluster.node.host_memory_bytes = 1000;
  plan = zp_search(arena, spec, 1, NULL);
  cr_expect(!plan->feasible && plan->certificate.rejected[ZP_REJECT_HOST] == 1, "the host has no room");
}
