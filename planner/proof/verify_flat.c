/* SPDX-License-Identifier: Apache-2.0 */
/* Flat buffers of every stage in a plan file: all its parameters are there, apart, padded as the ZeRO stage wants. */
#include "verify_internal.h"

#define LL(x) ((long long)(x))

typedef struct piece { /* elements in the flat buffers */
  const char *name;
  int64_t at, elements;
  zp_param_kind kind;
} piece;

typedef struct pieces {
  ZP_VEC(piece) list;
  zp_flat sum, bucket; /* padded; the most that one unit needs */
} pieces;

const char *zp_kind_word(zp_param_kind kind) {
  static const char *const word[ZP_KINDS] = {"", "spread ", "frozen "};
  return word[kind];
}

int64_t zp_claim_of_kind(const zp_verifier *v, const zp_json *object, zp_param_kind kind, const char *name) {
  static const char *const prefix[ZP_KINDS] = {"", "spread_", "frozen_"};
  const char *key = zp_format(v->arena, "%s%s", prefix[kind], name);
  return kind == ZP_KIND_FROZEN ? zp_claim_some(object, key) : zp_claim(object, key);
}

int64_t zp_verify_sharers(const zp_verifier *v) { return v->choice.shard > 0 ? v->choice.shard : v->choice.data; }

/* Those who hold the same, where each has a shard of it: all data ranks, or those of a shard group; of what is spread
 * those of them at one place of their expert groups. What is not trained is shared out with ZeRO 3 alone. */
static int64_t sharers(const zp_verifier *v, zp_param_kind kind, bool shards) {
  const zp_choice *c = &v->choice;
  int64_t group = zp_verify_sharers(v);
  switch (kind) {
  case ZP_KIND_WHOLE: return shards ? group : 1;
  case ZP_KIND_SPREAD: return shards ? group / zp_expert_ranks(c) : 1;
  default: return zp_shards_params(c) ? group : 1;
  }
}

int64_t zp_verify_align(const zp_verifier *v) {
  const zp_home *params = &v->choice.home[ZP_STATE_PARAMS], *grads = &v->choice.home[ZP_STATE_GRADIENTS];
  bool pages =
      (params->eighths > 0 && params->tier == ZP_TIER_NVME) || (grads->eighths > 0 && grads->tier == ZP_TIER_NVME);
  return pages ? 4096 / 2 : 64;
}

/* In whole shards, when there are shards. */
static zp_flat padded(const zp_verifier *v, zp_flat e, bool shards) {
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    e.of[kind] = zp_up(e.of[kind], zp_verify_align(v) * sharers(v, kind, shards));
  return e;
}

/* ZeRO shards units and shared parameters one by one; pages of disks are theirs alone, too. */
static zp_flat unit_padded(const zp_verifier *v, zp_flat e) { return padded(v, e, zp_shards_state(&v->choice)); }

/* Elements of a parameter declared outside repeats, padded. */
static zp_flat shared_elements(const zp_verifier *v, int param) {
  zp_flat elements = {{0}};
  elements.of[v->kind[param]] = zp_up(v->elements[param], 64);
  return unit_padded(v, elements);
}

/* Empty ones, too: what has no elements has a place between others. */
static void add_piece(zp_verifier *v, pieces *p, piece one) { zp_push(v->arena, &p->list, one); }

static bool piece_uses(const zp_verifier *v, int index, int param) {
  const zp_graph *g = v->pieces->piece[index].segment.graph;
  for (int u = 0; u < g->params.len; u++)
    if (g->params.data[u].param == param) return true;
  return false;
}

static bool stage_uses(const zp_verifier *v, const zp_json *layers, int param) {
  for (int r = 0; r < zp_json_count(layers); r++)
    if (piece_uses(v, zp_claimed_piece(v, zp_json_at(layers, r)), param)) return true;
  return false;
}

static void find_shared(zp_verifier *v, int s, const zp_json *stage, pieces *p) {
  const zp_json *layers = zp_json_get(stage, "layers"), *shared = zp_json_get(stage, "shared");
  const zp_model *model = v->spec->model;
  int n_shared = 0;
  for (int i = 0; i < model->params.len; i++) {
    if (model->params.data[i].segment >= 0 || !stage_uses(v, layers, i)) continue;
    zp_flat elements = shared_elements(v, i);
    const char *name = model->params.data[i].name;
    add_piece(v, p, (piece){name, zp_claim(shared, name), elements.of[v->kind[i]], v->kind[i]});
    zp_flat_add(&p->sum, &elements, 1);
    n_shared++;
  }
  if (zp_json_key(shared, n_shared)) zp_find(v, "stage %d lists a shared parameter that its units do not use", s);
}

/* What a unit works with: its own parameters and the shared ones that it uses. */
static zp_flat needed(const zp_verifier *v, int index, zp_flat own) {
  for (int i = 0; i < v->spec->model->params.len; i++) {
    if (v->spec->model->params.data[i].segment >= 0 || !piece_uses(v, index, i)) continue;
    zp_flat shared = shared_elements(v, i);
    zp_flat_add(&own, &shared, 1);
  }
  return own;
}

/* The instances of one layer, of every kind. */
static void add_layer(zp_verifier *v, int s, const zp_json *layer, pieces *p) {
  int index = zp_claimed_piece(v, layer);
  zp_flat stride = unit_padded(v, v->instance[index]), unit = needed(v, index, stride);
  const char *name = v->pieces->piece[index].segment.name;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) {
    int64_t claimed = zp_claim_of_kind(v, layer, kind, "stride"), base = zp_claim_of_kind(v, layer, kind, "base");
    int64_t elements = zp_times(zp_claim(layer, "count"), stride.of[kind]);
    if (claimed != stride.of[kind])
      zp_find(v, "stage %d: %sparameters of `%s` stand %lld elements apart, the file says %lld", s, zp_kind_word(kind),
              name, LL(stride.of[kind]), LL(claimed));
    if (kind != ZP_KIND_FROZEN || elements > 0) add_piece(v, p, (piece){name, base, elements, kind});
    p->sum.of[kind] += elements;
    if (p->bucket.of[kind] < unit.of[kind]) p->bucket.of[kind] = unit.of[kind];
  }
}

/* What the stage must hold, where the file says it lies. */
static pieces find_pieces(zp_verifier *v, int s, const zp_json *stage) {
  const zp_json *layers = zp_json_get(stage, "layers");
  pieces p = {.sum = {{0}}};
  find_shared(v, s, stage, &p);
  for (int r = 0; r < zp_json_count(layers); r++) add_layer(v, s, zp_json_at(layers, r), &p);
  return p;
}

/* The kinds lie one after the other. */
static void check_places(zp_verifier *v, int s, const pieces *p, const zp_flat *all) {
  for (int i = 0; i < p->list.len; i++) {
    const piece *x = &p->list.data[i];
    int64_t begin = 0;
    for (zp_param_kind kind = 0; kind < x->kind; kind++) begin += all->of[kind];
    int64_t end = begin + all->of[x->kind];
    if (x->at < begin || x->at % zp_verify_align(v) != 0 || x->at + x->elements > end)
      zp_find(v, "stage %d: parameters `%s` stand at element %lld, those of their kind at %lld to %lld", s, x->name,
              LL(x->at), LL(begin), LL(end));
    for (int k = 0; k < i; k++)
      if (x->at < p->list.data[k].at + p->list.data[k].elements && p->list.data[k].at < x->at + x->elements)
        zp_find(v, "stage %d: parameters `%s` and `%s` overlap", s, p->list.data[k].name, x->name);
  }
}

static zp_flat_sizes sizes_of(const zp_verifier *v, const pieces *p) {
  const zp_choice *c = &v->choice;
  zp_flat_sizes sizes = {.all = padded(v, p->sum, zp_shards_state(c) || c->compress),
                         .unit = padded(v, p->bucket, zp_shards_state(c))};
  if (!zp_shards_params(c)) sizes.unit.of[ZP_KIND_FROZEN] = 0;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) {
    int64_t n = sharers(v, kind, zp_shards_state(c));
    sizes.own.of[kind] = sizes.all.of[kind] / n;
    if (kind == ZP_KIND_FROZEN) continue;
    sizes.flat += sizes.all.of[kind];
    sizes.shard += sizes.own.of[kind];
    sizes.bucket += sizes.unit.of[kind];
    sizes.bucket_shard += sizes.unit.of[kind] / n;
  }
  return sizes;
}

zp_flat_sizes zp_verify_flat(zp_verifier *v, int s) {
  const zp_json *stage = zp_json_at(v->stages, s), *a = zp_json_get(stage, "arena");
  pieces p = find_pieces(v, s, stage);
  zp_flat_sizes sizes = sizes_of(v, &p);
  if (zp_claim(a, "flat_elements") != sizes.flat || zp_claim(a, "shard_elements") != sizes.shard)
    zp_find(v, "stage %d holds %lld parameter elements (%lld a shard), the file says %lld (%lld)", s, LL(sizes.flat),
            LL(sizes.shard), LL(zp_claim(a, "flat_elements")), LL(zp_claim(a, "shard_elements")));
  for (zp_param_kind kind = ZP_KIND_WHOLE + 1; kind < ZP_KINDS; kind++) {
    int64_t all = zp_claim_of_kind(v, a, kind, "elements"), own = zp_claim_of_kind(v, a, kind, "shard_elements");
    if (all != sizes.all.of[kind] || own != sizes.own.of[kind])
      zp_find(v, "stage %d holds %lld %sparameter elements (%lld on a rank), the file says %lld (%lld)", s,
              LL(sizes.all.of[kind]), zp_kind_word(kind), LL(sizes.own.of[kind]), LL(all), LL(own));
  }
  if (zp_claim(a, "bucket_elements") != sizes.bucket)
    zp_find(v, "stage %d: a unit needs up to %lld parameter elements, the file says %lld", s, LL(sizes.bucket),
            LL(zp_claim(a, "bucket_elements")));
  if (zp_claim_some(a, "frozen_bucket_elements") != sizes.unit.of[ZP_KIND_FROZEN])
    zp_find(v, "stage %d: a unit gathers up to %lld frozen parameter elements, the file says %lld", s,
            LL(sizes.unit.of[ZP_KIND_FROZEN]), LL(zp_claim_some(a, "frozen_bucket_elements")));
  check_places(v, s, &p, &sizes.all);
  return sizes;
}
