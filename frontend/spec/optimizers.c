/* SPDX-License-Identifier: Apache-2.0 */
/* What the rows of optimizers say (zplan/optimizers.def). */
#include <zplan/optimizer.h>

#include <assert.h>
#include <zplan/spec.h>

const zp_setting zp_optimizer_settings[] = {
#define IS_bool true
#define IS_double false
#define SETTING(type, name, use) {#name, offsetof(zp_train, name), IS_##type, ZP_SETTING_##use},
#include <zplan/optimizers.def>
};
const int zp_n_optimizer_settings = sizeof zp_optimizer_settings / sizeof *zp_optimizer_settings;

/* clang-format off */
#define AT(field)                       offsetof(zp_train, field)
#define VALUE(setting, unwritten)       {AT(setting), unwritten}
#define REAL(name, range, unwritten)    {#name, ZP_OPTION_REAL, ZP_RANGE_##range, 1, {VALUE(name, unwritten)}, NULL}
#define FLAG(name, unwritten)           {#name, ZP_OPTION_BOOL, ZP_RANGE_ANY, 1, {VALUE(name, unwritten)}, NULL}
#define LIST(name, range, example, ...) \
  {#name, ZP_OPTION_LIST, ZP_RANGE_##range, \
   sizeof (zp_optimizer_value[]){__VA_ARGS__} / sizeof(zp_optimizer_value), {__VA_ARGS__}, example}
#define LR                              REAL(lr, POSITIVE, -1)
#define EPS                             REAL(eps, POSITIVE, 1e-8)
#define BETAS(one, two)                 \
  LIST(betas, BELOW_ONE, "betas = [0.9, 0.95]", VALUE(beta1, one), VALUE(beta2, two))
#define WEIGHT_DECAY                    REAL(weight_decay, NOT_NEGATIVE, -1), \
                                        {"decay", ZP_OPTION_DECAY, ZP_RANGE_ANY, 0, {{0}}, NULL}
#define FREEZE                          \
  {"freeze_step", ZP_OPTION_COUNT, ZP_RANGE_ONE_OR_MORE, 1, {VALUE(freeze_step, -1)}, NULL}, \
  {"freeze", ZP_OPTION_FREEZE, ZP_RANGE_ANY, 0, {{0}}, NULL}
#define OPTIONS(list, ...)              static const zp_optimizer_option options_of_##list[] = {__VA_ARGS__};
/* clang-format on */
#include <zplan/optimizers.def>

enum {
#define STATE_MOMENT(region, field, key, name) region = 1u << ZP_KEPT_##region,
#include <zplan/state_regions.def>
};
#define TAKES(list) .options = options_of_##list, .n_options = sizeof options_of_##list / sizeof *options_of_##list
#define NOT_ONE_BIT [ZP_LIMIT_ONE_BIT] = "compress is for adam, adamw and lamb"
#define NOT_BEYOND_STATE                                                                                               \
  [ZP_LIMIT_BEYOND_STATE] =                                                                                            \
      "of lamb and adafactor no more of gradients or parameters is off the device than of optimizer state"
static const zp_optimizer rows[] = {
#define OPTIMIZER(kind, ...) [ZP_OPT_##kind] = {__VA_ARGS__},
#include <zplan/optimizers.def>
};
_Static_assert(sizeof rows / sizeof *rows == ZP_OPT_COUNT, "a row for each");

const zp_optimizer *zp_optimizer_row(zp_optimizer_kind kind) {
  assert(kind < ZP_OPT_COUNT);
  return &rows[kind];
}

const zp_optimizer *zp_optimizer_facts(const zp_train *train) { return zp_optimizer_row(train->optimizer); }

const char *zp_optimizer_name(zp_optimizer_kind kind) { return zp_optimizer_row(kind)->name; }

double zp_setting_real(const zp_train *train, size_t at) {
  return *(const double *)(const void *)((const char *)train + at);
}

unsigned zp_kept_bits(const zp_train *train) {
  const zp_optimizer *row = zp_optimizer_facts(train);
  return row->keeps_with == 0 || zp_setting_real(train, row->keeps_with) != 0 ? row->keeps : 0;
}

bool zp_keeps(const zp_train *train, zp_kept kept) {
  assert(kept < ZP_KEPT_COUNT);
  return zp_kept_bits(train) >> kept & 1;
}

int zp_n_kept(const zp_train *train) { return __builtin_popcount(zp_kept_bits(train)); }

bool zp_optimizer_takes(const zp_optimizer *optimizer, size_t at) {
  for (int i = 0; i < optimizer->n_options; i++)
    for (int n = 0; n < optimizer->options[i].n; n++)
      if (optimizer->options[i].value[n].at == at) return true;
  return false;
}
