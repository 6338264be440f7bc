/* SPDX-License-Identifier: Apache-2.0 */
/* A request is done in pieces: io_uring and the system calls may read or write less than they were asked for, and take
 * at most MOST bytes at once. Requests may end in any order. */
#define _GNU_SOURCE
#include "disk.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint.h"
#include "signals.h"
#ifdef ZPLAN_LIBURING
#include <liburing.h>
#endif

enum { AT_ONCE = 32 };
static const int64_t MOST = INT64_C(1) << 30;

typedef struct ring ring;

typedef struct request {
  int64_t ticket; /* 0: free */
  bool write;
  char *memory;
  int64_t at, left;
} request;

struct zpr_disk {
  int fd;
  ring *ring; /* NULL: none */
  char name[ZPR_PATH];
  int64_t last; /* ticket */
  request requests[AT_ONCE];
  char trouble[ZPR_PATH + 256]; /* "": none */
};

static uint32_t piece(const request *r) { return (uint32_t)(r->left < MOST ? r->left : MOST); }

/* ---- the ring; functions that may fail return 0 or an errno ---- */

#ifdef ZPLAN_LIBURING
struct ring {
  struct io_uring uring;
};

static bool passes(int result) { return result == -EINTR || result == -EAGAIN; }

/* Kernels before 5.6 have rings without reads and writes at a place; they cannot be asked either. */
static bool can_read_and_write(struct io_uring *uring) {
  struct io_uring_probe *probe = io_uring_get_probe_ring(uring);
  bool can =
      probe && io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_WRITE);
  io_uring_free_probe(probe);
  return can;
}

/* NULL when the kernel has none or forbids it, as containers may. Owned. */
static ring *ring_open(void) {
  ring *g = calloc(1, sizeof *g);
  if (g && io_uring_queue_init(AT_ONCE, &g->uring, 0) == 0) {
    if (can_read_and_write(&g->uring)) return g;
    io_uring_queue_exit(&g->uring);
  }
  free(g);
  return NULL;
}

static void ring_close(ring *g) {
  if (g) io_uring_queue_exit(&g->uring);
  free(g);
}

/* Requests are as many as entries, and each goes to the kernel at once: there is always an entry. */
static int ring_start(ring *g, int fd, const request *r, uint64_t which) {
  struct io_uring_sqe *entry = io_uring_get_sqe(&g->uring);
  if (!entry) return EBUSY;
  if (r->write)
    io_uring_prep_write(entry, fd, r->memory, piece(r), (uint64_t)r->at);
  else
    io_uring_prep_read(entry, fd, r->memory, piece(r), (uint64_t)r->at);
  io_uring_sqe_set_data64(entry, which);
  int result;
  do result = io_uring_submit(&g->uring);
  while (passes(result));
  return result < 0 ? -result : 0;
}

/* Waits until one is done: which, and its bytes or -errno. */
static int ring_wait(ring *g, uint64_t *which, int32_t *done) {
  struct io_uring_cqe *entry;
  int result;
  do result = io_uring_wait_cqe(&g->uring, &entry);
  while (passes(result));
  if (result < 0) return -result;
  *which = io_uring_cqe_get_data64(entry);
  *done = entry->res;
  io_uring_cqe_seen(&g->uring, entry);
  return 0;
}
#else
static ring *ring_open(void) { return NULL; }
static void ring_close(ring *g) { (void)g; }
static int ring_start(ring *g, int fd, const request *r, uint64_t which) {
  (void)g, (void)fd, (void)r, (void)which;
  return ENOSYS;
}
static int ring_wait(ring *g, uint64_t *which, int32_t *done) {
  (void)g, (void)which, (void)done;
  return ENOSYS;
}
#endif

/* ---- opening ---- */

static bool reserve(zpr_disk *d, int64_t bytes, char *why, size_t size) {
  int trouble = zpr_reserve_file(d->fd, bytes);
  if (trouble == EINVAL || trouble == EOPNOTSUPP) trouble = ftruncate(d->fd, bytes) ? errno : 0;
  if (trouble == 0) return true;
  snprintf(why, size, "cannot reserve %lld bytes in folder \"%s\": %s", (long long)bytes, d->name, strerror(trouble));
  return false;
}

zpr_disk *zpr_disk_open(const char *folder, int64_t bytes, bool with_ring, char *why, size_t size) {
  zpr_error error = {0};
  char path[ZPR_PATH];
  zpr_disk *d = calloc(1, sizeof *d);
  if (!d) {
    snprintf(why, size, "cannot get memory for a file");
    return NULL;
  }
  snprintf(d->name, sizeof d->name, "%s", folder);
  d->fd = -1;
  if (!zpr_make_folders(folder, &error)) {
    snprintf(why, size, "%s", error.text);
  } else if (snprintf(path, sizeof path, "%s/offload.XXXXXX", folder) >= (int)sizeof path) {
    snprintf(why, size, "the folder's name \"%.80s...\" is too long", folder);
  } else if ((d->fd = mkostemp(path, O_CLOEXEC)) < 0) {
    snprintf(why, size, "cannot make a file in folder \"%s\": %s", folder, strerror(errno));
  } else {
    unlink(path);
    if (reserve(d, bytes, why, size)) {
      (void)fcntl(d->fd, F_SETFL, O_DIRECT); /* memory file systems cannot; they have nothing to go past */
      if (with_ring) d->ring = ring_open();
      return d;
    }
  }
  zpr_disk_close(d);
  return NULL;
}

/* Closing the ring ends what is under way. */
void zpr_disk_close(zpr_disk *d) {
  if (!d) return;
  for (int i = 0; i < AT_ONCE; i++)
    if (d->requests[i].ticket) (void)zpr_disk_wait(d, d->requests[i].ticket);
  ring_close(d->ring);
  if (d->fd >= 0) close(d->fd);
  free(d);
}

int zpr_disk_fd(const zpr_disk *d) { return d->fd; }
bool zpr_disk_has_ring(const zpr_disk *d) { return d->ring != NULL; }
const char *zpr_disk_trouble(const zpr_disk *d) { return d->trouble; }

/* ---- requests ---- */

static bool fail(zpr_disk *d, const request *r, int error) {
  const char *verb = r->write ? "write" : "read";
  if (d->trouble[0]) return false; /* the first one counts */
  if (error)
    snprintf(d->trouble, sizeof d->trouble, "could not %s %lld bytes at byte %lld of the file in \"%s\": %s", verb,
             (long long)r->left, (long long)r->at, d->name, strerror(error));
  else
    snprintf(d->trouble, sizeof d->trouble, "the file in \"%s\" ends at byte %lld, %lld bytes too early", d->name,
             (long long)r->at, (long long)r->left);
  return false;
}

/* After `done` bytes, or -errno; false when it cannot go on. A read of nothing is the end of the file. */
static bool advance(zpr_disk *d, request *r, int64_t done) {
  if (done == -EINTR || done == -EAGAIN) return true;
  if (done < 0) return fail(d, r, (int)-done);
  if (done == 0) return fail(d, r, r->write ? ENOSPC : 0);
  r->memory += done;
  r->at += done;
  r->left -= done;
  return true;
}

static bool do_now(zpr_disk *d, request *r) {
  while (r->left > 0) {
    ssize_t done = r->write ? pwrite(d->fd, r->memory, piece(r), r->at) : pread(d->fd, r->memory, piece(r), r->at);
    if (!advance(d, r, done < 0 ? -errno : done)) return false;
  }
  return true;
}

static bool start_piece(zpr_disk *d, request *r) {
  int error = ring_start(d->ring, d->fd, r, (uint64_t)(r - d->requests));
  return error == 0 || fail(d, r, error);
}

/* Waits for one piece of any request. */
static bool next_piece(zpr_disk *d) {
  uint64_t which;
  int32_t result;
  int error = ring_wait(d->ring, &which, &result);
  if (error) {
    snprintf(d->trouble, sizeof d->trouble, "could not wait for the disk: %s", strerror(error));
    for (int i = 0; i < AT_ONCE; i++) d->requests[i].ticket = 0;
    return false;
  }
  request *r = &d->requests[which];
  bool good = advance(d, r, result) && (r->left == 0 || start_piece(d, r));
  if (!good || r->left == 0) r->ticket = 0;
  return good;
}

static request *free_request(zpr_disk *d) {
  for (;;) {
    for (int i = 0; i < AT_ONCE; i++)
      if (d->requests[i].ticket == 0) return &d->requests[i];
    if (!next_piece(d)) return NULL;
  }
}

int64_t zpr_disk_start(zpr_disk *d, bool write, void *memory, int64_t at, int64_t bytes) {
  request *r = d->trouble[0] ? NULL : free_request(d);
  if (!r) return -1;
  *r = (request){.ticket = ++d->last, .write = write, .memory = memory, .at = at, .left = bytes};
  bool good = d->ring ? start_piece(d, r) : do_now(d, r);
  if (!good || !d->ring) r->ticket = 0;
  return good ? d->last : -1;
}

bool zpr_disk_wait(zpr_disk *d, int64_t ticket) {
  for (;;) {
    bool waits = false;
    for (int i = 0; i < AT_ONCE; i++) waits |= ticket > 0 && d->requests[i].ticket == ticket;
    if (!waits) return d->trouble[0] == 0;
    (void)next_piece(d); /* a request that failed is none any more */
  }
}
