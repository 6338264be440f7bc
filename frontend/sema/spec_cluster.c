/* The `cluster` block and its size: as written, or as --gpus and --nodes say. */
#include "spec_internal.h"

static void read_node_attr(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_cluster *cluster = base;
  zp_read_node(reader, env, attr, &cluster->node);
}

/* One switch level without a choice of topology is what the cost model knows; the word is checked so that a file for a
 * torus is not planned as a fat tree. */
static const zp_word topologies[] = {{"fat_tree", 0}, {NULL, 0}};

static const zp_field fabric_fields[] = {
    {"topology", ZP_FIELD_WORD, .offset = ZP_CHECK_ONLY, .words = topologies},
    {"latency", ZP_FIELD_SECONDS, .offset = offsetof(zp_cluster, fabric_latency_s)},
    {"oversubscription", ZP_FIELD_REAL, .offset = offsetof(zp_cluster, oversubscription),
     .range = ZP_RANGE_ONE_OR_MORE},
    {"bandwidth", ZP_FIELD_FOREIGN,
     .note = "the bandwidth between nodes is that of their cards: `nic { count = 8  bandwidth = 25GB/s }` in the node"},
};
static const zp_schema fabric_schema = ZP_SCHEMA("fabric", fabric_fields, 0);

static const zp_field cluster_fields[] = {
    {"nodes", ZP_FIELD_INT, .offset = offsetof(zp_cluster, nodes), .range = ZP_RANGE_ONE_OR_MORE},
    {"node", ZP_FIELD_CUSTOM, .read = read_node_attr},
    {"fabric", ZP_FIELD_BLOCK, .block = &fabric_schema},
    {"price", ZP_FIELD_REAL, .offset = offsetof(zp_cluster, price_per_gpu_hour), .range = ZP_RANGE_NOT_NEGATIVE},
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

/* --gpus without --nodes takes as many nodes as needed, whatever the file says. With both, the ranks are spread evenly.
 */
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

static void check_cluster(zp_reader *reader, zp_name name, const zp_cluster *cluster) {
  if (cluster->nodes > 1 && cluster->node.nics == 0) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0406, name.span,
                           "node `%s` has no network card, so %d of them cannot be connected", cluster->node.name,
                           cluster->nodes);
    zp_diag_help(d, "add one: `node { base = ...  nic { count = 1  bandwidth = 12.5GB/s  latency = 5us } }`");
    if (reader->options->gpus)
      zp_diag_note(d, "--gpus %lld needs %d nodes of %d devices", (long long)reader->options->gpus, cluster->nodes,
                   cluster->node.devices);
  }
}

void zp_read_cluster(zp_reader *reader, const zp_env *env, const zp_attrs *attrs, zp_name name, zp_cluster *cluster) {
  int before = zp_diags_errors(reader->diags);
  *cluster = (zp_cluster){.name = name.text, .span = name.span, .oversubscription = 1.0};
  zp_read_attrs(reader, env, &zp_cluster_schema, attrs, cluster);
  static const char *const needed[] = {"nodes", "node"};
  static const char *const examples[] = {"nodes = 4", "node = std.hw.dgx_a100"};
  for (int i = 0; i < 2; i++) {
    if (zp_find_attr(attrs, needed[i]) || (i == 0 && (reader->options->nodes || reader->options->gpus))) continue;
    zp_diag *d = zp_report(reader->diags, ZP_Z0307, name.span, "cluster `%s` does not say `%s`", name.text, needed[i]);
    zp_diag_help(d, "for example `%s`", examples[i]);
  }
  if (zp_diags_errors(reader->diags) != before) return;
  if (cluster->nodes == 0) cluster->nodes = 1;
  set_size(reader, cluster);
  if (zp_diags_errors(reader->diags) == before) check_cluster(reader, name, cluster);
}
