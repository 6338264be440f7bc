/* SPDX-License-Identifier: Apache-2.0 */
/* DualPipeV: DualPipe (arXiv 2412.19437, section 3.2.1) on half the stages, published with its reference code. Chunks
 * lie as in ZB-V, the first half of the model down the stages and the second half back up. In its middle a stage takes
 * a forward of either chunk in turn with a backward of the other one.
 *   - A backward that is published whole is BI and BW here, one right after the other: the gradient goes on earlier.
 *   - 2 p micro-batches fill the pipeline. Of fewer, the table is the one of 2 p without its first ones; all that the
 *     others wait for is there, and the weight gradients that fill the drain stay.
 * A stage s keeps 2 p - s and s + 1 micro-batches of its chunks. On equal durations and from p micro-batches on the
 * step takes 6 m + p - 1 chunk passes, the fewest that are possible in a V. */
#include <zplan/schedule.h>

#include <assert.h>

typedef struct writer {
  int64_t skipped, done[3][2]; /* micro-batches left out at the start; by act and chunk, those included */
  zp_action *next;
} writer;

static void put(writer *w, zp_act act, int chunk) {
  static const int row[] = {[ZP_ACT_F] = 0, [ZP_ACT_BI] = 1, [ZP_ACT_BW] = 2};
  int64_t n = w->done[row[act]][chunk]++ - w->skipped;
  if (n >= 0) *w->next++ = zp_act_of(act, chunk, n);
}

static void forward(writer *w, int chunk) { put(w, ZP_ACT_F, chunk); }
static void backward(writer *w, int chunk) {
  put(w, ZP_ACT_BI, chunk);
  put(w, ZP_ACT_BW, chunk);
}

/* Backwards of both chunks in turn: the late chunk has the even turns. */
static int turn_of(int64_t i) { return i % 2 == 0; }

/* The weight gradients of the second half of the turns are left for later. */
static void drain(writer *w, int64_t own, int64_t behind) {
  for (int64_t i = 0; i < own; i++) backward(w, turn_of(i));
  for (int64_t i = own; i < 2 * own; i++) put(w, ZP_ACT_BI, turn_of(i));
  for (int64_t i = 0; i < behind; i++) { /* a gradient of weights, the oldest, while one of inputs is on its way */
    put(w, ZP_ACT_BW, i < own ? turn_of(own + i) : 0);
    put(w, ZP_ACT_BI, 0);
  }
  for (int64_t i = behind; i < behind + own; i++) put(w, ZP_ACT_BW, i < own ? turn_of(own + i) : 0);
}

int64_t zp_order_dualpipev(int pipeline, int stage, int64_t microbatches, zp_action *out) {
  assert(stage >= 0 && stage < pipeline && microbatches >= 1 && out);
  int64_t full = 2 * (int64_t)pipeline, all = microbatches > full ? microbatches : full;
  int64_t behind = pipeline - 1 - stage, own = stage + 1; /* stages after this one; it and those before */
  writer w = {.skipped = all - microbatches, .next = out};
  for (int64_t i = 0; i < 2 * behind; i++) forward(&w, 0);
  for (int64_t i = 0; i < own; i++) forward(&w, 0), forward(&w, 1);
  for (int64_t i = 0; i < behind; i++) backward(&w, 1), forward(&w, 1);
  for (int64_t i = 0; i < all - full + own; i++) {
    forward(&w, 0), backward(&w, 1);
    forward(&w, 1), backward(&w, 0);
  }
  for (int64_t i = 0; i < behind; i++) backward(&w, 1), forward(&w, 1), backward(&w, 0);
  drain(&w, own, behind);
  assert(w.next - out == 6 * microbatches);
  return 6 * microbatches;
}
