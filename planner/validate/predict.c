/* SPDX-License-Identifier: Apache-2.0 */
/* One measured run through the planner's own pipeline: model, sharding, lowering, prices, program, simulation. What the
 * source does not print about the plan (micro-batch, interleaving) is searched, as the people who ran it will have
 * done; what it does not print about the model is stated as assumed. */
#include <zplan/constants.h>

#include <assert.h>
#include <zplan/cost.h>
#include "software_memory.h"
#include "validate_internal.h"

/* False when the planner has no such precision. An empty cell is bf16's rate, which is fp16's too. */
static bool precision_of(const zp_measured *run, zp_precision *precision) {
  static const struct {
    const char *printed;
    zp_precision precision;
  } names[] = {
      {"bf16", ZP_PREC_MIXED_BF16},  {"bfloat16", ZP_PREC_MIXED_BF16},
      {"fp16", ZP_PREC_MIXED_FP16},  {"float16", ZP_PREC_MIXED_FP16},
      {"half", ZP_PREC_MIXED_FP16},  {"fp32", ZP_PREC_F32},
      {"float32", ZP_PREC_F32},      {"tf32", ZP_PREC_F32},
      {"fp8", ZP_PREC_MIXED_BF16},   {"fp8_current", ZP_PREC_MIXED_BF16},
      {"mxfp8", ZP_PREC_MIXED_BF16}, {"nvfp4", ZP_PREC_MIXED_BF16},
  };
  *precision = ZP_PREC_MIXED_BF16;
  for (size_t i = 0; run->precision && i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i].printed, run->precision) == 0) return *precision = names[i].precision, true;
  return !run->precision;
}

/* Most micro-batches times stages that are simulated for one row. */
enum { MOST_ACTIONS = 20000000 };

/* Why the row is not a question for the planner; NULL when it is. */
static const char *refuse(zp_arena *arena, const zp_measured *run) {
  zp_precision precision;
  if (!zp_gpu_device(run->gpu, run->gpu_memory_gb))
    return zp_format(arena, "unknown GPU `%s`, or its memory is not printed", run->gpu);
  if (run->shape.unlike) return run->shape.unlike;
  if (!run->shape.layers || !run->shape.hidden || !run->seq) return "the model's shape is not published";
  if (!run->tensor || !run->pipeline || !run->data || !run->batch) return "the plan is not published";
  if (!precision_of(run, &precision)) return zp_format(arena, "%s is outside the planner's space", run->precision);
  double microbatch = run->microbatch > 0 ? (double)run->microbatch : 1;
  if ((double)run->batch / run->data / microbatch * run->pipeline > MOST_ACTIONS)
    return "more micro-batches than are simulated";
  return NULL;
}

/* Products of 8 bits run at twice the rate of 16 bits, of 4 bits at 4 to 6 times (NVIDIA's data sheets of Hopper,
 * Blackwell and Blackwell Ultra). */
enum { RATE_8_BITS = 2, RATE_4_BITS = 6 };

/* Why the figure cannot be of this GPU; NULL: it can. */
static const char *above_peak(zp_arena *arena, const zp_measured *run, const zp_device *device) {
  const char *precision = run->precision ? run->precision : "";
  int times = strcmp(precision, "nvfp4") == 0 ? RATE_4_BITS : strstr(precision, "fp8") ? RATE_8_BITS : 1;
  double peak = device->flop_per_s_half * times;
  if (peak <= 0 || run->tflops <= peak) return NULL;
  return zp_format(arena, "measured_tflops_per_gpu is above the GPU's peak: %.4g of %.4g TFLOP/s", run->tflops / 1e12,
                   peak / 1e12);
}

static zp_cluster cluster_of(const zp_measured *run, const zp_device *device) {
  int per_node = run->gpus_per_node > 0 ? run->gpus_per_node : ZP_USUAL_NODE;
  zp_cluster c = {
      .name = run->id, .nodes = (run->gpus + per_node - 1) / per_node, .oversubscription = 1, .ranks = run->gpus};
  c.node.device = *device;
  c.node.devices = per_node;
  const char *name = zp_gpu_device(run->gpu, run->gpu_memory_gb);
  bool mesh = strncmp(name, "v100_sxm2", 9) == 0 && per_node == 8; /* no switches before SXM3 */
  bool fifth = device->arch && strcmp(device->arch, "sm_100") == 0;
  double latency_s = zp_cost_constant(fifth ? ZP_COST_LINK_LATENCY_SM100_S : ZP_COST_LINK_LATENCY_S);
  c.node.link = (zp_link){mesh ? "nvlink" : "nvswitch", run->intra_bytes_per_s, latency_s};
  zp_gpu_host(name, &c.node);
  c.node.nics = per_node;
  c.node.nic = (zp_link){"network", run->inter_bytes_per_s > 0 ? run->inter_bytes_per_s : ZP_USUAL_NETWORK,
                         zp_cost_constant(ZP_COST_NETWORK_LATENCY_S)};
  return c;
}

/* Experts of published runs are loaded evenly: their gates are made to (expert_recipes.def, sources.c), or take no more
 * than an even share. */
static zp_spec *spec_of(zp_arena *arena, const zp_measured *run, const zp_device *device,
                        const zp_run_library *library) {
  zp_spec *spec = ZP_NEW(arena, zp_spec);
  spec->model = zp_run_model(arena, run, library);
  if (spec->model && run->shape.experts) zp_model_route_evenly(spec->model);
  spec->cluster = cluster_of(run, device);
  spec->train = (zp_train){.batch = run->batch / (run->flushes > 1 ? run->flushes : 1),
                           .steps = 1,
                           .optimizer = ZP_OPT_ADAM,
                           .beta1 = 0.9,
                           .beta2 = 0.95,
                           .eps = 1e-8,
                           .clip = 1};
  (void)precision_of(run, &spec->train.precision); /* refused before */
  zp_constraints plan = {.memory_fraction = 1, .span = ZP_NO_SPAN};
  zp_push(arena, &spec->plans, plan);
  spec->path = run->id;
  return spec;
}

typedef struct question {
  zp_arena *arena;
  const zp_measured *run;
  zp_spec *spec;
  const zp_software *software;
  zp_machine machine;
  const zp_sharding *sharding;
} question;

/* ZeRO-Offload keeps optimizer state and gradients on the host; with "param" the parameters too, ZeRO-Infinity on
 * disks. */
static void set_homes(const zp_measured *run, zp_choice *c) {
  const zp_home host = {ZP_TIER_HOST, 8}, disk = {ZP_TIER_NVME, 8};
  if (!run->offload || zp_run_says(run->offload, "none")) return;
  c->home[ZP_STATE_OPTIMIZER] = zp_run_says(run->offload, "nvme") ? disk : host;
  c->home[ZP_STATE_GRADIENTS] = host;
  if (!zp_run_says(run->offload, "opt_cpu")) c->home[ZP_STATE_PARAMS] = zp_run_says(run->offload, "nvme") ? disk : host;
}

/* Do all devices and hosts hold their parts? */
static bool fits(const zp_program *program, const zp_machine *machine, int64_t peak_bytes) {
  const zp_choice *c = &program->choice;
  int64_t *host = ZP_NEW_ARRAY(program->arena, int64_t, c->pipeline);
  for (int s = 0; s < c->pipeline; s++) host[s] = program->stages[s].memory.host;
  return peak_bytes <= machine->memory_bytes &&
         zp_most_of_a_node(c, machine->devices_per_node, host) <= machine->node->host_memory_bytes;
}

/* The notes have Megatron-LM's word for what context ranks exchange. */
static zp_context_by exchanged(const char *notes) {
  if (notes && strstr(notes, "cp_comm_type=all_gather")) return ZP_BY_KEYS;
  return notes && strstr(notes, "cp_comm_type=p2p") ? ZP_BY_RING : ZP_BY_HEADS;
}

/* Ranks that share the positions of a sample are data ranks to a choice. */
static zp_choice degrees_of(const zp_measured *run) {
  int context = run->context > 1 ? run->context : 1;
  /* tensor ranks divide whole experts, too: a published degree counts both */
  bool both = run->expert > 1 && run->expert % run->tensor == 0;
  int expert = both ? run->expert / run->tensor : run->expert;
  return (zp_choice){.tensor = run->tensor,
                     .context_by = context > 1 ? exchanged(run->notes) : ZP_BY_HEADS,
                     .expert = run->shape.experts && expert > 1 ? expert : 0,
                     .pipeline = run->pipeline,
                     .data = run->data * context,
                     .context = context > 1 ? context : 0,
                     .microbatch = 1,
                     .sequence = run->sequence && run->tensor > 1};
}

/* The pipeline is emptied several times, each with its part of the batch, before gradients are summed. */
static void repeat_flushes(zp_estimate *e, int flushes) {
  double *const repeated[] = {&e->compute_s,      &e->tensor_comm_s,   &e->expert_comm_s,
                              &e->context_comm_s, &e->pipeline_comm_s, &e->bubble_s};
  for (size_t i = 0; flushes > 1 && i < sizeof repeated / sizeof *repeated; i++) {
    e->step_s += (flushes - 1) * *repeated[i];
    *repeated[i] *= flushes;
  }
}

/* Prices the run's plan at one micro-batch and interleaving. False with *why. */
static bool price(const question *q, int64_t microbatch, int chunks, zp_prediction *out, const char **why) {
  const zp_measured *run = q->run;
  zp_choice c = degrees_of(run);
  if (run->flushes > 1 && run->batch % (run->data * microbatch * run->flushes) != 0)
    return *why = "flushes are no equal numbers of micro-batches", false;
  c.microbatch = microbatch;
  c.zero = run->zero > 0 && c.data > 1 ? run->zero : 0;
  if (c.zero > 0 && run->shard > 1 && run->shard < c.data) c.shard = run->shard;
  c.chunks = chunks;
  c.schedule = chunks > 1 ? ZP_SCHEDULE_INTERLEAVED : ZP_SCHEDULE_1F1B;
  c.sequence = q->sharding->sequence;
  c.recompute = zp_run_says(run->recompute, "full")        ? ZP_RECOMPUTE_FULL
                : zp_run_says(run->recompute, "selective") ? ZP_RECOMPUTE_SELECTIVE
                                                           : ZP_RECOMPUTE_NONE;
  int64_t tables = q->software->cuts_units ? 2 : 0; /* which may be chunks of their own */
  if (run->shape.layers + tables < (int64_t)run->pipeline * chunks) return *why = "fewer layers than stages", false;
  c.recompute_shard =
      (run->partitions || q->software->splits_checkpoints) && c.tensor > 1 && c.recompute == ZP_RECOMPUTE_FULL;
  set_homes(run, &c);
  if ((*why = zp_choice_refusal(&c, q->spec))) return false;
  c.cut = zp_software_cut(q->arena, q->spec->model, q->software, run->pipeline * chunks);
  zp_lowered **stages = zp_lower_stages(q->arena, q->spec, q->sharding, &c, why);
  if (!stages) return false;
  zp_lowered *lowered = stages[0]; /* published runs recompute the same on all stages */
  zp_price_choice(lowered, &q->machine, &c);
  zp_program *program = zp_program_make(q->arena, (const zp_lowered *const *)stages, &c);
  out->choice = program->choice;
  out->estimate = zp_simulate(q->arena, program, &q->machine);
  repeat_flushes(&out->estimate, run->flushes);
  zp_software_memory memory = zp_software_peak(program, &q->machine, q->software, run->recompute != NULL);
  out->peak_bytes = memory.printed;
  out->fits = fits(program, &q->machine, memory.device);
  out->estimate.stage_forward_s = out->estimate.stage_backward_s = NULL;
  return true;
}

/* Every micro-batch that divides the replica's batch, and every number of chunks a stage, up to these, where the row
 * has none. */
enum { MOST_MICROBATCH = 16, MOST_CHUNKS = 8 };

/* A program with the interleaved schedule: chunks of equal layers, whole groups of micro-batches (Megatron-LM,
 * megatron/schedules.py and arguments.py). */
static bool could_have_chunks(const question *q, int chunks, int64_t microbatch) {
  const zp_measured *run = q->run;
  if (chunks == 1) return !run->interleaved || run->pipeline == 1;
  return (q->software->interleaves || run->interleaved) && run->pipeline > 1 &&
         run->shape.layers % ((int64_t)run->pipeline * chunks) == 0 &&
         run->batch / (run->data * microbatch) % run->pipeline == 0;
}

/* The people who ran it took the fastest that fitted. What operands of 8 bits keep is not known. */
static bool better(const question *q, const zp_prediction *a, const zp_prediction *b) {
  if (q->software->product_rate > 0) return a->estimate.step_s < b->estimate.step_s;
  if (a->fits != b->fits) return a->fits;
  return a->fits ? a->estimate.step_s < b->estimate.step_s : a->peak_bytes < b->peak_bytes;
}

/* The best at one micro-batch. */
static void price_chunks(const question *q, int64_t microbatch, zp_prediction *best, bool *found, const char **why) {
  int low = q->run->chunks > 0 ? q->run->chunks : 1, high = q->run->chunks > 0 ? q->run->chunks : MOST_CHUNKS;
  for (int v = low; v <= high; v++) {
    if (q->run->chunks <= 0 && !could_have_chunks(q, v, microbatch)) continue;
    zp_prediction one = *best;
    zp_arena_mark mark = zp_arena_get_mark(q->arena);
    if (price(q, microbatch, v, &one, why) && (!*found || better(q, &one, best))) {
      *best = one;
      *found = true;
    }
    zp_arena_rewind(q->arena, mark);
  }
}

static bool price_best(const question *q, zp_prediction *out, const char **why) {
  const zp_measured *run = q->run;
  bool found = false;
  int64_t low = run->microbatch ? run->microbatch : 1, high = run->microbatch ? run->microbatch : MOST_MICROBATCH;
  for (int64_t b = low; b <= high; b = run->microbatch ? b + 1 : 2 * b)
    if (run->batch % (run->data * b) == 0) price_chunks(q, b, out, &found, why);
  out->choice.cut = NULL;
  return found;
}

static void compare(zp_prediction *p, const zp_measured *run) {
  p->measured_s = run->step_s;
  if (p->measured_s <= 0 && run->tflops > 0)
    p->measured_s = zp_run_flop(run, run->tflops_hardware) / (run->tflops * run->gpus);
  if (p->measured_s > 0) p->error = p->estimate.step_s / p->measured_s - 1;
}

static const char *join(zp_arena *arena, const char *a, const char *b) {
  return !a ? b : !b ? a : zp_format(arena, "%s, %s", a, b);
}

zp_prediction zp_predict_run(zp_arena *arena, const zp_measured_table *table, const zp_measured *run,
                             const zp_run_library *library) {
  assert(run && library && library->device);
  zp_prediction p = {.run = run};
  zp_measured full = zp_run_complete(arena, table, run, &p.assumed);
  if ((p.why_not = refuse(arena, &full))) return p;
  const char *name = zp_gpu_device(run->gpu, run->gpu_memory_gb);
  const zp_device *device = library->device(library->user, name);
  if (!device) return p.why_not = zp_format(arena, "the library has no device `%s`", name), p;
  if ((p.why_not = above_peak(arena, &full, device))) return p;
  question q = {.arena = arena,
                .run = &full,
                .spec = spec_of(arena, &full, device, library),
                .software = zp_software_of(run, &p.by_source)};
  q.software = zp_software_with_experts(arena, &full, q.software);
  if (full.precision && (p.why_not = zp_software_with_recipe(arena, full.precision, &q.spec->cluster, &q.software)))
    return p;
  q.spec->cluster.trainer = q.software->trainer;
  q.spec->cluster.software = q.software;
  const char *unsound = zp_run_is_written(&full) ? "the library has no blocks for the model, or its shape is not sound"
                                                 : "the model's shape is not sound";
  if (!q.spec->model) return p.why_not = unsound, p;
  p.software = q.software->name;
  p.device = name;
  p.nodes = q.spec->cluster.nodes;
  if (!p.by_source) p.assumed = join(arena, p.assumed, zp_format(arena, "software `%s`, by the year", p.software));
  q.machine = zp_machine_make(&q.spec->cluster, q.spec->train.precision, run->gpus);
  /* tensor cores multiply fp32 with 10 bits of the fraction at half their rate in 16 bits (NVIDIA's data sheets) */
  if (zp_run_says(full.precision, "tf32") && device->has_bf16) q.machine.flop_per_s = device->flop_per_s_half / 2;
  if (zp_gpu_board_bytes(name) > 0) q.machine.memory_bytes = zp_gpu_board_bytes(name);
  if (full.collective_bytes_per_s > 0 && full.inter_bytes_per_s > 0)
    q.machine.collective_share =
        full.collective_bytes_per_s / (full.inter_bytes_per_s * zp_cost_constant(ZP_COST_NETWORK_PAYLOAD));
  if (full.collective_share > 0) q.machine.collective_share = full.collective_share;
  const zp_choice degrees = degrees_of(&full);
  q.sharding = zp_shard_choice(arena, q.spec->model, &q.machine, &degrees, &p.why_not);
  if (!q.sharding) return p;
  if (!price_best(&q, &p, &p.why_not)) {
    if (!p.why_not)
      p.why_not = full.interleaved ? "its notes say interleaved, and no number of chunks a stage fits its layers"
                                   : "no micro-batch divides the batch of its data ranks";
    return p;
  }
  if (degrees.context && !(full.notes && strstr(full.notes, "cp_comm_type=")))
    p.assumed = join(arena, p.assumed, "context ranks exchange heads");
  if (!full.microbatch)
    p.assumed = join(arena, p.assumed, zp_format(arena, "micro-batch %lld", (long long)p.choice.microbatch));
  if (full.chunks <= 0 && full.pipeline > 1)
    p.assumed = join(arena, p.assumed,
                     zp_format(arena, "%d chunk%s a stage", zp_chunks(&p.choice), zp_chunks(&p.choice) > 1 ? "s" : ""));
  p.why_not = NULL;
  p.predicted = true;
  zp_open_columns(arena, run, &full, &p);
  /* that no micro-batch fits is decided without knowing which it was; what would have fitted recomputed is not */
  p.fit_open = !run->shape.layers || !run->shape.hidden || (run->fits == 0 && !run->microbatch && p.fits) ||
               (!run->recompute && run->fits < 0 && !p.fits);
  if (run->batch) compare(&p, &full); /* what a step does depends on its batch */
  return p;
}
