/* Which numbers of units fit on the stages of one point, remembered: cuts ask for the same ranges again and again. Of
 * two ranges of units, one inside the other, the inner one needs no more bytes on the same stage, so of ranges that
 * follow each other in this order two numbers say all: the longest one that is known to fit and the shortest one that
 * is known not to. Three such orders are kept for every stage and mode: ranges from the first unit of the model on,
 * ranges up to its last one, and ranges inside one segment, which differ in their length alone when they begin with the
 * same part of a layer. */
#include "schedule.h"
#include "search_internal.h"

enum { FROM_FIRST, TO_LAST, INSIDE };

/* Of a range; -1: of none. */
static int order_of(const zp_pieces *pieces, const zp_units *part) {
  int64_t first = part->first, end = first + part->count;
  if (first == 0) return FROM_FIRST;
  if (end == pieces->n_units) return TO_LAST;
  int order = INSIDE;
  for (int s = 0; s < pieces->n_whole; s++) {
    int parts = pieces->parts[s];
    int64_t units = parts * pieces->piece[s].segment.count;
    if (first < units) return end > units ? -1 : order + (parts == 1 ? 0 : (int)(first % parts));
    first -= units, end -= units, order += parts;
  }
  return -1;
}

static int count_orders(const zp_pieces *pieces) {
  int orders = INSIDE;
  for (int s = 0; s < pieces->n_whole; s++) orders += pieces->parts[s];
  return orders;
}

void zp_remember_fits(const zp_searcher *s, zp_point *point) {
  zp_fits_memo *memo = &s->memo->fits;
  point->fits = 0;
  if (zp_chunks(&point->choice) > 1) return;
  memo->orders = count_orders(zp_variant_of(s, point)->lowered->pieces);
  int64_t n = (int64_t)memo->orders * point->choice.pipeline * point->n_modes;
  if (n > memo->cap) {
    memo->cap = n;
    memo->known = ZP_NEW_ARRAY(s->kept, zp_known_fit, n);
  }
  for (int64_t i = 0; i < n; i++) memo->known[i] = (zp_known_fit){0, INT64_MAX};
  point->fits = ++memo->point;
}

static zp_known_fit *find_known(const zp_searcher *s, const zp_point *point, int mode, int stage, const zp_units *part,
                                const zp_limits *limits) {
  zp_fits_memo *memo = &s->memo->fits;
  if (point->fits == 0 || point->fits != memo->point) return NULL;
  if (limits->device != s->limit_bytes || limits->host != s->host_bytes || limits->nvme != s->nvme_bytes) return NULL;
  int order = order_of(zp_variant_of(s, point)->lowered->pieces, part);
  return order < 0 ? NULL : &memo->known[((int64_t)stage * point->n_modes + mode) * memo->orders + order];
}

/* Of every rank of the choice. */
static int64_t communicator_bytes(const zp_searcher *s, const zp_choice *c, int ties) {
  zp_communicators_memo *memo = &s->memo->communicators;
  const zp_choice *k = &memo->choice;
  if (!memo->known || k->tensor != c->tensor || k->pipeline != c->pipeline || k->data != c->data ||
      k->order != c->order || zp_expert_ranks(k) != zp_expert_ranks(c))
    *memo = (zp_communicators_memo){true, *c, zp_communicators_of(&s->spec->cluster, c, ties).total_bytes};
  return memo->bytes;
}

bool zp_mode_fits(const zp_searcher *s, const zp_point *point, int mode, int stage, const zp_units *part,
                  const zp_limits *limits) {
  zp_known_fit *known = find_known(s, point, mode, stage, part, limits);
  if (known && part->count <= known->fits) return true;
  if (known && part->count >= known->fails) return false;
  zp_limits own = zp_limits_of_stage(s, &point->choice, stage, limits);
  const zp_lowered *lowered = s->variants.data[point->modes[mode]].lowered;
  int chunks = zp_chunks(&point->choice);
  if (own.device != INT64_MAX) own.device -= communicator_bytes(s, &point->choice, lowered->ties);
  const int64_t *flight = chunks > 1 ? zp_find_flights(s, &point->choice)->chunk + stage * chunks : NULL;
  bool fits = zp_stage_fits(lowered, &point->choice, stage, part, flight, &own);
  s->memo->fits.laid_out++;
  if (known && fits) known->fits = part->count;
  if (known && !fits) known->fails = part->count;
  return fits;
}
