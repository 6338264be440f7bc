/* SPDX-License-Identifier: Apache-2.0 */
/* One axis made one number, positions by number, windows over them, matrices turned over, and squared errors, over the
 * threads of a rank. */
#include <assert.h>
#include "state.h"

enum { ROW_GRAIN = 16, LINE_GRAIN = 64 };

/* A kernel on the tasks of one call. */
typedef struct axes_task {
  zpk_dtype dtype;
  const zpk_reduce_args *reduced;
  const zpk_gather_args *gathered;
  const zpk_unfold_args *unfolded;
} axes_task;

ZPR_TASK(reduce, axes_task, zpk_reduce(a->dtype, a->reduced, begin, end))

ZPR_TASK(reduce_grad, axes_task, zpk_reduce_grad(a->dtype, a->reduced, begin, end))

ZPR_TASK(gather, axes_task, zpk_gather(a->dtype, a->gathered, begin, end))

ZPR_TASK(gather_grad, axes_task, zpk_gather_grad(a->dtype, a->gathered, begin, end))

ZPR_TASK(unfold, axes_task, zpk_unfold(a->dtype, a->unfolded, begin, end))

ZPR_TASK(unfold_grad, axes_task, zpk_unfold_grad(a->dtype, a->unfolded, begin, end))

static void run(zpr *c, axes_task task, int64_t tasks, int64_t grain, zpr_task *kernel) {
  task.dtype = c->program->dtype;
  zpr_parallel(c, tasks, grain, kernel, &task);
}

void zpr_reduce(zpr *c, const zpk_reduce_args *args) {
  run(c, (axes_task){.reduced = args}, args->outer * args->inner, LINE_GRAIN, reduce);
}

void zpr_reduce_grad(zpr *c, const zpk_reduce_args *args) {
  run(c, (axes_task){.reduced = args}, args->outer * args->inner, LINE_GRAIN, reduce_grad);
}

void zpr_gather(zpr *c, const zpk_gather_args *args) {
  run(c, (axes_task){.gathered = args}, args->samples * args->n, ROW_GRAIN, gather);
}

void zpr_gather_grad(zpr *c, const zpk_gather_args *args) {
  run(c, (axes_task){.gathered = args}, args->samples * args->S, ROW_GRAIN, gather_grad);
}

void zpr_unfold(zpr *c, const zpk_unfold_args *args) {
  run(c, (axes_task){.unfolded = args}, args->samples * args->n, ROW_GRAIN, unfold);
}

void zpr_unfold_grad(zpr *c, const zpk_unfold_args *args) {
  run(c, (axes_task){.unfolded = args}, args->samples * args->size[0] * args->size[1], ROW_GRAIN, unfold_grad);
}

typedef struct transpose_task {
  zpk_dtype dtype;
  const void *x;
  int64_t rows, cols;
  void *y;
} transpose_task;

ZPR_TASK(transpose, transpose_task, zpk_transpose(a->dtype, a->x, a->rows, a->cols, a->y, begin, end))

void zpr_transpose(zpr *c, const void *x, int64_t samples, int64_t rows, int64_t cols, void *y) {
  assert(samples >= 1 && rows >= 1 && cols >= 1);
  transpose_task a = {c->program->dtype, x, rows, cols, y};
  zpr_parallel(c, zpk_transpose_tasks(samples, cols), 1, transpose, &a);
}

typedef struct error_task {
  zpk_dtype dtype;
  const void *x, *target;
  int64_t cols;
  double scale;
  void *to; /* stat, or dx */
} error_task;

ZPR_TASK(squared_error, error_task, zpk_squared_error(a->dtype, a->x, a->target, a->cols, a->to, begin, end))

ZPR_TASK(squared_error_grad, error_task,
         zpk_squared_error_grad(a->dtype, a->x, a->target, a->cols, a->scale, a->to, begin, end))

void zpr_squared_error(zpr *c, int loss, const void *x, const void *target, int64_t rows, int64_t cols, void *stat) {
  assert(rows >= 0 && cols >= 1 && loss >= 0 && loss < zpr_n_losses(c->program));
  error_task a = {.dtype = c->program->dtype, .x = x, .target = target, .cols = cols, .to = stat};
  zpr_parallel(c, rows, ROW_GRAIN, squared_error, &a);
  if (!c->state->look) return;
  zpr_looked seen = {.loss = loss, .logits = stat, .rows = rows};
  c->state->look(c->state->look_arg, &seen);
}

void zpr_squared_error_grad(zpr *c, int loss, const void *x, const void *target, int64_t rows, int64_t cols,
                            double share, void *dx) {
  assert(rows >= 0 && cols >= 1 && loss >= 0 && loss < zpr_n_losses(c->program));
  error_task a = {.dtype = c->program->dtype,
                  .x = x,
                  .target = target,
                  .cols = cols,
                  .scale = zpr_gradient_weight(c, loss) * share,
                  .to = dx};
  zpr_parallel(c, rows, ROW_GRAIN, squared_error_grad, &a);
}
