/* Flat buffers of every stage in a plan file: all its parameters are there, apart, padded as the ZeRO stage wants. */
#include "verify_internal.h"

#define LL(x) ((long long)(x))

typedef struct piece { /* elements in the flat buffers */
  const char *name;
  int64_t at, elements;
  enum { WHOLE, SPREAD, FROZEN } kind;
} piece;

typedef struct pieces {
  ZP_VEC(piece) list;
  zp_verify_elements sum, bucket; /* padded; the most that one unit needs */
} pieces;

/* Those who hold the same: all data ranks, or of what is spread those at one place of their expert groups. */
static zp_verify_elements holders(const zp_verifier *v) {
  return (zp_verify_elements){v->choice.data, v->choice.data / zp_expert_ranks(&v->choice), 1};
}

int64_t zp_verify_align(const zp_verifier *v) {
  const zp_home *params = &v->choice.home[ZP_STATE_PARAMS], *grads = &v->choice.home[ZP_STATE_GRADIENTS];
  bool pages =
      (params->eighths > 0 && params->tier == ZP_TIER_NVME) || (grads->eighths > 0 && grads->tier == ZP_TIER_NVME);
  return pages ? 4096 / 2 : 64;
}

/* In whole shards, when there are shards. */
static zp_verify_elements padded(const zp_verifier *v, zp_verify_elements e, bool shards) {
  zp_verify_elements n = shards ? holders(v) : (zp_verify_elements){1, 1, 1};
  int64_t align = zp_verify_align(v), keepers = zp_shards_params(&v->choice) ? v->choice.data : 1;
  return (zp_verify_elements){zp_up(e.whole, align * n.whole), zp_up(e.spread, align * n.spread),
                              zp_up(e.frozen, align * keepers)};
}

/* ZeRO shards units and shared parameters one by one; pages of disks are theirs alone, too. */
static zp_verify_elements unit_padded(const zp_verifier *v, zp_verify_elements e) {
  return padded(v, e, zp_shards_state(&v->choice));
}

/* Elements of a parameter declared outside repeats, padded. */
static zp_verify_elements shared_elements(const zp_verifier *v, int param) {
  int64_t elements = zp_up(v->elements[param], 64);
  if (v->spec->model->params.data[param].frozen) return unit_padded(v, (zp_verify_elements){.frozen = elements});
  return unit_padded(v, v->spread[param] ? (zp_verify_elements){.spread = elements}
                                         : (zp_verify_elements){.whole = elements});
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
    zp_verify_elements elements = shared_elements(v, i);
    const char *name = model->params.data[i].name;
    add_piece(v, p,
              (piece){name, zp_claim(shared, name), elements.whole + elements.spread + elements.frozen,
                      model->params.data[i].frozen ? FROZEN
                      : v->spread[i]               ? SPREAD
                                                   : WHOLE});
    p->sum.whole += elements.whole;
    p->sum.spread += elements.spread;
    p->sum.frozen += elements.frozen;
    n_shared++;
  }
  if (zp_json_key(shared, n_shared)) zp_find(v, "stage %d lists a shared parameter that its units do not use", s);
}

/* What a unit works with: its own parameters and the shared ones that it uses. */
static zp_verify_elements needed(const zp_verifier *v, int index, zp_verify_elements own) {
  for (int i = 0; i < v->spec->model->params.len; i++) {
    if (v->spec->model->params.data[i].segment >= 0 || !piece_uses(v, index, i)) continue;
    zp_verify_elements shared = shared_elements(v, i);
    own.whole += shared.whole;
    own.spread += shared.spread;
    own.frozen += shared.frozen;
  }
  return own;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* The instances of one layer, of either kind. */
static void add_layer(zp_verifier *v, int s, const zp_json *layer, pieces *p) {
  int index = zp_claimed_piece(v, layer);
  zp_verify_elements stride = unit_padded(v, v->instance[index]);
  int64_t count = zp_claim(layer, "count"), whole = zp_times(count, stride.whole),
          spread = zp_times(count, stride.spread), frozen = zp_times(count, stride.frozen);
  const char *name = v->pieces->piece[index].segment.name;
  if (zp_claim(layer, "stride") != stride.whole || zp_claim(layer, "spread_stride") != stride.spread)
    zp_find(v, "stage %d: instances of `%s` stand %lld and %lld elements apart, the file says %lld and %lld", s, name,
            LL(stride.whole), LL(stride.spread), LL(zp_claim(layer, "stride")), LL(zp_claim(layer, "spread_stride")));
  if (zp_claim_some(layer, "frozen_stride") != stride.frozen)
    zp_find(v, "stage %d: frozen parameters of `%s` stand %lld elements apart, the file says %lld", s, name,
            LL(stride.frozen), LL(zp_claim_some(layer, "frozen_stride")));
  add_piece(v, p, (piece){name, zp_claim(layer, "base"), whole, WHOLE});
  add_piece(v, p, (piece){name, zp_claim(layer, "spread_base"), spread, SPREAD});
  if (frozen > 0) add_piece(v, p, (piece){name, zp_claim(layer, "frozen_base"), frozen, FROZEN});
  p->sum.whole += whole;
  p->sum.spread += spread;
  p->sum.frozen += frozen;
  zp_verify_elements unit = needed(v, index, stride);
  p->bucket.whole = larger(p->bucket.whole, unit.whole);
  p->bucket.spread = larger(p->bucket.spread, unit.spread);
  p->bucket.frozen = larger(p->bucket.frozen, unit.frozen);
}

/* What the stage must hold, where the file says it lies. */
static pieces find_pieces(zp_verifier *v, int s, const zp_json *stage) {
  const zp_json *layers = zp_json_get(stage, "layers");
  pieces p = {0};
  find_shared(v, s, stage, &p);
  for (int r = 0; r < zp_json_count(layers); r++) add_layer(v, s, zp_json_at(layers, r), &p);
  return p;
}

/* What is spread lies behind all that is not, what is frozen behind either. */
static void check_places(zp_verifier *v, int s, const pieces *p, zp_verify_elements flat) {
  for (int i = 0; i < p->list.len; i++) {
    const piece *x = &p->list.data[i];
    int64_t trained = flat.whole + flat.spread;
    int64_t begin = x->kind == FROZEN ? trained : x->kind == SPREAD ? flat.whole : 0;
    int64_t end = x->kind == FROZEN ? trained + flat.frozen : x->kind == SPREAD ? trained : flat.whole;
    if (x->at < begin || x->at % zp_verify_align(v) != 0 || x->at + x->elements > end)
      zp_find(v, "stage %d: parameters `%s` stand at element %lld, those of their kind at %lld to %lld", s, x->name,
              LL(x->at), LL(begin), LL(end));
    for (int k = 0; k < i; k++)
      if (x->at < p->list.data[k].at + p->list.data[k].elements && p->list.data[k].at < x->at + x->elements)
        zp_find(v, "stage %d: parameters `%s` and `%s` overlap", s, p->list.data[k].name, x->name);
  }
}

zp_flat_sizes zp_verify_flat(zp_verifier *v, int s) {
  const zp_json *stage = zp_json_at(v->stages, s), *a = zp_json_get(stage, "arena");
  const zp_choice *c = &v->choice;
  pieces p = find_pieces(v, s, stage);
  zp_verify_elements n = zp_shards_state(c) ? holders(v) : (zp_verify_elements){1, 1, 1};
  zp_verify_elements flat = padded(v, p.sum, zp_shards_state(c) || c->compress),
                     bucket = padded(v, p.bucket, zp_shards_state(c));
  zp_flat_sizes sizes = {.flat = flat.whole + flat.spread,
                         .shard = flat.whole / n.whole + flat.spread / n.spread,
                         .bucket = bucket.whole + bucket.spread,
                         .bucket_shard = bucket.whole / n.whole + bucket.spread / n.spread,
                         .spread = flat.spread,
                         .spread_shard = flat.spread / n.spread,
                         .frozen_shard = flat.frozen / (zp_shards_params(c) ? c->data : 1),
                         .frozen_bucket = zp_shards_params(c) ? bucket.frozen : 0};
  if (zp_claim(a, "flat_elements") != sizes.flat || zp_claim(a, "shard_elements") != sizes.shard)
    zp_find(v, "stage %d holds %lld parameter elements (%lld a shard), the file says %lld (%lld)", s, LL(sizes.flat),
            LL(sizes.shard), LL(zp_claim(a, "flat_elements")), LL(zp_claim(a, "shard_elements")));
  if (zp_claim(a, "spread_elements") != flat.spread || zp_claim(a, "spread_shard_elements") != flat.spread / n.spread)
    zp_find(v, "stage %d spreads %lld parameter elements (%lld a shard), the file says %lld (%lld)", s, LL(flat.spread),
            LL(flat.spread / n.spread), LL(zp_claim(a, "spread_elements")), LL(zp_claim(a, "spread_shard_elements")));
  if (zp_claim_some(a, "frozen_elements") != flat.frozen ||
      zp_claim_some(a, "frozen_shard_elements") != sizes.frozen_shard ||
      zp_claim_some(a, "frozen_bucket_elements") != sizes.frozen_bucket)
    zp_find(v, "stage %d holds %lld frozen parameter elements (%lld on a rank), the file says %lld (%lld)", s,
            LL(flat.frozen), LL(sizes.frozen_shard), LL(zp_claim_some(a, "frozen_elements")),
            LL(zp_claim_some(a, "frozen_shard_elements")));
  if (zp_claim(a, "bucket_elements") != sizes.bucket)
    zp_find(v, "stage %d: a unit needs up to %lld parameter elements, the file says %lld", s, LL(sizes.bucket),
            LL(zp_claim(a, "bucket_elements")));
  check_places(v, s, &p, flat);
  return sizes;
}
