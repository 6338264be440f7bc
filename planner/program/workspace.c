/* Scratch memory of the attention kernels. The planner must know it exactly and may not look at kernels, so the formula
 * stands here a second time; codegen, which sees both, refuses to print a trainer when they differ. */
#include "lower_internal.h"

/* Blocks of 48 queries or keys; head sizes padded to 64 bytes; forward also packs all keys and values of one head. */
enum { BLOCK = 48, PAD_BYTES = 64 };

int64_t zp_attention_workspace(int elem_bytes, int64_t sequence, int64_t head_size, bool backward) {
  int64_t head = zp_round_up(head_size, PAD_BYTES / elem_bytes), padded = zp_round_up(sequence, BLOCK);
  int64_t elements = backward ? BLOCK * (8 * head + 2 * BLOCK) : 2 * padded * head + BLOCK * (2 * head + BLOCK);
  return elements * elem_bytes;
}
