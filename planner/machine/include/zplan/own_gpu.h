/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of zplan's own GPU trainer: what they compute and move, and how fast they are taken to be. Every class of
 * kernels has one rate for its operations and one for its bytes, each with its source. */
#ifndef ZPLAN_OWN_GPU_H
#define ZPLAN_OWN_GPU_H

#include <zplan/machine.h>
#include <zplan/sparse.h>

#define ZP_KERNELS(X)                                                                                                  \
  X(PRODUCT, "product")                                                                                                \
  X(ATTENTION, "attention")                                                                                            \
  X(ATTENTION_GRAD, "attention gradient")                                                                              \
  X(ROWS, "rows")                                                                                                      \
  X(COLUMN_SUMS, "column sums")                                                                                        \
  X(LOSS, "loss")                                                                                                      \
  X(LOOKUP, "lookup")                                                                                                  \
  X(ROUTING, "routing")                                                                                                \
  X(UPDATE, "update")
typedef enum zp_kernel {
#define ZP_KERNEL_ROW(name, text) ZP_KERNEL_##name,
  ZP_KERNELS(ZP_KERNEL_ROW)
#undef ZP_KERNEL_ROW
      ZP_KERNEL_COUNT
} zp_kernel;
const char *zp_kernel_name(zp_kernel kernel);

/* What one call of a step does on the device. flop: operations that are computed, whether anybody needs them or not.
 * bytes: of global memory. */
typedef struct zp_kernel_work {
  zp_kernel kernel;
  int launches; /* kernels and library calls that the host starts; 0: unknown */
  double flop, bytes;
} zp_kernel_work;

/* ---- own_gpu.c ---- */
/* Does the cluster run it? */
bool zp_cost_is_own_gpu(const zp_machine *machine);
/* Whether products do gelu's derivative as an epilogue. Not on sm_90: cuBLASLt 13.1's take 2.5 to 4.1 times as long
 * with it and the bias's gradient on an H100, which is more than a row kernel costs (docs/evidence/gpu.md, measured).
 * sm_100 is taken to be like sm_90, older ones to do it as fast as other epilogues. */
bool zp_products_do_gelu_gradients(const zp_machine *machine);
/* What a class of kernels reaches of the device, launches aside. source: where both come from. */
typedef struct zp_kernel_rate {
  double flop_per_s, bytes_per_s;
  const char *source;
} zp_kernel_rate;
/* head: columns of the heads of attention on tensor cores; 0: attention is on the cores for single precision. */
zp_kernel_rate zp_kernel_rate_of(const zp_machine *machine, zp_kernel kernel, int64_t head);
/* Seconds of work at those rates: its launches, and the longer of computing and moving. */
double zp_cost_own_kernel(const zp_machine *machine, const zp_kernel_work *work, int64_t head);
/* A product of cuBLASLt. library_s: what zp_cost_product says of it; bytes: all that it moves, alongside_bytes of them
 * for its epilogue. */
double zp_cost_own_product(const zp_machine *machine, double library_s, double bytes, double alongside_bytes);
/* Attention on the cores for single precision. flop: as counted, of the pairs that are computed. The work that is done
 * goes to *work. */
double zp_cost_own_attention(const zp_machine *machine, double flop, double bytes, bool backward, zp_kernel_work *work);
/* A row kernel that also sums over rows, in so many chunks, each with sums of sum_bytes. */
double zp_cost_column_sums(const zp_machine *machine, double bytes, double sum_bytes, double flop, int chunks,
                           zp_kernel_work *work);
/* The end of a step: sums of squares, what they decide, the update. */
double zp_cost_own_update(const zp_machine *machine, double norm_bytes, double update_bytes);
enum { ZP_UPDATE_LAUNCHES = 3 };

/* ---- own_routing.c: seconds of the gate's kernels besides their launches ---- */
typedef struct zp_gate_shape {
  int64_t samples, tokens, experts, top_k; /* tokens of a sample */
  int64_t groups, top_groups;              /* 0: no groups */
  bool normalize, sigmoid, balance;        /* balance: there is a balancing loss */
} zp_gate_shape;
double zp_cost_gate(const zp_machine *machine, const zp_gate_shape *gate);
double zp_cost_gate_gradient(const zp_machine *machine, const zp_gate_shape *gate);
/* The gradient of a gate's bias, which moves by the load of the experts. */
double zp_cost_gate_load(const zp_gate_shape *gate);

/* ---- own_attention.c: attention on tensor cores ---- */
typedef enum zp_tensor_kernel { ZP_TENSOR_FORWARD, ZP_TENSOR_GRAD_Q, ZP_TENSOR_GRAD_KV } zp_tensor_kernel;
/* Local shapes. width: columns of a head. head: those that the kernels are compiled for, the most of the model. */
typedef struct zp_attention_shape {
  int64_t samples, heads, kv_heads, sequence, width, head;
  int float_bytes;
  bool causal;
  const zp_layout *layout; /* NULL: dense. Where heads see different pairs: of the rank that has most to do */
  int64_t window;          /* of tokens, as zp_op_attr.window; 0: none. Without a layout */
  int64_t keys;            /* of another sequence; 0: as many as queries, of the same */
  bool sums_bias;          /* the gradient of queries sums that of a relative bias, in tiles of 64 */
} zp_attention_shape;
/* The geometry of zpd_mma_rows, zpd_mma_sharers and zpd_mma_step of the kernels (zplan/zpd.h), which the planner may
 * not see: rows of a block's tile, warps that share a step out, rows of the other side in a step. block: of the layout;
 * 0: dense. */
typedef struct zp_attention_tile {
  int64_t rows, sharers, step;
} zp_attention_tile;
zp_attention_tile zp_attention_tile_of(zp_tensor_kernel kernel, int64_t head, int64_t block);
/* What a kernel computes, walking as it does. Warps skip steps that none of their rows sees, but the block waits for
 * the warp that has most to do: with its steps for every warp flop would be waited_flop, of the block that has most
 * longest_flop. */
typedef struct zp_attention_walk {
  double flop, waited_flop, longest_flop;
  double blocks;
} zp_attention_walk;
zp_attention_walk zp_attention_walk_of(zp_tensor_kernel kernel, const zp_attention_shape *shape);
/* Seconds of attention, or of both kernels of its gradient. The work goes to *work. */
double zp_cost_tensor_attention(const zp_machine *machine, const zp_attention_shape *shape, bool backward,
                                zp_kernel_work *work);

/* What scores take besides, on the cores for single precision whatever multiplies: dropout of probabilities, and a
 * relative bias. pairs: of query and key, of all heads. Adds to the work. Left out: lines and sums of a bias, which
 * stay in caches. */
typedef struct zp_score_extras {
  double pairs;
  bool drops, bias, sums_bias; /* sums_bias: backward, of a bias that is trained */
} zp_score_extras;
double zp_cost_score_extras(const zp_machine *machine, const zp_score_extras *extras, bool backward,
                            zp_kernel_work *work);

#endif
