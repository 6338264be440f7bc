/* SPDX-License-Identifier: Apache-2.0 */
/* Who uses a generated folder: one builds at a time, and nothing changes under those that run.
 *
 * The folder itself is locked while something in it is written; FOLDER/.lock is shared by all that run its trainer,
 * from before the first lock goes. The kernel keeps both with file descriptors, so that they end with the process. */
#include <zplan/trainer.h>
#include <zplan/buf.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static bool make_dirs(zp_arena *arena, const char *dir, const char **error) {
  char *path = zp_strdup(arena, dir);
  for (char *p = path + 1;; p++) {
    if (*p && *p != '/') continue;
    char end = *p;
    *p = '\0';
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
      *error = zp_format(arena, "cannot create the folder %s: %s", path, strerror(errno));
      return false;
    }
    if (!end) return true;
    *p = end;
  }
}

int zp_tree_lock(zp_arena *arena, const char *dir, const char **error) {
  if (!make_dirs(arena, dir, error)) return -1;
  int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0 && flock(fd, LOCK_EX) == 0) return fd;
  *error = zp_format(arena, "cannot lock the folder %s: %s", dir, strerror(errno));
  if (fd >= 0) close(fd);
  return -1;
}

static int open_users(zp_arena *arena, const char *dir) {
  return open(zp_format(arena, "%s/.lock", dir), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
}

bool zp_tree_in_use(zp_arena *arena, const char *dir) {
  int fd = open_users(arena, dir);
  if (fd < 0) return false; /* what cannot be written is told by who writes */
  bool used = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return used;
}

int zp_tree_use(zp_arena *arena, const char *dir) {
  int fd = open_users(arena, dir);
  if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

const char *zp_tree_busy(zp_arena *arena, const char *dir) {
  return zp_format(arena,
                   "a trainer of %s is running, and this one would take its place: wait for it, or name another folder "
                   "with -o",
                   dir);
}
