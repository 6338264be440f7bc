/* SPDX-License-Identifier: Apache-2.0 */
/* Which software profile stands for a measured run: by the row's source, or by its year where the source is not listed.
 * The profiles themselves: ../software. */
#include <zplan/constants.h>
#include <zplan/profile.h>
#include "validate_internal.h"

#include <assert.h>

static const zp_profiles *const lists[] = {&zp_profiles_frameworks, &zp_profiles_deepspeed, &zp_profiles_megatron};
enum { N_LISTS = sizeof lists / sizeof *lists };

static bool by_source(const zp_software *software, const zp_measured *run) {
  if (software->zero > 0 && run->zero < software->zero) return false; /* a row without a stage has -1 */
  if (software->most_zero > 0 && run->zero > software->most_zero) return false;
  if (software->only_compiled && !run->compiled) return false;
  if (software->most_tensor > 0 && run->tensor > software->most_tensor) return false;
  for (int w = 0; w < ZP_SOURCE_WORDS && software->source_words[w]; w++)
    if (run->source && strstr(run->source, software->source_words[w])) return true;
  return false;
}

static bool by_year(const zp_software *software, const zp_measured *run) {
  return !software->source_words[0] && run->year >= software->first_year && run->year <= software->last_year;
}

static const zp_software *first(bool (*fits)(const zp_software *, const zp_measured *), const zp_measured *run) {
  for (int l = 0; l < N_LISTS; l++)
    for (int i = 0; i < lists[l]->len; i++)
      if (fits(&lists[l]->data[i], run)) return &lists[l]->data[i];
  return NULL;
}

static bool says(const zp_measured *run, const char *words) {
  return (run->source && strstr(run->source, words)) || (run->notes && strstr(run->notes, words));
}

static const zp_software *named(const char *name) {
  for (int l = 0; l < N_LISTS; l++)
    for (int i = 0; i < lists[l]->len; i++)
      if (strcmp(lists[l]->data[i].name, name) == 0) return &lists[l]->data[i];
  assert(false);
  return NULL;
}

/* Programs that a row of another source names, and whether their collectives overlap as its notes say. */
static const zp_software *by_words(const zp_measured *run) {
  static const struct {
    const char *words, *overlapped, *serial;
  } rows[] = {
      {"Megatron-LM core", "megatron-core", "megatron-core-serial"},
      {"Megatron-Core", "megatron-core", "megatron-core-serial"},
      {"Megatron-DeepSpeed", "megatron-deepspeed", "megatron-deepspeed"},
      {"FSDP", "fsdp", "fsdp"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (says(run, rows[i].words)) return named(run->serial ? rows[i].serial : rows[i].overlapped);
  return NULL;
}

const zp_software *zp_software_of(const zp_measured *run, bool *is_named) {
  const zp_software *software = first(by_source, run);
  if (!software) software = by_words(run);
  *is_named = software != NULL;
  if (!software) software = first(by_year, run);
  return software ? software : &zp_profiles_megatron.data[zp_profiles_megatron.len - 1];
}

static int modules_again(const char *names) {
  static const struct {
    const char *name;
    int flag;
  } modules[] = {{"moe_act", ZP_AGAIN_ACTIVATION}, {"layernorm", ZP_AGAIN_NORM}, {"mla_up_proj", ZP_AGAIN_UP}};
  int flags = 0;
  for (size_t i = 0; names && i < sizeof modules / sizeof *modules; i++)
    if (strstr(names, modules[i].name)) flags |= modules[i].flag;
  return flags;
}

const zp_software *zp_software_with_experts(zp_arena *arena, const zp_measured *run, const zp_software *software) {
  if (!run->shape.experts) return software;
  zp_software *with = ZP_NEW(arena, zp_software);
  *with = *software;
  with->own_experts = true;
  with->dispatcher = zp_run_says(run->dispatcher, "deepep") || zp_run_says(run->dispatcher, "hybridep")
                         ? ZP_DISPATCH_NODES
                         : ZP_DISPATCH_COPIES;
  with->graphs = zp_run_says(run->graphs, "whole")   ? ZP_GRAPHS_WHOLE
                 : zp_run_says(run->graphs, "parts") ? ZP_GRAPHS_PARTS
                 : zp_run_says(run->graphs, "gates") ? ZP_GRAPHS_GATES
                                                     : ZP_GRAPHS_NONE;
  with->hides_exchange = run->hides_exchange;
  with->one_kernel = run->one_kernel;
  with->experts_in_a_row = run->experts_in_a_row;
  with->narrow_attention = run->narrow_attention;
  with->again = modules_again(run->again);
  bool both = zp_run_says(run->program, "AutoModel"); /* others add that of the first in the product */
  with->expert_biases = !run->shape.expert_biases || with->graphs == ZP_GRAPHS_WHOLE ? 0 : both ? 2 : 1;
  with->clamps_gates = with->single_rotary = run->shape.clamped && with->weighs_gates;
  if (run->flex_attention) {
    with->attention_slowdown = 1 / zp_cost_constant(ZP_COST_FLEX_ATTENTION);
    with->sm90_attention = 0;
    with->narrow_heads = zp_cost_constant(ZP_COST_NARROW_HEADS_2023);
  }
  /* latent attention's models by hand, equal layers but for the last stage */
  int64_t places = (int64_t)run->pipeline * (run->chunks > 1 ? run->chunks : 1);
  with->cuts_units &= !run->shape.kv_rank && run->shape.layers % places != 0;
  return with;
}
