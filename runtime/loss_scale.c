/* SPDX-License-Identifier: Apache-2.0 */
/* Dynamic loss scaling (Micikevicius et al., arXiv 1710.03740, section 3.2). In f16 whatever is below 2^-24 vanishes,
 * and many gradients are: the gradient of the loss is multiplied by a scale before it is stored, so all gradients are,
 * and the update divides by it again. Scales are powers of two, so this rounds nothing.
 *
 * A step whose gradients overflowed changes nothing and halves the scale; `scale_window` steps in a row without
 * overflow double it. All ranks decide alike without a message of their own: the norm, which travels anyway, is
 * infinite or NaN on all of them as soon as one gradient on one rank is. What a skipped step does not undo: its data
 * are used up, and the learning rate goes on; the optimizer's own count of steps, for its bias corrections, stays. */
#include "internal.h"

bool zpr_loss_scale_moves(const zpr_program *program) { return program->loss_scale > 0 && program->scale_window > 0; }

void zpr_loss_scale_start(zpr *c) {
  c->loss_scale = c->program->loss_scale > 0 ? c->program->loss_scale : 1;
  c->scale_steps = 0;
}

void zpr_loss_scale_resume(zpr *c, int64_t scale, int64_t steps) {
  zpr_loss_scale_start(c);
  if (!zpr_loss_scale_moves(c->program) || scale == 0) return;
  c->loss_scale = scale;
  c->scale_steps = steps;
}

bool zpr_loss_scale_can_fall(const zpr *c) { return zpr_loss_scale_moves(c->program) && c->loss_scale > 1; }

void zpr_loss_scale_step(zpr *c, bool applied) {
  if (!applied) {
    c->skipped_steps++;
    c->scale_steps = 0;
    if (zpr_loss_scale_can_fall(c)) c->loss_scale /= 2;
    return;
  }
  if (!zpr_loss_scale_moves(c->program) || ++c->scale_steps < c->program->scale_window) return;
  c->scale_steps = 0;
  if (c->loss_scale < ZPR_MOST_LOSS_SCALE) c->loss_scale *= 2;
}
