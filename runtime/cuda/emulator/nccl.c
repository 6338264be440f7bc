/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL between ranks that have an emulated GPU each (--comm nccl): communicators are folders, messages are files in
 * them. What is checked so is who joins what in which order, how operations match, and what they read and write, in
 * the order of their streams; not speed.
 *
 * Joining waits for all members, as NCCL does. An operation is done in two halves, first what it gives to others and
 * then what it takes from them; between ncclGroupStart and ncclGroupEnd all give before any takes. What is given leaves
 * at once, with the work before it: on a GPU it does so by itself, while the host waits for somebody else. Who waits
 * longer than PATIENCE_S for somebody is told so: ranks that wait for each other end.
 *
 * A GPU reads and writes the buffers of a message at any time between what is ordered before and what after it. Both
 * bounds are played: what is received to becomes NaN as soon as the stream comes there, and gets its values when
 * somebody waits for them; what is sent is read at once, and must still be there when somebody waits for that. So a
 * kernel that reads too early or too late, or writes too early, is found every time.
 *
 * A member whose process is gone is not waited for: the operation stays where it is, as the kernel of an NCCL spins,
 * and ncclCommGetAsyncError says so. With ZPLAN_EMULATED_NCCL_LOSES=N the N-th message that a process waits for never
 * comes, as if its sender were gone; ZPLAN_EMULATED_NCCL_VERSION is what ncclGetVersion says. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "emulator.h"
#include <zplan/zpk_narrow.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 }; /* ncclResult_t */
enum { U8 = 1, F16 = 6, F32 = 7, F64 = 8, BF16 = 9 };                                              /* ncclDataType_t */
enum { ID_BYTES = 128, MOST_RANKS = 64, MOST_GROUPED = 4096, PATH = ID_BYTES + 64 };

typedef struct unique_id {
  char path[ID_BYTES];
} unique_id;

typedef struct communicator {
  char path[ID_BYTES];
  int ranks, me;
  int given[MOST_RANKS], taken[MOST_RANKS]; /* messages with every member, counted when they are asked for */
  int error;                                /* REMOTE_ERROR: a member is gone */
} communicator;

/* An operation as its halves see it. `to` and `from` are the host's. */
typedef enum kind { SEND, RECEIVE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST } kind;
typedef struct operation {
  void *stream;
  emu_place place;
  kind kind;
  communicator *comm;
  const char *from;
  char *to;
  size_t bytes; /* of one member's part */
  int type, peer;
  int given[MOST_RANKS], taken[MOST_RANKS]; /* numbers of the messages that it gives and takes */
} operation;

/* ---- files ---- */

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); }

/* Waits until the file is there. */
static bool await_file(const char *path) {
  time_t end = time(NULL) + EMU_PATIENCE_S;
  while (access(path, F_OK) != 0) {
    if (time(NULL) > end) return false;
    nap();
  }
  return true;
}

static void message_path(char path[PATH], const communicator *c, int from, int to, int number) {
  snprintf(path, PATH, "%s/%d_%d_%d", c->path, from, to, number);
}

static bool give(const communicator *c, int to, int number, const char *data, size_t bytes) {
  char path[PATH], part[PATH + 8];
  message_path(path, c, c->me, to, number);
  snprintf(part, sizeof part, "%s.part", path);
  FILE *file = fopen(part, "wb");
  if (!file) return false;
  bool good = fwrite(data, 1, bytes, file) == bytes;
  good &= fclose(file) == 0;
  return good && rename(part, path) == 0;
}

/* The process of a member, as it wrote it down when it joined. */
static bool is_gone(const communicator *c, int member) {
  char path[PATH];
  int process = 0;
  snprintf(path, sizeof path, "%s/member_%d", c->path, member);
  FILE *file = fopen(path, "r");
  bool known = file && fscanf(file, "%d", &process) == 1;
  if (file) fclose(file);
  return known && kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

/* Counts the messages that this process waits for. */
static bool is_lost(void) {
  static int waited;
  const char *loses = getenv("ZPLAN_EMULATED_NCCL_LOSES");
  return loses && ++waited == atoi(loses);
}

/* False, with the communicator's error, when the sender is gone and its message is not there. */
static bool may_come(communicator *c, int from, const char *path) {
  for (int i = 0; c->error == SUCCESS && access(path, F_OK) != 0; i++) {
    if (is_lost() || (i % 64 == 63 && is_gone(c, from) && access(path, F_OK) != 0)) c->error = REMOTE_ERROR;
    if (i == 4096) break; /* patience is await_file's */
    nap();
  }
  return c->error == SUCCESS;
}

/* False also when the message has another length. */
static bool take(communicator *c, int from, int number, char *data, size_t bytes) {
  char path[PATH];
  message_path(path, c, from, c->me, number);
  if (!may_come(c, from, path)) return false;
  if (!await_file(path)) {
    fprintf(stderr, "emulated NCCL: rank %d of %d waits for ever for message %d of rank %d\n", c->me, c->ranks, number,
            from);
    return false;
  }
  FILE *file = fopen(path, "rb");
  if (!file) return false;
  bool good = fread(data, 1, bytes, file) == bytes && fgetc(file) == EOF;
  if (!good)
    fprintf(stderr, "emulated NCCL: message %d of rank %d has not the %zu bytes asked for\n", number, from, bytes);
  fclose(file);
  unlink(path);
  return good;
}

/* ---- communicators ---- */

EMU_EXPORT(ncclGetUniqueId, (unique_id * id));
int ncclGetUniqueId(unique_id *id) {
  const char *folder = getenv("TMPDIR");
  int length = snprintf(id->path, sizeof id->path, "%s/zplan-nccl-XXXXXX", folder ? folder : "/tmp");
  return length < ID_BYTES && mkdtemp(id->path) ? SUCCESS : SYSTEM_ERROR;
}

EMU_EXPORT(ncclCommInitRank, (void **made, int ranks, unique_id id, int rank));
int ncclCommInitRank(void **made, int ranks, unique_id id, int rank) {
  if (rank < 0 || rank >= ranks || ranks > MOST_RANKS) return INVALID_ARGUMENT;
  communicator *c = calloc(1, sizeof *c);
  char path[PATH];
  if (!c) return SYSTEM_ERROR;
  memcpy(c->path, id.path, sizeof c->path);
  c->ranks = ranks;
  c->me = rank;
  snprintf(path, sizeof path, "%s/member_%d", c->path, rank);
  FILE *file = fopen(path, "wx"); /* a second member of this number is a mistake */
  bool good = file && fprintf(file, "%d\n", (int)getpid()) > 0;
  if (file) good &= fclose(file) == 0;
  for (int r = 0; r < ranks && good; r++) {
    snprintf(path, sizeof path, "%s/member_%d", c->path, r);
    good = await_file(path);
  }
  if (!good) {
    free(c);
    return SYSTEM_ERROR;
  }
  *made = c;
  return SUCCESS;
}

/* Not before all have joined has anybody left: who leaves says so, and the last one tidies up. */
EMU_EXPORT(ncclCommDestroy, (void *comm));
int ncclCommDestroy(void *comm) {
  communicator *c = comm;
  char path[PATH], left[PATH];
  emu_run_all();
  bool last = true;
  snprintf(path, sizeof path, "%s/member_%d", c->path, c->me);
  snprintf(left, sizeof left, "%s/left_%d", c->path, c->me);
  bool good = link(path, left) == 0;
  for (int r = 0; r < c->ranks; r++) {
    snprintf(left, sizeof left, "%s/left_%d", c->path, r);
    last &= access(left, F_OK) == 0;
  }
  for (int r = 0; r < c->ranks && last; r++) {
    snprintf(path, sizeof path, "%s/member_%d", c->path, r);
    snprintf(left, sizeof left, "%s/left_%d", c->path, r);
    unlink(path);
    unlink(left);
  }
  if (last) rmdir(c->path); /* stays when there is a message that nobody took */
  free(c);
  return good ? SUCCESS : SYSTEM_ERROR;
}

/* ---- sums, in the order of the ranks ---- */

static bool is_narrow(int type) { return type == BF16 || type == F16; }

static double element(const char *x, int type, size_t i) {
  uint16_t half;
  if (type == F64) return ((const double *)(const void *)x)[i];
  if (type == F32) return (double)((const float *)(const void *)x)[i];
  memcpy(&half, x + i * sizeof half, sizeof half);
  return (double)(type == F16 ? zpk_widen_f16(half) : zpk_widen_bf16(half));
}

/* Rounded to the type after every addition but for 16 bits, which are added in f32. */
static void add(char *sum, const char *x, int type, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (type == F64)
      ((double *)(void *)sum)[i] += element(x, type, i);
    else
      ((float *)(void *)sum)[i] += (float)element(x, type, i);
  }
}

static size_t size_of(int type) { return type == U8 ? 1 : type == F64 ? 8 : is_narrow(type) ? 2 : 4; }

/* Sum of the part that every member has given, of which mine is `own`. */
static bool take_sum(const operation *o, const char *own) {
  size_t count = o->bytes / size_of(o->type);
  char *sum = calloc(count, o->type == F64 ? 8 : 4), *part = malloc(o->bytes);
  bool good = sum && part;
  for (int r = 0; r < o->comm->ranks && good; r++) {
    if (r != o->comm->me) good = take(o->comm, r, o->taken[r], part, o->bytes);
    if (good) add(sum, r == o->comm->me ? own : part, o->type, count);
  }
  for (size_t i = 0; i < count && good && is_narrow(o->type); i++) {
    float x = ((float *)(void *)sum)[i];
    uint16_t half = o->type == F16 ? zpk_round_f16(x) : zpk_round_bf16(x);
    memcpy(o->to + i * sizeof half, &half, sizeof half);
  }
  if (good && !is_narrow(o->type)) memcpy(o->to, sum, o->bytes);
  free(sum);
  free(part);
  return good;
}

/* ---- what is on its way ---- */

typedef struct sent {
  emu_place place;
  const char *from;
  char *copy;
  size_t bytes;
} sent;
static sent *on_way;
static int n_on_way, room_on_way;

static bool leave(const char *from, emu_place place, size_t bytes) {
  if (n_on_way == room_on_way) {
    int room = room_on_way ? 2 * room_on_way : 64;
    sent *more = realloc(on_way, (size_t)room * sizeof *more);
    if (!more) return false;
    on_way = more;
    room_on_way = room;
  }
  sent s = {place, from, malloc(bytes ? bytes : 1), bytes};
  if (!s.copy) return false;
  memcpy(s.copy, s.from, bytes);
  on_way[n_on_way++] = s;
  return true;
}

int emu_messages_end(emu_place behind) {
  int kept = 0, result = EMU_SUCCESS;
  for (int i = 0; i < n_on_way; i++) {
    sent s = on_way[i];
    if (s.place.stream != behind.stream || s.place.at >= behind.at) {
      on_way[kept++] = s;
      continue;
    }
    if (memcmp(s.copy, s.from, s.bytes) != 0) {
      fprintf(stderr, "emulated NCCL: a message of %zu bytes was written to before it had left\n", s.bytes);
      result = EMU_LAUNCH_FAILED;
    }
    free(s.copy);
  }
  n_on_way = kept;
  return result;
}

/* ---- the two halves ---- */

static int run_give(void *work) {
  const operation *o = work;
  const communicator *c = o->comm;
  bool good = true;
  for (int r = 0; r < c->ranks && good; r++) {
    if (r == c->me && o->kind != SEND) continue;
    if (o->kind == SEND && r != o->peer) continue;
    if (o->kind == BROADCAST && c->me != o->peer) continue;
    good = give(c, r, o->given[r], o->from + (o->kind == REDUCE_SCATTER ? (size_t)r * o->bytes : 0), o->bytes);
  }
  if (good && o->kind == SEND) good = leave(o->from, o->place, o->bytes);
  return good ? EMU_SUCCESS : EMU_LAUNCH_FAILED;
}

/* What was there is lost. */
static int run_begin(void *work) {
  enum { NO_NUMBER = 0xFF }; /* NaN in every type */
  const operation *o = work;
  memset(o->to, NO_NUMBER, o->bytes);
  return EMU_SUCCESS;
}

static bool gather(const operation *o) {
  communicator *c = o->comm;
  bool good = true;
  if (o->from != o->to + (size_t)c->me * o->bytes) memcpy(o->to + (size_t)c->me * o->bytes, o->from, o->bytes);
  for (int r = 0; r < c->ranks && good; r++)
    if (r != c->me) good = take(c, r, o->taken[r], o->to + (size_t)r * o->bytes, o->bytes);
  return good;
}

static int run_take(void *work) {
  const operation *o = work;
  communicator *c = o->comm;
  bool good = true;
  if (c->error != SUCCESS) return EMU_NOT_READY;
  switch (o->kind) {
  case SEND: break;
  case RECEIVE: good = take(c, o->peer, o->taken[o->peer], o->to, o->bytes); break;
  case BROADCAST:
    if (c->me != o->peer) good = take(c, o->peer, o->taken[o->peer], o->to, o->bytes);
    break;
  case ALL_GATHER: good = gather(o); break;
  case ALL_REDUCE: good = take_sum(o, o->from); break;
  case REDUCE_SCATTER: good = take_sum(o, o->from + (size_t)c->me * o->bytes); break;
  }
  return good ? EMU_SUCCESS : c->error != SUCCESS ? EMU_NOT_READY : EMU_LAUNCH_FAILED;
}

static bool has_started;

bool emu_loads_too_late(const char *what) {
  if (has_started)
    fprintf(stderr, "emulated GPU: %s is loaded after the first message of NCCL: loading waits for kernels that spin\n",
            what);
  return has_started;
}

static operation grouped[MOST_GROUPED];
static int n_grouped, depth;

/* What an operation gives is given at once, after what its stream has before it: the others may wait for it. */
static int queue(const operation *o, int n) {
  int result = EMU_SUCCESS;
  has_started |= n > 0;
  for (int i = 0; i < n && result == EMU_SUCCESS; i++) {
    if (o[i].kind == RECEIVE) continue;
    operation giving = o[i];
    giving.place = emu_place_in(o[i].stream);
    result = emu_message_later(o[i].stream, run_give, &giving, sizeof giving, false);
  }
  for (int i = 0; i < n && result == EMU_SUCCESS; i++)
    if (o[i].kind != RECEIVE) result = emu_run_stream(o[i].stream);
  for (int i = 0; i < n && result == EMU_SUCCESS; i++)
    if (o[i].kind == RECEIVE) result = emu_message_later(o[i].stream, run_begin, &o[i], sizeof *o, true);
  for (int i = 0; i < n && result == EMU_SUCCESS; i++)
    result = emu_message_later(o[i].stream, run_take, &o[i], sizeof *o, false);
  return result == EMU_SUCCESS ? SUCCESS : SYSTEM_ERROR;
}

/* Numbers the messages of an operation and lets it wait. from, to: the whole buffers' lengths in bytes. */
static int start(void *stream, kind what, communicator *c, const void *from, size_t from_bytes, void *to,
                 size_t to_bytes, size_t bytes, int type, int peer) {
  operation o = {.stream = stream, .kind = what, .comm = c, .bytes = bytes, .type = type, .peer = peer};
  if (!c || peer < 0 || peer >= c->ranks || (type != U8 && type != F32 && type != F64 && !is_narrow(type)))
    return INVALID_ARGUMENT;
  o.from = from_bytes ? emu_host((gpu_pointer)(size_t)from, from_bytes) : NULL;
  o.to = to_bytes ? emu_host((gpu_pointer)(size_t)to, to_bytes) : NULL;
  if ((from_bytes && !o.from) || (to_bytes && !o.to)) return INVALID_ARGUMENT;
  for (int r = 0; r < c->ranks; r++) {
    bool gives = what == SEND ? r == peer : what == BROADCAST ? c->me == peer : what != RECEIVE;
    bool takes = what == RECEIVE || what == BROADCAST ? r == peer : what != SEND;
    if (gives) o.given[r] = c->given[r]++;
    if (takes) o.taken[r] = c->taken[r]++;
  }
  if (depth == 0) return queue(&o, 1);
  if (n_grouped == MOST_GROUPED) return INVALID_USAGE;
  grouped[n_grouped++] = o;
  return SUCCESS;
}

EMU_EXPORT(ncclGroupStart, (void));
int ncclGroupStart(void) {
  depth++;
  return SUCCESS;
}

EMU_EXPORT(ncclGroupEnd, (void));
int ncclGroupEnd(void) {
  if (depth == 0) return INVALID_USAGE;
  if (--depth > 0) return SUCCESS;
  int n = n_grouped;
  n_grouped = 0;
  return queue(grouped, n);
}

/* ---- operations ---- */

EMU_EXPORT(ncclSend, (const void *from, size_t count, int type, int peer, void *comm, void *stream));
int ncclSend(const void *from, size_t count, int type, int peer, void *comm, void *stream) {
  size_t bytes = count * size_of(type);
  return start(stream, SEND, comm, from, bytes, NULL, 0, bytes, type, peer);
}

EMU_EXPORT(ncclRecv, (void *to, size_t count, int type, int peer, void *comm, void *stream));
int ncclRecv(void *to, size_t count, int type, int peer, void *comm, void *stream) {
  size_t bytes = count * size_of(type);
  return start(stream, RECEIVE, comm, NULL, 0, to, bytes, bytes, type, peer);
}

EMU_EXPORT(ncclAllReduce, (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream));
int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, void *comm, void *stream) {
  (void)op;
  size_t bytes = count * size_of(type);
  return start(stream, ALL_REDUCE, comm, from, bytes, to, bytes, bytes, type, 0);
}

EMU_EXPORT(ncclAllGather, (const void *from, void *to, size_t count, int type, void *comm, void *stream));
int ncclAllGather(const void *from, void *to, size_t count, int type, void *comm, void *stream) {
  size_t bytes = count * size_of(type), ranks = comm ? (size_t)((communicator *)comm)->ranks : 0;
  return start(stream, ALL_GATHER, comm, from, bytes, to, ranks * bytes, bytes, type, 0);
}

EMU_EXPORT(ncclReduceScatter, (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream));
int ncclReduceScatter(const void *from, void *to, size_t count, int type, int op, void *comm, void *stream) {
  (void)op;
  size_t bytes = count * size_of(type), ranks = comm ? (size_t)((communicator *)comm)->ranks : 0;
  return start(stream, REDUCE_SCATTER, comm, from, ranks * bytes, to, bytes, bytes, type, 0);
}

EMU_EXPORT(ncclBroadcast, (const void *from, void *to, size_t count, int type, int root, void *comm, void *stream));
int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, void *comm, void *stream) {
  size_t bytes = count * size_of(type);
  return start(stream, BROADCAST, comm, from, bytes, to, bytes, bytes, type, root);
}

EMU_EXPORT(ncclCommGetAsyncError, (void *comm, int *error));
int ncclCommGetAsyncError(void *comm, int *error) {
  *error = ((const communicator *)comm)->error;
  return SUCCESS;
}

EMU_EXPORT(ncclGetVersion, (int *version));
int ncclGetVersion(int *version) {
  const char *text = getenv("ZPLAN_EMULATED_NCCL_VERSION");
  *version = text ? atoi(text) : 22809;
  return SUCCESS;
}

__attribute__((visibility("default"))) const char *ncclGetErrorString(int result);
const char *ncclGetErrorString(int result) {
  return result == INVALID_ARGUMENT ? "invalid argument"
         : result == INVALID_USAGE  ? "invalid usage"
         : result == REMOTE_ERROR   ? "remote process exited or there was a network error"
                                    : "system error";
}
