/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks are started: the words before their program, and what mpirun finds in the environment.
 *
 * Ranks of one machine send all messages through memory that they share, and nobody listens on anything but the
 * loopback; mpirun itself needs libzplan_loopback.so for that (runtime/loopback/). What the user has chosen of this in
 * Open MPI's own variables stays.
 *
 * Left alone, all mpiruns of a user share TMPDIR/ompi.HOST.UID: each makes it where it is missing, and the last one
 * removes it. A start whose folder another one removes between two looks fails (Open MPI 4.1.4: about 1 of 2,000 where
 * four start over and over), so each gets a folder of its own, and another one for the memory that ranks share. */
#include "driver.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char shared_memory[] = "/dev/shm";
static const char *preload_before; /* the user's LD_PRELOAD while ours is set; NULL: it is not */
static int preload_fd = -1;        /* of ours, where its path cannot stand there */

static void push_parameter(zp_arena *arena, zp_strings *argv, const char *name, const char *value) {
  if (getenv(zp_format(arena, "OMPI_MCA_%s", name))) return;
  const char *words[] = {"--mca", name, value};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) zp_push(arena, argv, words[i]);
}

/* mpirun refuses both together, and any alongside the base. */
static bool user_chose_folder(void) {
  static const char *const chosen[] = {"OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_orte_local_tmpdir_base",
                                       "OMPI_MCA_orte_remote_tmpdir_base"};
  for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
    if (getenv(chosen[i])) return true;
  return false;
}

static void push_folders(zp_arena *arena, zp_strings *argv, const char *parent) {
  const char *folder = user_chose_folder() ? NULL : zp_session_open(arena, parent);
  if (folder) push_parameter(arena, argv, "orte_tmpdir_base", folder);
  bool can_share = access(shared_memory, W_OK | X_OK) == 0 && !getenv("OMPI_MCA_btl_vader_backing_directory");
  const char *memory = can_share ? zp_session_open(arena, shared_memory) : NULL;
  if (memory) push_parameter(arena, argv, "btl_vader_backing_directory", memory);
}

/* The dynamic loader takes a path with a blank or a colon for several: it finds the file by its descriptor. */
static void preload_loopback(zp_arena *arena) {
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
  setenv("LD_PRELOAD", *preload_before ? zp_format(arena, "%s %s", word, preload_before) : word, 1);
}

/* mpirun and every rank look for the machine's parts when they start. None of them needs to know PCI devices, whose
 * registers take 20 ms to read in a virtual machine, the libraries of screens, or libxml2: hwloc has a reader of its
 * own. */
static void hide_devices(void) {
  setenv("HWLOC_COMPONENTS", "-linux:pci,-pci", 0);
  setenv("HWLOC_PLUGINS_BLACKLIST", "hwloc_pci.so,hwloc_gl.so,hwloc_opencl.so,hwloc_xml_libxml.so", 0);
}

/* Trainers send and receive (runtime/comm/comm_mpi.c) and call nothing else: of collectives, one-sided messages, grids
 * and files every rank would load all that Open MPI has. It starts with one of each. */
static void push_parts(zp_arena *arena, zp_strings *argv) {
  push_parameter(arena, argv, "coll", "basic,libnbc");
  push_parameter(arena, argv, "osc", "sm");
  push_parameter(arena, argv, "topo", "basic");
  push_parameter(arena, argv, "io", "ompio");
  push_parameter(arena, argv, "op", "^avx");
  push_parameter(arena, argv, "reachable", "weighted");
}

static void push_local(zp_arena *arena, zp_strings *argv, const char *parent) {
  push_folders(arena, argv, parent);
  hide_devices();
  push_parts(arena, argv);
  push_parameter(arena, argv, "pml", "ob1");
  push_parameter(arena, argv, "btl", "self,vader");
  push_parameter(arena, argv, "plm", "isolated");          /* it starts nothing on other machines */
  push_parameter(arena, argv, "oob_tcp_if_include", "lo"); /* the address that it tells others */
  setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  preload_loopback(arena);
}

/* Daemons of several machines ask each other whether they are there, so that one that is gone is noticed in 30 s, not
 * after the 8 minutes that Open MPI takes. */
static void push_hosts(zp_arena *arena, zp_strings *argv, const char *hostfile) {
  push_parameter(arena, argv, "oob_tcp_keepalive_time", "10");
  push_parameter(arena, argv, "oob_tcp_keepalive_intvl", "5");
  push_parameter(arena, argv, "oob_tcp_keepalive_probes", "4");
  zp_push(arena, argv, "--hostfile");
  zp_push(arena, argv, hostfile);
}

/* Ranks share cores: none is bound to one. A rank that waits polls some 200 times and then sleeps
 * (runtime/comm/comm.c); MPI itself need not yield in every poll (mpi_yield_when_idle), for which a busy machine takes
 * the core away 200 times a message. Machines of a hostfile have a TMPDIR each. */
void zp_push_mpirun(zp_arena *arena, zp_strings *argv, int ranks, const char *hostfile) {
  const char *parent = getenv("TMPDIR");
  if (!parent || !*parent) parent = "/tmp";
  zp_session_sweep(arena, parent);
  zp_session_sweep(arena, shared_memory);
  zp_segments_sweep(arena, shared_memory);
  zp_push(arena, argv, "mpirun.openmpi");
  if (geteuid() == 0) zp_push(arena, argv, "--allow-run-as-root");
  const char *fixed[] = {"--oversubscribe",
                         "--bind-to",
                         "none",
                         "--mca",
                         "mpi_yield_when_idle",
                         "0",
                         "--mca",
                         "btl_base_warn_component_unused",
                         "0"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) zp_push(arena, argv, fixed[i]);
  if (hostfile)
    push_hosts(arena, argv, hostfile);
  else
    push_local(arena, argv, parent);
  zp_push(arena, argv, "-n");
  zp_push(arena, argv, zp_format(arena, "%d", ranks));
}

void zp_end_mpirun(void) {
  zp_session_close();
  if (!preload_before) return;
  if (*preload_before)
    setenv("LD_PRELOAD", preload_before, 1);
  else
    unsetenv("LD_PRELOAD");
  unsetenv("ZPLAN_LD_PRELOAD");
  preload_before = NULL;
}
