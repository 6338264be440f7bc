/* SPDX-License-Identifier: Apache-2.0 */
/* The file of offloaded state: what is written comes back, and every trouble of a disk is told. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "disk.h"

enum { PAGE = 4096, PAGES = 100 };

static char folder[] = "rt_disk_XXXXXX";
static char *memory; /* [PAGES][PAGE] */
static char why[512];

static void make(void) {
  void *pages = NULL;
  cr_assert(mkdtemp(folder));
  cr_assert_eq(posix_memalign(&pages, PAGE, (size_t)PAGES * PAGE), 0);
  memory = pages;
}
static void drop(void) {
  free(memory);
  cr_expect_eq(rmdir(folder), 0, "nothing is left in the folder");
}
TestSuite(disk, .init = make, .fini = drop);

static char *page(int i) { return memory + (size_t)i * PAGE; }
static int value_of(int i) { return (i * 37 + 11) % 251; }

static zpr_disk *open_one(int64_t pages, bool ring) {
  zpr_disk *d = zpr_disk_open(folder, pages * PAGE, ring, why, sizeof why);
  cr_assert(d, "%s", why);
  return d;
}

/* A file has a ring where the runtime was built with liburing and the kernel gives rings, by its own word. */
static bool has_rings(void) {
#ifdef ZPLAN_LIBURING
  struct io_uring_params params = {0};
  int ring = (int)syscall(SYS_io_uring_setup, 1, &params);
  if (ring >= 0) close(ring);
  return ring >= 0 && (params.features & IORING_FEAT_RW_CUR_POS); /* Linux 5.6, as reads and writes at a place */
#else
  return false;
#endif
}

static void need_rings(void) {
  if (!has_rings()) cr_skip_test("no io_uring here");
}

Test(disk, ring_where_there_are_rings) {
  zpr_disk *with = open_one(1, true), *without = open_one(1, false);
  cr_expect_eq(zpr_disk_has_ring(with), has_rings());
  cr_expect_not(zpr_disk_has_ring(without));
  zpr_disk_close(with);
  zpr_disk_close(without);
}

/* More requests than fit at once, and none is waited for before all are under way. */
static void write_and_read(bool ring) {
  int64_t ticket[PAGES];
  zpr_disk *d = open_one(PAGES, ring);
  for (int i = 0; i < PAGES; i++) {
    memset(page(i), value_of(i), PAGE);
    ticket[i] = zpr_disk_start(d, true, page(i), (int64_t)(PAGES - 1 - i) * PAGE, PAGE);
    cr_assert_gt(ticket[i], 0);
  }
  for (int i = 0; i < PAGES; i++) cr_assert(zpr_disk_wait(d, ticket[i]));
  memset(memory, 0, (size_t)PAGES * PAGE);
  for (int i = PAGES - 1; i >= 0; i--)
    ticket[i] = zpr_disk_start(d, false, page(i), (int64_t)(PAGES - 1 - i) * PAGE, PAGE);
  for (int i = 0; i < PAGES; i++) cr_assert(zpr_disk_wait(d, ticket[i]));
  for (int i = 0; i < PAGES; i++)
    for (int k = 0; k < PAGE; k++) cr_assert_eq((unsigned char)page(i)[k], value_of(i));
  struct stat info;
  cr_assert_eq(fstat(zpr_disk_fd(d), &info), 0);
  cr_expect_eq(info.st_size, PAGES * PAGE);
  zpr_disk_close(d);
}

Test(disk, comes_back) { write_and_read(false); }
Test(disk, comes_back_through_a_ring) {
  need_rings();
  write_and_read(true);
}

static void cut_short(bool ring) {
  zpr_disk *d = open_one(4, ring);
  cr_assert(zpr_disk_wait(d, zpr_disk_start(d, true, memory, 0, 4 * PAGE)));
  cr_assert_eq(ftruncate(zpr_disk_fd(d), 3 * PAGE), 0);
  cr_assert(zpr_disk_wait(d, zpr_disk_start(d, false, memory, 0, 3 * PAGE)), "what is left can be read");
  int64_t ticket = zpr_disk_start(d, false, memory, 2 * PAGE, 2 * PAGE);
  cr_expect(ticket < 0 || !zpr_disk_wait(d, ticket));
  cr_expect(strstr(zpr_disk_trouble(d), "ends at byte 12288, 4096 bytes too early"), "%s", zpr_disk_trouble(d));
  cr_expect_lt(zpr_disk_start(d, true, memory, 0, PAGE), 0, "nothing goes on after a trouble");
  zpr_disk_close(d);
}

Test(disk, cut_short) { cut_short(false); }
Test(disk, cut_short_with_a_ring) {
  need_rings();
  cut_short(true);
}

/* /dev/full takes the file's place: every write to it finds the disk full. */
static void full(bool ring) {
  zpr_disk *d = open_one(1, ring);
  int device = open("/dev/full", O_RDWR);
  cr_assert(device >= 0 && dup2(device, zpr_disk_fd(d)) >= 0);
  close(device);
  int64_t ticket = zpr_disk_start(d, true, memory, 0, PAGE);
  cr_expect(ticket < 0 || !zpr_disk_wait(d, ticket));
  cr_expect(strstr(zpr_disk_trouble(d), "No space left on device"), "%s", zpr_disk_trouble(d));
  zpr_disk_close(d);
}

Test(disk, full) { full(false); }
Test(disk, full_with_a_ring) {
  need_rings();
  full(true);
}

/* Room is asked for when the file is made, not in the middle of a step. */
Test(disk, no_room) {
  struct rlimit limit = {8 * PAGE, 8 * PAGE};
  signal(SIGXFSZ, SIG_IGN);
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  cr_expect_null(zpr_disk_open(folder, 9 * PAGE, true, why, sizeof why));
  cr_expect(strstr(why, "cannot reserve 36864 bytes in folder"), "%s", why);
  zpr_disk_close(open_one(8, true));
}

/* A kernel that knows no io_uring answers ENOSYS, a container that forbids it EPERM: a filter of this process says
 * so. */
static void refused(unsigned error) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
    cr_skip_test("no system call filters here");
  zpr_disk *d = open_one(1, true);
  cr_expect_not(zpr_disk_has_ring(d));
  zpr_disk_close(d);
  write_and_read(true);
}

Test(disk, no_ring_in_the_kernel) { refused(ENOSYS); }
Test(disk, ring_forbidden) { refused(EPERM); }

Test(disk, no_folder) {
  cr_expect_null(zpr_disk_open("/proc/nothing", PAGE, true, why, sizeof why));
  cr_expect(strstr(why, "/proc/nothing"), "%s", why);
}
