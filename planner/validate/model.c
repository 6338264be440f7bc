/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a measured run, built op by op: a GPT with learned positions, biases and tied embedding, or a LLaMA with
 * RMS norms, rotary positions and a gated MLP; a GPT with rotary positions or ALiBi has no position table.
 *
 * Dropout is left out: it adds no matrix product, and its masks are part of the software profile. */
#include <math.h>
#include <stdlib.h>
#include <zplan/buf.h>
#include "validate_internal.h"

/* GPT-2's 50,257 tokens, padded to a multiple of 1,024 as in Megatron: what papers mean when they print none. */
enum { DEFAULT_VOCABULARY = 51200, USUAL_HEAD_SIZE = 128 };
/* Tables are padded to a multiple of this and the tensor degree (Megatron-LM --make-vocab-size-divisible-by). */
enum { VOCABULARY_MULTIPLE = 128 };

/* ---- what the row leaves open ---- */

/* Heads of another run of the same shape, else the legal count whose head size is nearest to 128. */
static int64_t guess_heads(const zp_measured_table *table, const zp_measured *run) {
  for (int i = 0; i < table->runs.len; i++) {
    const zp_measured *other = &table->runs.data[i];
    if (other->shape.heads && other->shape.hidden == run->shape.hidden && other->shape.layers == run->shape.layers)
      return other->shape.heads;
  }
  int64_t best = 0, tensor = run->tensor > 0 ? run->tensor : 1;
  for (int64_t heads = tensor; heads <= run->shape.hidden; heads += tensor) {
    if (run->shape.hidden % heads) continue;
    int64_t off = llabs(heads * USUAL_HEAD_SIZE - run->shape.hidden);
    if (!best || off < llabs(best * USUAL_HEAD_SIZE - run->shape.hidden)) best = heads;
  }
  return best ? best : 1;
}

static void assume(zp_buf *words, const char *what, int64_t value) {
  zp_buf_printf(words, "%s%s %lld", words->len ? ", " : "", what, (long long)value);
}

/* A claim that so many parameters fit, without a shape: layers of the usual proportions, hidden about 100 times their
 * number, 12 hidden^2 parameters each. Only claims: a speed needs the real shape. */
static void guess_shape(zp_buf *words, zp_measured *run) {
  enum { HIDDEN_PER_LAYER = 100, PARAMETERS_PER_SQUARE = 12, SEQUENCE = 1024 };
  if (run->fits < 0 || run->parameters <= 0 || run->shape.layers || run->shape.hidden) return;
  double hidden = cbrt(run->parameters * HIDDEN_PER_LAYER / PARAMETERS_PER_SQUARE);
  assume(words, "hidden", run->shape.hidden = USUAL_HEAD_SIZE * (int64_t)fmax(1, round(hidden / USUAL_HEAD_SIZE)));
  double square = PARAMETERS_PER_SQUARE * (double)run->shape.hidden * (double)run->shape.hidden;
  assume(words, "layers", run->shape.layers = (int64_t)fmax(1, round(run->parameters / square)));
  if (!run->seq) assume(words, "sequence", run->seq = SEQUENCE);
}

/* ZeRO 3 and offload claims leave out that there is no other parallelism; a claim needs no batch. */
static void guess_plan(zp_buf *words, zp_measured *run) {
  if (!run->tensor && run->zero == 3) assume(words, "tensor", run->tensor = 1);
  if (!run->pipeline && run->zero == 3) assume(words, "pipeline", run->pipeline = 1);
  int64_t ranks = (int64_t)run->tensor * run->pipeline;
  if (!run->data && ranks > 0 && ranks <= run->gpus) run->data = (int)(run->gpus / ranks);
  if (run->batch || run->fits < 0 || !run->data) return;
  if (!run->microbatch) run->microbatch = 1;
  assume(words, "batch", run->batch = run->microbatch * run->data);
}

static double attention_weights(const zp_measured *run) {
  double h = (double)run->shape.hidden, n = (double)run->shape.heads,
         head = run->shape.head > 0 ? (double)run->shape.head : h / n;
  if (run->shape.kv_rank <= 0) return 2 * h * head * (n + (double)run->shape.kv_heads);
  double rotary = (double)run->shape.rotary_head,
         value = run->shape.value_head > 0 ? (double)run->shape.value_head : head - rotary;
  double q = (double)run->shape.q_rank, kv = (double)run->shape.kv_rank;
  return h * q + q * n * head + h * (kv + rotary) + kv * n * (head - rotary + value) + n * value * h;
}

/* Weights in the matrix products that a token passes in all layers. */
static double all_weights(const zp_measured *run) {
  double h = (double)run->shape.hidden, matrices = run->shape.gated ? 3 : 2, layers = (double)run->shape.layers;
  double dense = run->shape.experts > 0 ? fmin(layers, (double)run->shape.dense_layers) : layers,
         sparse = layers - dense;
  double experts = (double)run->shape.expert_ffn * (double)(run->shape.top_k + run->shape.shared_experts);
  return layers * attention_weights(run) + dense * matrices * h * (double)run->shape.ffn +
         sparse * h * (matrices * experts + (double)run->shape.experts);
}

/* Weights in the products of a layer of a dense model. */
static double layer_weights(const zp_measured *run) { return all_weights(run) / (double)run->shape.layers; }

/* Parameters of the shape with so many KV heads as a multiple of those that the row says, with one table of tokens or
 * two, whichever is nearer. */
static double share_of_printed(const zp_measured *run, int64_t kv_heads) {
  zp_measured with = *run;
  with.shape.kv_heads = kv_heads;
  double layers = layer_weights(&with) * (double)run->shape.layers,
         table = (double)run->shape.vocab * (double)run->shape.hidden;
  double positions = run->shape.rotary ? 0 : (double)run->seq * (double)run->shape.hidden;
  double one = (layers + table + positions) / run->parameters, two = one + table / run->parameters;
  return fabs(one - 1) < fabs(two - 1) ? one : two;
}

/* Labels are rounded, and say 1.7 B of a model with 1.5 alongside its second table; LLaMA-like shapes are known
 * exactly. */
#define NEAR_LABEL 0.15
#define NEAR_SHAPE 0.08

/* The number of KV heads whose parameters are nearest to the printed ones. */
static int64_t nearest_kv_heads(const zp_measured *run) {
  int64_t best = run->shape.heads;
  for (int64_t k = 1; k <= run->shape.heads; k++)
    if (run->shape.heads % k == 0 && fabs(share_of_printed(run, k) - 1) < fabs(share_of_printed(run, best) - 1))
      best = k;
  return best;
}

/* As many as heads, unless the printed number of parameters says that they are fewer. */
static void guess_kv_heads(zp_buf *words, zp_measured *run) {
  run->shape.kv_heads = run->shape.heads;
  if (!run->shape.gated || !run->shape.heads || !run->shape.hidden) return;
  bool far = run->parameters > 0 && run->shape.layers && fabs(share_of_printed(run, run->shape.heads) - 1) > NEAR_SHAPE;
  if (far) run->shape.kv_heads = nearest_kv_heads(run);
  assume(words, "KV heads", run->shape.kv_heads);
}

const char *zp_shape_contradiction(zp_arena *arena, const zp_measured *run) {
  if (run->shape.heads && !run->shape.head && run->shape.hidden % run->shape.heads != 0)
    return zp_format(arena, "heads is %lld, which does not divide hidden, %lld", (long long)run->shape.heads,
                     (long long)run->shape.hidden);
  if (run->shape.kv_heads && run->shape.heads && run->shape.heads % run->shape.kv_heads != 0)
    return zp_format(arena, "%lld KV heads, in kv_heads or the notes, do not divide the %lld of heads",
                     (long long)run->shape.kv_heads, (long long)run->shape.heads);
  if (!run->shape.layers || !run->shape.hidden || !run->shape.heads || !run->shape.ffn || !run->shape.vocab ||
      run->parameters <= 0)
    return NULL;
  if (run->notes && strstr(run->notes, "the shape gives")) return NULL; /* which explains it */
  if (run->shape.experts > 0 || run->shape.kv_rank > 0) return NULL;    /* whose parameters the graph counts */
  int64_t kv_heads = run->shape.kv_heads ? run->shape.kv_heads
                     : run->shape.gated  ? nearest_kv_heads(run)
                                         : run->shape.heads;
  double share = share_of_printed(run, kv_heads);
  if (fabs(share - 1) <= (run->shape.gated ? NEAR_SHAPE : NEAR_LABEL)) return NULL;
  return zp_format(arena, "params_b is %g, and layers, hidden, heads, ffn and vocab with %lld KV heads make %.4g",
                   run->parameters / 1e9, (long long)kv_heads, share * run->parameters / 1e9);
}

zp_measured zp_run_complete(zp_arena *arena, const zp_measured_table *table, const zp_measured *run,
                            const char **assumed) {
  zp_measured full = *run;
  zp_buf words = zp_buf_new(arena);
  guess_shape(&words, &full);
  guess_plan(&words, &full);
  if (!full.shape.heads && full.shape.hidden) assume(&words, "heads", full.shape.heads = guess_heads(table, &full));
  if (!full.shape.ffn) assume(&words, "ffn", full.shape.ffn = 4 * full.shape.hidden);
  if (!full.shape.vocab) assume(&words, "vocabulary", full.shape.vocab = DEFAULT_VOCABULARY);
  int64_t multiple = VOCABULARY_MULTIPLE * (full.tensor > 0 ? full.tensor : 1);
  full.shape.vocab = (full.shape.vocab + multiple - 1) / multiple * multiple;
  if (full.shape.kv_rank && !full.shape.value_head) full.shape.value_head = full.shape.head - full.shape.rotary_head;
  if (full.shape.kv_rank && !full.shape.kv_heads) full.shape.kv_heads = full.shape.heads;
  if (!full.shape.kv_heads) guess_kv_heads(&words, &full);
  if (!full.intra_bytes_per_s) assume(&words, "GB/s in a node", (int64_t)((full.intra_bytes_per_s = 300e9) / 1e9));
  *assumed = words.len ? words.data : NULL;
  return full;
}

/* GPT's head is its embedding table; small LLaMA-like models tie them too: the printed number of parameters tells. */
static bool ties_head(const zp_measured *run) {
  double layer = layer_weights(run) * (double)run->shape.layers,
         table = (double)run->shape.vocab * (double)run->shape.hidden;
  if (!run->shape.gated) return true;
  return run->parameters > 0 && fabs(layer + table - run->parameters) < fabs(layer + 2 * table - run->parameters);
}

/* nanotron's MFU counts 6 FLOP for every parameter that some stage holds: also an embedding table of its own, or a tied
 * one's copy on another stage. In the Ultra-Scale Playbook's chart of its runs (benchmarks_interactive.html; opened)
 * MFU and tokens a second agree for 0.94 to 1.05 such tables of small models on several stages, and none on one. */
static bool counts_lookups(const zp_measured *run) {
  return run->source && strstr(run->source, "nanotron") && (!ties_head(run) || run->pipeline > 1);
}

/* Matrix products of one sequence, forward: 2 FLOP per weight that it passes and token, 4 s^2 h a layer for full
 * attention. */
double zp_run_flop(const zp_measured *run, bool hardware) {
  double l = (double)run->shape.layers, h = (double)run->shape.hidden, s = (double)run->seq;
  double layer =
      2 * s * layer_weights(run) + 4 * s * s * (run->shape.head > 0 ? (double)(run->shape.heads * run->shape.head) : h);
  double head = 2 * s * h * (double)run->shape.vocab * (counts_lookups(run) ? 2 : 1);
  bool full = hardware && run->recompute && strcmp(run->recompute, "full") == 0;
  return (double)run->batch * ((full ? 4 : 3) * l * layer + 3 * head);
}

/* ---- the graph ---- */

typedef struct builder {
  const zp_measured *run;
  zp_model *model;
  zp_diags *diags;
  zp_graph *graph;
  int segment; /* of new parameters; -1 outside repeats */
} builder;

static int add_param(builder *b, const char *name, zp_shape shape) {
  zp_param param = {
      .name = name, .shape = shape, .init = ZP_INIT_NORMAL, .init_b = 0.02, .segment = b->segment, .span = ZP_NO_SPAN};
  return zp_model_add_param(b->model, param);
}

static int weight(builder *b, const char *name, zp_shape shape) {
  return zp_graph_param(b->graph, b->model, add_param(b, name, shape));
}

static zp_shape matrix(int64_t rows, int64_t cols) { return (zp_shape){.rank = 2, .dim = {rows, cols}}; }
static zp_shape row(int64_t cols) { return (zp_shape){.rank = 1, .dim = {cols}}; }

/* -1 where an operand was refused, as the op itself would be. */
static int apply(builder *b, zp_op op, const int *in, int n_in, zp_op_attr attr, const char *name) {
  for (int i = 0; i < n_in; i++)
    if (in[i] < 0) return -1;
  return zp_graph_apply(b->graph, b->diags, op, in, n_in, attr, name, ZP_NO_SPAN);
}

static int add(builder *b, int x, int y) { return apply(b, ZP_OP_ADD, (int[]){x, y}, 2, (zp_op_attr){0}, "add"); }

static int product(builder *b, int x, int64_t in, int64_t out, const char *name) {
  return apply(b, ZP_OP_MATMUL, (int[]){x, weight(b, name, matrix(out, in))}, 2, (zp_op_attr){.trans = true}, name);
}

static int linear(builder *b, int x, int64_t in, int64_t out, const char *name) {
  return add(b, product(b, x, in, out, name), weight(b, "bias", row(out)));
}

static int norm(builder *b, int x) {
  int scale = weight(b, "norm.weight", row(b->run->shape.hidden));
  if (b->run->shape.gated) return apply(b, ZP_OP_RMS_NORM, (int[]){x, scale}, 2, (zp_op_attr){.eps = 1e-5}, "norm");
  int bias = weight(b, "norm.bias", row(b->run->shape.hidden));
  return apply(b, ZP_OP_LAYER_NORM, (int[]){x, scale, bias}, 3, (zp_op_attr){.eps = 1e-5}, "norm");
}

static int attention(builder *b, int q, int k, int v) {
  zp_op_attr attr = {.heads = b->run->shape.heads, .kv_heads = b->run->shape.kv_heads, .causal = true};
  return apply(b, ZP_OP_ATTENTION, (int[]){q, k, v}, 3, attr, "attention");
}

static int gpt_layer(builder *b, int x) {
  int64_t h = b->run->shape.hidden, f = b->run->shape.ffn;
  int qkv = linear(b, norm(b, x), h, 3 * h, "qkv");
  int q = apply(b, ZP_OP_SPLIT, &qkv, 1, (zp_op_attr){.parts = 3}, "split");
  if (q < 0) return -1;
  x = add(b, x, linear(b, attention(b, q, q + 1, q + 2), h, h, "proj"));
  int up = linear(b, norm(b, x), h, f, "up");
  int active = apply(b, ZP_OP_GELU, &up, 1, (zp_op_attr){.tanh_form = true}, "gelu");
  return add(b, x, linear(b, active, f, h, "down"));
}

static int rope(builder *b, int x, int64_t heads) {
  return apply(b, ZP_OP_ROPE, &x, 1, (zp_op_attr){.heads = heads, .theta = 10000}, "rope");
}

static int llama_layer(builder *b, int x) {
  const zp_measured *run = b->run;
  int64_t h = run->shape.hidden, f = run->shape.ffn, kv = h / run->shape.heads * run->shape.kv_heads;
  int y = norm(b, x);
  int q = rope(b, product(b, y, h, h, "wq"), run->shape.heads),
      k = rope(b, product(b, y, h, kv, "wk"), run->shape.kv_heads);
  x = add(b, x, product(b, attention(b, q, k, product(b, y, h, kv, "wv")), h, h, "wo"));
  y = norm(b, x);
  int gate = product(b, y, h, f, "gate");
  gate = apply(b, ZP_OP_SILU, &gate, 1, (zp_op_attr){0}, "silu");
  int up = apply(b, ZP_OP_MUL, (int[]){gate, product(b, y, h, f, "up")}, 2, (zp_op_attr){0}, "gated");
  return add(b, x, product(b, up, f, h, "down"));
}

static void open_segment(builder *b, const char *name, int64_t count, bool carries, bool repeat) {
  zp_shape carry = {.rank = 3, .dim = {ZP_DIM_B, b->run->seq, b->run->shape.hidden}};
  const char *carry_name = "x";
  b->graph = zp_model_add_segment(b->model, name, count, repeat, &carry, &carry_name, carries, ZP_NO_SPAN)->graph;
}

zp_model *zp_run_model(zp_arena *arena, const zp_measured *run, const zp_run_library *library) {
  if (run->shape.heads < 1 || run->shape.hidden < 1)
    return NULL; /* nobody said, and there was nothing to guess them from */
  if (zp_run_is_written(run)) return library->model ? library->model(library->user, zp_run_text(arena, run)) : NULL;
  builder b = {.run = run, .model = zp_model_new(arena, "measured"), .diags = zp_diags_new(arena), .segment = -1};
  zp_shape ids = matrix(ZP_DIM_B, run->seq);
  int tokens = zp_model_add_input(b.model, "tokens", ids, ZP_NO_SPAN);
  int labels = zp_model_add_input(b.model, "labels", ids, ZP_NO_SPAN);
  int table = add_param(&b, "embedding", matrix(run->shape.vocab, run->shape.hidden));
  int head = ties_head(run) ? table : add_param(&b, "head", matrix(run->shape.vocab, run->shape.hidden));
  open_segment(&b, "begin", 1, false, false);
  int in[] = {zp_graph_input(b.graph, b.model, tokens), zp_graph_param(b.graph, b.model, table)};
  int x = apply(&b, ZP_OP_EMBEDDING, in, 2, (zp_op_attr){0}, "embedding");
  if (!run->shape.rotary) x = add(&b, x, weight(&b, "positions", matrix(run->seq, run->shape.hidden)));
  zp_push(arena, &b.graph->carry_out, x);
  open_segment(&b, "layer", run->shape.layers, true, true);
  b.segment = 1;
  x = run->shape.gated ? llama_layer(&b, b.graph->carry_in.data[0]) : gpt_layer(&b, b.graph->carry_in.data[0]);
  zp_push(arena, &b.graph->carry_out, x);
  open_segment(&b, "end", 1, true, false);
  b.segment = -1;
  int last[] = {norm(&b, b.graph->carry_in.data[0]), zp_graph_param(b.graph, b.model, head)};
  x = apply(&b, ZP_OP_MATMUL, last, 2, (zp_op_attr){.trans = true}, "head");
  int loss[] = {x, zp_graph_input(b.graph, b.model, labels)};
  zp_graph_add_loss(b.graph, apply(&b, ZP_OP_CROSS_ENTROPY, loss, 2, (zp_op_attr){0}, "loss"), 1);
  b.model->vocabulary = run->shape.vocab;
  b.model->sequence = run->seq;
  return zp_diags_errors(b.diags) ? NULL : b.model;
}
