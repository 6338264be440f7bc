/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that a launch has started, directly or not: zplan ends after the last of them, whatever became of
 * mpirun between. Otherwise a rank that still holds the folder of checkpoints would refuse it to the next run. */
#define _GNU_SOURCE
#include "driver.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/wait.h>
#include <unistd.h>

typedef struct process {
  int id, parent;
  char state;
  bool ours;
} process;

typedef struct processes {
  process *data;
  int len, cap;
} processes;

/* Whose parent ends becomes a child of this process, not of process 1. */
void zp_adopt_orphans(void) {
#ifdef __linux__
  prctl(PR_SET_CHILD_SUBREAPER, 1);
#endif
}

/* "17 (a name) S 1 ...": the name may hold anything. */
static bool read_process(const char *id, process *p) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%.20s/stat", id);
  FILE *f = fopen(path, "r");
  size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
  if (f) fclose(f);
  text[n] = 0;
  const char *end = strrchr(text, ')');
  *p = (process){.id = atoi(id)};
  return end && sscanf(end + 1, " %c %d", &p->state, &p->parent) == 2;
}

static void add(processes *all, process p) {
  if (all->len == all->cap) {
    int cap = all->cap ? 2 * all->cap : 256;
    process *more = realloc(all->data, (size_t)cap * sizeof *more);
    if (!more) return;
    all->data = more;
    all->cap = cap;
  }
  all->data[all->len++] = p;
}

static bool is_ours(const processes *all, int id) {
  for (int i = 0; i < all->len; i++)
    if (all->data[i].id == id) return all->data[i].ours;
  return false;
}

/* Marks descendants, a generation at a time. */
static processes find_descendants(void) {
  processes all = {0};
  DIR *dir = opendir("/proc");
  const struct dirent *entry;
  process p;
  while (dir && (entry = readdir(dir)))
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && read_process(entry->d_name, &p)) add(&all, p);
  if (dir) closedir(dir);
  for (bool more = true; more;) {
    more = false;
    for (int i = 0; i < all.len; i++) {
      process *one = &all.data[i];
      if (one->ours || (one->parent != getpid() && !is_ours(&all, one->parent))) continue;
      one->ours = more = true;
    }
  }
  return all;
}

/* state: of whom it is sent to; 0: all. Returns how many there were. */
static int signal_descendants(int signal_number, char state) {
  processes all = find_descendants();
  int sent = 0;
  for (int i = 0; i < all.len; i++)
    if (all.data[i].ours && all.data[i].state != 'Z' && (!state || all.data[i].state == state))
      sent += kill(all.data[i].id, signal_number) == 0;
  free(all.data);
  return sent;
}

int zp_continue_descendants(void) { return signal_descendants(SIGCONT, 'T'); }

int zp_kill_descendants(void) { return signal_descendants(SIGKILL, 0); }

/* Until no child is left, for some tenths of a second. */
static bool reap(int tenths) {
  for (;; tenths--) {
    pid_t one;
    while ((one = waitpid(-1, NULL, WNOHANG)) > 0) {
    }
    if (one < 0 && errno == ECHILD) return true;
    if (tenths <= 0) return false;
    usleep(100000);
  }
}

void zp_end_descendants(void) {
  enum { BY_THEMSELVES = 30, KILLED = 100 };
  if (reap(BY_THEMSELVES)) return;
  zp_kill_descendants();
  reap(KILLED);
}
