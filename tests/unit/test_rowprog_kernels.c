/* SPDX-License-Identifier: Apache-2.0 */
/* Properties of compiled row kernels: random numbers, special values, long rotary tables, the object file itself. */
#include "rowprog_objects.h"

#include <dirent.h>
#include <sys/stat.h>

/* ---- dropout ---- */

static zp_graph *dropout_graph(kit *k, double rate) {
  carry_out(k, dropout(k, "drop", k->graph->carry_in.data[0], rate));
  return zp_fuse(zp_graph_localize_trivial(k->graph));
}

/* Rank 1 of 2 in a row of 2 * n columns, and rows that start anywhere relative to groups of four. */
Test(rowprog_kernels, dropout_numbers_are_those_of_the_stream) {
  enum { N = 37 };
  static const double rates[] = {0.1, 0.5, 0.999};
  for (int r = 0; r < 3; r++) {
    kit k = kit_new(ROW_S, 1, N);
    k.streams = 11;
    zp_graph *graph = dropout_graph(&k, rates[r]);
    zp_kernel_set *set = zp_kernels_new(k.arena, ZPK_F32);
    const char *symbol = zp_kernels_add(set, graph, &graph->nodes.data[0], "drop");
    loaded_set l = load_set(set, NULL, NULL);
    zpk_row_kernel *kernel = (zpk_row_kernel *)find_symbol(&l, symbol);
    float x[ROW_ROWS * N], y[ROW_ROWS * N];
    for (int i = 0; i < ROW_ROWS * N; i++) x[i] = 1;
    int64_t ld = N;
    zpk_row_args args = {.in = (const void *const[]){x},
                         .in_ld = &ld,
                         .out = (void *const[]){y},
                         .out_ld = &ld,
                         .seed = UINT64_C(0xfedcba9876543210),
                         .step = 12345,
                         .instance = 9,
                         .first_sample = 70,
                         .first_column = N,
                         .logical_columns = 2 * N,
                         .dropout = true};
    kernel(&args, 0, ROW_ROWS, 0);
    for (int row = 0; row < ROW_ROWS; row++)
      for (int c = 0; c < N; c++) {
        double u = zp_philox_uniform(args.seed, args.step, (uint64_t)(70 + row / ROW_S), 11, args.instance,
                                     (uint64_t)(row % ROW_S * 2 * N + N + c));
        float want = u < rates[r] ? 0 : (float)(1 / (1 - rates[r]));
        cr_assert_eq(y[row * N + c], want, "rate %g row %d column %d: %g", rates[r], row, c, y[row * N + c]);
      }
    args.dropout = false;
    kernel(&args, 0, ROW_ROWS, 0);
    cr_assert_eq(memcmp(x, y, sizeof x), 0, "dropout that is off must be the identity");
    unload_set(&l);
    kit_free(&k);
  }
}

/* ---- NaN, infinities, empty ranges ---- */

Test(rowprog_kernels, nan_and_infinity_pass_through) {
  enum { N = 21 };
  static const zp_op ops[] = {ZP_OP_EXP,  ZP_OP_LOG,  ZP_OP_SQRT, ZP_OP_RSQRT,   ZP_OP_TANH,      ZP_OP_SIGMOID,
                              ZP_OP_RELU, ZP_OP_SILU, ZP_OP_GELU, ZP_OP_SOFTMAX, ZP_OP_LEAKY_RELU};
  kit k = kit_new(1, 1, N);
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
    carry_out(&k, apply(&k, ops[i], (zp_op_attr){.value = 0.5}, zp_op_name(ops[i]), k.graph->carry_in.data[0], -1, -1));
  zp_graph *graph = zp_fuse(zp_graph_localize_trivial(k.graph));
  zp_kernel_set *set = zp_kernels_new(k.arena, ZPK_F32);
  const char *symbol = zp_kernels_add(set, graph, &graph->nodes.data[0], "all");
  cr_assert_eq(graph->nodes.len, 1);
  loaded_set l = load_set(set, NULL, NULL);
  float x[N] = {0}, y[11][N];
  x[0] = x[20] = NAN;
  void *out[11];
  int64_t ld[11];
  for (int i = 0; i < 11; i++) out[i] = y[i], ld[i] = N;
  zpk_row_args args = {.in = (const void *const[]){x}, .in_ld = ld, .out = out, .out_ld = ld};
  zpk_row_kernel *kernel = (zpk_row_kernel *)find_symbol(&l, symbol);
  kernel(&args, 0, 1, 0);
  for (int i = 0; i < 11; i++) {
    cr_assert(isnan(y[i][0]) && isnan(y[i][20]), "%s", zp_op_name(ops[i]));
    cr_assert_eq(isnan(y[i][7]), ops[i] == ZP_OP_SOFTMAX, "%s spreads NaN", zp_op_name(ops[i]));
  }
  x[0] = INFINITY;
  x[20] = -INFINITY;
  kernel(&args, 0, 1, 0);
  static const float above[] = {INFINITY, INFINITY, INFINITY, 0, 1, 1, INFINITY, INFINITY, INFINITY};
  for (int i = 0; i < 9; i++) cr_assert_eq(y[i][0], above[i], "%s(inf) = %g", zp_op_name(ops[i]), y[i][0]);
  cr_assert_eq(y[0][20], 0, "exp(-inf) = %g", y[0][20]);
  cr_assert(isnan(y[1][20]), "log(-inf)");
  cr_assert_eq(y[4][20], -1, "tanh(-inf) = %g", y[4][20]);
  cr_assert_eq(y[5][20], 0, "sigmoid(-inf) = %g", y[5][20]);
  cr_assert(y[10][0] == INFINITY && y[10][20] == -INFINITY, "leaky_relu");
  cr_assert_eq(y[1][7], -INFINITY, "log(0) = %g", y[1][7]);
  unload_set(&l);
  kit_free(&k);
}

/* ---- rounding to other types ---- */

static void check_casts(zpk_dtype dtype) {
  kit k = kit_new(1, 1, N_CASTS);
  zp_graph *graph = cast_graph(&k);
  zp_kernel_set *set = zp_kernels_new(k.arena, dtype);
  const char *symbol = zp_kernels_add(set, graph, &graph->nodes.data[0], "casts");
  loaded_set l = load_set(set, NULL, NULL);
  double x[N_CASTS], y[3][N_CASTS], want[3][N_CASTS];
  float narrow_x[N_CASTS], narrow_y[3][N_CASTS];
  for (int i = 0; i < N_CASTS; i++) x[i] = cast_cases[i].x, narrow_x[i] = (float)x[i];
  bool wide = dtype == ZPK_F64;
  int64_t ld[3] = {N_CASTS, N_CASTS, N_CASTS};
  void *out[] = {wide ? (void *)y[0] : narrow_y[0], wide ? (void *)y[1] : narrow_y[1],
                 wide ? (void *)y[2] : narrow_y[2]};
  zpk_row_args args = {.in = (const void *const[]){wide ? (void *)x : narrow_x}, .in_ld = ld, .out = out, .out_ld = ld};
  ((zpk_row_kernel *)find_symbol(&l, symbol))(&args, 0, 1, 0);
  args = (zpk_row_args){.in = (const void *const[]){x}, .in_ld = ld, .out_ld = ld};
  args.out = (void *const[]){want[0], want[1], want[2]};
  zp_row_interpret(zp_row_from_node(k.arena, NULL, &graph->nodes.data[0]), &args, 0, 1, 0);
  for (int i = 0; i < N_CASTS; i++) {
    const cast_case *c = &cast_cases[i];
    if (!cast_applies(c, dtype)) continue;
    double got = wide ? y[c->op - ZP_OP_CAST_BF16][i] : (double)narrow_y[c->op - ZP_OP_CAST_BF16][i];
    cr_expect(got == c->want && !signbit(got) == !signbit(c->want), "%s of %a: %a, not %a", zp_op_name(c->op), c->x,
              got, c->want);
    cr_expect_eq(want[c->op - ZP_OP_CAST_BF16][i], c->want, "interpreted %s of %a", zp_op_name(c->op), c->x);
  }
  unload_set(&l);
  kit_free(&k);
}

Test(rowprog_kernels, casts_round_as_the_types_do) {
  check_casts(ZPK_F32);
  check_casts(ZPK_F64);
}

/* ---- rotary embedding beyond the size of a constant table ---- */

Test(rowprog_kernels, long_rope_is_computed_row_by_row) {
  enum { POSITIONS = 300000, N = 8 };
  kit k = kit_new(POSITIONS, 1, N);
  zp_op_attr attr = {.heads = 2, .theta = 10000};
  carry_out(&k, apply(&k, ZP_OP_ROPE, attr, "rope", k.graph->carry_in.data[0], -1, -1));
  zp_graph *graph = zp_fuse(zp_graph_localize_trivial(k.graph));
  zp_kernel_set *set = zp_kernels_new(k.arena, ZPK_F64);
  const char *symbol = zp_kernels_add(set, graph, &graph->nodes.data[0], "rope");
  loaded_set l = load_set(set, NULL, NULL);
  double *x = ZP_NEW_ARRAY(k.arena, double, POSITIONS *N), *y = ZP_NEW_ARRAY(k.arena, double, POSITIONS *N);
  double *want = ZP_NEW_ARRAY(k.arena, double, POSITIONS *N);
  for (int64_t i = 0; i < POSITIONS * N; i++) x[i] = 1 + (double)(i % 13);
  int64_t ld = N;
  zpk_row_args args = {.in = (const void *const[]){x}, .in_ld = &ld, .out = (void *const[]){y}, .out_ld = &ld};
  ((zpk_row_kernel *)find_symbol(&l, symbol))(&args, POSITIONS - 100, POSITIONS, 0);
  args.out = (void *const[]){want};
  zp_row_interpret(zp_row_from_node(k.arena, NULL, &graph->nodes.data[0]), &args, POSITIONS - 100, POSITIONS, 0);
  for (int64_t i = (POSITIONS - 100) * N; i < POSITIONS * N; i++) cr_assert_float_eq(y[i], want[i], 1e-12);
  unload_set(&l);
  kit_free(&k);
}

/* ---- the object file ---- */

static char *compiled_with(row_world *w, const char *kept, const char *object_path, const char *ir_path, size_t *len) {
  zp_kernel_set *set = zp_kernels_new(w->k.arena, ZPK_F32);
  for (int n = 0; n < w->graph->nodes.len; n++)
    if (is_fused(&w->graph->nodes.data[n])) zp_kernels_add(set, w->graph, &w->graph->nodes.data[n], "k");
  const char *error = NULL;
  cr_assert(zp_kernels_compile(set, NULL, NULL, kept, object_path, ir_path, &error), "%s", error);
  return zp_read_file(w->k.arena, object_path, len, &error);
}

static char *compiled(row_world *w, const char *object_path, const char *ir_path, size_t *len) {
  return compiled_with(w, NULL, object_path, ir_path, len);
}

Test(rowprog_kernels, objects_are_deterministic) {
  char folder[] = "zplan-rowprog-XXXXXX", path[3][64];
  cr_assert_not_null(mkdtemp(folder));
  for (int i = 0; i < 3; i++) snprintf(path[i], sizeof path[i], "%s/%d", folder, i);
  row_world w = row_world_new(&row_cases[3], 96);
  size_t first_len, second_len, ir_len;
  const char *first = compiled(&w, path[0], path[2], &first_len), *second = compiled(&w, path[1], NULL, &second_len);
  cr_assert_eq(first_len, second_len);
  cr_assert_eq(memcmp(first, second, first_len), 0);
  const char *error = NULL, *ir = zp_read_file(w.k.arena, path[2], &ir_len, &error);
  cr_assert_not_null(strstr(ir, "define void @row_k("));
  cr_assert_null(strstr(ir, folder), "no path of the machine in the output");
  for (int i = 0; i < 3; i++) unlink(path[i]);
  rmdir(folder);
  row_world_free(&w);
}

/* Paths of a folder's files that end so; their number. */
static int files_of(const char *folder, const char *suffix, char path[4][320]) {
  DIR *dir = opendir(folder);
  int n = 0;
  for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
    if (strstr(entry->d_name, suffix) && n < 4) snprintf(path[n++], 320, "%s/%s", folder, entry->d_name);
  closedir(dir);
  return n;
}

/* What is compiled a second time is what the folder has: the same file, not written again. What was damaged is compiled
 * again, without its last byte or with another one; another set is compiled, too. */
Test(rowprog_kernels, kept_objects_are_taken) {
  char folder[] = "zplan-kept-XXXXXX", object[64], ir[64], kept[4][320];
  cr_assert_not_null(mkdtemp(folder));
  snprintf(object, sizeof object, "%s/object", folder);
  snprintf(ir, sizeof ir, "%s/ir", folder);
  row_world w = row_world_new(&row_cases[3], 96), other = row_world_new(&row_cases[3], 97);
  size_t len[4];
  const char *error = NULL, *plain = compiled(&w, object, NULL, &len[0]);
  const char *first = compiled_with(&w, folder, object, ir, &len[1]);
  cr_assert(len[0] == len[1] && memcmp(plain, first, len[0]) == 0);
  cr_assert_eq(files_of(folder, ".o", kept), 1);
  struct stat was, is;
  cr_assert_eq(stat(kept[0], &was), 0);
  const char *text = zp_read_file(w.k.arena, ir, &len[3], &error);
  const char *second = compiled_with(&w, folder, object, ir, &len[2]);
  cr_assert(len[2] == len[0] && memcmp(second, plain, len[0]) == 0);
  cr_assert_str_eq(zp_read_file(w.k.arena, ir, &len[3], &error), text);
  cr_assert(stat(kept[0], &is) == 0 && is.st_ino == was.st_ino && is.st_mtim.tv_nsec == was.st_mtim.tv_nsec);
  for (int damage = 0; damage < 3; damage++) {
    char *bytes = zp_strndup(w.k.arena, plain, len[0]);
    if (damage == 1) bytes[len[0] / 3] ^= 0x10;
    cr_assert(zp_write_file(w.k.arena, kept[0], bytes, damage == 0 ? 0 : len[0] - (damage == 2), &error));
    const char *again = compiled_with(&w, folder, object, NULL, &len[2]);
    cr_assert(len[2] == len[0] && memcmp(again, plain, len[0]) == 0, "damage %d", damage);
    cr_assert(memcmp(zp_read_file(w.k.arena, kept[0], &len[2], &error), plain, len[0]) == 0, "damage %d", damage);
  }
  compiled_with(&other, folder, object, NULL, &len[3]);
  cr_assert_eq(files_of(folder, ".o", kept), 2);
  for (int i = 0; i < 2; i++) unlink(kept[i]);
  for (int i = files_of(folder, ".ll", kept); i > 0; i--) unlink(kept[i - 1]);
  unlink(object);
  unlink(ir);
  cr_assert_eq(rmdir(folder), 0);
  row_world_free(&w);
  row_world_free(&other);
}

Test(rowprog_kernels, a_folder_that_cannot_keep_is_an_error) {
  row_world w = row_world_new(&row_cases[2], 8);
  zp_kernel_set *set = zp_kernels_new(w.k.arena, ZPK_F32);
  zp_kernels_add(set, w.graph, &w.graph->nodes.data[0], "k");
  const char *error = NULL;
  cr_assert_not(zp_kernels_compile(set, NULL, NULL, "/nonexistent-folder", "kernels.o", NULL, &error));
  cr_assert_not_null(strstr(error, "/nonexistent-folder/"));
  row_world_free(&w);
}

Test(rowprog_kernels, unwritable_object_is_an_error) {
  row_world w = row_world_new(&row_cases[2], 8);
  zp_kernel_set *set = zp_kernels_new(w.k.arena, ZPK_F32);
  zp_kernels_add(set, w.graph, &w.graph->nodes.data[0], "k");
  const char *error = NULL;
  cr_assert_not(zp_kernels_compile(set, NULL, NULL, NULL, "/nonexistent-folder/kernels.o", NULL, &error));
  cr_assert_not_null(error);
  row_world_free(&w);
}

Test(rowprog_kernels, empty_set_is_an_empty_object) {
  zp_arena *arena = zp_arena_new("test");
  loaded_set l = load_set(zp_kernels_new(arena, ZPK_F64), NULL, NULL);
  unload_set(&l);
  zp_arena_free(arena);
}

/* A chunk without rows stores zeros, whatever was there; a chunk stores only its own share. */
Test(rowprog_kernels, column_sums_are_stored_even_for_no_rows) {
  row_world w = row_world_new(&row_cases[2], 5);
  zp_kernel_set *set = zp_kernels_new(w.k.arena, ZPK_F32);
  const zp_node *node = first_node(&w, ZP_OP_FUSED_GRAD);
  const char *symbol = zp_kernels_add(set, w.graph, node, "k");
  loaded_set l = load_set(set, NULL, NULL);
  row_call call = row_call_new(&w, node, 0, false);
  ((zpk_row_kernel *)find_symbol(&l, symbol))(&call.args, 4, 4, 2);
  for (int64_t i = 0; i < ZPK_CHUNKS * 5; i++) {
    float sum = ((float *)call.partial[0])[i];
    cr_assert(i / 5 == 2 ? sum == 0 : isnan(sum), "partial[%lld] = %g", (long long)i, sum);
  }
  unload_set(&l);
  row_world_free(&w);
}
