/* SPDX-License-Identifier: Apache-2.0 */
/* Rows whose columns contradict each other in what was measured, and on what. What the shape says of the parameters is
 * model.c's. */
#include <math.h>
#include "validate_internal.h"

/* How far gpu_mem_gb may be from the memory in the GPU's name: one may be decimal and the other binary. */
#define NEAR_MEMORY 0.08
/* Both figures of a step are of one formula: those of tables differ by 1.2 at most. Whether recomputation counts makes
 * 4/3. */
#define NEAR_STEP 1.5

static const char *check_memory(zp_arena *arena, const zp_measured *run) {
  double printed = zp_gpu_printed_gb(run->gpu), said = run->gpu_memory_gb;
  if (printed > 0 && said > 0 && fabs(said / printed - 1) > NEAR_MEMORY)
    return zp_format(arena, "gpu is `%s`, and gpu_mem_gb is %g", run->gpu, said);
  const char *device = zp_gpu_device(run->gpu, said);
  double board = device ? (double)zp_gpu_board_bytes(device) : said * 1e9 * (1 + NEAR_MEMORY);
  if (board <= 0 || run->memory_bytes <= board) return NULL;
  return zp_format(arena, "measured_mem_gb is more than the GPU has: %.4g of %.4g GB", run->memory_bytes / 1e9,
                   board / 1e9);
}

static const char *check_step(zp_arena *arena, const zp_measured *run) {
  bool whole = run->shape.layers && run->shape.hidden && run->shape.heads && run->shape.ffn && run->shape.vocab &&
               run->seq && run->batch;
  if (!whole || run->tflops <= 0 || run->step_s <= 0) return NULL;
  zp_measured with = *run;
  if (!with.shape.kv_heads) with.shape.kv_heads = with.shape.heads;
  double seconds = zp_run_flop(&with, run->tflops_hardware) / (run->tflops * run->gpus);
  if (seconds < run->step_s * NEAR_STEP && run->step_s < seconds * NEAR_STEP) return NULL;
  return zp_format(arena, "measured_iter_s is %g, and measured_tflops_per_gpu makes a step of %.4g s", run->step_s,
                   seconds);
}

/* Heads over tensor ranks, and chunks of whole layers: no program of these tables trains with others, but for those
 * whose stages are laid out by hand (Megatron-Core, --pipeline-model-parallel-layout). */
static const char *check_divisions(zp_arena *arena, const zp_measured *run) {
  if (run->shape.heads && run->tensor && run->shape.heads % run->tensor != 0)
    return zp_format(arena, "tp is %d, which does not divide heads, %lld", run->tensor, (long long)run->shape.heads);
  if (run->shape.layers && run->pipeline > 1 && run->chunks > 1 && !run->lays_out &&
      run->shape.layers % ((int64_t)run->pipeline * run->chunks) != 0)
    return zp_format(arena, "interleave_v is %d, and %lld layers are no equal chunks of %d stages", run->chunks,
                     (long long)run->shape.layers, run->pipeline);
  if (run->batch && run->data && run->batch % run->data != 0)
    return zp_format(arena, "global_batch is %lld, which does not divide over dp, %d", (long long)run->batch,
                     run->data);
  return NULL;
}

const char *zp_run_contradiction(zp_arena *arena, const zp_measured *run) {
  const char *wrong = zp_shape_contradiction(arena, run);
  if (!wrong) wrong = check_divisions(arena, run);
  if (!wrong) wrong = check_memory(arena, run);
  return wrong ? wrong : check_step(arena, run);
}
