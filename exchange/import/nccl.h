/* SPDX-License-Identifier: Apache-2.0 */
/* Private: a node as NCCL's topology file describes it. */
#ifndef ZPLAN_IMPORT_NCCL_H
#define ZPLAN_IMPORT_NCCL_H

#include "xml.h"
#include <zplan/import.h>

typedef struct nccl_gpu {
  const xml_element *pci;      /* the PCI device */
  const char *busid;           /* "" where it is not said */
  int sm;                      /* 80; 0: not said */
  int64_t device;              /* PCI device of NVIDIA; -1: not said */
  const xml_element *root;     /* PCI element below the CPU that it hangs on; itself, perhaps */
  double pcie_bytes_per_s;     /* of the slowest link up to the CPU; 0: not said */
  int switch_links, gpu_links; /* NVLinks to switches, to other GPUs */
  bool gpu_direct;             /* false: the file says that network cards cannot reach its memory */
} nccl_gpu;

typedef struct nccl_nic {
  int64_t megabits_per_s;     /* of one port; 0: not said */
  bool infiniband, kind_said; /* by the class of the PCI device */
  bool gpu_direct;            /* as of GPUs */
  const char *key;            /* card and port: a port may be listed once for each plug-in that uses it */
} nccl_nic;

typedef struct nccl_node {
  ZP_VEC(nccl_gpu) gpus;
  ZP_VEC(nccl_nic) nics;
  int silent_cards; /* network cards without a speed */
  int cpu_links;    /* NVLinks and C2C links between GPUs and CPUs */
  bool by_hand;     /* PCI devices alone, as people write them for NCCL_TOPO_FILE: NVLinks are not said */
  int narrow;       /* bridges of one lane above GPUs: virtual machines show them, and they say nothing of rates */
  bool joined;      /* NVLinks lead from every GPU to every other, directly or over others */
} nccl_node;

/* ---- nccl.c ---- */
/* NULL after reporting (Z0687). */
nccl_node *nccl_read(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len);

/* ---- nccl_gpus.c ---- */
/* The library's device for the node's GPUs: `wanted` (--gpu) where it is not NULL, else by the number of the PCI
 * device. NULL after reporting (Z0686) what is not known, and what --gpu may be. */
const char *nccl_device(zp_arena *arena, zp_diags *diags, const nccl_node *node, const char *wanted);
/* Bytes/s of one NVLink in one direction; 0: GPUs of this kind have none. */
double nccl_nvlink_rate(const char *device);

/* ---- nccl_write.c ---- */
zp_imported *nccl_write(zp_arena *arena, zp_diags *diags, const nccl_node *node, const char *device);

#endif
