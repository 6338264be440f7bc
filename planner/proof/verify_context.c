/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of a context group, counted from the model: attention sees all positions of some heads, and what it makes
 * goes back; by keys, it sees keys and values of all positions, once more in backward, and their gradients come back as
 * sums; in a ring attention itself passes them on (verify_procedures.c counts its elements). A gate with a balancing
 * loss gets the choices of whole samples. Without context groups there are none. */
#include "verify_internal.h"

#include <string.h>

/* What attention turns before it looks, it gets from where that comes from. */
static int source_of(const zp_graph *g, int tensor) {
  int producer = g->tensors.data[tensor].producer;
  bool turned = producer >= 0 && g->nodes.data[producer].op == ZP_OP_ROPE;
  return turned ? g->nodes.data[producer].in.data[0] : tensor;
}

typedef struct wanted {
  int sources, results, gates; /* tensors that go out to attention, and come back; gates that balance */
  int again;                   /* of the first two, at least, once more in backward */
  bool attends;
} wanted;

static wanted wanted_of(zp_verifier *v, const zp_graph *g) {
  wanted w = {0};
  bool *seen = ZP_NEW_ARRAY(v->arena, bool, g->tensors.len + 1);
  for (int n = 0; n < g->nodes.len; n++) {
    const zp_node *node = &g->nodes.data[n];
    w.attends |= node->op == ZP_OP_ATTENTION && v->choice.context_by != ZP_BY_RING;
    w.results += node->op == ZP_OP_ATTENTION && !v->choice.context_by;
    w.gates += node->op == ZP_OP_TOP_K_GATE && node->attr.balance > 0;
    bool spreads = node->op == ZP_OP_ATTENTION && v->choice.context_by != ZP_BY_RING;
    for (int i = v->choice.context_by == ZP_BY_KEYS; i < 3 && spreads; i++) {
      int source = v->choice.context_by ? node->in.data[i] : source_of(g, node->in.data[i]);
      w.sources += !seen[source];
      seen[source] = true;
    }
  }
  w.again = v->choice.context_by ? w.sources : w.results;
  return w;
}

static int count(const zp_json *steps, const char *op) {
  int n = 0;
  for (int i = 0; i < zp_json_count(steps); i++)
    n += strcmp(zp_json_get_string(zp_json_at(steps, i), "op", ""), op) == 0;
  return n;
}

/* exact: so many; else `least` or more, because backward may make values of forward again. */
static void want_steps(zp_verifier *v, const char *segment, const zp_json *procedure, const char *op, int least,
                       bool exact) {
  int there = count(zp_json_get(procedure, "steps"), op);
  if (there < least || (exact && there > least))
    zp_find(v, "segment `%s`: %d steps %s, with context %d there are %d%s", segment, there, op,
            v->choice.context > 1 ? v->choice.context : 1, least, exact ? "" : " or more");
}

/* A rank's positions of all heads on one side, all positions on the other: of all heads together as many columns, or
 * some heads several times. */
static void check_sides(zp_verifier *v, const char *segment, const zp_json *buffers, const zp_json *step, bool spread) {
  int64_t n = v->choice.context > 1 ? v->choice.context : 1;
  const zp_json *in = zp_json_at(buffers, (int)zp_json_int(zp_json_at(zp_json_get(step, "in"), 0), -1)),
                *out = zp_json_at(buffers, (int)zp_json_int(zp_json_at(zp_json_get(step, "out"), 0), -1));
  const zp_json *own = spread ? in : out, *all = spread ? out : in;
  int64_t cols = zp_times(zp_claim(all, "cols"), n), own_cols = zp_claim(own, "cols");
  if (zp_claim(all, "rows") != zp_times(zp_claim(own, "rows"), n) || own_cols < 1 || cols < own_cols ||
      cols % own_cols != 0 || (v->choice.context_by && zp_claim(all, "cols") != own_cols))
    zp_find(v, "segment `%s`: `%s` does not exchange heads of %lld positions and %lld columns with %lld ranks", segment,
            zp_json_get_string(step, "name", ""), (long long)zp_claim(own, "rows"), (long long)own_cols, (long long)n);
}

static void check_procedure(zp_verifier *v, const char *segment, const zp_json *procedure) {
  const zp_json *steps = zp_json_get(procedure, "steps"), *buffers = zp_json_get(procedure, "buffers");
  for (int i = 0; i < zp_json_count(steps); i++) {
    const zp_json *step = zp_json_at(steps, i);
    const char *op = zp_json_get_string(step, "op", "");
    bool spread = strcmp(op, "spread_heads") == 0;
    if (spread || strcmp(op, "return_heads") == 0) check_sides(v, segment, buffers, step, spread);
  }
}

void zp_verify_context(zp_verifier *v, const zp_json *segment, int piece) {
  const zp_segment *s = &v->pieces->piece[piece].segment;
  const zp_json *forward = zp_json_get(segment, "forward"), *backward = zp_json_get(segment, "backward");
  wanted w = v->choice.context > 1 ? wanted_of(v, s->graph) : (wanted){0};
  want_steps(v, s->name, forward, "spread_heads", w.sources, true);
  want_steps(v, s->name, forward, "return_heads", w.results, true);
  want_steps(v, s->name, forward, "gather_choices", 0, true);
  if (!zp_model_has_frozen(v->spec->model)) { /* else backward may end before */
    bool none = !w.attends;
    want_steps(v, s->name, backward, "spread_heads", w.again, none);
    want_steps(v, s->name, backward, "return_heads", w.sources, none);
    want_steps(v, s->name, backward, "gather_choices", w.gates, true);
  }
  check_procedure(v, s->name, forward);
  check_procedure(v, s->name, backward);
}
