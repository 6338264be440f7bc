/* What a step moves between the device, its host and disks, in bytes, all ranks together. */
#include "lower_internal.h"
#include "schedule.h"

/* Saved values go once a micro-batch, a second time where the first part of backward changes them, and come back for
 * every part of backward. */
static void add_saved(const zp_program *p, const zp_stage *s, int64_t ranks, zp_moves *moves) {
  const zp_choice *c = &p->choice;
  int64_t times = ranks * p->microbatches, back = zp_schedule_splits(c->schedule) ? 2 : 1;
  const zp_lowered *l = zp_program_lowered(p, s->index);
  bool disk = c->home[ZP_STATE_ACTIVATIONS].tier == ZP_TIER_NVME;
  for (int r = 0; r < s->runs.len; r++) {
    const zp_run *run = &s->runs.data[r];
    int64_t saved = l->segments[run->segment].saved_bytes;
    int64_t out = back == 2 && l->segments[run->segment].changes_saved ? 2 : 1;
    int64_t bytes = times * run->count * zp_saved_away(c, saved),
            on_disk = disk ? times * run->count * zp_saved_away_stride(c, saved) : 0;
    moves->down += out * bytes;
    moves->up += back * bytes;
    moves->written += out * on_disk;
    moves->read += back * on_disk;
  }
}

/* Of gradients [first, first + count), those off the device. */
static int64_t gradients_away(const zp_program *p, const zp_stage *s, int64_t first, int64_t count) {
  int64_t here = (p->choice.zero >= 2 ? s->shard_elements : s->flat_elements) - s->grads_gone - first;
  return here < 0 ? count : here < count ? count - here : 0;
}

/* Every bucket's shard of a unit, as the runtime finds it: a bucket's first element, divided by the ranks that hold the
 * same. */
static int64_t unit_gradients_away(const zp_program *p, const zp_stage *s, const zp_run *run, int64_t i,
                                   const zp_bucket *bucket, int n) {
  const zp_choice *c = &p->choice;
  int64_t whole = s->flat_elements - s->spread_elements, away = 0;
  for (int b = 0; b < n; b++) {
    int64_t own = bucket[b].spread ? run->spread_base + i * run->spread_stride : run->base + i * run->stride;
    int64_t first = bucket[b].param < 0 ? own : zp_stage_shared(s, bucket[b].param);
    int64_t holders = c->zero < 2 ? 1 : bucket[b].spread ? c->data / zp_expert_ranks(c) : c->data;
    int64_t stored =
        bucket[b].spread ? s->shard_elements - s->spread_shard_elements + (first - whole) / holders : first / holders;
    away += gradients_away(p, s, stored, bucket[b].elements / holders);
  }
  return away;
}

/* Gradients go down after every unit's backward. */
static void add_gradients(const zp_program *p, const zp_stage *s, int64_t ranks, zp_moves *moves) {
  if (s->grads_gone == 0) return;
  const zp_lowered *l = zp_program_lowered(p, s->index);
  zp_arena *scratch = zp_arena_new("moves");
  zp_bucket *bucket = ZP_NEW_ARRAY(scratch, zp_bucket, 2 + l->shared.len);
  for (int r = 0; r < s->runs.len; r++) {
    const zp_run *run = &s->runs.data[r];
    int n = zp_unit_buckets(l, &p->choice, run->segment, bucket);
    for (int64_t i = 0; i < run->count; i++)
      moves->down += ranks * p->microbatches * unit_gradients_away(p, s, run, i, bucket, n) * l->grad_bytes;
  }
  zp_arena_free(scratch);
}

/* The update on the host: gradients down, unless they are there, weights up; from disks and back all of the state. */
static void add_update(const zp_program *p, const zp_stage *s, int64_t ranks, zp_moves *moves) {
  const zp_lowered *l = zp_program_lowered(p, s->index);
  int64_t state_bytes = l->state_bytes + (l->compute_bytes == 2 ? 0 : l->param_bytes);
  int64_t down = s->state_gone > s->grads_gone ? s->state_gone - s->grads_gone : 0;
  moves->down += ranks * down * l->grad_bytes;
  /* Elements of which the parameters are off the device, too, are the last ones of either: nothing goes up. On the
   * device they are updated in a ring, to which they come and from which they go. */
  int64_t both = s->state_gone < s->params_gone ? s->state_gone : s->params_gone;
  moves->up += ranks * (s->state_gone - both + s->params_gone - both) * l->param_bytes;
  moves->down += ranks * (s->params_gone - both) * l->param_bytes;
  if (s->file_state < 0) return;
  moves->read += ranks * zp_round_up(s->state_gone, ZP_PAGE_BYTES / 2) * state_bytes;
  moves->written += ranks * zp_round_up(s->state_gone, ZP_PAGE_BYTES / 2) * state_bytes;
}

/* Elements at the end of those that a rank has, of the bucket at flat element `first`. */
static int64_t bucket_away(const zp_choice *c, const zp_stage *s, int64_t first, const zp_bucket *b) {
  int64_t held = c->zero >= 3 ? s->shard_elements : s->flat_elements, start = 0, part = 0, holders = 1;
  if (c->zero >= 3) {
    holders = b->spread ? c->data / zp_expert_ranks(c) : c->data;
    start = b->spread ? s->flat_elements - s->spread_elements : 0;
    part = b->spread ? s->shard_elements - s->spread_shard_elements : 0;
  }
  int64_t begin = part + (first - start) / holders, end = begin + b->elements / holders, here = held - s->params_gone;
  if (begin < here) begin = here;
  return begin < end ? end - begin : 0;
}

/* Parameters come before either pass of a unit. */
static void add_params(const zp_program *p, const zp_stage *s, int64_t ranks, zp_moves *moves) {
  const zp_lowered *l = zp_program_lowered(p, s->index);
  zp_bucket *bucket = ZP_NEW_ARRAY(p->arena, zp_bucket, 2 + l->shared.len);
  int64_t elements = 0;
  if (s->params_gone == 0) return;
  for (int r = 0; r < s->runs.len; r++) {
    const zp_run *run = &s->runs.data[r];
    int n = zp_unit_buckets(l, &p->choice, run->segment, bucket);
    for (int64_t i = 0; i < run->count; i++)
      for (int b = 0; b < n; b++) {
        int64_t own = bucket[b].spread ? run->spread_base + i * run->spread_stride : run->base + i * run->stride;
        int64_t first = bucket[b].param >= 0 ? zp_stage_shared(s, bucket[b].param) : own;
        elements += bucket_away(&p->choice, s, first, &bucket[b]);
      }
  }
  moves->up += ranks * p->microbatches * 2 * elements * l->param_bytes;
}

zp_moves zp_program_moves(const zp_program *program) {
  zp_moves moves = {0};
  const zp_choice *c = &program->choice;
  int64_t ranks = (int64_t)c->tensor * c->data;
  for (int s = 0; s < c->pipeline; s++) {
    add_saved(program, &program->stages[s], ranks, &moves);
    add_params(program, &program->stages[s], ranks, &moves);
    add_gradients(program, &program->stages[s], ranks, &moves);
    add_update(program, &program->stages[s], ranks, &moves);
  }
  return moves;
}
