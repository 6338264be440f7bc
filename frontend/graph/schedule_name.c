/* Names of schedules, from their one list, and of what stages recompute. */
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
  for (int i = 0; i < MODES; i++) {
    if (strcmp(modes[i].name, name) != 0) continue;
    *mode = modes[i].mode;
    return true;
  }
  return false;
}
