/* SPDX-License-Identifier: Apache-2.0 */
/* Random plans of the space that a certificate speaks of, drawn from its definition (planner/search/README.md), and
 * small changes of them. */
#include "plan_fuzz.h"

int64_t fuzz_below(fuzz *f, int64_t n) {
  f->random = f->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return n < 1 ? 0 : (int64_t)((f->random >> 33) % (uint64_t)n);
}

static bool one_in(fuzz *f, int n) { return fuzz_below(f, n) == 0; }

/* ---- families ---- */

static bool is_cpu(const fuzz *f) { return f->spec->cluster.node.device.is_cpu; }

/* On CPU clusters what is not plain must be named. */
static bool allows(const fuzz *f, const zp_limit *limit, int64_t value, bool plain) {
  return zp_limit_allows(limit, (double)value) && (plain || limit->set || !is_cpu(f));
}

static int64_t pick_divisor(fuzz *f, int64_t of, int64_t most) {
  int64_t found = 1;
  int seen = 0;
  for (int64_t i = 1; i <= of && i <= most; i++)
    if (of % i == 0 && one_in(f, ++seen)) found = i;
  return found;
}

static bool uses_few_devices(const fuzz *f, const zp_choice *c) {
  int64_t idle = f->devices - zp_choice_ranks(c);
  if (idle < 0 || !zp_limit_allows(&f->allowed->idle, (double)idle)) return true;
  return idle > 0 && zp_uses_all_devices(f->allowed, &f->spec->cluster);
}

static void draw_degrees(fuzz *f, zp_choice *c) {
  int64_t units = 0, batch = f->spec->train.batch;
  for (int i = 0; i < f->spec->model->segments.len; i++) units += f->spec->model->segments.data[i].count;
  if (c->fine) units *= ZP_MOST_PARTS;
  c->tensor = one_in(f, 4) ? 1 + (int)fuzz_below(f, f->devices < 16 ? f->devices : 16)
                           : 1 << fuzz_below(f, f->devices < 16 ? 3 : 5);
  int64_t left = f->devices / (c->tensor < f->devices ? c->tensor : f->devices);
  int64_t most = left < units ? left : units;
  c->pipeline = one_in(f, 2) ? (int)pick_divisor(f, left, most) : 1 + (int)fuzz_below(f, most < 16 ? most : 16);
  if (c->pipeline > left) c->pipeline = (int)left;
  left /= c->pipeline;
  c->data = one_in(f, 4) ? (int)pick_divisor(f, batch, left) : 1; /* mostly as many as there may be */
  for (int64_t d = left; d > 1 && c->data == 1; d--)
    if (batch % d == 0) c->data = (int)d;
}

static bool family_is_legal(const fuzz *f, const zp_choice *c) {
  const zp_constraints *a = f->allowed;
  int64_t batch = f->spec->train.batch, node = f->spec->cluster.node.devices;
  for (int i = 0; i < f->spec->cluster.groups.len; i++)
    if (f->spec->cluster.groups.data[i].type.devices > node) node = f->spec->cluster.groups.data[i].type.devices;
  if (c->pipeline > MOST_STAGES || uses_few_devices(f, c) || batch % (c->data * c->microbatch)) return false;
  if (!is_cpu(f) && c->tensor > node) return false;
  zp_machine machine = zp_machine_make(&f->spec->cluster, f->spec->train.precision, zp_choice_ranks(c));
  if (!is_cpu(f) && c->tensor > machine.devices_per_node) return false;
  if (!zp_limit_allows(&a->tensor, c->tensor) || !zp_limit_allows(&a->pipeline, c->pipeline) ||
      !zp_limit_allows(&a->data, c->data) || !zp_limit_allows(&a->expert, zp_expert_ranks(c)) ||
      !zp_limit_allows(&a->rank_order, c->order) || !zp_limit_allows(&a->microbatch, (double)c->microbatch) ||
      !allows(f, &a->sequence, c->sequence, !c->sequence) || !zp_limit_allows(&a->cut, c->fine))
    return false;
  if (c->microbatch > 64 && !a->microbatch.set) return false;
  if (c->fine && c->pipeline == 1) return false; /* one stage has no cut */
  return !a->stage_recompute.len;
}

/* The fewest chunks of 1,024 tokens at most, on CPUs 256, where the logits take 1/16 of a rank's memory; 0: at once. */
static int draw_loss_chunks(fuzz *f, const zp_choice *c) {
  const zp_model *model = f->spec->model;
  zp_machine machine = zp_machine_make(&f->spec->cluster, f->spec->train.precision, zp_choice_ranks(c));
  int64_t tokens = c->microbatch * model->sequence, most = is_cpu(f) ? 256 : 1024;
  double logits = (double)tokens * (double)model->vocabulary / c->tensor * machine.compute_bytes;
  if (f->allowed->loss_chunks.set || f->spec->cluster.trainer != ZP_TRAINER_ZPLAN || tokens <= most || one_in(f, 2))
    return 0;
  if (16 * logits < (double)machine.memory_bytes) return 0;
  for (int chunks = 2; chunks <= ZP_MOST_LOSS_CHUNKS; chunks++)
    if (model->sequence % chunks == 0 && tokens <= most * chunks) return chunks;
  return 0;
}

bool draw_family(fuzz *f, const zp_choice *like, zp_choice *out) {
  zp_choice c = {.tensor = 1, .pipeline = 1, .data = 1};
  c.fine = !zp_limit_allows(&f->allowed->cut, 0);
  if (like)
    c.tensor = like->tensor, c.pipeline = like->pipeline, c.data = like->data;
  else
    draw_degrees(f, &c);
  c.microbatch = pick_divisor(f, f->spec->train.batch / c.data, 64);
  c.sequence = c.tensor > 1 && one_in(f, 2);
  c.loss_chunks = draw_loss_chunks(f, &c);
  c.order = c.pipeline > 1 && c.data > 1 ? (zp_rank_order)fuzz_below(f, ZP_ORDER_COUNT) : ZP_ORDER_TDP;
  c.expert = zp_model_has_experts(f->spec->model) ? (int)pick_divisor(f, c.data, c.data) : 1;
  if (c.expert > 1) c.loss_chunks = 0;
  if (zp_shard_refuse_experts(f->scratch, f->spec->model, c.tensor, c.expert)) return false;
  *out = c;
  return family_is_legal(f, &c);
}

/* ---- plans ---- */

static int pick_mode(fuzz *f, const family *of) {
  int found = 0, seen = 0;
  for (int i = 0; i < MODES; i++)
    if (of->lowered[i] && one_in(f, ++seen)) found = i;
  return found;
}

static void draw_schedule(fuzz *f, const family *of, zp_choice *c) {
  const zp_constraints *a = f->allowed;
  for (int tries = 0; tries < 20; tries++) {
    c->schedule = (zp_schedule)fuzz_below(f, ZP_SCHEDULE_COUNT);
    c->chunks = zp_schedule_folds(c->schedule) ? 2 : 0;
    if (c->schedule == ZP_SCHEDULE_INTERLEAVED) {
      int64_t most = of->units / c->pipeline;
      c->chunks = 2 + (int)fuzz_below(f, (most < MOST_CHUNKS ? most : MOST_CHUNKS) - 1);
    }
    if (c->schedule == ZP_SCHEDULE_DUALPIPEV && !a->schedule.set) continue; /* searched where it is named */
    if (!allows(f, &a->schedule, c->schedule, c->schedule == ZP_SCHEDULE_1F1B)) continue;
    if (!zp_limit_allows(&a->chunks, zp_chunks(c)) || zp_chunks(c) * c->pipeline > of->units ||
        zp_chunks(c) * c->pipeline > MOST_PLACES)
      continue;
    if (c->pipeline > 1 || c->schedule == ZP_SCHEDULE_1F1B || !zp_limit_allows(&a->schedule, ZP_SCHEDULE_1F1B)) return;
  }
  c->schedule = ZP_SCHEDULE_INTERLEAVED, c->chunks = 0; /* none was drawn: refused */
}

/* Groups of one rank are ZeRO 0. */
static int draw_shard(fuzz *f, const zp_choice *c) {
  const zp_limit *limit = &f->allowed->shard;
  int found = 0, seen = 0;
  if (!limit->set || c->zero == 0 || c->compress) return 0;
  for (int ranks = 2; ranks <= c->data; ranks++)
    if (c->data % ranks == 0 && ranks % zp_expert_ranks(c) == 0 && zp_limit_allows(limit, ranks) && one_in(f, ++seen))
      found = ranks;
  return found < c->data ? found : 0;
}

/* 1 stands for none. */
static int draw_hpz(fuzz *f, const zp_choice *c) {
  const zp_limit *limit = &f->allowed->hpz;
  int found = 0, seen = 0;
  if (!limit->set || !zp_shards_params(c)) return 0;
  for (int ranks = 1; ranks < c->data; ranks++)
    if (c->data % ranks == 0 && zp_limit_allows(limit, ranks) && one_in(f, ++seen)) found = ranks;
  return found > 1 ? found : 0;
}

static void draw_zero(fuzz *f, zp_choice *c) {
  int seen = 0;
  c->zero = 0;
  for (int zero = 0; zero <= 3; zero++)
    if ((c->data > 1 || zero == 0 || !zp_limit_allows(&f->allowed->zero, 0)) &&
        allows(f, &f->allowed->zero, zero, zero <= 1) && one_in(f, ++seen))
      c->zero = zero;
  c->compress =
      c->data > 1 && c->zero == 0 && f->allowed->compress.set &&
      (!zp_limit_allows(&f->allowed->compress, 0) || (zp_limit_allows(&f->allowed->compress, 1) && one_in(f, 2)));
  c->shard = draw_shard(f, c);
  c->hpz = draw_hpz(f, c);
}

/* Classes leave in one order, in eighths, each when those before it that may leave are gone. A delayed update wants all
 * of the optimizer's state offloaded. */
static void draw_homes(fuzz *f, zp_choice *c) {
  bool delayed = f->spec->train.delayed;
  int last = -1, seen = 0;
  memset(c->home, 0, sizeof c->home);
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (zp_limit_leaves_device(&f->allowed->offload[i]) && one_in(f, ++seen)) last = i;
  if (last < 0 || (!delayed && one_in(f, 3))) return;
  for (int i = 0; i <= last; i++) {
    const zp_limit *limit = &f->allowed->offload[i];
    if (!zp_limit_leaves_device(limit)) continue;
    bool host = zp_limit_allows(limit, ZP_TIER_HOST), disks = zp_limit_allows(limit, ZP_TIER_NVME);
    c->home[i].tier = host && (!disks || one_in(f, 2)) ? ZP_TIER_HOST : ZP_TIER_NVME;
    c->home[i].eighths = i < last || (delayed && i == ZP_STATE_OPTIMIZER) ? 8 : 1 + (int)fuzz_below(f, 8);
  }
}

/* Stages differ in what they recompute but for saved values off the device, and for several chunks a stage with
 * anything off it. */
static bool has_one_mode(const zp_choice *c) {
  bool offloaded = false;
  for (int i = 0; i < ZP_STATE_COUNT; i++) offloaded |= c->home[i].eighths > 0;
  return c->home[ZP_STATE_ACTIVATIONS].eighths > 0 || (offloaded && zp_chunks(c) > 1);
}

static void unmix(plan *p) { memset(p->layers, 0, sizeof *p->layers * (size_t)p->choice.pipeline); }

/* Pipelines with all state on the device, one node type and one chunk a stage, for zplan's trainer or none, of
 * optimizers that do not share matrices out. */
static bool may_mix(const fuzz *f, const plan *p) {
  zp_trainer trainer = f->spec->cluster.trainer;
  for (int i = 0; i < ZP_STATE_COUNT; i++)
    if (p->choice.home[i].eighths > 0) return false;
  return (trainer == ZP_TRAINER_NONE || trainer == ZP_TRAINER_ZPLAN) && f->spec->cluster.groups.len == 0 &&
         p->choice.pipeline > 1 && zp_chunks(&p->choice) == 1 && !has_one_mode(&p->choice) &&
         zp_optimizer_facts(&f->spec->train)->needs != ZP_NEEDS_MATRICES;
}

/* So many layers of a stage recompute in its mode, the others in another one. */
static void mix_stage(fuzz *f, const family *of, plan *p, int stage) {
  p->rest[stage] = pick_mode(f, of);
  p->layers[stage] = fuzz_below(f, p->cut[stage + 1] - p->cut[stage]);
}

static void set_all_modes(plan *p, int mode) {
  for (int s = 0; s < p->choice.pipeline; s++) p->mode[s] = mode;
}

/* Even, with a few units less in the first or last places, or anywhere. */
static void draw_cut(fuzz *f, const family *of, plan *p) {
  int places = p->choice.pipeline * zp_chunks(&p->choice), kind = (int)fuzz_below(f, 3);
  int64_t units = of->units;
  p->cut[0] = 0, p->cut[places] = units;
  if (kind == 2) {
    for (int k = 1; k < places; k++) p->cut[k] = 1 + fuzz_below(f, units - 1);
    for (int k = 1; k < places; k++) /* sorted */
      for (int i = k; i > 1 && p->cut[i] < p->cut[i - 1]; i--) {
        int64_t other = p->cut[i];
        p->cut[i] = p->cut[i - 1], p->cut[i - 1] = other;
      }
  } else {
    int64_t more = kind ? fuzz_below(f, units / places + 1) : 0; /* of the early places than of the late ones */
    for (int k = 1; k < places; k++) {
      int64_t at = units * k / places, bend = more * (k < places / 2 ? k : places - k);
      p->cut[k] = at + (one_in(f, 2) ? bend : -bend) / 2;
    }
  }
  for (int k = 1; k < places; k++)
    if (p->cut[k] <= p->cut[k - 1]) p->cut[k] = p->cut[k - 1] + 1;
  for (int k = places - 1; k > 0; k--)
    if (p->cut[k] >= p->cut[k + 1]) p->cut[k] = p->cut[k + 1] - 1;
}

void draw_plan(fuzz *f, const family *of, plan *out) {
  out->choice = of->choice;
  draw_schedule(f, of, &out->choice);
  draw_zero(f, &out->choice);
  draw_homes(f, &out->choice);
  set_all_modes(out, pick_mode(f, of));
  for (int s = 0; s < of->choice.pipeline && !has_one_mode(&out->choice) && one_in(f, 3); s++)
    out->mode[s] = pick_mode(f, of);
  draw_cut(f, of, out);
  unmix(out);
  for (int s = 0; s < of->choice.pipeline && may_mix(f, out) && one_in(f, 3); s++) mix_stage(f, of, out, s);
}

void copy_choice(const family *of, const zp_choice *choice, plan *out) {
  int places = choice->pipeline * zp_chunks(choice);
  out->choice = *choice;
  out->choice.cut = NULL, out->choice.stage_recompute = NULL, out->choice.mix = NULL;
  memcpy(out->cut, choice->cut, sizeof *out->cut * (size_t)(places + 1));
  for (int s = 0; s < choice->pipeline; s++)
    for (int i = 0; i < MODES; i++)
      if (MODE[i] == zp_choice_mode(choice, s)) out->mode[s] = i;
  unmix(out);
  for (int s = 0; s < choice->pipeline; s++)
    for (int i = 0; i < MODES && zp_choice_layers(choice, s) != ZP_ALL_LAYERS; i++)
      if (MODE[i] == choice->mix[s].rest) out->rest[s] = i, out->layers[s] = choice->mix[s].layers;
  (void)of;
}

/* ---- small changes ---- */

/* Units between two places move on by one place. */
static void move_unit(fuzz *f, plan *p) {
  int places = p->choice.pipeline * zp_chunks(&p->choice);
  int from = (int)fuzz_below(f, places),
      to = one_in(f, 2) ? from + (one_in(f, 2) ? 1 : -1) : (int)fuzz_below(f, places);
  if (to < 0 || to >= places || from == to || p->cut[from + 1] - p->cut[from] < 2) return;
  for (int k = from + 1; k <= to; k++) p->cut[k]--;
  for (int k = to + 1; k <= from; k++) p->cut[k]++;
}

/* The sizes of some neighbouring places go round, or two of them change places. */
static void rotate_chunks(fuzz *f, plan *p) {
  int places = p->choice.pipeline * zp_chunks(&p->choice);
  int64_t size[MOST_PLACES];
  for (int k = 0; k < places; k++) size[k] = p->cut[k + 1] - p->cut[k];
  int a = (int)fuzz_below(f, places), b = (int)fuzz_below(f, places);
  int low = a < b ? a : b, high = a < b ? b : a;
  int64_t first = size[low];
  if (one_in(f, 2)) {
    for (int k = low; k < high; k++) size[k] = size[k + 1];
    size[high] = first;
  } else {
    size[low] = size[high];
    size[high] = first;
  }
  for (int k = 0; k < places; k++) p->cut[k + 1] = p->cut[k] + size[k];
}

/* The next mode that is there, which keeps less or more. */
static void step_mode(const family *of, plan *p, int stage, int by) {
  int mode = p->mode[stage] + by;
  while (mode >= 0 && mode < MODES && !of->lowered[mode]) mode += by;
  if (mode < 0 || mode >= MODES) return;
  if (has_one_mode(&p->choice))
    set_all_modes(p, mode);
  else
    p->mode[stage] = mode;
}

/* One layer more or less in the stage's mode, or another mix. */
static void change_mix(fuzz *f, const family *of, plan *p) {
  int stage = (int)fuzz_below(f, p->choice.pipeline);
  if (p->layers[stage] > 0 && !one_in(f, 3))
    p->layers[stage] += one_in(f, 2) ? 1 : -1;
  else
    mix_stage(f, of, p, stage);
}

static void change_mode(fuzz *f, const family *of, plan *p) {
  int P = p->choice.pipeline, stage = (int)fuzz_below(f, P), by = one_in(f, 2) ? 1 : -1;
  if (may_mix(f, p) && one_in(f, 2)) {
    change_mix(f, of, p);
    return;
  }
  step_mode(of, p, stage, by);
  if (one_in(f, 3)) step_mode(of, p, (int)fuzz_below(f, P), -by);
}

void change_plan(fuzz *f, const family *of, plan *p, int short_of) {
  if (short_of >= 0 && one_in(f, 2)) {
    step_mode(of, p, short_of, 1);
    return;
  }
  switch (fuzz_below(f, 12)) {
  case 0:
    draw_schedule(f, of, &p->choice);
    draw_cut(f, of, p);
    break;
  case 1: draw_zero(f, &p->choice); break;
  case 2: draw_homes(f, &p->choice); break;
  case 3: draw_cut(f, of, p); break;
  case 4:
  case 5: rotate_chunks(f, p); break;
  case 6:
  case 7: change_mode(f, of, p); break;
  default:
    move_unit(f, p);
    if (one_in(f, 2)) move_unit(f, p);
  }
  if (has_one_mode(&p->choice)) set_all_modes(p, p->mode[0]);
  if (!may_mix(f, p)) unmix(p);
}
