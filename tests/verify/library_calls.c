/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of libzplan for library.py.
 *
 * library_calls call VERB FILE [OPTION...]     prints the JSON; exit status: the answer's
 * library_calls together FILE FILE             two threads at once, errors between: the answers of one call alone
 * library_calls memory FILE                    every allocation of a call fails in turn; also one in many of a plan
 * library_calls host FILE                      locale, signals and folder stay the host's
 * library_calls leave FILE OPTION...           a search that is asked to leave */
#define _GNU_SOURCE
#include <errno.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zplan.h>

/* ---- allocations of this thread, where no sanitizer has its own ---- */

static _Thread_local long countdown = -1, outstanding; /* countdown 0: the next one fails, and `starved` says so */
static _Thread_local bool starved;

#ifdef __SANITIZE_ADDRESS__
enum { COUNTS = 0 };
#else
enum { COUNTS = 1 };
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static bool fails(void) {
  if (countdown < 0) return false;
  starved |= countdown == 0;
  return countdown == 0 ? true : (countdown--, false);
}

static void *counted(void *block) {
  outstanding += block != NULL;
  return block;
}

void *malloc(size_t bytes) { return fails() ? (errno = ENOMEM, NULL) : counted(__libc_malloc(bytes)); }
void *calloc(size_t n, size_t bytes) { return fails() ? (errno = ENOMEM, NULL) : counted(__libc_calloc(n, bytes)); }
void *realloc(void *old, size_t bytes) {
  if (fails()) return errno = ENOMEM, NULL;
  void *block = __libc_realloc(old, bytes);
  outstanding += block && !old;
  return block;
}
void free(void *block) {
  outstanding -= block != NULL;
  __libc_free(block);
}
#endif

static int descriptors(void) {
  int free_one = dup(0);
  close(free_one);
  return free_one;
}

static int say(bool good, const char *what) {
  printf("%s %s\n", good ? "ok" : "FAIL", what);
  return good ? 0 : 1;
}

/* ---- one call ---- */

static zplan_answer *call(const char *verb, const char *file, const char *const *options) {
  if (strcmp(verb, "parse") == 0) return zplan_parse(file, NULL, options);
  if (strcmp(verb, "plan") == 0) return zplan_plan(file, NULL, options);
  if (strcmp(verb, "verify") == 0) return zplan_verify(file, NULL, options);
  if (strcmp(verb, "report") == 0) return zplan_report(file, NULL, options);
  return zplan_call(verb, file, NULL, options);
}

static int print_call(char **words) {
  zplan_answer *answer = call(words[0], words[1], (const char *const *)(words + 2));
  int status = zplan_status(answer);
  fputs(zplan_json(answer), stdout);
  fputs(zplan_notes(answer), stderr);
  zplan_free(answer);
  return status;
}

/* ---- two at once ---- */

typedef struct job {
  const char *file;
  char *alone;
  bool same;
} job;

static char *plan_of(const char *file) {
  zplan_answer *answer = zplan_plan(file, NULL, NULL);
  char *json = zplan_status(answer) == ZPLAN_OK ? strdup(zplan_json(answer)) : NULL;
  zplan_free(answer);
  return json;
}

static bool refuses(const char *text) {
  zplan_answer *answer = zplan_plan("bad.dz", text, NULL);
  bool good = zplan_status(answer) == ZPLAN_ERROR && strstr(zplan_messages(answer), "\"file_name\": \"bad.dz\"");
  zplan_free(answer);
  return good;
}

static void *repeat(void *data) {
  job *j = data;
  j->same = true;
  for (int i = 0; i < 8; i++) {
    char *again = plan_of(j->file);
    j->same &= again && strcmp(again, j->alone) == 0 && refuses(i % 2 ? "model x { banana }" : "let a = \"");
    free(again);
  }
  return NULL;
}

static int together(char **files) {
  pthread_t threads[2];
  job jobs[2];
  for (int i = 0; i < 2; i++) jobs[i] = (job){files[i], plan_of(files[i]), false};
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, repeat, &jobs[i]);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  int bad = say(jobs[0].alone && jobs[1].alone && strcmp(jobs[0].alone, jobs[1].alone) != 0, "two plans that differ");
  bad += say(jobs[0].same && jobs[1].same, "two threads and errors change no plan");
  for (int i = 0; i < 2; i++) free(jobs[i].alone);
  return bad;
}

/* ---- no memory ---- */

typedef zplan_answer *operation(const char *path, const char *text, const char *const *options);

/* Fails the n-th allocation and all after it, n = from, from + step, ... until a call has what it needs. */
static int starve(const char *what, operation *operate, const char *file, long from, long step) {
  static const char *const options[] = {"--gpus", "4", NULL};
  bool is_plan = operate == zplan_plan, said = true, kept = true, open = true;
  long n = from, calls = 0;
  for (;; n += step, calls++) {
    long before = outstanding;
    int files = descriptors();
    countdown = n;
    starved = false;
    zplan_answer *answer = operate(file, NULL, is_plan ? options : NULL);
    bool enough = !starved;
    countdown = -1;
    if (!enough) said &= zplan_status(answer) == ZPLAN_ERROR && strstr(zplan_messages(answer), "memory");
    if (!enough && !strstr(zplan_messages(answer), "memory")) printf("allocation %ld: %.60s\n", n, zplan_json(answer));
    zplan_free(answer);
    if (outstanding != before) printf("allocation %ld: %ld are not given back\n", n, outstanding - before);
    kept &= outstanding == before;
    open &= descriptors() == files;
    if (enough) break;
  }
  printf("%s: %ld calls without memory\n", what, calls);
  return say(calls > 3, what) + say(said, "each says so") + say(kept, "each gives all memory back") +
         say(open, "each closes what it has opened");
}

static int without_memory(const char *file) {
  if (!COUNTS) return 0;
  zplan_free(zplan_plan(file, NULL, NULL)); /* what the C library keeps */
  return starve("every allocation of parse", zplan_parse, file, 0, 1) +
         starve("one in 23 of plan", zplan_plan, file, 5, 23);
}

/* ---- the host ---- */

static void handler(int number) { (void)number; }

/* A locale with a comma in numbers; the process's name of it, or NULL where the machine has none. */
static const char *comma_locale(void) {
  static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (setlocale(LC_ALL, names[i])) return names[i];
  return NULL;
}

static int as_host(const char *file) {
  static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ, SIGABRT};
  enum { N = sizeof numbers / sizeof *numbers };
  char before[4096], after[4096];
  char *alone = plan_of(file);
  const char *locale = comma_locale();
  for (int i = 0; i < N; i++) signal(numbers[i], i % 2 ? SIG_DFL : handler);
  bool good = getcwd(before, sizeof before) != NULL;
  char *again = plan_of(file);
  int bad = say(again && strcmp(alone, again) == 0,
                locale ? "numbers in a locale with commas" : "numbers (no locale with commas here)");
  for (int i = 0; i < N; i++) {
    struct sigaction now;
    sigaction(numbers[i], NULL, &now);
    good &= now.sa_handler == (i % 2 ? SIG_DFL : handler);
  }
  good &= getcwd(after, sizeof after) && strcmp(before, after) == 0;
  good &= !locale || strcmp(setlocale(LC_ALL, NULL), locale) == 0;
  free(alone);
  free(again);
  return bad + say(good, "signals, folder and locale are the host's");
}

static int leaves(char **words) {
  volatile int flag = 1;
  zplan_leave(&flag);
  zplan_answer *asked = zplan_plan(words[0], NULL, (const char *const *)(words + 1));
  flag = 0;
  zplan_answer *whole = zplan_plan(words[0], NULL, (const char *const *)(words + 1));
  zplan_leave(NULL);
  int bad = say(zplan_status(asked) == ZPLAN_INTERRUPTED, "a search that is asked to leave says so");
  bad += say(zplan_status(whole) == ZPLAN_OK, "one that is not goes on");
  zplan_free(asked);
  zplan_free(whole);
  return bad;
}

int main(int argc, char **argv) {
  const char *what = argc > 2 ? argv[1] : "";
  if (argc > 3 && strcmp(what, "call") == 0) return print_call(argv + 2);
  if (argc == 4 && strcmp(what, "together") == 0) return together(argv + 2);
  if (argc == 3 && strcmp(what, "memory") == 0) return without_memory(argv[2]);
  if (argc == 3 && strcmp(what, "host") == 0) return as_host(argv[2]);
  if (argc > 2 && strcmp(what, "leave") == 0) return leaves(argv + 2);
  fprintf(stderr, "see library_calls.c\n");
  return 2;
}
