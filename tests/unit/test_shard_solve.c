/* SPDX-License-Identifier: Apache-2.0 */
/* One segment's sharding search against oracles that know nothing of how it searches: prices counted by hand, and the
 * best of all assignments of patterns, each judged by which uses every tensor has. */
#include "../../planner/shard/shard_internal.h"
#include "planner_models.h"

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(shard_solve, .init = setup, .fini = teardown, .timeout = 60);

static const model_size GPT = {STYLE_GPT, 1024, 64, 256, 4, 8, 8, 1024, true};
enum { LAYER = 1 };

static void expect_seconds(double got, double want, const char *what) {
  cr_expect(fabs(got - want) <= 1e-9 * want, "%s: %.12g s, not %.12g", what, got, want); /* sums in another order */
}

/* Cores at given rates for each rank. Half of the peak is reached by products, a quarter by attention, half by
 * memory. */
static zp_machine machine_at(double flop_per_s, double bytes_per_s, double launch_s, int devices) {
  zp_cluster *cluster = ZP_NEW(arena, zp_cluster);
  *cluster = cpu_cluster();
  zp_device *device = &cluster->node.device;
  device->eff_matmul = 0.5, device->eff_attention = 0.25, device->eff_memory = 0.5, device->launch_s = launch_s;
  zp_machine machine = zp_machine_make(cluster, ZP_PREC_F32, devices);
  machine.flop_per_s = flop_per_s, machine.memory_bytes_per_s = bytes_per_s;
  return machine;
}

static zp_shard_problem ask(const zp_graph *graph, const zp_machine *machine, int64_t microbatch, bool sequence) {
  const int *nothing = ZP_NEW_ARRAY(arena, int, 64);
  return (zp_shard_problem){.graph = graph,
                            .machine = machine,
                            .tensor = machine->devices,
                            .microbatch = microbatch,
                            .expert = 1,
                            .sequence = sequence,
                            .fixed = nothing};
}

static zp_graph *layer_of(const model_size *size) {
  zp_graph *graph = build_model(arena, size)->segments.data[LAYER].graph;
  zp_graph_infer_parts(graph);
  return graph;
}

/* A segment that a test fills: x [B, 8, 16]. */
static builder open_test(void) {
  builder b = {.model = zp_model_new(arena, "test"), .diags = zp_diags_new(arena), .segment = -1};
  model_size size = {.S = 8, .d = 16};
  b.graph = open_segment(&b, &size, "h", 1, true);
  return b;
}

/* ---- prices ---- */

static const zp_pattern WHOLE = {{ZP_NEED_R, ZP_NEED_R, ZP_NEED_R}, ZP_FORM_R},
                        COLUMNS = {{ZP_NEED_ENTER, ZP_NEED_W_OUT}, ZP_FORM_S},
                        SPLIT = {{ZP_NEED_S, ZP_NEED_S, ZP_NEED_S}, ZP_FORM_S},
                        ROWS = {{ZP_NEED_SEQ, ZP_NEED_SEQ}, ZP_FORM_SEQ};

/* Node 0: x [2, 8, 16] times [16, 32]; 1: its result y [2, 8, 32] added to itself; 2: attention of x, 4 causal
 * heads. */
enum { PRODUCT, SUM, ATTENTION };
static zp_graph *three_nodes(void) {
  builder b = open_test();
  int x = b.graph->carry_in.data[0];
  int y = apply(&b, ZP_OP_MATMUL, x, weight(&b, "w", shape_of_rank(2, 16, 32, 0)), -1, (zp_op_attr){0}, "y");
  add2(&b, y, y);
  apply(&b, ZP_OP_ATTENTION, x, x, x, (zp_op_attr){.heads = 4, .causal = true}, "attention");
  zp_graph_infer_parts(b.graph);
  return b.graph;
}

static double price(const zp_machine *machine, int node, const zp_pattern *pattern) {
  const zp_graph *graph = three_nodes();
  zp_shard_problem problem = ask(graph, machine, 2, true);
  return zp_shard_node_seconds(&problem, &graph->nodes.data[node], pattern);
}

/* 1 MFLOP/s, memory that costs nothing. Backward is twice the forward work: 3 times in all.
 *   product    2 * 16 rows * 16 * 32 = 16,384 FLOP at half of the peak:                       32.768 ms forward
 *   attention  q k^T and p v: 2 * 2 * 16 rows * 16 columns * 8 / 2 keys = 4,096, a quarter:   16.384 ms
 *   sum        16 * 32 = 512, all of it:                                                       0.512 ms */
Test(shard_solve, seconds_of_computing) {
  zp_machine machine = machine_at(1e6, 1e18, 0, 2);
  expect_seconds(price(&machine, PRODUCT, &WHOLE), 3 * 32.768e-3, "product");
  expect_seconds(price(&machine, ATTENTION, &WHOLE), 3 * 16.384e-3, "attention");
  expect_seconds(price(&machine, SUM, &WHOLE), 3 * 0.512e-3, "sum");
  expect_seconds(price(&machine, PRODUCT, &COLUMNS), 1.5 * 32.768e-3, "half of the columns");
  expect_seconds(price(&machine, ATTENTION, &SPLIT), 1.5 * 16.384e-3, "half of the heads");
  expect_seconds(price(&machine, SUM, &SPLIT), 1.5 * 0.512e-3, "half of the columns");
  expect_seconds(price(&machine, SUM, &ROWS), 1.5 * 0.512e-3, "half of the positions");
}

/* 10 kB/s, half of which is reached, computing that costs nothing, and 0.25 s a launch.
 *   product    4 bytes * (256 of x + 512 of w + 512 of y) = 5,120 bytes:                   1.024 s forward
 *   attention  4 * (q, k, v and the result of 256 + 2 * 8 * 4 log-sum-exps) = 4,352:       0.8704 s
 *   sum        4 * 3 * 512 = 6,144:                                                        1.2288 s */
Test(shard_solve, seconds_of_moving) {
  zp_machine machine = machine_at(1e18, 1e4, 0.25, 2);
  expect_seconds(price(&machine, PRODUCT, &WHOLE), 3 * (0.25 + 1.024), "product");
  expect_seconds(price(&machine, ATTENTION, &WHOLE), 3 * (0.25 + 0.8704), "attention");
  expect_seconds(price(&machine, SUM, &WHOLE), 3 * (0.25 + 1.2288), "sum");
  expect_seconds(price(&machine, PRODUCT, &COLUMNS), 3 * (0.25 + 0.512), "half of it");
}

/* Four ranks, links of 5 GB/s with hops of 1 us, 2 us a call (COLLECTIVE_BASE_S), nothing else that costs time. A ring
 * pass of x [1, 64, 256], 65,536 bytes: 2 us + 3 hops + 3/4 * 65,536 / 5e9 s = 14.8304 us; an all-reduce is two passes
 * in one call: 27.6608 us. Attention and MLP have an all-reduce of the partial sum and one of the gradient each. Along
 * the sequence each has a scatter and its gradient's gather, 2 passes, and a gather, its gradient's scatter and the
 * gather of what backward reads once more, 3 passes: 2 * 2 + 2 * 3. */
Test(shard_solve, seconds_of_communication) {
  const zp_graph *layer = layer_of(&GPT);
  zp_machine machine = machine_at(1e30, 1e30, 0, 4);
  zp_shard_problem whole = ask(layer, &machine, 1, false), shares = ask(layer, &machine, 1, true);
  zp_shard_answer a = zp_shard_solve(arena, &whole), b = zp_shard_solve(arena, &shares);
  cr_assert(a.found && b.found);
  expect_seconds(a.cost.seconds, 4 * 27.6608e-6, "all-reduces");
  expect_seconds(b.cost.seconds, 10 * 14.8304e-6, "passes");
  cr_expect(a.cost.replicated == 0 && b.cost.replicated == 0);
}

/* ---- patterns ---- */

static bool along_sequence(const zp_pattern *pattern) {
  bool reads = false;
  for (int i = 0; i < ZP_SHARD_OPERANDS; i++)
    reads |= pattern->in[i] == ZP_NEED_SEQ || pattern->in[i] == ZP_NEED_GATHER || pattern->in[i] == ZP_NEED_SHARED;
  return reads || pattern->out == ZP_FORM_SEQ;
}

static int sequence_patterns(const zp_graph *graph, const zp_machine *machine, bool sequence) {
  zp_shard_problem problem = ask(graph, machine, 1, sequence);
  int found = 0;
  for (int n = 0; n < graph->nodes.len; n++) {
    zp_pattern pattern[ZP_SHARD_PATTERNS];
    int count = zp_shard_patterns(&problem, &graph->nodes.data[n], pattern);
    for (int i = 0; i < count; i++) found += along_sequence(&pattern[i]);
  }
  return found;
}

Test(shard_solve, nothing_is_split_along_the_sequence_unasked) {
  zp_machine machine = machine_at(1e12, 1e11, 0, 2);
  for (int style = STYLE_GPT; style <= STYLE_STREAMS; style++) {
    model_size size = GPT;
    size.style = (model_style)style;
    const zp_graph *layer = layer_of(&size);
    cr_expect_eq(sequence_patterns(layer, &machine, false), 0, "style %d", style);
    cr_expect_gt(sequence_patterns(layer, &machine, true), 0, "style %d", style);
  }
}

/* ---- all assignments ---- */

enum { MAX_TENSORS = 96, UNUSED = -3, SHARED = -2 };

typedef struct assignment {
  zp_form form[MAX_TENSORS];   /* of values */
  unsigned needs[MAX_TENSORS]; /* of values: bits 1 << zp_need of their uses */
  int lies[MAX_TENSORS];       /* of parameters: the dimension that is split, -1 none, SHARED or UNUSED */
  zp_shard_cost cost;          /* of nodes and parameters */
} assignment;

static bool only(unsigned needs, unsigned allowed) { return (needs & ~allowed) == 0; }

/* Seconds of the collectives that a value of this form needs for its uses, each made once; -1: they exclude each
 * other. */
static double conversions(const zp_shard_problem *problem, int id, zp_form form, unsigned needs) {
  const unsigned enters = 1u << ZP_NEED_ENTER, gathers = 1u << ZP_NEED_GATHER, whole = 1u << ZP_NEED_R | enters,
                 shares = 1u << ZP_NEED_SEQ | gathers;
  double reduce = zp_shard_reduce_seconds(problem, id), pass = zp_shard_pass_seconds(problem, id);
  double enter = needs & enters ? reduce : 0, gather = needs & gathers ? 3 * pass : 0;
  bool divides = problem->graph->tensors.data[id].shape.dim[1] % problem->tensor == 0;
  switch (form) {
  case ZP_FORM_NONE:
  case ZP_FORM_R: return only(needs, whole) ? enter : -1;
  case ZP_FORM_S: return only(needs, 1u << ZP_NEED_S) ? 0 : -1;
  case ZP_FORM_P:
    if (only(needs, 1u << ZP_NEED_P)) return 0;
    if (only(needs, whole)) return reduce + enter;
    return only(needs, shares) && divides ? 2 * pass + gather : -1;
  case ZP_FORM_SEQ: return only(needs, shares) ? gather : -1;
  case ZP_FORM_EXPERTS: return only(needs, 1u << ZP_NEED_EXPERTS) ? 0 : -1;
  case ZP_FORM_ENTERED: return only(needs, enters) ? 0 : -1;
  }
  return -1;
}

static bool use_value(const zp_shard_problem *problem, assignment *a, int id, zp_need need) {
  if (need == ZP_NEED_ANY) return true;
  a->needs[id] |= 1u << need;
  return conversions(problem, id, a->form[id], a->needs[id]) >= 0;
}

static bool use_param(const zp_shard_problem *problem, assignment *a, const zp_node *node, int i, zp_need need) {
  int id = node->in.data[i], lies = need == ZP_NEED_SHARED ? SHARED : zp_need_dim(problem->graph, node, i, need);
  const zp_shape *shape = &problem->graph->tensors.data[id].shape;
  if (a->lies[id] != UNUSED) return a->lies[id] == lies;
  a->lies[id] = lies;
  if (lies < 0 && shape->rank >= 2) a->cost.replicated += (double)zp_shape_elements(shape, 1);
  return true;
}

static bool assign(const zp_shard_problem *problem, assignment *a, int n, const zp_pattern *pattern) {
  const zp_node *node = &problem->graph->nodes.data[n];
  for (int i = 0; i < node->in.len; i++) {
    bool is_param = problem->graph->tensors.data[node->in.data[i]].role == ZP_ROLE_PARAM;
    if (is_param ? !use_param(problem, a, node, i, pattern->in[i])
                 : !use_value(problem, a, node->in.data[i], pattern->in[i]))
      return false;
  }
  for (int i = 0; i < node->out.len; i++) a->form[node->out.data[i]] = pattern->out;
  a->cost.seconds += zp_shard_node_seconds(problem, node, pattern);
  return true;
}

static assignment begin(const zp_shard_problem *problem) {
  assignment a = {0};
  cr_assert_leq(problem->graph->tensors.len, MAX_TENSORS);
  for (int t = 0; t < problem->graph->tensors.len; t++) {
    a.lies[t] = UNUSED;
    if (problem->graph->tensors.data[t].role == ZP_ROLE_CARRY_IN && problem->sequence) a.form[t] = ZP_FORM_SEQ;
  }
  return a;
}

/* What is carried out is read once more, as it is carried. False when it cannot be. */
static bool total(const zp_shard_problem *problem, assignment *a) {
  const zp_graph *graph = problem->graph;
  for (int i = 0; i < graph->carry_out.len; i++)
    if (!use_value(problem, a, graph->carry_out.data[i], problem->sequence ? ZP_NEED_SEQ : ZP_NEED_R)) return false;
  for (int t = 0; t < graph->tensors.len; t++)
    if (graph->tensors.data[t].role != ZP_ROLE_PARAM && a->needs[t])
      a->cost.seconds += conversions(problem, t, a->form[t], a->needs[t]);
  return true;
}

typedef struct brute {
  const zp_shard_problem *problem;
  zp_shard_cost best;
  int64_t complete; /* assignments that can be */
} brute;

static void try_all(brute *b, const assignment *before, int n) {
  if (n == b->problem->graph->nodes.len) {
    assignment a = *before;
    if (!total(b->problem, &a)) return;
    bool fewer = a.cost.replicated < b->best.replicated, equal = a.cost.replicated == b->best.replicated;
    if (b->complete++ == 0 || fewer || (equal && a.cost.seconds < b->best.seconds)) b->best = a.cost;
    return;
  }
  zp_pattern pattern[ZP_SHARD_PATTERNS];
  int count = zp_shard_patterns(b->problem, &b->problem->graph->nodes.data[n], pattern);
  for (int i = 0; i < count; i++) {
    assignment a = *before;
    if (assign(b->problem, &a, n, &pattern[i])) try_all(b, &a, n + 1);
  }
}

/* The search's cost is the least of all, and is what its own patterns cost. Returns how many assignments there were. */
static int64_t expect_best(const zp_shard_problem *problem, const char *what) {
  brute b = {.problem = problem};
  assignment none = begin(problem);
  try_all(&b, &none, 0);
  zp_shard_answer answer = zp_shard_solve(arena, problem);
  cr_assert_eq(answer.found, b.complete > 0, "%s: %lld assignments", what, (long long)b.complete);
  if (!answer.found) return 0;
  cr_expect_eq(answer.cost.replicated, b.best.replicated, "%s: %g elements replicated, not %g", what,
               answer.cost.replicated, b.best.replicated);
  expect_seconds(answer.cost.seconds, b.best.seconds, what);
  bool can_be = true;
  for (int n = 0; n < problem->graph->nodes.len; n++) can_be = can_be && assign(problem, &none, n, &answer.pattern[n]);
  cr_assert(can_be && total(problem, &none), "%s", what);
  cr_expect_eq(none.cost.replicated, answer.cost.replicated);
  expect_seconds(none.cost.seconds, answer.cost.seconds, "the answer's own patterns");
  return b.complete;
}

/* Memory and links fast and slow alongside each other: what is cheapest differs. */
static int64_t expect_best_on_machines(const zp_graph *graph, const char *what) {
  int64_t complete = 0;
  for (int tensor = 2; tensor <= 4; tensor++)
    for (int sequence = 0; sequence <= 1; sequence++)
      for (double bytes_per_s = 1e7; bytes_per_s < 1e13; bytes_per_s *= 100) {
        zp_machine machine = machine_at(1e12, bytes_per_s, 1e-6, tensor);
        zp_shard_problem problem = ask(graph, &machine, 2, sequence);
        complete += expect_best(
            &problem, zp_format(arena, "%s, %d ranks, sequence %d, %g B/s", what, tensor, sequence, bytes_per_s));
      }
  return complete;
}

Test(shard_solve, layers_against_all_assignments) {
  for (int style = STYLE_GPT; style <= STYLE_STREAMS; style++) {
    model_size size = {(model_style)style, 29, 12, 40, 2, 5, 5, 50, false};
    int64_t complete = expect_best_on_machines(layer_of(&size), zp_format(arena, "style %d", style));
    cr_expect_gt(complete, 30, "style %d: %lld assignments", style, (long long)complete);
  }
}

/* `branches` MLPs side by side, all live at once, then their sum as a tree: wide frontiers, and partial sums that are
 * added first or scattered first. */
static zp_graph *side_by_side(int branches, int64_t ff) {
  builder b = open_test();
  int part[8], x = b.graph->carry_in.data[0];
  for (int i = 0; i < branches; i++) part[i] = product(&b, product(&b, x, 16, ff, "up"), ff, 16, "down");
  for (; branches > 1; branches /= 2)
    for (int i = 0; i < branches / 2; i++) part[i] = add2(&b, part[2 * i], part[2 * i + 1]);
  zp_push(arena, &b.graph->carry_out, part[0]);
  zp_graph_infer_parts(b.graph);
  return b.graph;
}

Test(shard_solve, branches_against_all_assignments) {
  for (int64_t ff = 8; ff <= 40; ff += 8) {
    int64_t complete = expect_best_on_machines(side_by_side(8, ff), zp_format(arena, "%d columns", (int)ff));
    cr_expect_gt(complete, 1000);
  }
}

/* Each of the 40 blocks can be divided or not, and what follows does not see which: 2^40 prefixes end in a handful of
 * states. Keeping more than one prefix of a state would pass the most states that the search takes. */
Test(shard_solve, prefixes_with_equal_futures_are_one_state) {
  builder b = open_test();
  int x = b.graph->carry_in.data[0];
  for (int i = 0; i < 40; i++) x = product(&b, product(&b, x, 16, 32, "up"), 32, 16, "down");
  zp_push(arena, &b.graph->carry_out, x);
  zp_graph_infer_parts(b.graph);
  zp_machine machine = machine_at(1e30, 1e30, 0, 2);
  zp_shard_problem problem = ask(b.graph, &machine, 1, false);
  problem.fixed = ZP_NEW_ARRAY(arena, int, 80);
  zp_shard_answer answer = zp_shard_solve(arena, &problem);
  cr_assert(answer.found);
  cr_expect_eq(answer.cost.replicated, 0);
  /* A block all-reduces the sum and one gradient of x [1, 8, 16], 512 bytes: 2 us + 2 hops of 1 us + 2 * 1/2 * 512 /
   * 5e9 s = 4.1024 us. */
  expect_seconds(answer.cost.seconds, 80 * 4.1024e-6, "all-reduces of 40 blocks");
}
