/* SPDX-License-Identifier: Apache-2.0 */
/* Which steps of forward procedures a text that grows by a position needs, found from the operations: a value grows
 * with the text when it is made of one that does, row by row; what reads other rows too must find them where earlier
 * positions have left them. Causal attention reads earlier keys and values, gates earlier scores; whatever else reads
 * several positions cannot be done so. */
#include "decode.h"

#include <assert.h>

typedef ZP_VEC(bool) zp_flags;

typedef struct finder {
  const zp_emit *e;
  zp_arena *arena;
  zp_decoding *decoding;
  zp_flags carried; /* of the carried tensors where a segment begins: they grow */
  const zp_segment_program *seg;
  zp_decode_procedure *of;
  bool *made; /* of every buffer: a step before has made it */
  zp_no_decoding no;
} finder;

static const zp_buffer *buffer(const finder *f, int b) { return &f->seg->forward.buffers.data[b]; }

static int root_of(const finder *f, int b) {
  while (buffer(f, b)->base >= 0) b = buffer(f, b)->base;
  return b;
}

/* The buffer that says what b is: itself where a step has made it, else what it is a view of. */
static int maker_of(const finder *f, int b) {
  while (!f->made[b] && buffer(f, b)->base >= 0) b = buffer(f, b)->base;
  return b;
}

static bool grows(const finder *f, int b) {
  b = maker_of(f, b);
  const zp_buffer *x = buffer(f, b);
  if (f->made[b]) return f->of->grows[b];
  if (x->place == ZP_AT_INPUT) return x->index == f->decoding->input;
  return x->place == ZP_AT_CARRY_IN && f->carried.data[x->index];
}

static int slots_of(const finder *f, int b) { return f->of->slots[maker_of(f, b)]; }

static void make(finder *f, int b, bool growing, int slots) {
  f->made[b] = true;
  f->of->grows[b] = growing;
  f->of->slots[b] = slots;
}

static bool refuse(finder *f, const zp_step *s, const char *why) {
  f->no = (zp_no_decoding){why, s->node ? s->node->span : ZP_NO_SPAN};
  return false;
}

/* Is the buffer still what it was when the next position comes? */
static bool stays(const finder *f, int b) {
  switch (buffer(f, root_of(f, b))->place) {
  case ZP_AT_TRANSIENT:
  case ZP_AT_CARRY_OUT: return false;
  case ZP_AT_CARRY_IN: return zp_keeps_input(f->seg) || f->seg->carries[buffer(f, root_of(f, b))->index].stream >= 0;
  default: return true;
  }
}

static bool must_stay(finder *f, const zp_step *s, int operand) {
  if (stays(f, s->in.data[operand])) return true;
  return refuse(f, s, "a value of earlier positions is not kept");
}

/* ---- one operation ---- */

static bool find_attention(finder *f, const zp_step *s) {
  const zp_op_attr *attr = &s->node->attr;
  bool keys = grows(f, s->in.data[1]) || grows(f, s->in.data[2]);
  if (keys && attr->cross) return refuse(f, s, "what the text is made from reads the text itself");
  if (!attr->cross && !attr->causal) return refuse(f, s, "attention sees what comes after a token");
  if (!grows(f, s->in.data[0])) return refuse(f, s, "attention of fixed queries sees the text");
  return must_stay(f, s, 1) && must_stay(f, s, 2);
}

/* Row operands of all positions are fixed or grow; others are the same for all rows. */
static bool find_rows(finder *f, const zp_step *s) {
  for (int i = 0; i < s->in.len; i++)
    if (grows(f, s->in.data[i]) && s->node->fused->operand[i] != ZP_OPERAND_ROWS)
      return refuse(f, s, "a value of the text is used as a parameter");
  return true;
}

static bool all_rows_grow(finder *f, const zp_step *s) {
  return grows(f, s->in.data[0]) ? true : refuse(f, s, "a value of the text is used as a parameter");
}

/* A product, and what it does to its result: its fused operand 0 is the product, the others follow the weight. */
static bool find_product(finder *f, const zp_step *s) {
  const zp_fused *fused = s->node->fused;
  for (int i = 1; fused && i < fused->n_in; i++)
    if (grows(f, s->in.data[i + 1]) && fused->operand[i] != ZP_OPERAND_ROWS)
      return refuse(f, s, "a value of the text is used as a parameter");
  return all_rows_grow(f, s);
}

/* Columns of heads, of every position by itself. */
static bool moves_columns(zp_op op) {
  return op == ZP_OP_COLUMNS || op == ZP_OP_JOIN_COLUMNS || op == ZP_OP_REPEAT_COLUMNS;
}

static bool is_sorted(const finder *f, const zp_step *s) {
  return s->op == ZP_OP_EXPERT_ROWS || f->seg->graph->tensors.data[buffer(f, s->out.data[0])->tensor].sorted;
}

/* Positions and slots side by side: a rule for every class of operations. */
static bool find_growing(finder *f, const zp_step *s) {
  if (s->out.len && is_sorted(f, s))
    return refuse(f, s, "rows of `capacity = dropless` move with every new token that an expert takes");
  switch (zp_op_get_class(s->op)) {
  case ZP_CLASS_FUSED: return find_rows(f, s);
  case ZP_CLASS_MATMUL: return find_product(f, s);
  case ZP_CLASS_GROUPED:
  case ZP_CLASS_LOOKUP:
  case ZP_CLASS_LOSS: return all_rows_grow(f, s);
  case ZP_CLASS_ATTENTION: return find_attention(f, s);
  case ZP_CLASS_COMM:
    if (s->op == ZP_OP_ALL_REDUCE || s->op == ZP_OP_GATHER_STATS) return all_rows_grow(f, s);
    return refuse(f, s, "positions are split over the ranks");
  case ZP_CLASS_ROUTING: return all_rows_grow(f, s) && (s->op != ZP_OP_TOP_K_GATE || must_stay(f, s, 0));
  default:
    if (moves_columns(s->op)) return true;
    return refuse(f, s, zp_format(f->arena, "`%s` reads several positions of the text at once", zp_op_name(s->op)));
  }
}

/* A fixed value that is read at every position must outlast the call that makes it. */
static bool fixed_stay(finder *f, const zp_step *s) {
  for (int i = 0; i < s->in.len; i++)
    if (!grows(f, s->in.data[i]) && !must_stay(f, s, i)) return false;
  return true;
}

/* The slots of what the step makes. */
static int slots_made(const finder *f, const zp_step *s) {
  if (s->op == ZP_OP_DISPATCH) return s->in.data[1];
  if (s->kind != ZP_STEP_NODE || s->op == ZP_OP_COMBINE) return -1;
  return s->in.len ? slots_of(f, s->in.data[0]) : -1;
}

static bool find_step(finder *f, int i) {
  const zp_step *s = &f->seg->forward.steps.data[i];
  bool any = false;
  for (int k = 0; k < s->in.len; k++) any |= grows(f, s->in.data[k]);
  if (any && s->kind != ZP_STEP_NODE && s->kind != ZP_STEP_COPY) return refuse(f, s, "its values are kept in shares");
  bool loss = s->kind == ZP_STEP_NODE && (zp_op_get_class(s->op) == ZP_CLASS_LOSS || s->op == ZP_OP_GATHER_STATS);
  if (loss && !any && s->op == ZP_OP_CE_STATS) return refuse(f, s, "its loss does not depend on the text");
  if (any && s->kind == ZP_STEP_NODE && (!find_growing(f, s) || (!loss && !fixed_stay(f, s)))) return false;
  f->of->step[i] = !any ? ZP_DECODE_ONCE : ZP_DECODE_STRETCH;
  if (loss) f->of->step[i] = s->op == ZP_OP_CE_STATS ? ZP_DECODE_LOGITS : ZP_DECODE_LEAVE;
  int slots = slots_made(f, s);
  for (int k = 0; k < s->out.len; k++) make(f, s->out.data[k], any, slots);
  bool mixes = any && !loss && s->kind == ZP_STEP_NODE &&
               (s->op == ZP_OP_TOP_K_GATE || zp_op_get_class(s->op) == ZP_CLASS_ATTENTION || slots >= 0);
  if (mixes) f->of->last_row_from = i + 1;
  return true;
}

/* ---- procedures ---- */

/* The carried tensor that flows out grows. */
static bool flows_out(const finder *f, int index) {
  int tensor = f->seg->graph->carry_out.data[index];
  for (int b = 0; b < f->seg->forward.buffers.len; b++)
    if (buffer(f, b)->tensor == tensor && grows(f, b)) return true;
  return false;
}

static bool find_procedure(finder *f, zp_decode_procedure *of) {
  const zp_procedure *p = &f->seg->forward;
  bool shows = false;
  of->step = ZP_NEW_ARRAY(f->arena, zp_decode_step, p->steps.len + 1);
  of->grows = ZP_NEW_ARRAY(f->arena, bool, p->buffers.len + 1);
  of->slots = ZP_NEW_ARRAY(f->arena, int, p->buffers.len + 1);
  for (int b = 0; b < p->buffers.len; b++) of->slots[b] = -1;
  of->last_row_from = 0;
  f->of = of;
  f->made = ZP_NEW_ARRAY(f->arena, bool, p->buffers.len + 1);
  for (int i = 0; i < p->steps.len; i++) {
    if (!find_step(f, i)) return false;
    shows |= of->step[i] == ZP_DECODE_LOGITS;
  }
  if (!shows) of->last_row_from = p->steps.len;
  return true;
}

static const zp_segment_program *program_of(const zp_emit *e, int segment) {
  const zp_segment_program *seg = NULL;
  for (int mode = 0; mode < ZP_STAGE_MODES && !seg; mode++) seg = zp_emit_variant(e, segment, (zp_stage_mode)mode);
  return seg;
}

/* A repeat hands its output to itself: what does not grow in its first iteration may in the second. */
static bool find_segment(finder *f, int segment) {
  f->seg = program_of(f->e, segment);
  assert(f->seg && f->seg->loss.steps.len == 0);
  for (bool again = true; again;) {
    again = false;
    if (!find_procedure(f, &f->decoding->of[segment])) return false;
    zp_flags out = {0};
    for (int i = 0; i < f->seg->graph->carry_out.len; i++) zp_push(f->arena, &out, flows_out(f, i));
    for (int i = 0; f->seg->segment->count > 1 && i < out.len; i++) {
      again |= out.data[i] && !f->carried.data[i];
      out.data[i] |= f->carried.data[i];
    }
    f->carried = out;
  }
  return true;
}

static bool find_all(finder *f) {
  f->carried = (zp_flags){0};
  for (int s = 0; s < f->e->model->segments.len; s++)
    if (!find_segment(f, s)) return false;
  return true;
}

/* The text is the last input that the logits can grow with: an encoder's stands before its decoder's. */
const zp_decoding *zp_find_decoding(const zp_emit *e, zp_no_decoding *no) {
  const zp_choice *choice = &e->program->choice;
  assert(choice->pipeline == 1 && choice->data == 1 && e->lowered->microbatch == 1);
  zp_decoding *decoding = ZP_NEW(e->arena, zp_decoding);
  decoding->of = ZP_NEW_ARRAY(e->arena, zp_decode_procedure, e->model->segments.len);
  *no = (zp_no_decoding){"no input is a text", e->model->span};
  for (int i = e->model->inputs.len - 1, tried = 0; i >= 0; i--) {
    const zp_input *input = &e->model->inputs.data[i];
    if (input->element != ZP_ELEM_I32 || input->shape.rank != 2 || input->labels) continue;
    decoding->input = i;
    decoding->positions = input->shape.dim[1];
    finder f = {.e = e, .arena = e->arena, .decoding = decoding};
    if (find_all(&f)) return decoding;
    if (tried++ == 0) *no = f.no;
  }
  return NULL;
}
