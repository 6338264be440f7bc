/* SPDX-License-Identifier: Apache-2.0 */
/* zplan doctor: what was found on this machine, so that a failed build can be understood. */
#include "driver.h"
#include "launcher.h"
#include <zplan/cuda.h>
#include <zplan/rowkernel.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *library(zp_arena *arena, const char *name) {
  void *handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return NULL;
  dlclose(handle);
  return zp_strdup(arena, name);
}

static bool begins(const char *text, const char *with) { return strncmp(text, with, strlen(with)) == 0; }

/* What multiplies matrices in trainers, asked of a program that is linked as they are: a processor that a library takes
 * for an older one trains several times slower, and nothing else would say so. */
static void find_products(zp_doctor *d) {
  zp_arena *arena = d->arena;
  const char *binary = zp_format(arena, "%s/zplan-calibrate", zp_program_dir(arena));
  const char *argv[] = {binary, "products", "0.2", NULL};
  zp_calibration c = {0};
  bool ran = access(binary, X_OK) == 0 && zp_run_measuring(arena, argv, 0.2, &c) == 0;
  bool has_f64 = zp_calibration_value(&c, "products_f64", 0) > 0,
       has_f32 = zp_calibration_value(&c, "products_f32", 0) > 0;
  for (int i = 0; i < c.rows.len; i++) {
    const zp_measurement *m = &c.rows.data[i];
    if (strcmp(m->name, "processor") == 0) zp_doctor_row(d, "processor", m->how, "");
    if (begins(m->name, "products_"))
      zp_doctor_row(d, zp_format(arena, "products %s", m->name + strlen("products_")),
                    zp_format(arena, "%s: %sFLOP/s", m->how, zp_show_count(arena, m->value)), "");
  }
  if (!has_f32) zp_doctor_row(d, "products f32", NULL, ran ? "CPU trainers: oneDNN or OpenBLAS" : binary);
  if (!has_f64) zp_doctor_row(d, "products f64", NULL, ran ? "CPU trainers in f64: OpenBLAS" : binary);
  for (int i = 0; i < c.rows.len; i++)
    if (begins(c.rows.data[i].name, "warning_")) zp_push(arena, &d->warnings, c.rows.data[i].how);
}

static void add_all(zp_doctor *d, const char *what, zp_strings found, const char *needed_for) {
  if (found.len == 0) zp_doctor_row(d, what, NULL, needed_for);
  for (int i = 0; i < found.len; i++) zp_doctor_row(d, what, found.data[i], "");
}

/* What kernels for an arch are compiled and multiplied with. */
static const char *choice_of(zp_arena *arena, const char *arch) {
  const char *error = NULL, *compiles = zp_cuda_library(arena, arch, &error),
             *multiplies = zp_cublas_library(arena, arch, &error);
  const char *lacking = strcmp(arch, "sm_70") == 0 ? "none, it needs CUDA 12" : "none";
  return zp_format(arena, "NVRTC %s, cuBLASLt %s", compiles ? compiles : lacking, multiplies ? multiplies : lacking);
}

/* A machine may have CUDA 13 and 12, in folders of the system and in wheels: what there is, in the order in which it is
 * tried, and what every arch takes of it, archs with the same choice together. */
static void find_libraries(zp_doctor *d) {
  zp_arena *arena = d->arena;
  static const char *const archs[] = {"sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"};
  enum { ARCHS = sizeof archs / sizeof *archs };
  zp_strings nvrtc = zp_cuda_libraries(arena), cublas = zp_cublas_libraries(arena);
  const char *choice[ARCHS];
  add_all(d, "NVRTC", nvrtc, "compiling kernels for GPUs");
  add_all(d, "cuBLASLt", cublas, "running trainers on GPUs");
  for (int i = 0; i < ARCHS && nvrtc.len + cublas.len > 0; i++) choice[i] = choice_of(arena, archs[i]);
  for (int i = 0; i < ARCHS && nvrtc.len + cublas.len > 0;) {
    int end = i + 1;
    while (end < ARCHS && strcmp(choice[end], choice[i]) == 0) end++;
    const char *last = end - i > 1 ? zp_format(arena, "..%s", archs[end - 1] + strlen("sm_")) : "";
    zp_doctor_row(d, zp_format(arena, "%s%s", archs[i], last), choice[i], "");
    i = end;
  }
}

int zp_cmd_doctor(zp_run_state *run) {
  if (run->options.files.len) return zp_usage_error("`zplan doctor` takes no files");
  zp_toolchain tools = zp_find_toolchain(run->arena);
  const char *rt = zp_format(run->arena, "%s/libzplanrt.a", tools.library_dirs[0]);
  const char *header = zp_format(run->arena, "%s/zplan/rt.h", tools.include_dirs[0]);
  zp_doctor found = {.arena = run->arena}, *d = &found;
  zp_doctor_begin(d);
  zp_doctor_row(d, "cc", zp_find_tool(run->arena, getenv("CC") ? getenv("CC") : "cc"), "zplan build, zplan run");
  zp_doctor_row(d, "mpicc", zp_find_tool(run->arena, "mpicc.openmpi"), "trainers of several ranks");
  zp_doctor_row(d, "mpirun", zp_launcher_found(run->arena), "zplan run --ranks 2 and more");
  zp_doctor_row(d, "LLVM's file", library(run->arena, zp_kernels_library()), "row kernels of trainers");
  zp_doctor_row(d, "runtime", access(rt, R_OK) == 0 ? rt : NULL, "linking trainers");
  zp_doctor_row(d, "headers", access(header, R_OK) == 0 ? header : NULL, "compiling trainers");
  const char *kernels = zp_format(run->arena, "%s/zpd_kernels.cuh", tools.device_dirs[1]);
  zp_doctor_row(d, "CUDA driver", zp_cuda_driver(run->arena), "running trainers on GPUs");
  find_libraries(d);
  zp_doctor_row(d, "GPU kernels", access(kernels, R_OK) == 0 ? kernels : NULL, "compiling kernels for GPUs");
  zp_doctor_row(d, "NCCL", zp_nccl_library(run->arena), "GPUs that talk without the host in between");
  zp_doctor_row(d, "c++", zp_find_tool(run->arena, getenv("CXX") ? getenv("CXX") : "c++"),
                "--arch host, an emulated GPU");
  find_products(d);
  zp_doctor_machine(d);
  zp_find_purposes(d, &tools);
  zp_show_doctor(run, d);
  return ZP_EXIT_OK;
}
