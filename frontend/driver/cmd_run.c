/* zplan run: builds if stale, starts the trainer (through mpirun for several ranks) and passes its exit on.
 *
 * mpirun explains a dead rank in a page of its own words; we read its stderr, keep the trainer's lines, and say one
 * line of our own that names the rank. */
#include "driver.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t child, child_is_mpirun, interrupted; /* interrupted: by which signal */

/* A trainer that is interrupted ends its step and publishes a checkpoint. mpirun would kill its ranks instead; the one
 * signal that it hands on to them is SIGUSR1, which means the same. Asked a second time, it is over at once. */
static void forward_signal(int signal_number) {
  if (child <= 0) return;
  bool again = interrupted != 0;
  interrupted = signal_number;
  kill((pid_t)child, !child_is_mpirun ? signal_number : again ? SIGTERM : SIGUSR1);
}

static void push(zp_run_state *run, zp_strings *argv, const char *word) { zp_push(run->arena, argv, word); }

static void push_trainer(zp_run_state *run, zp_strings *argv, const char *binary) {
  const zp_options *o = &run->options;
  push(run, argv, strchr(binary, '/') ? binary : zp_format(run->arena, "./%s", binary));
  if (o->steps >= 0) {
    push(run, argv, "--steps");
    push(run, argv, zp_format(run->arena, "%lld", (long long)o->steps));
  }
  if (o->resume) push(run, argv, "--resume");
  if (o->check_memory) push(run, argv, "--check-memory");
  if (!isatty(STDOUT_FILENO)) push(run, argv, "--no-progress"); /* behind mpirun the trainer cannot see that */
  if (o->log) {
    push(run, argv, "--log");
    push(run, argv, o->log);
  }
  if (o->threads) {
    push(run, argv, "--threads");
    push(run, argv, zp_format(run->arena, "%d", o->threads));
  }
  for (int i = 0; i < o->trainer_args.len; i++) push(run, argv, o->trainer_args.data[i]);
  push(run, argv, NULL);
}

/* Ranks share cores: blocked ranks must yield (mpi_yield_when_idle), and no rank is bound to a core. */
static zp_strings launch_line(zp_run_state *run, const char *binary, int ranks) {
  zp_strings argv = {0};
  if (ranks > 1) {
    push(run, &argv, "mpirun.openmpi");
    if (geteuid() == 0) push(run, &argv, "--allow-run-as-root");
    const char *fixed[] = {"--oversubscribe",
                           "--bind-to",
                           "none",
                           "--mca",
                           "mpi_yield_when_idle",
                           "1",
                           "--mca",
                           "btl_base_warn_component_unused",
                           "0",
                           "-n"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) push(run, &argv, fixed[i]);
    push(run, &argv, zp_format(run->arena, "%d", ranks));
    if (run->options.hostfile) {
      push(run, &argv, "--hostfile");
      push(run, &argv, run->options.hostfile);
    }
  }
  push_trainer(run, &argv, binary);
  return argv;
}

/* "mpirun noticed that process rank 2 with PID 0 on node x exited on signal 9 (Killed)." -> rank, signal */
static bool parse_death(const char *line, int *rank, int *signal_number) {
  const char *r = strstr(line, "process rank "), *s = strstr(line, "exited on signal ");
  if (!r) return false;
  *rank = atoi(r + strlen("process rank "));
  if (s) *signal_number = atoi(s + strlen("exited on signal "));
  return true;
}

typedef struct filter {
  bool in_banner, spoke; /* inside mpirun's ruled-off text; a trainer error line was seen */
  int dead_rank, dead_signal;
} filter;

/* "[host:1234] *** Process received signal ***": what Open MPI's own handlers print about a rank that crashed. */
static bool is_mpi_chatter(const char *line) {
  const char *end = line[0] == '[' ? strchr(line, ']') : NULL;
  const char *colon = end ? memchr(line, ':', (size_t)(end - line)) : NULL;
  return (colon && isdigit((unsigned char)colon[1])) || strstr(line, "PMIX ERROR") ||
         strstr(line, "MPI_ABORT was invoked") || strncmp(line, "[hwloc/", 7) == 0;
}

static void filter_line(filter *f, const char *line) {
  if (strncmp(line, "-----------------", 17) == 0) {
    f->in_banner = !f->in_banner;
    return;
  }
  if (parse_death(line, &f->dead_rank, &f->dead_signal)) return;
  if (f->in_banner) {
    if (strstr(line, "could not") || strstr(line, "unable to") || strstr(line, "not found")) fputs(line, stderr);
    return;
  }
  if (strncmp(line, "error", 5) == 0) f->spoke = true;
  if (is_mpi_chatter(line)) return;
  fputs(line, stderr);
}

static void read_errors(filter *f, int fd) {
  FILE *in = fdopen(fd, "r");
  char line[8192];
  while (in && fgets(line, sizeof line, in)) filter_line(f, line);
  if (in) fclose(in);
}

static int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/* The trainer's own message, when there was one, is enough. */
static void report_death(zp_run_state *run, int status, const filter *f, int ranks) {
  if (f->spoke) return;
  if (f->dead_rank >= 0 && f->dead_signal)
    zp_report(run->diags, ZP_Z0850, ZP_NO_SPAN, "rank %d of %d died of signal %d (%s); the other ranks were stopped",
              f->dead_rank, ranks, f->dead_signal, strsignal(f->dead_signal));
  else if (f->dead_rank >= 0)
    zp_report(run->diags, ZP_Z0850, ZP_NO_SPAN, "rank %d of %d ended early; the other ranks were stopped", f->dead_rank,
              ranks);
  else if (WIFSIGNALED(status))
    zp_report(run->diags, ZP_Z0850, ZP_NO_SPAN, "the trainer died of signal %d (%s)", WTERMSIG(status),
              strsignal(WTERMSIG(status)));
  zp_flush_diags(run);
}

static int exit_status(zp_run_state *run, int status, const filter *f, int ranks) {
  if (interrupted) return 128 + interrupted; /* it ended because it was asked to */
  report_death(run, status, f, ranks);
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return code == 0 || code == 130 || code == 143 ? code : ZP_EXIT_TRAINER;
}

/* mpirun gives rank 0 a terminal without a size. */
static void pass_screen_width(void) {
  struct winsize size = {0};
  char columns[16];
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return;
  snprintf(columns, sizeof columns, "%d", size.ws_col);
  setenv("COLUMNS", columns, 1);
}

int zp_launch_trainer(zp_run_state *run, const char *binary, int ranks, bool quiet) {
  zp_strings argv = launch_line(run, binary, ranks);
  int fds[2];
  if (pipe(fds) != 0) return zp_usage_error("cannot make a pipe: %s", strerror(errno)), ZP_EXIT_ERROR;
  pass_screen_width();
  fflush(NULL);
  struct sigaction forward = {.sa_handler = forward_signal};
  sigaction(SIGINT, &forward, NULL);
  sigaction(SIGTERM, &forward, NULL);
  pid_t pid = fork();
  if (pid == 0) {
    if (ranks > 1) dup2(fds[1], STDERR_FILENO);
    if (quiet && !freopen("/dev/null", "w", stdout)) _exit(127);
    close(fds[0]);
    close(fds[1]);
    setpgid(0, 0);
    execvp(argv.data[0], (char *const *)(void *)argv.data);
    fprintf(stderr, "error[Z0704]: cannot start %s: %s\n", argv.data[0], strerror(errno));
    _exit(127);
  }
  close(fds[1]);
  if (pid < 0) return zp_usage_error("cannot start a process: %s", strerror(errno)), ZP_EXIT_ERROR;
  child_is_mpirun = ranks > 1;
  child = (sig_atomic_t)pid;
  filter f = {.dead_rank = -1};
  if (ranks > 1)
    read_errors(&f, fds[0]);
  else
    close(fds[0]);
  return exit_status(run, wait_for(pid), &f, ranks);
}

int zp_cmd_run(zp_run_state *run) {
  zp_plan *plan = zp_obtain_plan(run, 1);
  if (!plan) return run->options.files.len == 1 ? ZP_EXIT_ERROR : ZP_EXIT_USAGE;
  if (!plan->feasible) {
    fputs(zp_report_infeasible(run->arena, plan), stderr);
    return ZP_EXIT_INFEASIBLE;
  }
  if (!zp_can_generate(run, plan->spec)) return ZP_EXIT_ERROR;
  const zp_choice *c = &plan->best.choice;
  const char *expert = zp_expert_ranks(c) > 1 ? zp_format(run->arena, " (expert %d)", c->expert) : "";
  fprintf(stderr,
          "plan: tensor %d x pipeline %d x data %d%s, zero %d, micro-batch %lld, recompute %s; estimated step %s\n",
          c->tensor, c->pipeline, c->data, expert, c->zero, (long long)c->microbatch, zp_report_recompute(run->arena, c),
          zp_show_seconds(run->arena, plan->best.estimate.step_s));
  zp_toolchain tools = zp_find_toolchain(run->arena);
  const char *error = NULL, *binary = zp_trainer_build(run->arena, plan, run->diags, &tools, zp_tree_dir(run), &error);
  if (!binary) {
    zp_report(run->diags, ZP_Z0703, ZP_NO_SPAN, "cannot build the trainer: %s", error);
    zp_flush_diags(run);
    return ZP_EXIT_ERROR;
  }
  return zp_launch_trainer(run, binary, c->tensor * c->pipeline * c->data, false);
}
