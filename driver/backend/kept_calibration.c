/* SPDX-License-Identifier: Apache-2.0 */
/* The calibration that run and bench make and keep: ~/.cache/zplan/machine-HASH.json (XDG_CACHE_HOME,
 * where it is absolute), HASH of what identifies the machine and the programs that measure it (measure.c).
 *
 * Only a regular file of this user, in a folder that nobody else may write, is read; links in its place are not
 * followed. One process measures at a time: the folder is locked meanwhile, because two would disturb each other. What
 * stands in the way of keeping is said, and the run goes on with what was measured. */
#define _GNU_SOURCE
#include "driver.h"

#include <zplan/buf.h>
#include <zplan/hash.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { KEPT_SECONDS = 20, LEAST_SECONDS = 2, MOST_SECONDS = 600, WAIT_SECONDS = 120 };

/* ---- where ---- */

typedef struct kept_place {
  const char *path, *identity;
  int folder;          /* open, locked while this process measures; -1: nothing can be kept */
  const char *why_not; /* it cannot */
} kept_place;

static const char *cache_folder(zp_arena *arena) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  if (cache && *cache == '/') return zp_format(arena, "%s/zplan", cache);
  return home && *home == '/' ? zp_format(arena, "%s/.cache/zplan", home) : NULL;
}

/* The folder and those above it, for this user alone. */
static void make_folders(zp_arena *arena, const char *folder) {
  char *path = zp_strdup(arena, folder);
  for (char *p = path + 1; (p = strchr(p, '/')) != NULL; p++) {
    *p = '\0';
    mkdir(path, 0700); /* what is there already is fine; what cannot be made shows when it is opened */
    *p = '/';
  }
  mkdir(path, 0700);
}

static const char *why_unsafe(const struct stat *info) {
  if (info->st_uid != geteuid()) return "it belongs to another user";
  if (info->st_mode & (S_IWGRP | S_IWOTH)) return "others may write it";
  return NULL;
}

static kept_place find_place(zp_arena *arena, bool make) {
  kept_place place = {.folder = -1, .identity = zp_no_measurements(arena).identity};
  const char *folder = cache_folder(arena);
  if (!folder) {
    place.why_not = "neither HOME nor XDG_CACHE_HOME names a folder";
    return place;
  }
  uint64_t hash = zp_hash(ZP_HASH_START, place.identity, strlen(place.identity));
  place.path = zp_format(arena, "%s/machine-%016llx.json", folder, (unsigned long long)hash);
  if (make) make_folders(arena, folder);
  struct stat info;
  place.folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const char *unsafe = place.folder >= 0 && fstat(place.folder, &info) == 0 ? why_unsafe(&info) : strerror(errno);
  if (!unsafe) return place;
  place.why_not = zp_format(arena, "%s: %s", folder, unsafe);
  if (place.folder >= 0) close(place.folder);
  place.folder = -1;
  return place;
}

/* ---- reading ---- */

/* NULL, with *why where something stands there that cannot be used. */
static const zp_calibration *read_kept(zp_arena *arena, const kept_place *place, const char **why) {
  *why = NULL;
  if (place->folder < 0) return NULL;
  int fd = openat(place->folder, strrchr(place->path, '/') + 1, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) {
    if (errno != ENOENT) *why = errno == ELOOP ? "it is a link" : strerror(errno);
    return NULL;
  }
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) *why = "it is no regular file";
  if (!*why) *why = why_unsafe(&info);
  const zp_calibration *c = NULL;
  if (!*why) {
    size_t len;
    const char *text = zp_read_file(arena, zp_format(arena, "/proc/self/fd/%d", fd), &len, why);
    zp_json *json = text ? zp_json_parse(arena, text, len, why) : NULL;
    c = json ? zp_calibration_read(arena, json, why) : NULL;
    zp_json_free(json);
  }
  close(fd);
  if (!c || strcmp(c->identity, place->identity) == 0) return c;
  *why = "it is of another machine, or of other kernels";
  return NULL;
}

/* ---- measuring ---- */

/* Waits for a process that measures now, which then has kept what this one wants. */
static void lock_place(const kept_place *place) {
  const struct timespec pause = {.tv_nsec = 200000000};
  for (int i = 0; place->folder >= 0 && i < WAIT_SECONDS * 5; i++) {
    if (flock(place->folder, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
    if (i == 0) zp_say_lines(stderr, "zplan: another zplan is measuring this machine: waiting for it\n");
    nanosleep(&pause, NULL);
  }
}

static const char *keep(zp_arena *arena, const kept_place *place, const zp_calibration *c) {
  if (place->folder < 0) return place->why_not;
  struct stat info; /* what is no file would be written into */
  if (lstat(place->path, &info) == 0 && !S_ISREG(info.st_mode) && unlink(place->path) != 0)
    return zp_format(arena, "%s: %s", place->path, strerror(errno));
  zp_json *json = zp_calibration_json(c);
  const char *error = NULL, *text = zp_json_text(arena, json, true);
  zp_json_free(json);
  mode_t before = umask(077);
  bool written = zp_write_file(arena, place->path, text, strlen(text), &error);
  umask(before);
  return written ? NULL : error;
}

/* $ZPLAN_CALIBRATION_SECONDS, for machines that are slow, and for tests. */
static double seconds_to_measure(void) {
  const char *wish = getenv("ZPLAN_CALIBRATION_SECONDS");
  double seconds = wish ? strtod(wish, NULL) : 0;
  return seconds >= LEAST_SECONDS && seconds <= MOST_SECONDS ? seconds : KEPT_SECONDS;
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Measures, and keeps what is complete. NULL after saying why not. */
static const zp_calibration *measure(zp_run_state *run, const kept_place *place) {
  zp_arena *arena = run->arena;
  zp_calibration *c = ZP_NEW(arena, zp_calibration);
  *c = zp_no_measurements(arena);
  double seconds = seconds_to_measure(), begin = now_s();
  zp_say_lines(stderr,
               "zplan: measuring this machine for about %.0f s, once, for the times of plans (--calibration none: do "
               "without)\n",
               seconds);
  zp_warn_busy();
  zp_diags *of_files = run->diags; /* places of what is built are places in these */
  run->diags = zp_diags_new(arena);
  zp_measuring measured = zp_measure_cores(run, seconds, NULL, c);
  run->diags = of_files; /* what failed was shown; the training needs no calibration */
  if (measured == ZP_MEASURED_NOTHING) {
    zp_say_lines(stderr, "zplan: times of plans are estimates from library numbers\n");
    return NULL;
  }
  const char *hash = zp_calibration_hash(arena, c), *why_not;
  if (measured == ZP_MEASURED_NO_LINKS)
    why_not = "it is without messages between ranks";
  else
    why_not = keep(arena, place, c);
  if (why_not)
    zp_say_lines(stderr,
                 "zplan: calibration %s, measured in %.0f s, is not kept, and the next run measures again: %s\n", hash,
                 now_s() - begin, why_not);
  else
    zp_say_lines(stderr, "zplan: calibration %s, measured in %.0f s, is kept in %s\n", hash, now_s() - begin,
                 place->path);
  return c;
}

/* ---- what commands ask for ---- */

bool zp_use_kept_calibration(zp_run_state *run, zp_spec *spec) {
  kept_place place = find_place(run->arena, false);
  const char *error = NULL;
  const zp_calibration *c = read_kept(run->arena, &place, &error);
  if (place.folder >= 0) close(place.folder);
  if (c && zp_calibration_apply(run->arena, c, spec, &error)) return true;
  if (!error) error = "there is none of this machine; `zplan run` and `zplan bench` make it";
  return zp_cannot_calibrate(run, zp_format(run->arena, "the kept calibration %s", place.path ? place.path : ""),
                             error);
}

/* Ranks of a hostfile are on other machines; a cluster of several node types is none that one calibration is of. */
static bool is_here(const zp_run_state *run, const zp_spec *spec) {
  return spec->cluster.node.device.is_cpu && spec->cluster.groups.len == 0 && !run->options.hostfile;
}

/* Was it measured alongside other work, of which most is gone? */
static bool was_busier(const zp_calibration *c) {
  double load = zp_calibration_value(c, "load", 0);
  return zp_is_busy(load) && zp_machine_load() < load / 2;
}

/* NULL, with *why where something stands there that is measured again. */
static const zp_calibration *find_kept(zp_arena *arena, const kept_place *place, const char **why) {
  const zp_calibration *c = read_kept(arena, place, why);
  if (!c || !was_busier(c)) return c;
  *why = zp_format(arena, "the machine was busy when it was measured (load %.1f)", zp_calibration_value(c, "load", 0));
  return NULL;
}

static const zp_calibration *kept_or_measured(zp_run_state *run) {
  kept_place place = find_place(run->arena, true);
  const char *why = NULL;
  const zp_calibration *c = find_kept(run->arena, &place, &why);
  if (!c) {
    lock_place(&place);
    c = find_kept(run->arena, &place, &why);
  }
  if (c)
    zp_say_lines(stderr, "zplan: calibration %s of %s, kept in %s\n", zp_calibration_hash(run->arena, c), c->date,
                 place.path);
  else if (why)
    zp_say_lines(stderr, "zplan: the kept calibration %s is made again: %s\n", place.path, why);
  if (!c) c = measure(run, &place);
  if (place.folder >= 0) close(place.folder);
  return c;
}

bool zp_calibrate_here(zp_run_state *run, zp_spec *spec) {
  const char *error = NULL;
  if (!zp_wants_measured_rates(run, spec) || !is_here(run, spec)) return true;
  if (!zp_can_generate(run, spec)) return false; /* before long work */
  const zp_calibration *c = kept_or_measured(run);
  if (c && !zp_calibration_apply(run->arena, c, spec, &error))
    zp_say_lines(stderr, "zplan: this calibration cannot be used here, times are estimates from library numbers: %s\n",
                 error);
  return true;
}
