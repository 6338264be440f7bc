/* SPDX-License-Identifier: Apache-2.0 */
/* One run at a time in a folder of checkpoints: two would prune each other's and point `latest` to and fro.
 *
 * Rank 0 holds a lock of the kernel on FOLDER/.lock, which ends with the process, whatever ends it; what stands in the
 * file only tells others who holds it. It is removed in the end, and a file that a killed run has left says nothing. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint.h"

static int held = -1; /* the file that is locked; -1: none */
static char held_path[ZPR_PATH];

void zpr_unlock_folder(void) {
  if (held < 0) return;
  unlink(held_path); /* before the lock goes: nobody else can hold a file that is taken away */
  close(held);
  held = -1;
}

/* "pid 1234 on node7": what the holder has written there. */
static void read_holder(int fd, char *text, size_t size) {
  ssize_t got = pread(fd, text, size - 1, 0);
  text[got > 0 ? got : 0] = 0;
  text[strcspn(text, "\n")] = 0;
  if (!*text) snprintf(text, size, "just started");
}

/* The second line: who started it, as zplan says in the environment. */
static void write_holder(int fd) {
  char host[64] = "", line[160];
  const char *launcher = getenv("ZPLAN_LAUNCHER");
  gethostname(host, sizeof host - 1);
  int length = snprintf(line, sizeof line, "pid %lld on %s\nlauncher %.20s\n", (long long)getpid(), host,
                        launcher ? launcher : "0");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, line, (size_t)length, 0) != length) return; /* it is for messages only */
}

/* Is the holder one of this machine whose launcher has ended? Then it is about to end, too. */
static bool is_ending(int fd) {
  char text[161] = "", host[64] = "", mine[64] = "";
  long long launcher = 0;
  gethostname(mine, sizeof mine - 1);
  ssize_t got = pread(fd, text, sizeof text - 1, 0);
  if (got <= 0 || sscanf(text, "pid %*d on %63s launcher %lld", host, &launcher) != 2) return false;
  return launcher > 0 && strcmp(host, mine) == 0 && kill((pid_t)launcher, 0) != 0 && errno == ESRCH;
}

/* Is the file that was locked still the one of that name, or was it removed meanwhile? */
static bool is_in_place(int fd, const char *path) {
  struct stat mine, there;
  return fstat(fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

bool zpr_lock_folder(const char *dir, zpr_error *error) {
  static bool at_end;
  enum { ENDING_TENTHS = 300, TENTH_US = 100000 };
  char path[ZPR_PATH], holder[128];
  int waited = 0;
  zpr_path(path, "%s/.lock", dir);
  for (;;) {
    int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (fd < 0) {
      zpr_error_set(error, "Z0811", "cannot write checkpoint folder \"%s\": %s", dir, strerror(errno));
      return false;
    }
    bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
    int why = errno;
    if (!locked && why == EWOULDBLOCK && waited < ENDING_TENTHS && is_ending(fd)) {
      if (waited++ == 0) zpr_say_line(stderr, "note: waits for the ranks of a run that ends in \"%s\"", dir);
      close(fd);
      usleep(TENTH_US);
      continue;
    }
    if (!locked && why == EWOULDBLOCK) {
      read_holder(fd, holder, sizeof holder);
      close(fd);
      zpr_error_set(error, "Z0817",
                    "another run (%s) keeps its checkpoints in \"%s\": wait for it, or name another folder", holder,
                    dir);
      return false;
    }
    if (!locked)
      zpr_say_line(stderr, "note: \"%s\" cannot be locked (%s): start no second run with it", dir, strerror(why));
    if (locked && !is_in_place(fd, path)) {
      close(fd);
      continue;
    }
    write_holder(fd);
    held = fd;
    zpr_path(held_path, "%s", path);
    if (!at_end) atexit(zpr_unlock_folder);
    at_end = true;
    return true;
  }
}
