/* What the forms of `zplan data` share: arrays of NumPy, texts with tokens around them as BERT reads them. */
#ifndef ZPLAN_MAKE_DATA_H
#define ZPLAN_MAKE_DATA_H

#include "driver.h"
#include <zplan/buf.h>
#include <zplan/out_folder.h>
#include <zplan/tokenizer.h>

typedef ZP_VEC(int32_t) zp_ids;

/* ---- arrays of NumPy (npy_file.c) ---- */
/* NAME.npy of 4-byte elements, "i4" or "f4"; columns 0: of one dimension. Errors are reported. */
bool zp_npy_write(zp_out_folder *out, const char *name, const char *type, int64_t rows, int64_t columns,
                  const void *data);

/* ---- tokens around texts (marks.c) ---- */
/* [CLS], [SEP] and [MASK], or <s>, </s> and <mask>: added tokens of the tokenizer. Without one bytes are the first 256
 * ids, and these three follow. */
typedef struct zp_marks {
  zp_tokenizer *tokenizer; /* NULL: a byte is a token */
  const zp_decoder *decoder;
  int32_t cls, sep, mask; /* mask -1: there is none */
} zp_marks;
/* --tokenizer. False after reporting, also where [CLS] or [SEP] is missing. */
bool zp_marks_open(zp_run_state *run, zp_marks *marks);
void zp_marks_close(zp_marks *marks);
int64_t zp_marks_vocabulary(const zp_marks *marks);

/* ---- the forms ---- */
int zp_data_squad(zp_run_state *run); /* cmd_data_squad.c */
int zp_data_pairs(zp_run_state *run); /* cmd_data_pairs.c */

#endif
