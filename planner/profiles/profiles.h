/* SPDX-License-Identifier: Apache-2.0 */
/* What software profiles share: the constants of PyTorch programs. Which facts were read
 * again and which are from memory: docs/evidence/accuracy.md, "What was fitted". */
#ifndef ZP_PROFILES_H
#define ZP_PROFILES_H

#include <zplan/profile.h>

#define ZP_PROFILES(array)                                                                                             \
  { (array), (int)(sizeof(array) / sizeof(array)[0]) }

/* Bytes a gradient element moves when it is added to those of earlier micro-batches: two reads and a write in fp16
 * (autograd's AccumulateGrad). Megatron-LM v3 (2022) adds in the matrix product (--gradient-accumulation-fusion). */
enum { ACCUMULATE_HALF = 6 };
/* Added to a sum in fp32 in one kernel (nanotron src/nanotron/optim/gradient_accumulator.py), or by way of a copy
 * (deepspeed/runtime/bf16_optimizer.py: update_hp_grads). */
enum { ACCUMULATE_FLOAT = 2 + 8, ACCUMULATE_COPY = 6 + 12 };

/* Mixed-precision optimizer as separate kernels: gradients copied to fp32 (6), unscaled and checked (8), their norm
 * (4), clipped (8), weights copied back (6): megatron/optimizer/optimizer.py, 2021. The trainer's update reads the
 * gradient twice (4) and writes the weights (2) in one pass. */
enum { UPDATE_SEPARATE = 6 + 8 + 4 + 8 + 6 - 4 - 2 };

/* Bytes per logit that the loss holds at its peak, besides the one half-precision buffer in which the planner's program
 * turns logits into their gradient. Megatron: an fp32 copy that becomes the softmax, and a gradient (megatron/mpu/
 * cross_entropy.py). nanotron: an fp32 copy and one less its maximum (tensor_parallel/functional.py,
 * sharded_cross_entropy). PyTorch on fp32 logits: log-softmax and the gradients of both derivatives, when the
 * half-precision logits are gone. */
enum { LOSS_MEGATRON = 6, LOSS_NANOTRON = 4 + 4, LOSS_PYTORCH = 3 * 4 - 2 };

/* Bytes per updated parameter that exist in the update alone. Megatron and DeepSpeed's ZeRO 1 and 2: fp32 gradients
 * (megatron/optimizer/optimizer.py; deepspeed/runtime/zero/stage1.py, step; opened). DeepSpeed without ZeRO: a list of
 * them, and the same flattened (deepspeed/runtime/fp16/fused_optimizer.py, step; opened). */
enum { COPIES_SHARD = 4, COPIES_WHOLE = 4 + 4 };

/* Communicators of one process. Megatron-LM (megatron/mpu/initialize.py, megatron/p2p_communication.py): all ranks, one
 * a group, one over tensor and pipeline ranks for the norm, one for the tied embedding. PyTorch otherwise: all ranks,
 * and one a group in use. */
#define MEGATRON_GROUPS                                                                                                \
  { .world = 1, .tensor = 1, .data = 1, .model = 1, .ties = 1, .pairs = 1 }
#define PLAN_GROUPS                                                                                                    \
  { .world = 1, .tensor = 1, .data = 1, .pairs = 1 }

/* Eager PyTorch: Python, dispatcher, autograd and checkpointing around one kernel. Estimate: the smallest runs on odd
 * lines of vTrain's one-node table (hidden 1,024, micro-batch 1) take 3.2 to 3.7 ms a layer for about 60 kernels
 * whatever their size. */
#define EAGER_CALL_S 53e-6

/* What a collective that products wait for takes besides hops and bytes: its issue, and events between two streams. 22
 * us all-reduces, 23 all-gathers, 26 reduce-scatters of Megatron-Core 0.14 on B200 (MooreThreads/SimuMax
 * configs/system/b200_bf16_ceperm.json @4dcaae51; opened); the same calls of PyTorch on other GPUs. */
#define COLLECTIVE_S 24e-6

/* FlashAttention-3 on H100 in 16 bits: 1.5 to 2.0 times as fast as the second (arXiv 2407.08608, abstract; opened);
 * backward alone 1.5 to 1.75, and cuDNN's about as fast: from memory. Chosen within both. */
#define SM90_ATTENTION_2025 1.6

/* What all eager PyTorch programs have in common. */
#define EAGER                                                                                                          \
  .collective_s = COLLECTIVE_S, .separate_rows = true, .replays_all = true, .host_call_s = EAGER_CALL_S,               \
  .autograd = true

/* Batched products and scores in device memory, and a mixed-precision optimizer of separate kernels: Megatron-LM and
 * its descendants until FlashAttention. */
#define MEGATRON_BASE                                                                                                  \
  EAGER, .score_matrix = true, .blocking_messages = true, .update_bytes = UPDATE_SEPARATE,                             \
         .loss_bytes = LOSS_MEGATRON, .dropout = true
#define MEGATRON MEGATRON_BASE, .fused_softmax = true

#endif
