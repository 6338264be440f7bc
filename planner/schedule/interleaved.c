/* Interleaved 1F1B (arXiv 2104.04473, section 2.2). Micro-batches go through in groups: a stage runs a whole group
 * through its first chunk, then through its second, and so on; backward takes the chunks in reverse. Groups have
 * `pipeline` micro-batches; what is left over is spread evenly, the first groups take one more, because a group below
 * `pipeline` would deadlock (Megatron refuses it). Warm-up is 2 (p - 1 - s) + (v - 1) G forwards, G the largest group;
 * then one forward, one backward. */
#include "schedule.h"

zp_groups zp_interleaved_groups(int pipeline, int64_t microbatches) {
  zp_groups g = {.count = microbatches / pipeline};
  if (g.count == 0) g.count = 1;
  g.size = microbatches / g.count;
  g.longer = microbatches % g.count;
  return g;
}

int64_t zp_interleaved_warmup(int pipeline, int chunks, int stage, int64_t microbatches) {
  zp_groups g = zp_interleaved_groups(pipeline, microbatches);
  int64_t all = microbatches * chunks;
  int64_t warmup = 2 * (int64_t)(pipeline - 1 - stage) + (chunks - 1) * (g.size + (g.longer > 0));
  return warmup < all ? warmup : all;
}

/* Where the n-th forward (or backward) of a stage stands: its chunk and micro-batch. */
static zp_action nth(const zp_groups *g, int chunks, int64_t n, zp_act act) {
  int64_t long_part = g->longer * (g->size + 1) * chunks, first = 0, size = g->size + 1;
  if (n >= long_part) {
    n -= long_part;
    first = g->longer * size;
    size = g->size;
  }
  first += n / (size * chunks) * size;
  int64_t inside = n % (size * chunks);
  int chunk = (int)(inside / size);
  return zp_act_of(act, act == ZP_ACT_F ? chunk : chunks - 1 - chunk, first + inside % size);
}

int64_t zp_order_interleaved(int pipeline, int chunks, int stage, int64_t microbatches, zp_action *out) {
  zp_groups g = zp_interleaved_groups(pipeline, microbatches);
  int64_t all = microbatches * chunks, forward = 0, backward = 0;
  int64_t warmup = zp_interleaved_warmup(pipeline, chunks, stage, microbatches);
  while (forward < warmup) *out++ = nth(&g, chunks, forward++, ZP_ACT_F);
  while (forward < all) {
    *out++ = nth(&g, chunks, forward++, ZP_ACT_F);
    *out++ = nth(&g, chunks, backward++, ZP_ACT_B);
  }
  while (backward < all) *out++ = nth(&g, chunks, backward++, ZP_ACT_B);
  return 2 * all;
}
