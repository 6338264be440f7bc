/* SPDX-License-Identifier: Apache-2.0 */
/* A plan as the configuration file of DeepSpeed. The file knows no model: what model code has to do for the plan is
 * said in notes. */
#include <zplan/sparse.h>
#include "deepspeed.h"

/* "13 x 4, 12 x 2": how many units the stages hold. */
static const char *cut_text(const zp_exporter *e) {
  const zp_choice *c = e->choice;
  zp_buf out = zp_buf_new(e->arena);
  for (int s = 0, same; s < c->pipeline; s += same) {
    int64_t units = c->cut[s + 1] - c->cut[s];
    same = 1;
    while (s + same < c->pipeline && c->cut[s + same + 1] - c->cut[s + same] == units) same++;
    zp_buf_printf(&out, "%s%lld", out.len ? ", " : "", (long long)units);
    if (same > 1) zp_buf_printf(&out, " x %d", same);
  }
  return out.data;
}

/* PipelineModule and its topology are Python, not keys (deepspeed/runtime/pipe/module.py, topology.py). */
static void check_pipeline(zp_exporter *e) {
  const zp_choice *c = e->choice;
  if (c->schedule == ZP_SCHEDULE_INTERLEAVED)
    zp_export_refuse(e, "--set schedule=1f1b",
                     "schedule interleaved: a stage of DeepSpeed's pipeline holds one piece of the "
                     "model, not %d",
                     c->chunks);
  if (c->pipeline == 1) return;
  if (c->zero >= 2)
    zp_export_refuse(e, "--set 'zero in [0, 1]', or --set pipeline=1",
                     "ZeRO %d with pipeline %d: DeepSpeed refuses the two together", c->zero, c->pipeline);
  zp_export_note(
      e,
      "pipeline %d is Python: PipelineModule(layers, num_stages=%d, "
      "topology=PipeModelDataParallelTopology(num_pp=%d, num_mp=%d, num_dp=%d)); of the embedding, the layers and "
      "the head the stages of the plan hold %s, PipelineModule's partition_method divides on its own",
      c->pipeline, c->pipeline, c->pipeline, c->tensor, c->data, cut_text(e));
  if (c->order == ZP_ORDER_TPD && c->data > 1)
    zp_export_note(
        e, "ranks are numbered tensor, pipeline, data in the plan; that topology numbers them tensor, data, pipeline");
}

static void put_tensor(zp_exporter *e, zp_json *root) {
  const zp_choice *c = e->choice;
  if (zp_context_ranks(c) > 1)
    zp_export_refuse(e, "--set context=1",
                     "context %d: DeepSpeed's Ulysses attention is the model's code, not its configuration",
                     c->context);
  if (c->sequence)
    zp_export_refuse(e, "--set sequence=false",
                     "norms split along the sequence: DeepSpeed's tensor parallelism has no such form");
  if (c->tensor == 1) return;
  if (c->pipeline > 1) {
    zp_export_note(e, "tensor %d in a pipeline is the model's: its layers must be split over the topology's model axis",
                   c->tensor);
    return;
  }
  zp_json *tensor = zp_json_set(root, "tensor_parallel", zp_json_object());
  zp_json_set_int(tensor, "autotp_size", c->tensor);
  zp_export_note(e,
                 "tensor %d is AutoTP's: it splits the layers of Hugging Face models, others need a partition_config",
                 c->tensor);
}

static void check_experts(zp_exporter *e) {
  if (!zp_model_has_experts(e->spec->model)) return;
  if (zp_expert_ranks(e->choice) > 1 || e->choice->tensor > 1)
    zp_export_refuse(e, "--set expert=1 --set tensor=1",
                     "experts on several ranks: the model's code says so in DeepSpeed, not "
                     "its configuration");
  zp_export_note(e, "routing, capacity and balancing of experts are the model's");
}

static void put_batch(zp_exporter *e, zp_json *root) {
  zp_json_set_int(root, "train_batch_size", e->spec->train.batch);
  zp_json_set_int(root, "train_micro_batch_size_per_gpu", e->choice->microbatch);
  zp_json_set_int(root, "gradient_accumulation_steps", zp_export_accumulation(e));
}

void zp_export_deepspeed(zp_exporter *e) {
  zp_json *root = zp_json_object();
  zp_export_check_common(e);
  zp_export_check_loss(e);
  zp_export_check_schedule(e);
  if (zp_model_layouts(e->plan->spec->model).len)
    zp_export_note(e, "block-sparse attention is the model's: what computes it has to have the same patterns");
  zp_export_note(e, "for DeepSpeed (" ZP_DEEPSPEED_VERSION "): %s", zp_export_headline(e));
  put_batch(e, root);
  check_pipeline(e);
  put_tensor(e, root);
  check_experts(e);
  zp_deepspeed_memory(e, root);
  zp_deepspeed_train(e, root);
  if (zp_plan_idle(e->plan, e->choice) > 0)
    zp_export_note(e, "%d of %d devices stay idle: start %d ranks", zp_plan_idle(e->plan, e->choice), e->plan->devices,
                   zp_choice_ranks(e->choice));
  e->result->text = zp_format(e->arena, "%s\n", zp_json_text(e->arena, root, true));
  zp_json_free(root);
}
