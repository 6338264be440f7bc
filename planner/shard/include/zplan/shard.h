/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor parallelism is derived: for every tensor of every segment a state (replicated, split on its last dimension in
 * natural units, split along the sequence or the experts, partial sum) is chosen by exact search over the op table's
 * legal patterns; nothing knows what a transformer is. The result is local graphs: shapes of one tensor rank, with the
 * collectives as nodes. */
#ifndef ZPLAN_SHARD_H
#define ZPLAN_SHARD_H

#include <zplan/choice.h>
#include <zplan/machine.h>
#include <zplan/model.h>
#include <zplan/pieces.h>

/* How a parameter lies on the tensor ranks, the same in all its uses. split_dim -1: replicated. */
typedef struct zp_param_split {
  int split_dim;
  int64_t outer, units;
  /* Padded: ceil(units / shares) units a rank, or more where products want it (pad.c), for one rank, too; share
   * t * expert + x of tensor rank t, expert rank x. */
  zp_shape local;
  bool spread;       /* on dimension 0 (then split_dim), and further over the expert ranks: tensor * expert shares */
  bool grad_partial; /* replicated, but every rank has only its rows' share of the gradient: one all-reduce of `local`
                      * over the tensor ranks a step. With `sequence` norm weights and biases added to split rows;
                      * weights that heads share, of which a rank has some */
} zp_param_split;

/* Graphs of the pieces of layers, made when the first of them is asked for. */
typedef struct zp_shard_pieces {
  bool known;
  const zp_pieces *pieces; /* NULL: no layer can be cut */
  zp_graph **trained;      /* per piece after the whole segments; NULL: what flows on after it is divided */
} zp_shard_pieces;

/* Graphs with the loss in chunks, made when they are asked for. */
typedef struct zp_shard_chunks {
  int segment, chunks;
  const zp_graph *trained; /* NULL: it is not made so, with the reason */
  const char *reason;
} zp_shard_chunks;
typedef ZP_VEC(zp_shard_chunks) zp_shard_chunks_list;

typedef struct zp_sharding {
  int tensor;
  int expert;               /* ranks of an expert group, 1: every data rank has all experts of its tensor rank */
  int context;              /* ranks of a context group, 1: every data rank has all positions of its samples */
  zp_context_by context_by; /* what these exchange around attention */
  bool sequence;            /* carried tensors are split along the sequence */
  bool epilogues;           /* products take in row operations (zp_fold_epilogues) */
  bool gelu_gradients;      /* gelu's derivative among them (zp_fold_gradients) */
  zp_graph **local;         /* per segment: unfused, undifferentiated local graph */
  zp_graph **trained;       /* per segment: the same fused and differentiated */
  zp_shard_pieces *pieces;
  zp_shard_chunks_list *in_chunks;
  zp_param_split *param; /* per model parameter */
  bool partial;          /* grad_partial of one of them */
} zp_sharding;

/* Exact for the stated space: states R, S(last), S(experts), P; conversions all-reduce forward and its transpose
 * backward. With `sequence` (sequence parallelism, arXiv 2205.05198) also S(seq), the rank's share of every sample's
 * positions, with all-gather and reduce-scatter; carried tensors are then S(seq), else R. For tensor degree 1 the
 * local graphs equal the logical ones but for padded widths (pad.c). NULL when no assignment of states exists, with
 * *reason (arena): `sequence` needs two or more tensor ranks and a sequence that they divide. */
zp_sharding *zp_shard(zp_arena *arena, const zp_model *model, const zp_machine *machine, int tensor, int64_t microbatch,
                      bool sequence, const char **reason);
/* Shards as zp_shard does for one rank of expert groups: whole experts are divided over the tensor ranks, and those of
 * a tensor rank over the `expert` data ranks of its group (zp_graph_spread_experts), which must divide them. */
zp_sharding *zp_shard_experts(zp_arena *arena, const zp_model *model, const zp_machine *machine, int tensor, int expert,
                              bool sequence, const char **reason);
/* Shards as zp_shard_experts does for one rank of the choice's tensor, expert and context groups: of every sample's
 * positions, which the latter must divide, it has a share (zp_graph_divide_positions). */
zp_sharding *zp_shard_choice(zp_arena *arena, const zp_model *model, const zp_machine *machine, const zp_choice *choice,
                             const char **reason);
/* Why the experts of a tensor rank cannot be divided over so many data ranks; NULL when they can, as far as their
 * numbers go. */
const char *zp_shard_refuse_experts(zp_arena *arena, const zp_model *model, int tensor, int expert);
/* Why the model's experts are not spread over data ranks with so many tensor ranks, whatever their numbers: a gate has
 * no capacity. NULL: all have one, or it is no obstacle. */
const char *zp_model_dropless_refusal(zp_arena *arena, const zp_model *model, int tensor);
/* Has the model matrices of experts? */
bool zp_model_has_experts(const zp_model *model);
/* Has some gate fewer slots for an expert than a sample has positions, so that some may find none? */
bool zp_model_drops_tokens(const zp_model *model);
/* The graphs of the pieces, in the arena of the sharding. */
const zp_shard_pieces *zp_shard_find_pieces(const zp_sharding *sharding, const zp_model *model);
/* The trained graph of a segment with its loss in so many chunks, two or more (zp_chunk_loss), made once for all
 * micro-batches and modes. Requires: the segment has the loss. The reason lies in the arena of the sharding. */
const zp_graph *zp_shard_chunk_loss(const zp_sharding *sharding, int segment, int chunks, const char **reason);

#endif
