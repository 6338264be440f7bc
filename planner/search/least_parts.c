/* The least work of a point that may be cut inside layers, and whether its layers have room at all. On a stage the
 * parts of a layer follow each other in turn, so every chunk holds whole turns and at most one run of parts more. What
 * a turn is worth in a mode (seconds that a slower mode would take longer, or simply 1) per byte that it keeps, and
 * what the best run beside it is worth, bound what a stage is worth with the bytes that it has: chunks * best run, then
 * turns with the rest of the bytes, as far as the run is worth more per byte than a turn. Only the repeated segment
 * with the most work is looked at, other units take the time of their fastest mode and no memory. */
#include <math.h>
#include "schedule.h"
#include "search_internal.h"

typedef struct parts { /* of one mode */
  int n;
  double state[ZP_MOST_PARTS], kept[ZP_MOST_PARTS]; /* bytes: whatever is in flight; of a micro-batch in flight */
  double faster_s[ZP_MOST_PARTS];                   /* than in the slowest mode */
} parts;

/* What bytes buy: a turn, and the best run beside turns. */
typedef struct offer {
  double bytes, worth, run_bytes, run_worth;
} offer;

static offer offer_of(const parts *p, double flight, const double *worth) {
  offer o = {0};
  double bytes[ZP_MOST_PARTS], best = 0;
  for (int i = 0; i < p->n; i++) {
    bytes[i] = p->state[i] + flight * p->kept[i];
    o.bytes += bytes[i];
    o.worth += worth[i];
  }
  for (int first = 0; first < p->n; first++) {
    double run_bytes = 0, run_worth = 0;
    for (int i = 0; i + 1 < p->n; i++) { /* around the end of a turn, but no whole one */
      run_bytes += bytes[(first + i) % p->n];
      run_worth += worth[(first + i) % p->n];
      if (run_worth <= best * run_bytes) continue;
      best = run_bytes > 0 ? run_worth / run_bytes : HUGE_VAL;
      o.run_bytes = run_bytes, o.run_worth = run_worth;
    }
  }
  return o;
}

/* The most that `limit` bytes buy in so many chunks. */
static double most_worth(const offer *o, double limit, int chunks) {
  if (o->bytes <= 0) return o->worth > 0 ? HUGE_VAL : 0;
  double runs = fmin(chunks * o->run_bytes, limit), in_runs = o->run_bytes > 0 ? runs / o->run_bytes : chunks;
  double turns = limit * o->worth / o->bytes;
  return fmax(turns, in_runs * o->run_worth + (limit - runs) * o->worth / o->bytes);
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

static parts parts_of(const zp_variant *v, int segment, zp_state_bytes each, double kept, const zp_variant *slowest) {
  parts p = {.n = v->lowered->pieces->parts[segment]};
  for (int i = 0; i < p.n; i++) {
    int piece = zp_pieces_find(v->lowered->pieces, segment, i, i + 1);
    p.state[i] = each.whole * v->part_elements[piece] + each.spread * v->part_spread[piece];
    p.kept[i] = kept * v->kept_bytes[piece];
    p.faster_s[i] = fmax(0, slowest->unit_s[piece] - v->unit_s[piece]);
  }
  return p;
}

/* What all stages together may gain on the slowest mode, and how many parts they have room for. */
typedef struct gains {
  double seconds, parts;
} gains;

static gains add_stages(const parts *modes, int n_modes, const zp_choice *c, double limit, const double *flight) {
  static const double one[ZP_MOST_PARTS] = {1, 1, 1, 1};
  gains sum = {0}, most = {0};
  for (int stage = 0; stage < c->pipeline; stage++) {
    if (stage == 0 || flight[stage] != flight[stage - 1]) {
      most = (gains){0};
      for (int i = 0; i < n_modes; i++) {
        offer faster = offer_of(&modes[i], flight[stage], modes[i].faster_s),
              any = offer_of(&modes[i], flight[stage], one);
        most.seconds = fmax(most.seconds, most_worth(&faster, limit, zp_chunks(c)));
        most.parts = fmax(most.parts, most_worth(&any, limit, zp_chunks(c)));
      }
    }
    sum.seconds += most.seconds;
    sum.parts += most.parts;
  }
  return sum;
}

bool zp_find_least_parts(const zp_searcher *s, zp_point *point, zp_state_bytes each, double kept,
                         const double *flight) {
  const zp_variant *all = zp_variant_of(s, point), *slowest = &s->variants.data[point->modes[point->n_modes - 1]];
  int segment = heaviest_repeat(all), n = all->lowered->pieces->parts[segment];
  double layers = (double)all->lowered->segments[segment].segment->count;
  parts modes[ZP_MOST_MODES];
  for (int i = 0; i < point->n_modes; i++)
    modes[i] = parts_of(&s->variants.data[point->modes[i]], segment, each, kept, slowest);
  gains most = add_stages(modes, point->n_modes, &point->choice, (double)s->limit_bytes * (1 + 1e-9), flight);
  double slow = layers * slowest->unit_s[segment];
  double others = all->prefix_s[all->lowered->n_units] - layers * all->unit_s[segment];
  point->work_s = fmax(point->work_s, (others + slow - fmin(most.seconds, slow)) * (1 - 1e-9));
  return most.parts >= layers * n * (1 - 1e-9);
}
