/* SPDX-License-Identifier: Apache-2.0 */
/* What long work says of itself on stderr: on a terminal one line that is written over, in a log one every ten seconds
 * where that was asked for, else nothing. Work of less than a second says nothing. */
#ifndef ZPLAN_STATUS_LINE_H
#define ZPLAN_STATUS_LINE_H

#include <stdbool.h>

typedef enum zp_status_form { ZP_STATUS_NONE, ZP_STATUS_TERMINAL, ZP_STATUS_LOG } zp_status_form;

/* Work begins, or goes on with another part; what: "searching". columns: of the terminal. */
void zp_status_begin(zp_status_form form, int columns, const char *what);
/* Is what is known older than a fifth of a second? Asked often: the news is made only then. */
bool zp_status_due(void);
/* "searching: 12 s, FORMAT": what is known by now. */
void zp_status_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The work is done; the line is removed. */
void zp_status_end(void);

#endif
