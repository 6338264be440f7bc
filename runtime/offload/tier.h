/* SPDX-License-Identifier: Apache-2.0 */
/* Private: what a rank keeps off its device. Two places, both laid out by the plan and made once, at the start:
 *   the host arena, stage->host_bytes of memory of the host, which a GPU copies from and to by itself (pinned);
 *   the file, stage->file_bytes on a disk of this node, which is removed as soon as it is open, so that nothing is left
 *   after however the run ends.
 * Copies between the device's arena and the host arena are device.h's (zpr_copy_down, zpr_copy_up); here are the arena,
 * the file and the counts of what moved.
 *
 * Nothing here waits by itself: a read or a write returns a ticket at once and works on until zpr_file_wait of it.
 * Until then the memory of a read has anything in it, and that of a write must stay as it is. */
#ifndef ZPLAN_RT_TIER_H
#define ZPLAN_RT_TIER_H

#include "internal.h"

/* Collective: all ranks or none go on. Z0822 no memory; Z0861 no file. check: the arena is filled with a pattern. */
void zpr_tier_open(zpr *c, bool check);
void zpr_tier_close(zpr *c);

/* Byte `offset` of the host arena. */
void *zpr_host_at(zpr *c, int64_t offset);
/* 1 + the highest byte that was ever written: of the host arena (only with check), of the file. */
int64_t zpr_host_measured_peak(zpr *c);
/* Everything before byte `end` of the host arena is in use, whatever its bytes are: copies of what kernels leave
 * unwritten look as if nobody had written them. */
void zpr_host_used(zpr *c, int64_t end);
int64_t zpr_file_measured_peak(zpr *c);

/* ---- the file (tier_file.c) ---- */
/* Addresses, places and sizes that are multiples of this need no copy in the kernel. Others are errors. */
enum { ZPR_PAGE = 4096 };
/* Z0862 when the disk fails, is full, or when the file is shorter than what was written to it. Tickets are > 0. */
int64_t zpr_file_read(zpr *c, void *memory, int64_t at, int64_t bytes);
int64_t zpr_file_write(zpr *c, const void *memory, int64_t at, int64_t bytes);
/* Until it is done; 0 and tickets that were waited for are done. */
void zpr_file_wait(zpr *c, int64_t ticket);

/* ---- saved values (saved.c) ---- */
void zpr_saved_open(zpr *c);
void zpr_saved_close(zpr *c);

/* ---- counts ---- */
/* Adds to what this rank has moved (rt.h); the sum since the start. */
void zpr_count_move(zpr *c, zpr_move move, int64_t bytes);
int64_t zpr_moved_bytes(const zpr *c, zpr_move move);

#endif
