/* Before a search: the plan block without what the other program cannot express, so that the best of the rest is found
 * instead of a plan that has to be refused. */
#include "export_internal.h"

/* Of the allowed values 0 .. highest those that `keep` has as a bit. Leaves a limit alone that would lose everything.
 */
static bool narrow(zp_arena *arena, zp_limit *limit, int highest, unsigned keep, double unset_high) {
  ZP_VEC(double) in = {0};
  bool lost = false;
  for (int v = 0; v <= highest; v++) {
    bool allowed = limit->set ? zp_limit_allows(limit, v) : v <= unset_high;
    if (allowed && (keep & 1u << v)) zp_push(arena, &in, (double)v);
    lost |= allowed && !(keep & 1u << v);
  }
  if (!lost || in.len == 0) return false;
  limit->in.data = in.data;
  limit->in.len = in.len;
  limit->in.cap = in.cap;
  limit->set = true;
  return true;
}

#define BIT(value) (1u << (value))

typedef struct narrowed_key {
  const char *name;
  zp_limit *limit;
  int highest;
  unsigned keep;
  double unset_high; /* the highest value that is allowed when the file says nothing */
} narrowed_key;

static const char *apply(zp_arena *arena, const narrowed_key *keys, int n) {
  zp_buf names = zp_buf_new(arena);
  for (int i = 0; i < n; i++)
    if (narrow(arena, keys[i].limit, keys[i].highest, keys[i].keep, keys[i].unset_high))
      zp_buf_printf(&names, "%s%s", names.len ? ", " : "", keys[i].name);
  return names.len ? names.data : NULL;
}

const char *zp_export_narrow(zp_arena *arena, zp_spec *spec, zp_export_format format) {
  zp_constraints *c = &spec->plans.data[spec->plan];
  enum { LAST_SCHEDULE = ZP_SCHEDULE_COUNT - 1 };
  const narrowed_key cut = {"cut", &c->cut, 1, BIT(0), 1};
  if (format == ZP_EXPORT_MEGATRON) {
    const narrowed_key keys[] = {
        cut,
        {"schedule", &c->schedule, LAST_SCHEDULE, BIT(ZP_SCHEDULE_1F1B) | BIT(ZP_SCHEDULE_INTERLEAVED), LAST_SCHEDULE}};
    return apply(arena, keys, sizeof keys / sizeof *keys);
  }
  if (format == ZP_EXPORT_DEEPSPEED) {
    const narrowed_key keys[] = {cut,
                                 {"schedule", &c->schedule, LAST_SCHEDULE, BIT(ZP_SCHEDULE_1F1B), LAST_SCHEDULE},
                                 {"sequence", &c->sequence, 1, BIT(0), 1}};
    return apply(arena, keys, sizeof keys / sizeof *keys);
  }
  return NULL;
}
