/* The built-in names of CUDA that kernel text uses, played on the host: the text is compiled as C++ with ZPD_HOST and
 * this header; zpd_host_scheduler.h, appended to it, runs the grid.
 *
 * Blocks run one after the other on one OS thread, and so do the threads of a block, as fibers that change places only
 * at
 * __syncthreads and at warp shuffles. What a GPU leaves undefined is found instead of played: threads that do not meet
 * at the same barrier, shuffles that miss lanes, shared memory that is read before it is written (it is NaN at the
 * start of every block). A missing barrier changes results, because blocks run their threads in both orders. */
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
/* Gives bytes to the lanes of the warp and takes those of lane (own lane ^ distance); all 32 lanes take part. */
void zpd_host_exchange(unsigned lanes, const void *give, void *take, unsigned long bytes, int distance,
                       const char *file, int line);

template <class T> inline T zpd_host_shuffle_xor(unsigned lanes, T x, int distance, const char *file, int line) {
  T other;
  zpd_host_exchange(lanes, &x, &other, sizeof x, distance, file, line);
  return other;
}

#define __syncthreads() zpd_host_barrier(__FILE__, __LINE__)
#define __shfl_xor_sync(lanes, x, distance) zpd_host_shuffle_xor(lanes, x, distance, __FILE__, __LINE__)

#endif
