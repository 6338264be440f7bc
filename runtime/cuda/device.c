/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's GPU: which one, its context, stream and the module with the trainer's kernels. */
#include "cuda.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "watch.h"

/* ---- trouble ---- */

enum { OUT_OF_MEMORY = 2 /* CUDA_ERROR_OUT_OF_MEMORY */, BLAS_ALLOC_FAILED = 3 /* CUBLAS_STATUS_ALLOC_FAILED */ };

static _Noreturn void fail_full(zpr *c, const char *what) {
  const zpr_device *d = c->state->device;
  size_t available = 0, total = 0;
  d->api.memory_info(&available, &total); /* 0 of 0 before there is a context */
  zpr_fail(c, "Z0822", "cannot %s: no memory for it on GPU %d (%s), of whose %zu bytes %zu are free", what, d->ordinal,
           d->name, total, available);
}

void zpr_cuda(zpr *c, int result, const char *what) {
  if (result == 0) return;
  const zpr_device *d = c->state->device;
  const char *name = "an unknown error", *text = "";
  if (result == OUT_OF_MEMORY) fail_full(c, what);
  d->api.error_name(result, &name);
  d->api.error_text(result, &text);
  if (d->last_kernel)
    zpr_fail(c, "Z0852", "cannot %s: %s, %s (GPU %d; the last kernel started was %s)", what, name, text, d->ordinal,
             d->last_kernel);
  zpr_fail(c, "Z0852", "cannot %s: %s, %s (GPU %d)", what, name, text, d->ordinal);
}

void zpr_cublas(zpr *c, int result, const char *what) {
  /* cublasStatus_t */
  static const struct {
    int status;
    const char *name;
  } names[] = {{1, "CUBLAS_STATUS_NOT_INITIALIZED"},   {7, "CUBLAS_STATUS_INVALID_VALUE"},
               {8, "CUBLAS_STATUS_ARCH_MISMATCH"},     {11, "CUBLAS_STATUS_MAPPING_ERROR"},
               {13, "CUBLAS_STATUS_EXECUTION_FAILED"}, {14, "CUBLAS_STATUS_INTERNAL_ERROR"},
               {15, "CUBLAS_STATUS_NOT_SUPPORTED"}};
  if (result == 0) return;
  const char *name = "an unknown error";
  if (result == BLAS_ALLOC_FAILED) fail_full(c, what);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (names[i].status == result) name = names[i].name;
  zpr_fail(c, "Z0852", "cannot %s: cuBLASLt status %d, %s (GPU %d)", what, result, name, c->state->device->ordinal);
}

/* ---- waiting ---- */

/* Asks again and again, at first at once: most waits are short, and a nap would be longer. */
static void watch_until(zpr *c, int (*query)(void *), void *of, const char *what) {
  enum { NOT_READY = 600, AT_ONCE = 2000 }; /* CUDA_ERROR_NOT_READY */
  int result;
  zpr_wait wait = {0};
  for (int64_t asked = 0; (result = query(of)) == NOT_READY; asked++) {
    if (asked < AT_ONCE) continue;
    zpr_nccl_watch(c);
    zpr_watch_gpu(c, &wait);
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
  }
  zpr_cuda(c, result, what);
}

void zpr_cuda_wait_stream(zpr *c, void *stream, const char *what) {
  const zpr_device *d = c->state->device;
  if (d->nccl)
    watch_until(c, d->api.query_stream, stream, what);
  else
    zpr_cuda(c, d->api.await_stream(stream), what);
}

void zpr_cuda_wait_event(zpr *c, void *event, const char *what) {
  const zpr_device *d = c->state->device;
  if (d->nccl)
    watch_until(c, d->api.query_event, event, what);
  else
    zpr_cuda(c, d->api.await_event(event), what);
}

void zpr_cuda_wait(zpr *c) { zpr_cuda_wait_stream(c, c->state->device->stream, "finish the work on the GPU"); }

/* ---- opening ---- */

/* The ELF header of the image says what its code runs on. */
typedef enum image_kind { NO_IMAGE, CUBIN, HOST_OBJECT } image_kind;

static image_kind kind_of(const zpr_program *p) {
  enum { MACHINE_AT = 18, MACHINE_CUDA = 190 };
  const unsigned char *elf = p->device_image;
  if (!elf || p->device_image_bytes < 64 || memcmp(elf, "\177ELF", 4) != 0) return NO_IMAGE;
  return elf[MACHINE_AT] + 256 * elf[MACHINE_AT + 1] == MACHINE_CUDA ? CUBIN : HOST_OBJECT;
}

/* The driver and a GPU, or why there is none. */
static void find_gpu(zpr *c, zpr_error *error) {
  /* Streams in use are 12 at most (nccl_stages.c); unless the user has set it, each has a hardware queue of its own. */
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", false);
  zpr_device *d = c->state->device;
  image_kind kind = kind_of(c->program);
  const char *why_not = "";
  int count = 0, place = zpr_rank_on_host(c);
  d->emulated = kind == HOST_OBJECT;
  if (kind == NO_IMAGE) {
    zpr_error_set(error, "Z0851", "this trainer holds no kernels for a GPU");
  } else if (!gpu_api_open(&d->api, d->emulated ? "libzplan_emulated_gpu.so" : NULL, &why_not)) {
    zpr_error_set(error, "Z0851", "this trainer needs %s: %s", d->emulated ? "the emulated GPU" : "a GPU", why_not);
  } else if (d->api.init(0) || d->api.device_count(&count) || count == 0 || d->api.device(&d->ordinal, place % count)) {
    zpr_error_set(error, "Z0851", "this trainer needs a GPU: the CUDA driver finds none that can be used");
  } else if (!gpu_api_open_blas(&d->api, d->ordinal, &why_not)) {
    zpr_error_set(error, "Z0851", "this trainer needs cuBLASLt: %s", why_not);
  }
}

/* As in kernels/include/zplan/zpd.h; the functions are found when they are first started, or before the first
 * message. */
static void name_kernels(zpr_kernels *kernels) {
#define ZPR_NAME(kernel) kernels->kernel.name = "zpd_" #kernel;
  ZPR_DEVICE_KERNELS(ZPR_NAME)
#undef ZPR_NAME
}

static void load_kernels(zpr *c) {
  enum { WRONG_ARCH = 209 }; /* CUDA_ERROR_NO_BINARY_FOR_GPU */
  zpr_device *d = c->state->device;
  int result = d->api.load_module(&d->module, c->program->device_image);
  if (result == WRONG_ARCH) {
    zpr_fail(c, "Z0852",
             "cannot load the kernels: they were built for another kind of GPU than %s, which is sm_%d (--arch of "
             "zplan build)",
             d->name, d->capability);
  }
  zpr_cuda(c, result, "load the kernels");
  name_kernels(&d->kernels);
}

static int capability_of(zpr *c, const zpr_device *d) {
  int major = 0, minor = 0;
  zpr_cuda(c, d->api.attribute(&major, GPU_CAPABILITY_MAJOR, d->ordinal), "ask for the GPU's kind");
  zpr_cuda(c, d->api.attribute(&minor, GPU_CAPABILITY_MINOR, d->ordinal), "ask for the GPU's kind");
  return 10 * major + minor;
}

void zpr_device_open(zpr *c) {
  zpr_device *d = c->state->device = zpr_alloc(c, 1, sizeof *d);
  zpr_error error = {0};
  if (c->state->options.products)
    zpr_error_set(&error, "Z0854",
                  "--products is for trainers of CPU ranks: this one was built for GPUs, and cuBLASLt");
  zpr_agree(c, &error);
  find_gpu(c, &error);
  zpr_agree(c, &error);
  zpr_cuda(c, d->api.device_name(d->name, sizeof d->name, d->ordinal), "ask for the GPU's name");
  zpr_cuda(c, d->api.attribute(&d->multiprocessors, GPU_MULTIPROCESSORS, d->ordinal), "ask for the GPU's size");
  d->capability = capability_of(c, d);
  zpr_cuda(c, d->api.retain_context(&d->context, d->ordinal), "make a context");
  zpr_cuda(c, d->api.set_context(d->context), "enter the context");
  zpr_cuda(c, d->api.new_stream(&d->stream, 1), "make a stream"); /* CU_STREAM_NON_BLOCKING */
  zpr_cuda_products_open(c);
  load_kernels(c);
  zpr_cuda(c, d->api.allocate_host((void **)&d->pinned, ZPR_PINNED_BYTES), "get pinned memory of the host");
  zpr_cuda(c, d->api.allocate(&d->scalars, sizeof(zpr_scalars)), "get memory for sums");
  zpr_cuda(c, d->api.fill_bytes(d->scalars, 0, sizeof(zpr_scalars), d->stream), "clear the sums");
  size_t tickets = ZPD_MOST_TILES * ZPD_TICKETS_OF_TILE * sizeof(unsigned);
  zpr_cuda(c, d->api.allocate(&d->tickets, tickets), "get memory for counters");
  zpr_cuda(c, d->api.fill_bytes(d->tickets, 0, tickets, d->stream), "clear the counters");
  zpr_cuda_comm_open(c);
  zpr_cuda_overlapped_open(c);
}

void zpr_device_close(zpr *c) {
  zpr_device *d = c->state->device;
  zpr_cuda_wait(c);
  zpr_copies_close(c);
  zpr_cuda_overlapped_close(c);
  zpr_cuda_tokens_close(c);
  zpr_cuda_decide_close(c);
  zpr_cuda_comm_close(c);
  d->api.release(d->scalars);
  d->api.release(d->tickets);
  d->api.release_host(d->pinned);
  d->api.unload_module(d->module);
  zpr_cuda_products_close(c);
  d->api.release_stream(d->stream);
  d->api.release_context(d->ordinal);
  free(d);
  c->state->device = NULL;
}

void zpr_device_describe(zpr *c, zpr_device_text *text) {
  const zpr_device *d = c->state->device;
  const char *way = c->ranks == 1 ? "" : d->nccl ? ", messages by NCCL" : ", messages staged in host memory";
  *text = (zpr_device_text){.products = "cuBLASLt"};
  snprintf(text->device, sizeof text->device, "%s%s", d->name, way);
}

/* ---- kernels ---- */

int64_t zpr_grid(const zpr *c, int64_t work) {
  int64_t most = (int64_t)c->state->device->multiprocessors * 16;
  return work < 1 ? 1 : work < most ? work : most;
}

/* A kernel has its shared memory from then on: every launch of one kernel asks for as much. */
void zpr_load_kernel(zpr *c, zpr_device_kernel *kernel, int shared_bytes) {
  enum { WITHOUT_ASKING = 48 * 1024, INVALID_VALUE = 1 /* CUDA_ERROR_INVALID_VALUE */ };
  zpr_device *d = c->state->device;
  char what[160];
  if (kernel->function) return;
  snprintf(what, sizeof what, "find the kernel %s", kernel->name);
  zpr_cuda(c, d->api.find_kernel(&kernel->function, d->module, kernel->name), what);
  if (shared_bytes <= WITHOUT_ASKING) return;
  int result = d->api.set_attribute(kernel->function, GPU_MAX_DYNAMIC_SHARED, shared_bytes);
  if (result == INVALID_VALUE)
    zpr_fail(c, "Z0852",
             "GPU %d (%s) cannot run the kernel %s: its blocks have less than the %d bytes of shared memory that heads "
             "of %d columns take",
             d->ordinal, d->name, kernel->name, shared_bytes, c->program->tensor_core_head);
  snprintf(what, sizeof what, "get shared memory for the kernel %s", kernel->name);
  zpr_cuda(c, result, what);
}

/* With --sync: whatever ran before the kernel has ended well, then the kernel. Products and copies are no kernels of
 * ours: a failure of theirs is reported as after the last kernel. */
static void sync(zpr *c, const char *kernel, bool before) {
  const zpr_device *d = c->state->device;
  char what[192];
  if (!c->state->options.sync) return;
  if (before)
    snprintf(what, sizeof what, "finish what was started before the kernel %s: a product or a copy", kernel);
  else
    snprintf(what, sizeof what, "finish the kernel %s", kernel);
  zpr_cuda_wait_stream(c, d->stream, what);
}

void zpr_launch(zpr *c, zpr_device_kernel *kernel, const void *args, size_t bytes, int64_t grid_x, int64_t grid_y,
                int64_t grid_z, unsigned threads) {
  zpr_launch_shared(c, kernel, args, bytes, grid_x, grid_y, grid_z, threads, 0);
}

void zpr_launch_shared(zpr *c, zpr_device_kernel *kernel, const void *args, size_t bytes, int64_t grid_x,
                       int64_t grid_y, int64_t grid_z, unsigned threads, int shared_bytes) {
  zpr_device *d = c->state->device;
  zpr_load_kernel(c, kernel, shared_bytes);
  if (c->state->rehearses) return;
  /* CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END: one struct, whose bytes the driver takes before it returns. */
  void *extra[] = {(void *)1, (void *)(uintptr_t)args, (void *)2, &bytes, (void *)0};
  zpr_comm_progress(c);
  sync(c, kernel->name, true);
  d->last_kernel = kernel->name;
  zpr_cuda(c,
           d->api.launch(kernel->function, (unsigned)grid_x, (unsigned)grid_y, (unsigned)grid_z, threads, 1, 1,
                         (unsigned)shared_bytes, d->stream, NULL, extra),
           "start a kernel");
  sync(c, kernel->name, false);
}
