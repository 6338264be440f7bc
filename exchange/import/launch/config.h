/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the import of launches: configurations of other programs, as values by path ("zero_optimization.stage")
 * and a table of what their keys mean. */
#ifndef ZPLAN_LAUNCH_CONFIG_H
#define ZPLAN_LAUNCH_CONFIG_H

#include "launch.h"
#include <zplan/json.h>

enum { MOST_RANKS = 1 << 20, MOST_BATCH = 100000000 }; /* of a launch */

/* KEY_READ: somebody reads them. KEY_NOTHING: they decide neither operations nor what a plan decides or prices.
 * KEY_NAMED: a note says what is taken instead. KEY_REFUSED: another model or training. */
typedef enum config_meaning { KEY_READ, KEY_NOTHING, KEY_NAMED, KEY_REFUSED } config_meaning;
typedef struct config_row {
  config_meaning meaning;
  const char *names, *text; /* names: blanks between them; one that ends with a dot is a section, all of it */
} config_row;

typedef struct config {
  launch *l;
  zp_json *root;
  const char *text;
  int file;
  const config_row *rows;
  int n_rows;
  bool quoted;      /* keys stand in quotes, as in JSON */
  const char *what; /* "DeepSpeed's configuration" */
} config;

/* Reports every key that the table refuses or does not have, and notes those that it names. */
void config_look(config *d);
/* A value in place of what stands at the path, made of its text: a number, true or false, else a text. */
void config_set(config *d, const char *path, const char *value);

/* "auto" and null are as if the key were missing; what has another type or range is reported. */
bool config_has(const config *d, const char *path);
const zp_json *config_value(const config *d, const char *path); /* NULL: missing */
int64_t config_int(config *d, const char *path, int64_t missing, int64_t least, int64_t most);
double config_real(config *d, const char *path, double missing, double least, double most);
bool config_bool(config *d, const char *path, bool missing);
const char *config_text(config *d, const char *path, const char *missing);
const char *config_from(const config *d, const char *path); /* "zero_optimization.stage 2". Arena. */
zp_span config_at(const config *d, const char *path);       /* where its last name stands first */

#endif
