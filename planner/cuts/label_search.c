/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds over the graph of stages (stage_graph.c) with labels (labels.c): from the back every node gets labels of the
 * stages after it, from the front labels of the stages before it, and an arc stays only when some label before it and
 * some label after it may belong to one plan below the target. Of more than `width` labels of a node the rest are
 * merged into one, which bounds all of them. What one round takes away makes the bounds of the next one tighter.
 *
 * What is left at the last node bounds every plan below the target. Without merging it is the least bound of all
 * cuts. */
#include <assert.h>
#include <math.h>
#include "labels.h"

/* Labels of equal length; those of one node are neighbours once they are chosen. */
typedef struct entry {
  double key;          /* small ones first */
  int32_t node, label; /* first unit; number of its label in the pile */
  int record;          /* of the cut up to here */
  int above;           /* a number of its label that was above that of another one: the next one differs there, too */
} entry;
typedef struct pile {
  zp_arena *arena;
  int64_t length, room; /* room: for numbers, whatever the length */
  double *numbers;      /* [labels][length] */
  entry *entries;
  int n, most_entries;
} pile;

/* A chosen prefix: where its last stage ends and what is before it. */
typedef struct record {
  int before;
  int64_t end;
} record;

typedef struct node_labels {
  int n;
  double *suffixes;
  double *least_prefix; /* NULL: no plan comes here */
} node_labels;

struct zp_label_search {
  zp_stage_graph *graph;
  zp_labels *labels;
  zp_arena *arena;        /* of the search itself */
  zp_arena *front, *back; /* of the prefixes, of the suffixes of the last round */
  zp_arena_mark no_front, no_back;
  node_labels **nodes; /* as the graph's */
  pile known, found;   /* prefixes of a stage and of the next one; suffixes of a node */
  ZP_VEC(record) records;
  double target_s;
  bool merged;
  bool spent; /* the budget of memory: the round ends */
  int64_t work;
};

static node_labels *labels_at(const zp_label_search *k, int stage, int64_t first) {
  return &k->nodes[stage][first - k->graph->low[stage]];
}

/* ---- piles ---- */

/* Empties a pile for labels of another length. */
static void start_pile(pile *p, int64_t length) {
  p->length = length;
  p->n = 0;
}

static double *label_of(const pile *p, int label) { return p->numbers + label * p->length; }

/* Numbers that the pile has room for once it has grown by a label. */
static int64_t next_room(const pile *p) {
  if ((p->n + 1) * p->length <= p->room) return p->room;
  return 2 * p->room > 64 * p->length ? 2 * p->room : 64 * p->length;
}

/* Is there memory for one more label? False ends the round. */
static bool may_add(zp_label_search *k, const pile *p) {
  int64_t room = next_room(p);
  if (room > p->room && !zp_arena_has_room(p->arena, 2 * sizeof *p->numbers * (size_t)room)) k->spent = true;
  return !k->spent;
}

/* Room for one more label: its numbers. */
static double *next_label(pile *p) {
  int64_t used = p->n * p->length, room = next_room(p);
  if (room > p->room) {
    p->room = room;
    double *numbers = ZP_ROOM_FOR(p->arena, double, p->room);
    if (used) memcpy(numbers, p->numbers, sizeof *numbers * (size_t)used);
    p->numbers = numbers;
  }
  if (p->n == p->most_entries) {
    p->most_entries = p->n ? 2 * p->n : 64;
    entry *entries = ZP_ROOM_FOR(p->arena, entry, p->most_entries);
    if (p->n) memcpy(entries, p->entries, sizeof *entries * (size_t)p->n);
    p->entries = entries;
  }
  return label_of(p, p->n);
}

static void keep_label(pile *p, double key, int64_t node, int before) {
  p->entries[p->n] = (entry){key, (int32_t)node, p->n, before, 0};
  p->n++;
}

static inline bool comes_before(const entry *x, const entry *y) {
  if (x->node != y->node) return x->node < y->node;
  if (x->key != y->key) return x->key < y->key;
  return x->label < y->label;
}

/* Shell's method with Ciura's gaps: most piles have some twenty labels, and no two entries are equal. */
static void sort_entries(entry *entries, int n) {
  static const int gaps[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};
  for (size_t k = 0; k < sizeof gaps / sizeof *gaps; k++)
    for (int gap = gaps[k], i = gap; i < n; i++) {
      entry e = entries[i];
      int at = i;
      for (; at >= gap && comes_before(&e, &entries[at - gap]); at -= gap) entries[at] = entries[at - gap];
      entries[at] = e;
    }
}

/* Is the chosen one nowhere above the other? */
static bool is_below(const pile *p, entry *chosen, const entry *other) {
  const double *a = label_of(p, chosen->label), *b = label_of(p, other->label);
  if (a[chosen->above] > b[chosen->above]) return false;
  int64_t above = zp_label_above(a, b, p->length);
  if (above < p->length) chosen->above = (int)above;
  return above == p->length;
}

/* Leaves at most `width` labels a node, none of which another one makes needless. */
static void choose_labels(zp_label_search *k, pile *p, int width) {
  sort_entries(p->entries, p->n);
  int n = 0, first = 0; /* chosen; the first of the current node */
  for (int i = 0; i < p->n; i++) {
    entry e = p->entries[i];
    bool needless = false;
    if (n == first || p->entries[first].node != e.node) first = n;
    for (int j = first; j < n && !needless; j++, k->work += 2) needless = is_below(p, &p->entries[j], &e);
    if (needless) continue;
    if (n - first < width) {
      p->entries[n++] = e;
    } else {
      zp_label_merge(label_of(p, p->entries[n - 1].label), label_of(p, e.label), p->length);
      k->merged = true;
      k->work += p->length;
    }
  }
  p->n = n;
}

/* ---- from the back ---- */

static bool joins(const zp_label_search *k, zp_prefix_view *prefix, const double *suffix, int stage) {
  return zp_labels_join(k->labels, prefix, suffix, stage, k->target_s);
}

/* The stage with every suffix that may follow it. */
static bool add_suffixes(zp_label_search *k, int stage, zp_prefix_view *least, const zp_stage_arc *arc, pile *found) {
  const node_labels *next = labels_at(k, stage + 1, arc->end);
  bool last = stage == k->graph->pipe.stages - 1, any = false;
  int64_t length = zp_suffix_length(k->graph->pipe.stages - stage - 1);
  for (int i = 0; i < (last ? 1 : next->n) && may_add(k, found); i++) {
    double *suffix = next_label(found);
    zp_suffix_extend(k->labels, last ? NULL : next->suffixes + i * length, stage, &k->graph->cost.data[arc->cost],
                     suffix);
    if (!joins(k, least, suffix, stage)) continue;
    keep_label(found, suffix[ZP_SUFFIX_DONE], 0, 0);
    any = true;
  }
  return any;
}

static void find_suffixes_of(zp_label_search *k, int stage, int64_t first, int width, pile *found) {
  zp_stage_node *arcs = zp_stage_node_at(k->graph, stage, first);
  node_labels *node = labels_at(k, stage, first);
  int n = 0;
  found->n = node->n = 0;
  zp_prefix_view least = {0};
  if (node->least_prefix) least = zp_prefix_view_of(k->labels, node->least_prefix, stage);
  for (int i = 0; i < arcs->n && node->least_prefix; i++)
    if (add_suffixes(k, stage, &least, &arcs->arcs[i], found)) arcs->arcs[n++] = arcs->arcs[i];
  arcs->n = n;
  choose_labels(k, found, width);
  node->suffixes = ZP_ROOM_FOR(k->back, double, found->n * found->length);
  for (; node->n < found->n; node->n++)
    memcpy(node->suffixes + node->n * found->length, label_of(found, found->entries[node->n].label),
           sizeof *node->suffixes * (size_t)found->length);
}

static void find_suffixes(zp_label_search *k, int width) {
  zp_arena_rewind(k->back, k->no_back);
  for (int stage = k->graph->pipe.stages - 1; stage >= 0; stage--) {
    start_pile(&k->found, zp_suffix_length(k->graph->pipe.stages - stage));
    for (int64_t first = k->graph->low[stage]; first <= k->graph->high[stage]; first++)
      find_suffixes_of(k, stage, first, width, &k->found);
  }
}

/* ---- from the front ---- */

bool zp_label_search_may_follow(zp_label_search *k, const double *prefix, int stage, int64_t first) {
  const node_labels *node = labels_at(k, stage, first);
  int stages = k->graph->pipe.stages;
  zp_prefix_view view = zp_prefix_view_of(k->labels, prefix, stage);
  if (stage == stages) return joins(k, &view, NULL, stage);
  for (int i = 0; i < node->n; i++)
    if (joins(k, &view, node->suffixes + i * zp_suffix_length(stages - stage), stage)) return true;
  return false;
}

static void extend_prefixes(zp_label_search *k, const pile *known, int stage, pile *found) {
  for (int i = 0; i < known->n; i++) {
    const entry *e = &known->entries[i];
    zp_stage_node *node = zp_stage_node_at(k->graph, stage, e->node);
    for (int j = 0; j < node->n; j++) {
      zp_stage_arc *arc = &node->arcs[j];
      if (!may_add(k, found)) return;
      double *prefix = next_label(found);
      zp_prefix_extend(k->labels, label_of(known, e->label), stage, &k->graph->cost.data[arc->cost], prefix);
      if (!zp_label_search_may_follow(k, prefix, stage + 1, arc->end)) continue;
      arc->seen = true;
      keep_label(found, prefix[ZP_PREFIX_WORK] + prefix[ZP_PREFIX_DONE], arc->end, e->record);
    }
  }
}

static void keep_seen(zp_label_search *k, int stage) {
  for (int64_t first = k->graph->low[stage]; first <= k->graph->high[stage]; first++) {
    zp_stage_node *node = zp_stage_node_at(k->graph, stage, first);
    int n = 0;
    for (int i = 0; i < node->n; i++) {
      if (!node->arcs[i].seen) continue;
      node->arcs[i].seen = false;
      node->arcs[n++] = node->arcs[i];
    }
    node->n = n;
  }
}

static void note_least(zp_label_search *k, int stage, const pile *p) {
  for (int64_t first = k->graph->low[stage]; first <= k->graph->high[stage]; first++)
    labels_at(k, stage, first)->least_prefix = NULL;
  for (int i = 0; i < p->n; i++) {
    node_labels *node = labels_at(k, stage, p->entries[i].node);
    const double *prefix = label_of(p, p->entries[i].label);
    if (node->least_prefix) {
      zp_label_merge(node->least_prefix, prefix, p->length);
    } else {
      node->least_prefix = ZP_ROOM_FOR(k->front, double, p->length);
      memcpy(node->least_prefix, prefix, sizeof *prefix * (size_t)p->length);
    }
  }
}

static void note_records(zp_label_search *k, const pile *p) {
  for (int i = 0; i < p->n; i++) {
    zp_push(k->front, &k->records, ((record){p->entries[i].record, p->entries[i].node}));
    p->entries[i].record = k->records.len - 1;
  }
}

/* k->known: what is left at the end. */
static void find_prefixes(zp_label_search *k, int width) {
  zp_arena_rewind(k->front, k->no_front);
  memset(&k->records, 0, sizeof k->records);
  start_pile(&k->known, zp_prefix_length(0));
  zp_prefix_start(k->labels, next_label(&k->known));
  keep_label(&k->known, 0, 0, -1);
  for (int stage = 0; stage < k->graph->pipe.stages; stage++) {
    note_least(k, stage, &k->known);
    start_pile(&k->found, zp_prefix_length(stage + 1));
    extend_prefixes(k, &k->known, stage, &k->found);
    keep_seen(k, stage);
    choose_labels(k, &k->found, width);
    note_records(k, &k->found);
    pile found = k->found;
    k->found = k->known;
    k->known = found;
  }
}

/* ---- rounds ---- */

/* All that is known before the first round. */
static void start_prefixes(zp_label_search *k) {
  const zp_stage_graph *g = k->graph;
  for (int stage = 0; stage < g->pipe.stages; stage++)
    for (int64_t first = g->low[stage]; first <= g->high[stage]; first++) {
      double before = zp_stage_node_at(g, stage, first)->before_s;
      if (!isfinite(before)) continue;
      double *prefix = ZP_NEW_ARRAY(k->front, double, zp_prefix_length(stage));
      zp_prefix_start(k->labels, prefix);
      if (stage > 0) prefix[ZP_PREFIX_WORK] = before - 2 * g->pipe.message_s;
      labels_at(k, stage, first)->least_prefix = prefix;
    }
}

zp_label_search *zp_label_search_new(const zp_arena *alongside, zp_stage_graph *graph) {
  assert(graph->pipe.units < INT32_MAX); /* an entry has its unit in 32 bits */
  zp_arena *arena = zp_arena_new_alongside("labels", alongside);
  zp_label_search *k = ZP_NEW(arena, zp_label_search);
  int stages = graph->pipe.stages;
  k->arena = arena;
  k->graph = graph;
  k->labels = zp_labels_new(arena, &graph->pipe);
  k->known.arena = k->found.arena = arena;
  k->front = zp_arena_new_alongside("prefixes", alongside);
  k->back = zp_arena_new_alongside("suffixes", alongside);
  k->no_front = zp_arena_get_mark(k->front);
  k->no_back = zp_arena_get_mark(k->back);
  k->nodes = ZP_NEW_ARRAY(arena, node_labels *, stages + 1);
  for (int stage = 0; stage <= stages; stage++)
    k->nodes[stage] = ZP_NEW_ARRAY(arena, node_labels, zp_stage_graph_width(graph, stage));
  start_prefixes(k);
  return k;
}

void zp_label_search_free(zp_label_search *k) {
  zp_arena_free(k->front);
  zp_arena_free(k->back);
  zp_arena_free(k->arena);
}

static const entry *least_bound(const pile *p) {
  const entry *least = &p->entries[0];
  for (int i = 1; i < p->n; i++)
    if (zp_prefix_bound(label_of(p, p->entries[i].label)) < zp_prefix_bound(label_of(p, least->label)))
      least = &p->entries[i];
  return least;
}

zp_label_pass zp_label_search_pass(zp_label_search *k, int width, double target_s, int64_t *cut) {
  k->target_s = target_s;
  find_suffixes(k, width < ZP_MOST_SUFFIXES ? width : ZP_MOST_SUFFIXES);
  if (k->spent) return (zp_label_pass){.spent = true};
  k->merged = false; /* merged suffixes only keep prefixes that need not be there */
  find_prefixes(k, width);
  if (k->spent) return (zp_label_pass){.spent = true};
  if (k->known.n == 0) return (zp_label_pass){.open = false};
  const entry *least = least_bound(&k->known);
  int stage = k->graph->pipe.stages;
  for (int at = least->record; at >= 0; at = k->records.data[at].before) cut[stage--] = k->records.data[at].end;
  cut[0] = 0;
  return (zp_label_pass){
      .open = true, .exact = !k->merged, .bound_s = zp_prefix_bound(label_of(&k->known, least->label))};
}

zp_labels *zp_label_search_labels(const zp_label_search *k) { return k->labels; }
int64_t zp_label_search_work(const zp_label_search *k) { return k->work + zp_labels_work(k->labels); }
