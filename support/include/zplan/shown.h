/* SPDX-License-Identifier: Apache-2.0 */
/* Which characters a terminal may be given. Header only, so that the compiler and the runtime of trainers, which link
 * nothing of each other, have one answer.
 *
 * A name in a file may hold what a terminal obeys: escape sequences that move the cursor, change colours or rename the
 * window, controls of the C1 range, characters that turn the direction of writing. Those are shown, `\x1b`, and not
 * obeyed. */
#ifndef ZPLAN_SHOWN_H
#define ZPLAN_SHOWN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Bytes of the well-formed UTF-8 character at `c`, or 0. Overlong forms and surrogates are not well-formed. */
static inline size_t zp_character_length(const unsigned char *c, size_t left) {
  if (left == 0) return 0;
  if (*c < 0x80) return 1;
  size_t len = *c >= 0xc2 && *c < 0xe0 ? 2 : (*c & 0xf0) == 0xe0 ? 3 : *c >= 0xf0 && *c < 0xf5 ? 4 : 0;
  if (len == 0 || len > left) return 0;
  for (size_t i = 1; i < len; i++)
    if ((c[i] & 0xc0) != 0x80) return 0;
  if ((*c == 0xe0 && c[1] < 0xa0) || (*c == 0xed && c[1] > 0x9f)) return 0;
  if ((*c == 0xf0 && c[1] < 0x90) || (*c == 0xf4 && c[1] > 0x8f)) return 0;
  return len;
}

/* The character's number; len: zp_character_length, not 0. */
static inline uint32_t zp_character_number(const unsigned char *c, size_t len) {
  uint32_t number = len == 1 ? *c : *c & (0x7fu >> len);
  for (size_t i = 1; i < len; i++) number = number << 6 | (c[i] & 0x3fu);
  return number;
}

/* C0 (line ends and tabs too), DEL, C1, marks and overrides of the direction of writing, line separators. */
static inline bool zp_is_control(uint32_t number) {
  return number < 0x20 || (number >= 0x7f && number < 0xa0) || number == 0x61c || number == 0x200e ||
         number == 0x200f || (number >= 0x2028 && number <= 0x202e) || (number >= 0x2066 && number <= 0x2069);
}

enum { ZP_SHOWN_CHARACTER = 12 }; /* bytes that one character takes at most, with a zero */

/* The character at `c` as a terminal may be given it: itself, `\x1b` of a byte that is a control or no UTF-8, `\u202e`
 * of a longer control. Returns the bytes that it stands for, at least 1. Requires left > 0. */
static inline size_t zp_show_character(const unsigned char *c, size_t left, char shown[ZP_SHOWN_CHARACTER]) {
  size_t len = zp_character_length(c, left);
  uint32_t number = len ? zp_character_number(c, len) : *c;
  if (len > 0 && !zp_is_control(number)) {
    for (size_t i = 0; i < len; i++) shown[i] = (char)c[i];
    shown[len] = 0;
    return len;
  }
  snprintf(shown, ZP_SHOWN_CHARACTER, number < 0x80 || len == 0 ? "\\x%02x" : "\\u%04x", (unsigned)number);
  return len ? len : 1;
}

#endif
