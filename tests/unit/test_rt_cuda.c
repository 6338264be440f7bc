/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU runtime on the emulated GPU, one rank: every step function against the kernels of CPU ranks or a naive
 * computation, and what it refuses. Products: test_rt_cuda_products.c. Several ranks: tests/mpi/run_cuda.sh. */
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>
#include "../mpi/bigram.h"
#include "nccl.h"
#include "rt_cuda_testing.h"

/* ---- row kernels ---- */

static void check_rows(zpr *c, int64_t rows, bool accumulate) {
  enum { COLS = 5, LD = 8 };
  static zpr_device_kernel kernel = {.name = "row_scale"};
  kernel.function = NULL; /* every test has a module of its own */
  used = 0;
  buffer x = make(c, rows * LD), scale = make(c, COLS), y = make(c, rows * LD), sum_x = make(c, COLS),
         sum_y = make(c, COLS), workspace = make(c, 2 * COLS * zpd_row_chunks(rows));
  const void *in[] = {x.gpu, scale.gpu};
  void *out[] = {y.gpu}, *sum[] = {sum_x.gpu, sum_y.gpu};
  int64_t in_ld[] = {LD, 0}, out_ld[] = {LD}, sum_cols[] = {COLS, COLS};
  bool add[] = {accumulate, !accumulate};
  zpr_rows_call call = {.device = &kernel,
                        .rows = rows,
                        .in = in,
                        .in_ld = in_ld,
                        .out = out,
                        .out_ld = out_ld,
                        .n_in = 2,
                        .n_out = 1,
                        .n_sums = 2,
                        .sum_cols = sum_cols,
                        .sum = sum,
                        .accumulate = add,
                        .workspace = workspace.gpu};
  for (int64_t j = 0; j < COLS; j++) {
    double all_x = accumulate ? get(&sum_x, j) : 0, all_y = accumulate ? 0 : get(&sum_y, j);
    for (int64_t r = 0; r < rows; r++) {
      put(&y, r * LD + j, get(&x, r * LD + j) * get(&scale, j));
      all_x += get(&x, r * LD + j);
      all_y += get(&y, r * LD + j);
    }
    put(&sum_x, j, all_x), put(&sum_y, j, all_y);
  }
  zpr_rows(c, &call);
  compare(&y, rounding(c), "rows");
  compare(&sum_x, rounding(c), "first sum of columns");
  compare(&sum_y, rounding(c), "second sum of columns");
  free(x.host), free(scale.host), free(y.host), free(sum_x.host), free(sum_y.host), free(workspace.host);
}

EACH_DTYPE(row_kernels) {
  zpr *c = open_gpu(*dtype);
  check_rows(c, 3, true); /* one chunk */
  check_rows(c, 130, false);
  check_rows(c, 16 * 35 + 5, true); /* 35 chunks: three groups, the last of three; and counters are 0 again */
  check_rows(c, 16 * 35 + 5, false);
  zpr_close(c);
}

EACH_DTYPE(row_kernels_know_the_random_stream) {
  zpr *c = open_gpu(*dtype);
  static zpr_device_kernel kernel = {.name = "row_stream"};
  enum { ROWS = 100, COLS = 7 };
  kernel.function = NULL;
  used = 0;
  buffer y = make(c, ROWS * COLS);
  void *out[] = {y.gpu};
  int64_t out_ld[] = {COLS};
  zpr_rows_call call = {.device = &kernel,
                        .rows = ROWS,
                        .out = out,
                        .out_ld = out_ld,
                        .n_out = 1,
                        .instance = 3,
                        .first_sample = 4,
                        .first_column = 5,
                        .logical_columns = 6};
  c->step = 2;
  for (int64_t i = 0; i < ROWS * COLS; i++) put(&y, i, (double[]){11, 2, 3, 4, 5, 6, 1}[i % COLS]);
  zpr_rows(c, &call);
  compare(&y, 0, "training");
  c->training = false;
  for (int64_t i = COLS - 1; i < ROWS * COLS; i += COLS) put(&y, i, 0);
  zpr_rows(c, &call);
  compare(&y, 0, "validation");
  free(y.host);
  zpr_close(c);
}

/* ---- lookups ---- */

static const int32_t *make_ids(zpr *c, const int32_t *ids, int64_t count) {
  void *place = zpr_at(c, used);
  used += (count * 4 + 255) / 256 * 256;
  to_arena(c, place, ids, count * 4);
  return place;
}

EACH_DTYPE(lookups) {
  zpr *c = open_gpu(*dtype);
  enum { ROWS = 12, TABLE = 7, FIRST = 3, COLS = 33, S = 4, LD = 40 };
  static const int32_t ids[ROWS] = {3, 9, 5, 5, 0, 10, -1, 9, 5, 3, 4, 8}; /* some are another rank's */
  used = 0;
  const int32_t *gpu_ids = make_ids(c, ids, ROWS);
  buffer table = make(c, TABLE * COLS), out = make(c, ROWS * COLS), grad = make(c, TABLE * COLS),
         wide = make(c, ROWS * LD);
  buffer place = make(c, S * COLS);
  zpk_embedding(*dtype, ids, table.host, FIRST, TABLE, COLS, out.host, 0, ROWS);
  zpr_embedding(c, gpu_ids, table.gpu, FIRST, TABLE, ROWS, COLS, out.gpu);
  compare(&out, 0, "embedding");
  zpk_embedding_grad(*dtype, ids, out.host, FIRST, TABLE, ROWS, COLS, grad.host, 0, COLS);
  zpr_embedding_grad(c, gpu_ids, out.gpu, FIRST, TABLE, ROWS, COLS, grad.gpu);
  compare(&grad, rounding(c), "gradient of the embedding");
  for (int accumulate = 0; accumulate < 2; accumulate++) {
    zpk_position_grad(*dtype, wide.host, LD, ROWS / S, S, COLS, accumulate, place.host, 0, S);
    zpr_position_grad(c, wide.gpu, LD, ROWS / S, S, COLS, accumulate, place.gpu);
    compare(&place, rounding(c), "gradient of positions");
  }
  free(table.host), free(out.host), free(grad.host), free(wide.host), free(place.host);
  zpr_close(c);
}

EACH_DTYPE(positions) {
  zpr *c = open_gpu(*dtype);
  enum { SAMPLES = 3, S = 5, COLS = 33, TO = 4 };
  used = 0;
  buffer x = make(c, SAMPLES * S * COLS), part = make(c, SAMPLES * TO * COLS), mean = make(c, SAMPLES * COLS);
  zpk_positions p = {.from = x.host, .from_S = S, .to = part.host, .to_S = TO, .to_at = -2, .n = S, .cols = COLS};
  p.samples = SAMPLES;
  zpk_positions clipped = zpk_clip_positions(&p);
  zpk_move_positions(*dtype, &clipped, 0, SAMPLES * clipped.n);
  p.from = x.gpu, p.to = part.gpu;
  zpr_move_positions(c, &p);
  compare(&part, 0, "positions that moved");
  zpk_mean_positions(*dtype, x.host, SAMPLES, S, COLS, 1.0 / S, mean.host, 0, COLS);
  zpr_mean_positions(c, x.gpu, SAMPLES, S, COLS, 1.0 / S, mean.gpu);
  compare(&mean, rounding(c), "mean of positions");
  zpk_spread_positions(*dtype, mean.host, S, COLS, 1.0 / S, x.host, 0, SAMPLES * S);
  zpr_spread_positions(c, mean.gpu, SAMPLES, S, COLS, 1.0 / S, x.gpu);
  compare(&x, rounding(c), "gradient of the mean");
  free(x.host), free(part.host), free(mean.host);
  zpr_close(c);
}

/* ---- attention ---- */

/* `lengths`: of two samples, or NULL. */
static void check_attention(zpr *c, const int32_t *lengths) {
  zpk_dtype dtype = c->program->dtype;
  enum { B = 2, S = 70, H = 4, G = 2, HD = 6, LD = (H + 2 * G) * HD + 2 }; /* q, k, v side by side */
  used = 0;
  buffer qkv = make(c, B * S * LD), d_qkv = make(c, B * S * LD), o = make(c, B * S * H * HD),
         d_o = make(c, B * S * H * HD);
  buffer lse = make(c, B * S * H);
  int64_t share = zpk_attention_workspace(dtype, S, HD, 1, false),
          backward = zpk_attention_workspace(dtype, S, HD, 1, true);
  void *workspace = malloc((size_t)((share > backward ? share : backward) * 8));
  zpk_attention_args args = {.dtype = dtype,
                             .B = B,
                             .S = S,
                             .H = H,
                             .G = G,
                             .hd = HD,
                             .kv_heads_valid = G,
                             .scale = 0.4,
                             .causal = true,
                             .q_ld = LD,
                             .k_ld = LD,
                             .v_ld = LD,
                             .o_ld = H * HD,
                             .d_o_ld = H * HD,
                             .dq_ld = LD,
                             .dk_ld = LD,
                             .dv_ld = LD,
                             .workspace = workspace};
  zpk_attention_args host = args, gpu = args;
  int64_t k = H * HD * o.size, v = (H + G) * HD * o.size;
  host.q = qkv.host, host.k = qkv.host + k, host.v = qkv.host + v, host.o = o.host, host.lse = lse.host;
  host.d_o = d_o.host, host.dq = d_qkv.host, host.dk = d_qkv.host + k, host.dv = d_qkv.host + v;
  gpu.q = qkv.gpu, gpu.k = qkv.gpu + k, gpu.v = qkv.gpu + v, gpu.o = o.gpu, gpu.lse = lse.gpu;
  gpu.d_o = d_o.gpu, gpu.dq = d_qkv.gpu, gpu.dk = d_qkv.gpu + k, gpu.dv = d_qkv.gpu + v;
  host.lengths = lengths;
  gpu.lengths = lengths ? make_ids(c, lengths, B) : NULL;
  gpu.workspace = NULL;
  zpk_attention(&host, 0, B * G, 0);
  zpr_attention(c, &gpu);
  compare(&o, rounding(c), "attention");
  compare(&lse, rounding(c), "log-sum-exp");
  zpk_attention_grad(&host, 0, B * G, 0);
  zpr_attention_grad(c, &gpu);
  compare(&d_qkv, rounding(c), "gradient of attention");
  free(workspace), free(qkv.host), free(d_qkv.host), free(o.host), free(d_o.host), free(lse.host);
}

EACH_DTYPE(attention) {
  zpr *c = open_gpu(*dtype);
  check_attention(c, NULL);
  check_attention(c, (const int32_t[]){70, 41});
  zpr_close(c);
}

/* ---- cross-entropy ---- */

EACH_DTYPE(cross_entropy) {
  zpr *c = open_gpu(*dtype);
  enum { ROWS = 10, V = 19, WORDS = 35 }; /* two ranks' columns; the last three are padding */
  static const int32_t labels[ROWS] = {0, 34, 18, 19, -1, 35, 7, 21, 20, 3};
  used = 0;
  const int32_t *gpu_labels = make_ids(c, labels, ROWS);
  buffer logits = make(c, 2 * ROWS * V), stat = make(c, 2 * ROWS * 3), lse = make(c, ROWS), grad = make(c, ROWS * V);
  int64_t block = ROWS * V * logits.size, stats = ROWS * 3 * logits.size;
  for (int t = 0; t < 2; t++) {
    zpk_ce_stats(*dtype, logits.host + t * block, V, t * V, WORDS, labels, NULL, stat.host + t * stats, 0, ROWS);
    zpr_ce_stats(c, 0, logits.gpu + t * block, V, t * V, WORDS, gpu_labels, NULL, ROWS, stat.gpu + t * stats);
  }
  double loss = zpk_ce_loss(*dtype, stat.host, 2, ROWS, WORDS, labels, lse.host, NULL, 0, ROWS) * c->token_weight[0];
  zpr_ce_loss(c, 0, stat.gpu, 2, ROWS, WORDS, gpu_labels, lse.gpu);
  zpr_ce_loss(c, 0, stat.gpu, 2, ROWS, WORDS, gpu_labels, lse.gpu);
  compare(&lse, rounding(c), "log-sum-exp");
  c->loss = 1;
  zpr_collect_loss(c);
  cr_assert_float_eq(c->loss, 1 + 2 * loss, (*dtype == ZPK_F64 ? 1e-13 : 1e-5) * loss);
  zpr_collect_loss(c); /* nothing new */
  cr_assert_float_eq(c->loss, 1 + 2 * loss, (*dtype == ZPK_F64 ? 1e-13 : 1e-5) * loss);
  const zpk_targets targets = {0.1, 1e-3};
  for (int t = 0; t < 2; t++) {
    zpk_ce_grad(*dtype, logits.host + t * block, V, t * V, WORDS, labels, NULL, lse.host, targets, c->token_weight[0],
                grad.host, 0, ROWS);
    zpr_ce_grad(c, 0, logits.gpu + t * block, V, t * V, WORDS, gpu_labels, NULL, lse.gpu, targets, ROWS, grad.gpu);
    compare(&grad, rounding(c), "gradient of the loss");
  }
  free(logits.host), free(stat.host), free(lse.host), free(grad.host);
  zpr_close(c);
}

/* ---- norm and optimizer ---- */

/* The shard of a rank that holds elements 3000 to 8999; some are not counted. from: where its gradients begin, among
 * all (ZeRO 1) or in a buffer of shards (ZeRO 2). */
static void check_update(zpr *c, int kind, int64_t from) {
  enum { PARAMS = 3, COUNT = 9000, STATE = 6000, FROM = 3000 };
  used = 0;
  buffer param = make(c, COUNT), grad = make(c, COUNT), m = make(c, STATE), v = make(c, STATE);
  for (int64_t i = 0; i < STATE; i++) put(&v, i, fabs(get(&v, i)));
  to_arena(c, v.gpu, v.host, STATE * v.size);
  stage.params = param.gpu - c->arena, stage.grads = grad.gpu - c->arena;
  stage.moment1 = m.gpu - c->arena, stage.moment2 = v.gpu - c->arena;
  const zpr_block blocks[PARAMS] = {{from, from + 1, FROM - from, -from, {1, 0.1, 0}, 0, true, false},
                                    {from + 1, from + 5000, FROM - from, -from, {0.3, 0, 0}, 1, true, false},
                                    {from + 5000, from + STATE, FROM - from, -from, {2, 0.3, 0}, 2, false, false}};
  double squares[PARAMS] = {-1, -1, -1};
  zpr_block_list list = {.block = blocks, .n = PARAMS};
  zpr_square_blocks(c, &list, squares);
  for (int i = 0; i < PARAMS; i++) {
    double want = 0;
    for (int64_t e = blocks[i].begin; blocks[i].counted && e < blocks[i].end; e++)
      want += get(&grad, e) * get(&grad, e);
    cr_assert_float_eq(squares[i], want, 1e-12 * want, "%g, not %g", squares[i], want);
  }
  zpk_update rule = {.dtype = c->program->dtype,
                     .kind = kind,
                     .lr = 0.01,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .eps = 1e-8,
                     .momentum = 0.8,
                     .bias1 = 0.1,
                     .bias2 = 0.05,
                     .grad_scale = 0.5};
  for (int i = 0; i < PARAMS; i++) {
    const zpk_update own = zpr_rule_with(&rule, blocks[i].recipe);
    zpk_optimizer(&own, param.host + FROM * param.size, grad.host + from * grad.size, (void *[]){m.host, v.host},
                  blocks[i].begin - from, blocks[i].end - from);
  }
  zpr_update_blocks(c, &list, &rule);
  zpr_block_list_close(c, &list);
  compare(&param, rounding(c), "parameters");
  compare(&m, rounding(c), "first moments");
  compare(&v, rounding(c), "second moments");
  free(param.host), free(grad.host), free(m.host), free(v.host);
}

EACH_DTYPE(norm_and_optimizer) {
  zpr *c = open_gpu(*dtype);
  for (int kind = 0; kind < 3; kind++)
    for (int zero = 1; zero <= 2; zero++) check_update(c, kind, zero == 1 ? 3000 : 0);
  zpr_close(c);
}

/* ---- memory ---- */

Test(cuda, bytes) {
  zpr *c = open_gpu(ZPK_F32);
  enum { COUNT = 120 };
  used = 0;
  buffer a = make(c, COUNT), b = make(c, COUNT);
  zpr_copy(c, a.gpu + 8, b.gpu, 100);
  memcpy(a.host + 8, b.host, 100);
  zpr_zero(c, a.gpu + 64, 20);
  memset(a.host + 64, 0, 20);
  compare(&a, 0, "bytes");
  zpr_copy(c, a.gpu, b.gpu, 0);
  zpr_zero(c, a.gpu, 0);
  free(a.host), free(b.host);
  zpr_close(c);
}

/* Several windows long, and the highest byte that differs from the pattern. */
Test(cuda, peak_is_measured_on_the_gpu) {
  zpr_options options = zpr_default_options;
  int argc = 0;
  char **argv = NULL;
  stage = (zpr_stage){.arena_bytes = 3 * (int64_t)ZPR_PINNED_BYTES + 100};
  program =
      (zpr_program){.name = "peak", .tensor = 1, .pipeline = 1, .data = 1, .batch = 1, .sequence = 1, .stages = &stage};
  options.check_memory = true;
  device_image(&program);
  zpr_open(&context, &program, &options, &argc, &argv);
  zpr *c = &context;
  cr_assert_eq(zpr_arena_measured_peak(c), 0);
  const int64_t places[] = {7, ZPR_PINNED_BYTES - 1, ZPR_PINNED_BYTES, 2 * (int64_t)ZPR_PINNED_BYTES + 99,
                            stage.arena_bytes - 1};
  for (int i = 0; i < 5; i++) {
    zpr_zero(c, c->arena + places[i], 1);
    cr_assert_eq(zpr_arena_measured_peak(c), places[i] + 1);
  }
  zpr_close(c);
}

/* AddressSanitizer's report has a status of its own, so the handler is the process's last. */
static void on_fault(int signal) {
  (void)signal;
  _exit(42);
}

Test(cuda, host_cannot_read_the_arena, .exit_code = 42) {
  zpr *c = open_gpu(ZPK_F32);
  struct sigaction action = {.sa_handler = on_fault};
  sigaction(SIGSEGV, &action, NULL);
  sigaction(SIGBUS, &action, NULL);
  _exit(*(volatile char *)c->arena);
}

/* ---- a whole trainer: it learns what the one of CPU ranks learns in tests/mpi/run_cuda.sh ---- */

Test(cuda, initial_weights_are_those_of_the_formula) {
  zpr *c = &context;
  int argc = 0;
  char **argv = NULL;
  double *got = malloc(sizeof(double) * BIGRAM_V * BIGRAM_V);
  device_image(bigram_program(1, 1, 0, ZPK_F64));
  zpr_open(c, &the_bigram.program, &zpr_default_options, &argc, &argv);
  zpr_init_weights(c, NULL, NULL);
  from_arena(c, got, zpr_at(c, c->stage->params), (int64_t)sizeof(double) * BIGRAM_V * BIGRAM_V);
  uint64_t name = (UINT64_C(14695981039346656037) ^ 'w') * UINT64_C(1099511628211);
  for (int i = 0; i < BIGRAM_V * BIGRAM_V; i++)
    cr_assert_eq(got[i], zpk_initial_weight(7, name, (uint64_t)i, 0, 0, 0.1));
  free(got);
  zpr_close(c);
}

/* ---- refusals ---- */

static int run_bigram(void) {
  char *argv[] = {"trainer", "--steps", "1"};
  cr_redirect_stdout();
  cr_redirect_stderr();
  return zpr_main(3, argv, &the_bigram.program);
}

Test(cuda, no_image, .exit_code = ZPR_EXIT_REFUSED) {
  bigram_program(1, 1, 0, ZPK_F32);
  run_bigram();
}

Test(cuda, damaged_image, .exit_code = ZPR_EXIT_FAILED) {
  static char image[64] = "\177ELF";
  bigram_program(1, 1, 0, ZPK_F32)->device_image = image;
  the_bigram.program.device_image_bytes = sizeof image;
  run_bigram();
}

Test(cuda, missing_kernel, .exit_code = ZPR_EXIT_FAILED) {
  static zpr_device_kernel kernel = {.name = "row_missing"};
  zpr *c = open_gpu(ZPK_F32);
  cr_redirect_stderr();
  zpr_rows(c, &(zpr_rows_call){.device = &kernel, .rows = 1});
}

Test(cuda, address_outside_of_the_arena, .exit_code = ZPR_EXIT_FAILED) {
  zpr *c = open_gpu(ZPK_F32);
  cr_redirect_stderr();
  zpr_embedding(c, zpr_at(c, 0), zpr_at(c, 2 * stage.arena_bytes), 0, 1, 1, 1, zpr_at(c, 0));
  zpr_cuda_wait(c);
}

/* A GPU does not see it; on the emulated one the kernel would read it. */
Test(cuda, address_of_the_host, .exit_code = ZPR_EXIT_FAILED) {
  static const int32_t ids[1];
  zpr *c = open_gpu(ZPK_F32);
  cr_redirect_stderr();
  zpr_embedding(c, ids, zpr_at(c, 0), 0, 1, 1, 1, zpr_at(c, 256));
  zpr_cuda_wait(c);
}

/* Standard error goes to a file; when the process ends, it must hold the words. */
static FILE *told;
static const char *words;

static void check_told(void) {
  char text[1024] = "";
  fflush(stderr);
  rewind(told);
  size_t n = fread(text, 1, sizeof text - 1, told);
  text[n] = '\0';
  if (!strstr(text, words)) _exit(9);
}

static zpr *open_gpu_that_tells(bool sync, const char *expected) {
  zpr *c = open_gpu(ZPK_F32);
  c->state->options.sync = sync;
  told = tmpfile();
  words = expected;
  cr_assert(told && dup2(fileno(told), STDERR_FILENO) >= 0);
  atexit(check_told);
  return c;
}

/* A lookup that reads after the arena, then a kernel that is well. */
static void fault(zpr *c) {
  zpr_embedding(c, zpr_at(c, 0), zpr_at(c, 2 * stage.arena_bytes), 0, 1, 1, 1, zpr_at(c, 0));
  zpr_position_grad(c, zpr_at(c, 0), 1, 1, 1, 1, false, zpr_at(c, 256));
  zpr_cuda_wait(c);
}

Test(cuda, a_fault_names_the_kernel_started_last, .exit_code = ZPR_EXIT_FAILED) {
  fault(open_gpu_that_tells(false, "the last kernel started was zpd_position_grad"));
}

Test(cuda, with_sync_a_fault_names_its_kernel, .exit_code = ZPR_EXIT_FAILED) {
  fault(open_gpu_that_tells(true, "cannot finish the kernel zpd_embedding: CUDA_ERROR"));
}

Test(cuda, arena_that_does_not_fit, .exit_code = ZPR_EXIT_MEMORY) {
  device_image(bigram_program(1, 1, 0, ZPK_F32));
  the_bigram.stage.arena_bytes = (int64_t)1 << 50;
  run_bigram();
}

/* ---- too late: after the first message kernels of NCCL may spin, and loading would wait for them ---- */

/* A message of NCCL, from the only rank of a group to itself. */
static void talk(zpr *c) {
  void *library = dlopen("libzplan_emulated_gpu.so", RTLD_NOW), *comm = NULL;
  zpr_nccl_id id;
  nccl_api api = {0};
  *(void **)&api.new_id = dlsym(library, "ncclGetUniqueId");
  *(void **)&api.join = dlsym(library, "ncclCommInitRank");
  *(void **)&api.leave = dlsym(library, "ncclCommDestroy");
  *(void **)&api.all_reduce = dlsym(library, "ncclAllReduce");
  cr_assert(api.new_id && api.new_id(&id) == 0 && api.join(&comm, 1, id, 0) == 0);
  cr_assert(api.all_reduce(zpr_at(c, 0), zpr_at(c, 0), 1, NCCL_F32, NCCL_SUM, comm, c->state->device->stream) == 0);
  cr_assert(api.leave(comm) == 0);
}

static void multiply(zpr *c, int64_t k) {
  zpr_gemm(c, false, false, 2, 3, k, zpr_at(c, 0), k, zpr_at(c, 4096), 3, false, zpr_at(c, 8192), 3);
}

Test(cuda, what_was_loaded_before_a_message_runs_after_it) {
  zpr *c = open_gpu(ZPK_F32);
  multiply(c, 4);
  zpr_load_kernel(c, &c->state->device->kernels.position_grad, 0);
  talk(c);
  multiply(c, 4);
  zpr_position_grad(c, zpr_at(c, 0), 1, 1, 1, 1, false, zpr_at(c, 256));
  zpr_close(c);
}

Test(cuda, a_kernel_loaded_after_a_message, .exit_code = ZPR_EXIT_FAILED) {
  zpr *c = open_gpu_that_tells(false, "zpd_position_grad is loaded after the first message of NCCL");
  talk(c);
  zpr_position_grad(c, zpr_at(c, 0), 1, 1, 1, 1, false, zpr_at(c, 256));
}

Test(cuda, a_product_loaded_after_a_message, .exit_code = ZPR_EXIT_FAILED) {
  zpr *c = open_gpu_that_tells(false, "a product of the shape 3 x 2 x 5 is loaded after the first message of NCCL");
  multiply(c, 4);
  talk(c);
  multiply(c, 4);
  multiply(c, 5);
}

/* Never the emulated GPU instead of a driver that is not there. */
Test(cuda, image_for_a_gpu_without_a_driver, .exit_code = ZPR_EXIT_REFUSED) {
  static unsigned char image[64] = "\177ELF";
  image[18] = 190; /* EM_CUDA */
  if (dlopen("libcuda.so.1", RTLD_NOW))
    exit(ZPR_EXIT_REFUSED); /* the image is no cubin: a driver would refuse it otherwise */
  bigram_program(1, 1, 0, ZPK_F32)->device_image = image;
  the_bigram.program.device_image_bytes = sizeof image;
  run_bigram();
}
