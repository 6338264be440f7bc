/* SPDX-License-Identifier: Apache-2.0 */
/* The proof of a plan file, independent of lowering and search: it reads the file's numbers and the model, and checks
 * rules.
 *
 *   units     every unit in exactly one chunk of one stage, in order
 *   params    local sizes follow from shapes and splits; every stage's flat buffers hold exactly its parameters, apart
 *   arena     regions in bounds and apart, sizes recomputed, breakdown sums up, budgets of device, host and disks hold
 *   buffers   inside a procedure: in bounds, no two live ones overlap, nothing read before it was written, views inside
 *             their base, results delivered; slots: kept values apart, and backward finds them where forward left them
 *   schedule  every forward before its backward, slots suffice, no deadlock with the message buffers there are
 *
 * verify_flat.c, verify_arena.c, verify_procedures.c and verify_order.c hold the last four. That the steps are those of
 * the model is not proven here: `zplan verify` derives the program again and compares. */
#include "verify_internal.h"

#include <assert.h>
#include <math.h>

void zp_find(zp_verifier *v, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (v->findings->len < 20) zp_push(v->arena, v->findings, zp_vformat(v->arena, format, args));
  va_end(args);
}

static int64_t clamp(int64_t value) {
  const int64_t limit = INT64_C(1) << 50;
  return value > limit ? limit : value < -limit ? -limit : value;
}

int64_t zp_claim(const zp_json *object, const char *key) { return clamp(zp_json_get_int(object, key, INT64_MIN)); }
int64_t zp_claim_some(const zp_json *object, const char *key) { return clamp(zp_json_get_int(object, key, 0)); }
int64_t zp_claim_place(const zp_json *object, const char *key) { return clamp(zp_json_get_int(object, key, -1)); }
int64_t zp_claim_own(const zp_json *segment) {
  return zp_claim(segment, "carry_in_elements") - zp_claim_some(segment, "carry_stream_elements");
}

int64_t zp_times(int64_t a, int64_t b) {
  int64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return clamp((a < 0) == (b < 0) ? INT64_MAX : INT64_MIN);
  return clamp(product);
}

const char *zp_claimed_mode(const zp_json *object) { return zp_json_get_string(object, "recompute", ""); }

/* The mode of a layer: that of its stage, or what it says where the stage is mixed. */
static const char *mode_of_layer(const zp_verifier *v, int stage, const zp_json *layer) {
  return zp_choice_layers(&v->choice, stage) != ZP_ALL_LAYERS ? zp_claimed_mode(layer)
                                                              : zp_stage_mode_name(zp_choice_mode(&v->choice, stage));
}

const zp_json *zp_claimed_program(const zp_verifier *v, int stage, const zp_json *layer) {
  const zp_json *segments = zp_json_get(v->program, "segments");
  const char *name = zp_json_get_string(layer, "segment", ""), *mode = mode_of_layer(v, stage, layer);
  for (int i = 0; i < zp_json_count(segments); i++) {
    const zp_json *segment = zp_json_at(segments, i);
    if (strcmp(zp_json_get_string(segment, "name", ""), name) == 0 && strcmp(zp_claimed_mode(segment), mode) == 0)
      return segment;
  }
  return NULL;
}

int zp_claimed_piece(const zp_verifier *v, const zp_json *layer) {
  const char *name = zp_json_get_string(layer, "segment", "");
  for (int i = 0; i < v->pieces->n; i++)
    if (strcmp(v->pieces->piece[i].segment.name, name) == 0) return i;
  return -1;
}

/* ---- units ---- */

static int64_t units_of(const zp_verifier *v, int segment) {
  return v->pieces->parts[segment] * v->spec->model->segments.data[segment].count;
}

/* Units that a layer runs, which should begin with unit `next`; -1 when it makes no sense. */
static int64_t check_layer(zp_verifier *v, int s, const zp_json *layer, int64_t next) {
  int64_t from = zp_claim(layer, "first"), count = zp_claim(layer, "count"), first = 0, iteration;
  const char *name = zp_json_get_string(layer, "segment", "");
  int index = zp_claimed_piece(v, layer), expected;
  bool whole = index < v->pieces->n_whole;
  if (index < 0) {
    zp_find(v, "stage %d lists `%s`, which the model does not have", s, name);
    return -1;
  }
  const zp_piece *piece = &v->pieces->piece[index];
  for (int k = 0; k < piece->whole; k++) first += units_of(v, k);
  first += from * v->pieces->parts[piece->whole] + piece->first;
  zp_pieces_unit(v->pieces, next, &expected, &iteration);
  if (first != next)
    zp_find(v, "stage %d lists `%s` from %lld where unit %lld of the model is `%s` %lld", s, name, (long long)from,
            (long long)next, v->pieces->piece[expected].segment.name, (long long)iteration);
  if (!zp_claimed_program(v, s, layer))
    zp_find(v, "stage %d runs `%s` and recomputes \"%s\", but the file has no such procedures", s, name,
            mode_of_layer(v, s, layer));
  if (from < 0 || count < 1 || from + count > piece->segment.count || (!whole && count > 1)) {
    zp_find(v, "stage %d runs iterations of `%s` that do not exist", s, name);
    return -1;
  }
  return whole ? count * v->pieces->parts[index] : piece->end - piece->first;
}

/* A mixed stage's chunk has its first layers in the stage's mode, the others in that of the rest. What
 * stands outside repeats is in the stage's. */
static void check_mix(zp_verifier *v, int s, const zp_json *layer, int64_t *left) {
  int index = zp_claimed_piece(v, layer);
  int64_t count = zp_claim(layer, "count");
  bool repeat = v->pieces->piece[index].segment.is_repeat, first = !repeat || *left > 0;
  if (zp_choice_layers(&v->choice, s) == ZP_ALL_LAYERS) return;
  const char *mode = zp_stage_mode_name(first ? zp_choice_mode(&v->choice, s) : v->choice.mix[s].rest);
  if (strcmp(zp_claimed_mode(layer), mode) != 0)
    zp_find(v, "stage %d: %lld of `%s` recompute \"%s\", their place in the stage says \"%s\"", s, (long long)count,
            zp_json_get_string(layer, "segment", ""), zp_claimed_mode(layer), mode);
  if (repeat && first && count > *left)
    zp_find(v, "stage %d lists %lld layers that recompute \"%s\" where %lld more do", s, (long long)count, mode,
            (long long)*left);
  if (repeat && first) *left -= count;
}

/* Lists the units of one chunk; -1 when they make no sense. */
static int64_t check_layers(zp_verifier *v, int s, int chunk, int64_t next) {
  const zp_json *layers = zp_json_get(zp_json_at(v->stages, s), "layers");
  int64_t listed = 0, recomputed = zp_choice_layers(&v->choice, s);
  for (int r = 0; r < zp_json_count(layers); r++) {
    const zp_json *layer = zp_json_at(layers, r);
    if (zp_claim(layer, "chunk") != chunk) continue;
    int64_t units = next + listed < v->pieces->n_units ? check_layer(v, s, layer, next + listed) : -1;
    if (units < 0) return -1;
    check_mix(v, s, layer, &recomputed);
    listed += units;
  }
  return listed;
}

/* Every layer of a stage belongs to one of its chunks, and the stage is their sum. */
static void check_chunk_numbers(zp_verifier *v, int s) {
  const zp_json *stage = zp_json_at(v->stages, s), *layers = zp_json_get(stage, "layers"),
                *chunks = zp_json_get(stage, "chunks");
  int64_t units = 0;
  for (int k = 0; k < zp_json_count(chunks); k++) units += zp_claim(zp_json_at(chunks, k), "units");
  if (zp_claim(stage, "units") != units)
    zp_find(v, "stage %d claims %lld units and its chunks have %lld", s, (long long)zp_claim(stage, "units"),
            (long long)units);
  if (zp_claim(stage, "first_unit") != zp_claim(zp_json_at(chunks, 0), "first_unit"))
    zp_find(v, "stage %d starts at unit %lld, its first chunk elsewhere", s, (long long)zp_claim(stage, "first_unit"));
  const char *mode = zp_stage_mode_name(zp_choice_mode(&v->choice, s));
  if (strcmp(zp_claimed_mode(stage), mode) != 0)
    zp_find(v, "stage %d recomputes \"%s\", its table says \"%s\"", s, mode, zp_claimed_mode(stage));
  if (zp_json_count(zp_json_get(stage, "chunks")) != v->chunks)
    zp_find(v, "stage %d lists %d chunks, the schedule has %d", s, zp_json_count(zp_json_get(stage, "chunks")),
            v->chunks);
  for (int r = 0; r < zp_json_count(layers); r++) {
    int64_t chunk = zp_claim(zp_json_at(layers, r), "chunk");
    if (chunk < 0 || chunk >= v->chunks) zp_find(v, "stage %d has no chunk %lld", s, (long long)chunk);
  }
}

static void check_units(zp_verifier *v) {
  int64_t total = v->pieces->n_units, next = 0;
  for (int s = 0; s < v->choice.pipeline; s++) check_chunk_numbers(v, s);
  for (int64_t k = 0; k < (int64_t)v->choice.pipeline * v->chunks; k++) {
    int chunk, s = zp_chunk_stage(&v->choice, k, &chunk);
    const zp_json *j = zp_json_at(zp_json_get(zp_json_at(v->stages, s), "chunks"), chunk);
    int64_t first = zp_claim(j, "first_unit"), units = zp_claim(j, "units");
    if (first != next)
      zp_find(v, "stage %d starts at unit %lld, the part before ends at %lld", s, (long long)first, (long long)next);
    int64_t listed = check_layers(v, s, chunk, next);
    if (listed != units)
      zp_find(v, "stage %d claims %lld units and lists %lld", s, (long long)units, (long long)listed);
    next += units;
  }
  if (next != total) zp_find(v, "the stages hold %lld units, the model has %lld", (long long)next, (long long)total);
}

/* ---- parameters ---- */

/* Local elements from shape and split: of every outer slice ceil(units / shares) units, or as many more as the file
 * claims, which are padding: fewer than 64, of single elements. -1: not a split of that shape. */
static int64_t local_elements(const zp_param *p, int64_t dim, int64_t outer, int64_t units, int64_t shares,
                              int64_t claimed) {
  int64_t elements = zp_shape_elements(&p->shape, 1);
  if (dim < 0) return elements;
  int64_t size = p->shape.dim[dim], share = (units + shares - 1) / shares;
  if (outer < 1 || units < 1 || outer > size || units > size || size % (outer * units) != 0) return -1;
  int64_t least = elements / size * (outer * share * (size / (outer * units))), unit = elements / size;
  bool padded = outer == 1 && units == size && claimed > least && claimed < least + 64 * unit && claimed % unit == 0;
  return padded ? claimed : least;
}

/* Matrices of experts are what groups share, when there are groups. */
static bool is_spread(const zp_verifier *v, int param) {
  for (int s = 0; s < v->spec->model->segments.len && zp_expert_ranks(&v->choice) > 1; s++) {
    const zp_graph *g = v->spec->model->segments.data[s].graph;
    for (int n = 0; n < g->nodes.len; n++)
      if (g->nodes.data[n].op == ZP_OP_BATCHED_MATMUL && g->tensors.data[g->nodes.data[n].in.data[1]].index == param)
        return true;
  }
  return false;
}

static void check_param(zp_verifier *v, int i, const zp_json *j) {
  const zp_param *p = &v->spec->model->params.data[i];
  bool spread = zp_json_get_bool(j, "spread", false);
  v->kind[i] = p->frozen ? ZP_KIND_FROZEN : spread ? ZP_KIND_SPREAD : ZP_KIND_WHOLE;
  int64_t dim = zp_claim(j, "split_dim"), claimed = zp_claim(j, "local_elements");
  if (strcmp(zp_json_get_string(j, "name", ""), p->name) != 0)
    zp_find(v, "parameter %d is `%s` in the model", i, p->name);
  if (dim >= p->shape.rank || dim < -1) {
    zp_find(v, "parameter `%s` is split on dimension %lld", p->name, (long long)dim);
    return;
  }
  v->split_dim[i] = (int)dim;
  if (spread != is_spread(v, i))
    zp_find(v, "parameter `%s` is %sspread over expert groups in the file", p->name, spread ? "" : "not ");
  int64_t shares = v->choice.tensor * (spread ? zp_expert_ranks(&v->choice) : 1);
  if (spread && (dim != 0 || zp_claim(j, "units") != p->shape.dim[0]))
    zp_find(v, "matrices `%s` of experts are spread one by one", p->name);
  v->elements[i] = local_elements(p, dim, zp_claim(j, "outer"), zp_claim(j, "units"), shares, claimed);
  if (v->elements[i] < 0)
    zp_find(v, "dimension %lld of parameter `%s` does not fall into %lld times %lld units", (long long)dim, p->name,
            (long long)zp_claim(j, "outer"), (long long)zp_claim(j, "units"));
  else if (v->elements[i] != claimed)
    zp_find(v, "parameter `%s` has %lld elements on a rank, the file says %lld", p->name, (long long)v->elements[i],
            (long long)claimed);
}

static void check_params(zp_verifier *v) {
  const zp_json *params = zp_json_get(v->program, "parameters");
  v->elements = ZP_NEW_ARRAY(v->arena, int64_t, v->spec->model->params.len + 1);
  v->kind = ZP_NEW_ARRAY(v->arena, zp_param_kind, v->spec->model->params.len + 1);
  v->split_dim = ZP_NEW_ARRAY(v->arena, int, v->spec->model->params.len + 1);
  if (zp_json_count(params) != v->spec->model->params.len) {
    zp_find(v, "the file lists %d parameters, the model has %d", zp_json_count(params), v->spec->model->params.len);
    return;
  }
  for (int i = 0; i < v->spec->model->params.len; i++) check_param(v, i, zp_json_at(params, i));
}

/* ---- the file as a whole ---- */

/* What is trained is the file's word as much as the source's. */
static void check_delayed(zp_verifier *v, const zp_json *json) {
  const zp_train *train = &v->spec->train;
  const zp_json *said = zp_json_get(json, "delayed_update");
  if ((said != NULL) != train->delayed)
    zp_find(v, "the training has %s delayed update, the file says otherwise", train->delayed ? "a" : "no");
  else if (said && (zp_claim(said, "after") != train->delay_after || zp_claim(said, "staleness") != ZP_STALENESS))
    zp_find(v, "updates are delayed after %lld steps, by one, the file says after %lld, by %lld",
            (long long)train->delay_after, (long long)zp_claim(said, "after"), (long long)zp_claim(said, "staleness"));
}

static void check_reduce_dtype(zp_verifier *v, const zp_json *json) {
  const zp_json *said = zp_json_get(json, "reduce_dtype");
  bool rounds = v->spec->train.rounds_sums;
  if ((said != NULL) != rounds) {
    zp_find(v, "sums of gradients leave nodes in %s, the file says otherwise",
            rounds ? "bf16" : "the type that they have");
    return;
  }
  const char *type = said ? zp_json_get_string(said, "between_nodes", "") : "bf16";
  if (strcmp(type, "bf16") != 0) zp_find(v, "sums of gradients leave nodes in bf16, the file says %s", type);
}

/* A bound of its own: that of additions which all micro-batches make. */
static void check_gradient_sums(zp_verifier *v, const zp_json *json) {
  const zp_json *said = zp_json_get(json, "gradient_sums");
  bool stochastic = v->spec->train.stochastic_sums;
  if ((said != NULL) != stochastic) {
    zp_find(v, "sums of gradients are kept in %s, the file says otherwise",
            stochastic ? "bf16, rounded stochastically" : "the type that they have");
    return;
  }
  if (!said) return;
  if (strcmp(zp_json_get_string(said, "type", ""), "bf16") != 0 ||
      strcmp(zp_json_get_string(said, "rounding", ""), "stochastic") != 0)
    zp_find(v, "sums of gradients are bf16, rounded stochastically, the file says %s, %s",
            zp_json_get_string(said, "type", ""), zp_json_get_string(said, "rounding", ""));
  int64_t additions = zp_claim(said, "additions");
  if (additions < v->microbatches)
    zp_find(v, "%lld micro-batches add to sums of gradients, the file says %lld additions", (long long)v->microbatches,
            (long long)additions);
  double u = 0x1p-8, least = fmin(sqrt(pow(1 + u * u, (double)v->microbatches) - 1), u + sqrt(u * u + 2 * u));
  if (zp_json_get_real(said, "standard_deviation", 0) < least * (1 - 1e-9))
    zp_find(v, "sums of gradients may deviate by %g, the file says %g", least,
            zp_json_get_real(said, "standard_deviation", 0));
}

/* Equal shares of the positions of everything that flows between segments. */
static bool positions_divide(zp_verifier *v) {
  int64_t context = v->choice.context, stretches = v->choice.context_by ? 2 * context : context;
  for (int s = 0; s < v->spec->model->segments.len && context > 1; s++) {
    const zp_graph *g = v->spec->model->segments.data[s].graph;
    for (int i = 0; i < g->carry_in.len; i++) {
      const zp_tensor *t = &g->tensors.data[g->carry_in.data[i]];
      if (t->shape.rank == 3 && t->shape.dim[1] % stretches == 0) continue;
      zp_find(v, "context %lld does not divide the positions of `%s`%s", (long long)context, t->name,
              v->choice.context_by ? " into two stretches a rank" : "");
      return false;
    }
  }
  return true;
}

static bool read_header(zp_verifier *v, const zp_json *json) {
  zp_choice *c = &v->choice;
  int devices;
  const char *error = NULL;
  if (!zp_json_get_bool(json, "feasible", false)) {
    zp_find(v, "the file says that nothing fits: there is no plan to verify");
    return false;
  }
  if (!zp_plan_choice_from_json(v->arena, v->spec, json, c, &devices, &error)) {
    zp_find(v, "%s", error);
    return false;
  }
  if (zp_claim(zp_json_get(json, "cluster"), "devices") != devices)
    zp_find(v, "%d ranks and the idle ones are %d devices, the file says %lld", zp_choice_ranks(c), devices,
            (long long)zp_claim(zp_json_get(json, "cluster"), "devices"));
  int64_t samples = zp_replicas(c) * c->microbatch, batch = v->spec->train.batch;
  if (batch % samples != 0) {
    zp_find(v, "batch %lld does not divide over %d data ranks and micro-batch %lld", (long long)batch, zp_replicas(c),
            (long long)c->microbatch);
    return false;
  }
  if (!positions_divide(v)) return false;
  v->microbatches = batch / samples;
  if (zp_claim(json, "microbatches") != v->microbatches)
    zp_find(v, "there are %lld micro-batches, the file says %lld", (long long)v->microbatches,
            (long long)zp_claim(json, "microbatches"));
  zp_precision precision = v->spec->train.precision;
  v->machine = zp_machine_make(&v->spec->cluster, precision, zp_choice_ranks(c));
  v->compute_bytes = precision == ZP_PREC_F64 ? 8 : precision == ZP_PREC_F32 ? 4 : 2;
  v->grad_bytes = zp_software_grad_bytes(v->spec->cluster.software, precision, v->compute_bytes);
  v->sum_bytes = v->spec->train.stochastic_sums ? 2 : v->grad_bytes;
  v->stat_bytes = precision == ZP_PREC_F64 ? 8 : 4;
  const char *refusal = zp_choice_refusal(c, v->spec);
  if (!refusal) refusal = zp_choice_refusal_complete(c, v->spec);
  if (refusal) {
    zp_find(v, "%s", refusal);
    return false;
  }
  check_delayed(v, json);
  check_reduce_dtype(v, json);
  check_gradient_sums(v, json);
  v->pieces = c->fine ? zp_pieces_divided(v->arena, v->spec->model) : zp_pieces_whole(v->arena, v->spec->model);
  if (!v->pieces) {
    zp_find(v, "the plan cuts inside layers, and no layer of the model can be cut");
    return false;
  }
  zp_verify_find_streams(v);
  v->chunks = c->chunks > 1 ? c->chunks : 1;
  v->host = ZP_NEW_ARRAY(v->arena, int64_t, c->pipeline);
  v->nvme = ZP_NEW_ARRAY(v->arena, int64_t, c->pipeline);
  v->stages = zp_json_get(json, "stages");
  v->program = zp_json_get(json, "program");
  return true;
}

void zp_verify(zp_arena *arena, const zp_spec *spec, const zp_json *json, zp_strings *findings) {
  assert(findings);
  zp_verifier v = {.arena = arena, .spec = spec, .findings = findings};
  if (!read_header(&v, json)) return;
  check_units(&v);
  check_params(&v);
  if (findings->len) return; /* what follows needs sane indices */
  zp_verify_procedures(&v);
  zp_verify_order(&v);
  if (!v.played.in_flight) return;
  for (int s = 0; s < v.choice.pipeline; s++) zp_verify_stage(&v, s);
  zp_verify_nodes(&v);
}
