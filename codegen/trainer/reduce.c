/* SPDX-License-Identifier: Apache-2.0 */
/* Prints where gradients are summed over ranks. GPUs sum them over the data ranks with ZeRO 0 and 1 bucket by bucket,
 * alongside backward of the last micro-batch, from the unit on that was the last to add to them. A parameter that
 * several units of a stage use waits for the last of these, which the stage's order table names. Whatever else is
 * summed is once a step, in functions that the runtime calls. */
#include "emit.h"

/* Is it declared outside repeats, and trained? */
static bool is_shared(const zp_emit *e, int param) {
  return e->model->params.data[param].segment < 0 && !e->model->params.data[param].frozen;
}

static const char *field(const zp_emit *e, int param) {
  return zp_format(e->arena, "%s_last", zp_emit_identifier(e->arena, e->model->params.data[param].name));
}

void zp_emit_last_uses_type(zp_emit *e) {
  for (int p = 0; p < e->model->params.len && zp_emit_calls(e, ZP_CALL_REDUCE_GRADS); p++)
    if (is_shared(e, p))
      zp_buf_line(&e->out, "  int64_t %s; /* unit that is the last to add to its gradient; -1: none here */",
                  field(e, p));
}

static bool uses(const zp_emit *e, const zp_run *run, int param) {
  const zp_ints *shared = &e->lowered->shared;
  for (int i = 0; i < shared->len; i++)
    if (shared->data[i] == param) return e->lowered->segments[run->segment].uses_shared[i];
  return false;
}

/* The first unit of a chunk that uses the parameter, which backward comes to last; -1: none does. */
static int64_t first_use(const zp_emit *e, int s, int chunk, int param) {
  const zp_stage *st = &e->program->stages[s];
  int64_t j = 0;
  for (int r = 0; r < st->runs.len; r++) {
    const zp_run *run = &st->runs.data[r];
    if (run->chunk != chunk) continue;
    if (uses(e, run, param)) return j;
    j += run->count;
  }
  return -1;
}

/* The chunk whose gradients of a parameter are the last ones of the step. */
static int last_chunk(const zp_emit *e, int s, int param) {
  const zp_program *p = e->program;
  if (zp_chunks(&p->choice) == 1) return 0;
  for (int64_t i = p->actions[s]; i-- > 0;) {
    const zp_action *a = &p->order[s][i];
    bool of_weights = a->act == ZP_ACT_B || a->act == ZP_ACT_BW;
    if (of_weights && first_use(e, s, a->chunk, param) >= 0) return a->chunk;
  }
  return -1;
}

void zp_emit_last_uses(zp_emit *e, int s, int k) {
  for (int p = 0; p < e->model->params.len && zp_emit_calls(e, ZP_CALL_REDUCE_GRADS); p++)
    if (is_shared(e, p))
      zp_buf_printf(&e->out, " .%s = %lld,", field(e, p),
                    last_chunk(e, s, p) == k ? (long long)first_use(e, s, k, p) : -1LL);
}

void zp_emit_reduce(zp_emit *e) {
  zp_buf *out = &e->out;
  if (!zp_emit_calls(e, ZP_CALL_REDUCE_GRADS)) return;
  zp_buf_line(
      out,
      "/* Gradients that unit j has completed start to be summed over the data ranks, alongside the units before. */");
  zp_buf_line(out, "static void reduce_unit(zpr *c, const layout *s, int64_t j) {");
  zp_buf_line(out, "  int64_t i;");
  zp_buf_line(out, "  const run *r = find_run(s, j, &i);");
  zp_buf_line(out, "  zpr_ring_done(c, ZPR_GRAD_RING, j %% 2);");
  zp_buf_line(out, "  zpr_overlapped(c, ZPR_GRAD_RING, j %% 2);");
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++) {
    const char *prefix = zp_kinds[kind].prefix;
    if (zp_kinds[kind].trained && (kind == ZP_KIND_WHOLE || zp_emit_has(e, kind)))
      zp_buf_line(out, "  if (r->%sstride > 0) zpr_reduce_grads(c, r->%sbase + i * r->%sstride);", prefix, prefix,
                  prefix);
  }
  for (int p = 0; p < e->model->params.len; p++)
    if (is_shared(e, p))
      zp_buf_line(out, "  if (j == s->%s) zpr_reduce_grads(c, s->%s);", field(e, p),
                  zp_emit_identifier(e->arena, e->model->params.data[p].name));
  zp_buf_line(out, "  zpr_overlapped_end(c, ZPR_GRAD_RING, j %% 2);");
  zp_buf_line(out, "}");
  zp_buf_puts(out, "\n");
}

void zp_emit_reduce_unit(zp_emit *e, zp_pass pass) {
  if (!zp_emit_calls(e, ZP_CALL_REDUCE_GRADS) || (pass != ZP_PASS_BACKWARD && pass != ZP_PASS_WEIGHTS)) return;
  zp_buf_line(&e->out, "    if (mb == MICROBATCHES - 1) reduce_unit(c, s, j);");
}

/* ---- once a step ---- */

static bool sums(const zp_emit *e) {
  return zp_emit_calls(e, ZP_CALL_SUM_FLAT) || zp_emit_calls(e, ZP_CALL_SUM_BUCKETS) ||
         zp_emit_calls(e, ZP_CALL_SUM_TIES) || zp_emit_calls(e, ZP_CALL_SUM_PARTIAL);
}

static void emit_call(zp_emit *e, zp_call call, const char *text) {
  if (zp_emit_calls(e, call)) zp_buf_line(&e->out, "  %s", text);
}

/* 1-bit Adam's ranks exchange all elements of their own gradients with ZeRO 1, too, so over other axes all are summed
 * before the buckets fall to their owners; otherwise shards are less to sum. */
void zp_emit_end_of_step(zp_emit *e) {
  bool whole = zp_emit_calls(e, ZP_CALL_ONE_BIT_EXCHANGE);
  if (sums(e)) {
    zp_buf_line(&e->out, "/* Gradients that ranks sum once a step, after the micro-batches. */");
    zp_buf_line(&e->out, "static void sum_gradients(zpr *c) {");
    emit_call(e, ZP_CALL_SUM_FLAT, "zpr_sum_flat(c); /* over the data ranks */");
    if (!whole) emit_call(e, ZP_CALL_SUM_BUCKETS, "zpr_sum_buckets(c); /* over the data ranks */");
    emit_call(e, ZP_CALL_SUM_TIES, "zpr_sum_ties(c);");
    emit_call(e, ZP_CALL_SUM_PARTIAL, "zpr_sum_partial(c);");
    if (whole) emit_call(e, ZP_CALL_SUM_BUCKETS, "zpr_sum_buckets(c); /* over the data ranks */");
    zp_buf_line(&e->out, "}");
    zp_buf_puts(&e->out, "\n");
  }
  if (!zp_emit_calls(e, ZP_CALL_SHARE_WEIGHTS)) return;
  zp_buf_line(&e->out, "/* Weights, from the data ranks that have updated them. */");
  zp_buf_line(&e->out, "static void share_weights(zpr *c) { zpr_gather_updated(c); }");
  zp_buf_puts(&e->out, "\n");
}

void zp_emit_end_fields(zp_emit *e) {
  if (sums(e)) zp_buf_line(&e->out, "    .sum_gradients = sum_gradients,");
  if (zp_emit_calls(e, ZP_CALL_SHARE_WEIGHTS)) zp_buf_line(&e->out, "    .share_weights = share_weights,");
}
