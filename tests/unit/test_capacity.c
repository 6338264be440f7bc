/* Capacity cards (examples/capacity): what is known to fit must fit, and one step beyond must not. */
#include <criterion/criterion.h>
#include <zplan/plan.h>
#include <zplan/sema.h>

typedef struct card {
  const char *file;
  int gpus;
  const char *set[2]; /* NULL: nothing */
  bool fits;
} card;

static const card cards[] = {
    {"dp_1_4b", 16, {NULL}, true},
    {"dp_1_4b", 16, {"model.layers=60"}, false},
    {"zero1_6b", 128, {NULL}, true},
    {"zero1_6b", 128, {"zero=0"}, false},
    {"zero1_6b", 128, {"model.layers=39"}, false},
    {"zero2_13b", 128, {NULL}, true},
    {"zero2_13b", 128, {"zero=1"}, false},
    {"zero2_13b", 128, {"model.layers=53"}, false},
    {"t_nlg_17b", 256, {NULL}, true},
    {"t_nlg_17b", 256, {"zero=0"}, false},
    {"offload_13b", 1, {NULL}, true},
    {"offload_13b", 1, {"offload[optimizer]=\"none\""}, false},
    {"offload_13b", 1, {"model.layers=53"}, false},
    {"offload_40b", 1, {NULL}, true},
    {"offload_40b", 1, {"model.layers=125"}, false},
    {"zero1_100b", 400, {NULL}, true},
    {"zero1_100b", 400, {"pipeline=1", "zero=0"}, false},
    {"3d_180b", 800, {NULL}, true},
    {"3d_180b", 800, {"tensor=1", "pipeline=1"}, false},
    {"3d_1t", 800, {NULL}, true},
    {"3d_1t", 800, {"recompute_shard=\"none\""}, false},
    {"offload_1t", 256, {NULL}, true},
    {"offload_1t", 128, {NULL}, false},
    {"offload_2t", 512, {NULL}, true},
    {"offload_2t", 256, {NULL}, false},
    {"bert_sparse", 1, {NULL}, true},
    {"bert_sparse", 1, {"model.S=262144"}, false},
    {"bert_sparse", 1, {"recompute=\"none\""}, false},
};

static void check_card(const card *c) {
  zp_arena *arena = zp_arena_new("card");
  zp_diags *diags = zp_diags_new(arena);
  zp_load_options options = {.gpus = c->gpus, .set = c->set, .library_dir = ZPLAN_SOURCE_DIR "/frontend/library"};
  while (options.n_set < 2 && c->set[options.n_set]) options.n_set++;
  const char *path = zp_format(arena, ZPLAN_SOURCE_DIR "/examples/capacity/%s.dz", c->file);
  const zp_spec *spec = zp_load(arena, diags, path, NULL, 0, &options);
  if (!spec) zp_diags_print(diags, stderr, false);
  cr_assert(spec, "%s does not load", c->file);
  /* the first plan that fits will do */
  const zp_plan *plan = zp_search(arena, spec, c->gpus, &(zp_search_options){.gap = 0.5});
  const char *set = c->set[0] ? c->set[0] : "as written";
  cr_expect_eq(plan->feasible, c->fits, "%s on %d GPUs, %s: %s", c->file, c->gpus, set,
               plan->feasible ? "fits" : "does not fit");
  zp_arena_free(arena);
}

Test(capacity, cards, .timeout = 1200) {
  for (size_t i = 0; i < sizeof cards / sizeof *cards; i++) check_card(&cards[i]);
}
