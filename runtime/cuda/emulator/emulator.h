/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the emulated GPU: libzplan_emulated_gpu.so has the functions of the CUDA driver and of cuBLASLt that
 * ../gpu_api.h names, and plays a GPU with memory of the host. It runs the kernels of a shared object that was compiled
 * from the same text as a GPU's (codegen/cuda/emulator). It is slow: it is there to check the road without a GPU.
 *
 * It is stricter than a GPU where that finds mistakes:
 *   addresses of the device cannot be dereferenced by the host (bit 52 is set); those in the arguments of a kernel are
 *   translated when it runs, and one that lies in no allocation, or in memory of the host alone, is an error;
 *   kernels and shapes of products that come after the first message of NCCL are an error;
 *   new memory holds NaN; a page that faults stands after every allocation;
 *   a message takes as long as it may: what it is received to is lost at once, what it is sent from must stay as it is
 *   until somebody waits for it;
 *   work runs only when somebody waits for it: a host that reads results too early, or writes memory that a copy has
 *   still to read, gets wrong numbers every time; so does a stream that does not wait for what another one makes. */
#ifndef ZPLAN_EMULATOR_H
#define ZPLAN_EMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include "../gpu_api.h"

/* CUresult, cublasStatus_t */
enum {
  EMU_SUCCESS = 0,
  EMU_INVALID_VALUE = 1,
  EMU_OUT_OF_MEMORY = 2,
  EMU_INVALID_IMAGE = 200,
  EMU_WRONG_ARCH = 209,
  EMU_NOT_FOUND = 500,
  EMU_NOT_READY = 600,
  EMU_ILLEGAL_ADDRESS = 700,
  EMU_LAUNCH_FAILED = 719,
  EMU_NOT_SUPPORTED = 801,
  EMU_UNKNOWN = 999,
  EMU_BLAS_NOT_INITIALIZED = 1,
  EMU_BLAS_ALLOC_FAILED = 3,
  EMU_BLAS_INVALID_VALUE = 7,
  EMU_BLAS_EXECUTION_FAILED = 13,
  EMU_BLAS_NOT_SUPPORTED = 15
};

/* So long another rank is waited for: longer than a busy machine keeps one from coming. */
enum { EMU_PATIENCE_S = 300 };

/* Declares a function that the library exports. */
#define EMU_EXPORT(symbol, arguments) __attribute__((visibility("default"))) int symbol arguments

/* ---- memory.c ---- */
/* The host's address of `bytes` bytes of device memory; NULL when they do not lie in one allocation. */
void *emu_host(gpu_pointer at, size_t bytes);
/* Translates a word of a kernel's arguments if it is an address of the device; false: of no allocation. */
bool emu_translate(gpu_pointer *word);
bool emu_is_pinned(const void *memory, size_t bytes);
/* Memory of the host that no GPU sees: mapped, neither pinned nor managed. */
bool emu_is_foreign(gpu_pointer word);

/* ---- trouble.c: what is played when ZPLAN_EMULATED_TROUBLE asks for it ---- */
/* The value of "name=value" there. */
long long emu_trouble(const char *name, long long without);

/* ---- counts.c: what the host asks for ---- */
typedef enum emu_counted { EMU_LAUNCHES, EMU_PRODUCTS, EMU_FILLS, EMU_COPIES, EMU_WAITS, EMU_COUNTS } emu_counted;
void emu_count(emu_counted what);

/* ---- nccl.c: has this process started a message? ---- */
/* Kernels spin from then on until other ranks have come, and loading may wait for them: what is loaded now would hang
 * on a GPU, some day. Says so with the name of what is loaded. */
bool emu_loads_too_late(const char *what);
/* A place in a stream: after what it had been given before entry `at` (stream.c). */
typedef struct emu_place {
  int stream;
  long long at;
} emu_place;
/* Somebody works on who is ordered after all messages of the stream before the place: they have left. An error, with a
 * message, if what was sent is not there any more: somebody has written to it who was not. */
int emu_messages_end(emu_place behind);

/* ---- stream.c: work that waits ---- */
/* Copies the struct behind `work` and runs it in its turn of the stream, when somebody waits. Results of work that
 * failed come then. Work that returns EMU_NOT_READY waits for somebody else: it keeps its place and is asked again. */
typedef int emu_run(void *work);
int emu_later(void *stream, emu_run *run, const void *work, size_t bytes);
/* A half of a message. early: it may begin as soon as what is before it in the stream has ended, and does. */
int emu_message_later(void *stream, emu_run *run, const void *work, size_t bytes, bool early);
/* After what the stream has been given. */
emu_place emu_place_in(void *stream);
/* Runs everything, or what a stream has and waits for, as far as it comes; the first error so far. */
int emu_run_all(void);
int emu_run_stream(void *stream);

#endif
