/* Incremental decoding: what of a forward pass the positions of a stretch need, over the threads of a rank. Attention
 * reads keys and values where earlier calls have left them; experts work on the slots of these tokens alone. */
#include "device.h"
#include "state.h"

#include <assert.h>

typedef struct queries_task {
  zpk_attention_args args;
  zpr_positions p;
} queries_task;

static void first_queries(void *arg, int64_t begin, int64_t end, int worker) { zpk_attention(arg, begin, end, worker); }

static void later_queries(void *arg, int64_t begin, int64_t end, int worker) {
  const queries_task *a = arg;
  zpk_attention_stretch(&a->args, a->p.first, a->p.n, begin, end, worker);
}

/* A beginning is a sample of its own, whose keys are all packed once; cross-attention is the same for all queries. */
void zpr_attention_stretch(zpr *c, const zpk_attention_args *args, zpr_positions p) {
  queries_task a = {*args, p};
  assert(args->B == 1 && p.first >= 0 && p.n >= 1 && p.first + p.n <= args->S);
  if (p.first == 0) {
    a.args.S = p.n;
    if (!args->keys) a.args.lengths = NULL;
  }
  zpr_parallel(c, args->G, 1, p.first == 0 ? first_queries : later_queries, &a);
}

/* ---- experts ---- */

typedef struct tokens_task {
  const zpk_routing *r;
  const void *x, *weight;
  const int32_t *slot;
  void *out;
  int64_t first;
} tokens_task;

enum { TOKEN_GRAIN = 16 };

static void dispatch(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const tokens_task *a = arg;
  zpk_dispatch(a->r, a->x, a->slot, a->out, a->first + begin, a->first + end);
}

void zpr_dispatch_stretch(zpr *c, const zpk_routing *r, const void *x, const int32_t *slot, void *out,
                          zpr_positions p) {
  assert(r->B == 1 && p.first + p.n <= r->S);
  tokens_task a = {.r = r, .x = x, .slot = slot, .out = out, .first = p.first};
  zpr_parallel(c, p.n, TOKEN_GRAIN, dispatch, &a);
}

static void combine(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const tokens_task *a = arg;
  zpk_combine(a->r, a->x, a->weight, a->slot, a->out, a->first + begin, a->first + end);
}

void zpr_combine_stretch(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot,
                         void *out, zpr_positions p) {
  assert(r->B == 1 && p.first + p.n <= r->S);
  tokens_task a = {.r = r, .x = y, .weight = weight, .slot = slot, .out = out, .first = p.first};
  zpr_parallel(c, p.n, TOKEN_GRAIN, combine, &a);
}

/* Rows first .. end - 1 of all experts' slots that the chosen ones of an expert are; none: end is 0. */
typedef struct slot_range {
  int64_t first, end;
} slot_range;

static void find_ranges(const zpr_chosen *chosen, slot_range *range) {
  assert(chosen->experts <= ZPK_MAX_EXPERTS);
  for (int64_t e = 0; e < chosen->experts; e++) range[e] = (slot_range){0, 0};
  for (int64_t i = 0; i < chosen->n; i++) {
    int64_t slot = chosen->slot[i] - chosen->first;
    if (chosen->slot[i] < 0 || slot < 0 || slot >= chosen->experts * chosen->slots) continue;
    slot_range *r = &range[slot / chosen->slots];
    if (r->end == 0) *r = (slot_range){slot, slot + 1};
    assert(slot >= r->first);
    if (slot >= r->end) r->end = slot + 1;
  }
}

void zpr_chosen_rows(zpr *c, const zpr_rows_call *call, zpr_chosen chosen) {
  slot_range range[ZPK_MAX_EXPERTS];
  find_ranges(&chosen, range);
  zpr_rows_call some = *call;
  for (int64_t e = 0; e < chosen.experts; e++) {
    if (range[e].end == 0) continue;
    some.first = range[e].first;
    some.rows = range[e].end - range[e].first;
    zpr_rows(c, &some);
  }
}

void zpr_chosen_gemm(zpr *c, bool trans, int64_t n, int64_t k, const void *x, int64_t x_ld, const void *w, void *y,
                     int64_t y_ld, zpr_chosen chosen) {
  slot_range range[ZPK_MAX_EXPERTS];
  int64_t size = zpk_bytes(c->program->dtype);
  find_ranges(&chosen, range);
  for (int64_t e = 0; e < chosen.experts; e++)
    if (range[e].end > 0)
      zpr_gemm(c, false, trans, range[e].end - range[e].first, n, k, (const char *)x + range[e].first * x_ld * size,
               x_ld, (const char *)w + e * k * n * size, trans ? k : n, false, (char *)y + range[e].first * y_ld * size,
               y_ld);
}
