/* SPDX-License-Identifier: Apache-2.0 */
/* Every refusal of model elaboration: its code and the words that tell the user what to do. */
#include "sema_fixture.h"

#define USE "use std.nn\n"
#define HEAD                                                                                                           \
  "model m(V = 32, S = 8, d = 16, n = 3) {\n"                                                                          \
  "  input tokens: i32[B, S]\n  input labels: i32[B, S]\n  param wte: [V, d]\n  x = embedding(tokens, wte)\n"
#define TAIL "  output loss = cross_entropy(matmul(x, transpose(wte)), labels)\n}\n"

typedef struct failure {
  const char *title, *text, *words; /* words "3:Z0203|..." expect three errors instead of one */
} failure;

static void check_all(const failure *cases, size_t count) {
  for (size_t i = 0; i < count; i++) {
    fixture f = load_text(cases[i].text);
    const char *words = cases[i].words;
    bool counted = words[1] == ':';
    check_failure(cases[i].title, &f, counted ? words[0] - '0' : 1, counted ? words + 2 : words);
    unload(&f);
  }
}
#define CHECK(...)                                                                                                     \
  const failure cases[] = {__VA_ARGS__};                                                                               \
  check_all(cases, sizeof cases / sizeof *cases)

Test(sema_errors, names_and_calls) {
  CHECK(
      {"unknown name", HEAD "  x = exp(xx)\n" TAIL, "Z0203|unknown name `xx`"},
      {"caller's names", "block f(x: [B, S, d]) -> [B, S, d] { return x * n }\n" HEAD "  x = f(x)\n" TAIL,
       "Z0203|unknown name `n`|inside `f`, called from test.dz:"},
      {"unknown block", USE HEAD "  x = liner(x, d)\n" TAIL, "Z0215|`liner`|did you mean `linear`"},
      {"without std.nn", HEAD "  x = linear(x, d)\n" TAIL, "Z0215|`linear`|use std.nn"},
      {"cast to ids", HEAD "  x = cast(x, \"i32\")\n" TAIL, "Z0237|`type`|did you mean `f32`"},
      {"argument not built", HEAD "  x = attention(x, x, x, heads = 2, bias = 1)\n" TAIL,
       "Z0216|`bias` of `attention`"},
      {"call of a number", HEAD "  x = (3)(x)\n" TAIL, "Z0202|cannot be called"},
      {"field of a call", HEAD "  x = exp(x).y\n" TAIL, "Z0202|no fields"},
      {"block like an op", "block gelu(x: [B, S, d]) -> [B, S, d] { return x }\n" HEAD TAIL, "Z0239|`gelu`|operation"},
      {"recursion", "block f(x: [B, S, d]) -> [B, S, d] { return f(x) }\n" HEAD "  x = f(x)\n" TAIL,
       "Z0233|`f` calls itself|defined here"},
      {"mutual recursion",
       "block f(x: [B, S, d]) -> [B, S, d] { return g(x) }\nblock g(x: [B, S, d]) -> [B, S, d] { return f(x) }\n" HEAD
       "  x = f(x)\n" TAIL,
       "Z0233|calls itself|inside `g`|inside `f`"},
      {"two blocks",
       "block f(x: [B, S, d]) { return x }\nblock f(x: [B, S, d]) { return x }\n" HEAD "  x = f(x)\n" TAIL,
       "Z0201|block `f` is defined twice|first here"},
      {"iteration number", HEAD "  repeat h in 0..n { x = x * h }\n" TAIL, "Z0235|`h` has no value|one body"},
      {"annotation", HEAD "  y = exp(x) @ keep()\n  x = y\n" TAIL, "Z0236|annotation `@ keep` is not built"});
}

/* What does not depend on the sequence is refused first: that of HEAD, 8, is too short for any pattern. */
#define GATE(more)                                                                                                     \
  HEAD "  param b: [4] ~ zeros()\n  param w: [4, d] ~ zeros()\n  gate = matmul(x, transpose(w))\n"                     \
       "  weight, slot = top_k_gate(gate, k = 2, " more ")\n" TAIL
#define SPARSE(pattern) HEAD "  x = attention(x, x, x, heads = 2, pattern = " pattern ")\n" TAIL
Test(sema_errors, patterns) {
  CHECK(
      {"no pattern", SPARSE("3"), "Z0202|must be a pattern of attention, this is a number|sparse.sliding("},
      {"unknown", SPARSE("sparse.slidng(window = 3)"), "Z0215|`sparse.slidng`|did you mean `sliding`"},
      {"far off", SPARSE("sparse.zzzzzzzzz()"), "Z0215|patterns are `sparse.fixed`, `sparse.variable`"},
      {"argument", SPARSE("sparse.sliding(local = 3)"), "Z0214|`sparse.sliding` has no argument `local`"},
      {"horizontal and causal", SPARSE("sparse.fixed(block = 16, horizontal = true)"),
       "Z0205|`horizontal` lets global blocks see all keys|causal = false"},
      {"horizontal of a number", SPARSE("sparse.variable(horizontal = 1)"), "Z0202|`horizontal` must be true or false"},
      {"too many patterns", SPARSE("sparse.fixed(local = 6, global = 2, patterns = 4)"),
       "Z0237|4 `patterns` of `global` = 2 blocks need as many blocks, `local` is 6"},
      {"patterns of another kind", SPARSE("sparse.bigbird(patterns = 2)"),
       "Z0214|`sparse.bigbird` has no argument `patterns`"},
      {"bias of a softmax", GATE("bias = b"), "Z0208|`bias` of `top_k_gate`|affinity = \"sigmoid\""},
      {"bias of another size", GATE("bias = w, affinity = \"sigmoid\""),
       "Z0204|is a parameter [4], one number an expert"},
      {"bias that is no parameter", GATE("bias = gate, affinity = \"sigmoid\""), "Z0204|one number an expert"},
      {"rate of a bias", GATE("bias = b, affinity = \"sigmoid\", bias_rate = -1"), "Z0208|`bias_rate`|must be above 0"},
      {"bias read elsewhere",
       GATE("bias = b, affinity = \"sigmoid\")\n  x = x + combine(dispatch(x, slot), weight, slot)\n  x = x + "
            "matmul(gate + b, w"),
       "Z0208|nothing else may read it"},
      {"groups of a softmax", GATE("groups = 2, top_groups = 1"),
       "Z0208|`groups` of `top_k_gate`|affinity = \"sigmoid\""},
      {"groups without how many", GATE("affinity = \"sigmoid\", groups = 2"), "Z0214|needs the argument `top_groups`"},
      {"how many of no groups", GATE("affinity = \"sigmoid\", top_groups = 2"), "Z0214|needs the argument `groups`"},
      {"no groups", GATE("affinity = \"sigmoid\", groups = 0, top_groups = 1"), "Z0202|`groups`|at least 1"},
      {"uneven groups", GATE("affinity = \"sigmoid\", groups = 3, top_groups = 1"),
       "Z0208|`groups` of `top_k_gate` is 3, which 4 experts do not fill evenly|two experts or more"},
      {"groups of one", GATE("affinity = \"sigmoid\", groups = 4, top_groups = 3"),
       "Z0208|is 4, which 4 experts do not"},
      {"too many groups", GATE("affinity = \"sigmoid\", groups = 65, top_groups = 3"),
       "Z0208|at most 64 groups, not in 65"},
      {"more than there are", GATE("affinity = \"sigmoid\", groups = 2, top_groups = 3"),
       "Z0208|`top_groups` of `top_k_gate` is 3, but there are 2 `groups`"},
      {"affinity", GATE("affinity = \"relu\""), "`affinity`|softmax"},
      {"capacity in quotes", GATE("capacity = \"dropless\""), "Z0202|a number or `dropless`|without quotes"},
      {"no capacity", GATE("capacity = 0"), "Z0237|`capacity` must be above 0, this is 0"},
      {"room of slots", GATE("capacity = 1.25, room = 2"), "Z0237|for rows of `capacity = dropless`|slots, of which"},
      {"less room than an even load", GATE("capacity = dropless, room = 0.5"), "Z0237|at least 1|leave `room` out"},
      {"another number without end", GATE("balance = dropless"),
       "Z0202|`balance` must be a number, this is `dropless`"},
      {"positions of sorted rows", GATE("capacity = dropless)\n  y = sum(dispatch(x, slot)"),
       "Z0208|`mean` of `dispatch`|sorted by expert|after `combine`"},
      {"no window", SPARSE("sparse.sliding(window = 0)"),
       "Z0237|`window` must be a whole number of at least 1, this is 0"},
      {"even window", SPARSE("sparse.bigbird(window = 4)"), "Z0237|`window`|odd, this is 4"},
      {"half a block", SPARSE("sparse.strided(block = 24)"), "Z0237|`block` must be a multiple of 16, this is 24"},
      {"more global than local", SPARSE("sparse.fixed(local = 2, global = 3)"), "Z0237|`global` is 3 of `local` = 2"},
      {"no windows", SPARSE("sparse.variable(windows = [])"), "Z0237|`windows` must have"},
      {"a window is no list", SPARSE("sparse.variable(windows = 4)"), "a list of whole numbers"},
      {"a wrong list", SPARSE("sparse.longformer(global = [0, -1])"), "Z0237|`global` must be a list of whole numbers"},
      {"sequence", SPARSE("sparse.sliding(block = 16)"),
       "Z0205|8 positions is no multiple of the pattern's block of 16"},
      {"global block",
       "model m(V = 32, S = 32, d = 16) {\n  input tokens: i32[B, S]\n  input labels: i32[B, S]\n"
       "  param wte: [V, d]\n  x = embedding(tokens, wte)\n  x = attention(x, x, x, heads = 2, "
       "pattern = sparse.longformer(block = 16, global = [2]))\n" TAIL,
       "Z0205|block 2 of `global` does not exist|2 blocks of 16"});
}

Test(sema_errors, arguments) {
  CHECK(
      {"missing", USE HEAD "  x = linear(x)\n" TAIL, "Z0214|`linear` needs the argument `out`"},
      {"missing in op", HEAD "  x = attention(x, x, x)\n" TAIL, "Z0214|`attention` needs the argument `heads`"},
      {"too many", HEAD "  x = exp(x, 3)\n" TAIL, "Z0214|too many arguments for `exp`"},
      {"unknown keyword", USE HEAD "  x = linear(x, d, bais = false)\n" TAIL,
       "Z0214|no argument `bais`|did you mean `bias`"},
      {"list of keywords", USE HEAD "  x = layer_norm(x, zzz = 2)\n" TAIL, "Z0214|its arguments are `x`, `eps`"},
      {"foreign word", USE HEAD "  x = linear(x, out_features = d)\n" TAIL, "Z0214|it is called `out` here"},
      {"twice", USE HEAD "  x = linear(x, d, out = d)\n" TAIL, "Z0214|`out` of `linear` is given twice|first here"},
      {"number for tensor", USE HEAD "  x = linear(3, d)\n" TAIL,
       "Z0202|`x` of `linear` must be a tensor, this is a number"},
      {"number for tensor in op", HEAD "  x = softmax(3)\n" TAIL, "Z0202|`x` of `softmax` must be a tensor"},
      {"tensor for number", USE HEAD "  x = linear(x, x)\n" TAIL, "Z0202|`out` must be an `int`"},
      {"fraction for int", USE HEAD "  x = linear(x, d / 3)\n" TAIL, "Z0202|`out` must be an `int`, this is 5.33"},
      {"number for bool", USE HEAD "  x = linear(x, d, bias = 1)\n" TAIL,
       "Z0202|`bias` must be true or false, this is 1"},
      {"string for number", USE HEAD "  x = layer_norm(x, eps = \"small\")\n" TAIL, "Z0202|`eps` must be a number"},
      {"fraction of heads", HEAD "  x = rope(x, heads = 1.5)\n" TAIL, "Z0202|`heads` must be a whole number"},
      {"unknown type", "block f(x: [B, S, d], k: itn) { return x * k }\n" HEAD "  x = f(x, 2)\n" TAIL,
       "Z0203|unknown type `itn`|did you mean `int`"},
      {"unknown element", "block f(x: f33[B, S, d]) { return x }\n" HEAD "  x = f(x)\n" TAIL,
       "Z0203|unknown element type `f33`"},
      {"two formals", "block f(x: [B, S, d], x: int) { return x }\n" HEAD "  x = f(x, 1)\n" TAIL,
       "Z0201|two formals `x`"},
      {"formal B", "block f(x: [B, S, d], B: int) { return x }\n" HEAD "  x = f(x, 1)\n" TAIL, "Z0239|`B`"},
      {"variant", HEAD "  x = gelu(x, approximate = \"tanhh\")\n" TAIL, "Z0237|\"tanhh\"|did you mean `tanh`"},
      {"variants", HEAD "  x = rope(x, heads = 2, style = \"zzzzzz\")\n" TAIL, "Z0237|use \"half\" or \"interleaved\""},
      {"slope", HEAD "  x = leaky_relu(x, -0.2)\n" TAIL, "Z0237|`negative_slope` must not be negative, this is -0.2"},
      {"word for slope", HEAD "  x = leaky_relu(x, negative_slope = \"0.2\")\n" TAIL,
       "Z0202|`negative_slope` must be a number"},
      {"tensor for slope", HEAD "  x = leaky_relu(x, x)\n" TAIL, "Z0202|`negative_slope` must be a number"},
      {"name of slope", HEAD "  x = leaky_relu(x, slope = 0.2)\n" TAIL,
       "Z0214|its arguments are `x`, `negative_slope`"},
      {"rate", HEAD "  x = dropout(x, 1.0)\n" TAIL, "Z0237|dropout rate|this is 1"},
      {"eps", USE HEAD "  x = layer_norm(x, eps = 0 - 1)\n" TAIL, "Z0237|`eps` must be above 0"},
      {"theta", HEAD "  x = rope(x, heads = 2, theta = 0)\n" TAIL, "Z0237|`theta`"},
      {"scale", HEAD "  x = attention(x, x, x, heads = 2, scale = 0)\n" TAIL, "Z0237|`scale`"},
      {"norm of heads", HEAD "  param w: [d]\n  x = rms_normalize(x, w, heads = 4)\n" TAIL, "Z0204|needs 4 elements"},
      {"norm of a part", HEAD "  param w: [2]\n  a, b = split(x, 2)\n  x = rms_normalize(a, w, heads = 4) + b\n" TAIL,
       "Z0216|a part of a split|a product each"},
      {"smoothing", HEAD "  output loss = cross_entropy(matmul(x, transpose(wte)), labels, label_smoothing = 1)\n}\n",
       "Z0237|`label_smoothing` lies in 0 .. 1"},
      {"z loss", HEAD "  output loss = cross_entropy(matmul(x, transpose(wte)), labels, z_loss = -0.1)\n}\n",
       "Z0237|`z_loss` must not be negative"});
}

Test(sema_errors, arguments_of_attention) {
  CHECK(
      {"softcap", HEAD "  x = attention(x, x, x, heads = 2, softcap = 0)\n" TAIL, "Z0237|`softcap` must be above 0"},
      {"dropout of all", HEAD "  x = attention(x, x, x, heads = 2, dropout = 1)\n" TAIL,
       "Z0237|a dropout rate lies in"},
      {"alibi", HEAD "  x = attention(x, x, x, heads = 2, alibi = 2)\n" TAIL, "Z0202|`alibi` must be true or false"},
      {"two sequences", HEAD "  x = attention(x, slice(x, 0, 4), slice(x, 0, 4), heads = 2, causal = false)\n" TAIL,
       "Z0204|one sequence length|cross = true"},
      {"causal across", HEAD "  x = attention(x, x, x, heads = 2, cross = true)\n" TAIL,
       "Z0205|`causal = true`|no distance"},
      {"biased across",
       HEAD
       "  param t: [8, 2]\n  x = attention(x, x, x, heads = 2, causal = false, cross = true, relative_bias = t)\n" TAIL,
       "Z0205|a relative bias"},
      {"window across", HEAD "  x = attention(x, x, x, heads = 2, causal = false, cross = true, window = 3)\n" TAIL,
       "Z0205|a window"},
      {"bias of other heads", HEAD "  param t: [8, 3]\n  x = attention(x, x, x, heads = 2, relative_bias = t)\n" TAIL,
       "Z0204|parameter [buckets, heads], not `t` [8, 3]"},
      {"bias that is computed", HEAD "  x = attention(x, x, x, heads = 2, relative_bias = x)\n" TAIL, "Z0204|not `x`"},
      {"buckets of sides",
       HEAD "  param t: [6, 2]\n  x = attention(x, x, x, heads = 2, causal = false, relative_bias = t)\n" TAIL,
       "Z0205|even number of buckets"},
      {"largest distance",
       HEAD "  param t: [8, 2]\n  x = attention(x, x, x, heads = 2, relative_bias = t, max_distance = 4)\n" TAIL,
       "Z0205|`max_distance`|not 8 buckets and 4"},
      {"distance of nothing", HEAD "  x = attention(x, x, x, heads = 2, max_distance = 4)\n" TAIL,
       "Z0237|there is none"},
      {"bias and ALiBi",
       HEAD "  param t: [8, 2]\n  x = attention(x, x, x, heads = 2, relative_bias = t, alibi = true)\n" TAIL,
       "Z0216|ALiBi"},
      {"window", HEAD "  x = attention(x, x, x, heads = 2, window = 0)\n" TAIL,
       "Z0202|`window` must be a whole number"},
      {"window and pattern",
       HEAD "  x = attention(x, x, x, heads = 2, window = 3, pattern = sparse.sliding(block = 16, window = 1))\n" TAIL,
       "Z0216|a pattern and a window|leave one of the two away"});
}

Test(sema_errors, arguments_of_positions) {
  CHECK(
      {"split axis", HEAD "  x, y = split(x, 2, axis = 1)\n" TAIL, "Z0216|axis 1|axis = -1"},
      {"sum of samples", HEAD "  x = sum(x, axis = 0)\n" TAIL, "Z0216|`sum` along axis 0|the positions of a sample"},
      {"columns by number", HEAD "  x = gather(x, tokens, axis = -1)\n" TAIL,
       "Z0216|`gather` along the columns|axis 1"},
      {"number that is no input", HEAD "  x = gather(x, x)\n" TAIL, "Z0206|must hold i32 ids"},
      {"heads of positions", HEAD "  x = slice(x, 0, 2, heads = 2)\n" TAIL, "Z0237|`heads` of `slice`|axis = -1"},
      {"heads that do not divide", HEAD "  x = slice(x, 0, 2, axis = -1, heads = 3)\n" TAIL,
       "Z0205|3 heads do not divide the 16 columns"},
      {"columns of no head", HEAD "  x = slice(x, 0, 9, axis = -1, heads = 2)\n" TAIL, "Z0237|0 to 8: not 0 to 9"},
      {"columns of other positions", HEAD "  x = concat(x, slice(x, 1), axis = -1)\n" TAIL, "Z0204|side by side"},
      {"narrower heads", HEAD "  x = pad(x, 4, heads = 2)\n" TAIL, "Z0237|`pad` makes heads wider: 4 columns|than 8"},
      {"another size", HEAD "  x = reshape(x, S, d + 1)\n" TAIL, "Z0204|128 elements a sample|has 136"},
      {"reshaped samples", HEAD "  x = reshape(x, 2, k = 4)\n" TAIL, "Z0214|`reshape` needs the argument `m`"},
      {"target of another shape", HEAD "  output loss = mse(x, x)\n}\n", "Z0204|`target` of `mse` is an input"},
      {"numbers as labels", HEAD "  output loss = mse(x, labels)\n}\n", "Z0206|floating point values"},
      {"equation of nothing", HEAD "  x = einsum(\"bsd,de\", x, wte)\n" TAIL, "Z0237|after \"->\"|a letter for every"},
      {"letters of another rank", HEAD "  x = einsum(\"bd,vd->bv\", x, wte)\n" TAIL,
       "Z0209|\"bd\" has 2 letters|[B, 8, 16]"},
      {"a diagonal", HEAD "  x = einsum(\"bss->bs\", x)\n" TAIL, "Z0237|each once in an operand"},
      {"scores by hand", HEAD "  x = einsum(\"bqd,bkd->bqk\", x, x)\n" TAIL,
       "Z0216|`einsum` of \"bqd,bkd->bqk\"|built are products"},
      {"sum over samples", HEAD "  x = einsum(\"bsd->sd\", x)\n" TAIL, "Z0216|`einsum` of \"bsd->sd\""},
      {"slice after the end", HEAD "  x = slice(x, 3, 9)\n" TAIL, "Z0237|0 to 8: not 3 to 9"},
      {"empty slice", HEAD "  x = slice(x, 3, -5)\n" TAIL, "Z0237|not 3 to 3"},
      {"slice of half a position", HEAD "  x = slice(x, 0.5)\n" TAIL, "Z0237|not 0.5 to 8"},
      {"no such position", HEAD "  x = select(x, -9)\n" TAIL, "Z0237|`index` of `select` lies in 0 .. 7, this is -9"},
      {"no such column", HEAD "  x = select(x, 32, axis = -1)\n" TAIL,
       "Z0237|`index` of `select` lies in 0 .. 15, this is 32"});
}

Test(sema_errors, losses) {
  CHECK(
      {"losses are summed",
       HEAD "  a = cross_entropy(matmul(x, transpose(wte)), labels)\n  output loss = a - 0.5 * a\n}\n",
       "Z0227|losses are added, and multiplied by numbers above 0"},
      {"a weight of nothing",
       HEAD "  a = cross_entropy(matmul(x, transpose(wte)), labels)\n  output loss = a + 0 * a\n}\n",
       "Z0227|losses are added"},
      {"a sum is read", HEAD "  a = cross_entropy(matmul(x, transpose(wte)), labels)\n  output loss = exp(a + a)\n}\n",
       "Z0227|a sum of losses is read by an operation"},
      {"two marks for none",
       HEAD "  a = cross_entropy(matmul(x, transpose(wte)), labels, ignore_index = -100)\n"
            "  output l = a + cross_entropy(matmul(exp(x), transpose(wte)), labels)\n}\n",
       "Z0237|`ignore_index` of `labels` is -100 in another cross-entropy, and -1 here"},
      {"half a label", HEAD "  output l = cross_entropy(matmul(x, transpose(wte)), labels, ignore_index = 0.5)\n}\n",
       "Z0237|`ignore_index` is a label, this is 0.5"},
      {"lengths of words", HEAD "  output l = cross_entropy(matmul(x, transpose(wte)), labels, lengths = labels)\n}\n",
       "Z0209|must have 2 dimensions"},
      {"position of a mean", HEAD "  x = select(mean(x), 0)\n" TAIL, "Z0209|must have 3 dimensions"},
      {"joined widths", HEAD "  param w: [1, d + 1]\n  x = concat(w, x)\n" TAIL, "Z0204|one after the other"},
      {"a label a token", HEAD "  x = mean(x)\n" TAIL, "Z0204|one label per row|[B, 32]"});
}

Test(sema_errors, shapes) {
  CHECK(
      {"unify in one call",
       "block f(x: [B, S, d], y: [B, S, d]) -> [B, S, d] { return x + y }\n" HEAD
       "  y, z = split(x, 2)\n  x = f(x, y)\n  x = x + f(y, z)\n" TAIL,
       "Z0217|`d` of `f` is 16 and 8 at once|[B, 8, 8]|`d` is 16 because of this|declared here"},
      {"size and value formal", "block f(x: [B, S, k], k: int) { return x }\n" HEAD "  x = f(x, 4)\n" TAIL,
       "Z0217|`k` of `f` is 4 and 16 at once|`k` is 4 because of this"},
      {"expression", "block f(x: [B, S, 2 * k], k: int) { return x }\n" HEAD "  x = f(x, 4)\n" TAIL,
       "Z0217|size 3 of this argument of `f` is 16, not 8"},
      {"rank", USE HEAD "  x = linear(wte, d)\n" TAIL,
       "Z0217|needs 3 sizes, this tensor has 2|[32, 16]|declared as [B, S, k]"},
      {"ids for numbers", USE "block f(x: [B, S]) { return x }\n" HEAD "  y = f(tokens)\n" TAIL,
       "Z0217|`x` needs numbers, this tensor holds token ids"},
      {"numbers for ids", "block f(t: i32[B, S, d]) { return t }\n" HEAD "  x = f(x)\n" TAIL, "Z0217|needs token ids"},
      {"B bound to a name", "block f(x: [a, b, c]) { return x }\n" HEAD "  x = f(x)\n" TAIL,
       "Z0219|cannot be bound to `a`|write `B` here"},
      {"B of a parameter", "block f(x: [B, d]) { return x }\n" HEAD "  y = f(wte)\n" TAIL, "Z0217|size 1|is 32, not B"},
      {"B inside a shape", "block f(x: [B, B, d]) { return x }\n" HEAD "  x = f(x)\n" TAIL,
       "Z0219|may only be the first size"},
      {"B as a number", HEAD "  x = x * B\n" TAIL, "Z0219|`B` is not a number here|micro-batch"},
      {"result shape", "block f(x: [B, S, d]) -> [B, S, 2 * d] { return exp(x) }\n" HEAD "  x = f(x)\n" TAIL,
       "Z0218|`f` returns [B, 8, 16], but [B, 8, 32] is declared|inside `f`"},
      {"result kind", "block f(x: [B, S, d]) -> [B, S, d] { return 3 }\n" HEAD "  x = f(x)\n" TAIL,
       "Z0218|`f` returns a number|[B, S, d]"},
      {"result count", "block f(x: [B, S, d]) -> [B, S, d] { return x, x }\n" HEAD "  x = f(x)\n" TAIL,
       "Z0218|declares 1 result and returns 2"},
      {"one name for three", HEAD "  x = split(x, 4)\n" TAIL, "Z0218|4 results for 1 name"},
      {"three names for two", HEAD "  a, b, c = split(x, 2)\n" TAIL, "Z0218|2 results for 3 names"},
      {"two names for one", HEAD "  a, b = exp(x)\n" TAIL, "Z0218|1 result for 2 names"},
      {"several in an expression", HEAD "  x = x + split(x, 2)\n" TAIL, "Z0202|a tensor and several tensors"},
      {"size not whole", HEAD "  param w: [d / 3, d]\n" TAIL, "Z0202|a size must be a whole number|5.33"},
      {"size zero", HEAD "  param w: [n - 3, d]\n" TAIL,
       "Z0202|a size must be a whole number of at least 1, this is 0"},
      {"addition in a block", "block f(x: [B, S, d], w: [k, d]) { return x + w }\n" HEAD "  x = f(x, wte)\n" TAIL,
       "[B, 8, 16]|[32, 16]|inside `f`, called from test.dz:"},
      {"operator", HEAD "  x = x < 3\n" TAIL, "Z0202|cannot join a tensor and a number"},
      {"not a tensor", HEAD "  x = not x\n" TAIL, "Z0202|cannot be applied to a tensor"},
      {"unit", HEAD "  x = x * 3GB\n" TAIL, "Z0202|a tensor and a size in bytes"},
      {"tensor divided by zero", HEAD "  x = x / (n - 3)\n" TAIL, "Z0213|division by zero"},
      {"list of tensors", HEAD "  y = [x, x]\n" TAIL, "2:Z0202|a list cannot hold tensors"});
}

Test(sema_errors, transpose) {
  CHECK({"alone", HEAD "  w = transpose(wte)\n  x = matmul(x, w)\n" TAIL, "Z0229|second operand of `matmul`"},
        {"first operand", HEAD "  x = matmul(transpose(wte), wte)\n" TAIL, "Z0229|`transpose` of a parameter"},
        {"inside an expression", HEAD "  x = matmul(x, 2 * transpose(wte))\n" TAIL, "Z0229"},
        {"of a number", HEAD "  x = matmul(x, transpose(3))\n" TAIL, "Z0202|`w` of `transpose` must be a tensor"});
}

Test(sema_errors, parameters) {
  CHECK(
      {"unknown start value", HEAD "  param w: [d, d] ~ norml(std = 1)\n" TAIL, "Z0228|`norml`|did you mean `normal`"},
      {"missing bound", HEAD "  param w: [d, d] ~ uniform(0.5)\n" TAIL, "Z0214|`uniform` needs the argument `high`"},
      {"bounds", HEAD "  param w: [d, d] ~ uniform(1, -1)\n" TAIL, "Z0228|lower bound 1 is above the upper bound -1"},
      {"deviation", HEAD "  param w: [d, d] ~ normal(std = 0 - 1)\n" TAIL, "Z0228|cannot be negative"},
      {"argument", HEAD "  param w: [d, d] ~ zeros(1)\n" TAIL, "Z0214|too many arguments for `zeros`"},
      {"B", HEAD "  param w: [B, d]\n" TAIL, "Z0228|[B, 16]|micro-batch"},
      {"rank", HEAD "  param w: [n, 2, d, d]\n" TAIL, "Z0228|[3, 2, 16, 16]|matrices of experts"},
      {"no shape", HEAD "  param w: []\n" TAIL, "Z0228|`w` needs a shape"},
      {"element", HEAD "  param w: i32[d]\n" TAIL, "Z0228|cannot hold `i32`"});
}

Test(sema_errors, repeats) {
  CHECK({"no iteration", HEAD "  repeat h in 0..n - 3 { x = exp(x) }\n" TAIL, "Z0221|no iteration|0..0"},
        {"fraction", HEAD "  repeat h in 0..n / 2 { x = exp(x) }\n" TAIL, "Z0221|whole numbers"},
        {"no range", HEAD "  repeat h in n { x = exp(x) }\n" TAIL, "Z0221|needs a range|0..layers"},
        {"nested", HEAD "  repeat h in 0..n { repeat k in 0..n { x = exp(x) } }\n" TAIL, "Z0225|cannot be nested"},
        {"in a block", "block f(x: [B, S, d]) { repeat h in 0..2 { x = exp(x) } return x }\n" HEAD "  x = f(x)\n" TAIL,
         "Z0225|top level of a model"},
        {"nothing carried", HEAD "  repeat h in 0..n { y = exp(x) }\n" TAIL, "Z0222|nothing flows through `repeat h`"},
        {"number carried", HEAD "  k = 2\n  repeat h in 0..n {\n    k = k + 1\n    x = x * k\n  }\n" TAIL,
         "Z0222|`k` cannot change from iteration to iteration"},
        {"shape changes", HEAD "  repeat h in 0..n { x, y = split(x, 2) }\n" TAIL,
         "Z0222|`x` cannot flow|made by `split`"},
        {"shape grows", HEAD "  repeat h in 0..n {\n param w: [d, 2 * d]\n x = matmul(x, w)\n }\n" TAIL,
         "Z0226|`x` changes its shape|[B, 8, 16] on entry, [B, 8, 32] at the end"},
        {"unchanged", HEAD "  repeat h in 0..n { x = x }\n" TAIL, "Z0222|`x` leaves `repeat h` as it came"},
        {"becomes a number", HEAD "  repeat h in 0..n { x = 3 }\n" TAIL, "Z0202|`x` was a tensor before the repeat"},
        {"parameter carried", HEAD "  y = wte\n  repeat h in 0..n { y = exp(y) }\n" TAIL, "Z0222|`y` cannot flow"},
        {"split part carried", HEAD "  y, z = split(x, 2)\n  repeat h in 0..n { y = exp(y) }\n" TAIL,
         "Z0222|made by `split`"},
        {"value of the body", HEAD "  repeat h in 0..n { z = exp(x) x = z + x }\n  x = x + z\n" TAIL,
         "Z0203|unknown name `z`"},
        {"split part read in a repeat", HEAD "  y, z = split(x, 2)\n  repeat h in 0..n { x = x + exp(y) }\n" TAIL,
         "Z0222|`y` cannot flow|made by `split`"},
        {"split part read after a repeat",
         HEAD "  y, z = split(x, 2)\n  repeat h in 0..n { x = exp(x) }\n  z = exp(y)\n" TAIL,
         "Z0222|`y` cannot flow|made by `split`"},
        {"only assigned", HEAD "  y = exp(x)\n  repeat h in 0..n { x = exp(x)\n y = x * 2 }\n  x = y + x\n" TAIL,
         "Z0231|segment `h` does not use what flows into it|`y`"});
}

Test(sema_errors, statements) {
  CHECK(
      {"no output", HEAD "  y = exp(x)\n}\n", "Z0227|model `m` has no output"},
      {"two outputs", HEAD "  output l = cross_entropy(matmul(x, transpose(wte)), labels)\n" TAIL,
       "Z0227|second output|the first"},
      {"output in a repeat", HEAD "  repeat h in 0..n { x = exp(x)\n output l = x }\n" TAIL, "Z0227|top level"},
      {"output in a block", "block f(x: [B, S, d]) { output l = x return x }\n" HEAD "  x = f(x)\n" TAIL, "Z0227"},
      {"output no loss", HEAD "  output loss = matmul(x, transpose(wte))\n}\n",
       "Z0227|must be a loss|[B, 8, 32]|cross_entropy"},
      {"output a number", HEAD "  output loss = 3\n}\n", "Z0227|must be a loss|a number"},
      {"repeat after output",
       HEAD "  output l = cross_entropy(matmul(x, transpose(wte)), labels)\n  repeat h in 0..n { x = exp(x) }\n}\n",
       "Z0227|a repeat follows the output"},
      {"return in a model", HEAD "  return x\n" TAIL, "Z0232|`return` belongs into blocks"},
      {"no return", "block f(x: [B, S, d]) { y = exp(x) }\n" HEAD "  x = f(x)\n" TAIL,
       "Z0232|`f` ends without `return`"},
      {"input in a block", "block f(x: [B, S, d]) { input t: i32[B, S] return x }\n" HEAD "  x = f(x)\n" TAIL,
       "Z0232|top level"},
      {"input without samples", "model m(S = 8) { input pixels: f32[S, S] }\n", "Z0238|`pixels`|input tokens"},
      {"input of four sizes", "model m(S = 8) { input pixels: f32[B, S, S, S] }\n", "Z0238|`pixels`|f32[B, S, n]"},
      {"input of other elements", "model m(S = 8) { input pixels: bf16[B, S, S] }\n", "Z0238|`pixels`"},
      {"labels of numbers", "model m(S = 8) { input labels: f32[B, S] }\n", "Z0238|`labels`"},
      {"input of numbers", "model m(S = 8) { input tokens: f32[B, S] }\n", "Z0238|`tokens`"},
      {"inputs of two lengths", "model m(S = 8) { input tokens: i32[B, S]\n input labels: i32[B, S + 1] }\n",
       "Z0238|differ in length|[B, 8]"},
      {"input twice", "model m(S = 8) { input tokens: i32[B, S]\n input tokens: i32[B, S] }\n",
       "Z0201|`tokens` is declared twice"},
      {"assert", HEAD "  assert d % n == 0, \"d must divide\"\n" TAIL, "Z0220|d must divide|d = 16, n = 3"},
      {"assert without words", HEAD "  assert false\n" TAIL, "Z0220|assertion failed"},
      {"condition", HEAD "  if n { x = exp(x) }\n" TAIL, "Z0202|a condition must be true or false, this is a number"});
}

Test(sema_errors, unused) {
  CHECK({"value", HEAD "  y = exp(x)\n" TAIL, "Z0231|`y` is never used"},
        {"end of a dead chain", HEAD "  y = exp(exp(x))\n" TAIL, "Z0231|`y` is never used"},
        {"part of a split", HEAD "  a, b = split(x, 2)\n  param w: [d / 2, d]\n  x = matmul(a, w)\n" TAIL,
         "Z0231|result 2 of this `split`"},
        {"parameter", HEAD "  param w: [d, d]\n" TAIL, "Z0231|parameter `w` is never used"},
        {"input",
         "model m(V = 32, S = 8, d = 16) {\n  input tokens: i32[B, S]\n  input labels: i32[B, S]\n  param t: [V, d]\n"
         "  x = embedding(labels, t)\n  output l = cross_entropy(matmul(x, transpose(t)), labels)\n}\n",
         "Z0231|input `tokens` is never used"},
        {"result of a repeat", HEAD "  repeat h in 0..n { x = exp(x) }\n  x = embedding(tokens, wte)\n" TAIL,
         "Z0231|does not use what flows into it|`x`"});
}

Test(sema_errors, models) {
  CHECK({"no model", "let a = 3\n", "Z0230|test.dz has no model"},
        {"several", HEAD TAIL "model k(V = 3) { }\n", "Z0230|several models|--model"},
        {"unknown argument of a model",
         HEAD TAIL
         "train { model = m(n_embd = 3) data = synthetic(seed = 1) batch = 1 steps = 1 optimizer = sgd(lr = 1) }\n",
         "Z0214|no argument `n_embd`|it is called `d` here"},
        {"bad argument",
         HEAD TAIL
         "train { model = m(d = 1.5) data = synthetic(seed = 1) batch = 1 steps = 1 optimizer = sgd(lr = 1) }\n",
         "Z0202|`d` must be a whole number, this is 1.5"},
        {"unknown model",
         HEAD TAIL "train { model = mm data = synthetic(seed = 1) batch = 1 steps = 1 optimizer = sgd(lr = 1) }\n",
         "Z0230|no model `mm`|did you mean `m`"});
}

Test(sema_errors, too_large) {
  CHECK({"parameter", HEAD "  param w: [10000000 * V, 1000000]\n" TAIL, "Z0211|elements per sample"},
        {"size", HEAD "  param w: [1e14, 1]\n" TAIL, "Z0202|a size must be a whole number"},
        {"activation", USE HEAD "  x = linear(x, 1e13)\n" TAIL, "Z0202|`out` must be an `int`"},
        {"logits",
         "model m(V = 100000, S = 1000000000, d = 16) {\n  input tokens: i32[B, S]\n  input labels: i32[B, S]\n"
         "  param t: [V, d]\n  output l = cross_entropy(matmul(embedding(tokens, t), transpose(t)), labels)\n}\n",
         "Z0211|[B, 1000000000, 100000]"},
        {"model",
         HEAD "  repeat h in 0..65536 {\n    param w: [d, 4000000000 * d]\n    param u: [4000000000 * d, d]\n"
              "    x = matmul(matmul(x, w), u)\n  }\n" TAIL,
         "Z0211|the model has 1.3e+17 parameters"},
        {"iterations", HEAD "  repeat h in 0..65537 {\n    x = x + x\n  }\n" TAIL,
         "Z0221|this repeat has 65537 iterations, at most 65536|record of every iteration"});
}

/* Sixteen lines are 2^15 calls; forty took all memory. */
#define TWICE(name, inner) "block " #name "(x: [B, S, d]) { return " #inner "(" #inner "(x)) }\n"
Test(sema_errors, doubling_blocks) {
  CHECK({"blocks that call twice",
         "block a(x: [B, S, d]) { return exp(x) }\n" TWICE(b, a) TWICE(c, b) TWICE(d, c) TWICE(e, d) TWICE(f, e)
             TWICE(g, f) TWICE(h, g) TWICE(i, h) TWICE(j, i) TWICE(k, j) TWICE(l, k) TWICE(m, l) TWICE(n, m) TWICE(o, n)
                 TWICE(p, o) HEAD "  x = p(x)\n" TAIL,
         "Z0211|more than 20000 calls of blocks|written out at every call"});
}

/* One mistake, one message; several mistakes, several messages. */
Test(sema_errors, recovery) {
  CHECK({"poison", HEAD "  y = exp(zz)\n  q, k = split(y, 2)\n  x = x + y * q - k\n" TAIL, "Z0203|`zz`"},
        {"three mistakes", HEAD "  y = exp(zz)\n  z = cast(x)\n  w = softmax(4)\n" TAIL, "3:Z0203|Z0214|Z0202"},
        {"a block tells once",
         "block f(x: [B, S, d]) -> [B, S, d] { return zz }\n" HEAD "  x = f(x)\n  x = f(f(x))\n" TAIL, "Z0203|`zz`"},
        {"repeat after an error", HEAD "  x = exp(zz)\n  repeat h in 0..n { x = exp(x) }\n" TAIL, "Z0203"});
}
