/* SPDX-License-Identifier: Apache-2.0 */
/* Before the first message everything that a step starts is loaded, and every rank is connected to those it talks to.
 *
 * CUDA loads a kernel when it is first asked for (CUDA_MODULE_LOADING=LAZY, the default since CUDA 12.2), cuBLASLt its
 * kernels when a product first needs them, and loading may wait for everything that runs in the context (CUDA C++
 * Programming Guide, "Lazy Loading"). NCCL's kernels run until the other ranks come. Rank A loads a kernel while its
 * receive spins; rank B would send only after a sum that A, which is waiting, has not started: for ever.
 *
 * So the trainer's own walk over the micro-batches is rehearsed once, while the arena holds nothing yet. In a rehearsal
 *   a kernel is found, with the shared memory that it asks for, and not started (zpr_launch_shared);
 *   a product of every shape is computed once, on whatever lies there: cuBLASLt chooses its kernels by the shape;
 *   copies, fills, messages and collectives are left out, and so are saved values, parameters and gradients that go to
 *   the host, where they begin (saved.c, param_home.c, host_grads.c, shards.c).
 * No list of kernels and shapes has to be kept that could lack one. What a step starts outside of the walk is listed
 * below. The emulated GPU refuses a kernel or a shape that comes after the first message. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "cuda.h"
#include "optimizer.h"

void *zpr_longer_list(zpr *c, void *list, int64_t n, int64_t *room, size_t size) {
  assert(n <= *room);
  if (n < *room) return list;
  *room = *room ? 2 * *room : 64;
  void *longer = zpr_alloc(c, (size_t)*room, size);
  if (list) memcpy(longer, list, (size_t)n * size);
  free(list);
  return longer;
}

static void rehearse(zpr *c) {
  c->state->rehearses = true;
  c->program->micro_batches(c);
  c->state->rehearses = false;
}

/* The shapes of the optimizer's products; most have none. */
static void rehearse_optimizer(zpr *c) {
  const zpr_optimizer_row *row = zpr_optimizer_of(c->program);
  c->state->rehearses = true;
  if (row->rehearse) row->rehearse(c);
  c->state->rehearses = false;
}

static void load_all(zpr *c, zpr_device_kernel *const *kernels, size_t n) {
  for (size_t i = 0; i < n; i++) zpr_load_kernel(c, kernels[i], 0);
}
#define LOAD_ALL(c, kernels) load_all(c, kernels, sizeof kernels / sizeof *kernels)

/* What some optimizers have alone. */
static void load_optimizer(zpr *c) {
  zpr_kernels *k = &c->state->device->kernels;
  zpr_device_kernel *const muon[] = {&k->muon_momentum, &k->muon_squares, &k->muon_place, &k->muon_mix, &k->muon_apply};
  zpr_device_kernel *const adafactor[] = {&k->adafactor_rows,  &k->adafactor_cols,    &k->adafactor_add,
                                          &k->adafactor_means, &k->adafactor_factors, &k->adafactor_squares,
                                          &k->adafactor_apply};
  zpr_device_kernel *const signs[] = {&k->pack_signs, &k->unpack_signs,  &k->average_signs,
                                      &k->momentum,   &k->frozen_update, &k->add_to_error,
                                      &k->pack_error, &k->owner_update,  &k->apply_signs};
  zpr_device_kernel *const one_bit_lamb[] = {&k->lamb_fresh, &k->lamb_frozen};
  zpr_device_kernel *const zero_one_adam[] = {&k->variance, &k->local_add, &k->local_mean, &k->local_weights};
  const zpr_optimizer_row *row = zpr_optimizer_of(c->program);
  const zpr_one_bit_row *one_bit = zpr_one_bit_of(c->program);
  if (row == &zpr_muon_row) LOAD_ALL(c, muon);
  if (row == &zpr_adafactor_row) LOAD_ALL(c, adafactor);
  if (one_bit) LOAD_ALL(c, signs);
  if (one_bit == &zpr_one_bit_lamb || one_bit == &zpr_one_bit_lamb_shards) LOAD_ALL(c, one_bit_lamb);
  if (one_bit == &zpr_zero_one_adam) LOAD_ALL(c, zero_one_adam);
}

/* What is started for sums over ranks and at the end of a step. */
static void load_the_rest(zpr *c) {
  zpr_kernels *k = &c->state->device->kernels;
  zpr_device_kernel *const rest[] = {&k->sum_parts,    &k->square_segments, &k->decide,   &k->optimizer,
                                     &k->lamb_moments, &k->round_sum,       &k->widen_sum};
  LOAD_ALL(c, rest);
  if (c->state->loads) zpr_load_kernel(c, &k->load_signs, 0);
  if (c->program->stochastic_sums) zpr_load_kernel(c, &k->add_stochastic, 0);
  load_optimizer(c);
}

void zpr_prepare(zpr *c) {
  zpr_device *d = c->state->device;
  if (!d->nccl) return;
  if (c->program->micro_batches) rehearse(c);
  rehearse_optimizer(c);
  load_the_rest(c);
  zpr_cuda_wait(c);
  zpr_nccl_connect(c);
}
