/* SPDX-License-Identifier: Apache-2.0 */
/* Prints how a stage, or a chunk of one, walks its units: forward, backward, or backward in two parts. */
#include "decode.h"

static bool splits(const zp_emit *e) { return zp_schedule_splits(e->program->choice.schedule); }

/* "int64_t mb", with several chunks "int chunk, int64_t mb". */
static const char *parameters(const zp_emit *e) {
  return zp_chunks(&e->program->choice) > 1 ? "int chunk, int64_t mb" : "int64_t mb";
}

static const char *chunk_of(const zp_emit *e) { return zp_chunks(&e->program->choice) > 1 ? "chunk" : "0"; }

static const char *layout_of(const zp_emit *e) {
  return zp_chunks(&e->program->choice) > 1 ? "&layouts[c->p][chunk]" : "&layouts[c->p]";
}

/* Where unit j reads its input, as C text. */
static const char *input_at(const zp_emit *e, const char *j) {
  return zp_format(e->arena, "input_of(c, s, %s%s)", zp_emit_calls(e, ZP_CALL_SAVED_PUT) ? "" : "slot, ", j);
}

/* Sets where unit j reads what comes in: `to` is "in" or "out" of unit u. */
static void emit_inputs(zp_emit *e, const char *to, const char *j) {
  if (zp_emit_streams(e))
    zp_buf_line(&e->out, "inputs_of(c, s, slot, %s, u.%s);", j, to);
  else
    zp_buf_line(&e->out, "u.%s = %s;", strcmp(to, "in") == 0 ? "x" : "y", input_at(e, j));
}

/* ---- where things are ---- */

static const char *const pool =
    "/* The chunks of a stage take slots from one pool: whose slot it is, 1 + chunk * MICROBATCHES + mb; 0: "
    "nobody's. */\n"
    "static int64_t owner[MOST_SLOTS];\n"
    "\n"
    "static int64_t find_owned(int64_t who) {\n"
    "  int64_t i = 0;\n"
    "  while (owner[i] != who) i++;\n"
    "  return i;\n"
    "}\n"
    "\n"
    "static void take_slot(int chunk, int64_t mb) { owner[find_owned(0)] = 1 + chunk * MICROBATCHES + mb; }\n"
    "static void leave_slot(int chunk, int64_t mb) { owner[find_owned(1 + chunk * MICROBATCHES + mb)] = 0; }\n"
    "\n";

static const char *const pooled_slot =
    "static char *slot_of(zpr *c, const layout *s, int chunk, int64_t mb) {\n"
    "  if (s->slots < 0) return NULL;\n"
    "  int64_t i = s->pooled ? find_owned(1 + chunk * MICROBATCHES + mb) : mb % s->slot_count;\n"
    "  return (char *)zpr_at(c, s->slots) + i * s->slot_stride;\n"
    "}\n"
    "\n";

static void emit_walk(zp_emit *e) {
  static const char *const find = "static const run *find_run(const layout *s, int64_t j, int64_t *i) {\n"
                                  "  const run *r = s->runs;\n"
                                  "  for (*i = j; *i >= r->count; r++) *i -= r->count;\n"
                                  "  return r;\n"
                                  "}\n"
                                  "\n";
  static const char *const slot =
      "static char *slot_of(zpr *c, const layout *s, int64_t mb) {\n"
      "  return s->slots < 0 ? NULL : (char *)zpr_at(c, s->slots) + mb % s->slot_count * s->slot_stride;\n"
      "}\n"
      "\n";
  static const char *const input =
      "/* Where unit j reads its input: kept whole at the start of its slot area, or in a carry buffer. */\n"
      "static real *input_of(zpr *c, const layout *s, char *slot, int64_t j) {\n"
      "  int64_t i;\n"
      "  const run *r = find_run(s, j, &i);\n"
      "  return r->keeps_input ? at(slot, r->saved + i * r->saved_stride) : at(c->arena, s->carry[j % 2]);\n"
      "}\n"
      "\n";
  bool leave = zp_emit_calls(e, ZP_CALL_SAVED_PUT);
  zp_buf_line(&e->out, "/* The run that unit j of the %s belongs to; *i: its place inside. */",
              zp_chunks(&e->program->choice) > 1 ? "chunk" : "stage");
  zp_buf_puts(&e->out, find);
  if (zp_emit_pools(e)) zp_buf_puts(&e->out, pool);
  if (leave) zp_emit_saved_places(e);
  if (!leave || zp_emit_streams(e)) zp_buf_puts(&e->out, zp_emit_pools(e) ? pooled_slot : slot);
  if (!leave) zp_buf_puts(&e->out, input);
  if (!zp_emit_streams(e)) return;
  zp_buf_line(&e->out, "/* Where unit j reads what comes in: streams stand once in the slot, the rest is its own. */");
  zp_buf_line(&e->out, "static void inputs_of(zpr *c, const layout *s, char *slot, int64_t j, real **to) {");
  zp_buf_line(&e->out, "  int64_t i;");
  zp_buf_line(&e->out, "  const run *r = find_run(s, j, &i);");
  zp_buf_line(&e->out, "  real *own = %s;", input_at(e, "j"));
  zp_buf_line(&e->out, "  for (int k = 0; k < r->carried; k++)");
  zp_buf_line(&e->out, "    to[k] = r->stream[k] >= 0 ? at(slot, r->stream[k]) : own + r->own[k];");
  zp_buf_puts(&e->out, "}\n\n");
}

static void emit_pending(zp_emit *e) {
  static const char *const text =
      "/* What waits for the gradients of weights. */\n"
      "static char *pending_of(zpr *c, const layout *s, int64_t mb) {\n"
      "  return s->pending < 0 ? NULL : (char *)zpr_at(c, s->pending) + mb % s->pending_count * s->pending_stride;\n"
      "}\n"
      "\n"
      "/* Where unit j reads the gradient of its output: kept for the gradients of weights, or in one of two buffers "
      "that\n"
      " * neighbouring units use in turn. */\n"
      "static real *gradient_of(zpr *c, const layout *s, char *pending, int64_t j) {\n"
      "  int64_t i, turn = (s->n_units - 1 - j) % 2;\n"
      "  const run *r = find_run(s, j, &i);\n"
      "  if (r->keeps_gradient) return at(pending, r->pending + i * r->pending_stride);\n"
      "  return s->grad[turn] < 0 ? NULL : at(c->arena, s->grad[turn]);\n"
      "}\n"
      "\n";
  zp_buf_puts(&e->out, text);
}

static void emit_slot(zp_emit *e) {
  zp_buf_line(&e->out, "  const layout *s = %s;", layout_of(e));
  if (!zp_emit_calls(e, ZP_CALL_SAVED_PUT) || zp_emit_streams(e))
    zp_buf_line(&e->out, "  char *slot = slot_of(c, s, %smb);", zp_emit_pools(e) ? "chunk, " : "");
}

/* The address of the message buffer that the chunk's next message has, as C text. */
static const char *message_at(const zp_emit *e, const char *field) {
  bool several = e->program->stages[0].messages > 1;
  return zp_format(e->arena, "at(c->arena, s->%s%s)", field, several ? " + mb % MESSAGES * s->message_stride" : "");
}

/* The last unit of a walk writes where the message to the neighbour is sent from. */
static void emit_send_place(zp_emit *e, bool up) {
  zp_buf *out = &e->out;
  zp_buf_line(out, "    else if (s->%s_elements > 0) {", up ? "out" : "in");
  zp_buf_line(out, "      zpr_send_wait(c, %s, %s, mb); /* the message before it may still be in the buffer */",
              chunk_of(e), up ? "true" : "false");
  if (up && zp_emit_streams(e)) {
    zp_buf_line(out, "      real *message = %s;", message_at(e, "send_up"));
    zp_buf_line(out, "      for (int k = 0; k < s->carried_out; k++) u.out[k] = message + s->out_at[k];");
  } else {
    zp_buf_line(out, "      u.%s = %s;", up ? "y" : "dx", message_at(e, up ? "send_up" : "send_down"));
  }
  zp_buf_line(out, "    }");
}

static void emit_send(zp_emit *e, bool up) {
  const char *elements = up ? "s->out_elements" : "s->in_elements";
  zp_buf_line(&e->out, "  if (%s > 0) zpr_send(c, %s, %s, %s, %s, mb);", elements, chunk_of(e), up ? "true" : "false",
              message_at(e, up ? "send_up" : "send_down"), elements);
}

/* A message that has streams lands in a buffer of gradients, which backward alone uses, and is taken apart. */
static void emit_receive(zp_emit *e) {
  zp_buf *out = &e->out;
  const char *chunk = chunk_of(e), *other = "";
  if (zp_emit_streams(e)) {
    zp_buf_line(out, "  if (s->lands) {");
    zp_buf_line(out, "    real *message = at(c->arena, s->grad[0]), *to[CARRIED];");
    zp_buf_line(out, "    zpr_recv(c, %s, true, message, s->in_elements, mb);", chunk);
    zp_buf_line(out, "    inputs_of(c, s, slot, 0, to);");
    zp_buf_line(out, "    for (int k = 0; k < s->carried_in; k++)");
    zp_buf_line(out, "      zpr_copy(c, to[k], message + s->in_at[k], (s->in_at[k + 1] - s->in_at[k]) * "
                     "(int64_t)sizeof(real));");
    zp_buf_line(out, "  }");
    other = "!s->lands && ";
  }
  zp_buf_line(out, "  if (%ss->in_elements > 0) zpr_recv(c, %s, true, %s, s->in_elements, mb);", other, chunk,
              input_at(e, "0"));
}

/* ---- the walks ---- */

/* Unit j of a walk from the first one to the last. */
static void emit_units(zp_emit *e) {
  zp_buf *out = &e->out;
  zp_buf_line(out, "  for (int64_t j = 0; j < s->n_units; j++) {");
  zp_buf_line(out, "    int64_t i;");
  zp_buf_line(out, "    const run *r = find_run(s, j, &i);");
  zp_emit_unit(e, false);
  zp_buf_puts(out, "    ");
  emit_inputs(e, "in", "j");
  zp_buf_puts(out, "    if (j + 1 < s->n_units) ");
  emit_inputs(e, "out", "j + 1");
}

static void emit_forward(zp_emit *e) {
  zp_buf *out = &e->out;
  bool pipe = e->program->choice.pipeline > 1;
  zp_buf_line(out, "/* All units of this %s forward for micro-batch mb. */",
              zp_chunks(&e->program->choice) > 1 ? "chunk" : "stage");
  zp_buf_line(out, "static void forward(zpr *c, %s) {", parameters(e));
  zp_emit_profiled_action(e, 'F');
  if (zp_emit_pools(e)) zp_buf_line(out, "  take_slot(chunk, mb);");
  emit_slot(e);
  if (pipe) emit_receive(e);
  zp_emit_params_begin(e, "0", "1");
  zp_emit_before_walk(e, ZP_PASS_FORWARD, "0");
  emit_units(e);
  if (pipe) emit_send_place(e, true);
  zp_emit_saved_make_room(e);
  zp_emit_params_next(e, (zp_unit_ahead){"j + 1", "j + 1 < s->n_units"},
                      (zp_unit_ahead){"j + 2", "j + 2 < s->n_units"});
  zp_emit_before_unit(e, ZP_PASS_FORWARD, "j + 1 < s->n_units", "j + 1");
  zp_emit_dispatch(e, ZP_PASS_FORWARD);
  zp_emit_after_unit(e, ZP_PASS_FORWARD);
  zp_emit_saved_put(e);
  zp_buf_line(out, "  }");
  if (pipe) emit_send(e, true);
  zp_emit_saved_end(e);
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

static void emit_backward(zp_emit *e) {
  zp_buf *out = &e->out;
  bool pipe = e->program->choice.pipeline > 1, split = splits(e);
  zp_pass pass = split ? ZP_PASS_INPUTS : ZP_PASS_BACKWARD;
  const char *chunk = chunk_of(e);
  zp_buf_line(out, "/* All units of this %s backward for micro-batch mb, last unit first%s.",
              zp_chunks(&e->program->choice) > 1 ? "chunk" : "stage",
              split ? ": the gradients of inputs, and what else is not for weights alone" : "");
  zp_buf_line(out, " * Gradients of neighbouring units pass through two buffers in turn. */");
  zp_buf_line(out, "static void backward%s(zpr *c, %s) {", split ? "_inputs" : "", parameters(e));
  zp_emit_profiled_action(e, split ? 'I' : 'B');
  emit_slot(e);
  if (split) zp_buf_line(out, "  char *pending = pending_of(c, s, mb);");
  if (pipe)
    zp_buf_line(out, "  if (s->out_elements > 0) zpr_recv(c, %s, false, %s, s->out_elements, mb);", chunk,
                split ? "gradient_of(c, s, pending, s->n_units - 1)" : "at(c->arena, s->grad[0])");
  zp_emit_saved_begin(e);
  zp_emit_params_begin(e, "s->n_units - 1", "s->n_units - 2");
  zp_emit_before_walk(e, pass, "s->n_units - 1");
  zp_buf_line(out, "  for (int64_t j = s->n_units - 1; j >= 0; j--) {");
  zp_buf_line(out, split ? "    int64_t i;" : "    int64_t i, turn = (s->n_units - 1 - j) %% 2;");
  zp_buf_line(out, "    const run *r = find_run(s, j, &i);");
  zp_emit_unit(e, split);
  zp_buf_puts(out, "    ");
  emit_inputs(e, "in", "j");
  if (split) {
    zp_buf_line(out, "    u.dy = gradient_of(c, s, pending, j);");
    zp_buf_line(out, "    if (j > 0) u.dx = gradient_of(c, s, pending, j - 1);");
  } else {
    zp_buf_line(out, "    if (s->grad[turn] >= 0) u.dy = at(c->arena, s->grad[turn]);");
    zp_buf_line(out, "    if (j > 0) u.dx = at(c->arena, s->grad[1 - turn]);");
  }
  if (pipe) emit_send_place(e, false);
  zp_emit_saved_get(e);
  zp_emit_params_next(e, (zp_unit_ahead){"j - 1", "j > 0"}, (zp_unit_ahead){"j - 2", "j > 1"});
  zp_emit_before_unit(e, pass, "j > 0", "j - 1");
  zp_emit_dispatch(e, pass);
  zp_emit_after_unit(e, pass);
  zp_emit_reduce_unit(e, pass);
  if (split) zp_emit_saved_put_again(e);
  zp_buf_line(out, "  }");
  if (split) zp_emit_saved_put_again_end(e);
  if (zp_emit_pools(e) && !split) zp_buf_line(out, "  leave_slot(chunk, mb);");
  if (pipe) emit_send(e, false);
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

static void emit_weights(zp_emit *e) {
  zp_buf *out = &e->out;
  zp_buf_line(out, "/* The rest of backward: gradients of weights, from the slot and from what waits. */");
  zp_buf_line(out, "static void backward_weights(zpr *c, %s) {", parameters(e));
  zp_emit_profiled_action(e, 'W');
  emit_slot(e);
  zp_buf_line(out, "  char *pending = pending_of(c, s, mb);");
  zp_emit_saved_begin(e);
  zp_buf_line(out, "  for (int64_t j = s->n_units - 1; j >= 0; j--) {");
  zp_buf_line(out, "    int64_t i;");
  zp_buf_line(out, "    const run *r = find_run(s, j, &i);");
  zp_emit_unit(e, true);
  zp_buf_puts(out, "    ");
  emit_inputs(e, "in", "j");
  zp_buf_line(out, "    u.dy = gradient_of(c, s, pending, j);");
  zp_emit_saved_get(e);
  zp_emit_before_unit(e, ZP_PASS_WEIGHTS, NULL, NULL);
  zp_emit_dispatch(e, ZP_PASS_WEIGHTS);
  zp_emit_after_unit(e, ZP_PASS_WEIGHTS);
  zp_emit_reduce_unit(e, ZP_PASS_WEIGHTS);
  zp_buf_line(out, "  }");
  if (zp_emit_pools(e)) zp_buf_line(out, "  leave_slot(chunk, mb);");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

static void emit_decode(zp_emit *e) {
  zp_buf *out = &e->out;
  zp_buf_line(out, "/* All units forward for these positions of the sample. */");
  zp_buf_line(out, "static void decode(zpr *c, zpr_positions p) {");
  zp_buf_line(out, "  const int64_t mb = 0;");
  emit_slot(e);
  emit_units(e);
  zp_emit_dispatch(e, ZP_PASS_DECODE);
  zp_buf_line(out, "  }");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

void zp_emit_walks(zp_emit *e) {
  emit_walk(e);
  zp_emit_fetch(e);
  if (splits(e)) emit_pending(e);
  zp_emit_overlapped(e);
  zp_emit_reduce(e);
  emit_forward(e);
  emit_backward(e);
  if (splits(e)) emit_weights(e);
  if (e->decoding) emit_decode(e);
}
