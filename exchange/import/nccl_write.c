/* SPDX-License-Identifier: Apache-2.0 */
/* The cluster block of a node that NCCL described. Rates of links are the file's; rates and memory of GPUs and all
 * latencies are the library's (library/hw.dz). What neither says is left out, with a note. */
#include "nccl.h"

#include <zplan/buf.h>

static const char latency_nvlink[] = "3.4us", latency_pcie[] = "6us", latency_infiniband[] = "14us",
                  latency_ethernet[] = "15us";

typedef struct writer {
  zp_arena *arena;
  zp_diags *diags;
  const nccl_node *node;
  const char *device;
  zp_imported *result;
  zp_buf out;
} writer;

static void note(writer *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = zp_vformat(w->arena, format, args);
  va_end(args);
  zp_push(w->arena, &w->result->notes, text);
}

static const char *rate_text(writer *w, double bytes_per_s) {
  return zp_format(w->arena, "%.10gGB/s", bytes_per_s / 1e9);
}

/* ---- links between the GPUs ---- */

static int least_links(const nccl_node *n, bool switches) {
  int least = INT32_MAX;
  for (int i = 0; i < n->gpus.len; i++) {
    int links = switches ? n->gpus.data[i].switch_links : n->gpus.data[i].gpu_links;
    if (links < least) least = links;
  }
  return least;
}

static double least_pcie(const nccl_node *n, const nccl_gpu **whose) {
  double least = n->gpus.data[0].pcie_bytes_per_s;
  *whose = &n->gpus.data[0];
  for (int i = 1; i < n->gpus.len; i++)
    if (n->gpus.data[i].pcie_bytes_per_s < least) {
      least = n->gpus.data[i].pcie_bytes_per_s;
      *whose = &n->gpus.data[i];
    }
  return least;
}

static void put_link(writer *w, const char *kind, double rate, const char *latency) {
  zp_buf_printf(&w->out, "link { kind = \"%s\"  bandwidth = %s  latency = %s }\n", kind, rate_text(w, rate), latency);
}

static bool put_links(writer *w) {
  const nccl_node *n = w->node;
  const nccl_gpu *slowest;
  double each = nccl_nvlink_rate(w->device), pcie = least_pcie(n, &slowest);
  int switched = least_links(n, true), direct = least_links(n, false);
  if (n->gpus.len == 1) return true;
  if ((switched > 0 || direct > 0) && each == 0) {
    zp_report(w->diags, ZP_Z0686, n->gpus.data[0].pci->at, "the GPUs have NVLinks, and %s has none", w->device);
    return false;
  }
  if (n->by_hand && each > 0) {
    zp_diag *d = zp_report(w->diags, ZP_Z0687, n->gpus.data[0].pci->at,
                           "PCI devices alone: whether NVLinks join the GPUs is not said");
    zp_diag_help(d, "NCCL says it when a job starts with NCCL_TOPO_DUMP_FILE=topo.xml");
    return false;
  }
  if (switched > 0) {
    put_link(w, "nvswitch", switched * each, latency_nvlink);
    return true;
  }
  if (n->joined && direct > 0) {
    put_link(w, "nvlink", direct * each, latency_nvlink);
    if (n->gpus.len > 2) note(w, "NVLinks lead from GPU to GPU: the rate is that of all %d links of a GPU", direct);
    return true;
  }
  if (pcie == 0) {
    zp_diag *d = zp_report(w->diags, ZP_Z0687, slowest->pci->at,
                           "GPUs are joined by PCIe, and `link_speed` or `link_width` of this one is not said");
    zp_diag_help(d, "write both into a copy of the file");
    return false;
  }
  put_link(w, "pcie", pcie, latency_pcie);
  for (int i = 0; i < n->gpus.len; i++)
    if (n->gpus.data[i].gpu_links + n->gpus.data[i].switch_links > 0) {
      note(w, "NVLink joins only some of the GPUs: a node has one kind of link here, and PCIe is what joins all");
      break;
    }
  return true;
}

/* ---- the way to the host, and the network ---- */

/* The most GPUs that share a way to a CPU. */
static int devices_per_root(const nccl_node *n) {
  int most = 1;
  for (int i = 0; i < n->gpus.len; i++) {
    int here = 0;
    for (int k = 0; k < n->gpus.len; k++) here += n->gpus.data[k].root == n->gpus.data[i].root;
    if (here > most) most = here;
  }
  return most;
}

static void put_host(writer *w) {
  const nccl_gpu *slowest;
  double pcie = least_pcie(w->node, &slowest);
  int shared = devices_per_root(w->node);
  if (pcie > 0 && shared > 1)
    zp_buf_printf(&w->out, "host { pcie = %s  pcie_devices_per_root = %d }\n", rate_text(w, pcie), shared);
  else if (pcie > 0)
    zp_buf_printf(&w->out, "host { pcie = %s }\n", rate_text(w, pcie));
  else
    note(w, "PCIe: no speed is said");
  if (w->node->narrow > 0)
    note(w, "PCIe: bridges of one lane above the GPUs are passed over, as virtual machines show them");
  note(w, "memory of the host and its bandwidth are not in the file: without them, in `host`, nothing is offloaded");
}

/* Ports of the speed that carries most in all; the others are named. */
static void put_nics(writer *w) {
  const nccl_node *n = w->node;
  int best = -1, best_count = 0;
  for (int i = 0; i < n->nics.len; i++) {
    const nccl_nic *nic = &n->nics.data[i];
    int count = 0;
    for (int k = 0; k < n->nics.len; k++)
      count += n->nics.data[k].megabits_per_s == nic->megabits_per_s && n->nics.data[k].infiniband == nic->infiniband;
    if (best < 0 || count * nic->megabits_per_s > best_count * n->nics.data[best].megabits_per_s) {
      best = i;
      best_count = count;
    }
  }
  if (n->silent_cards > 0) note(w, "network cards whose speed is not said are left out: %d", n->silent_cards);
  if (best < 0) {
    note(w, "no network: a plan for several nodes needs `nic`");
    return;
  }
  const nccl_nic *nic = &n->nics.data[best];
  zp_buf_printf(&w->out, "nic { kind = \"%s\"  count = %d  bandwidth = %s  latency = %s }\n",
                nic->infiniband ? "infiniband" : "ethernet", best_count,
                rate_text(w, (double)nic->megabits_per_s * 1e6 / 8),
                nic->infiniband ? latency_infiniband : latency_ethernet);
  if (!nic->kind_said) note(w, "network: InfiniBand or Ethernet is not said; Ethernet is written");
  if (best_count < n->nics.len)
    note(w, "network ports with another speed or of another kind are left out: %d", n->nics.len - best_count);
}

static void put_remarks(writer *w) {
  const nccl_node *n = w->node;
  bool direct = true;
  for (int i = 0; i < n->gpus.len; i++) direct &= n->gpus.data[i].gpu_direct;
  for (int i = 0; i < n->nics.len; i++) direct &= n->nics.data[i].gpu_direct;
  if (!direct && n->nics.len > 0)
    note(w, "network cards do not reach memory of GPUs (gdr=\"0\"): with memory and bandwidth of `host` known, write "
            "`fabric { staged = true }`");
  if (n->cpu_links > 0) note(w, "links between GPUs and CPUs other than PCIe are left out");
  note(w, "rates and memory of the GPUs are those of std.hw.%s; latencies are the library's, too", w->device);
  note(w, "one node: --nodes or --gpus of `zplan plan` say how many there are");
}

zp_imported *nccl_write(zp_arena *arena, zp_diags *diags, const nccl_node *node, const char *device) {
  writer w = {arena, diags, node, device, ZP_NEW(arena, zp_imported), zp_buf_new(arena)};
  zp_buf_printf(
      &w.out,
      "# A node as NCCL's topology file describes it. Append it to a model's file, or copy the block `cluster`.\n"
      "use std.hw\n\ncluster nccl {\n  nodes = 1\n  node {\n    devices = %d * std.hw.%s\n",
      node->gpus.len, device);
  if (!put_links(&w)) return NULL;
  put_host(&w);
  put_nics(&w);
  put_remarks(&w);
  zp_buf_puts(&w.out, "}\n}\n");
  w.result->text = w.out.data;
  return w.result;
}
