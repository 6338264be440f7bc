/* SPDX-License-Identifier: Apache-2.0 */
/* Gives damaged files and command lines to the zplan command, whose code is linked in, one process forked for each.
 * Whatever they hold, the command must end by itself within its limits of time and memory, with a documented status,
 * and say what is wrong.
 *
 *   fuzz_inputs SEED SECONDS FINDINGS NAME WORD... -- SEEDFILE...
 *
 * WORD... is the command line; the word @ becomes the path of the damaged file. Without @ the words themselves are
 * damaged: the seed files then hold one command line each, words apart by blanks, and @1, @2, ... in them are the words
 * before `--`. FINDINGS: a folder, in which an input that fails is kept. Prints one line a finding and at the end `N
 * runs, N findings`; status 1 if there is any.
 *
 * Built with sanitizers (preset dev) it sees more. With clang's libFuzzer: libfuzzer.sh. */
#define _GNU_SOURCE
#include "mutate.h"

#include <errno.h>
#include <stdbool.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zplan/shown.h>

int zplan_main(int argc, char **argv);

/* An input may be this long; a run may take so much of the processor, and write so large a file. */
enum {
  MOST_BYTES = 1 << 20,
  MOST_SEEDS = 64,
  MOST_WORDS = 64,
  MOST_CPU_S = 30,
  MOST_FILE = 64 << 20,
  SAID_BYTES = 1 << 16
};
/* Resident memory of a run. AddressSanitizer reserves terabytes of addresses, so that these cannot be limited. */
#define MOST_RSS_MB "3000"

const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "detect_leaks=0:exitcode=99:hard_rss_limit_mb=" MOST_RSS_MB ":allocator_may_return_null=0:handle_abort=1";
}

#if defined(__SANITIZE_ADDRESS__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

typedef struct campaign {
  const char *name, *findings;
  char *input;  /* path of the damaged file */
  char **words; /* the command line */
  int n_words;
  bool damages_words;
  fuzz_text seeds[MOST_SEEDS];
  int n_seeds;
  fuzz_random random;
  uint64_t first_seed;
  int said; /* what the run says on stderr */
  long runs, found;
} campaign;

static void fail(const char *what) {
  fprintf(stderr, "fuzz_inputs: %s: %s\n", what, strerror(errno));
  exit(2);
}

static fuzz_text read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) fail(path);
  fuzz_text text = {malloc(MOST_BYTES), 0};
  if (!text.data) fail(path);
  text.len = fread(text.data, 1, MOST_BYTES, file);
  fclose(file);
  return text;
}

static void write_file(const char *path, const fuzz_text *text) {
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(text->data, 1, text->len, file) != text->len || fclose(file) != 0) fail(path);
}

/* ---- one run ---- */

static void limit(int what, rlim_t most) {
  struct rlimit r = {most, most};
  if (setrlimit(what, &r) != 0) fail("setrlimit");
}

static void run_child(const campaign *c, int argc, char **argv) {
  int null = open("/dev/null", O_RDWR);
  dup2(null, 0);
  dup2(null, 1);
  dup2(c->said, 2);
  limit(RLIMIT_CPU, MOST_CPU_S);
  limit(RLIMIT_FSIZE, MOST_FILE);
  limit(RLIMIT_CORE, 0);
  if (!SANITIZED) limit(RLIMIT_AS, (rlim_t)4 << 30);
  int status = zplan_main(argc, argv);
  fflush(NULL);
  _exit(status);
}

/* Is something in it that a terminal obeys, or no UTF-8? */
static bool has_controls(const char *said) {
  const unsigned char *c = (const unsigned char *)said;
  for (size_t left = strlen(said); left > 0;) {
    size_t len = zp_character_length(c, left);
    if (len == 0) return left >= 4; /* what was kept of it may end inside a character */
    if (*c != '\n' && *c != '\t' && zp_is_control(zp_character_number(c, len))) return true;
    c += len;
    left -= len;
  }
  return false;
}

/* What is wrong with how a run ended; NULL: nothing. */
static const char *judge(int status, const char *said) {
  static char words[64];
  if (strstr(said, "runtime error:") || strstr(said, "Sanitizer")) return "sanitizer";
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU) return "time";
  if (WIFSIGNALED(status)) return snprintf(words, sizeof words, "signal %d", WTERMSIG(status)), words;
  int code = WEXITSTATUS(status);
  if (code > 4) return snprintf(words, sizeof words, "status %d", code), words;
  if (has_controls(said)) return "controls";
  bool told = strstr(said, "error") || strstr(said, "zplan: ") || (code != 1 && code != 2); /* 3 and 4 print results */
  return told ? NULL : "says nothing";
}

static const char *run_once(campaign *c, int argc, char **argv, char *said) {
  if (ftruncate(c->said, 0) != 0 || lseek(c->said, 0, SEEK_SET) != 0) fail("memfd");
  pid_t child = fork();
  if (child < 0) fail("fork");
  if (child == 0) run_child(c, argc, argv);
  int status;
  if (waitpid(child, &status, 0) != child) fail("waitpid");
  ssize_t n = pread(c->said, said, SAID_BYTES - 1, 0);
  said[n > 0 ? n : 0] = '\0';
  c->runs++;
  return judge(status, said);
}

/* ---- files ---- */

static const char *try_file(campaign *c, const fuzz_text *damaged, char *said) {
  char *argv[MOST_WORDS + 1];
  int argc = 0;
  argv[argc++] = (char *)"zplan";
  for (int i = 0; i < c->n_words; i++) argv[argc++] = strcmp(c->words[i], "@") == 0 ? c->input : c->words[i];
  argv[argc] = NULL;
  write_file(c->input, damaged);
  return run_once(c, argc, argv, said);
}

/* ---- command lines ---- */

static char *word_of(const campaign *c, char *word) {
  int i = word[0] == '@' ? atoi(word + 1) : 0;
  return i >= 1 && i <= c->n_words ? c->words[i - 1] : word;
}

/* Words that would write somewhere else, or start other programs for long, are not tried. */
static bool is_harmless(const char *word) {
  static const char *const verbs[] = {"run", "bench", "calibrate", "build"};
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
    if (strcmp(word, verbs[i]) == 0) return false;
  return !strstr(word, "..") && word[0] != '/';
}

static const char *try_words(campaign *c, const fuzz_text *damaged, char *said) {
  static char line[MOST_BYTES + 1];
  memcpy(line, damaged->data, damaged->len);
  line[damaged->len] = '\0';
  char *argv[MOST_WORDS + 1];
  int argc = 0;
  argv[argc++] = (char *)"zplan";
  for (char *word = strtok(line, " "); word && argc < MOST_WORDS; word = strtok(NULL, " ")) {
    char *known = word_of(c, word);
    if (known == word && !is_harmless(word)) return NULL;
    argv[argc++] = known;
  }
  argv[argc] = NULL;
  return run_once(c, argc, argv, said);
}

/* ---- the campaign ---- */

static void keep(campaign *c, const fuzz_text *damaged, const char *what, const char *said) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s-%llu-%ld", c->findings, c->name, (unsigned long long)c->first_seed, c->runs);
  write_file(path, damaged);
  const char *line = strstr(said, "runtime error:");
  if (!line) line = strstr(said, "ERROR: ");
  printf("FAIL %s: %s: %s: %.*s\n", c->name, what, path, line ? (int)strcspn(line, "\n") : 0, line ? line : "");
  fflush(stdout);
  c->found++;
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_for(campaign *c, double seconds) {
  static char said[SAID_BYTES];
  enum { ENOUGH = 20 };
  double end = now_s() + seconds;
  while (now_s() < end && c->found < ENOUGH) {
    const fuzz_text *text = &c->seeds[fuzz_below(&c->random, (size_t)c->n_seeds)];
    const fuzz_text *other = &c->seeds[fuzz_below(&c->random, (size_t)c->n_seeds)];
    fuzz_text damaged = fuzz_damage(&c->random, text, other, MOST_BYTES);
    const char *what = c->damages_words ? try_words(c, &damaged, said) : try_file(c, &damaged, said);
    if (what) keep(c, &damaged, what, said);
    free(damaged.data);
  }
}

int main(int argc, char **argv) {
  campaign c = {.damages_words = true};
  int i = 5;
  if (argc < 7) {
    fprintf(stderr, "usage: fuzz_inputs SEED SECONDS FINDINGS NAME WORD... -- SEEDFILE...\n");
    return 2;
  }
  c.first_seed = c.random.state = strtoull(argv[1], NULL, 10);
  c.findings = argv[3];
  c.name = argv[4];
  c.words = argv + 5;
  for (; i < argc && strcmp(argv[i], "--") != 0; i++) c.damages_words &= strcmp(argv[i], "@") != 0;
  c.n_words = i - 5;
  for (i++; i < argc && c.n_seeds < MOST_SEEDS; i++) c.seeds[c.n_seeds++] = read_file(argv[i]);
  if (c.n_seeds == 0 || c.n_words + 2 > MOST_WORDS) {
    fprintf(stderr, "fuzz_inputs: no seed file, or too many words\n");
    return 2;
  }
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.input", c.findings, c.name);
  c.input = path;
  c.said = memfd_create("said", 0);
  if (c.said < 0) fail("memfd_create");
  run_for(&c, strtod(argv[2], NULL));
  remove(c.input);
  printf("%ld runs, %ld findings\n", c.runs, c.found);
  return c.found > 0;
}
