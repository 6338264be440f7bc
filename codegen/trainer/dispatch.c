/* SPDX-License-Identifier: Apache-2.0 */
/* What every walk over units does with one: the unit itself, and the call of its segment's function. */
#include "emit.h"

const char *zp_emit_unit_elements(const zp_emit *e) {
  zp_buf text = zp_buf_new(e->arena);
  zp_buf_puts(&text, ".base = r->base + i * r->stride");
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) {
    const char *prefix = zp_kinds[kind].prefix;
    if (zp_emit_has(e, kind)) zp_buf_printf(&text, ", .%sbase = r->%sbase + i * r->%sstride", prefix, prefix, prefix);
  }
  return text.data;
}

void zp_emit_unit(zp_emit *e, bool pending) {
  zp_buf_line(&e->out, "    unit u = {.layer = r->first + i, %s, .saved = %s};", zp_emit_unit_elements(e),
              zp_emit_calls(e, ZP_CALL_SAVED_PUT) ? "ring_of(c, s, j)" : "slot + r->saved + i * r->saved_stride");
  if (zp_emit_calls(e, ZP_CALL_FETCH_PARAMS)) zp_buf_line(&e->out, "    u.w = params_of(c, s, j);");
  if (pending) zp_buf_line(&e->out, "    u.pending = pending + r->pending + i * r->pending_stride;");
}

/* Without training the loss follows forward where backward would make it. */
static void emit_case(zp_emit *e, int segment, zp_stage_mode mode, zp_pass pass) {
  const char *call = zp_format(e->arena, "%s(c, s, &u, mb%s);", zp_emit_function_name(e, segment, mode, pass),
                               pass == ZP_PASS_DECODE ? ", p" : "");
  if (pass == ZP_PASS_FORWARD && zp_emit_variant(e, segment, mode)->loss.steps.len > 0)
    call = zp_format(e->arena, "%s if (!c->training) %s(c, s, &u, mb);", call,
                     zp_emit_function_name(e, segment, mode, ZP_PASS_LOSS));
  zp_buf_line(&e->out, "    case %s: %s break;", zp_emit_segment(e, segment, mode), call);
}

void zp_emit_dispatch(zp_emit *e, zp_pass pass) {
  zp_buf *out = &e->out;
  zp_buf_line(out, "    switch (r->segment) {");
  for (int s = 0; s < e->lowered->n_segments; s++)
    for (int mode = 0; mode < ZP_STAGE_MODES; mode++)
      if (zp_emit_variant(e, s, mode)) emit_case(e, s, mode, pass);
  zp_buf_line(out, "    }");
}
