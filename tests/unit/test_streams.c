/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, tensors that units only read or hand on: a slot has them once, whatever a stage recomputes, so a layer keeps
 * what it keeps in the same model without them; the verifier counts them on its own. */
#include "verify_testing.h"

TestSuite(streams, .init = setup, .fini = teardown);

enum { LAYER = 1, END = 2, D = 24, S = 8, STREAM = S * D * 4 };
static const model_size LLAMA = {STYLE_LLAMA, 64, S, D, 6, 4, 4, 32, true};

static zp_spec *spec_of(bool streams) {
  zp_spec *spec = build_spec(arena, &LLAMA, gpu_cluster(1), BATCH);
  if (streams) hand_on(arena, spec->model);
  return spec;
}

static zp_lowered *lowered_of(const zp_spec *spec, zp_choice c) {
  const char *reason = "none given";
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, zp_choice_ranks(&c));
  zp_sharding *sharding = zp_shard(arena, spec->model, &machine, c.tensor, 1, false, &reason);
  cr_assert(sharding, "%s", reason);
  zp_lowered **l = zp_lower_stages(arena, spec, sharding, &c, &reason);
  cr_assert(l, "%s", reason);
  return l[0];
}

Test(streams, layers_keep_no_more) {
  for (int mode = 0; mode < ZP_STAGE_MODES; mode++) {
    zp_choice c = choice_of(2, 2, 1, 0, 1, false, false, NULL);
    c.recompute = zp_stage_mode_recompute((zp_stage_mode)mode),
    c.recompute_shard = zp_stage_mode_split((zp_stage_mode)mode);
    zp_lowered *with = lowered_of(spec_of(true), c), *without = lowered_of(spec_of(false), c);
    cr_expect_eq(with->streams.len, 1);
    cr_expect_eq(with->segments[LAYER].saved_bytes, without->segments[LAYER].saved_bytes, "mode %d", mode);
    cr_expect_eq(with->segments[LAYER].carry_in_elements, 2 * without->segments[LAYER].carry_in_elements);
    cr_expect_eq(with->segments[LAYER].carry_kept_elements, without->segments[LAYER].carry_kept_elements);
    for (int stage = 0; stage < 2; stage++) {
      const zp_units part = {stage * 4, 4};
      zp_memory more = zp_stage_footprint(with, &c, stage, &part, NULL),
                less = zp_stage_footprint(without, &c, stage, &part, NULL);
      int64_t slots = stage == 0 ? 2 : 1;
      cr_expect_eq(more.saved - less.saved, slots * STREAM, "mode %d, stage %d", mode, stage);
    }
  }
}

/* Fewer units never need more: what the search leaves out relies on it. */
Test(streams, memory_grows_with_the_units) {
  zp_choice c = choice_of(1, 4, 1, 0, 1, false, false, NULL);
  zp_lowered *l = lowered_of(spec_of(true), c);
  for (int64_t first = 0; first < l->n_units; first++)
    for (int64_t count = 2; first + count <= l->n_units; count++) {
      const zp_units all = {first, count}, later = {first + 1, count - 1}, fewer = {first, count - 1};
      int64_t bytes = zp_stage_footprint(l, &c, 1, &all, NULL).saved;
      cr_expect_leq(zp_stage_footprint(l, &c, 1, &later, NULL).saved, bytes);
      cr_expect_leq(zp_stage_footprint(l, &c, 1, &fewer, NULL).saved, bytes);
    }
}

/* A repeat wants what it changes in its units, so nothing ends in one; after all it ends where nothing reads it. */
Test(streams, ends_before_a_repeat_that_changes_it) {
  zp_spec *spec = spec_of(true);
  zp_graph *layer = spec->model->segments.data[LAYER].graph;
  int first = layer->carry_out.data[0];
  layer->carry_out.data[0] = layer->carry_in.data[0], layer->carry_out.data[1] = first; /* they change roles */
  zp_lowered *l = lowered_of(spec, choice_of(1, 1, 1, 0, 1, false, false, NULL));
  cr_assert_eq(l->streams.len, 1);
  cr_expect_eq(l->segments[LAYER].carries[0].stream, 0);
  cr_expect_eq(l->segments[LAYER].carries[1].stream, -1);
  cr_expect(l->segments[LAYER].carries[0].passes);
  cr_expect_eq(l->segments[END].carries[0].stream, 0);
  cr_expect_not(l->segments[END].carries[0].passes);
}

static void expect_found(const zp_plan *plan, const char *list, int index, const char *field, int64_t more,
                         const char *words) {
  zp_json *json = zp_plan_to_json(arena, plan);
  zp_json *entry = (zp_json *)(uintptr_t)zp_json_at(
      zp_json_get(strcmp(list, "segments") ? json : zp_json_get(json, "program"), list), index);
  if (strcmp(list, "stages") == 0) entry = (zp_json *)(uintptr_t)zp_json_at(zp_json_get(entry, "chunks"), 0);
  zp_json_set_int(entry, field, zp_json_get_int(entry, field, 0) + more);
  zp_strings findings = findings_of(plan->spec, json);
  bool found = false;
  for (int i = 0; i < findings.len; i++) found |= strstr(findings.data[i], words) != NULL;
  cr_expect(found, "%s.%s: %s", list, field, findings.len ? findings.data[0] : "nothing");
  zp_json_free(json);
}

Test(streams, the_verifier_counts_them) {
  int64_t cut[] = {0, 4, 8};
  zp_plan *plan = plan_of(spec_of(true), choice_of(1, 2, 2, 0, 2, false, false, cut));
  expect_sound(plan);
  expect_found(plan, "segments", LAYER, "carry_stream_elements", -1, "elements of streams");
  expect_found(plan, "segments", LAYER, "carry_kept_elements", 1, "keeps");
  expect_found(plan, "stages", 1, "slot_stride", -256, "a slot needs");
}
