/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine can do with zplan, a line a purpose: the end of `zplan doctor`. */
#include "driver.h"
#include <zplan/cuda.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct purpose {
  zp_doctor *doctor;
  const char *name;
  bool ready;
} purpose;

/* Where something is missing: what, and how it comes here. Only the first one of a purpose. */
static void needs(purpose *p, bool there, const char *missing, const char *remedy) {
  if (there || !p->ready) return;
  p->ready = false;
  zp_doctor_purpose(p->doctor, p->name, missing, remedy);
}

static void done(const purpose *p) {
  if (p->ready) zp_doctor_purpose(p->doctor, p->name, NULL, NULL);
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
  needs(p, is_program(p->doctor->arena, "CC", "cc"), "no C compiler", compiler);
  needs(p, is_file(p->doctor->arena, tools->library_dirs[0], "libzplanrt.a"), "no runtime in this copy", whole_copy);
}

static void find_cpu(zp_doctor *d, const zp_toolchain *tools) {
  zp_arena *arena = d->arena;
  purpose one = {d, "CPU training", true}, many = {d, "several ranks", true};
  needs_trainers(&one, tools);
  needs(&one, opens(zp_kernels_library()), "no LLVM", "apt install libllvm19");
  done(&one);
  needs(&many, one.ready, "as CPU training", "what it lacks");
  needs(&many, zp_find_tool(arena, "mpirun.openmpi") != NULL, "no mpirun.openmpi", "apt install openmpi-bin");
  needs(&many, zp_find_tool(arena, "mpicc.openmpi") != NULL, "no mpicc.openmpi", "apt install libopenmpi-dev");
  done(&many);
}

static void find_gpu(zp_doctor *d, const zp_toolchain *tools) {
  zp_arena *arena = d->arena;
  purpose build = {d, "GPU trainers", true}, run = {d, "GPU training", true}, try = {d, "emulated GPU", true};
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

void zp_find_purposes(zp_doctor *d, const zp_toolchain *tools) {
  zp_arena *arena = d->arena;
  purpose plan = {d, "plan", true}, measure = {d, "calibrate", true};
  needs(&plan, is_file(arena, zp_library_dir(arena), "hw.dz"), "no library",
        zp_format(arena, "%s is not there: %s", zp_library_dir(arena), whole_copy));
  done(&plan);
  needs(&measure, is_file(arena, zp_program_dir(arena), "zplan-calibrate"), "no zplan-calibrate", whole_copy);
  done(&measure);
  find_cpu(d, tools);
  find_gpu(d, tools);
}
