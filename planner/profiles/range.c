/* SPDX-License-Identifier: Apache-2.0 */
/* How far a predicted step may be from what is measured: the errors of the nearest runs that were predicted and
 * measured (families.def, docs/evidence/accuracy.md). Near is, in this order: the profile, or a profile of the same
 * program; the generation of the GPU; one node or several. Runs of another profile, generation or kind of network count
 * with twice their range, because nobody measured that they say as much. */
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
#define ZP_FAMILY(profile, gpu, several, n, low, high, mean, bias, names)                                              \
  {profile, gpu, several, n, low, high, mean, bias, names},
#include "families.def"
#undef ZP_FAMILY
};
enum { N_FAMILIES = sizeof families / sizeof *families };

/* Plans of CPU ranks on a machine that `zplan calibrate` had measured: 42 measurements of 14 plans, all but one within
 * 16 % (docs/ accuracy.md, "CPU plans on a calibrated machine", 22 November 2026). */
static const family calibrated_cpu = {"zplan", "cpu", false, 42, -14, 19, 6, 0, "plans on two calibrated cores"};

static bool is_gpu(const family *f, const char *device) { return strncmp(device, f->gpu, strlen(f->gpu)) == 0; }

/* An H200 computes as an H100 does, with other memory. */
static const char *generation_of(const char *device) { return strncmp(device, "h200", 4) == 0 ? "h100" : device; }

/* 0: nothing in common. */
static int nearness(const family *f, const zp_cluster *cluster, bool several) {
  zp_trainer trainer;
  const zp_software *software;
  (void)zp_software_find(f->profile, &trainer, &software);
  if (trainer != cluster->trainer) return 0;
  int same = strcmp(f->profile, cluster->software->name) == 0;
  return 1 + 4 * same + 2 * is_gpu(f, generation_of(cluster->node.device.name)) + (f->several == several);
}

enum { SAME = 1 + 4 + 2 + 1 };

static zp_step_range spread(zp_arena *arena, const family *f, double step_s, int nearness, const char *program) {
  double factor = nearness == SAME ? 1 : 2;
  double low = factor * f->low < 0 ? factor * f->low : 0, high = factor * f->high > 0 ? factor * f->high : 0;
  const char *nodes = f->several ? "several nodes" : "one node";
  zp_step_range range = {.known = true, .low_s = step_s * (1 + low / 100), .high_s = step_s * (1 + high / 100)};
  range.source = zp_format(arena, "%d run%s of %s on %s, %s (%s), took %+.0f to %+.0f %% of what was predicted%s", f->n,
                           f->n > 1 ? "s" : "", program, f->gpu, nodes, f->names, f->low, f->high,
                           factor > 1 ? "; nothing nearer was measured, so twice that" : "");
  range.brief = zp_format(arena, "%d measured run%s", f->n, f->n > 1 ? "s" : "");
  range.family = f->names;
  range.runs = f->n;
  return range;
}

zp_step_range zp_software_range(zp_arena *arena, const zp_cluster *cluster, bool several_nodes, double step_s) {
  assert(step_s >= 0);
  if (cluster->trainer == ZP_TRAINER_ZPLAN && cluster->node.device.is_cpu && cluster->calibration) {
    zp_step_range range = spread(arena, &calibrated_cpu, step_s, SAME, "zplan's trainer");
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
  const family *nearest = NULL;
  int best = 0;
  for (int i = 0; i < N_FAMILIES; i++) {
    int near = nearness(&families[i], cluster, several_nodes);
    if (near < best || near == 0 || (near == best && nearest && families[i].n <= nearest->n)) continue;
    nearest = &families[i];
    best = near;
  }
  if (!nearest)
    return (zp_step_range){.brief = "this program was not measured", .source = "no run of this program was measured"};
  return spread(arena, nearest, step_s, best, nearest->profile);
}
