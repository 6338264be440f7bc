/* SPDX-License-Identifier: Apache-2.0 */
/* Prints how units work when what they keep for backward leaves the device, whole or in part: in a ring of buffers,
 * from which one part goes to the unit's slot and the other one to the host or to a disk. While a unit works, what the
 * one before it has made goes out, or what the next one needs comes in; nothing is on its way between actions. */
#include "emit.h"

void zp_emit_saved_places(zp_emit *e) {
  static const char *const ring =
      "enum { SAVED_BUFFERS = %d };\n"
      "static char *ring_of(zpr *c, const layout *s, int64_t j) {\n"
      "  return (char *)zpr_at(c, s->saved_ring) + j %% SAVED_BUFFERS * s->ring_stride;\n"
      "}\n"
      "\n"
      "/* Where unit j reads its input: kept whole at the start of its saved values, or in a carry buffer. */\n"
      "static real *input_of(zpr *c, const layout *s, int64_t j) {\n"
      "  int64_t i;\n"
      "  return find_run(s, j, &i)->keeps_input ? at(ring_of(c, s, j), 0) : at(c->arena, s->carry[j %% 2]);\n"
      "}\n"
      "\n";
  static const char *const saved =
      "  int64_t i;\n"
      "  const run *r = find_run(s, j, &i);\n"
      "  return (zpr_saved){.at = ring_of(c, s, j),\n"
      "                     .here = s->slots < 0 ? NULL : at(c->arena, s->slots + slot * s->slot_stride + r->saved + i "
      "* r->saved_stride),\n"
      "                     .here_bytes = r->saved_stride,\n"
      "                     .offloaded = s->offloaded + slot * s->offloaded_stride + r->offloaded + i * "
      "r->offloaded_stride,\n"
      "                     .offloaded_bytes = r->offloaded_bytes};\n"
      "}\n"
      "\n";
  zp_buf *out = &e->out;
  bool pools = zp_emit_pools(e);
  zp_buf_printf(out, ring, ZP_SAVED_BUFFERS);
  zp_buf_line(out, "/* What unit j keeps for micro-batch mb: where it works, and its slot here and off the device. */");
  zp_buf_line(out, "static zpr_saved saved_of(zpr *c, const layout *s, %sint64_t mb, int64_t j) {",
              pools ? "int chunk, " : "");
  zp_buf_line(out, pools
                       ? "  int64_t slot = s->pooled ? find_owned(1 + chunk * MICROBATCHES + mb) : mb %% s->slot_count;"
                       : "  int64_t slot = mb %% s->slot_count;");
  zp_buf_puts(out, saved);
}

/* "saved_of(c, s, mb, j)". */
static const char *saved_of(const zp_emit *e, const char *j) {
  return zp_format(e->arena, "saved_of(c, s, %smb, %s)", zp_emit_pools(e) ? "chunk, " : "", j);
}

void zp_emit_saved_make_room(zp_emit *e) {
  if (zp_emit_calls(e, ZP_CALL_SAVED_PUT))
    zp_buf_line(&e->out, "    if (c->training) zpr_saved_wait(c, 1); /* the unit writes to the next buffer, too */");
}

void zp_emit_saved_put(zp_emit *e) {
  if (zp_emit_calls(e, ZP_CALL_SAVED_PUT))
    zp_buf_line(&e->out, "    if (c->training) zpr_saved_put(c, %s);", saved_of(e, "j"));
}

void zp_emit_saved_end(zp_emit *e) {
  if (zp_emit_calls(e, ZP_CALL_SAVED_PUT)) zp_buf_line(&e->out, "  if (c->training) zpr_saved_wait(c, 0);");
}

void zp_emit_saved_put_again(zp_emit *e) {
  if (zp_emit_calls(e, ZP_CALL_SAVED_PUT))
    zp_buf_line(&e->out, "    if (r->changes_saved) zpr_saved_put(c, %s);", saved_of(e, "j"));
}

void zp_emit_saved_put_again_end(zp_emit *e) {
  if (zp_emit_calls(e, ZP_CALL_SAVED_PUT)) zp_buf_line(&e->out, "  zpr_saved_wait(c, 0);");
}

/* What comes from a disk is read two units ahead. */
void zp_emit_saved_begin(zp_emit *e) {
  if (!zp_emit_calls(e, ZP_CALL_SAVED_GET)) return;
  if (zp_emit_calls(e, ZP_CALL_SAVED_READ)) {
    zp_buf_line(&e->out, "  zpr_saved_read(c, %s);", saved_of(e, "s->n_units - 1"));
    zp_buf_line(&e->out, "  if (s->n_units > 1) zpr_saved_read(c, %s);", saved_of(e, "s->n_units - 2"));
  }
  zp_buf_line(&e->out, "  zpr_saved_get(c, %s);", saved_of(e, "s->n_units - 1"));
}

void zp_emit_saved_get(zp_emit *e) {
  if (!zp_emit_calls(e, ZP_CALL_SAVED_GET)) return;
  zp_buf_line(&e->out, "    zpr_saved_wait(c, 0);");
  zp_buf_line(&e->out, "    if (j > 0) zpr_saved_get(c, %s);", saved_of(e, "j - 1"));
  if (zp_emit_calls(e, ZP_CALL_SAVED_READ))
    zp_buf_line(&e->out, "    if (j > 1) zpr_saved_read(c, %s);", saved_of(e, "j - 2"));
}
