/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a file that grows. A line counts when its end is there: what follows the last one is being written.
 *
 * `zplan run` gives a log that is there another name and begins a new one; other programs truncate theirs. Both show:
 * the name leads to another file, the file is shorter than what was read, or it begins with other bytes. */
#include <zplan/buf.h>
#include <zplan/watch.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* HEAD holds the first record of a trainer, whose time tells runs of the same program apart. */
enum { HEAD = 1024, CHUNK = 1 << 18, MOST_LINE = 64 << 20 };

struct zp_follower {
  const char *path;
  int fd; /* -1: none */
  struct stat status;
  int64_t at; /* bytes read */
  char head[HEAD];
  int head_length;
  char *half; /* the line whose end is not there; owned */
  size_t half_length, half_room;
  char chunk[CHUNK]; /* read at once */
};

zp_follower *zp_follower_new(const char *path) {
  zp_follower *f = calloc(1, sizeof *f);
  assert(path && f);
  f->path = path;
  f->fd = -1;
  return f;
}

static void let_go(zp_follower *f) {
  if (f->fd >= 0) close(f->fd);
  f->fd = -1;
  f->at = 0;
  f->head_length = 0;
  f->half_length = 0;
}

void zp_follower_free(zp_follower *f) {
  let_go(f);
  free(f->half);
  free(f);
}

static bool keep_half(zp_follower *f, const char *text, size_t length) {
  if (f->half_length + length > MOST_LINE) return false;
  if (f->half_length + length > f->half_room) {
    size_t room = 2 * (f->half_length + length);
    char *half = realloc(f->half, room);
    if (!half) return false;
    f->half = half;
    f->half_room = room;
  }
  memcpy(f->half + f->half_length, text, length);
  f->half_length += length;
  return true;
}

static bool cut_lines(zp_follower *f, const char *text, size_t length, const zp_follow_calls *calls) {
  while (length > 0) {
    const char *end = memchr(text, '\n', length);
    size_t line = end ? (size_t)(end - text) : length;
    if (!end || f->half_length > 0)
      if (!keep_half(f, text, line)) return false;
    if (!end) return true;
    if (f->half_length > 0)
      calls->line(calls->user, f->half, f->half_length);
    else
      calls->line(calls->user, text, line);
    f->half_length = 0;
    text += line + 1;
    length -= line + 1;
  }
  return true;
}

/* A file of another kind is refused before it is read to its end. */
static bool begins_as_log(const zp_follower *f) {
  int i = 0;
  while (i < f->head_length && strchr(" \t\r\n", f->head[i]) && f->head[i]) i++;
  return i == f->head_length || f->head[i] == '{';
}

static zp_follow_news fail(zp_arena *arena, zp_follower *f, const char **error, const char *why) {
  *error = zp_format(arena, "%s: %s", f->path, why);
  let_go(f);
  return ZP_FOLLOW_FAILED;
}

/* Is what was read still what the file begins with? */
static bool is_changed(const zp_follower *f) {
  char head[HEAD];
  if (f->status.st_size < f->at) return true;
  ssize_t got = pread(f->fd, head, (size_t)f->head_length, 0);
  return got != f->head_length || memcmp(head, f->head, (size_t)f->head_length) != 0;
}

static zp_follow_news read_on(zp_arena *arena, zp_follower *f, const zp_follow_calls *calls, const char **error) {
  for (;;) {
    ssize_t got = pread(f->fd, f->chunk, sizeof f->chunk, f->at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(arena, f, error, strerror(errno));
    if (got == 0) return ZP_FOLLOW_READ;
    for (ssize_t i = 0; i < got && f->head_length < HEAD && f->at + i == f->head_length; i++)
      f->head[f->head_length++] = f->chunk[i];
    if (!begins_as_log(f)) return fail(arena, f, error, "it is no log of a training: lines of JSON objects");
    f->at += got;
    if (!cut_lines(f, f->chunk, (size_t)got, calls))
      return fail(arena, f, error, "it has a line that no trainer writes: 64 MiB and more");
  }
}

static bool is_gone(int number) { return number == ENOENT || number == ENOTDIR; }

zp_follow_news zp_follow(zp_arena *arena, zp_follower *f, const zp_follow_calls *calls, const char **error) {
  assert(f && calls && error);
  for (;;) {
    struct stat named;
    if (f->fd < 0) {
      if (stat(f->path, &named) != 0 && is_gone(errno)) return ZP_FOLLOW_MISSING;
      f->fd = zp_open_file(arena, f->path, error);
      if (f->fd < 0) return ZP_FOLLOW_FAILED;
    }
    if (fstat(f->fd, &f->status) != 0) return fail(arena, f, error, strerror(errno));
    if (is_changed(f)) {
      calls->anew(calls->user, "the file was truncated or written anew");
      f->at = 0;
      f->head_length = 0;
      f->half_length = 0;
    }
    zp_follow_news news = read_on(arena, f, calls, error);
    bool moved = f->fd >= 0 && stat(f->path, &named) == 0 &&
                 (named.st_ino != f->status.st_ino || named.st_dev != f->status.st_dev);
    if (news == ZP_FOLLOW_FAILED || !moved) return news;
    calls->anew(calls->user, "another file has its name");
    let_go(f);
  }
}

double zp_follower_age_s(const zp_follower *f) {
  struct timespec now;
  if (f->fd < 0) return 0;
  clock_gettime(CLOCK_REALTIME, &now);
  double age =
      (double)(now.tv_sec - f->status.st_mtim.tv_sec) + 1e-9 * (double)(now.tv_nsec - f->status.st_mtim.tv_nsec);
  return age > 0 ? age : 0;
}

/* Taking the lock would tell, but a trainer that begins at this moment would be refused its log: the kernel's list is
 * read. Devices there are those of the lower file system where one lies over another, so inodes alone are compared. */
int zp_follower_has_writer(const zp_follower *f) {
  char line[256];
  int has = 0;
  if (f->fd < 0) return 0;
  FILE *locks = fopen("/proc/locks", "re");
  if (!locks) return -1;
  while (fgets(line, sizeof line, locks)) {
    uintmax_t inode = 0;
    const char *at = strrchr(line, ':'); /* "1: FLOCK  ADVISORY  WRITE 4321 08:02:1234 0 EOF" */
    if (strstr(line, " FLOCK ") && strstr(line, " WRITE ") && at && sscanf(at, ":%ju", &inode) == 1)
      has |= inode == (uintmax_t)f->status.st_ino;
  }
  fclose(locks);
  return has;
}
