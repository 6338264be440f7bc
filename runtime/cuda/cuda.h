/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the GPU back end: its state, how trouble is told, how kernels are started. */
#ifndef ZPLAN_RT_CUDA_H
#define ZPLAN_RT_CUDA_H

#include <zplan/zpd.h>
#include "device.h"
#include "gpu_product.h"
#include "state.h"

typedef struct zpr_nccl zpr_nccl; /* nccl.c */

/* The kernels of kernels/cuda that the runtime starts itself. */
#define ZPR_DEVICE_KERNELS(X)                                                                                          \
  X(embedding)                                                                                                         \
  X(embedding_grad)                                                                                                    \
  X(position_grad)                                                                                                     \
  X(move_positions)                                                                                                    \
  X(mean_positions)                                                                                                    \
  X(spread_positions)                                                                                                  \
  X(merge_parts)                                                                                                       \
  X(gather)                                                                                                            \
  X(gather_grad)                                                                                                       \
  X(reduce)                                                                                                            \
  X(reduce_grad)                                                                                                       \
  X(transpose)                                                                                                         \
  X(unfold)                                                                                                            \
  X(unfold_grad)                                                                                                       \
  X(squared_error)                                                                                                     \
  X(squared_error_grad)                                                                                                \
  X(attention_forward)                                                                                                 \
  X(attention_grad_q)                                                                                                  \
  X(attention_grad_kv)                                                                                                 \
  X(bias_lines)                                                                                                        \
  X(bias_grad)                                                                                                         \
  X(attention_stretch)                                                                                                 \
  X(mma_forward)                                                                                                       \
  X(mma_forward_64)                                                                                                    \
  X(mma_forward_32)                                                                                                    \
  X(mma_forward_16)                                                                                                    \
  X(mma_grad_q)                                                                                                        \
  X(mma_grad_q_64)                                                                                                     \
  X(mma_grad_q_32)                                                                                                     \
  X(mma_grad_q_16)                                                                                                     \
  X(mma_grad_q_bias)                                                                                                   \
  X(mma_grad_kv)                                                                                                       \
  X(mma_grad_kv_64)                                                                                                    \
  X(mma_grad_kv_32)                                                                                                    \
  X(mma_grad_kv_16)                                                                                                    \
  X(ce_stats)                                                                                                          \
  X(ce_loss)                                                                                                           \
  X(ce_grad)                                                                                                           \
  X(gate_choose)                                                                                                       \
  X(gate_places)                                                                                                       \
  X(gate_grad)                                                                                                         \
  X(count_choices)                                                                                                     \
  X(count_load)                                                                                                        \
  X(load_signs)                                                                                                        \
  X(dispatch)                                                                                                          \
  X(combine)                                                                                                           \
  X(combine_grad)                                                                                                      \
  X(pack_signs)                                                                                                        \
  X(average_signs)                                                                                                     \
  X(unpack_signs)                                                                                                      \
  X(momentum)                                                                                                          \
  X(frozen_update)                                                                                                     \
  X(add_to_error)                                                                                                      \
  X(pack_error)                                                                                                        \
  X(owner_update)                                                                                                      \
  X(apply_signs)                                                                                                       \
  X(lamb_fresh)                                                                                                        \
  X(lamb_frozen)                                                                                                       \
  X(variance)                                                                                                          \
  X(local_add)                                                                                                         \
  X(local_mean)                                                                                                        \
  X(local_weights)                                                                                                     \
  X(optimizer)                                                                                                         \
  X(square_segments)                                                                                                   \
  X(adafactor_rows)                                                                                                    \
  X(adafactor_cols)                                                                                                    \
  X(adafactor_add)                                                                                                     \
  X(adafactor_means)                                                                                                   \
  X(adafactor_factors)                                                                                                 \
  X(adafactor_squares)                                                                                                 \
  X(adafactor_apply)                                                                                                   \
  X(muon_momentum)                                                                                                     \
  X(muon_squares)                                                                                                      \
  X(muon_place)                                                                                                        \
  X(muon_mix)                                                                                                          \
  X(muon_apply)                                                                                                        \
  X(lamb_moments)                                                                                                      \
  X(decide)                                                                                                            \
  X(sum_parts)                                                                                                         \
  X(add_stochastic)                                                                                                    \
  X(round_sum)                                                                                                         \
  X(widen_sum)

typedef struct zpr_kernels {
#define ZPR_MEMBER(name) zpr_device_kernel name;
  ZPR_DEVICE_KERNELS(ZPR_MEMBER)
#undef ZPR_MEMBER
} zpr_kernels;

/* Pinned memory of the host through which everything goes that is not a kernel's: windows, and pieces of sums. */
enum { ZPR_PINNED_BYTES = 8 << 20 };

/* What is on the device outside the arena. A step may be decided while the host has not heard of the one before. */
enum { ZPR_DECISIONS = 2 };
typedef struct zpr_scalars {
  zpd_step step;
  zpd_outcome outcome[ZPR_DECISIONS];
  double loss_parts[2 * ZPD_LOSS_BLOCKS];
  unsigned loss_ticket;
} zpr_scalars;

/* Memory for messages between stages: pinned; grows with the longest message, so only in the first step. */
typedef struct zpr_message_buffer {
  void *memory;
  int64_t bytes;
} zpr_message_buffer;

/* Where work goes, in order: a stream, and pinned memory for its staged pieces. */
typedef struct zpr_lane {
  void *stream;
  char *pinned;
  bool pinned_busy; /* a copy from it may not have ended */
} zpr_lane;

struct zpr_device {
  gpu_api api;
  bool emulated;
  int ordinal, multiprocessors, capability; /* the latter: 86 of sm_86 */
  char name[96];
  void *context, *module, *stream;
  gpu_products *products;
  void *products_stream; /* of the units: `stream` is another one while something moves alongside them */
  zpr_kernels kernels;
  const char *last_kernel;    /* kernels fail after they were started */
  gpu_pointer arena, scalars; /* zpr_scalars */
  gpu_pointer tickets;        /* of row kernels with sums over columns; all 0 between kernels */
  bool check;
  char *pinned;
  bool pinned_busy;   /* a copy from it may not have ended */
  gpu_pointer window; /* where the open window's bytes go; 0: it was opened to be read */
  int64_t window_bytes;
  struct zpr_tokens *tokens;          /* tokens.c; NULL: none was loaded yet */
  bool decides;                       /* about steps (update.c): */
  int64_t decided, heard;             /* so many steps; of so many the host was told */
  void *told[ZPR_DECISIONS];          /* events: the outcome has been copied */
  zpd_outcome *outcome;               /* pinned */
  struct zpr_copies *copies;          /* copies.c; NULL: nothing was copied yet */
  zpr_message_buffer *sends, receive; /* sends: [zpr_message_buffers] */
  bool receive_busy;                  /* as pinned_busy */
  zpr_message_buffer exchange;        /* of slots and records (comm_slots.c) */
  zpr_nccl *nccl;                     /* NULL: messages are staged */
  struct zpr_points *points;          /* points.c; NULL: nothing is profiled */
  struct zpr_overlapped *overlapped;  /* NULL: nothing moves alongside the units */
};

static inline gpu_pointer zpr_gpu(const void *p) { return (gpu_pointer)(uintptr_t)p; }
static inline char *zpr_gpu_host(gpu_pointer p) { return (char *)(uintptr_t)p; }

/* Ends the run when the result of a driver's function is an error: "cannot <what>: CUDA_ERROR_...". */
void zpr_cuda(zpr *c, int result, const char *what);
void zpr_cublas(zpr *c, int result, const char *what);
/* Waits for everything that was started in the stream; in another one; for an event. Whoever waits for the GPU waits
 * here: a kernel of NCCL spins for ever when a rank that it waits for is gone, and this notices. */
void zpr_cuda_wait(zpr *c);
void zpr_cuda_wait_stream(zpr *c, void *stream, const char *what);
void zpr_cuda_wait_event(zpr *c, void *event, const char *what);
/* Starts a kernel whose one argument is the struct `args`. */
void zpr_launch(zpr *c, zpr_device_kernel *kernel, const void *args, size_t bytes, int64_t grid_x, int64_t grid_y,
                int64_t grid_z, unsigned threads);
/* As zpr_launch, with dynamic shared memory. */
void zpr_launch_shared(zpr *c, zpr_device_kernel *kernel, const void *args, size_t bytes, int64_t grid_x,
                       int64_t grid_y, int64_t grid_z, unsigned threads, int shared_bytes);
/* Finds it and lets blocks have as much dynamic shared memory. */
void zpr_load_kernel(zpr *c, zpr_device_kernel *kernel, int shared_bytes);
/* Starts the runtime's own kernel of that name on blocks of ZPD_FLAT_THREADS; args points to its struct. */
#define ZPR_START(c, name, args, blocks)                                                                               \
  zpr_launch(c, &(c)->state->device->kernels.name, args, sizeof *(args), blocks, 1, 1, ZPD_FLAT_THREADS)
/* Blocks for `work` pieces of a kernel that takes any grid. */
int64_t zpr_grid(const zpr *c, int64_t work);
/* Those blocks where every thread of ZPD_FLAT_THREADS is for an element. */
static inline int64_t zpr_flat_blocks(const zpr *c, int64_t elements) {
  return zpr_grid(c, (elements + ZPD_FLAT_THREADS - 1) / ZPD_FLAT_THREADS);
}

/* Ends copies between tiers (copies.c). */
void zpr_copies_close(zpr *c);

/* Starts the kernel of that name. */
void zpr_sum_parts(zpr *c, const zpd_rank_sum *a);
/* sum[i] += x[i], where x was rounded to the program's dtype. */
void zpr_add_rounded(zpr *c, void *sum, const void *x, int64_t count);

/* ---- products.c ---- */
void zpr_cuda_products_open(zpr *c);
void zpr_cuda_products_close(zpr *c);

/* ---- rehearsal.c: what is loaded before the first message ---- */
/* The list with room for another element, n of `size` bytes in it: itself, or a longer one in its place. */
void *zpr_longer_list(zpr *c, void *list, int64_t n, int64_t *room, size_t size);

/* ---- comm_slots.c ---- */
/* Pinned memory of the host, which grows with what is asked for: in the first step alone. Waits for what was copied
 * from it. */
char *zpr_exchange_room(zpr *c, int64_t bytes);

/* ---- overlapped.c: what moves while units compute ---- */
void zpr_cuda_overlapped_open(zpr *c);
void zpr_cuda_overlapped_close(zpr *c);

/* ---- attention.c ---- */
/* Spreads the table of a relative bias, where there is one; `a` gets where. */
void zpr_begin_bias(zpr *c, const zpk_attention_args *x, bool grad, zpd_attention *a);

/* ---- look.c ---- */
void zpr_cuda_show_errors(zpr *c, int loss, const void *stat, int64_t rows);

/* ---- tokens.c ---- */
void zpr_cuda_tokens_close(zpr *c);

/* ---- update.c ---- */
void zpr_cuda_decide_close(zpr *c);
/* Where kernels find the loss scale; NULL: the host knows it (zpr_gradient_weight). */
const double *zpr_loss_scale_there(zpr *c);
/* The arguments for one block. */
zpd_update zpr_update_args(zpr *c, const zpr_block *b, const zpk_update *rule);

/* ---- how ranks talk (comm.c, nccl.c) ---- */
/* Collective: chooses NCCL where every rank has a GPU of its own and the library opens, or does as --comm says. */
void zpr_cuda_comm_open(zpr *c);
void zpr_cuda_comm_close(zpr *c);

/* *version: 22809 is 2.28.9. */
bool zpr_nccl_available(bool emulated, int *version, const char **why_not);
/* Ends the run when NCCL has found that a rank is gone, or its network (nccl_watch.c). */
void zpr_nccl_watch(zpr *c);
void zpr_nccl_open(zpr *c);
void zpr_nccl_close(zpr *c);
/* Collective: the first message of every pair of ranks that talk to each other. */
void zpr_nccl_connect(zpr *c);
void zpr_nccl_all_reduce(zpr *c, zpr_axis axis, void *data, int64_t count);
/* What is called between the two runs as one operation. */
void zpr_nccl_together(zpr *c, bool begin);
/* By NCCL's own sum, as zpr_nccl_all_reduce: of activations. */
void zpr_nccl_reduce_scatter(zpr *c, zpr_axis axis, const void *data, int64_t shard_count, void *out);
void zpr_nccl_group_reduce_scatter(zpr *c, const zpr_group *g, zpr_axis axis, zpk_dtype dtype, void *data,
                                   int64_t shard_count);
void zpr_nccl_group_all_reduce(zpr *c, const zpr_group *g, zpr_axis axis, zpk_dtype dtype, void *data, int64_t count);
void zpr_nccl_group_all_gather(zpr *c, const zpr_group *g, zpr_axis axis, void *data, int64_t shard_count);
/* Exchanges the slots of one sample. */
void zpr_nccl_exchange_slots(zpr *c, zpr_axis axis, bool spread, const char *in, int64_t experts, int64_t elements,
                             char *out);
void zpr_nccl_group_exchange(zpr *c, const zpr_group *g, zpr_axis axis, const void *send, int64_t stride, int64_t bytes,
                             void *recv);
/* As zpr_stage_send, _send_wait, _recv (nccl_stages.c). */
void zpr_nccl_send(zpr *c, const zpr_message *to, const void *data, int64_t count);
void zpr_nccl_send_wait(zpr *c, const zpr_message *to);
void zpr_nccl_recv(zpr *c, const zpr_message *from, void *data, int64_t count);
/* In a rehearsal: the next message of its channel has so many elements. */
void zpr_nccl_expect(zpr *c, const zpr_message *from, int64_t count);
/* A walk begins: the first message of every channel may come; without training none has gradients. */
void zpr_nccl_begin_walk(zpr *c);

#endif
