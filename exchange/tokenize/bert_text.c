/* SPDX-License-Identifier: Apache-2.0 */
/* What BERT does to a text before it is cut (google-research/bert, tokenization.py): control characters are left out
 * and white space is spaces, ideographs are words of their own, and accents are taken away. */
#include "tokenize.h"

#include <unictype.h>
#include <unistr.h>

static ucs4_t character_at(const char *text, size_t len, size_t at, size_t *bytes) {
  ucs4_t c;
  *bytes = (size_t)u8_mbtouc_unsafe(&c, (const uint8_t *)text + at, len - at);
  return c;
}

static bool is_space(ucs4_t c) { return c == '\t' || c == '\n' || c == '\r' || uc_is_property_white_space(c); }

/* Categories Cc, Cf and Co, and what stands for characters that could not be read. */
static bool is_left_out(ucs4_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  return c == 0 || c == 0xFFFD || uc_is_general_category(c, UC_CONTROL) || uc_is_general_category(c, UC_FORMAT) ||
         uc_is_general_category(c, UC_PRIVATE_USE);
}

/* As Hugging Face's tokenizers have them; BERT's own list has 0x2B820 for 0x2B920. */
static bool is_ideograph(ucs4_t c) {
  static const ucs4_t ranges[][2] = {{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},  {0x20000, 0x2A6DF},
                                     {0x2A700, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
  return false;
}

void bert_clean(const char *text, size_t len, zp_arena *arena, characters *out) {
  zp_reserve(arena, out, (int)len);
  for (size_t i = 0, bytes; i < len; i += bytes) {
    ucs4_t c = character_at(text, len, i, &bytes);
    if (is_left_out(c)) continue;
    bool space = is_space(c);
    memcpy(out->data + out->len, space ? " " : text + i, space ? 1 : bytes);
    out->len += space ? 1 : (int)bytes;
  }
}

void bert_separate(const char *text, size_t len, zp_arena *arena, characters *out) {
  zp_reserve(arena, out, 2 * (int)len); /* an ideograph has three bytes or four */
  for (size_t i = 0, bytes; i < len; i += bytes) {
    bool alone = is_ideograph(character_at(text, len, i, &bytes));
    if (alone) out->data[out->len++] = ' ';
    memcpy(out->data + out->len, text + i, bytes);
    out->len += (int)bytes;
    if (alone) out->data[out->len++] = ' ';
  }
}

void bert_strip_accents(const char *text, size_t len, zp_arena *arena, characters *out) {
  zp_reserve(arena, out, (int)len);
  for (size_t i = 0, bytes; i < len; i += bytes) {
    if (uc_is_general_category(character_at(text, len, i, &bytes), UC_NON_SPACING_MARK)) continue;
    memcpy(out->data + out->len, text + i, bytes);
    out->len += (int)bytes;
  }
}
