/* Prints how units get parameters of which a part lives on the host: into a ring of two buffers, the next unit's while
 * one works (zp_unit_buckets says what stands where in them). */
#include "procedure.h"

bool zp_emit_params_leave(const zp_emit *e) { return e->program->choice.home[ZP_STATE_PARAMS].eighths > 0; }

static void emit_case(zp_emit *e, int segment) {
  zp_frame f = {.e = e, .model = e->model};
  zp_emit_find_buckets(&f, segment);
  for (int i = 0; i < f.n_buckets; i++)
    zp_buf_line(&e->out, "    zpr_fetch_params(c, %s, %s); /* %lld elements */", zp_frame_first_element(&f, i),
                f.bucket[i].at ? zp_format(e->arena, "w + %lld", ZP_LL(f.bucket[i].at)) : "w",
                ZP_LL(f.bucket[i].elements));
  zp_buf_line(&e->out, "    break;");
}

void zp_emit_fetch(zp_emit *e) {
  zp_buf *out = &e->out;
  if (!zp_emit_params_leave(e)) return;
  zp_buf_line(out, "/* Where the parameters of unit j come to. */");
  zp_buf_line(out, "static real *params_of(zpr *c, const layout *s, int64_t j) {");
  zp_buf_line(out, "  return (real *)at(c->arena, s->param_ring) + j %% 2 * s->param_stride;");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
  zp_buf_line(out, "/* Starts to bring what of them is on the host. */");
  zp_buf_line(out, "static void fetch(zpr *c, const layout *s, int64_t j) {");
  zp_buf_line(out, "  int64_t i;");
  zp_buf_line(out, "  const run *r = find_run(s, j, &i);");
  zp_buf_line(out, "  const unit unit_j = {%s}, *u = &unit_j;", zp_emit_unit_elements(e));
  zp_buf_line(out, "  real *w = params_of(c, s, j);");
  zp_buf_line(out, "  (void)u, (void)w;");
  zp_buf_line(out, "  switch (r->segment) {");
  for (int s = 0; s < e->lowered->n_segments; s++) {
    bool printed = false;
    for (int mode = 0; mode < ZP_STAGE_MODES; mode++) {
      if (!zp_emit_variant(e, s, mode)) continue;
      zp_buf_line(out, "  case %s:", zp_emit_segment(e, s, mode));
      printed = true;
    }
    if (printed) emit_case(e, s);
  }
  zp_buf_line(out, "  }");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

void zp_emit_params_begin(zp_emit *e, const char *first) {
  if (zp_emit_params_leave(e)) zp_buf_line(&e->out, "  fetch(c, s, %s);", first);
}

void zp_emit_params_next(zp_emit *e, const char *next, const char *there_is) {
  if (!zp_emit_params_leave(e)) return;
  zp_buf_line(&e->out, "    zpr_await_params(c);");
  zp_buf_line(&e->out, "    if (%s) fetch(c, s, %s);", there_is, next);
}
