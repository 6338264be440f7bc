/* SPDX-License-Identifier: Apache-2.0 */
/* What `zplan sample` and `zplan eval` generate their trainer for: the model, and ranks that share every layer, of CPU
 * cores of this machine or, where a GPU is asked for, of such GPUs. */
#include "driver.h"
#include <zplan/buf.h>

#include <string.h>
#include <unistd.h>

/* Everything but the model: tensor ranks, no moments, nothing recomputed. */
static const char here[] =
    "use std.hw\n"
    "model m(V = 8, S = 8, d = 8) {\n"
    "  input tokens: i32[B, S]\n  input labels: i32[B, S]\n  param w: [V, d]\n"
    "  x = embedding(tokens, w)\n  output loss = cross_entropy(matmul(x, transpose(w)), labels)\n}\n"
    "%s\n"
    "train { model = m  data = synthetic(seed = 1)  batch = %d  steps = 1  precision = \"%s\"\n"
    "  optimizer = sgd(lr = 1.0)  dropout = 0.0 }\n"
    "plan { tensor = %d  pipeline = 1  zero = 0  recompute = \"none\"  loss_chunks = 1  memory <= 100%% }\n";

static bool asks_for_gpu(const zp_options *o) {
  return o->gpu || o->arch || (o->target && strcmp(o->target, "cuda") == 0);
}

/* CPU ranks take all of this machine. */
static const char *cpu_cluster(const zp_run_state *run, int64_t gradient_bytes, int ranks) {
  long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE), cores = sysconf(_SC_NPROCESSORS_ONLN);
  /* Gradients have a place in the arena that nothing is written to: it takes addresses and no memory. */
  long mib = pages / 1024 * (page / 1024) + (long)(gradient_bytes >> 20);
  if (run->options.hostfile) mib *= ranks; /* they may be on as many machines */
  return zp_format(run->arena, "cluster here { nodes = 1  node = std.hw.cpu_generic(cores = %ld, memory = %ldMiB) }",
                   cores > 0 ? cores : 1, mib);
}

/* Where the arch alone is known, the memory of the GPU is not: the trainer finds out, and says what it lacks. */
static const char *gpu_cluster(const zp_run_state *run, int ranks) {
  const char *name = run->options.gpu ? zp_format(run->arena, "std.hw.%s", run->options.gpu) : "gpu";
  return zp_format(run->arena,
                   "device gpu { base = std.hw.h100_sxm  memory = 16TB }\n"
                   "cluster here { nodes = 1  node = std.hw.workstation(devices = %d * %s) }",
                   ranks, name);
}

static bool is_word(const char *text) {
  return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz_0123456789") == strlen(text);
}

bool zp_inference_options(const zp_run_state *run) {
  const zp_options *o = &run->options;
  bool cpu = o->target && strcmp(o->target, "cpu") == 0;
  if (o->gpu && !is_word(o->gpu))
    return zp_usage_error("--gpu wants a device of std.hw such as h100_sxm, not `%s`", o->gpu), false;
  if (cpu && (o->gpu || o->arch))
    return zp_usage_error("--target cpu and %s: on which of the two?", o->gpu ? "--gpu" : "--arch"), false;
  if (o->target && !cpu && !o->gpu && !o->arch)
    return zp_usage_error(
               "--target cuda wants to know which GPU: --gpu h100_sxm (a device of std.hw), or --arch sm_90"),
           false;
  return true;
}

zp_spec *zp_inference_spec(zp_run_state *run, const zp_spec *trained, int batch, int ranks) {
  bool f64 = trained->train.precision == ZP_PREC_F64, gpu = asks_for_gpu(&run->options);
  zp_model_set_float8(trained->model, 0);
  zp_model_unfreeze(trained->model); /* forward keeps only what gradients need, and decoding needs keys and values */
  int64_t gradient_bytes = zp_model_trained_parameters(trained->model) * (f64 ? 8 : 4);
  const char *cluster = gpu ? gpu_cluster(run, ranks) : cpu_cluster(run, gradient_bytes, ranks);
  const char *text = zp_format(run->arena, here, cluster, batch, f64 ? "fp64" : "fp32", ranks);
  zp_source_text source = {.path = "here.dz", .text = text, .len = strlen(text)};
  zp_load_options options = {.gpus = ranks, .library_dir = run->options.load.library_dir};
  zp_spec *spec = zp_load(run->arena, run->diags, source.path, &source, 1, &options);
  if (!spec) return NULL;
  if (gpu && spec->cluster.node.device.is_cpu) {
    zp_diag *d = zp_report(run->diags, ZP_Z0702, ZP_NO_SPAN, "`%s`, which --gpu names, is no GPU", run->options.gpu);
    zp_diag_help(d, "GPUs of std.hw are h100_sxm, a100_80, rtx4090 and others");
    return NULL;
  }
  spec->model = trained->model;
  spec->base = trained->base;
  spec->path = trained->path;
  spec->train.span = trained->train.span;
  spec->train.adapt = trained->train.adapt; /* what PEFT's adapters are compared with */
  spec->cluster.trainer = ZP_TRAINER_ZPLAN;
  spec->train.init = (zp_initial){.path = "weights.json", .span = ZP_NO_SPAN};
  return spec;
}
