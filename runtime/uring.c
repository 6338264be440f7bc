/* Two rings of memory that are shared with the kernel: requests go in at the tail of one, results come out at the head
 * of the other. One thread uses them; the kernel is the other side, hence acquire and release. */
#define _GNU_SOURCE
#include "uring.h"
#include <errno.h>
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct zpr_uring {
  int fd;
  char *rings; /* both, in one mapping */
  size_t rings_bytes, requests_bytes;
  struct io_uring_sqe *requests;
  struct io_uring_params p;
};

static unsigned *word(const zpr_uring *r, uint32_t offset) { return (unsigned *)(void *)(r->rings + offset); }

zpr_uring *zpr_uring_open(unsigned entries) {
  zpr_uring *r = calloc(1, sizeof *r);
  if (!r) return NULL;
  r->fd = (int)syscall(SYS_io_uring_setup, entries, &r->p);
  if (r->fd < 0 || !(r->p.features & IORING_FEAT_SINGLE_MMAP)) {
    if (r->fd >= 0) close(r->fd);
    free(r);
    return NULL;
  }
  size_t in = r->p.sq_off.array + r->p.sq_entries * sizeof(unsigned),
         out = r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe);
  r->rings_bytes = in > out ? in : out;
  r->requests_bytes = r->p.sq_entries * sizeof(struct io_uring_sqe);
  void *rings = mmap(NULL, r->rings_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
  void *requests = mmap(NULL, r->requests_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQES);
  r->rings = rings == MAP_FAILED ? NULL : rings;
  r->requests = requests == MAP_FAILED ? NULL : requests;
  if (r->rings && r->requests) return r;
  zpr_uring_close(r);
  return NULL;
}

void zpr_uring_close(zpr_uring *r) {
  if (!r) return;
  if (r->rings) munmap(r->rings, r->rings_bytes);
  if (r->requests) munmap(r->requests, r->requests_bytes);
  close(r->fd);
  free(r);
}

static int enter(const zpr_uring *r, unsigned submit, unsigned wait) {
  for (;;) {
    long done = syscall(SYS_io_uring_enter, r->fd, submit, wait, wait ? IORING_ENTER_GETEVENTS : 0, NULL, 0);
    if (done >= 0) return 0;
    if (errno != EINTR && errno != EAGAIN) return errno;
  }
}

int zpr_uring_start(zpr_uring *r, bool write, int fd, void *memory, int64_t at, uint32_t bytes, uint64_t user) {
  unsigned *tail = word(r, r->p.sq_off.tail), mask = *word(r, r->p.sq_off.ring_mask), place = *tail & mask;
  struct io_uring_sqe *q = &r->requests[place];
  memset(q, 0, sizeof *q);
  q->opcode = write ? IORING_OP_WRITE : IORING_OP_READ;
  q->fd = fd;
  q->addr = (uint64_t)(uintptr_t)memory;
  q->len = bytes;
  q->off = (uint64_t)at;
  q->user_data = user;
  word(r, r->p.sq_off.array)[place] = place;
  __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
  return enter(r, 1, 0);
}

int zpr_uring_wait(zpr_uring *r, uint64_t *user, int32_t *result) {
  unsigned *head = word(r, r->p.cq_off.head), *tail = word(r, r->p.cq_off.tail);
  while (*head == __atomic_load_n(tail, __ATOMIC_ACQUIRE)) {
    int trouble = enter(r, 0, 1);
    if (trouble) return trouble;
  }
  const struct io_uring_cqe *results = (const struct io_uring_cqe *)(const void *)(r->rings + r->p.cq_off.cqes);
  const struct io_uring_cqe *done = &results[*head & *word(r, r->p.cq_off.ring_mask)];
  *user = done->user_data;
  *result = done->res;
  __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
  return 0;
}
