/* SPDX-License-Identifier: Apache-2.0 */
/* Row programs as CUDA C, run by the emulator on the host: against the f64 interpreter, for all models, with odd
 * numbers of rows and every way to cut them; then what the text itself must hold to. */
#include "cuda_objects.h"
#include "rowprog_testing.h"

static const char *text_of(const zp_kernel_set *set) {
  const char *error = NULL, *text = zp_kernels_cuda_text(set, &error);
  cr_assert_not_null(text, "%s", error);
  return text;
}

/* Tiles of columns of a kernel's grid. */
static unsigned tiles_of(const zp_kernel_set *set, const char *kernel) {
  for (int i = 0; i < zp_kernels_count(set); i++) {
    int tiles = zp_kernels_cuda_tiles(set, i);
    if (strcmp(zp_kernels_symbol(set, i), kernel) == 0) return tiles > 0 ? (unsigned)tiles : 1;
  }
  cr_assert_fail("no kernel %s", kernel);
  return 0;
}

/* ---- one call ---- */

typedef struct node_test {
  const host_object *object;
  const row_world *world;
  const zp_node *node;
  const zp_row_program *program;
  const char *kernel;
  unsigned tiles;
  double bound;
  zpk_dtype type;
} node_test;

typedef struct device_call {
  row_call call;
  void *sum[ZPD_OPERANDS];
  unsigned accumulate;
} device_call;

/* What a sum over columns is added to, if it is. */
static double before(int64_t column) { return 0.25 * (double)(column % 5); }

static double worse(double worst, double got, double want) {
  double error = fabs(got - want) / (1 + fabs(want));
  return error <= worst ? worst : isnan(error) ? INFINITY : error;
}

/* Largest |got - want| / (1 + |want|) over rows [0, rows) and the sums over columns, which have the chunks of `want`;
 * infinite where anything else was written. */
static double call_error(const device_call *device, const row_call *want, int64_t rows, int64_t chunks) {
  const row_call *got = &device->call;
  double worst = 0;
  for (int o = 0; o < got->n_out; o++)
    for (int64_t i = 0, ld = got->out_ld[o]; i < ROW_ROWS * ld; i++) {
      double x = get(got->out[o], i, got->type);
      bool inside = i % ld < got->out_cols[o] && i / ld < rows;
      worst = inside ? worse(worst, x, get(want->out[o], i, ZPK_F64)) : isnan(x) ? worst : INFINITY;
    }
  for (int p = 0; p < got->n_partial; p++) {
    int64_t n = got->partial_cols[p];
    for (int64_t j = 0; j < n; j++) {
      double sum = device->accumulate >> p & 1 ? before(j) : 0;
      for (int64_t chunk = 0; chunk < chunks; chunk++) sum += get(want->partial[p], chunk * n + j, ZPK_F64);
      worst = worse(worst, get(device->sum[p], j, real_of(got->type)), sum);
    }
    for (int64_t i = chunks * n; i < ROW_MAX_CHUNKS * n; i++)
      if (!isnan(get(got->partial[p], i, real_of(got->type)))) worst = INFINITY;
  }
  return worst;
}

/* pad: columns between rows, where an odd number keeps rows from beginning at multiples of 16 bytes. Every second sum
 * is added to what is there. */
static device_call run_on_device(const node_test *t, int64_t rows, int chunks, unsigned grid, int64_t pad) {
  device_call d = {.call = row_call_new(t->world, t->node, pad, t->type), .accumulate = 0xAAAA};
  const row_call *call = &d.call;
  unsigned *tickets = calloc(t->tiles * ZPD_TICKETS_OF_TILE, sizeof *tickets);
  zpd_rows a = {.rows = rows,
                .seed = call->args.seed,
                .step = call->args.step,
                .instance = call->args.instance,
                .first_sample = call->args.first_sample,
                .first_column = call->args.first_column,
                .logical_columns = call->args.logical_columns,
                .dropout = call->args.dropout,
                .tickets = tickets,
                .accumulate = d.accumulate,
                .chunks = chunks};
  cr_assert(t->program->n_in <= ZPD_OPERANDS && call->n_out <= ZPD_OPERANDS && call->n_partial <= ZPD_OPERANDS);
  for (int i = 0; i < t->program->n_in; i++) a.in[i] = call->in[i], a.in_ld[i] = call->in_ld[i];
  for (int i = 0; i < call->n_out; i++) a.out[i] = call->out[i], a.out_ld[i] = call->out_ld[i];
  for (int i = 0; i < call->n_partial; i++) {
    a.partial[i] = call->partial[i];
    a.sum[i] = d.sum[i] = zp_alloc(t->world->k.arena, (size_t)(call->partial_cols[i] * 8));
    for (int64_t j = 0; j < call->partial_cols[i]; j++) put(d.sum[i], j, before(j), real_of(t->type));
  }
  if (call->n_partial == 0 && rows > 1) { /* some rows by themselves, as decoding asks for them */
    a.rows = rows / 3 + 1;
    cr_assert_eq(host_run_tiles(t->object, t->kernel, &a, grid, t->tiles, ZPD_ROW_THREADS), 0);
    a.first = a.rows;
    a.rows = rows;
  }
  cr_assert_eq(host_run_tiles(t->object, t->kernel, &a, grid, t->tiles, ZPD_ROW_THREADS), 0);
  for (unsigned i = 0; i < t->tiles * ZPD_TICKETS_OF_TILE; i++) cr_assert_eq(tickets[i], 0, "%s", t->kernel);
  free(tickets);
  return d;
}

static void check_call(const node_test *t, int64_t rows, int chunks, unsigned grid, int64_t pad) {
  device_call got = run_on_device(t, rows, chunks, grid, pad);
  row_call want = row_call_new(t->world, t->node, pad, ZPK_F64);
  for (int64_t chunk = 0; chunk < chunks; chunk++)
    zp_row_interpret(t->program, &want.args, rows * chunk / chunks, rows * (chunk + 1) / chunks, chunk);
  double error = call_error(&got, &want, rows, chunks);
  cr_assert_lt(error, t->bound, "%s, %lld rows, %d chunks, grid %u, pad %lld: error %g\n%s", t->kernel, (long long)rows,
               chunks, grid, (long long)pad, error, zp_row_text(t->program));
}

/* Bitwise: rows do not depend on the grid, on how they are cut into chunks, nor on whether packs can be moved. */
static void check_same_bits(const node_test *t, int chunks_a, unsigned grid_a, int chunks_b, unsigned grid_b) {
  device_call a = run_on_device(t, ROW_ROWS, chunks_a, grid_a, 8), b = run_on_device(t, ROW_ROWS, chunks_b, grid_b, 3);
  int64_t size = zpk_bytes(t->type);
  for (int o = 0; o < a.call.n_out; o++)
    for (int64_t row = 0; row < ROW_ROWS; row++)
      cr_assert_eq(memcmp((char *)a.call.out[o] + row * a.call.out_ld[o] * size,
                          (char *)b.call.out[o] + row * b.call.out_ld[o] * size, (size_t)(a.call.out_cols[o] * size)),
                   0, "%s, output %d, row %lld", t->kernel, o, (long long)row);
}

static void check_node(const node_test *t) {
  static const int64_t rows[] = {ROW_ROWS, 7, 1};
  static const int chunks[] = {1, 8, 64};
  static const unsigned grids[] = {1, 5, 40};
  for (int r = 0; r < 3; r++)
    for (int i = 0; i < 3; i++) {
      bool sums = t->program->n_partial > 0;
      check_call(t, rows[r], sums ? chunks[i] : 1, sums ? (unsigned)chunks[i] : grids[i], i == 1 ? 8 : 3);
    }
  if (t->program->n_partial)
    check_same_bits(t, 1, 1, 64, 64);
  else
    check_same_bits(t, 1, 1, 1, 5);
}

/* Node n of model i, whose kernel is in the set already. */
static node_test test_of(row_models *m, const host_object *object, int i, int n, zpk_dtype dtype) {
  node_test t = {.object = object, .world = &m->world[i], .node = &m->world[i].graph->nodes.data[n], .type = dtype};
  t.program = zp_row_from_node(m->arena, NULL, t.node);
  t.kernel = zp_kernels_add(m->set, t.world->graph, t.node, "lookup");
  t.tiles = tiles_of(m->set, t.kernel);
  return t;
}

static void check_models(const int64_t *sizes, int n_sizes, zpk_dtype dtype, double bound) {
  if (n_sizes == 0) return;
  row_models *m = calloc(1, sizeof *m);
  row_models_open(m, sizes, n_sizes, dtype);
  host_object object = host_load(text_of(m->set), dtype);
  for (int i = 0; i < m->count && zpk_is_narrow(dtype); i++) round_world(&m->world[i], dtype);
  for (int i = 0; i < m->count; i++)
    for (int n = 0; n < m->world[i].graph->nodes.len; n++) {
      if (!is_fused(&m->world[i].graph->nodes.data[n])) continue;
      node_test t = test_of(m, &object, i, n, dtype);
      t.bound = bound;
      check_node(&t);
    }
  host_unload(&object);
  row_models_close(m);
  free(m);
}

/* Sanitizers, whose compilation takes several times longer, see half of the sizes, in bf16; the other build the other
 * half, against the same interpreter. */
static void check_shapes(const int64_t *sizes, int n_sizes, zpk_dtype dtype) {
  const double bounds[] = {
      [ZPK_F32] = f32_bound, [ZPK_F64] = f64_bound, [ZPK_BF16] = bf16_bound, [ZPK_F16] = f16_bound};
  double bound = bounds[dtype];
  int half = n_sizes / 2;
  if (!sanitized)
    check_models(sizes, dtype == ZPK_BF16 ? half : n_sizes, dtype, bound);
  else if (dtype == ZPK_BF16)
    check_models(sizes + half, n_sizes - half, dtype, bound);
  else
    cr_skip_test("sanitizers see bf16");
}

/* The text of f16 is that of bf16 but for the conversions, f64 has one element where f32 has a pack of two, and the
 * text of wide rows differs in the dtype by the length of a pack alone: small sizes and f32 show these. */
static const int64_t small[] = {1, 12, 5}, large[] = {17, 768, 96, 300}, wide[] = {3073};

Test(rowprog_cuda, f64_small) { check_shapes(small, 3, ZPK_F64); }
Test(rowprog_cuda, f32_small) { check_shapes(small, 3, ZPK_F32); }
Test(rowprog_cuda, f32_large) { check_shapes(large, 4, ZPK_F32); }
Test(rowprog_cuda, f32_wide) { check_shapes(wide, 1, ZPK_F32); }
Test(rowprog_cuda, bf16_small) { check_shapes(small, 3, ZPK_BF16); }
Test(rowprog_cuda, bf16_large) { check_shapes(large, 4, ZPK_BF16); }

Test(rowprog_cuda, f16_small) { check_shapes(small, 3, ZPK_F16); }

/* ---- watched ---- */

/* Sectors of one launch over so many rows: the object counts all launches of a kernel together. */
static zpd_host_counts sectors_of(const node_test *t, const host_object *object, int64_t rows) {
  run_on_device(t, rows, t->program->n_partial ? 2 : 1, 2, 16);
  zpd_host_counts before = host_counts(object, t->kernel);
  run_on_device(t, rows, t->program->n_partial ? 2 : 1, 2, 16);
  zpd_host_counts both = host_counts(object, t->kernel);
  both.sectors_asked -= before.sectors_asked, both.sectors_moved -= before.sectors_moved;
  return both;
}

static void expect_asked(const node_test *t, zpd_host_counts c, double share) {
  cr_expect(c.sectors_moved > 0 && (double)c.sectors_asked >= share * (double)c.sectors_moved,
            "%s: %ld of %ld sectors\n%s", t->kernel, c.sectors_asked, c.sectors_moved, zp_row_text(t->program));
}

/* No race in shared memory, and nine tenths of the sectors of global memory that move for the rows are asked for, where
 * rows begin at multiples of 32 bytes. Column sums in f32 are stored and added once a chunk, in strides: with six rows
 * a chunk, seven tenths of all. */
Test(rowprog_cuda, bf16_rows_move_what_they_ask_for) {
  static const int64_t columns[] = {768};
  row_models *m = calloc(1, sizeof *m);
  row_models_open(m, columns, 1, ZPK_BF16);
  host_object object = host_load_as(text_of(m->set), ZPK_BF16, true);
  int kernels = 0;
  for (int i = 0; i < m->count; i++)
    for (int n = 0; n < m->world[i].graph->nodes.len; n++) {
      if (!is_fused(&m->world[i].graph->nodes.data[n])) continue;
      node_test t = test_of(m, &object, i, n, ZPK_BF16);
      zpd_host_counts c = sectors_of(&t, &object, ROW_ROWS);
      expect_asked(&t, c, t.program->n_partial ? 0.7 : 0.9);
      if (t.program->n_partial) {
        zpd_host_counts few = sectors_of(&t, &object, ROW_S);
        c.sectors_asked -= few.sectors_asked, c.sectors_moved -= few.sectors_moved;
        expect_asked(&t, c, 0.9);
      }
      kernels++;
    }
  cr_expect_gt(kernels, 10);
  host_unload(&object);
  row_models_close(m);
  free(m);
}

/* ---- dropout ---- */

/* Rank 1 of 2 in rows of 2 * n columns. Threads have 2, 2 and 33 columns (two words of bits); rows start anywhere
 * relative to groups of four. */
static void check_dropout(int64_t n, double rate) {
  kit k = kit_new(ROW_S, 1, n);
  k.streams = 11;
  carry_out(&k, dropout(&k, "drop", k.graph->carry_in.data[0], rate));
  zp_graph *graph = zp_fuse(zp_graph_localize_trivial(k.graph));
  zp_kernel_set *set = zp_kernels_new(k.arena, ZPK_F32);
  const char *symbol = zp_kernels_add(set, graph, &graph->nodes.data[0], "drop");
  host_object object = host_load(text_of(set), ZPK_F32);
  float *x = ZP_NEW_ARRAY(k.arena, float, ROW_ROWS *n), *y = ZP_NEW_ARRAY(k.arena, float, ROW_ROWS *n);
  for (int64_t i = 0; i < ROW_ROWS * n; i++) x[i] = 1;
  zpd_rows a = {.in = {x}, .in_ld = {n}, .out = {y}, .out_ld = {n}, .rows = ROW_ROWS, .seed = 0xfedcba9876543210ull};
  a.step = 12345;
  a.instance = 9;
  a.first_sample = 70;
  a.first_column = n;
  a.logical_columns = 2 * n;
  a.dropout = a.chunks = 1;
  cr_assert_eq(host_run_tiles(&object, symbol, &a, 3, tiles_of(set, symbol), ZPD_ROW_THREADS), 0);
  for (int64_t row = 0; row < ROW_ROWS; row++)
    for (int64_t c = 0; c < n; c++) {
      double u = zp_philox_uniform(a.seed, a.step, (uint64_t)(70 + row / ROW_S), 11, a.instance,
                                   (uint64_t)(row % ROW_S * 2 * n + n + c));
      float want = u < rate ? 0 : (float)(1 / (1 - rate));
      cr_assert_eq(y[row * n + c], want, "rate %g row %lld column %lld", rate, (long long)row, (long long)c);
    }
  a.dropout = 0;
  cr_assert_eq(host_run_tiles(&object, symbol, &a, 3, tiles_of(set, symbol), ZPD_ROW_THREADS), 0);
  cr_assert_eq(memcmp(x, y, sizeof *x * (size_t)(ROW_ROWS * n)), 0, "dropout that is off must be the identity");
  host_unload(&object);
  kit_free(&k);
}

Test(rowprog_cuda, dropout_numbers_are_those_of_the_stream) {
  check_dropout(37, 0.1);
  check_dropout(301, 0.999);
  check_dropout(33 * ZPD_ROW_THREADS - 5, 0.5);
}

/* ---- NaN and infinities ---- */

Test(rowprog_cuda, nan_and_infinity_pass_through) {
  enum { N = 21 };
  static const zp_op ops[] = {ZP_OP_EXP,  ZP_OP_LOG,  ZP_OP_SQRT, ZP_OP_RSQRT,   ZP_OP_TANH,      ZP_OP_SIGMOID,
                              ZP_OP_RELU, ZP_OP_SILU, ZP_OP_GELU, ZP_OP_SOFTMAX, ZP_OP_LEAKY_RELU};
  kit k = kit_new(1, 1, N);
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    carry_out(&k, apply(&k, ops[i], (zp_op_attr){.value = 0.5}, zp_op_name(ops[i]), k.graph->carry_in.data[0], -1, -1));
  zp_graph *graph = zp_fuse(zp_graph_localize_trivial(k.graph));
  zp_kernel_set *set = zp_kernels_new(k.arena, ZPK_F32);
  const char *symbol = zp_kernels_add(set, graph, &graph->nodes.data[0], "all");
  host_object object = host_load(text_of(set), ZPK_F32);
  float x[N] = {0}, y[11][N];
  x[0] = x[20] = NAN;
  zpd_rows a = {.in = {x}, .in_ld = {N}, .rows = 1, .chunks = 1};
  for (int i = 0; i < 11; i++) a.out[i] = y[i], a.out_ld[i] = N;
  cr_assert_eq(host_run_tiles(&object, symbol, &a, 1, tiles_of(set, symbol), ZPD_ROW_THREADS), 0);
  for (int i = 0; i < 11; i++) {
    cr_assert(isnan(y[i][0]) && isnan(y[i][20]), "%s", zp_op_name(ops[i]));
    cr_assert_eq(isnan(y[i][7]), ops[i] == ZP_OP_SOFTMAX, "%s spreads NaN", zp_op_name(ops[i]));
  }
  x[0] = INFINITY;
  x[20] = -INFINITY;
  cr_assert_eq(host_run_tiles(&object, symbol, &a, 1, tiles_of(set, symbol), ZPD_ROW_THREADS), 0);
  static const float above[] = {INFINITY, INFINITY, INFINITY, 0, 1, 1, INFINITY, INFINITY, INFINITY};
  for (int i = 0; i < 9; i++) cr_assert_eq(y[i][0], above[i], "%s(inf) = %g", zp_op_name(ops[i]), y[i][0]);
  cr_assert_eq(y[0][20], 0, "exp(-inf) = %g", y[0][20]);
  cr_assert(isnan(y[1][20]), "log(-inf)");
  cr_assert_eq(y[4][20], -1, "tanh(-inf) = %g", y[4][20]);
  cr_assert_eq(y[5][20], 0, "sigmoid(-inf) = %g", y[5][20]);
  cr_assert(y[10][0] == INFINITY && y[10][20] == -INFINITY, "leaky_relu");
  host_unload(&object);
  kit_free(&k);
}

/* ---- rounding to other types ---- */

Test(rowprog_cuda, casts_round_as_the_types_do) {
  kit k = kit_new(1, 1, N_CASTS);
  zp_graph *graph = cast_graph(&k);
  zp_kernel_set *set = zp_kernels_new(k.arena, ZPK_F64);
  const char *symbol = zp_kernels_add(set, graph, &graph->nodes.data[0], "casts");
  host_object object = host_load(text_of(set), ZPK_F64);
  double x[N_CASTS], y[3][N_CASTS];
  for (int i = 0; i < N_CASTS; i++) x[i] = cast_cases[i].x;
  zpd_rows a = {.in = {x}, .in_ld = {N_CASTS}, .rows = 1, .chunks = 1};
  for (int i = 0; i < 3; i++) a.out[i] = y[i], a.out_ld[i] = N_CASTS;
  cr_assert_eq(host_run_tiles(&object, symbol, &a, 1, tiles_of(set, symbol), ZPD_ROW_THREADS), 0);
  for (int i = 0; i < N_CASTS; i++) {
    const cast_case *c = &cast_cases[i];
    double got = y[c->op - ZP_OP_CAST_BF16][i];
    cr_expect_eq(got, c->want, "%s of %a: %a, not %a", zp_op_name(c->op), c->x, got, c->want);
  }
  host_unload(&object);
  kit_free(&k);
}

/* ---- rotary embedding: late positions, and heads whose cosines do not fit into shared memory ---- */

static void check_rotary(int64_t positions, int64_t n, int64_t heads, bool interleaved) {
  enum { ROWS = 3 };
  kit k = kit_new(positions, 1, n);
  zp_op_attr attr = {.heads = heads, .theta = 10000, .interleaved = interleaved};
  carry_out(&k, apply(&k, ZP_OP_ROPE, attr, "rope", k.graph->carry_in.data[0], -1, -1));
  zp_graph *graph = zp_fuse(zp_graph_localize_trivial(k.graph));
  zp_kernel_set *set = zp_kernels_new(k.arena, ZPK_F64);
  const char *symbol = zp_kernels_add(set, graph, &graph->nodes.data[0], "rope");
  host_object object = host_load(text_of(set), ZPK_F64);
  int64_t count = positions * n;
  double *x = ZP_NEW_ARRAY(k.arena, double, count), *y = ZP_NEW_ARRAY(k.arena, double, count);
  double *want = ZP_NEW_ARRAY(k.arena, double, count);
  for (int64_t i = 0; i < count; i++) x[i] = 1 + (double)(i % 13);
  zpd_rows a = {.in = {x}, .in_ld = {n}, .out = {y}, .out_ld = {n}, .rows = positions, .chunks = 1};
  cr_assert_eq(host_run_tiles(&object, symbol, &a, ROWS, tiles_of(set, symbol), ZPD_ROW_THREADS), 0);
  zpk_row_args args = {.in = (const void *const[]){x}, .in_ld = &n, .out = (void *const[]){want}, .out_ld = &n};
  zp_row_interpret(zp_row_from_node(k.arena, NULL, &graph->nodes.data[0]), &args, 0, positions, 0);
  for (int64_t i = 0; i < count; i++) cr_assert_float_eq(y[i], want[i], 1e-12, "element %lld", (long long)i);
  host_unload(&object);
  kit_free(&k);
}

Test(rowprog_cuda, rotary) {
  check_rotary(1000, 8, 2, false);
  check_rotary(1000, 8, 2, true);
  check_rotary(5, 4100, 1, false);
  check_rotary(5, 4100, 1, true);
}

/* ---- the text ---- */

Test(rowprog_cuda, text_is_deterministic_and_reads_like_the_model) {
  row_world a = row_world_new(&row_cases[3], 96), b = row_world_new(&row_cases[3], 96);
  const char *text[2];
  row_world *world[] = {&a, &b};
  for (int i = 0; i < 2; i++) {
    zp_kernel_set *set = zp_kernels_new(world[i]->k.arena, ZPK_F32);
    zp_kernels_add(set, world[i]->graph, first_node(world[i], ZP_OP_FUSED), "h.ln 1");
    text[i] = text_of(set);
  }
  cr_assert_str_eq(text[0], text[1]);
  cr_assert_not_null(strstr(text[0], "ZPD_KERNEL(row_h_ln_1, zpd_rows) {"), "%s", text[0]);
  cr_assert_not_null(strstr(text[0], "layer_norm("), "%s", text[0]);
  if (*ZPLAN_SOURCE_DIR) cr_assert_null(strstr(text[0], ZPLAN_SOURCE_DIR)); /* packed programs do not know it */
  row_world_free(&a);
  row_world_free(&b);
}

Test(rowprog_cuda, more_operands_than_a_launch_holds_are_refused) {
  kit k = kit_new(ROW_S, 1, 8);
  int x = k.graph->carry_in.data[0];
  for (int i = 0; i <= ZPD_OPERANDS; i++) {
    char name[16];
    snprintf(name, sizeof name, "b%d", i);
    x = op2(&k, ZP_OP_ADD, x, param(&k, name, shape1(8)));
  }
  carry_out(&k, x);
  zp_graph *graph = zp_fuse(zp_graph_localize_trivial(k.graph));
  zp_kernel_set *set = zp_kernels_new(k.arena, ZPK_F32);
  zp_kernels_add(set, graph, &graph->nodes.data[0], "many");
  const char *error = NULL;
  cr_assert_null(zp_kernels_cuda_text(set, &error));
  cr_assert_not_null(strstr(error, "row_many"), "%s", error);
  cr_assert_not_null(strstr(error, "18 operands"), "%s", error);
  kit_free(&k);
}
