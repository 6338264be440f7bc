/* SPDX-License-Identifier: Apache-2.0 */
/* The orders of a plan file: phrases of every stage. Those of the schedule are no decision; others make an order of its
 * own, when they are legal. */
#include "plan_internal.h"

#include <assert.h>
#include <zplan/schedule.h>

const char *zp_stated_order(zp_arena *arena, const zp_program *p, int stage) {
  zp_phrases phrases = zp_stage_phrases(arena, &p->choice, stage, p->microbatches, p->order ? p->order[stage] : NULL);
  return zp_order_text(arena, &phrases, zp_chunks(&p->choice));
}

/* Fills in which micro-batch every action is on. */
static void number(zp_arena *scratch, zp_action *table, int64_t n, int chunks) {
  int64_t *next = ZP_NEW_ARRAY(scratch, int64_t, (ZP_ACT_BW + 1) * chunks);
  for (int64_t i = 0; i < n; i++) table[i].microbatch = next[table[i].act * chunks + table[i].chunk]++;
}

const char *zp_read_stage_order(zp_arena *arena, const zp_json *stage_json, const zp_choice *c, int stage,
                                int64_t microbatches, zp_action *table) {
  assert(zp_choice_has_stage(c, stage) && microbatches >= 1 && table);
  const char *text = zp_json_get_string(stage_json, "order", NULL), *wrong = NULL;
  int64_t want = zp_order_length(c, microbatches);
  if (!text) return zp_format(arena, "stage %d states no order", stage);
  int64_t n = zp_read_order(text, zp_chunks(c), table, want, &wrong);
  if (n < 0)
    return zp_format(arena,
                     "stage %d: its order is none, or has more than %lld actions, those of %lld micro-batches, from "
                     "\"%.40s\" on (a count and %s: \"%s\")",
                     stage, (long long)want, (long long)microbatches, wrong,
                     zp_schedule_splits(c->schedule) ? "F, I and W" : "F and B",
                     zp_chunks(c) > 1 ? "3 F0 B1, 1 B1" : "3 F, 29 F B");
  if (n != want)
    return zp_format(arena, "stage %d has %lld actions in its order, %lld micro-batches are %lld", stage, (long long)n,
                     (long long)microbatches, (long long)want);
  number(arena, table, n, zp_chunks(c));
  return NULL;
}

/* Memory for tables that no schedule needs is bounded, whatever a file says. */
enum { MOST_ACTIONS = 1 << 24 };

static bool equals_schedule(zp_action *const *table, zp_action *const *own, const int64_t *length, int stages) {
  for (int s = 0; s < stages; s++)
    for (int64_t i = 0; i < length[s]; i++)
      if (table[s][i].act != own[s][i].act || table[s][i].chunk != own[s][i].chunk) return false;
  return true;
}

/* Requires: tables of so many actions may be made. */
static bool take_own(zp_arena *arena, const zp_json *stages, zp_choice *c, int64_t microbatches, const char **error) {
  zp_action **table = ZP_NEW_ARRAY(arena, zp_action *, c->pipeline);
  int64_t *length = ZP_NEW_ARRAY(arena, int64_t, c->pipeline), n = zp_order_length(c, microbatches);
  for (int s = 0; s < c->pipeline; s++) {
    table[s] = ZP_NEW_ARRAY(arena, zp_action, n);
    length[s] = n;
    *error = zp_read_stage_order(arena, zp_json_at(stages, s), c, s, microbatches, table[s]);
    if (*error) return false;
  }
  zp_arena *scratch = zp_arena_new("orders");
  int64_t *of_length = ZP_NEW_ARRAY(scratch, int64_t, c->pipeline);
  bool same = equals_schedule(zp_orders(scratch, c, microbatches, of_length), table, length, c->pipeline);
  zp_arena_free(scratch);
  if (same) return true;
  c->own_order = zp_own_order_make(arena, c, microbatches, table, length, error);
  return c->own_order != NULL;
}

static bool takes_tables(const zp_choice *c) {
  return c->schedule != ZP_SCHEDULE_1F1B && c->schedule != ZP_SCHEDULE_GPIPE;
}

static bool are_few(const zp_choice *c, int64_t microbatches) {
  return microbatches > 0 && microbatches <= MOST_ACTIONS / 3 / zp_chunks(c) / c->pipeline;
}

/* Do all stages say, word for word, what the schedule does with so many micro-batches? */
static bool say_schedule(const zp_json *stages, const zp_choice *c, int64_t microbatches) {
  zp_arena *scratch = zp_arena_new("orders");
  int64_t *length = ZP_NEW_ARRAY(scratch, int64_t, c->pipeline);
  zp_action **tables = takes_tables(c) ? zp_orders(scratch, c, microbatches, length) : NULL;
  bool so = true;
  for (int s = 0; s < c->pipeline && so; s++) {
    zp_arena_mark mark = zp_arena_get_mark(scratch);
    zp_phrases phrases = zp_stage_phrases(scratch, c, s, microbatches, tables ? tables[s] : NULL);
    so = strcmp(zp_json_get_string(zp_json_at(stages, s), "order", ""),
                zp_order_text(scratch, &phrases, zp_chunks(c))) == 0;
    zp_arena_rewind(scratch, mark);
  }
  zp_arena_free(scratch);
  return so;
}

/* Whoever changes another decision of a file, as its micro-batch, need not write the orders anew: those of the schedule
 * for the number that the file claims are no decision, either. */
bool zp_read_orders(zp_arena *arena, const zp_json *stages, zp_choice *c, int64_t microbatches, int64_t claimed,
                    const char **error) {
  bool said = false;
  for (int s = 0; s < c->pipeline; s++) said |= zp_json_get(zp_json_at(stages, s), "order") != NULL;
  if (!said || say_schedule(stages, c, microbatches)) return true; /* older files say nothing */
  if (claimed != microbatches && are_few(c, claimed) && say_schedule(stages, c, claimed)) return true;
  if (are_few(c, microbatches)) return take_own(arena, stages, c, microbatches, error);
  *error = zp_format(arena, "an order that is not the schedule's has at most %d actions", MOST_ACTIONS);
  return false;
}
