/* SPDX-License-Identifier: Apache-2.0 */
/* libzplan: plans of parallel training, from C and whatever calls C.
 *
 * Every call answers with a value that holds the JSON which `zplan VERB --json` prints, also when the text of a file is
 * wrong, no plan fits or memory runs out. No call ends the process, prints, changes the locale, or handles signals.
 * Calls may come from several threads at once; they share nothing. An answer is used by one thread at a time.
 *
 * path    names a .dz file or a plan file, whose folder other files are relative to. NULL: "input.dz" or "plan.json"
 *         where there is a text; without one the options hold all words, such as {"--model", "llama3-8b", NULL}.
 * text    what stands in that file, UTF-8 that ends with a zero byte; NULL: the file is read.
 * options words of the command, NULL after the last one: {"--gpus", "64", "--set", "tensor=8", NULL}; NULL: none.
 *         `--json` is always given. `zplan VERB --help` lists them. */
#ifndef ZPLAN_H
#define ZPLAN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a program that was built with an older header could not run any more, as the library's SONAME does. */
#define ZPLAN_ABI 1

#ifndef ZPLAN_API
#define ZPLAN_API
#endif

typedef struct zplan_answer zplan_answer;

/* What zplan_status returns: the exit statuses of the command. */
enum {
  ZPLAN_OK = 0,
  ZPLAN_ERROR = 1,        /* in the text or the work */
  ZPLAN_USAGE = 2,        /* wrong options */
  ZPLAN_INFEASIBLE = 3,   /* no plan fits; the JSON says what is short and what would fit */
  ZPLAN_DIFFERENT = 4,    /* diff: a decision differs */
  ZPLAN_BUG = 70,         /* of zplan */
  ZPLAN_INTERRUPTED = 130 /* zplan_leave: the best plan so far */
};

ZPLAN_API int zplan_abi(void);             /* ZPLAN_ABI of the library */
ZPLAN_API const char *zplan_version(void); /* "0.2.0" */

/* What a model is: shapes, parameters, FLOP (`zplan check`). */
ZPLAN_API zplan_answer *zplan_parse(const char *path, const char *text, const char *const *options);
/* The best plan, or the table that an option wants (`zplan plan`). */
ZPLAN_API zplan_answer *zplan_plan(const char *path, const char *text, const char *const *options);
/* The best plan with pinned decisions, {"tensor=8", "zero=1", NULL}: its time, memory and traffic. Of a plan file, with
 * decisions NULL: its price made anew from its own decisions. */
ZPLAN_API zplan_answer *zplan_price(const char *path, const char *text, const char *const *decisions,
                                    const char *const *options);
/* Proves a plan file (`zplan verify`). */
ZPLAN_API zplan_answer *zplan_verify(const char *path, const char *text, const char *const *options);
/* A plan for people, as `result.text` (`zplan report`); {"--html", "page.html", NULL} writes a page. */
ZPLAN_API zplan_answer *zplan_report(const char *path, const char *text, const char *const *options);
/* Another verb: compare, diff, explain, machines, models, validate, or one of those above by its name. */
ZPLAN_API zplan_answer *zplan_call(const char *verb, const char *path, const char *text, const char *const *options);

ZPLAN_API int zplan_status(const zplan_answer *answer);
/* The document. Never NULL; until zplan_free. */
ZPLAN_API const char *zplan_json(const zplan_answer *answer);
/* An array of what was reported, warnings too: objects with `level`, `message`, `code`, `spans`, `rendered`, as
 * `--message-format json` has them. Never NULL; until zplan_free. */
ZPLAN_API const char *zplan_messages(const zplan_answer *answer);
/* What the command would print on standard error. Never NULL; until zplan_free. */
ZPLAN_API const char *zplan_notes(const zplan_answer *answer);
ZPLAN_API void zplan_free(zplan_answer *answer); /* NULL: nothing */

/* Searches of calls that this thread makes from now on end early, with the best plan so far, once *flag is not 0.
 * NULL: they do not. The flag stays until it is replaced. */
ZPLAN_API void zplan_leave(const volatile int *flag);

#ifdef __cplusplus
}
#endif

#endif
