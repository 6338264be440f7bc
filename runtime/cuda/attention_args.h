/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of the device's attention from those of zpk.h, for the runtime and for tests of kernels. */
#ifndef ZPLAN_RT_CUDA_ATTENTION_ARGS_H
#define ZPLAN_RT_CUDA_ATTENTION_ARGS_H

#include <zplan/zpd.h>
#include <zplan/zpk.h>

static inline zpd_attention zpr_attention_args(const zpk_attention_args *x) {
  return (zpd_attention){.B = x->B,
                         .S = x->S,
                         .H = x->H,
                         .G = x->G,
                         .hd = x->hd,
                         .kv_heads_valid = x->kv_heads_valid,
                         .scale = x->scale,
                         .causal = x->causal,
                         .layout = x->layout ? x->layout->id : 0,
                         .q = x->q,
                         .k = x->k,
                         .v = x->v,
                         .q_ld = x->q_ld,
                         .k_ld = x->k_ld,
                         .v_ld = x->v_ld,
                         .o = x->o,
                         .o_ld = x->o_ld,
                         .lse = x->lse,
                         .d_o = x->d_o,
                         .d_o_ld = x->d_o_ld,
                         .dq = x->dq,
                         .dk = x->dk,
                         .dv = x->dv,
                         .dq_ld = x->dq_ld,
                         .dk_ld = x->dk_ld,
                         .dv_ld = x->dv_ld,
                         .window = x->window,
                         .softcap = x->softcap,
                         .alibi_heads = x->alibi_heads,
                         .first_head = x->first_head,
                         .other_layouts = x->layout ? x->layout->others : 0,
                         .lengths = x->lengths,
                         .documents = x->documents,
                         .facts = x->workspace,
                         .keys = x->keys};
}

static inline void zpr_add_dropout(const zpk_attention_dropout *drop, zpd_attention *a) {
  if (drop->rate == 0) return;
  a->seed = drop->seed;
  a->more = 1 / (1 - drop->rate);
  a->drop_queries = drop->queries;
  a->drop_groups = (drop->keys + 3) / 4;
  a->drop_query = drop->first_query;
  a->drop_key = drop->first_key;
  a->drop_turned = drop->turned;
  a->drop_step = (unsigned)drop->step;
  a->keep_from = zpk_keep_threshold(drop->rate);
  a->first_sample = (unsigned)drop->first_sample;
  a->stream_instance = (unsigned)(drop->stream << 16 | drop->instance);
}

/* After the lines of a relative bias stand the buckets of distances, where its gradient is wanted. */
static inline zpd_bias zpr_bias_args(const zpk_attention_args *x, bool grad, bool tensor_cores) {
  zpd_bias a = {.B = x->B,
                .S = x->S,
                .H = x->H,
                .buckets = x->buckets,
                .max_distance = x->max_distance,
                .causal = x->causal,
                .bias = x->bias,
                .ld = x->bias_ld,
                .lines = x->bias_lines};
  if (!grad || !x->d_bias) return a;
  a.d_bias = x->d_bias;
  a.bucket = (int *)(void *)((char *)x->bias_lines + zpd_bias_line_bytes(x->H, x->S, zpk_real_bytes(x->dtype)));
  a.sums = x->bias_sums;
  a.tiles = zpd_bias_tiles(x->S, tensor_cores);
  a.reach = zpd_bias_reach(x->S, x->max_distance);
  return a;
}

/* `bias` is spread before attention, which gets where. */
static inline void zpr_use_bias(const zpd_bias *bias, zpd_attention *a) {
  a->lines = bias->lines;
  a->bias_sums = bias->sums;
  a->bias_reach = bias->reach;
}

static inline int64_t zpr_keys_of(const zpd_attention *a) { return a->keys ? a->keys : a->S; }

#endif
