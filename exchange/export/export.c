/* SPDX-License-Identifier: Apache-2.0 */
/* What all exports share: the formats, refusals and notes, decisions that no other program has. */
#include <assert.h>
#include "export_internal.h"

#include <zplan/quote.h>

#include <stdlib.h>

static const struct {
  const char *word, *program, *ending, *planned_for;
} formats[] = {
#define EXPORT_ROW(name, word, program, ending, planned_for, makes) {word, program, ending, planned_for},
    ZP_EXPORTS(EXPORT_ROW)
#undef EXPORT_ROW
};

const char *zp_export_word(zp_export_format format) {
  assert(format < ZP_EXPORT_COUNT);
  return formats[format].word;
}

const char *zp_export_ending(zp_export_format format) {
  assert(format < ZP_EXPORT_COUNT);
  return formats[format].ending;
}

const char *zp_export_planned_for(zp_export_format format) {
  assert(format < ZP_EXPORT_COUNT);
  return formats[format].planned_for;
}

void zp_export_refuse(zp_exporter *e, const char *help, const char *format, ...) {
  va_list args;
  va_start(args, format);
  zp_export_refusal refusal = {.span = ZP_NO_SPAN, .reason = zp_vformat(e->arena, format, args), .help = help};
  va_end(args);
  zp_push(e->arena, &e->result->refusals, refusal);
}

void zp_export_note(zp_exporter *e, const char *format, ...) {
  va_list args;
  va_start(args, format);
  zp_push(e->arena, &e->result->notes, zp_vformat(e->arena, format, args));
  va_end(args);
}

int zp_export_grad_bytes(const zp_exporter *e) { return e->plan->program->lowered->grad_bytes; }

int64_t zp_export_accumulation(const zp_exporter *e) { return zp_microbatches(e->spec, e->choice); }

const char *zp_export_number(zp_arena *arena, double value) {
  const char *text = "";
  for (int digits = 1; digits <= 17; digits++) {
    text = zp_format(arena, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  return text;
}

void zp_export_check_schedule(zp_exporter *e) {
  const zp_choice *c = e->choice;
  if (zp_schedule_folds(c->schedule))
    zp_export_refuse(e, "--set 'schedule=1f1b'",
                     "schedule %s folds the pipeline: a stage has two chunks from its two "
                     "ends, which %s cannot place",
                     zp_schedule_name(c->schedule), e->program);
  bool other = c->schedule == ZP_SCHEDULE_GPIPE || c->schedule == ZP_SCHEDULE_ZB_H1 || c->schedule == ZP_SCHEDULE_ZB_H2;
  if (other && c->pipeline > 1)
    zp_export_note(e,
                   "schedule %s: %s runs 1F1B, which trains the same, keeps no more micro-batches and has a longer or "
                   "equal bubble",
                   zp_schedule_name(c->schedule), e->program);
}

void zp_export_check_common(zp_exporter *e) {
  const zp_cluster *cluster = &e->spec->cluster;
  if (cluster->node.device.is_cpu)
    zp_export_refuse(e, "CPU ranks are trained by `zplan run`; for GPUs choose another cluster with --cluster",
                     "cluster `%s` has CPU devices, %s runs on GPUs", cluster->name, e->program);
  if (e->spec->train.precision == ZP_PREC_F64)
    zp_export_refuse(e, "--set precision=fp32", "precision fp64: %s has fp32, fp16 and bf16", e->program);
  if (zp_model_has_frozen(e->spec->model))
    zp_export_refuse(e, NULL, "frozen parameters: %s is given a training of all parameters", e->program);
  if (e->spec->train.rounds_sums)
    zp_export_refuse(e, "no reduce_dtype", "reduce_dtype = \"bf16\": %s rounds no sums between nodes", e->program);
  if (e->spec->train.stochastic_sums)
    zp_export_refuse(e, "no gradient_sums", "gradient_sums = \"bf16_stochastic\": %s rounds no sums stochastically",
                     e->program);
  if (e->spec->train.delayed)
    zp_export_refuse(e, "no delayed_update", "delayed_update: %s has no update alongside the next step", e->program);
  if (e->spec->train.ema > 0)
    zp_export_refuse(e, "no ema", "ema = %g: %s keeps no average of the weights", e->spec->train.ema, e->program);
  if (e->choice->fine)
    zp_export_refuse(e, "--set cut=layer", "stages are cut inside layers, %s cuts between them", e->program);
  if (cluster->groups.len > 1)
    zp_export_note(e, "the plan fills node types in the order of cluster `%s`: start the ranks in that order",
                   cluster->name);
}

void zp_export_check_loss(zp_exporter *e) {
  if (zp_loss_chunks(e->choice) > 1)
    zp_export_note(e, "the loss in %d chunks: %s makes it at once, which trains the same and keeps all logits",
                   zp_loss_chunks(e->choice), e->program);
}

static bool whole_on_host(zp_home home) { return home.tier == ZP_TIER_HOST && home.eighths == 8; }

bool zp_export_offloads_state(zp_exporter *e, const char *who) {
  const zp_home *home = e->choice->home;
  bool all = whole_on_host(home[ZP_STATE_PARAMS]) && whole_on_host(home[ZP_STATE_GRADIENTS]) &&
             whole_on_host(home[ZP_STATE_OPTIMIZER]);
  for (int s = 0; s < ZP_STATE_COUNT; s++) {
    if (home[s].tier == ZP_TIER_DEVICE || (all && s != ZP_STATE_ACTIVATIONS)) continue;
    zp_export_refuse(e, zp_format(e->arena, "--set 'offload[%s]=none'", zp_state_name(s)),
                     "%s on %s: %s parameters, gradients and the optimizer together, to the host", zp_state_name(s),
                     zp_tier_name(home[s].tier), who);
  }
  return all;
}

zp_recompute zp_export_recompute(zp_exporter *e) {
  const zp_choice *c = e->choice;
  static const int strength[] = {[ZP_RECOMPUTE_NONE] = 0, [ZP_RECOMPUTE_SELECTIVE] = 1, [ZP_RECOMPUTE_FULL] = 2};
  zp_recompute most = ZP_RECOMPUTE_NONE;
  bool differ = false;
  for (int s = 0; s < c->pipeline; s++) {
    zp_recompute r = zp_stage_mode_recompute(zp_choice_mode(c, s));
    differ |= zp_choice_mode(c, s) != zp_choice_mode(c, 0) || zp_choice_layers(c, s) != ZP_ALL_LAYERS;
    if (strength[r] > strength[most]) most = r;
  }
  if (differ)
    zp_export_note(e,
                   "recompute %s: %s has one mode for all layers, here the strongest of these; it needs no more memory "
                   "and more time",
                   zp_choice_recompute_words(e->arena, c), e->program);
  return most;
}

const char *zp_export_headline(const zp_exporter *e) {
  const zp_choice *c = e->choice;
  const char *chunks = c->chunks > 1 ? zp_format(e->arena, " (%d chunks)", c->chunks) : "";
  const char *expert = zp_expert_ranks(c) > 1 ? zp_format(e->arena, ", expert %d", zp_expert_ranks(c)) : "";
  const char *context = zp_context_ranks(c) > 1 ? zp_format(e->arena, " x context %d", c->context) : "";
  const char *shard = c->shard > 0 ? zp_format(e->arena, " in groups of %d", c->shard)
                      : c->hpz > 0 ? zp_format(e->arena, " with hpZ %d", c->hpz)
                                   : "";
  return zp_format(
      e->arena, "tensor %d x pipeline %d%s%s x data %d = %d rank%s, ZeRO %d%s, micro-batch %lld%s, recompute %s",
      c->tensor, c->pipeline, chunks, context, zp_replicas(c), zp_choice_ranks(c), zp_choice_ranks(c) == 1 ? "" : "s",
      c->zero, shard, (long long)c->microbatch, expert, zp_choice_recompute_words(e->arena, c));
}

void zp_export_comment(zp_buf *out, const char *text) {
  enum { WIDTH = 116 };
  text = zp_quote_terminal(out->arena, text); /* a line end would end the comment */
  const char *indent = strncmp(text, "- ", 2) == 0 ? "  " : "", *before = "";
  while (*text) {
    size_t n = strlen(text);
    if (n > WIDTH) {
      n = WIDTH;
      while (n > 0 && text[n] != ' ') n--;
      if (n == 0) n = strcspn(text, " ");
    }
    zp_buf_printf(out, "# %s%.*s\n", before, (int)n, text);
    before = indent;
    text += n;
    text += strspn(text, " ");
  }
}

void zp_export_title(zp_buf *out, const zp_exporter *e, const char *program) {
  const zp_estimate *estimate = &e->plan->best.estimate;
  const zp_cluster *cluster = &e->spec->cluster;
  zp_export_comment(out, zp_format(e->arena, "%s on %d x %s, for %s; made by zplan export %s.", e->spec->model->name,
                                   e->plan->devices, cluster->node.device.name, program, e->word));
  zp_export_comment(out, zp_format(e->arena, "%s.", zp_export_headline(e)));
  zp_export_comment(out, zp_format(e->arena, "zplan's estimates, %s: %s a step, at most %s on a device.",
                                   zp_trainer_phrase(e->arena, cluster), zp_show_seconds(e->arena, estimate->step_s),
                                   zp_show_bytes(e->arena, estimate->peak_bytes)));
}

void zp_export_head(zp_buf *out, const zp_exporter *e, const char *version) {
  zp_export_title(out, e, zp_format(e->arena, "%s%s", e->program, version));
  zp_buf_printf(out, "#\n#   source %s\n", e->name);
}

void zp_export_differences(zp_buf *out, const zp_exporter *e) {
  if (e->result->notes.len) zp_buf_puts(out, "#\n# What differs from the plan:\n");
  for (int i = 0; i < e->result->notes.len; i++)
    zp_export_comment(out, zp_format(e->arena, "- %s.", e->result->notes.data[i]));
}

zp_export *zp_export_plan(zp_arena *arena, const zp_plan *plan, zp_export_format format, const char *name) {
  assert(format < ZP_EXPORT_COUNT && name);
  assert(plan->feasible);
  static void (*const write[])(zp_exporter *) = {
      [ZP_EXPORT_DEEPSPEED] = zp_export_deepspeed, [ZP_EXPORT_MEGATRON] = zp_export_megatron,
      [ZP_EXPORT_BRIDGE] = zp_export_bridge,       [ZP_EXPORT_TORCHTITAN] = zp_export_torchtitan,
      [ZP_EXPORT_FSDP2] = zp_export_fsdp2,         [ZP_EXPORT_SLURM] = zp_export_slurm};
  zp_exporter e = {.arena = arena,
                   .plan = plan,
                   .spec = plan->spec,
                   .choice = &plan->best.choice,
                   .name = name,
                   .word = formats[format].word,
                   .program = formats[format].program,
                   .result = ZP_NEW(arena, zp_export)};
  write[format](&e);
  if (plan->spec->cluster.arranged)
    zp_export_note(&e, "hosts are listed in the order of the plan's nodes: %s",
                   zp_show_nodes(arena, &plan->spec->cluster));
  if (e.result->refusals.len) e.result->text = NULL;
  return e.result;
}
