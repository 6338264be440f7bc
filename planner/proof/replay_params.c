/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters, gradients and optimizer state of a stage over shadow memory: flat buffers, the rings that a unit's
 * buckets pass through, sums of gradients. A gradient is the sum of numbers, one for every contribution that the graph
 * asks for, so that one which is lost, made twice or added to something else shows when it is complete. */
#include "replay_internal.h"

static const zp_choice *choice_of(const zp_replay *r) { return &r->program->choice; }

static uint64_t mix(uint64_t x) { /* splitmix64 */
  x += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* ---- gradients as numbers ---- */

static uint64_t gradient(uint64_t sum) { return (uint64_t)ZP_TAG_GRADIENT << 60 | (sum & (~UINT64_C(0) >> 4)); }

static uint64_t nothing_added(const zp_replay *r, const zp_replay_call *call, int use) {
  int param = call->seg->graph->params.data[use].param;
  bool shared = r->program->spec->model->params.data[param].segment < 0;
  int64_t iteration = shared ? 0 : call->run->first + call->i;
  return mix((uint64_t)param << 32 | (uint64_t)iteration);
}

/* Place i of a node's list of parameter gradients. */
static uint64_t contribution(const zp_replay_call *call, int64_t mb, const zp_node *node, int i) {
  uint64_t which = (uint64_t)(node - call->seg->graph->nodes.data) << 8 | (uint64_t)i;
  return mix(mix(mix((uint64_t)call->first) + (uint64_t)mb) + which);
}

/* All contributions of one call to a parameter's gradient, as the graph has them. */
static uint64_t contributions(const zp_replay_call *call, int64_t mb, int use) {
  const zp_graph *g = call->seg->graph;
  uint64_t sum = 0;
  for (int n = g->n_forward; n < g->nodes.len; n++)
    for (int i = 0; i < g->nodes.data[n].param_grad.len; i++)
      if (g->nodes.data[n].param_grad.data[i] == use) sum += contribution(call, mb, &g->nodes.data[n], i);
  return sum;
}

/* Those of the first part of a split backward. */
static uint64_t early_contributions(const zp_replay_call *call, int64_t mb, int use) {
  const zp_procedure *p = &call->seg->split;
  uint64_t sum = 0;
  for (int s = 0; s < p->n_inputs; s++)
    for (int i = 0; i < p->steps.data[s].sums.len; i++)
      if (p->steps.data[s].sums.data[i].use == use) sum += contribution(call, mb, p->steps.data[s].node, i);
  return sum;
}

/* ---- where they are ---- */

static zp_param_kind kind_of(const zp_replay *r, const zp_segment_program *seg, int use) {
  return zp_kind_of(r->lowered, seg->graph->params.data[use].param);
}

static bool is_trained(const zp_replay *r, const zp_segment_program *seg, int use) {
  return zp_kinds[kind_of(r, seg, use)].trained;
}

/* Elements from the start of a flat buffer. */
static int64_t flat_element(const zp_replay *r, const zp_replay_call *call, int use) {
  int64_t own = call->seg->param_offset[use];
  if (own < 0) return zp_stage_shared(r->stage, call->seg->graph->params.data[use].param);
  return own + zp_run_at(call->run, kind_of(r, call->seg, use), call->i);
}

/* Elements from the start of a ring's buffer; -1: in no bucket of the unit. */
static int64_t bucket_element(const zp_replay *r, const zp_replay_call *call, int use) {
  zp_arena_mark mark = zp_arena_get_mark(r->arena);
  zp_bucket *bucket = ZP_NEW_ARRAY(r->arena, zp_bucket, ZP_KINDS + r->lowered->shared.len);
  int n = zp_unit_buckets(r->lowered, choice_of(r), call->run->segment, bucket);
  int64_t own = call->seg->param_offset[use], at = -1;
  int wanted = own < 0 ? call->seg->graph->params.data[use].param : -1;
  for (int b = 0; b < n && at < 0; b++)
    if (bucket[b].param == wanted && bucket[b].kind == kind_of(r, call->seg, use))
      at = bucket[b].at + (own < 0 ? 0 : own);
  zp_arena_rewind(r->arena, mark);
  return at;
}

static int64_t param_bytes(const zp_replay *r, const zp_segment_program *seg, int use) {
  return r->lowered->param_elements[seg->graph->params.data[use].param] * r->lowered->param_bytes;
}

static int64_t grad_bytes(const zp_replay *r, const zp_segment_program *seg, int use) {
  return r->lowered->param_elements[seg->graph->params.data[use].param] * r->lowered->grad_bytes;
}

int64_t zp_replay_param_at(const zp_replay *r, const zp_replay_frame *f, int use) {
  if (f->params >= 0) {
    int64_t at = bucket_element(r, f->call, use);
    return at < 0 ? -1 : f->params + at * r->lowered->param_bytes;
  }
  if (zp_moves_params(choice_of(r))) return -1; /* gone when gradients of weights are made */
  int64_t at = flat_element(r, f->call, use);
  return at < 0 ? -1 : zp_replay_flat_param_at(r, f->call, use, at);
}

static bool keeps_early(const zp_replay *r, const zp_replay_frame *f) {
  return zp_moves_gradients(choice_of(r)) && f->pass == ZP_REPLAY_INPUTS;
}

static int64_t early_at(const zp_replay_frame *f, int use) {
  int64_t at = f->call->seg->early_offset[use];
  return at < 0 || f->pending < 0 ? -1 : f->pending + at;
}

static int64_t gradient_at(const zp_replay *r, const zp_replay_frame *f, int use) {
  int64_t size = r->lowered->grad_bytes, at;
  if (keeps_early(r, f)) return early_at(f, use);
  if (f->gradients >= 0) {
    at = bucket_element(r, f->call, use);
    return at < 0 ? -1 : f->gradients + at * size;
  }
  at = flat_element(r, f->call, use);
  return at < 0 || r->stage->at[ZP_REGION_GRADS] < 0 ? -1 : r->stage->at[ZP_REGION_GRADS] + at * size;
}

/* ---- rings ---- */

static bool is_gpu(const zp_replay *r) { return !r->program->spec->cluster.node.device.is_cpu; }

/* Buckets move in a stream of their own, as codegen/trainer/overlapped.c prints it. */
bool zp_replay_buckets_overlap(const zp_replay *r) {
  const zp_choice *c = choice_of(r);
  return is_gpu(r) && zp_shards_gradients(c) && c->home[ZP_STATE_PARAMS].eighths == 0 &&
         c->home[ZP_STATE_GRADIENTS].eighths == 0;
}

bool zp_replay_gathers_ahead(const zp_replay *r) {
  return choice_of(r)->home[ZP_STATE_PARAMS].eighths > 0 ||
         (zp_shards_params(choice_of(r)) && zp_replay_buckets_overlap(r));
}

static int64_t params_of(const zp_replay *r, int64_t j) {
  int64_t stride = zp_stage_ring_elements(r->stage) * r->lowered->param_bytes;
  return r->stage->at[ZP_REGION_PARAM_RING] + (zp_replay_gathers_ahead(r) ? j % 2 : 0) * stride;
}

static void put_params(zp_replay *r, const zp_replay_call *call, int64_t at) {
  const zp_graph *g = call->seg->graph;
  for (int use = 0; use < g->params.len; use++) {
    int64_t element = at < 0 ? flat_element(r, call, use) : bucket_element(r, call, use);
    zp_replay_part part;
    const zp_replay_frame frame = {.call = call};
    if (element < 0) continue;
    int64_t place_at = at < 0 ? zp_replay_flat_param_at(r, call, use, element) : at + element * r->lowered->param_bytes;
    zp_shadow_place place = zp_shadow_whole(place_at, param_bytes(r, call->seg, use));
    zp_shadow_write(&r->device, place, zp_replay_value_of(r, &frame, g->params.data[use].tensor, &part));
  }
}

void zp_replay_gather(zp_replay *r, const zp_replay_chunk *chunk, int64_t j) {
  if (r->stage->at[ZP_REGION_PARAM_RING] >= 0) put_params(r, &chunk->call[j], params_of(r, j));
}

/* A ring's buffer may be written again once what was in it has left: it must have been there until now. */
static void let_go(zp_replay *r, zp_replay_leaving *leaving) {
  const zp_replay_frame *f = &leaving->frame;
  for (int use = 0; leaving->waits && use < f->call->seg->graph->params.len; use++) {
    int64_t at = gradient_at(r, f, use);
    uint64_t sum = nothing_added(r, f->call, use) + contributions(f->call, f->mb, use);
    const char *name = r->program->spec->model->params.data[f->call->seg->graph->params.data[use].param].name;
    if (!is_trained(r, f->call->seg, use)) continue;
    if (at < 0)
      zp_replay_find(r, f, "the gradient of `%s` has no place in a bucket", name);
    else
      zp_replay_want(r, f, zp_shadow_whole(at, grad_bytes(r, f->call->seg, use)), gradient(sum), name);
  }
  leaving->waits = false;
}

static bool scatters(const zp_replay *r, const zp_replay_frame *f) {
  return zp_moves_gradients(choice_of(r)) && (f->pass == ZP_REPLAY_BACKWARD || f->pass == ZP_REPLAY_WEIGHTS);
}

/* Early gradients come from where they waited; those that are only added to begin with zero. */
static void begin_gradients(zp_replay *r, const zp_replay_frame *f) {
  const zp_segment_program *seg = f->call->seg;
  for (int use = 0; use < seg->graph->params.len && (scatters(r, f) || keeps_early(r, f)); use++) {
    bool early = f->pass != ZP_REPLAY_BACKWARD && seg->early_offset[use] >= 0;
    int64_t at = gradient_at(r, f, use), bytes = grad_bytes(r, seg, use);
    uint64_t sum = nothing_added(r, f->call, use);
    int param = seg->graph->params.data[use].param;
    if (at < 0 || !is_trained(r, seg, use)) continue;
    if (early && scatters(r, f)) {
      sum += early_contributions(f->call, f->mb, use);
      zp_replay_want(r, f, zp_shadow_whole(early_at(f, use), bytes), gradient(sum),
                     r->program->spec->model->params.data[param].name);
      zp_shadow_write(&r->device, zp_shadow_whole(at, bytes), gradient(sum));
    } else if (r->lowered->zero_first[param] && (early || scatters(r, f))) {
      zp_shadow_write(&r->device, zp_shadow_whole(at, bytes), gradient(sum));
    }
  }
}

/* A parameter's part of hpZ's second copy: that share of the flat elements before it, and of its own. Forward keeps
 * what it gathers; what backward gathers must have been kept. */
static void second_copy(zp_replay *r, const zp_replay_frame *f) {
  const zp_graph *g = f->call->seg->graph;
  int64_t ranks = choice_of(r)->hpz, size = r->lowered->param_bytes, copy = r->stage->at[ZP_REGION_HPZ_PARAMS];
  if (ranks == 0) return;
  for (int use = 0; use < g->params.len; use++) {
    zp_replay_part part;
    const zp_replay_frame frame = {.call = f->call};
    int param = g->params.data[use].param;
    int64_t first = flat_element(r, f->call, use), end = first + r->lowered->param_elements[param];
    if (first < 0 || end / ranks == first / ranks) continue;
    zp_shadow_place place = zp_shadow_whole(copy + first / ranks * size, (end / ranks - first / ranks) * size);
    uint64_t value = zp_replay_value_of(r, &frame, g->params.data[use].tensor, &part);
    if (copy < 0)
      zp_replay_find(r, f, "the second copy of `%s` has no place", r->program->spec->model->params.data[param].name);
    else if (f->pass == ZP_REPLAY_FORWARD)
      zp_shadow_write(&r->device, place, value);
    else
      zp_replay_want(r, f, place, value, r->program->spec->model->params.data[param].name);
  }
}

void zp_replay_open(zp_replay *r, zp_replay_frame *f) {
  bool takes_turns = zp_replay_buckets_overlap(r) || choice_of(r)->home[ZP_STATE_GRADIENTS].eighths > 0;
  f->params = f->gradients = -1;
  if (zp_moves_params(choice_of(r)) && f->pass != ZP_REPLAY_WEIGHTS && r->stage->at[ZP_REGION_PARAM_RING] >= 0) {
    if (!zp_replay_gathers_ahead(r)) zp_replay_gather(r, f->chunk, f->j);
    second_copy(r, f);
    f->params = params_of(r, f->j);
  }
  if (scatters(r, f) && r->stage->at[ZP_REGION_GRAD_RING] >= 0) {
    r->turn = !takes_turns ? 0 : zp_replay_buckets_overlap(r) ? (int)(f->j % 2) : 1 - r->turn;
    f->gradients =
        r->stage->at[ZP_REGION_GRAD_RING] + r->turn * zp_flat_trained(&r->stage->bucket) * r->lowered->grad_bytes;
    let_go(r, &r->leaving[r->turn]);
  }
  begin_gradients(r, f);
}

/* As late as the trainer lets it: when the buffer is wanted again, or at once where there is one. */
void zp_replay_close(zp_replay *r, zp_replay_frame *f) {
  if (f->gradients < 0) return;
  r->leaving[r->turn] = (zp_replay_leaving){true, *f};
  if (!zp_replay_buckets_overlap(r) && choice_of(r)->home[ZP_STATE_GRADIENTS].eighths == 0)
    let_go(r, &r->leaving[r->turn]);
}

/* ---- sums ---- */

void zp_replay_sum(zp_replay *r, const zp_replay_frame *f, const zp_step *step) {
  for (int i = 0; i < step->sums.len; i++) {
    const zp_param_sum *sum = &step->sums.data[i];
    int64_t at = gradient_at(r, f, sum->use), bytes = grad_bytes(r, f->call->seg, sum->use);
    const char *name = r->program->spec->model->params.data[f->call->seg->graph->params.data[sum->use].param].name;
    if (at < 0 || !is_trained(r, f->call->seg, sum->use)) {
      zp_replay_find(r, f, "the gradient of `%s` has no place", name);
      continue;
    }
    bool add = sum->accumulate || (!scatters(r, f) && !keeps_early(r, f) && f->mb > 0);
    uint64_t before = add ? zp_shadow_get(&r->device, at, bytes) : gradient(nothing_added(r, f->call, sum->use));
    if (before >> 60 != ZP_TAG_GRADIENT)
      zp_replay_find(r, f, "adds to the gradient of `%s`, where %s stands", name, zp_replay_value_text(r, before));
    zp_shadow_write(&r->device, zp_shadow_whole(at, bytes),
                    gradient(before + contribution(f->call, f->mb, step->node, i)));
  }
}

/* ---- the beginning and the end of a step ---- */

/* Does the stage have the region, and no step of a micro-batch works with it by itself? */
static bool lasts(const zp_replay *r, zp_region region) {
  const zp_choice *c = choice_of(r);
  zp_memory_line line = zp_region_rows[region].memory;
  if (r->stage->at[region] < 0) return false;
  if (region == ZP_REGION_HPZ_PARAMS) return false; /* forward writes it */
  return line == ZP_MEMORY_OPTIMIZER || (line == ZP_MEMORY_WEIGHTS && zp_moves_params(c)) ||
         (line == ZP_MEMORY_GRADIENTS && zp_moves_gradients(c));
}

static zp_shadow_place whole_region(const zp_replay *r, zp_region region) {
  return zp_shadow_whole(r->stage->at[region], r->stage->bytes[region]);
}

typedef void on_use(zp_replay *r, const zp_replay_call *call, int use);

static void for_uses(zp_replay *r, on_use *on) {
  for (int k = 0; k < r->stage->n_chunks; k++)
    for (int64_t j = 0; j < r->chunk[k].calls; j++)
      for (int use = 0; use < r->chunk[k].call[j].seg->graph->params.len; use++) on(r, &r->chunk[k].call[j], use);
}

static zp_shadow_place flat_gradient(const zp_replay *r, const zp_replay_call *call, int use) {
  return zp_shadow_whole(r->stage->at[ZP_REGION_GRADS] + flat_element(r, call, use) * r->lowered->grad_bytes,
                         grad_bytes(r, call->seg, use));
}

static void zero_gradient(zp_replay *r, const zp_replay_call *call, int use) {
  if (r->lowered->zero_first[call->seg->graph->params.data[use].param])
    zp_shadow_write(&r->device, flat_gradient(r, call, use), gradient(nothing_added(r, call, use)));
}

static int64_t input_bytes(const zp_replay *r, int input) {
  return zp_model_input_bytes(r->program->spec->model, input, r->lowered->microbatch, r->lowered->compute_bytes);
}

/* Without what lies between micro-batches. */
static int64_t input_value_bytes(const zp_replay *r, int input) {
  const zp_input *in = &r->program->spec->model->inputs.data[input];
  return zp_shape_elements(&in->shape, r->lowered->microbatch) * zp_element_bytes(r->lowered, in->element);
}

int64_t zp_replay_input_at(const zp_replay *r, int input, int64_t mb) {
  int64_t before = zp_model_inputs_bytes(r->program->spec->model, input, r->lowered->microbatch,
                                         r->lowered->compute_bytes, r->stage->reads_numbers);
  return r->stage->at[ZP_REGION_INPUTS] + before * r->program->microbatches + mb * input_bytes(r, input);
}

static bool has_input(const zp_replay *r, int input) {
  return r->stage->reads_numbers || r->program->spec->model->inputs.data[input].element == ZP_ELEM_I32;
}

void zp_replay_load(zp_replay *r) {
  const zp_model *model = r->program->spec->model;
  zp_replay_find_casts(r);
  for (int i = 0; i < ZP_REGION_COUNT; i++)
    if (lasts(r, (zp_region)i))
      zp_shadow_write(&r->device, whole_region(r, (zp_region)i), zp_replay_value(ZP_TAG_STATE, i, 0, 0));
  for (int i = 0; i < model->inputs.len && r->stage->at[ZP_REGION_INPUTS] >= 0; i++)
    for (int64_t mb = 0; mb < r->microbatches && has_input(r, i); mb++)
      zp_shadow_write(&r->device, zp_shadow_whole(zp_replay_input_at(r, i, mb), input_value_bytes(r, i)),
                      zp_replay_value(ZP_TAG_INPUT, i, 0, mb));
  for (int k = 0; k < r->stage->n_chunks && !zp_moves_params(choice_of(r)); k++)
    for (int64_t j = 0; j < r->chunk[k].calls; j++) put_params(r, &r->chunk[k].call[j], -1);
  if (!zp_moves_gradients(choice_of(r))) for_uses(r, zero_gradient);
}

/* Every gradient holds what the graph asks for, of all units and micro-batches. */
static void check_gradients(zp_replay *r) {
  const zp_model *model = r->program->spec->model;
  uint64_t *shared = ZP_NEW_ARRAY(r->arena, uint64_t, model->params.len + 1);
  for (int pass = 0; pass < 2; pass++) /* sums of what units share are known when all units were seen */
    for (int k = 0; k < r->stage->n_chunks; k++)
      for (int64_t j = 0; j < r->chunk[k].calls; j++) {
        const zp_replay_call *call = &r->chunk[k].call[j];
        for (int use = 0; use < call->seg->graph->params.len; use++) {
          int param = call->seg->graph->params.data[use].param;
          bool is_shared = model->params.data[param].segment < 0;
          uint64_t sum = 0;
          for (int64_t mb = 0; mb < r->microbatches && (pass == 0) == is_shared; mb++)
            sum += contributions(call, mb, use);
          if (pass == 0 && is_shared) shared[param] += sum;
          if (pass == 0) continue;
          if (model->params.data[param].frozen) continue;
          sum = nothing_added(r, call, use) + (is_shared ? shared[param] : sum);
          zp_replay_want(r, NULL, flat_gradient(r, call, use), gradient(sum), model->params.data[param].name);
        }
      }
}

void zp_replay_check_end(zp_replay *r) {
  for (int i = 0; i < 2; i++) let_go(r, &r->leaving[i]);
  if (!zp_moves_gradients(choice_of(r))) check_gradients(r);
  for (int i = 0; i < ZP_REGION_COUNT; i++)
    if (lasts(r, (zp_region)i))
      zp_replay_want(r, NULL, whole_region(r, (zp_region)i), zp_replay_value(ZP_TAG_STATE, i, 0, 0),
                     zp_region_rows[i].name);
}
