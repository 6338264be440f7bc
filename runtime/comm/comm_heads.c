/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges in a context group. Heads: what goes to a rank is put together, and heads of all positions stand as the
 * slots of an exchange (comm_slots.c). Copies and sums are those of the device. And counts of experts' choices. */
#include <assert.h>
#include "loads.h"
#include "state.h"

typedef struct exchange {
  const zpr_heads *h;
  int64_t n, rows, cols; /* ranks; positions of all samples; columns that go to one rank */
} exchange;

static exchange exchange_of(zpr *c, const zpr_heads *h) {
  int64_t n = zpr_context_ranks(c->program), heads = h->heads > n ? h->heads / n : 1;
  assert(h->samples >= 0 && h->positions >= 1 && h->width >= 1 && (h->heads % n == 0 || n % h->heads == 0));
  return (exchange){h, n, h->samples * h->positions, heads * h->width};
}

static int64_t gcd(int64_t a, int64_t b) { return b ? gcd(b, a % b) : a; }

/* Columns from `from_at` of rows of from_ld elements to columns from `to_at` of rows of to_ld. */
static void move_columns(zpr *c, const void *from, int64_t from_ld, int64_t from_at, void *to, int64_t to_ld,
                         int64_t to_at, int64_t rows, int64_t n) {
  int64_t unit = gcd(gcd(gcd(from_ld, to_ld), gcd(from_at, to_at)), n);
  zpr_move_positions(c, &(zpk_positions){.from = from,
                                         .from_S = from_ld / unit,
                                         .from_at = from_at / unit,
                                         .to = to,
                                         .to_S = to_ld / unit,
                                         .to_at = to_at / unit,
                                         .samples = rows,
                                         .n = n / unit,
                                         .cols = unit});
}

static char *part_of(zpr *c, const exchange *x, void *parts, int64_t r) {
  return (char *)parts + r * x->rows * x->cols * zpk_bytes(c->program->dtype);
}

/* The first column that goes to rank r. */
static int64_t column_of(const exchange *x, int64_t r) {
  return x->h->heads % x->n == 0 ? r * x->cols : r * x->h->heads / x->n * x->h->width;
}

void zpr_spread_heads(zpr *c, const zpr_heads *h, const void *in, void *out) {
  exchange x = exchange_of(c, h);
  for (int64_t r = 0; r < x.n; r++)
    move_columns(c, in, h->ld, column_of(&x, r), part_of(c, &x, h->scratch, r), x.cols, 0, x.rows, x.cols);
  zpr_exchange_slots(c, ZPR_CONTEXT, true, h->scratch, 1, h->samples, h->positions * x.cols, out);
}

/* Heads that several ranks had: row by row all ranks' side by side, then the sum of those of one head. */
static void sum_heads(zpr *c, const exchange *x, void *out) {
  int64_t wide = x->n * x->cols, sharers = x->n / x->h->heads, cols = x->h->heads * x->h->width;
  char *side_by_side = part_of(c, x, x->h->scratch, x->n), *sums = x->h->ld == cols ? out : x->h->scratch;
  for (int64_t r = 0; r < x->n; r++)
    move_columns(c, part_of(c, x, x->h->scratch, r), x->cols, 0, side_by_side, wide, r * x->cols, x->rows, x->cols);
  zpr_mean_positions(c, side_by_side, x->rows * x->h->heads, sharers, x->h->width, 1, sums);
  if (sums != out) move_columns(c, sums, cols, 0, out, x->h->ld, 0, x->rows, cols);
}

void zpr_return_heads(zpr *c, const zpr_heads *h, const void *in, void *out) {
  exchange x = exchange_of(c, h);
  zpr_exchange_slots(c, ZPR_CONTEXT, false, in, 1, h->samples, h->positions * x.cols, h->scratch);
  if (h->heads % x.n != 0) {
    sum_heads(c, &x, out);
    return;
  }
  for (int64_t r = 0; r < x.n; r++)
    move_columns(c, part_of(c, &x, h->scratch, r), x.cols, 0, out, h->ld, column_of(&x, r), x.rows, x.cols);
}

/* Counts are `real`, and collectives count elements of the dtype. */
void zpr_gather_choices(zpr *c, const zpk_routing *r, const int32_t *slot, void *choices) {
  int64_t count = r->B * r->experts, unit = zpk_real_bytes(r->dtype) / zpk_bytes(r->dtype);
  char *mine = (char *)choices + zpr_axis_group(c, ZPR_CONTEXT).me * count * zpk_real_bytes(r->dtype);
  zpr_count_choices(c, r, slot, mine);
  zpr_all_gather(c, ZPR_CONTEXT, mine, count * unit, choices);
}
