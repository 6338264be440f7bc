/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and kernels of the emulated GPU. An image is a shared object with a function zpd_host_<name> for every
 * kernel and zpd_host_launch, which runs a grid (codegen/cuda/emulator); zpd_host_bytes_<name> is how long its
 * arguments are. */
#define _GNU_SOURCE
#include "emulator.h"
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef void kernel_fn(const void *args);
typedef unsigned bytes_fn(void);
typedef int launch_fn(kernel_fn *kernel, const void *args, const unsigned grid[3], const unsigned block[3],
                      unsigned shared_bytes);

enum { KERNELS = 4096, ARGUMENT_BYTES = 4096 }; /* the latter as on a GPU */
/* Dynamic shared memory of a kernel: without and with the attribute, as on sm_86, sm_89 and sm_120, which have least
 * (and less where trouble is asked for). */
enum { USUAL_SHARED_BYTES = 48 * 1024, MOST_SHARED_BYTES = 99 * 1024 };

typedef struct kernel {
  kernel_fn *run;
  launch_fn *launch;
  bytes_fn *bytes;
  unsigned most_shared; /* dynamic bytes that a launch may ask for */
} kernel;

typedef struct module {
  void *library;
  int fd; /* open as long as the library: its path has the number */
  launch_fn *launch;
  int n;
  kernel kernels[KERNELS];
} module;

/* ---- modules ---- */

/* The driver is given no size: the end of a shared object is that of its last section or of the table of sections. */
static size_t image_bytes(const unsigned char *image) {
  Elf64_Ehdr head;
  memcpy(&head, image, sizeof head);
  if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64) return 0;
  size_t end = head.e_shoff + (size_t)head.e_shnum * head.e_shentsize;
  for (int i = 0; i < head.e_shnum; i++) {
    Elf64_Shdr section;
    memcpy(&section, image + head.e_shoff + (size_t)i * head.e_shentsize, sizeof section);
    size_t its_end = section.sh_offset + (section.sh_type == SHT_NOBITS ? 0 : section.sh_size);
    if (its_end > end) end = its_end;
  }
  return end;
}

static bool write_all(int fd, const unsigned char *bytes, size_t n) {
  while (n > 0) {
    ssize_t put = write(fd, bytes, n);
    if (put <= 0) return false;
    bytes += put;
    n -= (size_t)put;
  }
  return true;
}

EMU_EXPORT(cuModuleLoadData, (void **loaded, const void *image));
int cuModuleLoadData(void **loaded, const void *image) {
  char path[64];
  if (emu_trouble("arch", 0)) return EMU_WRONG_ARCH;
  size_t bytes = image_bytes(image);
  module *m = calloc(1, sizeof *m);
  if (!m) return EMU_OUT_OF_MEMORY;
  m->fd = memfd_create("emulated-gpu-kernels", MFD_CLOEXEC);
  snprintf(path, sizeof path, "/proc/self/fd/%d", m->fd);
  if (m->fd >= 0 && bytes > 0 && write_all(m->fd, image, bytes)) m->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (m->library) *(void **)&m->launch = dlsym(m->library, "zpd_host_launch");
  if (m->launch) {
    *loaded = m;
    return EMU_SUCCESS;
  }
  const char *reason = bytes == 0 ? "it is no shared object" : dlerror();
  fprintf(stderr, "emulated GPU: the kernels cannot be loaded: %s\n", reason ? reason : "no memory for them");
  if (m->library) dlclose(m->library);
  if (m->fd >= 0) close(m->fd);
  free(m);
  return EMU_INVALID_IMAGE;
}

EMU_EXPORT(cuModuleUnload, (void *loaded));
int cuModuleUnload(void *loaded) {
  module *m = loaded;
  int result = emu_run_all();
  dlclose(m->library);
  close(m->fd);
  free(m);
  return result;
}

EMU_EXPORT(cuModuleGetFunction, (void **found, void *loaded, const char *name));
int cuModuleGetFunction(void **found, void *loaded, const char *name) {
  module *m = loaded;
  char symbol[256];
  if (m->n == KERNELS || snprintf(symbol, sizeof symbol, "zpd_host_bytes_%s", name) >= (int)sizeof symbol)
    return EMU_NOT_FOUND;
  kernel *k = &m->kernels[m->n];
  snprintf(symbol, sizeof symbol, "zpd_host_%s", name);
  *(void **)&k->run = dlsym(m->library, symbol);
  snprintf(symbol, sizeof symbol, "zpd_host_bytes_%s", name);
  *(void **)&k->bytes = dlsym(m->library, symbol);
  k->launch = m->launch;
  k->most_shared = USUAL_SHARED_BYTES;
  if (!k->run) return EMU_NOT_FOUND;
  if (emu_loads_too_late(name)) return EMU_LAUNCH_FAILED;
  m->n++;
  *found = k;
  return EMU_SUCCESS;
}

EMU_EXPORT(cuFuncSetAttribute, (void *function, int attribute, int value));
int cuFuncSetAttribute(void *function, int attribute, int value) {
  kernel *k = function;
  if (attribute != GPU_MAX_DYNAMIC_SHARED) return EMU_NOT_SUPPORTED;
  if (value < 0 || value > emu_trouble("shared", MOST_SHARED_BYTES)) return EMU_INVALID_VALUE;
  k->most_shared = (unsigned)value;
  return EMU_SUCCESS;
}

/* ---- launches ---- */

typedef struct start {
  const kernel *kernel;
  unsigned grid[3], block[3], shared_bytes;
  size_t bytes;
  _Alignas(16) unsigned char arguments[ARGUMENT_BYTES];
} start;

/* Any aligned word that is an address of the device is taken for one: no number of a kernel's arguments lies there. */
static bool translate_arguments(start *s) {
  for (size_t at = 0; at + sizeof(gpu_pointer) <= s->bytes; at += sizeof(gpu_pointer)) {
    gpu_pointer word;
    memcpy(&word, s->arguments + at, sizeof word);
    if (emu_is_foreign(word)) {
      fprintf(stderr, "emulated GPU: byte %zu of a kernel's arguments is an address of the host\n", at);
      return false;
    }
    if (!emu_translate(&word)) return false;
    memcpy(s->arguments + at, &word, sizeof word);
  }
  return true;
}

static int run_start(void *work) {
  start *s = work;
  if (!translate_arguments(s)) return EMU_ILLEGAL_ADDRESS;
  return s->kernel->launch(s->kernel->run, s->arguments, s->grid, s->block, s->shared_bytes) ? EMU_LAUNCH_FAILED
                                                                                             : EMU_SUCCESS;
}

/* Arguments come as one buffer: CU_LAUNCH_PARAM_BUFFER_POINTER, its address, CU_LAUNCH_PARAM_BUFFER_SIZE, address of
 * its size, CU_LAUNCH_PARAM_END. Or as a list of addresses of arguments, of which our kernels have one. */
static bool read_arguments(void **arguments, void **extra, start *s) {
  if (arguments) {
    s->bytes = s->kernel->bytes ? s->kernel->bytes() : 0;
    if (extra || s->bytes == 0 || s->bytes > ARGUMENT_BYTES) return false;
    memcpy(s->arguments, arguments[0], s->bytes);
    return true;
  }
  if (!extra || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4] != (void *)0) return false;
  memcpy(&s->bytes, extra[3], sizeof s->bytes);
  if (s->bytes > ARGUMENT_BYTES) return false;
  memcpy(s->arguments, extra[1], s->bytes);
  return true;
}

EMU_EXPORT(cuLaunchKernel,
           (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
            unsigned block_z, unsigned shared_bytes, void *stream, void **arguments, void **extra));
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments,
                   void **extra) {
  start s = {.kernel = function,
             .grid = {grid_x, grid_y, grid_z},
             .block = {block_x, block_y, block_z},
             .shared_bytes = shared_bytes};
  if (!read_arguments(arguments, extra, &s)) return EMU_NOT_SUPPORTED;
  /* The limits of every GPU since 2010. */
  bool fits = grid_x && grid_y && grid_z && block_x && block_y && block_z && grid_x <= 0x7fffffff && grid_y <= 65535 &&
              grid_z <= 65535 && block_x * block_y * block_z <= 1024 && shared_bytes <= s.kernel->most_shared;
  if (!fits) return EMU_INVALID_VALUE;
  emu_count(EMU_LAUNCHES);
  return emu_later(stream, run_start, &s, sizeof s);
}
