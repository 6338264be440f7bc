/* SPDX-License-Identifier: Apache-2.0 */
/* Devices and nodes: `device` and `node` items of the library or the user, each possibly with a `base` it changes. */
#include "spec_internal.h"
#include <zplan/buf.h>

static void read_device_base(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
static void read_device_arch(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
static void read_node_base(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
static void read_devices(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);

/* ---- devices ---- */
static const zp_field efficiency_fields[] = {
    {"matmul", ZP_FIELD_SHARE, .offset = offsetof(zp_device, eff_matmul),
     .meaning = "of the peak rate, in products of matrices", .example = "matmul = 75%", .missing = "required"},
    {"attention", ZP_FIELD_SHARE, .offset = offsetof(zp_device, eff_attention),
     .meaning = "of the peak rate, in attention", .example = "attention = 60%", .missing = "required"},
    {"memory", ZP_FIELD_SHARE, .offset = offsetof(zp_device, eff_memory),
     .meaning = "of the memory's bandwidth, in row-wise work", .example = "memory = 85%", .missing = "required"},
    {"elementwise", ZP_FIELD_FOREIGN, .note = "row-wise work is limited by memory: write `memory = 80%`"},
};
static const zp_schema efficiency_schema = ZP_SCHEMA("efficiency", efficiency_fields, 0);

static const zp_field device_fields[] = {
    {"base", ZP_FIELD_CUSTOM, .read = read_device_base, .meaning = "device whose numbers this one begins with",
     .example = "base = std.hw.a100_80", .missing = "none"},
    {"memory", ZP_FIELD_BYTES, .offset = offsetof(zp_device, memory_bytes), .range = ZP_RANGE_POSITIVE,
     .meaning = "memory of the device", .example = "memory = 80GB", .missing = "required"},
    {"memory_bandwidth", ZP_FIELD_RATE, .offset = offsetof(zp_device, memory_bytes_per_s),
     .meaning = "bandwidth of that memory", .example = "memory_bandwidth = 2039GB/s", .missing = "required"},
    {"fp64", ZP_FIELD_FLOPS, .offset = offsetof(zp_device, flop_per_s_fp64), .meaning = "peak rate in 64 bits",
     .example = "fp64 = 19.5TFLOPS", .missing = "no fp64"},
    {"fp32", ZP_FIELD_FLOPS, .offset = offsetof(zp_device, flop_per_s_fp32), .meaning = "peak rate in 32 bits",
     .example = "fp32 = 19.5TFLOPS", .missing = "required"},
    {"half", ZP_FIELD_FLOPS, .offset = offsetof(zp_device, flop_per_s_half), .meaning = "peak rate in fp16 and bf16",
     .example = "half = 312TFLOPS", .missing = "no 16-bit types"},
    {"bf16", ZP_FIELD_BOOL, .offset = offsetof(zp_device, has_bf16), .meaning = "whether it computes in bf16",
     .example = "bf16 = true"},
    {"context", ZP_FIELD_BYTES, .offset = offsetof(zp_device, context_bytes),
     .meaning = "memory that the driver and libraries take before the arena", .example = "context = 1GiB"},
    {"nccl", ZP_FIELD_BOOL, .offset = offsetof(zp_device, has_nccl), .meaning = "whether NCCL runs on it",
     .example = "nccl = true"},
    {"efficiency", ZP_FIELD_BLOCK, .block = &efficiency_schema,
     .meaning = "shares of the peak rates that kernels reach",
     .example = "efficiency { matmul = 75%  attention = 60%  memory = 85% }", .missing = "required"},
    {"launch", ZP_FIELD_SECONDS, .offset = offsetof(zp_device, launch_s), .range = ZP_RANGE_LATENCY,
     .meaning = "time to start a kernel", .example = "launch = 4us"},
    {"power", ZP_FIELD_WATTS, .offset = offsetof(zp_device, power_w), .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "power that the device may draw, its board included; 0: not known", .example = "power = 700W"},
    {"cpu", ZP_FIELD_BOOL, .offset = offsetof(zp_device, is_cpu), .meaning = "the device is cores of a CPU",
     .example = "cpu = true"},
    {"cores", ZP_FIELD_INT, .offset = offsetof(zp_device, cores), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "cores of a CPU device", .example = "cores = 8", .missing = "required with `cpu`"},
    {"arch", ZP_FIELD_CUSTOM, .read = read_device_arch, .meaning = "architecture that GPU kernels are compiled for",
     .example = "arch = \"sm_90\"", .missing = "`--arch` says it", .outside = "arch = \"sm90\""},
    {"fp16", ZP_FIELD_FOREIGN, .note = "write `half = 125TFLOPS`: fp16 and bf16 run at the same rate"},
};
const zp_schema zp_device_schema = ZP_SCHEMA("device", device_fields, 0);

static void report_missing(zp_reader *reader, zp_name name, const char *kind, const char *keys, const char *help) {
  zp_diag *d = zp_report(reader->diags, ZP_Z0307, name.span, "%s `%s` does not say %s", kind, name.text, keys);
  zp_diag_help(d, "%s", help);
}

static void check_device(zp_reader *reader, const zp_item *item, const zp_device *device) {
  const struct {
    const char *key;
    bool missing;
  } needs[] = {
      {"memory", device->memory_bytes == 0},
      {"memory_bandwidth", device->memory_bytes_per_s == 0},
      {"fp32", device->flop_per_s_fp32 == 0},
      {"efficiency.matmul", device->eff_matmul == 0},
      {"efficiency.attention", device->eff_attention == 0},
      {"efficiency.memory", device->eff_memory == 0},
      {"cores", device->is_cpu && device->cores == 0},
  };
  zp_buf missing = zp_buf_new(reader->arena);
  for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
    if (needs[i].missing) zp_buf_printf(&missing, "%s`%s`", missing.len ? ", " : "", needs[i].key);
  if (missing.len)
    report_missing(reader, item->name, "device", missing.data,
                   "write it, or start from a library device: `base = std.hw.a100_80`");
  if (device->memory_bytes && device->context_bytes >= device->memory_bytes)
    zp_report(reader->diags, ZP_Z0306, item->name.span, "device `%s`: `context` leaves nothing of `memory`",
              item->name.text);
}

/* Without the completeness check: a base may leave numbers to the device that is built on it. */
static bool read_device(zp_reader *reader, const zp_env *env, const zp_expr *expr, zp_device *device,
                        const zp_item **item) {
  int before = zp_diags_errors(reader->diags);
  *item = zp_read_item(reader, env, expr, ZP_ITEM_DEVICE, &zp_device_schema, device);
  if (!*item) return false;
  device->name = (*item)->name.text;
  return zp_diags_errors(reader->diags) == before;
}

/* `base` and `devices` are custom fields: they look at the form of the attribute themselves. */
static bool is_plain_value(zp_reader *reader, const zp_attr *attr, const char *example) {
  if (attr->op == ZP_ATTR_SET && !attr->index.text) return true;
  zp_diag *d = zp_report(reader->diags, ZP_Z0305, attr->span, "`%s` is set with `=`", attr->key.text);
  zp_diag_help(d, "for example `%s`", example);
  return false;
}

static void read_device_base(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  const zp_item *item;
  if (is_plain_value(reader, attr, "base = std.hw.a100_80")) read_device(reader, env, attr->value, base, &item);
}

static void read_device_arch(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_device *device = base;
  const char *arch;
  if (!is_plain_value(reader, attr, "arch = \"sm_90\"")) return;
  if (!zp_read_string(reader, env, attr->value, "arch", &arch)) return;
  if (zp_is_gpu_arch(arch)) {
    device->arch = arch;
    return;
  }
  zp_diag *d =
      zp_report(reader->diags, ZP_Z0308, attr->value->span, "`%s` is not the name of a GPU architecture", arch);
  zp_diag_help(d, "for example \"sm_90\": `nvidia-smi --query-gpu=compute_cap --format=csv` says 9.0");
}

/* ---- nodes ---- */
static const zp_word link_kinds[] = {{"nvswitch", 0}, {"nvlink", 0}, {"pcie", 0}, {"shared_memory", 0}, {NULL, 0}};
static const zp_word nic_kinds[] = {{"infiniband", 0}, {"ethernet", 0}, {NULL, 0}};

/* zp_link.kind is the word itself, so that reports can print it. */
static void read_link_kind(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  int ignored;
  zp_node_type *node = base;
  if (!is_plain_value(reader, attr, "kind = \"nvswitch\"")) return;
  if (zp_read_word(reader, env, attr->value, "kind", link_kinds, &ignored))
    zp_read_string(reader, env, attr->value, "kind", &node->link.kind);
}

static void read_nic_kind(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  int ignored;
  zp_node_type *node = base;
  if (!is_plain_value(reader, attr, "kind = \"infiniband\"")) return;
  if (zp_read_word(reader, env, attr->value, "kind", nic_kinds, &ignored))
    zp_read_string(reader, env, attr->value, "kind", &node->nic.kind);
}

static const zp_field link_fields[] = {
    {"kind", ZP_FIELD_CUSTOM, .read = read_link_kind, .words = link_kinds, .meaning = "what connects the devices",
     .example = "kind = \"nvswitch\"", .missing = "\"pcie\", on CPU nodes \"shared_memory\""},
    {"bandwidth", ZP_FIELD_RATE, .offset = offsetof(zp_node_type, link.bytes_per_s),
     .meaning = "of one device, in each direction", .example = "bandwidth = 150GB/s", .missing = "required"},
    {"latency", ZP_FIELD_SECONDS, .offset = offsetof(zp_node_type, link.latency_s), .range = ZP_RANGE_LATENCY,
     .meaning = "time of the smallest message", .example = "latency = 3us"},
};
static const zp_schema link_schema = ZP_SCHEMA("link", link_fields, 0);

static const zp_field host_fields[] = {
    {"cores", ZP_FIELD_INT, .offset = ZP_CHECK_ONLY, .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "accepted and not used: no part of a GPU plan runs on host cores", .example = "cores = 64",
     .missing = "unknown"}, /* no part of a GPU plan runs on host cores yet */
    {"memory", ZP_FIELD_BYTES, .offset = offsetof(zp_node_type, host_memory_bytes), .range = ZP_RANGE_POSITIVE,
     .meaning = "memory that may hold offloaded state", .example = "memory = 1TiB", .missing = "no memory for state"},
    {"bandwidth", ZP_FIELD_RATE, .offset = offsetof(zp_node_type, host_bytes_per_s),
     .meaning = "bandwidth of the host's memory", .example = "bandwidth = 200GB/s",
     .missing = "required with `memory`"},
    {"pcie", ZP_FIELD_RATE, .offset = offsetof(zp_node_type, pcie_bytes_per_s),
     .meaning = "between a device and the host, in each direction", .example = "pcie = 25GB/s",
     .missing = "required with `memory`"},
    {"pcie_devices_per_root", ZP_FIELD_INT, .offset = offsetof(zp_node_type, pcie_devices_per_root),
     .range = ZP_RANGE_ONE_OR_MORE, .meaning = "devices that share one such connection",
     .example = "pcie_devices_per_root = 2", .missing = "1"},
    {"sockets", ZP_FIELD_INT, .offset = offsetof(zp_node_type, host_sockets), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "processors, whose memories are apart", .example = "sockets = 2", .missing = "1"},
};
static const zp_schema host_schema = ZP_SCHEMA("host", host_fields, 0);

static const zp_field nvme_fields[] = {
    {"capacity", ZP_FIELD_BYTES, .offset = offsetof(zp_node_type, nvme_bytes), .meaning = "room for offloaded state",
     .example = "capacity = 4TB"},
    {"read", ZP_FIELD_RATE, .offset = offsetof(zp_node_type, nvme_read_bytes_per_s),
     .meaning = "bandwidth of reading, of all disks together", .example = "read = 12GB/s",
     .missing = "required with `capacity`"},
    {"write", ZP_FIELD_RATE, .offset = offsetof(zp_node_type, nvme_write_bytes_per_s),
     .meaning = "bandwidth of writing", .example = "write = 6GB/s", .missing = "required with `capacity`"},
    {"path", ZP_FIELD_STRING, .offset = ZP_CHECK_ONLY, .meaning = "accepted and not used: a folder of the disks",
     .example = "path = \"/scratch\"", .missing = "none"}, /* describes the machine; nothing is placed on NVMe yet */
};
static const zp_schema nvme_schema = ZP_SCHEMA("nvme", nvme_fields, 0);

static const zp_field nic_fields[] = {
    {"kind", ZP_FIELD_CUSTOM, .read = read_nic_kind, .words = nic_kinds, .meaning = "network that the cards are for",
     .example = "kind = \"infiniband\"", .missing = "=\"infiniband\""},
    {"count", ZP_FIELD_INT, .offset = offsetof(zp_node_type, nics), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "cards of the node", .example = "count = 8", .missing = "1"},
    {"bandwidth", ZP_FIELD_RATE, .offset = offsetof(zp_node_type, nic.bytes_per_s),
     .meaning = "of one card, in each direction", .example = "bandwidth = 25GB/s", .missing = "required"},
    {"latency", ZP_FIELD_SECONDS, .offset = offsetof(zp_node_type, nic.latency_s), .range = ZP_RANGE_LATENCY,
     .meaning = "time of the smallest message", .example = "latency = 2us"},
};
static const zp_schema nic_schema = ZP_SCHEMA("nic", nic_fields, 0);

static const zp_field node_fields[] = {
    {"base", ZP_FIELD_CUSTOM, .read = read_node_base, .meaning = "node whose numbers this one begins with",
     .example = "base = std.hw.dgx_a100", .missing = "none"},
    {"devices", ZP_FIELD_CUSTOM, .read = read_devices, .block = &zp_device_schema,
     .meaning = "devices of the node: their number and type", .example = "devices = 8 * std.hw.a100_80",
     .missing = "required"},
    {"link", ZP_FIELD_BLOCK, .block = &link_schema, .meaning = "connection between the devices of the node",
     .example = "link { kind = \"nvlink\"  bandwidth = 150GB/s  latency = 3us }",
     .missing = "required with several devices"},
    {"host", ZP_FIELD_BLOCK, .block = &host_schema, .meaning = "processor and memory of the node",
     .example = "host { memory = 1TiB  bandwidth = 200GB/s  pcie = 25GB/s }", .missing = "none: nothing is offloaded"},
    {"nvme", ZP_FIELD_BLOCK, .block = &nvme_schema, .meaning = "disks of the node",
     .example = "nvme { capacity = 4TB  read = 12GB/s  write = 6GB/s }",
     .missing = "none: nothing is offloaded to disks"},
    {"nic", ZP_FIELD_BLOCK, .block = &nic_schema, .meaning = "network cards of the node",
     .example = "nic { count = 8  bandwidth = 25GB/s  latency = 2us }", .missing = "required with several nodes"},
    {"gpus", ZP_FIELD_FOREIGN, .note = "write `devices = 8 * std.hw.a100_80`"},
};
const zp_schema zp_node_schema = ZP_SCHEMA("node", node_fields, 0);

static void read_devices(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_node_type *node = base;
  const zp_expr *name;
  const zp_item *item;
  if (!is_plain_value(reader, attr, "devices = 8 * std.hw.a100_80")) return;
  zp_value number = {0};
  if (attr->value->kind == ZP_EXPR_NUMBER) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, attr->value->span, "`devices` must say which device");
    zp_eval(reader->arena, reader->diags, env->scope, attr->value, &number);
    zp_diag_help(d, "for example `devices = %s * std.hw.a100_80`", zp_value_text(reader->arena, &number));
    return;
  }
  const zp_env *device_env = zp_resolve_devices(reader, env, attr->value, &node->devices, &name);
  zp_device device = {0};
  if (!device_env || !read_device(reader, device_env, name, &device, &item)) return;
  int first = zp_diags_count(reader->diags);
  check_device(reader, item, &device);
  zp_blame_call(reader->diags, first, name, item);
  node->device = device;
}

static bool read_node_item(zp_reader *reader, const zp_env *env, const zp_expr *expr, zp_node_type *node,
                           zp_name *name) {
  int before = zp_diags_errors(reader->diags);
  const zp_item *item = zp_read_item(reader, env, expr, ZP_ITEM_NODE, &zp_node_schema, node);
  if (!item) return false;
  node->name = item->name.text;
  *name = item->name;
  return zp_diags_errors(reader->diags) == before;
}

static void read_node_base(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_name name;
  if (is_plain_value(reader, attr, "base = std.hw.dgx_a100")) read_node_item(reader, env, attr->value, base, &name);
}

static void check_node(zp_reader *reader, zp_name name, const zp_node_type *node) {
  if (node->devices == 0) {
    report_missing(reader, name, "node", "`devices`", "for example `devices = 8 * std.hw.a100_80`");
    return;
  }
  if (node->devices > 1 && node->link.bytes_per_s == 0)
    report_missing(
        reader, name, "node", "`link.bandwidth`",
        "per device and per direction, for example `link { kind = \"nvswitch\"  bandwidth = 150GB/s  latency = 3us }`");
  if (node->nics > 0 && node->nic.bytes_per_s == 0)
    report_missing(reader, name, "node", "`nic.bandwidth`",
                   "of one card, for example `nic { count = 8  bandwidth = 25GB/s }`");
}

static void complete_node(zp_reader *reader, zp_name name, zp_node_type *node) {
  if (node->nic.bytes_per_s > 0 && node->nics == 0) node->nics = 1;
  if (node->link.bytes_per_s > 0 && !node->link.kind) node->link.kind = node->device.is_cpu ? "shared_memory" : "pcie";
  if (node->nics > 0 && !node->nic.kind) node->nic.kind = "infiniband";
  check_node(reader, name, node);
}

void zp_read_named_node(zp_reader *reader, const zp_env *env, const zp_expr *expr, zp_name key, zp_node_type *node) {
  zp_name name = key;
  if (read_node_item(reader, env, expr, node, &name)) complete_node(reader, name, node);
}

void zp_read_node(zp_reader *reader, const zp_env *env, const zp_attr *attr, zp_node_type *node) {
  int before = zp_diags_errors(reader->diags);
  zp_name name = {"node", attr->key.span};
  if (attr->op != ZP_ATTR_BLOCK) {
    if (is_plain_value(reader, attr, "node = std.hw.dgx_a100"))
      zp_read_named_node(reader, env, attr->value, name, node);
    return;
  }
  zp_read_attrs(reader, env, &zp_node_schema, &attr->body, node);
  node->name = node->name ? node->name : "node";
  if (zp_diags_errors(reader->diags) == before) complete_node(reader, name, node);
}
