/* SPDX-License-Identifier: Apache-2.0 */
/* The search: exact dynamic programming over the nodes in topological order. Its state says, for every tensor that a
 * later node still reads, in which form it exists; two prefixes with equal states have the same futures, so only the
 * cheaper one is kept. The frontier of real models is a handful of tensors wide: a few dozen states a node. */
#include <assert.h>
#include <limits.h>
#include <zplan/hash.h>
#include "shard_internal.h"

/* Forms of a live tensor. A partial sum is reduced in place or scattered, or used as it is: never two of these. */
enum live {
  DEAD, /* not made yet, or not needed any more */
  REPLICATED,
  REPLICATED_ENTERED,
  SPLIT,
  PARTIAL,
  PARTIAL_USED,
  REDUCED,
  REDUCED_ENTERED,
  SEQUENCE, /* made so, or scattered from a partial sum */
  SEQUENCE_GATHERED,
  EXPERTS,
  ENTERED,    /* replicated with a partial gradient: may not be used where the gradient would be complete */
  PARAM = 32, /* + a zp_param_form */
};

/* More states than this at one node: no transformer comes near it; the model is refused rather than solved badly. */
enum { MAX_STATES = 1 << 16 };

typedef struct entry {
  zp_shard_cost cost;
  int parent;         /* entry of the previous layer */
  zp_pattern pattern; /* chosen for the node between */
} entry;

typedef struct layer {
  ZP_VEC(entry) entries;
  ZP_VEC(unsigned char) forms; /* n_tensors bytes an entry */
  int *slots, n_slots;         /* hash of forms -> entry + 1 */
} layer;

typedef struct solver {
  zp_arena *arena;
  const zp_shard_problem *problem;
  const zp_graph *graph;
  int n_tensors;
  int *last_use; /* node that reads a tensor last; INT_MAX for what leaves the segment, -1 for nobody */
  unsigned char *scratch;
} solver;

bool zp_shard_cheaper(const zp_shard_cost *a, const zp_shard_cost *b) {
  if (a->replicated != b->replicated) return a->replicated < b->replicated; /* whole numbers */
  const double ROUNDING = 1e-12; /* of a time: equal sums in another order are no reason to prefer either */
  return a->seconds < b->seconds * (1 - ROUNDING);
}

static void find_last_uses(solver *s) {
  s->last_use = ZP_NEW_ARRAY(s->arena, int, s->n_tensors);
  for (int i = 0; i < s->n_tensors; i++) s->last_use[i] = -1;
  for (int n = 0; n < s->graph->nodes.len; n++)
    for (int i = 0; i < s->graph->nodes.data[n].in.len; i++) s->last_use[s->graph->nodes.data[n].in.data[i]] = n;
  for (int i = 0; i < s->graph->carry_out.len; i++) s->last_use[s->graph->carry_out.data[i]] = INT_MAX;
}

/* ---- layers ---- */

static unsigned char *forms_of(const solver *s, const layer *l, int i) {
  return l->forms.data + (size_t)i * s->n_tensors;
}

static void grow_slots(solver *s, layer *l) {
  l->n_slots = l->n_slots ? l->n_slots * 2 : 64;
  l->slots = ZP_NEW_ARRAY(s->arena, int, l->n_slots);
  for (int i = 0; i < l->entries.len; i++) {
    uint64_t h = zp_hash(ZP_HASH_START, forms_of(s, l, i), (size_t)s->n_tensors);
    while (l->slots[h % l->n_slots]) h++;
    l->slots[h % l->n_slots] = i + 1;
  }
}

/* Adds a prefix, or replaces a dearer one with the same forms. */
static void insert(solver *s, layer *l, const unsigned char *forms, entry e) {
  if (l->entries.len * 2 >= l->n_slots) grow_slots(s, l);
  uint64_t h = zp_hash(ZP_HASH_START, forms, (size_t)s->n_tensors);
  for (; l->slots[h % l->n_slots]; h++) {
    int i = l->slots[h % l->n_slots] - 1;
    if (memcmp(forms_of(s, l, i), forms, (size_t)s->n_tensors) != 0) continue;
    if (zp_shard_cheaper(&e.cost, &l->entries.data[i].cost)) l->entries.data[i] = e;
    return;
  }
  l->slots[h % l->n_slots] = l->entries.len + 1;
  zp_push(s->arena, &l->entries, e);
  zp_reserve(s->arena, &l->forms, l->entries.len * s->n_tensors);
  memcpy(l->forms.data + l->forms.len, forms, (size_t)s->n_tensors);
  l->forms.len += s->n_tensors;
}

/* ---- one step ---- */

static zp_param_form param_form(zp_need need, int dim) {
  if (need == ZP_NEED_SHARED) return ZP_PARAM_SHARED;
  return dim < 0 ? ZP_PARAM_REPLICATED : (zp_param_form)(ZP_PARAM_SPLIT_0 + dim);
}

/* The all-reduce of a shared parameter's gradient is left out: one a step, not one a micro-batch, and of vectors. */
static bool use_param(solver *s, const zp_node *node, int i, zp_need need, unsigned char *live, zp_shard_cost *cost) {
  const zp_tensor *t = &s->graph->tensors.data[node->in.data[i]];
  int dim = zp_need_dim(s->graph, node, i, need);
  zp_param_form want = param_form(need, dim);
  if (*live != DEAD) return *live == PARAM + want;
  int fixed = s->problem->fixed[t->index];
  if (fixed && fixed != (int)want) return false;
  *live = (unsigned char)(PARAM + want);
  if (dim < 0 && t->shape.rank >= 2 && !fixed) cost->replicated += (double)zp_shape_elements(&t->shape, 1);
  return true;
}

/* The replicated form of a tensor, entered or not; reduces a partial sum at its first such use. */
static bool use_replicated(solver *s, int tensor, bool enter, unsigned char *live, zp_shard_cost *cost) {
  switch (*live) {
  case PARTIAL:
    cost->seconds += zp_shard_reduce_seconds(s->problem, tensor);
    *live = REDUCED;
    break;
  case REPLICATED:
  case REPLICATED_ENTERED:
  case REDUCED:
  case REDUCED_ENTERED: break;
  case ENTERED: return enter;
  default: return false;
  }
  if (!enter || *live == REPLICATED_ENTERED || *live == REDUCED_ENTERED) return true;
  cost->seconds += zp_shard_reduce_seconds(s->problem, tensor);
  *live = *live == REPLICATED ? REPLICATED_ENTERED : REDUCED_ENTERED;
  return true;
}

/* The form of a tensor that is divided along the sequence: a partial sum is scattered forward and its gradient gathered
 * backward. The gathered form costs a pass forward, one backward, and the one that gathers what backward reads once
 * more. */
static bool use_sequence(solver *s, int tensor, bool gather, unsigned char *live, zp_shard_cost *cost) {
  double pass_s = zp_shard_pass_seconds(s->problem, tensor);
  if (*live == PARTIAL) {
    if (!zp_divides_sequence(&s->graph->tensors.data[tensor], s->problem->tensor)) return false;
    cost->seconds += 2 * pass_s;
    *live = SEQUENCE;
  }
  if (*live != SEQUENCE && *live != SEQUENCE_GATHERED) return false;
  if (!gather || *live == SEQUENCE_GATHERED) return true;
  cost->seconds += 3 * pass_s;
  *live = SEQUENCE_GATHERED;
  return true;
}

static bool use_operand(solver *s, const zp_node *node, int i, zp_need need, unsigned char *live, zp_shard_cost *cost) {
  int tensor = node->in.data[i];
  if (need == ZP_NEED_ANY) return true;
  if (s->graph->tensors.data[tensor].role == ZP_ROLE_PARAM) return use_param(s, node, i, need, live, cost);
  if (s->graph->tensors.data[tensor].role == ZP_ROLE_INPUT) return need == ZP_NEED_R || need == ZP_NEED_ENTER;
  switch (need) {
  case ZP_NEED_S: return *live == SPLIT;
  case ZP_NEED_EXPERTS: return *live == EXPERTS;
  case ZP_NEED_R:
  case ZP_NEED_ENTER: return use_replicated(s, tensor, need == ZP_NEED_ENTER, live, cost);
  case ZP_NEED_SEQ:
  case ZP_NEED_GATHER: return use_sequence(s, tensor, need == ZP_NEED_GATHER, live, cost);
  case ZP_NEED_P:
    if (*live != PARTIAL && *live != PARTIAL_USED) return false;
    *live = PARTIAL_USED;
    return true;
  default: return false; /* of parameters: no form of a value meets it */
  }
}

static enum live made_form(zp_form form) {
  static const enum live made[] = {
      [ZP_FORM_NONE] = REPLICATED, [ZP_FORM_R] = REPLICATED,    [ZP_FORM_S] = SPLIT,        [ZP_FORM_P] = PARTIAL,
      [ZP_FORM_SEQ] = SEQUENCE,    [ZP_FORM_EXPERTS] = EXPERTS, [ZP_FORM_ENTERED] = ENTERED};
  return made[form];
}

static void step(solver *s, const layer *from, int parent, int n, const zp_pattern *pattern, layer *to) {
  const zp_node *node = &s->graph->nodes.data[n];
  unsigned char *forms = s->scratch;
  memcpy(forms, forms_of(s, from, parent), (size_t)s->n_tensors);
  entry e = {.cost = from->entries.data[parent].cost, .parent = parent, .pattern = *pattern};
  e.cost.seconds += zp_shard_node_seconds(s->problem, node, pattern);
  for (int i = 0; i < node->in.len; i++)
    if (!use_operand(s, node, i, pattern->in[i], &forms[node->in.data[i]], &e.cost)) return;
  for (int i = 0; i < node->in.len; i++)
    if (s->last_use[node->in.data[i]] == n) forms[node->in.data[i]] = DEAD;
  for (int i = 0; i < node->out.len; i++)
    if (s->last_use[node->out.data[i]] > n) forms[node->out.data[i]] = (unsigned char)made_form(pattern->out);
  insert(s, to, forms, e);
}

/* ---- all steps ---- */

static void start(solver *s, layer *first) {
  memset(s->scratch, DEAD, (size_t)s->n_tensors);
  for (int i = 0; i < s->n_tensors; i++)
    if (s->graph->tensors.data[i].role == ZP_ROLE_CARRY_IN && s->last_use[i] >= 0)
      s->scratch[i] = s->problem->sequence ? SEQUENCE : REPLICATED;
  insert(s, first, s->scratch, (entry){.parent = -1});
}

/* What leaves the segment is replicated, or split along the sequence. The best final entry, -1 when none can be. */
static int finish(solver *s, layer *last) {
  int best = -1;
  for (int e = 0; e < last->entries.len; e++) {
    bool ok = true;
    for (int i = 0; i < s->graph->carry_out.len && ok; i++) {
      int tensor = s->graph->carry_out.data[i];
      unsigned char *live = &forms_of(s, last, e)[tensor];
      zp_shard_cost *cost = &last->entries.data[e].cost;
      ok = s->problem->sequence ? use_sequence(s, tensor, false, live, cost)
                                : use_replicated(s, tensor, false, live, cost);
    }
    if (ok && (best < 0 || zp_shard_cheaper(&last->entries.data[e].cost, &last->entries.data[best].cost))) best = e;
  }
  return best;
}

zp_shard_answer zp_shard_solve(zp_arena *arena, const zp_shard_problem *problem) {
  const zp_graph *graph = problem->graph;
  solver s = {.arena = arena, .problem = problem, .graph = graph, .n_tensors = graph->tensors.len};
  zp_shard_answer answer = {.pattern = ZP_NEW_ARRAY(arena, zp_pattern, graph->nodes.len + 1)};
  layer *layers = ZP_NEW_ARRAY(arena, layer, graph->nodes.len + 1);
  s.scratch = zp_alloc(arena, (size_t)s.n_tensors + 1);
  find_last_uses(&s);
  start(&s, &layers[0]);
  for (int n = 0; n < graph->nodes.len; n++) {
    zp_pattern pattern[ZP_SHARD_PATTERNS];
    int count = zp_shard_patterns(problem, &graph->nodes.data[n], pattern);
    for (int e = 0; e < layers[n].entries.len; e++)
      for (int p = 0; p < count; p++) step(&s, &layers[n], e, n, &pattern[p], &layers[n + 1]);
    if (layers[n + 1].entries.len > MAX_STATES) return answer;
  }
  int best = finish(&s, &layers[graph->nodes.len]);
  if (best < 0) return answer;
  answer.found = true;
  answer.cost = layers[graph->nodes.len].entries.data[best].cost;
  for (int n = graph->nodes.len; n > 0; n--) {
    answer.pattern[n - 1] = layers[n].entries.data[best].pattern;
    best = layers[n].entries.data[best].parent;
  }
  return answer;
}
