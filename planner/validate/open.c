/* SPDX-License-Identifier: Apache-2.0 */
/* What a row leaves open, by column, and what was taken for it. */
#include "validate_internal.h"

typedef struct list {
  zp_arena *arena;
  zp_prediction *to;
} list;

__attribute__((format(printf, 4, 5))) static void open_column(list *l, bool open, const char *column,
                                                              const char *format, ...) {
  if (!open) return;
  va_list args;
  va_start(args, format);
  zp_open_column one = {column, zp_vformat(l->arena, format, args)};
  va_end(args);
  zp_push(l->arena, &l->to->open, one);
}

static void open_model(list *l, const zp_measured *run, const zp_measured *full) {
  open_column(l, !run->shape.layers, "layers", "%lld", (long long)full->shape.layers);
  open_column(l, !run->shape.hidden, "hidden", "%lld", (long long)full->shape.hidden);
  open_column(l, !run->shape.heads, "heads", "%lld", (long long)full->shape.heads);
  open_column(l, !run->shape.kv_heads && full->shape.gated, "KV heads", "%lld", (long long)full->shape.kv_heads);
  open_column(l, !run->shape.ffn, "ffn", "%lld", (long long)full->shape.ffn);
  open_column(l, !run->shape.vocab, "vocab", "%lld", (long long)full->shape.vocab);
  open_column(l, !run->seq, "seq", "%lld", (long long)full->seq);
}

static void open_machine(list *l, const zp_measured *run, const zp_measured *full) {
  int node = run->gpus_per_node ? run->gpus_per_node : ZP_USUAL_NODE;
  open_column(l, !run->gpus_per_node && run->gpus > 1, "gpus_per_node", "%d", node);
  open_column(l, run->intra_bytes_per_s <= 0 && run->gpus > 1, "intra_bw_GBps", "%g", full->intra_bytes_per_s / 1e9);
  open_column(l, run->inter_bytes_per_s <= 0 && run->gpus > node, "inter_bw_GBps_per_gpu", "%g",
              ZP_USUAL_NETWORK / 1e9);
}

static void open_plan(list *l, const zp_measured *run, const zp_measured *full) {
  const zp_choice *c = &l->to->choice;
  open_column(l, !run->tensor, "tp", "%d", full->tensor);
  open_column(l, !run->pipeline, "pp", "%d", full->pipeline);
  open_column(l, !run->data, "dp", "%d", full->data);
  open_column(l, run->chunks <= 0 && full->pipeline > 1, "interleave_v", "%d", zp_chunks(c));
  open_column(l, !run->microbatch, "micro_batch", "%lld", (long long)c->microbatch);
  open_column(l, !run->batch, "global_batch", "%lld", (long long)full->batch);
  open_column(l, !run->precision, "precision", "bf16");
  open_column(l, run->zero < 0 && full->data > 1, "zero_stage", "0");
  open_column(l, !run->recompute, "recompute", "none");
  open_column(l, !run->sequence_said && full->tensor > 1, "seq_parallel", "0");
  open_column(l, !run->offload, "offload", "none");
}

void zp_open_columns(zp_arena *arena, const zp_measured *run, const zp_measured *full, zp_prediction *to) {
  list l = {arena, to};
  open_model(&l, run, full);
  open_machine(&l, run, full);
  open_plan(&l, run, full);
  open_column(&l, !to->by_source, "software", "%s", to->software);
}
