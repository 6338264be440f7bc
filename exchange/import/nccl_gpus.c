/* SPDX-License-Identifier: Apache-2.0 */
/* Which GPUs of the library a topology file may mean. The compute capability alone does not tell 40 from 80 GB, nor an
 * A100 from an A30; the number of the PCI device does.
 *
 * Numbers: pciids.sourceforge.io (pci.ids), vendor 10de. NVLink: rates of the data sheets, as in library/hw.dz; RTX
 * 3090: 112.5 GB/s in both directions over 4 links (GA102 white paper). */
#include "nccl.h"

#include <zplan/buf.h>

static const struct known {
  int64_t device;
  int sm;
  const char *name;
  double nvlink;
} known[] = {
    {0x1db1, 70, "v100_sxm2_16", 25e9}, {0x1db5, 70, "v100_sxm2_32", 25e9}, {0x1db8, 70, "v100_sxm3_32", 25e9},
    {0x1db4, 70, "v100_pcie_16", 0},    {0x1db6, 70, "v100_pcie_32", 0},    {0x20b0, 80, "a100_40", 25e9},
    {0x20b2, 80, "a100_80", 25e9},      {0x2204, 86, "rtx3090", 14.0625e9}, {0x2684, 89, "rtx4090", 0},
    {0x2330, 90, "h100_sxm", 25e9},     {0x2331, 90, "h100_pcie", 25e9},    {0x2338, 90, "h100_sxm_96", 25e9},
    {0x2335, 90, "h200", 25e9},         {0x2901, 100, "b200", 50e9},
};
enum { N_KNOWN = sizeof known / sizeof *known };

static const struct known *by_name(const char *name) {
  for (int i = 0; i < N_KNOWN; i++)
    if (strcmp(known[i].name, name) == 0) return &known[i];
  return NULL;
}

static const struct known *by_number(int64_t device) {
  for (int i = 0; i < N_KNOWN; i++)
    if (known[i].device == device) return &known[i];
  return NULL;
}

/* Names with this capability, or all where it is 0 or none has it. */
static const char *candidates(zp_arena *arena, int sm) {
  zp_buf out = zp_buf_new(arena);
  for (int all = 0; all < 2 && out.len == 0; all++)
    for (int i = 0; i < N_KNOWN; i++)
      if (all || known[i].sm == sm) zp_buf_printf(&out, "%s%s", out.len ? ", " : "", known[i].name);
  return out.data;
}

static const char *check_wanted(zp_arena *arena, zp_diags *diags, const nccl_gpu *gpu, const char *wanted) {
  const struct known *row = by_name(wanted), *said = by_number(gpu->device);
  if (!row) {
    const char *names[N_KNOWN];
    for (int i = 0; i < N_KNOWN; i++) names[i] = known[i].name;
    const char *near = zp_closest(wanted, names, N_KNOWN);
    zp_diag *d = zp_report(diags, ZP_Z0686, ZP_NO_SPAN, "--gpu %s: no such device in the library", wanted);
    zp_diag_help(d, near ? "did you mean `%s`?" : "one of %s", near ? near : candidates(arena, gpu->sm));
    return NULL;
  }
  if (gpu->sm > 0 && row->sm != gpu->sm) {
    zp_diag *d = zp_report(diags, ZP_Z0686, gpu->pci->at, "--gpu %s has sm_%d, the GPUs here have sm_%d", wanted,
                           row->sm, gpu->sm);
    zp_diag_help(d, "one of %s, or write the cluster block by hand", candidates(arena, gpu->sm));
    return NULL;
  }
  if (said && said != row) {
    zp_report(diags, ZP_Z0686, gpu->pci->at, "--gpu %s, and PCI device 0x%04llx is %s", wanted,
              (unsigned long long)gpu->device, said->name);
    return NULL;
  }
  return row->name;
}

const char *nccl_device(zp_arena *arena, zp_diags *diags, const nccl_node *node, const char *wanted) {
  const nccl_gpu *gpu = &node->gpus.data[0];
  if (wanted) return check_wanted(arena, diags, gpu, wanted);
  const struct known *row = by_number(gpu->device);
  if (row && (gpu->sm == 0 || gpu->sm == row->sm)) return row->name;
  zp_diag *d;
  const char *sm = gpu->sm ? zp_format(arena, "sm_%d", gpu->sm) : "of a compute capability that is not said";
  if (gpu->device < 0)
    d = zp_report(diags, ZP_Z0686, gpu->pci->at,
                  "GPUs %s, and the file does not say which: their PCI device is missing", sm);
  else
    d = zp_report(diags, ZP_Z0686, gpu->pci->at, "GPUs of PCI device 0x%04llx, %s, are not in the library",
                  (unsigned long long)gpu->device, sm);
  zp_diag_help(d, "say which they are: --gpu NAME, one of %s", candidates(arena, gpu->sm));
  return NULL;
}

const char *zp_gpu_of_pci_device(int64_t device) {
  const struct known *row = by_number(device);
  return row ? row->name : NULL;
}

double nccl_nvlink_rate(const char *device) { return by_name(device)->nvlink; }
