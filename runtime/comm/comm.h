/* SPDX-License-Identifier: Apache-2.0 */
/* Private to comm.c, comm_levels.c, comm_ring.c, comm_rows.c, comm_slots.c and comm_stages.c: the state of messages,
 * and posting and waiting for them. */
#ifndef ZPLAN_RT_COMM_H
#define ZPLAN_RT_COMM_H

#include "state.h"

enum {
  ZPR_SPLIT_BYTES = 1 << 28, /* longest single message: counts of MPI are ints */
  ZPR_HOST_BYTES = 64,       /* name of a machine */
  ZPR_MAX_SPLITS = 256       /* of a message between stages or context ranks: it may have 64 GiB */
};

typedef struct pending_send {
  int n;
  int handle[ZPR_MAX_SPLITS];
} pending_send;

typedef struct pending_transfer {
  int n;
  int handle[2 * ZPR_MAX_SPLITS]; /* receives, then sends */
} pending_transfer;

struct zpr_comm {
  const zpr_transport *transport;
  zpr_group axis[ZPR_AXIS_COUNT];
  zpr_group *tie; /* [program->n_ties] */
  zpr_group sharers, replicas, copies, hpz;
  int64_t sent_bytes[ZPR_AXIS_COUNT], across_bytes[ZPR_AXIS_COUNT];
  int64_t routed_bytes;        /* of sorted rows, by the counts that say where they go */
  int *node;                   /* [ranks]: where the plan has them */
  pending_send *sends;         /* [zpr_message_buffers] */
  pending_transfer *transfers; /* [ZPR_TRANSFERS] */
  const void **stays; /* the same: what the next part of the model copies, because it is on this stage; NULL: nothing */
  char *staging;      /* ZPR_STAGING_BYTES */
  char *gather;       /* [ranks][ZPR_GATHER_BYTES] */
  int *handles;       /* [2 * ranks]: receives, then sends, of the collective in progress */
  const void **parts; /* [ranks]: what a sum is made of */
  char (*hosts)[ZPR_HOST_BYTES]; /* [ranks] */
};

/* The machine of a rank. */
const char *zpr_host_of(const zpr *c, int rank);
/* From a rank to that of the next stage. */
int zpr_pipeline_stride(const zpr_program *program);
/* Sends, and counts the bytes. */
int zpr_post_send(zpr *c, zpr_axis axis, const void *data, int64_t bytes, int peer, int tag);
/* sum = part[0] + ... + part[n - 1], 16-bit elements in f32 and rounded once; part[i] may be sum. */
void zpr_add_in_rank_order(zpr *c, zpk_dtype dtype, char *sum, const void *const *part, int n, int64_t count);
/* f32 to bf16 and back, by all threads. */
void zpr_round_sum(zpr *c, const char *sum, uint16_t *bits, int64_t count);
void zpr_widen_sum(zpr *c, const uint16_t *bits, char *sum, int64_t count);
/* comm_levels.c: of groups that have zpr_group.local. As reduce_scatter and all_gather in comm.c. */
void zpr_levels_reduce_scatter(zpr *c, const zpr_group *g, zpr_axis axis, zpk_dtype dtype, const char *data,
                               int64_t count, char *sum);
void zpr_levels_all_gather(zpr *c, const zpr_group *g, zpr_axis axis, int64_t size, char *data, int64_t count);
/* Until all are complete; the handles are -1 then. */
void zpr_wait_handles(zpr *c, int *handle, int n);

#endif
