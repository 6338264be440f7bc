/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the tests of a program one after the other, each in a process of its own.
 *
 *   test_NAME [--filter PATTERN]    those whose suite/name matches, as a shell matches names of files
 *
 * With ZPLAN_TEST_TURNS=N in the environment (programs that take long: tests/CMakeLists.txt) one test in N has its turn
 * at a commit (turn.h), and another one in the build with sanitizers. Prints what failed and ends with a line of
 * counts. Exit status 0: nothing failed; 1: something did; 2: wrong words. */
#include <assert.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "criterion.h"
#include "parameterized.h"
#include "redirect.h"
#include "../turn.h"

/* What a test's process says to the one that started it, in memory that both see. */
typedef struct notes {
  int failures;
  bool skipped, ended; /* ended: with the test's last line, and not by a call of exit */
} notes;

static const double LONG_S = 0.5; /* a test that takes longer is told with its processor time */

static zpt_test *tests;
static zpt_suite *suites;
static notes *said;
static pid_t running;
static int out = STDOUT_FILENO; /* which a test may redirect */
static FILE *errors;

/* Constructors of a file run in its order: each test goes to the end. */
void zpt_add_test(zpt_test *test) {
  zpt_test **end = &tests;
  while (*end) end = &(*end)->next;
  *end = test;
}

void zpt_add_suite(zpt_suite *suite) {
  suite->next = suites;
  suites = suite;
}

static void tell(const char *format, va_list args) {
  if (*format) dprintf(out, ": ");
  vdprintf(out, format, args);
  dprintf(out, "\n");
}

void zpt_failed(bool fatal, const char *file, int line, const char *condition, const char *format, ...) {
  enum { MOST = 20 };
  va_list args;
  va_start(args, format);
  if (said->failures++ < MOST) {
    dprintf(out, "  %s:%d: %s", file, line, condition);
    tell(format, args);
  }
  va_end(args);
  if (fatal) _exit(1);
}

/* Silent, as Criterion is: a reason may hold words that CTest looks for. */
void zpt_skip(const char *format, ...) {
  (void)format;
  said->skipped = true;
  _exit(0);
}

/* ---- what a test prints ---- */

static FILE *redirect(FILE *stream, int to) {
  FILE *file = tmpfile();
  assert(file);
  fflush(stream);
  if (to == STDOUT_FILENO) out = dup(STDOUT_FILENO);
  dup2(fileno(file), to);
  return file;
}

void cr_redirect_stdout(void) { redirect(stdout, STDOUT_FILENO); }
void cr_redirect_stderr(void) { errors = redirect(stderr, STDERR_FILENO); }

FILE *cr_get_redirected_stderr(void) {
  assert(errors);
  rewind(errors);
  return errors;
}

/* ---- one test ---- */

static const zpt_suite *suite_of(const zpt_test *test) {
  static const zpt_suite none;
  for (const zpt_suite *s = suites; s; s = s->next)
    if (strcmp(s->name, test->suite) == 0) return s;
  return &none;
}

static rlim_t most_seconds(const zpt_test *test) {
  double all = suite_of(test)->options.timeout, own = test->options.timeout;
  return (rlim_t)(own > 0 ? own : all);
}

static _Noreturn void be_test(const zpt_test *test, void *param) {
  const zpt_options *all = &suite_of(test)->options, *own = &test->options;
  rlim_t most = most_seconds(test);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (most > 0) setrlimit(RLIMIT_CPU, &(struct rlimit){most, most + 1});
  signal(SIGALRM, SIG_DFL);
  if (all->init) all->init();
  if (own->init) own->init();
  test->run(param);
  if (own->fini) own->fini();
  if (all->fini) all->fini();
  said->ended = true;
  exit(0); /* where leaks are found */
}

static void end_running(int signal_number) {
  (void)signal_number;
  kill(running, SIGKILL);
}

static bool ended_as_it_must(const zpt_options *options, int status) {
  if (options->signal) return WIFSIGNALED(status) && WTERMSIG(status) == options->signal;
  return WIFEXITED(status) && WEXITSTATUS(status) == options->exit_code;
}

static const char *meaning_of(int signal_number) {
  switch (signal_number) {
  case SIGKILL:
  case SIGXCPU: return ", as one that takes too long";
  case SIGILL: return ", as by undefined behaviour: a build with -DZPLAN_UB_MESSAGES=ON says where";
  default: return "";
  }
}

static bool run_test(const zpt_test *test, void *param) {
  enum { BUSY = 10 }; /* elapsed seconds for one of processor time, on a machine that has other work */
  int status = 0;
  *said = (notes){0};
  fflush(stdout);
  running = fork();
  if (running == 0) be_test(test, param);
  assert(running > 0);
  alarm(BUSY * (unsigned)most_seconds(test));
  struct rusage use;
  while (wait4(running, &status, 0, &use) < 0) {
  } /* interrupted by the alarm */
  alarm(0);
  double seconds = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                   1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
  if (seconds >= LONG_S) printf("%s/%s: %.1f s of processor time\n", test->suite, test->name, seconds);
  bool must_end = test->options.signal || test->options.exit_code;
  bool good =
      said->failures == 0 && ended_as_it_must(&test->options, status) && (must_end || said->ended || said->skipped);
  if (good) return true;
  dprintf(out, "FAILED %s/%s: %d checks, ", test->suite, test->name, said->failures);
  if (WIFSIGNALED(status))
    dprintf(out, "ended by signal %d%s\n", WTERMSIG(status), meaning_of(WTERMSIG(status)));
  else
    dprintf(out, "exit status %d%s\n", WEXITSTATUS(status), said->ended ? "" : " before its last line");
  return false;
}

/* ---- all of them ---- */

#ifdef __SANITIZE_ADDRESS__
static const int FIRST_TURN = 1;
#else
static const int FIRST_TURN = 0;
#endif

/* At every commit one of a program's tests at least is due. */
static int tests_a_turn(void) {
  const char *given = getenv("ZPLAN_TEST_TURNS");
  int turns = given ? (int)strtol(given, NULL, 10) : 1, n = 0;
  for (const zpt_test *test = tests; test; test = test->next) n++;
  return turns < 1 ? 1 : turns < n ? turns : n;
}

int main(int argc, char **argv) {
  const char *pattern = argc == 3 && strcmp(argv[1], "--filter") == 0 ? argv[2] : "*";
  int passed = 0, failed = 0, skipped = 0, waiting = 0, at = FIRST_TURN;
  if (argc != 1 && argc != 3) {
    fprintf(stderr, "usage: %s [--filter PATTERN]\n", argv[0]);
    return 2;
  }
  said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert(said != MAP_FAILED);
  struct sigaction too_long = {.sa_handler = end_running};
  sigaction(SIGALRM, &too_long, NULL);
  const int turns = tests_a_turn();
  for (const zpt_test *test = tests; test; test = test->next, at++) {
    char name[256];
    snprintf(name, sizeof name, "%s/%s", test->suite, test->name);
    if (fnmatch(pattern, name, 0) != 0) continue;
    if (!has_turn(at, turns)) {
      waiting++;
      continue;
    }
    struct criterion_test_params params = test->params ? test->params() : (struct criterion_test_params){0, 1, NULL};
    for (size_t i = 0; i < params.length; i++) {
      bool good = run_test(test, params.params ? (char *)params.params + i * params.size : NULL);
      passed += good && !said->skipped;
      failed += !good;
      skipped += good && said->skipped;
    }
  }
  printf("%d passed, %d failed, %d skipped, %d at other turns\n", passed, failed, skipped, waiting);
  return failed > 0 || passed + skipped + waiting == 0;
}
