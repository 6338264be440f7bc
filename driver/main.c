/* SPDX-License-Identifier: Apache-2.0 */
/* The zplan command: finds the verb and hands over. `zplan FILE ...` without a verb plans. */
#include "driver.h"
#include <zplan/known_models.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void put_lines(zp_arena *arena, FILE *out, const char *lines) {
  zp_run_state run = {.arena = arena};
  zp_print_lines(&run, out, lines);
}

/* Words that go together in a synopsis, `[-o FILE]`, and those of a text of several lines. */
static const char *flowing(zp_arena *arena, const char *text) {
  zp_buf out = zp_buf_new(arena);
  int depth = 0;
  for (const char *p = text; *p; p++) {
    depth += (*p == '[') - (*p == ']');
    if (*p == ' ' && depth > 0)
      zp_buf_puts(&out, ZP_GLUE);
    else
      zp_buf_printf(&out, "%c", *p == '\n' ? ' ' : *p);
  }
  return out.data;
}

static void print_help(zp_arena *arena, FILE *out) {
  zp_buf text = zp_buf_new(arena);
  zp_buf_puts(&text, "zplan: plans, generates and runs the parallel training of large models\n\n"
                     "To begin:\n"
                     "  zplan plan --model llama3-8b --machine dgx-h100 --gpus 64\n"
                     "                   a published model on a machine, without a file\n"
                     "  zplan new text BOOK.txt\n"
                     "                   a small GPT that learns your own text on this machine\n\n"
                     "Commands:\n");
  for (int i = 0; i < zp_verb_count(); i++) {
    const zp_verb *v = zp_verb_at(i);
    const char *gap = *v->arguments ? " " : "";
    zp_buf_printf(&text, "  zplan %-*s%s%s\n                   %s\n", *gap ? 10 : 0, v->name, gap,
                  flowing(arena, v->arguments), v->does);
  }
  zp_buf_printf(&text,
                "\n`zplan VERB --help` lists the options of a verb; `zplan FILE.dz ...` is `zplan plan FILE.dz ...`.\n"
                "`zplan --version`; `zplan explain WORD` explains a key, a flag or an error.\n"
                "\nExit status  %s\n",
                flowing(arena, zp_exit_statuses));
  put_lines(arena, out, text.data);
}

static void print_verb_help(zp_arena *arena, const zp_verb *verb) {
  zp_buf text = zp_buf_new(arena);
  zp_buf_printf(&text, "zplan %s%s%s\n\n%s\n\n", verb->name, *verb->arguments ? " " : "",
                flowing(arena, verb->arguments), verb->does);
  for (int i = 0; i < zp_option_count(); i++) {
    zp_option o = zp_option_at(i);
    if (zp_verb_takes(verb->name, i))
      zp_buf_printf(&text, "  %s%s%s\n      %s\n", o.name, o.value ? " " : "", o.value ? o.value : "", o.help);
  }
  put_lines(arena, stdout, text.data);
}

/* What was printed must have arrived. */
static int close_output(int status) {
  if (fflush(stdout) == 0 && !ferror(stdout)) return status;
  zp_say_lines(stderr, "zplan: cannot write to standard output\n");
  return status == ZP_EXIT_OK ? ZP_EXIT_ERROR : status;
}

/* A first word that is neither a verb nor a file. */
static int unknown_verb(zp_arena *arena, const char *word) {
  struct stat st;
  bool there = stat(word, &st) == 0;
  if (there && S_ISDIR(st.st_mode) && access(zp_format(arena, "%s/config.json", word), R_OK) == 0)
    return zp_usage_error(
        "`%s` is a folder of a published model: `zplan new fine-tune %s` writes a .dz file to train it, "
        "`zplan import hf %s` its model",
        word, word, word);
  if (there && S_ISDIR(st.st_mode)) return zp_usage_error("`%s` is a folder: name a .dz file", word);
  if (!there && access(zp_format(arena, "%s.dz", word), R_OK) == 0)
    return zp_usage_error("`%s` is no command; did you mean the file `%s.dz`?", word, word);
  if (zp_find_known_model(word))
    return zp_usage_error("`%s` is a published model: zplan --model %s --machine dgx-h100 --gpus 8", word, word);
  const char *here = zp_foreign_verb(word);
  if (here) return zp_usage_error("unknown command `%s`: here it is `zplan %s`", word, here);
  zp_strings names = {0};
  for (int i = 0; i < zp_verb_count(); i++) zp_push(arena, &names, zp_verb_at(i)->name);
  const char *near = zp_closest(word, names.data, names.len);
  if (near) return zp_usage_error("unknown command `%s`; did you mean `%s`?", word, near);
  here = zp_near_foreign_verb(word);
  if (here) return zp_usage_error("unknown command `%s`; did you mean `zplan %s`?", word, here);
  return zp_usage_error("`%s` is neither a command nor a .dz file; see zplan --help", word);
}

static bool is_file_word(const char *word) {
  size_t n = strlen(word);
  return word[0] == '-' || (n > 3 && strcmp(word + n - 3, ".dz") == 0) || strchr(word, '/') || strchr(word, '.');
}

static bool is_help(const char *word) { return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0; }

static bool asks_for_help(int argc, char **argv) {
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (is_help(argv[i])) return true;
  return false;
}

/* `zplan FILE.dz plan`: the place of the verb, where no file is called so; 0: there is none. */
static int first_verb(int argc, char **argv) {
  for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++) {
    bool is_value = argv[i - 1][0] == '-' && argv[i - 1][1] && !strchr(argv[i - 1], '='); /* perhaps of that option */
    if (zp_find_verb(argv[i]) && !is_value && access(argv[i], F_OK) != 0) return i;
  }
  return 0;
}

static int verb_behind(int argc, char **argv) {
  const char *verb = argv[first_verb(argc, argv)];
  return zp_usage_error("the command comes first: zplan %s %s", verb, argv[1]);
}

/* --version, -V, version: people try all three. */
static bool is_version(const char *word) {
  return strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0 ||
         (strcmp(word, "version") == 0 && access(word, F_OK) != 0);
}

/* `zplan help [VERB]`, --help, -h. */
static int help(zp_arena *arena, const char *word) {
  const zp_verb *v = word ? zp_find_verb(word) : NULL;
  if (v)
    print_verb_help(arena, v);
  else if (word)
    return unknown_verb(arena, word);
  else
    print_help(arena, stdout);
  return ZP_EXIT_OK;
}

static int run_verb(zp_arena *arena, int argc, char **argv) {
  const zp_verb *v = zp_find_verb(argv[1]);
  int first = v ? 2 : 1;
  if (!v && !is_file_word(argv[1])) return unknown_verb(arena, argv[1]);
  if (!v && first_verb(argc, argv) > 0) return verb_behind(argc, argv);
  if (!v) v = zp_find_verb("plan");
  if (asks_for_help(argc - first, argv + first)) {
    print_verb_help(arena, v);
    return ZP_EXIT_OK;
  }
  zp_run_state run = {.arena = arena, .command = v->name, .words = argv + first, .n_words = argc - first};
  run.diags = zp_diags_new(arena);
  bool json = zp_asks_for_json(run.n_words, run.words);
  if (json && !zp_envelope_begin(v)) return ZP_EXIT_ERROR;
  int status = zp_carry_out(&run, v);
  if (json) zp_envelope_end(&run, v, status);
  return status;
}

int main(int argc, char **argv) {
  int status = ZP_EXIT_OK;
  signal(SIGXFSZ, SIG_IGN); /* a limit on files is an error of the write, after which nothing half-written is left */
  zp_arena *arena = zp_arena_new("command");
  if (argc < 2) {
    print_help(arena, stderr);
    status = ZP_EXIT_USAGE;
  } else if (is_help(argv[1]) || strcmp(argv[1], "help") == 0) {
    status = help(arena, argc > 2 && argv[1][0] != '-' ? argv[2] : NULL);
  } else if (is_version(argv[1])) {
    zp_print_version(arena);
  } else {
    status = run_verb(arena, argc, argv);
  }
  zp_arena_free(arena);
  return close_output(status);
}
