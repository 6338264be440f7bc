/* GPUs as tables of measured runs print them: the device of the library (frontend/library/hw.dz) they are, and the node
 * around it, which tables do not describe. */
#include "validate_internal.h"

/* MiB: what nvidia-smi reports as the board's total, from memory. The library plans with the data sheet's figure in
 * decimal GB, which is less; a run that was measured had all of it. */
static const struct {
  const char *printed, *device;
  int64_t mib;
} names[] = {
    {"V100-SXM2-16GB", "v100_sxm2_16", 16160},
    {"V100-SXM2-32GB", "v100_sxm2_32", 32510},
    {"V100-SXM3-32GB", "v100_sxm3_32", 32510},
    {"V100-32GB", "v100_sxm2_32", 32510},
    {"V100-16GB (PCIe)", "v100_pcie_16", 16160},
    {"V100-32GB (PCIe)", "v100_pcie_32", 32510},
    {"A100-SXM4-40GB", "a100_40", 40536},
    {"A100-SXM4-80GB", "a100_80", 81251},
    {"A100-40GB", "a100_40", 40536},
    {"A100-80GB", "a100_80", 81251},
    {"H100-SXM5-80GB", "h100_sxm", 81559},
    {"H100-PCIe-80GB", "h100_pcie", 81559},
    {"H100-SXM5-96GB (HBM2e, 500 W)", "h100_sxm_96", 97320},
    {"H200-SXM-141GB", "h200", 143771},
    {"B200-SXM-180GB", "b200", 183359},
    {"RTX3090-24GB", "rtx3090", 24576},
    {"RTX4090-24GB", "rtx4090", 24564},
};
enum { N_NAMES = sizeof names / sizeof *names };

const char *zp_gpu_device(const char *printed) {
  for (int i = 0; i < N_NAMES; i++)
    if (strcmp(names[i].printed, printed) == 0) return names[i].device;
  return NULL;
}

int64_t zp_gpu_board_bytes(const char *printed) {
  for (int i = 0; i < N_NAMES; i++)
    if (strcmp(names[i].printed, printed) == 0) return names[i].mib << 20;
  return 0;
}

/* Memory and links of the nodes that the library has for a generation: DGX-2, DGX A100, DGX H100. */
void zp_gpu_host(const char *printed, zp_node_type *node) {
  static const struct {
    const char *prefix;
    int64_t memory_bytes;
    double bytes_per_s, pcie_bytes_per_s;
    int pcie_devices;
  } hosts[] = {{"V100", INT64_C(1500000000000), 255e9, 12e9, 2},
               {"A100", INT64_C(2000000000000), 409e9, 24e9, 2},
               {"H", INT64_C(2000000000000), 614e9, 50e9, 1}};
  for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
    if (strncmp(printed, hosts[i].prefix, strlen(hosts[i].prefix)) != 0) continue;
    node->host_memory_bytes = hosts[i].memory_bytes;
    node->host_bytes_per_s = hosts[i].bytes_per_s;
    node->pcie_bytes_per_s = hosts[i].pcie_bytes_per_s;
    node->pcie_devices_per_root = hosts[i].pcie_devices;
    node->host_sockets = 2;
  }
  node->nvme_bytes = INT64_C(30000000000000);
  node->nvme_read_bytes_per_s = 25e9;
  node->nvme_write_bytes_per_s = 12e9;
}
