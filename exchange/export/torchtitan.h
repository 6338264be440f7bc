/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the export for torchtitan: the array of arguments in the making, and its parts. Read in torchtitan 0.3.0
 * of PyPI: trainer.py, config/configs.py, distributed/, components/; what its parser makes of them is tested by
 * tests/peers. */
#ifndef ZPLAN_EXPORT_TORCHTITAN_H
#define ZPLAN_EXPORT_TORCHTITAN_H

#include "export_internal.h"

#define ZP_TORCHTITAN_VERSION "0.3.0"

typedef struct zp_titan {
  zp_exporter *e;
  const zp_gpt *gpt;
  const char *module, *function; /* of Python, with the model */
  zp_buf out;                    /* the lines of the array */
} zp_titan;

/* One argument a line: `--section.key=value`. A key alone is a flag that is set. */
void zp_titan_put(zp_titan *t, const char *key);
void zp_titan_put_int(zp_titan *t, const char *key, int64_t value);
void zp_titan_put_real(zp_titan *t, const char *key, double value);
void zp_titan_put_text(zp_titan *t, const char *key, const char *value);
void zp_titan_section(zp_titan *t, const char *title);

/* Each writes its section and refuses what it cannot write. */
void zp_titan_parallel(zp_titan *t);   /* torchtitan_parallel.c */
void zp_titan_memory(zp_titan *t);     /* torchtitan_memory.c */
void zp_titan_train(zp_titan *t);      /* torchtitan_train.c */
void zp_titan_checkpoint(zp_titan *t); /* torchtitan_memory.c: recomputation, the last word */

#endif
