/* SPDX-License-Identifier: Apache-2.0 */
/* The unit tests of device kernels (tests/unit/test_kernels_cuda*.c, test_rowprog_cuda.c) on a GPU: kernels against
 * naive f64 computations, the kernels of CPU ranks and the interpreter of row programs. The files are those of the unit
 * tests; support/criterion/criterion.h stands for their library, objects.c and gpu.c for the emulator.
 *
 *   check_kernels --images DIR [--only TEXT]... [--without TEXT]... [--emulated LIBRARY]
 *                 runs the tests whose name holds one of the texts, and none of those without
 *   check_kernels --collect DIR [--only TEXT]... [--without TEXT]...
 *                 writes the texts of their kernels, for compilers
 *   check_kernels --machine [--emulated LIBRARY]
 *                 says which GPU, driver and libraries there are
 *
 * Every test is a process, so that a fault of one leaves the others a GPU. Ends with `N passed, N failed`; exit status
 * 0: nothing failed, 1: something did, 2: wrong words. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "gpu.h"

enum { SKIPPED = 77, MOST_TEXTS = 64, PATIENCE_S = 300 };

gpu_setup gpu;
static zpt_test *tests;
static zpt_suite *suites;
static const zpt_test *current;
static int failures;

/* Constructors of a program run in the order of its objects: each goes to the end. */
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
  vprintf(format, args);
  printf("\n");
  fflush(stdout);
}

void zpt_failed(bool fatal, const char *file, int line, const char *condition, const char *format, ...) {
  enum { MOST = 5 };
  if (gpu.collect) return;
  va_list args;
  va_start(args, format);
  if (failures < MOST) {
    printf("  %s:%d: %s%s", file, line, condition, *format ? ": " : "");
    tell(format, args);
  }
  va_end(args);
  failures++;
  if (fatal) _exit(1);
}

void zpt_skip(const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (!gpu.collect) {
    printf("  ");
    tell(format, args);
  }
  va_end(args);
  _exit(SKIPPED);
}

/* ---- one test ---- */

static const zpt_suite *suite_of(const zpt_test *test) {
  for (const zpt_suite *s = suites; s; s = s->next)
    if (strcmp(s->name, test->suite) == 0) return s;
  return NULL;
}

static void run_current(void) {
  const zpt_suite *suite = suite_of(current);
  if (suite && suite->options.init) suite->options.init();
  current->run(NULL);
  if (suite && suite->options.fini) suite->options.fini();
}

static _Noreturn void be_test(const zpt_test *test) {
  current = test;
  alarm(PATIENCE_S);
  gpu_open();
  gpu_run_on_shared_stack(run_current);
  fflush(stdout);
  _exit(failures > 0);
}

typedef struct counts {
  int passed, failed, skipped;
} counts;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void run_test(const zpt_test *test, counts *c) {
  double begin = now();
  int status = 0;
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) be_test(test);
  if (child < 0 || waitpid(child, &status, 0) != child) status = -1;
  bool passed = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  bool skipped = WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED;
  c->passed += passed;
  c->skipped += skipped;
  c->failed += !passed && !skipped;
  printf("%s %s.%s, %.1f s",
         passed    ? "passed"
         : skipped ? "skipped"
                   : "FAILED",
         test->suite, test->name, now() - begin);
  if (WIFSIGNALED(status))
    printf(", ended by signal %d%s", WTERMSIG(status), WTERMSIG(status) == 14 ? " (too slow)" : "");
  printf("\n");
}

/* ---- all of them ---- */

typedef struct texts {
  const char *text[MOST_TEXTS];
  int n;
} texts;

static bool holds_one(const zpt_test *test, const texts *t) {
  char name[160];
  snprintf(name, sizeof name, "%s.%s", test->suite, test->name);
  for (int i = 0; i < t->n; i++)
    if (strstr(name, t->text[i])) return true;
  return false;
}

static bool is_wanted(const zpt_test *test, const texts *only, const texts *without) {
  return (only->n == 0 || holds_one(test, only)) && !holds_one(test, without);
}

static int usage(void) {
  fprintf(stderr, "usage: check_kernels --images DIR [--only TEXT]... [--without TEXT]... [--emulated LIBRARY]\n"
                  "       check_kernels --collect DIR [--only TEXT]... [--without TEXT]...\n"
                  "       check_kernels --machine [--emulated LIBRARY]\n");
  return 2;
}

/* One option and its value; false: there is no such option. */
static bool take_option(const char *name, const char *value, texts *only, texts *without) {
  texts *list = strcmp(name, "--only") == 0 ? only : strcmp(name, "--without") == 0 ? without : NULL;
  if (list) {
    if (list->n < MOST_TEXTS) list->text[list->n++] = value;
    return list->n < MOST_TEXTS;
  }
  gpu.collect |= strcmp(name, "--collect") == 0;
  if (strcmp(name, "--images") == 0 || strcmp(name, "--collect") == 0)
    gpu.images = value;
  else if (strcmp(name, "--emulated") == 0)
    gpu.emulated = value;
  else
    return false;
  return true;
}

int main(int argc, char **argv) {
  static texts only, without;
  bool machine = false;
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--machine") == 0)
      machine = true;
    else if (i + 1 == argc || !take_option(argv[i], argv[i + 1], &only, &without))
      return usage();
    else
      i++;
  if (machine) {
    gpu_describe();
    return 0;
  }
  if (!gpu.images) return usage();
  counts c = {0};
  for (const zpt_test *test = tests; test; test = test->next)
    if (is_wanted(test, &only, &without)) run_test(test, &c);
  printf("%d skipped\n%d passed, %d failed\n", c.skipped, c.passed, c.failed);
  return c.failed > 0 || c.passed == 0;
}
