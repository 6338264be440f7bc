/* SPDX-License-Identifier: Apache-2.0 */
/* Entry point for clang's libFuzzer, which is led by what an input reaches: damaged files through the command's code,
 * in one process. libfuzzer.sh builds and starts it. The environment says what to run: ZPLAN_FUZZ_WORDS, the command
 * line, words apart by blanks, @ for the damaged file; ZPLAN_FUZZ_INPUT, a path for that file. */
#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int zplan_main(int argc, char **argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_WORDS = 32, MOST_STATUS = 4 };

static int split(char **argv, char *words, const char *input) {
  int argc = 0;
  argv[argc++] = (char *)"zplan";
  for (char *word = strtok(words, " "); word && argc < MOST_WORDS; word = strtok(NULL, " "))
    argv[argc++] = strcmp(word, "@") == 0 ? (char *)input : word;
  argv[argc] = NULL;
  return argc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static int report = -1;
  if (report < 0) {
    report = dup(2); /* libFuzzer and the sanitizers write to 2 by number; only the command's own words are dropped */
    assert(freopen("/dev/null", "w", stdout));
    setvbuf(stderr, NULL, _IOFBF, 1 << 16);
  }
  const char *words = getenv("ZPLAN_FUZZ_WORDS"), *input = getenv("ZPLAN_FUZZ_INPUT");
  assert(words && input);
  FILE *file = fopen(input, "wb");
  assert(file && fwrite(data, 1, size, file) == size);
  fclose(file);
  char *copy = strdup(words), *argv[MOST_WORDS + 1];
  int null = open("/dev/null", O_WRONLY), saved = dup(2);
  dup2(null, 2);
  int status = zplan_main(split(argv, copy, input), argv);
  fflush(stderr);
  dup2(saved, 2);
  close(saved);
  close(null);
  free(copy);
  if (status > MOST_STATUS) abort();
  return 0;
}
