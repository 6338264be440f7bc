/* SPDX-License-Identifier: Apache-2.0 */
/* Row kernels on slots of several members' samples: a call of the back end for every sample, expert and member. */
#include <assert.h>
#include "state.h"

enum { MAX_ROW_OPERANDS = 32 };

static void move_operands(const zpr *c, int64_t row, int n, void *const *from, const int64_t *step, void **to) {
  assert(n <= MAX_ROW_OPERANDS);
  for (int i = 0; i < n; i++) to[i] = (char *)from[i] + row * step[i] * zpk_bytes(c->program->dtype);
}

/* The member of an expert group that has sample b has it at the same place of its own micro-batch. */
void zpr_slot_rows(zpr *c, const zpr_rows_call *call, int64_t samples, int64_t experts, int64_t slots) {
  zpr_group g = zpr_axis_group(c, ZPR_EXPERT);
  assert(call->rows == samples * experts * g.n * slots);
  int64_t of_replica = c->program->microbatches * c->program->microbatch;
  void *in[MAX_ROW_OPERANDS], *out[MAX_ROW_OPERANDS];
  bool add[MAX_ROW_OPERANDS];
  zpr_rows_call block = *call;
  block.rows = slots;
  block.in = (const void *const *)in, block.out = out;
  for (int i = 0; i < call->n_sums; i++) add[i] = call->accumulate[i];
  block.accumulate = add;
  for (int64_t row = 0; row < call->rows; row += slots) {
    int64_t member = row / slots % g.n, expert = row / slots / g.n % experts, sample = row / slots / g.n / experts;
    assert(sample < samples);
    move_operands(c, row, call->n_in, (void *const *)call->in, call->in_step, in);
    move_operands(c, row, call->n_out, call->out, call->out_ld, out);
    block.first_sample = call->first_sample + (member - g.me) * of_replica + sample;
    block.first_column = call->first_column + expert * slots * call->logical_columns;
    zpr_rows(c, &block);
    for (int i = 0; i < call->n_sums; i++) add[i] = true;
  }
}
