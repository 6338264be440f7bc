/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a stage: every strategy is asked about every moment of a step; units that are alike share a record. */
#include <zplan/schedule.h>

#include <assert.h>
#include "strategy.h"

#define ZP_MOVE_ROW(strategy, flags, arg) &strategy,
const zp_move_strategy *const zp_move_strategies[] = {ZP_MOVE_STRATEGIES(ZP_MOVE_ROW, ) NULL};
#undef ZP_MOVE_ROW
#define ZP_MOVE_ROW(strategy, flags, arg) ROW_##strategy,
enum { ZP_MOVE_STRATEGIES(ZP_MOVE_ROW, ) N_STRATEGIES };
#undef ZP_MOVE_ROW

enum {
  ON_ACTION = 1 << ZP_MOMENT_ACTION,
  ON_INSIDE = 1 << ZP_MOMENT_INSIDE,
  ON_BUCKETS = 1 << ZP_MOMENT_BUCKETS,
  ON_CHUNK = 1 << ZP_MOMENT_CHUNK,
  ON_STEP = 1 << ZP_MOMENT_STEP,
  HAS_RING = 1 << 8,
  HAS_REGIONS = 1 << 9,
  HAS_TRANSIENT = 1 << 10,
  TAKES_ALL = 1 << 11,
};

/* Sets of strategies by a flag: bit i is row i. */
#define ZP_MOVE_ROW(strategy, flags, flag) | ((flags) & (flag) ? 1u << ROW_##strategy : 0u)
#define SET_OF(flag) (0u ZP_MOVE_STRATEGIES(ZP_MOVE_ROW, flag))
static const unsigned AT_MOMENT[] = {SET_OF(ON_ACTION), SET_OF(ON_INSIDE), SET_OF(ON_BUCKETS), SET_OF(ON_CHUNK),
                                     SET_OF(ON_STEP)};
static const unsigned WITH_RING = SET_OF(HAS_RING), WITH_REGIONS = SET_OF(HAS_REGIONS),
                      WITH_TRANSIENT = SET_OF(HAS_TRANSIENT), TAKING_ALL = SET_OF(TAKES_ALL);
#undef ZP_MOVE_ROW
_Static_assert(N_STRATEGIES <= 32, "a set of them is an unsigned");

/* The first strategy of a set, which goes from it. */
static const zp_move_strategy *next_of(unsigned *set) {
  const zp_move_strategy *first = zp_move_strategies[__builtin_ctz(*set)];
  *set &= *set - 1;
  return first;
}

/* The flags of the list say what the row does. */
static void check_row(int i) {
  const zp_move_strategy *row = zp_move_strategies[i];
  assert((WITH_RING >> i & 1) == (row->ring.buffers > 0) && (WITH_REGIONS >> i & 1) == (row->regions != NULL));
  assert((WITH_TRANSIENT >> i & 1) == (row->transient != NULL) && (TAKING_ALL >> i & 1) == row->takes_all);
}

bool zp_moves_overlap_units(const zp_move_scope *scope) {
  for (unsigned left = AT_MOMENT[ZP_MOMENT_ACTION]; left;)
    if (next_of(&left)->applies(scope)) return true;
  return false;
}

void zp_moves_lower(zp_arena *scratch, zp_lowered *lowered) {
  assert(scratch && lowered);
  for (int i = 0; i < N_STRATEGIES; i++) check_row(i);
  for (int i = 0; i < N_STRATEGIES; i++)
    if (zp_move_strategies[i]->lower) zp_move_strategies[i]->lower(scratch, lowered);
}

void zp_moves_lower_segment(const zp_lowered *lowered, zp_segment_program *segment) {
  assert(lowered && segment->graph);
  for (int i = 0; i < N_STRATEGIES; i++)
    if (zp_move_strategies[i]->lower_segment) zp_move_strategies[i]->lower_segment(lowered, segment);
}

void zp_moves_price_segment(const zp_lowered *lowered, const zp_machine *machine, zp_segment_program *segment) {
  assert(lowered && machine && segment->graph);
  for (int i = 0; i < N_STRATEGIES; i++)
    if (zp_move_strategies[i]->price_segment) zp_move_strategies[i]->price_segment(lowered, machine, segment);
}

void zp_moves_price(const zp_move_scope *scope, double *update_s) {
  assert(scope->stage && update_s);
  for (int i = 0; i < N_STRATEGIES; i++)
    if (zp_move_strategies[i]->price) zp_move_strategies[i]->price(scope, update_s);
}

zp_move_rings zp_moves_rings(const zp_move_scope *scope) {
  zp_move_rings rings = {{0}};
  for (unsigned left = WITH_RING; left;) {
    const zp_move_strategy *row = next_of(&left);
    int buffers = scope->cpu ? row->ring.on_cpus : row->ring.buffers;
    if (buffers > rings.of[row->ring.state] && row->applies(scope)) rings.of[row->ring.state] = buffers;
  }
  return rings;
}

bool zp_moves_take_all(const zp_choice *choice) {
  const zp_move_scope scope = {.choice = choice, .run = -1};
  for (unsigned left = TAKING_ALL; left;)
    if (next_of(&left)->applies(&scope)) return true;
  return false;
}

int64_t zp_moves_transient(const zp_lowered *lowered, const zp_choice *choice, int segment, int64_t count) {
  int64_t most = 0;
  for (unsigned left = WITH_TRANSIENT; left;) {
    int64_t bytes = next_of(&left)->transient(lowered, choice, segment, count);
    if (bytes > most) most = bytes;
  }
  return most;
}

void zp_make_regions(const zp_move_scope *scope, zp_placing *placing) {
  zp_move_rings rings = zp_moves_rings(scope);
  zp_need_rings(placing, &rings);
  for (unsigned left = WITH_REGIONS; left;) {
    const zp_move_strategy *row = next_of(&left);
    if (row->applies(scope)) row->regions(scope, placing);
  }
}

void zp_make_moves(const zp_move_scope *scope, zp_on_move *emit, void *user) {
  assert(scope->moment <= ZP_MOMENT_STEP && emit);
  assert(scope->moment != ZP_MOMENT_CHUNK || (scope->program && scope->stage));
  for (unsigned left = AT_MOMENT[scope->moment]; left;) {
    const zp_move_strategy *row = next_of(&left);
    if (row->applies(scope)) row->make(scope, emit, user);
  }
}

typedef struct listing {
  zp_arena *arena;
  zp_move_list *list;
  zp_move_list open, now; /* of the iterations so far that were alike; of the current one */
} listing;

static void put(void *user, const zp_move *move) {
  listing *x = user;
  zp_push(x->arena, &x->now, *move);
}

static bool are_alike(const zp_move *a, const zp_move *b) {
  return a->strategy == b->strategy && a->what == b->what && a->from == b->from && a->to == b->to && a->way == b->way &&
         a->queue == b->queue && a->when == b->when && a->wait == b->wait && a->act == b->act && a->run == b->run &&
         a->bucket == b->bucket && a->elements == b->elements && a->element_bytes == b->element_bytes &&
         a->all_elements == b->all_elements && a->times == b->times && a->ranks == b->ranks && a->other == b->other &&
         a->mirrored == b->mirrored && a->warmup == b->warmup && a->frozen == b->frozen && a->share == b->share;
}

static bool continues(const listing *x) {
  if (x->open.len != x->now.len) return false;
  for (int i = 0; i < x->now.len; i++)
    if (!are_alike(&x->open.data[i], &x->now.data[i])) return false;
  return true;
}

static void close_records(listing *x) {
  for (int i = 0; i < x->open.len; i++) zp_push(x->arena, x->list, x->open.data[i]);
  x->open.len = 0;
}

/* The records of one iteration join those before them, or end them. */
static void end_iteration(listing *x) {
  if (continues(x)) {
    for (int i = 0; i < x->open.len; i++) x->open.data[i].count++;
  } else {
    close_records(x);
    for (int i = 0; i < x->now.len; i++) zp_push(x->arena, &x->open, x->now.data[i]);
  }
  x->now.len = 0;
}

static void list_inside(listing *x, const zp_move_scope *action) {
  zp_move_scope inside = *action;
  inside.moment = ZP_MOMENT_INSIDE;
  zp_make_moves(&inside, put, x);
}

static void list_run(listing *x, zp_move_scope *scope, int r) {
  const zp_run *run = &scope->stage->runs.data[r];
  const zp_lowered *of_stage = scope->lowered;
  scope->lowered = zp_run_lowered(of_stage, run);
  scope->run = r;
  scope->segment = run->segment;
  for (scope->iteration = 0; scope->iteration < run->count; scope->iteration++) {
    zp_make_moves(scope, put, x);
    if (scope->moment == ZP_MOMENT_ACTION) list_inside(x, scope);
    end_iteration(x);
  }
  scope->lowered = of_stage;
  close_records(x);
}

static void list_action(listing *x, zp_move_scope *scope, zp_act act) {
  scope->act = act;
  for (scope->chunk = 0; scope->chunk < scope->stage->n_chunks; scope->chunk++) {
    scope->moment = ZP_MOMENT_ACTION;
    for (int r = 0; r < scope->stage->runs.len; r++)
      if (scope->stage->runs.data[r].chunk == scope->chunk) list_run(x, scope, r);
    scope->moment = ZP_MOMENT_CHUNK;
    scope->run = -1;
    zp_make_moves(scope, put, x);
    end_iteration(x);
    close_records(x);
  }
}

/* By when they happen, otherwise in the order in which they were made. */
static void sort_end(zp_move_list *list, int first) {
  for (int i = first + 1; i < list->len; i++) {
    zp_move move = list->data[i];
    int j = i;
    for (; j > first && list->data[j - 1].when > move.when; j--) list->data[j] = list->data[j - 1];
    list->data[j] = move;
  }
}

zp_move_list zp_stage_moves(zp_arena *arena, const zp_program *program, int stage) {
  assert(zp_choice_has_stage(&program->choice, stage));
  zp_move_list list = {0};
  listing x = {.arena = arena, .list = &list};
  zp_move_scope scope = zp_move_scope_of_stage(program, stage);
  bool splits = zp_schedule_splits(program->choice.schedule);
  list_action(&x, &scope, ZP_ACT_F);
  list_action(&x, &scope, splits ? ZP_ACT_BI : ZP_ACT_B);
  if (splits) list_action(&x, &scope, ZP_ACT_BW);
  int end = list.len;
  scope.moment = ZP_MOMENT_BUCKETS;
  for (int r = 0; r < scope.stage->runs.len; r++) list_run(&x, &scope, r);
  scope.moment = ZP_MOMENT_STEP;
  scope.run = -1;
  zp_make_moves(&scope, put, &x);
  end_iteration(&x);
  close_records(&x);
  sort_end(&list, end);
  for (int i = 0; i < list.len && program->spec->train.rounds_sums; i++)
    list.data[i].spared_bytes = zp_move_spared_bytes(arena, program, stage, &list.data[i]);
  return list;
}
