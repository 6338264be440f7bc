/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over columns. Each thread adds up the columns that it owns over the rows of its chunk: in registers, or where
 * these are too few in the chunk's share of partial[], which no other thread touches. Where warps take rows their sums
 * are added in order, in shared memory. Then the last of some neighbouring chunks to come here adds up what they have,
 * and the last of all chunks the sums of these groups, in order (zpd_rows.cuh): the sum does not depend on who that
 * is. */
#include "text.h"

static void start_sum(zp_cuda_text *t, const zp_row_sink *sink) {
  if (!t->sums_in_memory) {
    zp_buf_line(&t->out, "real sum_%s[%lld] = {0};", sink->name, (long long)zp_cuda_columns(t, sink->cols));
    return;
  }
  zp_buf_line(&t->out, "real *sum_%s = (real *)a.partial[%d] + (zpd_int)blockIdx.x * %lld;", sink->name, sink->index,
              (long long)sink->cols);
  zp_cuda_open_packs(t, sink->cols);
  zp_cuda_open_columns(t);
  zp_buf_line(&t->out, "sum_%s[c] = 0;", sink->name);
  zp_cuda_close_columns(t);
  zp_cuda_close_packs(t);
}

/* The sums of a pack of each lane, of all warps, go to one row of columns. */
static void add_warps(zp_cuda_text *t, const zp_row_sink *sink) {
  long long cols = (long long)sink->cols;
  const char *slot = zp_cuda_slot(t, sink->cols), *from = "(int)blockIdx.y * columns";
  if (t->sharing == ZP_CUDA_WARPS) {
    zp_buf_line(&t->out, "#pragma unroll");
    zp_cuda_open(t, zp_format(t->arena, "for (int i = 0; i < %lld; i++) {", (long long)zp_cuda_packs(t, sink->cols)));
    from = "i * columns";
  }
  if (t->vec > 1) {
    zp_buf_line(&t->out, "real pack[ZPD_VEC];");
    zp_buf_line(&t->out, "ZPD_EACH (k, ZPD_VEC) pack[k] = sum_%s[%s];", sink->name, slot);
    zp_buf_line(&t->out, "zpd_store_sums(&of_warps[warp][thread * ZPD_VEC], pack);");
  } else
    zp_buf_line(&t->out, "of_warps[warp][thread] = sum_%s[%s];", sink->name, slot);
  zp_buf_line(&t->out, "__syncthreads();");
  zp_buf_line(&t->out, "const int at = %s + (int)threadIdx.x;", from);
  zp_cuda_open(t, zp_format(t->arena, "if ((int)threadIdx.x < columns && at < %lld) {", cols));
  zp_buf_line(&t->out, "real sum = 0;");
  zp_buf_line(&t->out, "for (int w = 0; w < ZPD_WARPS; w++) sum += of_warps[w][threadIdx.x];");
  zp_buf_line(&t->out, "partial_%s[at] = sum;", sink->name);
  zp_cuda_close(t);
  zp_buf_line(&t->out, "__syncthreads();");
  if (t->sharing == ZP_CUDA_WARPS) zp_cuda_close(t);
}

/* The columns of a thread's pack stand side by side, and leave as packs do. */
static void store_sums(zp_cuda_text *t, const zp_row_sink *sink) {
  const char *slot = zp_cuda_slot(t, sink->cols);
  if (t->vec == 1) {
    zp_buf_line(&t->out, "partial_%s[c] = sum_%s[%s];", sink->name, sink->name, slot);
    return;
  }
  zp_buf_line(&t->out, "real pack[ZPD_VEC];");
  zp_buf_line(&t->out, "ZPD_EACH (k, ZPD_VEC) pack[k] = sum_%s[%s];", sink->name, slot);
  zp_buf_line(&t->out, "zpd_store_sums(partial_%s + first, pack);", sink->name);
}

static void end_sum(zp_cuda_text *t, const zp_row_sink *sink) {
  if (t->sums_in_memory) return;
  zp_cuda_open(t, "{");
  zp_buf_line(&t->out, "real *partial_%s = (real *)a.partial[%d] + (zpd_int)blockIdx.x * %lld;", sink->name,
              sink->index, (long long)sink->cols);
  if (t->sharing != ZP_CUDA_BLOCK) {
    add_warps(t, sink);
  } else {
    zp_cuda_open_packs(t, sink->cols);
    store_sums(t, sink);
    zp_cuda_close_packs(t);
  }
  zp_cuda_close(t);
}

/* Sums that are on their way at a time: the threads of tiles have fewer registers and fewer columns. */
static int at_once(const zp_cuda_text *t) { return t->sharing == ZP_CUDA_TILES ? 8 : 16; }

static void add_group(zp_cuda_text *t, const zp_row_sink *sink) {
  zp_buf_line(&t->out, "zpd_add_chunks_of_group<%d>(a, %d, %lld, from, to);", at_once(t), sink->index,
              (long long)sink->cols);
}

static void add_groups(zp_cuda_text *t, const zp_row_sink *sink) {
  zp_buf_line(&t->out, "zpd_add_groups<%d>(a, %d, %lld, from, to);", at_once(t), sink->index, (long long)sink->cols);
}

static void each_sum(zp_cuda_text *t, void (*print)(zp_cuda_text *, const zp_row_sink *)) {
  for (int i = 0; i < t->program->sinks.len; i++)
    if (t->program->sinks.data[i].kind == ZP_ROW_CSUM) print(t, &t->program->sinks.data[i]);
}

void zp_cuda_start_sums(zp_cuda_text *t) { each_sum(t, start_sum); }

void zp_cuda_end_sums(zp_cuda_text *t) {
  if (t->program->n_partial == 0) return;
  if (t->sharing != ZP_CUDA_BLOCK) {
    zp_buf_line(&t->out, "const int columns = ZPD_WARP%s;", t->vec > 1 ? " * ZPD_VEC" : "");
    zp_buf_line(&t->out, "alignas(16) __shared__ real of_warps[ZPD_WARPS][%d];", ZP_CUDA_WARP * t->vec);
  }
  each_sum(t, end_sum);
  if (t->sharing == ZP_CUDA_TILES)
    zp_buf_line(&t->out, "const int from = (int)blockIdx.y * columns, to = from + columns;");
  else
    zp_buf_line(&t->out, "const int from = 0, to = %lld;", (long long)zp_cuda_longest(t->program));
  zp_buf_line(&t->out, "if (!zpd_is_last_of_group(a)) return;");
  each_sum(t, add_group);
  zp_buf_line(&t->out, "if (!zpd_is_last_group(a)) return;");
  each_sum(t, add_groups);
}
