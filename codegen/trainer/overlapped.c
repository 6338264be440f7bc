/* SPDX-License-Identifier: Apache-2.0 */
/* Prints how buckets move while units compute (ZeRO 2 and 3 on GPUs): unit j has buffer j % 2 of the rings, its
 * neighbours the other one. The next unit's parameters start to come before a unit begins, its own gradients start to
 * go when it is done. The runtime's events keep readers and writers of a buffer apart (rt.h: zpr_overlapped). */
#include "emit.h"

static bool gathers(const zp_emit *e, zp_pass pass) {
  return zp_emit_calls(e, ZP_CALL_GATHER_OVERLAPPED) && pass != ZP_PASS_WEIGHTS;
}

static bool scatters(const zp_emit *e, zp_pass pass) {
  return zp_emit_calls(e, ZP_CALL_SCATTER_OVERLAPPED) && (pass == ZP_PASS_BACKWARD || pass == ZP_PASS_WEIGHTS);
}

static void emit_move(zp_emit *e, bool gather) {
  zp_buf *out = &e->out;
  const char *ring = gather ? "ZPR_PARAM_RING" : "ZPR_GRAD_RING";
  zp_buf_line(out, gather ? "/* The parameters of unit j start to come, alongside what the units compute. */"
                          : "/* The gradients of unit j, which it has just made, start to go. */");
  zp_buf_line(out, "static void %s_unit(zpr *c, const layout *s, int64_t j, int64_t mb) {",
              gather ? "gather" : "scatter");
  zp_buf_line(out, "    int64_t i;");
  zp_buf_line(out, "    const run *r = find_run(s, j, &i);");
  zp_buf_line(out, "    unit u = {%s};", zp_emit_unit_elements(e));
  zp_buf_line(out, "    u.%s = ring_at(c, s->%s_ring, s->%s_stride, j);", gather ? "w" : "g", gather ? "param" : "grad",
              gather ? "bucket" : "grad");
  zp_buf_line(out, "    zpr_overlapped(c, %s, j %% 2);", ring);
  zp_emit_dispatch(e, gather ? ZP_PASS_GATHER : ZP_PASS_SCATTER);
  zp_buf_line(out, "    zpr_overlapped_end(c, %s, j %% 2);", ring);
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

void zp_emit_overlapped(zp_emit *e) {
  if (!zp_emit_calls(e, ZP_CALL_SCATTER_OVERLAPPED)) return;
  zp_buf_line(&e->out, "static void *ring_at(zpr *c, int64_t ring, int64_t stride, int64_t j) {");
  zp_buf_line(&e->out, "  return zpr_at(c, ring + j %% 2 * stride);");
  zp_buf_line(&e->out, "}");
  zp_buf_puts(&e->out, "\n");
  if (zp_emit_calls(e, ZP_CALL_GATHER_OVERLAPPED)) emit_move(e, true);
  emit_move(e, false);
}

void zp_emit_before_walk(zp_emit *e, zp_pass pass, const char *first) {
  if (gathers(e, pass)) zp_buf_line(&e->out, "  gather_unit(c, s, %s, mb);", first);
}

void zp_emit_before_unit(zp_emit *e, zp_pass pass, const char *is_next, const char *next) {
  zp_buf *out = &e->out;
  if (gathers(e, pass)) {
    zp_buf_line(out, "    if (%s) gather_unit(c, s, %s, mb);", is_next, next);
    zp_buf_line(out, "    zpr_ring_wait(c, ZPR_PARAM_RING, j %% 2);");
    zp_buf_line(out, "    u.w = ring_at(c, s->param_ring, s->bucket_stride, j);");
  }
  if (scatters(e, pass)) {
    zp_buf_line(out, "    zpr_ring_wait(c, ZPR_GRAD_RING, j %% 2);");
    zp_buf_line(out, "    u.g = ring_at(c, s->grad_ring, s->grad_stride, j);");
  }
}

void zp_emit_after_unit(zp_emit *e, zp_pass pass) {
  zp_buf *out = &e->out;
  if (gathers(e, pass)) zp_buf_line(out, "    zpr_ring_done(c, ZPR_PARAM_RING, j %% 2);");
  if (!scatters(e, pass)) return;
  zp_buf_line(out, "    zpr_ring_done(c, ZPR_GRAD_RING, j %% 2);");
  zp_buf_line(out, "    scatter_unit(c, s, j, mb);");
}
