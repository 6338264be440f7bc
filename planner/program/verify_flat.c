/* Flat buffers of every stage in a plan file: all its parameters are there, apart, padded as the ZeRO stage wants. */
#include "verify_internal.h"

#define LL(x) ((long long)(x))

typedef struct piece { /* elements in the flat buffers */
  const char *name;
  int64_t at, elements;
} piece;

typedef struct pieces {
  ZP_VEC(piece) list;
  int64_t sum, shared, bucket; /* padded; of shared parameters; the most that one unit needs */
} pieces;

/* ZeRO 2 and 3 move unit by unit, in whole shards of 64 elements. */
static int64_t padding(const zp_verifier *v) { return v->choice.zero >= 2 ? 64 * (int64_t)v->choice.data : 1; }

static void add_piece(zp_verifier *v, pieces *p, const char *name, int64_t at, int64_t elements) {
  if (elements == 0) return;
  zp_push(v->arena, &p->list, ((piece){name, at, elements}));
}

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
    int64_t elements = zp_up(v->elements[i], 64);
    add_piece(v, p, model->params.data[i].name, zp_claim(shared, model->params.data[i].name), elements);
    p->shared += elements;
    n_shared++;
  }
  if (zp_json_key(shared, n_shared)) zp_find(v, "stage %d lists a shared parameter that its units do not use", s);
  p->shared = zp_up(p->shared, padding(v));
  p->sum = p->shared;
}

static bool uses_any_shared(const zp_verifier *v, int index) {
  for (int i = 0; i < v->spec->model->params.len; i++)
    if (v->spec->model->params.data[i].segment < 0 && piece_uses(v, index, i)) return true;
  return false;
}

/* What the stage must hold, where the file says it lies. */
static pieces find_pieces(zp_verifier *v, int s, const zp_json *stage) {
  const zp_json *layers = zp_json_get(stage, "layers");
  pieces p = {0};
  find_shared(v, s, stage, &p);
  for (int r = 0; r < zp_json_count(layers); r++) {
    const zp_json *layer = zp_json_at(layers, r);
    int index = zp_claimed_piece(v, layer);
    int64_t stride = zp_up(v->instance[index], padding(v)), elements = zp_times(zp_claim(layer, "count"), stride);
    const char *name = v->pieces->piece[index].segment.name;
    if (zp_claim(layer, "stride") != stride)
      zp_find(v, "stage %d: instances of `%s` stand %lld elements apart, the file says %lld", s, name, LL(stride),
              LL(zp_claim(layer, "stride")));
    add_piece(v, &p, name, zp_claim(layer, "base"), elements);
    p.sum += elements;
    int64_t need = stride + (uses_any_shared(v, index) ? p.shared : 0);
    if (need > p.bucket) p.bucket = need;
  }
  return p;
}

zp_flat_sizes zp_verify_flat(zp_verifier *v, int s) {
  const zp_json *stage = zp_json_at(v->stages, s), *a = zp_json_get(stage, "arena");
  const zp_choice *c = &v->choice;
  pieces p = find_pieces(v, s, stage);
  int64_t shards = c->zero ? c->data : 1, whole = c->zero || c->compress ? c->data : 1;
  zp_flat_sizes sizes = {.flat = zp_up(p.sum, 64 * whole), .bucket = zp_up(p.bucket, 64 * shards)};
  sizes.shard = sizes.flat / shards;
  if (zp_claim(a, "flat_elements") != sizes.flat || zp_claim(a, "shard_elements") != sizes.shard)
    zp_find(v, "stage %d holds %lld parameter elements (%lld a shard), the file says %lld (%lld)", s, LL(sizes.flat),
            LL(sizes.shard), LL(zp_claim(a, "flat_elements")), LL(zp_claim(a, "shard_elements")));
  if (zp_claim(a, "bucket_elements") != sizes.bucket)
    zp_find(v, "stage %d: a unit needs up to %lld parameter elements, the file says %lld", s, LL(sizes.bucket),
            LL(zp_claim(a, "bucket_elements")));
  for (int i = 0; i < p.list.len; i++) {
    const piece *x = &p.list.data[i];
    if (x->at < 0 || x->at % 64 != 0 || x->at + x->elements > sizes.flat)
      zp_find(v, "stage %d: parameters `%s` stand at element %lld of %lld", s, x->name, LL(x->at), LL(sizes.flat));
    for (int k = 0; k < i; k++)
      if (x->at < p.list.data[k].at + p.list.data[k].elements && p.list.data[k].at < x->at + x->elements)
        zp_find(v, "stage %d: parameters `%s` and `%s` overlap", s, p.list.data[k].name, x->name);
  }
  return sizes;
}
