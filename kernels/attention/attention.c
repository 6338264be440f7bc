/* SPDX-License-Identifier: Apache-2.0 */
/* Attention: public functions, choice of the instruction set, heads of padding and positions that are not there. The
 * work is in attention_forward.h and attention_backward.h. */
#include "attention.h"
#include <assert.h>
#include <string.h>

static const zpk_attention_level *best_level(void) {
#if ZPK_X86_LEVELS
  if (__builtin_cpu_supports("x86-64-v4")) return &zpk_attention_v4;
  if (__builtin_cpu_supports("x86-64-v3")) return &zpk_attention_v3;
#endif
  return &zpk_attention_base;
}

int64_t zpk_attention_workspace(zpk_dtype dtype, int64_t S, int64_t hd, int64_t group, bool backward) {
  assert(dtype <= ZPK_F16 && S >= 1 && hd >= 1 && group >= 1);
  int64_t ld = zpk_padded_head(dtype, hd), padded_S = (S + BLOCK - 1) / BLOCK * BLOCK;
  int64_t forward_elements = 2 * padded_S * ld + BLOCK * (2 * ld + BLOCK);
  int64_t backward_elements = BLOCK * (8 * ld + 2 * BLOCK) + (zpk_is_narrow(dtype) ? group * S * ld : 0);
  return (backward ? backward_elements : forward_elements) * zpk_real_bytes(dtype);
}

int64_t zpk_attention_bias_line(zpk_dtype dtype, int64_t S, int64_t group, bool backward) {
  assert(dtype <= ZPK_F16 && S >= 1 && group >= 1);
  return zpk_line_elements(S) * group * (backward ? 2 : 1) * zpk_real_bytes(dtype);
}

/* All samples as long as S, or cut there by a length. */
static int64_t unwritten_by(const zpk_attention_args *args, int64_t S, bool backward) {
  int64_t ld = zpk_padded_head(args->dtype, args->hd), real = zpk_real_bytes(args->dtype);
  if (backward && zpk_is_narrow(args->dtype)) return (ld - args->hd) * real;
  int64_t most = args->layout && args->layout->block < S ? args->layout->block : S;
  int64_t elements = most < BLOCK ? (BLOCK - most) * BLOCK : 0;
  if (args->layout && !backward) /* keys of whole units */
    elements += 2 * ((S + BLOCK - 1) / BLOCK * BLOCK - zpk_padded_keys(S)) * ld;
  return elements * real;
}

/* Positions of the document that begins at `first`; 0: none does. */
static int64_t document_at(const zpk_attention_args *args, int64_t b, int64_t first) {
  const int32_t *number = args->documents + b * args->S;
  int64_t end = first;
  while (end < args->S && number[end] >= 0 && number[end] == number[first]) end++;
  return end - first;
}

/* 0: samples have no document, as stretches after the last one. */
static int64_t longest_document(const zpk_attention_args *args) {
  int64_t longest = 0;
  for (int64_t b = 0; b < args->B; b++)
    for (int64_t first = 0, n; first < args->S && (n = document_at(args, b, first)) > 0; first += n)
      if (n > longest) longest = n;
  return longest;
}

/* In parts of layouts some heads see no key. */
static bool sees_none(const zpk_attention_args *args) {
  for (int64_t h = 0; h < args->H; h++) {
    const zpk_layout *layout = &args->layout[(args->first_head + h) % (1 + args->layout->others)];
    if (layout->keys.first[args->S / layout->block] > 0) return false;
  }
  return true;
}

int64_t zpk_attention_unwritten(const zpk_attention_args *args, bool backward) {
  assert(args->S >= 1 && args->hd >= 1);
  int64_t keys = zpk_keys(args), longest = args->lengths ? 1 : keys, group = args->H / args->G;
  if (args->documents) longest = longest_document(args);
  for (int64_t b = 0; args->lengths && b < args->B; b++)
    if (args->lengths[b] > longest) longest = args->lengths[b];
  int64_t planned = backward ? args->S : keys, rows = args->keys ? args->S : longest;
  if (longest == 0 || (args->layout && sees_none(args)))
    return zpk_attention_workspace(args->dtype, planned, args->hd, group, backward);
  return zpk_attention_workspace(args->dtype, planned, args->hd, group, backward) -
         zpk_attention_workspace(args->dtype, backward ? rows : longest, args->hd, group, backward) +
         unwritten_by(args, rows, backward);
}

/* ---- what is not there: zeros ---- */

/* Zero `heads` heads from `head` on, of rows [first, rows) of sample b. */
static void clear_heads(const zpk_attention_args *args, int64_t b, int64_t first, int64_t rows, void *x, int64_t ld,
                        int64_t head, int64_t heads) {
  int64_t bytes = zpk_bytes(args->dtype);
  for (int64_t row = b * rows + first; row < (b + 1) * rows; row++)
    memset((char *)x + (row * ld + head * args->hd) * bytes, 0, (size_t)(heads * args->hd * bytes));
}

static void clear_forward(const zpk_attention_args *args, int64_t b, int64_t g, int64_t query) {
  int64_t group = args->H / args->G, bytes = zpk_real_bytes(args->dtype);
  clear_heads(args, b, query, args->S, args->o, args->o_ld, g * group, group);
  for (int64_t row = b * args->S + query; row < (b + 1) * args->S; row++)
    memset((char *)args->lse + (row * args->H + g * group) * bytes, 0, (size_t)(group * bytes));
}

static void clear_backward(const zpk_attention_args *args, int64_t b, int64_t g, int64_t query, int64_t key) {
  int64_t group = args->H / args->G;
  clear_heads(args, b, query, args->S, args->dq, args->dq_ld, g * group, group);
  clear_heads(args, b, key, zpk_keys(args), args->dk, args->dk_ld, g, 1);
  clear_heads(args, b, key, zpk_keys(args), args->dv, args->dv_ld, g, 1);
}

static void clear_sums(const zpk_attention_args *args, int64_t b, int64_t g) {
  int64_t group = args->H / args->G, row = args->buckets * zpk_real_bytes(args->dtype);
  memset((char *)args->bias_sums + (b * args->H + g * group) * row, 0, (size_t)(group * row));
}

/* What a task of `length` positions leaves out. */
static void clear_rest(const zpk_attention_args *args, int64_t b, int64_t g, int64_t length, bool backward) {
  int64_t query = args->keys && length > 0 ? args->S : length;
  if (backward)
    clear_backward(args, b, g, query, length);
  else
    clear_forward(args, b, g, query);
}

/* ---- tasks ---- */

static int64_t moved_on(const zpk_attention_dropout *drop, int64_t position, int64_t rows) {
  return drop->turned ? position - rows : position + rows;
}

/* Positions first .. first + length - 1 of sample b as a sample of their own. */
static zpk_attention_args one_part(const zpk_attention_args *args, int64_t b, int64_t first, int64_t length) {
  zpk_attention_args one = *args;
  int64_t e = zpk_bytes(args->dtype), real = zpk_real_bytes(args->dtype), query = b * args->S + first;
  int64_t key = b * zpk_keys(args) + first;
  const void **in[] = {&one.q, &one.d_o, &one.k, &one.v};
  void **out[] = {&one.o, &one.dq, &one.dk, &one.dv};
  const int64_t in_ld[] = {one.q_ld, one.d_o_ld, one.k_ld, one.v_ld};
  const int64_t out_ld[] = {one.o_ld, one.dq_ld, one.dk_ld, one.dv_ld};
  for (int i = 0; i < 4; i++) {
    int64_t row = i < 2 ? query : key;
    if (*in[i]) *in[i] = (const char *)*in[i] + row * in_ld[i] * e;
    if (*out[i]) *out[i] = (char *)*out[i] + row * out_ld[i] * e;
  }
  one.lse = (char *)one.lse + query * one.H * real;
  if (one.bias_sums) one.bias_sums = (char *)one.bias_sums + b * one.H * one.buckets * real;
  one.dropout.first_sample += b;
  one.dropout.first_query = moved_on(&args->dropout, args->dropout.first_query, first);
  one.dropout.first_key = moved_on(&args->dropout, args->dropout.first_key, first);
  one.B = 1;
  *(one.keys ? &one.keys : &one.S) = length;
  one.lengths = one.documents = NULL;
  return one;
}

typedef struct attention_pass {
  const zpk_attention_args *args;
  zpk_attention_task *run;
  void *share, *line; /* the worker's */
  bool backward;
} attention_pass;

static void run_part(const attention_pass *x, int64_t b, int64_t g, int64_t first, int64_t length) {
  zpk_attention_args one = one_part(x->args, b, first, length);
  x->run(&one, 0, g, x->share, x->line);
}

static void run_documents(const attention_pass *x, int64_t b, int64_t g) {
  int64_t first = 0, n;
  for (; first < x->args->S && (n = document_at(x->args, b, first)) > 0; first += n) run_part(x, b, g, first, n);
  clear_rest(x->args, b, g, first, x->backward);
}

void zpk_attention_on(const zpk_attention_level *level, bool backward, const zpk_attention_args *args, int64_t begin,
                      int64_t end, int worker) {
  assert(args->G >= 1 && args->H % args->G == 0 && worker >= 0);
  assert(begin >= 0 && begin <= end && end <= args->B * args->G);
  assert(args->dropout.rate >= 0 && args->dropout.rate < 1);
  assert(!args->keys || (!args->causal && !args->window && !args->layout && !args->buckets));
  assert(!args->documents || (!args->keys && !args->layout && !args->lengths));
  int64_t all = zpk_keys(args), group = args->H / args->G, lines = 0;
  int64_t bytes = zpk_attention_workspace(args->dtype, backward ? args->S : all, args->hd, group, backward);
  if (args->buckets) lines = zpk_attention_bias_line(args->dtype, args->S, group, backward);
  const attention_pass x = {.args = args,
                            .run = (backward ? level->backward : level->forward)[args->dtype],
                            .share = (char *)args->workspace + worker * bytes,
                            .line = args->buckets ? (char *)args->bias_lines + worker * lines : NULL,
                            .backward = backward};
  for (int64_t task = begin; task < end; task++) {
    int64_t b = task / args->G, g = task % args->G;
    int64_t length = g >= args->kv_heads_valid ? 0 : args->lengths ? args->lengths[b] : all;
    assert(g >= args->kv_heads_valid || (length >= 1 && length <= all));
    if (backward && args->d_bias) clear_sums(args, b, g);
    if (args->documents && length > 0)
      run_documents(&x, b, g);
    else if (length == all)
      x.run(args, b, g, x.share, x.line);
    else {
      if (length > 0) run_part(&x, b, g, 0, length);
      clear_rest(args, b, g, length, backward);
    }
  }
}

void zpk_attention_stretch_on(const zpk_attention_level *level, const zpk_attention_args *args, int64_t first,
                              int64_t n, int64_t begin, int64_t end, int worker) {
  assert(args->G >= 1 && args->H % args->G == 0 && worker >= 0);
  assert(begin >= 0 && begin <= end && end <= args->B * args->G);
  assert(first >= 0 && n >= 1 && first + n <= args->S && (args->keys || args->causal) && args->dropout.rate == 0);
  assert(!args->documents);
  int64_t group = args->H / args->G;
  char *share =
      (char *)args->workspace + worker * zpk_attention_workspace(args->dtype, zpk_keys(args), args->hd, group, false);
  char *line = NULL;
  if (args->buckets)
    line = (char *)args->bias_lines + worker * zpk_attention_bias_line(args->dtype, args->S, group, false);
  for (int64_t task = begin; task < end; task++)
    level->stretch[args->dtype](args, task / args->G, task % args->G, first, n, share, line);
}

void zpk_attention_stretch(const zpk_attention_args *args, int64_t first, int64_t n, int64_t begin, int64_t end,
                           int worker) {
  zpk_attention_stretch_on(best_level(), args, first, n, begin, end, worker);
}

void zpk_attention_bias_grad(const zpk_attention_args *args) {
  assert(args->buckets > 0 && args->d_bias && args->bias_sums);
  zpk_attention_base.bias_grad[args->dtype](args);
}

void zpk_attention(const zpk_attention_args *args, int64_t begin, int64_t end, int worker) {
  zpk_attention_on(best_level(), false, args, begin, end, worker);
}

void zpk_attention_grad(const zpk_attention_args *args, int64_t begin, int64_t end, int worker) {
  zpk_attention_on(best_level(), true, args, begin, end, worker);
}
