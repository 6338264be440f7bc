/* Starts a trainer (through mpirun for several ranks), passes signals on to it, and says how it ended.
 *
 * mpirun explains a dead rank in a page of its own words; we read its stderr, keep the trainer's lines, and say one
 * line of our own that names the rank. Exit statuses are in driver.h. */
#include "driver.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t child, child_is_mpirun, interrupted; /* interrupted: by which signal */
static volatile sig_atomic_t at_once;                             /* mpirun was told to kill its ranks */

/* A trainer that is interrupted ends its step and publishes a checkpoint; a closed terminal (SIGHUP) is the same to it
 * as SIGTERM. mpirun would kill its ranks instead; the one signal that it hands on to them is SIGUSR1, which means the
 * same, but is no failure: batch systems send it before the time is up. Asked a second time, it is over at once. */
static void forward_signal(int signal_number) {
  bool again = interrupted != 0;
  interrupted = signal_number;
  if (child <= 0) return; /* it is told when it has started */
  int theirs = signal_number == SIGHUP ? SIGTERM : signal_number;
  at_once = child_is_mpirun && again;
  kill((pid_t)child, !child_is_mpirun ? theirs : again ? SIGTERM : SIGUSR1);
}

/* What the trainer says after a signal counts, so reading goes on. `nohup` stays in force. */
static void forward_signals(void) {
  static const int handled[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
  struct sigaction forward = {.sa_handler = forward_signal, .sa_flags = SA_RESTART}, before;
  for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
    if (sigaction(handled[i], NULL, &before) == 0 && (handled[i] != SIGHUP || before.sa_handler != SIG_IGN))
      sigaction(handled[i], &forward, NULL);
}

/* In the child: a command that is killed, or whose reader has gone away, leaves no training behind. */
static void end_with_parent(pid_t parent) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGTERM);
#endif
  if (getppid() != parent) _exit(ZP_EXIT_TRAINER); /* it is gone already */
}

static void push(zp_run_state *run, zp_strings *argv, const char *word) { zp_push(run->arena, argv, word); }

static void push_trainer(zp_run_state *run, zp_strings *argv, const char *binary) {
  const zp_options *o = &run->options;
  push(run, argv, strchr(binary, '/') ? binary : zp_format(run->arena, "./%s", binary));
  if (o->steps >= 0) {
    push(run, argv, "--steps");
    push(run, argv, zp_format(run->arena, "%lld", (long long)o->steps));
  }
  if (run->weights_path) {
    push(run, argv, "--init");
    push(run, argv, run->weights_path);
  }
  if (o->resume) push(run, argv, "--resume");
  if (o->accept_changes) push(run, argv, "--accept-changes");
  if (o->overwrite) push(run, argv, "--overwrite");
  if (o->check_memory) push(run, argv, "--check-memory");
  if (o->sync) push(run, argv, "--sync");
  if (o->profile) push(run, argv, "--profile");
  if (o->profile_steps) {
    push(run, argv, "--profile-steps");
    push(run, argv, o->profile_steps);
  }
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

static zp_strings launch_line(zp_run_state *run, const char *binary, int ranks) {
  zp_strings argv = {0};
  if (ranks > 1) zp_push_mpirun(run->arena, &argv, ranks, run->options.hostfile);
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
  bool spoke_banner;     /* a line of that text was shown */
  zp_buf unshown;        /* what stood there, or came of MPI itself, and was not shown */
  int dead_rank, dead_signal;
} filter;

/* "[host:1234] *** Process received signal ***": what Open MPI's own handlers print about a rank that crashed. */
static bool is_mpi_chatter(const char *line) {
  const char *end = line[0] == '[' ? strchr(line, ']') : NULL;
  const char *colon = end ? memchr(line, ':', (size_t)(end - line)) : NULL;
  return (colon && isdigit((unsigned char)colon[1])) || strstr(line, "PMIX ERROR") ||
         strstr(line, "MPI_ABORT was invoked") || strstr(line, ": Forwarding signal ") ||
         strncmp(line, "[hwloc/", 7) == 0;
}

static void filter_line(filter *f, const char *line) {
  if (strncmp(line, "-----------------", 17) == 0) {
    f->in_banner = !f->in_banner;
    return;
  }
  if (parse_death(line, &f->dead_rank, &f->dead_signal)) return;
  if (f->in_banner) {
    if (strstr(line, "could not") || strstr(line, "unable to") || strstr(line, "not found"))
      fputs(line, stderr), f->spoke_banner = true;
    else
      zp_buf_puts(&f->unshown, line);
    return;
  }
  if (strncmp(line, "error", 5) == 0) f->spoke = true;
  if (is_mpi_chatter(line))
    zp_buf_puts(&f->unshown, line);
  else
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

/* Processes that the kernel has ended since it started because memory ran out; 0 where it does not say. */
static long long oom_kills(void) {
  FILE *f = fopen("/proc/vmstat", "r");
  char line[128];
  long long kills = 0;
  while (f && fgets(line, sizeof line, f))
    if (sscanf(line, "oom_kill %lld", &kills) == 1) break;
  if (f) fclose(f);
  return kills;
}

/* How the trainer came to its end. */
typedef struct ending {
  int code;   /* exit status of the trainer, or of mpirun */
  int signal; /* that a rank died of; 0: none */
  bool out_of_memory;
} ending;

static ending ending_of(int status, const filter *f, long long kills_before) {
  ending e = {.signal = f->dead_signal};
  if (WIFSIGNALED(status)) e.signal = e.signal ? e.signal : WTERMSIG(status);
  if (WIFEXITED(status)) e.code = WEXITSTATUS(status);
  e.out_of_memory = e.signal == SIGKILL && oom_kills() > kills_before;
  return e;
}

/* The trainer's own message, when there was one, is enough. */
static void report_death(zp_run_state *run, const ending *e, const filter *f, int ranks) {
  if (f->spoke || (!e->signal && f->dead_rank < 0)) return;
  const char *who =
      ranks > 1 && f->dead_rank >= 0 ? zp_format(run->arena, "rank %d of %d", f->dead_rank, ranks) : "the trainer";
  const char *rest = f->dead_rank >= 0 ? "; the other ranks were stopped" : "";
  zp_diag *d;
  if (e->signal)
    d = zp_report(run->diags, ZP_Z0850, ZP_NO_SPAN, "%s died of signal %d (%s)%s", who, e->signal, strsignal(e->signal),
                  rest);
  else
    d = zp_report(run->diags, ZP_Z0850, ZP_NO_SPAN, "%s ended early%s", who, rest);
  if (e->out_of_memory)
    zp_diag_note(d,
                 "the kernel ended a process meanwhile because memory ran out: --device-memory makes the plan smaller");
  zp_flush_diags(run);
}

/* What a trainer says itself (rt.h) is passed on. */
static int known_status(int code) {
  static const int known[] = {ZP_EXIT_OK,      ZP_EXIT_ERROR, ZP_EXIT_USAGE, ZP_EXIT_MEMORY,
                              ZP_EXIT_NO_TOOL, 128 + SIGINT,  128 + SIGTERM};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i] == code) return code;
  return ZP_EXIT_TRAINER;
}

/* Is it the end that was asked for? A rank that has not begun to train dies of the signal that says so. */
static bool ended_as_asked(const ending *e) {
  int signal_number = e->signal ? e->signal : e->code > 128 ? e->code - 128 : 0;
  switch (signal_number) {
  case 0: return e->code == 0 || at_once;
  case SIGINT:
  case SIGTERM:
  case SIGHUP:
  case SIGUSR1: return true;
  case SIGKILL: return at_once;
  default: return false;
  }
}

/* Asked to end, it ends with a checkpoint; that it could not publish one is worse than the interruption. */
static int exit_status(zp_run_state *run, const ending *e, const filter *f, int ranks) {
  if (interrupted && interrupted != SIGUSR1 && !f->spoke && ended_as_asked(e)) return 128 + interrupted;
  report_death(run, e, f, ranks);
  bool said = f->spoke || f->spoke_banner || e->signal || f->dead_rank >= 0;
  if (e->code && !said && f->unshown.len)
    fprintf(stderr, "error: mpirun ended with status %d:\n%s", e->code, f->unshown.data);
  if (e->out_of_memory) return ZP_EXIT_MEMORY;
  return e->signal && !f->spoke ? 128 + e->signal : known_status(e->code);
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
  int fds[2];
  if (pipe(fds) != 0) return zp_usage_error("cannot make a pipe: %s", strerror(errno)), ZP_EXIT_ERROR;
  zp_strings argv = launch_line(run, binary, ranks);
  interrupted = at_once = 0;
  long long kills_before = oom_kills();
  pass_screen_width();
  fflush(NULL);
  forward_signals();
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    end_with_parent(parent);
    if (ranks > 1) dup2(fds[1], STDERR_FILENO);
    if (quiet && !freopen("/dev/null", "w", stdout)) _exit(127);
    close(fds[0]);
    close(fds[1]);
    setpgid(0, 0);
    execvp(argv.data[0], (char *const *)(void *)argv.data);
    fprintf(stderr, "error[Z0704]: cannot start %s: %s\n", argv.data[0], strerror(errno));
    _exit(ZP_EXIT_NO_TOOL);
  }
  close(fds[1]);
  if (pid < 0) return zp_usage_error("cannot start a process: %s", strerror(errno)), ZP_EXIT_ERROR;
  child_is_mpirun = ranks > 1;
  child = (sig_atomic_t)pid;
  if (interrupted) { /* before it could be told */
    at_once = child_is_mpirun;
    kill(pid, SIGTERM);
  }
  filter f = {.dead_rank = -1, .unshown = zp_buf_new(run->arena)};
  if (ranks > 1)
    read_errors(&f, fds[0]);
  else
    close(fds[0]);
  ending e = ending_of(wait_for(pid), &f, kills_before);
  zp_end_mpirun();
  return exit_status(run, &e, &f, ranks);
}
