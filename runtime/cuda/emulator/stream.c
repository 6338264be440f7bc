/* SPDX-License-Identifier: Apache-2.0 */
/* Work of the emulated GPU, and its streams. Work runs as late as it may: when somebody waits for its stream, and then
 * that of other streams only as far as an event tells it to wait for them. So a stream that lacks such a wait runs
 * ahead of what it should wait for, every time; on a GPU it would only sometimes.
 *
 * A message is on its way for a while, and the stream order says only what is before and after it. So it has two
 * halves (nccl.c). The `early` half runs as soon as the stream comes to it by itself, before any work that is still to
 * be done. Work that is ordered after a message, in its stream or by an event, ends the message before it starts
 * (emu_messages_end). */
#include "emulator.h"
#include <string.h>
#include <time.h>

enum { MOST = 2048, WORK_BYTES = 4608, STREAMS = 16 };

typedef struct entry {
  int stream;
  bool done, early, message;
  long long at;             /* its number among all */
  size_t bytes;             /* of work */
  long long record, awaits; /* numbers of records of events, 0: none */
  emu_place behind;         /* of the latter: where it stands */
  emu_run *run;             /* NULL: it only waits */
  _Alignas(16) char work[WORK_BYTES];
} entry;

static entry queue[MOST];
static int length, first_error;
static long long records, entries;

/* Somebody begins to wait. */
static void count_wait(void) {
  static long long waits;
  emu_count(EMU_WAITS);
  if (++waits == emu_trouble("falls", 0) && first_error == EMU_SUCCESS) first_error = EMU_UNKNOWN;
}

/* ---- the queue ---- */

static void run_until(int stream, int last);
static void run_ahead(int stream);

/* Has the stream come to the record? */
static bool await_record(long long number) {
  for (int i = 0; i < length; i++) {
    if (queue[i].done || queue[i].record != number) continue;
    run_until(queue[i].stream, i);
    run_ahead(queue[i].stream);
    return queue[i].done;
  }
  return true;
}

static bool has_passed(long long number) {
  for (int i = 0; i < length; i++)
    if (queue[i].record == number && !queue[i].done) return false;
  return true;
}

/* Early work that the stream comes to without anything else. */
static void run_ahead(int stream) {
  for (int i = 0; i < length && first_error == EMU_SUCCESS; i++) {
    entry *e = &queue[i];
    if (e->done || e->stream != stream) continue;
    if (e->awaits ? !has_passed(e->awaits) : !e->early) return;
    first_error = e->run ? e->run(e->work) : emu_messages_end(e->behind);
    e->done = true;
  }
}

/* Work is after the messages of its stream, a wait behind those of another one. */
static int end_messages(const entry *e) {
  if (e->awaits) return emu_messages_end(e->behind);
  return e->run && !e->message && !e->record ? emu_messages_end((emu_place){e->stream, e->at}) : EMU_SUCCESS;
}

/* What the stream was given up to entry `last`, in order. Of records that are awaited, each was given before its wait:
 * so this ends. As on a GPU, nothing runs after a kernel that failed, or before one that waits for another rank. */
static void run_until(int stream, int last) {
  for (int i = 0; i <= last; i++) {
    entry *e = &queue[i];
    if (e->done || e->stream != stream) continue;
    if (e->awaits && !await_record(e->awaits)) return;
    if (first_error == EMU_SUCCESS) first_error = end_messages(e);
    int result = first_error == EMU_SUCCESS && e->run ? e->run(e->work) : first_error;
    if (result == EMU_NOT_READY) return;
    e->done = true;
    first_error = result;
  }
}

static void drop_done(void) {
  int kept = 0;
  for (int i = 0; i < length; i++) {
    if (queue[i].done) continue;
    if (kept < i) memcpy(&queue[kept], &queue[i], offsetof(entry, work) + queue[i].bytes);
    kept++;
  }
  length = kept;
}

static int run_stream(int stream) {
  run_until(stream, length - 1);
  drop_done();
  return first_error;
}

static bool is_waiting(int stream) {
  for (int i = 0; i < length; i++)
    if (!queue[i].done && (stream < 0 || queue[i].stream == stream)) return true;
  return false;
}

int emu_run_all(void) {
  for (int s = 0; s < STREAMS; s++) run_until(s, length - 1);
  drop_done();
  for (int s = 0; s < STREAMS; s++)
    if (first_error == EMU_SUCCESS && !is_waiting(s)) first_error = emu_messages_end((emu_place){s, entries});
  return first_error;
}

/* 0: the stream that is none, as those of NULL. */
static int number_of(void *stream);

static int add(entry **added, void *stream) {
  int number = number_of(stream);
  if (number < 0) return EMU_INVALID_VALUE;
  if (length == MOST) drop_done();
  if (length == MOST) run_stream(number);
  if (length == MOST) emu_run_all();
  *added = &queue[length++];
  memset(*added, 0, offsetof(entry, work));
  (*added)->stream = number;
  (*added)->at = ++entries;
  return first_error;
}

static int add_work(void *stream, emu_run *run, const void *work, size_t bytes, entry **added) {
  entry *e = NULL;
  if (bytes > WORK_BYTES) return EMU_INVALID_VALUE;
  int result = add(&e, stream);
  if (!e) return result;
  e->run = run;
  e->bytes = bytes;
  memcpy(e->work, work, bytes);
  *added = e;
  return result;
}

int emu_later(void *stream, emu_run *run, const void *work, size_t bytes) {
  entry *e = NULL;
  return add_work(stream, run, work, bytes, &e);
}

int emu_message_later(void *stream, emu_run *run, const void *work, size_t bytes, bool early) {
  entry *e = NULL;
  int result = add_work(stream, run, work, bytes, &e);
  if (!e) return result;
  e->message = true;
  e->early = early;
  if (early) run_ahead(e->stream);
  return first_error;
}

/* ---- streams ---- */

static struct stream { bool used; } streams[STREAMS];

static int number_of(void *stream) {
  for (int i = 1; i < STREAMS; i++)
    if (stream == &streams[i] && streams[i].used) return i;
  return stream ? -1 : 0;
}

int emu_run_stream(void *stream) {
  int number = number_of(stream);
  return number < 0 ? EMU_INVALID_VALUE : run_stream(number);
}

emu_place emu_place_in(void *stream) { return (emu_place){number_of(stream), entries}; }

EMU_EXPORT(cuStreamCreate, (void **stream, unsigned flags));
int cuStreamCreate(void **stream, unsigned flags) {
  (void)flags;
  for (int i = 1; i < STREAMS; i++) {
    if (streams[i].used) continue;
    streams[i].used = true;
    *stream = &streams[i];
    return EMU_SUCCESS;
  }
  return EMU_OUT_OF_MEMORY;
}

/* Until the stream has done everything, -1: all of them. A GPU would wait for ever for a rank that is gone; here that
 * is an error after a while. */
static int settle(int stream) {
  time_t end = time(NULL) + EMU_PATIENCE_S;
  int result = stream < 0 ? emu_run_all() : run_stream(stream);
  while (result == EMU_SUCCESS && is_waiting(stream)) {
    if (time(NULL) > end) return EMU_LAUNCH_FAILED;
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    result = stream < 0 ? emu_run_all() : run_stream(stream);
  }
  return result == EMU_SUCCESS && stream >= 0 ? emu_messages_end((emu_place){stream, entries}) : result;
}

EMU_EXPORT(cuStreamSynchronize, (void *stream));
int cuStreamSynchronize(void *stream) {
  count_wait();
  int number = number_of(stream);
  return number < 0 ? EMU_INVALID_VALUE : settle(number);
}

EMU_EXPORT(cuStreamQuery, (void *stream));
int cuStreamQuery(void *stream) {
  int number = number_of(stream), result = number < 0 ? EMU_INVALID_VALUE : run_stream(number);
  if (result == EMU_SUCCESS && is_waiting(number)) return EMU_NOT_READY;
  return result == EMU_SUCCESS ? emu_messages_end((emu_place){number, entries}) : result;
}

EMU_EXPORT(cuStreamDestroy_v2, (void *stream));
int cuStreamDestroy_v2(void *stream) {
  int result = emu_run_stream(stream);
  if (number_of(stream) > 0) ((struct stream *)stream)->used = false;
  return result;
}

EMU_EXPORT(cuCtxSynchronize, (void));
int cuCtxSynchronize(void) {
  count_wait();
  return settle(-1);
}

/* ---- events: the time when the work before them had run ---- */

enum { EVENTS = 8192 };
typedef struct event {
  bool used;
  long long record; /* the last one, */
  emu_place place;  /* and where it stands */
  long long passed; /* the last one that its stream has come to, */
  double ms;        /* and when that was */
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

/* A record in its turn: which event, and the number of the record. */
typedef struct recording {
  event *event;
  long long number;
} recording;

static int run_record(void *work) {
  struct timespec t;
  recording r;
  memcpy(&r, work, sizeof r);
  event *e = r.event;
  e->passed = r.number;
  clock_gettime(CLOCK_MONOTONIC, &t);
  e->ms = (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
  return EMU_SUCCESS;
}

EMU_EXPORT(cuEventRecord, (void *recorded, void *stream));
int cuEventRecord(void *recorded, void *stream) {
  entry *e = NULL;
  int result = add(&e, stream);
  if (!e) return result;
  e->run = run_record;
  e->record = ((event *)recorded)->record = ++records;
  ((event *)recorded)->place = (emu_place){e->stream, e->at};
  recording r = {recorded, e->record};
  e->bytes = sizeof r;
  memcpy(e->work, &r, sizeof r);
  return result;
}

/* For what was recorded last before the call. */
EMU_EXPORT(cuStreamWaitEvent, (void *stream, void *awaited, unsigned flags));
int cuStreamWaitEvent(void *stream, void *awaited, unsigned flags) {
  entry *e = NULL;
  (void)flags;
  int result = add(&e, stream);
  if (e) e->awaits = ((event *)awaited)->record, e->behind = ((event *)awaited)->place;
  return result;
}

EMU_EXPORT(cuEventSynchronize, (void *awaited));
int cuEventSynchronize(void *awaited) {
  count_wait();
  const event *e = awaited;
  bool passed = await_record(e->record);
  int stream = -1;
  for (int i = 0; i < length && !passed; i++)
    if (queue[i].record == e->record) stream = queue[i].stream;
  drop_done();
  if (!passed) return settle(stream);
  return first_error != EMU_SUCCESS ? first_error : emu_messages_end(e->place);
}

EMU_EXPORT(cuEventQuery, (void *asked));
int cuEventQuery(void *asked) {
  bool passed = await_record(((event *)asked)->record);
  drop_done();
  if (first_error != EMU_SUCCESS || !passed) return first_error != EMU_SUCCESS ? first_error : EMU_NOT_READY;
  return emu_messages_end(((event *)asked)->place);
}

EMU_EXPORT(cuEventElapsedTime, (float *milliseconds, void *begin, void *end));
int cuEventElapsedTime(float *milliseconds, void *begin, void *end) {
  const event *b = begin, *e = end;
  if (b->passed != b->record || e->passed != e->record) return EMU_NOT_READY;
  *milliseconds = (float)(e->ms - b->ms);
  return EMU_SUCCESS;
}
