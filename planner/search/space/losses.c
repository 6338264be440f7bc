/* SPDX-License-Identifier: Apache-2.0 */
/* How many parts of the tokens the loss is made in: one, those that a constraint names, or, in the space of plans with
 * the loss in chunks (search.c), the fewest that are worth it. */
#include <zplan/buf.h>
#include "procedures.h"
#include "space.h"

/* Do a micro-batch's logits take a part of a rank's memory that is worth saving? Divided over the tensor ranks. */
static bool has_large_logits(const zp_search_cache *s, const zp_choice *choice) {
  const zp_model *model = s->in->spec->model;
  int64_t words = (model->vocabulary + choice->tensor - 1) / choice->tensor;
  double bytes = (double)(choice->microbatch * model->sequence) * (double)words * s->machine.compute_bytes;
  return bytes >= ZP_LOGITS_SHARE * (double)s->limit_bytes;
}

/* The fewest that leave a chunk few enough rows: more would save little and start more kernels. 0: one does. With
 * expert groups, of which there are many for every degree, the loss is made at once. */
static int few_loss_chunks(const zp_search_cache *s, const zp_choice *choice) {
  int64_t positions = s->in->spec->model->sequence, all = choice->microbatch * positions;
  int64_t rows = s->machine.node->device.is_cpu ? ZP_LOSS_ROWS_CPU : ZP_LOSS_ROWS_GPU;
  if (all <= rows || choice->expert > 1 || !has_large_logits(s, choice)) return 0;
  for (int chunks = 2; chunks <= ZP_MOST_LOSS_CHUNKS; chunks++)
    if (positions % chunks == 0 && all <= rows * chunks) return chunks;
  return 0;
}

int zp_next_loss_chunks(const zp_search_cache *s, const zp_choice *choice, int after) {
  const zp_limit *limit = &s->in->constraints->loss_chunks;
  if (!limit->set) return after > 0 ? 0 : s->in_chunks ? few_loss_chunks(s, choice) : 1;
  if (!zp_has_product_loss(s->in->spec->model)) return after == 0 && zp_limit_allows(limit, 1) ? 1 : 0;
  for (int chunks = after + 1; chunks <= ZP_MOST_LOSS_CHUNKS; chunks++)
    if (s->in->spec->model->sequence % chunks == 0 && zp_limit_allows(limit, chunks)) return chunks;
  return 0;
}

void zp_explain_loss_chunks(zp_search_cache *s) {
  if (!zp_has_product_loss(s->in->spec->model)) {
    s->reason = "`loss_chunks` allows no loss at once, and only one loss of a matrix product, of every position, that "
                "nothing else reads is made in parts";
    return;
  }
  zp_buf text = zp_buf_new(s->arena);
  int64_t positions = s->in->spec->model->sequence;
  for (int parts = 1; parts <= ZP_MOST_LOSS_CHUNKS; parts++)
    if (positions % parts == 0) zp_buf_printf(&text, "%s%d", parts > 1 ? ", " : "", parts);
  s->reason =
      zp_format(s->arena, "`loss_chunks` allows no number of equal parts that a sequence of %lld falls into: %s",
                (long long)positions, text.data);
}

/* ---- whether plans with the loss in chunks fit, before they are lowered ---- */

/* Chunks change nothing but the units whose graph has the loss: all others have the same parameters, and save the same
 * in every mode. Those with the loss have the same parameters, and save no less than nothing. So what a stage has at
 * least, counted of the procedures with the loss at once but for what these units save, it has in chunks, too. Loose by
 * what these units save in chunks: the input of the last product. */
zp_rejection zp_refuse_in_chunks(zp_search_cache *s, const zp_choice *choice, zp_mode_set modes) {
  zp_choice at_once = *choice;
  zp_point point;
  at_once.loss_chunks = 0;
  if (!zp_measure_point(s, &at_once, modes, &point)) return ZP_REJECT_SPLIT; /* nor in chunks */
  point.choice = zp_smallest(s, &at_once);
  point.stands_for_chunks = true;
  return zp_refuse_floor(s, &point);
}
