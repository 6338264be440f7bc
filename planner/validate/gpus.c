/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs as tables of measured runs print them: the device of the library (frontend/library/hw.dz) they are, and the node
 * around it, which tables do not describe. */
#include <ctype.h>
#include <stdlib.h>
#include "validate_internal.h"

/* Generation, form and memory as they appear in a name. Of generations in a name the longest is meant: GB200 is no
 * B200, L40S no L4. The empty form is the usual one of a generation: it fits names that have none of the others. MiB:
 * what nvidia-smi reports as the board's total, from memory; 0: not known. The library plans with the data sheet's
 * figure in decimal GB, which is less; a run that was measured had all of it. */
typedef struct gpu_kind {
  const char *generation, *form;
  double memory_gb;
  const char *device;
  int64_t mib;
} gpu_kind;

static const gpu_kind kinds[] = {
    {"v100", "pcie", 16, "v100_pcie_16", 16160},
    {"v100", "pcie", 32, "v100_pcie_32", 32510},
    {"v100", "sxm3", 32, "v100_sxm3_32", 32510},
    {"v100", "", 16, "v100_sxm2_16", 16160},
    {"v100", "", 32, "v100_sxm2_32", 32510},
    {"a100", "", 40, "a100_40", 40536},
    {"a100", "", 80, "a100_80", 81251},
    {"h100", "pcie", 80, "h100_pcie", 81559},
    {"h100", "", 80, "h100_sxm", 81559},
    {"h100", "", 96, "h100_sxm_96", 97320},
    {"h200", "", 141, "h200", 143771},
    {"b200", "", 180, "b200", 183359},
    {"3090", "", 24, "rtx3090", 24576},
    {"4090", "", 24, "rtx4090", 24564},
    {"gb200", "", 186, "gb200", 0},
    {"gb300", "", 279, "gb300", 0},
    {"b300", "", 270, "b300", 0},
    {"gh200", "", 96, "gh200", 97871},
    {"gh200", "", 144, "gh200_144", 0},
    {"h20", "", 96, "h20", 97871},
    {"h800", "", 80, "h800", 81559},
    {"h100", "nvl", 94, "h100_nvl", 95830},
    {"l40s", "", 48, "l40s", 46068},
    {"l4", "", 24, "l4", 23034},
    {"a10", "", 24, "a10", 23028},
    {"a10g", "", 24, "a10g", 23028},
    {"5090", "", 32, "rtx5090", 32607},
    {"rtxpro6000", "", 96, "rtx6000_pro", 97887},
    {"rtx6000pro", "", 96, "rtx6000_pro", 97887},
    {"mi300x", "", 192, "mi300x", 0},
    {"mi325x", "", 256, "mi325x", 0},
};

/* "A100-SXM4-80GB", "NVIDIA A100 80G" -> "a100sxm480gb", "nvidiaa10080g": small letters and digits. */
static void squeeze(const char *printed, char *out, size_t size) {
  size_t n = 0;
  for (; *printed && n + 1 < size; printed++)
    if (isalnum((unsigned char)*printed)) out[n++] = (char)tolower((unsigned char)*printed);
  out[n] = '\0';
}

double zp_gpu_printed_gb(const char *printed) {
  for (const char *at = printed; *at; at++) {
    if (!isdigit((unsigned char)*at) || (at > printed && isalnum((unsigned char)at[-1]))) continue;
    char *end;
    double gb = strtod(at, &end);
    while (*end == ' ') end++;
    if (*end == 'G' || *end == 'g') return gb;
    at = end - 1;
  }
  return 0;
}

/* The longest generation in a squeezed name; NULL: none. */
static const char *generation_of(const char *name) {
  const char *longest = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strstr(name, kinds[i].generation) && (!longest || strlen(kinds[i].generation) > strlen(longest)))
      longest = kinds[i].generation;
  return longest;
}

static bool fits_name(const gpu_kind *kind, const char *generation, const char *name, bool formed) {
  return strcmp(kind->generation, generation) == 0 && strstr(name, kind->form) && (kind->form[0] != '\0') == formed;
}

/* The kind of that name and memory, of those with a form in their name or of the others. Without a memory: the only
 * one. */
static const gpu_kind *find_kind(const char *generation, const char *name, double gb, bool formed) {
  const gpu_kind *found = NULL;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (!fits_name(&kinds[i], generation, name, formed) || (gb > 0 && gb != kinds[i].memory_gb)) continue;
    if (found) return NULL; /* made with several memories, and the table does not say which */
    found = &kinds[i];
  }
  return found;
}

const char *zp_gpu_device(const char *printed, double memory_gb) {
  char name[64];
  squeeze(printed, name, sizeof name);
  const char *generation = generation_of(name);
  if (!generation) return NULL;
  double gb = zp_gpu_printed_gb(printed) > 0 ? zp_gpu_printed_gb(printed) : memory_gb;
  bool formed = false;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) formed |= fits_name(&kinds[i], generation, name, true);
  const gpu_kind *kind = find_kind(generation, name, gb, formed);
  return kind ? kind->device : NULL;
}

int64_t zp_gpu_board_bytes(const char *device) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].device, device) == 0) return kinds[i].mib << 20;
  return 0;
}

/* BigScience's figures for PyTorch in 2022: V100 and A100 (tr11 chronicles-prequel.md, "104B topology / memory usage",
 * "Possible topologies for 200B"; opened). Later devices and other frameworks: as PyTorch on A100, no figure known. */
int64_t zp_gpu_context_bytes(const char *device) {
  return INT64_C(1048576) * (strncmp(device, "v100", 4) == 0 ? 1271 : 1573);
}

/* Memory and links of the nodes that the library has for a generation: DGX-2, DGX A100, DGX H100. */
void zp_gpu_host(const char *device, zp_node_type *node) {
  static const struct {
    const char *prefix;
    int64_t memory_bytes;
    double bytes_per_s, pcie_bytes_per_s;
    int pcie_devices;
  } hosts[] = {{"v100", INT64_C(1500000000000), 255e9, 12e9, 2},
               {"a100", INT64_C(2000000000000), 409e9, 24e9, 2},
               {"h", INT64_C(2000000000000), 614e9, 50e9, 1}};
  for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
    if (strncmp(device, hosts[i].prefix, strlen(hosts[i].prefix)) != 0) continue;
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
