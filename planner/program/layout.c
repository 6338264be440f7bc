/* The arena of a stage, to the byte. Order of regions: flat buffers (parameters, gradients, master copy, moments),
 * model inputs, slots of saved values, message and ping-pong buffers, transients last: the top of the arena is then a
 * buffer that every step writes. zp_stage_bytes is the same arithmetic without the tables, for the search. */
#include "lower_internal.h"

#include <assert.h>

void zp_unit(const zp_lowered *lowered, int64_t unit, int *segment, int64_t *iteration) {
  int s = 0;
  while (unit >= lowered->segments[s].segment->count) unit -= lowered->segments[s++].segment->count;
  assert(s < lowered->n_segments);
  *segment = s;
  *iteration = unit;
}

int64_t zp_microbatches(const zp_spec *spec, const zp_choice *choice) {
  return spec->train.batch / (choice->data * choice->microbatch);
}

int64_t zp_in_flight(const zp_choice *choice, int stage, int64_t microbatches) {
  int64_t depth = choice->pipeline - stage;
  return depth < microbatches ? depth : microbatches;
}

int zp_stage_carry_index(int64_t j) { return (int)(j % 2); }
int zp_stage_grad_index(int64_t n, int64_t j) { return (int)((n - 1 - j) % 2); }

int64_t zp_stage_shared(const zp_stage *stage, int param) {
  for (int i = 0; i < stage->shared.len; i++)
    if (stage->shared.data[i].param == param) return stage->shared.data[i].offset;
  return -1;
}

/* What a range of units adds up to. */
typedef struct totals {
  int64_t elements;    /* flat elements of parameters inside repeats */
  int64_t saved_bytes; /* of one slot */
  int64_t transient_bytes;
  bool any_shard;         /* some unit keeps shards: the forward ping-pong exists */
  int64_t carry_elements; /* largest tensor that flows between units */
} totals;

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Calls fn for the part of every segment that lies in units [first, first + count). */
typedef void part_fn(void *arg, int segment, int64_t first, int64_t count);
static void for_parts(const zp_lowered *l, int64_t first, int64_t count, part_fn *fn, void *arg) {
  int64_t start = 0, end = first + count;
  for (int s = 0; s < l->n_segments; s++) {
    int64_t n = l->segments[s].segment->count;
    int64_t a = max64(first, start), b = end < start + n ? end : start + n;
    if (a < b) fn(arg, s, a - start, b - a);
    start += n;
  }
}

struct totals_arg {
  const zp_lowered *l;
  totals *t;
};
static void add_totals(void *arg, int segment, int64_t first, int64_t count) {
  struct totals_arg *a = arg;
  const zp_segment_program *s = &a->l->segments[segment];
  (void)first;
  a->t->elements += s->elements * count;
  a->t->saved_bytes += s->saved_bytes * count;
  a->t->transient_bytes = max64(a->t->transient_bytes, max64(s->forward.transient_bytes, s->backward.transient_bytes));
  a->t->any_shard |= s->carry_kept_elements < s->carry_in_elements;
  a->t->carry_elements = max64(a->t->carry_elements, max64(s->carry_in_elements, s->carry_out_elements));
}

/* Parameters declared outside repeats that segment uses: each once a stage. */
static bool stage_uses(const zp_lowered *l, int param, int64_t first, int64_t count) {
  int64_t start = 0;
  for (int s = 0; s < l->n_segments; s++) {
    int64_t n = l->segments[s].segment->count;
    if (first < start + n && first + count > start) {
      const zp_graph *g = l->segments[s].graph;
      for (int i = 0; i < g->params.len; i++)
        if (g->params.data[i].param == param) return true;
    }
    start += n;
  }
  return false;
}

static int64_t region(int64_t *top, int64_t bytes) {
  if (bytes <= 0) return -1;
  int64_t at = zp_round_up(*top, ZP_ALIGN_BYTES);
  *top = at + bytes;
  return at;
}

/* Regions of a stage in order; fills everything but runs and shared. */
static void place_regions(const zp_lowered *l, const zp_choice *choice, const totals *t, zp_stage *s) {
  const zp_spec *spec = l->spec;
  int64_t m = zp_microbatches(spec, choice), top = 0;
  int64_t shards = choice->zero >= 1 ? choice->data : 1;
  s->flat_elements = zp_round_up(s->flat_elements, shards * ZP_ALIGN_ELEMENTS);
  s->shard_elements = s->flat_elements / shards;
  bool mixed = l->compute_bytes == 2, sgd = spec->train.optimizer == ZP_OPT_SGD;
  bool first_moment = !sgd || spec->train.momentum != 0;
  s->at_params = region(&top, s->flat_elements * l->param_bytes);
  s->memory.weights = top;
  s->at_grads = region(&top, s->flat_elements * l->grad_bytes);
  s->memory.gradients = top - s->memory.weights;
  int64_t before = top;
  s->at_master = region(&top, mixed ? s->shard_elements * 4 : 0);
  s->at_moment1 = region(&top, first_moment ? s->shard_elements * l->stat_bytes : 0);
  s->at_moment2 = region(&top, sgd ? 0 : s->shard_elements * l->stat_bytes);
  s->memory.optimizer = top - before;
  before = top;
  s->at_inputs = region(&top, spec->model->inputs.len * m * l->microbatch * spec->model->sequence * 4);
  int64_t inputs = top - before;
  before = top;
  s->slots = zp_in_flight(choice, s->index, m);
  s->slot_stride = t->saved_bytes;
  s->at_slots = region(&top, s->slots * s->slot_stride);
  s->memory.saved = top - before;
  before = top;
  int64_t carry = t->carry_elements * l->compute_bytes, n = s->n_units;
  bool above = s->index<choice->pipeline - 1, below = s->index> 0;
  for (int i = 0; i < 2; i++) s->at_carry[i] = region(&top, t->any_shard ? carry : 0);
  s->at_send_up = region(&top, above ? carry : 0);
  s->at_grad[0] = region(&top, above || n >= 3 ? carry : 0);
  s->at_grad[1] = region(&top, n >= 2 ? carry : 0);
  s->at_send_down = region(&top, below ? carry : 0);
  s->at_transient = region(&top, t->transient_bytes);
  s->memory.buffers = inputs + top - before;
  s->arena_bytes = top;
  s->memory.context = spec->cluster.node.device.context_bytes;
}

static int64_t shared_elements(const zp_lowered *l, int64_t first, int64_t count, zp_arena *arena, zp_stage *out) {
  const zp_model *model = l->spec->model;
  int64_t elements = 0;
  for (int p = 0; p < model->params.len; p++) {
    if (model->params.data[p].segment >= 0 || !stage_uses(l, p, first, count)) continue;
    zp_shared shared = {p, elements};
    if (out) zp_push(arena, &out->shared, shared);
    elements += zp_round_up(l->param_elements[p], ZP_ALIGN_ELEMENTS);
  }
  return elements;
}

int64_t zp_stage_bytes(const zp_lowered *lowered, const zp_choice *choice, int stage, int64_t first_unit,
                       int64_t n_units) {
  zp_stage s = {.index = stage, .first_unit = first_unit, .n_units = n_units};
  totals t = {0};
  for_parts(lowered, first_unit, n_units, add_totals, &(struct totals_arg){lowered, &t});
  s.flat_elements = shared_elements(lowered, first_unit, n_units, NULL, NULL) + t.elements;
  place_regions(lowered, choice, &t, &s);
  return s.arena_bytes;
}

struct runs_arg {
  zp_arena *arena;
  const zp_lowered *l;
  zp_stage *s;
  int64_t base, saved;
};
static void add_run(void *arg, int segment, int64_t first, int64_t count) {
  struct runs_arg *a = arg;
  const zp_segment_program *s = &a->l->segments[segment];
  zp_run run = {segment, first, count, a->base, a->saved};
  zp_push(a->arena, &a->s->runs, run);
  a->base += s->elements * count;
  a->saved += s->saved_bytes * count;
}

void zp_layout_stage(zp_arena *arena, const zp_lowered *lowered, const zp_choice *choice, int stage, zp_stage *out) {
  *out = (zp_stage){
      .index = stage, .first_unit = choice->cut[stage], .n_units = choice->cut[stage + 1] - choice->cut[stage]};
  totals t = {0};
  for_parts(lowered, out->first_unit, out->n_units, add_totals, &(struct totals_arg){lowered, &t});
  int64_t shared = shared_elements(lowered, out->first_unit, out->n_units, arena, out);
  out->flat_elements = shared + t.elements;
  for_parts(lowered, out->first_unit, out->n_units, add_run, &(struct runs_arg){arena, lowered, out, shared, 0});
  place_regions(lowered, choice, &t, out);
}
