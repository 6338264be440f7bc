/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a trainer (through mpirun for several ranks), passes signals on to it, and says how it ended.
 *
 * mpirun explains a dead rank in a page of its own words; we read its stderr, keep the trainer's lines, and say one
 * line of our own that names the rank. Exit statuses are in driver.h. */
#include "driver.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_GRACE_S = 30 }; /* as the trainer's (runtime/comm/watch.h) */

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
  kill((pid_t)child, SIGCONT); /* who is stopped hears of nothing */
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
  if (o->resume && o->resume_from == 0) push(run, argv, "--resume");
  if (o->resume_from > 0) {
    push(run, argv, "--resume-from");
    push(run, argv, zp_format(run->arena, "%lld", (long long)o->resume_from - 1));
  }
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
  const char *const waits[][2] = {{"--wait-warn", o->wait_warn}, {"--wait-end", o->wait_end}, {"--grace", o->grace}};
  for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
    if (!waits[i][1]) continue;
    push(run, argv, waits[i][0]);
    push(run, argv, waits[i][1]);
  }
  if (o->no_checkpoint) push(run, argv, "--no-checkpoint");
  if (run->checkpoints) {
    push(run, argv, "--checkpoint");
    push(run, argv, run->checkpoints);
  }
  if (o->threads) {
    push(run, argv, "--threads");
    push(run, argv, zp_format(run->arena, "%d", o->threads));
  }
  for (int i = 0; i < o->trainer_args.len; i++) push(run, argv, o->trainer_args.data[i]);
  push(run, argv, NULL);
}

static bool launch_line(zp_run_state *run, const char *binary, int ranks, zp_strings *argv) {
  if (ranks > 1 && !zp_push_mpirun(run, argv, ranks, run->options.hostfile)) return false;
  push_trainer(run, argv, binary);
  return true;
}

/* "mpirun noticed that process rank 2 with PID 0 on node x exited on signal 9 (Killed)." -> rank, signal */
static bool parse_death(const char *line, int *rank, int *signal_number) {
  const char *r = strstr(line, "process rank "), *s = strstr(line, "exited on signal ");
  if (!r) return false;
  *rank = atoi(r + strlen("process rank "));
  if (s) *signal_number = atoi(s + strlen("exited on signal "));
  return true;
}

/* "  Remote daemon: [[28138,0],1] on node x": of mpirun's text about a daemon that it cannot reach any more.
 * Where the shell that started the daemon goes first, it knows no machine: "?". */
static bool parse_lost_host(const char *line, char *host, size_t size) {
  if (strstr(line, "unable to reliably start one or more daemons")) return snprintf(host, size, "?") > 0;
  const char *start = strstr(line, "Remote daemon:"), *node = start ? strstr(start, " on node ") : NULL;
  if (!node) return false;
  snprintf(host, size, "%s", node + strlen(" on node "));
  host[strcspn(host, " \n")] = 0;
  return true;
}

typedef struct filter {
  bool in_banner, spoke; /* inside mpirun's ruled-off text; a trainer error line was seen */
  bool spoke_banner;     /* a line of that text was shown */
  zp_buf unshown;        /* what stood there, or came of MPI itself, and was not shown */
  int dead_rank, dead_signal;
  bool failed;         /* the trainer's error is one of status 5 */
  char lost_host[256]; /* whose daemon mpirun cannot reach any more; "": none */
  zp_waits waits;
  zp_arena *arena;
  int grace_s;
  int64_t end_ms, continued_ms; /* when all that is left is killed, 0: not set; when the stopped were last continued */
} filter;

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

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
  if (f->in_banner && parse_lost_host(line, f->lost_host, sizeof f->lost_host)) return;
  if (f->in_banner) {
    if (strstr(line, "could not") || strstr(line, "unable to") || strstr(line, "not found"))
      zp_say_lines(stderr, "%s", line), f->spoke_banner = true;
    else
      zp_buf_puts(&f->unshown, line);
    return;
  }
  if (zp_waits_take(f->arena, &f->waits, line, now_ms())) return;
  if (strncmp(line, "error", 5) == 0) {
    zp_waits_show(&f->waits, now_ms(), true);
    f->spoke = true;
  }
  if (strncmp(line, "error[Z0821]", 12) == 0 || strncmp(line, "error[Z0823]", 12) == 0) f->failed = true;
  if (is_mpi_chatter(line))
    zp_buf_puts(&f->unshown, line);
  else
    zp_say_lines(stderr, "%s", line);
}

/* Who is stopped and asked to end is continued, as service managers do it. Ranks of a run that failed, or was asked a
 * second time, have the time of grace to go: mpirun waits for machines that may be out of reach. */
static void look_after(filter *f) {
  enum { EVERY_MS = 1000 };
  int64_t now = now_ms();
  zp_waits_show(&f->waits, now, f->spoke);
  if (interrupted && now - f->continued_ms >= EVERY_MS) {
    f->continued_ms = now;
    zp_continue_descendants();
  }
  if (f->end_ms == 0 && f->grace_s > 0 && (f->spoke || at_once)) f->end_ms = now + 1000 * (int64_t)f->grace_s;
  if (f->end_ms == 0 || now < f->end_ms) return;
  f->end_ms = INT64_MAX;
  if (zp_kill_descendants() > 0) zp_say_lines(stderr, "note: what was left %d s later was killed\n", f->grace_s);
}

/* Lines of the pipe until nobody has its other end, and what is due between them. */
static void read_errors(filter *f, int fd) {
  enum { ASK_EVERY_MS = 200 };
  char text[8192], line[8192];
  size_t n = 0;
  for (;;) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    int ready = poll(&one, 1, ASK_EVERY_MS);
    look_after(f);
    if (ready <= 0) continue;
    ssize_t got = read(fd, text + n, sizeof text - 1 - n);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    n += (size_t)got;
    for (char *end; (end = memchr(text, '\n', n)) || n == sizeof text - 1;) {
      size_t length = end ? (size_t)(end - text) + 1 : n;
      memcpy(line, text, length);
      line[length] = 0;
      memmove(text, text + length, n -= length);
      filter_line(f, line);
    }
  }
  text[n] = 0;
  if (n > 0) filter_line(f, text);
  zp_waits_show(&f->waits, now_ms(), true);
  close(fd);
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
  if (f->spoke || (!e->signal && f->dead_rank < 0 && !f->lost_host[0])) return;
  const char *who =
      ranks > 1 && f->dead_rank >= 0 ? zp_format(run->arena, "rank %d of %d", f->dead_rank, ranks) : "the trainer";
  const char *rest = f->dead_rank >= 0 ? "; the other ranks were stopped" : "";
  zp_diag *d;
  if (strcmp(f->lost_host, "?") == 0)
    d = zp_report(run->diags, ZP_Z0850, ZP_NO_SPAN,
                  "a machine of the hostfile cannot be reached, or not any more; no rank goes on");
  else if (f->lost_host[0])
    d = zp_report(run->diags, ZP_Z0850, ZP_NO_SPAN,
                  "the machine %s cannot be reached any more; the other ranks were stopped", f->lost_host);
  else if (e->signal)
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
  bool said = f->spoke || f->spoke_banner || e->signal || f->dead_rank >= 0 || f->lost_host[0];
  if (e->code && !said && f->unshown.len)
    zp_say_lines(stderr, "error: mpirun ended with status %d:\n%s", e->code, f->unshown.data);
  if (e->out_of_memory) return ZP_EXIT_MEMORY;
  if (f->failed || f->lost_host[0] || (f->spoke && e->signal)) return ZP_EXIT_TRAINER;
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
  zp_strings argv = {0};
  if (!launch_line(run, binary, ranks, &argv)) return ZP_EXIT_NO_TOOL;
  if (pipe(fds) != 0) return zp_usage_error("cannot make a pipe: %s", strerror(errno)), ZP_EXIT_ERROR;
  interrupted = at_once = 0;
  long long kills_before = oom_kills();
  pass_screen_width();
  setenv("ZPLAN_LAUNCHER", zp_format(run->arena, "%lld", (long long)getpid()), 1); /* checkpoint_lock.c */
  fflush(NULL);
  forward_signals();
  zp_adopt_orphans();
  pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    end_with_parent(parent);
    if (ranks > 1) dup2(fds[1], STDERR_FILENO);
    if (quiet && !freopen("/dev/null", "w", stdout)) _exit(127);
    close(fds[0]);
    close(fds[1]);
    setpgid(0, 0);
    execvp(argv.data[0], (char *const *)(void *)argv.data);
    zp_say_lines(stderr, "error[Z0704]: cannot start %s: %s\n", argv.data[0], strerror(errno));
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
  filter f = {.dead_rank = -1,
              .unshown = zp_buf_new(run->arena),
              .arena = run->arena,
              .waits = {.silent = -1},
              .grace_s = run->options.grace ? atoi(run->options.grace) : DEFAULT_GRACE_S};
  if (ranks > 1)
    read_errors(&f, fds[0]);
  else
    close(fds[0]);
  ending e = ending_of(wait_for(pid), &f, kills_before);
  zp_end_descendants();
  zp_end_mpirun();
  return exit_status(run, &e, &f, ranks);
}
