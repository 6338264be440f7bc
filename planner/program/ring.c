/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in a ring: which stretches of a sample a rank sees, what passes between ranks, and what each computes in a
 * round. Rank r of n has stretches 2 n - 1 - r and r, and meets in round i the keys of rank r - i (runtime/ring.c). */
#include <assert.h>
#include <math.h>
#include <zplan/program.h>

enum { HALVES = 2 };

static int64_t stretch_of(const zp_ring *x, int64_t rank, int half) {
  return half == 0 ? 2 * x->ranks - 1 - rank : rank;
}

/* Pairs of a query and a key of two stretches: of a window, the rows that are whole and the triangle that is left. */
static double pairs_of(const zp_ring *x, int64_t query, int64_t key) {
  if (x->pairs) return x->pairs[query * HALVES * x->ranks + key];
  int64_t away = x->causal || query > key ? query - key : key - query;
  double n = (double)x->rows, reach = (double)(x->window - away * x->rows);
  if (!x->causal && !x->window) return n * n;
  if (away < 0) return 0;
  if (away == 0 && !x->causal) {
    double beyond = fmax(0, n - (double)x->window);
    return n * n - beyond * (beyond + 1);
  }
  if (away == 0)
    return !x->window || x->window >= x->rows ? n * n / 2 : (double)x->window * (n - (double)x->window / 2);
  if (!x->window || reach >= n) return n * n;
  double missing = reach > 0 ? n - reach : 0, seen = n - 1 + reach;
  return reach > 0 ? n * n - missing * (missing + 1) / 2 : seen > 0 ? seen * (seen + 1) / 2 : 0;
}

static double work(const zp_ring *x, int64_t rank, int64_t owner) {
  double pairs = 0;
  for (int h = 0; h < HALVES; h++)
    for (int g = 0; g < HALVES; g++) pairs += pairs_of(x, stretch_of(x, rank, h), stretch_of(x, owner, g));
  return pairs;
}

/* Halves of the owner's keys that a rank sees. */
static int64_t halves_seen(const zp_ring *x, int64_t rank, int64_t owner) {
  int64_t seen = 0;
  for (int g = 0; g < HALVES; g++) {
    bool some = false;
    for (int h = 0; h < HALVES; h++) some |= pairs_of(x, stretch_of(x, rank, h), stretch_of(x, owner, g)) > 0;
    seen += some;
  }
  return seen;
}

static int64_t owner_in(const zp_ring *x, int64_t rank, int64_t round) { return (rank + x->ranks - round) % x->ranks; }

/* In windows and patterns some halves of keys are seen by nobody of a rank. */
static bool leaves_out(const zp_ring *x) { return x->window || x->pairs; }

static double work_of_rank(const zp_ring *x, int64_t rank) {
  double pairs = 0;
  for (int64_t owner = 0; owner < x->ranks; owner++) pairs += work(x, rank, owner);
  return pairs;
}

/* Otherwise every two ranks send each other as much: as an exchange of so many, one of n parts at home. */
int64_t zp_ring_elements(const zp_ring *x) {
  assert(x->ranks >= 2 && x->rows >= 1 && x->half_elements >= 0);
  int64_t halves = 0;
  if (!leaves_out(x)) return x->ranks * x->half_elements * (x->causal ? 3 : 4) / 2;
  for (int64_t rank = 0; rank < x->ranks; rank++)
    for (int64_t owner = 0; owner < x->ranks; owner++) halves += rank == owner ? 0 : halves_seen(x, rank, owner);
  return halves * x->half_elements;
}

zp_ring_round zp_ring_round_of(const zp_ring *x, int64_t round) {
  assert(x->ranks >= 2 && round >= 0 && round < x->ranks);
  if (!leaves_out(x))
    return (zp_ring_round){.elements = round == 0 ? 0 : HALVES * x->half_elements, .share = 1 / (double)x->ranks};
  zp_ring_round r = {.share = 1};
  bool last_has_most = x->causal && !x->pairs; /* its stretches are neighbours, in the middle of the sample */
  double most = 0;
  for (int64_t rank = last_has_most ? x->ranks - 1 : 0; rank < x->ranks; rank++)
    most = fmax(most, work_of_rank(x, rank));
  for (int64_t rank = 0; rank < x->ranks; rank++) {
    int64_t elements = round == 0 ? 0 : halves_seen(x, rank, owner_in(x, rank, round)) * x->half_elements;
    if (elements > r.elements) r.elements = elements;
    r.share = fmin(r.share, work(x, rank, owner_in(x, rank, round)) / most);
  }
  return r;
}

/* The middle one of n ranks has stretches n - 1 and n. Up to distance n - 1 each has a stretch before it, at n the
 * second one alone. As many lie after them. */
static int pairs_at(const zp_ring *x, int64_t distance) {
  if (distance == 0) return HALVES;
  if (distance > x->ranks) return 0;
  return (x->causal ? 1 : 2) * (distance == x->ranks ? 1 : HALVES);
}

/* Rows that see all keys are a rectangle. Of the others a triangle is left, and a rectangle after it. */
int zp_window_calls(const zp_ring *x, int64_t distance, zp_window_call list[ZP_WINDOW_CALLS]) {
  assert(x->ranks >= 2 && x->rows >= 1 && x->window >= 1 && distance >= 0);
  int64_t n = x->rows, reach = x->window - distance * n;
  int times = pairs_at(x, distance), calls = 0;
  if (times == 0 || reach + n <= 1) return 0;
  if (distance == 0) {
    list[0] = (zp_window_call){n, n, x->window < n ? x->window : 0, times, x->causal};
    return 1;
  }
  int64_t whole = reach > n   ? n
                  : reach > 0 ? reach
                              : 0,
          turned = reach > 0 ? n - whole : n - 1 + reach, rest = reach > 0 ? n - 1 - turned : 0;
  if (whole > 0) list[calls++] = (zp_window_call){whole, n, 0, times, false};
  if (turned > 0) list[calls++] = (zp_window_call){turned, turned, 0, times, true};
  if (turned > 0 && rest > 0) list[calls++] = (zp_window_call){turned, rest, 0, times, false};
  return calls;
}

double zp_pattern_share(const double *pairs, int64_t ranks, int *calls) {
  assert(pairs && ranks >= 2 && calls);
  const zp_ring x = {.pairs = pairs, .ranks = (int)ranks};
  int64_t longest = 0, all = HALVES * ranks;
  double total = 0;
  for (int64_t rank = 0; rank < ranks; rank++) {
    total += work_of_rank(&x, rank);
    if (work_of_rank(&x, rank) > work_of_rank(&x, longest)) longest = rank;
  }
  *calls = 0;
  for (int h = 0; h < HALVES; h++)
    for (int64_t key = 0; key < all; key++) *calls += pairs_of(&x, stretch_of(&x, longest, h), key) > 0;
  return work_of_rank(&x, longest) / total;
}
