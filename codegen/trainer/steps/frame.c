/* SPDX-License-Identifier: Apache-2.0 */
/* What step printers ask of the function that they print into: buffers, gradients and sizes, as C text. */
#include "decode.h"
#include "procedure.h"

const char *zp_frame_name(const zp_frame *f, int buffer) { return f->name[buffer]; }

const zp_buffer *zp_frame_buffer(const zp_frame *f, int buffer) { return &f->p->buffers.data[buffer]; }

const zp_tensor *zp_frame_tensor(const zp_frame *f, int buffer) {
  return &f->seg->graph->tensors.data[zp_frame_buffer(f, buffer)->tensor];
}

zp_shape zp_frame_matrix(const zp_frame *f, int buffer) {
  const zp_buffer *x = zp_frame_buffer(f, buffer);
  return zp_emit_matrix_of(f->e, x->tensor < 0 ? NULL : &zp_frame_tensor(f, buffer)->shape, x->rows, x->cols);
}

const zp_param *zp_frame_param(const zp_frame *f, int use) {
  return &f->model->params.data[f->seg->graph->params.data[use].param];
}

zp_param_kind zp_frame_kind(const zp_frame *f, int use) {
  return zp_kind_of(f->e->lowered, f->seg->graph->params.data[use].param);
}

const char *zp_frame_shared(const zp_frame *f, int use) {
  return zp_emit_identifier(f->e->arena, zp_frame_param(f, use)->name);
}

const zp_kind_text zp_frame_kinds[ZP_KINDS] = {[ZP_KIND_WHOLE] = {"w", "g", ""},
                                               [ZP_KIND_SPREAD] = {"we", "ge", ""},
                                               [ZP_KIND_FROZEN] = {"wf", NULL, ", not trained"}};

const char *zp_frame_gradient(const zp_frame *f, int use) {
  int64_t offset = f->seg->param_offset[use];
  if (f->keeps_early) return zp_frame_early(f, use);
  if (offset < 0 && f->scatters)
    return zp_frame_gathered(f, f->seg->graph->params.data[use].param, zp_frame_kind(f, use), "g");
  if (offset < 0) return zp_format(f->e->arena, "grads(c) + s->%s", zp_frame_shared(f, use));
  return zp_format(f->e->arena, "%s + %lld", zp_frame_kinds[zp_frame_kind(f, use)].grads, ZP_LL(offset));
}

const char *zp_frame_flat(const zp_frame *f, int use) {
  int64_t offset = f->seg->param_offset[use];
  if (offset < 0) return zp_format(f->e->arena, "s->%s", zp_frame_shared(f, use));
  return zp_format(f->e->arena, "u->%sbase + %lld", zp_kinds[zp_frame_kind(f, use)].prefix, ZP_LL(offset));
}

const char *zp_frame_accumulate(const zp_frame *f, const zp_param_sum *sum) {
  return sum->accumulate ? "true" : f->scatters || f->keeps_early ? "false" : "mb > 0";
}

const char *zp_frame_first(const zp_frame *f, const zp_tensor *t, int dim) {
  if (t->split_dim != dim || f->e->program->choice.tensor == 1) return "0";
  return zp_format(f->e->arena, "c->t * %lld", ZP_LL(t->shape.dim[dim]));
}

const char *zp_frame_own_rows(const zp_frame *f, const zp_tensor *table) {
  if (table->position_parts < 2) return "";
  return zp_format(f->e->arena, " + c->d %% CONTEXT * %lld", ZP_LL(zp_shape_elements(&table->shape, 1)));
}

const char *zp_frame_positions(const zp_frame *f, int64_t positions) {
  return positions == f->model->sequence ? "SEQUENCE" : zp_format(f->e->arena, "%lld", ZP_LL(positions));
}

const char *zp_frame_rows(const zp_frame *f, int64_t rows) {
  return f->stretch ? "p.n" : zp_format(f->e->arena, "%lld", ZP_LL(rows));
}

const char *zp_frame_first_row(const zp_frame *f, int buffer) {
  const zp_buffer *x = zp_frame_buffer(f, buffer);
  if (!f->stretch) return zp_frame_name(f, buffer);
  if (x->element == ZP_ELEM_I32 && x->place == ZP_AT_INPUT)
    return zp_format(f->e->arena, "%s + p.first", zp_frame_name(f, buffer));
  return zp_format(f->e->arena, "%s + p.first * %lld", zp_frame_name(f, buffer), ZP_LL(x->ld));
}

const char *zp_frame_chosen(const zp_frame *f, int buffer) {
  int slot = f->stretch ? f->decode->slots[buffer] : -1;
  if (slot < 0) return NULL;
  const zp_tensor *t = zp_frame_tensor(f, buffer);
  int64_t top_k = zp_shape_cols(&zp_frame_tensor(f, slot)->shape), experts = t->shape.dim[1], slots = t->shape.dim[2];
  const char *first = t->split_dim == 1 ? zp_format(f->e->arena, "c->t * %lld", ZP_LL(experts * slots)) : "0";
  return zp_format(f->e->arena, "(zpr_chosen){%s + p.first * %lld, p.n * %lld, %s, %lld, %lld}", zp_frame_name(f, slot),
                   ZP_LL(top_k), ZP_LL(top_k), first, ZP_LL(experts), ZP_LL(slots));
}
