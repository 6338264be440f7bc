/* SPDX-License-Identifier: Apache-2.0 */
/* Names of parameters that a file gives by patterns. */
#include <zplan/spec.h>

bool zp_matches_pattern(const char *pattern, const char *name) {
  for (; *pattern && *pattern != '*'; pattern++, name++)
    if (!*name || (*pattern != '?' && *pattern != *name)) return false;
  if (!*pattern) return !*name;
  do
    if (zp_matches_pattern(pattern + 1, name)) return true;
  while (*name++);
  return false;
}

bool zp_matches_some(const zp_name_patterns *patterns, const char *name) {
  for (int i = 0; i < patterns->len; i++)
    if (zp_matches_pattern(patterns->data[i].pattern, name)) return true;
  return false;
}
