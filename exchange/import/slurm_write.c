/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster block of nodes that Slurm described. Slurm knows neither rates nor the memory of a GPU: these are the
 * library's. */
#include "slurm.h"

#include <ctype.h>
#include <zplan/buf.h>

/* What the name of a GPU type begins with, and the machine that is taken for it; longer names first. Where a type was
 * sold with two memories, the smaller one: what fits there fits both. */
static const struct known {
  const char *begins, *device, *node;
  bool alone; /* no network in the library's node */
  const char *note;
} known[] = {
    {"v100_32", "v100_sxm2_32", "dgx1v", false, NULL},
    {"v100", "v100_sxm2_16", "dgx1v", false, "v100: 16 GB are assumed; for 32 GB write v100_sxm2_32"},
    {"a100_80", "a100_80", "dgx_a100", false, NULL},
    {"a100", "a100_40", "dgx_a100", false, "a100: 40 GB are assumed; for 80 GB write a100_80"},
    {"h100", "h100_sxm", "dgx_h100", false, NULL},
    {"h200", "h200", "dgx_h100", false, NULL},
    {"b200", "b200", "dgx_b200", false, NULL},
    {"l40s", "l40s", "gpu_server", false, NULL},
    {"rtx3090", "rtx3090", "workstation", true, NULL},
    {"rtx_3090", "rtx3090", "workstation", true, NULL},
    {"rtx4090", "rtx4090", "workstation", true, NULL},
    {"rtx_4090", "rtx4090", "workstation", true, NULL},
};

/* nvidia_a100-sxm4-80gb is a100 with 80 GB. */
static const struct known *find_known(zp_arena *arena, const char *type) {
  char *name = zp_strdup(arena, type);
  for (char *c = name; *c; c++) *c = *c == '-' ? '_' : (char)tolower((unsigned char)*c);
  static const char *const makers[] = {"nvidia_", "geforce_", "tesla_"};
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
    if (strncmp(name, makers[i], strlen(makers[i])) == 0) name += strlen(makers[i]);
  bool large = strstr(name, "80gb") || strstr(name, "32gb");
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strncmp(name, known[i].begins, strlen(known[i].begins)) != 0) continue;
    bool sized = i > 0 && strncmp(known[i - 1].begins, known[i].begins, strlen(known[i].begins)) == 0;
    return large && sized ? &known[i - 1] : &known[i];
  }
  return NULL;
}

static void note(zp_arena *arena, zp_imported *result, const char *text) {
  for (int i = 0; i < result->notes.len; i++)
    if (strcmp(result->notes.data[i], text) == 0) return;
  zp_push(arena, &result->notes, text);
}

/* The node as an expression; NULL after reporting. */
static const char *node_of(zp_arena *arena, zp_diags *diags, const slurm_nodes *n, zp_imported *result) {
  if (!n->gpus) {
    const char *memory = n->memory_mib ? zp_format(arena, ", memory = %lldMiB", (long long)n->memory_mib) : "";
    if (!n->cores) {
      zp_report(diags, ZP_Z0686, ZP_NO_SPAN, "neither GPUs nor cores of a node are said");
      return NULL;
    }
    if (!n->memory_mib) note(arena, result, "memory of a node is not said: 16 GiB are assumed");
    note(arena, result, "rates of CPU cores are assumed until `zplan calibrate` has run there");
    return zp_format(arena, "std.hw.cpu_generic(cores = %lld%s)", (long long)n->cores, memory);
  }
  const struct known *k = n->type ? find_known(arena, n->type) : NULL;
  if (!k) {
    zp_diag *d =
        n->type ? zp_report(diags, ZP_Z0686, ZP_NO_SPAN, "GPUs of type `%s` are not in the library", n->type)
                : zp_report(diags, ZP_Z0686, ZP_NO_SPAN, "the type of the %lld GPUs is not said", (long long)n->gpus);
    zp_diag_help(
        d, "write a known type in a copy of the file, as gpu:a100:8 (v100, a100, h100, h200, b200, rtx3090, rtx4090)");
    return NULL;
  }
  if (k->alone && n->count > 1) {
    zp_report(diags, ZP_Z0686, ZP_NO_SPAN, "%lld nodes of %s: the library has no network for them", (long long)n->count,
              k->device);
    return NULL;
  }
  if (k->note) note(arena, result, k->note);
  note(arena, result, zp_format(arena, "links and network are those of %s; change what differs", k->node));
  if (strcmp(k->node, "dgx_b200") != 0)
    return zp_format(arena, "std.hw.%s(devices = %lld * std.hw.%s)", k->node, (long long)n->gpus, k->device);
  if (n->gpus == 8) return "std.hw.dgx_b200";
  zp_report(diags, ZP_Z0686, ZP_NO_SPAN, "%lld b200 a node: the library has nodes of 8", (long long)n->gpus);
  return NULL;
}

zp_imported *slurm_write(zp_arena *arena, zp_diags *diags, const slurm_cluster *cluster) {
  zp_imported *result = ZP_NEW(arena, zp_imported);
  zp_buf out = zp_buf_new(arena);
  zp_buf_puts(&out, "# Nodes as Slurm described them. Append it to a model's file, or copy the block `cluster`.\nuse "
                    "std.hw\n\ncluster slurm {\n  nodes = ");
  bool several = cluster->nodes.len > 1;
  for (int i = 0; i < cluster->nodes.len; i++) {
    const slurm_nodes *n = &cluster->nodes.data[i];
    const char *node = node_of(arena, diags, n, result);
    if (!node) return NULL;
    if (several)
      zp_buf_printf(&out, "%s%lld * %s", i ? ", " : "[", (long long)n->count, node);
    else
      zp_buf_printf(&out, "%lld\n  node = %s\n", (long long)n->count, node);
  }
  zp_buf_printf(&out, "%s}\n", several ? "]\n" : "");
  result->text = out.data;
  return result;
}
