/* SPDX-License-Identifier: Apache-2.0 */
/* Degrees, batch and stages as arguments of torchtitan. */
#include "torchtitan.h"

/* Meshes of DTensor divide heads and positions evenly (models/common, trainer.py). */
static void check_divides(zp_titan *t) {
  const zp_choice *c = t->e->choice;
  int64_t context = zp_context_ranks(c), parts = (c->sequence ? c->tensor : 1) * (context > 1 ? 2 * context : 1);
  const struct {
    const char *what;
    int64_t number, by;
  } rows[] = {{"heads", t->gpt->heads, c->tensor},
              {"key/value heads", t->gpt->kv_heads, c->tensor},
              {"the hidden size of the MLP", t->gpt->ff, c->tensor},
              {"the vocabulary", t->gpt->vocabulary, c->tensor},
              {"the sequence", t->gpt->sequence, parts}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].number % rows[i].by != 0)
      zp_export_refuse(t->e, "another `tensor` or `context`: --set tensor=...",
                       "%s (%lld) do not divide by %lld; zplan pads, torchtitan does not", rows[i].what,
                       (long long)rows[i].number, (long long)rows[i].by);
}

/* ZeRO 0 is replicas alone, ZeRO 2 and 3 are FSDP, which keeps parameters after forward or gathers them again. Shard
 * groups hold the context ranks, too. */
static void put_data(zp_titan *t) {
  zp_exporter *e = t->e;
  const zp_choice *c = e->choice;
  int64_t context = zp_context_ranks(c), replicas = c->zero == 0 ? zp_replicas(c) : zp_shard_copies(c);
  if (c->zero == 1)
    zp_export_refuse(e, "--set 'zero in [2, 3]'", "ZeRO 1: torchtitan shards gradients or parameters, too");
  if (c->hpz > 0) zp_export_refuse(e, "--set hpz=1", "a second copy of the parameters: torchtitan keeps none");
  if (c->zero >= 2 && zp_shard_ranks(c) % context != 0)
    zp_export_refuse(e, "--set context=1", "shard groups of %d ranks do not hold the %lld of a context",
                     (int)zp_shard_ranks(c), (long long)context);
  zp_titan_put_int(t, "parallelism.data_parallel_replicate_degree", replicas);
  zp_titan_put_int(t, "parallelism.data_parallel_shard_degree",
                   c->zero == 0 ? 1 : (zp_replicas(c) / replicas > 0 ? zp_replicas(c) / replicas : 1));
  if (c->zero >= 2) zp_titan_put_text(t, "parallelism.fsdp_reshard_after_forward", c->zero == 3 ? "always" : "never");
}

/* Accumulation is micro-batches of the pipeline, else of the optimizer. */
static void put_batch(zp_titan *t) {
  const zp_choice *c = t->e->choice;
  int64_t micros = c->pipeline > 1 ? zp_export_accumulation(t->e) : 1;
  zp_titan_put_int(t, "training.local_batch_size", c->microbatch * micros);
  zp_titan_put_int(t, "training.global_batch_size", t->e->spec->train.batch);
  zp_titan_put_int(t, "training.seq_len", t->gpt->sequence);
  if (c->pipeline > 1) zp_titan_put_int(t, "parallelism.pipeline_parallel_microbatch_size", c->microbatch);
}

/* ---- stages ---- */

/* Layers of chunk k of n when the embedding counts as `first` and the head as `last` layers
 * (distributed/pipeline_parallel.py, _generate_llm_fqn_per_model_part). */
static int64_t layers_of(int64_t layers, int64_t n, int64_t k, int64_t first, int64_t last) {
  int64_t units = layers + first + last, own = units / n + (k < units % n);
  return own - (k == 0 ? first : 0) - (k == n - 1 ? last : 0);
}

/* Layers of chunk k in the plan: units are the embedding, the layers and the head. */
static int64_t planned(const zp_exporter *e, int64_t k, int64_t layers) {
  int64_t begin = e->choice->cut[k], end = e->choice->cut[k + 1];
  return (end < layers + 1 ? end : layers + 1) - (begin > 1 ? begin : 1);
}

/* Does it divide the layers as the plan does? first, last: at most units / n. */
static bool divides(const zp_exporter *e, int64_t layers, int64_t n, int64_t first, int64_t last) {
  int64_t least = (layers + first + last) / n;
  bool same = first <= least && last <= least;
  for (int64_t k = 0; k < n && same; k++) same = layers_of(layers, n, k, first, last) == planned(e, k, layers);
  return same;
}

/* Weights of embedding and head that make the plan's stages; false: none do. */
static bool find_weights(const zp_exporter *e, int64_t layers, int64_t n, int64_t *first, int64_t *last) {
  for (*first = 0; *first <= layers / n + 1; (*first)++)
    for (*last = 0; *last <= layers / n + 1; (*last)++)
      if (divides(e, layers, n, *first, *last)) return true;
  return false;
}

static void put_cut(zp_titan *t) {
  zp_exporter *e = t->e;
  const zp_choice *c = e->choice;
  int64_t layers = t->gpt->layers, chunks = zp_chunks(c), n = (int64_t)c->pipeline * chunks, first = 1, last = 1;
  if (c->fine) return; /* refused */
  zp_buf stages = zp_buf_new(e->arena);
  for (int64_t k = 0; k < n; k++) zp_buf_printf(&stages, "%s%lld", k ? ", " : "", (long long)planned(e, k, layers));
  if (!find_weights(e, layers, n, &first, &last)) {
    first = last = 1;
    zp_export_note(e,
                   "stages of the plan hold %s layers; torchtitan divides them evenly, with the embedding and the head "
                   "as one layer each",
                   stages.data);
  }
  zp_titan_put_int(t, "parallelism.pipeline_parallel_first_stage_less_layers", first);
  zp_titan_put_int(t, "parallelism.pipeline_parallel_last_stage_less_layers", last);
  if (chunks > 1) {
    int64_t size = (layers + first + last + n - 1) / n;
    zp_titan_put_int(t, "parallelism.pipeline_parallel_layers_per_stage", size);
    if ((layers + first + last + size - 1) / size != n)
      zp_export_refuse(e, "--set schedule=1f1b, or another `chunks`",
                       "%lld layers in %lld chunks: with %lld layers a chunk torchtitan makes another number of them",
                       (long long)layers, (long long)n, (long long)size);
  }
}

static void put_pipeline(zp_titan *t) {
  const zp_choice *c = t->e->choice;
  zp_export_check_schedule(t->e);
  zp_titan_put_int(t, "parallelism.pipeline_parallel_degree", c->pipeline);
  if (c->pipeline == 1) return;
  bool interleaved = c->schedule == ZP_SCHEDULE_INTERLEAVED;
  zp_titan_put_text(t, "parallelism.pipeline_parallel_schedule", interleaved ? "Interleaved1F1B" : "1F1B");
  put_cut(t);
  zp_titan_put(t, "training.disable_cuda_graphs"); /* trainer.py wants that of pipelines */
}

void zp_titan_parallel(zp_titan *t) {
  zp_exporter *e = t->e;
  const zp_choice *c = e->choice;
  check_divides(t);
  zp_titan_section(t, zp_format(e->arena, "%d ranks", zp_choice_ranks(c)));
  put_data(t);
  zp_titan_put_int(t, "parallelism.tensor_parallel_degree", c->tensor);
  if (c->tensor > 1)
    zp_titan_put(t, c->sequence ? "parallelism.enable_sequence_parallel" : "parallelism.no_enable_sequence_parallel");
  zp_titan_put_int(t, "parallelism.context_parallel_degree", zp_context_ranks(c));
  if (zp_context_ranks(c) > 1 && c->context_by != ZP_BY_KEYS)
    zp_export_note(e, "ranks of a context gather keys and values; in the plan they exchange %s",
                   c->context_by == ZP_BY_HEADS ? "heads" : "them in a ring");
  put_pipeline(t);
  put_batch(t);
  if (c->order == ZP_ORDER_TPD && c->pipeline > 1 && zp_replicas(c) > 1)
    zp_export_note(e, "ranks are numbered tensor, pipeline, data in the plan; torchtitan numbers them tensor, data, "
                      "pipeline");
  if (c->compress)
    zp_export_refuse(e, "--set compress=false", "1-bit compressed gradients: torchtitan has no such optimizer");
  if (zp_plan_idle(e->plan, c) > 0)
    zp_export_note(e, "%d of %d devices stay idle: start %d ranks", zp_plan_idle(e->plan, c), e->plan->devices,
                   zp_choice_ranks(c));
}
