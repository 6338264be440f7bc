/* SPDX-License-Identifier: Apache-2.0 */
/* Prints how a procedure gets parameters of which its rank has only a part, and where its gradients go, where buckets
 * move: one call for every bucket that the list of moves has a record of. A unit's parameters stand in one buffer of
 * the stage, its gradients in another: its own first, then the shared ones that it uses, then what expert groups share
 * (zp_unit_buckets). */
#include "procedure.h"

void zp_emit_find_buckets(zp_frame *f, int segment) {
  static const zp_act act_of[] = {
      [ZP_PASS_FORWARD] = ZP_ACT_F,  [ZP_PASS_LOSS] = ZP_ACT_F,     [ZP_PASS_BACKWARD] = ZP_ACT_B,
      [ZP_PASS_INPUTS] = ZP_ACT_BI,  [ZP_PASS_WEIGHTS] = ZP_ACT_BW, [ZP_PASS_GATHER] = ZP_ACT_F,
      [ZP_PASS_SCATTER] = ZP_ACT_BW, [ZP_PASS_DECODE] = ZP_ACT_F};
  zp_act act = act_of[f->pass];
  f->gathered = zp_emit_bucket_calls(f->e, segment, act, ZP_CALL_GATHER_PARAMS);
  f->scattered = zp_emit_bucket_calls(f->e, segment, act, ZP_CALL_SCATTER_GRADS);
  zp_ints later = zp_emit_bucket_calls(f->e, segment, ZP_ACT_BW, ZP_CALL_SCATTER_GRADS);
  f->gathers = f->gathered.len > 0;
  f->scatters = f->scattered.len > 0;
  f->keeps_early = f->pass == ZP_PASS_INPUTS && later.len > 0;
  f->bucket = ZP_NEW_ARRAY(f->e->arena, zp_bucket, ZP_KINDS + f->e->lowered->shared.len);
  if (f->gathers || f->scatters || f->keeps_early)
    f->n_buckets = zp_unit_buckets(f->e->lowered, &f->e->program->choice, segment, f->bucket);
}

static const zp_bucket *find(const zp_frame *f, int param, zp_param_kind kind) {
  for (int i = 0; i < f->n_buckets; i++)
    if (f->bucket[i].param == param && f->bucket[i].kind == kind) return &f->bucket[i];
  return NULL;
}

static const char *place(const zp_frame *f, const char *base, int64_t at) {
  return at ? zp_format(f->e->arena, "%s + %lld", base, ZP_LL(at)) : base;
}

const char *zp_frame_gathered(const zp_frame *f, int param, zp_param_kind kind, const char *base) {
  const zp_bucket *bucket = find(f, param, kind);
  return bucket ? place(f, base, bucket->at) : NULL;
}

const char *zp_frame_first_element(const zp_frame *f, int bucket) {
  const zp_bucket *b = &f->bucket[bucket];
  if (b->param >= 0)
    return zp_format(f->e->arena, "s->%s", zp_emit_identifier(f->e->arena, f->model->params.data[b->param].name));
  return zp_format(f->e->arena, "u->%sbase", zp_kinds[b->kind].prefix);
}

void zp_emit_gathers(zp_frame *f) {
  bool hpz = f->e->program->choice.hpz > 0,
       reads_hpz = hpz && (f->pass == ZP_PASS_BACKWARD || f->pass == ZP_PASS_INPUTS);
  if (!f->gathers || (zp_emit_calls(f->e, ZP_CALL_GATHER_OVERLAPPED) && f->pass != ZP_PASS_GATHER)) return;
  zp_buf_line(&f->e->out, zp_emit_calls(f->e, ZP_CALL_FETCH_PARAMS)
                              ? "/* Parameters: what is on the device; the rest has come. */"
                          : reads_hpz ? "/* Parameters: from the second copy that forward has kept. */"
                                      : "/* Parameters: from the data ranks' shards. */");
  for (int i = 0; i < f->gathered.len; i++) {
    const zp_bucket *b = &f->bucket[f->gathered.data[i]];
    const char *first = zp_frame_first_element(f, f->gathered.data[i]), *at = place(f, "w", b->at);
    zp_buf_line(&f->e->out, "zpr_gather_%s(c, %s, %s); /* %lld elements */", reads_hpz ? "hpz" : "params", first, at,
                ZP_LL(b->elements));
    if (hpz && f->pass == ZP_PASS_FORWARD) zp_buf_line(&f->e->out, "zpr_keep_hpz(c, %s, %s);", first, at);
  }
}

const char *zp_frame_early(const zp_frame *f, int use) {
  return zp_format(f->e->arena, "at(u->pending, %lld)", ZP_LL(f->seg->early_offset[use]));
}

/* Where the gradient of a parameter stands in the unit's buckets. */
static const char *in_bucket(const zp_frame *f, int use) {
  int param = f->seg->graph->params.data[use].param;
  int64_t offset = f->seg->param_offset[use];
  const zp_bucket *bucket = find(f, offset < 0 ? param : -1, zp_kind_of(f->e->lowered, param));
  return place(f, "g", bucket->at + (offset < 0 ? 0 : offset));
}

void zp_emit_zeroed_gradients(zp_frame *f) {
  const zp_graph *g = f->seg->graph;
  for (int i = 0; i < g->params.len && (f->scatters || f->keeps_early); i++) {
    int param = g->params.data[i].param;
    bool early = f->pass != ZP_PASS_BACKWARD && f->seg->early_offset[i] >= 0;
    long long elements = ZP_LL(f->e->lowered->param_elements[param]);
    const char *name = f->model->params.data[param].name;
    if (early && f->scatters)
      zp_buf_line(&f->e->out, "zpr_copy(c, %s, %s, %lld * (int64_t)sizeof(grad)); /* %s: from the first part */",
                  in_bucket(f, i), zp_frame_early(f, i), elements, name);
    else if (f->e->lowered->zero_first[param] && (early || f->scatters))
      zp_buf_line(&f->e->out, "zpr_zero(c, %s, %lld * (int64_t)sizeof(grad)); /* %s: only added to */",
                  early ? zp_frame_early(f, i) : in_bucket(f, i), elements, name);
  }
}

void zp_emit_scatters(zp_frame *f) {
  if (!f->scatters || (zp_emit_calls(f->e, ZP_CALL_SCATTER_OVERLAPPED) && f->pass != ZP_PASS_SCATTER)) return;
  zp_buf_line(&f->e->out, "/* Gradients: every data rank keeps the sum of its shard. */");
  for (int i = 0; i < f->scattered.len; i++) {
    const zp_bucket *b = &f->bucket[f->scattered.data[i]];
    bool always = b->param >= 0 && f->e->lowered->zero_first[b->param]; /* other units may have been first */
    zp_buf_line(&f->e->out, "zpr_scatter_grads(c, %s, %s, %s); /* %lld elements */",
                zp_frame_first_element(f, f->scattered.data[i]), place(f, "g", b->at), always ? "true" : "mb > 0",
                ZP_LL(b->elements));
  }
}

static void emit_move(zp_emit *e, int segment, zp_stage_mode mode, zp_pass pass) {
  bool gather = pass == ZP_PASS_GATHER;
  zp_frame f = {.e = e, .seg = zp_emit_variant(e, segment, mode), .model = e->model, .pass = pass};
  zp_emit_find_buckets(&f, segment);
  zp_buf_line(&e->out, "static void %s(zpr *c, const layout *s, const unit *u, int64_t mb) {",
              zp_emit_function_name(e, segment, mode, pass));
  e->out.indent++;
  if (f.n_buckets > 0) zp_buf_line(&e->out, gather ? "real *w = u->w;" : "grad *g = u->g;");
  zp_buf_line(&e->out, f.n_buckets > 0 ? "(void)s, (void)u, (void)mb;" : "(void)c, (void)s, (void)u, (void)mb;");
  if (gather)
    zp_emit_gathers(&f);
  else
    zp_emit_scatters(&f);
  e->out.indent--;
  zp_buf_line(&e->out, "}");
  zp_buf_puts(&e->out, "\n");
}

void zp_emit_move_functions(zp_emit *e, int segment, zp_stage_mode mode) {
  if (!zp_emit_calls(e, ZP_CALL_SCATTER_OVERLAPPED)) return;
  if (zp_emit_calls(e, ZP_CALL_GATHER_OVERLAPPED)) emit_move(e, segment, mode, ZP_PASS_GATHER);
  emit_move(e, segment, mode, ZP_PASS_SCATTER);
}
