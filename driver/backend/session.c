/* SPDX-License-Identifier: Apache-2.0 */
/* Folders that a start of mpirun has for itself, and what is left of starts that were killed.
 *
 * Whether the run of a folder lives is shown by a lock of the kernel on the folder's .lock, which zplan takes and
 * mpirun inherits: it ends with the last of them, whatever ends them, also where process ids are those of another
 * container. Whoever gets the lock removes the folder; who finds that .lock was removed meanwhile leaves it to the
 * other. */
#define _XOPEN_SOURCE 700 /* nftw */
#define _DEFAULT_SOURCE
#include "driver.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char prefix[] = "zplan-mpi-";
enum { MOST_SESSIONS = 4, OPEN_FOLDERS = 8, YOUNG_S = 5 };

static struct session {
  const char *folder;
  int lock;
} sessions[MOST_SESSIONS];
static int n_sessions;

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place) {
  (void)info, (void)kind, (void)place;
  return remove(path);
}

static void remove_folder(const char *folder) { nftw(folder, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS); }

/* Is the open file still the one of that name? */
static bool is_in_place(int fd, const char *path) {
  struct stat mine, there;
  return fstat(fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_dev == there.st_dev &&
         mine.st_ino == there.st_ino;
}

const char *zp_session_open(zp_arena *arena, const char *parent) {
  enum { TRIES = 8 };
  assert(parent);
  for (int i = 0; i < TRIES && n_sessions < MOST_SESSIONS; i++) {
    char *folder = zp_format(arena, "%s/%sXXXXXX", parent, prefix);
    if (!mkdtemp(folder)) return NULL;
    const char *path = zp_format(arena, "%s/.lock", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600); /* mpirun shall inherit it */
    if (fd >= 0 && flock(fd, LOCK_SH) == 0 && is_in_place(fd, path)) {
      sessions[n_sessions++] = (struct session){folder, fd};
      return folder;
    }
    if (fd >= 0) close(fd); /* another start swept it before it was locked */
    remove_folder(folder);
  }
  return NULL;
}

void zp_session_close(void) {
  for (int i = 0; i < n_sessions; i++) {
    remove_folder(sessions[i].folder);
    close(sessions[i].lock);
  }
  n_sessions = 0;
}

static void remove_if_dead(zp_arena *arena, const char *folder) {
  struct stat info;
  if (lstat(folder, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) return;
  const char *path = zp_format(arena, "%s/.lock", folder);
  int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && is_in_place(fd, path)) remove_folder(folder);
  close(fd);
}

void zp_session_sweep(zp_arena *arena, const char *parent) {
  DIR *dir = opendir(parent);
  const struct dirent *entry;
  while (dir && (entry = readdir(dir)))
    if (strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0)
      remove_if_dead(arena, zp_format(arena, "%s/%s", parent, entry->d_name));
  if (dir) closedir(dir);
}

/* ---- files that Open MPI names itself ---- */

/* vader_segment.HOST.USER.JOB.RANK of this machine and user, which Open MPI 5 calls sm_segment? */
static bool is_segment(zp_arena *arena, const char *name) {
  static const char *const kinds[] = {"vader", "sm"};
  enum { KINDS = sizeof kinds / sizeof *kinds };
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  for (int pass = 0; pass < 2 * KINDS; pass++) {
    if (pass == KINDS) host[strcspn(host, ".")] = 0; /* Open MPI drops the domain, unless it is set to keep it */
    const char *start = zp_format(arena, "%s_segment.%s.%u.", kinds[pass % KINDS], host, (unsigned)geteuid());
    if (strncmp(name, start, strlen(start)) == 0) return true;
  }
  return false;
}

/* Owned by this user, and older than a rank needs from making it to mapping it? */
static bool is_old(const char *path) {
  struct stat info;
  return lstat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
         time(NULL) - info.st_ctime > YOUNG_S;
}

/* Does the process map the file? A process of this user that cannot be asked may; but for the first one of a container,
 * which starts others and is no rank. */
static bool maps(zp_arena *arena, const char *process, const char *path) {
  const char *maps_path = zp_format(arena, "/proc/%s/maps", process);
  struct stat info;
  FILE *f = fopen(maps_path, "r");
  if (!f) return errno != ENOENT && errno != ESRCH && stat(maps_path, &info) == 0 && info.st_uid == geteuid();
  char line[4608];
  bool found = false;
  while (!found && fgets(line, sizeof line, f)) found = strstr(line, path) != NULL;
  fclose(f);
  return found;
}

static bool is_mapped(zp_arena *arena, const char *path) {
  DIR *dir = opendir("/proc");
  const struct dirent *entry;
  bool found = dir == NULL;
  while (!found && dir && (entry = readdir(dir)))
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && strcmp(entry->d_name, "1") != 0)
      found = maps(arena, entry->d_name, path);
  if (dir) closedir(dir);
  return found;
}

void zp_segments_sweep(zp_arena *arena, const char *parent) {
  DIR *dir = opendir(parent);
  const struct dirent *entry;
  while (dir && (entry = readdir(dir))) {
    const char *path = zp_format(arena, "%s/%s", parent, entry->d_name);
    if (is_segment(arena, entry->d_name) && is_old(path) && !is_mapped(arena, path)) unlink(path);
  }
  if (dir) closedir(dir);
}
