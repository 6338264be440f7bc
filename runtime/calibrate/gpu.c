/* SPDX-License-Identifier: Apache-2.0 */
/* One GPU: products over a grid of shapes in half precision and f32, copies in its memory and over PCIe, what a launch
 * takes, and how much of its memory a context and cuBLASLt hold. Times are those of events in the stream. Products get
 * random operands: with zeros a GPU draws less power and runs faster than in training (H. He, "Strangely, matrix
 * multiplications on GPUs run faster when given predictable data", 2024). */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "calibrate.h"
#include "gpu_product.h"

static const int sides[] = {1024, 4096, 12288};
enum {
  N_SIDES = sizeof sides / sizeof *sides,
  LONGEST = 12288,
  PATTERN_BYTES = 64 << 20,
  COPY_BYTES = 256 << 20,
  WORKSPACE_BYTES = 32 << 20
};

typedef struct gpu {
  gpu_api api;
  gpu_products *products;
  void *begin, *end;
  gpu_pointer memory[3]; /* of the longest product's operands in f32 */
  gpu_pointer workspace;
  void *host; /* pinned, PATTERN_BYTES of random numbers */
  void *empty_kernel;
} gpu;

/* ---- timing ---- */

typedef bool gpu_work(gpu *g, void *arg);

/* Median seconds of one call over about budget_s; 0 when a call fails. The median: clocks follow power and temperature
 * both ways. */
static double time_gpu(gpu *g, gpu_work *work, void *arg, double budget_s) {
  enum { LEAST = 5, MOST = 500 };
  double seconds[MOST];
  int n = 0;
  if (!work(g, arg) || g->api.synchronize()) return 0;
  double start = now();
  while (n < MOST && (n < LEAST || now() - start < budget_s)) {
    float milliseconds = 0;
    bool fine = !g->api.record(g->begin, NULL) && work(g, arg) && !g->api.record(g->end, NULL) &&
                !g->api.await_event(g->end) && !g->api.elapsed(&milliseconds, g->begin, g->end);
    if (!fine) return 0;
    seconds[n++] = milliseconds / 1e3;
  }
  qsort(seconds, (size_t)n, sizeof *seconds, by_size);
  return seconds[n / 2];
}

/* ---- operands ---- */

/* xorshift64*; a sum of four uniform numbers is near enough to the normal distribution of real operands. */
static double random_normal(uint64_t *state) {
  double sum = 0;
  for (int i = 0; i < 4; i++) {
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    sum += (double)((*state * 0x2545F4914F6CDD1Dull) >> 40) / (1 << 24) - 0.5;
  }
  return sum * 1.7320508; /* variance 1 */
}

/* Upper half of an f32: bf16, rounded towards zero. */
static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}

/* Normal numbers of f16 only: the operands lie far from its limits. */
static uint16_t to_f16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  int exponent = (int)(bits >> 23 & 255) - 127 + 15;
  if (exponent <= 0) return (uint16_t)(bits >> 16 & 0x8000);
  return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ff));
}

/* Repeats a pattern of random numbers over all operands. */
static bool fill(gpu *g, int type, size_t bytes_each) {
  uint64_t state = 0x9E3779B97F4A7C15ull;
  size_t size = type == GPU_F32 ? 4 : 2;
  for (size_t i = 0; i < PATTERN_BYTES / size; i++) {
    float x = (float)random_normal(&state);
    if (type == GPU_F32)
      ((float *)g->host)[i] = x;
    else
      ((uint16_t *)g->host)[i] = type == GPU_BF16 ? to_bf16(x) : to_f16(x);
  }
  for (int i = 0; i < 2; i++)
    for (size_t at = 0; at < bytes_each; at += PATTERN_BYTES) {
      size_t bytes = bytes_each - at < PATTERN_BYTES ? bytes_each - at : PATTERN_BYTES;
      if (g->api.to_device(g->memory[i] + at, g->host, bytes, NULL)) return false;
    }
  return !g->api.synchronize();
}

/* ---- products ---- */

typedef struct gpu_product {
  int m, n, k, type;
  bool trans_a, trans_b;
} gpu_product;

/* Row-major y[m, n] = a[m, k] b[k, n] is column-major y' = b' a'. */
static bool multiply(gpu *g, void *arg) {
  const gpu_product *p = arg;
  gpu_shape shape = {.type = p->type,
                     .trans_a = p->trans_b,
                     .trans_b = p->trans_a,
                     .m = p->n,
                     .n = p->m,
                     .k = p->k,
                     .a_ld = p->trans_b ? p->k : p->n,
                     .b_ld = p->trans_a ? p->m : p->k,
                     .c_ld = p->n,
                     .d_ld = p->n,
                     .count = 1,
                     .epilogue = GPU_EPILOGUE_NONE};
  gpu_operands operands = {g->memory[1], g->memory[0], g->memory[2], g->memory[2], false, 0, 0};
  return !gpu_products_run(g->products, &shape, &operands, g->workspace, WORKSPACE_BYTES, NULL);
}

/* Forward, gradient of inputs and gradient of weights take turns, as in gemm.c. */
static void measure_products(gpu *g, int type, const char *name, double budget_s) {
  enum { SHAPES = N_SIDES * N_SIDES * N_SIDES };
  if (!fill(g, type, (size_t)LONGEST * LONGEST * (type == GPU_F32 ? 4 : 2))) return;
  for (int i = 0; i < SHAPES; i++) {
    gpu_product p = {.m = sides[i / N_SIDES / N_SIDES],
                     .n = sides[i / N_SIDES % N_SIDES],
                     .k = sides[i % N_SIDES],
                     .type = type,
                     .trans_b = i % 3 == 1,
                     .trans_a = i % 3 == 2};
    double seconds = time_gpu(g, multiply, &p, budget_s / SHAPES);
    char row[64];
    snprintf(row, sizeof row, "gpu_gemm_%s_%dx%dx%d", name, p.m, p.n, p.k);
    if (seconds > 0)
      put_row(row, 2.0 * p.m * p.n * p.k / seconds, "FLOP/s", "%s operand transposed",
              p.trans_a   ? "left"
              : p.trans_b ? "right"
                          : "no");
  }
}

/* ---- the rest ---- */

static bool copy_inside(gpu *g, void *arg) {
  (void)arg;
  return !g->api.copy(g->memory[1], g->memory[0], COPY_BYTES, NULL);
}
static bool copy_in(gpu *g, void *arg) {
  (void)arg;
  return !g->api.to_device(g->memory[0], g->host, PATTERN_BYTES, NULL);
}
static bool copy_out(gpu *g, void *arg) {
  (void)arg;
  return !g->api.to_host(g->host, g->memory[0], PATTERN_BYTES, NULL);
}

enum { LAUNCHES = 1000 };
static bool launch_many(gpu *g, void *arg) {
  (void)arg;
  for (int i = 0; i < LAUNCHES; i++)
    if (g->api.launch(g->empty_kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)) return false;
  return true;
}

static const char empty_kernel_text[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
                                        ".visible .entry nothing()\n{\n  ret;\n}\n";

static void put_rate(const char *name, double bytes, double seconds, const char *how) {
  if (seconds > 0) put_row(name, bytes / seconds, "B/s", "%s", how);
}

static void measure_copies(gpu *g, double budget_s) {
  put_rate("gpu_copy_bytes_per_s", 2.0 * COPY_BYTES, time_gpu(g, copy_inside, NULL, budget_s),
           "256 MiB read and written");
  put_rate("pcie_to_device_bytes_per_s", PATTERN_BYTES, time_gpu(g, copy_in, NULL, budget_s), "64 MiB, pinned");
  put_rate("pcie_to_host_bytes_per_s", PATTERN_BYTES, time_gpu(g, copy_out, NULL, budget_s), "64 MiB, pinned");
  void *module = NULL;
  if (g->api.load_module(&module, empty_kernel_text) || g->api.find_kernel(&g->empty_kernel, module, "nothing")) return;
  double seconds = time_gpu(g, launch_many, NULL, budget_s);
  if (seconds > 0) put_row("gpu_launch_s", seconds / LAUNCHES, "s", "an empty kernel, one after the other");
}

static bool allocate(gpu *g) {
  for (int i = 0; i < 3; i++)
    if (g->api.allocate(&g->memory[i], (size_t)LONGEST * LONGEST * sizeof(float))) return false;
  return !g->api.allocate(&g->workspace, WORKSPACE_BYTES) && !g->api.allocate_host(&g->host, PATTERN_BYTES) &&
         !g->api.new_event(&g->begin, 0) && !g->api.new_event(&g->end, 0);
}

static void release(gpu *g) {
  for (int i = 0; i < 3; i++)
    if (g->memory[i]) g->api.release(g->memory[i]);
  if (g->host) g->api.release_host(g->host);
  if (g->workspace) g->api.release(g->workspace);
  gpu_products_close(g->products);
}

/* Name, size, and what a context with cuBLASLt takes of it; nothing else may run on the device. */
static void describe(gpu *g, int device) {
  char name[128] = "";
  int cores = 0;
  size_t total = 0, available = 0;
  g->api.device_name(name, sizeof name, device);
  if (!g->api.attribute(&cores, GPU_MULTIPROCESSORS, device))
    put_row("gpu_cores", cores, "multiprocessors", "%s", name);
  if (!g->api.memory_info(&available, &total) && total > available) {
    put_row("gpu_memory_bytes", (double)total, "B", "%s", name);
    put_row("gpu_context_bytes", (double)(total - available), "B", "context%s, nothing allocated",
            g->products ? " and cuBLASLt" : "");
  }
}

int measure_gpu(double budget_s) {
  gpu g = {0};
  const char *why_not = "";
  int count = 0, device = 0, major = 0;
  void *context = NULL;
  if (!gpu_api_open(&g.api, NULL, &why_not)) {
    fprintf(stderr, "zplan-calibrate: no GPU is measured: %s\n", why_not);
    return 0;
  }
  if (g.api.init(0) || g.api.device_count(&count) || count == 0 || g.api.device(&device, 0) ||
      g.api.retain_context(&context, device) || g.api.set_context(context)) {
    fprintf(stderr, "zplan-calibrate: no GPU is measured: the CUDA driver finds none that can be used\n");
    return 0;
  }
  if (!gpu_api_open_blas(&g.api, device, &why_not))
    fprintf(stderr, "zplan-calibrate: no products of the GPU are measured: %s\n", why_not);
  int status = 0;
  if (g.api.has_blas) g.products = gpu_products_open(&g.api, &status);
  describe(&g, device);
  bool fine = allocate(&g);
  if (fine && g.products) {
    g.api.attribute(&major, GPU_CAPABILITY_MAJOR, device);
    measure_products(&g, major >= 8 ? GPU_BF16 : GPU_F16, "half", budget_s * 0.5);
    measure_products(&g, GPU_F32, "f32", budget_s * 0.3);
  }
  if (fine) measure_copies(&g, budget_s * 0.05);
  if (!fine) fprintf(stderr, "zplan-calibrate: the GPU has too little free memory to be measured\n");
  release(&g);
  g.api.release_context(device);
  return fine ? 0 : 1;
}
