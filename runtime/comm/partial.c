/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of which every tensor rank has a part: of parameters that all of them hold whole, where each has its own
 * positions of every sample (norm weights, biases). Summed once a step.
 * With ZeRO 1 to 3 the data ranks have scattered them before, and every rank sums what it has in its shards: the same
 * elements as the other tensor ranks at its place. With 1-bit Adam they are summed first, all of them.
 *
 * They are many and small, and stand scattered over the flat buffers, so they travel together: packed into the stage's
 * scratch region, a piece of them at a time where it is too small, summed, and put back. */
#include <assert.h>
#include <stdlib.h>
#include "variance_freeze.h"
#include "home.h"
#include "state.h"
#include "stochastic_sums.h"

/* Neighbouring elements of the gradients. */
typedef struct range {
  int64_t begin, elements;
  zpr_rounded_part part; /* what of which parameter that is */
} range;

struct zpr_partial {
  int64_t n;
  range *ranges;
};

/* Where the gradients of parameter k of instance i of a run stand. */
static range place_of(zpr *c, const zpr_run *run, int64_t i, int k) {
  int64_t start = run->base + i * run->stride + run->params[k].offset, begin = start,
          end = start + run->params[k].elements;
  if (!zpr_shards_state(c->program) || zpr_is_one_bit(c->program))
    return (range){.begin = begin, .elements = end - begin};
  zpr_bucket_home home = zpr_home_of_bucket(c, ZPR_CLASS_GRADS, run, i);
  assert(home.here == home.size); /* such plans are not generated otherwise */
  if (begin < home.flat) begin = home.flat;
  if (end > home.flat + home.size) end = home.flat + home.size;
  return (range){.begin = home.device + home.mine * home.size + begin - home.flat,
                 .elements = end > begin ? end - begin : 0,
                 .part = {.run = run, .i = i, .k = k, .first = begin - start}};
}

static int64_t find_ranges(zpr *c, range *out) {
  int64_t n = 0;
  for (int r = 0; r < c->stage->n_runs; r++) {
    const zpr_run *run = &c->stage->runs[r];
    for (int64_t i = 0; i < run->count; i++)
      for (int k = 0; k < run->n_params; k++) {
        if (!run->params[k].grad_partial) continue;
        range mine = place_of(c, run, i, k);
        if (mine.elements == 0) continue;
        if (out) out[n] = mine;
        n++;
      }
  }
  return n;
}

void zpr_partial_open(zpr *c) {
  zpr_partial *p = c->state->partial = zpr_alloc(c, 1, sizeof *p);
  p->n = find_ranges(c, NULL);
  p->ranges = zpr_alloc(c, (size_t)p->n, sizeof *p->ranges);
  find_ranges(c, p->ranges);
  assert(p->n == 0 || c->stage->scratch_bytes >= zpr_gradient_bytes(c));
}

void zpr_partial_close(zpr *c) {
  if (!c->state->partial) return;
  free(c->state->partial->ranges);
  free(c->state->partial);
  c->state->partial = NULL;
}

/* Sums that are bf16 are packed as f32, and rounded again. */
static void copy_some(zpr *c, const range *r, int64_t skip, int64_t count, char *packed, bool pack) {
  char *place = (char *)zpr_at(c, c->stage->grads) + (r->begin + skip) * zpr_sum_bytes(c);
  zpr_rounded_part part = r->part;
  part.first += skip;
  part.count = count;
  if (c->program->stochastic_sums && pack)
    zpr_widen_sums(c, (float *)(void *)packed, place, count);
  else if (c->program->stochastic_sums)
    zpr_round_part(c, &part, place, (const float *)(const void *)packed);
  else
    zpr_copy(c, pack ? packed : place, pack ? place : packed, count * zpr_gradient_bytes(c));
}

/* Copies the elements from number `first` on, counted through all ranges, between the gradients and the scratch region,
 * until that is full or they end; how many they were. */
static int64_t copy_elements(zpr *c, int64_t first, int64_t most, bool pack) {
  const zpr_partial *p = c->state->partial;
  int64_t size = zpr_gradient_bytes(c), done = 0;
  char *scratch = zpr_at(c, c->stage->scratch);
  for (int64_t i = 0; i < p->n && done < most; i++) {
    int64_t skip = first < p->ranges[i].elements ? first : p->ranges[i].elements,
            count = p->ranges[i].elements - skip < most - done ? p->ranges[i].elements - skip : most - done;
    if (count > 0) copy_some(c, &p->ranges[i], skip, count, scratch + done * size, pack);
    first -= skip;
    done += count;
  }
  return done;
}

void zpr_sum_partial(zpr *c) {
  zpr_group g = zpr_axis_group(c, ZPR_TENSOR);
  int64_t most = c->stage->scratch_bytes / zpr_gradient_bytes(c), count;
  for (int64_t first = 0; (count = copy_elements(c, first, most, true)) > 0; first += count) {
    zpr_group_all_reduce(c, &g, ZPR_TENSOR, zpr_gradient_type(c), zpr_at(c, c->stage->scratch), count);
    copy_elements(c, first, most, false);
  }
}
