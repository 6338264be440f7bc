/* Norm, optimizer and loss on the GPU. A block is the whole of a parameter that this rank updates: a launch each. */
#include "cuda.h"
#include <string.h>

const int64_t zpr_block_elements = INT64_MAX / 2;

static gpu_pointer scalar(const zpr *c, int64_t i) {
  return c->state->device->scalars + (gpu_pointer)i * sizeof(double);
}

/* How many blocks of threads sum a block of elements: it depends on their number alone, so the sum does, too. */
static int64_t square_groups(const zpr_block *b) {
  enum { LEAST = 4 * ZPD_FLAT_THREADS }; /* elements that are worth a block of threads */
  int64_t groups = (b->end - b->begin + LEAST - 1) / LEAST;
  return groups < ZPD_SQUARES_BLOCKS ? groups : ZPD_SQUARES_BLOCKS;
}

/* Their sums are added here, in order. */
void zpr_square_blocks(zpr *c, const zpr_block *blocks, int64_t n, double *squares) {
  zpr_device *d = c->state->device;
  int64_t size = zpk_bytes(c->program->dtype);
  const char *grads = zpr_at(c, c->stage->grads);
  for (int64_t first = 0; first < n; first += ZPR_SQUARES_AT_ONCE) {
    int64_t some = n - first < ZPR_SQUARES_AT_ONCE ? n - first : ZPR_SQUARES_AT_ONCE;
    gpu_pointer sums = scalar(c, ZPR_SCALARS);
    for (int64_t i = 0; i < some; i++) {
      const zpr_block *b = &blocks[first + i];
      if (!b->counted) continue;
      zpd_squares a = {.x = grads + b->begin * size,
                       .count = b->end - b->begin,
                       .sums = (double *)(void *)zpr_gpu_host(sums) + i * ZPD_SQUARES_BLOCKS};
      zpr_launch(c, &d->kernels.sum_squares, &a, sizeof a, square_groups(b), 1, 1, ZPD_FLAT_THREADS);
    }
    const double *sum = zpr_window_open(c, zpr_gpu_host(sums), some * ZPD_SQUARES_BLOCKS * (int64_t)sizeof *sum, true);
    for (int64_t i = 0; i < some; i++) {
      squares[first + i] = 0;
      if (!blocks[first + i].counted) continue;
      for (int64_t k = 0; k < square_groups(&blocks[first + i]); k++)
        squares[first + i] += sum[i * ZPD_SQUARES_BLOCKS + k];
    }
    zpr_window_close(c);
  }
}

void zpr_put_grad_scale(zpr *c, double grad_scale) {
  memcpy(zpr_window_open(c, zpr_gpu_host(scalar(c, ZPR_GRAD_SCALE)), sizeof grad_scale, false), &grad_scale,
         sizeof grad_scale);
  zpr_window_close(c);
}

zpd_update zpr_update_args(zpr *c, const zpr_block *b, const zpk_update *rule) {
  const zpr_stage *stage = c->stage;
  bool mixed = rule->dtype == ZPK_BF16;
  int64_t size = zpk_bytes(rule->dtype), state = (b->begin + b->to_state) * zpk_real_bytes(rule->dtype);
  char *param = (char *)zpr_at(c, stage->params) + (b->begin + b->to_params) * size;
  return (zpd_update){.kind = rule->kind,
                      .decay = b->decay,
                      .lr = rule->lr,
                      .beta1 = rule->beta1,
                      .beta2 = rule->beta2,
                      .eps = rule->eps,
                      .weight_decay = rule->weight_decay,
                      .momentum = rule->momentum,
                      .bias1 = rule->bias1,
                      .bias2 = rule->bias2,
                      .grad_scale = (const double *)(void *)zpr_gpu_host(scalar(c, ZPR_GRAD_SCALE)),
                      .param = mixed ? (char *)zpr_at(c, stage->master) + state : param,
                      .weight = mixed ? param : NULL,
                      .grad = (char *)zpr_at(c, stage->grads) + b->begin * size,
                      .m = stage->moment1 >= 0 ? (char *)zpr_at(c, stage->moment1) + state : NULL,
                      .v = stage->moment2 >= 0 ? (char *)zpr_at(c, stage->moment2) + state : NULL,
                      .count = b->end - b->begin};
}

void zpr_update_blocks(zpr *c, const zpr_block *blocks, int64_t n, const zpk_update *rule) {
  zpr_put_grad_scale(c, rule->grad_scale);
  for (int64_t i = 0; i < n; i++) {
    zpd_update a = zpr_update_args(c, &blocks[i], rule);
    int64_t groups = (a.count + ZPD_FLAT_THREADS - 1) / ZPD_FLAT_THREADS;
    zpr_launch(c, &c->state->device->kernels.optimizer, &a, sizeof a, zpr_grid(c, groups), 1, 1, ZPD_FLAT_THREADS);
  }
}

void zpr_collect_loss(zpr *c) {
  void *place = zpr_gpu_host(scalar(c, ZPR_LOSS));
  double sum;
  memcpy(&sum, zpr_window_open(c, place, sizeof sum, true), sizeof sum);
  zpr_window_close(c);
  c->loss += sum;
  zpr_zero(c, place, sizeof sum);
}
