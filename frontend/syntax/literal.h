/* SPDX-License-Identifier: Apache-2.0 */
/* Values of literals, and the messages of the scanner. */
#ifndef ZPLAN_SYNTAX_LITERAL_H
#define ZPLAN_SYNTAX_LITERAL_H

#include "parser_internal.h"

/* Reads number and unit; returns how many bytes belong to them: `2us/step` is a number and a division. */
size_t zp_scan_number(zp_scan *scan, zp_span span, const char *text, size_t len, zp_literal *literal);
/* The text between the quotes with its escapes resolved. */
const char *zp_scan_string(zp_scan *scan, zp_span span, const char *text, size_t len);

void zp_scan_unclosed_string(zp_scan *scan, zp_span span);
void zp_scan_quote(zp_scan *scan, zp_span span);
void zp_scan_foreign(zp_scan *scan, zp_span span, const char *found, const char *meant);
void zp_scan_foreign_comment(zp_scan *scan, zp_span span);
void zp_scan_semicolon(zp_scan *scan, zp_span span);
void zp_scan_bad_bytes(zp_scan *scan, zp_span span);
/* Reports the first byte that is not UTF-8. False for a binary file: with a zero byte in it nothing should be read. */
bool zp_scan_check_text(zp_scan *scan);

#endif
