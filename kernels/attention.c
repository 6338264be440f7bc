/* Attention: public functions, choice of the instruction set, padding heads. The work is in attention_forward.h and
 * attention_backward.h. */
#include "attention.h"
#include <assert.h>
#include <string.h>

static const zpk_attention_level *level(void) {
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

int64_t zpk_attention_unwritten(const zpk_attention_args *args, bool backward) {
  assert(args->S >= 1 && args->hd >= 1);
  int64_t S = args->S, ld = zpk_padded_head(args->dtype, args->hd), real = zpk_real_bytes(args->dtype);
  if (backward && zpk_is_narrow(args->dtype)) return (ld - args->hd) * real;
  int64_t most = args->layout ? args->layout->block : S, elements = most < BLOCK ? (BLOCK - most) * BLOCK : 0;
  if (args->layout && !backward) elements += 2 * ((S + BLOCK - 1) / BLOCK * BLOCK - S) * ld; /* keys of whole blocks */
  return elements * real;
}

/* Zero `heads` heads from `head` on, of all rows of sample b. */
static void clear_heads(const zpk_attention_args *args, int64_t b, void *x, int64_t ld, int64_t head, int64_t heads) {
  int64_t bytes = zpk_bytes(args->dtype);
  for (int64_t row = b * args->S; row < (b + 1) * args->S; row++)
    memset((char *)x + (row * ld + head * args->hd) * bytes, 0, (size_t)(heads * args->hd * bytes));
}

static void clear_forward(const zpk_attention_args *args, int64_t b, int64_t g) {
  int64_t group = args->H / args->G, bytes = zpk_real_bytes(args->dtype);
  clear_heads(args, b, args->o, args->o_ld, g * group, group);
  for (int64_t row = b * args->S; row < (b + 1) * args->S; row++)
    memset((char *)args->lse + (row * args->H + g * group) * bytes, 0, (size_t)(group * bytes));
}

static void clear_backward(const zpk_attention_args *args, int64_t b, int64_t g) {
  int64_t group = args->H / args->G;
  clear_heads(args, b, args->dq, args->dq_ld, g * group, group);
  clear_heads(args, b, args->dk, args->dk_ld, g, 1);
  clear_heads(args, b, args->dv, args->dv_ld, g, 1);
}

static void *share_of(const zpk_attention_args *args, int worker, bool backward) {
  int64_t bytes = zpk_attention_workspace(args->dtype, args->S, args->hd, args->H / args->G, backward);
  return (char *)args->workspace + worker * bytes;
}

void zpk_attention(const zpk_attention_args *args, int64_t begin, int64_t end, int worker) {
  assert(args->G >= 1 && args->H % args->G == 0 && worker >= 0);
  assert(begin >= 0 && begin <= end && end <= args->B * args->G);
  void *share = share_of(args, worker, false);
  zpk_attention_task *run = level()->forward[args->dtype];
  for (int64_t task = begin; task < end; task++) {
    int64_t b = task / args->G, g = task % args->G;
    if (g < args->kv_heads_valid)
      run(args, b, g, share);
    else
      clear_forward(args, b, g);
  }
}

void zpk_attention_grad(const zpk_attention_args *args, int64_t begin, int64_t end, int worker) {
  assert(args->G >= 1 && args->H % args->G == 0 && worker >= 0);
  assert(begin >= 0 && begin <= end && end <= args->B * args->G);
  void *share = share_of(args, worker, true);
  zpk_attention_task *run = level()->backward[args->dtype];
  for (int64_t task = begin; task < end; task++) {
    int64_t b = task / args->G, g = task % args->G;
    if (g < args->kv_heads_valid)
      run(args, b, g, share);
    else
      clear_backward(args, b, g);
  }
}
