/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters of several node types. What a group of ranks on several types can count on is the slowest of them: every
 * product of a rate and its efficiency, every memory per device and every share of a node is the smallest of the types.
 * Folding equal types changes nothing, to the last bit. */
#include <assert.h>
#include <string.h>
#include <zplan/buf.h>
#include <zplan/spec.h>

static bool same_word(const char *a, const char *b) { return a == b || (a && b && strcmp(a, b) == 0); }

static bool same_link(const zp_link *a, const zp_link *b) {
  return same_word(a->kind, b->kind) && a->bytes_per_s == b->bytes_per_s && a->latency_s == b->latency_s;
}

static bool same_device(const zp_device *a, const zp_device *b) {
  return same_word(a->name, b->name) && a->is_cpu == b->is_cpu && a->memory_bytes == b->memory_bytes &&
         a->context_bytes == b->context_bytes && a->memory_bytes_per_s == b->memory_bytes_per_s &&
         a->flop_per_s_fp64 == b->flop_per_s_fp64 && a->flop_per_s_fp32 == b->flop_per_s_fp32 &&
         a->flop_per_s_half == b->flop_per_s_half && a->has_bf16 == b->has_bf16 && a->has_nccl == b->has_nccl &&
         a->eff_matmul == b->eff_matmul && a->eff_attention == b->eff_attention && a->eff_memory == b->eff_memory &&
         a->launch_s == b->launch_s && a->power_w == b->power_w && a->measured == b->measured && a->cores == b->cores &&
         same_word(a->arch, b->arch);
}

bool zp_node_type_equal(const zp_node_type *a, const zp_node_type *b) {
  return same_word(a->name, b->name) && a->devices == b->devices && same_device(&a->device, &b->device) &&
         same_link(&a->link, &b->link) && same_link(&a->nic, &b->nic) && a->nics == b->nics &&
         a->host_memory_bytes == b->host_memory_bytes && a->host_bytes_per_s == b->host_bytes_per_s &&
         a->pcie_bytes_per_s == b->pcie_bytes_per_s && a->host_sockets == b->host_sockets &&
         a->pcie_devices_per_root == b->pcie_devices_per_root && a->nvme_bytes == b->nvme_bytes &&
         a->nvme_read_bytes_per_s == b->nvme_read_bytes_per_s && a->nvme_write_bytes_per_s == b->nvme_write_bytes_per_s;
}

static double least(double a, double b) { return a < b ? a : b; }
static double most(double a, double b) { return a > b ? a : b; }
static int64_t fewest(int64_t a, int64_t b) { return a < b ? a : b; }

/* The smaller of rate_a * share_a and rate_b * share_b, as a rate for share_a. */
static double slower(double rate_a, double share_a, double rate_b, double share_b) {
  if (rate_b * share_b >= rate_a * share_a) return rate_a;
  return share_a > 0 ? rate_b * share_b / share_a : rate_b;
}

/* The fastest precision that both have decides whose multiprocessors count: tiles of products run in waves over
 * them. */
static bool computes_slower(const zp_device *b, const zp_device *a) {
  bool half = a->flop_per_s_half > 0 && b->flop_per_s_half > 0;
  return half ? b->flop_per_s_half * b->eff_matmul < a->flop_per_s_half * a->eff_matmul
              : b->flop_per_s_fp32 * b->eff_matmul < a->flop_per_s_fp32 * a->eff_matmul;
}

/* Attention runs at flop * eff_attention: with the slower rate of products, the share that gives the slower product. */
static double attention_share(const zp_device *a, const zp_device *b) {
  if (b->flop_per_s_half == a->flop_per_s_half && b->flop_per_s_fp32 == a->flop_per_s_fp32)
    return least(a->eff_attention, b->eff_attention);
  double share = least(a->eff_attention, b->eff_attention); /* of the precisions the strictest */
  if (a->flop_per_s_half > 0 && b->flop_per_s_half > 0) {
    double rate = slower(a->flop_per_s_half, a->eff_matmul, b->flop_per_s_half, b->eff_matmul);
    share = least(a->flop_per_s_half * a->eff_attention, b->flop_per_s_half * b->eff_attention) / rate;
  }
  return least(share, 1);
}

static void mix_device(zp_device *a, const zp_device *b) {
  zp_device both = *a;
  both.eff_attention = attention_share(a, b);
  both.flop_per_s_half = slower(a->flop_per_s_half, a->eff_matmul, b->flop_per_s_half, b->eff_matmul);
  both.flop_per_s_fp32 = slower(a->flop_per_s_fp32, a->eff_matmul, b->flop_per_s_fp32, b->eff_matmul);
  both.flop_per_s_fp64 = slower(a->flop_per_s_fp64, a->eff_matmul, b->flop_per_s_fp64, b->eff_matmul);
  both.memory_bytes_per_s = slower(a->memory_bytes_per_s, a->eff_memory, b->memory_bytes_per_s, b->eff_memory);
  both.memory_bytes = fewest(a->memory_bytes, b->memory_bytes);
  both.context_bytes = a->context_bytes > b->context_bytes ? a->context_bytes : b->context_bytes;
  both.launch_s = most(a->launch_s, b->launch_s);
  both.has_bf16 = a->has_bf16 && b->has_bf16;
  both.has_nccl = a->has_nccl || b->has_nccl;
  if (!same_word(a->arch, b->arch)) both.arch = NULL; /* no code that is known to run on both */
  if (computes_slower(b, a)) {
    both.name = b->name;
    both.cores = b->cores;
  }
  *a = both;
}

/* A node's resource is shared by its devices: the smallest share, times the devices of the mixed node. */
static double smallest_share(double a, int devices_a, double b, int devices_b, int devices) {
  return devices_a == devices_b ? least(a, b) : least(a / devices_a, b / devices_b) * devices;
}

static void mix_link(zp_link *a, const zp_link *b) {
  if (b->bytes_per_s < a->bytes_per_s) a->kind = b->kind;
  a->bytes_per_s = least(a->bytes_per_s, b->bytes_per_s);
  a->latency_s = most(a->latency_s, b->latency_s);
}

static void mix_node(zp_node_type *a, const zp_node_type *b) {
  zp_node_type both = *a;
  int n = both.devices = a->devices > b->devices ? a->devices : b->devices;
  if (computes_slower(&b->device, &a->device)) both.name = b->name;
  mix_device(&both.device, &b->device);
  mix_link(&both.link, &b->link);
  mix_link(&both.nic, &b->nic);
#define SHARE(field) smallest_share((double)a->field, a->devices, (double)b->field, b->devices, n)
  both.host_memory_bytes = (int64_t)SHARE(host_memory_bytes);
  both.host_bytes_per_s = SHARE(host_bytes_per_s);
  both.nvme_bytes = (int64_t)SHARE(nvme_bytes);
  both.nvme_read_bytes_per_s = SHARE(nvme_read_bytes_per_s);
  both.nvme_write_bytes_per_s = SHARE(nvme_write_bytes_per_s);
#undef SHARE
  both.pcie_bytes_per_s = least(a->pcie_bytes_per_s, b->pcie_bytes_per_s);
  both.host_sockets = a->host_sockets > b->host_sockets ? a->host_sockets : b->host_sockets;
  both.pcie_devices_per_root =
      a->pcie_devices_per_root > b->pcie_devices_per_root ? a->pcie_devices_per_root : b->pcie_devices_per_root;
  both.nics = a->nics < b->nics ? a->nics : b->nics;
  *a = both;
}

void zp_cluster_mix(zp_arena *arena, zp_cluster *cluster) {
  assert(cluster->groups.len <= ZP_MOST_NODE_GROUPS);
  assert(cluster->groups.len > 0);
  size_t sets = (size_t)1 << cluster->groups.len;
  cluster->slowest = ZP_NEW_ARRAY(arena, zp_node_type, sets);
  for (size_t set = 1; set < sets; set++)
    for (int g = 0, members = 0; g < cluster->groups.len; g++) {
      if (!(set >> g & 1)) continue;
      if (members++ == 0)
        cluster->slowest[set] = cluster->groups.data[g].type;
      else
        mix_node(&cluster->slowest[set], &cluster->groups.data[g].type);
    }
  cluster->node = cluster->slowest[sets - 1];
  cluster->nodes = 0;
  for (int g = 0; g < cluster->groups.len; g++) cluster->nodes += cluster->groups.data[g].nodes;
}

void zp_cluster_change(zp_arena *arena, zp_cluster *cluster, zp_on_node *change, const void *user) {
  assert(change);
  if (cluster->groups.len == 0) {
    change(&cluster->node, user);
    return;
  }
  const zp_cluster before = *cluster;
  cluster->groups.data = NULL;
  cluster->groups.len = cluster->groups.cap = 0;
  for (int g = 0; g < before.groups.len; g++) {
    zp_node_group group = before.groups.data[g];
    change(&group.type, user);
    zp_push(arena, &cluster->groups, group);
  }
  zp_cluster_mix(arena, cluster);
}

/* Adds the range's nodes, to the last group where they are alike; false where there is no such group, or it ends within
 * the range. */
static bool add_range(zp_arena *arena, const zp_cluster *written, zp_node_range range, zp_cluster *out) {
  int first = 0;
  for (int g = 0; g < written->groups.len; g++) {
    zp_node_group group = written->groups.data[g];
    int end = first + group.nodes;
    if (range.first >= first && range.first < end) {
      if (range.nodes < 1 || range.nodes > end - range.first) return false;
      zp_node_group *last = out->groups.len ? &out->groups.data[out->groups.len - 1] : NULL;
      bool joins =
          last && last->price_per_gpu_hour == group.price_per_gpu_hour && zp_node_type_equal(&last->type, &group.type);
      group.nodes = range.nodes;
      if (joins)
        last->nodes += range.nodes;
      else
        zp_push(arena, &out->groups, group);
      return true;
    }
    first = end;
  }
  return false;
}

static bool overlap(const zp_node_range *a, const zp_node_range *b) {
  return a->first < b->first + b->nodes && b->first < a->first + a->nodes;
}

bool zp_cluster_arrange(zp_arena *arena, const zp_cluster *written, const zp_node_range *ranges, int n,
                        zp_cluster *out) {
  assert(written->groups.len > 0 && !written->arranged && out != written);
  *out = *written;
  out->arranged = true;
  out->groups.data = NULL;
  out->groups.len = out->groups.cap = 0;
  if (n < 1 || n > ZP_MOST_NODE_GROUPS) return false;
  out->ranges = ZP_NEW_ARRAY(arena, zp_node_range, n);
  out->n_ranges = n;
  memcpy(out->ranges, ranges, sizeof *ranges * (size_t)n);
  int nodes = 0;
  for (int i = 0; i < n; i++) {
    if (!add_range(arena, written, ranges[i], out)) return false;
    nodes += ranges[i].nodes;
    for (int k = 0; k < i; k++)
      if (overlap(&ranges[k], &ranges[i])) return false;
  }
  if (nodes != written->nodes) return false;
  zp_cluster_mix(arena, out);
  return true;
}

/* Name of the type that the nth node in the cluster's order has. */
static const char *name_of_node(const zp_cluster *cluster, int n) {
  int g = 0;
  while (n >= cluster->groups.data[g].nodes) n -= cluster->groups.data[g++].nodes;
  return cluster->groups.data[g].type.name;
}

const char *zp_show_nodes(zp_arena *arena, const zp_cluster *cluster) {
  assert(cluster->arranged);
  zp_buf out = zp_buf_new(arena);
  for (int i = 0, before = 0; i < cluster->n_ranges; before += cluster->ranges[i++].nodes) {
    zp_node_range range = cluster->ranges[i];
    zp_buf_printf(&out, "%s%d x %s (", i ? ", then " : "", range.nodes, name_of_node(cluster, before));
    if (range.nodes > 1) zp_buf_printf(&out, "%d-", range.first + 1);
    zp_buf_printf(&out, "%d as written)", range.first + range.nodes);
  }
  return out.data;
}

int64_t zp_cluster_devices(const zp_cluster *cluster) {
  int64_t devices = 0;
  for (int g = 0; g < cluster->groups.len; g++)
    devices += (int64_t)cluster->groups.data[g].nodes * cluster->groups.data[g].type.devices;
  return devices;
}

/* Dollars of an hour of one of the group's devices; NULL: of a cluster without groups. */
typedef double hour_dollars(const zp_cluster *cluster, const zp_node_group *group);

static double rent(const zp_cluster *cluster, const zp_node_group *group) {
  return group ? group->price_per_gpu_hour : cluster->price_per_gpu_hour;
}

/* At full power. A CPU device is a whole node, whose ranks share its power in no known way. */
static double energy(const zp_cluster *cluster, const zp_node_group *group) {
  const zp_device *device = group ? &group->type.device : &cluster->node.device;
  double watts = cluster->power_w > 0 ? cluster->power_w : device->is_cpu ? 0 : device->power_w;
  return watts / 1000 * cluster->energy_price;
}

/* Mean over the first `devices`; 0 where it is not known of one of them. */
static double mean_dollars(const zp_cluster *cluster, int64_t devices, hour_dollars *of) {
  if (cluster->groups.len == 0 || devices <= 0) return of(cluster, NULL);
  double dollars = 0;
  int64_t left = devices;
  for (int g = 0; g < cluster->groups.len; g++) {
    const zp_node_group *group = &cluster->groups.data[g];
    int64_t here = fewest(left, (int64_t)group->nodes * group->type.devices);
    double each = of(cluster, group);
    if (here > 0 && each == 0) return 0;
    dollars += (double)here * each;
    left -= here;
  }
  return dollars / (double)(devices - left);
}

double zp_cluster_energy_price(const zp_cluster *cluster, int64_t devices) {
  return mean_dollars(cluster, devices, energy);
}

double zp_cluster_price(const zp_cluster *cluster, int64_t devices) {
  double rented = mean_dollars(cluster, devices, rent), drawn = zp_cluster_energy_price(cluster, devices);
  bool of_some = false; /* a group has a rent, another one none: neither is the sum known */
  for (int g = 0; g < cluster->groups.len; g++) of_some |= cluster->groups.data[g].price_per_gpu_hour > 0;
  bool unknown = (rented == 0 && of_some) || (cluster->energy_price > 0 && drawn == 0);
  return unknown ? 0 : rented + drawn;
}
