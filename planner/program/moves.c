/* What a step moves between the device, its host and disks, in bytes, all ranks together. */
#include "lower_internal.h"
#include "schedule.h"

/* Saved values go once a micro-batch, and come back for every part of backward. */
static void add_saved(const zp_program *p, const zp_stage *s, int64_t ranks, zp_moves *moves) {
  const zp_choice *c = &p->choice;
  int64_t times = ranks * p->microbatches, back = zp_schedule_splits(c->schedule) ? 2 : 1;
  bool disk = c->home[ZP_STATE_ACTIVATIONS].tier == ZP_TIER_NVME;
  for (int r = 0; r < s->runs.len; r++) {
    const zp_run *run = &s->runs.data[r];
    int64_t saved = zp_program_lowered(p, s->index)->segments[run->segment].saved_bytes;
    int64_t bytes = times * run->count * zp_saved_away(c, saved),
            on_disk = disk ? times * run->count * zp_saved_away_stride(c, saved) : 0;
    moves->down += bytes;
    moves->up += back * bytes;
    moves->written += on_disk;
    moves->read += back * on_disk;
  }
}

/* The update on the host: gradients down, unless they are there, weights up; from disks and back all of the state. */
static void add_update(const zp_program *p, const zp_stage *s, int64_t ranks, zp_moves *moves) {
  const zp_lowered *l = zp_program_lowered(p, s->index);
  int64_t state_bytes = l->state_bytes + (l->compute_bytes == 2 ? 0 : l->param_bytes);
  int64_t down = s->state_gone > s->grads_gone ? s->state_gone - s->grads_gone : 0;
  moves->down += ranks * down * l->grad_bytes;
  moves->up += ranks * s->state_gone * l->param_bytes;
  if (s->file_state < 0) return;
  moves->read += ranks * zp_round_up(s->state_gone, ZP_PAGE_BYTES / 2) * state_bytes;
  moves->written += ranks * zp_round_up(s->state_gone, ZP_PAGE_BYTES / 2) * state_bytes;
}

zp_moves zp_program_moves(const zp_program *program) {
  zp_moves moves = {0};
  const zp_choice *c = &program->choice;
  int64_t ranks = (int64_t)c->tensor * c->data;
  for (int s = 0; s < c->pipeline; s++) {
    add_saved(program, &program->stages[s], ranks, &moves);
    add_update(program, &program->stages[s], ranks, &moves);
  }
  return moves;
}
