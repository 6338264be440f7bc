/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a run: lines of JSON that trainers write (runtime/log.c, `zplan run --log`), one record a line. */
#ifndef ZPLAN_RUN_LOG_H
#define ZPLAN_RUN_LOG_H

#include <zplan/json.h>

typedef enum zp_record_kind {
  ZP_RECORD_UNREAD, /* no JSON */
  ZP_RECORD_BLANK,
  ZP_RECORD_STEP,
  ZP_RECORD_START,
  ZP_RECORD_RESUME,
  ZP_RECORD_VALIDATE,
  ZP_RECORD_CHECKPOINT,
  ZP_RECORD_PROFILE,
  ZP_RECORD_END,
  ZP_RECORD_EVENT,  /* another one of a trainer */
  ZP_RECORD_FOREIGN /* JSON that no trainer writes, or a step number out of range */
} zp_record_kind;

typedef struct zp_record {
  zp_record_kind kind;
  int64_t step; /* 0 to 10^15, except of FOREIGN records */
  /* STEP; NAN: the log does not say, or the number was not finite */
  double loss, grad_norm, lr, step_ms, tokens_per_s, mfu;
  int64_t device_peak_bytes; /* of rank 0; 0: not measured */
  bool spike;                /* the trainer's mark: the loss is far above the recent ones (runtime/spike.c) */
  bool not_finite;           /* the loss, or the gradient norm without a loss scale, under which it may overflow */
  zp_json *json;             /* owned; NULL: UNREAD and BLANK */
} zp_record;

/* One line, without its end. Free it with zp_record_free. */
zp_record zp_record_read(zp_arena *arena, const char *line, size_t length);
void zp_record_free(zp_record *record);
/* The next line of a text that ends with 0: its length; *text is moved after it. False at the end. */
bool zp_next_line(const char **text, const char **line, size_t *length);
/* The largest of a list of whole numbers, above 0; 0: there is none. */
int64_t zp_largest_of(const zp_json *list);
/* The median of n values, which it sorts; NAN: there is none. */
double zp_median(double *values, int n);

#endif
