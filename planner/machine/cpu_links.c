/* SPDX-License-Identifier: Apache-2.0 */
/* Measured messages between ranks of a CPU machine: times by size become a latency and a rate, which is what the price
 * of a link is made of (and what the search's bounds take it to be made of). A copy in the caches is several times as
 * fast as one in memory, so what tensor groups sum, small arrays often, and what data groups sum, large ones once a
 * step, are links of their own; so are messages between stages, which nobody adds up.
 *
 * Times are of pairs of ranks, all at once: where ranks outnumber cores they wait for each other's turns. Between
 * numbers of ranks logarithms are interpolated; with more ranks than were measured, and than there are cores,
 * everything takes longer as they do. Left out: what is different in groups of more than two. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <zplan/calibration.h>
#include <zplan/cpu_kernels.h>

/* What kinds of links are fitted to: arrays of up to so many bytes, or the largest one alone, with the latency of the
 * kind before. */
static const struct {
  const char *rows;
  double most;
} kinds[ZP_PAIR_KINDS] = {
    [ZP_PAIR_OFTEN] = {"reduce_round_s", 1 << 20},
    [ZP_PAIR_LARGE] = {"reduce_round_s", HUGE_VAL},
    [ZP_PAIR_MESSAGE] = {"message_s", 1 << 21},
};

/* Seconds = latency + bytes / rate with the least sum of squared relative errors. */
typedef struct line {
  double n, b, t, bb, bt; /* sums of 1, bytes, seconds and their products, weighted by 1 / seconds^2 */
} line;

static void add(line *l, double bytes, double seconds) {
  double weight = 1 / (seconds * seconds);
  l->n += weight;
  l->b += weight * bytes;
  l->t += weight * seconds;
  l->bb += weight * bytes * bytes;
  l->bt += weight * bytes * seconds;
}

static bool solve(const line *l, double *latency_s, double *bytes_per_s) {
  double det = l->n * l->bb - l->b * l->b;
  if (!(det > 1e-9 * l->n * l->bb)) return false; /* fewer than two sizes */
  double slope = (l->n * l->bt - l->b * l->t) / det, start = (l->t - slope * l->b) / l->n;
  if (start < 0) start = 0, slope = l->bt / l->bb;
  *latency_s = start;
  *bytes_per_s = 1 / slope;
  return slope > 0;
}

/* The row KIND_RxB with that many ranks: its bytes; 0: it is another one. */
static double bytes_of(const zp_measurement *row, int kind, int ranks) {
  size_t length = strlen(kinds[kind].rows);
  int there, end = 0;
  double bytes;
  if (strncmp(row->name, kinds[kind].rows, length) != 0 || row->value <= 0) return 0;
  if (sscanf(row->name + length, "_%dx%lf%n", &there, &bytes, &end) != 2 || row->name[length + (size_t)end]) return 0;
  return there == ranks ? bytes : 0;
}

static bool fit(const zp_calibration *c, int kind, int ranks, zp_pair_link *pair) {
  line l = {0};
  double largest = 0, seconds = 0;
  for (int i = 0; i < c->rows.len; i++) {
    double bytes = bytes_of(&c->rows.data[i], kind, ranks);
    if (bytes > 0 && bytes <= kinds[kind].most) add(&l, bytes, c->rows.data[i].value);
    if (bytes > largest) largest = bytes, seconds = c->rows.data[i].value;
  }
  if (kind != ZP_PAIR_LARGE) return solve(&l, &pair->latency_s[kind], &pair->bytes_per_s[kind]);
  pair->latency_s[kind] = pair->latency_s[ZP_PAIR_OFTEN];
  pair->bytes_per_s[kind] = largest / (seconds - pair->latency_s[kind]);
  return seconds > pair->latency_s[kind];
}

/* The next larger number of ranks in a row's name; 0: there is none. */
static int next_ranks(const zp_calibration *c, int after) {
  int next = 0;
  for (int i = 0; i < c->rows.len; i++) {
    int ranks;
    if (sscanf(c->rows.data[i].name, "reduce_round_s_%dx", &ranks) == 1 && ranks > after && (!next || ranks < next))
      next = ranks;
  }
  return next;
}

void zp_cpu_links_make(const zp_calibration *c, double cores, zp_cpu_kernels *out) {
  double measured_cores = zp_calibration_value(c, "cores", cores);
  out->cores = cores;
  out->n_pairs = 0;
  for (int ranks = 0; out->n_pairs < ZP_MOST_PAIRS && (ranks = next_ranks(c, ranks)) != 0;) {
    zp_pair_link *pair = &out->pair[out->n_pairs];
    pair->ranks = ranks * cores / measured_cores;
    bool whole = true;
    for (int kind = 0; kind < ZP_PAIR_KINDS; kind++) whole = whole && fit(c, kind, ranks, pair);
    out->n_pairs += whole;
  }
  out->link_bytes_per_s = out->n_pairs ? out->pair[0].bytes_per_s[ZP_PAIR_LARGE] : 0;
}

static double between(double a, double b, double part) {
  return a > 0 && b > 0 ? a * pow(b / a, part) : a + part * (b - a);
}

bool zp_cpu_link(const zp_cpu_kernels *kernels, double ranks, zp_pair_kind kind, double *latency_s, double *share) {
  assert(kernels && ranks > 0 && kind < ZP_PAIR_KINDS);
  int n = kernels->n_pairs, i = 0;
  if (n == 0) return false;
  while (i + 1 < n && kernels->pair[i + 1].ranks <= ranks) i++;
  const zp_pair_link *a = &kernels->pair[i], *b = i + 1 < n ? a + 1 : a;
  double part = b == a || ranks <= a->ranks ? 0 : log(ranks / a->ranks) / log(b->ranks / a->ranks);
  double more = b == a && ranks > fmax(a->ranks, kernels->cores) ? ranks / fmax(a->ranks, kernels->cores) : 1;
  *latency_s = more * between(a->latency_s[kind], b->latency_s[kind], part);
  *share = between(a->bytes_per_s[kind], b->bytes_per_s[kind], part) / more / kernels->link_bytes_per_s;
  return true;
}
