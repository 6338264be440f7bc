/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the language, a row each: how a call is read (builtin_calls.c), and which operation it is. */
#include "builtins.h"

#include <zplan/buf.h>
#include <zplan/library_blocks.h>

/* Byte of an attribute, which must have that type. */
#define AT(type, field) _Generic(((zp_op_attr *)0)->field, type : offsetof(zp_op_attr, field))

/* clang-format off */
#define TAKES(...) (const zp_argument[]){__VA_ARGS__, {.name = NULL}}
/* Operands by their place; WEIGHT may be written as transpose(w), IF_GIVEN may be left out. */
#define OPERAND(id, n)              {.name = id, .kind = ZP_ARGUMENT_OPERAND, .required = true, .place = n}
#define WEIGHT(id, n, field) \
  {.name = id, .kind = ZP_ARGUMENT_WEIGHT, .required = true, .place = n, .at = AT(bool, field)}
#define IF_GIVEN(id, n)             {.name = id, .kind = ZP_ARGUMENT_OPERAND, .place = n}
#define X                           OPERAND("x", 0)
/* Attributes: name, attribute, and what it is where it is not given. */
#define NUMBER(id, field, unless, limits) \
  {.name = id, .kind = ZP_ARGUMENT_NUMBER, .at = AT(double, field), .missing = unless, .range = ZP_ARGUMENT_##limits}
#define COUNT(id, field, unless, ...) \
  {.name = id, .kind = ZP_ARGUMENT_COUNT, .at = AT(int64_t, field), .missing = unless, __VA_ARGS__}
#define NEEDED_COUNT(id, field)     COUNT(id, field, 0, .required = true)
#define FLAG(id, field, unless)     {.name = id, .kind = ZP_ARGUMENT_FLAG, .at = AT(bool, field), .missing = unless}
#define WORD(id, field, no, yes)    {.name = id, .kind = ZP_ARGUMENT_WORD, .at = AT(bool, field), .words = {no, yes}}
#define PATTERN(id, field)          {.name = id, .kind = ZP_ARGUMENT_PATTERN, .at = AT(const struct zp_sparse *, field)}
#define AXIS                        {.name = "axis", .kind = ZP_ARGUMENT_AXIS}
#define COLUMN_HEADS                {.name = "heads", .kind = ZP_ARGUMENT_COLUMN_HEADS, .at = AT(int64_t, heads)}
/* Read by the functions of the row. */
#define OTHER(id)                   {.name = id}
#define NEEDED(id)                  {.name = id, .required = true}

/* What it does, and a statement of it (tests/verify/reference.py has the model around it). */
#define SAYS(does, statement)       .meaning = does, .example = statement

/* Then what the call is where it is not the operation on its operands, and what else must hold. */
#define CALL(id, op_id, takes, ...) {.name = id, .op = ZP_OP_##op_id, .arguments = takes, __VA_ARGS__}

static const zp_builtin builtins[] = {
  CALL("embedding",       EMBEDDING,      TAKES(OPERAND("ids", 0), OPERAND("table", 1)),
       SAYS("rows of a table, by ids", "y = embedding(tokens, table)")),
  CALL("matmul",          MATMUL,         TAKES(X, WEIGHT("w", 1, trans)),
       SAYS("product of the last dimension of x with a matrix", "y = matmul(x, w)")),
  CALL("transpose",       TRANSPOSE,      TAKES(OPERAND("w", 0)), .apply = zp_apply_transpose,
       SAYS("a matrix with rows and columns exchanged, as the second operand of a product",
            "y = matmul(x, transpose(w))")),
  CALL("exp",             EXP,            TAKES(X),
       SAYS("e to the power of x", "y = exp(x)")),
  CALL("log",             LOG,            TAKES(X),
       SAYS("natural logarithm", "y = log(x)")),
  CALL("sqrt",            SQRT,           TAKES(NEEDED("x")), .apply = zp_apply_root,
       SAYS("square root, of a tensor or a number", "y = sqrt(x)")),
  CALL("rsqrt",           RSQRT,          TAKES(NEEDED("x")), .apply = zp_apply_root,
       SAYS("1 / sqrt(x)", "y = rsqrt(x)")),
  CALL("tanh",            TANH,           TAKES(X),
       SAYS("hyperbolic tangent", "y = tanh(x)")),
  CALL("sigmoid",         SIGMOID,        TAKES(X),
       SAYS("1 / (1 + exp(-x))", "y = sigmoid(x)")),
  CALL("relu",            RELU,           TAKES(X),
       SAYS("the larger of x and 0", "y = relu(x)")),
  CALL("leaky_relu",      LEAKY_RELU,     TAKES(X, NUMBER("negative_slope", value, 0.01, NOT_NEGATIVE)),
       SAYS("x above 0, a slope times x below", "y = leaky_relu(x, negative_slope = 0.01)")),
  CALL("silu",            SILU,           TAKES(X),
       SAYS("x * sigmoid(x)", "y = silu(x)")),
  CALL("gelu",            GELU,           TAKES(X, WORD("approximate", tanh_form, "none", "tanh")),
       SAYS("Gaussian error linear unit", "y = gelu(x, approximate = \"tanh\")")),
  CALL("softmax",         SOFTMAX,        TAKES(X),
       SAYS("exponentials of the columns, divided by their sum", "y = softmax(x)")),
  CALL("layer_normalize", LAYER_NORM,     TAKES(X, OPERAND("weight", 1), OPERAND("bias", 2),
                                                NUMBER("eps", eps, 1e-5, POSITIVE)),
       SAYS("columns with mean 0 and variance 1, then scaled and shifted",
            "y = layer_normalize(x, gain, shift, eps = 1e-5)")),
  CALL("rms_normalize",   RMS_NORM,       TAKES(X, OPERAND("weight", 1), NUMBER("eps", eps, 1e-5, POSITIVE),
                                                NUMBER("offset", value, 0, ANY), COUNT("heads", heads, 0)),
       SAYS("columns divided by their root mean square, then scaled", "y = rms_normalize(x, gain, eps = 1e-5)")),
  CALL("l2_normalize",    L2_NORM,        TAKES(X, NUMBER("eps", eps, 1e-6, POSITIVE), COUNT("heads", heads, 0)),
       SAYS("columns divided by their length", "y = l2_normalize(x, eps = 1e-6)")),
  /* the rate of `train` unless given */
  CALL("dropout",         DROPOUT,        TAKES(X, NUMBER("rate", rate, 0, DROPOUT)), .apply = zp_apply_dropout,
       SAYS("zeroes elements at random while training, and scales the others up", "y = dropout(x, rate = 0.1)")),
  CALL("rope",            ROPE,           TAKES(X, NEEDED_COUNT("heads", heads),
                                                NUMBER("theta", theta, 10000, POSITIVE),
                                                WORD("style", interleaved, "half", "interleaved")),
       SAYS("rotary position embedding", "y = rope(x, heads = 2, theta = 10000)")),
  CALL("split",           SPLIT,          TAKES(X, NEEDED_COUNT("n", parts), OTHER("axis")),
                                          .apply = zp_apply_split,
       SAYS("parts of equal width, of the columns", "y, z = split(x, n = 2)")),
  CALL("mean",            MEAN,           TAKES(X, AXIS), .apply = zp_apply_reduction,
                                          .along_columns = ZP_OP_REDUCE_COLUMNS,
       SAYS("mean over the positions of a sample, or over columns", "y = mean(x, axis = -1)")),
  CALL("sum",             MEAN,           TAKES(X, AXIS), .apply = zp_apply_reduction,
                                          .along_columns = ZP_OP_REDUCE_COLUMNS,
       SAYS("sum over the positions of a sample, or over columns", "y = sum(x, axis = -1)")),
  CALL("max",             REDUCE,         TAKES(X, AXIS), .apply = zp_apply_reduction,
                                          .along_columns = ZP_OP_REDUCE_COLUMNS,
       SAYS("largest value over the positions of a sample, or over columns", "y = max(x, axis = -1)")),
  CALL("logsumexp",       REDUCE,         TAKES(X, AXIS), .apply = zp_apply_reduction,
                                          .along_columns = ZP_OP_REDUCE_COLUMNS,
       SAYS("logarithm of the sum of exponentials over positions, or columns", "y = logsumexp(x, axis = -1)")),
  CALL("slice",           SLICE,          TAKES(X, NEEDED("begin"), OTHER("end"), AXIS, COLUMN_HEADS),
                                          .apply = zp_apply_slice, .along_columns = ZP_OP_COLUMNS,
       SAYS("a range of positions, or of columns", "y = slice(x, begin = 0, end = 4)")),
  CALL("select",          SLICE,          TAKES(X, NEEDED("index"), AXIS), .apply = zp_apply_select,
                                          .along_columns = ZP_OP_COLUMN,
       SAYS("one position, or one column", "y = select(x, index = 0)")),
  CALL("gather",          GATHER,         TAKES(X, OPERAND("index", 1), AXIS),
       SAYS("positions by their numbers", "y = gather(x, tokens)")),
  CALL("concat",          CONCAT,         TAKES(OPERAND("a", 0), OPERAND("b", 1), AXIS, COLUMN_HEADS),
                                          .along_columns = ZP_OP_JOIN_COLUMNS,
       SAYS("one tensor after another, along positions or columns", "y = concat(x, x, axis = -1)")),
  CALL("pad",             COLUMNS,        TAKES(X, NEEDED_COUNT("width", count), COUNT("heads", heads, 1)),
                                          .apply = zp_apply_pad,
       SAYS("zeros added to the columns, up to a width", "y = pad(x, width = 24)")),
  CALL("repeat_heads",    REPEAT_COLUMNS, TAKES(X, NEEDED_COUNT("heads", heads)),
       SAYS("columns of key/value heads repeated for all heads", "y = repeat_heads(x, heads = 4)")),
  CALL("reshape",         RESHAPE,        TAKES(X, NEEDED_COUNT("n", to[0]), COUNT("m", to[1], 0),
                                                COUNT("k", to[2], 0, .needs = "m")),
       SAYS("the sizes of a sample changed, its elements in their order", "y = reshape(x, n = S, m = d)")),
  CALL("conv1d",          MATMUL,         TAKES(X, OPERAND("w", 1), OTHER("stride"), OTHER("padding")),
                                          .apply = zp_apply_conv1d,
       SAYS("convolution along the positions", "y = conv1d(x, kernel)")),
  CALL("conv2d",          MATMUL,         TAKES(X, OPERAND("w", 1), NEEDED("height"), OTHER("stride"),
                                                OTHER("padding")), .apply = zp_apply_conv2d,
       SAYS("convolution over an image whose rows follow each other", "y = conv2d(x, kernel2, height = 4)")),
  CALL("einsum",          MATMUL,         TAKES(NEEDED("equation"), OTHER("a"), OTHER("b")),
                                          .apply = zp_apply_einsum,
       SAYS("products and sums by an equation of letters", "y = einsum(\"bsd,dk->bsk\", x, w)")),
  CALL("mse",             SQUARED_ERROR,  TAKES(X, OPERAND("target", 1)),
       SAYS("mean squared error", "y = mse(x, target)")),
  CALL("cast",            CAST_F32,       TAKES(X, NEEDED("type")), .apply = zp_apply_cast,
       SAYS("rounds to what a type holds", "y = cast(x, type = \"bf16\")")),
  /* scale 0: 1 / sqrt(head size), by the shape rule; kv_heads as many as heads; max_distance 128 with a bias */
  CALL("attention",       ATTENTION,
   TAKES(OPERAND("q", 0), OPERAND("k", 1), OPERAND("v", 2), NEEDED_COUNT("heads", heads),
         COUNT("kv_heads", kv_heads, 0), FLAG("causal", causal, true), NUMBER("scale", scale, 0, POSITIVE),
         PATTERN("pattern", sparse), IF_GIVEN("lengths", 3), COUNT("window", window, 0),
         NUMBER("softcap", softcap, 0, POSITIVE), OTHER("alibi"), FLAG("cross", cross, false),
         IF_GIVEN("relative_bias", 4), COUNT("max_distance", max_distance, 0), NUMBER("dropout", rate, 0, DROPOUT),
         IF_GIVEN("documents", 3), OTHER("!bias")),
   .check = zp_check_attention,
       SAYS("scaled dot-product attention", "y = attention(x, x, x, heads = 2, causal = true)")),
  /* Weights of the chosen experts are normalized as Mixtral's; the rate of a bias is DeepSeek-V3's (arXiv 2412.19437,
   * section 4.2), without a bias 0 */
  CALL("top_k_gate",      TOP_K_GATE,
   TAKES(OPERAND("scores", 0), NEEDED_COUNT("k", top_k), NUMBER("capacity", capacity, 1.25, CAPACITY),
         FLAG("normalize", normalize, true), NUMBER("balance", balance, 0, ANY),
         WORD("affinity", sigmoid, "softmax", "sigmoid"), IF_GIVEN("bias", 1),
         NUMBER("bias_rate", bias_rate, 0.001, ANY), COUNT("groups", groups, 0, .needs = "top_groups"),
         COUNT("top_groups", top_groups, 0, .needs = "groups"), NUMBER("room", room, 0, POSITIVE)),
   .check = zp_check_gate, .apply = zp_apply_gate,
       SAYS("weights and places of the k best experts of every token", "weight, slot = top_k_gate(scores, k = 2)")),
  CALL("dispatch",        DISPATCH,       TAKES(X, OPERAND("slot", 1)),
       SAYS("tokens to the places of their experts", "y = dispatch(x, slot)")),
  CALL("batched_matmul",  BATCHED_MATMUL, TAKES(X, WEIGHT("w", 1, trans)),
       SAYS("a product for every expert", "z = batched_matmul(dispatch(x, slot), experts)")),
  CALL("combine",         COMBINE,        TAKES(OPERAND("y", 0), OPERAND("weight", 1), OPERAND("slot", 2)),
       SAYS("outputs of experts back to their tokens, times the weights",
            "y = combine(batched_matmul(dispatch(x, slot), experts), weight, slot)")),
  CALL("cross_entropy",   CROSS_ENTROPY,
   TAKES(OPERAND("logits", 0), OPERAND("labels", 1), OTHER("ignore_index"),
         NUMBER("label_smoothing", smoothing, 0, SHARE), NUMBER("z_loss", z_loss, 0, NOT_NEGATIVE),
         IF_GIVEN("lengths", 2)),
   .check = zp_check_cross_entropy,
       SAYS("mean negative logarithm of the probability of the labels: a loss",
            "y = cross_entropy(logits, labels, label_smoothing = 0.1)")),
};
/* clang-format on */
enum { N_BUILTINS = sizeof builtins / sizeof *builtins };

static const zp_builtin *find_builtin(const char *name) {
  for (int i = 0; i < N_BUILTINS; i++)
    if (strcmp(builtins[i].name, name) == 0) return &builtins[i];
  return NULL;
}

int zp_builtin_count(void) { return N_BUILTINS; }
const zp_builtin *zp_builtin_at(int index) { return &builtins[index]; }

bool zp_is_builtin(const char *name) { return find_builtin(name) != NULL; }

/* `std.models.llama_layer`, as nodes are written: blocks and operations have no path. */
static bool help_without_path(zp_elab *e, zp_diag *d, const char *name, const zp_strings *names) {
  const char *last = strrchr(name, '.');
  if (!last) return false;
  for (int i = 0; i < names->len; i++) {
    if (strcmp(names->data[i], last + 1) != 0) continue;
    zp_diag_help(d, "write `%s`: operations, and blocks of files that are used, have no path", last + 1);
    return true;
  }
  zp_library_block block;
  if (!zp_library_block_find(e->arena, e->library_dir, last + 1, &block)) return false;
  zp_diag_help(d, "write `%s`, after `use std.%s`", last + 1, block.file);
  return true;
}

static bool report_unknown(zp_elab *e, const zp_expr *call, const char *name) {
  zp_strings names = {0};
  zp_module_names(e->arena, e->frame->module, 1u << ZP_ITEM_BLOCK, &names);
  for (int i = 0; i < N_BUILTINS; i++) zp_push(e->arena, &names, builtins[i].name);
  zp_diag *d = zp_report(e->diags, ZP_Z0215, call->at, "no block and no operation is called `%s`", name);
  zp_library_block block;
  if (zp_library_block_find(e->arena, e->library_dir, name, &block))
    zp_diag_help(d, "it comes with `use std.%s`", block.file);
  else if (!help_without_path(e, d, name, &names) && !zp_help_foreign(d, name))
    zp_diag_did_you_mean(d, name, names.data, names.len);
  return false;
}

bool zp_elab_call(void *user, const zp_expr *call, zp_value *value) {
  zp_elab *e = user;
  const char *name = zp_dotted_name(e->arena, call->left);
  if (!name) {
    zp_report(e->diags, ZP_Z0202, call->span, "this value cannot be called");
    return false;
  }
  const zp_builtin *op = find_builtin(name);
  if (zp_is_sparse(name)) return zp_elab_sparse(e, call, name, value);
  zp_module *where;
  const zp_item *block = op ? NULL : zp_module_find(e->frame->module, name, 1u << ZP_ITEM_BLOCK, &where);
  if (!op && !block) return report_unknown(e, call, name);
  int first_param = e->model->params.len;
  bool ok = op ? zp_call_read(e, op, call, value) : zp_elab_inline(e, call, block, where, value);
  if (ok) zp_elab_note_call(e, call, name, block, first_param, value);
  return ok;
}
