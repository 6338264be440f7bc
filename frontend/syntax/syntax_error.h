/* SPDX-License-Identifier: Apache-2.0 */
/* The words of syntax errors. Include after dz_parser.h. */
#ifndef ZPLAN_SYNTAX_SYNTAX_ERROR_H
#define ZPLAN_SYNTAX_SYNTAX_ERROR_H

#include "parser_internal.h"

/* Which tokens could stand in a place. */
typedef struct zp_expected {
  bool token[LAST_TOKEN - FIRST_TOKEN + 1]; /* by kind - FIRST_TOKEN */
} zp_expected;

/* Reports that feed->last cannot stand where it stands, and starts recovery. */
void zp_syntax_error(zp_feed *feed, const zp_expected *expected);

#endif
