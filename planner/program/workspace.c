/* Scratch memory of the CPU kernels: attention, and products of 16-bit operands. The planner must know it exactly and
 * may not look at kernels, so the formula stands here a second time; codegen, which sees both, refuses to print a
 * trainer when they differ. */
#include "lower_internal.h"

/* Blocks of 48 queries or keys; head sizes padded to 64 bytes; forward also packs all keys and values of one head. With
 * 16-bit operands everything is in f32, and backward sums the gradient of a group's queries apart. */
enum { BLOCK = 48, PAD_BYTES = 64 };

int64_t zp_attention_workspace(int elem_bytes, int64_t sequence, int64_t head_size, int64_t group, bool backward) {
  int real_bytes = elem_bytes == 8 ? 8 : 4;
  int64_t head = zp_round_up(head_size, PAD_BYTES / real_bytes), padded = zp_round_up(sequence, BLOCK);
  int64_t elements = backward ? BLOCK * (8 * head + 2 * BLOCK) : 2 * padded * head + BLOCK * (2 * head + BLOCK);
  if (backward && elem_bytes < real_bytes) elements += group * sequence * head;
  return elements * real_bytes;
}

/* A tile of either operand, 128 x 256 and 256 x 128, and one of the result, in f32, for each worker. */
int64_t zp_products_bytes(const zp_spec *spec) {
  bool mixed = zp_is_mixed(&spec->train);
  if (!mixed || !spec->cluster.node.device.is_cpu) return 0;
  return ZP_MAX_WORKERS * INT64_C(4) * (2 * 128 * 256 + 128 * 128);
}
