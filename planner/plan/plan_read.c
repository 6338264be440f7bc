/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files, read back as a choice. What is not a decision is derived again from it, and zp_verify compares that with
 * what the file claims. */
#include <zplan/plan.h>

#include <assert.h>
#include "plan_internal.h"
#include <zplan/schedule.h>

/* Larger values are no plan, and would overflow the arithmetic of whoever reads them. */
enum { MAX_DEGREE = 1 << 20, MAX_SAMPLES = 1 << 30 };

static bool read_degree(const zp_json *degrees, const char *key, int *out) {
  int64_t value = zp_json_get_int(degrees, key, 0);
  *out = (int)(value < 0 || value > MAX_DEGREE ? 0 : value);
  return *out > 0;
}

/* Files of models without experts need not say. */
static bool read_experts(const zp_json *degrees, zp_choice *c) {
  if (zp_json_get(degrees, "expert")) return read_degree(degrees, "expert", &c->expert);
  c->expert = 1;
  return true;
}

/* Files whose ranks have all positions of their samples do not say. Requires: what the file calls `data`. */
static bool read_context(const zp_json *degrees, zp_choice *c) {
  if (!zp_json_get(degrees, "context")) return true;
  if (!read_degree(degrees, "context", &c->context) || c->context > MAX_DEGREE / c->data) return false;
  c->data *= c->context;
  return true;
}

/* Files whose stages are not mixed do not say. Requires: the modes of the stages. */
static bool read_mix(zp_arena *arena, const zp_json *list, zp_choice *c) {
  if (!list) return true;
  zp_stage_mix *mix = ZP_NEW_ARRAY(arena, zp_stage_mix, c->pipeline);
  for (int s = 0; s < c->pipeline; s++) mix[s] = (zp_stage_mix){ZP_ALL_LAYERS, zp_choice_mode(c, s)};
  for (int i = 0; i < zp_json_count(list); i++) {
    const zp_json *one = zp_json_at(list, i);
    int64_t stage = zp_json_get_int(one, "stage", -1), layers = zp_json_get_int(one, "recompute_layers", 0);
    if (stage < 0 || stage >= c->pipeline || layers < 1 || layers > INT32_MAX) return false;
    if (mix[stage].layers != ZP_ALL_LAYERS) return false;
    mix[stage].layers = layers;
    if (!zp_stage_mode_by_name(zp_json_get_string(one, "recompute_rest", ""), &mix[stage].rest)) return false;
    if (mix[stage].rest == zp_choice_mode(c, (int)stage) || zp_stage_mode_split(mix[stage].rest)) return false;
  }
  zp_choice_set_mix(c, mix);
  return true;
}

/* Requires: the degrees. */
static bool read_recompute(zp_arena *arena, const zp_json *json, zp_choice *c) {
  const char *name = zp_json_get_string(json, "recompute", "");
  const zp_json *list = zp_json_get(json, "stage_recompute");
  zp_stage_mode mode;
  if (strcmp(name, ZP_PLAN_PER_STAGE) != 0) {
    if (list || !zp_stage_mode_by_name(name, &mode) || zp_stage_mode_split(mode)) return false;
    c->recompute = zp_stage_mode_recompute(mode);
    c->recompute_shard = zp_json_get_bool(json, "recompute_shard", false);
    return true;
  }
  if (zp_json_count(list) != c->pipeline) return false;
  zp_stage_mode *modes = ZP_NEW_ARRAY(arena, zp_stage_mode, c->pipeline);
  for (int s = 0; s < c->pipeline; s++)
    if (!zp_stage_mode_by_name(zp_json_string(zp_json_at(list, s), ""), &modes[s])) return false;
  zp_choice_set_modes(c, modes);
  return true;
}

/* Classes that the file does not mention stay on the device. */
static bool read_homes(const zp_json *offload, zp_choice *c) {
  for (int i = 0; i < ZP_STATE_COUNT; i++) {
    const zp_json *home = zp_json_get(offload, zp_state_name((zp_state)i));
    if (!home) continue;
    const char *tier = zp_json_get_string(home, "tier", "");
    int64_t eighths = zp_json_get_int(home, "eighths", -1);
    bool host = strcmp(tier, "host") == 0;
    if ((!host && strcmp(tier, "nvme") != 0) || eighths < 1 || eighths > 8) return false;
    c->home[i] = (zp_home){host ? ZP_TIER_HOST : ZP_TIER_NVME, (int)eighths};
  }
  return true;
}

enum { MAX_CHUNKS = 1024, MAX_LOSS_CHUNKS = ZP_MOST_LOSS_CHUNKS };

/* Files without shard groups do not say; groups of all data ranks are none. */
static bool read_shard(const zp_json *degrees, zp_choice *c) {
  if (!zp_json_get(degrees, "shard")) return true;
  return read_degree(degrees, "shard", &c->shard) && c->shard < c->data && c->data % c->shard == 0 &&
         c->shard % zp_expert_ranks(c) == 0;
}

/* Nor do files without a second copy of the parameters. */
static bool read_hpz(const zp_json *degrees, zp_choice *c) {
  if (!zp_json_get(degrees, "hpz")) return true;
  return read_degree(degrees, "hpz", &c->hpz) && c->hpz > 1 && c->hpz < c->data && c->data % c->hpz == 0;
}

static bool read_decisions(zp_arena *arena, const zp_json *json, zp_choice *c) {
  const zp_json *degrees = zp_json_get(json, "degrees");
  int64_t zero = zp_json_get_int(json, "zero", -1), chunks = zp_json_get_int(json, "chunks", 1);
  int64_t loss_chunks = zp_json_get_int(json, "loss_chunks", 1);
  if (zero < 0 || zero > 3 || chunks < 1 || chunks > MAX_CHUNKS) return false;
  if (loss_chunks < 1 || loss_chunks > MAX_LOSS_CHUNKS) return false;
  c->zero = (int)zero;
  c->chunks = (int)chunks;
  c->loss_chunks = loss_chunks > 1 ? (int)loss_chunks : 0;
  c->microbatch = zp_json_get_int(json, "microbatch", 0);
  const char *by = zp_json_get_string(json, "context_by", "heads"); /* older files do not say */
  int way = ZP_CONTEXT_BY_COUNT - 1;
  while (way >= 0 && strcmp(by, zp_context_by_name((zp_context_by)way)) != 0) way--;
  if (way < 0) return false;
  c->context_by = (zp_context_by)way;
  c->sequence = zp_json_get_bool(json, "sequence", false);
  c->compress = zp_json_get_bool(json, "compress", false);
  const char *cut = zp_json_get_string(json, "cut", "layer");
  c->fine = strcmp(cut, "block") == 0;
  if (!c->fine && strcmp(cut, "layer") != 0) return false;
  c->schedule = zp_schedule_by_name(zp_json_get_string(json, "schedule", ""));
  c->order = zp_rank_order_by_name(zp_json_get_string(json, "rank_order", ""));
  return read_degree(degrees, "tensor", &c->tensor) && read_degree(degrees, "pipeline", &c->pipeline) &&
         read_degree(degrees, "data", &c->data) && read_context(degrees, c) && read_experts(degrees, c) &&
         read_shard(degrees, c) && read_hpz(degrees, c) && (int64_t)c->tensor * c->pipeline <= MAX_DEGREE / c->data &&
         c->microbatch > 0 && c->microbatch <= MAX_SAMPLES && c->schedule != ZP_SCHEDULE_COUNT &&
         c->order != ZP_ORDER_COUNT && read_recompute(arena, json, c) &&
         read_mix(arena, zp_json_get(json, "mixed_stages"), c) && read_homes(zp_json_get(json, "offload"), c);
}

/* Units of model chunk k, as its stage lists them; a file without chunks has one a stage. */
static int64_t claimed_units(const zp_json *stages, const zp_choice *c, int64_t k, int *stage) {
  int chunk;
  *stage = zp_chunk_stage(c, k, &chunk);
  const zp_json *s = zp_json_at(stages, *stage), *chunks = zp_json_get(s, "chunks");
  return zp_json_get_int(chunks ? zp_json_at(chunks, chunk) : s, "units", 0);
}

static bool read_cuts(zp_arena *arena, const zp_json *stages, zp_choice *c, const char **error) {
  if (zp_json_count(stages) != c->pipeline) {
    *error = zp_format(arena, "pipeline is %d but %d stages are listed", c->pipeline, zp_json_count(stages));
    return false;
  }
  int64_t places = (int64_t)c->pipeline * zp_chunks(c);
  c->cut = ZP_NEW_ARRAY(arena, int64_t, places + 1);
  for (int64_t k = 0; k < places; k++) {
    int stage;
    int64_t units = claimed_units(stages, c, k, &stage);
    if (units < 1 || units > INT32_MAX) {
      *error = zp_format(arena, "stage %d has %lld units", stage, (long long)units);
      return false;
    }
    c->cut[k + 1] = c->cut[k] + units;
  }
  return true;
}

static bool has_key(const zp_json *value, const char *name) {
  void *at = NULL;
  const char *key;
  const zp_json *member;
  while (zp_json_next(value, &at, &key, &member))
    if (strcmp(key, name) == 0 || has_key(member, name)) return true;
  for (int i = 0; i < zp_json_count(value); i++)
    if (has_key(zp_json_at(value, i), name)) return true;
  return false;
}

const char *zp_plan_json_upgrade(zp_arena *arena, zp_json *json) {
  static const char *const renamed[][2] = {{"away_stride", "offloaded_stride"},
                                           {"saved_away", "saved_offloaded"},
                                           {"away_slots", "offloaded_slots"},
                                           {"away_staging", "offloaded_staging"}};
  if (!zp_json_is_object(json)) return NULL;
  const char *version = zp_json_get_string(json, "format_version", "");
  bool first = strncmp(version, "1.", 2) == 0;
  for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++) {
    if (!first && has_key(json, renamed[i][0]))
      return zp_format(arena, "format_version is \"%s\", but `%s` is a name of format 1, `%s` in this one", version,
                       renamed[i][0], renamed[i][1]);
    if (first) zp_json_rename(json, renamed[i][0], renamed[i][1]);
  }
  if (!first) return NULL;
  static const char *const added[] = {"at_difference", "at_gradient_before"}; /* of Adan, which format 1 has not */
  for (size_t i = 0; i < sizeof added / sizeof *added; i++) zp_json_add_alongside(json, "at_moment2", added[i], -1);
  zp_json_set_string(json, "format_version", "2.0");
  return NULL;
}

/* Files of plans whose nodes are as they are written do not say their order. */
const zp_spec *zp_plan_spec_from_json(zp_arena *arena, const zp_spec *spec, const zp_json *json, const char **error) {
  const zp_json *order = zp_json_get(zp_json_get(json, "cluster"), "node_order");
  int n = zp_json_count(order);
  if (!order) return spec;
  zp_node_range range[ZP_MOST_NODE_GROUPS];
  zp_spec *arranged = ZP_NEW(arena, zp_spec);
  *arranged = *spec;
  for (int i = 0; i < n && i < ZP_MOST_NODE_GROUPS; i++) {
    int64_t first = zp_json_get_int(zp_json_at(order, i), "first_node", -1);
    int64_t nodes = zp_json_get_int(zp_json_at(order, i), "nodes", 0);
    bool are_ints = first >= 0 && first <= INT32_MAX / 2 && nodes > 0 && nodes <= INT32_MAX / 2;
    range[i] = are_ints ? (zp_node_range){(int)first, (int)nodes} : (zp_node_range){-1, 0};
  }
  if (n <= ZP_MOST_NODE_GROUPS && spec->cluster.groups.len > 0 &&
      zp_cluster_arrange(arena, &spec->cluster, range, n, &arranged->cluster))
    return arranged;
  *error = "its node_order does not have every node of its cluster once";
  return NULL;
}

bool zp_plan_choice_from_json(zp_arena *arena, const zp_spec *spec, const zp_json *json, zp_choice *choice,
                              int *devices, const char **error) {
  assert(choice && devices && error);
  const char *version = zp_json_get_string(json, "format_version", "");
  if (strncmp(version, "2.", 2) != 0) {
    *error = zp_format(arena, "format_version is \"%s\", this program reads 1.x and 2.x", version);
    return false;
  }
  *choice = (zp_choice){0};
  if (!read_decisions(arena, json, choice)) {
    *error =
        "a decision is missing or not a value that a plan can have (degrees, zero, microbatch, loss_chunks, schedule, "
        "chunks, rank_order, recompute, mixed_stages, cut, offload)";
    return false;
  }
  int64_t idle = zp_json_get_int(json, "idle", 0);
  if (idle < 0 || idle > MAX_DEGREE) {
    *error = zp_format(arena, "%lld devices cannot be idle", (long long)idle);
    return false;
  }
  *devices = zp_choice_ranks(choice) + (int)idle;
  const char *refusal = zp_schedule_refusal(choice);
  if (refusal) {
    *error = refusal;
    return false;
  }
  const zp_json *stages = zp_json_get(json, "stages");
  if (!read_cuts(arena, stages, choice, error)) return false;
  if (spec->train.batch % (zp_replicas(choice) * choice->microbatch) != 0)
    return true; /* said by who derives the rest */
  return zp_read_orders(arena, stages, choice, zp_microbatches(spec, choice), zp_json_get_int(json, "microbatches", 0),
                        error);
}
