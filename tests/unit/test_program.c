/* SPDX-License-Identifier: Apache-2.0 */
/* Lowered procedures against rules written down a second time: live ranges, kept values, recomputation, gradients. What
 * they compute is tested in test_program_run.c, where they lie in test_program_layout.c. */
#include "program_testing.h"
#include "small_layers.h"

TestSuite(program, .init = setup, .fini = teardown);

typedef void on_procedure(const zp_lowered *l, const zp_segment_program *seg, const zp_procedure *p);
static void for_procedures(const zp_lowered *l, on_procedure *check) {
  for (int s = 0; s < l->n_segments; s++) {
    check(l, &l->segments[s], &l->segments[s].forward);
    check(l, &l->segments[s], &l->segments[s].backward);
  }
}

static int root_of(const zp_procedure *p, int b) { return p->buffers.data[b].base >= 0 ? p->buffers.data[b].base : b; }

/* ---- buffers ---- */

/* Steps at which a buffer's storage is named, as first and last. */
static void find_range(const zp_procedure *p, int buffer, int *first, int *last) {
  *first = *last = -1;
  for (int s = 0; s < p->steps.len; s++) {
    const zp_step *step = &p->steps.data[s];
    bool named = step->workspace == buffer;
    for (int i = 0; i < step->in.len; i++) named |= root_of(p, step->in.data[i]) == buffer;
    for (int i = 0; i < step->out.len; i++) named |= root_of(p, step->out.data[i]) == buffer;
    if (named && *first < 0) *first = s;
    if (named) *last = s;
  }
}

static bool share_bytes(const zp_buffer *a, const zp_buffer *b) {
  return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

static void check_transients(const zp_lowered *l, const zp_segment_program *seg, const zp_procedure *p) {
  (void)l, (void)seg;
  int64_t top = 0;
  for (int i = 0; i < p->buffers.len; i++) {
    const zp_buffer *a = &p->buffers.data[i];
    int first, last, first_k, last_k;
    find_range(p, i, &first, &last);
    if (a->place != ZP_AT_TRANSIENT || a->base >= 0 || first < 0) continue;
    cr_assert(a->first_step == first && a->last_step == last, "%s: `%s` lives %d..%d", p->name, a->name, first, last);
    cr_assert(a->offset >= 0 && a->offset % 256 == 0 && a->offset + a->bytes <= p->transient_bytes);
    if (top < a->offset + a->bytes) top = a->offset + a->bytes;
    for (int k = 0; k < i; k++) {
      const zp_buffer *b = &p->buffers.data[k];
      if (b->place != ZP_AT_TRANSIENT || b->base >= 0) continue;
      find_range(p, k, &first_k, &last_k);
      bool together = first_k >= 0 && first <= last_k && first_k <= last;
      cr_assert(!together || !share_bytes(a, b), "%s: `%s` and `%s`\n%s", p->name, a->name, b->name,
                zp_procedure_text(arena, p));
    }
  }
  cr_assert_eq(top, p->transient_bytes);
}
static void check_all_transients(const zp_lowered *l) { for_procedures(l, check_transients); }
Test(program, transients_alive_together_never_overlap) { for_variants(check_all_transients); }

static bool given(const zp_segment_program *seg, const zp_procedure *p, const zp_buffer *b) {
  switch (b->place) {
  case ZP_AT_TRANSIENT:
  case ZP_AT_CARRY_OUT:
  case ZP_AT_GRAD_OUT: return false;
  case ZP_AT_SAVED: return p == &seg->backward;
  default: return true;
  }
}

static void check_reads(const zp_lowered *l, const zp_segment_program *seg, const zp_procedure *p) {
  (void)l;
  bool *written = ZP_NEW_ARRAY(arena, bool, p->buffers.len);
  for (int s = 0; s < p->steps.len; s++) {
    const zp_step *step = &p->steps.data[s];
    for (int i = 0; i < step->in.len; i++) {
      int root = root_of(p, step->in.data[i]);
      cr_assert(written[root] || given(seg, p, &p->buffers.data[root]), "%s: step %d\n%s", p->name, s,
                zp_procedure_text(arena, p));
    }
    for (int i = 0; i < step->out.len; i++) written[root_of(p, step->out.data[i])] = true;
  }
  for (int b = 0; b < p->buffers.len; b++) {
    zp_place place = p->buffers.data[b].place;
    cr_assert((place != ZP_AT_CARRY_OUT && place != ZP_AT_GRAD_OUT) || written[root_of(p, b)], "%s delivers nothing",
              p->name);
  }
}
static void check_all_reads(const zp_lowered *l) { for_procedures(l, check_reads); }
Test(program, every_read_follows_a_write) { for_variants(check_all_reads); }

static void check_views(const zp_lowered *l, const zp_segment_program *seg, const zp_procedure *p) {
  (void)seg;
  for (int i = 0; i < p->buffers.len; i++) {
    const zp_buffer *b = &p->buffers.data[i];
    if (b->base < 0) {
      bool counted = b->place == ZP_AT_TRANSIENT || b->place == ZP_AT_SAVED;
      cr_assert(!counted || b->bytes >= b->rows * b->ld * zp_element_bytes(l, b->element), "%s: `%s`", p->name,
                b->name);
      continue;
    }
    const zp_buffer *base = &p->buffers.data[b->base];
    cr_assert(base->base < 0 && base->place == b->place && base->ld == b->ld);
    cr_assert(b->offset >= 0 && b->offset + (b->rows - 1) * b->ld + b->cols <= base->rows * base->ld, "%s: `%s`",
              p->name, b->name);
  }
}
static void check_all_views(const zp_lowered *l) { for_procedures(l, check_views); }
Test(program, views_lie_inside_their_base) { for_variants(check_all_views); }

/* A saved buffer is the same bytes in forward and backward; different ones are apart, and apart from the kept input. */
static void check_saved(const zp_lowered *l, const zp_segment_program *seg, const zp_procedure *p) {
  int64_t kept = seg->carry_kept_elements * l->compute_bytes;
  cr_assert_geq(seg->saved_bytes, kept);
  for (int i = 0; i < p->buffers.len; i++) {
    const zp_buffer *a = &p->buffers.data[i];
    if (a->place != ZP_AT_SAVED || a->base >= 0) continue;
    cr_assert_leq(a->offset + a->bytes, seg->saved_bytes);
    cr_assert(a->offset >= kept || (a->tensor < 0 && a->offset == 0 && a->bytes == kept), "%s: `%s`", p->name, a->name);
    for (int k = 0; k < seg->forward.buffers.len; k++) {
      const zp_buffer *b = &seg->forward.buffers.data[k];
      if (b->place != ZP_AT_SAVED || b->base >= 0) continue;
      if (a->tensor == b->tensor)
        cr_assert(a->offset == b->offset && a->bytes == b->bytes);
      else
        cr_assert(!share_bytes(a, b), "%s: `%s` and `%s`", p->name, a->name, b->name);
    }
  }
}
static void check_all_saved(const zp_lowered *l) { for_procedures(l, check_saved); }
Test(program, saved_values_are_apart) { for_variants(check_all_saved); }

/* The runtime measures the highest byte written: the top of a stage's transients must not be scratch memory that only
 * as many workers use as there are. */
static void check_top(const zp_lowered *l) {
  for (int s = 0; s < l->n_segments; s++) {
    const zp_procedure *f = &l->segments[s].forward, *b = &l->segments[s].backward;
    const zp_procedure *p = f->transient_bytes > b->transient_bytes ? f : b;
    bool written = p->transient_bytes == 0;
    for (int i = 0; i < p->buffers.len; i++) {
      const zp_buffer *x = &p->buffers.data[i];
      written |= x->place == ZP_AT_TRANSIENT && x->base < 0 && x->tensor >= 0 && x->first_step >= 0 &&
                 x->offset + x->bytes == p->transient_bytes;
    }
    cr_assert(written, "%s\n%s", p->name, zp_procedure_text(arena, p));
  }
}
Test(program, top_of_the_transients_is_written) { for_variants(check_top); }

static void check_param_sizes(const zp_lowered *l, const zp_segment_program *seg, const zp_procedure *p) {
  for (int b = 0; b < p->buffers.len; b++) {
    const zp_buffer *x = &p->buffers.data[b];
    if ((x->place != ZP_AT_PARAM && x->place != ZP_AT_SHARED) || x->base >= 0) continue;
    int param = seg->graph->params.data[x->index].param;
    cr_assert_eq(x->rows * x->cols, l->param_elements[param], "%s", x->name);
    cr_assert(x->place == ZP_AT_SHARED || x->offset + x->rows * x->cols <= seg->elements.of[ZP_KIND_WHOLE]);
  }
}
static void check_all_params(const zp_lowered *l) { for_procedures(l, check_param_sizes); }
Test(program, parameters_have_their_local_size) { for_variants(check_all_params); }

/* Readable text and plan files name the place that a buffer has. */
Test(program, places_have_names) {
  static const char *const name[] = {"shared",   "pending",   "saved",   "transient", "input",
                                     "carry_in", "carry_out", "grad_in", "grad_out"};
  for (zp_param_kind kind = 0; kind < ZP_KINDS; kind++)
    cr_expect_str_eq(zp_place_name(&(zp_buffer){.place = ZP_AT_PARAM, .kind = kind}), zp_kinds[kind].place);
  for (int place = ZP_AT_SHARED; place <= ZP_AT_GRAD_OUT; place++)
    cr_expect_str_eq(zp_place_name(&(zp_buffer){.place = (zp_place)place}), name[place - ZP_AT_SHARED]);
  zp_buffer buffer = {.name = "x", .place = ZP_AT_SAVED, .base = -1};
  zp_procedure one = {.name = "one", .buffers = {.data = &buffer, .len = 1}};
  cr_expect(strstr(zp_procedure_text(arena, &one), " saved "), "%s", zp_procedure_text(arena, &one));
}

/* ---- recomputation ---- */

static int count_op(const zp_procedure *p, zp_op op, int first, int last) {
  int n = 0;
  for (int s = first; s < last; s++) n += p->steps.data[s].kind == ZP_STEP_NODE && p->steps.data[s].op == op;
  return n;
}

Test(program, recompute_leaves_out_what_backward_does_not_read) {
  const zp_segment_program *seg = &lower_size(GPT, 2, 1, true, false)->segments[LAYER];
  const zp_procedure *f = &seg->forward, *b = &seg->backward;
  cr_expect_eq(count_op(f, ZP_OP_MATMUL, 0, f->steps.len), 4);
  cr_expect_eq(count_op(f, ZP_OP_ALL_REDUCE, 0, f->steps.len), 2);
  /* The last matmul, its all-reduce and the residual sum only make the output. */
  cr_expect_eq(count_op(b, ZP_OP_MATMUL, 0, b->n_recompute), 3, "%s", zp_procedure_text(arena, b));
  cr_expect_eq(count_op(b, ZP_OP_ALL_REDUCE, 0, b->steps.len), 1);
  cr_expect_eq(count_op(b, ZP_OP_GRAD_ALL_REDUCE, 0, b->steps.len), 2);
  cr_expect_eq(count_op(b, ZP_OP_ATTENTION, 0, b->n_recompute), 1);
}

Test(program, only_repeats_are_recomputed) {
  zp_lowered *l = lower_size(GPT, 2, 1, true, true);
  cr_expect_eq(l->segments[BEGIN].backward.n_recompute, 0);
  cr_expect_eq(l->segments[END].backward.n_recompute, 0);
  cr_expect_eq(count_op(&l->segments[END].backward, ZP_OP_CE_STATS, 0, l->segments[END].backward.steps.len), 0);
  cr_expect_gt(l->segments[LAYER].backward.n_recompute, 0);
}

Test(program, recompute_keeps_the_input_or_a_shard_of_it) {
  int64_t input = 2 * 16 * 60; /* micro-batch, sequence, width */
  cr_expect_eq(lower_size(GPT, 3, 2, true, false)->segments[LAYER].carry_kept_elements, input);
  const zp_segment_program *seg = &lower_size(GPT, 3, 2, true, true)->segments[LAYER];
  cr_expect_eq(seg->carry_kept_elements, input / 3);
  cr_expect_eq(seg->saved_bytes, (input / 3 * 4 + 255) / 256 * 256);
  cr_expect_eq(seg->forward.steps.data[0].kind, ZP_STEP_KEEP_SHARD);
  cr_expect_eq(seg->backward.steps.data[0].kind, ZP_STEP_GATHER_SHARD);
  cr_expect_eq(seg->backward.steps.data[0].comm_elements, input / 3);
  const zp_segment_program *whole = &lower_size(GPT, 3, 2, false, true)->segments[LAYER]; /* nothing to shard */
  cr_expect_eq(whole->carry_kept_elements, input);
  cr_expect_gt(whole->saved_bytes, seg->saved_bytes * 3);
}

/* ---- gradients ---- */

static bool zero_first(const zp_lowered *l, const char *name) {
  for (int p = 0; p < l->spec->model->params.len; p++)
    if (strcmp(l->spec->model->params.data[p].name, name) == 0) return l->zero_first[p];
  cr_assert_fail("no parameter %s", name);
  return false;
}

Test(program, tables_and_tied_parameters_start_at_zero) {
  zp_lowered *tied = lower_size(GPT, 1, 1, false, false), *untied = lower_size(LLAMA, 1, 1, false, false);
  cr_expect(zero_first(tied, "wte"));
  cr_expect_not(zero_first(tied, "wpe"));
  cr_expect_not(zero_first(tied, "attn.qkv"));
  cr_expect(zero_first(untied, "wte"));
  cr_expect_not(zero_first(untied, "head"));
}

/* Without zeroing, the first contribution of a micro-batch overwrites and later ones of the same call add. */
static void check_sums(const zp_lowered *l, const zp_segment_program *seg, const zp_procedure *p) {
  bool *seen = ZP_NEW_ARRAY(arena, bool, seg->graph->params.len + 1);
  for (int s = 0; s < p->steps.len; s++)
    for (int i = 0; i < p->steps.data[s].sums.len; i++) {
      const zp_param_sum *sum = &p->steps.data[s].sums.data[i];
      cr_assert_eq(sum->accumulate, seen[sum->use] || l->zero_first[seg->graph->params.data[sum->use].param]);
      seen[sum->use] = true;
    }
  for (int i = 0; p == &seg->backward && i < seg->graph->params.len; i++)
    cr_assert(seen[i], "%s: parameter %d", p->name, i);
}
static void check_all_sums(const zp_lowered *l) { for_procedures(l, check_sums); }
Test(program, gradients_are_overwritten_once) { for_variants(check_all_sums); }

Test(program, same_text_twice) {
  const char *a = zp_procedure_text(arena, &lower_size(GPT, 3, 2, true, true)->segments[LAYER].backward);
  cr_expect_str_eq(a, zp_procedure_text(arena, &lower_size(GPT, 3, 2, true, true)->segments[LAYER].backward));
}

/* ---- selective recomputation: what is rebuilt stands after what it is rebuilt from ---- */

static bool given_to_backward(const zp_procedure *p, int root) {
  zp_place place = p->buffers.data[root].place;
  return place != ZP_AT_TRANSIENT && place != ZP_AT_GRAD_OUT;
}

/* No step reads a transient that no step before it has written. */
static void expect_written_first(const zp_procedure *p) {
  bool *written = ZP_NEW_ARRAY(arena, bool, p->buffers.len + 1);
  for (int s = 0; s < p->steps.len; s++) {
    const zp_step *step = &p->steps.data[s];
    for (int i = 0; i < step->in.len; i++) {
      int root = root_of(p, step->in.data[i]);
      cr_expect(given_to_backward(p, root) || written[root], "step %d reads `%s`, which nothing has written\n%s", s,
                p->buffers.data[root].name, zp_procedure_text(arena, p));
    }
    for (int i = 0; i < step->out.len; i++) written[root_of(p, step->out.data[i])] = true;
  }
}

Test(program, values_are_rebuilt_in_the_order_of_what_they_read) {
  static const model_style styles[] = {STYLE_SCALED,  STYLE_PARALLEL_NORM, STYLE_STREAMS,
                                       STYLE_EXPERTS, STYLE_DROPLESS,      STYLE_DROPOUT};
  for (size_t i = 0; i < sizeof styles / sizeof *styles; i++) {
    model_size size = {styles[i], 11, 4, 12, 2, 3, 3, 10, true};
    zp_spec *spec = spec_of(size);
    const char *reason = NULL;
    zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, 1);
    zp_sharding *sharding = zp_shard(arena, spec->model, &machine, 1, 1, false, &reason);
    for (int keep = ZP_RECOMPUTE_NONE; keep <= ZP_RECOMPUTE_SELECTIVE; keep++) {
      zp_lowered *l = zp_lower(arena, spec, sharding, 1, (zp_recompute)keep, false, &reason);
      cr_assert(l, "%s", reason);
      expect_written_first(&l->segments[LAYER].backward);
      expect_written_first(&l->segments[LAYER].split);
      bool rebuilds = l->segments[LAYER].backward.n_recompute > 0;
      cr_expect(rebuilds == (keep != ZP_RECOMPUTE_NONE));
    }
  }
}

/* ---- a backward in two parts ---- */

static int bias_then_product(builder *b, const model_size *size, int x) {
  return product(b, add2(b, x, weight(b, "bias", shape_of_rank(1, size->d, 0, 0))), size->d, size->d, "w");
}

/* x + bias opens the layer, so the bias' gradient is the column sums of what the layer sends down,
 * which is gone when BW runs, as parameters are. */
Test(program, what_waits_reads_nothing_that_is_gone) {
  static const model_size size = {STYLE_GPT, 256, 32, 64, 8, 4, 4, 256, true};
  zp_spec *spec = build_spec(arena, &size, gpu_cluster(1), 32);
  spec->model = small_layers(arena, &size, 0, bias_then_product);
  zp_choice c = {.tensor = 1, .pipeline = 2, .data = 1, .schedule = ZP_SCHEDULE_ZB_H1, .microbatch = 1};
  const char *reason = NULL;
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, zp_choice_ranks(&c));
  zp_sharding *sharding = zp_shard(arena, spec->model, &machine, 1, 1, false, &reason);
  zp_lowered **l = zp_lower_stages(arena, spec, sharding, &c, &reason);
  cr_assert(l, "%s", reason);
  int waiting = 0, sums = 0;
  for (int s = 0; s < l[0]->n_segments; s++) {
    const zp_procedure *p = &l[0]->segments[s].split;
    for (int k = 0; k < p->steps.len; k++) {
      const zp_step *step = &p->steps.data[k];
      sums += step->out.len == 0 && step->sums.len > 0;
      waiting += step->deferred;
      for (int i = 0; i < step->in.len; i++) {
        int in = step->in.data[i], base = p->buffers.data[in].base;
        zp_place place = p->buffers.data[base >= 0 ? base : in].place;
        cr_expect(!step->deferred || (place != ZP_AT_PARAM && place != ZP_AT_SHARED && place != ZP_AT_GRAD_OUT),
                  "segment %d: step %d reads what is gone", s, k);
      }
    }
  }
  cr_expect(waiting > 0 && waiting < sums, "%d of %d wait: the sums of the bias do not", waiting, sums);
}

/* ---- what lowering does not build is refused, with a reason ---- */

static const char *refusal(zp_model *model) {
  model_size any = GPT;
  zp_spec *spec = spec_of(any);
  const char *reason = NULL;
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, 1);
  spec->model = model;
  zp_sharding *sharding = zp_shard(arena, model, &machine, 1, 1, false, &reason);
  cr_assert(sharding);
  cr_assert_null(zp_lower(arena, spec, sharding, 1, ZP_RECOMPUTE_NONE, false, &reason));
  return reason;
}

static builder two_segments(int64_t width) {
  builder b = {.model = zp_model_new(arena, "test"), .diags = zp_diags_new(arena), .segment = -1};
  zp_model_add_input(b.model, "tokens", shape_of_rank(2, ZP_DIM_B, 4, 0), ZP_NO_SPAN);
  b.graph = zp_model_add_segment(b.model, "begin", 1, false, NULL, NULL, 0, ZP_NO_SPAN)->graph;
  b.model->vocabulary = width;
  return b;
}

static int rows_of_table(builder *b, int64_t width) {
  int table = weight(b, "table", shape_of_rank(2, 8, width, 0));
  return apply(b, ZP_OP_EMBEDDING, zp_graph_input(b->graph, b->model, 0), table, -1, (zp_op_attr){0}, "table");
}

/* The loss of half a matmul's columns: its kernel takes whole rows. */
Test(program, strided_logits_are_refused) {
  builder b = two_segments(8);
  int x = product(&b, rows_of_table(&b, 8), 8, 16, "head");
  int half = apply(&b, ZP_OP_SPLIT, x, -1, -1, (zp_op_attr){.parts = 2}, "half");
  zp_graph_add_loss(
      b.graph,
      apply(&b, ZP_OP_CROSS_ENTROPY, half + 1, zp_graph_input(b.graph, b.model, 0), -1, (zp_op_attr){0}, "loss"), 1);
  cr_expect_str_eq(refusal(b.model), "`half.1` is a part of a wider tensor where ce_stats needs one of its own");
}

/* A tensor of another width alongside one that flows out twice: the second time it is a copy. */
Test(program, carried_tensors_stand_one_after_the_other) {
  model_size any = GPT;
  zp_spec *spec = spec_of(any);
  const char *reason = NULL;
  builder b = two_segments(8);
  int x = rows_of_table(&b, 8), wide = product(&b, x, 8, 16, "wide"), out[] = {x, wide, x};
  for (int i = 0; i < 3; i++) zp_push(arena, &b.graph->carry_out, out[i]);
  zp_graph *first = b.graph;
  b.graph = zp_model_add_segment(b.model, "end", 1, false, NULL, NULL, 0, ZP_NO_SPAN)->graph;
  for (int i = 0; i < 3; i++) zp_graph_add_carry(b.graph, &first->tensors.data[out[i]]);
  int sum = add2(&b, b.graph->carry_in.data[0], b.graph->carry_in.data[2]);
  int all = add2(&b, sum, product(&b, b.graph->carry_in.data[1], 16, 8, "narrow"));
  zp_graph_add_loss(
      b.graph, apply(&b, ZP_OP_CROSS_ENTROPY, all, zp_graph_input(b.graph, b.model, 0), -1, (zp_op_attr){0}, "loss"),
      1);
  spec->model = b.model;
  zp_machine machine = zp_machine_make(&spec->cluster, spec->train.precision, 1);
  zp_sharding *sharding = zp_shard(arena, b.model, &machine, 1, 1, false, &reason);
  zp_lowered *l = zp_lower(arena, spec, sharding, 2, ZP_RECOMPUTE_NONE, false, &reason);
  cr_assert(l, "%s", reason);
  const zp_procedure *p = &l->segments[0].forward;
  int64_t rows = 2 * 4, places[3] = {0, rows * 8 * l->compute_bytes, rows * (8 + 16) * l->compute_bytes};
  int found = 0, copies = 0;
  cr_expect_eq(l->segments[0].carry_out_elements, rows * (8 + 16 + 8));
  cr_expect_eq(l->segments[1].carry_in_elements, rows * (8 + 16 + 8));
  for (int i = 0; i < p->buffers.len; i++) {
    const zp_buffer *x_i = &p->buffers.data[i];
    if (x_i->place != ZP_AT_CARRY_OUT || x_i->base >= 0) continue;
    found++;
    cr_expect_eq(x_i->offset, places[x_i->index], "`%s`", x_i->name);
    cr_expect_eq(x_i->cols, x_i->index == 1 ? 16 : 8);
  }
  for (int s = 0; s < p->steps.len; s++) copies += p->steps.data[s].kind == ZP_STEP_COPY;
  cr_expect_eq(found, 3);
  cr_expect(copies >= 1);
}
