/* Incremental decoding on a GPU: attention of some queries. What the other step functions do for some positions follows
 * from where their operands begin. */
#include <assert.h>
#include "cuda.h"

/* Nobody asks for gradients, and keys behind the last query are not there. */
static zpd_stretch stretch_of(const zpk_attention_args *x, int64_t first) {
  return (zpd_stretch){.of = {.B = x->B,
                              .S = x->S,
                              .H = x->H,
                              .G = x->G,
                              .hd = x->hd,
                              .kv_heads_valid = x->kv_heads_valid,
                              .scale = x->scale,
                              .causal = x->causal,
                              .layout = x->layout ? x->layout->id : 0,
                              .q = x->q,
                              .k = x->k,
                              .v = x->v,
                              .q_ld = x->q_ld,
                              .k_ld = x->k_ld,
                              .v_ld = x->v_ld,
                              .o = x->o,
                              .o_ld = x->o_ld,
                              .window = x->window,
                              .softcap = x->softcap,
                              .alibi_heads = x->alibi_heads,
                              .first_head = x->first_head,
                              .other_layouts = x->layout ? x->layout->others : 0},
                       .first = first};
}

/* A beginning is a sample of its own. */
void zpr_attention_stretch(zpr *c, const zpk_attention_args *args, zpr_positions p) {
  assert(args->B == 1 && args->causal && !args->keys && !args->buckets);
  assert(p.first >= 0 && p.n >= 1 && p.first + p.n <= args->S);
  if (p.first == 0) {
    zpk_attention_args begin = *args;
    begin.S = p.n;
    begin.lengths = NULL;
    zpr_attention(c, &begin);
    return;
  }
  zpd_stretch a = stretch_of(args, p.first);
  zpr_launch(c, &c->state->device->kernels.attention_stretch, &a, sizeof a, p.n, args->H, args->B,
             ZPD_ATTENTION_THREADS);
}
