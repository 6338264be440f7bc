/* SPDX-License-Identifier: Apache-2.0 */
/* Private: nodes as Slurm describes them. */
#ifndef ZPLAN_IMPORT_SLURM_H
#define ZPLAN_IMPORT_SLURM_H

#include <zplan/import.h>

/* Equal nodes. 0: not said. */
typedef struct slurm_nodes {
  int64_t count, gpus, cores, memory_mib;
  const char *type; /* of the GPUs, in the words of the site; NULL: not said */
} slurm_nodes;

typedef struct slurm_cluster {
  ZP_VEC(slurm_nodes) nodes; /* in the order of the text */
} slurm_cluster;

/* NULL after reporting that the GPUs are not known (Z0686). */
zp_imported *slurm_write(zp_arena *arena, zp_diags *diags, const slurm_cluster *cluster);

#endif
