/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that a trainer calls, spread over the threads of its rank. Results do not depend on the number of
 * threads: tasks are independent, and where something is summed over rows it is summed over ZPK_CHUNKS fixed chunks, in
 * order. */
#include <assert.h>
#include <string.h>
#include "arena.h"
#include "device.h"
#include "state.h"

/* ---- generated row kernels ---- */

enum { MAX_SUMS = 16 };

typedef struct rows_task {
  const zpr_rows_call *call;
  zpk_row_args args;
} rows_task;

static int64_t chunk_begin(int64_t rows, int64_t chunk) { return rows * chunk / ZPK_CHUNKS; }

/* Chunks of fewer than ZPK_CHUNKS rows may be empty; they are skipped here and when sums are added. */
static void run_chunks(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const rows_task *task = arg;
  for (int64_t chunk = begin; chunk < end; chunk++) {
    int64_t first = chunk_begin(task->call->rows, chunk), last = chunk_begin(task->call->rows, chunk + 1);
    int64_t at = task->call->first;
    if (first < last) task->call->kernel(&task->args, at + first, at + last, chunk);
  }
}

static void add_sums(zpr *c, const zpr_rows_call *call, void *const *partial) {
  zpk_dtype real = zpk_real(c->program->dtype);
  for (int i = 0; i < call->n_sums; i++) {
    int64_t cols = call->sum_cols[i];
    const void *part[ZPK_CHUNKS + 1] = {call->sum[i]};
    int n = call->accumulate[i];
    for (int64_t chunk = 0; chunk < ZPK_CHUNKS; chunk++)
      if (chunk_begin(call->rows, chunk) < chunk_begin(call->rows, chunk + 1))
        part[n++] = (const char *)partial[i] + chunk * cols * zpk_bytes(real);
    if (n > 0) zpk_sum_parts(real, call->sum[i], part, n, 0, cols);
  }
}

void zpr_rows(zpr *c, const zpr_rows_call *call) {
  assert(call->rows >= 0 && call->n_sums >= 0 && (call->workspace || call->n_sums == 0));
  assert(call->first == 0 || call->n_sums == 0);
  assert(call->n_sums <= MAX_SUMS);
  void *partial[MAX_SUMS];
  char *at = call->workspace;
  for (int i = 0; i < call->n_sums; i++) {
    partial[i] = at;
    at += ZPK_CHUNKS * call->sum_cols[i] * zpk_real_bytes(c->program->dtype);
  }
  rows_task task = {.call = call,
                    .args = {.in = call->in,
                             .in_ld = call->in_ld,
                             .out = call->out,
                             .out_ld = call->out_ld,
                             .partial = partial,
                             .seed = c->program->seed,
                             .step = (uint64_t)c->step,
                             .instance = (uint64_t)call->instance,
                             .first_sample = call->first_sample,
                             .first_column = call->first_column,
                             .logical_columns = call->logical_columns,
                             .dropout = c->training}};
  zpr_comm_progress(c);
  if (call->rows == 1) /* waking other threads would cost more */
    run_chunks(&task, 0, ZPK_CHUNKS, 0);
  else
    zpr_parallel(c, ZPK_CHUNKS, 1, run_chunks, &task);
  add_sums(c, call, partial);
}

/* ---- lookups ---- */

enum { ROW_GRAIN = 16, COLUMN_GRAIN = 16 };

typedef struct lookup_task {
  zpk_dtype dtype;
  const int32_t *ids;
  const void *from;
  int64_t first_row, n_rows, rows, cols, ld, samples, S;
  bool accumulate;
  void *to;
} lookup_task;

ZPR_TASK(embedding, lookup_task,
         zpk_embedding(a->dtype, a->ids, a->from, a->first_row, a->n_rows, a->cols, a->to, begin, end))

void zpr_embedding(zpr *c, const int32_t *ids, const void *table, int64_t first_row, int64_t n_rows, int64_t rows,
                   int64_t cols, void *out) {
  assert(first_row >= 0 && n_rows >= 0 && rows >= 0 && cols >= 1);
  lookup_task a = {.dtype = c->program->dtype,
                   .ids = ids,
                   .from = table,
                   .first_row = first_row,
                   .n_rows = n_rows,
                   .cols = cols,
                   .to = out};
  zpr_parallel(c, rows, ROW_GRAIN, embedding, &a);
}

ZPR_TASK(embedding_grad, lookup_task,
         zpk_embedding_grad(a->dtype, a->ids, a->from, a->first_row, a->n_rows, a->rows, a->cols, a->to, begin, end))

void zpr_embedding_grad(zpr *c, const int32_t *ids, const void *dy, int64_t first_row, int64_t n_rows, int64_t rows,
                        int64_t cols, void *grad) {
  assert(first_row >= 0 && n_rows >= 0 && rows >= 0 && cols >= 1);
  lookup_task a = {.dtype = c->program->dtype,
                   .ids = ids,
                   .from = dy,
                   .first_row = first_row,
                   .n_rows = n_rows,
                   .rows = rows,
                   .cols = cols,
                   .to = grad};
  zpr_parallel(c, cols, COLUMN_GRAIN, embedding_grad, &a);
}

ZPR_TASK(position_grad, lookup_task,
         zpk_position_grad(a->dtype, a->from, a->ld, a->samples, a->S, a->cols, a->accumulate, a->to, begin, end))

void zpr_position_grad(zpr *c, const void *dy, int64_t ld, int64_t samples, int64_t S, int64_t cols, bool accumulate,
                       void *grad) {
  assert(ld >= cols && samples >= 1 && S >= 1 && cols >= 1);
  lookup_task a = {.dtype = c->program->dtype,
                   .from = dy,
                   .ld = ld,
                   .samples = samples,
                   .S = S,
                   .cols = cols,
                   .accumulate = accumulate,
                   .to = grad};
  zpr_parallel(c, S, ROW_GRAIN, position_grad, &a);
}

/* ---- attention ---- */

static void attention(void *arg, int64_t begin, int64_t end, int worker) {
  zpk_attention(arg, begin, end, zpr_workspace_share(arg, begin, worker));
}

static void attention_grad(void *arg, int64_t begin, int64_t end, int worker) {
  zpk_attention_grad(arg, begin, end, zpr_workspace_share(arg, begin, worker));
}

/* With --check-memory: does a share have as many bytes as the kernel needs? Then the shares of threads that did not
 * take part, which the plan reserves as well, count as written. */
static void run_checked(zpr *c, const zpk_attention_args *a, bool backward, zpr_task *task) {
  int64_t positions = backward || !a->keys ? a->S : a->keys, group = a->H / a->G, most = 0;
  int64_t share = zpk_attention_workspace(a->dtype, positions, a->hd, group, backward);
  char *shares = a->workspace;
  int64_t n = zpr_attention_shares(a->B, a->G);
  zpr_arena_forget(shares, n * share);
  zpr_parallel(c, a->B * a->G, 1, task, (void *)(uintptr_t)a);
  for (int64_t i = 0; i < n; i++) {
    int64_t written = zpr_arena_written(shares + i * share, share);
    if (written > most) most = written;
  }
  int64_t needed = most + zpk_attention_unwritten(a, backward);
  if (a->kv_heads_valid > 0 && needed < share)
    zpr_fail(c, "Z0840", "attention needs %lld bytes of workspace a thread, the plan reserves %lld", (long long)needed,
             (long long)share);
  shares[n * share - 1] = 0;
  if (a->buckets) ((char *)a->bias_lines)[n * zpk_attention_bias_line(a->dtype, a->S, group, backward) - 1] = 0;
}

static void run_attention(zpr *c, const zpk_attention_args *args, bool backward, zpr_task *task) {
  zpk_attention_args a = *args;
  a.dropout.seed = c->program->seed;
  a.dropout.step = (uint64_t)c->step;
  if (!c->training) a.dropout.rate = 0;
  zpr_comm_progress(c);
  if (c->state->options.check_memory)
    run_checked(c, &a, backward, task);
  else
    zpr_parallel(c, a.B * a.G, 1, task, &a);
  if (backward && a.d_bias) zpk_attention_bias_grad(&a);
}

void zpr_attention(zpr *c, const zpk_attention_args *args) {
  assert(args->G >= 1 && args->H % args->G == 0 && args->hd >= 1);
  run_attention(c, args, false, attention);
}

void zpr_attention_grad(zpr *c, const zpk_attention_args *args) {
  assert(args->G >= 1 && args->H % args->G == 0 && args->hd >= 1);
  run_attention(c, args, true, attention_grad);
}

/* ---- cross-entropy ---- */

typedef struct ce_task {
  zpk_dtype dtype;
  const void *logits, *stat;
  int64_t V, first_col, classes, rows;
  const int32_t *labels, *lengths;
  int ranks;
  zpk_targets targets;
  double scale;
  void *out; /* stat, lse or dlogits */
  const void *lse;
  double loss[ZPK_CHUNKS];
  int64_t right[ZPK_CHUNKS];
} ce_task;

ZPR_TASK(ce_stats, ce_task,
         zpk_ce_stats(a->dtype, a->logits, a->V, a->first_col, a->classes, a->labels, a->lengths, a->out, begin, end))

void zpr_ce_stats(zpr *c, int loss, const void *logits, int64_t V, int64_t first_col, int64_t classes,
                  const int32_t *labels, const int32_t *lengths, int64_t rows, void *stat) {
  assert(V >= 1 && first_col >= 0 && classes >= 1 && rows >= 0 && loss >= 0 && loss < zpr_n_losses(c->program));
  ce_task a = {.dtype = c->program->dtype,
               .logits = logits,
               .V = V,
               .first_col = first_col,
               .classes = classes,
               .labels = labels,
               .lengths = lengths,
               .out = stat};
  zpr_parallel(c, rows, ROW_GRAIN, ce_stats, &a);
  zpr_show(c, &(zpr_looked){loss, logits, 1, rows, V, classes, labels, lengths, 0});
}

static void ce_loss(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  ce_task *a = arg;
  for (int64_t chunk = begin; chunk < end; chunk++)
    a->loss[chunk] = zpk_ce_loss(a->dtype, a->stat, a->ranks, a->rows, a->classes, a->labels, a->out, &a->right[chunk],
                                 chunk_begin(a->rows, chunk), chunk_begin(a->rows, chunk + 1));
}

void zpr_ce_loss(zpr *c, int loss, const void *stat, int ranks, int64_t rows, int64_t classes, const int32_t *labels,
                 void *lse) {
  assert(ranks >= 1 && rows >= 0 && classes >= 1 && loss >= 0 && loss < zpr_n_losses(c->program));
  ce_task a = {.dtype = c->program->dtype,
               .stat = stat,
               .ranks = ranks,
               .rows = rows,
               .classes = classes,
               .labels = labels,
               .out = lse};
  zpr_parallel(c, ZPK_CHUNKS, 1, ce_loss, &a);
  double sum = 0;
  int64_t right = 0;
  for (int i = 0; i < ZPK_CHUNKS; i++) sum += a.loss[i], right += a.right[i];
  c->loss += sum * c->token_weight[loss] * zpr_loss_weight(c->program, loss);
  c->tally[loss].loss += sum * c->token_weight[loss];
  c->tally[loss].right += (double)right * c->token_weight[loss];
}

ZPR_TASK(ce_grad, ce_task,
         zpk_ce_grad(a->dtype, a->logits, a->V, a->first_col, a->classes, a->labels, a->lengths, a->lse, a->targets,
                     a->scale, a->out, begin, end))

void zpr_ce_grad(zpr *c, int loss, const void *logits, int64_t V, int64_t first_col, int64_t classes,
                 const int32_t *labels, const int32_t *lengths, const void *lse, zpk_targets targets, int64_t rows,
                 void *dlogits) {
  assert(V >= 1 && first_col >= 0 && classes >= 1 && rows >= 0 && loss >= 0 && loss < zpr_n_losses(c->program));
  ce_task a = {.dtype = c->program->dtype,
               .logits = logits,
               .V = V,
               .first_col = first_col,
               .classes = classes,
               .labels = labels,
               .lengths = lengths,
               .lse = lse,
               .targets = targets,
               .scale = zpr_gradient_weight(c, loss),
               .out = dlogits};
  zpr_parallel(c, rows, ROW_GRAIN, ce_grad, &a);
}

/* ---- bytes ---- */

enum { BYTES_GRAIN = 1 << 18 };

typedef struct bytes_task {
  char *dst;
  const char *src; /* NULL: zero */
} bytes_task;

static void move_bytes(void *arg, int64_t begin, int64_t end, int worker) {
  (void)worker;
  const bytes_task *a = arg;
  if (a->src)
    memcpy(a->dst + begin, a->src + begin, (size_t)(end - begin));
  else
    memset(a->dst + begin, 0, (size_t)(end - begin));
}

void zpr_copy(zpr *c, void *dst, const void *src, int64_t bytes) {
  assert(bytes >= 0 && ((dst && src) || bytes == 0));
  bytes_task a = {dst, src};
  zpr_parallel(c, bytes, BYTES_GRAIN, move_bytes, &a);
}

void zpr_zero(zpr *c, void *dst, int64_t bytes) {
  assert(bytes >= 0 && (dst || bytes == 0));
  bytes_task a = {dst, NULL};
  zpr_parallel(c, bytes, BYTES_GRAIN, move_bytes, &a);
}

typedef struct add_task {
  zpk_dtype dtype;
  void *sum;
  const void *part[2];
} add_task;

ZPR_TASK(add_range, add_task, zpk_sum_parts(a->dtype, a->sum, a->part, 2, begin, end))

void zpr_add(zpr *c, void *sum, const void *x, int64_t count) {
  add_task a = {zpk_real(c->program->dtype), sum, {sum, x}};
  zpr_parallel(c, count, 16384, add_range, &a);
}

ZPR_TASK(add_stochastic, zpd_stochastic, zpk_add_stochastic(a, begin, end))

void zpr_add_stochastic(zpr *c, const zpd_stochastic *a) {
  zpd_stochastic all = *a;
  zpr_parallel(c, a->count, 16384, add_stochastic, &all);
}

void zpr_widen_sums(zpr *c, float *to, const void *from, int64_t count) {
  (void)c;
  zpk_widen(ZPK_BF16, from, to, count);
}
