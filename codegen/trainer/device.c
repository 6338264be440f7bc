/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU trainer has besides trainer.c: the text of its device kernels, and how their image gets into the
 * binary. */
#include "device.h"

#include <assert.h>
#include "emit.h"
#include "sparse.h"
#include "wrap.h"

/* What attentions of the model have that the kernels' text is asked for. */
static void put_attention_options(zp_buf *out, const zp_model *model, bool by_keys) {
  bool windows = false, scores = false, cross = false, bias = false, drops = false, documents = false;
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++) {
      const zp_op_attr *attr = &graph->nodes.data[n].attr;
      if (graph->nodes.data[n].op != ZP_OP_ATTENTION) continue;
      windows = windows || attr->window;
      scores = scores || attr->softcap > 0 || attr->alibi_heads;
      cross = cross || attr->cross;
      documents = documents || attr->documents;
      bias = bias || attr->max_distance;
      drops = drops || attr->rate > 0;
    }
  }
  if (windows) zp_buf_line(out, "#define ZPD_WINDOWS /* attention in windows of tokens */");
  if (scores) zp_buf_line(out, "#define ZPD_SCORES /* attention with soft caps or ALiBi */");
  if (cross || by_keys) zp_buf_line(out, "#define ZPD_CROSS /* attention with keys of another sequence */");
  if (by_keys) zp_buf_line(out, "#define ZPD_CONTEXT_KEYS /* results of some keys merged with those of others */");
  if (documents) zp_buf_line(out, "#define ZPD_DOCUMENTS /* attention within documents */");
  if (bias) zp_buf_line(out, "#define ZPD_BIAS /* attention with relative biases */");
  if (drops) zp_buf_line(out, "#define ZPD_DROPOUT /* of attention's probabilities */");
}

/* Kernels that few models need: without them an image is smaller, and compiled sooner. */
static void put_operations(zp_buf *out, const zp_model *model) {
  bool seldom = false, experts = false;
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++) {
      seldom = seldom || zp_op_has(graph->nodes.data[n].op, ZP_FLAG_SELDOM);
      experts = experts || graph->nodes.data[n].op == ZP_OP_TOP_K_GATE;
    }
  }
  if (seldom)
    zp_buf_line(
        out, "#define ZPD_AXES /* reductions, positions by number, windows, matrices turned over, squared errors */");
  if (experts) zp_buf_line(out, "#define ZPD_EXPERTS /* tokens to their experts and back */");
}

const char *zp_trainer_kernels_cu(zp_arena *arena, const zp_plan *plan, const zp_kernel_set *kernels, const char *arch,
                                  zp_trainer_extras extras, const char **error) {
  assert(plan->feasible && !plan->spec->cluster.node.device.is_cpu && kernels && error);
  const char *rows = zp_kernels_cuda_text(kernels, error);
  if (!rows) return NULL;
  zp_emit e = {.arena = arena,
               .out = zp_buf_new(arena),
               .plan = plan,
               .program = plan->program,
               .lowered = plan->program->lowered,
               .model = plan->spec->model,
               .gpu = true};
  zp_emit_header(&e, "Device kernels", arch);
  zp_buf out = e.out;
  int64_t head = zp_largest_head(plan->spec->model); /* decides registers and shared memory */
  if (zp_tensor_core_head(plan->spec) > 0)
    zp_buf_line(&out, "#define ZPD_TENSOR_CORES /* attention uses them, where the arch has some for its dtype */");
  if (zp_tensor_core_head(plan->spec) > 0 && zp_arch_is_volta(plan->spec->cluster.node.device.arch))
    zp_buf_line(&out, "#define ZPD_VOLTA /* the emulated GPU has those of the cluster's */");
  const zp_optimizer *optimizer = zp_optimizer_facts(&plan->spec->train);
  bool compress = plan->best.choice.compress;
  zp_buf_line(&out, "#define ZPD_KEPT %u /* arrays of its optimizer, bits by ZPK_MOMENT1 ... */",
              zp_kept_bits(&plan->spec->train));
  if (optimizer->device_macro) zp_buf_line(&out, "#define %s", optimizer->device_macro);
  if (compress) zp_buf_line(&out, "#define ZPD_ONE_BIT /* signs of gradients with their errors */");
  if (compress && optimizer->device_macro_one_bit) zp_buf_line(&out, "#define %s", optimizer->device_macro_one_bit);
  if (compress && plan->spec->train.variance_every > 0) zp_buf_line(&out, "#define ZPD_ZERO_ONE_ADAM");
  if (plan->spec->train.stochastic_sums) zp_buf_line(&out, "#define ZPD_STOCHASTIC_SUMS /* of gradients, in bf16 */");
  if (extras.decode) zp_buf_line(&out, "#define ZPD_DECODE /* attention of a few queries */");
  if (head) zp_buf_line(&out, "#define ZPD_HEAD %lld /* columns of the largest attention head */", (long long)head);
  put_attention_options(&out, plan->spec->model,
                        zp_context_ranks(&plan->program->choice) > 1 && plan->program->choice.context_by);
  put_operations(&out, plan->spec->model);
  zp_buf_puts(&out, rows);
  zp_buf_puts(&out, "\n");
  zp_print_device_layouts(&out, plan->spec->model, &plan->program->choice);
  zp_buf_line(&out, "/* Everything that is no row program: attention, losses, lookups, optimizers. */");
  zp_buf_line(&out, "#include \"zpd_kernels.cuh\"");
  return zp_wrap(arena, out.data);
}

const char zp_kernels_image_s[] = "/* The compiled device kernels as bytes of the trainer. Not an array in C: that "
                                  "text would be five times as long as the\n"
                                  " * image and take the compiler longer than the rest. */\n"
                                  "  .section .rodata\n"
                                  "  .balign 64\n"
                                  "  .globl kernels_image, kernels_image_end\n"
                                  "kernels_image:\n"
                                  "  .incbin \"kernels.image\"\n"
                                  "kernels_image_end:\n"
                                  "  .section .note.GNU-stack,\"\",%progbits\n";
