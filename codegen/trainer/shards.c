/* Prints how a procedure gets parameters of which its rank has only shards (ZeRO 3), and where its gradients go (ZeRO 2
 * and 3). A unit's parameters stand in one buffer of the stage, its gradients in another: its own first, then the
 * shared ones that it uses, then what expert groups share (zp_unit_buckets). */
#include "procedure.h"

void zp_emit_find_buckets(zp_frame *f, int segment) {
  f->bucket = ZP_NEW_ARRAY(f->e->arena, zp_bucket, 2 + f->e->lowered->shared.len);
  f->scatters = zp_moves_gradients(&f->e->program->choice);
  if (zp_moves_buckets(&f->e->program->choice))
    f->n_buckets = zp_unit_buckets(f->e->lowered, &f->e->program->choice, segment, f->bucket);
}

static const zp_bucket *find(const zp_frame *f, int param, bool spread) {
  for (int i = 0; i < f->n_buckets; i++)
    if (f->bucket[i].param == param && f->bucket[i].spread == spread) return &f->bucket[i];
  return NULL;
}

static const char *place(const zp_frame *f, const char *base, int64_t at) {
  return at ? zp_format(f->e->arena, "%s + %lld", base, ZP_LL(at)) : base;
}

const char *zp_frame_gathered(const zp_frame *f, int param, bool spread, const char *base) {
  const zp_bucket *bucket = find(f, param, spread);
  return bucket ? place(f, base, bucket->at) : NULL;
}

const char *zp_frame_first_element(const zp_frame *f, int bucket) {
  const zp_bucket *b = &f->bucket[bucket];
  if (b->param >= 0)
    return zp_format(f->e->arena, "s->%s", zp_emit_identifier(f->e->arena, f->model->params.data[b->param].name));
  return b->spread ? "u->spread_base" : "u->base";
}

void zp_emit_gathers(zp_frame *f) {
  if (!zp_moves_params(&f->e->program->choice) || f->n_buckets == 0) return;
  zp_buf_line(&f->e->out, zp_emit_params_leave(f->e) ? "/* Parameters: what is on the device; the rest has come. */"
                                                     : "/* Parameters: from the data ranks' shards. */");
  for (int i = 0; i < f->n_buckets; i++)
    zp_buf_line(&f->e->out, "zpr_gather_params(c, %s, %s); /* %lld elements */", zp_frame_first_element(f, i),
                place(f, "w", f->bucket[i].at), ZP_LL(f->bucket[i].elements));
}

void zp_emit_zeroed_gradients(zp_frame *f) {
  const zp_graph *g = f->seg->graph;
  for (int i = 0; i < g->params.len && f->scatters; i++) {
    int param = g->params.data[i].param;
    int64_t offset = f->seg->param_offset[i];
    const zp_bucket *bucket = find(f, offset < 0 ? param : -1, f->e->lowered->sharding->param[param].spread);
    if (!f->e->lowered->zero_first[param]) continue;
    zp_buf_line(&f->e->out, "zpr_zero(c, %s, %lld * (int64_t)sizeof(real)); /* %s: only added to */",
                place(f, "g", bucket->at + (offset < 0 ? 0 : offset)), ZP_LL(f->e->lowered->param_elements[param]),
                f->model->params.data[param].name);
  }
}

void zp_emit_scatters(zp_frame *f) {
  if (!f->scatters || f->n_buckets == 0) return;
  zp_buf_line(&f->e->out, "/* Gradients: every data rank keeps the sum of its shard. */");
  for (int i = 0; i < f->n_buckets; i++) {
    const zp_bucket *b = &f->bucket[i];
    bool always = b->param >= 0 && f->e->lowered->zero_first[b->param]; /* other units may have been first */
    zp_buf_line(&f->e->out, "zpr_scatter_grads(c, %s, %s, %s); /* %lld elements */", zp_frame_first_element(f, i),
                place(f, "g", b->at), always ? "true" : "mb > 0", ZP_LL(b->elements));
  }
}
