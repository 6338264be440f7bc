/* SPDX-License-Identifier: Apache-2.0 */
/* The regions of a rank's arenas as an index. regions.def says what they are. */
#ifndef ZPLAN_REGIONS_H
#define ZPLAN_REGIONS_H

/* Lines of zp_memory that regions add up to: those of the device's arena, of the host, of the file on disks. */
#define ZP_MEMORY_LINES(X)                                                                                             \
  X(WEIGHTS, weights)                                                                                                  \
  X(GRADIENTS, gradients)                                                                                              \
  X(OPTIMIZER, optimizer)                                                                                              \
  X(SAVED, saved)                                                                                                      \
  X(BUFFERS, buffers)                                                                                                  \
  X(HOST, host)                                                                                                        \
  X(NVME, nvme)
typedef enum zp_memory_line {
#define ZP_MEMORY_ROW(id, field) ZP_MEMORY_##id,
  ZP_MEMORY_LINES(ZP_MEMORY_ROW)
#undef ZP_MEMORY_ROW
} zp_memory_line;

typedef enum zp_region {
#define REGION(region, memory, key, name) ZP_REGION_##region,
#include <zplan/regions.def>
  ZP_REGION_COUNT,
  ZP_REGION_DEVICE_END = ZP_REGION_HOST_GRADS_IN, /* the device's come first */
} zp_region;

typedef struct zp_region_row {
  zp_memory_line memory;
  const char *key, *name;
} zp_region_row;
extern const zp_region_row zp_region_rows[ZP_REGION_COUNT];

#endif
