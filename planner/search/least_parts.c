/* The least work of a point that may be cut inside layers, and whether its layers have room at all. On a stage the
 * parts of a layer follow each other in turn, so every chunk holds whole turns and at most one run of parts more. What
 * turns are worth in a mode (seconds that a slower mode would take longer, or simply 1) per byte that they keep, and
 * what a run is worth more than turns of its bytes, bound what a stage is worth with the bytes that it has. Only the
 * repeated segment with the most work is looked at, other units take the time of their fastest mode and no memory. */
#include <math.h>
#include "cost.h"
#include "schedule.h"
#include "search_internal.h"

typedef struct parts { /* of one mode */
  int n;
  double state[ZP_MOST_PARTS], kept[ZP_MOST_PARTS]; /* bytes: whatever is in flight; of a micro-batch in flight */
  double faster_s[ZP_MOST_PARTS];                   /* than in the slowest mode */
} parts;

/* Bytes, which are linear in what is in flight, of a turn or of a run of parts, and what it is worth: seconds that the
 * slowest mode would take longer, parts. */
enum { SECONDS, PARTS, WORTHS };
typedef struct lot {
  double state, kept, worth[WORTHS];
} lot;

enum { MOST_RUNS = ZP_MOST_PARTS * (ZP_MOST_PARTS - 1) };
typedef struct goods { /* of one mode */
  lot turn, run[MOST_RUNS];
  int n_runs;
} goods;

static void add_part(lot *sum, const parts *p, int part) {
  sum->state += p->state[part];
  sum->kept += p->kept[part];
  sum->worth[SECONDS] += p->faster_s[part];
  sum->worth[PARTS]++;
}

static goods goods_of(const parts *p) {
  goods g = {.n_runs = 0};
  for (int i = 0; i < p->n; i++) add_part(&g.turn, p, i);
  for (int first = 0; first < p->n; first++) {
    lot run = {0};
    for (int i = 0; i + 1 < p->n; i++) { /* around the end of a turn, but no whole one */
      add_part(&run, p, (first + i) % p->n);
      g.run[g.n_runs++] = run;
    }
  }
  return g;
}

static double bytes_of(const lot *x, double flight) { return x->state + flight * x->kept; }

/* The most that `limit` bytes buy in so many chunks: turns, and in every chunk the run that is worth most beyond turns
 * of its bytes; no more than all bytes at the best rate there is. */
static double most_worth(const goods *g, int worth, double flight, double limit, int chunks) {
  double turn_bytes = bytes_of(&g->turn, flight), gain = 0;
  if (turn_bytes <= 0) return g->turn.worth[worth] > 0 ? HUGE_VAL : 0;
  double of_byte = g->turn.worth[worth] / turn_bytes, best = of_byte;
  for (int i = 0; i < g->n_runs; i++) {
    double bytes = bytes_of(&g->run[i], flight), all = g->run[i].worth[worth], more = all - of_byte * bytes;
    if (more <= 0) continue;
    gain = zp_later(gain, more);
    if (all > best * bytes) best = bytes > 0 ? all / bytes : HUGE_VAL;
  }
  return zp_sooner(limit * of_byte + chunks * gain, limit * best);
}

static int heaviest_repeat(const zp_variant *v) {
  int heaviest = 0;
  double most = -1;
  for (int i = 0; i < v->lowered->pieces->n_whole; i++) {
    double seconds = v->unit_s[i] * (double)v->lowered->segments[i].segment->count;
    if (seconds > most) heaviest = i, most = seconds;
  }
  return heaviest;
}

static parts parts_of(const zp_variant *v, int segment, zp_state_bytes each, bool keeps, const zp_variant *slowest) {
  parts p = {.n = v->lowered->pieces->parts[segment]};
  for (int i = 0; i < p.n; i++) {
    int piece = zp_pieces_find(v->lowered->pieces, segment, i, i + 1);
    p.state[i] = each.whole * v->part_elements[piece] + each.spread * v->part_spread[piece];
    p.kept[i] = keeps ? v->kept_bytes[piece] : 0;
    p.faster_s[i] = fmax(0, slowest->unit_s[piece] - v->unit_s[piece]);
  }
  return p;
}

/* What all stages together may gain on the slowest mode, and how many parts they have room for. */
typedef struct gains {
  double seconds, parts;
} gains;

/* Needs a no more for every part than b? */
static bool needs_no_more(const parts *a, const parts *b) {
  for (int i = 0; i < a->n; i++)
    if (a->state[i] > b->state[i] || a->kept[i] > b->kept[i]) return false;
  return true;
}

/* Has a stage room for no more parts in this mode than in another one that is looked at? */
static bool is_needless(const parts *modes, int n_modes, int mode) {
  for (int i = 0; i < n_modes; i++)
    if (i != mode && needs_no_more(&modes[i], &modes[mode]) && (i > mode || !needs_no_more(&modes[mode], &modes[i])))
      return true;
  return false;
}

static gains add_stages(const parts *modes, int n_modes, const zp_choice *c, double limit, const double *flight) {
  goods of_mode[ZP_MOST_MODES];
  bool needless[ZP_MOST_MODES];
  gains sum = {0}, most = {0};
  for (int i = 0; i < n_modes; i++) {
    of_mode[i] = goods_of(&modes[i]);
    needless[i] = is_needless(modes, n_modes, i);
  }
  for (int stage = 0; stage < c->pipeline; stage++) {
    if (stage == 0 || flight[stage] != flight[stage - 1]) {
      most = (gains){0};
      for (int i = 0; i < n_modes; i++) {
        const goods *g = &of_mode[i];
        if (g->turn.worth[SECONDS] > 0)
          most.seconds = zp_later(most.seconds, most_worth(g, SECONDS, flight[stage], limit, zp_chunks(c)));
        if (!needless[i]) most.parts = zp_later(most.parts, most_worth(g, PARTS, flight[stage], limit, zp_chunks(c)));
      }
    }
    sum.seconds += most.seconds;
    sum.parts += most.parts;
  }
  return sum;
}

bool zp_find_least_parts(const zp_searcher *s, zp_point *point, zp_state_bytes each, bool keeps, const double *flight) {
  const zp_variant *all = zp_variant_of(s, point), *slowest = &s->variants.data[point->modes[point->n_modes - 1]];
  int segment = heaviest_repeat(all), n = all->lowered->pieces->parts[segment];
  double layers = (double)all->lowered->segments[segment].segment->count;
  parts modes[ZP_MOST_MODES];
  for (int i = 0; i < point->n_modes; i++)
    modes[i] = parts_of(&s->variants.data[point->modes[i]], segment, each, keeps, slowest);
  gains most = add_stages(modes, point->n_modes, &point->choice, (double)s->limit_bytes * (1 + 1e-9), flight);
  double slow = layers * slowest->unit_s[segment];
  double others = all->prefix_s[all->lowered->n_units] - layers * all->unit_s[segment];
  point->work_s = fmax(point->work_s, (others + slow - fmin(most.seconds, slow)) * (1 - 1e-9));
  return most.parts >= layers * n * (1 - 1e-9);
}
