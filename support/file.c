/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files in and out. */
#include <zplan/buf.h>
#include <zplan/hosted.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *failure(zp_arena *arena, const char *verb, const char *path, int number) {
  return zp_format(arena, "cannot %s `%s`: %s", verb, path, strerror(number));
}

/* Sources, plans, tables and logs are far below; an endless device is refused here. */
enum { MOST_FILE_BYTES = 256 << 20 };

/* The whole of `fd`; NULL with errno set. Works for pipes too, so the size is not used. */
static char *read_all(zp_arena *arena, int fd, size_t *len) {
  size_t cap = 64 << 10, used = 0;
  char *data = zp_alloc(arena, cap);
  for (;;) {
    if (cap - used < 2) {
      data = zp_grow(arena, data, cap, cap * 2);
      cap *= 2;
    }
    ssize_t got = read(fd, data + used, cap - used - 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return NULL;
    if (got == 0) break;
    used += (size_t)got;
    if (used > MOST_FILE_BYTES) return errno = EFBIG, NULL;
  }
  data[used] = '\0';
  *len = used;
  return data;
}

static char *read_and_close(zp_arena *arena, int fd, const char *path, size_t *len, const char **error) {
  size_t length = 0;
  zp_hold_descriptor(fd);
  char *data = read_all(arena, fd, &length);
  int number = errno;
  zp_hold_descriptor(-1);
  close(fd);
  if (!data) *error = failure(arena, "read", path, number);
  if (len) *len = length;
  return data;
}

/* O_NONBLOCK: to open a pipe that nobody writes to must not wait. It changes nothing for files. */
int zp_open_file(zp_arena *arena, const char *path, const char **error) {
  assert(path && error);
  struct stat info;
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 || fstat(fd, &info) != 0)
    *error = failure(arena, "read", path, errno);
  else if (S_ISDIR(info.st_mode))
    *error = failure(arena, "read", path, EISDIR);
  else if (!S_ISREG(info.st_mode))
    *error = zp_format(arena, "cannot read `%s`: it is no regular file but a %s", path,
                       S_ISFIFO(info.st_mode) ? "pipe" : "device");
  else
    return fd;
  if (fd >= 0) close(fd);
  return -1;
}

/* Has a shell opened it for us? */
static bool is_descriptor(const char *path) {
  return strcmp(path, "/dev/stdin") == 0 || strncmp(path, "/dev/fd/", 8) == 0 ||
         strncmp(path, "/proc/self/fd/", 14) == 0;
}

char *zp_read_input(zp_arena *arena, const char *path, size_t *len, const char **error) {
  assert(path && error);
  if (!is_descriptor(path)) return zp_read_file(arena, path, len, error);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) *error = failure(arena, "read", path, errno);
  return fd < 0 ? NULL : read_and_close(arena, fd, path, len, error);
}

char *zp_read_file(zp_arena *arena, const char *path, size_t *len, const char **error) {
  int fd = zp_open_file(arena, path, error);
  return fd < 0 ? NULL : read_and_close(arena, fd, path, len, error);
}

/* 0, or an errno. */
static int write_all(int fd, const char *data, size_t len) {
  while (len > 0) {
    ssize_t put = write(fd, data, len);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno;
    data += put;
    len -= (size_t)put;
  }
  return 0;
}

/* Writes, syncs if it is a disk file, closes: 0 or an errno. */
static int fill(int fd, const char *data, size_t len, bool sync) {
  int number = write_all(fd, data, len);
  if (!number && sync && fsync(fd) != 0) number = errno;
  if (close(fd) != 0 && !number) number = errno;
  return number;
}

/* /dev/stdout and pipes cannot be replaced by a rename. */
static int write_in_place(const char *path, const char *data, size_t len) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  return fd < 0 ? errno : fill(fd, data, len, false);
}

/* A temporary file alongside `path`; -1 with errno. */
static int open_overlapped(zp_arena *arena, const char *path, mode_t mode, const char **temporary) {
  *temporary = zp_format(arena, "%s.tmp%ld", path, (long)getpid());
  unlink(*temporary); /* left by a killed process with our number */
  return open(*temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
}

static int write_and_rename(zp_arena *arena, const char *path, mode_t mode, const char *data, size_t len) {
  const char *temporary;
  int fd = open_overlapped(arena, path, mode, &temporary);
  if (fd < 0) return errno;
  int number = fill(fd, data, len, true);
  if (!number && rename(temporary, path) != 0) number = errno;
  if (number) unlink(temporary);
  return number;
}

/* Ctrl-C and the like wait until the temporary file has its name. */
static int write_undisturbed(zp_arena *arena, const char *path, mode_t mode, const char *data, size_t len) {
  sigset_t ends, before;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGHUP);
  sigprocmask(SIG_BLOCK, &ends, &before);
  int number = write_and_rename(arena, path, mode, data, len);
  sigprocmask(SIG_SETMASK, &before, NULL);
  return number;
}

bool zp_can_write(zp_arena *arena, const char *path, const char **error) {
  assert(path && error);
  struct stat old;
  bool exists = stat(path, &old) == 0;
  const char *temporary;
  int number = 0, fd = -1;
  if (exists && S_ISDIR(old.st_mode))
    number = EISDIR;
  else if (exists && !S_ISREG(old.st_mode))
    number = access(path, W_OK) == 0 ? 0 : errno;
  else if ((fd = open_overlapped(arena, path, 0666, &temporary)) < 0)
    number = errno;
  if (fd >= 0) close(fd), unlink(temporary);
  if (number) *error = failure(arena, "write", path, number);
  return number == 0;
}

bool zp_write_file(zp_arena *arena, const char *path, const char *data, size_t len, const char **error) {
  assert(path && (data || len == 0) && error);
  struct stat old;
  bool exists = stat(path, &old) == 0;
  int number;
  if (exists && S_ISDIR(old.st_mode))
    number = EISDIR;
  else if (exists && !S_ISREG(old.st_mode))
    number = write_in_place(path, data, len);
  else
    number = write_undisturbed(arena, path, exists ? old.st_mode & 0777 : 0666, data, len);
  if (number) *error = failure(arena, "write", path, number);
  return number == 0;
}
