/* Names of schedules, from their one list. */
#include <zplan/spec.h>

static const char *const names[ZP_SCHEDULE_COUNT] = {
#define ZP_SCHEDULE_ROW(name, text) text,
    ZP_SCHEDULES(ZP_SCHEDULE_ROW)
#undef ZP_SCHEDULE_ROW
};

const char *zp_schedule_name(zp_schedule schedule) { return names[schedule]; }

zp_schedule zp_schedule_by_name(const char *name) {
  for (int i = 0; i < ZP_SCHEDULE_COUNT; i++)
    if (strcmp(names[i], name) == 0) return (zp_schedule)i;
  return ZP_SCHEDULE_COUNT;
}

const char *zp_recompute_name(zp_recompute recompute) {
  return recompute == ZP_RECOMPUTE_FULL ? "full" : recompute == ZP_RECOMPUTE_SELECTIVE ? "selective" : "none";
}
