/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the files that call NCCL: its functions, communicators, and how trouble is told. */
#ifndef ZPLAN_RT_NCCL_H
#define ZPLAN_RT_NCCL_H

#include "cuda.h"

#define ZPR_NCCL_SCRATCH_BYTES ((int64_t)64 << 20) /* where shares of a sum arrive, on the GPU, outside the arena */

typedef struct zpr_nccl_id {
  char bytes[128]; /* ncclUniqueId */
} zpr_nccl_id;
_Static_assert(sizeof(zpr_nccl_id) <= ZPR_GATHER_BYTES, "an id travels in one control message");

enum {
  NCCL_U8 = 1,
  NCCL_F16 = 6,
  NCCL_F32 = 7,
  NCCL_F64 = 8,
  NCCL_BF16 = 9,
  NCCL_SUM = 0
}; /* ncclDataType_t, ncclRedOp_t */

/* name of the member, symbol, arguments; all return 0 for success */
#define NCCL_FUNCTIONS(X)                                                                                              \
  X(new_id, "ncclGetUniqueId", (zpr_nccl_id * id))                                                                     \
  X(join, "ncclCommInitRank", (void **comm, int ranks, zpr_nccl_id id, int rank))                                      \
  X(leave, "ncclCommDestroy", (void *comm))                                                                            \
  X(version, "ncclGetVersion", (int *version))                                                                         \
  X(async_error, "ncclCommGetAsyncError", (void *comm, int *error))                                                    \
  X(all_reduce, "ncclAllReduce",                                                                                       \
    (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream))                            \
  X(all_gather, "ncclAllGather", (const void *from, void *to, size_t count, int type, void *comm, void *stream))       \
  X(reduce_scatter, "ncclReduceScatter",                                                                               \
    (const void *from, void *to, size_t count, int type, int op, void *comm, void *stream))                            \
  X(broadcast, "ncclBroadcast",                                                                                        \
    (const void *from, void *to, size_t count, int type, int root, void *comm, void *stream))                          \
  X(send, "ncclSend", (const void *from, size_t count, int type, int peer, void *comm, void *stream))                  \
  X(receive, "ncclRecv", (void *to, size_t count, int type, int peer, void *comm, void *stream))                       \
  X(group_start, "ncclGroupStart", (void))                                                                             \
  X(group_end, "ncclGroupEnd", (void))

typedef struct nccl_api {
#define NCCL_MEMBER(name, symbol, arguments) int(*name) arguments;
  NCCL_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
  const char *(*error_text)(int result);
} nccl_api;

/* A stream of messages from one rank to another (nccl_stages.c); a rank has both ends of a few. */
typedef struct zpr_channel {
  void *out, *in; /* communicators: this rank is member 0 of `out` and member 1 of `in`; NULL: nobody there */
  void *stream;   /* of what is sent */
  /* What comes in ahead (NULL, 0: what comes is received where it is needed): */
  void *arrivals;       /* its stream */
  int64_t landing_at;   /* byte of the arena where the next message arrives */
  void *landed, *taken; /* events: it is there; it has been copied away */
  int64_t *count;       /* [messages]: elements of those of a walk over the micro-batches, in their order */
  int64_t messages, room, posted, used; /* of this walk so many are asked for, and so many were used */
} zpr_channel;

enum { ZPR_CHANNELS = 4 };

struct zpr_nccl {
  nccl_api api;
  void *tensor, *data, *replicas, *expert, *context, *copies; /* data, replicas: of a shard group */
  void **tie;                                                 /* [n_ties] */
  zpr_channel channels[ZPR_CHANNELS];
  void *ready;  /* event: a message is complete in the compute stream */
  void **sent;  /* events, [zpr_message_buffers]: what is in a buffer has left */
  bool *leaves; /* the same: the event is to be waited for */
  gpu_pointer scratch;
  struct zpr_ring_stream *ring; /* transfers between context ranks (ring.c); NULL: there are none */
  int64_t asked_ms;             /* when its communicators were last asked for errors (nccl_watch.c) */
};

void zpr_nccl_check(zpr *c, int result, const char *what);
/* Collective over all ranks: everybody learns the ids that the ranks with `make` have made. */
void zpr_nccl_exchange_ids(zpr *c, bool make, zpr_nccl_id *all);
void *zpr_nccl_join(zpr *c, const zpr_nccl_id *id, int n, int me);
/* ncclDataType_t of operands. */
int zpr_nccl_type(const zpr *c);
/* nccl_levels.c: of groups that have zpr_group.local. As reduce_scatter in nccl.c; type: NCCL's. */
void zpr_nccl_levels_reduce_scatter(zpr *c, const zpr_group *g, zpr_axis axis, void *comm, int type, int64_t size,
                                    char *data, int64_t count);
/* f32 to bf16 and back, on the GPU. */
void zpr_round_on_device(zpr *c, const char *sum, unsigned short *bits, int64_t count);
void zpr_widen_on_device(zpr *c, const unsigned short *bits, char *sum, int64_t count);
/* So many rounded elements to a member, and so many from it. Between group_start and group_end. */
void zpr_nccl_exchange_rounded(zpr *c, zpr_axis axis, void *comm, const zpr_group *g, int member,
                               const unsigned short *leaving, int64_t theirs, unsigned short *coming, int64_t mine);
/* Collective over all ranks. ids: room for one of every rank. */
void zpr_nccl_open_channels(zpr *c, zpr_nccl_id *ids);
/* ring.c */
void zpr_nccl_open_ring(zpr *c);
void zpr_nccl_close_ring(zpr *c);
/* Collective: a byte through every channel. */
void zpr_nccl_connect_channels(zpr *c);
void zpr_nccl_close_channels(zpr *c);

#endif
