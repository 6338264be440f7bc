/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of one call over shadow memory. What a step must find is said by the graph: the tensors that its node
 * reads, by name, unit and micro-batch; where it looks is said by the program: buffers, places, offsets. */
#include "replay_internal.h"

#define LL(x) ((long long)(x))

/* A view is columns or rows of its base, and ENTER hands on what it gets; everything else is a value of its own. */
static zp_replay_name name_of(const zp_replay *r, const zp_graph *g, int tensor) {
  zp_replay_part part = {0};
  const zp_tensor *t = &g->tensors.data[tensor];
  for (bool follow = true; follow; t = &g->tensors.data[tensor]) {
    const zp_node *maker = t->base < 0 && t->producer >= 0 ? &g->nodes.data[t->producer] : NULL;
    follow = t->base >= 0 || (maker && maker->op == ZP_OP_ENTER);
    if (t->base >= 0) part.column += t->column;
    if (t->row_parts > 0) part.before += t->row_part * zp_shape_elements(&t->shape, r->lowered->microbatch);
    if (follow) tensor = t->base >= 0 ? t->base : maker->in.data[0];
  }
  return (zp_replay_name){tensor, part};
}

uint64_t zp_replay_value_of(const zp_replay *r, const zp_replay_frame *f, int tensor, zp_replay_part *part) {
  const zp_replay_name *name = &f->call->known->name[tensor];
  const zp_tensor *t = &f->call->seg->graph->tensors.data[name->tensor];
  *part = name->part;
  switch (t->role) {
  case ZP_ROLE_INPUT: return zp_replay_value(ZP_TAG_INPUT, t->index, 0, f->mb);
  case ZP_ROLE_CARRY_IN: return zp_replay_flowing(r, t->index, f->call->first, f->mb);
  case ZP_ROLE_GRAD_IN: return zp_replay_value(ZP_TAG_CARRY_GRAD, t->index, f->call->end, f->mb);
  case ZP_ROLE_PARAM: {
    bool shared = r->program->spec->model->params.data[t->index].segment < 0;
    return zp_replay_value(ZP_TAG_PARAM, t->index, shared ? 0 : f->call->run->first + f->call->i, 0);
  }
  case ZP_ROLE_VALUE: break;
  }
  return zp_replay_value(ZP_TAG_TENSOR, name->tensor, f->call->first, f->mb);
}

/* ---- where buffers are ---- */

/* Byte address of a tensor among the arguments. */
static int64_t argument(int64_t all, const zp_buffer *root) { return all < 0 ? -1 : all + root->offset; }

/* Byte address of what owns storage; -1: nowhere. */
static int64_t address(const zp_replay *r, const zp_replay_frame *f, const zp_buffer *root) {
  const zp_stage *s = r->stage;
  int64_t base = -1;
  bool streams = r->lowered->streams.len > 0; /* then trainers find every tensor on its own */
  switch (root->place) {
  case ZP_AT_PARAM:
  case ZP_AT_SHARED: return zp_replay_param_at(r, f, root->index);
  case ZP_AT_INPUT: return s->at[ZP_REGION_INPUTS] < 0 ? -1 : zp_replay_input_at(r, root->index, f->mb);
  case ZP_AT_SAVED: base = f->saved; break;
  case ZP_AT_PENDING: base = f->pending; break;
  case ZP_AT_TRANSIENT: base = s->at[ZP_REGION_TRANSIENT]; break;
  case ZP_AT_CARRY_IN: return streams ? zp_replay_in_at(r, f, root->index) : argument(f->x, root);
  case ZP_AT_CARRY_OUT: return streams ? zp_replay_out_at(r, f, root->index) : argument(f->y, root);
  case ZP_AT_GRAD_IN: return argument(f->dy, root);
  case ZP_AT_GRAD_OUT: return argument(f->dx, root);
  }
  return base < 0 ? -1 : base + root->offset;
}

static int root_of(const zp_procedure *p, int b) { return p->buffers.data[b].base >= 0 ? p->buffers.data[b].base : b; }

/* Is the view some elements in a row of a base without gaps? */
static bool is_stretch(const zp_buffer *x, const zp_buffer *root) {
  return x->base >= 0 && x->ld == x->cols && root->ld == root->cols && x->rows * x->cols < root->rows * root->cols;
}

/* The form of a buffer that stands for a part. A view has the rows of its base, or is some of them; an alias of another
 * shape has all of its bytes. */
static zp_replay_form form_of(const zp_replay *r, const zp_procedure *p, int b, zp_replay_part part) {
  const zp_buffer *x = &p->buffers.data[b], *root = &p->buffers.data[root_of(p, b)];
  if (x->operand) return (zp_replay_form){{0, x->bytes, x->bytes, 0, x->bytes, 0, 0}, x->bytes > 0 && !part.column};
  int64_t size = zp_element_bytes(r->lowered, root->element), row = root->ld * size;
  int64_t offset = x->base >= 0 ? x->offset * size : 0, own = x->cols * size;
  zp_shadow_place place = {0, root->rows * row, row, offset, offset + own, part.column * size, part.before * size};
  bool reshaped = x->base >= 0 && x->offset == 0 && x->ld == x->cols && root->ld == root->cols && part.column == 0 &&
                  x->rows * x->cols == root->rows * root->cols;
  if (reshaped) place.to = row;
  if (is_stretch(x, root) && offset >= 0 && offset + x->rows * own <= place.bytes)
    return (zp_replay_form){{offset, x->rows * own, own, 0, own, place.column, place.origin}, true};
  return (zp_replay_form){place, place.from >= 0 && place.to <= row && place.from < place.to && root->rows > 0};
}

static zp_replay_form *forms_of(const zp_replay *r, const zp_procedure *p) {
  zp_replay_form *form = ZP_NEW_ARRAY(r->arena, zp_replay_form, p->buffers.len + 1);
  for (int b = 0; b < p->buffers.len; b++) form[b] = form_of(r, p, b, (zp_replay_part){0});
  return form;
}

const zp_replay_segment *zp_replay_know(zp_replay *r, const zp_run *run) {
  const zp_segment_program *seg = zp_run_segment(r->lowered, run);
  zp_replay_segment *known = &r->known[run->rest ? r->lowered->n_segments + run->segment : run->segment];
  if (known->name) return known;
  known->name = ZP_NEW_ARRAY(r->arena, zp_replay_name, seg->graph->tensors.len + 1);
  for (int i = 0; i < seg->graph->tensors.len; i++) known->name[i] = name_of(r, seg->graph, i);
  known->forward = forms_of(r, &seg->forward);
  known->loss = forms_of(r, &seg->loss);
  known->backward = forms_of(r, zp_backward_of(seg, r->program->choice.schedule));
  return known;
}

static bool place_of(zp_replay *r, const zp_replay_frame *f, int b, zp_replay_part part, zp_shadow_place *out) {
  int root = root_of(f->p, b);
  int64_t at = address(r, f, &f->p->buffers.data[root]);
  if (at < 0) {
    zp_replay_find(r, f, "`%s` has no place", f->p->buffers.data[b].name);
    return false;
  }
  bool whole = part.column == 0 && part.before == 0;
  zp_replay_form own;
  const zp_replay_form *form = &f->form[b];
  if (!whole) {
    own = form_of(r, f->p, b, part);
    form = &own;
  }
  *out = form->place;
  out->at += at;
  if (!form->fits)
    zp_replay_find(r, f, "`%s` reaches beyond the rows of `%s`", f->p->buffers.data[b].name,
                   f->p->buffers.data[root].name);
  return form->fits;
}

static void scribble(zp_replay *r, int64_t at, int64_t bytes) {
  if (at >= 0) zp_shadow_poison(&r->device, at, bytes);
}

/* ---- steps ---- */

static bool works_in_place(zp_op op) {
  return op == ZP_OP_ALL_REDUCE || op == ZP_OP_GRAD_ALL_REDUCE || op == ZP_OP_CE_GRAD;
}

/* Where the operands of a step are, those that it reads first; bytes 0: nowhere. Most steps have few operands: these
 * places are asked for once. */
enum { MOST_PLACES = 16 };
typedef struct places {
  int known; /* of `at`; those after it are asked for every time */
  zp_shadow_place at[MOST_PLACES];
} places;

static int operand(const zp_step *step, int i) {
  return i < step->in.len ? step->in.data[i] : step->out.data[i - step->in.len];
}

static void find_places(zp_replay *r, const zp_replay_frame *f, const zp_step *step, places *p) {
  int n = step->in.len + step->out.len;
  p->known = n < MOST_PLACES ? n : MOST_PLACES;
  for (int i = 0; i < p->known; i++)
    if (!place_of(r, f, operand(step, i), (zp_replay_part){0}, &p->at[i])) p->at[i].bytes = 0;
}

/* NULL: it has none, and that is a finding. room: of a place that is not among the known ones. */
static const zp_shadow_place *place_of_operand(zp_replay *r, const zp_replay_frame *f, const zp_step *step,
                                               const places *p, int i, zp_shadow_place *room) {
  if (i >= p->known) return place_of(r, f, operand(step, i), (zp_replay_part){0}, room) ? room : NULL;
  return p->at[i].bytes > 0 ? &p->at[i] : NULL;
}

/* A kernel reads and writes in any order, so what it writes may not lie on what it reads. */
static void want_apart(zp_replay *r, const zp_replay_frame *f, const zp_step *step, const places *p, int out) {
  zp_shadow_place room[2];
  const zp_shadow_place *to = place_of_operand(r, f, step, p, step->in.len + out, &room[0]), *other;
  if (!to) return;
  for (int i = 0; i < step->in.len + out; i++) {
    int b = operand(step, i);
    if (!(other = place_of_operand(r, f, step, p, i, &room[1]))) continue;
    bool bytes_apart = to->at + to->bytes <= other->at || other->at + other->bytes <= to->at;
    bool columns_apart =
        to->at == other->at && to->row == other->row && (to->to <= other->from || other->to <= to->from);
    bool same = i < step->in.len && to->at == other->at && step->kind == ZP_STEP_NODE && works_in_place(step->op);
    if (!bytes_apart && !columns_apart && !same)
      zp_replay_find(r, f, "writes `%s` over `%s`, which it works with", f->p->buffers.data[step->out.data[out]].name,
                     f->p->buffers.data[b].name);
  }
}

/* The place that is known of the whole tensor is that of its first part, too. */
static const zp_shadow_place *place_of_part(zp_replay *r, const zp_replay_frame *f, const zp_step *step,
                                            const places *p, int i, zp_replay_part part, zp_shadow_place *room) {
  if (part.column == 0 && part.before == 0) return place_of_operand(r, f, step, p, i, room);
  return place_of(r, f, operand(step, i), part, room) ? room : NULL;
}

static void read_operand(zp_replay *r, const zp_replay_frame *f, int b, uint64_t value, zp_replay_part part) {
  zp_shadow_place place;
  if (place_of(r, f, b, part, &place)) zp_replay_want(r, f, place, value, f->p->buffers.data[b].name);
}

static void write_operand(zp_replay *r, const zp_replay_frame *f, int b, uint64_t value, zp_replay_part part) {
  zp_shadow_place place;
  if (place_of(r, f, b, part, &place)) zp_shadow_write(&r->device, place, value);
}

/* A tensor's value as products in 8 or 4 bits read it. */
static uint64_t operand_value(uint64_t value) {
  assert(value >> 60 == ZP_TAG_TENSOR);
  return (uint64_t)ZP_TAG_OPERAND << 60 | (value & (~UINT64_C(0) >> 4));
}

static void run_node(zp_replay *r, const zp_replay_frame *f, const zp_step *step) {
  zp_replay_part part;
  zp_op_class class = zp_op_get_class(step->op);
  if (step->in.len != step->node->in.len || step->out.len != step->node->out.len) {
    zp_replay_find(r, f, "has other operands than its node");
    return;
  }
  if (class == ZP_CLASS_MATMUL || class == ZP_CLASS_GROUPED)
    scribble(r, r->stage->at[ZP_REGION_PRODUCTS], r->products_bytes);
  places p;
  zp_shadow_place room;
  const zp_shadow_place *place;
  find_places(r, f, step, &p);
  for (int i = 0; i < step->in.len; i++) {
    uint64_t value = zp_replay_value_of(r, f, step->node->in.data[i], &part);
    if (f->p->buffers.data[step->in.data[i]].operand) value = operand_value(value);
    if ((place = place_of_part(r, f, step, &p, i, part, &room)))
      zp_replay_want(r, f, *place, value, f->p->buffers.data[step->in.data[i]].name);
  }
  for (int i = 0; i < step->out.len; i++) want_apart(r, f, step, &p, i);
  for (int i = 0; i < step->out.len; i++) {
    uint64_t value = zp_replay_value_of(r, f, step->node->out.data[i], &part);
    if ((place = place_of_part(r, f, step, &p, step->in.len + i, part, &room)))
      zp_shadow_write(&r->device, *place, value);
  }
  zp_replay_sum(r, f, step);
}

/* A result goes to its place among the arguments. */
static void run_copy(zp_replay *r, const zp_replay_frame *f, const zp_step *step) {
  const zp_graph *g = f->call->seg->graph;
  const zp_ints *out = f->pass == ZP_REPLAY_FORWARD ? &g->carry_out : &g->grad_out;
  int from = step->in.data[0], to = step->out.data[0], index = f->p->buffers.data[to].index;
  zp_replay_part part;
  uint64_t value = zp_replay_value_of(r, f, out->data[index], &part);
  read_operand(r, f, from, value, part);
  if (step->hands_on && zp_replay_in_at(r, f, index) == zp_replay_out_at(r, f, index)) return;
  places p;
  find_places(r, f, step, &p);
  want_apart(r, f, step, &p, 0);
  write_operand(r, f, to, value, (zp_replay_part){0});
}

static void run_keep_operand(zp_replay *r, const zp_replay_frame *f, const zp_step *step) {
  zp_replay_part part;
  uint64_t value = zp_replay_value_of(r, f, f->p->buffers.data[step->out.data[0]].tensor, &part);
  read_operand(r, f, step->in.data[0], value, part);
  places p;
  find_places(r, f, step, &p);
  want_apart(r, f, step, &p, 0);
  write_operand(r, f, step->out.data[0], operand_value(value), (zp_replay_part){0});
}

/* The unit's own input becomes the rank's shard, or comes of the shards again. */
static void run_shard(zp_replay *r, const zp_replay_frame *f, const zp_step *step, bool keep) {
  const zp_graph *g = f->call->seg->graph;
  int from = step->in.data[0], to = step->out.data[0], whole = keep ? from : to;
  uint64_t shard = zp_replay_value(ZP_TAG_SHARD, 0, f->call->first, f->mb);
  int64_t at = address(r, f, &f->p->buffers.data[root_of(f->p, whole)]);
  if (!keep) read_operand(r, f, from, shard, (zp_replay_part){0});
  places p;
  find_places(r, f, step, &p);
  want_apart(r, f, step, &p, 0);
  for (int i = 0; at >= 0 && i < g->carry_in.len; i++) {
    const zp_carry *c = &f->call->seg->carries[i];
    if (c->stream >= 0) continue;
    uint64_t carry = zp_replay_flowing(r, i, f->call->first, f->mb);
    zp_shadow_place place = zp_replay_carried(r, f->call, true, at + c->at * r->lowered->compute_bytes, i);
    if (keep)
      zp_replay_want(r, f, place, carry, g->tensors.data[g->carry_in.data[i]].name);
    else
      zp_shadow_write(&r->device, place, carry);
  }
  if (keep) write_operand(r, f, to, shard, (zp_replay_part){0});
}

void zp_replay_steps(zp_replay *r, zp_replay_frame *f, int first, int last) {
  const zp_replay_segment *known = f->call->known;
  f->form = f->p == &f->call->seg->forward ? known->forward
            : f->p == &f->call->seg->loss  ? known->loss
                                           : known->backward;
  scribble(r, r->stage->at[ZP_REGION_TRANSIENT], f->p->transient_bytes); /* lives inside one call */
  for (f->step = first; f->step < last; f->step++) {
    const zp_step *step = &f->p->steps.data[f->step];
    zp_shadow_place scratch;
    if (step->workspace >= 0 && place_of(r, f, step->workspace, (zp_replay_part){0}, &scratch))
      zp_shadow_poison(&r->device, scratch.at, f->p->buffers.data[step->workspace].bytes);
    if (step->kind == ZP_STEP_NODE)
      run_node(r, f, step);
    else if (step->kind == ZP_STEP_COPY)
      run_copy(r, f, step);
    else if (step->kind == ZP_STEP_KEEP_OPERAND)
      run_keep_operand(r, f, step);
    else
      run_shard(r, f, step, step->kind == ZP_STEP_KEEP_SHARD);
  }
  f->step = -1;
}

static int64_t operands(const zp_procedure *p) {
  int64_t n = 0;
  for (int s = 0; s < p->steps.len; s++)
    n += p->steps.data[s].in.len + 2 * p->steps.data[s].out.len + 2 * p->steps.data[s].sums.len;
  return n;
}

int64_t zp_replay_cost(const zp_replay *r) {
  int64_t n = 0;
  for (int i = 0; i < r->stage->runs.len; i++) {
    const zp_run *run = &r->stage->runs.data[i];
    const zp_segment_program *seg = zp_run_segment(r->lowered, run);
    n += run->count *
         (operands(&seg->forward) + operands(&seg->loss) + operands(zp_backward_of(seg, r->program->choice.schedule)));
  }
  return n;
}
