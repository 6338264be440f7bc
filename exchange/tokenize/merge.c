/* SPDX-License-Identifier: Apache-2.0 */
/* One word to ids: its bytes or characters, then again and again the pair with the least rank becomes one token, of
 * equal ranks the leftmost. Candidates wait in a heap, so a long word takes n log n. */
#include "tokenize.h"

void merger_init(merger *m, zp_arena *arena, int rules) {
  uint64_t slots = 16;
  while (slots < 2 * (uint64_t)rules) slots *= 2;
  m->arena = arena;
  m->rules = ZP_NEW_ARRAY(arena, merge_rule, slots);
  m->mask = slots - 1;
  for (uint64_t i = 0; i < slots; i++) m->rules[i].rank = -1;
  cache_init(&m->cache, arena);
}

static merge_rule *rule_of(const merger *m, int32_t left, int32_t right) {
  uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
  uint64_t at = key * UINT64_C(0x9E3779B97F4A7C15) >> 20 & m->mask;
  while (m->rules[at].rank >= 0 && (m->rules[at].left != left || m->rules[at].right != right)) at = (at + 1) & m->mask;
  return &m->rules[at];
}

void merger_add(merger *m, merge_rule rule) { *rule_of(m, rule.left, rule.right) = rule; }

/* ---- heap ---- */

static bool goes_before(candidate a, candidate b) { return a.rank != b.rank ? a.rank < b.rank : a.left < b.left; }

static void heap_add(merger *m, candidate c) {
  zp_push(m->arena, &m->heap, c);
  int at = m->heap.len - 1;
  for (int up; at > 0 && goes_before(c, m->heap.data[up = (at - 1) / 2]); at = up) m->heap.data[at] = m->heap.data[up];
  m->heap.data[at] = c;
}

static candidate heap_take(merger *m) {
  candidate first = m->heap.data[0], last = m->heap.data[--m->heap.len];
  int at = 0;
  for (int down; (down = 2 * at + 1) < m->heap.len; at = down) {
    if (down + 1 < m->heap.len && goes_before(m->heap.data[down + 1], m->heap.data[down])) down++;
    if (!goes_before(m->heap.data[down], last)) break;
    m->heap.data[at] = m->heap.data[down];
  }
  m->heap.data[at] = last;
  return first;
}

/* ---- a word ---- */

static const merge_rule *rule_at(const merger *m, int left) {
  int right = left < 0 ? -1 : m->symbols.data[left].after;
  if (right < 0) return NULL;
  const merge_rule *rule = rule_of(m, m->symbols.data[left].id, m->symbols.data[right].id);
  return rule->rank >= 0 ? rule : NULL;
}

static void propose(merger *m, int left) {
  const merge_rule *rule = rule_at(m, left);
  if (rule) heap_add(m, (candidate){rule->rank, rule->id, left});
}

/* The right symbol goes into the left one. */
static void join(merger *m, int left, int32_t id) {
  symbol *s = m->symbols.data;
  int gone = s[left].after, after = s[gone].after;
  s[left].id = id;
  s[left].after = after;
  s[gone].id = -1; /* no rule has it, so what waits for it is stale */
  if (after >= 0) s[after].before = left;
  propose(m, s[left].before);
  propose(m, left);
}

static void add_symbol(merger *m, int32_t id) {
  int at = m->symbols.len++;
  m->symbols.data[at] = (symbol){id, at - 1, -1};
  if (at > 0) m->symbols.data[at - 1].after = at;
}

/* False: *where is a character that is no token, and nothing stands for it. */
static bool add_characters(merger *m, const char *word, int len, int *where) {
  bool unknown_before = false;
  for (int i = 0, bytes; i < len; i += bytes) {
    bytes = character_bytes((unsigned char)word[i]);
    int32_t id = vocabulary_find(m->characters, word + i, (size_t)bytes);
    bool unknown = id < 0 && !m->other.bytes;
    if (id >= 0) {
      add_symbol(m, id);
    } else if (!unknown) {
      for (int k = 0; k < bytes; k++) add_symbol(m, m->other.of_byte[(unsigned char)word[i + k]]);
    } else if (m->other.unknown < 0) {
      *where = i;
      return false;
    } else if (!(unknown_before && m->other.fuse)) {
      add_symbol(m, m->other.unknown);
    }
    unknown_before = unknown;
  }
  return true;
}

static bool apply_rules(merger *m, const char *word, int len, int *where) {
  m->symbols.len = m->heap.len = m->ids.len = 0;
  zp_reserve(m->arena, &m->symbols, len);
  if (m->characters && !add_characters(m, word, len, where)) return false;
  for (int i = 0; i < len && !m->characters; i++) add_symbol(m, m->of_byte[(unsigned char)word[i]]);
  for (int i = 0; i + 1 < m->symbols.len; i++) propose(m, i);
  while (m->heap.len > 0) {
    candidate c = heap_take(m);
    const merge_rule *rule = rule_at(m, c.left);
    if (rule && rule->rank == c.rank) join(m, c.left, c.id); /* else its symbols have changed since */
  }
  for (int i = 0; i >= 0; i = m->symbols.data[i].after) zp_push(m->arena, &m->ids, m->symbols.data[i].id);
  return true;
}

static int32_t find_whole(merger *m, const char *word, int len) {
  if (m->characters) return vocabulary_find(m->whole, word, (size_t)len);
  m->written.len = 0;
  zp_reserve(m->arena, &m->written, 2 * len);
  for (int i = 0; i < len; i++) m->written.len += byte_text((unsigned char)word[i], m->written.data + m->written.len);
  return vocabulary_find(m->whole, m->written.data, (size_t)m->written.len);
}

const int32_t *merge_word(merger *m, const char *word, int len, int *n) {
  const int32_t *known = cache_find(&m->cache, word, len, n);
  if (known) return known;
  int32_t whole = m->whole ? find_whole(m, word, len) : -1;
  if (whole >= 0) {
    m->ids.len = 0;
    zp_push(m->arena, &m->ids, whole);
  } else if (!apply_rules(m, word, len, n)) {
    return NULL;
  }
  cache_keep(&m->cache, word, len, m->ids.data, m->ids.len);
  *n = m->ids.len;
  return m->ids.data;
}
