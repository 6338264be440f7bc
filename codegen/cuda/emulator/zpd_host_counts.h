/* SPDX-License-Identifier: Apache-2.0 */
/* What a text that was compiled to be watched has counted, one of these for each of its kernels. C and C++. */
#ifndef ZPD_HOST_COUNTS_H
#define ZPD_HOST_COUNTS_H

typedef struct zpd_host_counts {
  long launches, blocks;
  /* Global memory, reads and writes of a warp: 32-byte sectors that its bytes fill, and those that they lie in. */
  long sectors_asked, sectors_moved;
  /* Shared memory: passes over the 32 banks without any conflict, and those that are made. */
  long passes_least, passes;
  long mma, ldmatrix, async_copies; /* of a warp; of a warp; of a thread */
} zpd_host_counts;

/* Exported by the object: since it was loaded. NULL: the kernel was not launched yet. */
#define ZPD_HOST_COUNTS_SYMBOL "zpd_host_counts_of"
typedef const zpd_host_counts *zpd_host_counts_fn(void (*kernel)(const void *args));

#endif
