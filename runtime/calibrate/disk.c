/* SPDX-License-Identifier: Apache-2.0 */
/* Sequential write (synced) and read of one file in a folder, as checkpoints do. The read may come from the page cache
 * where the system does not drop it when asked. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "calibrate.h"

enum { BLOCK = 4 << 20, BLOCKS = 16 };

static double write_file(int fd, const char *block) {
  double begin = now();
  for (int i = 0; i < BLOCKS; i++)
    if (write(fd, block, BLOCK) != BLOCK) return 0;
  return fsync(fd) == 0 ? now() - begin : 0;
}

static double read_file(int fd, char *block) {
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  if (lseek(fd, 0, SEEK_SET) != 0) return 0;
  double begin = now();
  for (int i = 0; i < BLOCKS; i++)
    if (read(fd, block, BLOCK) != BLOCK) return 0;
  return now() - begin;
}

void measure_disk(const char *folder) {
  char path[4096];
  if (snprintf(path, sizeof path, "%s/zplan-calibrate-XXXXXX", folder) >= (int)sizeof path) return;
  int fd = mkstemp(path);
  if (fd < 0) {
    fprintf(stderr, "zplan-calibrate: the disk is not measured: cannot write to %s: %s\n", folder, strerror(errno));
    return;
  }
  unlink(path);
  char *block = touched(BLOCK);
  double wrote = write_file(fd, block), took = wrote > 0 ? read_file(fd, block) : 0, bytes = (double)BLOCK * BLOCKS;
  if (wrote > 0) put_row("disk_write_bytes_per_s", bytes / wrote, "B/s", "%d MiB, synced", (BLOCK >> 20) * BLOCKS);
  if (took > 0)
    put_row("disk_read_bytes_per_s", bytes / took, "B/s", "%d MiB, after dropping it from the cache where possible",
            (BLOCK >> 20) * BLOCKS);
  give_back(block, BLOCK);
  close(fd);
}
