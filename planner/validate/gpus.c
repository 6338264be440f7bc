/* GPUs as tables of measured runs print them, and the device of the library (frontend/library/hw.dz) they are. */
#include "validate_internal.h"

const char *zp_gpu_device(const char *printed) {
  static const struct {
    const char *printed, *device;
  } names[] = {
      {"V100-SXM2-16GB", "v100_sxm2_16"},
      {"V100-SXM2-32GB", "v100_sxm2_32"},
      {"V100-SXM3-32GB", "v100_sxm3_32"},
      {"V100-32GB", "v100_sxm2_32"},
      {"V100-16GB (PCIe)", "v100_pcie_16"},
      {"V100-32GB (PCIe)", "v100_pcie_32"},
      {"A100-SXM4-40GB", "a100_40"},
      {"A100-SXM4-80GB", "a100_80"},
      {"A100-40GB", "a100_40"},
      {"A100-80GB", "a100_80"},
      {"H100-SXM5-80GB", "h100_sxm"},
      {"H100-PCIe-80GB", "h100_pcie"},
      {"H100-SXM5-96GB (HBM2e, 500 W)", "h100_sxm_96"},
      {"H200-SXM-141GB", "h200"},
      {"B200-SXM-180GB", "b200"},
      {"RTX3090-24GB", "rtx3090"},
      {"RTX4090-24GB", "rtx4090"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i].printed, printed) == 0) return names[i].device;
  return NULL;
}
