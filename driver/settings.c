/* SPDX-License-Identifier: Apache-2.0 */
/* Settings (--set), their wishes (--why-not), and which of them give way: those of one command line add up, those that
 * a plan file or an earlier command recorded give way to later ones of the same key. */
#include "driver.h"

/* The key of "plan.tensor <= 8": "tensor". Length in *len. */
static const char *key_of(const char *setting, size_t *len) {
  static const char *const blocks[] = {"plan.", "train."};
  while (*setting == ' ') setting++;
  for (size_t i = 0; i < 2; i++)
    if (strncmp(setting, blocks[i], strlen(blocks[i])) == 0) setting += strlen(blocks[i]);
  *len = strcspn(setting, " =<>!");
  return setting;
}

static bool is_key(const char *key, size_t len, const char *name) {
  return strlen(name) == len && strncmp(key, name, len) == 0;
}

/* Are both settings of one key, or of `steps` and `tokens`, which say the same thing? */
static bool replaces(const char *later, const char *earlier) {
  size_t n, m;
  const char *a = key_of(later, &n), *b = key_of(earlier, &m);
  if (n == m && strncmp(a, b, n) == 0) return true;
  return (is_key(a, n, "steps") && is_key(b, m, "tokens")) || (is_key(a, n, "tokens") && is_key(b, m, "steps"));
}

static void set_options(zp_run_state *run, zp_strings set) {
  run->options.set = set;
  run->options.load.set = set.data;
  run->options.load.n_set = set.len;
}

void zp_lay_settings_over(zp_run_state *run, const zp_strings *earlier, const zp_strings *later) {
  zp_strings all = {0};
  for (int i = 0; i < earlier->len; i++) {
    bool keep = true;
    for (int k = 0; k < later->len; k++) keep = keep && !replaces(later->data[k], earlier->data[i]);
    if (keep) zp_push(run->arena, &all, earlier->data[i]);
  }
  for (int k = 0; k < later->len; k++) zp_push(run->arena, &all, later->data[k]);
  set_options(run, all);
}

bool zp_add_wishes(zp_run_state *run, const char *text) {
  zp_strings wishes = {0}, before = run->options.set;
  int depth = 0;
  const char *begin = text;
  for (const char *p = text;; p++) {
    depth += (*p == '{' || *p == '[' || *p == '(') - (*p == '}' || *p == ']' || *p == ')');
    if (*p && (*p != ',' || depth > 0)) continue;
    while (*begin == ' ') begin++;
    if (p > begin) zp_push(run->arena, &wishes, zp_strndup(run->arena, begin, (size_t)(p - begin)));
    begin = p + 1;
    if (!*p) break;
  }
  zp_lay_settings_over(run, &before, &wishes);
  run->options.load.n_wishes = wishes.len;
  return wishes.len > 0;
}
