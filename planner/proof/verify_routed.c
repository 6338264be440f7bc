/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanges of sorted rows in an expert group, counted from the model: how many there are, and that the rank has room
 * for every row that a gate could send it. Such a room is found from what a token can choose: every member's tokens, of
 * each as many choices as it has and the rank has experts. */
#include "verify_internal.h"

#include <math.h>
#include <string.h>

static bool is_dropless(const zp_node *node) { return node->op == ZP_OP_TOP_K_GATE && node->attr.dropless; }

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* What a gate allows in place of all that could come. */
static int64_t bounded(const zp_verifier *v, double factor, int64_t own, int64_t all) {
  int64_t samples = v->choice.microbatch;
  if (factor <= 0 || own % samples != 0) return all;
  return least(all, samples * (int64_t)ceil(factor * (double)(own / samples) * (1 - 1e-12)));
}

/* Some gate of the segment has as many experts, and so many rows of the rank's own want as much room. */
static bool has_room(const zp_verifier *v, const zp_graph *g, int64_t own, int64_t room, int64_t counts) {
  int64_t ranks = v->choice.expert;
  for (int n = 0; n < g->nodes.len; n++) {
    if (!is_dropless(&g->nodes.data[n])) continue;
    int64_t experts = g->nodes.data[n].attr.experts, k = g->nodes.data[n].attr.top_k, here = experts / ranks;
    if (counts != here + 1 + 2 * experts || own % k != 0) continue;
    if (room == bounded(v, g->nodes.data[n].attr.room, own, zp_times(zp_times(own / k, ranks), least(k, here))))
      return true;
  }
  return false;
}

static const zp_json *operand(const zp_json *buffers, const zp_json *step, const char *list, int i) {
  return zp_json_at(buffers, (int)zp_json_int(zp_json_at(zp_json_get(step, list), i), -1));
}

/* Exchanges that follow counts, and steps that count; what an exchange has on its sides. */
static int check_procedure(zp_verifier *v, const zp_graph *g, const char *segment, const zp_json *procedure,
                           int *counting) {
  const zp_json *steps = zp_json_get(procedure, "steps"), *buffers = zp_json_get(procedure, "buffers");
  int exchanges = 0;
  *counting = 0;
  for (int i = 0; i < zp_json_count(steps); i++) {
    const zp_json *step = zp_json_at(steps, i);
    const char *op = zp_json_get_string(step, "op", "");
    bool spread = strcmp(op, "spread_slots") == 0;
    *counting += strcmp(op, "spread_counts") == 0;
    if ((!spread && strcmp(op, "return_slots") != 0) || zp_json_count(zp_json_get(step, "in")) < 2) continue;
    const zp_json *in = operand(buffers, step, "in", 0), *out = operand(buffers, step, "out", 0);
    int64_t own = zp_claim(spread ? in : out, "rows"), room = zp_claim(spread ? out : in, "rows");
    exchanges++;
    if (!has_room(v, g, own, room, zp_claim(operand(buffers, step, "in", 1), "cols")))
      zp_find(v, "segment `%s`: `%s` has room for %lld rows, which is not what %lld of every member's could fill",
              segment, zp_json_get_string(step, "name", ""), (long long)room, (long long)own);
  }
  return exchanges;
}

void zp_verify_routed(zp_verifier *v, const zp_json *segment, int piece) {
  const zp_segment *s = &v->pieces->piece[piece].segment;
  int dispatches = 0, gates = 0, counting, ignored;
  for (int n = 0; n < s->graph->nodes.len && v->choice.expert > 1; n++) {
    const zp_node *node = &s->graph->nodes.data[n];
    gates += is_dropless(node);
    dispatches += (node->op == ZP_OP_DISPATCH && node->in.len > 2) + (node->op == ZP_OP_COMBINE && node->in.len > 3);
  }
  int forward = check_procedure(v, s->graph, s->name, zp_json_get(segment, "forward"), &counting);
  int backward = check_procedure(v, s->graph, s->name, zp_json_get(segment, "backward"), &ignored);
  bool frozen = zp_model_has_frozen(v->spec->model); /* then backward may end before */
  if (forward != dispatches || counting != gates || (!frozen && backward < dispatches) ||
      (dispatches == 0 && backward > 0))
    zp_find(v,
            "segment `%s`: sorted rows are counted %d times and exchanged %d times forward and %d times backward, the "
            "model wants %d, %d and as many or more",
            s->name, counting, forward, backward, gates, dispatches);
}
