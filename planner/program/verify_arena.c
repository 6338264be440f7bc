/* The arena of every stage in a plan file: flat buffers, regions, memory classes, budget. Every size is found again
 * from the model and the decisions; of the procedures only saved and transient bytes are taken (verify_procedures.c).
 */
#include "verify_internal.h"

#define LL(x) ((long long)(x))

static int64_t up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

/* ---- flat buffers ---- */

typedef struct piece { /* elements in the flat buffers */
  const char *name;
  int64_t at, elements;
} piece;

typedef struct pieces {
  ZP_VEC(piece) list;
  int64_t sum;
} pieces;

static void add_piece(zp_verifier *v, pieces *p, const char *name, int64_t at, int64_t elements) {
  if (elements == 0) return;
  zp_push(v->arena, &p->list, ((piece){name, at, elements}));
  p->sum += elements;
}

static bool stage_uses(const zp_verifier *v, const zp_json *layers, int param) {
  const zp_json *unused;
  for (int r = 0; r < zp_json_count(layers); r++) {
    const zp_graph *g = v->spec->model->segments.data[zp_claimed_segment(v, zp_json_at(layers, r), &unused)].graph;
    for (int u = 0; u < g->params.len; u++)
      if (g->params.data[u].param == param) return true;
  }
  return false;
}

/* What the stage must hold, where the file says it lies. */
static pieces find_pieces(zp_verifier *v, int s, const zp_json *stage) {
  const zp_json *layers = zp_json_get(stage, "layers"), *shared = zp_json_get(stage, "shared"), *unused;
  const zp_model *model = v->spec->model;
  pieces p = {0};
  int n_shared = 0;
  for (int i = 0; i < model->params.len; i++) {
    if (model->params.data[i].segment >= 0 || !stage_uses(v, layers, i)) continue;
    add_piece(v, &p, model->params.data[i].name, zp_claim(shared, model->params.data[i].name), up(v->elements[i], 64));
    n_shared++;
  }
  if (zp_json_key(shared, n_shared)) zp_find(v, "stage %d lists a shared parameter that its units do not use", s);
  for (int r = 0; r < zp_json_count(layers); r++) {
    const zp_json *layer = zp_json_at(layers, r);
    int segment = zp_claimed_segment(v, layer, &unused);
    add_piece(v, &p, model->segments.data[segment].name, zp_claim(layer, "base"),
              zp_claim(layer, "count") * v->instance[segment]);
  }
  return p;
}

static void check_flat(zp_verifier *v, int s, const zp_json *stage, int64_t *flat, int64_t *shard) {
  const zp_json *a = zp_json_get(stage, "arena");
  pieces p = find_pieces(v, s, stage);
  int64_t shards = v->choice.zero ? v->choice.data : 1;
  *flat = up(p.sum, 64 * shards), *shard = *flat / shards;
  if (zp_claim(a, "flat_elements") != *flat || zp_claim(a, "shard_elements") != *shard)
    zp_find(v, "stage %d holds %lld parameter elements (%lld a shard), the file says %lld (%lld)", s, LL(*flat),
            LL(*shard), LL(zp_claim(a, "flat_elements")), LL(zp_claim(a, "shard_elements")));
  for (int i = 0; i < p.list.len; i++) {
    const piece *x = &p.list.data[i];
    if (x->at < 0 || x->at % 64 != 0 || x->at + x->elements > *flat)
      zp_find(v, "stage %d: parameters `%s` stand at element %lld of %lld", s, x->name, LL(x->at), LL(*flat));
    for (int k = 0; k < i; k++)
      if (x->at < p.list.data[k].at + p.list.data[k].elements && p.list.data[k].at < x->at + x->elements)
        zp_find(v, "stage %d: parameters `%s` and `%s` overlap", s, p.list.data[k].name, x->name);
  }
}

/* ---- regions ---- */

typedef struct region {
  const char *name;
  int64_t at, bytes;
} region;

static void check_regions(zp_verifier *v, int s, const region *r, int n, int64_t bytes) {
  int64_t end = 0;
  for (int i = 0; i < n; i++) {
    if (r[i].bytes <= 0) {
      if (r[i].at != -1) zp_find(v, "stage %d: %s is placed but has no bytes", s, r[i].name);
      continue;
    }
    if (r[i].at < 0 || r[i].at % 256 != 0) zp_find(v, "stage %d: %s stands at byte %lld", s, r[i].name, LL(r[i].at));
    for (int k = 0; k < i; k++)
      if (r[k].bytes > 0 && r[i].at < r[k].at + r[k].bytes && r[k].at < r[i].at + r[i].bytes)
        zp_find(v, "stage %d: %s and %s overlap", s, r[k].name, r[i].name);
    if (end < r[i].at + r[i].bytes) end = r[i].at + r[i].bytes;
  }
  if (end != bytes) zp_find(v, "stage %d: the arena is %lld bytes, its regions end at %lld", s, LL(bytes), LL(end));
}

/* What the stage's units need, from the model and from their (verified) procedures. */
typedef struct needs {
  int64_t slot, transient, carry; /* bytes, bytes, elements */
  bool shards;                    /* some unit keeps its input as shards: the forward ping-pong exists */
} needs;

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t carried(const zp_verifier *v, const zp_graph *g, const zp_ints *carry) {
  return carry->len ? zp_shape_elements(&g->tensors.data[carry->data[0]].shape, v->choice.microbatch) : 0;
}

static needs find_needs(zp_verifier *v, int s, const zp_json *stage) {
  const zp_json *layers = zp_json_get(stage, "layers");
  needs n = {0};
  for (int r = 0; r < zp_json_count(layers); r++) {
    const zp_json *layer = zp_json_at(layers, r), *program;
    const zp_segment *segment = &v->spec->model->segments.data[zp_claimed_segment(v, layer, &program)];
    if (zp_claim(layer, "saved") != n.slot)
      zp_find(v, "stage %d: slot areas of `%s` start at %lld", s, segment->name, LL(zp_claim(layer, "saved")));
    n.slot += zp_times(zp_claim(layer, "count"), zp_claim(program, "saved_bytes"));
    n.transient = max64(n.transient, zp_claim(zp_json_get(program, "forward"), "transient_bytes"));
    n.transient = max64(n.transient, zp_claim(zp_json_get(program, "backward"), "transient_bytes"));
    n.carry = max64(n.carry, carried(v, segment->graph, &segment->graph->carry_in));
    n.carry = max64(n.carry, carried(v, segment->graph, &segment->graph->carry_out));
    n.shards |= zp_claim(program, "carry_kept_elements") < zp_claim(program, "carry_in_elements");
  }
  return n;
}

/* ---- memory classes and budget ---- */

static void check_budget(zp_verifier *v, int s, const zp_json *memory, int64_t arena) {
  int64_t sum = zp_claim(memory, "weights") + zp_claim(memory, "gradients") + zp_claim(memory, "optimizer") +
                zp_claim(memory, "saved") + zp_claim(memory, "buffers");
  if (sum != arena)
    zp_find(v, "stage %d: the memory breakdown sums to %lld, the arena is %lld bytes", s, LL(sum), LL(arena));
  if (zp_claim(memory, "context") != v->machine.context_bytes)
    zp_find(v, "stage %d: the device's context takes %lld bytes, the file says %lld", s, LL(v->machine.context_bytes),
            LL(zp_claim(memory, "context")));
  double limit = v->spec->plans.data[v->spec->plan].memory_fraction * (double)v->machine.memory_bytes;
  if ((double)(arena + v->machine.context_bytes) > limit)
    zp_find(v, "stage %d needs %lld bytes (context included), %.0f may be used", s,
            LL(arena + v->machine.context_bytes), limit);
}

/* A class is what its regions hold; alignment between regions may add less than 256 bytes to each. */
static void check_class(zp_verifier *v, int s, const zp_json *memory, const char *name, int64_t least, int n_regions) {
  int64_t claimed = zp_claim(memory, name);
  if (claimed < least || claimed >= least + 256 * n_regions)
    zp_find(v, "stage %d: %s take %lld bytes, the file says %lld", s, name, LL(least), LL(claimed));
}

void zp_verify_stage(zp_verifier *v, int s) {
  const zp_json *stage = zp_json_at(v->stages, s), *a = zp_json_get(stage, "arena"),
                *memory = zp_json_get(stage, "memory");
  const zp_train *train = &v->spec->train;
  int64_t flat, shard, cb = v->compute_bytes, m = v->microbatches, units = zp_claim(stage, "units");
  check_flat(v, s, stage, &flat, &shard);
  needs n = find_needs(v, s, stage);
  bool sgd = train->optimizer == ZP_OPT_SGD, above = s<v->choice.pipeline - 1, below = s> 0;
  int64_t in_flight = v->choice.pipeline - s < m ? v->choice.pipeline - s : m, carry = n.carry * cb;
  if (zp_claim(a, "slots") != in_flight)
    zp_find(v, "stage %d has %lld slots, %lld micro-batches are in flight", s, LL(zp_claim(a, "slots")), LL(in_flight));
  if (zp_claim(a, "slot_stride") != n.slot)
    zp_find(v, "stage %d: a slot needs %lld bytes, the file says %lld", s, LL(n.slot), LL(zp_claim(a, "slot_stride")));
  int64_t master = cb == 2 ? shard * 4 : 0, moment1 = sgd && train->momentum == 0 ? 0 : shard * v->stat_bytes;
  int64_t moment2 = sgd ? 0 : shard * v->stat_bytes, slots = zp_times(in_flight, n.slot);
  const region regions[] = {{"params", zp_claim(a, "at_params"), flat * cb},
                            {"gradients", zp_claim(a, "at_grads"), flat * cb},
                            {"master weights", zp_claim(a, "at_master"), master},
                            {"first moment", zp_claim(a, "at_moment1"), moment1},
                            {"second moment", zp_claim(a, "at_moment2"), moment2},
                            {"inputs", zp_claim(a, "at_inputs"),
                             v->spec->model->inputs.len * m * v->choice.microbatch * v->spec->model->sequence * 4},
                            {"slots", zp_claim(a, "at_slots"), slots},
                            {"carry 0", zp_claim(a, "at_carry0"), n.shards ? carry : 0},
                            {"carry 1", zp_claim(a, "at_carry1"), n.shards ? carry : 0},
                            {"message up", zp_claim(a, "at_send_up"), above ? carry : 0},
                            {"gradient 0", zp_claim(a, "at_grad0"), above || units >= 3 ? carry : 0},
                            {"gradient 1", zp_claim(a, "at_grad1"), units >= 2 ? carry : 0},
                            {"message down", zp_claim(a, "at_send_down"), below ? carry : 0},
                            {"transient", zp_claim(a, "at_transient"), n.transient}};
  check_regions(v, s, regions, (int)(sizeof regions / sizeof *regions), zp_claim(a, "bytes"));
  check_class(v, s, memory, "weights", flat * cb, 1);
  check_class(v, s, memory, "gradients", flat * cb, 1);
  check_class(v, s, memory, "optimizer", master + moment1 + moment2, 3);
  check_class(v, s, memory, "saved", slots, 1);
  check_budget(v, s, memory, zp_claim(a, "bytes"));
}
