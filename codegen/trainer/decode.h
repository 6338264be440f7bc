/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the trainer printer: incremental decoding. A text is continued position by position: keys and values of
 * attention stay where forward keeps them for backward, so a new position costs one row of every step. */
#ifndef ZPLAN_TRAINER_DECODE_H
#define ZPLAN_TRAINER_DECODE_H

#include "emit.h"

/* What becomes of a step of a forward procedure. */
typedef enum zp_decode_step {
  ZP_DECODE_ONCE,    /* nothing of it depends on the text: it is done with the text's beginning */
  ZP_DECODE_STRETCH, /* of the current positions alone */
  ZP_DECODE_LOGITS,  /* the logits are shown instead of judged */
  ZP_DECODE_LEAVE,   /* of the loss */
} zp_decode_step;

/* A forward procedure. */
typedef struct zp_decode_procedure {
  zp_decode_step *step; /* of every step */
  bool *grows;          /* of every buffer: it has a row for every position of the text */
  int *slots;           /* of every buffer: the one with the numbers of its slots, where its rows are slots; else -1 */
  int last_row_from;    /* from this step on the last position is enough; the number of steps: it never is */
} zp_decode_procedure;

typedef struct zp_decoding {
  int input; /* of the model: the text */
  int64_t positions;
  zp_decode_procedure *of; /* of every segment of the model */
} zp_decoding;

/* Where the model's text does not go on so: why, and where. */
typedef struct zp_no_decoding {
  const char *why;
  zp_span span;
} zp_no_decoding;

/* NULL with *no: every new token takes a pass over the whole sample. Requires: tensor ranks alone. Arena. */
const zp_decoding *zp_find_decoding(const zp_emit *e, zp_no_decoding *no);

#endif
