/* How ranks are started: the words before their program, and a folder for what mpirun keeps while they run.
 *
 * Left alone, all mpiruns of a user share TMPDIR/ompi.HOST.UID: each makes it where it is missing, and the last one
 * removes it. A start whose folder another one removes between two looks fails (Open MPI 4.1.4: about 1 of 2,000 where
 * four start over and over), so each gets a folder of its own. */
#define _XOPEN_SOURCE 700 /* nftw */
#include "driver.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* NULL also where the user has chosen one: mpirun refuses to be told of both. */
static char *make_folder(zp_arena *arena) {
  static const char *const chosen[] = {"OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_orte_local_tmpdir_base",
                                       "OMPI_MCA_orte_remote_tmpdir_base"};
  for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
    if (getenv(chosen[i])) return NULL;
  const char *base = getenv("TMPDIR");
  char *folder = zp_format(arena, "%s/zplan-mpi-XXXXXX", base && *base ? base : "/tmp");
  return mkdtemp(folder);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place) {
  (void)info, (void)kind, (void)place;
  return remove(path);
}

/* Ranks share cores: blocked ranks must yield (mpi_yield_when_idle), and no rank is bound to a core. */
const char *zp_push_mpirun(zp_arena *arena, zp_strings *argv, int ranks, const char *hostfile) {
  zp_push(arena, argv, "mpirun.openmpi");
  if (geteuid() == 0) zp_push(arena, argv, "--allow-run-as-root");
  const char *fixed[] = {"--oversubscribe",
                         "--bind-to",
                         "none",
                         "--mca",
                         "mpi_yield_when_idle",
                         "1",
                         "--mca",
                         "btl_base_warn_component_unused",
                         "0"};
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) zp_push(arena, argv, fixed[i]);
  const char *folder = hostfile ? NULL : make_folder(arena); /* machines of a hostfile: each has its own TMPDIR */
  if (folder) {
    zp_push(arena, argv, "--mca");
    zp_push(arena, argv, "orte_tmpdir_base");
    zp_push(arena, argv, folder);
  }
  if (hostfile) {
    zp_push(arena, argv, "--hostfile");
    zp_push(arena, argv, hostfile);
  }
  zp_push(arena, argv, "-n");
  zp_push(arena, argv, zp_format(arena, "%d", ranks));
  return folder;
}

void zp_remove_mpirun_folder(const char *folder) {
  enum { OPEN_FOLDERS = 8 };
  if (folder) nftw(folder, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
}
