/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the program table and main. */
#include "decode.h"
#include <zplan/quote.h>
#include <zplan/rt.h>

#define LL(x) ((long long)(x))

/* "{.kind = ZPR_TEXT, ...}" */
static const char *source_text(const zp_emit *e, const char *field, const zp_data *d) {
  static const char *const kind[] = {
      [ZP_DATA_NONE] = "ZPR_NO_DATA", [ZP_DATA_TOKENS] = "ZPR_TOKENS",      [ZP_DATA_TEXT] = "ZPR_TEXT",
      [ZP_DATA_LINES] = "ZPR_LINES",  [ZP_DATA_ARRAYS] = "ZPR_NPY",         [ZP_DATA_SYNTHETIC] = "ZPR_SYNTHETIC",
      [ZP_DATA_MIX] = "ZPR_MIX",      [ZP_DATA_DOCUMENTS] = "ZPR_DOCUMENTS"};
  zp_buf out = zp_buf_new(e->arena);
  zp_buf_printf(&out, "{.kind = %s", kind[d->kind]);
  if (d->kind == ZP_DATA_MIX)
    zp_buf_printf(&out, ", .n_parts = %d, .parts = %s_parts, .weights = %s_weights", d->n_parts, field, field);
  else
    zp_buf_printf(&out, ", .path = %s, .seed = %lluu, .shuffled = %s", zp_quote_c(e->arena, d->path),
                  (unsigned long long)d->seed, d->shuffled ? "true" : "false");
  if (d->kind == ZP_DATA_DOCUMENTS) zp_buf_printf(&out, ", .end = %lld", LL(d->end));
  if (d->mask_rate > 0)
    zp_buf_printf(&out, ", .mask_rate = %s, .mask_token = %lld, .mask_seed = %lluu", zp_decimal(e->arena, d->mask_rate),
                  LL(d->mask_token), (unsigned long long)d->mask_seed);
  if (d->mask_words) zp_buf_printf(&out, ", .mask_words = %s", zp_quote_c(e->arena, d->mask_words));
  if (d->spans.rate > 0)
    zp_buf_printf(&out,
                  ", .spans = {.rate = %s, .mean = %s, .sentinel = %lld, .eos = %lld, .start = %lld, .seed = %lluu}",
                  zp_decimal(e->arena, d->spans.rate), zp_decimal(e->arena, d->spans.mean), LL(d->spans.sentinel),
                  LL(d->spans.eos), LL(d->spans.start), (unsigned long long)d->spans.seed);
  zp_buf_puts(&out, "}");
  return out.data;
}

static void emit_source(zp_emit *e, const char *field, const zp_data *d) {
  zp_buf_line(&e->out, "    .%s = %s,", field, source_text(e, field, d));
}

_Static_assert((int)ZP_MOST_SOURCES == (int)ZPR_MOST_PARTS, "a trainer takes every mixture of the language");

/* The sources of a mixture, which the program names. */
static void emit_parts(zp_emit *e, const char *field, const zp_data *d) {
  zp_buf *out = &e->out;
  if (d->kind != ZP_DATA_MIX) return;
  zp_buf_line(out, "static const zpr_source %s_parts[] = {", field);
  for (int i = 0; i < d->n_parts; i++) zp_buf_line(out, "    %s,", source_text(e, field, &d->parts[i]));
  zp_buf_line(out, "};");
  zp_buf_printf(out, "static const double %s_weights[] = {", field);
  for (int i = 0; i < d->n_parts; i++) zp_buf_printf(out, "%s%s", i ? ", " : "", zp_decimal(e->arena, d->weights[i]));
  zp_buf_line(out, "};");
}

/* Inputs of a name each: where they are no tokens, or where data has them so. */
static bool has_named_inputs(const zp_emit *e) {
  const zp_train *t = &e->plan->spec->train;
  return e->model->inputs.len > 0 &&
         (!zp_model_reads_tokens(e->model) || zp_data_is_arrays(&t->data) || zp_data_is_arrays(&t->validate_data));
}

static void emit_named_inputs(zp_emit *e) {
  zp_buf *out = &e->out;
  if (!has_named_inputs(e)) return;
  zp_buf_line(out, "static const zpr_named named_inputs[] = {");
  for (int i = 0; i < e->model->inputs.len; i++) {
    const zp_input *input = &e->model->inputs.data[i];
    zp_buf_printf(out, "    {.name = %s, .rank = %d, .shape = {", zp_quote_c(e->arena, input->name),
                  input->shape.rank - 1);
    for (int k = 1; k < input->shape.rank; k++)
      zp_buf_printf(out, "%s%lld", k > 1 ? ", " : "", LL(input->shape.dim[k]));
    if (input->shape.rank == 1) zp_buf_printf(out, "1");
    zp_buf_printf(out, "}, .elements = %lld,", LL(zp_shape_elements(&input->shape, 1)));
    if (input->element == ZP_ELEM_FLOAT)
      zp_buf_line(out, " .numbers = true},");
    else
      zp_buf_line(out, " .least = %lld, .limit = %lld%s%s%s},", LL(input->least), LL(input->limit),
                  input->labels ? ", .labels = true" : "", input->documents ? ", .documents = true" : "",
                  input->none == -1 ? "" : zp_format(e->arena, ", .recoded = true, .none = %lld", LL(input->none)));
  }
  zp_buf_line(out, "};");
}

static int input_of(const zp_graph *graph, const zp_node *node, int operand) {
  return operand < node->in.len ? graph->tensors.data[node->in.data[operand]].index : -1;
}

static const zp_node *loss_node(const zp_graph *last, int i) {
  return &last->nodes.data[last->tensors.data[last->losses.data[i]].producer];
}

/* Rows of a sample whose errors count. */
static int64_t rows_of_error(const zp_graph *last, const zp_node *node) {
  return zp_shape_rows(&last->tensors.data[node->in.data[0]].shape, 1);
}

/* The losses of a model that has several, or one with a weight, or classes of some samples, or errors of numbers. */
static int emit_losses(zp_emit *e) {
  const zp_graph *last = e->model->segments.data[e->model->segments.len - 1].graph;
  bool named = has_named_inputs(e), some = false;
  for (int i = 0; i < last->losses.len; i++)
    some |= loss_node(last, i)->in.len > 2 || loss_node(last, i)->op == ZP_OP_SQUARED_ERROR ||
            loss_node(last, i)->attr.weight != 1;
  if (last->losses.len == 1 && !some) return 0;
  zp_buf_line(&e->out, "static const zpr_loss losses[] = {");
  for (int i = 0; i < last->losses.len; i++) {
    const zp_node *node = loss_node(last, i);
    if (node->op == ZP_OP_SQUARED_ERROR) {
      zp_buf_line(&e->out, "    {.name = %s, .weight = %s, .labels = -1, .lengths = -1, .rows = %lld},",
                  zp_quote_c(e->arena, node->name), zp_decimal(e->arena, node->attr.weight),
                  (long long)rows_of_error(last, node));
      continue;
    }
    zp_buf_line(&e->out, "    {.name = %s, .weight = %s, .labels = %d, .lengths = %d},",
                zp_quote_c(e->arena, node->name), zp_decimal(e->arena, node->attr.weight),
                named ? input_of(last, node, 1) : -1, named ? input_of(last, node, 2) : -1);
  }
  zp_buf_line(&e->out, "};");
  return last->losses.len;
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

/* Inputs of which a context rank reads its positions: bit i of input i. */
static unsigned shared_inputs(const zp_emit *e) {
  unsigned shared = 0;
  for (int s = 0; s < e->lowered->n_segments; s++) {
    const zp_graph *g = e->lowered->segments[s].graph;
    for (int i = 0; i < g->tensors.len; i++) {
      const zp_tensor *t = &g->tensors.data[i];
      if (t->role == ZP_ROLE_INPUT && t->position_parts > 1) shared |= 1u << t->index;
    }
  }
  return shared;
}

/* What is trained, divided how. */
static void emit_shape(zp_emit *e, int losses) {
  zp_buf *out = &e->out;
  const zp_choice *c = &e->program->choice;
  bool tokens = zp_model_reads_tokens(e->model);
  bool lengths = tokens && e->model->inputs.data[e->model->inputs.len - 1].shape.rank == 1;
  zp_buf_line(out, "    .name = %s, .plan_hash = %s, .dtype = DTYPE,", zp_quote_c(e->arena, e->model->name),
              zp_quote_c(e->arena, zp_plan_hash(e->arena, e->program)));
  zp_precision precision = e->plan->spec->train.precision;
  if (zp_precision_recipe(precision)) zp_buf_line(out, "    .precision = \"%s\",", zp_precision_name(precision));
  zp_buf_line(out, "    .model_hash = %s,", zp_quote_c(e->arena, zp_model_hash(e)));
  zp_buf_line(out, "    .tensor = TENSOR, .pipeline = PIPELINE, .data = DATA, .zero = %d, .pipeline_before_data = %s,",
              c->zero, c->order == ZP_ORDER_TPD ? "true" : "false");
  if (zp_expert_ranks(c) > 1) zp_buf_line(out, "    .expert = EXPERT,");
  if (zp_context_ranks(c) > 1) zp_buf_line(out, "    .context = CONTEXT, .shared_inputs = %uu,", shared_inputs(e));
  if (zp_context_ranks(c) > 1 && c->context_by) zp_buf_line(out, "    .context_by_keys = true,");
  if (zp_context_ranks(c) > 1 && c->context_by == ZP_BY_RING) zp_buf_line(out, "    .context_ring = true,");
  if (c->shard > 0) zp_buf_line(out, "    .shard = SHARD,");
  if (c->hpz > 0) zp_buf_line(out, "    .hpz = HPZ,");
  if (zp_machine_nodes(&e->plan->machine) > 1)
    zp_buf_line(out, "    .n_nodes = sizeof nodes / sizeof *nodes, .nodes = nodes,");
  if (e->program->spec->train.rounds_sums) zp_buf_line(out, "    .rounds_sums = true,");
  if (e->program->spec->train.stochastic_sums) zp_buf_line(out, "    .stochastic_sums = true,");
  if (zp_emit_calls(e, ZP_CALL_SCATTER_GRADS) && !zp_emit_calls(e, ZP_CALL_SCATTER_OVER_RANKS))
    zp_buf_line(out, "    .moves_gradients = true,");
  if (zp_emit_calls(e, ZP_CALL_GATHER_OVERLAPPED) || zp_emit_calls(e, ZP_CALL_SCATTER_OVERLAPPED) ||
      zp_emit_calls(e, ZP_CALL_REDUCE_GRADS))
    zp_buf_line(out, "    .moves_overlap = true,");
  if (zp_chunks(c) > 1)
    zp_buf_line(out, "    .chunks = CHUNKS, .folded = %s,", zp_schedule_folds(c->schedule) ? "true" : "false");
  if (e->program->stages[0].messages > 1) zp_buf_line(out, "    .messages = MESSAGES,");
  zp_buf_line(out, "    .batch = %lld, .microbatch = MICROBATCH, .microbatches = MICROBATCHES,",
              LL(e->plan->spec->train.batch));
  zp_buf_line(out, "    .sequence = SEQUENCE, .vocabulary = VOCABULARY, .n_inputs = %d,%s",
              tokens ? e->model->inputs.len - lengths : 0, lengths ? " .lengths = true," : "");
  if (has_named_inputs(e)) zp_buf_line(out, "    .n_named = %d, .named = named_inputs,", e->model->inputs.len);
  if (losses > 0) zp_buf_line(out, "    .n_losses = %d, .losses = losses,", losses);
  zp_buf_line(out, "    .stages = stages, .n_ties = %d, .ties = %s,", e->program->tied.len,
              e->program->tied.len ? "ties" : "NULL");
  zp_buf_line(out, "    .micro_batches = micro_batches, .forwards = forwards,");
  if (e->decoding)
    zp_buf_line(out, "    .decode = decode, .text_input = %d, .text_positions = %lld,", e->decoding->input,
                LL(e->decoding->positions));
}

/* Settings of this use that the optimizer takes, a line of them. */
static void emit_settings(zp_emit *e, zp_setting_use use) {
  const zp_train *t = &e->plan->spec->train;
  zp_buf line = zp_buf_new(e->arena);
  for (int i = 0; i < zp_n_optimizer_settings; i++) {
    const zp_setting *s = &zp_optimizer_settings[i];
    if (s->use != use || !zp_optimizer_takes(zp_optimizer_facts(t), s->at)) continue;
    bool set = s->flag && *(const bool *)((const char *)t + s->at);
    zp_buf_printf(&line, " .%s = %s,", s->name,
                  s->flag ? (set ? "true" : "false") : zp_decimal(e->arena, zp_setting_real(t, s->at)));
  }
  if (line.data) zp_buf_line(&e->out, "   %s", line.data);
}

/* The train block. */
static void emit_training(zp_emit *e) {
  static const char *const rate[] = {[ZP_LR_CONSTANT] = "ZPR_RATE_CONSTANT",
                                     [ZP_LR_LINEAR] = "ZPR_RATE_LINEAR",
                                     [ZP_LR_COSINE] = "ZPR_RATE_COSINE",
                                     [ZP_LR_WSD] = "ZPR_RATE_STABLE_DECAY",
                                     [ZP_LR_RELATIVE] = "ZPR_RATE_RELATIVE"};
  zp_buf *out = &e->out;
  const zp_train *t = &e->plan->spec->train;
  zp_buf_line(out, "    .optimizer = %s, .lr = %s, .beta1 = %s, .beta2 = %s, .eps = %s,",
              zp_optimizer_facts(t)->program_kind, zp_decimal(e->arena, t->lr), zp_decimal(e->arena, t->beta1),
              zp_decimal(e->arena, t->beta2), zp_decimal(e->arena, t->eps));
  zp_buf_line(out, "    .momentum = %s, .clip = %s, .min_lr = %s,", zp_decimal(e->arena, t->momentum),
              zp_decimal(e->arena, t->clip), zp_decimal(e->arena, t->min_lr));
  zp_buf_line(out, "    .schedule = %s, .warmup = %lld, .decay_steps = %lld, .steps = %lld, .seed = %lluu,",
              rate[t->schedule], LL(t->warmup), LL(t->decay_steps), LL(t->steps), (unsigned long long)t->seed);
  emit_settings(e, ZP_SETTING_OWN);
  if (t->ema > 0) zp_buf_line(out, "    .ema = %s,", zp_decimal(e->arena, t->ema));
  if (t->delayed) zp_buf_line(out, "    .delayed = true, .delay_after = %lld,", LL(t->delay_after));
  if (t->init.path) zp_buf_line(out, "    .starts_from_weights = true,");
  emit_source(e, "train", &t->data);
  emit_source(e, "validate", &t->validate_data);
  zp_buf_line(out, "    .validate_every = %lld, .validate_batches = %lld,", LL(t->validate_every),
              LL(t->validate_batches));
  zp_buf_line(out, "    .checkpoint_dir = %s, .checkpoint_every = %lld, .checkpoint_keep = %lld,",
              zp_quote_c(e->arena, t->checkpoint_dir), LL(t->checkpoint_every), LL(t->checkpoint_keep));
  zp_buf_line(out, "    .log_path = %s, .log_every = %lld,", zp_quote_c(e->arena, t->log_path), LL(t->log_every));
}

/* 0/1 Adam: when gradients are summed, and when signs are exchanged. */
static void emit_intervals(zp_emit *e) {
  const zp_intervals x = zp_train_intervals(e->arena, &e->plan->spec->train);
  if (x.phases.len == 0 || !zp_emit_calls(e, ZP_CALL_ONE_BIT_EXCHANGE)) return;
  zp_buf_line(&e->out, "/* Steps that sum gradients for the variance. */");
  zp_buf_puts(&e->out, "static const int64_t variance_steps[] = {");
  for (int i = 0; i < x.variance.len; i++)
    zp_buf_printf(&e->out, "%s%lld", i == 0 ? "" : i % 16 == 0 ? ",\n  " : ", ", LL(x.variance.data[i]));
  zp_buf_line(&e->out, "};");
  zp_buf_line(&e->out, "/* From a step on, one of so many exchanges signs. */");
  zp_buf_puts(&e->out, "static const zpr_phase phases[] = {");
  for (int i = 0; i < x.phases.len; i++)
    zp_buf_printf(&e->out, "%s{%lld, %lld}", i ? ", " : "", LL(x.phases.data[i].begin), LL(x.phases.data[i].every));
  zp_buf_line(&e->out, "};");
  zp_buf_puts(&e->out, "\n");
}

/* Nodes that are alike and side by side are one row. */
static void emit_nodes(zp_emit *e) {
  const zp_machine *m = &e->plan->machine;
  int64_t rows = 0, width = 0;
  if (zp_machine_nodes(m) == 1) return;
  zp_buf_puts(&e->out, "static const zpr_nodes nodes[] = {");
  for (int64_t rank = 0; rank < m->devices; rank += width) {
    int64_t alike = 0;
    width = zp_machine_node_of(m, rank).ranks;
    for (int64_t at = rank; at < m->devices && zp_machine_node_of(m, at).ranks == width; at += width) alike++;
    zp_buf_printf(&e->out, "%s{%lld, %lld}", rows++ ? ", " : "", LL(alike), LL(width));
    rank += (alike - 1) * width;
  }
  zp_buf_line(&e->out, "};");
  zp_buf_puts(&e->out, "\n");
}

/* What leaves the plan's nodes. */
static void emit_across(zp_emit *e) {
  if (zp_machine_nodes(&e->plan->machine) == 1) return;
  const zp_across across = zp_program_across(e->program);
  zp_buf_line(&e->out,
              "    .predicted_across = {[ZPR_TENSOR] = %lld, [ZPR_DATA] = %lld, [ZPR_PIPELINE] = %lld, [ZPR_TIE] = "
              "%lld, [ZPR_EXPERT] = %lld, [ZPR_CONTEXT] = %lld},",
              LL(across.tensor), LL(across.data), LL(across.pipeline), LL(across.tie), LL(across.expert),
              LL(across.context));
  if (across.warmup_data != 0)
    zp_buf_line(&e->out, "    .predicted_warmup_data_across = %lld,", LL(across.warmup_data));
}

/* What a run is compared with, and the steps of plain Adam before it compresses. */
static void emit_predictions(zp_emit *e) {
  zp_buf *out = &e->out;
  const zp_train *t = &e->plan->spec->train;
  const zp_choice *c = &e->program->choice;
  const zp_traffic traffic = zp_program_traffic(e->program);
  const zp_intervals intervals = zp_train_intervals(e->arena, t);
  zp_buf_line(out, "    .predicted_step_s = %.9g, .model_flop_per_step = %.9g, .peak_flop_per_s = %.9g,",
              e->plan->best.estimate.step_s, zp_model_flop_per_sequence(e->model) * (double)t->batch,
              e->plan->machine.flop_per_s * c->tensor * c->pipeline * c->data);
  zp_buf_line(
      out,
      "    .predicted_bytes = {[ZPR_TENSOR] = %lld, [ZPR_DATA] = %lld, [ZPR_PIPELINE] = %lld, [ZPR_TIE] = %lld, "
      "[ZPR_EXPERT] = %lld, [ZPR_CONTEXT] = %lld},",
      LL(traffic.tensor), LL(traffic.data), LL(traffic.pipeline), LL(traffic.tie), LL(traffic.expert - traffic.routed),
      LL(traffic.context));
  if (traffic.routed > 0) zp_buf_line(out, "    .expected_routed_bytes = %lld,", LL(traffic.routed));
  emit_across(e);
  if (t->precision == ZP_PREC_MIXED_FP16)
    zp_buf_line(out, "    .loss_scale = %lld, .scale_window = %lld,", LL(t->loss_scale), LL(t->scale_window));
  zp_tier_bytes moves = zp_program_tier_bytes(e->program);
  if (moves.down > 0 || moves.up > 0)
    zp_buf_line(out,
                "    .predicted_moves = {[ZPR_DOWN] = %lld, [ZPR_UP] = %lld, [ZPR_READ] = %lld, [ZPR_WRITTEN] = %lld},",
                LL(moves.down), LL(moves.up), LL(moves.read), LL(moves.written));
  if (moves.signs_down != 0 || moves.signs_up != 0)
    zp_buf_line(out, "    .predicted_exchange_moves = {[ZPR_DOWN] = %lld, [ZPR_UP] = %lld},", LL(moves.signs_down),
                LL(moves.signs_up));
  if (zp_emit_calls(e, ZP_CALL_ONE_BIT_EXCHANGE)) {
    emit_settings(e, ZP_SETTING_ONE_BIT);
    if (t->variance_every > 0)
      zp_buf_printf(out, "    .n_variance = %d, .variance_at = variance_steps, .n_phases = %d, .phases = phases,",
                    intervals.variance.len, intervals.phases.len);
    else if (t->freeze_threshold > 0)
      zp_buf_printf(out, "    .freeze_threshold = %s,", zp_decimal(e->arena, t->freeze_threshold));
    else
      zp_buf_printf(out, "    .freeze_step = %lld,", LL(zp_freeze_step(t)));
    zp_buf_line(out, " .predicted_warmup_data_bytes = %lld,", LL(traffic.warmup_data));
  }
}

static void emit_device(zp_emit *e) {
  zp_buf *out = &e->out;
  if (e->gpu) zp_buf_line(out, "    .device_image = kernels_image,");
  if (e->gpu && zp_tensor_core_head(e->plan->spec) > 0)
    zp_buf_line(out, "    .tensor_core_head = %lld,", LL(zp_tensor_core_head(e->plan->spec)));
  if (e->gpu) zp_buf_line(out, "    .products_bytes = %lld,", LL(zp_products_bytes(e->plan->spec)));
}

void zp_emit_program(zp_emit *e) {
  zp_buf *out = &e->out;
  zp_emit_end_of_step(e);
  emit_named_inputs(e);
  emit_parts(e, "train", &e->plan->spec->train.data);
  emit_parts(e, "validate", &e->plan->spec->train.validate_data);
  int losses = emit_losses(e);
  emit_intervals(e);
  emit_nodes(e);
  zp_buf_line(out, "static const zpr_program program = {");
  emit_shape(e, losses);
  zp_emit_end_fields(e);
  emit_training(e);
  emit_predictions(e);
  emit_device(e);
  if (e->profile) zp_buf_line(out, "    .profile = &profile,");
  zp_buf_line(out, "};");
  zp_buf_puts(out, "\n");
  emit_main(e);
}
