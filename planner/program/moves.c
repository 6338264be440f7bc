/* What a step moves between the device, its host and disks, in bytes, all ranks together. */
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

zp_moves zp_program_moves(const zp_program *program) {
  zp_moves moves = {0};
  const zp_choice *c = &program->choice;
  for (int s = 0; s < c->pipeline; s++) add_saved(program, &program->stages[s], (int64_t)c->tensor * c->data, &moves);
  return moves;
}
