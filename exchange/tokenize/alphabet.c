/* SPDX-License-Identifier: Apache-2.0 */
/* Characters, and what stands for those that are no token. */
#include "tokenize.h"

#include <stdio.h>

int character_bytes(unsigned char first) { return first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1; }

bool fallback_find_bytes(fallback *f, const vocabulary *v, int *found) {
  *found = 0;
  for (int byte = 0; byte < 256; byte++) {
    char text[8];
    int len = snprintf(text, sizeof text, "<0x%02X>", byte);
    f->of_byte[byte] = vocabulary_find(v, text, (size_t)len);
    *found += f->of_byte[byte] >= 0;
  }
  f->bytes = *found == 256;
  return f->bytes;
}
