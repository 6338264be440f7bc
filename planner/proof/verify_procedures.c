/* SPDX-License-Identifier: Apache-2.0 */
/* Procedures of a plan file: live ranges are found again from the steps, and what forward keeps is what backward
 * reads. */
#include <zplan/sparse.h>
#include "verify_internal.h"

#define LL(x) ((long long)(x))

typedef struct live {
  int first, last; /* steps */
  bool written;
} live;

/* One procedure under examination. */
typedef struct procedure {
  zp_verifier *v;
  const char *name; /* "h forward" */
  const zp_json *buffers, *steps, *segment;
  const zp_graph *graph; /* of the model */
  bool backward;
  int n;
  live *range;        /* per buffer; of the base for views */
  int64_t kept_bytes; /* start of the slot area: the unit's input, or its shard */
  zp_flat elements;   /* of the segment's parameters, one instance */
} procedure;

static const char *name_of(const zp_json *buffer) { return zp_json_get_string(buffer, "name", ""); }
static bool is_at(const zp_json *buffer, const char *place) {
  return strcmp(zp_json_get_string(buffer, "place", ""), place) == 0;
}

zp_param_kind zp_claimed_kind(const zp_json *buffer) {
  static const char *const place[ZP_KINDS] = {"param", "spread", "frozen"};
  zp_param_kind kind = 0;
  while (kind < ZP_KINDS && !is_at(buffer, place[kind])) kind++;
  return kind;
}

static bool is_param(const zp_json *buffer) { return zp_claimed_kind(buffer) < ZP_KINDS; }

static int root_of(const procedure *p, int b) {
  int64_t base = zp_claim(zp_json_at(p->buffers, b), "base");
  return base >= 0 && base < p->n ? (int)base : b;
}

static int64_t element_bytes(const zp_verifier *v, const zp_json *buffer) {
  const char *element = zp_json_get_string(buffer, "element", "");
  if (strcmp(element, "i32") == 0) return 4;
  return strcmp(element, "stat") == 0 ? v->stat_bytes : v->compute_bytes;
}

static bool is_operand(const zp_json *buffer) {
  return strcmp(zp_json_get_string(buffer, "element", ""), "operand") == 0;
}

/* Elements from the first to past the last one. */
static int64_t span_of(const zp_json *b) {
  return zp_times(zp_claim(b, "rows") - 1, zp_claim(b, "ld")) + zp_claim(b, "cols");
}

/* ---- single buffers ---- */

static void check_view(procedure *p, const zp_json *b) {
  int64_t base = zp_claim(b, "base");
  const zp_json *o = zp_json_at(p->buffers, base < p->n ? (int)base : -1);
  if (!o || zp_claim(o, "base") >= 0 ||
      strcmp(zp_json_get_string(o, "place", ""), zp_json_get_string(b, "place", "")) != 0) {
    zp_find(p->v, "%s: `%s` views a buffer that has no storage there", p->name, name_of(b));
    return;
  }
  bool without_gaps = zp_claim(b, "ld") == zp_claim(b, "cols") && zp_claim(o, "ld") == zp_claim(o, "cols");
  if (zp_claim(b, "ld") != zp_claim(o, "ld") && !without_gaps)
    zp_find(p->v, "%s: `%s` steps by %lld elements through rows of %lld", p->name, name_of(b), LL(zp_claim(b, "ld")),
            LL(zp_claim(o, "ld")));
  if (zp_claim(b, "offset") < 0 ||
      zp_claim(b, "offset") + span_of(b) > zp_times(zp_claim(o, "rows"), zp_claim(o, "ld")))
    zp_find(p->v, "%s: `%s` reaches beyond `%s`", p->name, name_of(b), name_of(o));
}

/* The slot area begins with the unit's input; only a shard of it is a buffer of its own. */
static bool is_kept_shard(const procedure *p, const zp_json *b) {
  return zp_claim(b, "offset") == 0 && zp_claim(b, "bytes") == p->kept_bytes &&
         zp_claim(p->segment, "carry_kept_elements") < zp_claim_own(p->segment);
}

/* Numbers of 8 or 4 bits, then their scales: a byte for 128, 32 or 16 numbers of a column, or four bytes for all. */
static int64_t operand_bytes(const zp_verifier *v, int64_t rows, int64_t cols) {
  zp_precision precision = v->spec->train.precision;
  int64_t numbers = zp_times(rows, cols), group = precision == ZP_PREC_MIXED_FP8_BLOCK ? 128
                                                  : precision == ZP_PREC_MIXED_MXFP8   ? 32
                                                  : precision == ZP_PREC_MIXED_NVFP4   ? 16
                                                                                       : 0;
  return (precision == ZP_PREC_MIXED_NVFP4 ? (numbers + 1) / 2 : numbers) +
         (group > 0 ? zp_times((rows + group - 1) / group, cols) : 4);
}

static void check_operand(procedure *p, const zp_json *b) {
  int64_t wanted = operand_bytes(p->v, zp_claim(b, "rows"), zp_claim(b, "cols"));
  if (!zp_precision_recipe(p->v->spec->train.precision) || !is_at(b, "saved") ||
      zp_claim(b, "ld") != zp_claim(b, "cols"))
    zp_find(p->v, "%s: `%s` cannot be kept as an operand of products", p->name, name_of(b));
  else if (zp_claim(b, "bytes") != wanted)
    zp_find(p->v, "%s: operand `%s` is kept in %lld bytes, the file says %lld", p->name, name_of(b), LL(wanted),
            LL(zp_claim(b, "bytes")));
}

static void check_storage(procedure *p, const zp_json *b) {
  int64_t at = zp_claim(b, "offset"), bytes = zp_claim(b, "bytes");
  zp_param_kind kind = zp_claimed_kind(b);
  int64_t elements = kind < ZP_KINDS ? p->elements.of[kind] : 0;
  if (is_param(b) && (at < 0 || at % 64 != 0 || at + span_of(b) > elements))
    zp_find(p->v, "%s: parameter `%s` stands at element %lld of %lld", p->name, name_of(b), LL(at), LL(elements));
  bool transient = is_at(b, "transient"), saved = is_at(b, "saved");
  if (!transient && !saved && !is_at(b, "pending")) return;
  if (is_operand(b))
    check_operand(p, b);
  else if (bytes < zp_times(span_of(b), element_bytes(p->v, b)))
    zp_find(p->v, "%s: `%s` has only %lld bytes", p->name, name_of(b), LL(bytes));
  if (at < 0 || at % 256 != 0) zp_find(p->v, "%s: `%s` stands at byte %lld", p->name, name_of(b), LL(at));
  if (saved && at < p->kept_bytes && !is_kept_shard(p, b))
    zp_find(p->v, "%s: `%s` lies on the unit's input in the slot", p->name, name_of(b));
}

static void check_buffers(procedure *p) {
  for (int i = 0; i < p->n; i++) {
    const zp_json *b = zp_json_at(p->buffers, i);
    if (zp_claim(b, "rows") < 1 || zp_claim(b, "cols") < 1 || zp_claim(b, "ld") < zp_claim(b, "cols"))
      zp_find(p->v, "%s: `%s` has no sound shape", p->name, name_of(b));
    if (zp_claim(b, "base") >= 0)
      check_view(p, b);
    else
      check_storage(p, b);
  }
}

/* ---- steps ---- */

static void touch(live *range, int step) {
  if (range->first < 0) range->first = step;
  range->last = step;
}

/* Does the buffer hold something before the procedure begins? */
static bool is_given(const procedure *p, const zp_json *b) {
  return !is_at(b, "transient") && !is_at(b, "pending") && !is_at(b, "carry_out") && !is_at(b, "grad_out") &&
         (p->backward || !is_at(b, "saved"));
}

static void note(procedure *p, const zp_json *list, int step, bool write) {
  for (int i = 0; i < zp_json_count(list); i++) {
    int64_t b = zp_json_int(zp_json_at(list, i), -1);
    if (b < 0 || b >= p->n) {
      zp_find(p->v, "%s: step %d names buffer %lld", p->name, step, LL(b));
      continue;
    }
    int r = root_of(p, (int)b);
    const zp_json *buffer = zp_json_at(p->buffers, r);
    if (!write && !p->range[r].written && !is_given(p, buffer))
      zp_find(p->v, "%s: step %d reads `%s` before anything was written there", p->name, step, name_of(buffer));
    if (write && (is_param(buffer) || is_at(buffer, "shared") || is_at(buffer, "input")))
      zp_find(p->v, "%s: step %d writes to `%s`", p->name, step, name_of(buffer));
    touch(&p->range[r], step);
    if (write) p->range[r].written = true;
  }
}

static void check_workspace(procedure *p, const zp_json *step, int s) {
  if (!zp_json_get(step, "workspace")) return;
  int64_t w = zp_claim(step, "workspace");
  if (w < 0 || w >= p->n || !is_at(zp_json_at(p->buffers, (int)w), "transient"))
    zp_find(p->v, "%s: step %d has buffer %lld as workspace", p->name, s, LL(w));
  else
    touch(&p->range[w], s);
}

static const zp_op_attr *attention_of(const procedure *p, const char *name) {
  for (int i = 0; i < p->graph->nodes.len; i++) {
    const zp_node *node = &p->graph->nodes.data[i];
    if (node->op == ZP_OP_ATTENTION && strcmp(node->name, name) == 0) return &node->attr;
  }
  return NULL;
}

/* Stretches of keys that ranks of a ring get from others, where one of `rows` sees those that begin within a window. */
static int64_t stretches_passed(int64_t ranks, int64_t rows, int64_t window, bool causal) {
  int64_t all = 2 * ranks, passed = 0;
  for (int64_t to = 0; to < ranks; to++)
    for (int64_t keys = 0; keys < all; keys++) {
      int64_t late = all - 1 - to;
      bool own = keys == to || keys == late;
      bool seen =
          (keys < to && (to - keys - 1) * rows + 1 < window) || (keys < late && (late - keys - 1) * rows + 1 < window);
      if (!causal)
        seen |= (keys > to && (keys - to - 1) * rows + 1 < window) ||
                (keys > late && (keys - late - 1) * rows + 1 < window);
      passed += !own && seen;
    }
  return passed;
}

/* Stretches passed in a pattern, block by block: a rank gets stretches with a block that some head of its own blocks
 * sees. */
static int64_t stretches_of_pattern(zp_arena *arena, const zp_layout *layout, int64_t ranks) {
  int64_t all = 2 * ranks, blocks = layout->n / all, passed = 0;
  bool *wanted = ZP_NEW_ARRAY(arena, bool, (size_t)(ranks * all));
  for (int s = 0; s < layout->sets; s++)
    for (int i = 0; i < layout->n; i++) {
      const zp_block_list *keys = &layout->set[s].keys;
      int64_t stretch = i / blocks, to = stretch < ranks ? stretch : all - 1 - stretch;
      for (int r = keys->first[i]; r < keys->first[i + 1]; r++)
        for (int j = keys->run[r].first; j < keys->run[r].end; j++) wanted[to * all + j / blocks] = true;
    }
  for (int64_t to = 0; to < ranks; to++)
    for (int64_t keys = 0; keys < all; keys++) passed += keys != to && keys != all - 1 - to && wanted[to * all + keys];
  return passed;
}

/* Attention in a ring: keys and values of all ranks, which are alike, and backward their gradients; causal 3 of 4
 * parts, because late stretches go to half of the others, and in a window what all ranks send together. */
static int64_t passed(const procedure *p, const zp_json *step, const char *op) {
  bool grad = strcmp(op, "attention_grad") == 0;
  if (p->v->choice.context_by != ZP_BY_RING || (!grad && strcmp(op, "attention") != 0)) return 0;
  const zp_op_attr *attr = attention_of(p, zp_json_get_string(step, "name", ""));
  int64_t elements = 0, context = p->v->choice.context > 1 ? p->v->choice.context : 1, rows = 0;
  for (int i = 1; i <= 2 && attr; i++) {
    const zp_json *x = zp_json_at(p->buffers, (int)zp_json_int(zp_json_at(zp_json_get(step, "in"), i), -1));
    elements += zp_times(zp_claim(x, "rows"), zp_claim(x, "cols"));
    rows = zp_claim(x, "rows") / p->v->choice.microbatch;
  }
  if (attr && attr->layout && attr->layout->n % (2 * context) == 0)
    return zp_times(elements / 2 * (grad ? 2 : 1), stretches_of_pattern(p->v->arena, attr->layout, context));
  if (attr && attr->window)
    return zp_times(elements / 2 * (grad ? 2 : 1), stretches_passed(context, rows / 2, attr->window, attr->causal));
  elements = zp_times(elements, grad ? 2 * context : context);
  return attr && attr->causal ? elements / 4 * 3 : elements;
}

/* A collective moves the whole of its first operand, or of its result; of counts of choices a rank's share of it, of
 * counts of rows those of one sample, and of sorted rows the rank's own. */
static void check_comm(procedure *p, const zp_json *step, int s) {
  static const char *const collective[] = {"all_reduce",     "grad_all_reduce",    "gather_stats",   "gather_shard",
                                           "all_gather_seq", "reduce_scatter_seq", "spread_slots",   "return_slots",
                                           "spread_heads",   "return_heads",       "gather_choices", "spread_counts"};
  const char *op = zp_json_get_string(step, "op", "");
  bool choices = strcmp(op, "gather_choices") == 0;
  bool returned = strcmp(op, "return_slots") == 0 && zp_json_count(zp_json_get(step, "in")) > 1;
  bool result = strcmp(op, "spread_heads") == 0 || choices || returned; /* heads: where all positions are */
  const char *counted = result ? "out" : "in";
  const zp_json *in = zp_json_at(p->buffers, (int)zp_json_int(zp_json_at(zp_json_get(step, counted), 0), -1));
  bool moves = false;
  for (size_t i = 0; i < sizeof collective / sizeof *collective; i++) moves |= strcmp(op, collective[i]) == 0;
  int64_t elements = zp_json_get_int(step, "comm_elements", 0);
  int64_t rows = strcmp(op, "spread_counts") == 0 ? 1 : zp_claim(in, "rows");
  int64_t expected = moves ? zp_times(rows, zp_claim(in, "cols")) : 0;
  if (!moves) expected = passed(p, step, op);
  if (choices) expected /= p->v->choice.context > 1 ? p->v->choice.context : 1;
  if (elements != expected)
    zp_find(p->v, "%s: step %d (%s) communicates %lld elements, the file says %lld", p->name, s, op, LL(expected),
            LL(elements));
}

static bool one_of(const char *op, const char *const *ops, size_t n) {
  size_t i = 0;
  while (i < n && strcmp(ops[i], op) != 0) i++;
  return i < n;
}

/* What is kept for products in 8 or 4 bits only a rounding writes and only a weight's gradient reads; of other programs
 * a gather along the sequence, too. */
static void check_operands(procedure *p, const zp_json *step, int s) {
  static const char *const readers[] = {"matmul_wgrad", "all_gather_seq", "batched_matmul_wgrad"};
  size_t n_readers = p->v->spec->cluster.software ? sizeof readers / sizeof *readers : 1;
  const char *op = zp_json_get_string(step, "op", "");
  const zp_json *in = zp_json_get(step, "in"), *out = zp_json_get(step, "out");
  bool keeps = strcmp(op, "keep_operand") == 0;
  for (int i = 0; i < zp_json_count(in); i++) {
    const zp_json *x = zp_json_at(p->buffers, (int)zp_json_int(zp_json_at(in, i), -1));
    if (x && is_operand(x) && !one_of(op, readers, n_readers))
      zp_find(p->v, "%s: step %d (%s) reads `%s`, which is kept for products", p->name, s, op, name_of(x));
  }
  for (int i = 0; i < zp_json_count(out); i++) {
    const zp_json *x = zp_json_at(p->buffers, (int)zp_json_int(zp_json_at(out, i), -1)),
                  *from = zp_json_at(p->buffers, (int)zp_json_int(zp_json_at(in, 0), -1));
    if (x && is_operand(x) != keeps)
      zp_find(p->v, "%s: step %d (%s) writes `%s`", p->name, s, op, name_of(x));
    else if (x && keeps &&
             (!from || zp_claim(from, "rows") != zp_claim(x, "rows") || zp_claim(from, "cols") != zp_claim(x, "cols")))
      zp_find(p->v, "%s: step %d keeps `%s` of another shape", p->name, s, name_of(x));
  }
}

static void check_steps(procedure *p) {
  for (int s = 0; s < zp_json_count(p->steps); s++) {
    const zp_json *step = zp_json_at(p->steps, s);
    note(p, zp_json_get(step, "in"), s, false);
    note(p, zp_json_get(step, "out"), s, true);
    check_workspace(p, step, s);
    check_operands(p, step, s);
    check_comm(p, step, s);
  }
}

/* Everything that flows out of the segment is written, one after the other. */
static void check_results(procedure *p, const zp_graph *g, const zp_ints *carry, const char *place) {
  int64_t at = 0, microbatch = p->v->choice.microbatch;
  for (int i = 0; i < carry->len; i++) {
    int64_t bytes = zp_shape_elements(&g->tensors.data[carry->data[i]].shape, microbatch) * p->v->compute_bytes;
    bool found = false;
    bytes = zp_verify_share(p->v, bytes);
    for (int b = 0; b < p->n && !found; b++) {
      const zp_json *x = zp_json_at(p->buffers, b);
      found = is_at(x, place) && p->range[b].written && zp_claim(x, "base") < 0 && zp_claim(x, "offset") == at &&
              zp_times(span_of(x), p->v->compute_bytes) == bytes;
    }
    if (!found) zp_find(p->v, "%s: `%s` is not written to %s", p->name, g->tensors.data[carry->data[i]].name, place);
    at += bytes;
  }
}

/* ---- storage against storage ---- */

static bool apart(const zp_json *a, const zp_json *b, int64_t a_size, int64_t b_size) {
  return zp_claim(a, "offset") + a_size <= zp_claim(b, "offset") ||
         zp_claim(b, "offset") + b_size <= zp_claim(a, "offset");
}

/* Transients share memory unless alive together; saved and waiting values and parameters live longer than a
 * procedure. */
static void check_pair(procedure *p, int i, int k) {
  const zp_json *x = zp_json_at(p->buffers, i), *y = zp_json_at(p->buffers, k);
  bool transient = is_at(x, "transient"), param = is_param(x);
  if (strcmp(zp_json_get_string(x, "place", ""), zp_json_get_string(y, "place", "")) != 0) return;
  if (transient && (p->range[i].first > p->range[k].last || p->range[k].first > p->range[i].last)) return;
  int64_t x_size = param ? span_of(x) : zp_claim(x, "bytes"), y_size = param ? span_of(y) : zp_claim(y, "bytes");
  if (!apart(x, y, x_size, y_size))
    zp_find(p->v, "%s: `%s` and `%s` are alive together and overlap", p->name, name_of(y), name_of(x));
}

static void check_overlaps(procedure *p, int64_t transient_bytes) {
  int64_t saved_bytes = zp_claim(p->segment, "saved_bytes"), pending_bytes = zp_claim(p->segment, "pending_bytes");
  for (int i = 0; i < p->n; i++) {
    const zp_json *x = zp_json_at(p->buffers, i);
    bool transient = is_at(x, "transient"), pending = is_at(x, "pending"), kept = pending || is_at(x, "saved");
    if (zp_claim(x, "base") >= 0 || (!transient && !kept && !is_param(x)) || p->range[i].first < 0) continue;
    int64_t limit = transient ? transient_bytes : pending ? pending_bytes : saved_bytes;
    if ((transient || kept) && zp_claim(x, "offset") + zp_claim(x, "bytes") > limit)
      zp_find(p->v, "%s: `%s` reaches beyond its region of %lld bytes", p->name, name_of(x), LL(limit));
    for (int k = 0; k < i; k++)
      if (zp_claim(zp_json_at(p->buffers, k), "base") < 0 && p->range[k].first >= 0) check_pair(p, i, k);
  }
}

/* Every saved value that backward touches was written by forward, in the same place. */
static void check_kept(const procedure *forward, const procedure *backward) {
  for (int b = 0; b < backward->n; b++) {
    const zp_json *x = zp_json_at(backward->buffers, b);
    if (zp_claim(x, "base") >= 0 || !is_at(x, "saved") || backward->range[b].first < 0) continue;
    bool found = false;
    for (int f = 0; f < forward->n && !found; f++) {
      const zp_json *y = zp_json_at(forward->buffers, f);
      found = forward->range[f].written && is_at(y, "saved") && strcmp(name_of(x), name_of(y)) == 0 &&
              zp_claim(x, "offset") == zp_claim(y, "offset") && zp_claim(x, "bytes") == zp_claim(y, "bytes");
    }
    if (!found)
      zp_find(backward->v, "%s: forward does not keep `%s` where backward reads it", backward->name, name_of(x));
  }
}

/* which: "forward", "backward", or "loss", which stands after a forward as backward does. */
static procedure check_procedure(zp_verifier *v, const zp_json *segment, int index, const char *which) {
  const zp_segment *s = &v->pieces->piece[index].segment;
  const zp_json *json = zp_json_get(segment, which);
  bool forward = strcmp(which, "forward") == 0, backward = strcmp(which, "backward") == 0;
  procedure p = {.v = v, .segment = segment, .graph = s->graph, .backward = !forward, .elements = v->instance[index]};
  p.name = zp_format(v->arena, "%s %s", s->name, which);
  p.buffers = zp_json_get(json, "buffers");
  p.steps = zp_json_get(json, "steps");
  p.n = zp_json_count(p.buffers);
  p.kept_bytes = zp_times(zp_claim(segment, "carry_kept_elements"), v->compute_bytes);
  p.range = ZP_NEW_ARRAY(v->arena, live, p.n + 1);
  for (int b = 0; b < p.n; b++) p.range[b].first = p.range[b].last = -1;
  check_buffers(&p);
  check_steps(&p);
  if (forward) check_results(&p, s->graph, &s->graph->carry_out, "carry_out");
  if (backward) check_results(&p, s->graph, &s->graph->carry_in, "grad_out");
  check_overlaps(&p, zp_claim(json, "transient_bytes"));
  return p;
}

/* ---- segments ---- */

/* Flat elements of one instance: the segment's own parameters, each aligned to 64 elements. */
static zp_flat instance_elements(const zp_verifier *v, const zp_segment *s) {
  zp_flat sum = {{0}};
  for (int i = 0; i < s->graph->params.len; i++) {
    int param = s->graph->params.data[i].param;
    if (v->spec->model->params.data[param].segment >= 0) sum.of[v->kind[param]] += zp_up(v->elements[param], 64);
  }
  return sum;
}

static bool makes_loss_by_parts(const zp_verifier *v, const zp_segment *s) {
  return s->graph->losses.len > 0 && zp_loss_chunks(&v->choice) > 1;
}

static int count_steps(const zp_json *json, zp_op op) {
  const zp_json *steps = zp_json_get(json, "steps");
  int n = 0;
  for (int i = 0; i < zp_json_count(steps); i++)
    n += strcmp(zp_json_get_string(zp_json_at(steps, i), "op", ""), zp_op_name(op)) == 0;
  return n;
}

/* The loss is made once in training, by as many parts as were decided: in forward, or all of it in backward and once
 * more for a validation. */
static void check_loss(zp_verifier *v, const zp_json *j, const zp_segment *s) {
  bool by_parts = makes_loss_by_parts(v, s);
  int parts = zp_loss_chunks(&v->choice), whole = s->graph->losses.len;
  const int wanted[] = {by_parts ? 0 : whole, by_parts ? parts : 0, by_parts ? parts : 0};
  static const char *const which[] = {"forward", "backward", "loss"};
  for (int i = 0; i < 3; i++) {
    int losses = count_steps(zp_json_get(j, which[i]), ZP_OP_CE_LOSS);
    if (losses != wanted[i])
      zp_find(v, "segment `%s`: %s makes the loss of %d chunks, not of %d", s->name, which[i], losses, wanted[i]);
  }
}

/* What the mode says about the procedures of a repeated segment: full recomputation keeps the input alone, without it
 * backward runs no product and no attention of forward. Segments outside repeats are never recomputed. */
static void check_mode(zp_verifier *v, const zp_json *j, const zp_segment *s, zp_stage_mode mode, int64_t kept_bytes) {
  int products = makes_loss_by_parts(v, s) ? zp_loss_chunks(&v->choice) : 0; /* the last one of the model, by parts */
  const zp_json *steps = zp_json_get(zp_json_get(j, "backward"), "steps");
  bool full = zp_stage_mode_recompute(mode) == ZP_RECOMPUTE_FULL && s->is_repeat;
  if (full && zp_claim(j, "saved_bytes") != zp_up(kept_bytes, 256))
    zp_find(v, "segment `%s` is rebuilt from %lld bytes, the file keeps %lld", s->name, LL(zp_up(kept_bytes, 256)),
            LL(zp_claim(j, "saved_bytes")));
  for (int i = 0; i < zp_json_count(steps) && !full; i++) {
    const char *op = zp_json_get_string(zp_json_at(steps, i), "op", "");
    if (strcmp(op, zp_op_name(ZP_OP_MATMUL)) == 0 && products-- > 0) continue;
    if (strcmp(op, zp_op_name(ZP_OP_MATMUL)) == 0 || strcmp(op, zp_op_name(ZP_OP_ATTENTION)) == 0)
      zp_find(v, "segment `%s`: backward runs the %s of forward again, with recompute \"%s\"", s->name, op,
              zp_stage_mode_name(mode));
  }
}

static void check_sizes(zp_verifier *v, const zp_json *j, int index, zp_stage_mode mode) {
  const zp_segment *s = &v->pieces->piece[index].segment;
  const zp_choice *c = &v->choice;
  const zp_graph *g = s->graph;
  int64_t in = 0, kept, streams = 0;
  for (int i = 0; i < g->carry_in.len; i++) {
    in += zp_shape_elements(&g->tensors.data[g->carry_in.data[i]].shape, c->microbatch);
    if (zp_verify_stream(v, index, i) >= 0) streams += zp_verify_stream_elements(v, index, i);
  }
  in = zp_verify_share(v, in);
  kept = in - streams;
  if (zp_stage_mode_split(mode) && s->is_repeat) kept = (kept + c->tensor - 1) / c->tensor;
  if (zp_claim(j, "count") != s->count)
    zp_find(v, "segment `%s` has %lld iterations, the file says %lld", s->name, LL(s->count), LL(zp_claim(j, "count")));
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) {
    int64_t own = v->instance[index].of[kind], claimed = zp_claim_of_kind(v, j, kind, "elements");
    if (claimed != own)
      zp_find(v, "segment `%s` has %lld %sparameter elements, the file says %lld", s->name, LL(own), zp_kind_word(kind),
              LL(claimed));
  }
  if (zp_claim(j, "carry_in_elements") != in || zp_claim(j, "carry_kept_elements") != kept)
    zp_find(v, "segment `%s` receives %lld elements and keeps %lld, the file says %lld and %lld", s->name, LL(in),
            LL(kept), LL(zp_claim(j, "carry_in_elements")), LL(zp_claim(j, "carry_kept_elements")));
  if (zp_claim_some(j, "carry_stream_elements") != streams)
    zp_find(v, "segment `%s` hands on or reads %lld elements of streams, the file says %lld", s->name, LL(streams),
            LL(zp_claim_some(j, "carry_stream_elements")));
  if (zp_claim(j, "saved_bytes") < zp_times(kept, v->compute_bytes))
    zp_find(v, "segment `%s` keeps its input in %lld bytes", s->name, LL(zp_claim(j, "saved_bytes")));
  else
    check_mode(v, j, s, mode, zp_times(kept, v->compute_bytes));
}

static void check_segment(zp_verifier *v, const zp_json *j, int index, zp_stage_mode mode) {
  check_sizes(v, j, index, mode);
  procedure forward = check_procedure(v, j, index, "forward"), backward = check_procedure(v, j, index, "backward");
  check_kept(&forward, &backward);
  check_loss(v, j, &v->pieces->piece[index].segment);
  if (zp_json_get(j, "loss")) {
    procedure loss = check_procedure(v, j, index, "loss");
    check_kept(&forward, &loss);
  }
  zp_verify_context(v, j, index);
  zp_verify_routed(v, j, index);
  zp_verify_split(v, j, index, backward.name);
}

static int piece_by_name(const zp_pieces *pieces, const char *name) {
  for (int i = 0; i < pieces->n; i++)
    if (strcmp(pieces->piece[i].segment.name, name) == 0) return i;
  return -1;
}

static bool some_stage_runs(const zp_verifier *v, const zp_json *entry) {
  for (int s = 0; s < v->choice.pipeline; s++) {
    const zp_json *layers = zp_json_get(zp_json_at(v->stages, s), "layers");
    for (int r = 0; r < zp_json_count(layers); r++)
      if (zp_claimed_program(v, s, zp_json_at(layers, r)) == entry) return true;
  }
  return false;
}

/* A segment has procedures for every mode of a stage that runs it, and no others. */
void zp_verify_procedures(zp_verifier *v) {
  const zp_pieces *p = v->pieces;
  const zp_json *segments = zp_json_get(v->program, "segments");
  v->instance = ZP_NEW_ARRAY(v->arena, zp_flat, p->n + 1);
  for (int i = 0; i < p->n; i++) v->instance[i] = instance_elements(v, &p->piece[i].segment);
  for (int i = 0; i < zp_json_count(segments); i++) {
    const zp_json *j = zp_json_at(segments, i);
    zp_stage_mode mode;
    int index = piece_by_name(p, zp_json_get_string(j, "name", ""));
    if (index >= 0 && zp_stage_mode_by_name(zp_claimed_mode(j), &mode) && some_stage_runs(v, j))
      check_segment(v, j, index, mode);
    else
      zp_find(v, "no stage runs the procedures of `%s` with recompute \"%s\"", zp_json_get_string(j, "name", ""),
              zp_claimed_mode(j));
  }
}
