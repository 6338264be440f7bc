/* Tensor parallelism is derived: for every tensor of every segment a state (replicated, split on its last dimension in
 * natural units, partial sum) is chosen by exact search over the op table's legal patterns; nothing knows what a
 * transformer is. The result is local graphs: shapes of one tensor rank, with the collectives as nodes. */
#ifndef ZPLAN_SHARD_H
#define ZPLAN_SHARD_H

#include <zplan/machine.h>
#include <zplan/model.h>

/* How a parameter lies on the tensor ranks, the same in all its uses. split_dim -1: replicated. */
typedef struct zp_param_split {
  int split_dim;
  int64_t outer, units;
  zp_shape local; /* padded: ceil(units / tensor) units a rank */
} zp_param_split;

typedef struct zp_sharding {
  int tensor;
  zp_graph **local;      /* per segment: unfused, undifferentiated local graph */
  zp_param_split *param; /* per model parameter */
  double comm_s;         /* of one micro-batch through all segments, as the search priced it */
  int64_t states_visited;/* for the certificate */
} zp_sharding;

/* Exact for the stated space (states R, S(last), P; conversions: all-reduce forward, its transpose backward). For tensor
 * degree 1 the local graphs equal the logical ones. NULL only when no state assignment exists, with *reason (arena). */
zp_sharding *zp_shard(zp_arena *arena, const zp_model *model, const zp_machine *machine, int tensor, int64_t microbatch,
                      const char **reason);

#endif
