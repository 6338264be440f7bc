/* SPDX-License-Identifier: Apache-2.0 */
/* The proof of sharding: the local graphs of all tensor ranks run side by side in f64, with the collectives made
 * between them, and give what the whole graph gives: carried tensors, loss, gradients of both, gradients of parameters.
 * Every segment by itself; borders and parameters are cut as the local graph says. Padding must stay zero. */
#include <math.h>
#include <zplan/philox.h>
#include "../oracle/interpret.h"
#include "axes_model.h"
#include "planner_models.h"

enum { BATCH = 2, MAX_RANKS = 4 };

static zp_arena *arena;
static void setup(void) { arena = zp_arena_new("test"); }
static void teardown(void) { zp_arena_free(arena); }
TestSuite(shard_numeric, .init = setup, .fini = teardown, .timeout = 1200);

/* ---- one rank's part of a whole array ---- */

typedef struct cut {
  zp_shape whole, local;
  int dim; /* -1: not cut */
  zp_parts parts;
} cut;

static cut cut_of(const zp_tensor *local, zp_parts parts) {
  cut c = {.whole = local->shape, .local = local->shape, .dim = local->split_dim, .parts = parts};
  if (c.dim >= 0) c.whole.dim[c.dim] = local->full_dim;
  return c;
}

/* Carried tensors and their gradients: shares of the positions. */
static cut carry_cut(const zp_tensor *local) { return cut_of(local, (zp_parts){1, local->full_dim}); }
static cut param_cut(const zp_tensor *local) {
  return cut_of(local, local->split_dim >= 0 ? local->parts[local->split_dim] : (zp_parts){1, 1});
}

/* Index in the whole array of element i of the rank's part; -1: padding. */
static int64_t whole_index(const cut *c, int rank, int64_t i) {
  if (c->dim < 0) return i;
  int64_t inner = 1, local_n = c->local.dim[c->dim], whole_n = c->whole.dim[c->dim];
  for (int d = c->dim + 1; d < c->local.rank; d++) inner *= c->local.dim[d];
  int64_t before = i / (inner * local_n), at = i / inner % local_n, after = i % inner;
  int64_t slice = local_n / c->parts.outer, whole_slice = whole_n / c->parts.outer;
  int64_t in_slice = rank * slice + at % slice;
  if (in_slice >= whole_slice) return -1;
  return (before * whole_n + at / slice * whole_slice + in_slice) * inner + after;
}

static void take(const cut *c, int rank, const double *whole, double *local) {
  for (int64_t i = 0; i < zp_shape_elements(&c->local, BATCH); i++) {
    int64_t w = whole_index(c, rank, i);
    local[i] = w < 0 ? 0 : whole[w];
  }
}

static void expect_near(double got, double want, const char *what, const char *name, int64_t i) {
  cr_assert(fabs(got - want) <= 1e-12 * fmax(1, fabs(want)), "%s of %s, element %lld: %.17g, not %.17g", what, name,
            (long long)i, got, want);
}

static void expect_part(const cut *c, int rank, const double *whole, const double *local, const char *what,
                        const char *name) {
  for (int64_t i = 0; i < zp_shape_elements(&c->local, BATCH); i++) {
    int64_t w = whole_index(c, rank, i);
    expect_near(local[i], w < 0 ? 0 : whole[w], what, name, i);
  }
}

/* ---- values ---- */

static double value(int which, int64_t i) {
  return 2 * zp_philox_uniform(7, 0, 0, (uint16_t)which, 0, (uint64_t)i) - 1;
}

static void fill_whole(zp_interpreter *in, int64_t vocabulary) {
  for (int t = 0; t < in->graph->tensors.len; t++) {
    const zp_tensor *tensor = &in->graph->tensors.data[t];
    for (int64_t i = 0; i < zp_shape_elements(&tensor->shape, BATCH); i++) {
      double v = value(100 * (int)tensor->role + tensor->index, i);
      if (tensor->role == ZP_ROLE_INPUT)
        in->value[t][i] = tensor->element == ZP_ELEM_I32 ? floor((v + 1) / 2 * (double)vocabulary) : v;
      if (tensor->role == ZP_ROLE_INPUT && tensor->shape.rank == 1) /* lengths, and labels that are less */
        in->value[t][i] = strcmp(tensor->name, "lengths") == 0 ? (double)(vocabulary - i % 2)
                                                               : floor((v + 1) / 2 * (double)(vocabulary - 1));
      if (tensor->role == ZP_ROLE_PARAM) in->value[t][i] = tensor->shape.rank == 1 ? 0.7 + 0.5 * v : 0.4 * v;
      if (tensor->role == ZP_ROLE_CARRY_IN || tensor->role == ZP_ROLE_GRAD_IN) in->value[t][i] = v;
    }
  }
}

static void set_counters(zp_interpreter *in, int rank) {
  in->rank = rank;
  in->seed = 5, in->step = 3, in->first_sample = 40, in->instance = 2;
  in->loss_scale = 0.25;
}

/* ---- ranks side by side ---- */

typedef struct group {
  const zp_graph *graph; /* the same on all ranks */
  int ranks;
  zp_interpreter *in[MAX_RANKS];
} group;

static const zp_shape *shape_of(const group *g, int tensor) { return &g->graph->tensors.data[tensor].shape; }

static int input_tensor(const zp_graph *graph, int index) {
  for (int t = 0; t < graph->tensors.len; t++)
    if (graph->tensors.data[t].role == ZP_ROLE_INPUT && graph->tensors.data[t].index == index) return t;
  cr_assert_fail("no input %d", index);
  return -1;
}

static void fill_ranks(group *g, const zp_interpreter *whole) {
  for (int r = 0; r < g->ranks; r++)
    for (int t = 0; t < g->graph->tensors.len; t++) {
      const zp_tensor *local = &g->graph->tensors.data[t];
      double *to = g->in[r]->value[t];
      cut carried = carry_cut(local), parameter = param_cut(local);
      switch (local->role) {
      case ZP_ROLE_INPUT: take(&carried, r, whole->value[input_tensor(whole->graph, local->index)], to); break;
      case ZP_ROLE_CARRY_IN: take(&carried, r, whole->value[whole->graph->carry_in.data[local->index]], to); break;
      case ZP_ROLE_GRAD_IN: take(&carried, r, whole->value[whole->graph->grad_in.data[local->index]], to); break;
      case ZP_ROLE_PARAM:
        for (int i = 0; i < whole->graph->params.len; i++)
          if (whole->graph->params.data[i].param == local->index)
            take(&parameter, r, whole->value[whole->graph->params.data[i].tensor], to);
        break;
      case ZP_ROLE_VALUE: break;
      }
    }
}

static double sum_over_ranks(const group *g, int tensor, int64_t i) {
  double sum = 0;
  for (int r = 0; r < g->ranks; r++) sum += g->in[r]->value[tensor][i];
  return sum;
}

/* Element i of the gathered array, from the rank that has its position. */
static double gathered(const group *g, int share, int64_t i) {
  const zp_shape *shape = shape_of(g, share);
  int64_t row = shape->dim[2], sample = row * shape->dim[1];
  int64_t b = i / (sample * g->ranks), rest = i % (sample * g->ranks);
  return g->in[rest / sample]->value[share][b * sample + rest % sample];
}

static void communicate(group *g, const zp_node *node) {
  int from = node->in.data[0], to = node->out.data[0];
  int64_t n = zp_shape_elements(shape_of(g, to), BATCH), n_from = zp_shape_elements(shape_of(g, from), BATCH);
  cut share = carry_cut(&g->graph->tensors.data[to]);
  for (int r = 0; r < g->ranks; r++)
    for (int64_t i = 0; i < n; i++) {
      double *y = &g->in[r]->value[to][i];
      switch (node->op) {
      case ZP_OP_ALL_REDUCE:
      case ZP_OP_GRAD_ALL_REDUCE: *y = sum_over_ranks(g, from, i); break;
      case ZP_OP_REDUCE_SCATTER_SEQ: *y = sum_over_ranks(g, from, whole_index(&share, r, i)); break;
      case ZP_OP_ALL_GATHER_SEQ: *y = gathered(g, from, i); break;
      case ZP_OP_GATHER_STATS: *y = g->in[i / n_from]->value[from][i % n_from]; break;
      default: *y = g->in[r]->value[from][i]; break; /* ENTER */
      }
    }
}

static void run_ranks(group *g) {
  for (int n = 0; n < g->graph->nodes.len; n++) {
    const zp_node *node = &g->graph->nodes.data[n];
    if (zp_op_get_class(node->op) == ZP_CLASS_COMM)
      communicate(g, node);
    else
      for (int r = 0; r < g->ranks; r++) zp_interpret_node(g->in[r], node);
  }
}

/* ---- comparison ---- */

static void compare_lists(const group *g, const zp_interpreter *whole, const zp_ints *local_list,
                          const zp_ints *whole_list, const char *what) {
  for (int i = 0; i < local_list->len; i++)
    for (int r = 0; r < g->ranks; r++) {
      int t = local_list->data[i];
      cut c = carry_cut(&g->graph->tensors.data[t]);
      expect_part(&c, r, whole->value[whole_list->data[i]], g->in[r]->value[t], what, g->graph->tensors.data[t].name);
    }
}

/* Parameters stand in the same order in both graphs. */
static void compare_param(const group *g, const zp_interpreter *whole, const zp_sharding *sharding, int use) {
  const zp_tensor *local = &g->graph->tensors.data[g->graph->params.data[use].tensor];
  cut c = param_cut(local);
  bool partial = sharding->param[g->graph->params.data[use].param].grad_partial;
  cr_assert(!partial || (c.dim < 0 && sharding->tensor > 1));
  for (int r = 0; r < g->ranks && !partial; r++)
    expect_part(&c, r, whole->param_grad[use], g->in[r]->param_grad[use], "gradient", local->name);
  for (int64_t i = 0; partial && i < zp_shape_elements(&c.local, 1); i++) {
    double sum = 0;
    for (int r = 0; r < g->ranks; r++) sum += g->in[r]->param_grad[use][i];
    expect_near(sum, whole->param_grad[use][i], "summed gradient", local->name, i);
  }
}

static void check_segment(const zp_model *model, const zp_sharding *sharding, const zp_graph *logical,
                          const zp_graph *local) {
  zp_graph *reference = zp_differentiate(zp_fuse(zp_graph_localize_trivial(logical)));
  zp_interpreter *whole = zp_interpreter_new(arena, reference, BATCH);
  fill_whole(whole, model->vocabulary);
  set_counters(whole, 0);
  zp_interpret(whole, 0, reference->nodes.len);

  group g = {.graph = zp_differentiate(zp_fuse(local)), .ranks = sharding->tensor};
  const char *wrong = zp_graph_check(arena, g.graph);
  cr_assert_null(wrong, "%s", wrong);
  for (int r = 0; r < g.ranks; r++) {
    g.in[r] = zp_interpreter_new(arena, g.graph, BATCH);
    set_counters(g.in[r], r);
  }
  fill_ranks(&g, whole);
  run_ranks(&g);
  compare_lists(&g, whole, &g.graph->carry_out, &reference->carry_out, "output");
  compare_lists(&g, whole, &g.graph->grad_out, &reference->grad_out, "gradient");
  for (int r = 0; r < g.ranks; r++) expect_near(g.in[r]->loss, whole->loss, "loss", "rank", r);
  cr_assert_eq(g.graph->params.len, reference->params.len);
  for (int i = 0; i < reference->params.len; i++) compare_param(&g, whole, sharding, i);
}

/* Parts of layers, cut out of the layer's sharded graph. */
static void check_pieces(const zp_model *model, const zp_sharding *sharding) {
  const zp_pieces *pieces = zp_pieces_divided(arena, model);
  for (int i = pieces ? pieces->n_whole : 0; pieces && i < pieces->n; i++) {
    const zp_graph *local = zp_piece_localize(sharding->local[pieces->piece[i].whole], pieces, i, sharding->sequence);
    cr_assert(local, "%s", pieces->piece[i].segment.name);
    check_segment(model, sharding, pieces->piece[i].segment.graph, local);
  }
}

/* Does no product of the model read this parameter? */
static bool only_looked_up(const zp_sharding *sharding, int n_segments, const zp_tensor *tensor) {
  if (tensor->role != ZP_ROLE_PARAM) return false;
  for (int s = 0; s < n_segments; s++)
    for (int n = 0; n < sharding->local[s]->nodes.len; n++) {
      const zp_node *node = &sharding->local[s]->nodes.data[n];
      if (zp_op_get_class(node->op) != ZP_CLASS_MATMUL && zp_op_get_class(node->op) != ZP_CLASS_GROUPED) continue;
      if (sharding->local[s]->tensors.data[node->in.data[1]].index == tensor->index) return false;
    }
  return tensor->shape.rank > 1;
}

/* Widths that tensor cores can load: no share of a dimension that is split or padded is another. */
static void expect_padded(const zp_sharding *sharding, int n_segments) {
  int padded = 0;
  for (int s = 0; s < n_segments; s++)
    for (int t = 0; t < sharding->local[s]->tensors.len; t++) {
      const zp_tensor *tensor = &sharding->local[s]->tensors.data[t];
      if (tensor->split_dim < 0 || tensor->parts[tensor->split_dim].units != tensor->full_dim) continue;
      bool columns = tensor->split_dim + 2 >= tensor->shape.rank && tensor->element == ZP_ELEM_FLOAT;
      columns &= !only_looked_up(sharding, n_segments, tensor);
      cr_expect(!columns || sharding->sequence || tensor->shape.dim[tensor->split_dim] % 8 == 0, "%s has %lld columns",
                tensor->name, (long long)tensor->shape.dim[tensor->split_dim]);
      padded += tensor->shape.dim[tensor->split_dim] * sharding->tensor > tensor->full_dim;
    }
  cr_expect_gt(padded, 0);
}

static void check_degree(zp_model *model, const zp_machine *machine, int tensor, bool sequence, bool padded) {
  const char *reason = "none given";
  zp_sharding *sharding = zp_shard(arena, model, machine, tensor, 1, sequence, &reason);
  cr_assert(sharding, "tensor %d, sequence %d: %s", tensor, sequence, reason);
  if (padded) expect_padded(sharding, model->segments.len);
  for (int i = 0; i < model->segments.len; i++)
    check_segment(model, sharding, model->segments.data[i].graph, sharding->local[i]);
  check_pieces(model, sharding);
}

/* Every segment, on 2, 3 and 4 ranks, without and with sequence sharding; on GPUs, whose shares are padded, on one
 * rank, too. */
static void check_model(model_size size) {
  zp_cluster cpus = cpu_cluster(), gpus = gpu_cluster(1);
  gpus.trainer = ZP_TRAINER_ZPLAN;
  zp_model *model = build_model(arena, &size);
  for (int tensor = 1; tensor <= MAX_RANKS; tensor++)
    for (int sequence = 0; sequence <= (tensor > 1); sequence++) {
      zp_machine cpu = zp_machine_make(&cpus, ZP_PREC_F64, tensor), gpu = zp_machine_make(&gpus, ZP_PREC_MIXED_BF16, 4);
      if (tensor > 1) check_degree(model, &cpu, tensor, sequence, false);
      check_degree(model, &gpu, tensor, sequence, true);
    }
}

/* Sizes that 2, 3 and 4 do not all divide: 29 words, 5 heads or 3 kv heads, 50 columns; but 12 positions. */
Test(shard_numeric, gpt) { check_model((model_size){STYLE_GPT, 29, 12, 40, 2, 5, 5, 50, true}); }
Test(shard_numeric, gpt_with_attention_options) {
  check_model((model_size){STYLE_BENT, 29, 12, 40, 2, 5, 5, 50, true});
}
Test(shard_numeric, llama_with_norms_of_heads) {
  check_model((model_size){STYLE_QK_NORM, 29, 12, 48, 2, 6, 3, 50, false});
}
Test(shard_numeric, llama_with_heads_of_unit_length) {
  check_model((model_size){STYLE_QK_UNIT, 29, 12, 48, 2, 6, 3, 50, false});
}
Test(shard_numeric, gpt_with_dropout) { check_model((model_size){STYLE_DROPOUT, 29, 12, 40, 2, 5, 5, 50, false}); }
Test(shard_numeric, llama) { check_model((model_size){STYLE_LLAMA, 29, 12, 48, 2, 6, 3, 50, false}); }
Test(shard_numeric, attention_and_mlp_side_by_side) {
  check_model((model_size){STYLE_PARALLEL, 31, 12, 40, 2, 5, 5, 50, true});
}

/* Biases added to what is looked up, and to what is carried into the end: two of their own, or one that both share. */
static zp_model *two_biases(bool tied, bool norm) {
  builder b = {.model = zp_model_new(arena, "biases"), .diags = zp_diags_new(arena), .segment = -1};
  model_size size = {.V = 29, .S = 12, .d = 40};
  zp_shape ids = shape_of_rank(2, ZP_DIM_B, size.S, 0), row = shape_of_rank(1, size.d, 0, 0);
  int tokens = zp_model_add_input(b.model, "tokens", ids, ZP_NO_SPAN);
  int labels = zp_model_add_input(b.model, "labels", ids, ZP_NO_SPAN);
  int first = add_param(&b, "first", row), second = tied ? first : add_param(&b, "second", row);
  b.graph = open_segment(&b, &size, "begin", 1, false);
  int x = apply(&b, ZP_OP_EMBEDDING, zp_graph_input(b.graph, b.model, tokens),
                weight(&b, "table", shape_of_rank(2, size.V, size.d, 0)), -1, (zp_op_attr){0}, "embed");
  x = add2(&b, x, zp_graph_param(b.graph, b.model, first));
  x = product(&b, x, size.d, 50, "up");
  x = product(&b, norm ? layer_norm(&b, x, 50) : x, 50, size.d, "down");
  zp_push(arena, &b.graph->carry_out, x);
  b.graph = open_segment(&b, &size, "end", 1, true);
  x = add2(&b, b.graph->carry_in.data[0], zp_graph_param(b.graph, b.model, second));
  x = product(&b, x, size.d, size.V, "head");
  zp_graph_add_loss(
      b.graph, apply(&b, ZP_OP_CROSS_ENTROPY, x, zp_graph_input(b.graph, b.model, labels), -1, (zp_op_attr){0}, "loss"),
      1);
  b.model->vocabulary = size.V;
  return b.model;
}

/* Along the sequence the carried tensor is a share, and its bias has a part of the gradient on every rank. The one in
 * front of the first product is alone cheaper alongside whole rows, two all-reduces for five passes: its gradient is
 * then complete. One gradient cannot be both, so a bias that they share has parts in both segments. */
Test(shard_numeric, tied_vectors_have_one_form) {
  zp_cluster cluster = cpu_cluster();
  for (int tied = 0; tied <= 1; tied++) {
    zp_model *model = two_biases(tied, false);
    zp_machine machine = zp_machine_make(&cluster, ZP_PREC_F64, 2);
    const char *reason = "none given";
    zp_sharding *s = zp_shard(arena, model, &machine, 2, 1, true, &reason);
    cr_assert(s, "%s", reason);
    cr_expect_eq(s->param[0].grad_partial, tied, "in front of the first product");
    if (!tied) cr_expect(s->param[1].grad_partial, "after the carried share");
    for (int i = 0; i < model->segments.len; i++) check_segment(model, s, model->segments.data[i].graph, s->local[i]);
  }
}

/* A mean over more columns would be another: on GPUs, too, what is normalised keeps its width, and the words do not. */
Test(shard_numeric, normalised_columns_are_not_padded) {
  zp_cluster cluster = gpu_cluster(1);
  cluster.trainer = ZP_TRAINER_ZPLAN;
  zp_machine machine = zp_machine_make(&cluster, ZP_PREC_MIXED_BF16, 1);
  zp_model *model = two_biases(false, true);
  const char *reason = "none given";
  zp_sharding *s = zp_shard(arena, model, &machine, 1, 1, false, &reason);
  cr_assert(s, "%s", reason);
  for (int i = 0; i < s->local[0]->tensors.len; i++) cr_expect_lt(s->local[0]->tensors.data[i].split_dim, 0);
  int64_t words = 0;
  for (int i = 0; i < s->local[1]->tensors.len; i++)
    if (s->local[1]->tensors.data[i].full_dim == 29) words = zp_shape_cols(&s->local[1]->tensors.data[i].shape);
  cr_expect_eq(words, 32);
  for (int i = 0; i < model->segments.len; i++) check_segment(model, s, model->segments.data[i].graph, s->local[i]);
}

/* Images after a class token: 12 positions, of which the head reads the first one, the mean of all, and that of some
 * when they are joined with others. */
static zp_model *vision(void) {
  enum { PATCHES = 11, PIXELS = 18, CLASSES = 29 };
  builder b = {.model = zp_model_new(arena, "vision"), .diags = zp_diags_new(arena), .segment = -1};
  model_size size = {.V = CLASSES, .S = PATCHES + 1, .d = 40};
  zp_shape patches = shape_of_rank(3, ZP_DIM_B, PATCHES, PIXELS), token = shape_of_rank(2, 1, size.d, 0);
  int images = zp_model_add_array(b.model, "images", ZP_ELEM_FLOAT, patches, ZP_NO_SPAN);
  int labels = zp_model_add_input(b.model, "labels", shape_of_rank(1, ZP_DIM_B, 0, 0), ZP_NO_SPAN);
  b.graph = open_segment(&b, &size, "begin", 1, false);
  int x = product(&b, zp_graph_input(b.graph, b.model, images), PIXELS, size.d, "patch");
  x = apply(&b, ZP_OP_CONCAT, weight(&b, "class_token", token), x, -1, (zp_op_attr){0}, "joined");
  x = add2(&b, x, weight(&b, "position", shape_of_rank(2, size.S, size.d, 0)));
  zp_push(arena, &b.graph->carry_out, x);
  b.graph = open_segment(&b, &size, "end", 1, true);
  x = layer_norm(&b, b.graph->carry_in.data[0], size.d);
  x = add2(&b, product(&b, product(&b, x, size.d, 50, "up"), 50, size.d, "down"), x);
  int y = apply(&b, ZP_OP_SLICE, x, -1, -1, (zp_op_attr){0}, "class");
  int tail = weight(&b, "tail", shape_of_rank(2, size.S, size.d, 0));
  int joined = apply(&b, ZP_OP_GELU, x, -1, -1, (zp_op_attr){0}, "gelu");
  joined = apply(&b, ZP_OP_CONCAT, joined, tail, -1, (zp_op_attr){0}, "two");
  joined = apply(&b, ZP_OP_CONCAT, x, joined, -1, (zp_op_attr){0}, "three");
  int some = apply(&b, ZP_OP_SLICE, joined, -1, -1, (zp_op_attr){.begin = 4, .count = 25}, "some");
  y = add2(&b, add2(&b, y, apply(&b, ZP_OP_MEAN, x, -1, -1, (zp_op_attr){0}, "all")),
           apply(&b, ZP_OP_MEAN, some, -1, -1, (zp_op_attr){0}, "some_mean"));
  y = product(&b, y, size.d, CLASSES, "head");
  zp_graph_add_loss(
      b.graph, apply(&b, ZP_OP_CROSS_ENTROPY, y, zp_graph_input(b.graph, b.model, labels), -1, (zp_op_attr){0}, "loss"),
      1);
  b.model->vocabulary = CLASSES;
  return b.model;
}

Test(shard_numeric, images_and_labels_of_samples) {
  zp_cluster cpus = cpu_cluster(), gpus = gpu_cluster(1);
  gpus.trainer = ZP_TRAINER_ZPLAN;
  for (int tensor = 1; tensor <= MAX_RANKS; tensor++)
    for (int sequence = 0; sequence <= (tensor > 1); sequence++) {
      zp_machine cpu = zp_machine_make(&cpus, ZP_PREC_F64, tensor), gpu = zp_machine_make(&gpus, ZP_PREC_MIXED_BF16, 4);
      check_degree(vision(), &cpu, tensor, sequence, false);
      check_degree(vision(), &gpu, tensor, sequence, false);
    }
}

/* BERT's span: two columns as logits over the positions, and a third loss with other classes. */
static zp_model *spans(void) {
  builder b = {.model = zp_model_new(arena, "spans"), .diags = zp_diags_new(arena), .segment = -1};
  model_size size = {.V = 12, .S = 12, .d = 40};
  static const char *const names[] = {"start", "end", "possible", "lengths"};
  int in[4], losses[3];
  for (int i = 0; i < 4; i++)
    in[i] = zp_model_add_array(b.model, names[i], ZP_ELEM_I32, shape_of_rank(1, ZP_DIM_B, 0, 0), ZP_NO_SPAN);
  int tokens = zp_model_add_input(b.model, "tokens", shape_of_rank(2, ZP_DIM_B, size.S, 0), ZP_NO_SPAN);
  b.graph = open_segment(&b, &size, "begin", 1, false);
  int table = weight(&b, "table", shape_of_rank(2, size.V, size.d, 0));
  int x = apply(&b, ZP_OP_EMBEDDING, zp_graph_input(b.graph, b.model, tokens), table, -1, (zp_op_attr){0}, "words");
  zp_push(arena, &b.graph->carry_out, x);
  b.graph = open_segment(&b, &size, "end", 1, true);
  x = layer_norm(&b, b.graph->carry_in.data[0], size.d);
  x = add2(&b, product(&b, product(&b, x, size.d, 50, "up"), 50, size.d, "down"), x);
  int span = product(&b, x, size.d, 2, "span"), lengths = zp_graph_input(b.graph, b.model, in[3]);
  for (int i = 0; i < 2; i++) {
    int column = apply(&b, ZP_OP_COLUMN, span, -1, -1, (zp_op_attr){.begin = i}, "column");
    losses[i] = apply(&b, ZP_OP_CROSS_ENTROPY, column, zp_graph_input(b.graph, b.model, in[i]), lengths,
                      (zp_op_attr){0}, names[i]);
  }
  int head = product(&b, apply(&b, ZP_OP_SLICE, x, -1, -1, (zp_op_attr){0}, "class"), size.d, 29, "head");
  losses[2] =
      apply(&b, ZP_OP_CROSS_ENTROPY, head, zp_graph_input(b.graph, b.model, in[2]), -1, (zp_op_attr){0}, "loss");
  for (int i = 0; i < 3; i++) zp_graph_add_loss(b.graph, losses[i], 0.5 + i);
  b.model->vocabulary = size.S;
  return b.model;
}

Test(shard_numeric, spans_and_several_losses) {
  zp_cluster cpus = cpu_cluster(), gpus = gpu_cluster(1);
  gpus.trainer = ZP_TRAINER_ZPLAN;
  for (int tensor = 1; tensor <= MAX_RANKS; tensor++)
    for (int sequence = 0; sequence <= (tensor > 1); sequence++) {
      zp_machine cpu = zp_machine_make(&cpus, ZP_PREC_F64, tensor), gpu = zp_machine_make(&gpus, ZP_PREC_MIXED_BF16, 4);
      check_degree(spans(), &cpu, tensor, sequence, false);
      check_degree(spans(), &gpu, tensor, sequence, false);
    }
}

/* 3 ranks do not divide the four heads, so they have no answer along the sequence. */
Test(shard_numeric, axes_and_columns_of_heads) {
  zp_cluster cpus = cpu_cluster(), gpus = gpu_cluster(1);
  gpus.trainer = ZP_TRAINER_ZPLAN;
  for (int tensor = 1; tensor <= MAX_RANKS; tensor++)
    for (int sequence = 0; sequence <= (tensor % 2 == 0); sequence++) {
      zp_machine cpu = zp_machine_make(&cpus, ZP_PREC_F64, tensor), gpu = zp_machine_make(&gpus, ZP_PREC_MIXED_BF16, 4);
      check_degree(axes_model(arena), &cpu, tensor, sequence, false);
      check_degree(axes_model(arena), &gpu, tensor, sequence, false);
    }
}

/* Numbers behind a convolution, and behind one of what flows between segments: with the sequence a rank makes its own
 * windows of them. */
static zp_model *convolved(void) {
  enum { S = 12, BANDS = 5, D = 16 };
  builder b = {.model = zp_model_new(arena, "convolved"), .diags = zp_diags_new(arena), .segment = -1};
  model_size size = {.S = 24, .d = D};
  zp_model *m = b.model;
  int numbers = zp_model_add_array(m, "numbers", ZP_ELEM_FLOAT, shape_of_rank(3, ZP_DIM_B, 24, BANDS), ZP_NO_SPAN);
  int target = zp_model_add_array(m, "target", ZP_ELEM_FLOAT, shape_of_rank(3, ZP_DIM_B, S, 3), ZP_NO_SPAN);
  zp_windows halves = {.size = {1, 24}, .kernel = {1, 3}, .stride = {1, 2}, .padding = {0, 1}};
  zp_windows square = {.size = {3, 4}, .kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}};
  b.graph = open_segment(&b, &size, "begin", 1, false);
  int x =
      apply(&b, ZP_OP_UNFOLD, zp_graph_input(b.graph, m, numbers), -1, -1, (zp_op_attr){.windows = &halves}, "windows");
  zp_push(arena, &b.graph->carry_out, product(&b, x, 3 * BANDS, D, "conv1d"));
  size.S = S;
  b.graph = open_segment(&b, &size, "end", 1, true);
  x = layer_norm(&b, b.graph->carry_in.data[0], D);
  int seen = apply(&b, ZP_OP_UNFOLD, x, -1, -1, (zp_op_attr){.windows = &square}, "seen");
  seen = product(&b, apply(&b, ZP_OP_GELU, product(&b, seen, 9 * D, 20, "conv2d"), -1, -1, (zp_op_attr){0}, "gelu"), 20,
                 D, "down");
  x = layer_norm(&b, add2(&b, x, seen), D);
  zp_graph_add_loss(b.graph,
                    apply(&b, ZP_OP_SQUARED_ERROR, product(&b, x, D, 3, "head"), zp_graph_input(b.graph, m, target), -1,
                          (zp_op_attr){0}, "loss"),
                    1);
  return m;
}

Test(shard_numeric, convolutions) {
  zp_cluster cpus = cpu_cluster();
  for (int tensor = 1; tensor <= MAX_RANKS; tensor++)
    for (int sequence = 0; sequence <= (tensor > 1 && 12 % tensor == 0); sequence++) {
      zp_machine cpu = zp_machine_make(&cpus, ZP_PREC_F64, tensor);
      check_degree(convolved(), &cpu, tensor, sequence, false);
    }
}

/* Experts that the ranks divide go to them whole; where padding would be more work, every expert is cut along its
 * hidden columns instead: both ways, and both together with the sequence. */
static void check_experts(int64_t experts, int64_t ff, int tensor, bool whole) {
  model_size size = {STYLE_EXPERTS, 29, 12, 40, 2, 5, experts, ff, false};
  zp_cluster cluster = cpu_cluster();
  zp_model *model = build_model(arena, &size);
  for (int sequence = 0; sequence <= 1; sequence++) {
    zp_machine machine = zp_machine_make(&cluster, ZP_PREC_F64, tensor);
    const char *reason = "none given";
    zp_sharding *sharding = zp_shard(arena, model, &machine, tensor, 1, sequence, &reason);
    cr_assert(sharding, "tensor %d, sequence %d: %s", tensor, sequence, reason);
    for (int p = 0; p < model->params.len; p++) {
      if (strcmp(model->params.data[p].name, "experts.w1") != 0) continue;
      int want = whole ? 0 : 1; /* [experts, ff, d] */
      cr_expect_eq(sharding->param[p].split_dim, want, "%d experts on %d ranks: dimension %d", (int)experts, tensor,
                   sharding->param[p].split_dim);
    }
    for (int i = 0; i < model->segments.len; i++)
      check_segment(model, sharding, model->segments.data[i].graph, sharding->local[i]);
    check_pieces(model, sharding);
  }
}

Test(shard_numeric, whole_experts) {
  check_experts(4, 50, 2, true);
  check_experts(4, 50, 4, true);
  check_experts(6, 50, 3, true);
}
Test(shard_numeric, cut_experts) {
  check_experts(4, 50, 3, false);
  check_experts(2, 50, 4, false);
}
/* Nothing else can be divided: the last rank has padding, or nothing but padding. */
Test(shard_numeric, padded_experts) {
  for (int tensor = 2; tensor <= MAX_RANKS; tensor++) check_experts(5, 1, tensor, true);
}
Test(shard_numeric, dropless) { check_model((model_size){STYLE_DROPLESS, 29, 12, 40, 2, 5, 5, 50, false}); }
Test(shard_numeric, experts) { check_model((model_size){STYLE_EXPERTS, 29, 12, 40, 2, 5, 5, 50, true}); }

/* The oracle itself must notice: a rank with another share of the positions draws other dropout numbers. */
Test(shard_numeric, dropout_counts_from_the_ranks_share) {
  model_size size = {STYLE_DROPOUT, 29, 12, 40, 2, 5, 5, 50, false};
  zp_cluster cluster = cpu_cluster();
  zp_machine machine = zp_machine_make(&cluster, ZP_PREC_F64, 2);
  const char *reason = NULL;
  zp_sharding *s = zp_shard(arena, build_model(arena, &size), &machine, 2, 1, true, &reason);
  zp_graph *graph = zp_fuse(s->local[1]);
  int rows = 0, columns = 0;
  for (int n = 0; n < graph->nodes.len; n++)
    for (int i = 0; graph->nodes.data[n].fused && i < graph->nodes.data[n].fused->ops.len; i++) {
      if (graph->nodes.data[n].fused->ops.data[i].op != ZP_OP_DROPOUT) continue;
      rows += graph->nodes.data[n].fused->split_rows;
      columns += graph->nodes.data[n].fused->split;
    }
  cr_expect_eq(rows, 2);
  cr_expect_eq(columns, 1);
}
