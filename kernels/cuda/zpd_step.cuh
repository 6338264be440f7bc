/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a step: sums of squares of all gradients, what they say about the update, the update. Each is one launch
 * over a table of segments, whatever the number of parameters.
 *
 * A segment's sum is cut by its elements alone, and the sums of its parts, then of the segments, are added in order:
 * the norm has the same bits on every GPU. Buffers may begin anywhere; where they begin at multiples of 16 bytes, 16
 * bytes move at once. */
#ifndef ZPD_STEP_CUH
#define ZPD_STEP_CUH

#include "zpd_optimizer.cuh"

/* The segment that block of threads `block` of the table works on: the last one that begins at or before it. */
ZPD_DEVICE int zpd_segment_of(const zpd_segment *segments, int n, zpd_int block) {
  int low = 0, high = n - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (segments[middle].first <= block)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

/* ---- norm ---- */

/* Every thread gets the same elements with and without alignment. */
ZPD_KERNEL(zpd_square_segments, zpd_squares) {
  const int s = zpd_segment_of(a.segments, a.n, blockIdx.x);
  const zpd_segment segment = a.segments[s];
  const zpd_int blocks = (s + 1 < a.n ? a.segments[s + 1].first : (zpd_int)gridDim.x) - segment.first;
  const zpd_sum *x = (const zpd_sum *)a.grads + segment.begin;
  const bool packs = zpd_begins_pack(x);
  const zpd_int stride = blocks * ZPD_FLAT_THREADS * ZPD_VEC;
  double sum = 0;
  for (zpd_int i = ((zpd_int)blockIdx.x - segment.first) * ZPD_FLAT_THREADS * ZPD_VEC + threadIdx.x * ZPD_VEC;
       i < segment.count; i += stride) {
    const zpd_reals p = zpd_reals_load_some(x + i, segment.count - i, packs);
    ZPD_EACH (k, ZPD_VEC) sum += (double)p.at[k] * (double)p.at[k];
  }
  sum = zpd_block_sum_f64(sum);
  if (threadIdx.x == 0) a.sums[blockIdx.x] = sum;
}

/* The parts of every segment to where its first part stands, a thread a segment; then the segments, in order. */
ZPD_DEVICE double zpd_sum_of_squares(const zpd_decision &a) {
  __shared__ double some[ZPD_FLAT_THREADS];
  double total = 0;
  for (int first = 0; first < a.n; first += ZPD_FLAT_THREADS) {
    const int s = first + threadIdx.x;
    double sum = 0;
    if (s < a.n) {
      const zpd_int end = s + 1 < a.n ? a.segments[s + 1].first : a.blocks;
      for (zpd_int b = a.segments[s].first; b < end; b++) sum += a.sums[b];
    }
    some[threadIdx.x] = sum;
    __syncthreads();
    for (int i = 0; i < ZPD_FLAT_THREADS && first + i < a.n; i++) total += some[i];
    __syncthreads();
  }
  return total;
}

/* ---- decision ---- */

ZPD_DEVICE bool zpd_is_finite(double x) { return x - x == 0; }

/* As zpr_loss_scale_step. */
ZPD_DEVICE void zpd_move_loss_scale(const zpd_decision &a, bool applied) {
  zpd_step *step = a.step;
  const bool moves = a.scale_window > 0;
  if (!applied) {
    step->skipped_steps += 1;
    step->scale_steps = 0;
    if (moves && step->loss_scale > 1) step->loss_scale *= 0.5;
    return;
  }
  if (!moves) return;
  step->scale_steps += 1;
  if (step->scale_steps < a.scale_window) return;
  step->scale_steps = 0;
  if (step->loss_scale < a.most_scale) step->loss_scale *= 2;
}

/* A step whose loss or norm is not finite is not applied; gradients are clipped as by torch.nn.utils.clip_grad_norm_.
 * The host does the same with numbers of all ranks (runtime/update.c). */
ZPD_KERNEL(zpd_decide, zpd_decision) {
  const double squares = zpd_sum_of_squares(a);
  if (threadIdx.x != 0) return;
  zpd_step *step = a.step;
  const double loss = step->loss, scale = step->loss_scale, norm = sqrt(squares) / scale;
  const bool applied = zpd_is_finite(loss) && zpd_is_finite(norm);
  const bool skipped = step->skipped_steps > a.skipped_steps;
  const double factor = a.clip > 0 ? a.clip / (norm + 1e-6) : 1;
  a.outcome->loss = loss;
  for (int i = 0; i < ZPD_MOST_LOSSES; i++) a.outcome->tally[i] = step->tally[i];
  a.outcome->grad_norm = norm;
  a.outcome->applied = applied;
  a.outcome->loss_scale = scale;
  step->loss = 0;
  for (int i = 0; i < ZPD_MOST_LOSSES; i++) step->tally[i].loss = step->tally[i].right = 0;
  step->grad_scale = (factor < 1 ? factor : 1) / scale;
#define CHOOSE(bias, beta) step->bias = skipped ? a.bias[1] : a.bias[0];
  ZPK_BIASES(CHOOSE)
#undef CHOOSE
  step->applies = applied;
  zpd_move_loss_scale(a, applied);
}

/* ---- update ---- */

/* The first pass of LAMB: moments, and what the lengths of parameters and updates are made of. */
ZPD_KERNEL(zpd_lamb_moments, zpd_updates) {
  const int which = zpd_segment_of(a.segments, a.n, blockIdx.x);
  const zpd_segment s = a.segments[which];
  const zpd_int blocks = (which + 1 < a.n ? a.segments[which + 1].first : a.blocks) - s.first;
  const zpd_arrays x = zpd_arrays_at(a, s, s.begin);
  zpd_rule r = zpd_rule_of(a);
  zpd_rule_for(r, a, s, 1);
  double params = 0, updates = 0;
  for (zpd_int i = ((zpd_int)blockIdx.x - s.first) * ZPD_FLAT_THREADS + threadIdx.x; i < s.count;
       i += blocks * ZPD_FLAT_THREADS) {
    const real g = x.grad[i] * r.scale, m = x.moment[ZPK_MOMENT1][i] * r.beta1 + g * r.rest1;
    const real v = x.moment[ZPK_MOMENT2][i] * r.beta2 + g * g * r.rest2, param = x.param[i],
               update = zpd_lamb_update(r, param, m, v);
    x.moment[ZPK_MOMENT1][i] = m, x.moment[ZPK_MOMENT2][i] = v;
    params += (double)param * (double)param;
    updates += (double)update * (double)update;
  }
  params = zpd_block_sum_f64(params);
  updates = zpd_block_sum_f64(updates);
  if (threadIdx.x != 0) return;
  a.sums[2 * blockIdx.x] = params;
  a.sums[2 * blockIdx.x + 1] = updates;
}

ZPD_KERNEL(zpd_optimizer, zpd_updates) {
  if (a.step->applies == 0) return;
  zpd_rule rule = zpd_rule_of(a);
  for (zpd_int block = blockIdx.x; block < a.blocks; block += gridDim.x) {
    const int which = a.segments ? zpd_segment_of(a.segments, a.n, block) : 0;
    const zpd_segment s = a.segments ? a.segments[which] : a.one;
    const zpd_int first = (block - s.first) * ZPD_UPDATE_ELEMENTS;
    zpd_rule_for(rule, a, s, a.ratios ? a.ratios[which] : 1);
    const zpd_int left = s.count - first, count = left < ZPD_UPDATE_ELEMENTS ? left : (zpd_int)ZPD_UPDATE_ELEMENTS;
    zpd_update_some(a, rule, s, s.begin + first, (int)count);
  }
}

#endif
