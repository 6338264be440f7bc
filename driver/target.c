/* SPDX-License-Identifier: Apache-2.0 */
/* What a trainer is generated for. The cluster decides: CPU ranks or GPUs. --target may only agree with it, because the
 * plan is the cluster's; --arch says which GPU, where the device does not, or that an emulated one takes its place. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <zplan/sparse.h>

static bool is_gpu(const zp_spec *spec) { return !spec->cluster.node.device.is_cpu; }

static const char *arch_of(const zp_run_state *run, const zp_spec *spec) {
  return run->options.arch ? run->options.arch : spec->cluster.node.device.arch;
}

static void check_target(zp_run_state *run, const zp_spec *spec) {
  const zp_cluster *cluster = &spec->cluster;
  const char *target = run->options.target;
  if (!is_gpu(spec) && (run->options.arch || (target && strcmp(target, "cuda") == 0))) {
    zp_diag *d = zp_report(run->diags, ZP_Z0702, cluster->span, "cluster `%s` has CPU cores; %s is for GPUs",
                           cluster->name, run->options.arch ? "--arch" : "--target cuda");
    zp_diag_help(d, "add a cluster with node = std.hw.workstation(devices = 2 * std.hw.rtx4090) and choose it with "
                    "--cluster; --arch host then runs it without a GPU");
  }
  if (!is_gpu(spec) && run->options.sync)
    zp_report(run->diags, ZP_Z0702, cluster->span, "cluster `%s` has CPU cores; --sync is for GPUs", cluster->name);
  if (is_gpu(spec) && target && strcmp(target, "cpu") == 0) {
    zp_diag *d =
        zp_report(run->diags, ZP_Z0702, cluster->span, "cluster `%s` has `%s` devices; --target cpu is for CPU cores",
                  cluster->name, cluster->node.device.name);
    zp_diag_help(
        d, "add a cluster with node = std.hw.cpu_generic(cores = 4, memory = 16GiB) and choose it with --cluster");
  }
  if (!is_gpu(spec) || arch_of(run, spec)) return;
  bool mixed = cluster->groups.len > 0;
  zp_diag *d = zp_report(run->diags, ZP_Z0702, cluster->span,
                         mixed ? "the devices of cluster `%s` do not have one `arch`"
                               : "the device of cluster `%s` does not say its `arch`",
                         cluster->name);
  zp_diag_help(d, "give --arch, for example --arch sm_90%s", mixed ? "" : ", or write arch = \"sm_90\" in the device");
}

/* Rows of the smallest tile of attention: kernels on tensor cores have tiles of 16 rows, the others of 64. They are
 * present or absent as a whole; kernels for CPUs take any block. */
static int tile_rows(const zp_run_state *run, const zp_spec *spec) {
  const char *arch = arch_of(run, spec);
  bool older = arch && strncmp(arch, "sm_", 3) == 0 && atoi(arch + 3) < 80;
  if (zp_arch_is_volta(arch)) older = spec->train.precision != ZP_PREC_MIXED_FP16;
  return zp_tensor_core_head(spec) > 0 && !older ? 16 : 64;
}

/* The first node with blocks that no trainer of this cluster has; NULL: none. */
static const zp_node *find_small_blocks(const zp_spec *spec, int tile) {
  for (int s = 0; s < spec->model->segments.len && is_gpu(spec); s++) {
    const zp_graph *graph = spec->model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++) {
      const zp_node *node = &graph->nodes.data[n];
      const zp_sparse *sparse = node->op == ZP_OP_ATTENTION ? node->attr.sparse : NULL;
      if (sparse && sparse->block % tile != 0) return node;
    }
  }
  return NULL;
}

static void report_small_blocks(zp_run_state *run, const zp_spec *spec, zp_diag_code code) {
  int tile = tile_rows(run, spec);
  const zp_node *node = find_small_blocks(spec, tile);
  if (!node) return;
  zp_diag *d = zp_report(run->diags, code, node->span,
                         "blocks of %lld positions in a pattern of attention are generated for CPU clusters only",
                         (long long)node->attr.sparse->block);
  zp_diag_help(
      d,
      "GPU trainers take multiples of %d: block = %d; of 16 with 16-bit operands, heads of up to 256 columns, on "
      "sm_80 and later, in f16 on sm_70",
      tile, tile);
}

/* The first gate whose experts take as many rows as choose them; NULL: none. */
static const zp_node *find_dropless(const zp_spec *spec) {
  for (int s = 0; s < spec->model->segments.len; s++) {
    const zp_graph *graph = spec->model->segments.data[s].graph;
    for (int n = 0; n < graph->nodes.len; n++)
      if (graph->nodes.data[n].op == ZP_OP_TOP_K_GATE && graph->nodes.data[n].attr.dropless)
        return &graph->nodes.data[n];
  }
  return NULL;
}

static void report_dropless(zp_run_state *run, const zp_spec *spec, zp_diag_code code) {
  const zp_node *gate = is_gpu(spec) ? find_dropless(spec) : NULL;
  if (!gate) return;
  zp_diag *d = zp_report(run->diags, code, gate->span,
                         "experts with `capacity = dropless` (`%s`) are generated for CPU clusters only", gate->name);
  zp_diag_help(
      d,
      "GPU trainers take a number: `capacity` of experts / k drops nothing either, in %lld slots a sample and expert",
      (long long)gate->attr.slots);
}

void zp_warn_ungenerated(zp_run_state *run, const zp_spec *spec) {
  if (spec->cluster.trainer == ZP_TRAINER_ZPLAN) {
    report_small_blocks(run, spec, ZP_Z0707);
    report_dropless(run, spec, ZP_Z0707);
  }
  zp_flush_diags(run);
}

bool zp_can_generate(zp_run_state *run, const zp_spec *spec) {
  check_target(run, spec);
  report_small_blocks(run, spec, ZP_Z0702);
  report_dropless(run, spec, ZP_Z0702);
  if (spec->train.data.kind == ZP_DATA_NONE) {
    zp_diag *d =
        zp_report(run->diags, ZP_Z0506, spec->train.span, "`train` has no `data`: there is nothing to train on");
    zp_diag_help(d,
                 "add data = text(\"file.txt\"), lines(\"file.txt\"), tokens(\"shards/*.bin\") or synthetic(seed = 1)");
  }
  return zp_flush_diags(run);
}

zp_toolchain zp_target_toolchain(zp_run_state *run, const zp_spec *spec) {
  zp_toolchain tools = zp_find_toolchain(run->arena);
  if (is_gpu(spec)) tools.arch = arch_of(run, spec);
  tools.extras.profile = run->options.profile;
  tools.force = run->options.force;
  if (tools.arch && strcmp(tools.arch, "host") == 0)
    zp_say_lines(stderr, "zplan: --arch host: an emulated GPU takes the place of `%s`; its times say nothing\n",
                 spec->cluster.node.device.name);
  return tools;
}
