/* The regions of a rank's arenas as an index. regions.def says what they are. */
#ifndef ZPLAN_REGIONS_H
#define ZPLAN_REGIONS_H

/* Lines of zp_memory that regions add up to. */
typedef enum zp_memory_line {
  ZP_MEMORY_WEIGHTS,
  ZP_MEMORY_GRADIENTS,
  ZP_MEMORY_OPTIMIZER,
  ZP_MEMORY_SAVED,
  ZP_MEMORY_BUFFERS,
  ZP_MEMORY_HOST,
  ZP_MEMORY_NVME,
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
