/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch memory of the CPU kernels: attention, and products of 16-bit operands; and of attention on tensor cores. The
 * planner must know it exactly and may not look at kernels, so the formula stands here a second time; codegen, which
 * sees both, refuses to print a trainer when they differ. */
#include <stdlib.h>
#include <string.h>
#include "lower_internal.h"

/* Blocks of 48 queries or keys; head sizes padded to 64 bytes; forward also packs all keys and values of one head. With
 * 16-bit operands everything is in f32, and backward sums the gradient of a group's queries apart. */
enum { BLOCK = 48, PAD_BYTES = 64 };

int64_t zp_attention_workspace(int elem_bytes, int64_t sequence, int64_t head_size, int64_t group, bool backward) {
  int real_bytes = elem_bytes == 8 ? 8 : 4;
  int64_t head = zp_round_up(head_size, PAD_BYTES / real_bytes), padded = zp_round_up(sequence, BLOCK);
  int64_t elements = backward ? BLOCK * (8 * head + 2 * BLOCK) : 2 * padded * head + BLOCK * (2 * head + BLOCK);
  if (backward && elem_bytes < real_bytes) elements += group * sequence * head;
  return elements * real_bytes;
}

/* A task is a sample's head of keys, and no share waits in vain for one. */
int64_t zp_attention_shares(const zp_lowering *l, const zp_node *node) {
  int64_t tasks = l->lowered->microbatch * node->attr.kv_heads;
  return tasks < ZP_MAX_WORKERS ? tasks : ZP_MAX_WORKERS;
}

int64_t zp_attention_bias_bytes(const zp_lowering *l, const zp_node *node, bool backward) {
  enum { BUCKET = 4, TILE = 64, WARPS = 4 };
  int bias = zp_attention_bias(node);
  if (bias < 0) return 0;
  const zp_graph *g = l->graph;
  int64_t positions = g->tensors.data[node->in.data[0]].shape.dim[1], real = l->lowered->stat_bytes;
  int64_t rows = node->param_grad.len > 0 ? l->lowered->microbatch * node->attr.heads : 0; /* of sums */
  if (!l->lowered->spec->cluster.node.device.is_cpu) {
    int64_t most = node->attr.max_distance, reach = most < positions - 1 ? most : positions - 1;
    int64_t tiles = zp_round_up(positions, TILE) / TILE * (zp_tensor_core_head(l->lowered->spec) > 0 ? WARPS : 1);
    return 2 * positions * (node->attr.heads * real + (rows > 0 ? BUCKET : 0)) + rows * tiles * (2 * reach + 1) * real;
  }
  int64_t line = zp_round_up(2 * positions + BLOCK, 16) * (node->attr.heads / node->attr.kv_heads) * (backward ? 2 : 1);
  return (zp_attention_shares(l, node) * line + rows * g->tensors.data[bias].shape.dim[0]) * real;
}

enum { ALIGN = 16 }; /* of what is merged */

/* Where every pair of stretches has calls of its own: in a window a call's rows in the opposite order; what it makes of
 * keys, which several calls see. */
static int64_t call_bytes(const zp_lowering *l, const zp_node *node, const zp_shape *q, const zp_shape *k,
                          bool backward) {
  if (!zp_attention_by_pairs(&node->attr)) return 0;
  int64_t elem = l->lowered->compute_bytes, rows = q->dim[1] / 2;
  int64_t keys = zp_round_up(rows * 2 * k->dim[2] * elem, ALIGN), bytes = backward ? keys : 0;
  if (!node->attr.window) return bytes;
  return bytes + (backward ? 3 : 1) * zp_round_up(rows * q->dim[2] * elem, ALIGN) + keys +
         zp_round_up(rows * node->attr.heads * l->lowered->stat_bytes, ALIGN);
}

/* In a ring: keys and values of three ranks, sums of queries, what one call makes of a sample's; backward gradients
 * that go to two ranks and come from one, and sums of these. */
static int64_t ring_bytes(const zp_lowering *l, const zp_node *node, const zp_shape *q, const zp_shape *k,
                          bool backward) {
  enum { RANKS = 3 };
  int64_t elem = l->lowered->compute_bytes, real = l->lowered->stat_bytes, samples = l->lowered->microbatch;
  int64_t queries = q->dim[1] * q->dim[2], keys = 2 * samples * k->dim[1] * k->dim[2];
  int64_t piece = zp_round_up(keys * elem, ALIGN);
  int64_t bytes = RANKS * piece + zp_round_up(samples * queries * real, ALIGN) + zp_round_up(queries * elem, ALIGN);
  return bytes + call_bytes(l, node, q, k, backward) +
         (backward ? RANKS * piece + zp_round_up(keys * real, ALIGN)
                   : zp_round_up(q->dim[1] * node->attr.heads * real, ALIGN));
}

/* By keys, a pair of stretches after the other: sums of a sample's queries, and what one call makes of half of them. */
static int64_t pairs_bytes(const zp_lowering *l, const zp_node *node, const zp_shape *q, const zp_shape *k,
                           bool backward) {
  int64_t rows = q->dim[1] / 2, real = l->lowered->stat_bytes;
  return zp_round_up(2 * rows * q->dim[2] * real, ALIGN) +
         zp_round_up(rows * q->dim[2] * l->lowered->compute_bytes, ALIGN) +
         (backward ? 0 : zp_round_up(rows * node->attr.heads * real, ALIGN)) + call_bytes(l, node, q, k, backward);
}

/* Room for half of the rank's queries, to which other keys were seen: results and log-sum-exps; backward gradients of
 * these queries, and of the keys and values of half of all positions. A GPU has these at multiples of 16 bytes. */
int64_t zp_attention_merge_bytes(const zp_lowering *l, const zp_node *node, bool backward) {
  const zp_shape *q = &l->graph->tensors.data[node->in.data[0]].shape,
                 *k = &l->graph->tensors.data[node->in.data[1]].shape;
  if (node->attr.ring) return ring_bytes(l, node, q, k, backward);
  if (zp_attention_by_pairs(&node->attr)) return pairs_bytes(l, node, q, k, backward);
  if (node->attr.parts <= 1 || !node->attr.causal) return 0; /* one call is enough */
  int64_t rows = q->dim[1] / 2, elem = l->lowered->compute_bytes;
  int64_t queries = zp_round_up(rows * q->dim[2] * elem, ALIGN);
  if (!backward) return queries + zp_round_up(rows * node->attr.heads * l->lowered->stat_bytes, ALIGN);
  return queries + 2 * zp_round_up(k->dim[1] / 2 * k->dim[2] * elem, ALIGN);
}

/* What cuBLASLt may use: NVIDIA's advice (cuBLAS documentation, cublasSetWorkspace), 32 MiB for Hopper and Blackwell, 4
 * MiB for what was before them. Of an unknown arch: the larger. */
static int64_t gpu_workspace(const zp_device *device) {
  enum { MIB = 1 << 20, HOPPER = 90 };
  int arch = device->arch && strncmp(device->arch, "sm_", 3) == 0 ? atoi(device->arch + 3) : HOPPER;
  return arch >= HOPPER ? 32 * MIB : 4 * MIB;
}

/* CPU ranks with 16-bit operands: a tile of either operand, 128 x 256 and 256 x 128, and one of the result, in f32, for
 * each worker. */
int64_t zp_products_bytes(const zp_spec *spec) {
  const zp_device *device = &spec->cluster.node.device;
  if (!device->is_cpu) return spec->cluster.trainer == ZP_TRAINER_ZPLAN ? gpu_workspace(device) : 0;
  if (!zp_is_mixed(&spec->train)) return 0;
  return ZP_MAX_WORKERS * INT64_C(4) * (2 * 128 * 256 + 128 * 128);
}

bool zp_arch_is_volta(const char *arch) { return arch && (strcmp(arch, "sm_70") == 0 || strcmp(arch, "sm_72") == 0); }

enum { MOST_TENSOR_HEAD = 256 };

int64_t zp_largest_head(const zp_model *model) {
  int64_t largest = 0;
  for (int s = 0; s < model->segments.len; s++) {
    const zp_graph *graph = model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++)
      if (graph->nodes.data[n].op == ZP_OP_ATTENTION && graph->nodes.data[n].attr.head_size > largest)
        largest = graph->nodes.data[n].attr.head_size;
  }
  return largest;
}

int64_t zp_tensor_core_head(const zp_spec *spec) {
  const zp_device *device = &spec->cluster.node.device;
  bool volta = zp_arch_is_volta(device->arch) && spec->train.precision == ZP_PREC_MIXED_FP16;
  if (spec->cluster.trainer != ZP_TRAINER_ZPLAN || device->is_cpu || !zp_is_mixed(&spec->train)) return 0;
  if (!device->has_bf16 && !volta) return 0;
  int64_t largest = zp_largest_head(spec->model);
  return largest <= MOST_TENSOR_HEAD ? largest : 0;
}

const char *zp_why_no_tensor_cores(zp_arena *arena, const zp_spec *spec) {
  const zp_device *device = &spec->cluster.node.device;
  int64_t largest = zp_largest_head(spec->model);
  if (spec->cluster.trainer != ZP_TRAINER_ZPLAN || device->is_cpu || !zp_is_mixed(&spec->train)) return NULL;
  if (largest == 0 || zp_tensor_core_head(spec) > 0) return NULL;
  if (largest > MOST_TENSOR_HEAD)
    return zp_format(arena, "heads of %lld columns are wider than the %d that its kernels on tensor cores have",
                     (long long)largest, MOST_TENSOR_HEAD);
  return zp_arch_is_volta(device->arch) ? "tensor cores of this device do not multiply bf16"
                                        : "its kernels on tensor cores are for sm_80 and later, and for f16 on sm_70";
}

/* Log-sum-exp and row sum of o * d_o in f32, of every query, whose number is rounded up to even. */
int64_t zp_attention_facts_bytes(int64_t samples, int64_t heads, int64_t sequence) {
  return 8 * samples * heads * zp_round_up(sequence, 2);
}
