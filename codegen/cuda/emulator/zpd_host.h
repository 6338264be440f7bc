/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in names of CUDA that kernel text uses, played on the host: the text is compiled as C++ with ZPD_HOST and
 * this header; zpd_host_scheduler.h, appended to it, runs the grid.
 *
 * Blocks run one after the other on one OS thread, and so do the threads of a block, as fibers that change places only
 * at __syncthreads and where the lanes of a warp meet: shuffles, __syncwarp, the operations of zpd_mma.cuh. What a GPU
 * leaves undefined is found instead of played: threads that do not meet at the same barrier, operations of a warp that
 * miss lanes, shared memory that is read before it is written (it is NaN at the start of every block) or before an
 * asynchronous copy to it was waited for. A missing barrier changes results, because blocks run their threads in both
 * orders; compiled to be watched (zpd_host_watch.h), it is an error. */
#ifndef ZPD_HOST_H
#define ZPD_HOST_H

#include <string.h>

struct zpd_host_dim {
  unsigned x, y, z;
};
extern zpd_host_dim threadIdx, blockIdx, blockDim, gridDim; /* of the fiber that runs */

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)

/* One block at a time, so a static variable is the block's. In a section of its own, which every block starts from a
 * fresh pattern; not under AddressSanitizer, which watches the bounds of static variables only elsewhere. */
#ifdef __SANITIZE_ADDRESS__
#define ZPD_HOST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ZPD_HOST_ASAN 1
#endif
#endif
#ifdef ZPD_HOST_ASAN
#define __shared__ static
#else
#define __shared__ static __attribute__((section("zpd_shared")))
#endif

/* Waits for all threads of the block at this place of the text. */
void zpd_host_barrier(const char *file, int line);
/* Where all 32 lanes of a warp meet: when the last one has come, `act` is called once with what every lane has brought,
 * and all go on. `what`: the operation, for messages. */
typedef void zpd_host_act(void *const mine[32]);
void zpd_host_meet(zpd_host_act *act, void *mine, const char *what, const char *file, int line);
/* Ends the launch: an operation that is not played. Does not return. */
void zpd_host_refuse(const char *why, const char *file, int line);

template <class T> struct zpd_host_shuffled {
  T give, take;
  int distance;
  static void act(void *const mine[32]) {
    for (int lane = 0; lane < 32; lane++) {
      zpd_host_shuffled *of = (zpd_host_shuffled *)mine[lane];
      of->take = ((zpd_host_shuffled *)mine[lane ^ of->distance])->give;
    }
  }
};

template <class T> inline T zpd_host_shuffle_xor(unsigned lanes, T x, int distance, const char *file, int line) {
  zpd_host_shuffled<T> mine = {x, x, distance};
  if (sizeof x > 8 || lanes != 0xffffffffu || distance < 0 || distance > 31)
    zpd_host_refuse("a shuffle that is not one of up to 8 bytes between all 32 lanes of a warp", file, line);
  zpd_host_meet(zpd_host_shuffled<T>::act, &mine, "shuffle", file, line);
  return mine.take;
}

struct zpd_host_vote {
  bool give, any;
  static void act(void *const mine[32]) {
    bool any = false;
    for (int lane = 0; lane < 32; lane++) any = any || ((zpd_host_vote *)mine[lane])->give;
    for (int lane = 0; lane < 32; lane++) ((zpd_host_vote *)mine[lane])->any = any;
  }
};

inline bool zpd_host_any(unsigned lanes, bool x, const char *file, int line) {
  zpd_host_vote mine = {x, false};
  if (lanes != 0xffffffffu) zpd_host_refuse("a vote of some lanes", file, line);
  zpd_host_meet(zpd_host_vote::act, &mine, "vote", file, line);
  return mine.any;
}

void zpd_host_sync_warp(unsigned lanes, const char *file, int line);

/* ---- what zpd_mma.cuh asks for: as the instructions of PTX that it names ---- */

/* Each lane names a row of 16 bytes; `count` of 1, 2, 4 matrices of 8 x 8 elements of 16 bits. */
void zpd_host_ldmatrix(unsigned *to, int count, bool transposed, const void *row, const char *file, int line);
/* d [16, 8] += a [16, 16] b [16, 8], f32; elements are bf16, or f16 with `half`. */
void zpd_host_mma(float *d, const unsigned *a, const unsigned *b, bool half, const char *file, int line);
/* Four products d [8, 8] += a [8, 4] b [4, 8] of f16 with f32 sums, one for each quad pair; `low`, `high`: the eight
 * values of d. */
void zpd_host_mma_quads(float *low, float *high, const unsigned *a, const unsigned *b, bool b_rows, const char *file,
                        int line);
/* `bytes` of 16 to shared memory, zeros after them. There is nothing but NaN until the group was waited for. */
void zpd_host_copy_async(void *shared, const void *global, int bytes, const char *file, int line);
void zpd_host_copy_commit();
/* Until at most `pending` of this thread's groups are on their way. */
void zpd_host_copy_wait(int pending);
/* 16 or 8 bytes at once, counted as one access of the warp. */
void zpd_host_move_16(void *to, const void *from);
void zpd_host_move_8(void *to, const void *from);

/* Dynamic shared memory of the launch, aligned to 128 bytes. */
extern unsigned char *const zpd_host_dynamic_shared;
/* Bytes of the kernel's argument, which is no global memory. */
extern unsigned zpd_host_argument_bytes;

#define __syncthreads() zpd_host_barrier(__FILE__, __LINE__)
#define __syncwarp() zpd_host_sync_warp(0xffffffffu, __FILE__, __LINE__)
#define __any_sync(lanes, x) zpd_host_any(lanes, x, __FILE__, __LINE__)
#define __shfl_xor_sync(lanes, x, distance) zpd_host_shuffle_xor(lanes, x, distance, __FILE__, __LINE__)

/* Blocks run one after the other: what one has written the next one sees. */
#define __threadfence() ((void)0)
inline unsigned atomicAdd(unsigned *at, unsigned x) {
  const unsigned before = *at;
  *at = before + x;
  return before;
}

#endif
