/* SPDX-License-Identifier: Apache-2.0 */
/* Values of command-line options: numbers, ranges, sizes, shares, words. */
#include "option_values.h"
#include <stdlib.h>
#include <zplan/buf.h>
#include <zplan/software.h>

/* What people write in the place of a whole number. */
static const char *whole_number_help(const char *option, const char *text) {
  bool gpus = strcmp(option, "--gpus") == 0 || strcmp(option, "--ranks") == 0;
  const char *rest = text + strspn(text, "0123456789");
  if (rest == text || !*rest) return "";
  if (gpus && *rest == '-') return ": a range is LOW..HIGH";
  if (gpus && (*rest == 'x' || *rest == '*')) return ": it counts the devices of all nodes";
  return strpbrk(rest, "kKMGTeE_,.") == rest ? ": write it in digits" : "";
}

/* A number that is too large for 64 bits is the largest one to strtoll, and above `high` too. */
bool zp_parse_within(const char *option, const char *text, int64_t low, int64_t high, int64_t *out) {
  char *end;
  long long value = strtoll(text, &end, 10);
  if (end == text || *end || value < low)
    return zp_usage_error("%s wants a whole number of at least %lld, not `%s`%s", option, (long long)low, text,
                          whole_number_help(option, text)),
           false;
  if (value > high) return zp_usage_error("%s wants at most %lld, not `%s`", option, (long long)high, text), false;
  *out = value;
  return true;
}

bool zp_parse_count(const char *option, const char *text, int64_t low, int64_t *out) {
  return zp_parse_within(option, text, low, INT32_MAX, out);
}

/* Checked; the trainer reads it again. */
bool zp_parse_seconds(const char *option, const char *text, const char **out) {
  int64_t seconds;
  if (!zp_parse_within(option, text, 0, ZP_MOST_SECONDS, &seconds)) return false;
  *out = text;
  return true;
}

/* "8..64" */
static bool parse_range(const char *option, const char *text, int *low, int *high) {
  char *end, *begin = strstr(text, "..") + 2;
  long long first = strtoll(text, &end, 10);
  bool sound = end != text && end == begin - 2;
  long long last = strtoll(begin, &end, 10);
  if (!sound || end == begin || *end)
    return zp_usage_error("%s %s: a range is LOW..HIGH, for example 8..64", option, text), false;
  if (first < 1) return zp_usage_error("%s %s: the range must begin at 1 or above", option, text), false;
  if (last <= first || last > ZP_MOST_RANKS)
    return zp_usage_error("%s %s: the range must ascend and end at %d or below", option, text, ZP_MOST_RANKS), false;
  *low = (int)first;
  *high = (int)last;
  return true;
}

/* N, auto, or LOW..HIGH. The last two ask about several counts: only `plan` answers them. */
bool zp_parse_devices(zp_run_state *run, const char *option, const char *text) {
  zp_options *o = &run->options;
  bool range = strstr(text, "..") != NULL;
  o->gpus_auto = strcmp(text, "auto") == 0;
  o->gpus_low = o->gpus_high = 0;
  o->load.gpus = 0;
  if (!o->gpus_auto && !range) return zp_parse_within(option, text, 1, ZP_MOST_RANKS, &o->load.gpus);
  if (strcmp(run->command, "plan") != 0)
    return zp_usage_error("%s %s: `zplan %s` wants one number", option, text, run->command), false;
  return o->gpus_auto || parse_range(option, text, &o->gpus_low, &o->gpus_high);
}

/* "10..20": kept as it is for the trainer. */
bool zp_parse_steps(zp_run_state *run, const char *option, const char *text) {
  char *end, *begin = strstr(text, "..");
  long long first = strtoll(text, &end, 10), last = begin ? strtoll(begin + 2, NULL, 10) : 0;
  bool digits = begin && strspn(text, "0123456789") == (size_t)(begin - text) && begin[2] != '\0' &&
                strspn(begin + 2, "0123456789") == strlen(begin + 2);
  if (!digits || end != begin || first < 1 || last < first)
    return zp_usage_error("%s wants two steps such as 10..20, not `%s`", option, text), false;
  run->options.profile_steps = text;
  return true;
}

/* 4GiB, 512MB, 1000 (bytes need a unit: a bare number is refused as in the language). */
bool zp_parse_size(const char *option, const char *text, int64_t *out) {
  static const struct {
    const char *unit;
    double bytes;
  } units[] = {{"KB", 1e3},     {"MB", 1e6},        {"GB", 1e9},           {"TB", 1e12},
               {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
               {"B", 1}};
  char *end;
  double number = strtod(text, &end);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++)
    if (end != text && strcmp(end, units[i].unit) == 0 && number > 0 && number * units[i].bytes < 9e18) {
      *out = (int64_t)(number * units[i].bytes);
      return true;
    }
  static const char letters[] = "kKMGT";
  size_t n = strspn(end, letters);
  bool letter = end != text && number > 0 && n == 1 && (!end[1] || strcmp(end + 1, "i") == 0);
  if (letter)
    zp_usage_error("%s %s: write %.*s%cB (powers of 1000) or %.*s%ciB (of 1024)", option, text, (int)(end - text), text,
                   *end, (int)(end - text), text, *end == 'k' ? 'K' : *end);
  else
    zp_usage_error("%s wants a size with a unit such as 4GiB or 512MB, not `%s`", option, text);
  return false;
}

/* 1: always, 0: never, -1: auto. */
bool zp_parse_color(const char *text, int *out) {
  *out = strcmp(text, "always") == 0 ? 1 : strcmp(text, "never") == 0 ? 0 : -1;
  if (*out >= 0 || strcmp(text, "auto") == 0) return true;
  return zp_usage_error("--color is auto, always or never, not `%s`", text), false;
}

/* 1%, or 0.01. */
bool zp_parse_share(const char *option, const char *text, double *out) {
  char *end;
  double number = strtod(text, &end);
  bool percent = end != text && strcmp(end, "%") == 0;
  if (percent) number /= 100;
  if (end != text && (percent || !*end) && number >= 0 && number < 1) {
    *out = number;
    return true;
  }
  zp_usage_error("%s wants a share from 0 to below 100%%, such as 1%% or 0.01, not `%s`", option, text);
  return false;
}

bool zp_parse_temperature(const char *option, const char *text, double *out) {
  char *end;
  *out = strtod(text, &end);
  if (end != text && !*end && *out > 0 && *out <= 1000) return true;
  return zp_usage_error("%s wants a number above 0 and up to 1000, not `%s`", option, text), false;
}

bool zp_is_dtype(const char *name) {
  static const char *const names[] = {"f32", "f64", "bf16", "f16"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i], name) == 0) return true;
  return zp_usage_error("--dtype is f32, f64, bf16 or f16, not `%s`", name), false;
}

bool zp_is_pass(const char *name) {
  static const char *const passes[] = {"graph", "shard", "differentiate", "lower", "moves"};
  for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
    if (strcmp(passes[i], name) == 0) return true;
  return zp_usage_error("--dump-after is graph, shard, differentiate, lower or moves, not `%s`", name), false;
}

bool zp_is_program(zp_run_state *run, const char *word) {
  zp_trainer trainer;
  const zp_software *software;
  if (zp_software_find(word, &trainer, &software)) return true;
  zp_strings words = zp_software_words(run->arena);
  zp_buf list = zp_buf_new(run->arena);
  for (int i = 0; i < words.len; i++) zp_buf_printf(&list, "%s%s", i ? ", " : "", words.data[i]);
  return zp_usage_error("--for names a program, not `%s`; there are %s", word, list.data), false;
}
