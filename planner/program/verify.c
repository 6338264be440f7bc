/* The proof of a plan file, independent of lowering and search: it reads the file's numbers and the model, and checks rules.
 *
 *   units     every unit on exactly one stage, in order
 *   params    local sizes follow from shapes and splits; every stage's flat buffers hold exactly its parameters
 *   arena     regions in bounds and apart, sizes recomputed, breakdown sums up, budget of the device holds
 *   buffers   inside a procedure: in bounds, no two live ones overlap, nothing read before it was written, views inside
 *             their base; slots: kept values apart
 *   schedule  every forward before its backward, slots suffice, no deadlock with one message buffer per direction
 *
 * verify_order.c holds the schedule's part. */
#include "verify_internal.h"

void zp_find(zp_verifier *v, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (v->findings->len < 20) zp_push(v->arena, v->findings, zp_vformat(v->arena, format, args));
  va_end(args);
}

static int64_t get(const zp_json *o, const char *key) { return zp_json_get_int(o, key, INT64_MIN); }
static int64_t up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/* ---- units and parameters ---- */

static void check_units(zp_verifier *v) {
  int64_t total = 0, next = 0;
  for (int s = 0; s < v->spec->model->segments.len; s++) total += v->spec->model->segments.data[s].count;
  for (int s = 0; s < v->pipeline; s++) {
    const zp_json *stage = zp_json_at(v->stages, s), *layers = zp_json_get(stage, "layers");
    if (get(stage, "first_unit") != next) zp_find(v, "stage %d starts at unit %lld, the stage before ends at %lld", s, (long long)get(stage, "first_unit"), (long long)next);
    int64_t units = get(stage, "units"), listed = 0;
    for (int r = 0; r < zp_json_count(layers); r++) {
      const zp_json *run = zp_json_at(layers, r);
      int64_t unit = next + listed, first = 0;
      int seg = 0;
      while (seg < v->spec->model->segments.len && unit >= first + v->spec->model->segments.data[seg].count)
        first += v->spec->model->segments.data[seg++].count;
      if (seg == v->spec->model->segments.len) break;
      const zp_segment *segment = &v->spec->model->segments.data[seg];
      if (strcmp(zp_json_get_string(run, "segment", ""), segment->name) != 0 || get(run, "first") != unit - first)
        zp_find(v, "stage %d lists `%s` from %lld where unit %lld of the model is `%s` %lld", s, zp_json_get_string(run, "segment", ""),
                (long long)get(run, "first"), (long long)unit, segment->name, (long long)(unit - first));
      if (get(run, "count") < 1 || get(run, "first") + get(run, "count") > segment->count)
        zp_find(v, "stage %d runs iterations of `%s` that do not exist", s, segment->name);
      listed += get(run, "count");
    }
    if (units < 1 || listed != units) zp_find(v, "stage %d claims %lld units and lists %lld", s, (long long)units, (long long)listed);
    next += units;
  }
  if (next != total) zp_find(v, "the stages hold %lld units, the model has %lld", (long long)next, (long long)total);
}

/* Local elements from shape and split: ceil(units / tensor) units of every outer slice. */
static int64_t local_elements(const zp_verifier *v, const zp_param *p, int64_t dim, int64_t outer, int64_t units) {
  int64_t elements = zp_shape_elements(&p->shape, 1);
  if (dim < 0 || v->tensor == 1) return elements;
  int64_t size = p->shape.dim[dim], share = (units + v->tensor - 1) / v->tensor;
  if (outer < 1 || units < 1 || size % (outer * units) != 0) return -1;
  return elements / size * (outer * share * (size / (outer * units)));
}

static void check_params(zp_verifier *v) {
  const zp_json *params = zp_json_get(v->program, "parameters");
  v->elements = ZP_NEW_ARRAY(v->arena, int64_t, v->spec->model->params.len + 1);
  if (zp_json_count(params) != v->spec->model->params.len) {
    zp_find(v, "the file lists %d parameters, the model has %d", zp_json_count(params), v->spec->model->params.len);
    return;
  }
  for (int i = 0; i < v->spec->model->params.len; i++) {
    const zp_json *j = zp_json_at(params, i);
    const zp_param *p = &v->spec->model->params.data[i];
    int64_t dim = get(j, "split_dim");
    if (strcmp(zp_json_get_string(j, "name", ""), p->name) != 0) zp_find(v, "parameter %d is `%s` in the model", i, p->name);
    if (dim >= p->shape.rank || dim < -1) {
      zp_find(v, "parameter `%s` is split on dimension %lld", p->name, (long long)dim);
      continue;
    }
    v->elements[i] = local_elements(v, p, dim, get(j, "outer"), get(j, "units"));
    if (v->elements[i] != get(j, "local_elements"))
      zp_find(v, "parameter `%s` has %lld elements on a rank, the file says %lld", p->name, (long long)v->elements[i], (long long)get(j, "local_elements"));
  }
}

/* ---- the arena of a stage ---- */

typedef struct region {
  const char *name;
  int64_t at, bytes;
} region;

static const zp_json *segment_json(const zp_verifier *v, const char *name) {
  const zp_json *segments = zp_json_get(v->program, "segments");
  for (int i = 0; i < zp_json_count(segments); i++)
    if (strcmp(zp_json_get_string(zp_json_at(segments, i), "name", ""), name) == 0) return zp_json_at(segments, i);
  return NULL;
}

static int segment_index(const zp_verifier *v, const char *name) {
  for (int i = 0; i < v->spec->model->segments.len; i++)
    if (strcmp(v->spec->model->segments.data[i].name, name) == 0) return i;
  return -1;
}

/* Flat elements that a stage needs: own parameters of its runs, shared ones once, each aligned to 64 elements. */
static int64_t flat_elements(zp_verifier *v, const zp_json *stage) {
  const zp_json *layers = zp_json_get(stage, "layers");
  int64_t sum = 0;
  for (int i = 0; i < v->spec->model->params.len; i++) {
    const zp_param *p = &v->spec->model->params.data[i];
    int64_t copies = 0;
    for (int r = 0; r < zp_json_count(layers); r++) {
      int seg = segment_index(v, zp_json_get_string(zp_json_at(layers, r), "segment", ""));
      if (seg < 0) continue;
      const zp_graph *g = v->spec->model->segments.data[seg].graph;
      for (int u = 0; u < g->params.len; u++) {
        if (g->params.data[u].param != i) continue;
        copies = p->segment < 0 ? 1 : copies + get(zp_json_at(layers, r), "count");
      }
    }
    sum += copies * up(v->elements[i], 64);
  }
  return sum;
}

static void check_regions(zp_verifier *v, int s, const region *r, int n, int64_t bytes) {
  int64_t end = 0;
  for (int i = 0; i < n; i++) {
    if (r[i].bytes <= 0) {
      if (r[i].at >= 0) zp_find(v, "stage %d: %s is placed but has no bytes", s, r[i].name);
      continue;
    }
    if (r[i].at < 0 || r[i].at % 256 != 0) zp_find(v, "stage %d: %s stands at byte %lld", s, r[i].name, (long long)r[i].at);
    for (int k = 0; k < i; k++)
      if (r[k].bytes > 0 && r[i].at < r[k].at + r[k].bytes && r[k].at < r[i].at + r[i].bytes)
        zp_find(v, "stage %d: %s and %s overlap", s, r[k].name, r[i].name);
    if (end < r[i].at + r[i].bytes) end = r[i].at + r[i].bytes;
  }
  if (end != bytes) zp_find(v, "stage %d: the arena is %lld bytes, its regions end at %lld", s, (long long)bytes, (long long)end);
}

static void check_budget(zp_verifier *v, int s, const zp_json *stage, int64_t arena) {
  const zp_json *m = zp_json_get(stage, "memory");
  int64_t sum = get(m, "weights") + get(m, "gradients") + get(m, "optimizer") + get(m, "saved") + get(m, "buffers");
  if (sum != arena) zp_find(v, "stage %d: the memory breakdown sums to %lld, the arena is %lld bytes", s, (long long)sum, (long long)arena);
  double limit = v->spec->plans.data[v->spec->plan].memory_fraction * (double)v->machine.memory_bytes;
  if ((double)(arena + v->machine.context_bytes) > limit)
    zp_find(v, "stage %d needs %lld bytes (context included), %.0f may be used", s, (long long)(arena + v->machine.context_bytes), limit);
}

static void check_stage(zp_verifier *v, int s) {
  const zp_json *stage = zp_json_at(v->stages, s), *a = zp_json_get(stage, "arena"), *layers = zp_json_get(stage, "layers");
  const zp_train *train = &v->spec->train;
  int64_t flat = up(flat_elements(v, stage), 64 * (v->zero ? v->data : 1)), shard = v->zero ? flat / v->data : flat;
  if (get(a, "flat_elements") != flat || get(a, "shard_elements") != shard)
    zp_find(v, "stage %d holds %lld parameter elements (%lld a shard), the file says %lld (%lld)", s, (long long)flat, (long long)shard,
            (long long)get(a, "flat_elements"), (long long)get(a, "shard_elements"));
  int64_t transient = 0, slot = 0, carry = 0;
  bool shards = false;
  for (int r = 0; r < zp_json_count(layers); r++) {
    const zp_json *run = zp_json_at(layers, r), *seg = segment_json(v, zp_json_get_string(run, "segment", ""));
    if (!seg) continue;
    if (get(run, "saved") != slot) zp_find(v, "stage %d: slot areas of `%s` start at %lld", s, zp_json_get_string(run, "segment", ""), (long long)get(run, "saved"));
    slot += get(run, "count") * get(seg, "saved_bytes");
    int64_t f = get(zp_json_get(seg, "forward"), "transient_bytes"), b = get(zp_json_get(seg, "backward"), "transient_bytes");
    transient = transient > f ? transient : f;
    transient = transient > b ? transient : b;
    carry = carry > get(seg, "carry_in_elements") ? carry : get(seg, "carry_in_elements");
    int index = segment_index(v, zp_json_get_string(run, "segment", ""));
    if (index >= 0 && v->spec->model->segments.data[index].graph->carry_out.len) {
      const zp_graph *g = v->spec->model->segments.data[index].graph;
      int64_t out = zp_shape_elements(&g->tensors.data[g->carry_out.data[0]].shape, v->microbatch);
      carry = carry > out ? carry : out;
    }
    shards |= get(seg, "carry_kept_elements") < get(seg, "carry_in_elements");
  }
  int64_t cb = v->compute_bytes, stat = train->precision == ZP_PREC_F64 ? 8 : 4, units = get(stage, "units");
  bool sgd = train->optimizer == ZP_OPT_SGD, above = s < v->pipeline - 1, below = s > 0;
  int64_t in_flight = v->pipeline - s < v->microbatches ? v->pipeline - s : v->microbatches;
  if (get(a, "slots") != in_flight) zp_find(v, "stage %d has %lld slots, %lld micro-batches are in flight", s, (long long)get(a, "slots"), (long long)in_flight);
  if (get(a, "slot_stride") != slot) zp_find(v, "stage %d: a slot needs %lld bytes, the file says %lld", s, (long long)slot, (long long)get(a, "slot_stride"));
  const region regions[] = {
      {"params", get(a, "at_params"), flat * cb}, {"gradients", get(a, "at_grads"), flat * cb},
      {"master weights", get(a, "at_master"), cb == 2 ? shard * 4 : 0},
      {"first moment", get(a, "at_moment1"), sgd && train->momentum == 0 ? 0 : shard * stat}, {"second moment", get(a, "at_moment2"), sgd ? 0 : shard * stat},
      {"inputs", get(a, "at_inputs"), v->spec->model->inputs.len * v->microbatches * v->microbatch * v->spec->model->sequence * 4},
      {"slots", get(a, "at_slots"), in_flight * slot}, {"carry 0", get(a, "at_carry0"), shards ? carry * cb : 0},
      {"carry 1", get(a, "at_carry1"), shards ? carry * cb : 0}, {"message up", get(a, "at_send_up"), above ? carry * cb : 0},
      {"gradient 0", get(a, "at_grad0"), above || units >= 3 ? carry * cb : 0}, {"gradient 1", get(a, "at_grad1"), units >= 2 ? carry * cb : 0},
      {"message down", get(a, "at_send_down"), below ? carry * cb : 0}, {"transient", get(a, "at_transient"), transient}};
  check_regions(v, s, regions, (int)(sizeof regions / sizeof *regions), get(a, "bytes"));
  check_budget(v, s, stage, get(a, "bytes"));
}

static bool read_header(zp_verifier *v, const zp_json *json) {
  zp_choice c;
  const char *error = NULL;
  if (!zp_json_get_bool(json, "feasible", false)) {
    zp_find(v, "the file says that nothing fits: there is no plan to verify");
    return false;
  }
  if (!zp_plan_choice_from_json(v->arena, json, &c, &error)) {
    zp_find(v, "%s", error);
    return false;
  }
  v->tensor = c.tensor;
  v->pipeline = c.pipeline;
  v->data = c.data;
  v->zero = c.zero;
  v->microbatch = c.microbatch;
  int64_t samples = c.data * c.microbatch, batch = v->spec->train.batch;
  if (batch % samples != 0) {
    zp_find(v, "batch %lld does not divide over %d data ranks and micro-batch %lld", (long long)batch, c.data, (long long)c.microbatch);
    return false;
  }
  v->microbatches = batch / samples;
  if (get(json, "microbatches") != v->microbatches) zp_find(v, "there are %lld micro-batches, the file says %lld", (long long)v->microbatches, (long long)get(json, "microbatches"));
  v->machine = zp_machine_make(&v->spec->cluster, v->spec->train.precision, c.tensor * c.pipeline * c.data);
  v->compute_bytes = v->spec->train.precision == ZP_PREC_F64 ? 8 : v->spec->train.precision == ZP_PREC_F32 ? 4 : 2;
  v->stages = zp_json_get(json, "stages");
  v->program = zp_json_get(json, "program");
  return true;
}

void zp_verify(zp_arena *arena, const zp_spec *spec, const zp_json *json, zp_strings *findings) {
  zp_verifier v = {.arena = arena, .spec = spec, .findings = findings};
  if (!read_header(&v, json)) return;
  check_units(&v);
  check_params(&v);
  if (findings->len) return; /* what follows needs sane indices */
  for (int s = 0; s < v.pipeline; s++) check_stage(&v, s);
  zp_verify_procedures(&v);
  zp_verify_order(&v);
}
