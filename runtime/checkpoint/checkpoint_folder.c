/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of checkpoints: step_000120/ for each, `latest` with the name of one, and hidden temporary folders. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "checkpoint.h"

const char *zpr_path(char buf[ZPR_PATH], const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(buf, ZPR_PATH, format, args);
  va_end(args);
  return buf;
}

const char *zpr_alongside_trainer(char buf[ZPR_PATH], const char *name) {
  char own[ZPR_PATH];
  ssize_t length = readlink("/proc/self/exe", own, sizeof own);
  const char *slash = length > 0 ? memrchr(own, '/', (size_t)length) : NULL;
  return zpr_path(buf, "%.*s%s", slash ? (int)(slash - own) + 1 : 0, own, name);
}

static bool cannot_write(zpr_error *error, const char *path) {
  zpr_error_set(error, "Z0811", "could not write checkpoint \"%s\": %s", path, strerror(errno));
  return false;
}

bool zpr_make_folders(const char *path, zpr_error *error) {
  char part[ZPR_PATH];
  struct stat status;
  zpr_path(part, "%s", path);
  for (char *at = part + 1; *at; at++) {
    if (*at != '/') continue;
    *at = 0;
    if (mkdir(part, 0777) != 0 && errno != EEXIST) return cannot_write(error, part);
    *at = '/';
  }
  if (mkdir(part, 0777) != 0 && errno != EEXIST) return cannot_write(error, part);
  if (stat(part, &status) != 0) return cannot_write(error, part);
  errno = ENOTDIR;
  return S_ISDIR(status.st_mode) || cannot_write(error, part);
}

/* What a checkpoint has besides zpr_file_name and its manifest. Nothing else is ever removed from its folder. */
static const char *const other_files[] = {"manifest.json.tmp", "plan.json", "plan.json.tmp"};

/* Names are looked up in the folder that was opened, and links are removed themselves: neither the folder nor a file
 * in it leads anywhere else. The manifest goes first, and while it stays so does all that it answers for: what is left
 * after a crash or an error never looks complete. A folder with files that are not ours stays with them. */
void zpr_remove_folder(const char *path) {
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat status;
  if (folder < 0) {
    if (lstat(path, &status) == 0 && S_ISLNK(status.st_mode)) unlink(path); /* a link in place of a folder */
    return;
  }
  bool counts = unlinkat(folder, "manifest.json", 0) != 0 && errno != ENOENT;
  for (size_t i = 0; !counts && i < sizeof other_files / sizeof *other_files; i++) unlinkat(folder, other_files[i], 0);
  for (int f = 0; !counts && f < ZPR_FILES; f++) unlinkat(folder, zpr_file_name[f], 0);
  close(folder);
  rmdir(path);
}

int zpr_open_file(const char *path) {
  struct stat status;
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  bool known = fd >= 0 && fstat(fd, &status) == 0;
  if (known && S_ISREG(status.st_mode)) return fd;
  int reason = !known ? errno : S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  if (fd >= 0) close(fd);
  errno = reason;
  return -1;
}

static char unfinished[ZPR_PATH]; /* "": none */

void zpr_set_unfinished(const char *path) { zpr_path(unfinished, "%s", path ? path : ""); }

void zpr_drop_unfinished(void) {
  if (unfinished[0]) zpr_remove_folder(unfinished);
  zpr_set_unfinished(NULL);
}

bool zpr_sync_folder(const char *path, zpr_error *error) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return cannot_write(error, path);
  bool good = fsync(fd) == 0 || errno == EINVAL; /* some file systems do not sync folders */
  if (!good) cannot_write(error, path);
  close(fd);
  return good;
}

bool zpr_write_text(const char *path, const char *text, zpr_error *error) {
  char temporary[ZPR_PATH];
  unlink(zpr_path(temporary, "%s.tmp", path)); /* of a killed run; were it a link, what it leads to would be written */
  int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
  if (!out) {
    cannot_write(error, path);
    if (fd >= 0) close(fd);
    return false;
  }
  bool good = fputs(text, out) >= 0 && fflush(out) == 0 && fsync(fileno(out)) == 0;
  if (!good) cannot_write(error, path);
  if (fclose(out) != 0 && good) good = cannot_write(error, path);
  if (good && rename(temporary, path) != 0) good = cannot_write(error, path);
  if (!good) unlink(temporary);
  return good;
}

/* The number in "step_000120", -1 for any other name. */
static int64_t step_of(const char *name) {
  char *end;
  if (strncmp(name, "step_", 5) != 0 || name[5] < '0' || name[5] > '9') return -1;
  errno = 0;
  long long step = strtoll(name + 5, &end, 10);
  return *end == 0 && errno == 0 ? step : -1;
}

static bool complete(const char *dir, int64_t step) {
  char path[ZPR_PATH];
  return access(zpr_path(path, "%s/step_%06lld/manifest.json", dir, (long long)step), F_OK) == 0;
}

static int64_t latest_step(const char *dir) {
  char path[ZPR_PATH], name[64] = "";
  int fd = zpr_open_file(zpr_path(path, "%s/latest", dir));
  if (fd < 0) return -1;
  ssize_t got = read(fd, name, sizeof name - 1);
  name[got > 0 ? got : 0] = 0;
  close(fd);
  name[strcspn(name, "\r\n")] = 0;
  return step_of(name);
}

/* The highest complete step below `limit`, -1 when there is none. */
static int64_t highest_below(const char *dir, int64_t limit) {
  int64_t highest = -1;
  DIR *entries = opendir(dir);
  if (!entries) return -1;
  for (struct dirent *entry; (entry = readdir(entries));) {
    int64_t step = step_of(entry->d_name);
    if (step > highest && step < limit && complete(dir, step)) highest = step;
  }
  closedir(entries);
  return highest;
}

int64_t zpr_newest_below(const char *dir, int64_t step) { return highest_below(dir, step); }

bool zpr_has_step(const char *dir, int64_t step) { return complete(dir, step); }

static bool is_there(const char *dir, int64_t step) {
  char path[ZPR_PATH];
  return access(zpr_path(path, "%s/step_%06lld", dir, (long long)step), F_OK) == 0;
}

/* The one that `latest` names was whole: without its manifest it is damaged, and is not passed over. A crash leaves the
 * name of a folder that is not there yet. */
int64_t zpr_newest_step(const char *dir) {
  int64_t latest = latest_step(dir);
  return latest >= 0 && is_there(dir, latest) ? latest : highest_below(dir, INT64_MAX);
}

/* Steps above `current` are another run's, before this one was resumed from an older step or started anew: left
 * alone. */
void zpr_prune(const char *dir, int64_t keep, int64_t current) {
  char path[ZPR_PATH];
  if (keep <= 0) return;
  int64_t step = current;
  for (int64_t kept = 1; kept < keep && step >= 0; kept++) step = highest_below(dir, step);
  while (step >= 0 && (step = highest_below(dir, step)) >= 0)
    zpr_remove_folder(zpr_path(path, "%s/step_%06lld", dir, (long long)step));
}

/* `latest` goes first, so that what is left after a crash is looked for by its manifests. */
bool zpr_remove_checkpoints(const char *dir, zpr_error *error) {
  char path[ZPR_PATH];
  unlink(zpr_path(path, "%s/latest", dir));
  for (int64_t step; (step = highest_below(dir, INT64_MAX)) >= 0;) {
    zpr_remove_folder(zpr_path(path, "%s/step_%06lld", dir, (long long)step));
    if (!complete(dir, step)) continue;
    zpr_error_set(error, "Z0811", "cannot remove the checkpoint \"%s\"", path);
    return false;
  }
  return true;
}

void zpr_remove_leftovers(const char *dir) {
  char path[ZPR_PATH];
  DIR *entries = opendir(dir);
  if (!entries) return;
  for (struct dirent *entry; (entry = readdir(entries));)
    if (strncmp(entry->d_name, ".step_", 6) == 0 && (strstr(entry->d_name, ".tmp-") || strstr(entry->d_name, ".old-")))
      zpr_remove_folder(zpr_path(path, "%s/%s", dir, entry->d_name));
  closedir(entries);
}
