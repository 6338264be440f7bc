/* Private to the attention kernels: block sizes, one block's place in the problem, and the table of one instruction
 * set. */
#ifndef ZPK_ATTENTION_H
#define ZPK_ATTENTION_H

#include "clones.h"
#include <zplan/zpk.h>

/* Queries and keys are handled in blocks of BLOCK (a multiple of every panel width and of ROWS); the inner kernel holds
 * ROWS rows of results in registers: 12 registers of accumulators with AVX2, 6 with AVX-512. */
enum { BLOCK = 48, ROWS = 6, PAD_BYTES = 64 };

/* hd rounded up to whole 64-byte vectors: the leading dimension of blocks in the workspace. */
static inline int64_t zpk_padded_head(zpk_dtype dtype, int64_t hd) {
  int64_t lanes = PAD_BYTES / zpk_real_bytes(dtype);
  return (hd + lanes - 1) / lanes * lanes;
}

/* One task: sample b, kv head g; `workspace` is the worker's share. */
typedef void zpk_attention_task(const zpk_attention_args *args, int64_t b, int64_t g, void *workspace);

typedef struct zpk_attention_level {
  zpk_attention_task *forward[ZPK_DTYPES], *backward[ZPK_DTYPES]; /* by zpk_dtype */
} zpk_attention_level;

extern const zpk_attention_level zpk_attention_base;
#if ZPK_X86_LEVELS
extern const zpk_attention_level zpk_attention_v3, zpk_attention_v4;
#endif

#endif
