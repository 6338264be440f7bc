/* SPDX-License-Identifier: Apache-2.0 */
/* How far a predicted step may be from what is measured: the errors of runs that were predicted and measured
 * (families.def, docs/evidence/accuracy.md). Of the same profile, generation of the GPU and kind of network: those of
 * these runs. Of others: the middle 80 % of all families of runs, each of which counts the same, because a program that
 * nobody measured is one more of them; three families of four lie in the range that the others give them. */
#include <zplan/buf.h>

#include <assert.h>
#include <string.h>
#include <zplan/profile.h>

typedef struct family {
  const char *profile, *gpu;
  bool several; /* nodes */
  int n;
  double low, high, mean, bias; /* percent */
  const char *names;
} family;

static const family families[] = {
#define ZP_POOL(n, runs, low, high)
#define ZP_FAMILY(profile, gpu, several, n, low, high, mean, bias, names)                                              \
  {profile, gpu, several, n, low, high, mean, bias, names},
#include "families.def"
#undef ZP_FAMILY
#undef ZP_POOL
};
enum { N_FAMILIES = sizeof families / sizeof *families };

static const struct {
  int families, runs;
  double low, high; /* percent */
} pool =
#define ZP_FAMILY(profile, gpu, several, n, low, high, mean, bias, names)
#define ZP_POOL(families, runs, low, high)                                                                             \
  { families, runs, low, high }
#include "families.def"
#undef ZP_FAMILY
#undef ZP_POOL
    ;

/* Plans of CPU ranks on a machine that `zplan calibrate` had measured: 42 measurements of 14 plans, all but one within
 * 16 % (docs/ accuracy.md, "CPU plans on a calibrated machine", 22 November 2026). */
static const family calibrated_cpu = {"zplan", "cpu", false, 42, -14, 19, 6, 0, "plans on two calibrated cores"};

static bool is_gpu(const family *f, const char *device) { return strncmp(device, f->gpu, strlen(f->gpu)) == 0; }

/* An H200 computes as an H100 does, with other memory. */
static const char *generation_of(const char *device) { return strncmp(device, "h200", 4) == 0 ? "h100" : device; }

static bool is_of(const family *f, const zp_cluster *cluster, bool several) {
  if (cluster->software->product_rate > 0 && !cluster->software->measured_narrow) return false;
  return strcmp(f->profile, cluster->software->name) == 0 && is_gpu(f, generation_of(cluster->node.device.name)) &&
         f->several == several;
}

/* Fewer runs say little of the next one: theirs is one case more. */
enum { LEAST_RUNS = 5 };

/* A range ends at the prediction itself where all runs were on one side of it. */
static zp_step_range spread(double step_s, double low, double high) {
  return (zp_step_range){.known = true,
                         .low_s = step_s * (1 + (low < 0 ? low : 0) / 100),
                         .high_s = step_s * (1 + (high > 0 ? high : 0) / 100)};
}

static zp_step_range of_family(zp_arena *arena, const family *f, double step_s) {
  zp_step_range range = spread(step_s, f->low, f->high);
  range.source = zp_format(arena, "%d runs of %s on %s, %s (%s), took %+.0f to %+.0f %% of what was predicted", f->n,
                           f->profile, f->gpu, f->several ? "several nodes" : "one node", f->names, f->low, f->high);
  range.brief = zp_format(arena, "%d measured runs", f->n);
  range.family = f->names;
  range.runs = f->n;
  return range;
}

static zp_step_range of_pool(zp_arena *arena, double step_s) {
  zp_step_range range = spread(step_s, pool.low, pool.high);
  range.source =
      zp_format(arena,
                "%d runs of %d families of programs and clusters, four in five of which took %+.0f to %+.0f %% of "
                "what was predicted; of this program on this GPU too few were measured",
                pool.runs, pool.families, pool.low, pool.high);
  range.brief = zp_format(arena, "%d other measured runs", pool.runs);
  range.family = "all families";
  range.runs = pool.runs;
  return range;
}

zp_step_range zp_software_range(zp_arena *arena, const zp_cluster *cluster, bool several_nodes, double step_s) {
  assert(step_s >= 0);
  if (cluster->trainer == ZP_TRAINER_ZPLAN && cluster->node.device.is_cpu && cluster->calibration) {
    zp_step_range range = of_family(arena, &calibrated_cpu, step_s);
    range.source =
        "42 measurements of 14 plans on two calibrated cores took -14 to +19 % of what was predicted, but for one";
    return range;
  }
  if (!cluster->software && cluster->node.device.is_cpu)
    return (zp_step_range){
        .brief = "this machine is not calibrated",
        .source = "unknown: `zplan calibrate` measures this machine, --calibration FILE plans with it; `zplan run` "
                  "and `bench` do both"};
  if (!cluster->software && cluster->node.device.arch && strncmp(cluster->node.device.arch, "sm_9", 4) == 0)
    return (zp_step_range){.brief = "not measured on several GPUs",
                           .source =
                               "unknown for several GPUs: seven steps of zplan's trainer on one H100 took -11 to +5 % "
                               "of what had been predicted (docs/evidence/gpu_measured.md)"};
  if (!cluster->software && cluster->node.device.has_bf16)
    return (zp_step_range){
        .brief = "not measured on this GPU",
        .source = "unknown: zplan's trainer was not measured on this GPU yet; its kernels are counted as they "
                  "are emitted, attention in 16 bits at rates that FlashAttention-2 was measured at, "
                  "other kernels as a library's"};
  if (!cluster->software)
    return (zp_step_range){.brief = "not measured on this GPU",
                           .source =
                               "unknown: zplan's trainer was not measured on this GPU yet; its attention and its sums "
                               "over columns are priced by hand counts of what is emitted, other kernels as a "
                               "library's"};
  if (strncmp(cluster->node.device.name, "mi3", 3) == 0) /* another maker's: no run of one was predicted */
    return (zp_step_range){.brief = "not measured on this GPU", .source = "unknown: no run on this GPU was predicted"};
  for (int i = 0; i < N_FAMILIES; i++)
    if (is_of(&families[i], cluster, several_nodes) && families[i].n >= LEAST_RUNS)
      return of_family(arena, &families[i], step_s);
  return of_pool(arena, step_s);
}
