/* SPDX-License-Identifier: Apache-2.0 */
/* An order table as phrases: a run of actions and how often it is repeated, and groups of phrases that are repeated.
 * Plan files state orders so, and trainers follow them so; a table of any number of micro-batches is a few lines. */
#include <zplan/schedule.h>

#include <assert.h>
#include <zplan/buf.h>

/* LEAST_COVERED: actions of a phrase that is worth it, repeated. SHORT: the periods that schedules have, but for runs
 * of chunks, which groups of phrases say. MOST_GROUPED: phrases of a group. */
enum { LEAST_COVERED = 4, SHORT = 8, MOST_GROUPED = 64 };

static bool same(const zp_action *a, const zp_action *b) { return a->act == b->act && a->chunk == b->chunk; }

/* How often the `length` actions at the start of table[n] stand there one after the other. */
static int64_t repeats(const zp_action *table, int64_t n, int64_t length) {
  int64_t i = length;
  while (i < n && same(&table[i], &table[i - length])) i++;
  return i / length;
}

/* The phrase at the start of table[n] that covers most, the shortest of several; times 1: nothing worth it is
 * repeated. */
static zp_phrase find_phrase(const zp_action *table, int64_t n, int64_t longest) {
  zp_phrase best = {.times = 1, .length = 1, .actions = table};
  for (int64_t length = 1; length <= longest && 2 * length <= n; length++) {
    if (length > SHORT && best.times > 1) break;
    int64_t times = repeats(table, n, length);
    if (times > 1 && length * times >= LEAST_COVERED && length * times > best.length * best.times)
      best = (zp_phrase){.times = times, .length = length, .actions = table};
  }
  return best;
}

static void add(zp_arena *arena, zp_phrases *out, int64_t times, int64_t length, const zp_action *actions) {
  if (times > 0 && length > 0) zp_push(arena, out, ((zp_phrase){.times = times, .length = length, .actions = actions}));
}

static zp_phrases ungrouped(zp_arena *arena, const zp_action *table, int64_t n, int64_t longest) {
  zp_phrases out = {0};
  int64_t single = 0, i = 0;
  while (i < n) {
    zp_phrase next = find_phrase(table + i, n - i, longest);
    if (next.times == 1) {
      i++, single++;
      continue;
    }
    add(arena, &out, 1, single, table + i - single);
    zp_push(arena, &out, next);
    i += next.length * next.times;
    single = 0;
  }
  add(arena, &out, 1, single, table + i - single);
  return out;
}

static bool equal(const zp_phrase *a, const zp_phrase *b) {
  bool so = a->times == b->times && a->length == b->length;
  for (int64_t i = 0; i < a->length && so; i++) so = same(&a->actions[i], &b->actions[i]);
  return so;
}

/* How often the `length` phrases at the start of list[n] stand there one after the other. */
static int repeated_groups(const zp_phrase *list, int n, int length) {
  int i = length;
  while (i < n && equal(&list[i], &list[i - length])) i++;
  return i / length;
}

zp_phrases zp_phrases_of(zp_arena *arena, const zp_action *table, int64_t n, int64_t longest) {
  assert(n >= 0 && longest >= 1);
  zp_phrases list = ungrouped(arena, table, n, longest), out = {0};
  for (int i = 0; i < list.len;) {
    int most = 0, group = 0;
    for (int length = 1; length <= MOST_GROUPED && 2 * length <= list.len - i; length++) {
      int times = repeated_groups(&list.data[i], list.len - i, length);
      if (times > 1 && times * length > most) most = times * length, group = length;
    }
    if (group > 0) zp_push(arena, &out, ((zp_phrase){.times = most / group, .group = group}));
    for (int k = 0; k < (group > 0 ? group : 1); k++) zp_push(arena, &out, list.data[i + k]);
    i += group > 0 ? most : 1;
  }
  return out;
}

/* GPipe and 1F1B without a table: forwards, one forward and one backward in turn, backwards. */
static zp_phrases three_phrases(zp_arena *arena, int64_t warmup, int64_t microbatches) {
  static const zp_action turn[] = {{.act = ZP_ACT_F, .forward = true}, {.act = ZP_ACT_B}};
  zp_phrases out = {0};
  add(arena, &out, warmup, 1, &turn[0]);
  add(arena, &out, microbatches - warmup, 2, turn);
  add(arena, &out, warmup, 1, &turn[1]);
  return out;
}

zp_phrases zp_stage_phrases(zp_arena *arena, const zp_choice *c, int stage, int64_t microbatches,
                            const zp_action *table) {
  assert(zp_choice_has_stage(c, stage) && microbatches >= 1);
  int64_t longest = 8 * (int64_t)c->pipeline * zp_chunks(c), ahead = c->pipeline - 1 - stage;
  int64_t n = (zp_schedule_splits(c->schedule) ? 3 : 2) * zp_chunks(c) * microbatches;
  if (c->own_order) return zp_phrases_of(arena, c->own_order->table[stage], n, longest);
  if (c->schedule == ZP_SCHEDULE_GPIPE) return three_phrases(arena, microbatches, microbatches);
  if (c->schedule == ZP_SCHEDULE_1F1B)
    return three_phrases(arena, ahead < microbatches ? ahead : microbatches, microbatches);
  assert(table);
  return zp_phrases_of(arena, table, n, longest);
}

/* ---- as text ---- */

static const char letters[] = {[ZP_ACT_F] = 'F', [ZP_ACT_B] = 'B', [ZP_ACT_BI] = 'I', [ZP_ACT_BW] = 'W'};

const char *zp_action_text(zp_arena *arena, const zp_action *action, int chunks) {
  assert(action->act <= ZP_ACT_BW && chunks >= 1);
  return chunks > 1 ? zp_format(arena, "%c%d", letters[action->act], action->chunk)
                    : zp_format(arena, "%c", letters[action->act]);
}

static void print_phrase(zp_buf *out, const zp_phrase *phrase, int chunks) {
  for (int64_t i = 0; i < phrase->length; i++) {
    zp_buf_printf(out, " %c", letters[phrase->actions[i].act]);
    if (chunks > 1) zp_buf_printf(out, "%d", phrase->actions[i].chunk);
  }
}

const char *zp_order_text(zp_arena *arena, const zp_phrases *phrases, int chunks) {
  assert(chunks >= 1);
  zp_buf out = zp_buf_new(arena);
  for (int i = 0, left = 0; i < phrases->len; i++) {
    const zp_phrase *phrase = &phrases->data[i];
    zp_buf_printf(&out, "%s%lld", i == 0 || (left > 0 && phrases->data[i - 1].group > 0) ? "" : ", ",
                  (long long)phrase->times);
    if (phrase->group > 0) {
      zp_buf_puts(&out, " (");
      left = phrase->group;
      continue;
    }
    print_phrase(&out, phrase, chunks);
    if (left > 0 && --left == 0) zp_buf_puts(&out, ")");
  }
  return out.data;
}

/* A whole number at *text, which then stands after it; -1: there is none, or it is no count of actions. */
static int64_t read_count(const char **text) {
  const char *at = *text;
  int64_t value = 0;
  for (; *at >= '0' && *at <= '9' && value <= INT32_MAX; at++) value = 10 * value + (*at - '0');
  if (at == *text || value > INT32_MAX) return -1;
  *text = at;
  return value;
}

/* " F1": one action of a phrase. */
static bool read_action(const char **text, int chunks, zp_action *out) {
  const char *at = *text + 1;
  int act = ZP_ACT_F;
  if (**text != ' ') return false;
  while (act <= ZP_ACT_BW && letters[act] != *at) act++;
  if (act > ZP_ACT_BW) return false;
  at++;
  int64_t chunk = chunks > 1 ? read_count(&at) : 0;
  if (chunk < 0 || chunk >= chunks) return false;
  *out = zp_act_of((zp_act)act, (int)chunk, 0);
  *text = at;
  return true;
}

/* Repeats what stands in `out`; how many actions that makes, -1: none, or more than `room`. */
static int64_t repeat(zp_action *out, int64_t n, int64_t times, int64_t room) {
  if (times < 1 || n < 1 || times > room / n) return -1;
  for (int64_t k = n; k < times * n; k++) out[k] = out[k - n];
  return times * n;
}

static int64_t read_phrases(const char **text, int chunks, zp_action *out, int64_t room, bool grouped,
                            const char **wrong);

/* The phrase at *text into `out`, or the group, so often as it says. Groups hold none. */
static int64_t read_phrase(const char **text, int chunks, zp_action *out, int64_t room, bool grouped,
                           const char **wrong) {
  int64_t times = read_count(text), n = 0;
  if (!grouped && (*text)[0] == ' ' && (*text)[1] == '(') {
    *text += 2;
    n = read_phrases(text, chunks, out, room, true, wrong);
    return n < 0 ? -1 : repeat(out, n, times, room);
  }
  for (; **text == ' '; n++)
    if (n == room || !read_action(text, chunks, &out[n])) return -1;
  return repeat(out, n, times, room);
}

/* Phrases up to the end, or up to the bracket that closes a group, after which *text then stands. */
static int64_t read_phrases(const char **text, int chunks, zp_action *out, int64_t room, bool grouped,
                            const char **wrong) {
  for (int64_t n = 0;;) {
    *wrong = *text;
    int64_t more = read_phrase(text, chunks, out + n, room - n, grouped, wrong);
    if (more < 0) return -1;
    n += more;
    if (**text == (grouped ? ')' : 0)) {
      *text += grouped;
      return n;
    }
    if ((*text)[0] != ',' || (*text)[1] != ' ') return -1;
    *text += 2;
  }
}

int64_t zp_read_order(const char *text, int chunks, zp_action *out, int64_t room, const char **wrong) {
  assert(text && chunks >= 1 && room >= 0 && wrong);
  return read_phrases(&text, chunks, out, room, false, wrong);
}
