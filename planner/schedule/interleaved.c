/* SPDX-License-Identifier: Apache-2.0 */
/* Interleaved 1F1B (arXiv 2104.04473, section 2.2). Micro-batches go through in groups: a stage runs a whole group
 * through its first chunk, then through its second, and so on; backward takes the chunks in reverse. Groups have
 * `pipeline` micro-batches; what is left over is spread evenly, the first groups take one more, because a group below
 * `pipeline` would deadlock (Megatron refuses it). Warm-up is 2 (p - 1 - s) + (v - 1) G forwards, G the largest group;
 * then one forward, one backward. */
#include <zplan/schedule.h>

#include <assert.h>

zp_groups zp_interleaved_groups(int pipeline, int64_t microbatches) {
  assert(pipeline >= 1 && microbatches >= 1);
  zp_groups g = {.count = microbatches / pipeline};
  if (g.count == 0) g.count = 1;
  g.size = microbatches / g.count;
  g.longer = microbatches % g.count;
  return g;
}

int64_t zp_interleaved_warmup(int pipeline, int chunks, int stage, int64_t microbatches) {
  assert(chunks >= 1 && stage >= 0 && stage < pipeline);
  zp_groups g = zp_interleaved_groups(pipeline, microbatches);
  int64_t all = microbatches * chunks;
  int64_t warmup = 2 * (int64_t)(pipeline - 1 - stage) + (chunks - 1) * (g.size + (g.longer > 0));
  return warmup < all ? warmup : all;
}

/* A walk over the forwards (or backwards) of a stage: group by group, in each chunk by chunk. */
typedef struct walk {
  const zp_groups *groups;
  int chunks, turn;                 /* chunk of the group that is at work */
  int64_t group, size, first, next; /* its number, its micro-batches, the first of them, the one that is next */
} walk;

static walk walk_of(const zp_groups *g, int chunks) {
  return (walk){.groups = g, .chunks = chunks, .size = g->size + (g->longer > 0)};
}

static zp_action step(walk *w, zp_act act) {
  zp_action a = zp_act_of(act, act == ZP_ACT_F ? w->turn : w->chunks - 1 - w->turn, w->first + w->next);
  if (++w->next < w->size) return a;
  w->next = 0;
  if (++w->turn < w->chunks) return a;
  w->turn = 0;
  w->first += w->size;
  w->size = w->groups->size + (++w->group < w->groups->longer);
  return a;
}

int64_t zp_order_interleaved(int pipeline, int chunks, int stage, int64_t microbatches, zp_action *out) {
  assert(chunks >= 1 && stage >= 0 && stage < pipeline && out);
  zp_groups g = zp_interleaved_groups(pipeline, microbatches);
  int64_t all = microbatches * chunks, warmup = zp_interleaved_warmup(pipeline, chunks, stage, microbatches);
  walk forward = walk_of(&g, chunks), backward = forward;
  for (int64_t n = 0; n < warmup; n++) *out++ = step(&forward, ZP_ACT_F);
  for (int64_t n = warmup; n < all; n++) {
    *out++ = step(&forward, ZP_ACT_F);
    *out++ = step(&backward, ZP_ACT_B);
  }
  for (int64_t n = all - warmup; n < all; n++) *out++ = step(&backward, ZP_ACT_B);
  return 2 * all;
}
