/* When nothing fits: the nearest miss, and changes that were tried by searching again. Nothing is promised unchecked.
 */
#include "report_internal.h"

static const char *rank_word(const zp_plan *plan, int n) {
  if (plan->spec->cluster.node.device.is_cpu) return n == 1 ? "rank" : "ranks";
  return n == 1 ? "device" : "devices";
}

static void put_miss(zp_buf *out, const zp_plan *plan) {
  const zp_miss *miss = &plan->miss;
  zp_arena *arena = out->arena;
  zp_buf_line(out, "does not fit: stage %d needs %s, %s may be used of %s", miss->stage,
              zp_show_bytes(arena, miss->need_bytes), zp_show_bytes(arena, miss->have_bytes),
              zp_show_bytes(arena, plan->machine.memory_bytes));
  zp_buf_puts(out, "  ");
  for (int c = 0; c < ZP_MEMORY_CLASSES; c++)
    zp_buf_printf(out, "%s%s %s", c ? "   " : "", zp_memory_class_name(c),
                  zp_words_bytes(arena, zp_memory_class_bytes(&miss->memory, c)));
  zp_buf_printf(out, "\n  nearest miss: %s\n", zp_words_choice(arena, &miss->choice));
  double fraction = plan->spec->plans.data[plan->spec->plan].memory_fraction;
  int64_t device = (int64_t)((double)miss->need_bytes / (fraction > 0 ? fraction : 1)) + 1;
  zp_buf_line(out, "  help: with %s of memory per %s that choice fits", zp_show_bytes(arena, device),
              rank_word(plan, 1));
}

/* Searches a changed copy; true, with a line, when something fits. */
static bool try_change(zp_buf *out, const zp_spec *changed, int devices, const char *words) {
  zp_arena *scratch = zp_arena_new("what if");
  zp_plan *plan = zp_search(scratch, changed, devices, NULL);
  bool feasible = plan->feasible;
  if (feasible)
    zp_buf_line(out, "  help: %s it fits: %s; step est %s, peak %s", words,
                zp_words_choice(scratch, &plan->best.choice), zp_show_seconds(scratch, plan->best.estimate.step_s),
                zp_show_bytes(scratch, plan->best.estimate.peak_bytes));
  zp_arena_free(scratch);
  return feasible;
}

/* The constraints that were set, each dropped alone; then all together. */
static bool try_without_constraints(zp_buf *out, const zp_plan *plan) {
  static const struct {
    const char *key;
    size_t at;
  } keys[] = {{"tensor", offsetof(zp_constraints, tensor)},
              {"pipeline", offsetof(zp_constraints, pipeline)},
              {"data", offsetof(zp_constraints, data)},
              {"zero", offsetof(zp_constraints, zero)},
              {"microbatch", offsetof(zp_constraints, microbatch)},
              {"recompute", offsetof(zp_constraints, recompute)},
              {"recompute_shard", offsetof(zp_constraints, recompute_shard)}};
  const zp_constraints *original = &plan->spec->plans.data[plan->spec->plan];
  zp_constraints relaxed = *original;
  zp_spec changed = *plan->spec;
  bool any = false;
  int set = 0;
  changed.plans.data = &relaxed;
  changed.plans.len = changed.plans.cap = 1;
  changed.plan = 0;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    relaxed = *original;
    zp_limit *limit = (zp_limit *)((char *)&relaxed + keys[i].at);
    if (!limit->set) continue;
    set++;
    *limit = (zp_limit){0};
    any |= try_change(out, &changed, plan->machine.devices,
                      zp_format(out->arena, "without the constraint on `%s`", keys[i].key));
  }
  if (any || set < 2) return any;
  relaxed = (zp_constraints){.memory_fraction = original->memory_fraction, .span = original->span};
  return try_change(out, &changed, plan->machine.devices, "without any constraint on degrees");
}

enum { MOST_TIMES = 16, MOST_IDLE = 16 };

/* More ranks: twice as many, and again; GPU clusters get the nodes for them, CPU ranks would only share what is there.
 */
static void try_more_devices(zp_buf *out, const zp_plan *plan) {
  if (plan->spec->cluster.node.device.is_cpu) return;
  for (int times = 2; times <= MOST_TIMES; times *= 2) {
    zp_spec changed = *plan->spec;
    int devices = plan->machine.devices * times, per_node = plan->machine.devices_per_node;
    int nodes = (devices + per_node - 1) / per_node;
    if (nodes > changed.cluster.nodes) changed.cluster.nodes = nodes;
    if (try_change(out, &changed, devices, zp_format(out->arena, "on %d devices", devices))) return;
  }
}

/* Counts with few divisors leave few ways to divide: some ranks idle may do. */
static void try_fewer_devices(zp_buf *out, const zp_plan *plan) {
  for (int idle = 1; idle <= MOST_IDLE && idle < plan->machine.devices; idle++) {
    int devices = plan->machine.devices - idle;
    const char *words = zp_format(out->arena, "on %d of them, %d idle,", devices, idle);
    if (try_change(out, plan->spec, devices, words)) return;
  }
}

const char *zp_report_infeasible(zp_arena *arena, const zp_plan *plan) {
  zp_buf out = zp_buf_new(arena);
  bool tried = plan->miss.have_bytes > 0;
  zp_buf_line(&out, "error[%s]: no plan for %d %s %s", tried ? "Z0603" : "Z0601", plan->machine.devices,
              rank_word(plan, plan->machine.devices), tried ? "fits into memory" : "satisfies the constraints");
  if (tried)
    put_miss(&out, plan);
  else if (plan->why_not)
    zp_buf_line(&out, "  %s", plan->why_not);
  bool relaxed = try_without_constraints(&out, plan);
  if (!relaxed && tried) try_more_devices(&out, plan);
  if (!relaxed && !tried) try_fewer_devices(&out, plan);
  for (int i = 0; i < ZP_REJECT_COUNT; i++)
    if (plan->certificate.rejected[i])
      zp_buf_line(&out, "  note: %lld of %lld candidates rejected: %s", (long long)plan->certificate.rejected[i],
                  (long long)plan->certificate.candidates, zp_rejection_text((zp_rejection)i));
  return out.data;
}
