/* SPDX-License-Identifier: Apache-2.0 */
/* The least work and the least longest stage of points that may be cut inside layers, with one chunk a stage and with
 * two, against every cut: with limits of memory between those under which all fits and those under which nothing
 * does. */
#include "search_instances.h"

enum { POINTS = 1000 };
enum { MOST_CUTS = 3000 };

TestSuite(search_least_parts, .init = setup, .fini = teardown, .timeout = 1200);

typedef struct trial {
  zp_search_progress progress;
  zp_spec *spec;
  zp_point point;
  zp_choice choice;
  int64_t limit_bytes;
  double least_s;         /* of all cuts that fit: every stage in its fastest mode that fits */
  double longest_s;       /* the shortest longest stage of these */
  int64_t least, largest; /* arena bytes of a stage alongside its products' scratch memory, over all cuts and modes */
  int64_t scratch;        /* of a stage with products, the same of all of them and most of its bytes */
  int cuts;
} trial;

static const zp_lowered *mode_of(const trial *t, int i) {
  return t->progress.s->variants.data[t->point.modes[i]].lowered;
}

typedef struct stage_room {
  int64_t bytes, scratch; /* scratch: part of the bytes */
} stage_room;

static stage_room room_of(const trial *t, int mode, int stage) {
  zp_arena *scratch = zp_arena_new("stage");
  zp_stage x;
  zp_layout_stage(scratch, mode_of(t, mode), &t->choice, stage, &x);
  stage_room room = {.bytes = x.arena_bytes};
  for (int i = 0; i < x.runs.len; i++) {
    int64_t bytes = mode_of(t, mode)->segments[x.runs.data[i].segment].products_bytes;
    if (bytes > room.scratch) room.scratch = bytes;
  }
  zp_arena_free(scratch);
  return room;
}

static double stage_s(const trial *t, int mode, int stage) {
  double seconds = 0;
  zp_units part[ZP_MOST_CHUNKS];
  zp_parts_of_stage(&t->choice, stage, t->choice.cut, part);
  for (int k = 0; k < zp_chunks(&t->choice); k++)
    for (int64_t u = part[k].first; u < part[k].first + part[k].count; u++) seconds += unit_s(mode_of(t, mode), u);
  return seconds;
}

/* The parts of a stage take no more than what is laid out, in one layout of saved values or the other. */
static void check_room(trial *t, int mode, int stage, int64_t laid_out) {
  zp_search_cache *s = t->progress.s;
  const zp_pieces *pieces = mode_of(t, 0)->pieces;
  zp_arena_mark mark = zp_arena_get_mark(s->arena);
  s->limit_bytes = laid_out + zp_choice_communicator_bytes(s, &t->choice, mode_of(t, mode)->ties);
  const zp_part_room *room = zp_find_part_rooms(s, &t->point) + (stage * t->point.n_modes + mode) * ZP_PART_LAYOUTS;
  double least = INFINITY;
  for (int layout = 0; layout < ZP_PART_LAYOUTS; layout++) {
    zp_units part[ZP_MOST_CHUNKS];
    double share = room[layout].beyond;
    zp_parts_of_stage(&t->choice, stage, t->choice.cut, part);
    for (int k = 0; k < zp_chunks(&t->choice); k++)
      for (int64_t u = part[k].first; u < part[k].first + part[k].count; u++) {
        int piece;
        int64_t iteration;
        zp_pieces_unit(pieces, u, &piece, &iteration);
        if (pieces->piece[piece].whole == zp_parts_segment(s, &t->point))
          share += room[layout].part[pieces->piece[piece].first];
      }
    least = fmin(least, share);
  }
  cr_assert(least <= 1 + 1e-9, "parts take %.6g of the %lld bytes of stage %d", least, (long long)laid_out, stage);
  zp_arena_rewind(s->arena, mark);
}

static void try_cut(trial *t) {
  bool check = t->cuts % 16 == 0;
  double sum = 0, longest = 0;
  for (int stage = 0; stage < t->choice.pipeline; stage++) {
    double best = INFINITY;
    for (int i = 0; i < t->point.n_modes; i++) {
      stage_room room = room_of(t, i, stage);
      int64_t alongside = room.bytes - room.scratch;
      if (alongside < t->least) t->least = alongside;
      if (alongside > t->largest) t->largest = alongside;
      if (room.scratch > t->scratch) t->scratch = room.scratch;
      if (check) check_room(t, i, stage, room.bytes);
      if (room.bytes > t->limit_bytes) continue;
      best = fmin(best, stage_s(t, i, stage));
    }
    sum += best;
    longest = fmax(longest, best);
  }
  t->least_s = fmin(t->least_s, sum);
  t->longest_s = fmin(t->longest_s, longest);
}

static void all_cuts(trial *t, int chunk) {
  int64_t units = mode_of(t, 0)->n_units, chunks = zp_model_chunks(&t->choice);
  if (chunk == chunks - 1) {
    t->choice.cut[chunks] = units;
    if (++t->cuts <= MOST_CUTS) try_cut(t);
    return;
  }
  for (int64_t end = t->choice.cut[chunk] + 1; end <= units - (chunks - 1 - chunk) && t->cuts <= MOST_CUTS; end++) {
    t->choice.cut[chunk + 1] = end;
    all_cuts(t, chunk + 1);
  }
}

/* False: more cuts than are worth while. */
static bool brute_force(trial *t, int64_t limit_bytes) {
  t->limit_bytes = limit_bytes;
  t->least_s = t->longest_s = INFINITY, t->least = INT64_MAX, t->largest = t->scratch = 0, t->cuts = 0;
  all_cuts(t, 0);
  return t->cuts <= MOST_CUTS;
}

static bool random_point(trial *t) {
  zp_choice c = {.tensor = 1 + (int)random_below(2), .pipeline = 2 + (int)random_below(2), .data = 1, .fine = true};
  c.zero = (int)random_below(2), c.microbatch = 1 << random_below(2);
  if (random_below(3) == 0) c.schedule = ZP_SCHEDULE_INTERLEAVED, c.chunks = 2;
  c.order = (zp_rank_order)random_below(ZP_ORDER_COUNT);
  if (random_below(4) == 0) c.home[ZP_STATE_OPTIMIZER] = (zp_home){ZP_TIER_HOST, 1 + (int)random_below(8)};
  if (t->spec->train.batch % c.microbatch || zp_choice_refusal(&c, t->spec)) return false;
  zp_mode_set modes = (zp_mode_set)(1 + random_below(7));
  t->choice = c;
  return zp_search_point(t->progress.s, &c, modes, &t->point) &&
         zp_model_chunks(&c) <= zp_point_units(t->progress.s, &t->point);
}

/* Many layers alongside a small vocabulary: what is bounded is most of the memory. */
static zp_spec *deep_spec(int *devices) {
  model_size size = {
      .style = STYLE_GPT, .V = 8, .S = 8 << random_below(4), .d = 8 << random_below(2), .layers = 4 + random_below(60)};
  size.heads = size.kv_heads = 2;
  size.ff = size.d * (1 + random_below(6));
  *devices = 4;
  return build_spec(arena, &size, gpu_cluster(1), 16 << random_below(3));
}

typedef struct seen {
  int points, fit, forced; /* forced: more work than that of the fastest modes */
  int sharp, chunks;       /* memory makes the longest stage longer, as far as is known; fit with several chunks */
} seen;

/* Stages that take no longer than those of a cut that fits can run all parts. */
static void check_longest(trial *t, seen *n, double free_s) {
  zp_search_cache *s = t->progress.s;
  double own_s[4] = {t->longest_s, t->longest_s, t->longest_s, t->longest_s}, less_s[4];
  const zp_part_room *room = zp_find_part_rooms(s, &t->point);
  cr_assert(zp_parts_run_within(s, &t->point, own_s, room), "a cut has stages of %.9g s", t->longest_s);
  for (int i = 0; i < 4; i++) less_s[i] = free_s * (1 + 1e-6);
  n->sharp += !zp_parts_run_within(s, &t->point, less_s, room);
  n->chunks += zp_chunks(&t->choice) > 1;
}

/* Some memory between the stage that needs least and the one that needs most, and the scratch memory that all but
 * stages without a product need. */
static void check_point(trial *t, seen *n) {
  t->choice.cut = ZP_NEW_ARRAY(arena, int64_t, zp_model_chunks(&t->choice) + 1);
  if (!brute_force(t, INT64_MAX)) return;
  double free_s = t->least_s, free_longest_s = t->longest_s, share = 0.01 * (double)random_below(100);
  brute_force(t, t->scratch + t->least + (int64_t)(share * share * (double)(t->largest - t->least)));
  t->progress.s->limit_bytes =
      t->limit_bytes + zp_choice_communicator_bytes(t->progress.s, &t->choice, mode_of(t, 0)->ties);
  zp_point point = t->point;
  bool has_room = zp_find_least_work(t->progress.s, &point, ZP_ASK_WORK);
  zp_point again = t->point;
  cr_assert_eq(has_room, zp_find_least_work(t->progress.s, &again, ZP_ASK_ROOM));
  cr_assert(has_room || isinf(t->least_s), "no room, but %g s fit into %lld bytes", t->least_s,
            (long long)t->limit_bytes);
  cr_assert(point.work_s <= t->least_s * (1 + 1e-9), "least work %.9g, but a cut has %.9g", point.work_s, t->least_s);
  if (isfinite(t->longest_s)) check_longest(t, n, free_longest_s);
  n->points++;
  n->fit += isfinite(t->least_s);
  n->forced += has_room && point.work_s > free_s * (1 + 1e-6);
}

/* Half of the instances are for no program, so stages have no scratch memory of products. The bounds leave it out, and
 * alongside it such small models hardly need any: only those instances force more work. */
static void expect_least(bool freezes, int all) {
  const int points = sample_of(all);
  seen n = {0};
  while (n.points < points) {
    zp_arena_mark mark = zp_arena_get_mark(arena);
    int devices;
    trial t = {.spec = random_below(2) ? random_spec(&devices) : deep_spec(&devices)};
    if (random_below(2)) t.spec->cluster.trainer = ZP_TRAINER_NONE;
    if (freezes) freeze_some(t.spec);
    zp_machine machine = zp_machine_make(&t.spec->cluster, t.spec->train.precision, devices);
    zp_search_start(&t.progress, t.spec, &machine, NULL);
    for (int k = 0; k < 20; k++)
      if (devices > 3 && random_point(&t)) check_point(&t, &n);
    zp_search_end(&t.progress);
    zp_arena_rewind(arena, mark);
  }
  cr_expect(n.fit > n.points / 4 && n.fit < n.points, "%d of %d fit", n.fit, n.points);
  cr_expect(n.sharp > n.points / 100 && n.chunks > n.points / 20, "of %d: %d, %d", n.points, n.sharp, n.chunks);
  cr_expect(n.forced > n.points / 100, "%d of %d have more work than the fastest modes", n.forced, n.points);
}

Test(search_least_parts, no_cut_that_fits_has_less_work) {
  state = 21;
  expect_least(false, POINTS);
}

Test(search_least_parts, no_cut_that_fits_has_less_work_with_frozen_parameters) {
  state = 31;
  expect_least(true, POINTS / 3);
}
