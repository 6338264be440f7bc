/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's topology file (NCCL_TOPO_DUMP_FILE): system > cpu > pci > ... > gpu > nvlink, or nic > net. Names and units of
 * the attributes: NVIDIA/nccl at 5067397c, src/graph/xml.cc and topo.cc. Files that are written by hand for
 * NCCL_TOPO_FILE may have PCI devices alone; GPUs are then told by their class. */
#include "nccl.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

enum { MOST_GPUS = 64, MOST_PORTS = 1024, MOST_LINKS = 1024, MOST_LANES = 64, NVIDIA = 0x10de };
static const int64_t most_megabits = 10000000; /* 10 Tb/s */

typedef struct reader {
  zp_arena *arena;
  zp_diags *diags;
  nccl_node *node;
  ZP_VEC(const xml_element *) links; /* NVLinks to GPUs */
  ZP_VEC(int) from;                  /* the GPU of each */
  const char *host;                  /* hash of the first CPU's host; NULL: not said */
  bool has_gpu_elements;
} reader;

static bool complain(reader *r, const xml_element *at, const char *format, ...) {
  va_list args;
  va_start(args, format);
  zp_report(r->diags, ZP_Z0687, at->at, "%s", zp_vformat(r->arena, format, args));
  va_end(args);
  return false;
}

/* ---- attributes ---- */

/* A whole number, decimal or 0x...; `missing` where the attribute is absent or empty. */
static bool number(reader *r, const xml_element *e, const char *key, int64_t low, int64_t high, int64_t missing,
                   int64_t *out) {
  const char *text = xml_get(e, key);
  char *end = NULL;
  *out = missing;
  if (!text || !*text) return true;
  errno = 0;
  long long value = strtoll(text, &end, strncmp(text, "0x", 2) == 0 ? 16 : 10);
  if (errno || end == text || *end || isspace((unsigned char)*text) || value < low || value > high)
    return complain(r, e, "`%s` of `%s` is \"%s\", no number from %lld to %lld", key, e->name, text, (long long)low,
                    (long long)high);
  *out = value;
  return true;
}

/* Bytes/s of a PCI link, as NCCL plans with them: three quarters of what the lanes carry after their encoding. "16.0
 * GT/s PCIe" and 16 lanes: 24 GB/s. 0 where speed or width is not said. */
static bool pcie_rate(reader *r, const xml_element *pci, double *rate) {
  const char *speed = xml_get(pci, "link_speed");
  int64_t lanes;
  *rate = 0;
  if (!number(r, pci, "link_width", 0, MOST_LANES, 0, &lanes)) return false;
  if (!speed || !*speed || lanes == 0 || strncmp(speed, "Unknown", 7) == 0) return true;
  char *end;
  double gigatransfers = isdigit((unsigned char)*speed) ? strtod(speed, &end) : 0;
  if (gigatransfers <= 0 || gigatransfers > 1000 || strncmp(end, " GT/s", 5) != 0)
    return complain(r, pci, "`link_speed` is \"%s\", no rate such as \"16.0 GT/s PCIe\"", speed);
  double encoded = gigatransfers <= 5 ? 0.8 : 1; /* 8b/10b of the first two generations */
  *rate = 0.75 * encoded * gigatransfers * 1e9 * (double)lanes / 8;
  return true;
}

static bool starts(const char *text, const char *with) { return text && strncmp(text, with, strlen(with)) == 0; }

static bool same_text(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

/* ---- GPUs ---- */

static const xml_element *find(const xml_element *e, const char *name) {
  for (int i = 0; i < e->children.len; i++)
    if (xml_is(e->children.data[i], name)) return e->children.data[i];
  return NULL;
}

static bool read_links(reader *r, const xml_element *gpu, nccl_gpu *into) {
  for (int i = 0; i < gpu->children.len; i++) {
    const xml_element *link = gpu->children.data[i];
    const char *class = xml_get(link, "tclass"), *target = xml_get(link, "target");
    int64_t count;
    if (xml_is(link, "c2c")) r->node->cpu_links++;
    if (!xml_is(link, "nvlink")) continue;
    if (!number(r, link, "count", 1, MOST_LINKS, 0, &count)) return false;
    if (count == 0 || !class || !target)
      return complain(r, link, "an `nvlink` needs `count`, `target` and `tclass`: to what kind of device it leads");
    if (starts(class, "0x068001")) {
      r->node->cpu_links++;
    } else if (starts(class, "0x0680")) {
      into->switch_links += (int)count;
    } else if (starts(class, "0x03")) {
      into->gpu_links += (int)count;
      zp_push(r->arena, &r->links, link);
      zp_push(r->arena, &r->from, r->node->gpus.len);
    } else {
      return complain(r, link, "`tclass` %s is neither a GPU (0x03...), a switch (0x068000) nor a CPU (0x068001)",
                      class);
    }
    if (into->switch_links > MOST_LINKS || into->gpu_links > MOST_LINKS) return complain(r, link, "too many NVLinks");
  }
  return true;
}

/* The slowest link on the way up, and the element that hangs on the CPU. */
static bool follow_up(reader *r, const xml_element *pci, nccl_gpu *gpu) {
  for (const xml_element *e = pci; e && xml_is(e, "pci"); e = e->parent) {
    double rate;
    if (!pcie_rate(r, e, &rate)) return false;
    if (rate > 0 && e != pci && same_text(xml_get(e, "link_width"), "1")) {
      r->node->narrow++;
      rate = 0;
    }
    if (rate > 0 && (gpu->pcie_bytes_per_s == 0 || rate < gpu->pcie_bytes_per_s)) gpu->pcie_bytes_per_s = rate;
    gpu->root = e;
  }
  return true;
}

/* `element` is NULL where there is only a PCI device of the class. Several ranks on one GPU stand as several `gpu`
 * below one `pci`: they are one GPU. */
static bool add_gpu(reader *r, const xml_element *pci, const xml_element *element) {
  nccl_gpu gpu = {.pci = pci, .busid = xml_get(pci, "busid"), .gpu_direct = true};
  int64_t sm = 0, vendor;
  if (!gpu.busid) gpu.busid = "";
  if (!number(r, pci, "vendor", 0, 0xffff, NVIDIA, &vendor) || !number(r, pci, "device", 0, 0xffff, -1, &gpu.device) ||
      (element && !number(r, element, "sm", 0, 999, 0, &sm)))
    return false;
  gpu.sm = (int)sm;
  if (vendor != NVIDIA) {
    zp_report(r->diags, ZP_Z0686, pci->at, "GPUs of vendor 0x%04llx: the library has NVIDIA's", (long long)vendor);
    return false;
  }
  if (element) gpu.gpu_direct = !same_text(xml_get(element, "gdr"), "0");
  if ((element && !read_links(r, element, &gpu)) || !follow_up(r, pci, &gpu)) return false;
  const nccl_gpu *first = r->node->gpus.len ? &r->node->gpus.data[0] : NULL;
  if (first && (first->sm != gpu.sm || first->device != gpu.device))
    return complain(r, pci, "GPUs of several kinds: the language has one kind a node");
  for (int i = 0; i < r->node->gpus.len; i++)
    if (*gpu.busid && strcmp(gpu.busid, r->node->gpus.data[i].busid) == 0)
      return complain(r, pci, "`busid` %s stands twice", gpu.busid);
  if (r->node->gpus.len == MOST_GPUS) return complain(r, pci, "more than %d GPUs", MOST_GPUS);
  zp_push(r->arena, &r->node->gpus, gpu);
  return true;
}

/* ---- network cards ---- */

static bool add_net(reader *r, const xml_element *net) {
  const xml_element *pci = net->parent->parent;
  const char *guid = xml_get(net, "guid"), *port = xml_get(net, "port"), *name = xml_get(net, "name");
  nccl_nic nic = {.gpu_direct = !same_text(xml_get(net, "gdr"), "0"),
                  .kind_said = pci && xml_is(pci, "pci") && xml_get(pci, "class"),
                  .infiniband = pci && xml_is(pci, "pci") && starts(xml_get(pci, "class"), "0x0207")};
  if (same_text(xml_get(net, "net"), "0") || same_text(xml_get(net, "keep"), "0"))
    return true; /* used in another way */
  if (!number(r, net, "speed", -1, most_megabits, 0, &nic.megabits_per_s)) return false;
  if (nic.megabits_per_s < 0) nic.megabits_per_s = 0;
  nic.key = guid && port ? zp_format(r->arena, "%s %s", guid, port)
            : name       ? name
                         : zp_format(r->arena, "@%u", net->at.begin);
  for (int i = 0; i < r->node->nics.len; i++)
    if (strcmp(r->node->nics.data[i].key, nic.key) == 0) return true;
  if (r->node->nics.len == MOST_PORTS) return complain(r, net, "more than %d network ports", MOST_PORTS);
  if (nic.megabits_per_s == 0)
    r->node->silent_cards++;
  else
    zp_push(r->arena, &r->node->nics, nic);
  return true;
}

/* ---- the tree ---- */

static bool has_gpu_elements(const xml_element *e) {
  bool found = xml_is(e, "gpu");
  for (int i = 0; i < e->children.len && !found; i++) found = has_gpu_elements(e->children.data[i]);
  return found;
}

static bool check_host(reader *r, const xml_element *cpu) {
  const char *host = xml_get(cpu, "host_hash");
  if (!host) return true;
  if (!r->host) r->host = host;
  if (strcmp(r->host, host) == 0) return true;
  complain(r, cpu, "the CPUs belong to several hosts: one node is read at a time");
  return false;
}

static bool read_element(reader *r, const xml_element *e) {
  const xml_element *gpu = find(e, "gpu");
  const char *class = xml_get(e, "class");
  if (xml_is(e, "cpu") && !check_host(r, e)) return false;
  if (xml_is(e, "pci")) {
    if (gpu || (!r->has_gpu_elements && (starts(class, "0x0302") || starts(class, "0x0300")))) {
      if (!add_gpu(r, e, gpu)) return false;
    } else if (starts(class, "0x02") && !find(e, "nic")) {
      r->node->silent_cards++;
    }
  }
  for (int i = 0; i < e->children.len; i++) {
    const xml_element *child = e->children.data[i];
    if (xml_is(child, "gpu") && !xml_is(e, "pci")) return complain(r, child, "a `gpu` stands outside of a `pci`");
    if (xml_is(child, "net") && !xml_is(e, "nic")) return complain(r, child, "a `net` stands outside of a `nic`");
    if (xml_is(child, "net") ? !add_net(r, child) : !read_element(r, child)) return false;
  }
  return true;
}

/* ---- who reaches whom over NVLink ---- */

static int leader(int *group, int i) {
  while (group[i] != i) i = group[i] = group[group[i]];
  return i;
}

static void join(reader *r) {
  int group[MOST_GPUS], n = r->node->gpus.len, first_switched = -1;
  const nccl_gpu *gpus = r->node->gpus.data;
  for (int i = 0; i < n; i++) group[i] = i;
  for (int i = 0; i < n; i++) {
    if (gpus[i].switch_links == 0) continue;
    if (first_switched < 0) first_switched = i;
    group[leader(group, i)] = leader(group, first_switched);
  }
  for (int k = 0; k < r->links.len; k++)
    for (int i = 0; i < n; i++)
      if (same_text(xml_get(r->links.data[k], "target"), gpus[i].busid))
        group[leader(group, i)] = leader(group, r->from.data[k]);
  r->node->joined = true;
  for (int i = 1; i < n; i++) r->node->joined &= leader(group, i) == leader(group, 0);
}

nccl_node *nccl_read(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len) {
  reader r = {.arena = arena, .diags = diags, .node = ZP_NEW(arena, nccl_node)};
  const xml_element *root = xml_parse(arena, diags, ZP_Z0687, zp_diags_add_source(diags, path, text, len), text, len);
  if (!root) return NULL;
  if (!xml_is(root, "system")) {
    zp_diag *d = zp_report(diags, ZP_Z0687, root->at, "the outermost element is `%s`, not `system`", root->name);
    zp_diag_help(d, "NCCL writes the file when a job starts with NCCL_TOPO_DUMP_FILE=topo.xml");
    return NULL;
  }
  r.has_gpu_elements = has_gpu_elements(root);
  r.node->by_hand = !r.has_gpu_elements;
  if (!read_element(&r, root)) return NULL;
  if (r.node->gpus.len == 0) {
    complain(&r, root, "no GPU is in it");
    return NULL;
  }
  join(&r);
  return r.node;
}

zp_imported *zp_import_nccl(zp_arena *arena, zp_diags *diags, const char *path, const char *text, size_t len,
                            const char *gpu) {
  assert(path && (text || len == 0));
  const nccl_node *node = nccl_read(arena, diags, path, text, len);
  const char *device = node ? nccl_device(arena, diags, node, gpu) : NULL;
  return device ? nccl_write(arena, diags, node, device) : NULL;
}
