/* SPDX-License-Identifier: Apache-2.0 */
/* What `export` and `import` share: the word that names a format, and where the result goes. */
#include "driver.h"
#include <zplan/buf.h>

#include <stdio.h>

static const char *listed(zp_arena *arena, const char *const *words, int count) {
  zp_buf out = zp_buf_new(arena);
  for (int i = 0; i < count; i++) zp_buf_printf(&out, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " or ", words[i]);
  return out.data;
}

int zp_take_format(zp_run_state *run, const char *const *words, int count) {
  zp_strings *files = &run->options.files;
  const char *word = files->len ? files->data[0] : NULL;
  for (int i = 0; word && i < count; i++)
    if (strcmp(words[i], word) == 0) {
      files->data++;
      files->len--;
      files->cap--;
      return i;
    }
  const char *near = word ? zp_closest(word, words, count) : NULL;
  const char *second = files->len > 1 ? files->data[1] : NULL;
  for (int i = 0; second && i < count; i++)
    if (strcmp(words[i], second) == 0)
      return zp_usage_error("the format comes first: zplan %s %s %s", run->command, second, word), -1;
  if (!word)
    zp_usage_error("`zplan %s` wants a format: %s", run->command, listed(run->arena, words, count));
  else if (near)
    zp_usage_error("unknown format `%s`; did you mean `%s`?", word, near);
  else
    zp_usage_error("unknown format `%s`: `zplan %s` knows %s", word, run->command, listed(run->arena, words, count));
  return -1;
}

bool zp_put_output(zp_run_state *run, const char *text, const char *comment) {
  const char *error = NULL, *path = run->options.output;
  if (!path) return zp_hand_on(stdout, text, strlen(text));
  if (comment) text = zp_mark_output(run, comment, text);
  if (!zp_may_replace(run, path, text)) return false;
  zp_result_text(run, "file", path);
  if (zp_write_file(run->arena, path, text, strlen(text), &error)) return true;
  zp_report(run->diags, ZP_Z0641, ZP_NO_SPAN, "%s", error);
  return zp_flush_diags(run);
}
