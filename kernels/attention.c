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

int64_t zpk_attention_unwritten(const zpk_attention_args *args, bool backward) {
  assert(args->S >= 1 && args->hd >= 1);
  int64_t longest = args->lengths ? 1 : args->S, group = args->H / args->G;
  for (int64_t b = 0; args->lengths && b < args->B; b++)
    if (args->lengths[b] > longest) longest = args->lengths[b];
  return zpk_attention_workspace(args->dtype, args->S, args->hd, group, backward) -
         zpk_attention_workspace(args->dtype, longest, args->hd, group, backward) +
         unwritten_by(args, longest, backward);
}

/* ---- what is not there: zeros ---- */

/* Zero `heads` heads from `head` on, of rows [first, S) of sample b. */
static void clear_heads(const zpk_attention_args *args, int64_t b, int64_t first, void *x, int64_t ld, int64_t head,
                        int64_t heads) {
  int64_t bytes = zpk_bytes(args->dtype);
  for (int64_t row = b * args->S + first; row < (b + 1) * args->S; row++)
    memset((char *)x + (row * ld + head * args->hd) * bytes, 0, (size_t)(heads * args->hd * bytes));
}

static void clear_forward(const zpk_attention_args *args, int64_t b, int64_t g, int64_t first) {
  int64_t group = args->H / args->G, bytes = zpk_real_bytes(args->dtype);
  clear_heads(args, b, first, args->o, args->o_ld, g * group, group);
  for (int64_t row = b * args->S + first; row < (b + 1) * args->S; row++)
    memset((char *)args->lse + (row * args->H + g * group) * bytes, 0, (size_t)(group * bytes));
}

static void clear_backward(const zpk_attention_args *args, int64_t b, int64_t g, int64_t first) {
  int64_t group = args->H / args->G;
  clear_heads(args, b, first, args->dq, args->dq_ld, g * group, group);
  clear_heads(args, b, first, args->dk, args->dk_ld, g, 1);
  clear_heads(args, b, first, args->dv, args->dv_ld, g, 1);
}

/* ---- tasks ---- */

/* Sample b alone, as long as it is. */
static zpk_attention_args one_sample(const zpk_attention_args *args, int64_t b, int64_t length) {
  zpk_attention_args one = *args;
  int64_t row = b * args->S, e = zpk_bytes(args->dtype);
  const void **in[] = {&one.q, &one.k, &one.v, &one.d_o};
  void **out[] = {&one.o, &one.dq, &one.dk, &one.dv};
  const int64_t in_ld[] = {one.q_ld, one.k_ld, one.v_ld, one.d_o_ld};
  const int64_t out_ld[] = {one.o_ld, one.dq_ld, one.dk_ld, one.dv_ld};
  for (int i = 0; i < 4; i++) {
    if (*in[i]) *in[i] = (const char *)*in[i] + row * in_ld[i] * e;
    if (*out[i]) *out[i] = (char *)*out[i] + row * out_ld[i] * e;
  }
  one.lse = (char *)one.lse + row * one.H * zpk_real_bytes(args->dtype);
  one.B = 1;
  one.S = length;
  one.lengths = NULL;
  return one;
}

void zpk_attention_on(const zpk_attention_level *level, bool backward, const zpk_attention_args *args, int64_t begin,
                      int64_t end, int worker) {
  assert(args->G >= 1 && args->H % args->G == 0 && worker >= 0);
  assert(begin >= 0 && begin <= end && end <= args->B * args->G);
  int64_t bytes = zpk_attention_workspace(args->dtype, args->S, args->hd, args->H / args->G, backward);
  void *share = (char *)args->workspace + worker * bytes;
  zpk_attention_task *run = (backward ? level->backward : level->forward)[args->dtype];
  for (int64_t task = begin; task < end; task++) {
    int64_t b = task / args->G, g = task % args->G;
    int64_t length = g >= args->kv_heads_valid ? 0 : args->lengths ? args->lengths[b] : args->S;
    assert(g >= args->kv_heads_valid || (length >= 1 && length <= args->S));
    if (length == args->S)
      run(args, b, g, share);
    else {
      if (length > 0) {
        zpk_attention_args one = one_sample(args, b, length);
        run(&one, 0, g, share);
      }
      (backward ? clear_backward : clear_forward)(args, b, g, length);
    }
  }
}

void zpk_attention(const zpk_attention_args *args, int64_t begin, int64_t end, int worker) {
  zpk_attention_on(best_level(), false, args, begin, end, worker);
}

void zpk_attention_grad(const zpk_attention_args *args, int64_t begin, int64_t end, int worker) {
  zpk_attention_on(best_level(), true, args, begin, end, worker);
}
