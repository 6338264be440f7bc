/* SPDX-License-Identifier: Apache-2.0 */
/* Names of schedules and rank orders, each from its one list, of what stages recompute, and of precisions. */
#include <zplan/spec.h>

#include <assert.h>

static const char *const names[ZP_SCHEDULE_COUNT] = {
#define ZP_SCHEDULE_ROW(name, text) text,
    ZP_SCHEDULES(ZP_SCHEDULE_ROW)
#undef ZP_SCHEDULE_ROW
};

const char *zp_schedule_name(zp_schedule schedule) {
  assert(schedule < ZP_SCHEDULE_COUNT);
  return names[schedule];
}

zp_schedule zp_schedule_by_name(const char *name) {
  assert(name);
  for (int i = 0; i < ZP_SCHEDULE_COUNT; i++)
    if (strcmp(names[i], name) == 0) return (zp_schedule)i;
  return ZP_SCHEDULE_COUNT;
}

static const char *const order_names[ZP_ORDER_COUNT] = {
#define ZP_RANK_ORDER_ROW(name, text) text,
    ZP_RANK_ORDERS(ZP_RANK_ORDER_ROW)
#undef ZP_RANK_ORDER_ROW
};

const char *zp_rank_order_name(zp_rank_order order) {
  assert(order < ZP_ORDER_COUNT);
  return order_names[order];
}

zp_rank_order zp_rank_order_by_name(const char *name) {
  assert(name);
  for (int i = 0; i < ZP_ORDER_COUNT; i++)
    if (strcmp(order_names[i], name) == 0) return (zp_rank_order)i;
  return ZP_ORDER_COUNT;
}

static const struct {
  const char *word;
  int bytes, real_bytes;
  const char *recipe, *rounded[ZP_SIDES];
  int multiple;
} precisions[ZP_PRECISIONS] = {
#define PRECISION(id, word, operand, real, dtype, recipe, value, weight, gradient, multiple, ...)                      \
  {word, operand, real, recipe, {value, weight, gradient}, multiple},
#include <zplan/precisions.def>
};

const char *zp_precision_name(zp_precision precision) {
  assert(precision < ZP_PRECISIONS);
  return precisions[precision].word;
}

const char *zp_precision_recipe(zp_precision precision) {
  assert(precision < ZP_PRECISIONS);
  return precisions[precision].recipe;
}

const char *zp_precision_rounded(zp_precision precision, zp_product_side side) {
  assert(precision < ZP_PRECISIONS && side < ZP_SIDES);
  return precisions[precision].rounded[side];
}

int zp_precision_multiple(zp_precision precision) {
  assert(precision < ZP_PRECISIONS);
  return precisions[precision].multiple;
}

int zp_precision_bytes(zp_precision precision) {
  assert(precision < ZP_PRECISIONS);
  return precisions[precision].bytes;
}

int zp_precision_real_bytes(zp_precision precision) {
  assert(precision < ZP_PRECISIONS);
  return precisions[precision].real_bytes;
}

const char *zp_recompute_name(zp_recompute recompute) {
  assert(recompute <= ZP_RECOMPUTE_SELECTIVE);
  return recompute == ZP_RECOMPUTE_FULL ? "full" : recompute == ZP_RECOMPUTE_SELECTIVE ? "selective" : "none";
}

static const struct {
  zp_stage_mode mode;
  const char *name;
} modes[] = {{ZP_RECOMPUTE_NONE, "none"},
             {ZP_RECOMPUTE_SELECTIVE, "selective"},
             {ZP_RECOMPUTE_FULL, "full"},
             {ZP_RECOMPUTE_FULL | ZP_STAGE_SPLIT, "full/tensor"}};
enum { MODES = sizeof modes / sizeof *modes };

const char *zp_stage_mode_name(zp_stage_mode mode) {
  for (int i = 0; i < MODES; i++)
    if (modes[i].mode == mode) return modes[i].name;
  return "";
}

bool zp_stage_mode_by_name(const char *name, zp_stage_mode *mode) {
  assert(name && mode);
  for (int i = 0; i < MODES; i++) {
    if (strcmp(modes[i].name, name) != 0) continue;
    *mode = modes[i].mode;
    return true;
  }
  return false;
}
