/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine has, alongside what a run takes: the cluster of a .dz file is only what its author says there is.
 *
 * Ranks that must share cores are told; ranks that memory cannot hold are refused before they are started, because the
 * kernel would choose whom to kill. With a hostfile the ranks are on other machines, and nothing is known of these. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>

/* A rank that has no arena: program, MPI, libraries. Measured: 19 MB resident (Open MPI 4.1, OpenBLAS 0.3.21, November
 * 2026); less here, so that nothing is refused that might fit. */
#define RANK_BYTES ((int64_t)16 << 20)

/* What the container that this process runs in may still take. Pages of files count against it and are given back. */
static int64_t container_bytes(void) {
  static const char *const files[][4] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat", "inactive_file "},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes",
       "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file "}};
  for (int i = 0; i < 2; i++) {
    int64_t limit = zp_number_in(files[i][0], ""), used = zp_number_in(files[i][1], "");
    int64_t given_back = zp_number_in(files[i][2], files[i][3]);
    if (limit > 0 && used >= 0) return limit - used + (given_back > 0 ? given_back : 0); /* "max" is 0 */
  }
  return INT64_MAX;
}

/* -1: the system does not say. */
static int64_t available_bytes(void) {
  int64_t free_kib = zp_number_in("/proc/meminfo", "MemAvailable:"),
          swap_kib = zp_number_in("/proc/meminfo", "SwapFree:");
  if (free_kib < 0) return -1;
  int64_t host = (free_kib + (swap_kib > 0 ? swap_kib : 0)) * 1024, container = container_bytes();
  return host < container ? host : container;
}

static int64_t needed_bytes(const zp_plan *plan, bool emulated) {
  const zp_choice *c = &plan->best.choice;
  bool on_host = plan->spec->cluster.node.device.is_cpu || emulated;
  int64_t bytes = 0;
  for (int s = 0; s < c->pipeline; s++) {
    const zp_stage *stage = &plan->program->stages[s];
    bytes += (on_host ? stage->arena_bytes : 0) + stage->memory.host + RANK_BYTES;
  }
  return bytes * c->tensor * c->data;
}

bool zp_host_holds(zp_run_state *run, const zp_plan *plan) {
  if (run->options.hostfile) return true;
  int ranks = zp_choice_ranks(&plan->best.choice), cores = zp_host_cores();
  bool emulated = run->options.arch && strcmp(run->options.arch, "host") == 0;
  int64_t need = needed_bytes(plan, emulated), have = available_bytes();
  if (have >= 0 && need > have) {
    zp_diag *d =
        zp_report(run->diags, ZP_Z0705, ZP_NO_SPAN, "%d rank%s of this plan take %s, this machine has %s left", ranks,
                  ranks == 1 ? "" : "s", zp_show_bytes(run->arena, need), zp_show_bytes(run->arena, have));
    zp_diag_help(d, "fewer ranks (--ranks), a smaller batch or model, or other machines (--hostfile)");
  } else if (ranks > cores) {
    zp_report(run->diags, ZP_Z0706, ZP_NO_SPAN,
              "%d ranks on %d core%s: steps take %.2g times as long as with a core each", ranks, cores,
              cores == 1 ? "" : "s", (double)ranks / cores);
  }
  return zp_flush_diags(run);
}
