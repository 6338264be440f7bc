/* SPDX-License-Identifier: Apache-2.0 */
/* A folder that appears whole or not at all: its files are written under a hidden name alongside it, synced, and the
 * name is changed at the end. An error or a signal takes the hidden folder away. */
#include <zplan/out_folder.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zplan/buf.h>

struct zp_out_folder {
  zp_arena *arena;
  zp_diags *diags;
  const char *path, *hidden;
  const char *file; /* that is being written */
  int fd;
};

static const char *volatile unfinished; /* NULL: none */

static void remove_folder(const char *path) {
  char file[4096];
  DIR *dir = opendir(path);
  for (struct dirent *entry; dir && (entry = readdir(dir));) {
    snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) unlink(file);
  }
  if (dir) closedir(dir);
  rmdir(path);
}

static void end_early(int signal_number) {
  if (unfinished) remove_folder(unfinished);
  raise(signal_number); /* SA_RESETHAND: ends the process as it would have ended */
}

static void watch_signals(void) {
  static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
  struct sigaction action = {.sa_handler = end_early, .sa_flags = (int)(SA_RESETHAND | SA_NODEFER)}, before;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (sigaction(ends[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(ends[i], &action, NULL);
}

static bool cannot(zp_out_folder *o, const char *path, int reason) {
  zp_report(o->diags, ZP_Z0695, ZP_NO_SPAN, "cannot write %s: %s", path, strerror(reason));
  return false;
}

zp_out_folder *zp_out_open(zp_arena *arena, zp_diags *diags, const char *path) {
  zp_out_folder *o = ZP_NEW(arena, zp_out_folder);
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  *o = (zp_out_folder){.arena = arena, .diags = diags, .path = zp_strndup(arena, path, n), .fd = -1};
  const char *slash = strrchr(o->path, '/');
  int folder = slash ? (int)(slash - o->path) + 1 : 0;
  o->hidden = zp_format(arena, "%.*s.%s.tmp-%d", folder, o->path, o->path + folder, (int)getpid());
  if (access(o->path, F_OK) == 0) {
    zp_diag *d = zp_report(diags, ZP_Z0695, ZP_NO_SPAN, "%s is there already", o->path);
    zp_diag_help(d, "name a folder that is not there, or remove it");
    return NULL;
  }
  signal(SIGXFSZ, SIG_IGN); /* a file beyond the user's limit is an error with a message */
  if (mkdir(o->hidden, 0777) != 0) return cannot(o, o->path, errno), NULL;
  unfinished = o->hidden;
  watch_signals();
  return o;
}

bool zp_out_begin(zp_out_folder *o, const char *name) {
  o->file = zp_format(o->arena, "%s/%s", o->hidden, name);
  o->fd = open(o->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  return o->fd >= 0 || cannot(o, zp_format(o->arena, "%s/%s", o->path, name), errno);
}

bool zp_out_put(zp_out_folder *o, const void *data, size_t bytes) {
  for (const char *at = data; bytes > 0;) {
    ssize_t put = write(o->fd, at, bytes);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return cannot(o, o->path, put == 0 ? ENOSPC : errno);
    at += put;
    bytes -= (size_t)put;
  }
  return true;
}

bool zp_out_end(zp_out_folder *o) {
  if (o->fd < 0) return true;
  bool good = fsync(o->fd) == 0 || cannot(o, o->path, errno);
  if (close(o->fd) != 0 && good) good = cannot(o, o->path, errno);
  o->fd = -1;
  return good;
}

bool zp_out_file(zp_out_folder *o, const char *name, const char *data, size_t bytes) {
  bool good = zp_out_begin(o, name) && zp_out_put(o, data, bytes);
  return zp_out_end(o) && good;
}

bool zp_out_copy(zp_out_folder *o, const char *path) {
  const char *error = NULL, *slash = strrchr(path, '/');
  size_t len;
  const char *text = zp_read_file(o->arena, path, &len, &error);
  if (text) return zp_out_file(o, slash ? slash + 1 : path, text, len);
  zp_report(o->diags, ZP_Z0691, ZP_NO_SPAN, "%s", error);
  return false;
}

bool zp_out_close(zp_out_folder *o, bool good) {
  if (good && access(o->path, F_OK) == 0) good = cannot(o, o->path, EEXIST); /* rename would replace an empty folder */
  if (good && rename(o->hidden, o->path) != 0) good = cannot(o, o->path, errno);
  if (!good) remove_folder(o->hidden);
  unfinished = NULL;
  return good;
}
