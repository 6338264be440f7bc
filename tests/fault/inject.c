/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into a program: counts calls, and at call number N lets one fail, or ends the process.
 *
 *   INJECT_UNDER  paths that begin so count, and files that are opened there; without it allocations of the program
 *   INJECT_AT     N; 0: nothing happens, the count goes to INJECT_COUNT
 *   INJECT_HOW    kill   the process dies before the call
 *                 torn   a write does half of its bytes, then it dies
 *                 power  it dies, and what was not synced is lost: such files are empty
 *                 fail   the call fails once, with EIO
 *                 full   it and all later ones that need room fail with ENOSPC
 *   INJECT_RANK   of Open MPI's ranks this one; without it all
 *   INJECT_COUNT  file for the number of calls at the end
 *
 * stdio writes through calls of its own inside libc, so its functions are calls here. Allocations count when the
 * program itself asks, not a library of others. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FILES = 4096, PATHS = 256, LONGEST = 1024 };
static const char *under, *how = "kill";
static long at, calls;
static bool full, ready, off;
static bool watched[FILES];
static char unsynced[PATHS][LONGEST]; /* files with bytes that may be lost */
static char path_of[FILES][LONGEST];
static uintptr_t own_begin, own_end;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int find_program(struct dl_phdr_info *info, size_t size, void *arg) {
  (void)size, (void)arg;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *p = &info->dlpi_phdr[i];
    if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
    own_begin = info->dlpi_addr + p->p_vaddr;
    own_end = own_begin + p->p_memsz;
  }
  return 1; /* the program is the first */
}

static void write_count(void) {
  char text[32];
  const char *file = getenv("INJECT_COUNT");
  if (!file || off) return;
  int length = snprintf(text, sizeof text, "%ld\n", calls),
      fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd < 0) return;
  if (syscall(SYS_write, fd, text, (size_t)length) != length) _exit(99);
  syscall(SYS_close, fd);
}

__attribute__((constructor)) static void begin(void) {
  const char *rank = getenv("INJECT_RANK"), *mine = getenv("OMPI_COMM_WORLD_RANK");
  under = getenv("INJECT_UNDER");
  at = getenv("INJECT_AT") ? atol(getenv("INJECT_AT")) : 0;
  if (getenv("INJECT_HOW")) how = getenv("INJECT_HOW");
  off = rank && (!mine || strcmp(rank, mine) != 0);
  dl_iterate_phdr(find_program, NULL);
  ready = true;
  if (!off) atexit(write_count);
}

static bool counts(const char *path) {
  return ready && !off && under && path && strncmp(path, under, strlen(under)) == 0;
}
static bool counts_fd(int fd) { return ready && !off && fd >= 0 && fd < FILES && watched[fd]; }

static void keep_unsynced(const char *path, bool lost) {
  int empty = -1;
  for (int i = 0; i < PATHS; i++) {
    if (!unsynced[i][0]) empty = i;
    if (strcmp(unsynced[i], path) != 0) continue;
    if (!lost) unsynced[i][0] = 0;
    return;
  }
  if (lost && empty >= 0) snprintf(unsynced[empty], LONGEST, "%s", path);
}

static void lose_power(void) {
  for (int i = 0; i < PATHS; i++) {
    if (!unsynced[i][0]) continue;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, unsynced[i], O_WRONLY, 0);
    if (fd >= 0) syscall(SYS_ftruncate, fd, 0);
  }
}

static void moved(const char *from, const char *to) {
  size_t length = strlen(from);
  char name[LONGEST];
  for (int i = 0; i < PATHS; i++) {
    if (strncmp(unsynced[i], from, length) != 0 || (unsynced[i][length] != 0 && unsynced[i][length] != '/')) continue;
    snprintf(name, sizeof name, "%.400s%.400s", to, unsynced[i] + length);
    memcpy(unsynced[i], name, sizeof name);
  }
}

/* Does this call, one that counts, fail? needs_room: on a full disk it does. torn: it is a write, whose caller ends the
 * process in its middle. May not return. */
static bool call_fails(bool needs_room, bool torn) {
  calls++;
  if (full && needs_room) return errno = ENOSPC, true;
  if (calls != at) return false;
  if (strcmp(how, "fail") == 0) return errno = EIO, true;
  if (strcmp(how, "full") == 0) {
    full = true;
    return needs_room ? (errno = ENOSPC, true) : false;
  }
  if (strcmp(how, "torn") == 0 && torn) return false;
  if (strcmp(how, "power") == 0) lose_power();
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

static bool fails(bool needs_room) { return call_fails(needs_room, false); }

static bool is_torn(void) { return calls == at && strcmp(how, "torn") == 0; }

static int opened(int fd, const char *path, int flags) {
  if (fd < 0 || fd >= FILES) return fd;
  watched[fd] = true;
  snprintf(path_of[fd], LONGEST, "%s", path);
  if (flags & (O_CREAT | O_TRUNC)) keep_unsynced(path, true);
  return fd;
}

#define OPEN(name)                                                                                                     \
  int name(const char *path, int flags, ...) {                                                                         \
    va_list args;                                                                                                      \
    va_start(args, flags);                                                                                             \
    mode_t mode = flags & O_CREAT ? (mode_t)va_arg(args, int) : 0;                                                     \
    va_end(args);                                                                                                      \
    if (!counts(path)) return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);                                   \
    if (fails(flags & O_CREAT)) return -1;                                                                             \
    return opened((int)syscall(SYS_openat, AT_FDCWD, path, flags, mode), path, flags);                                 \
  }
OPEN(open)
OPEN(open64)

#define FOPEN(name)                                                                                                    \
  FILE *name(const char *path, const char *mode) {                                                                     \
    bool writes = mode[0] != 'r';                                                                                      \
    if (counts(path) && fails(writes)) return NULL;                                                                    \
    FILE *f = REAL(name)(path, mode);                                                                                  \
    if (f && counts(path)) opened(fileno(f), path, writes ? O_CREAT : 0);                                              \
    return f;                                                                                                          \
  }
FOPEN(fopen)
FOPEN(fopen64)

int fflush(FILE *f) {
  if (f && counts_fd(fileno(f)) && fails(true)) return EOF;
  if (f && counts_fd(fileno(f))) keep_unsynced(path_of[fileno(f)], true);
  return REAL(fflush)(f);
}

int fclose(FILE *f) {
  int fd = fileno(f);
  bool mine = counts_fd(fd), failed = mine && fails(false);
  if (mine) watched[fd] = false;
  int result = REAL(fclose)(f);
  return failed ? (errno = EIO, EOF) : result;
}

int close(int fd) {
  bool failed = counts_fd(fd) && fails(false);
  if (fd >= 0 && fd < FILES) watched[fd] = false;
  long result = syscall(SYS_close, fd);
  return failed ? (errno = EIO, -1) : (int)result;
}

#define WRITE(name, arguments, call, bytes)                                                                            \
  ssize_t name arguments {                                                                                             \
    if (!counts_fd(fd)) return call(bytes);                                                                            \
    if (call_fails(true, true)) return -1;                                                                             \
    keep_unsynced(path_of[fd], true);                                                                                  \
    ssize_t done = call(is_torn() ? bytes / 2 : bytes);                                                                \
    if (is_torn()) kill(getpid(), SIGKILL);                                                                            \
    return done;                                                                                                       \
  }
#define PWRITE_CALL(n) syscall(SYS_pwrite64, fd, data, (size_t)(n), offset)
#define WRITE_CALL(n) syscall(SYS_write, fd, data, (size_t)(n))
WRITE(pwrite, (int fd, const void *data, size_t size, off_t offset), PWRITE_CALL, size)
WRITE(pwrite64, (int fd, const void *data, size_t size, off64_t offset), PWRITE_CALL, size)
WRITE(write, (int fd, const void *data, size_t size), WRITE_CALL, size)

#define READ(name, arguments, call)                                                                                    \
  ssize_t name arguments { return counts_fd(fd) && fails(false) ? -1 : (ssize_t)(call); }
READ(read, (int fd, void *data, size_t size), syscall(SYS_read, fd, data, size))
READ(pread, (int fd, void *data, size_t size, off_t offset), syscall(SYS_pread64, fd, data, size, offset))
READ(pread64, (int fd, void *data, size_t size, off64_t offset), syscall(SYS_pread64, fd, data, size, offset))

int fsync(int fd) {
  if (!counts_fd(fd)) return (int)syscall(SYS_fsync, fd);
  if (fails(true)) return -1;
  keep_unsynced(path_of[fd], false);
  return 0; /* as far as this test goes */
}

#define FALLOCATE(name, type)                                                                                          \
  int name(int fd, type offset, type bytes) {                                                                          \
    if (counts_fd(fd) && fails(true)) return errno;                                                                    \
    return syscall(SYS_fallocate, fd, 0, offset, bytes) == 0 ? 0 : errno;                                              \
  }
FALLOCATE(posix_fallocate, off_t)
FALLOCATE(posix_fallocate64, off64_t)

int ftruncate(int fd, off_t bytes) {
  if (counts_fd(fd) && fails(false)) return -1;
  return (int)syscall(SYS_ftruncate, fd, bytes);
}

int rename(const char *from, const char *to) {
  if (counts(from) && fails(true)) return -1;
  int result = (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
  if (result == 0 && counts(from)) moved(from, to);
  return result;
}

int link(const char *from, const char *to) {
  if (counts(from) && fails(true)) return -1;
  return (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlink(const char *path) {
  if (counts(path) && fails(false)) return -1;
  if (counts(path)) keep_unsynced(path, false);
  return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

/* In a folder that is open, everything counts. */
int unlinkat(int folder, const char *path, int flags) {
  char whole[2 * LONGEST];
  if (counts_fd(folder)) {
    if (fails(false)) return -1;
    snprintf(whole, sizeof whole, "%s/%s", path_of[folder], path);
    keep_unsynced(whole, false);
  }
  return (int)syscall(SYS_unlinkat, folder, path, flags);
}

int rmdir(const char *path) {
  if (counts(path) && fails(false)) return -1;
  return (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

int mkdir(const char *path, mode_t mode) {
  if (counts(path) && fails(true)) return -1;
  return (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

DIR *opendir(const char *path) {
  if (counts(path) && fails(false)) return NULL;
  return REAL(opendir)(path);
}

/* ---- allocations of the program itself ---- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

static bool no_memory(const void *caller) {
  if (!ready || off || under || (uintptr_t)caller < own_begin || (uintptr_t)caller >= own_end) return false;
  if (++calls != at) return false;
  errno = ENOMEM;
  return true;
}

void *malloc(size_t size) { return no_memory(__builtin_return_address(0)) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) {
  return no_memory(__builtin_return_address(0)) ? NULL : __libc_calloc(count, size);
}
void *realloc(void *old, size_t size) {
  return no_memory(__builtin_return_address(0)) ? NULL : __libc_realloc(old, size);
}
