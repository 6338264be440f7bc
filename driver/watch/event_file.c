/* SPDX-License-Identifier: Apache-2.0 */
/* TensorBoard's event files: records framed as TFRecord (length, its masked CRC-32C, data, theirs), each an Event
 * message in the wire format of protocol buffers.
 *
 * A file's name and bytes follow from the log alone: its times are the start of the run and the sum of its steps. So a
 * file that is there is this log's when it is the beginning of what the log gives, and is only continued. TensorBoard
 * shows all event files of a folder as one run, so one with files of another run is refused. */
#include <zplan/buf.h>
#include <zplan/hash.h>
#include <zplan/watch.h>

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct zp_event_file {
  const char *folder, *log;
  bool force;
  zp_arena *arena; /* of what waits to be written, emptied by every flush */
  zp_buf waiting;
  int fd; /* -1: not open yet */
  int64_t bytes;
  bool begun, stopped;
  double began_s, wall_s; /* of the run; of the newest record */
};

zp_event_file *zp_event_file_new(const char *folder, const char *log, bool force) {
  zp_event_file *file = calloc(1, sizeof *file);
  assert(folder && log && file);
  *file = (zp_event_file){.folder = folder, .log = log, .force = force, .fd = -1};
  file->arena = zp_arena_new("events");
  file->waiting = zp_buf_new(file->arena);
  return file;
}

static void let_waiting_go(zp_event_file *file) {
  zp_arena_free(file->arena);
  file->arena = zp_arena_new("events");
  file->waiting = zp_buf_new(file->arena);
}

void zp_event_file_restart(zp_event_file *file) {
  let_waiting_go(file);
  if (file->fd >= 0) close(file->fd);
  file->fd = -1;
  file->bytes = 0;
  file->begun = false;
  file->began_s = file->wall_s = 0;
}

void zp_event_file_free(zp_event_file *file) {
  if (!file) return;
  if (file->fd >= 0) close(file->fd);
  zp_arena_free(file->arena);
  free(file);
}

/* ---- protocol buffers ---- */

enum wire { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

typedef struct message {
  unsigned char data[512];
  size_t length;
} message;

static void put_byte(message *m, unsigned char byte) {
  assert(m->length < sizeof m->data);
  m->data[m->length++] = byte;
}

static void put_varint(message *m, uint64_t value) {
  for (; value >= 0x80; value >>= 7) put_byte(m, (unsigned char)(value | 0x80));
  put_byte(m, (unsigned char)value);
}

static void put_little_endian(message *m, uint64_t bits, int bytes) {
  for (int i = 0; i < bytes; i++) put_byte(m, (unsigned char)(bits >> (8 * i)));
}

static void put_key(message *m, int field, enum wire wire) { put_varint(m, (uint64_t)field << 3 | (uint64_t)wire); }

static void put_bytes(message *m, int field, const void *data, size_t length) {
  put_key(m, field, WIRE_BYTES);
  put_varint(m, length);
  for (size_t i = 0; i < length; i++) put_byte(m, ((const unsigned char *)data)[i]);
}

/* Event { double wall_time = 1; int64 step = 2; ... } */
static message begin_event(double wall_s, int64_t step) {
  message m = {0};
  uint64_t bits;
  memcpy(&bits, &wall_s, sizeof bits);
  put_key(&m, 1, WIRE_64);
  put_little_endian(&m, bits, 8);
  if (step != 0) {
    put_key(&m, 2, WIRE_VARINT);
    put_varint(&m, (uint64_t)step);
  }
  return m;
}

/* Summary { repeated Value value = 1 }, Value { string tag = 1; float simple_value = 2 } */
static void put_scalar(message *summary, const char *tag, double value) {
  message m = {0};
  float narrow = (float)value;
  uint32_t bits;
  if (!isfinite(value)) return;
  memcpy(&bits, &narrow, sizeof bits);
  put_bytes(&m, 1, tag, strlen(tag));
  put_key(&m, 2, WIRE_32);
  put_little_endian(&m, bits, 4);
  put_bytes(summary, 1, m.data, m.length);
}

/* ---- TFRecord ---- */

static uint32_t masked(const void *data, size_t length) {
  uint32_t crc = zp_crc32c(data, length);
  return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void put_record(zp_event_file *file, const message *event) {
  message head = {0}, tail = {0};
  put_little_endian(&head, event->length, 8);
  put_little_endian(&head, masked(head.data, 8), 4);
  put_little_endian(&tail, masked(event->data, event->length), 4);
  zp_buf_put(&file->waiting, (const char *)head.data, head.length);
  zp_buf_put(&file->waiting, (const char *)event->data, event->length);
  zp_buf_put(&file->waiting, (const char *)tail.data, tail.length);
}

/* ---- records of a log ---- */

static void put_version(zp_event_file *file) {
  static const char version[] = "brain.Event:2";
  message event = begin_event(file->began_s, 0);
  put_bytes(&event, 3, version, strlen(version)); /* string file_version = 3 */
  put_record(file, &event);
}

/* Event { SessionLog session_log = 7 }, SessionLog { SessionStatus status = 1 }: START = 1 makes a reader drop what it
 * has of this step and later ones, which a resumed run does again. */
static void put_session_start(zp_event_file *file, int64_t step) {
  static const unsigned char start[] = {1 << 3 | WIRE_VARINT, 1};
  message event = begin_event(file->wall_s, step);
  put_bytes(&event, 7, start, sizeof start);
  put_record(file, &event);
}

static void put_summary(zp_event_file *file, int64_t step, const message *summary) {
  message event = begin_event(file->wall_s, step);
  if (summary->length == 0) return;
  put_bytes(&event, 5, summary->data, summary->length); /* Summary summary = 5 */
  put_record(file, &event);
}

void zp_event_file_take(zp_event_file *file, const zp_record *r) {
  message summary = {0};
  if (file->stopped) return;
  bool starts = r->kind == ZP_RECORD_START || r->kind == ZP_RECORD_RESUME;
  double time_s = starts ? zp_json_get_real(r->json, "time", NAN) : NAN;
  if (time_s >= 0 && time_s < 1e10) file->wall_s = time_s;
  if (!starts && r->kind != ZP_RECORD_STEP && r->kind != ZP_RECORD_VALIDATE) return;
  if (!file->begun) {
    file->begun = true;
    file->began_s = file->wall_s;
    put_version(file);
  } else if (starts) {
    put_session_start(file, r->step + 1);
  }
  if (r->kind == ZP_RECORD_STEP) {
    file->wall_s += r->step_ms / 1e3;
    put_scalar(&summary, "loss", r->loss);
    put_scalar(&summary, "lr", r->lr);
    put_scalar(&summary, "grad_norm", r->grad_norm);
    put_scalar(&summary, "step_ms", r->step_ms);
    put_scalar(&summary, "tokens_per_s", r->tokens_per_s);
    put_scalar(&summary, "mfu", r->mfu);
    put_scalar(&summary, "device_peak_bytes", r->device_peak_bytes > 0 ? (double)r->device_peak_bytes : NAN);
  } else if (r->kind == ZP_RECORD_VALIDATE) {
    put_scalar(&summary, "validation_loss", r->loss);
  }
  put_summary(file, r->step, &summary);
}

/* ---- the file ---- */

static bool stop(zp_event_file *file) {
  file->stopped = true;
  zp_event_file_restart(file);
  return false;
}

static bool make_folders(zp_arena *arena, const char *folder) {
  char *path = zp_strdup(arena, folder);
  for (char *slash = path + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
    *slash = '\0';
    if (mkdir(path, 0777) != 0 && errno != EEXIST) return false;
    *slash = '/';
  }
  return mkdir(path, 0777) == 0 || errno == EEXIST;
}

/* Another event file of the folder; NULL: none. */
static const char *find_other(zp_arena *arena, const char *folder, const char *name) {
  DIR *dir = opendir(folder);
  const char *other = NULL;
  for (struct dirent *entry; dir && !other && (entry = readdir(dir)) != NULL;)
    if (strstr(entry->d_name, "tfevents") && strcmp(entry->d_name, name) != 0) other = zp_strdup(arena, entry->d_name);
  if (dir) closedir(dir);
  return other;
}

/* Is what the file has, `old` bytes, what waits begins with? */
static bool is_beginning(zp_event_file *file, int64_t old) {
  char some[4096];
  if ((size_t)old > file->waiting.len) return false;
  for (int64_t at = 0; at < old;) {
    size_t most = old - at < (int64_t)sizeof some ? (size_t)(old - at) : sizeof some;
    ssize_t got = pread(file->fd, some, most, at);
    if (got <= 0 || memcmp(some, file->waiting.data + at, (size_t)got) != 0) return false;
    at += got;
  }
  return true;
}

static bool open_file(zp_arena *arena, zp_event_file *file, const char **error) {
  struct stat status;
  /* TensorBoard takes files whose names contain "tfevents", in the order of their names. */
  const char *name = zp_format(arena, "events.out.tfevents.%010lld.zplan.%016llx", (long long)file->began_s,
                               (unsigned long long)zp_hash(ZP_HASH_START, file->log, strlen(file->log)));
  const char *path = zp_format(arena, "%s/%s", file->folder, name);
  if (!make_folders(arena, file->folder))
    return *error = zp_format(arena, "cannot make the folder `%s`: %s", file->folder, strerror(errno)), false;
  const char *other = find_other(arena, file->folder, name);
  if (other && !file->force)
    return *error = zp_format(arena, "`%s` has events of another run, with which TensorBoard would mix these: %s",
                              file->folder, other),
           false;
  file->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0666);
  if (file->fd < 0 || fstat(file->fd, &status) != 0)
    return *error = zp_format(arena, "cannot write `%s`: %s", path, strerror(errno)), false;
  if (!S_ISREG(status.st_mode))
    return *error = zp_format(arena, "cannot write `%s`: it is no regular file", path), false;
  if (flock(file->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return *error = zp_format(arena, "another `zplan watch` writes `%s`", path), false;
  file->bytes = status.st_size;
  if (is_beginning(file, status.st_size)) return true;
  if (!file->force)
    return *error = zp_format(arena, "`%s` is there already, and is not what the log gives: it is left as it is", path),
           false;
  file->bytes = 0;
  if (ftruncate(file->fd, 0) != 0)
    return *error = zp_format(arena, "cannot write `%s`: %s", path, strerror(errno)), false;
  return true;
}

/* Whole records or nothing: what was begun is taken back. */
static bool write_all(zp_event_file *file, const char *data, size_t length) {
  int64_t at = file->bytes;
  for (size_t done = 0; done < length;) {
    ssize_t put = pwrite(file->fd, data + done, length - done, at + (int64_t)done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      int number = errno;
      if (ftruncate(file->fd, at) != 0) return errno = number, false;
      return errno = number, false;
    }
    done += (size_t)put;
  }
  file->bytes = at + (int64_t)length;
  return true;
}

bool zp_event_file_flush(zp_arena *arena, zp_event_file *file, const char **error) {
  assert(file && error);
  if (file->stopped || file->waiting.len == 0) return true;
  size_t known = 0;
  if (file->fd < 0) {
    if (!open_file(arena, file, error)) return stop(file);
    known = (size_t)file->bytes;
  }
  if (!write_all(file, file->waiting.data + known, file->waiting.len - known)) {
    *error = zp_format(arena, "cannot write events to `%s`: %s", file->folder, strerror(errno));
    return stop(file);
  }
  let_waiting_go(file);
  return true;
}
