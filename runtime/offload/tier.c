/* SPDX-License-Identifier: Apache-2.0 */
/* The host arena of a rank, its file on a disk, and the bytes that moved. */
#include "tier.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "checkpoint.h"
#include "device.h"
#include "disk.h"
#include "state.h"

enum { PATTERN = 0xE7 }; /* as in the arena (cpu/arena.c) */

struct zpr_tier {
  char *host; /* NULL: none */
  zpr_disk *disk;
  bool check;
  int64_t host_peak, file_peak, moved[ZPR_MOVE_COUNT];
};

/* Alongside the trainer unless somebody says otherwise. */
static const char *offload_folder(zpr *c, char path[ZPR_PATH]) {
  const char *chosen = c->state->options.offload_dir ? c->state->options.offload_dir : getenv("ZPLAN_OFFLOAD");
  if (chosen && *chosen) return chosen;
  return zpr_alongside_trainer(path, "offload");
}

void zpr_tier_open(zpr *c, bool check) {
  zpr_tier *t = c->state->tier = zpr_alloc(c, 1, sizeof *t);
  const zpr_stage *stage = c->stage;
  zpr_error error = {0};
  char folder[ZPR_PATH], why[512];
  t->check = check;
  if (stage->host_bytes > 0 && !(t->host = zpr_pinned_open(c, stage->host_bytes)))
    zpr_error_set(&error, "Z0822", "cannot get %lld bytes of pinned memory on the host for offloaded state",
                  (long long)stage->host_bytes);
  if (t->host && check) memset(t->host, PATTERN, (size_t)stage->host_bytes);
  if (stage->file_bytes > 0 && !error.code[0]) {
    t->disk = zpr_disk_open(offload_folder(c, folder), stage->file_bytes, true, why, sizeof why);
    if (!t->disk) zpr_error_set(&error, "Z0861", "%s", why);
  }
  zpr_agree(c, &error);
}

void zpr_tier_close(zpr *c) {
  zpr_tier *t = c->state->tier;
  zpr_disk_close(t->disk);
  if (t->host) zpr_pinned_close(c, t->host, c->stage->host_bytes);
  free(t);
  c->state->tier = NULL;
}

void *zpr_host_at(zpr *c, int64_t offset) { return c->state->tier->host + offset; }

int64_t zpr_host_measured_peak(zpr *c) {
  const zpr_tier *t = c->state->tier;
  int64_t end = t->host && t->check ? c->stage->host_bytes : 0;
  while (end > 0 && (unsigned char)t->host[end - 1] == PATTERN) end--;
  return end > t->host_peak ? end : t->host_peak;
}

void zpr_host_used(zpr *c, int64_t end) {
  zpr_tier *t = c->state->tier;
  if (end > t->host_peak) t->host_peak = end;
}

int64_t zpr_file_measured_peak(zpr *c) { return c->state->tier->file_peak; }

/* ---- the file ---- */

static int64_t start(zpr *c, bool write, void *memory, int64_t at, int64_t bytes) {
  zpr_tier *t = c->state->tier;
  if (at % ZPR_PAGE || bytes % ZPR_PAGE || (uintptr_t)memory % ZPR_PAGE || at + bytes > c->stage->file_bytes)
    zpr_fail(c, "Z0862", "a request for %lld bytes at byte %lld of a file of %lld bytes", (long long)bytes,
             (long long)at, (long long)c->stage->file_bytes);
  if (bytes == 0) return 0;
  if (write && at + bytes > t->file_peak) t->file_peak = at + bytes;
  zpr_count_move(c, write ? ZPR_WRITTEN : ZPR_READ, bytes);
  int64_t ticket = zpr_disk_start(t->disk, write, memory, at, bytes);
  if (ticket < 0) zpr_fail(c, "Z0862", "%s", zpr_disk_trouble(t->disk));
  return ticket;
}

int64_t zpr_file_read(zpr *c, void *memory, int64_t at, int64_t bytes) { return start(c, false, memory, at, bytes); }

/* The disk only reads it. */
int64_t zpr_file_write(zpr *c, const void *memory, int64_t at, int64_t bytes) {
  return start(c, true, (void *)(uintptr_t)memory, at, bytes);
}

void zpr_file_wait(zpr *c, int64_t ticket) {
  const zpr_tier *t = c->state->tier;
  if (ticket > 0 && !zpr_disk_wait(t->disk, ticket)) zpr_fail(c, "Z0862", "%s", zpr_disk_trouble(t->disk));
}

/* ---- counts ---- */

void zpr_count_move(zpr *c, zpr_move move, int64_t bytes) { c->state->tier->moved[move] += bytes; }

int64_t zpr_moved_bytes(const zpr *c, zpr_move move) { return c->state->tier->moved[move]; }
