/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks are started: what each start needs before their program, and what mpirun finds in the environment. The
 * words of Open MPI's versions are launcher.c's.
 *
 * Ranks of one machine send all messages through memory that they share, and nobody listens on anything but the
 * loopback; mpirun itself needs libzplan_loopback.so for that (runtime/loopback/). What the user has chosen of this in
 * Open MPI's own variables stays.
 *
 * Left alone, all mpiruns of a user share TMPDIR/ompi.HOST.UID: each makes it where it is missing, and the last one
 * removes it. A start whose folder another one removes between two looks fails (Open MPI 4.1.4: about 1 of 2,000 where
 * four start over and over), so each gets a folder of its own, and another one for the memory that ranks share. */
#include "launcher.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char shared_memory[] = "/dev/shm";
static const char *preload_before; /* the user's LD_PRELOAD while ours is set; NULL: it is not */
static int preload_fd = -1;        /* of ours, where its path cannot stand there */

static void push_folders(zp_arena *arena, zp_strings *argv, const zp_launcher *launcher, const char *parent) {
  const char *folder = zp_launcher_is_set(arena, launcher, ZP_LAUNCH_FOLDER) ? NULL : zp_session_open(arena, parent);
  if (folder) zp_launcher_push(arena, argv, launcher, ZP_LAUNCH_FOLDER, folder);
  bool can_share = access(shared_memory, W_OK | X_OK) == 0 && !zp_launcher_is_set(arena, launcher, ZP_LAUNCH_MEMORY);
  const char *memory = can_share ? zp_session_open(arena, shared_memory) : NULL;
  if (memory) zp_launcher_push(arena, argv, launcher, ZP_LAUNCH_MEMORY, memory);
}

/* The dynamic loader takes a path with a blank or a colon for several: it finds the file by its descriptor. */
static void preload_loopback(zp_arena *arena, int programs) {
  zp_toolchain tools = zp_find_toolchain(arena);
  const char *path = zp_format(arena, "%s/libzplan_loopback.so", tools.library_dirs[0]);
  char real[4096];
  if (!realpath(path, real)) {
    zp_say_line(stderr, "warning: %s is missing: mpirun listens on all addresses of this machine", path);
    return;
  }
  const char *before = getenv("LD_PRELOAD");
  preload_before = before ? zp_strdup(arena, before) : "";
  const char *word = real;
  if (strpbrk(real, " :") && preload_fd < 0) preload_fd = open(real, O_RDONLY);
  if (preload_fd >= 0) word = zp_format(arena, "/proc/self/fd/%d", preload_fd);
  setenv("ZPLAN_LD_PRELOAD", preload_before, 1);
  setenv("ZPLAN_LD_PRELOAD_PROGRAMS", zp_format(arena, "%d", programs), 1);
  setenv("LD_PRELOAD", *preload_before ? zp_format(arena, "%s %s", word, preload_before) : word, 1);
}

/* mpirun and every rank look for the machine's parts when they start. None of them needs to know PCI devices, whose
 * registers take 20 ms to read in a virtual machine, the libraries of screens, or libxml2: hwloc has a reader of its
 * own. */
static void hide_devices(void) {
  setenv("HWLOC_COMPONENTS", "-linux:pci,-pci", 0);
  setenv("HWLOC_PLUGINS_BLACKLIST", "hwloc_pci.so,hwloc_gl.so,hwloc_opencl.so,hwloc_xml_libxml.so", 0);
}

static void push_local(zp_arena *arena, zp_strings *argv, const zp_launcher *launcher, const char *parent) {
  push_folders(arena, argv, launcher, parent);
  hide_devices();
  zp_launcher_push(arena, argv, launcher, ZP_LAUNCH_LOCAL, NULL);
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  preload_loopback(arena, zp_launcher_programs(launcher));
}

/* Machines of a hostfile have a TMPDIR each. */
bool zp_push_mpirun(zp_run_state *run, zp_strings *argv, int ranks, const char *hostfile) {
  zp_arena *arena = run->arena;
  const zp_launcher *launcher = zp_find_launcher(run);
  if (!launcher) return false;
  const char *parent = getenv("TMPDIR");
  if (!parent || !*parent) parent = "/tmp";
  zp_session_sweep(arena, parent);
  zp_session_sweep(arena, shared_memory);
  zp_segments_sweep(arena, shared_memory);
  zp_push(arena, argv, zp_launcher_program);
  if (geteuid() == 0) zp_push(arena, argv, "--allow-run-as-root");
  zp_launcher_share(arena, argv, launcher);
  zp_launcher_push(arena, argv, launcher, ZP_LAUNCH_ALWAYS, NULL);
  if (hostfile) {
    zp_launcher_push(arena, argv, launcher, ZP_LAUNCH_HOSTS, NULL);
    zp_push(arena, argv, "--hostfile");
    zp_push(arena, argv, hostfile);
  } else {
    push_local(arena, argv, launcher, parent);
  }
  zp_push(arena, argv, "-n");
  zp_push(arena, argv, zp_format(arena, "%d", ranks));
  return true;
}

void zp_end_mpirun(void) {
  zp_session_close();
  if (!preload_before) return;
  if (*preload_before)
    setenv("LD_PRELOAD", preload_before, 1);
  else
    unsetenv("LD_PRELOAD");
  unsetenv("ZPLAN_LD_PRELOAD");
  unsetenv("ZPLAN_LD_PRELOAD_PROGRAMS");
  preload_before = NULL;
}
