/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that a trainer calls, started in this rank's stream. Arguments are those of
 * kernels/include/zplan/zpd.h. */
#include <assert.h>
#include "cuda.h"
#include "nccl.h"

/* ---- generated row kernels ---- */

static void add_sums(zpr *c, const zpr_rows_call *call, zpd_rows *a) {
  char *at = call->workspace;
  for (int i = 0; i < call->n_sums; i++) {
    a->partial[i] = at;
    a->sum[i] = call->sum[i];
    a->accumulate |= (unsigned)call->accumulate[i] << i;
    at += a->chunks * call->sum_cols[i] * zpk_real_bytes(c->program->dtype);
  }
}

/* Without sums any number of blocks: of tiles fewer for each, so that a block has several rows. */
static int64_t blocks_of_rows(const zpr *c, int64_t rows, int tiles) {
  if (tiles == 0) return zpr_grid(c, rows);
  int64_t most = zpr_grid(c, INT64_MAX) / tiles, blocks = (rows + ZPD_ROW_WARPS - 1) / ZPD_ROW_WARPS;
  return blocks < most ? blocks : most > 1 ? most : 1;
}

void zpr_rows(zpr *c, const zpr_rows_call *call) {
  assert(call->rows >= 0 && call->n_sums >= 0 && (call->workspace || call->n_sums == 0));
  assert(call->first >= 0 && (call->first == 0 || call->n_sums == 0));
  assert(call->n_in <= ZPD_OPERANDS && call->n_out <= ZPD_OPERANDS && call->n_sums <= ZPD_OPERANDS);
  int tiles = call->device->tiles;
  zpd_rows a = {.first = call->first,
                .rows = call->first + call->rows,
                .seed = c->program->seed,
                .step = (zpd_uint)c->step,
                .instance = (zpd_uint)call->instance,
                .first_sample = call->first_sample,
                .first_column = call->first_column,
                .logical_columns = call->logical_columns,
                .dropout = c->training,
                .chunks = call->n_sums > 0 ? zpd_row_chunks(call->rows) : 1,
                .tickets = (unsigned *)(void *)zpr_gpu_host(c->state->device->tickets)};
  for (int i = 0; i < call->n_in; i++) a.in[i] = call->in[i], a.in_ld[i] = call->in_ld[i];
  for (int i = 0; i < call->n_out; i++) a.out[i] = call->out[i], a.out_ld[i] = call->out_ld[i];
  add_sums(c, call, &a);
  assert(call->n_sums == 0 || tiles <= ZPD_MOST_TILES);
  int64_t blocks = call->n_sums > 0 ? a.chunks : blocks_of_rows(c, call->rows, tiles);
  zpr_launch(c, call->device, &a, sizeof a, blocks, tiles > 0 ? tiles : 1, 1, ZPD_ROW_THREADS);
}

/* ---- lookups ---- */

void zpr_embedding(zpr *c, const int32_t *ids, const void *table, int64_t first_row, int64_t n_rows, int64_t rows,
                   int64_t cols, void *out) {
  assert(first_row >= 0 && n_rows >= 0 && rows >= 0 && cols >= 1);
  zpd_lookup a = {
      .ids = ids, .from = table, .to = out, .first_row = first_row, .n_rows = n_rows, .rows = rows, .cols = cols};
  ZPR_START(c, embedding, &a, zpr_grid(c, rows));
}

void zpr_embedding_grad(zpr *c, const int32_t *ids, const void *dy, int64_t first_row, int64_t n_rows, int64_t rows,
                        int64_t cols, void *grad) {
  assert(first_row >= 0 && n_rows >= 0 && rows >= 0 && cols >= 1);
  zpd_lookup a = {
      .ids = ids, .from = dy, .to = grad, .first_row = first_row, .n_rows = n_rows, .rows = rows, .cols = cols};
  ZPR_START(c, embedding_grad, &a, zpr_grid(c, n_rows < rows ? n_rows : rows));
}

void zpr_position_grad(zpr *c, const void *dy, int64_t ld, int64_t samples, int64_t S, int64_t cols, bool accumulate,
                       void *grad) {
  assert(ld >= cols && samples >= 1 && S >= 1 && cols >= 1);
  zpd_lookup a = {.from = dy, .to = grad, .cols = cols, .ld = ld, .samples = samples, .S = S, .accumulate = accumulate};
  ZPR_START(c, position_grad, &a, zpr_grid(c, S));
}

/* ---- cross-entropy ---- */

void zpr_ce_stats(zpr *c, int loss, const void *logits, int64_t V, int64_t first_col, int64_t classes,
                  const int32_t *labels, const int32_t *lengths, int64_t rows, void *stat) {
  assert(V >= 1 && first_col >= 0 && classes >= 1 && rows >= 0 && loss >= 0 && loss < zpr_n_losses(c->program));
  zpd_ce a = {.logits = logits,
              .out = stat,
              .labels = labels,
              .lengths = lengths,
              .V = V,
              .first_col = first_col,
              .vocabulary = classes,
              .rows = rows};
  zpr_launch(c, &c->state->device->kernels.ce_stats, &a, sizeof a, zpr_grid(c, rows), 1, 1, ZPD_CE_THREADS);
  zpr_show(c, &(zpr_looked){loss, logits, 1, rows, V, classes, labels, lengths, 0});
}

/* Into a double of the device, which zpr_collect_loss fetches once a step. */
void zpr_ce_loss(zpr *c, int loss, const void *stat, int ranks, int64_t rows, int64_t classes, const int32_t *labels,
                 void *lse) {
  assert(ranks >= 1 && rows >= 0 && classes >= 1 && loss >= 0 && loss < zpr_n_losses(c->program));
  zpr_device *d = c->state->device;
  zpr_scalars *there = (zpr_scalars *)(void *)zpr_gpu_host(d->scalars);
  zpd_ce a = {.stat = stat,
              .out = lse,
              .labels = labels,
              .vocabulary = classes,
              .rows = rows,
              .ranks = ranks,
              .scale = c->token_weight[loss],
              .weight = zpr_loss_weight(c->program, loss),
              .loss = &there->step.loss,
              .tally = &there->step.tally[loss],
              .parts = there->loss_parts,
              .ticket = &there->loss_ticket};
  zpr_launch(c, &d->kernels.ce_loss, &a, sizeof a, zpd_loss_blocks(rows), 1, 1, ZPD_CE_THREADS);
}

void zpr_ce_grad(zpr *c, int loss, const void *logits, int64_t V, int64_t first_col, int64_t classes,
                 const int32_t *labels, const int32_t *lengths, const void *lse, zpk_targets targets, int64_t rows,
                 void *dlogits) {
  assert(V >= 1 && first_col >= 0 && classes >= 1 && rows >= 0 && loss >= 0 && loss < zpr_n_losses(c->program));
  const double *there = zpr_loss_scale_there(c);
  zpd_ce a = {.logits = logits,
              .lse = lse,
              .out = dlogits,
              .labels = labels,
              .lengths = lengths,
              .V = V,
              .first_col = first_col,
              .vocabulary = classes,
              .rows = rows,
              .scale = there ? c->token_weight[loss] * zpr_loss_weight(c->program, loss) : zpr_gradient_weight(c, loss),
              .smoothing = targets.smoothing,
              .z = targets.z,
              .loss_scale = there};
  zpr_launch(c, &c->state->device->kernels.ce_grad, &a, sizeof a, zpr_grid(c, rows), 1, 1, ZPD_CE_THREADS);
}

void zpr_sum_parts(zpr *c, const zpd_rank_sum *a) {
  if (a->count > 0) ZPR_START(c, sum_parts, a, zpr_flat_blocks(c, a->count));
}

void zpr_add(zpr *c, void *sum, const void *x, int64_t count) {
  zpr_sum_parts(c, &(zpd_rank_sum){.mine = sum, .others = x, .count = count, .n = 2});
}

void zpr_add_stochastic(zpr *c, const zpd_stochastic *a) {
  int64_t groups = (a->count + ZPD_FLAT_THREADS * ZPD_STOCHASTIC_BLOCK - 1) / (ZPD_FLAT_THREADS * ZPD_STOCHASTIC_BLOCK);
  ZPR_START(c, add_stochastic, a, zpr_grid(c, groups));
}

void zpr_widen_sums(zpr *c, float *to, const void *from, int64_t count) {
  zpr_widen_on_device(c, from, (char *)to, count);
}

void zpr_add_rounded(zpr *c, void *sum, const void *x, int64_t count) {
  zpr_sum_parts(c, &(zpd_rank_sum){.mine = sum, .rounded = x, .count = count, .n = 1});
}
