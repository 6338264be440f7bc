/* SPDX-License-Identifier: Apache-2.0 */
/* Mixture of experts: which experts a token takes, its way to their slots and back (kernels/experts.c has the
 * definitions). Probabilities are in f64 whatever `real` is, as there: a few a token, and the choice must not depend on
 * their rounding. Places are counted by the thread of an expert, in the order of the tokens: no atomics. */
#ifndef ZPD_EXPERTS_CUH
#define ZPD_EXPERTS_CUH

#include "zpd_device.h"

ZPD_DEVICE int zpd_expert_of(const zpd_routing &a, int slot) { return slot < 0 ? -1 - slot : slot / (int)a.slots; }

/* ---- the gate ---- */

/* Affinities to some of the experts, divided by their sum: exp(x - shift) of a softmax, or sigmoids. */
struct zpd_gate_softmax {
  double shift, sum;
  bool sigmoid;
};
ZPD_DEVICE double zpd_gate_sigmoid(double x) { return 1 / (1 + exp(-x)); }
ZPD_DEVICE double zpd_gate_affinity(const zpd_gate_softmax &s, real score) {
  return s.sigmoid ? zpd_gate_sigmoid((double)score) : exp((double)score - s.shift);
}
ZPD_DEVICE double zpd_gate_share(const zpd_gate_softmax &s, real score) { return zpd_gate_affinity(s, score) / s.sum; }

ZPD_DEVICE zpd_gate_softmax zpd_gate_over_all(const zpd_routing &a, const elem *score) {
  zpd_gate_softmax s = {(double)(real)score[0], 0, a.sigmoid != 0};
  for (int e = 1; e < a.experts; e++) {
    const double x = (double)(real)score[e];
    if (x > s.shift) s.shift = x;
  }
  for (int e = 0; e < a.experts; e++) s.sum += zpd_gate_affinity(s, score[e]);
  return s;
}

/* The chosen ones stand in falling order, but for a bias. */
ZPD_DEVICE zpd_gate_softmax zpd_gate_over_chosen(const zpd_routing &a, const elem *score, const int *slot) {
  zpd_gate_softmax s = {(double)(real)score[zpd_expert_of(a, slot[0])], 0, a.sigmoid != 0};
  for (int j = 0; j < a.k; j++) s.sum += zpd_gate_affinity(s, score[zpd_expert_of(a, slot[j])]);
  return s;
}

/* What a token's weights are parts of. Sigmoids that are not normalised are weights themselves. */
ZPD_DEVICE zpd_gate_softmax zpd_gate_of_weights(const zpd_routing &a, const elem *score, const int *slot) {
  if (a.normalize) return zpd_gate_over_chosen(a, score, slot);
  if (!a.sigmoid) return zpd_gate_over_all(a, score);
  const zpd_gate_softmax apart = {0, 1, true};
  return apart;
}

/* What a token chooses by. */
ZPD_DEVICE double zpd_preference(const zpd_routing &a, const elem *score, int e) {
  if (!a.sigmoid) return (double)(real)score[e];
  return zpd_gate_sigmoid((double)(real)score[e]) + (a.bias ? (double)(real)((const elem *)a.bias)[e] : 0);
}

/* The two best of a group of two or more experts, together. */
ZPD_DEVICE double zpd_group_score(const zpd_routing &a, const elem *score, int first, int n) {
  double best = zpd_preference(a, score, first), second = zpd_preference(a, score, first + 1);
  if (second > best) {
    const double other = best;
    best = second, second = other;
  }
  for (int e = first + 2; e < first + n; e++) {
    const double preference = zpd_preference(a, score, e);
    if (preference > best)
      second = best, best = preference;
    else if (preference > second)
      second = preference;
  }
  return best + second;
}

/* A bit a group that a token keeps; of equal groups the lower one. Without groups there is one. Scores are made again
 * for each that is kept: an array of them would be in memory. */
ZPD_DEVICE unsigned long long zpd_kept_groups(const zpd_routing &a, const elem *score) {
  unsigned long long kept = a.groups ? 0 : 1;
  for (int i = 0; i < a.top_groups; i++) {
    int best = -1;
    double most = 0;
    for (int g = 0; g < a.groups; g++) {
      if (kept >> g & 1) continue;
      const double group = zpd_group_score(a, score, g * (int)(a.experts / a.groups), (int)(a.experts / a.groups));
      if (best < 0 || group > most) best = g, most = group;
    }
    kept |= 1ull << best;
  }
  return kept;
}

/* The most preferred expert of the kept groups that is not among the `taken` ones; of equal ones the lower. */
ZPD_DEVICE int zpd_best_expert(const zpd_routing &a, const elem *score, unsigned long long kept, const int *choice,
                               int taken) {
  const int groups = a.groups ? (int)a.groups : 1, n = (int)a.experts / groups;
  int best = -1;
  double most = 0;
  for (int g = 0; g < groups; g++)
    for (int e = g * n; e < (g + 1) * n && (kept >> g & 1); e++) {
      const double preference = zpd_preference(a, score, e);
      bool left = true;
      for (int i = 0; i < taken; i++) left = left && choice[i] != -1 - e;
      if (left && (best < 0 || preference > most)) best = e, most = preference;
    }
  return best;
}

/* A thread a token. */
ZPD_KERNEL(zpd_gate_choose, zpd_routing) {
  const zpd_int stride = (zpd_int)gridDim.x * ZPD_FLAT_THREADS;
  for (zpd_int t = (zpd_int)blockIdx.x * ZPD_FLAT_THREADS + threadIdx.x; t < a.B * a.S; t += stride) {
    const elem *score = (const elem *)a.in + t * a.experts;
    elem *weight = (elem *)a.out + t * a.k;
    int *choice = a.choice + t * a.k;
    const unsigned long long kept = zpd_kept_groups(a, score);
    for (int j = 0; j < a.k; j++) choice[j] = -1 - zpd_best_expert(a, score, kept, choice, j);
    const zpd_gate_softmax s = zpd_gate_of_weights(a, score, choice);
    for (int j = 0; j < a.k; j++) weight[j] = elem((real)zpd_gate_share(s, score[-1 - choice[j]]));
  }
}

/* Choices that a block looks at together. All threads read all of them. */
enum { ZPD_CHOICES = 2048 };

/* The experts of choices [0, count) for all threads; a barrier on either side, so calls may follow one another. */
ZPD_DEVICE void zpd_list_experts(const zpd_routing &a, const int *slot, int count, int *list) {
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += ZPD_FLAT_THREADS) list[i] = zpd_expert_of(a, slot[i]);
  __syncthreads();
}

/* A block a sample, a thread an expert. */
ZPD_KERNEL(zpd_gate_places, zpd_routing) {
  __shared__ int list[ZPD_CHOICES];
  const zpd_int n = a.S * a.k;
  for (zpd_int b = blockIdx.x; b < a.B; b += gridDim.x)
    for (int first = 0; first < a.experts; first += ZPD_FLAT_THREADS) {
      const int e = first + (int)threadIdx.x;
      int used = 0;
      for (zpd_int at = 0; at < n; at += ZPD_CHOICES) {
        int *slot = a.choice + b * n + at;
        const int count = n - at < ZPD_CHOICES ? (int)(n - at) : (int)ZPD_CHOICES;
        zpd_list_experts(a, slot, count, list);
        for (int i = 0; i < count; i++)
          if (list[i] == e && used < a.slots) slot[i] = e * (int)a.slots + used++;
      }
    }
}

/* chosen[e]: how many of a sample's choices went to expert e, dropped ones included. */
ZPD_DEVICE void zpd_count_sample(const zpd_routing &a, const int *slot, int *list, int *chosen) {
  const zpd_int n = a.S * a.k;
  for (int first = 0; first < a.experts; first += ZPD_FLAT_THREADS) {
    const int e = first + (int)threadIdx.x;
    int mine = 0;
    for (zpd_int at = 0; at < n; at += ZPD_CHOICES) {
      const int count = n - at < ZPD_CHOICES ? (int)(n - at) : (int)ZPD_CHOICES;
      zpd_list_experts(a, slot + at, count, list);
      for (int i = 0; i < count; i++) mine += list[i] == e;
    }
    if (e < a.experts) chosen[e] = mine;
  }
  __syncthreads();
}

/* Choices of whole samples, of which every rank has counted those of its own positions. */
ZPD_DEVICE void zpd_sum_choices(const zpd_routing &a, zpd_int sample, int *chosen) {
  for (zpd_int e = threadIdx.x; e < a.experts; e += ZPD_FLAT_THREADS) {
    real all = 0;
    for (zpd_int i = 0; i < a.ranks; i++) all += ((const real *)a.choices)[(i * a.B + sample) * a.experts + e];
    chosen[e] = (int)all;
  }
  __syncthreads();
}

/* A block a sample. */
ZPD_KERNEL(zpd_count_choices, zpd_routing) {
  __shared__ int list[ZPD_CHOICES];
  __shared__ int chosen[ZPD_MAX_EXPERTS];
  for (zpd_int b = blockIdx.x; b < a.B; b += gridDim.x) {
    zpd_count_sample(a, a.slot + b * a.S * a.k, list, chosen);
    for (zpd_int e = threadIdx.x; e < a.experts; e += ZPD_FLAT_THREADS)
      ((real *)a.out)[b * a.experts + e] = (real)chosen[e];
  }
}

/* As gate_grad in kernels/experts.c, of one token. */
ZPD_DEVICE void zpd_gate_grad_of(const zpd_routing &a, zpd_int t, const int *chosen) {
  const elem *score = (const elem *)a.in + t * a.experts, *d_weight = (const elem *)a.weight + t * a.k;
  const int *slot = a.slot + t * a.k;
  elem *d_score = (elem *)a.out + t * a.experts;
  const double choices = (double)(a.S * a.k * (a.choices ? a.ranks : 1)),
               loss_scale = a.loss_scale * (a.scale_there ? *a.scale_there : 1);
  const zpd_gate_softmax all = zpd_gate_over_all(a, score);
  const zpd_gate_softmax s = zpd_gate_of_weights(a, score, slot);
  const bool apart = a.sigmoid && !a.normalize;
  double mean = 0, mean_share = 0;
  for (int j = 0; j < a.k && !apart; j++)
    mean += zpd_gate_share(s, score[zpd_expert_of(a, slot[j])]) * (double)(real)d_weight[j];
  for (int e = 0; e < a.experts && a.balance != 0; e++)
    mean_share += chosen[e] / choices * zpd_gate_share(all, score[e]);
  for (int e = 0; e < a.experts; e++) {
    const double p = zpd_gate_share(all, score[e]);
    double d = a.balance != 0 ? a.balance * (double)a.experts * loss_scale * p * (chosen[e] / choices - mean_share) : 0;
    if (!a.normalize) d -= p * mean;
    for (int j = 0; j < a.k; j++)
      if (zpd_expert_of(a, slot[j]) == e)
        d += zpd_gate_share(s, score[e]) * ((double)(real)d_weight[j] - (a.normalize ? mean : 0));
    if (a.sigmoid) d *= 1 - zpd_gate_sigmoid((double)(real)score[e]);
    d_score[e] = elem((real)d);
  }
}

/* Every block counts its sample's choices, or adds up those of several ranks; without a balancing loss nobody asks. */
ZPD_KERNEL(zpd_gate_grad, zpd_routing) {
  __shared__ int list[ZPD_CHOICES];
  __shared__ int chosen[ZPD_MAX_EXPERTS];
  const zpd_int b = blockIdx.y, t = (zpd_int)blockIdx.x * ZPD_GATE_TOKENS + threadIdx.x;
  if (a.balance != 0 && a.choices)
    zpd_sum_choices(a, b, chosen);
  else if (a.balance != 0)
    zpd_count_sample(a, a.slot + b * a.S * a.k, list, chosen);
  if (t < a.S) zpd_gate_grad_of(a, b * a.S + t, chosen);
}

/* As zpk_count_load: a block for so many experts as it has threads. */
ZPD_KERNEL(zpd_count_load, zpd_routing) {
  __shared__ int list[ZPD_CHOICES];
  const zpd_int n = a.B * a.S * a.k;
  const int e = (int)blockIdx.x * ZPD_FLAT_THREADS + (int)threadIdx.x;
  zpd_int mine = 0;
  for (zpd_int at = 0; at < n; at += ZPD_CHOICES) {
    const int count = n - at < ZPD_CHOICES ? (int)(n - at) : (int)ZPD_CHOICES;
    zpd_list_experts(a, a.slot + at, count, list);
    for (int i = 0; i < count; i++) mine += list[i] == e;
  }
  if (e < a.experts) a.count[e] += mine;
}

/* One block. Every thread adds up all choices: experts are few. */
ZPD_KERNEL(zpd_load_signs, zpd_expert_load) {
  zpd_int all = 0;
  for (zpd_int e = 0; e < a.experts; e++) all += a.count[e];
  for (zpd_int i = threadIdx.x; i < a.n; i += ZPD_FLAT_THREADS) {
    const zpd_int above = a.experts * a.count[a.first + i] - all;
    ((real *)a.grad)[i] = (real)(above > 0 ? 1 : above < 0 ? -1 : 0);
  }
}

/* ---- tokens and slots: a block a token ---- */

/* Row of the rank's slots [B * n_slots, d] that a choice of token t has; -1: dropped, or on another rank. */
ZPD_DEVICE zpd_int zpd_slot_row(const zpd_routing &a, zpd_int t, int j) {
  const int slot = a.slot[t * a.k + j];
  const zpd_int at = slot - a.first_slot;
  return slot < 0 || at < 0 || at >= a.n_slots ? -1 : t / a.S * a.n_slots + at;
}

ZPD_KERNEL(zpd_dispatch, zpd_routing) {
  for (zpd_int t = blockIdx.x; t < a.B * a.S; t += gridDim.x) {
    const elem *from = (const elem *)a.in + t * a.d;
    for (int j = 0; j < a.k; j++) {
      const zpd_int row = zpd_slot_row(a, t, j);
      for (zpd_int i = threadIdx.x; i < a.d && row >= 0; i += ZPD_FLAT_THREADS)
        ((elem *)a.out)[row * a.d + i] = from[i];
    }
  }
}

ZPD_KERNEL(zpd_combine, zpd_routing) {
  const elem *y = (const elem *)a.in, *weight = (const elem *)a.weight;
  for (zpd_int t = blockIdx.x; t < a.B * a.S; t += gridDim.x)
    for (zpd_int i = threadIdx.x; i < a.d; i += ZPD_FLAT_THREADS) {
      real sum = 0;
      for (int j = 0; j < a.k; j++) {
        const zpd_int row = zpd_slot_row(a, t, j);
        if (row >= 0) sum += (weight ? (real)weight[t * a.k + j] : (real)1) * (real)y[row * a.d + i];
      }
      ((elem *)a.out)[t * a.d + i] = sum;
    }
}

ZPD_KERNEL(zpd_combine_grad, zpd_routing) {
  const elem *y = (const elem *)a.in, *weight = (const elem *)a.weight;
  for (zpd_int t = blockIdx.x; t < a.B * a.S; t += gridDim.x) {
    const elem *g = (const elem *)a.d_out + t * a.d;
    for (int j = 0; j < a.k; j++) {
      const zpd_int row = zpd_slot_row(a, t, j);
      const real w = weight[t * a.k + j];
      real sum = 0;
      for (zpd_int i = threadIdx.x; i < a.d && row >= 0; i += ZPD_FLAT_THREADS) {
        sum += (real)y[row * a.d + i] * (real)g[i];
        ((elem *)a.out)[row * a.d + i] = w * (real)g[i];
      }
      sum = zpd_block_sum(sum);
      if (threadIdx.x == 0) ((elem *)a.d_weight)[t * a.k + j] = sum;
    }
  }
}

#endif
