/* SPDX-License-Identifier: Apache-2.0 */
/* Units of literals: one table of whole units and one of units that take a prefix. */
#include "eval.h"

typedef struct unit {
  const char *text;
  double factor;
  zp_dimension dimension;
  bool binary; /* Ki, Mi, ... allowed */
} unit;

static const unit whole_units[] = {
    {"%", 0.01, ZP_DIM_PERCENT, false},  {"s", 1, ZP_DIM_SECONDS, false},     {"ms", 1e-3, ZP_DIM_SECONDS, false},
    {"us", 1e-6, ZP_DIM_SECONDS, false}, {"ns", 1e-9, ZP_DIM_SECONDS, false}, {"min", 60, ZP_DIM_SECONDS, false},
    {"h", 3600, ZP_DIM_SECONDS, false},  {"d", 86400, ZP_DIM_SECONDS, false},
};

static const unit prefixed_units[] = {
    {"B", 1, ZP_DIM_BYTES, true},
    {"B/s", 1, ZP_DIM_BYTES_PER_S, true},
    {"bps", 0.125, ZP_DIM_BYTES_PER_S, false},
    {"FLOPS", 1, ZP_DIM_FLOP_PER_S, false},
    {"FLOP/s", 1, ZP_DIM_FLOP_PER_S, false},
    {"W", 1, ZP_DIM_WATTS, false},
};

static const unit *find_unit(const unit *units, size_t count, const char *text) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(units[i].text, text) == 0) return &units[i];
  return NULL;
}

/* Value of a prefix letter and, when the next letter is `i`, of its binary form. Returns how many characters it
 * took. */
static int read_prefix(const char *text, double *factor, bool *binary) {
  static const char letters[] = "kMGTP";
  char letter = text[0] == 'K' ? 'k' : text[0];
  const char *at = letter ? strchr(letters, letter) : NULL;
  *factor = 1;
  *binary = false;
  if (!at) return 0;
  *binary = text[1] == 'i';
  for (const char *p = letters; p <= at; p++) *factor *= *binary ? 1024.0 : 1000.0;
  return *binary ? 2 : 1;
}

bool zp_unit_convert(double number, const char *text, double *base, zp_dimension *dimension) {
  const unit *found = find_unit(whole_units, sizeof whole_units / sizeof *whole_units, text);
  double prefix = 1;
  if (!found) {
    bool binary;
    int skip = read_prefix(text, &prefix, &binary);
    found = find_unit(prefixed_units, sizeof prefixed_units / sizeof *prefixed_units, text + skip);
    if (found && binary && !found->binary) found = NULL;
  }
  if (!found) return false;
  *base = number * prefix * found->factor;
  *dimension = found->dimension;
  return true;
}

const char *zp_dimension_name(zp_dimension dimension) {
  switch (dimension) {
  case ZP_DIM_NONE: return "a number";
  case ZP_DIM_BYTES: return "a size in bytes";
  case ZP_DIM_BYTES_PER_S: return "a bandwidth";
  case ZP_DIM_SECONDS: return "a time";
  case ZP_DIM_FLOP_PER_S: return "a compute rate";
  case ZP_DIM_WATTS: return "a power";
  case ZP_DIM_PERCENT: return "a percentage";
  }
  return "a value";
}
