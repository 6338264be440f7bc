/* SPDX-License-Identifier: Apache-2.0 */
/* What a call of the library returns. */
#ifndef ZPLAN_LIBRARY_ANSWER_H
#define ZPLAN_LIBRARY_ANSWER_H

#include "zplan.h"

#include <zplan/arena.h>

enum { FIXED_BYTES = 2048 };

struct zplan_answer {
  int status;
  char *json, *messages, *notes;                             /* owned; NULL: fixed_json, fixed_messages, "" */
  char fixed_json[FIXED_BYTES], fixed_messages[FIXED_BYTES]; /* of a call that was given up: needs no memory */
};

/* Where not even an answer can be made. zplan_free leaves it alone. */
extern const zplan_answer zp_answer_without_memory;

/* Copies the texts, and takes them over; false: no memory. */
bool zp_answer_fill(zplan_answer *answer, int status, const char *json, const char *messages, const char *notes);
/* The call was given up with this message. */
void zp_answer_give_up(zplan_answer *answer, int status, const char *why);

#endif
