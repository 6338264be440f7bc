/* Work of the emulated GPU: one queue for all streams, in the order in which it was given, so events are always in
 * order. It runs when somebody waits, or when the queue is full. */
#include "emulator.h"
#include <string.h>
#include <time.h>

enum { MOST = 1024, WORK_BYTES = 4608 };

typedef struct entry {
  emu_run *run;
  _Alignas(16) char work[WORK_BYTES];
} entry;

static entry queue[MOST];
static int length, first_error;

int emu_run_all(void) {
  for (int i = 0; i < length; i++) {
    int result = queue[i].run(queue[i].work);
    if (first_error == EMU_SUCCESS) first_error = result;
    if (first_error != EMU_SUCCESS) break; /* as on a GPU: nothing runs after a kernel that failed */
  }
  length = 0;
  return first_error;
}

int emu_later(emu_run *run, const void *work, size_t bytes) {
  if (bytes > WORK_BYTES) return EMU_INVALID_VALUE;
  if (length == MOST) emu_run_all();
  queue[length].run = run;
  memcpy(queue[length++].work, work, bytes);
  return first_error;
}

/* ---- streams ---- */

EMU_EXPORT(cuStreamCreate, (void **stream, unsigned flags));
int cuStreamCreate(void **stream, unsigned flags) {
  (void)flags;
  *stream = queue; /* all are one */
  return EMU_SUCCESS;
}

EMU_EXPORT(cuStreamDestroy_v2, (void *stream));
int cuStreamDestroy_v2(void *stream) {
  (void)stream;
  return emu_run_all();
}

EMU_EXPORT(cuStreamSynchronize, (void *stream));
int cuStreamSynchronize(void *stream) {
  (void)stream;
  return emu_run_all();
}

EMU_EXPORT(cuCtxSynchronize, (void));
int cuCtxSynchronize(void) { return emu_run_all(); }

EMU_EXPORT(cuStreamWaitEvent, (void *stream, void *awaited, unsigned flags));
int cuStreamWaitEvent(void *stream, void *awaited, unsigned flags) {
  (void)stream, (void)awaited, (void)flags;
  return EMU_SUCCESS;
}

/* ---- events: the time when the work before them had run ---- */

enum { EVENTS = 64 };
typedef struct event {
  bool used;
  double ms;
} event;
static event events[EVENTS];

EMU_EXPORT(cuEventCreate, (void **made, unsigned flags));
int cuEventCreate(void **made, unsigned flags) {
  (void)flags;
  for (int i = 0; i < EVENTS; i++) {
    if (events[i].used) continue;
    events[i].used = true;
    *made = &events[i];
    return EMU_SUCCESS;
  }
  return EMU_OUT_OF_MEMORY;
}

EMU_EXPORT(cuEventDestroy_v2, (void *released));
int cuEventDestroy_v2(void *released) {
  *(event *)released = (event){0};
  return EMU_SUCCESS;
}

static int run_record(void *work) {
  struct timespec t;
  event *e;
  memcpy(&e, work, sizeof e);
  clock_gettime(CLOCK_MONOTONIC, &t);
  e->ms = (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
  return EMU_SUCCESS;
}

EMU_EXPORT(cuEventRecord, (void *recorded, void *stream));
int cuEventRecord(void *recorded, void *stream) {
  (void)stream;
  return emu_later(run_record, &recorded, sizeof recorded);
}

EMU_EXPORT(cuEventSynchronize, (void *awaited));
int cuEventSynchronize(void *awaited) {
  (void)awaited;
  return emu_run_all();
}

EMU_EXPORT(cuEventElapsedTime, (float *milliseconds, void *begin, void *end));
int cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
  *milliseconds = (float)(((const event *)end)->ms - ((const event *)begin)->ms);
  return EMU_SUCCESS;
}
