/* SPDX-License-Identifier: Apache-2.0 */
/* Elaboration of good models: parameters, names, tying, segments, arguments of blocks. */
#include <zplan/buf.h>
#include "sema_fixture.h"

static fixture load_example(const char *name) {
  fixture f = {.arena = zp_arena_new("test")};
  f.diags = zp_diags_new(f.arena);
  zp_load_options options = {.library_dir = ZPLAN_SOURCE_DIR "/frontend/library"};
  f.spec = zp_load(f.arena, f.diags, zp_format(f.arena, ZPLAN_SOURCE_DIR "/examples/%s.dz", name), NULL, 0, &options);
  char *shown = f.spec ? NULL : printed(&f);
  cr_assert(f.spec, "%s", shown ? shown : "");
  return f;
}

static void check_sound(const fixture *f) {
  const zp_model *model = f->spec->model;
  for (int i = 0; i < model->segments.len; i++) {
    const char *wrong = zp_graph_check(f->arena, model->segments.data[i].graph);
    cr_expect(!wrong, "%s: %s", model->segments.data[i].name, wrong ? wrong : "");
  }
}

/* Names of all parameters, one a line. */
static const char *param_names(const fixture *f) {
  const char *all = "";
  for (int i = 0; i < f->spec->model->params.len; i++)
    all = zp_format(f->arena, "%s%s\n", all, f->spec->model->params.data[i].name);
  return all;
}

static void check_names(const fixture *f, const char *expected) {
  const char *found = param_names(f);
  cr_expect(strcmp(found, expected) == 0, "found:\n%sexpected:\n%s", found, expected);
}

/* "begin 1, h 12, end 1" */
static void check_segments(const fixture *f, const char *expected) {
  const zp_model *model = f->spec->model;
  const char *found = "";
  for (int i = 0; i < model->segments.len; i++)
    found = zp_format(f->arena, "%s%s%s %lld", found, i ? ", " : "", model->segments.data[i].name,
                      (long long)model->segments.data[i].count);
  cr_expect(strcmp(found, expected) == 0, "%s", found);
}

Test(sema_model, gpt2) {
  fixture f = load_example("gpt2");
  const zp_model *model = f.spec->model;
  cr_expect(zp_model_parameters(model) == 124439808);
  cr_expect(model->sequence == 1024 && model->vocabulary == 50257);
  check_segments(&f, "begin 1, h 12, end 1");
  check_sound(&f);
  check_names(&f, "wte\nwpe\nh.{}.ln_1.weight\nh.{}.ln_1.bias\nh.{}.attn.c_attn.weight\nh.{}.attn.c_attn.bias\n"
                  "h.{}.attn.c_proj.weight\nh.{}.attn.c_proj.bias\nh.{}.ln_2.weight\nh.{}.ln_2.bias\n"
                  "h.{}.mlp.c_fc.weight\nh.{}.mlp.c_fc.bias\nh.{}.mlp.c_proj.weight\nh.{}.mlp.c_proj.bias\n"
                  "ln_f.weight\nln_f.bias\n");
  unload(&f);
}

/* The published configuration gives the published counts: 46.7 billion, 12.9 of them active (arXiv 2401.04088, table
 * 1). */
Test(sema_model, mixtral) {
  fixture f = load_example("mixtral_8x7b");
  const zp_model *model = f.spec->model;
  cr_expect_eq(zp_model_parameters(model), INT64_C(46702792704));
  cr_expect_eq(zp_model_active_parameters(model), INT64_C(12879925248));
  check_segments(&f, "begin 1, layers 32, end 1");
  check_sound(&f);
  check_names(&f, "embed_tokens\nlm_head\nlayers.{}.input_layernorm.weight\nlayers.{}.self_attn.q_proj.weight\n"
                  "layers.{}.self_attn.k_proj.weight\nlayers.{}.self_attn.v_proj.weight\n"
                  "layers.{}.self_attn.o_proj.weight\nlayers.{}.post_attention_layernorm.weight\n"
                  "layers.{}.block_sparse_moe.w1\nlayers.{}.block_sparse_moe.w2\nlayers.{}.block_sparse_moe.w3\n"
                  "layers.{}.block_sparse_moe.gate.weight\nnorm.weight\n");
  const zp_graph *layer = model->segments.data[1].graph;
  for (int n = 0; n < layer->nodes.len; n++) {
    const zp_op_attr *attr = &layer->nodes.data[n].attr;
    if (layer->nodes.data[n].op != ZP_OP_TOP_K_GATE) continue;
    cr_expect(attr->top_k == 2 && attr->experts == 8 && attr->slots == 1280 && attr->normalize &&
              attr->balance == 0.02);
  }
  unload(&f);
}

Test(sema_model, dense_models_use_all_parameters) {
  fixture f = load_example("gpt2");
  cr_expect_eq(zp_model_active_parameters(f.spec->model), zp_model_parameters(f.spec->model));
  unload(&f);
}

Test(sema_model, gpt2_start_values) {
  fixture f = load_example("gpt2");
  const zp_param *params = f.spec->model->params.data;
  cr_expect(params[0].init == ZP_INIT_NORMAL && params[0].init_a == 0 && params[0].init_b == 0.02);
  cr_expect(params[2].init == ZP_INIT_CONSTANT && params[2].init_a == 1); /* ln_1.weight */
  cr_expect(params[3].init == ZP_INIT_CONSTANT && params[3].init_a == 0); /* ln_1.bias */
  cr_expect_float_eq(params[6].init_b, 0.0040824829, 1e-9);               /* attn.c_proj: 0.02 / sqrt(24) */
  cr_expect(params[0].segment == -1 && params[2].segment == 1 && params[14].segment == -1);
  unload(&f);
}

Test(sema_model, gpt2_ties_its_table) {
  fixture f = load_example("gpt2");
  const zp_model *model = f.spec->model;
  const zp_graph *begin = model->segments.data[0].graph, *end = model->segments.data[2].graph;
  bool in_begin = false, in_end = false;
  for (int i = 0; i < begin->params.len; i++) in_begin |= begin->params.data[i].param == 0;
  for (int i = 0; i < end->params.len; i++) in_end |= end->params.data[i].param == 0;
  cr_expect(in_begin && in_end);
  unload(&f);
}

Test(sema_model, one_trillion) {
  fixture f = load_example("gpt1t");
  cr_expect(zp_model_parameters(f.spec->model) == 1084659961856);
  check_segments(&f, "begin 1, h 298, end 1");
  check_sound(&f);
  cr_expect(f.spec->sources.len == 1); /* itself; the library does not count */
  unload(&f);
}

Test(sema_model, tiny_examples) {
  fixture f = load_example("gpt_tiny");
  cr_expect(zp_model_parameters(f.spec->model) == 1032576);
  check_sound(&f);
  unload(&f);
  f = load_example("llama_tiny");
  cr_expect(zp_model_parameters(f.spec->model) == 947584);
  check_segments(&f, "begin 1, layers 5, end 1");
  check_sound(&f);
  cr_expect(strcmp(f.spec->model->params.data[2].name, "layers.{}.input_layernorm.weight") == 0);
  unload(&f);
}

#define USE "use std.nn\n"
#define HEAD                                                                                                           \
  "model m(V = 32, S = 8, d = 16, n = 3) {\n"                                                                          \
  "  input tokens: i32[B, S]\n  input labels: i32[B, S]\n  param wte: [V, d]\n  x = embedding(tokens, wte)\n"
#define TAIL "  output loss = cross_entropy(matmul(x, transpose(wte)), labels)\n}\n"
#define TRAIN "data = synthetic(seed = 1) batch = 4 steps = 1 optimizer = sgd(lr = 0.1) "

Test(sema_model, model_arguments) {
  fixture f = load_good("let wide = 64\n" HEAD TAIL "train { model = m(V = 2 * wide, d = 32) " TRAIN "}\n");
  cr_expect(zp_model_parameters(f.spec->model) == 128 * 32 && f.spec->model->vocabulary == 128);
  unload(&f);
}

Test(sema_model, model_of_a_used_file) {
  static const char main_text[] = "use \"sub/m.dz\" as other\ntrain { model = other.m(16, 4) " TRAIN "}\n";
  static const char used_text[] = HEAD TAIL;
  zp_source_text sources[] = {{"dir/main.dz", main_text, sizeof main_text - 1, false},
                              {"dir/sub/m.dz", used_text, sizeof used_text - 1, false}};
  fixture f = load_sources(sources, 2);
  cr_assert(f.spec);
  cr_expect(f.spec->model->vocabulary == 16 && f.spec->model->sequence == 4);
  unload(&f);
}

Test(sema_model, gpt2_with_a_padded_vocabulary) {
  const char *text =
      "use \"" ZPLAN_SOURCE_DIR "/examples/gpt2.dz\" as g\ntrain { model = g.gpt2(V = 50304) " TRAIN "}\n";
  zp_arena *arena = zp_arena_new("test");
  const char *used = ZPLAN_SOURCE_DIR "/examples/gpt2.dz", *error;
  size_t len;
  char *used_text = zp_read_file(arena, used, &len, &error);
  cr_assert(used_text);
  zp_source_text sources[] = {{"padded.dz", text, strlen(text), false}, {used, used_text, len, false}};
  fixture f = load_sources(sources, 2);
  cr_assert(f.spec);
  cr_expect(zp_model_parameters(f.spec->model) == 124475904);
  cr_expect(f.spec->sources.len == 2); /* itself and gpt2.dz */
  unload(&f);
  zp_arena_free(arena);
}

Test(sema_model, without_repeats) {
  fixture f = load_good(USE HEAD "  x = gelu(linear(x, d))\n" TAIL);
  check_segments(&f, "begin 1");
  check_names(&f, "wte\nlinear.weight\nlinear.bias\n");
  cr_expect(f.spec->model->segments.data[0].graph->losses.len == 1);
  unload(&f);
}

Test(sema_model, several_repeats) {
  fixture f = load_good(USE HEAD "  repeat a in 0..n { x = x + linear(x, d) }\n"
                                 "  y = gelu(x)\n  repeat b in 2..4 { y = y * 2 }\n  x = y\n"
                                 "  repeat c in 0..1 { x = tanh(x) }\n  repeat e in 0..2 { x = exp(x) }\n" TAIL);
  check_segments(&f, "begin 1, a 3, middle1 1, b 2, c 1, e 2, end 1");
  check_sound(&f);
  cr_expect(f.spec->model->params.data[1].segment == 1);
  cr_expect(zp_model_parameters(f.spec->model) == 32 * 16 + 3 * (16 * 16 + 16));
  unload(&f);
}

/* "b: left memory left' x" for every segment: what comes in, and after an arrow what goes out, by the number of what
 * came in where it is handed on. */
static const char *flows(const fixture *f) {
  zp_buf text = zp_buf_new(f->arena);
  for (int s = 0; s < f->spec->model->segments.len; s++) {
    const zp_segment *segment = &f->spec->model->segments.data[s];
    const zp_graph *g = segment->graph;
    zp_buf_printf(&text, "%s %d ->", segment->name, g->carry_in.len);
    for (int i = 0; i < g->carry_out.len; i++) {
      const zp_tensor *t = &g->tensors.data[g->carry_out.data[i]];
      if (t->role == ZP_ROLE_CARRY_IN)
        zp_buf_printf(&text, " %d", t->index);
      else
        zp_buf_printf(&text, " %s", t->name);
    }
    zp_buf_puts(&text, "\n");
    if (s == 0) continue;
    const zp_graph *before = f->spec->model->segments.data[s - 1].graph;
    cr_expect_eq(before->carry_out.len, g->carry_in.len);
    for (int i = 0; i < g->carry_in.len; i++)
      cr_expect(zp_shape_equal(&before->tensors.data[before->carry_out.data[i]].shape,
                               &g->tensors.data[g->carry_in.data[i]].shape));
    if (segment->is_repeat) cr_expect_eq(g->carry_in.len, g->carry_out.len);
  }
  return text.data;
}

static void check_flows(const char *statements, const char *expected) {
  zp_arena *arena = zp_arena_new("text");
  fixture f = load_good(zp_format(arena, "%s%s%s", HEAD, statements, TAIL));
  check_sound(&f);
  cr_expect_str_eq(flows(&f), expected, "%s\n%s", statements, flows(&f));
  unload(&f);
  zp_arena_free(arena);
}

/* Boundaries have what is read after them. */
Test(sema_model, what_flows) {
  check_flows("  y = exp(x)\n  repeat h in 0..n { x = tanh(x) }\n  x = x + y\n",
              "begin 0 -> x y\nh 2 -> x 1\nend 2 ->\n");
  check_flows("  y = exp(x)\n  repeat h in 0..n { x = tanh(x) + y }\n", "begin 0 -> x y\nh 2 -> x 1\nend 2 ->\n");
  check_flows("  y = exp(x)\n  repeat h in 0..n {\n x = tanh(x)\n y = sqrt(x) + y\n }\n  x = x + y\n",
              "begin 0 -> x y\nh 2 -> x y\nend 2 ->\n");
  check_flows(
      "  y = x\n  repeat h in 0..n { x = exp(x) + y }\n", /* what it was before the repeat, not what it becomes */
      "begin 0 -> x x\nh 2 -> x 1\nend 2 ->\n");
  check_flows("  y = exp(x)\n  repeat h in 0..n { x = tanh(x) }\n  repeat k in 0..n { y = sqrt(y) }\n  x = x + y\n",
              "begin 0 -> x y\nh 2 -> x 1\nk 2 -> 0 y\nend 2 ->\n");
  check_flows("  repeat h in 0..n { x = tanh(x) }\n  y = x\n  repeat k in 0..n { x = sqrt(x) }\n  x = x + y\n",
              "begin 0 -> x x\nh 2 -> x x\nk 2 -> x 1\nend 2 ->\n");
}

/* A parameter declared outside is one for all iterations. */
Test(sema_model, outer_parameter) {
  fixture f = load_good(HEAD "  param w: [d, d]\n  repeat h in 0..n { x = matmul(x, w) }\n" TAIL);
  check_sound(&f);
  cr_expect_eq(f.spec->model->params.data[1].segment, -1);
  cr_expect_eq(zp_model_parameters(f.spec->model), 32 * 16 + 16 * 16);
  unload(&f);
}

/* Inputs and parameters may be read in any segment; their tensors are made there again. */
Test(sema_model, inputs_reach_every_segment) {
  fixture f = load_good(HEAD "  repeat a in 0..n {\n param t: [V, d]\n x = x + embedding(tokens, t)\n }\n" TAIL);
  check_names(&f, "wte\na.{}.t\n");
  check_sound(&f);
  unload(&f);
}

/* Trainers feed tokens as input 0: what is read is what was meant, whichever is declared first. */
Test(sema_model, inputs_in_any_order) {
  fixture f = load_good(
      "model m(V = 32, S = 8, d = 16, n = 3) {\n"
      "  input labels: i32[B, S]\n  input tokens: i32[B, S]\n  param wte: [V, d]\n"
      "  x = embedding(tokens, wte)\n  repeat h in 0..n { param t: [V, d]\n x = x + embedding(tokens, t) }\n" TAIL);
  const zp_model *model = f.spec->model;
  cr_expect_str_eq(model->inputs.data[0].name, "tokens");
  cr_expect_str_eq(model->inputs.data[1].name, "labels");
  for (int s = 0; s < model->segments.len; s++)
    for (int n = 0; n < model->segments.data[s].graph->nodes.len; n++) {
      const zp_graph *graph = model->segments.data[s].graph;
      const zp_node *node = &graph->nodes.data[n];
      if (node->op == ZP_OP_EMBEDDING) cr_expect_eq(graph->tensors.data[node->in.data[0]].index, 0);
      if (node->op == ZP_OP_CROSS_ENTROPY) cr_expect_eq(graph->tensors.data[node->in.data[1]].index, 1);
    }
  check_sound(&f);
  unload(&f);
}

/* Segments are called by distinct names: generated functions are named after them. */
Test(sema_model, segment_names) {
  fixture f = load_good(HEAD "  repeat end in 0..n { x = exp(x) }\n  x = tanh(x)\n  repeat h in 0..n { x = exp(x) }\n"
                             "  repeat h in 0..2 { x = exp(x) }\n" TAIL);
  check_segments(&f, "begin 1, end_2 3, middle1 1, h 3, h_2 2, end 1");
  unload(&f);
}

/* The naming rule of docs/guide/models.md, case by case. */
Test(sema_model, instance_names) {
  fixture f = load_good(USE "block two(x: [B, S, d]) -> [B, S, d] {\n  up = linear(x, 2 * d, bias = false)\n"
                            "  return linear(gelu(up), d, bias = false)\n}\n"
                            "block wrap(x: [B, S, d]) -> [B, S, d] { return two(x) }\n" HEAD
                            "  first = wrap(x)\n" /* a new name */
                            "  x = wrap(first)\n" /* a name that is a tensor already: no component of its own */
                            "  x = x + wrap(x)\n" /* inside a larger expression */
                            "  x = x + wrap(x)\n" /* taken: _2 */
                            "  x = rms_norm(x)\n" /* reassigned, but the block declares parameters */
                            "  repeat h in 0..2 { x = wrap(x) }\n"
                            "  repeat h in 0..2 { x = wrap(x) }\n" TAIL);
  check_names(&f, "wte\nfirst.up.weight\nfirst.linear.weight\nup.weight\nlinear.weight\nwrap.up.weight\n"
                  "wrap.linear.weight\nwrap_2.up.weight\nwrap_2.linear.weight\nrms_norm.weight\n"
                  "h.{}.up.weight\nh.{}.linear.weight\nh_2.{}.up.weight\nh_2.{}.linear.weight\n");
  unload(&f);
}

Test(sema_model, formals) {
  fixture f =
      load_good("block f(x: [B, S, d], w: [k, d], k: int, half = d / 2, on = true, word = \"a\") -> [B, S, k] {\n"
                "  assert half == 8 and on and word in [\"a\", \"b\"], \"defaults\"\n"
                "  return matmul(x, transpose(w))\n}\n" HEAD
                "  param w: [d, d]\n  y = f(x, w, d)\n  x = y + f(word = \"b\", k = d, w = w, x = x)\n" TAIL);
  check_sound(&f);
  unload(&f);
}

Test(sema_model, several_results) {
  fixture f = load_good("block pair(x: [B, S, d]) -> ([B, S, d], [B, S, d / 2], int) {\n"
                        "  a, b = split(x, 2)\n  return exp(x), a * b, 3\n}\n" HEAD
                        "  big, small, three = pair(x)\n  p, q = split(big, 2)\n  param w: [d / 2, d]\n"
                        "  x = x + matmul((small + p + q) * three, w)\n" TAIL);
  check_sound(&f);
  unload(&f);
}

Test(sema_model, numbers_and_tensors) {
  fixture f =
      load_good(HEAD "  x = 2 * x + 1 - x / 4\n  x = 3 - x\n  x = 1 / exp(x)\n  x = -x - 0.5\n  x = 2 + x\n" TAIL);
  check_sound(&f);
  const zp_graph *graph = f.spec->model->segments.data[0].graph;
  cr_expect(graph->nodes.data[1].op == ZP_OP_MUL_CONST && graph->nodes.data[1].attr.value == 2);
  cr_expect(graph->nodes.data[3].op == ZP_OP_MUL_CONST && graph->nodes.data[3].attr.value == 0.25);
  unload(&f);
}

Test(sema_model, attributes_of_ops) {
  fixture f =
      load_good(HEAD "  q = rope(x, heads = 4, theta = 500, style = \"interleaved\")\n"
                     "  k, v = split(x, 2)\n"
                     "  a = attention(q, rope(k, heads = 2), v, heads = 4, kv_heads = 2, causal = false, scale = 1.0)\n"
                     "  b = attention(q, q, x, heads = 4)\n  x = gelu(a, approximate = \"tanh\") + gelu(b)\n" TAIL);
  const zp_graph *graph = f.spec->model->segments.data[0].graph;
  check_sound(&f);
  const zp_node *n = graph->nodes.data;
  cr_expect(n[1].op == ZP_OP_ROPE && n[1].attr.heads == 4 && n[1].attr.theta == 500 && n[1].attr.interleaved);
  cr_expect(n[3].op == ZP_OP_ROPE && !n[3].attr.interleaved && n[3].attr.theta == 10000);
  cr_expect(n[4].op == ZP_OP_ATTENTION && n[4].attr.kv_heads == 2 && !n[4].attr.causal && n[4].attr.scale == 1);
  cr_expect(n[5].attr.kv_heads == 4 && n[5].attr.causal && n[5].attr.scale == 0.5 && n[5].attr.head_size == 4);
  cr_expect(n[6].attr.tanh_form && !n[7].attr.tanh_form);
  unload(&f);
}

/* Every operand that attention may have, and what becomes of `max_distance`. */
Test(sema_model, attention_with_lengths_and_a_bias) {
  fixture f =
      load_good("model m(V = 32, S = 8, d = 16) {\n  input tokens: i32[B, S]\n  input labels: i32[B, S]\n"
                "  input lengths: i32[B]\n  param wte: [V, d]\n  param t: [8, 2]\n  x = embedding(tokens, wte)\n"
                "  x = attention(x, x, x, heads = 2, lengths = lengths, relative_bias = t)\n"
                "  x = attention(x, slice(x, 0, 5), slice(x, 1, 6), heads = 2, causal = false, cross = true, lengths = "
                "lengths)\n" TAIL);
  const zp_graph *g = f.spec->model->segments.data[0].graph;
  int found = 0;
  for (int n = 0; n < g->nodes.len; n++) {
    const zp_node *node = &g->nodes.data[n];
    if (node->op != ZP_OP_ATTENTION) continue;
    bool cross = found++ == 1;
    cr_expect_eq(node->in.len, cross ? 4 : 5);
    cr_expect_eq(node->attr.cross, cross);
    cr_expect_eq(node->attr.max_distance, cross ? 0 : 128);
    cr_expect_eq(zp_attention_lengths(node), node->in.data[3]);
    cr_expect_eq(zp_attention_bias(node), cross ? -1 : node->in.data[4]);
  }
  cr_expect_eq(found, 2);
  cr_expect_eq(f.spec->model->inputs.data[2].limit, 6, "of the shortest keys that lengths are of");
  unload(&f);
}

/* In the place of lengths, before a bias. */
Test(sema_model, attention_within_documents) {
  fixture f =
      load_good("model m(V = 32, S = 8, d = 16) {\n  input tokens: i32[B, S]\n  input labels: i32[B, S]\n"
                "  input packed: i32[B, S]\n  param wte: [V, d]\n  param t: [8, 2]\n  x = embedding(tokens, wte)\n"
                "  x = attention(x, x, x, heads = 2, relative_bias = t, documents = packed)\n" TAIL);
  const zp_graph *g = f.spec->model->segments.data[0].graph;
  int found = 0;
  for (int n = 0; n < g->nodes.len; n++) {
    const zp_node *node = &g->nodes.data[n];
    if (node->op != ZP_OP_ATTENTION) continue;
    found++;
    cr_expect(node->attr.documents);
    cr_expect_eq(zp_attention_documents(node), node->in.data[3]);
    cr_expect_eq(zp_attention_lengths(node), -1);
    cr_expect_eq(zp_attention_bias(node), node->in.data[4]);
  }
  const zp_input *input = &f.spec->model->inputs.data[2];
  cr_expect_eq(found, 1);
  cr_expect(input->documents && !f.spec->model->inputs.data[0].documents);
  cr_expect_eq(input->least, -1);
  unload(&f);
}

/* A window of the whole sequence is none. */
Test(sema_model, windows) {
  fixture f = load_good(HEAD "  x = attention(x, x, x, heads = 4, window = S - 1)\n"
                             "  x = attention(x, x, x, heads = 4, window = S)\n" TAIL);
  const zp_model *m = f.spec->model;
  const zp_node *n = m->segments.data[0].graph->nodes.data;
  check_sound(&f);
  cr_expect(n[1].attr.window == m->sequence - 1 && n[2].attr.window == 0);
  zp_strings texts = zp_attention_texts(f.arena, m);
  cr_assert_eq(texts.len, 1);
  cr_expect_not_null(strstr(texts.data[0], "tokens, causal"), "%s", texts.data[0]);
  unload(&f);
}

/* Streams are numbered over the whole model, whether or not a rate is 0. */
#define DROPOUT_MODEL                                                                                                  \
  HEAD "  x = dropout(x, rate = 0.0)\n  x = dropout(x, 0.5)\n  repeat h in 0..n { x = dropout(exp(x)) }\n" TAIL
Test(sema_model, dropout) {
  fixture f = load_good(DROPOUT_MODEL);
  cr_expect(f.spec->model->segments.data[0].graph->nodes.len == 2);
  cr_expect(f.spec->model->segments.data[0].graph->nodes.data[1].attr.stream == 1);
  cr_expect(f.spec->model->segments.data[1].graph->nodes.len == 1); /* train's rate is 0 */
  unload(&f);
  f = load_good(DROPOUT_MODEL "train { dropout = 0.25 " TRAIN "}\n");
  const zp_graph *body = f.spec->model->segments.data[1].graph;
  cr_assert(body->nodes.len == 2);
  cr_expect(body->nodes.data[1].attr.rate == 0.25 && body->nodes.data[1].attr.stream == 2);
  unload(&f);
}

Test(sema_model, conditions) {
  fixture f = load_good(HEAD "  if n > 2 and d % 2 == 0 { x = exp(x) } else { x = nonsense(x) }\n"
                             "  if not true { x = nonsense(x) }\n" TAIL);
  cr_expect(f.spec->model->segments.data[0].graph->nodes.data[1].op == ZP_OP_EXP);
  unload(&f);
}

/* What generated code and messages call a value: the name on the left, through blocks that return it as it is. */
Test(sema_model, node_names) {
  fixture f =
      load_good(USE "block layer(x: [B, S, d]) -> [B, S, d] {\n  up = linear(x, d)\n  return x + gelu(up)\n}\n" HEAD
                    "  repeat h in 0..n { x = layer(x) }\n" TAIL);
  const zp_graph *body = f.spec->model->segments.data[1].graph;
  static const char *const names[] = {"up.matmul", "up", "gelu", "x"};
  cr_assert(body->nodes.len == 4);
  for (int i = 0; i < 4; i++)
    cr_expect(strcmp(body->nodes.data[i].name, names[i]) == 0, "%d: %s", i, body->nodes.data[i].name);
  unload(&f);
}

/* A text gives the same model however often it is read. */
Test(sema_model, repeatable) {
  fixture a = load_example("llama_tiny"), b = load_example("llama_tiny");
  for (int i = 0; i < a.spec->model->segments.len; i++)
    cr_expect(strcmp(zp_graph_text(a.arena, a.spec->model->segments.data[i].graph),
                     zp_graph_text(b.arena, b.spec->model->segments.data[i].graph)) == 0);
  unload(&a);
  unload(&b);
}

/* A name that a model says 8,000 times takes a fraction of a second. Going through all names for every suffix, it took
 * 276 s. */
Test(sema_model, a_name_said_thousands_of_times, .timeout = 60) {
  enum { TIMES = 8000 };
  static const char begin[] = HEAD, line[] = "  x = gelu(x)\n", end[] = TAIL;
  char *text = malloc(sizeof begin + TIMES * (sizeof line - 1) + sizeof end), *at = text;
  at = stpcpy(at, begin);
  for (int i = 0; i < TIMES; i++) at = stpcpy(at, line);
  stpcpy(at, end);
  fixture f = load_good(text);
  const zp_graph *graph = f.spec->model->segments.data[0].graph;
  int gelus = 0;
  for (int i = 0; i < graph->nodes.len; i++) {
    if (graph->nodes.data[i].op != ZP_OP_GELU) continue;
    gelus++; /* the embedding is the first x */
    cr_assert_str_eq(graph->nodes.data[i].name, zp_format(f.arena, "x_%d", gelus + 1));
  }
  cr_expect_eq(gelus, TIMES);
  free(text);
  unload(&f);
}

/* Ops of the first segment and the shapes that they make, one a line. */
static const char *ops_of(zp_arena *arena, const char *shape, const char *statement) {
  const char *text = zp_format(arena,
                               "model m(V = 9, S = 8, d = 6, E = 4) {\n  input tokens: i32[B, S]\n  input t: f32%s\n"
                               "  param wte: [V, d]\n  param w: [d, 5]\n  param c: [d]\n  param p: [S, d]\n"
                               "  param e: [E, d, 3]\n  param g: [d, E]\n  x = embedding(tokens, wte)\n"
                               "  weight, slot = top_k_gate(matmul(x, g), k = 2)\n"
                               "  n = combine(batched_matmul(dispatch(x, slot), e), weight, slot)\n"
                               "  q = matmul(x * p * c, w)\n  y = %s\n"
                               "  output loss = mse(y, t) + mse(n, t2) + mse(q, t3)\n}\n",
                               shape, statement);
  const char *inputs = "  input t2: f32[B, S, 3]\n  input t3: f32[B, S, 5]\n";
  const char *at = strstr(text, "  param wte");
  fixture f = load_good(zp_format(arena, "%.*s%s%s", (int)(at - text), text, inputs, at));
  const zp_graph *graph = f.spec->model->segments.data[0].graph;
  const char *all = "";
  for (int i = 0; i < graph->nodes.len; i++) {
    const zp_node *n = &graph->nodes.data[i];
    all = zp_format(arena, "%s%s%s %s\n", all, zp_op_name(n->op), n->attr.trans ? "'" : "",
                    zp_shape_text(arena, &graph->tensors.data[n->out.data[0]].shape));
  }
  unload(&f);
  return all;
}

/* An equation is what could be written without it. */
Test(sema_model, einsum) {
  static const struct {
    const char *shape, *equation, *written_out;
  } cases[] = {
      {"[B, S, V]", "einsum(\"bsd,vd->bsv\", x, wte)", "matmul(x, transpose(wte))"},
      {"[B, S, V]", "einsum(\"vd, bsd -> bsv\", wte, x)", "matmul(x, transpose(wte))"},
      {"[B, S, 5]", "einsum(\"bsd,dk->bsk\", x, w)", "matmul(x, w)"},
      {"[B, S, d]", "einsum(\"bsd,d->bsd\", x, c)", "x * c"},
      {"[B, S, d]", "einsum(\"bsd,sd->bsd\", x, p)", "x * p"},
      {"[B, S, d]", "einsum(\"bsd,bsd->bsd\", x, x)", "x * x"},
      {"[B, S, d]", "einsum(\"bsd->bsd\", x)", "x"},
      {"[B, d, S]", "einsum(\"bsd->bds\", x)", "transpose(x)"},
      {"[B, d]", "einsum(\"bsd->bd\", x)", "sum(x)"},
      {"[B, S]", "einsum(\"bsd->bs\", x)", "sum(x, axis = -1)"},
      {"[B, S]", "einsum(\"bsd,d->bs\", x, c)", "sum(x * c, axis = -1)"},
      {"[B, d]", "einsum(\"bsd,sd->bd\", x, p)", "sum(x * p)"},
      {"[B, S, 3]", "combine(einsum(\"becd,edf->becf\", dispatch(x, slot), e), weight, slot)",
       "combine(batched_matmul(dispatch(x, slot), e), weight, slot)"},
  };
  zp_arena *arena = zp_arena_new("einsum");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *got = ops_of(arena, cases[i].shape, cases[i].equation);
    cr_expect_str_eq(got, ops_of(arena, cases[i].shape, cases[i].written_out), "%s", cases[i].equation);
  }
  zp_arena_free(arena);
}
