/* SPDX-License-Identifier: Apache-2.0 */
/* A text as a JSON word, apart from the others: a program that writes no JSON links without the JSON library. */
#include <zplan/json.h>
#include <zplan/quote.h>

#include <assert.h>

const char *zp_quote_json(zp_arena *arena, const char *text) {
  assert(text);
  zp_json *list = zp_json_array();
  zp_json_append_string(list, text);
  const char *word = zp_json_text(arena, zp_json_at(list, 0), false);
  zp_json_free(list);
  return word;
}
