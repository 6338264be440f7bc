/* SPDX-License-Identifier: Apache-2.0 */
/* Capacity cards (examples/capacity): what is known to fit must fit, and one step beyond must not. */
#include <criterion/criterion.h>
#include <zplan/plan.h>
#include "../support/turn.h"
#include "../support/user_spec.h"

enum { SETTINGS = 6 };
#define BERT_LARGE "model.layers=24", "model.d=1024", "model.heads=16"
typedef struct card {
  const char *file;
  int gpus;
  const char *set[SETTINGS]; /* up to NULL */
  bool fits;
} card;

static const card cards[] = {
    {"dp_1_4b", 16, {NULL}, true},
    {"dp_1_4b", 16, {"model.layers=60"}, false},
    {"zero1_6b", 128, {"model.layers=21"}, true},
    {"zero1_6b", 128, {"model.layers=21", "zero=0"}, false},
    {"zero1_6b", 128, {NULL}, false},
    {"zero2_13b", 128, {"model.layers=36"}, true},
    {"zero2_13b", 128, {"model.layers=36", "zero=1"}, false},
    {"zero2_13b", 128, {NULL}, false},
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
    {"bert_sparse", 1, {BERT_LARGE, "model.S=129024"}, true},
    {"bert_sparse", 1, {BERT_LARGE}, false},
    {"bert_sparse", 1, {"model.fixed=true", "model.S=65536"}, true},
    {"bert_sparse", 1, {BERT_LARGE, "model.fixed=true", "model.S=65536"}, true},
};

/* The plan of a card, as the command makes it. Settings end with NULL. */
static const zp_plan *plan_of(zp_arena *arena, const char *file, int gpus, const char *const *set) {
  const char *path = zp_format(arena, ZPLAN_SOURCE_DIR "/examples/capacity/%s.dz", file);
  const zp_spec *spec = user_spec_on(arena, path, gpus, set, SETTINGS);
  cr_assert(spec, "%s does not load", file);
  /* the first plan that fits will do */
  return zp_search(arena, spec, gpus, &(zp_search_options){.gap = 0.5});
}

static void check_card(const card *c) {
  zp_arena *arena = zp_arena_new("card");
  const zp_plan *plan = plan_of(arena, c->file, c->gpus, c->set);
  const char *text = "";
  for (int i = 0; c->set[i]; i++) text = zp_format(arena, "%s %s", text, c->set[i]);
  cr_expect_eq(plan->feasible, c->fits, "%s on %d GPUs%s: %s", c->file, c->gpus, text,
               plan->feasible ? "fits" : "does not fit");
  zp_arena_free(arena);
}

/* ---- the announcement of sparse attention ---- */

/* The largest arena of a plan of bert_sparse.dz on one V100, alongside other settings than its own; 0: nothing fits. */
static double bert_bytes(const char *model, int64_t length, const char *sparse, const char *recompute) {
  zp_arena *arena = zp_arena_new("bert");
  const char *positions = zp_format(arena, "model.S=%lld", (long long)length);
  const char *set[] = {
      positions,      sparse,           recompute, strcmp(model, "large") == 0 ? "model.layers=24" : NULL,
      "model.d=1024", "model.heads=16", NULL};
  const zp_plan *plan = plan_of(arena, "bert_sparse", 1, set);
  double bytes = plan->feasible ? (double)plan->best.estimate.peak_bytes : 0;
  zp_arena_free(arena);
  return bytes;
}

/* DeepSpeed, September 2020: 10 times longer samples of BERT-Base and 16 times longer ones of BERT-Large on one V100 of
 * 32 GB, with sparse attention and recomputation against dense attention that keeps its scores and no recomputation. It
 * keeps 5 bytes a score, head and layer (arXiv 2205.05198, section 4.1) alongside all that our dense plan has. */
Test(capacity, samples_of_bert_as_announced, .timeout = 120) {
  static const struct {
    const char *model;
    double heads, layers;
    int64_t stored, times; /* the longest sample with stored scores, in multiples of 1,024 */
  } all[] = {{"base", 12, 12, 5120, 10}, {"large", 16, 24, 3072, 16}};
  for (int i = 0; i < 2; i++) {
    for (int64_t length = all[i].stored; length <= all[i].stored + 1024; length += 1024) {
      double scores = 5.0 * all[i].heads * all[i].layers * (double)(length * length);
      double bytes = bert_bytes(all[i].model, length, "model.sparse=false", "recompute=\"none\"");
      cr_expect_gt(bytes, 0);
      cr_expect_eq(bytes + scores <= 0.94 * 32e9, length == all[i].stored, "%s, %lld positions: %g bytes, %g of scores",
                   all[i].model, (long long)length, bytes, scores);
    }
    int64_t longer = all[i].stored * all[i].times;
    double sparse = bert_bytes(all[i].model, longer, "model.sparse=true", "recompute=\"full\"");
    double dense = bert_bytes(all[i].model, longer, "model.sparse=false", "recompute=\"full\"");
    cr_expect_gt(sparse, 0, "%s with %lld positions", all[i].model, (long long)longer);
    cr_expect_eq(sparse, dense, "%s: sparse attention needs %g bytes, dense %g", all[i].model, sparse, dense);
  }
}

Test(capacity, cards, .timeout = 1200) {
  for (size_t i = 0; i < sizeof cards / sizeof *cards; i++)
    if (has_turn((int)i, 3)) check_card(&cards[i]);
}
