/* SPDX-License-Identifier: Apache-2.0 */
/* Prints where a stage, or every chunk of one, keeps what its units exchange. */
#include "emit.h"

#define LL(x) ((long long)(x))

static bool splits(const zp_emit *e) { return zp_schedule_splits(e->program->choice.schedule); }

/* Model parameters declared outside repeats: one field of `layout` each. */
static void emit_run_type(zp_emit *e) {
  zp_buf *out = &e->out;
  zp_buf_line(out, "enum segment {");
  for (int s = 0; s < e->lowered->n_segments; s++)
    for (int mode = 0; mode < ZP_STAGE_MODES; mode++)
      if (zp_emit_variant(e, s, mode)) zp_buf_line(out, "  %s,", zp_emit_segment(e, s, mode));
  zp_buf_line(out, "};");
  zp_buf_line(out, "/* Consecutive iterations of a segment: elements in the flat buffers, bytes in a slot. */");
  zp_buf_line(out, "typedef struct run {");
  zp_buf_line(out, "  enum segment segment;");
  zp_buf_line(out, "  int64_t first, count, base, stride, saved, saved_stride;");
  static const char *const of[ZP_KINDS] = {
      [ZP_KIND_SPREAD] = "what expert groups share", [ZP_KIND_FROZEN] = "what is not trained"};
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    if (zp_emit_has(e, kind))
      zp_buf_line(out, "  int64_t %sbase, %sstride; /* of %s */", zp_kinds[kind].prefix, zp_kinds[kind].prefix,
                  of[kind]);
  if (zp_emit_calls(e, ZP_CALL_SAVED_PUT))
    zp_buf_line(out, "  int64_t offloaded, offloaded_stride, offloaded_bytes; /* of what a slot has off the device */");
  zp_buf_line(out, "  bool keeps_input; /* whole, in the slot; otherwise its input comes in a carry buffer */");
  if (splits(e)) {
    zp_buf_line(out, "  int64_t pending, pending_stride; /* bytes in what waits for the gradients of weights */");
    zp_buf_line(out, "  bool keeps_gradient; /* of its output, first of what waits */");
    if (zp_emit_calls(e, ZP_CALL_SAVED_PUT))
      zp_buf_line(out, "  bool changes_saved; /* backward_inputs writes to saved values: they go out again */");
  }
  if (zp_emit_streams(e)) {
    zp_buf_line(out, "  int carried; /* tensors that come in */");
    zp_buf_line(out, "  int64_t own[CARRIED]; /* elements in the unit's own input */");
    zp_buf_line(out, "  int64_t stream[CARRIED]; /* bytes in the slot, which has it once; -1: the unit's own */");
  }
  zp_buf_line(out, "} run;");
}

static int most_carried(const zp_emit *e) {
  int most = 1;
  for (int i = 0; i < e->lowered->n_segments; i++)
    if (most < e->lowered->segments[i].graph->carry_in.len) most = e->lowered->segments[i].graph->carry_in.len;
  return most;
}

static void emit_layout_type(zp_emit *e, int max_runs) {
  zp_buf *out = &e->out;
  bool chunks = zp_chunks(&e->program->choice) > 1;
  if (zp_emit_streams(e)) zp_buf_line(out, "enum { CARRIED = %d }; /* most tensors between units */", most_carried(e));
  emit_run_type(e);
  zp_buf_line(out, "/* Where a %s keeps what its units exchange: byte offsets in the arena, -1 when absent. */",
              chunks ? "chunk" : "stage");
  zp_buf_line(out, "typedef struct layout {");
  zp_buf_line(out, "  int64_t slots, slot_count, slot_stride, transient, carry[2], grad[2], send_up, send_down;");
  if (e->program->stages[0].messages > 1) zp_buf_line(out, "  int64_t message_stride;");
  if (zp_emit_pools(e)) zp_buf_line(out, "  bool pooled; /* the slots are those of all chunks of the stage */");
  if (splits(e)) zp_buf_line(out, "  int64_t pending, pending_count, pending_stride;");
  if (zp_emit_calls(e, ZP_CALL_SAVED_PUT)) {
    zp_buf_line(out, "  int64_t saved_ring, ring_stride; /* SAVED_BUFFERS, where units work */");
    zp_buf_line(out, "  int64_t offloaded, offloaded_stride; /* of slots off the device: bytes %s */",
                zp_emit_calls(e, ZP_CALL_SAVED_READ) ? "in the rank's file" : "in the host's memory");
  }
  if (zp_emit_calls(e, ZP_CALL_FETCH_PARAMS))
    zp_buf_line(out, "  int64_t param_stride; /* elements of one of the ring's two buffers */");
  if (zp_emit_buckets_move(e))
    zp_buf_line(out, "  int64_t param_ring, grad_ring; /* parameters of the unit at work, gathered; its gradients */");
  if (zp_emit_calls(e, ZP_CALL_SCATTER_OVERLAPPED))
    zp_buf_line(out, "  int64_t bucket_stride, grad_stride; /* bytes between the two buffers of a ring */");
  zp_buf_line(out, "  int64_t in_elements, out_elements; /* of one message from below and to above */");
  if (zp_emit_streams(e)) {
    zp_buf_line(out, "  bool lands; /* the message from below has streams: it is taken apart */");
    zp_buf_line(out, "  int carried_in, carried_out; /* tensors of the messages, and elements in front of each */");
    zp_buf_line(out, "  int64_t in_at[CARRIED + 1], out_at[CARRIED + 1];");
  }
  for (int p = 0; p < e->model->params.len; p++)
    if (e->model->params.data[p].segment < 0)
      zp_buf_line(out, "  int64_t %s; /* element offset of the shared parameter */",
                  zp_emit_identifier(e->arena, e->model->params.data[p].name));
  zp_emit_last_uses_type(e);
  zp_buf_line(out, "  int64_t n_units;");
  zp_buf_line(out, "  int n_runs;");
  zp_buf_line(out, "  run runs[%d];", max_runs);
  zp_buf_line(out, "} layout;");
  zp_buf_line(out, "/* One unit (iteration of a segment or of a part of it) at work: arguments of the procedures. */");
  zp_buf_line(out, "typedef struct unit {");
  zp_buf_puts(out, "  int64_t layer, base");
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    if (zp_emit_has(e, kind)) zp_buf_printf(out, ", %sbase", zp_kinds[kind].prefix);
  zp_buf_line(out, ";");
  zp_buf_line(out, splits(e) ? "  char *saved, *pending;" : "  char *saved;");
  zp_buf_line(out, zp_emit_streams(e) ? "  real *in[CARRIED], *out[CARRIED], *dy, *dx;" : "  real *x, *y, *dy, *dx;");
  if (zp_emit_calls(e, ZP_CALL_FETCH_PARAMS)) zp_buf_line(out, "  real *w; /* its parameters */");
  if (zp_emit_calls(e, ZP_CALL_SCATTER_OVERLAPPED)) zp_buf_line(out, "  real *w; /* its buffers in the rings */");
  if (zp_emit_calls(e, ZP_CALL_SCATTER_OVERLAPPED)) zp_buf_line(out, "  grad *g;");
  zp_buf_line(out, "} unit;");
  zp_buf_puts(out, "\n");
}

/* Elements of a message into model chunk k; 0 for the first chunk, which gets none. */
static int64_t message_elements(const zp_emit *e, int64_t k) {
  const zp_choice *c = &e->program->choice;
  if (k <= 0 || k >= (int64_t)c->pipeline * zp_chunks(c)) return 0;
  int segment;
  int64_t iteration;
  zp_unit(e->lowered, c->cut[k], &segment, &iteration);
  return e->lowered->segments[segment].carry_in_elements;
}

/* Where what comes into a unit of the run stands: elements in its own input, bytes in the slot. */
static const char *run_streams(const zp_emit *e, int s, const zp_run *run, const zp_segment_program *seg) {
  uint64_t streams = e->program->stages[s].chunks[run->chunk].streams;
  int n = seg->graph->carry_in.len;
  if (n == 0) return "";
  zp_buf own = zp_buf_new(e->arena), stream = zp_buf_new(e->arena);
  for (int i = 0; i < n; i++) {
    const zp_carry *c = &seg->carries[i];
    zp_buf_printf(&own, "%s%lld", i ? ", " : "", LL(c->at));
    zp_buf_printf(&stream, "%s%lld", i ? ", " : "",
                  c->stream < 0 ? -1LL : LL(zp_stream_at(e->lowered, streams, c->stream)));
  }
  return zp_format(e->arena, ", .carried = %d, .own = {%s}, .stream = {%s}", n, own.data, stream.data);
}

static void emit_run(zp_emit *e, int s, const zp_run *run) {
  const zp_segment_program *seg = zp_run_segment(zp_program_lowered(e->program, s), run);
  zp_buf others = zp_buf_new(e->arena);
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    if (zp_emit_has(e, kind)) zp_buf_printf(&others, "%lld, %lld, ", LL(run->base.of[kind]), LL(run->stride.of[kind]));
  const char *pending =
      splits(e) ? zp_format(e->arena, ", %lld, %lld, %s%s", LL(run->pending),
                            LL(zp_unit_pending_bytes(seg, &e->program->choice)), seg->keeps_gradient ? "true" : "false",
                            !zp_emit_calls(e, ZP_CALL_SAVED_PUT) ? ""
                            : seg->changes_saved                 ? ", true"
                                                                 : ", false")
                : "";
  int64_t gone = zp_saved_offloaded(&e->program->choice, seg->saved_bytes);
  const char *offloaded =
      zp_emit_calls(e, ZP_CALL_SAVED_PUT)
          ? zp_format(e->arena, "%lld, %lld, %lld, ", LL(run->saved_offloaded),
                      LL(zp_saved_offloaded_stride(&e->program->choice, seg->saved_bytes)), LL(gone))
          : "";
  const char *streams = zp_emit_streams(e) ? run_streams(e, s, run, seg) : "";
  zp_buf_line(&e->out, "         {%s, %lld, %lld, %lld, %lld, %lld, %lld, %s%s%s%s%s},",
              zp_emit_segment(e, run->segment, zp_run_mode(zp_program_lowered(e->program, s), run)), LL(run->first),
              LL(run->count), LL(run->base.of[ZP_KIND_WHOLE]), LL(run->stride.of[ZP_KIND_WHOLE]), LL(run->saved),
              LL(seg->saved_bytes - gone), others.data, offloaded, zp_keeps_input(seg) ? "true" : "false", pending,
              streams);
}

static int count_runs(const zp_stage *st, int chunk) {
  int n = 0;
  for (int r = 0; r < st->runs.len; r++) n += st->runs.data[r].chunk == chunk;
  return n;
}

static int64_t count_calls(const zp_stage *st, int chunk) {
  int64_t n = 0;
  for (int r = 0; r < st->runs.len; r++)
    if (st->runs.data[r].chunk == chunk) n += st->runs.data[r].count;
  return n;
}

static void emit_chunk_fields(zp_emit *e, const zp_stage *st, int k) {
  zp_buf *out = &e->out;
  const zp_chunk *chunk = &st->chunks[k];
  if (st->messages > 1) zp_buf_line(out, "     .message_stride = %lld,", LL(st->message_stride));
  if (zp_emit_pools(e)) zp_buf_line(out, "     .pooled = %s,", st->pooled ? "true" : "false");
  if (splits(e))
    zp_buf_line(out, "     .pending = %lld, .pending_count = %lld, .pending_stride = %lld,",
                LL(zp_stage_pending_at(st, k)), LL(chunk->pending), LL(zp_chunk_pending_stride(chunk)));
  if (zp_emit_calls(e, ZP_CALL_SAVED_PUT))
    zp_buf_line(out, "     .saved_ring = %lld, .ring_stride = %lld, .offloaded = %lld, .offloaded_stride = %lld,",
                LL(st->at[ZP_REGION_SAVED_RING]), LL(st->saved_ring_stride), LL(zp_stage_offloaded_at(st, k)),
                LL(st->pooled ? st->offloaded_stride : chunk->offloaded_stride));
}

/* Elements of a message into model chunk `part` where each tensor begins, and where the last one ends. */
static const char *message_places(const zp_emit *e, int64_t part, int *n, bool *streams) {
  const zp_choice *c = &e->program->choice;
  *n = 0, *streams = false;
  if (part <= 0 || part >= (int64_t)c->pipeline * zp_chunks(c)) return "0";
  int segment;
  int64_t iteration;
  zp_unit(e->lowered, c->cut[part], &segment, &iteration);
  const zp_segment_program *seg = &e->lowered->segments[segment];
  zp_buf text = zp_buf_new(e->arena);
  *n = seg->graph->carry_in.len;
  *streams = zp_takes_streams(seg);
  for (int i = 0; i <= *n; i++)
    zp_buf_printf(&text, "%s%lld", i ? ", " : "",
                  LL(zp_carried_elements(seg->graph, &seg->graph->carry_in, i, e->lowered->microbatch)));
  return text.data;
}

static void emit_message_places(zp_emit *e, const zp_stage *st, int k) {
  int64_t part = zp_model_chunk(&e->program->choice, st->index, k);
  int in, out;
  bool lands, unused;
  const char *in_at = message_places(e, part, &in, &lands), *out_at = message_places(e, part + 1, &out, &unused);
  zp_buf_printf(&e->out, " .lands = %s, .carried_in = %d, .in_at = {%s}, .carried_out = %d, .out_at = {%s},",
                lands ? "true" : "false", in, in_at, out, out_at);
}

static void emit_layout(zp_emit *e, int s, int k) {
  const zp_choice *c = &e->program->choice;
  const zp_stage *st = &e->program->stages[s];
  int64_t part = zp_model_chunk(c, s, k);
  zp_buf *out = &e->out;
  zp_buf_line(out, "    {.slots = %lld, .slot_count = %lld, .slot_stride = %lld, .transient = %lld,",
              LL(zp_stage_slots_at(st, k)), LL(st->pooled ? st->slots : st->chunks[k].slots),
              LL(st->pooled ? st->slot_stride : st->chunks[k].slot_stride), LL(st->at[ZP_REGION_TRANSIENT]));
  zp_buf_line(out, "     .carry = {%lld, %lld}, .grad = {%lld, %lld}, .send_up = %lld, .send_down = %lld,",
              LL(st->at[ZP_REGION_CARRY0]), LL(st->at[ZP_REGION_CARRY1]), LL(st->at[ZP_REGION_GRAD0]),
              LL(st->at[ZP_REGION_GRAD1]), LL(zp_stage_send_at(c, st, k, true)), LL(zp_stage_send_at(c, st, k, false)));
  emit_chunk_fields(e, st, k);
  if (zp_emit_calls(e, ZP_CALL_FETCH_PARAMS))
    zp_buf_line(out, "     .param_stride = %lld,", LL(zp_stage_ring_elements(st)));
  if (zp_emit_buckets_move(e))
    zp_buf_line(out, "     .param_ring = %lld, .grad_ring = %lld,", LL(st->at[ZP_REGION_PARAM_RING]),
                LL(st->at[ZP_REGION_GRAD_RING]));
  if (zp_emit_calls(e, ZP_CALL_SCATTER_OVERLAPPED))
    zp_buf_line(out, "     .bucket_stride = %lld, .grad_stride = %lld,",
                LL(zp_stage_ring_elements(st) * e->lowered->param_bytes),
                LL(zp_flat_trained(&st->bucket) * e->lowered->grad_bytes));
  zp_buf_printf(out, "     .in_elements = %lld, .out_elements = %lld,", LL(message_elements(e, part)),
                LL(message_elements(e, part + 1)));
  for (int p = 0; p < e->model->params.len; p++)
    if (e->model->params.data[p].segment < 0)
      zp_buf_printf(out, " .%s = %lld,", zp_emit_identifier(e->arena, e->model->params.data[p].name),
                    LL(zp_stage_shared(st, p)));
  if (zp_emit_streams(e)) emit_message_places(e, st, k);
  zp_emit_last_uses(e, s, k);
  zp_buf_printf(out, " .n_units = %lld, .n_runs = %d,\n", LL(count_calls(st, k)), count_runs(st, k));
  zp_buf_line(out, "     .runs = {");
  for (int r = 0; r < st->runs.len; r++)
    if (st->runs.data[r].chunk == k) emit_run(e, s, &st->runs.data[r]);
  zp_buf_line(out, "     }},");
}

void zp_emit_layouts(zp_emit *e) {
  int max_runs = 1, chunks = zp_chunks(&e->program->choice);
  for (int s = 0; s < e->program->choice.pipeline; s++)
    for (int k = 0; k < chunks; k++) {
      int n = count_runs(&e->program->stages[s], k);
      if (max_runs < n) max_runs = n;
    }
  emit_layout_type(e, max_runs);
  zp_buf_line(&e->out, "static const layout layouts[PIPELINE]%s = {", chunks > 1 ? "[CHUNKS]" : "");
  for (int s = 0; s < e->program->choice.pipeline; s++) {
    if (chunks > 1) zp_buf_line(&e->out, "    {");
    for (int k = 0; k < chunks; k++) emit_layout(e, s, k);
    if (chunks > 1) zp_buf_line(&e->out, "    },");
  }
  zp_buf_line(&e->out, "};");
  zp_buf_puts(&e->out, "\n");
}
