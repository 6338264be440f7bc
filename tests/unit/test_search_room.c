/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts of models whose units differ much: a unit that has room on later stages only ends no search. */
#include <math.h>
#include "../../planner/search/bounds/cut.h"
#include "../../planner/search/bounds/bound.h"
#include "../../planner/search/bounds/fit.h"
#include "../../planner/search/space/procedures.h"
#include "../../planner/search/progress.h"
#include "small_layers.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(search_room, .init = setup, .fini = teardown);

static const model_size SIZE = {STYLE_GPT, 64, 16, 16, 3, 2, 2, 64, false};

static int width;

/* What a layer keeps for backward grows with `width`. */
static int wide_layer(builder *b, const model_size *size, int x) {
  return product(b, product(b, x, size->d, width, "up"), width, size->d, "down");
}

/* A table, light layers, wide ones, light ones, a head. */
static zp_model *uneven_model(int light, int wide, int behind) {
  static const int widths[] = {16, 0, 16};
  const int counts[] = {light, wide, behind};
  builder b = {.model = zp_model_new(arena, "uneven"), .diags = zp_diags_new(arena), .segment = -1};
  zp_shape ids = shape_of_rank(2, ZP_DIM_B, SIZE.S, 0), table = shape_of_rank(2, SIZE.V, SIZE.d, 0);
  int tokens = zp_model_add_input(b.model, "tokens", ids, ZP_NO_SPAN);
  int labels = zp_model_add_input(b.model, "labels", ids, ZP_NO_SPAN), wide_width = width;
  b.graph = open_segment(&b, &SIZE, "begin", 1, false);
  int x = apply(&b, ZP_OP_EMBEDDING, zp_graph_input(b.graph, b.model, tokens), weight(&b, "wte", table), -1,
                (zp_op_attr){0}, "wte");
  zp_push(arena, &b.graph->carry_out, x);
  for (int i = 0; i < 3; i++) {
    static const char *const name[] = {"light", "wide", "behind"};
    b.graph = open_segment(&b, &SIZE, name[i], counts[i], true);
    b.segment = i + 1;
    width = widths[i] ? widths[i] : wide_width;
    zp_push(arena, &b.graph->carry_out, wide_layer(&b, &SIZE, b.graph->carry_in.data[0]));
  }
  width = wide_width;
  b.graph = open_segment(&b, &SIZE, "end", 1, true);
  b.segment = -1;
  x = product(&b, b.graph->carry_in.data[0], SIZE.d, SIZE.V, "head");
  zp_graph_add_loss(
      b.graph, apply(&b, ZP_OP_CROSS_ENTROPY, x, zp_graph_input(b.graph, b.model, labels), -1, (zp_op_attr){0}, "loss"),
      1);
  b.model->vocabulary = SIZE.V;
  return b.model;
}

typedef struct trial {
  zp_search_progress progress;
  zp_point point;
  zp_limits limits;
} trial;

static bool takes(const trial *t, int stage, int64_t first, int64_t end) {
  return zp_stage_variant(t->progress.s, &t->point, stage, &(zp_units){first, end - first}, &t->limits);
}

/* Is there any cut? Every one is tried. */
static bool any_cut(const trial *t, int stage, int64_t first) {
  int64_t units = zp_point_units(t->progress.s, &t->point);
  int later = t->point.choice.pipeline - 1 - stage;
  if (later == 0) return takes(t, stage, first, units);
  for (int64_t end = first + 1; end <= units - later; end++)
    if (takes(t, stage, first, end) && any_cut(t, stage + 1, end)) return true;
  return false;
}

static void check_cut(const trial *t, const int64_t *cut) {
  for (int k = 0; k < t->point.choice.pipeline; k++)
    cr_assert(cut[k] < cut[k + 1] && takes(t, k, cut[k], cut[k + 1]), "stage %d", k);
  cr_assert(cut[0] == 0 && cut[t->point.choice.pipeline] == zp_point_units(t->progress.s, &t->point));
}

/* Limits alongside scratch memory from too little to enough, filled from either side: as many cuts are found as there
 * are. */
static void check_limits(trial *t, int *possible, int *impossible) {
  const int64_t scratch = zp_products_bytes(t->progress.in->spec);
  for (int64_t limit = 20000; limit < 4000000; limit += limit / 12)
    for (int side = ZP_FILL_FRONT; side <= ZP_FILL_BACK; side++) {
      int64_t cut[8];
      t->progress.s->limit_bytes = scratch + limit;
      t->limits = zp_search_limits(t->progress.s);
      bool any = any_cut(t, 0, 0), found = zp_cut_balanced_within(t->progress.s, &t->point, HUGE_VAL, side, cut);
      cr_assert_eq(found, any, "%d stages, %d bytes, %s: %s", t->point.choice.pipeline, (int)limit,
                   side == ZP_FILL_BACK ? "from the back" : "from the front", any ? "a cut was lost" : "no cut fits");
      cr_assert_eq(zp_cut_fits(t->progress.s, &t->point, &t->limits, cut), any);
      if (found) check_cut(t, cut);
      ++*(any ? possible : impossible);
    }
}

Test(search_room, every_cut_that_fits_is_found) {
  int possible = 0, impossible = 0;
  for (int stages = 2; stages <= 5; stages++)
    for (width = 64; width <= 1024; width *= 4)
      for (int wide = 1; wide <= 3; wide++) {
        trial t = {0};
        zp_choice c = {.tensor = 1, .pipeline = stages, .data = 1, .microbatch = 1};
        zp_spec *spec = build_spec(arena, &SIZE, gpu_cluster(stages), 8);
        spec->model = uneven_model(2 + wide % 2, wide, 2);
        zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, stages);
        zp_search_start(&t.progress, spec, &machine, NULL);
        cr_assert(zp_search_point(t.progress.s, &c, zp_set_of_mode(ZP_RECOMPUTE_NONE), &t.point));
        check_limits(&t, &possible, &impossible);
        zp_search_end(&t.progress);
      }
  cr_expect(possible > 300 && impossible > 300, "%d and %d", possible, impossible);
}

/* What is remembered of communicators is that of the choice that is asked for, in any order of asking. */
Test(search_room, communicators_are_of_the_choice) {
  zp_search_progress progress = {0};
  zp_spec *spec = build_spec(arena, &SIZE, gpu_cluster(16), 8);
  spec->cluster.node.device.has_nccl = true;
  spec->cluster.trainer = ZP_TRAINER_ZPLAN;
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, 16);
  zp_search_start(&progress, spec, &machine, NULL);
  int64_t before = 0;
  int changes = 0;
  for (int bits = 0; bits < 64; bits++) {
    zp_choice c = {.tensor = 4, .pipeline = 2, .data = 2, .microbatch = 1};
    int gray = bits ^ bits >> 1; /* from one to the next a single field changes */
    c.sequence = gray & 1;
    c.order = gray & 2 ? ZP_ORDER_TPD : ZP_ORDER_TDP;
    c.schedule = gray & 4 ? ZP_SCHEDULE_ZB_V : ZP_SCHEDULE_1F1B;
    c.tensor = gray & 8 ? 2 : 4;
    c.expert = gray & 16 ? 2 : 1;
    int ties = gray >> 5 & 1;
    int64_t bytes = zp_choice_communicator_bytes(progress.s, &c, ties);
    cr_assert_eq(bytes, zp_communicators_of(&spec->cluster, &c, ties).total_bytes, "choice %d", gray);
    changes += bytes != before;
    before = bytes;
  }
  cr_expect_gt(changes, 24);
  zp_search_end(&progress);
}
