/* Prints how a stage walks its units, in which order it takes micro-batches, and the program table. */
#include "emit.h"

#include <assert.h>

#define LL(x) ((long long)(x))

static void emit_dispatch(zp_emit *e, bool backward) {
  zp_buf *out = &e->out;
  zp_buf_line(out, "    switch (r->segment) {");
  for (int s = 0; s < e->lowered->n_segments; s++)
    for (zp_stage_mode mode = 0; mode < ZP_STAGE_MODES; mode++)
      if (zp_emit_variant(e, s, mode))
        zp_buf_line(out, "    case %s: %s(c, s, &u, mb); break;", zp_emit_segment(e, s, mode),
                    zp_emit_function_name(e, s, mode, backward));
  zp_buf_line(out, "    }");
}

static void emit_walk(zp_emit *e) {
  static const char *const text =
      "/* The run that unit j of the stage belongs to; *i: its place inside. */\n"
      "static const run *find_run(const layout *s, int64_t j, int64_t *i) {\n"
      "  const run *r = s->runs;\n"
      "  for (*i = j; *i >= r->count; r++) *i -= r->count;\n"
      "  return r;\n"
      "}\n"
      "\n"
      "static char *slot_of(zpr *c, const layout *s, int64_t mb) {\n"
      "  return s->slots < 0 ? NULL : (char *)zpr_at(c, s->slots) + mb % s->slot_count * s->slot_stride;\n"
      "}\n"
      "\n"
      "/* Where unit j reads its input: kept whole at the start of its slot area, or in a carry buffer. */\n"
      "static real *input_of(zpr *c, const layout *s, char *slot, int64_t j) {\n"
      "  int64_t i;\n"
      "  const run *r = find_run(s, j, &i);\n"
      "  return r->keeps_input ? at(slot, r->saved + i * r->saved_stride) : at(c->arena, s->carry[j % 2]);\n"
      "}\n"
      "\n";
  zp_buf_puts(&e->out, text);
}

static void emit_unit(zp_emit *e) {
  bool spread = zp_expert_ranks(&e->program->choice) > 1;
  zp_buf_line(&e->out,
              "    unit u = {.layer = r->first + i, .base = r->base + i * r->stride,%s .saved = slot + r->saved + i "
              "* r->saved_stride};",
              spread ? " .spread_base = r->spread_base + i * r->spread_stride," : "");
}

static void emit_forward(zp_emit *e) {
  zp_buf *out = &e->out;
  bool pipe = e->program->choice.pipeline > 1;
  zp_buf_line(out, "/* All units of this stage forward for micro-batch mb. */");
  zp_buf_line(out, "static void forward(zpr *c, int64_t mb) {");
  zp_buf_line(out, "  const layout *s = &layouts[c->p];");
  zp_buf_line(out, "  char *slot = slot_of(c, s, mb);");
  if (pipe)
    zp_buf_line(out, "  if (s->in_elements > 0) zpr_recv(c, true, input_of(c, s, slot, 0), s->in_elements, mb);");
  zp_buf_line(out, "  for (int64_t j = 0; j < s->n_units; j++) {");
  zp_buf_line(out, "    int64_t i;");
  zp_buf_line(out, "    const run *r = find_run(s, j, &i);");
  emit_unit(e);
  zp_buf_line(out, "    u.x = input_of(c, s, slot, j);");
  zp_buf_line(out, "    if (j + 1 < s->n_units) u.y = input_of(c, s, slot, j + 1);");
  if (pipe) {
    zp_buf_line(out, "    else if (s->out_elements > 0) {");
    zp_buf_line(out,
                "      zpr_send_wait(c, true); /* the message of the micro-batch before is still in the buffer */");
    zp_buf_line(out, "      u.y = at(c->arena, s->send_up);");
    zp_buf_line(out, "    }");
  }
  emit_dispatch(e, false);
  zp_buf_line(out, "  }");
  if (pipe)
    zp_buf_line(out, "  if (s->out_elements > 0) zpr_send(c, true, at(c->arena, s->send_up), s->out_elements, mb);");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

static void emit_backward(zp_emit *e) {
  zp_buf *out = &e->out;
  bool pipe = e->program->choice.pipeline > 1;
  zp_buf_line(out, "/* All units of this stage backward for micro-batch mb, last unit first. Gradients of neighbouring "
                   "units pass through");
  zp_buf_line(out, " * two buffers in turn. */");
  zp_buf_line(out, "static void backward(zpr *c, int64_t mb) {");
  zp_buf_line(out, "  const layout *s = &layouts[c->p];");
  zp_buf_line(out, "  char *slot = slot_of(c, s, mb);");
  if (pipe)
    zp_buf_line(out, "  if (s->out_elements > 0) zpr_recv(c, false, at(c->arena, s->grad[0]), s->out_elements, mb);");
  zp_buf_line(out, "  for (int64_t j = s->n_units - 1; j >= 0; j--) {");
  zp_buf_line(out, "    int64_t i, turn = (s->n_units - 1 - j) %% 2;");
  zp_buf_line(out, "    const run *r = find_run(s, j, &i);");
  emit_unit(e);
  zp_buf_line(out, "    u.x = input_of(c, s, slot, j);");
  zp_buf_line(out, "    if (s->grad[turn] >= 0) u.dy = at(c->arena, s->grad[turn]);");
  zp_buf_line(out, "    if (j > 0) u.dx = at(c->arena, s->grad[1 - turn]);");
  if (pipe) {
    zp_buf_line(out, "    else if (s->in_elements > 0) {");
    zp_buf_line(out, "      zpr_send_wait(c, false);");
    zp_buf_line(out, "      u.dx = at(c->arena, s->send_down);");
    zp_buf_line(out, "    }");
  }
  emit_dispatch(e, true);
  zp_buf_line(out, "  }");
  if (pipe)
    zp_buf_line(out, "  if (s->in_elements > 0) zpr_send(c, false, at(c->arena, s->send_down), s->in_elements, mb);");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

static void emit_order(zp_emit *e) {
  zp_buf *out = &e->out;
  assert(e->program->choice.schedule == ZP_SCHEDULE_1F1B);
  zp_buf_line(out, "/* One step: the micro-batches of this replica in 1F1B order. */");
  zp_buf_line(out, "static void micro_batches(zpr *c) {");
  if (e->program->choice.pipeline == 1) {
    zp_buf_line(out, "  for (int64_t mb = 0; mb < MICROBATCHES; mb++) {");
    zp_buf_line(out, "    forward(c, mb);");
    zp_buf_line(out, "    backward(c, mb);");
    zp_buf_line(out, "  }");
  } else {
    zp_buf_line(out, "  int64_t warmup = PIPELINE - 1 - c->p, f = 0, b = 0;");
    zp_buf_line(out, "  if (warmup > MICROBATCHES) warmup = MICROBATCHES;");
    zp_buf_line(out, "  while (f < warmup) forward(c, f++);");
    zp_buf_line(out, "  while (f < MICROBATCHES) {");
    zp_buf_line(out, "    forward(c, f++);");
    zp_buf_line(out, "    backward(c, b++);");
    zp_buf_line(out, "  }");
    zp_buf_line(out, "  while (b < MICROBATCHES) backward(c, b++);");
    zp_buf_line(out, "  zpr_send_wait(c, true);");
    zp_buf_line(out, "  zpr_send_wait(c, false);");
  }
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

void zp_emit_schedule(zp_emit *e) {
  emit_walk(e);
  emit_forward(e);
  emit_backward(e);
  emit_order(e);
}

static const char *quoted(const zp_emit *e, const char *text) {
  if (!text) return "NULL";
  zp_buf out = zp_buf_new(e->arena);
  zp_buf_puts(&out, "\"");
  for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
    if (*p == '"' || *p == '\\')
      zp_buf_printf(&out, "\\%c", *p);
    else if (*p < 32)
      zp_buf_printf(&out, "\\%03o", *p);
    else
      zp_buf_printf(&out, "%c", *p);
  }
  zp_buf_puts(&out, "\"");
  return out.data;
}

static void emit_source(zp_emit *e, const char *field, const zp_data *d) {
  static const int kind[] = {[ZP_DATA_NONE] = 0, [ZP_DATA_TOKENS] = 1, [ZP_DATA_TEXT] = 2, [ZP_DATA_SYNTHETIC] = 3};
  zp_buf_line(&e->out, "    .%s = {.kind = %d, .path = %s, .seed = %lluu, .shuffled = %s},", field, kind[d->kind],
              quoted(e, d->path), (unsigned long long)d->seed, d->shuffled ? "true" : "false");
}

static void emit_main(zp_emit *e) {
  zp_buf *out = &e->out;
  if (!e->gpu) {
    zp_buf_line(out, "int main(int argc, char **argv) { return zpr_main(argc, argv, &program); }");
    return;
  }
  zp_buf_line(out, "int main(int argc, char **argv) {");
  zp_buf_line(out, "  zpr_program complete = program;");
  zp_buf_line(out, "  complete.device_image_bytes = kernels_image_end - kernels_image;");
  zp_buf_line(out, "  return zpr_main(argc, argv, &complete);");
  zp_buf_line(out, "}");
}

void zp_emit_program(zp_emit *e) {
  zp_buf *out = &e->out;
  const zp_train *t = &e->plan->spec->train;
  const zp_choice *c = &e->program->choice;
  const zp_traffic traffic = zp_program_traffic(e->program);
  zp_buf_line(out, "static const zpr_program program = {");
  zp_buf_line(out, "    .name = %s, .plan_hash = \"%s\", .dtype = DTYPE,", quoted(e, e->model->name),
              zp_plan_hash(e->arena, e->program));
  zp_buf_line(out, "    .tensor = TENSOR, .pipeline = PIPELINE, .data = DATA, .zero = %d, .pipeline_before_data = %s,",
              c->zero, c->order == ZP_ORDER_TPD ? "true" : "false");
  if (zp_expert_ranks(c) > 1) zp_buf_line(out, "    .expert = EXPERT,");
  zp_buf_line(out, "    .batch = %lld, .microbatch = MICROBATCH, .microbatches = MICROBATCHES,", LL(t->batch));
  zp_buf_line(out, "    .sequence = SEQUENCE, .vocabulary = VOCABULARY, .n_inputs = %d,", e->model->inputs.len);
  zp_buf_line(out, "    .stages = stages, .n_ties = %d, .ties = %s,", e->program->tied.len,
              e->program->tied.len ? "ties" : "NULL");
  zp_buf_line(out, "    .micro_batches = micro_batches, .forward = forward,");
  zp_buf_line(out, "    .optimizer = %d, .lr = %.17g, .beta1 = %.17g, .beta2 = %.17g, .eps = %.17g,", (int)t->optimizer,
              t->lr, t->beta1, t->beta2, t->eps);
  zp_buf_line(out, "    .weight_decay = %.17g, .momentum = %.17g, .clip = %.17g, .min_lr = %.17g,", t->weight_decay,
              t->momentum, t->clip, t->min_lr);
  zp_buf_line(out, "    .schedule = %d, .warmup = %lld, .decay_steps = %lld, .steps = %lld, .seed = %lluu,",
              (int)t->schedule, LL(t->warmup), LL(t->decay_steps), LL(t->steps), (unsigned long long)t->seed);
  emit_source(e, "train", &t->data);
  emit_source(e, "validate", &t->validate_data);
  zp_buf_line(out, "    .validate_every = %lld, .validate_batches = %lld,", LL(t->validate_every),
              LL(t->validate_batches));
  zp_buf_line(out, "    .checkpoint_dir = %s, .checkpoint_every = %lld, .checkpoint_keep = %lld,",
              quoted(e, t->checkpoint_dir), LL(t->checkpoint_every), LL(t->checkpoint_keep));
  zp_buf_line(out, "    .log_path = %s, .log_every = %lld,", quoted(e, t->log_path), LL(t->log_every));
  zp_buf_line(out, "    .predicted_step_s = %.9g, .model_flop_per_step = %.9g, .peak_flop_per_s = %.9g,",
              e->plan->best.estimate.step_s, zp_model_flop_per_sequence(e->model) * (double)t->batch,
              e->plan->machine.flop_per_s * c->tensor * c->pipeline * c->data);
  zp_buf_line(
      out,
      "    .predicted_bytes = {[ZPR_TENSOR] = %lld, [ZPR_DATA] = %lld, [ZPR_PIPELINE] = %lld, [ZPR_TIE] = %lld, "
      "[ZPR_EXPERT] = %lld},",
      LL(traffic.tensor), LL(traffic.data), LL(traffic.pipeline), LL(traffic.tie), LL(traffic.expert));
  if (e->gpu) zp_buf_line(out, "    .device_image = kernels_image, .row_chunks = %d,", e->lowered->row_chunks);
  zp_buf_line(out, "};");
  zp_buf_puts(out, "\n");
  emit_main(e);
}
