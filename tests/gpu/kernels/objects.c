/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel texts on the GPU: found by their hash among the images that pack.py had compiled, or written down for it. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <unistd.h>
#include <zplan/buf.h>
#include "../../unit/cuda_objects.h"
#include "gpu.h"
#include "objects.h"

/* FNV-1a: the name of a text's image. */
static uint64_t hash_of(const char *text, zpk_dtype dtype) {
  uint64_t hash = (UINT64_C(14695981039346656037) ^ (uint64_t)dtype) * UINT64_C(1099511628211);
  for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
  return hash;
}

static void write_text(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  if (!file || fputs(text, file) < 0 || fclose(file) != 0) {
    perror(path);
    _exit(1);
  }
}

/* The whole file; ends the test when it is not there. */
static void *read_image(const char *path) {
  FILE *file = fopen(path, "rb");
  cr_assert(file && fseek(file, 0, SEEK_END) == 0, "no image %s: the text is another one than when it was packed",
            path);
  long bytes = ftell(file);
  rewind(file);
  void *image = bytes > 0 ? malloc((size_t)bytes) : NULL;
  cr_assert(image && fread(image, 1, (size_t)bytes, file) == (size_t)bytes, "%s cannot be read", path);
  fclose(file);
  return image;
}

typedef struct start {
  void *function, *args;
  const unsigned *grid, *block;
  unsigned shared_bytes;
} start;

static void run_start(void *with) {
  enum { WITHOUT_ASKING = 48 * 1024 };
  start *s = with;
  if (s->shared_bytes > WITHOUT_ASKING)
    gpu_must(gpu_driver.set_attribute(s->function, GPU_MAX_DYNAMIC_SHARED, (int)s->shared_bytes), "get shared memory");
  gpu_must(gpu_driver.launch(s->function, s->grid[0], s->grid[1], s->grid[2], s->block[0], s->block[1], s->block[2],
                             s->shared_bytes, NULL, &s->args, NULL),
           "start a kernel");
  gpu_must(gpu_driver.synchronize(), "finish a kernel");
}

/* Argument-wise as zpd_host_launch; 0 when all went well. */
static int launch(void (*kernel)(const void *args), const void *args, const unsigned grid[3], const unsigned block[3],
                  unsigned shared_bytes) {
  start s = {.args = (void *)(uintptr_t)args, .grid = grid, .block = block, .shared_bytes = shared_bytes};
  memcpy(&s.function, &kernel, sizeof s.function);
  if (!gpu.collect) gpu_run_on_own_stack(run_start, &s);
  return 0;
}

/* What the driver is asked for: the module of an image, or a kernel of a module. */
typedef struct wanted {
  void *library, *function;
  const void *image;
  const char *kernel;
} wanted;

static void load(void *with) {
  wanted *w = with;
  gpu_must(gpu_driver.load_module(&w->library, w->image), "load the kernels");
}

static void find(void *with) {
  wanted *w = with;
  char what[300];
  snprintf(what, sizeof what, "find the kernel %s", w->kernel);
  gpu_must(gpu_driver.find_kernel(&w->function, w->library, w->kernel), what);
}

static void unload(void *with) { gpu_must(gpu_driver.unload_module(((wanted *)with)->library), "unload the kernels"); }

host_object host_load_as(const char *text, zpk_dtype dtype, bool watch) {
  static const char *const dtypes[] = {[ZPK_F32] = "f32", [ZPK_F64] = "f64", [ZPK_BF16] = "bf16", [ZPK_F16] = "f16"};
  host_object o = {.launch = launch};
  wanted w = {0};
  char path[4096];
  if (watch) zpt_skip("accesses are watched on the emulated GPU alone");
  snprintf(path, sizeof path, "%s/%016llx_%s.%s", gpu.images, (unsigned long long)hash_of(text, dtype), dtypes[dtype],
           gpu.collect ? "cu" : "image");
  if (gpu.collect)
    write_text(path, text);
  else
    w.image = read_image(path);
  if (!gpu.collect) gpu_run_on_own_stack(load, &w);
  o.library = w.library;
  return o;
}

/* Tests name a kernel as the emulator exports it. */
void host_find(const host_object *o, const char *symbol, void *place) {
  static const char prefix[] = "zpd_host_";
  wanted w = {.library = o->library, .kernel = symbol + sizeof prefix - 1};
  cr_assert(strncmp(symbol, prefix, sizeof prefix - 1) == 0, "%s", symbol);
  if (!gpu.collect) gpu_run_on_own_stack(find, &w);
  memcpy(place, &w.function, sizeof w.function);
}

void host_unload(host_object *o) {
  wanted w = {.library = o->library};
  if (!gpu.collect) gpu_run_on_own_stack(unload, &w);
}
