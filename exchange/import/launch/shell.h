/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the import of launches: the words that a launch script hands to its program.
 *
 * The part of bash that launch scripts are made of is read: assignments, arrays and `+=`, quotes, `$NAME`,
 * `${NAME:-default}`, `${NAME[@]}`, `$((sums))`, `if` over tests of known values. Nothing is run. What only a run would
 * tell, such as `$1` or `$(hostname)`, is a word that is not known. */
#ifndef ZPLAN_SHELL_H
#define ZPLAN_SHELL_H

#include <zplan/diag.h>
#include <zplan/vec.h>

typedef struct shell_word {
  const char *text; /* as it would be handed over; of what is not known as it is written */
  zp_span at;
  bool unknown; /* a part of it only a run would tell */
  bool open;    /* it is there, or is this, if a test holds whose result is not known */
  zp_span open_test;
} shell_word;
typedef ZP_VEC(shell_word) shell_words;

typedef struct shell_launch {
  shell_words launcher; /* words of the command before its program */
  const char *program;  /* "pretrain_gpt.py"; NULL: there is no command */
  shell_words args;     /* words after it */
  int commands;         /* that start a program of Python; 0: the arguments are those of all arrays */
} shell_launch;

/* Reads `file`, a source of diags. false after reporting (Z0688): no text, an open quote, too
 * many words. */
bool shell_read(zp_arena *arena, zp_diags *diags, int file, shell_launch *found);

/* ---- between shell.c and shell_words.c ---- */

/* Set in a character's place: only a run would tell what stands there. */
#define SHELL_UNKNOWN UINT32_C(0x80000000)

/* Characters with the place that each is from. */
typedef struct shell_text {
  char *data; /* zero-terminated once it has been used */
  uint32_t *at;
  int len, cap;
  bool unknown, quoted, any; /* any: there is a word, maybe an empty one */
  bool open;
  zp_span open_test;
} shell_text;
typedef ZP_VEC(shell_text) shell_texts;

typedef struct shell_variable {
  const char *name;
  shell_texts values; /* of an array several */
  bool is_array;
} shell_variable;

typedef struct shell_reader {
  zp_arena *arena;
  zp_diags *diags;
  int file;
  const char *text;
  uint32_t len, at;
  ZP_VEC(shell_variable) variables;
  int64_t kept; /* characters so far, against files that double */
  int depth;    /* of `${NAME:-default}` in one another */
  bool failed;
} shell_reader;

typedef enum shell_end { SHELL_WORD, SHELL_OPEN, SHELL_CLOSE, SHELL_LINE, SHELL_AND, SHELL_OR, SHELL_FILE } shell_end;

/* The next word, expanded into none, one or several of `words`; what it was else: a parenthesis, the end of a command
 * (&& and || say which), the end of the file. *raw: how an unquoted word is written ("then"), else "". */
shell_end shell_next(shell_reader *r, shell_texts *words, const char **raw);
shell_variable *shell_find(shell_reader *r, const char *name);
bool shell_complain(shell_reader *r, zp_span at, const char *format, ...) __attribute__((format(printf, 3, 4)));
zp_span shell_span(const shell_reader *r, const shell_text *text);
/* `text`, which has a part of `from`, depends on the same test. */
void shell_taint(shell_text *text, const shell_text *from);
/* Appends one character from place `at`. false after complaining about too many. */
bool shell_put(shell_reader *r, shell_text *text, char c, uint32_t at);
/* Splits at blanks, as an unquoted variable is. */
void shell_split(shell_reader *r, const shell_text *text, shell_texts *words);

#endif
