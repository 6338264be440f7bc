/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine can do with zplan, a line a purpose: the end of `zplan doctor`. */
#include "driver.h"
#include <zplan/cuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct purpose {
  zp_arena *arena;
  const char *name;
  bool ready;
} purpose;

/* Prints the line where something is missing: what, and how it comes here. Only the first one of a purpose. */
static void needs(purpose *p, bool there, const char *missing, const char *remedy) {
  if (there || !p->ready) return;
  p->ready = false;
  zp_say(stdout, "  %-18s %s: %s\n", p->name, missing, remedy);
}

static void done(const purpose *p) {
  if (p->ready) zp_say(stdout, "  %-18s ready\n", p->name);
}

static bool is_program(zp_arena *arena, const char *variable, const char *usual) {
  const char *name = getenv(variable) ? getenv(variable) : usual;
  return strchr(name, '/') ? access(name, X_OK) == 0 : zp_find_tool(arena, name) != NULL;
}

static bool opens(const char *library) {
  void *handle = library ? dlopen(library, RTLD_LAZY | RTLD_LOCAL) : NULL;
  if (handle) dlclose(handle);
  return handle != NULL;
}

static bool is_file(zp_arena *arena, const char *folder, const char *name) {
  return access(zp_format(arena, "%s/%s", folder, name), R_OK) == 0;
}

static const char whole_copy[] = "build and install all of zplan (cmake --build build/release, cmake --install)";
static const char compiler[] = "apt install gcc libc6-dev, or name yours in $CC";

static void needs_trainers(purpose *p, const zp_toolchain *tools) {
  needs(p, is_program(p->arena, "CC", "cc"), "no C compiler", compiler);
  needs(p, is_file(p->arena, tools->library_dirs[0], "libzplanrt.a"), "no runtime in this copy", whole_copy);
}

static void show_cpu(zp_arena *arena, const zp_toolchain *tools) {
  purpose one = {arena, "CPU training", true}, many = {arena, "several ranks", true};
  needs_trainers(&one, tools);
  needs(&one, opens(zp_kernels_library()), "no LLVM", "apt install libllvm19");
  done(&one);
  needs(&many, one.ready, "as CPU training", "what it lacks");
  needs(&many, zp_find_tool(arena, "mpirun.openmpi") != NULL, "no mpirun.openmpi", "apt install openmpi-bin");
  needs(&many, zp_find_tool(arena, "mpicc.openmpi") != NULL, "no mpicc.openmpi", "apt install libopenmpi-dev");
  done(&many);
}

static void show_gpu(zp_arena *arena, const zp_toolchain *tools) {
  purpose build = {arena, "GPU trainers", true}, run = {arena, "GPU training", true},
          try = {arena, "emulated GPU", true};
  needs_trainers(&build, tools);
  needs(&build, zp_cuda_libraries(arena).len > 0, "no NVRTC", "CUDA 12 or 13 (libnvrtc), which compiles their kernels");
  needs(&build, zp_cublas_libraries(arena).len > 0, "no cuBLASLt", "CUDA 12 or 13 (libcublasLt)");
  done(&build);
  needs(&run, zp_cuda_driver(arena) != NULL, "no driver", "NVIDIA's for CUDA 12 or later (libcuda.so.1)");
  needs(&run, access("/dev/nvidiactl", F_OK) == 0, "no GPU", "the driver is here, a GPU is not (/dev/nvidiactl)");
  needs(&run, build.ready, "as GPU trainers", "what they lack");
  done(&run);
  needs_trainers(&try, tools);
  needs(&try, is_program(arena, "CXX", "c++"), "no C++ compiler", "apt install g++, or name yours in $CXX");
  done(&try);
}

void zp_show_purposes(zp_run_state *run, const zp_toolchain *tools) {
  purpose plan = {run->arena, "plan", true}, measure = {run->arena, "calibrate", true};
  zp_say(stdout, "\nwhat this machine can do\n");
  needs(&plan, is_file(run->arena, zp_library_dir(run->arena), "hw.dz"), "no library",
        zp_format(run->arena, "%s is not there: %s", zp_library_dir(run->arena), whole_copy));
  done(&plan);
  needs(&measure, is_file(run->arena, zp_program_dir(run->arena), "zplan-calibrate"), "no zplan-calibrate", whole_copy);
  done(&measure);
  show_cpu(run->arena, tools);
  show_gpu(run->arena, tools);
}
