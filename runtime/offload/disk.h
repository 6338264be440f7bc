/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the tier store: one file with reads and writes that run by themselves. Knows nothing of ranks: troubles
 * are texts. With io_uring (liburing) where the build and the kernel have it; otherwise every request is done when it
 * is made. */
#ifndef ZPLAN_RT_DISK_H
#define ZPLAN_RT_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct zpr_disk zpr_disk;

/* A new file of `bytes` in the folder (which is made), without a name once it is open. direct: past the page cache,
 * where the file system can. false: no io_uring, for tests. NULL with `why`: "cannot reserve 4096 bytes in ...". */
zpr_disk *zpr_disk_open(const char *folder, int64_t bytes, bool with_ring, char *why, size_t size);
void zpr_disk_close(zpr_disk *disk);
int zpr_disk_fd(const zpr_disk *disk);
bool zpr_disk_has_ring(const zpr_disk *disk);

/* A ticket > 0, or -1 with zpr_disk_trouble. */
int64_t zpr_disk_start(zpr_disk *disk, bool write, void *memory, int64_t at, int64_t bytes);
/* Until that request is done; false with zpr_disk_trouble when it or an earlier one failed. */
bool zpr_disk_wait(zpr_disk *disk, int64_t ticket);
const char *zpr_disk_trouble(const zpr_disk *disk);

#endif
