/* SPDX-License-Identifier: Apache-2.0 */
/* Prints how units get parameters of which a part lives on the host or on disks: into a ring of two buffers, the next
 * unit's while one works (zp_unit_buckets says what stands where in them); disks are read two units ahead. */
#include "procedure.h"

typedef void emit_bucket(const zp_frame *f, int bucket);

static void emit_read(const zp_frame *f, int i) {
  zp_buf_line(&f->e->out, "    zpr_read_params(c, %s); /* %lld elements */", zp_frame_first_element(f, i),
              ZP_LL(f->bucket[i].elements));
}

static void emit_fetch(const zp_frame *f, int i) {
  zp_buf_line(&f->e->out, "    zpr_fetch_params(c, %s, %s); /* %lld elements */", zp_frame_first_element(f, i),
              f->bucket[i].at ? zp_format(f->e->arena, "w + %lld", ZP_LL(f->bucket[i].at)) : "w",
              ZP_LL(f->bucket[i].elements));
}

static void emit_case(zp_emit *e, int segment, zp_call call, emit_bucket *emit) {
  zp_frame f = {.e = e, .model = e->model};
  zp_emit_find_buckets(&f, segment);
  zp_ints buckets = zp_emit_bucket_calls(e, segment, ZP_ACT_F, call);
  for (int i = 0; i < buckets.len; i++) emit(&f, buckets.data[i]);
  zp_buf_line(&e->out, "    break;");
}

/* A function of unit j that does so with each of its buckets. */
static void emit_of_unit(zp_emit *e, const char *name, zp_call call, emit_bucket *emit) {
  zp_buf *out = &e->out;
  bool to_ring = call == ZP_CALL_FETCH_PARAMS;
  zp_buf_line(out, "static void %s(zpr *c, const layout *s, int64_t j) {", name);
  zp_buf_line(out, "  int64_t i;");
  zp_buf_line(out, "  const run *r = find_run(s, j, &i);");
  zp_buf_line(out, "  const unit unit_j = {%s}, *u = &unit_j;", zp_emit_unit_elements(e));
  if (to_ring) zp_buf_line(out, "  real *w = params_of(c, s, j);");
  zp_buf_line(out, to_ring ? "  (void)u, (void)w;" : "  (void)u;");
  zp_buf_line(out, "  switch (r->segment) {");
  for (int s = 0; s < e->lowered->n_segments; s++) {
    bool printed = false;
    for (int mode = 0; mode < ZP_STAGE_MODES; mode++) {
      if (!zp_emit_variant(e, s, mode)) continue;
      zp_buf_line(out, "  case %s:", zp_emit_segment(e, s, mode));
      printed = true;
    }
    if (printed) emit_case(e, s, call, emit);
  }
  zp_buf_line(out, "  }");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

void zp_emit_fetch(zp_emit *e) {
  zp_buf *out = &e->out;
  if (!zp_emit_calls(e, ZP_CALL_FETCH_PARAMS)) return;
  zp_buf_line(out, "/* Where the parameters of unit j come to. */");
  zp_buf_line(out, "static real *params_of(zpr *c, const layout *s, int64_t j) {");
  zp_buf_line(out, "  return (real *)at(c->arena, s->param_ring) + j %% 2 * s->param_stride;");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
  zp_buf_line(out, "/* Starts to bring what of them is not on the device. */");
  emit_of_unit(e, "fetch", ZP_CALL_FETCH_PARAMS, emit_fetch);
  if (!zp_emit_calls(e, ZP_CALL_READ_PARAMS)) return;
  zp_buf_line(out, "/* Starts to read what of them is on a disk. */");
  emit_of_unit(e, "read_ahead", ZP_CALL_READ_PARAMS, emit_read);
}

void zp_emit_params_begin(zp_emit *e, const char *first, const char *second) {
  if (!zp_emit_calls(e, ZP_CALL_FETCH_PARAMS)) return;
  zp_buf_line(&e->out, "  fetch(c, s, %s);", first);
  if (zp_emit_calls(e, ZP_CALL_READ_PARAMS))
    zp_buf_line(&e->out, "  if (s->n_units > 1) read_ahead(c, s, %s);", second);
}

void zp_emit_params_next(zp_emit *e, zp_unit_ahead next, zp_unit_ahead after) {
  if (!zp_emit_calls(e, ZP_CALL_FETCH_PARAMS)) return;
  zp_buf_line(&e->out, "    zpr_await_params(c);");
  zp_buf_line(&e->out, "    if (%s) fetch(c, s, %s);", next.there_is, next.unit);
  if (zp_emit_calls(e, ZP_CALL_READ_PARAMS))
    zp_buf_line(&e->out, "    if (%s) read_ahead(c, s, %s);", after.there_is, after.unit);
}
