/* SPDX-License-Identifier: Apache-2.0 */
/* Incremental decoding: what of a forward pass the positions of a stretch need, over the threads of a rank. Attention
 * reads keys and values where earlier calls have left them; tokens come to the slots of their experts and back. */
#include "device.h"
#include "state.h"

#include <assert.h>

typedef struct queries_task {
  zpk_attention_args args;
  zpr_positions p;
} queries_task;

static void first_queries(void *arg, int64_t begin, int64_t end, int worker) {
  zpk_attention(arg, begin, end, zpr_workspace_share(arg, begin, worker));
}

static void later_queries(void *arg, int64_t begin, int64_t end, int worker) {
  const queries_task *a = arg;
  zpk_attention_stretch(&a->args, a->p.first, a->p.n, begin, end, zpr_workspace_share(&a->args, begin, worker));
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

ZPR_TASK(dispatch, tokens_task, zpk_dispatch(a->r, a->x, a->slot, a->out, a->first + begin, a->first + end))

void zpr_dispatch_stretch(zpr *c, const zpk_routing *r, const void *x, const int32_t *slot, void *out,
                          zpr_positions p) {
  assert(r->B == 1 && p.first + p.n <= r->S);
  tokens_task a = {.r = r, .x = x, .slot = slot, .out = out, .first = p.first};
  zpr_parallel(c, p.n, TOKEN_GRAIN, dispatch, &a);
}

ZPR_TASK(combine, tokens_task, zpk_combine(a->r, a->x, a->weight, a->slot, a->out, a->first + begin, a->first + end))

void zpr_combine_stretch(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot,
                         void *out, zpr_positions p) {
  assert(r->B == 1 && p.first + p.n <= r->S);
  tokens_task a = {.r = r, .x = y, .weight = weight, .slot = slot, .out = out, .first = p.first};
  zpr_parallel(c, p.n, TOKEN_GRAIN, combine, &a);
}
