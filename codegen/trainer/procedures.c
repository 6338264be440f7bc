/* SPDX-License-Identifier: Apache-2.0 */
/* Prints procedures: one C function per segment and pass; its buffers and arguments by name, its steps by steps.c. */
#include "decode.h"
#include "procedure.h"

#include <assert.h>
#include <zplan/quote.h>

/* A name not taken by a buffer before it, nor by the function's own. */
static const char *unique_name(zp_frame *f, int b, const char *wanted) {
  static const char *const own[] = {"c", "s",  "t",  "w",  "g",     "we",    "ge",      "wf", "x",
                                    "y", "dx", "dy", "mb", "layer", "saved", "pending", "p"};
  const char *name = wanted;
  for (int suffix = 2;; suffix++) {
    bool taken = false;
    for (int i = 0; i < b && !taken; i++) taken = f->name[i] && strcmp(f->name[i], name) == 0;
    for (size_t i = 0; i < sizeof own / sizeof *own && !taken; i++) taken = strcmp(own[i], name) == 0;
    if (!taken) return name;
    name = zp_format(f->e->arena, "%s_%d", wanted, suffix);
  }
}

/* "h.{}.mlp.c_fc.weight" -> "mlp_c_fc_weight": the part after the iteration. */
static const char *param_identifier(const zp_frame *f, int use) {
  const char *name = zp_frame_param(f, use)->name, *hole = strstr(name, "{}.");
  return zp_emit_identifier(f->e->arena, hole ? hole + 3 : name);
}

/* What the unit calls what comes from the units around it or goes to them; NULL: another place. */
static const char *argument_name(zp_place place) {
  switch (place) {
  case ZP_AT_CARRY_IN: return "x";
  case ZP_AT_CARRY_OUT: return "y";
  case ZP_AT_GRAD_IN: return "dy";
  case ZP_AT_GRAD_OUT: return "dx";
  default: return NULL;
  }
}

static void name_buffers(zp_frame *f) {
  f->name = ZP_NEW_ARRAY(f->e->arena, const char *, f->p->buffers.len + 1);
  for (int b = 0; b < f->p->buffers.len; b++) {
    const zp_buffer *x = &f->p->buffers.data[b];
    const char *argument = x->base < 0 && x->index == 0 ? argument_name(x->place) : NULL;
    if (argument)
      f->name[b] = argument; /* the first carried tensor; others have their own names */
    else if (x->base < 0 && (x->place == ZP_AT_PARAM || x->place == ZP_AT_SHARED))
      f->name[b] = unique_name(f, b, param_identifier(f, x->index));
    else
      f->name[b] = unique_name(f, b, zp_emit_identifier(f->e->arena, x->name));
  }
}

/* Which buffers and arguments the steps really name. */
static void note_use(zp_frame *f, bool *used, int b) {
  used[b] = true;
  const zp_buffer *x = &f->p->buffers.data[b];
  if (x->base >= 0) note_use(f, used, x->base);
}

/* Steps of the loss name its logits at most. */
static bool note_decoded(zp_frame *f, bool *used, int s) {
  zp_decode_step kind = f->decode->step[s];
  const zp_step *step = &f->p->steps.data[s];
  if (kind == ZP_DECODE_LOGITS) note_use(f, used, step->in.data[0]);
  for (int i = 0; kind == ZP_DECODE_STRETCH && i < step->out.len; i++)
    if (f->decode->slots[step->out.data[i]] >= 0) note_use(f, used, f->decode->slots[step->out.data[i]]);
  return kind == ZP_DECODE_LOGITS || kind == ZP_DECODE_LEAVE;
}

static bool *find_used(zp_frame *f) {
  bool *used = ZP_NEW_ARRAY(f->e->arena, bool, f->p->buffers.len + 1);
  for (int s = f->first; s < f->last; s++) {
    const zp_step *step = &f->p->steps.data[s];
    if (f->decode && note_decoded(f, used, s)) continue;
    for (int i = 0; i < step->in.len; i++) note_use(f, used, step->in.data[i]);
    for (int i = 0; i < step->out.len; i++) note_use(f, used, step->out.data[i]);
    if (step->workspace >= 0) note_use(f, used, step->workspace);
    for (int i = 0; i < step->sums.len && !f->keeps_early && step->op != ZP_OP_LOAD_GRAD; i++)
      f->uses_grads[zp_frame_kind(f, step->sums.data[i].use)] = true;
  }
  for (int b = 0; b < f->p->buffers.len; b++) {
    const zp_buffer *x = &f->p->buffers.data[b];
    if (!used[b]) continue;
    f->uses_t |= x->place == ZP_AT_TRANSIENT;
    f->uses_saved |= x->place == ZP_AT_SAVED;
    f->uses_pending |= x->place == ZP_AT_PENDING;
    if (x->place == ZP_AT_PARAM) f->uses_params[x->kind] = true;
    if (x->place == ZP_AT_SHARED) f->uses_params[ZP_KIND_WHOLE] = true;
  }
  return used;
}

/* Address of a parameter declared outside repeats. */
static const char *shared_place(const zp_frame *f, int use) {
  if (f->gathers) return zp_frame_gathered(f, f->seg->graph->params.data[use].param, zp_frame_kind(f, use), "w");
  return zp_format(f->e->arena, "params(c) + s->%s", zp_frame_shared(f, use));
}

/* "[B*S, 3*d/2] = [1024, 192]" */
static const char *shape_text(const zp_frame *f, int b) {
  zp_shape matrix = zp_frame_matrix(f, b);
  return zp_emit_shape(f->e, &matrix);
}

static const char *param_shape(const zp_frame *f, int b) { return zp_emit_shape(f->e, &zp_frame_tensor(f, b)->shape); }

static void declare_buffer(zp_frame *f, int b) {
  zp_buf *out = &f->e->out;
  const zp_buffer *x = &f->p->buffers.data[b];
  const char *name = f->name[b];
  if (x->base >= 0) {
    const char *base = zp_frame_name(f, x->base);
    if (x->element == ZP_ELEM_I32 && x->offset == 0)
      zp_buf_line(out, "const int32_t *%s = %s;", name, base);
    else if (x->element == ZP_ELEM_I32)
      zp_buf_line(out, "const int32_t *%s = %s + %lld; /* %s */", name, base, ZP_LL(x->offset), shape_text(f, b));
    else if (zp_frame_tensor(f, b)->row_parts > 0 && x->offset > 0)
      zp_buf_line(out, "real *%s = %s + %lld; /* %s, from row %lld of %s */", name, base, ZP_LL(x->offset),
                  shape_text(f, b), ZP_LL(x->offset / x->ld), base);
    else if (x->offset == 0)
      zp_buf_line(out, "real *%s = %s;", name, base);
    else
      zp_buf_line(out, "real *%s = %s + %lld; /* %s, columns %lld..%lld of %s */", name, base, ZP_LL(x->offset),
                  shape_text(f, b), ZP_LL(x->offset), ZP_LL(x->offset + x->cols), base);
    return;
  }
  bool slots = x->element == ZP_ELEM_I32 && x->place != ZP_AT_INPUT; /* of tokens */
  if (slots || (x->element == ZP_ELEM_STAT && zp_emit_mixed(f->e))) {
    const char *type = slots ? "int32_t" : "float";
    const char *place = x->place == ZP_AT_SAVED ? "saved" : x->place == ZP_AT_PENDING ? "pending" : "t";
    zp_buf_line(out, "%s *%s = (%s *)(void *)(%s + %lld); /* %s */", type, name, type, place, ZP_LL(x->offset),
                shape_text(f, b));
    return;
  }
  if (x->operand) {
    zp_buf_line(out, "uint8_t *%s = (uint8_t *)saved + %lld; /* %s in 8 bits, kept for the gradient of a weight */",
                name, ZP_LL(x->offset), shape_text(f, b));
    return;
  }
  switch (x->place) {
  case ZP_AT_PARAM:
    zp_buf_line(out, "const real *%s = %s + %lld; /* %s%s */", name, zp_frame_kinds[x->kind].params, ZP_LL(x->offset),
                param_shape(f, b), zp_frame_kinds[x->kind].remark);
    break;
  case ZP_AT_SHARED:
    zp_buf_line(out, "const real *%s = %s; /* %s */", name, shared_place(f, x->index), param_shape(f, b));
    break;
  case ZP_AT_INPUT:
    if (x->element == ZP_ELEM_I32)
      zp_buf_line(out, "const int32_t *%s = zpr_input(c, %d, mb); /* %s */", name, x->index, param_shape(f, b));
    else
      zp_buf_line(out, "const real *%s = zpr_numbers(c, %d, mb); /* %s */", name, x->index, param_shape(f, b));
    break;
  case ZP_AT_SAVED:
    zp_buf_line(out, "real *%s = at(saved, %lld); /* %s, kept for backward */", name, ZP_LL(x->offset),
                shape_text(f, b));
    break;
  case ZP_AT_PENDING:
    zp_buf_line(out, "real *%s = at(pending, %lld); /* %s, waits for gradients of weights */", name, ZP_LL(x->offset),
                shape_text(f, b));
    break;
  case ZP_AT_TRANSIENT:
    if (x->tensor < 0)
      zp_buf_line(out, "real *%s = at(t, %lld); /* scratch, %lld bytes */", name, ZP_LL(x->offset), ZP_LL(x->bytes));
    else
      zp_buf_line(out, "real *%s = at(t, %lld); /* %s */", name, ZP_LL(x->offset), shape_text(f, b));
    break;
  case ZP_AT_CARRY_IN:
  case ZP_AT_CARRY_OUT:
  case ZP_AT_GRAD_IN:
  case ZP_AT_GRAD_OUT: break;
  }
}

static bool uses_params(const zp_frame *f) {
  bool any = false;
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) any |= f->uses_params[kind];
  return any;
}

/* Where those of the other kinds stand: after the first one's. */
static void declare_kinds(const zp_frame *f) {
  zp_buf *out = &f->e->out;
  for (zp_param_kind kind = ZP_KIND_WHOLE + 1; kind < ZP_KINDS; kind++)
    if (f->uses_params[kind])
      zp_buf_line(out, "const real *%s = %s;", zp_frame_kinds[kind].params,
                  f->gathers ? zp_frame_gathered(f, -1, kind, "w")
                             : zp_format(f->e->arena, "params(c) + u->%sbase", zp_kinds[kind].prefix));
  for (zp_param_kind kind = ZP_KIND_WHOLE + 1; kind < ZP_KINDS; kind++)
    if (f->uses_grads[kind])
      zp_buf_line(out, "grad *%s = %s;", zp_frame_kinds[kind].grads,
                  f->scatters ? zp_frame_gathered(f, -1, kind, "g")
                              : zp_format(f->e->arena, "grads(c) + u->%sbase", zp_kinds[kind].prefix));
}

/* Where the parameters and gradients of the unit stand. */
static void declare_parameters(const zp_frame *f) {
  zp_buf *out = &f->e->out;
  bool own = false; /* parameters of the segment itself; shared ones are found through the stage's table */
  for (int i = 0; i < f->seg->graph->params.len; i++) own |= f->seg->param_offset[i] >= 0;
  if (f->gathers && zp_emit_calls(f->e, ZP_CALL_FETCH_PARAMS))
    zp_buf_line(out, "real *w = u->w;");
  else if (f->gathers && zp_emit_calls(f->e, ZP_CALL_GATHER_OVERLAPPED) && uses_params(f))
    zp_buf_line(out, "const real *w = u->w;");
  else if (f->gathers && !zp_emit_calls(f->e, ZP_CALL_GATHER_OVERLAPPED))
    zp_buf_line(out, "real *w = at(c->arena, s->param_ring);");
  else if (!f->gathers && own && f->uses_params[ZP_KIND_WHOLE])
    zp_buf_line(out, "const real *w = params(c) + u->base;");
  if (f->scatters && zp_emit_calls(f->e, ZP_CALL_LAND_GRADS))
    zp_buf_line(out, "grad *g = zpr_grad_buffer(c, zpr_at(c, s->grad_ring));");
  else if (f->scatters)
    zp_buf_line(out, zp_emit_calls(f->e, ZP_CALL_SCATTER_OVERLAPPED) ? "grad *g = u->g;"
                                                                     : "grad *g = zpr_at(c, s->grad_ring);");
  else if (own && f->uses_grads[ZP_KIND_WHOLE])
    zp_buf_line(out, "grad *g = grads(c) + u->base;");
  if (own) declare_kinds(f);
}

/* What comes from the units around this one or goes to them. */
static void declare_carried(const zp_frame *f, const bool *used, zp_place place) {
  for (int b = 0; b < f->p->buffers.len; b++) {
    const zp_buffer *x = &f->p->buffers.data[b];
    if (x->base >= 0 || x->place != place || !used[b]) continue;
    bool forward = place == ZP_AT_CARRY_IN || place == ZP_AT_CARRY_OUT;
    if (forward && zp_emit_streams(f->e)) /* each on its own */
      zp_buf_line(&f->e->out, "real *%s = u->%s[%d]; /* %s */", f->name[b], place == ZP_AT_CARRY_IN ? "in" : "out",
                  x->index, shape_text(f, b));
    else if (x->offset == 0)
      zp_buf_line(&f->e->out, "real *%s = u->%s; /* %s */", f->name[b], argument_name(place), shape_text(f, b));
    else
      zp_buf_line(&f->e->out, "real *%s = u->%s + %lld; /* %s */", f->name[b], argument_name(place),
                  ZP_LL(x->offset / f->e->lowered->compute_bytes), shape_text(f, b));
  }
}

/* Pointers to the places that the steps name, before the buffers that are offsets from them. */
static void declare_arguments(const zp_frame *f, const bool *used) {
  zp_buf *out = &f->e->out;
  if (f->uses_t) zp_buf_line(out, "char *t = zpr_at(c, s->transient);");
  if (f->uses_saved) zp_buf_line(out, "char *saved = u->saved;");
  if (f->uses_pending) zp_buf_line(out, "char *pending = u->pending;");
  declare_parameters(f);
  declare_carried(f, used, ZP_AT_CARRY_IN);
  declare_carried(f, used, ZP_AT_CARRY_OUT);
  declare_carried(f, used, ZP_AT_GRAD_IN);
  declare_carried(f, used, ZP_AT_GRAD_OUT);
  if (f->uses_layer) zp_buf_line(out, "const int64_t layer = u->layer;");
}

/* The text of all steps; made first, because it finds out which arguments are used. */
static zp_buf print_steps(zp_frame *f) {
  zp_emit *e = f->e;
  zp_buf outer = e->out;
  e->out = zp_buf_new(e->arena);
  e->out.indent = outer.indent;
  zp_emit_gathers(f);
  zp_emit_zeroed_gradients(f);
  for (int s = f->first; s < f->last; s++) {
    if (s == f->p->n_recompute && f->p->n_recompute > 0)
      zp_buf_line(&e->out, "/* -- forward values are rebuilt; backward proper -- */");
    if (f->pass != ZP_PASS_LOSS) /* no part of a training step */
      zp_emit_profiled_step(e, &(zp_profiled_step){.segment = f->segment,
                                                   .index = s,
                                                   .mode = f->mode,
                                                   .forward = f->pass == ZP_PASS_FORWARD,
                                                   .procedure = f->title});
    zp_emit_step(f, &f->p->steps.data[s]);
  }
  if (f->first < f->last && f->pass != ZP_PASS_LOSS) zp_emit_profiled_end(e);
  zp_emit_scatters(f);
  zp_buf steps = e->out;
  e->out = outer;
  return steps;
}

/* The steps of a stretch; those of the text's beginning alone in blocks between them. */
static zp_buf print_decoded(zp_frame *f) {
  zp_emit *e = f->e;
  zp_buf outer = e->out;
  bool block = false, one = false;
  e->out = zp_buf_new(e->arena);
  e->out.indent = outer.indent;
  for (int s = f->first; s < f->last; s++) {
    zp_decode_step kind = f->decode->step[s];
    if (kind == ZP_DECODE_LEAVE) continue;
    if (block != (kind == ZP_DECODE_ONCE)) {
      if (!block) zp_buf_line(&e->out, "if (p.first == 0) {");
      e->out.indent += block ? -1 : 1;
      if (block) zp_buf_line(&e->out, "}");
      block = !block;
    }
    if (s >= f->decode->last_row_from && !one && !block) {
      zp_buf_line(&e->out, "p = (zpr_positions){p.first + p.n - 1, 1}; /* the others' logits are not asked for */");
      one = true;
    }
    f->stretch = kind != ZP_DECODE_ONCE;
    zp_emit_step(f, &f->p->steps.data[s]);
  }
  if (block) e->out.indent--;
  if (block) zp_buf_line(&e->out, "}");
  zp_buf steps = e->out;
  e->out = outer;
  return steps;
}

static void emit_function(zp_emit *e, int segment, zp_stage_mode mode, zp_pass pass, const zp_procedure *p) {
  static const char *const what[] = {"forward: x -> y",
                                     "the loss alone",
                                     "backward: dy -> dx, gradients of its parameters",
                                     "backward for inputs: dy -> dx",
                                     "backward for weights: gradients of its parameters",
                                     "",
                                     "",
                                     "forward for some positions: x -> y"};
  static const char *const passes[] = {"forward", "loss", "backward", "backward for inputs", "backward for weights",
                                       "",        "",     "decode"};
  const zp_segment_program *seg = zp_emit_variant(e, segment, mode);
  bool tells = zp_choice_has_modes(&e->program->choice) && seg->segment->is_repeat;
  zp_frame f = {.e = e, .seg = seg, .p = p, .model = e->model, .last = p->steps.len, .pass = pass};
  f.segment = segment;
  f.mode = mode;
  f.title = zp_format(e->arena, "%s %s%s%s", seg->segment->name, passes[pass], tells ? " " : "",
                      tells ? zp_stage_mode_name(mode) : "");
  if (pass == ZP_PASS_DECODE) f.decode = &e->decoding->of[segment];
  zp_emit_find_buckets(&f, segment);
  if (pass == ZP_PASS_INPUTS) f.last = p->n_inputs;
  if (pass == ZP_PASS_WEIGHTS) f.first = p->n_inputs;
  double seconds = 0;
  for (int s = f.first; s < f.last; s++) seconds += p->steps.data[s].cost_s;
  name_buffers(&f);
  bool *used = find_used(&f);
  zp_buf_line(&e->out, "/* Segment `%s`%s%s, %s; %s.%s */", zp_quote_c_comment(e->arena, seg->segment->name),
              tells ? ", recompute " : "", tells ? zp_stage_mode_name(mode) : "", what[pass],
              zp_quote_c_comment(e->arena, zp_emit_place(e, seg->segment->span)),
              f.decode ? "" : zp_format(e->arena, " Predicted %.0f ns a call.", seconds * 1e9));
  zp_buf_line(&e->out, "static void %s(zpr *c, const layout *s, const unit *u, int64_t mb%s) {",
              zp_emit_function_name(e, segment, mode, pass), f.decode ? ", zpr_positions p" : "");
  e->out.indent++;
  zp_buf steps = f.decode ? print_decoded(&f) : print_steps(&f);
  declare_arguments(&f, used);
  for (int b = 0; b < f.p->buffers.len; b++)
    if (used[b]) declare_buffer(&f, b);
  zp_buf_line(&e->out, f.first == f.last ? "(void)c, (void)s, (void)u, (void)mb;" : "(void)s, (void)u, (void)mb;");
  if (f.decode && f.first == f.last) zp_buf_line(&e->out, "(void)p;");
  zp_buf_put(&e->out, steps.data, steps.len);
  e->out.indent--;
  zp_buf_line(&e->out, "}");
  zp_buf_puts(&e->out, "\n");
}

void zp_emit_procedures(zp_emit *e, int segment, zp_stage_mode mode) {
  const zp_segment_program *seg = zp_emit_variant(e, segment, mode);
  zp_emit_move_functions(e, segment, mode);
  emit_function(e, segment, mode, ZP_PASS_FORWARD, &seg->forward);
  if (seg->loss.steps.len > 0) emit_function(e, segment, mode, ZP_PASS_LOSS, &seg->loss);
  if (e->decoding) emit_function(e, segment, mode, ZP_PASS_DECODE, &seg->forward);
  if (zp_schedule_splits(e->program->choice.schedule)) {
    emit_function(e, segment, mode, ZP_PASS_INPUTS, &seg->split);
    emit_function(e, segment, mode, ZP_PASS_WEIGHTS, &seg->split);
  } else {
    emit_function(e, segment, mode, ZP_PASS_BACKWARD, &seg->backward);
  }
}
