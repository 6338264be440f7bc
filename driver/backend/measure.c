/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the measuring programs of runtime/calibrate/ and gathers their rows, for `zplan calibrate`, and for the
 * calibration that run and bench keep. Also which machine, and which kernels, a calibration is of. */
#define _GNU_SOURCE
#include "driver.h"

#include <zplan/buf.h>
#include <zplan/hash.h>

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  LINK_SHARE = 6,        /* of the seconds: messages between ranks; as much for a GPU */
  LONGEST_START_S = 120, /* and ten times its seconds: then a program is ended */
};

static int usable_cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* ---- running a program ---- */

static volatile sig_atomic_t end_signal; /* that came while a program measured */
static volatile pid_t running;           /* 0: none */

/* The program ends first, so that mpirun takes its ranks along and its folders can be removed. */
static void pass_on(int number) {
  end_signal = number;
  if (running > 0) kill(running, number);
}

static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_ENDS = sizeof ends / sizeof *ends };

static void hear_signals(struct sigaction *before) {
  struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < N_ENDS; i++) {
    sigaction(ends[i], NULL, &before[i]);
    if (before[i].sa_handler != SIG_IGN) sigaction(ends[i], &action, NULL); /* nohup */
  }
}

/* What interrupted the program ends this one in the same way. */
static void forget_signals(const struct sigaction *before) {
  for (int i = 0; i < N_ENDS; i++) sigaction(ends[i], &before[i], NULL);
  if (!end_signal) return;
  zp_end_mpirun();
  raise(end_signal);
}

/* One line of output: name, value, unit, how, between tabs. */
static void take_row(zp_arena *arena, char *line, zp_calibration *c) {
  char *field[4] = {line};
  for (int i = 1; i < 4; i++) {
    field[i] = strchr(field[i - 1], '\t');
    if (!field[i]) return;
    *field[i]++ = '\0';
  }
  field[3][strcspn(field[3], "\n")] = '\0';
  zp_measurement row = {zp_strdup(arena, field[0]), strtod(field[1], NULL), zp_strdup(arena, field[2]),
                        zp_strdup(arena, field[3])};
  if (row.value > 0) zp_push(arena, &c->rows, row);
}

static void become(const char *const *argv, double seconds, const int *fds, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody waits for a measurement whose zplan was killed */
  if (getppid() != parent) _exit(ZP_EXIT_ERROR);
  alarm((unsigned)(10 * seconds) + LONGEST_START_S); /* an mpirun that waits for nobody */
  dup2(fds[1], STDOUT_FILENO);
  close(fds[0]);
  close(fds[1]);
  execvp(argv[0], (char *const *)(void *)argv);
  zp_say_lines(stderr, "error[Z0704]: cannot start %s: %s\n", argv[0], strerror(errno));
  _exit(ZP_EXIT_NO_TOOL);
}

/* Its exit status, 128 + N when a signal ended it. */
static int await(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return ZP_EXIT_ERROR;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int zp_run_measuring(zp_arena *arena, const char *const *argv, double seconds, zp_calibration *c) {
  int fds[2], before = c->rows.len;
  if (pipe(fds) != 0) return ZP_EXIT_ERROR;
  fflush(NULL);
  struct sigaction actions[N_ENDS];
  hear_signals(actions);
  pid_t self = getpid(), pid = fork();
  if (pid == 0) {
    for (int i = 0; i < N_ENDS; i++) sigaction(ends[i], &actions[i], NULL);
    become(argv, seconds, fds, self);
  }
  running = pid > 0 ? pid : 0;
  close(fds[1]);
  FILE *in = fdopen(fds[0], "r");
  char line[1024];
  while (pid > 0 && in && fgets(line, sizeof line, in)) take_row(arena, line, c);
  if (in) fclose(in);
  int status = pid > 0 ? await(pid) : ZP_EXIT_ERROR;
  running = 0;
  forget_signals(actions);
  if (status != 0) c->rows.len = before;
  return status;
}

static const char *how_ended(zp_arena *arena, int status) {
  if (status > 128) return zp_format(arena, "ended by signal %d, %s", status - 128, strsignal(status - 128));
  return zp_format(arena, "exit status %d", status);
}

/* ---- what is measured ---- */

/* folder: where the disk is measured; NULL: it is not. */
static bool measure_compute(zp_run_state *run, double seconds, const char *folder, zp_calibration *c) {
  const char *binary = zp_format(run->arena, "%s/zplan-calibrate", zp_program_dir(run->arena));
  const char *argv[] = {binary, "compute", zp_format(run->arena, "%g", seconds), folder, NULL};
  if (access(binary, X_OK) != 0) {
    zp_diag *d = zp_report(run->diags, ZP_Z0704, ZP_NO_SPAN, "%s, which measures this machine, is not there", binary);
    zp_diag_help(d, "build and install all of zplan: this copy can plan, `zplan doctor` says what else");
    return zp_flush_diags(run);
  }
  int status = zp_run_measuring(run->arena, argv, seconds, c);
  if (status == 0) return true;
  zp_report(run->diags, ZP_Z0704, ZP_NO_SPAN, "cannot measure this machine: %s failed (%s)", binary,
            how_ended(run->arena, status));
  zp_flush_diags(run);
  return false;
}

/* Pairs of so many ranks. */
static int measure_pairs(zp_run_state *run, const char *binary, double seconds, int ranks, zp_calibration *c) {
  zp_strings argv = {0};
  if (!zp_push_mpirun(run, &argv, ranks, NULL)) return ZP_EXIT_NO_TOOL;
  const char *rest[] = {binary, "links", zp_format(run->arena, "%g", seconds), zp_format(run->arena, "%d", ranks),
                        NULL};
  for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) zp_push(run->arena, &argv, rest[i]);
  int status = zp_run_measuring(run->arena, argv.data, seconds, c);
  zp_end_mpirun();
  return status;
}

/* One pair, all cores, and two ranks a core. */
static zp_measuring measure_links(zp_run_state *run, double seconds, zp_calibration *c) {
  enum { MOST_RANKS = 16, STARTS = 3 };
  const char *binary = zp_format(run->arena, "%s/zplan-calibrate-mpi", zp_program_dir(run->arena));
  if (!zp_find_tool(run->arena, "mpirun.openmpi")) {
    zp_say_lines(stderr, "zplan: there is no mpirun.openmpi: messages between ranks were not measured\n");
    return ZP_MEASURED_NO_MPI;
  }
  int cores = usable_cores(), all = cores / 2 * 2, status = 0;
  const int ranks[STARTS] = {2, all < MOST_RANKS ? all : MOST_RANKS, 2 * cores};
  for (int i = 0; i < STARTS && status == 0; i++)
    if (i == 0 || (ranks[i] > ranks[i - 1] && ranks[i] <= MOST_RANKS))
      status = measure_pairs(run, binary, seconds / STARTS, ranks[i], c);
  if (status == 0) return ZP_MEASURED_ALL;
  zp_report(run->diags, ZP_Z0704, ZP_NO_SPAN, "messages between ranks were not measured: %s failed (%s)", binary,
            how_ended(run->arena, status));
  zp_flush_diags(run);
  return ZP_MEASURED_NO_LINKS;
}

zp_measuring zp_measure_cores(zp_run_state *run, double seconds, const char *folder, zp_calibration *c) {
  zp_measurement load = {"load", zp_machine_load(), "processes", "that ran in the minute before"};
  if (load.value > 0) zp_push(run->arena, &c->rows, load);
  if (!measure_compute(run, seconds * (LINK_SHARE - 1) / LINK_SHARE, folder, c)) return ZP_MEASURED_NOTHING;
  return measure_links(run, seconds / LINK_SHARE, c);
}

/* Where there is no GPU it says so, and the library's rates stay. */
void zp_measure_gpu(zp_run_state *run, double seconds, zp_calibration *c) {
  const char *binary = zp_format(run->arena, "%s/zplan-calibrate", zp_program_dir(run->arena));
  const char *argv[] = {binary, "gpu", zp_format(run->arena, "%g", seconds / LINK_SHARE), NULL};
  int status = zp_run_measuring(run->arena, argv, seconds, c);
  if (status != 0) {
    zp_say_lines(stderr, "zplan: the GPU was not measured: %s failed (%s)\n", binary, how_ended(run->arena, status));
    return;
  }
  zp_calibration_fit_gpu(run->arena, c);
}

double zp_machine_load(void) {
  double load;
  return getloadavg(&load, 1) == 1 ? load : 0;
}

bool zp_is_busy(double load) { return load > 0.5 * (double)sysconf(_SC_NPROCESSORS_ONLN); }

void zp_warn_busy(void) {
  double load = zp_machine_load();
  if (zp_is_busy(load))
    zp_say_lines(stderr, "warning: the machine is busy (load %.1f on %ld processors): measured times are too long\n",
                 load, sysconf(_SC_NPROCESSORS_ONLN));
}

/* ---- which machine ---- */

/* What follows "KEY : " in the first line of /proc/cpuinfo that begins with KEY. */
static const char *processor_line(zp_arena *arena, const char *key, const char *missing) {
  FILE *f = fopen("/proc/cpuinfo", "r");
  char line[8192];
  const char *text = missing;
  while (f && text == missing && fgets(line, sizeof line, f)) {
    char *value = strchr(line, ':');
    if (!value || strncmp(line, key, strlen(key)) != 0) continue;
    value += 1 + strspn(value + 1, " ");
    value[strcspn(value, "\n")] = '\0';
    text = zp_strdup(arena, value);
  }
  if (f) fclose(f);
  return text;
}

static const char *today(zp_arena *arena) {
  time_t t = time(NULL);
  struct tm utc;
  char text[32] = "";
  if (gmtime_r(&t, &utc)) strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return zp_strdup(arena, text);
}

static uint64_t hash_of_file(uint64_t start, const char *path) {
  size_t len = 0;
  const char *error;
  zp_arena *scratch = zp_arena_new("a program");
  const char *text = zp_read_file(scratch, path, &len, &error);
  uint64_t hash = text ? zp_hash(start, text, len) : start;
  zp_arena_free(scratch);
  return hash;
}

/* Kernels, their libraries' choice and messages are in these two. */
static uint64_t hash_of_programs(zp_arena *arena) {
  const char *folder = zp_program_dir(arena);
  uint64_t hash = hash_of_file(ZP_HASH_START, zp_format(arena, "%s/zplan-calibrate", folder));
  return hash_of_file(hash, zp_format(arena, "%s/zplan-calibrate-mpi", folder));
}

/* Processor time that a container may have: "max 100000", or less than all cores'. */
static const char *quota(zp_arena *arena) {
  FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
  char line[64] = "";
  if (f && !fgets(line, sizeof line, f)) line[0] = '\0';
  if (f) fclose(f);
  line[strcspn(line, "\n")] = '\0';
  return *line && strncmp(line, "max", 3) != 0 ? zp_format(arena, "; quota %s", line) : "";
}

static const char *identity(zp_arena *arena) {
  const char *flags = processor_line(arena, "flags", ""), *mpirun = zp_find_tool(arena, "mpirun.openmpi");
  uint64_t features = zp_hash(ZP_HASH_START, flags, strlen(flags));
  return zp_format(arena, "%s; features %016llx; %d cores%s; %s; programs %016llx",
                   processor_line(arena, "model name", "unknown processor"), (unsigned long long)features,
                   usable_cores(), quota(arena), mpirun ? mpirun : "no MPI",
                   (unsigned long long)hash_of_programs(arena));
}

zp_calibration zp_no_measurements(zp_arena *arena) {
  const char *name = processor_line(arena, "model name", "unknown processor");
  return (zp_calibration){.machine = zp_format(arena, "%s, %ld processors", name, sysconf(_SC_NPROCESSORS_ONLN)),
                          .date = today(arena),
                          .identity = identity(arena)};
}
