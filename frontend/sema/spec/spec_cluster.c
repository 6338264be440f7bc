/* SPDX-License-Identifier: Apache-2.0 */
/* The `cluster` block: its nodes, fabric and prices, and its size: as written, or as --gpus and --nodes say. */
#include "spec_internal.h"
#include <zplan/buf.h>

/* What is read; the cluster stands first, so that tables of fields fit both. */
typedef struct cluster_reading {
  zp_cluster cluster;
  ZP_VEC(double) prices; /* one for each node type */
  zp_span prices_span;
} cluster_reading;

static void read_node_attr(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_cluster *cluster = base;
  zp_read_node(reader, env, attr, &cluster->node);
}

/* ---- several node types ---- */

/* 4 * std.hw.dgx_a100, or one of them without a number. */
static void read_group(zp_reader *reader, const zp_env *env, const zp_expr *expr, zp_cluster *cluster) {
  bool counted = expr->kind == ZP_EXPR_BINARY && expr->op == ZP_OPR_MUL;
  int64_t nodes = 1;
  if (counted && !zp_read_whole(reader, env, expr->left, "nodes", ZP_RANGE_ONE_OR_MORE, &nodes)) return;
  if (nodes > ZP_MOST_NODES) {
    zp_report(reader->diags, ZP_Z0306, expr->span, "`nodes` must be at most %d", ZP_MOST_NODES);
    return;
  }
  zp_node_group group = {.nodes = (int)nodes};
  const zp_expr *node = counted ? expr->right : expr;
  zp_read_named_node(reader, env, node, (zp_name){"nodes", node->span}, &group.type);
  zp_push(reader->arena, &cluster->groups, group);
}

static void read_nodes(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_cluster *cluster = base;
  if (attr->op != ZP_ATTR_SET || attr->index.text) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0305, attr->span, "`nodes` is set with `=`");
    zp_diag_help(d, "for example `nodes = 4` or `nodes = [4 * std.hw.dgx_a100, 2 * std.hw.dgx1v]`");
    return;
  }
  if (attr->value->kind == ZP_EXPR_LIST) {
    for (int i = 0; i < attr->value->args.len; i++) read_group(reader, env, attr->value->args.data[i].value, cluster);
    if (attr->value->args.len == 0 || attr->value->args.len > ZP_MOST_NODE_TYPES)
      zp_report(reader->diags, ZP_Z0407, attr->value->span, "a cluster has 1 to %d node types, not %d",
                ZP_MOST_NODE_TYPES, attr->value->args.len);
    return;
  }
  int64_t nodes;
  if (!zp_read_whole(reader, env, attr->value, "nodes", ZP_RANGE_ONE_OR_MORE, &nodes)) return;
  if (nodes > ZP_MOST_NODES)
    zp_report(reader->diags, ZP_Z0306, attr->value->span, "`nodes` must be at most %d", ZP_MOST_NODES);
  else
    cluster->nodes = (int)nodes;
}

/* One number for all devices, or a list with one for each node type. */
static void read_price(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  cluster_reading *r = base;
  zp_exprs values = {0};
  if (attr->op != ZP_ATTR_SET || attr->index.text) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0305, attr->span, "`price` is set with `=`");
    zp_diag_help(d, "dollars of a device hour: `price = 2.5`");
    return;
  }
  bool list = attr->value->kind == ZP_EXPR_LIST;
  for (int i = 0; list && i < attr->value->args.len; i++)
    zp_push(reader->arena, &values, attr->value->args.data[i].value);
  if (!list) zp_push(reader->arena, &values, attr->value);
  for (int i = 0; i < values.len; i++) {
    double price;
    if (!zp_read_number(reader, env, values.data[i], "price", ZP_DIM_NONE, ZP_RANGE_NOT_NEGATIVE, &price)) return;
    zp_push(reader->arena, &r->prices, price);
  }
  r->prices_span = attr->value->span;
}

/* ---- fabrics ---- */

static void read_fabric_base(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);

static const zp_word topologies[] = {{"fat_tree", ZP_FAT_TREE}, {"rail", ZP_RAIL}, {NULL, 0}};

static const cluster_reading unwritten = {.cluster.oversubscription = 1.0};

static const zp_field fabric_fields[] = {
    {"base", ZP_FIELD_CUSTOM, .read = read_fabric_base, .meaning = "fabric whose numbers this one begins with",
     .example = "base = std.hw.rail(oversubscription = 2)", .missing = "none"},
    {"topology", ZP_FIELD_WORD, .offset = offsetof(zp_cluster, topology), .words = topologies,
     .meaning = "how the cards of a node are connected: to one tree, or one tree a card",
     .example = "topology = \"rail\""},
    {"latency", ZP_FIELD_SECONDS, .offset = offsetof(zp_cluster, fabric_latency_s), .range = ZP_RANGE_LATENCY,
     .meaning = "time of a message through the switches, beyond that of the cards", .example = "latency = 2us"},
    {"oversubscription", ZP_FIELD_REAL, .offset = offsetof(zp_cluster, oversubscription), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "by how much the core is slower than all cards together", .example = "oversubscription = 2"},
    {"collectives", ZP_FIELD_SHARE, .offset = offsetof(zp_cluster, collective_share),
     .meaning = "share of the bandwidth that collectives reach", .example = "collectives = 80%",
     .missing = "the collectives' own figures"},
    {"staged", ZP_FIELD_BOOL, .offset = offsetof(zp_cluster, host_staged),
     .meaning = "messages pass through host memory, as without GPUDirect", .example = "staged = true"},
    {"bandwidth", ZP_FIELD_FOREIGN,
     .note = "the bandwidth between nodes is that of their cards: `nic { count = 8  bandwidth = 25GB/s }` in the node; "
             "what collectives reach of it is `collectives = 80%`"},
};
const zp_schema zp_fabric_schema = ZP_SCHEMA_WITH("fabric", fabric_fields, 0, &unwritten);

/* The attributes of a fabric item into a cluster. */
static void read_fabric_item(zp_reader *reader, const zp_env *env, const zp_attr *attr, zp_cluster *cluster) {
  if (attr->op != ZP_ATTR_SET || attr->index.text) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0305, attr->span, "`%s` is set with `=`", attr->key.text);
    zp_diag_help(d, "for example `%s = std.hw.rail(oversubscription = 2)`", attr->key.text);
    return;
  }
  zp_read_item(reader, env, attr->value, ZP_ITEM_FABRIC, &zp_fabric_schema, cluster);
}

static void read_fabric_base(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  read_fabric_item(reader, env, attr, base);
}

static void read_fabric(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  if (attr->op == ZP_ATTR_BLOCK)
    zp_read_attrs(reader, env, &zp_fabric_schema, &attr->body, base);
  else
    read_fabric_item(reader, env, attr, base);
}

/* ---- the block ---- */

static const zp_field cluster_fields[] = {
    {"nodes", ZP_FIELD_CUSTOM, .read = read_nodes, .range = ZP_RANGE_ONE_OR_MORE, .most = ZP_MOST_NODES,
     .meaning = "number of nodes, or a list of several node types", .example = "nodes = 4",
     .missing = "required, unless `--gpus` or `--nodes` says it"},
    {"node", ZP_FIELD_CUSTOM, .read = read_node_attr, .block = &zp_node_schema,
     .meaning = "type of the nodes: by name, or a block",
     .example = "node = std.hw.cpu_generic(cores = 4, memory = 8GiB)",
     .missing = "required, unless `nodes` lists types"},
    {"fabric", ZP_FIELD_CUSTOM, .read = read_fabric, .block = &zp_fabric_schema,
     .meaning = "network between the nodes: by name, or a block",
     .example = "fabric = std.hw.rail(oversubscription = 2)", .missing = "a network without oversubscription"},
    {"price", ZP_FIELD_CUSTOM, .read = read_price, .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "dollars of a device hour; a list has one for each node type", .example = "price = 2.5",
     .missing = "=0"},
    {"power", ZP_FIELD_WATTS, .offset = offsetof(zp_cluster, power_w),
     .meaning = "power of a device with its share of the node, the switches and the cooling",
     .example = "power = 1.3kW", .missing = "the device's `power`"},
    {"energy_price", ZP_FIELD_REAL, .offset = offsetof(zp_cluster, energy_price), .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "dollars of a kilowatt-hour, where `price` does not have the energy", .example = "energy_price = 0.12"},
    {"gpus", ZP_FIELD_FOREIGN,
     .note = "write `nodes = ...`; a node says how many devices it has, and `--gpus N` uses a part"},
};
const zp_schema zp_cluster_schema = ZP_SCHEMA("cluster", cluster_fields, 0);

/* More ranks than the machine has devices. Never for CPU nodes, whose ranks share the cores. */
static void report_too_few(zp_reader *reader, const zp_cluster *cluster, int64_t gpus, int64_t nodes) {
  zp_diag *d =
      zp_report(reader->diags, ZP_Z0405, cluster->span, "%lld nodes of `%s` have %lld devices, --gpus asks for %lld",
                (long long)nodes, cluster->node.name, (long long)nodes * cluster->node.devices, (long long)gpus);
  zp_diag_help(d, "leave --nodes out to use as many nodes as %lld devices need", (long long)gpus);
}

/* --gpus without --nodes takes as many nodes as needed, whatever the file says. With both, the ranks are spread
 * evenly. */
static void set_size(zp_reader *reader, zp_cluster *cluster) {
  zp_node_type *node = &cluster->node;
  int64_t gpus = reader->options->gpus, nodes = reader->options->nodes;
  if (nodes) cluster->nodes = (int)nodes;
  cluster->ranks = gpus ? gpus : (int64_t)cluster->nodes * node->devices;
  if (!gpus) return;
  int64_t per_node = (gpus + cluster->nodes - 1) / cluster->nodes;
  if (node->device.is_cpu) {
    if (gpus < cluster->nodes) cluster->nodes = (int)gpus;
    if (per_node > node->devices) node->devices = (int)per_node;
  } else if (!nodes) {
    cluster->nodes = (int)((gpus + node->devices - 1) / node->devices);
  } else if (per_node > node->devices) {
    report_too_few(reader, cluster, gpus, nodes);
  } else if (gpus % nodes != 0) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0405, ZP_NO_SPAN, "--gpus %lld cannot be spread evenly over --nodes %lld",
                           (long long)gpus, (long long)nodes);
    zp_diag_help(d, "give one of the two, or a number of devices that is a multiple of %lld", (long long)nodes);
  } else {
    node->devices = (int)per_node;
  }
}

/* Several node types: the file says how many there are of each, --gpus takes the first of them. */
static void set_mixed_size(zp_reader *reader, zp_cluster *cluster) {
  int64_t gpus = reader->options->gpus, there = zp_cluster_devices(cluster);
  cluster->ranks = gpus ? gpus : there;
  if (reader->options->nodes) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0407, cluster->span,
                           "--nodes does not go with `%s`, whose nodes are of several types", cluster->name);
    zp_diag_help(d, "use --gpus N: the first N of %lld devices", (long long)there);
  } else if (gpus > there) {
    zp_report(reader->diags, ZP_Z0405, cluster->span, "the nodes of `%s` have %lld devices, --gpus asks for %lld",
              cluster->name, (long long)there, (long long)gpus);
  }
}

/* ---- checks ---- */

static void check_network(zp_reader *reader, zp_name name, const zp_cluster *cluster, const zp_node_type *node) {
  if (cluster->nodes > 1 && node->nics == 0) {
    zp_diag *d =
        zp_report(reader->diags, ZP_Z0406, name.span,
                  "node `%s` has no network card, so %d of them cannot be connected", node->name, cluster->nodes);
    zp_diag_help(d, "add one: `node { base = ...  nic { count = 1  bandwidth = 12.5GB/s  latency = 5us } }`");
    if (reader->options->gpus && !cluster->groups.len)
      zp_diag_note(d, "--gpus %lld needs %d nodes of %d devices", (long long)reader->options->gpus, cluster->nodes,
                   node->devices);
  }
  if (cluster->nodes > 1 && cluster->host_staged && !node->device.is_cpu &&
      (node->host_bytes_per_s == 0 || node->pcie_bytes_per_s == 0)) {
    zp_diag *d =
        zp_report(reader->diags, ZP_Z0408, name.span,
                  "the fabric passes through host memory, but node `%s` does not say how fast that is", node->name);
    zp_diag_help(d, "add `host { bandwidth = 150GB/s  pcie = 12GB/s }` to the node");
  }
}

static void check_cluster(zp_reader *reader, zp_name name, const zp_cluster *cluster) {
  if (cluster->groups.len == 0) check_network(reader, name, cluster, &cluster->node);
  for (int g = 0; g < cluster->groups.len; g++) {
    const zp_node_type *type = &cluster->groups.data[g].type;
    if (!type->device.is_cpu) {
      check_network(reader, name, cluster, type);
      continue;
    }
    zp_diag *d = zp_report(reader->diags, ZP_Z0407, name.span, "node `%s` has CPU ranks; several node types need GPUs",
                           type->name);
    zp_diag_help(d, "make a cluster of its own for the CPU nodes: `nodes = 4  node = std.hw.cpu_generic`");
  }
}

/* Neighbours of one type and price are one group. */
static void join_groups(zp_cluster *c) {
  int n = 0;
  for (int g = 0; g < c->groups.len; g++) {
    zp_node_group *last = n ? &c->groups.data[n - 1] : NULL, *group = &c->groups.data[g];
    if (last && last->price_per_gpu_hour == group->price_per_gpu_hour && zp_node_type_equal(&last->type, &group->type))
      last->nodes += group->nodes;
    else
      c->groups.data[n++] = *group;
  }
  c->groups.len = n;
}

/* Node types and prices become groups; a list of one type is a plain cluster. */
static void finish_groups(zp_reader *reader, cluster_reading *r, bool node_given) {
  zp_cluster *c = &r->cluster;
  int types = c->groups.len ? c->groups.len : 1;
  if (c->groups.len && node_given) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0407, c->span, "cluster `%s` names its nodes twice", c->name);
    zp_diag_help(d, "with `nodes = [...]` leave `node` out");
  }
  if (r->prices.len > 1 && r->prices.len != types)
    zp_report(reader->diags, ZP_Z0407, r->prices_span, "%d prices for %d node type%s", r->prices.len, types,
              types == 1 ? "" : "s");
  if (r->prices.len == 0) zp_push(reader->arena, &r->prices, 0);
  c->price_per_gpu_hour = r->prices.data[0];
  for (int g = 0; g < c->groups.len && g < ZP_MOST_NODE_TYPES; g++)
    c->groups.data[g].price_per_gpu_hour = r->prices.data[g < r->prices.len ? g : 0];
  join_groups(c);
  if (c->groups.len != 1) return;
  c->node = c->groups.data[0].type;
  c->nodes = c->groups.data[0].nodes;
  c->groups.len = 0;
}

void zp_read_cluster(zp_reader *reader, const zp_env *env, const zp_attrs *attrs, zp_name name, zp_cluster *cluster) {
  int before = zp_diags_errors(reader->diags);
  cluster_reading r = unwritten;
  r.cluster.name = name.text;
  r.cluster.span = name.span;
  zp_read_attrs(reader, env, &zp_cluster_schema, attrs, &r);
  static const char *const needed[] = {"nodes", "node"};
  static const char *const examples[] = {"nodes = 4", "node = std.hw.dgx_a100"};
  bool listed = r.cluster.groups.len > 0;
  for (int i = 0; i < 2 && zp_diags_errors(reader->diags) == before; i++) {
    if (zp_find_attr(attrs, needed[i]) || (i == 0 && (reader->options->nodes || reader->options->gpus))) continue;
    if (i == 1 && listed) continue;
    zp_diag *d = zp_report(reader->diags, ZP_Z0307, name.span, "cluster `%s` does not say `%s`", name.text, needed[i]);
    zp_diag_help(d, "for example `%s`", examples[i]);
  }
  finish_groups(reader, &r, zp_find_attr(attrs, "node") != NULL);
  *cluster = r.cluster;
  if (zp_diags_errors(reader->diags) != before) return;
  if (cluster->nodes == 0) cluster->nodes = 1;
  if (cluster->groups.len) {
    zp_cluster_mix(reader->arena, cluster);
    set_mixed_size(reader, cluster);
  } else {
    set_size(reader, cluster);
  }
  if (zp_diags_errors(reader->diags) == before) check_cluster(reader, name, cluster);
}
