/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files that say what is not so: every kind of tampering is found, and nothing that a file says breaks the
 * verifier. test_plan_file.c has the sound ones. */
#include <stdlib.h>
#include "verify_testing.h"

TestSuite(verify, .init = setup, .fini = teardown);

/* ---- tampering ---- */

/* "stages[1].arena.slots": the object that holds the last key. Values of a plan are mutable here, and only here. */
static zp_json *holder_of(zp_json *at, const char *path, const char **key) {
  char *rest = zp_strdup(arena, path), *dot;
  while ((dot = strchr(rest, '.'))) {
    *dot = '\0';
    char *bracket = strchr(rest, '[');
    if (bracket) *bracket = '\0';
    at = (zp_json *)zp_json_get(at, rest);
    if (bracket) at = (zp_json *)zp_json_at(at, atoi(bracket + 1));
    cr_assert(at, "no %s in %s", rest, path);
    rest = dot + 1;
  }
  *key = rest;
  return at;
}

typedef struct tampering {
  const char *path;
  enum { SET, ADD, TEXT, BOOL } how;
  int64_t value;
  const char *text;     /* of TEXT */
  const char *expected; /* part of the finding */
} tampering;

static void tamper(zp_json *json, const tampering *t) {
  const char *key;
  zp_json *holder = holder_of(json, t->path, &key);
  switch (t->how) {
  case SET: zp_json_set_int(holder, key, t->value); break;
  case ADD:
    cr_assert_neq(zp_json_get_int(holder, key, INT64_MIN), INT64_MIN, "%s is no number", t->path);
    zp_json_set_int(holder, key, zp_json_get_int(holder, key, 0) + t->value);
    break;
  case TEXT: zp_json_set_string(holder, key, t->text); break;
  case BOOL: zp_json_set_bool(holder, key, t->value); break;
  }
}

static void expect_finding(const zp_plan *plan, const tampering *t) {
  zp_json *json = zp_plan_to_json(arena, plan);
  tamper(json, t);
  zp_strings findings = findings_of(plan->spec, json);
  bool found = false;
  for (int i = 0; i < findings.len; i++) found |= strstr(findings.data[i], t->expected) != NULL;
  cr_expect(found, "%s: %d findings, the first: %s", t->path, findings.len, findings.len ? findings.data[0] : "");
  zp_json_free(json);
}

static void expect_findings(const zp_plan *plan, const tampering *t, size_t n) {
  expect_sound(plan);
  for (size_t i = 0; i < n; i++) expect_finding(plan, &t[i]);
}
#define EXPECT_FINDINGS(plan, table) expect_findings(plan, table, sizeof(table) / sizeof *(table))

/* t = 2, p = 3, d = 2, ZeRO 1, whole recomputation with shards: every region but the master copy is there. */
static zp_plan *rich_plan(void) {
  zp_spec *spec = build_spec(arena, &GPT, cpu_cluster(), BATCH);
  return plan_of(spec, choice_of(2, 3, 2, 1, 2, true, true, (int64_t[]){0, 4, 7, 9}));
}

static zp_plan *plain_plan(void) {
  zp_spec *spec = build_spec(arena, &GPT, cpu_cluster(), BATCH);
  return plan_of(spec, choice_of(1, 2, 1, 0, 2, false, false, (int64_t[]){0, 4, 9}));
}

/* ---- stages with modes of their own ---- */

enum { SPLIT = ZP_RECOMPUTE_FULL | ZP_STAGE_SPLIT };

static zp_plan *mixed_plan(zp_stage_mode first) {
  zp_stage_mode modes[] = {first, ZP_RECOMPUTE_SELECTIVE, ZP_RECOMPUTE_NONE};
  zp_spec *spec = build_spec(arena, &GPT, cpu_cluster(), BATCH);
  zp_choice c = choice_of(2, 3, 2, 1, 2, false, false, (int64_t[]){0, 4, 7, 9});
  zp_choice_set_modes(&c, modes);
  return plan_of(spec, c);
}

Test(verify, modes_of_stages_round_trip) {
  zp_plan *plan = mixed_plan(SPLIT);
  expect_sound(plan);
  zp_json *json = zp_plan_to_json(arena, plan);
  zp_choice c;
  int devices;
  const char *error = NULL;
  cr_assert(zp_plan_choice_from_json(arena, plan->spec, json, &c, &devices, &error), "%s", error);
  for (int s = 0; s < 3; s++) cr_expect_eq(zp_choice_mode(&c, s), zp_choice_mode(&plan->best.choice, s));
  cr_expect_str_neq(zp_plan_hash(arena, plan->program), zp_plan_hash(arena, rich_plan()->program));
  zp_json_free(json);
}

Test(verify, tampered_modes_are_found) {
  static const tampering table[] = {
      {"recompute", TEXT, 0, "full", "not a value that a plan can have"},
      {"stage_recompute", TEXT, 0, "full", "not a value that a plan can have"},
      {"stages[1].recompute", TEXT, 0, "none", "stage 1 recomputes \"selective\", its table says \"none\""},
      {"program.segments[1].recompute", TEXT, 0, "full", "runs `h` and recomputes \"none\", but the file has no such"},
      {"program.segments[0].recompute", TEXT, 0, "none", "runs `begin` and recomputes \"full/tensor\", but the file"},
      {"program.segments[3].saved_bytes", ADD, 256, NULL, "is rebuilt from"},
  };
  zp_plan *plan = mixed_plan(SPLIT);
  expect_sound(plan);
  for (size_t i = 0; i < sizeof table / sizeof *table; i++) expect_finding(plan, &table[i]);
}

/* ---- stages whose layers have modes of their own ---- */

/* Stage 0: `begin`, one layer that recomputes, two that keep; stage 1: one of three that recompute; stage 2: all. */
static zp_plan *layers_plan(void) {
  static zp_stage_mix mix[] = {{1, ZP_RECOMPUTE_NONE}, {1, ZP_RECOMPUTE_SELECTIVE}, {ZP_ALL_LAYERS, ZP_RECOMPUTE_FULL}};
  zp_spec *spec = build_spec(arena, &GPT, cpu_cluster(), BATCH);
  zp_choice c = choice_of(2, 3, 2, 1, 2, true, false, (int64_t[]){0, 4, 7, 9});
  zp_choice_set_mix(&c, mix);
  return plan_of(spec, c);
}

Test(verify, mixed_stages_round_trip) {
  zp_plan *plan = layers_plan();
  expect_sound(plan);
  zp_json *json = zp_plan_to_json(arena, plan);
  zp_choice c;
  int devices;
  const char *error = NULL;
  cr_assert(zp_plan_choice_from_json(arena, plan->spec, json, &c, &devices, &error), "%s", error);
  cr_assert(c.mix && !c.stage_recompute);
  for (int s = 0; s < 3; s++) {
    cr_expect_eq(c.mix[s].layers, plan->best.choice.mix[s].layers);
    cr_expect_eq(c.mix[s].rest, plan->best.choice.mix[s].rest);
  }
  zp_json_free(json);
}

/* A stage's slot is the sum of what its layers keep, and its transients the most of both modes. */
Test(verify, bytes_of_mixed_stages) {
  const zp_program *p = layers_plan()->program;
  const zp_stage *s = &p->stages[0];
  const zp_lowered *l = p->stage_lowered[0];
  const zp_segment_program *full = &l->segments[1], *none = &l->rest->segments[1];
  cr_assert(s->runs.len == 3 && s->runs.data[1].count == 1 && s->runs.data[2].count == 2);
  cr_expect_eq(s->slot_stride, l->segments[0].saved_bytes + full->saved_bytes + 2 * none->saved_bytes);
  cr_expect_lt(full->saved_bytes, none->saved_bytes);
  cr_expect_geq(s->bytes[ZP_REGION_TRANSIENT], zp_transient_bytes(full, ZP_SCHEDULE_1F1B));
}

Test(verify, tampered_mixes_are_found) {
  static const tampering table[] = {
      {"mixed_stages[0].recompute_layers", SET, 0, NULL, "not a value that a plan can have"},
      {"mixed_stages[0].stage", SET, 3, NULL, "not a value that a plan can have"},
      {"mixed_stages[0].recompute_rest", TEXT, 0, "full", "not a value that a plan can have"},
      {"mixed_stages[0].recompute_layers", SET, 2, NULL, "their place in the stage says \"full\""},
      {"mixed_stages[1].recompute_rest", TEXT, 0, "none", "their place in the stage says \"none\""},
      {"stages[0].layers[1].recompute", TEXT, 0, "none", "their place in the stage says \"full\""},
      {"stages[0].layers[2].saved", ADD, 256, NULL, "slot areas of `h` start at"},
      {"stages[0].chunks[0].slot_stride", ADD, 256, NULL, "a slot needs"},
  };
  EXPECT_FINDINGS(layers_plan(), table);
}

/* A file that says everywhere that a stage works otherwise than its procedures do. */
static void expect_lie(zp_stage_mode first, int stage, const char *segment, const char *mode, const char *expected) {
  zp_json *json = zp_plan_to_json(arena, mixed_plan(first)), *list = zp_json_array();
  for (int s = 0; s < 3; s++) {
    const zp_json *at = zp_json_at(zp_json_get(json, "stages"), s);
    zp_json_append_string(list, s == stage ? mode : zp_json_get_string(at, "recompute", ""));
  }
  zp_json_set(json, "stage_recompute", list);
  tamper(json, &(tampering){zp_format(arena, "stages[%d].recompute", stage), TEXT, 0, mode, NULL});
  tamper(json, &(tampering){zp_format(arena, "%s.recompute", segment), TEXT, 0, mode, NULL});
  if (stage == 0) tamper(json, &(tampering){"program.segments[0].recompute", TEXT, 0, mode, NULL});
  zp_strings findings = findings_of(build_spec(arena, &GPT, cpu_cluster(), BATCH), json);
  bool found = false;
  for (int i = 0; i < findings.len; i++) found |= strstr(findings.data[i], expected) != NULL;
  cr_expect(found, "%s: %d findings, the first: %s", mode, findings.len, findings.len ? findings.data[0] : "");
  zp_json_free(json);
}

Test(verify, procedures_do_what_the_mode_says) {
  expect_lie(SPLIT, 0, "program.segments[3]", "full",
             "receives 1920 elements and keeps 1920, the file says 1920 and 960");
  expect_lie(SPLIT, 1, "program.segments[2]", "full", "is rebuilt from");
  expect_lie(ZP_RECOMPUTE_FULL, 0, "program.segments[2]", "selective", "backward runs the matmul of forward again");
  expect_lie(ZP_RECOMPUTE_FULL, 0, "program.segments[2]", "full/tensor", "keeps 960, the file says 1920 and 1920");
}

/* ---- cuts inside layers ---- */

/* begin, h.0, h.1.attn | h.1.mlp, h.2, h.3, h.4.attn | h.4.mlp, h.5, h.6, end */
static zp_plan *fine_plan(void) {
  zp_spec *spec = build_spec(arena, &GPT, cpu_cluster(), BATCH);
  zp_choice c = choice_of(2, 3, 2, 1, 2, true, true, (int64_t[]){0, 4, 10, 16});
  c.fine = true;
  return plan_of(spec, c);
}

Test(verify, tampered_cuts_inside_layers_are_found) {
  static const tampering table[] = {
      {"cut", TEXT, 0, "layer", "lists `h.attn`, which the model does not have"},
      {"cut", TEXT, 0, "halves", "not a value that a plan can have"},
      {"stages[1].layers[0].segment", TEXT, 0, "h.attn",
       "lists `h.attn` from 1 where unit 4 of the model is `h.mlp` 1"},
      {"stages[1].layers[0].segment", TEXT, 0, "h", "lists `h` from 1 where unit 4 of the model is `h.mlp` 1"},
      {"stages[1].layers[0].first", ADD, 1, NULL, "lists `h.mlp` from 2 where unit 4"},
      {"stages[1].layers[0].count", SET, 2, NULL, "iterations of `h.mlp` that do not exist"},
      {"stages[1].layers[1].count", SET, 1, NULL, "lists `h.attn` from 4 where unit 7 of the model is `h.attn` 3"},
      {"stages[1].layers[2].segment", TEXT, 0, "h", "stage 1 claims 6 units and lists 7"},
      {"stages[1].layers[2].base", ADD, 64, NULL, "stand at element"},
      {"stages[1].layers[1].saved", ADD, 256, NULL, "slot areas of `h`"},
      {"stages[1].units", ADD, 1, NULL, "claims 7 units and its chunks have 6"},
      {"program.segments[3].name", TEXT, 0, "h", "stage 0 runs `h.attn` and recomputes"},
      {"program.segments[3].elements", ADD, 64, NULL, "segment `h.attn` has"},
      {"program.segments[4].carry_in_elements", ADD, 1, NULL, "segment `h.mlp` receives"},
      {"program.segments[4].saved_bytes", ADD, 256, NULL, "segment `h.mlp` is rebuilt from"},
  };
  EXPECT_FINDINGS(fine_plan(), table);
}

Test(verify, models_without_a_place_have_no_such_plans) {
  model_size side_by_side = GPT;
  side_by_side.style = STYLE_PARALLEL;
  zp_spec *spec = build_spec(arena, &side_by_side, cpu_cluster(), BATCH);
  zp_plan *plan = plan_of(spec, choice_of(1, 2, 1, 0, 2, false, false, (int64_t[]){0, 4, 9}));
  expect_finding(plan, &(tampering){"cut", TEXT, 0, "block", "no layer of the model can be cut"});
}

Test(verify, tampered_decisions_are_found) {
  static const tampering table[] = {
      {"format_version", TEXT, 0, "3.0", "format_version is \"3.0\""},
      {"feasible", BOOL, 0, NULL, "there is no plan to verify"},
      {"degrees.tensor", SET, 0, NULL, "not a value that a plan can have"},
      {"degrees.tensor", SET, (INT64_C(1) << 32) + 2, NULL, "not a value that a plan can have"},
      {"degrees.tensor", SET, 3, NULL, "elements on a rank"},
      {"degrees.pipeline", SET, 2, NULL, "pipeline is 2 but 3 stages are listed"},
      {"degrees.data", SET, 3, NULL, "micro-batches"},
      {"degrees.data", SET, 5, NULL, "batch 24 does not divide over 5 data ranks"},
      {"zero", SET, 0, NULL, "parameter elements"},
      {"zero", SET, 2, NULL, "gradient ring stands at byte -1"},
      {"zero", SET, 4, NULL, "not a value that a plan can have"},
      {"microbatch", SET, 4, NULL, "micro-batches"},
      {"microbatch", SET, INT64_MAX, NULL, "not a value that a plan can have"},
      {"microbatches", ADD, 1, NULL, "there are 6 micro-batches, the file says 7"},
      {"schedule", TEXT, 0, "zb_h1", "6 micro-batches are 18"},
      {"schedule", TEXT, 0, "zb_v", "zb_v has exactly two chunks"},
      {"schedule", TEXT, 0, "2f2b", "not a value that a plan can have"},
      {"recompute", TEXT, 0, "some", "not a value that a plan can have"},
      {"recompute", TEXT, 0, "none", "stage 0 recomputes \"none\", its table says \"full/tensor\""},
      {"recompute_shard", BOOL, 0, NULL, "stage 2 recomputes \"full\", its table says \"full/tensor\""},
      {"recompute", TEXT, 0, "per stage", "not a value that a plan can have"},
  };
  EXPECT_FINDINGS(rich_plan(), table);
}

Test(verify, tampered_stages_are_found) {
  static const tampering table[] = {
      {"stages[1].units", ADD, 1, NULL, "claims 4 units and its chunks have 3"},
      {"stages[1].chunks[0].units", ADD, 1, NULL, "claims 4 units and lists 3"},
      {"stages[1].chunks[0].units", SET, 0, NULL, "stage 1 has 0 units"},
      {"stages[1].chunks[0].first_unit", ADD, 1, NULL, "stage 1 starts at unit 5"},
      {"stages[1].layers[0].chunk", SET, 1, NULL, "stage 1 has no chunk 1"},
      {"stages[1].layers[0].stride", ADD, 64, NULL, "elements apart, the file says"},
      {"stages[1].first_unit", ADD, 1, NULL, "stage 1 starts at unit 5"},
      {"stages[1].layers[0].first", ADD, 1, NULL, "lists `h` from 4"},
      {"stages[1].layers[0].count", ADD, 1, NULL, "lists"},
      {"stages[1].layers[0].count", SET, 100, NULL, "do not exist"},
      {"stages[1].layers[0].segment", TEXT, 0, "end", "lists `end`"},
      {"stages[1].layers[0].base", ADD, 64, NULL, "stand at element"},
      {"stages[0].layers[1].base", SET, 0, NULL, "overlap"},
      {"stages[0].layers[1].saved", ADD, 256, NULL, "slot areas of `h`"},
      {"stages[0].shared.wte", SET, INT64_MAX, NULL, "parameters `wte` stand at"},
      {"stages[0].shared.wpe", SET, 0, NULL, "parameters `wte` and `wpe` overlap"},
      {"stages[1].shared.wte", SET, 0, NULL, "shared parameter that its units do not use"},
      {"stages[2].memory.weights", ADD, -256, NULL, "the memory breakdown sums to"},
      {"stages[2].memory.saved", ADD, 1024, NULL, "saved take"},
      {"stages[2].memory.context", SET, 0, NULL, "context takes"},
      {"stages[1].memory.communicators", SET, 1, NULL, "communicators take"},
  };
  EXPECT_FINDINGS(rich_plan(), table);
}

Test(verify, tampered_arenas_are_found) {
  static const tampering table[] = {
      {"stages[0].arena.bytes", ADD, -1, NULL, "its regions end at"},
      {"stages[0].arena.flat_elements", ADD, -64, NULL, "parameter elements"},
      {"stages[0].arena.shard_elements", ADD, 64, NULL, "a shard"},
      {"stages[0].arena.slots", ADD, -1, NULL, "stage 0 has 2 slots, 3 micro-batches are in flight"},
      {"stages[0].arena.slot_stride", ADD, -256, NULL, "a slot needs"},
      {"stages[0].arena.at_params", ADD, 256, NULL, "params and gradients overlap"},
      {"stages[0].arena.at_grads", SET, -1, NULL, "gradients stands at byte -1"},
      {"stages[0].arena.at_master", SET, 0, NULL, "master weights is placed but has no bytes"},
      {"stages[0].arena.at_moment1", ADD, -256, NULL, "gradients and first moment overlap"},
      {"stages[0].arena.at_average", SET, 0, NULL, "average of the weights is placed but has no bytes"},
      {"stages[0].arena.at_statistics", SET, 0, NULL, "statistics is placed but has no bytes"},
      {"stages[0].arena.at_moment2", ADD, -4, NULL, "second moment stands at byte"},
      {"stages[0].arena.at_inputs", SET, 0, NULL, "params and inputs overlap"},
      {"stages[0].arena.at_slots", ADD, 256, NULL, "overlap"},
      {"stages[1].arena.at_carry1", ADD, -256, NULL, "carry 0 and carry 1 overlap"},
      {"stages[1].arena.at_send_up", SET, -1, NULL, "message up stands at byte -1"},
      {"stages[2].arena.at_send_up", SET, 0, NULL, "message up is placed but has no bytes"},
      {"stages[1].arena.at_landing", SET, 0, NULL, "landings is placed but has no bytes"},
      {"stages[1].arena.at_grad0", SET, 256, NULL, "params and gradient 0 overlap"},
      {"stages[1].arena.at_grad1", SET, -1, NULL, "gradient 1 stands"},
      {"stages[1].arena.at_send_down", ADD, 512, NULL, "message down and transient overlap"},
      {"stages[1].arena.at_transient", ADD, 256, NULL, "its regions end at"},
      {"stages[1].arena.at_transient", SET, INT64_MAX, NULL, "its regions end at"},
      {"stages[1].arena", TEXT, 0, NULL, "parameter elements"},
  };
  EXPECT_FINDINGS(rich_plan(), table);
}

/* GPUs: the first of three stages hears of one, the second of two, folded each of them twice. */
Test(verify, places_where_messages_land) {
  static const tampering table[] = {
      {"stages[0].arena.at_landing", SET, -1, NULL, "landings stands at byte -1"},
      {"stages[1].arena.at_landing", SET, 0, NULL, "params and landings overlap"},
      {"stages[1].arena.at_landing", ADD, 256, NULL, "landings and message up overlap"},
  };
  zp_spec *spec = build_spec(arena, &GPT, gpu_cluster(1), BATCH);
  spec->cluster.trainer = ZP_TRAINER_ZPLAN;
  zp_plan *plan = plan_of(spec, choice_of(1, 3, 1, 0, 2, false, false, (int64_t[]){0, 4, 7, 9}));
  expect_sound(plan);
  EXPECT_FINDINGS(plan, table);
  zp_choice folded = choice_of(1, 2, 1, 0, 2, false, false, (int64_t[]){0, 2, 4, 7, 9});
  folded.schedule = ZP_SCHEDULE_ZB_V;
  folded.chunks = 2;
  expect_sound(plan_of(spec, folded));
}

Test(verify, tampered_programs_are_found) {
  static const tampering table[] = {
      {"program.parameters[0].name", TEXT, 0, "wse", "parameter 0 is `wte`"},
      {"program.parameters[0].local_elements", ADD, -60, NULL, "parameter `wte` has 30060 elements on a rank"},
      {"program.parameters[0].split_dim", SET, 7, NULL, "is split on dimension 7"},
      {"program.parameters[0].split_dim", SET, -1, NULL, "elements on a rank"},
      {"program.parameters[0].units", SET, 7, NULL, "elements on a rank"},
      {"program.parameters[0].units", SET, 1000, NULL, "does not fall into"},
      {"program.parameters", TEXT, 0, NULL, "the file lists 0 parameters"},
      {"program.segments[1].name", TEXT, 0, "g", "runs `h` and recomputes \"full/tensor\", but the file has no such"},
      {"program.segments[1].count", ADD, 1, NULL, "has 7 iterations"},
      {"program.segments[1].elements", ADD, 64, NULL, "parameter elements"},
      {"program.segments[1].saved_bytes", SET, 0, NULL, "keeps its input in 0 bytes"},
      {"program.segments[0].saved_bytes", ADD, 256, NULL, "a slot needs"},
      {"program.segments[1].carry_in_elements", ADD, 1, NULL, "segment `h` receives 1920 elements"},
      {"program.segments[1].carry_kept_elements", ADD, 1, NULL, "keeps 960"},
      {"program.segments[1].backward.transient_bytes", ADD, -256, NULL, "reaches beyond its region"},
      {"program.segments[1].backward.steps[0].comm_elements", ADD, 8, NULL, "communicates 960 elements"},
      {"program.segments[1].backward.steps", TEXT, 0, NULL, "`x` is not written to grad_out"},
  };
  EXPECT_FINDINGS(rich_plan(), table);
}

/* Index of the first buffer of a procedure that satisfies the conditions. */
static int find_buffer(const zp_procedure *p, zp_place place, bool view, int first_step_before) {
  for (int b = 0; b < p->buffers.len; b++) {
    const zp_buffer *x = &p->buffers.data[b];
    if (x->place == place && (x->base >= 0) == view &&
        (place != ZP_AT_TRANSIENT || (x->first_step >= 0 && x->first_step < first_step_before)))
      return b;
  }
  cr_assert_fail("no such buffer in\n%s", zp_procedure_text(arena, p));
  return -1;
}

static void expect_buffer_finding(const zp_plan *plan, const char *direction, int buffer, const char *key,
                                  int64_t change, const char *expected) {
  tampering t = {zp_format(arena, "program.segments[1].%s.buffers[%d].%s", direction, buffer, key), ADD, change, NULL,
                 expected};
  expect_finding(plan, &t);
}

Test(verify, tampered_buffers_are_found) {
  zp_plan *plan = plain_plan();
  const zp_procedure *f = &plan->program->lowered->segments[1].forward,
                     *b = &plan->program->lowered->segments[1].backward;
  int view = find_buffer(f, ZP_AT_SAVED, true, 0), saved = find_buffer(f, ZP_AT_SAVED, false, 0),
      kept = find_buffer(b, ZP_AT_SAVED, false, 0);
  int param = find_buffer(f, ZP_AT_PARAM, false, 0), transient = find_buffer(b, ZP_AT_TRANSIENT, false, 1000);
  expect_sound(plan);
  expect_buffer_finding(plan, "forward", view, "offset", 2 * 60 + 1, "reaches beyond");
  expect_buffer_finding(plan, "forward", view, "offset", -1000, "reaches beyond");
  expect_buffer_finding(plan, "forward", view, "base", 1000, "has no storage there");
  expect_buffer_finding(plan, "forward", view, "rows", 1, "reaches beyond");
  expect_buffer_finding(plan, "forward", view, "ld", -100, "steps by 80 elements");
  expect_buffer_finding(plan, "forward", saved, "offset", 256, "overlap");
  expect_buffer_finding(plan, "forward", saved, "offset", INT64_C(1) << 40, "reaches beyond its region");
  expect_buffer_finding(plan, "forward", saved, "offset", 4, "stands at byte");
  expect_buffer_finding(plan, "forward", saved, "bytes", -4, "has only");
  expect_buffer_finding(plan, "forward", saved, "cols", 1, "no sound shape");
  expect_buffer_finding(plan, "backward", kept, "offset", 256, "forward does not keep");
  expect_buffer_finding(plan, "backward", transient, "bytes", -4, "has only");
  expect_buffer_finding(plan, "backward", transient, "offset", INT64_C(1) << 40, "reaches beyond its region");
  expect_buffer_finding(plan, "forward", param, "offset", INT64_C(1) << 40, "stands at element");
  expect_buffer_finding(plan, "forward", param, "offset", -1, "stands at element");
  tampering onto_input = {zp_format(arena, "program.segments[1].forward.buffers[%d].offset", saved), SET, 0, NULL,
                          "lies on the unit's input"};
  expect_finding(plan, &onto_input);
}

/* Any two transients that live together, put onto each other. */
Test(verify, overlapping_transients_are_found) {
  zp_plan *plan = plain_plan();
  const zp_procedure *p = &plan->program->lowered->segments[1].backward;
  int tried = 0;
  for (int i = 0; i < p->buffers.len; i++)
    for (int k = 0; k < p->buffers.len; k++) {
      const zp_buffer *x = &p->buffers.data[i], *y = &p->buffers.data[k];
      bool both = i != k && x->place == ZP_AT_TRANSIENT && y->place == ZP_AT_TRANSIENT && x->base < 0 && y->base < 0;
      if (!both || x->first_step < 0 || y->first_step < 0 || x->first_step > y->last_step ||
          y->first_step > x->last_step)
        continue;
      if (tried++ >= 12) return;
      tampering t = {zp_format(arena, "program.segments[1].backward.buffers[%d].offset", i), SET, y->offset, NULL,
                     "are alive together and overlap"};
      expect_finding(plan, &t);
    }
  cr_expect_gt(tried, 3);
}

/* ---- steps ---- */

static void replace_list(zp_json *step, const char *key, const zp_ints *values) {
  zp_json *list = zp_json_set(step, key, zp_json_array());
  for (int i = 0; i < values->len; i++) zp_json_append_int(list, values->data[i]);
}

static void expect_step_finding(const zp_plan *plan, int step, const char *key, int value, const char *expected) {
  zp_json *json = zp_plan_to_json(arena, plan);
  const char *last;
  zp_json *at = holder_of(json, zp_format(arena, "program.segments[1].forward.steps[%d].x", step), &last);
  zp_ints values = {0};
  zp_push(arena, &values, value);
  replace_list(at, key, &values);
  zp_strings findings = findings_of(plan->spec, json);
  bool found = false;
  for (int i = 0; i < findings.len; i++) found |= strstr(findings.data[i], expected) != NULL;
  cr_expect(found, "step %d %s: %s", step, key, findings.len ? findings.data[0] : "no finding");
  zp_json_free(json);
}

Test(verify, tampered_steps_are_found) {
  zp_plan *plan = plain_plan();
  const zp_procedure *f = &plan->program->lowered->segments[1].forward;
  int last_out = f->steps.data[f->steps.len - 1].out.data[0], param = find_buffer(f, ZP_AT_PARAM, false, 0);
  expect_step_finding(plan, 1, "in", last_out, "before anything was written there");
  expect_step_finding(plan, 1, "in", 1000, "names buffer 1000");
  expect_step_finding(plan, 1, "out", -5, "names buffer -5");
  expect_step_finding(plan, 1, "out", param, "writes to");
  expect_step_finding(plan, f->steps.len - 1, "out", f->steps.data[0].out.data[0], "is not written to carry_out");
}

Test(verify, workspace_of_a_step_must_exist) {
  zp_plan *plan = plain_plan();
  const zp_procedure *f = &plan->program->lowered->segments[1].forward;
  int attention = 0;
  while (f->steps.data[attention].workspace < 0) attention++;
  tampering t = {zp_format(arena, "program.segments[1].forward.steps[%d].workspace", attention), SET, 1000, NULL,
                 "has buffer 1000 as workspace"};
  expect_finding(plan, &t);
}

/* ---- budget ---- */

Test(verify, budget_holds_or_is_exceeded_by_one_byte) {
  zp_spec *spec = build_spec(arena, &GPT, cpu_cluster(), BATCH);
  zp_plan *plan = plan_of(spec, choice_of(1, 1, 1, 0, 2, false, false, (int64_t[]){0, 9}));
  zp_json *json = zp_plan_to_json(arena, plan);
  spec->plans.data[0].memory_fraction = 1;
  spec->cluster.node.device.memory_bytes =
      plan->program->stages[0].arena_bytes + spec->cluster.node.device.context_bytes;
  cr_expect_eq(findings_of(spec, json).len, 0);
  spec->cluster.node.device.memory_bytes--;
  zp_strings findings = findings_of(spec, json);
  cr_assert_eq(findings.len, 1);
  cr_expect(strstr(findings.data[0], "(context and communicators included)"), "%s", findings.data[0]);
  zp_json_free(json);
}

/* ---- nothing that a file may say breaks the verifier ---- */

static void set_everywhere(zp_json *at, int64_t value, int *countdown) {
  for (int i = 0; zp_json_is_object(at) && zp_json_key(at, i); i++) {
    const char *key = zp_strdup(arena, zp_json_key(at, i));
    zp_json *child = (zp_json *)zp_json_get(at, key);
    if (zp_json_is_object(child) || zp_json_is_array(child))
      set_everywhere(child, value, countdown);
    else if (zp_json_int(child, INT64_MIN) != INT64_MIN && (*countdown)-- == 0)
      zp_json_set_int(at, key, value);
    if (*countdown < 0) return;
  }
  for (int i = 0; zp_json_is_array(at) && i < zp_json_count(at) && *countdown >= 0; i++)
    set_everywhere((zp_json *)zp_json_at(at, i), value, countdown);
}

/* Every integer of the file in turn becomes an extreme value: no overflow, no access out of bounds (sanitizers
 * watch). */
Test(verify, extreme_integers_do_no_harm) {
  static const int64_t extreme[] = {INT64_MIN, INT64_MAX, -1, 0};
  zp_plan *plan = rich_plan();
  for (int i = 0; i < 4; i++)
    for (int at = i; at < 900; at += 4) {
      zp_arena_mark mark = zp_arena_get_mark(arena);
      zp_json *json = zp_plan_to_json(arena, plan);
      int countdown = at;
      set_everywhere(json, extreme[i], &countdown);
      findings_of(plan->spec, json);
      zp_json_free(json);
      zp_arena_rewind(arena, mark);
    }
}

Test(verify, missing_parts_are_findings) {
  static const char *const keys[] = {"format_version", "feasible",  "degrees",      "zero",   "microbatch",
                                     "schedule",       "recompute", "microbatches", "stages", "program"};
  zp_plan *plan = rich_plan();
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    zp_json *json = zp_plan_to_json(arena, plan);
    zp_json_set_string(json, keys[i], NULL);
    cr_expect_gt(findings_of(plan->spec, json).len, 0, "%s", keys[i]);
    zp_json_free(json);
  }
  cr_expect_gt(findings_of(plan->spec, NULL).len, 0);
}

/* Files of a version that did not know a region: sound where the plan has none. */
Test(verify, places_that_a_file_does_not_state_are_none) {
  zp_plan *plan = rich_plan();
  for (int has = 0; has < 2; has++) {
    zp_json *json = zp_plan_to_json(arena, plan);
    const zp_json *stage = zp_json_at(zp_json_get(json, "stages"), 0);
    zp_json *place = (zp_json *)zp_json_get(stage, "arena");
    zp_json_set_string(place, has ? "at_moment1" : "at_statistics", NULL);
    zp_strings findings = findings_of(plan->spec, json);
    cr_expect_eq(findings.len > 0, has, "%s", findings.len ? findings.data[0] : "");
    if (has) cr_expect(strstr(findings.data[0], "first moment stands at byte -1"), "%s", findings.data[0]);
    zp_json_free(json);
  }
}

/* Saved values off the device that the first part of backward changes must go out again: the logits become their
 * gradient. */
Test(verify, changed_saved_values_go_out_again) {
  zp_cluster cluster = gpu_cluster(1);
  cluster.node.host_memory_bytes = INT64_C(1) << 40;
  cluster.node.host_bytes_per_s = 160e9;
  cluster.node.pcie_bytes_per_s = 10e9;
  zp_spec *spec = build_spec(arena, &GPT, cluster, BATCH);
  zp_choice c = choice_of(1, 2, 1, 0, 2, false, false, (int64_t[]){0, 4, 9});
  c.schedule = ZP_SCHEDULE_ZB_H1;
  c.home[ZP_STATE_ACTIVATIONS] = c.home[ZP_STATE_PARAMS] = (zp_home){ZP_TIER_HOST, 8};
  zp_plan *plan = plan_of(spec, c);
  expect_sound(plan);
  zp_json *json = zp_plan_to_json(arena, plan);
  const zp_json *segments = zp_json_get(zp_json_get(json, "program"), "segments");
  int changed = 0;
  for (int i = 0; i < zp_json_count(segments); i++) {
    zp_json *backward = (zp_json *)zp_json_get(zp_json_at(segments, i), "backward");
    if (!zp_json_get_bool(backward, "changes_saved", false)) continue;
    changed++;
    zp_json_set_bool(backward, "changes_saved", false);
  }
  cr_expect_eq(changed, 1);
  cr_expect_eq(findings_of(spec, json).len, 1);
  zp_json_free(json);
}
