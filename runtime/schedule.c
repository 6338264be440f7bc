/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rate by step. Step s counts from 0; every schedule first rises over `warmup` steps: lr * (s + 1) / warmup.
 *   constant                lr
 *   relative                lr times the lesser of 1e-2 and 1 / sqrt(s + 1), without a warm-up: Adafactor's
 *   linear, cosine          falls to min_lr from the end of the warm-up to step `decay_steps` (0: the last step)
 *   warmup-stable-decay     lr, then falls in a line to min_lr over the last `decay_steps` steps (0: a tenth of the
 * run) The program's number of steps counts, not --steps: stopping early and resuming must not bend the curve. */
#include <math.h>
#include "internal.h"

static double clamp01(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }

double zpr_learning_rate(const zpr_program *program, int64_t step) {
  double lr = program->lr, low = program->min_lr;
  if (program->schedule == ZPR_RATE_RELATIVE) return lr * fmin(1e-2, 1 / sqrt((double)(step + 1)));
  if (step < program->warmup) return lr * (double)(step + 1) / (double)program->warmup;
  int64_t begin = program->warmup, end = program->decay_steps > 0 ? program->decay_steps : program->steps;
  if (program->schedule == ZPR_RATE_STABLE_DECAY) {
    int64_t length = program->decay_steps > 0 ? program->decay_steps : program->steps / 10;
    end = program->steps;
    if (end - length > begin) begin = end - length;
  }
  double done = end > begin ? clamp01((double)(step - begin) / (double)(end - begin)) : 1;
  switch (program->schedule) {
  case ZPR_RATE_COSINE: return low + (lr - low) * 0.5 * (1 + cos(3.14159265358979323846 * done));
  case ZPR_RATE_LINEAR:
  case ZPR_RATE_STABLE_DECAY: return lr + (low - lr) * done;
  case ZPR_RATE_RELATIVE:
  case ZPR_RATE_CONSTANT: break;
  }
  return lr;
}
