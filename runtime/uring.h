/* Private to disk.c: as much of io_uring as it needs, by the kernel's own interface (io_uring(7)), so that trainers
 * link no library for it. */
#ifndef ZPLAN_RT_URING_H
#define ZPLAN_RT_URING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct zpr_uring zpr_uring;

/* NULL when the system has none or forbids it. Owned. */
zpr_uring *zpr_uring_open(unsigned entries);
void zpr_uring_close(zpr_uring *ring);
/* Starts one read or write; at most `entries` may be under way. 0, or an errno. */
int zpr_uring_start(zpr_uring *ring, bool write, int fd, void *memory, int64_t at, uint32_t bytes, uint64_t user);
/* Waits until one is done: whose, and its bytes or -errno. 0, or an errno. */
int zpr_uring_wait(zpr_uring *ring, uint64_t *user, int32_t *result);

#endif
