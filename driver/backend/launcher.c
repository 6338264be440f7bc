/* SPDX-License-Identifier: Apache-2.0 */
/* The launcher of this machine: which major version of Open MPI it is, and the words of that version.
 *
 * Open MPI 5 starts ranks by PRRTE where 4 had ORTE: settings of the launcher are another program's, with another
 * option and another variable, and shared memory has another name. A version is a row of `versions` and rows of
 * `settings`; mpirun.c, which knows what a start needs, names no word of any. */
#include "launcher.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

const char zp_launcher_program[] = "mpirun.openmpi";

/* Which program a setting is for: its option, and the variables that users set in place of it. */
static const struct family {
  const char *option, *variable;
} of_mpi = {"--mca", "OMPI_MCA_"}, of_prrte = {"--prtemca", "PRTE_MCA_"};

typedef struct setting {
  zp_launch_need need;
  int major; /* the version that has it; 0: all */
  const struct family *family;
  const char *name, *value; /* value: NULL: a folder that the start makes */
  const char *others[2];    /* that the launcher refuses with this one: names without the variable's beginning */
} setting;

/* ALWAYS: ranks share cores, so MPI yields none in its polls: a rank that waits polls some 200 times and then sleeps
 * (runtime/comm/comm.c), and a busy machine would take the core from it at each of them.
 *
 * LOCAL: the ranks of one machine have memory that they share and nothing else, and the launcher starts nothing
 * elsewhere. Open MPI 5 refuses the name of the loopback for what it reports; runtime/loopback/ keeps it there.
 * Trainers send and receive (runtime/comm/comm_mpi.c) and call nothing else, so one component each of collectives,
 * one-sided messages, grids and files is enough; without a choice every rank loads all that Open MPI has.
 *
 * HOSTS: daemons of several machines ask each other whether they are there. A lost one is noticed in 30 s; Open MPI's
 * own setting takes 8 minutes. */
/* clang-format off */
static const setting settings[] = {
    {ZP_LAUNCH_ALWAYS, 0, &of_mpi, "mpi_yield_when_idle", "0", {0}},
    {ZP_LAUNCH_ALWAYS, 0, &of_mpi, "btl_base_warn_component_unused", "0", {0}},
    {ZP_LAUNCH_FOLDER, 4, &of_mpi, "orte_tmpdir_base", NULL, {"orte_local_tmpdir_base", "orte_remote_tmpdir_base"}},
    {ZP_LAUNCH_FOLDER, 5, &of_prrte, "prte_tmpdir_base", NULL, {"prte_local_tmpdir_base", "prte_remote_tmpdir_base"}},
    {ZP_LAUNCH_MEMORY, 4, &of_mpi, "btl_vader_backing_directory", NULL, {0}},
    {ZP_LAUNCH_MEMORY, 5, &of_mpi, "btl_sm_backing_directory", NULL, {0}},
    {ZP_LAUNCH_LOCAL, 0, &of_mpi, "coll", "basic,libnbc", {0}},
    {ZP_LAUNCH_LOCAL, 0, &of_mpi, "osc", "sm", {0}},
    {ZP_LAUNCH_LOCAL, 0, &of_mpi, "topo", "basic", {0}},
    {ZP_LAUNCH_LOCAL, 0, &of_mpi, "io", "ompio", {0}},
    {ZP_LAUNCH_LOCAL, 0, &of_mpi, "op", "^avx", {0}},
    {ZP_LAUNCH_LOCAL, 0, &of_mpi, "reachable", "weighted", {0}},
    {ZP_LAUNCH_LOCAL, 0, &of_mpi, "pml", "ob1", {0}},
    {ZP_LAUNCH_LOCAL, 4, &of_mpi, "btl", "self,vader", {0}},
    {ZP_LAUNCH_LOCAL, 5, &of_mpi, "btl", "self,sm", {0}},
    {ZP_LAUNCH_LOCAL, 4, &of_mpi, "plm", "isolated", {0}},
    {ZP_LAUNCH_LOCAL, 5, &of_prrte, "plm", "ssh", {0}}, /* not Slurm's; with one machine it starts nothing */
    {ZP_LAUNCH_LOCAL, 4, &of_mpi, "oob_tcp_if_include", "lo", {0}}, /* the address that it reports to others */
    {ZP_LAUNCH_HOSTS, 4, &of_mpi, "oob_tcp_keepalive_time", "10", {0}},
    {ZP_LAUNCH_HOSTS, 4, &of_mpi, "oob_tcp_keepalive_intvl", "5", {0}},
    {ZP_LAUNCH_HOSTS, 4, &of_mpi, "oob_tcp_keepalive_probes", "4", {0}},
    {ZP_LAUNCH_HOSTS, 5, &of_prrte, "oob_tcp_keepalive_time", "10", {0}},
    {ZP_LAUNCH_HOSTS, 5, &of_prrte, "oob_tcp_keepalive_intvl", "5", {0}},
    {ZP_LAUNCH_HOSTS, 5, &of_prrte, "oob_tcp_keepalive_probes", "4", {0}},
};
/* clang-format on */
enum { N_SETTINGS = sizeof settings / sizeof *settings };

struct zp_launcher {
  int major;
  const char *share[2]; /* the words that let ranks share cores */
  int programs;         /* 2: mpirun becomes prterun */
};
static const zp_launcher versions[] = {{4, {"--oversubscribe"}, 1}, {5, {"--map-by", ":OVERSUBSCRIBE"}, 2}};
enum { N_VERSIONS = sizeof versions / sizeof *versions };

/* ---- the version ---- */

/* In the child: its answer goes to the pipe. One that does not answer is ended. */
static void become(int to) {
  enum { LONGEST_S = 20 };
  alarm(LONGEST_S);
  dup2(to, STDOUT_FILENO);
  close(to);
  if (!freopen("/dev/null", "w", stderr)) _exit(ZP_EXIT_NO_TOOL);
  execlp(zp_launcher_program, zp_launcher_program, "--version", (char *)NULL);
  _exit(ZP_EXIT_NO_TOOL);
}

/* The first line of what it answers, "" without one; false: it cannot be asked. */
static bool ask(char *line, size_t size) {
  int fds[2], status;
  line[0] = '\0';
  if (pipe(fds) != 0) return false;
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    close(fds[0]);
    become(fds[1]);
  }
  close(fds[1]);
  FILE *in = fdopen(fds[0], "r");
  if (pid > 0 && in && fgets(line, (int)size, in)) line[strcspn(line, "\n")] = '\0';
  for (char rest[256]; pid > 0 && in && fgets(rest, sizeof rest, in);) continue;
  if (in) fclose(in);
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  return pid > 0 && in;
}

/* Where the version begins in "mpirun.openmpi (OpenRTE) 4.1.4", "mpirun (Open MPI) 5.0.7"; NULL: nowhere. */
static const char *version_in(const char *line) {
  static const char *const names[] = {"(OpenRTE) ", "(Open MPI) "};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *found = strstr(line, names[i]);
    if (found && isdigit((unsigned char)found[strlen(names[i])])) return found + strlen(names[i]);
  }
  return NULL;
}

/* NULL: of no known version. */
static const zp_launcher *of_version(const char *version) {
  for (int i = 0; i < N_VERSIONS && version; i++)
    if (versions[i].major == atoi(version)) return &versions[i];
  return NULL;
}

static const zp_launcher *refuse(zp_run_state *run, const char *line, const char *version) {
  zp_diag *d;
  if (version)
    d = zp_report(run->diags, ZP_Z0704, ZP_NO_SPAN, "`%s` is of Open MPI %s, whose words are not known",
                  zp_launcher_program, version);
  else
    d = zp_report(run->diags, ZP_Z0704, ZP_NO_SPAN, "`%s --version` names no version of Open MPI: %s",
                  zp_launcher_program, *line ? line : "no answer");
  zp_diag_help(d,
               "several ranks are started by Open MPI 4 or 5; `%s -n N ./trainer` in the trainer's folder (-o) "
               "starts them by hand",
               zp_launcher_program);
  zp_flush_diags(run);
  return NULL;
}

const zp_launcher *zp_find_launcher(zp_run_state *run) {
  static const zp_launcher *found;
  char line[256];
  if (found) return found;
  bool is_there = zp_find_tool(run->arena, zp_launcher_program) != NULL;
  if (!is_there || !ask(line, sizeof line)) {
    zp_diag *d = zp_report(run->diags, ZP_Z0704, ZP_NO_SPAN, "cannot start %s: %s", zp_launcher_program,
                           strerror(is_there ? errno : ENOENT));
    zp_diag_help(d, "several ranks are started by Open MPI: apt install openmpi-bin");
    zp_flush_diags(run);
    return NULL;
  }
  const char *version = version_in(line);
  found = of_version(version);
  return found ? found : refuse(run, line, version);
}

const char *zp_launcher_found(zp_arena *arena) {
  const char *path = zp_find_tool(arena, zp_launcher_program);
  char line[256];
  if (!path) return NULL;
  const char *version = ask(line, sizeof line) ? version_in(line) : NULL;
  if (!version) return zp_format(arena, "%s (names no version of Open MPI: not used)", path);
  int n = (int)strspn(version, "0123456789.");
  return zp_format(arena, "%s (Open MPI %.*s%s)", path, n, version,
                   of_version(version) ? "" : ": not used, 4 and 5 are");
}

/* ---- its words ---- */

static bool is_of(const zp_launcher *launcher, const setting *s, zp_launch_need need) {
  return s->need == need && (s->major == 0 || s->major == launcher->major);
}

static bool is_set(zp_arena *arena, const setting *s) {
  if (getenv(zp_format(arena, "%s%s", s->family->variable, s->name))) return true;
  for (size_t i = 0; i < sizeof s->others / sizeof *s->others && s->others[i]; i++)
    if (getenv(zp_format(arena, "%s%s", s->family->variable, s->others[i]))) return true;
  return false;
}

bool zp_launcher_is_set(zp_arena *arena, const zp_launcher *launcher, zp_launch_need need) {
  assert(launcher && need >= 0 && need < ZP_N_LAUNCH_NEEDS);
  for (int i = 0; i < N_SETTINGS; i++)
    if (is_of(launcher, &settings[i], need) && is_set(arena, &settings[i])) return true;
  return false;
}

void zp_launcher_push(zp_arena *arena, zp_strings *argv, const zp_launcher *launcher, zp_launch_need need,
                      const char *folder) {
  assert(launcher && argv && need >= 0 && need < ZP_N_LAUNCH_NEEDS);
  for (int i = 0; i < N_SETTINGS; i++) {
    const setting *s = &settings[i];
    if (!is_of(launcher, s, need) || is_set(arena, s)) continue;
    assert(s->value || folder);
    const char *words[] = {s->family->option, s->name, s->value ? s->value : folder};
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) zp_push(arena, argv, words[w]);
  }
}

void zp_launcher_share(zp_arena *arena, zp_strings *argv, const zp_launcher *launcher) {
  assert(launcher && argv);
  const char *words[] = {"--bind-to", "none", launcher->share[0], launcher->share[1]};
  for (size_t i = 0; i < sizeof words / sizeof *words && words[i]; i++) zp_push(arena, argv, words[i]);
}

int zp_launcher_programs(const zp_launcher *launcher) {
  assert(launcher);
  return launcher->programs;
}
