/* SPDX-License-Identifier: Apache-2.0 */
/* Private to lowering: the state while one segment becomes two procedures. */
#ifndef ZPLAN_LOWER_INTERNAL_H
#define ZPLAN_LOWER_INTERNAL_H

#include <zplan/program.h>
#include <zplan/software.h>

#define ZP_ALIGN_BYTES 256 /* of every buffer in the arena */
#define ZP_PAGE_BYTES 4096 /* of what lies on disks */
/* On disks state is kept in whole pages, whatever the format: this many elements of 2 bytes are one. */
#define ZP_PAGE_ELEMENTS (ZP_PAGE_BYTES / 2)
#define ZP_ALIGN_ELEMENTS 64 /* of every parameter in the flat buffers: 256 bytes in f32 */
/* Column sums are made per chunk of rows. CPU ranks: the same constant as ZPK_CHUNKS in the kernels' header. GPUs: a
 * chunk is the work of one block, and how many there are depends on the rows alone, as zpd_row_chunks says. On CPU
 * ranks at most so many threads take part in a task: ZPR_MAX_WORKERS in the runtime's header. Codegen asserts that
 * these agree. */
#define ZP_ROW_CHUNKS_CPU 8
#define ZP_ROWS_OF_CHUNK_GPU 16
#define ZP_ROW_CHUNKS_GPU 512
#define ZP_MAX_WORKERS 8

static inline int64_t zp_round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

typedef struct zp_lowering {
  zp_arena *arena;
  zp_arena *scratch; /* of what nobody needs afterwards */
  zp_arena *details; /* of what outlines do without */
  zp_arena *steps;   /* of steps */
  zp_lowered *lowered;
  zp_segment_program *out;
  const zp_graph *graph;
  bool recompute, shard;      /* this segment rebuilds its forward values / keeps its input as shards */
  int *alias;                 /* per tensor: the tensor whose storage it shares (views, in-place ops), -1: its own */
  bool *saved;                /* per tensor that owns storage: kept from forward to backward */
  bool keeps_operands;        /* some of `operand` is not -1 */
  int *operand;               /* per tensor that owns storage: the one at it that is kept in 8 or 4 bits, -1: none */
  bool reads_kept;            /* the procedure finds such values as they are kept */
  bool *rebuilt;              /* per tensor: selective recomputation rebuilds it at the start of backward */
  ZP_VEC(zp_node *) rebuilds; /* in that order */
  int64_t *saved_offset;
  const char *reason; /* why the segment cannot be lowered */
} zp_lowering;

/* Views share their base's storage, and some nodes work in place. Sets `alias`, or `reason`. */
void zp_lower_find_aliases(zp_lowering *l);
/* Sets `saved`: all forward values that backward reads. Requires: aliases. */
void zp_lower_find_saved(zp_lowering *l);
/* Sets `operand`. Requires: aliases, saved. */
void zp_lower_find_operands(zp_lowering *l);
/* Bytes of a tensor's storage as it is kept. */
int64_t zp_lower_kept_bytes(const zp_lowering *l, int tensor);
/* A new buffer of an operand that is kept. Requires: zp_lower_place_saved. */
int zp_lower_operand_buffer(zp_lowering *l, zp_procedure *p, int tensor);
/* Appends the steps by which operands are kept that no node of forward after n reads or writes. */
void zp_lower_keep_operands(zp_lowering *l, zp_procedure *p, int *buffer_of, int n);
/* The kept input stands first in the unit's slot, then the saved values in tensor order. Requires: zp_lower_select. */
void zp_lower_place_saved(zp_lowering *l);
/* The tensor that owns the storage of `tensor`. */
int zp_lower_root(const zp_lowering *l, int tensor);
int64_t zp_lower_tensor_bytes(const zp_lowering *l, int tensor);
/* Chooses what selective recomputation rebuilds: moves tensors from `saved` to `rebuilt`, and keeps in 16 bits what
 * that reads. Requires: aliases, saved, operands. */
void zp_lower_select(zp_lowering *l);
/* Appends the step of one node. */
void zp_lower_node(zp_lowering *l, zp_procedure *p, int *buffer_of, const zp_node *node);
/* Appends the steps of graph nodes [first, last), skipping those with keep[node] == false (keep may be NULL). */
void zp_lower_nodes(zp_lowering *l, zp_procedure *p, int *buffer_of, int first, int last, const bool *keep);
/* The buffer of a tensor in this procedure, made on first use. */
int zp_lower_buffer(zp_lowering *l, zp_procedure *p, int *buffer_of, int tensor);
/* Sets the place of carried tensor `index`, or its gradient, among the arguments of the procedure. */
void zp_lower_place_carried(const zp_lowering *l, zp_buffer *b, zp_place place, int index);
int zp_lower_add_buffer(zp_lowering *l, zp_procedure *p, zp_buffer buffer);
/* Has an earlier step of the procedure, an earlier sum of this one, or the step's zeroing already written to the
 * gradient? */
bool zp_lower_is_written(const zp_lowering *l, const zp_procedure *p, const zp_step *step, int use);
/* Marks the steps of a backward procedure that BW takes when it is split. */
void zp_lower_mark_deferred(zp_procedure *backward);
/* Sets `split` of the segment, and what waits between its parts. Requires: the backward procedure, marked. */
void zp_lower_split(zp_lowering *l);

/* ---- streams.c ---- */
/* Sets `streams` and `stream_of`. Requires: spec, sharding, microbatch. */
void zp_lower_find_streams(zp_arena *arena, zp_lowered *lowered);
/* Sets what a segment, or a piece of one, says of what it carries. */
void zp_lower_set_carries(zp_arena *arena, const zp_lowered *lowered, int index, zp_segment_program *out);

/* ---- lower_again.c ---- */
/* Segment or piece `index` of l is one of `before` (may be NULL) once more, whose graph is the same. False: none is. */
bool zp_lower_find_segment(zp_arena *arena, zp_lowered *l, int index, const zp_graph *graph,
                           const zp_lowered_list *before);
/* Live ranges, offsets of transients, transient_bytes. Requires: all steps. */
void zp_color_transients(zp_arena *arena, zp_procedure *p);
/* How many CPU ranks reserve: mirrors zpr_attention_shares. */
int64_t zp_attention_shares(const zp_lowering *l, const zp_node *node);
/* Bytes of scratch memory of a relative bias. On CPU ranks: a line a share (zpk_attention_bias_line), then the sums of
 * its gradient. On GPUs: a line a head, where its gradient is wanted the bucket of every distance, then the
 * sums by distance of tiles of queries (zpd_bias). 0: there is none. */
int64_t zp_attention_bias_bytes(const zp_lowering *l, const zp_node *node, bool backward);
/* Bytes of scratch memory one attention worker needs: mirrors zpk_attention_workspace. */
int64_t zp_attention_workspace(int elem_bytes, int64_t sequence, int64_t head_size, int64_t group, bool backward);
/* Bytes that backward of attention on tensor cores takes: zpd_attention.facts. */
int64_t zp_attention_facts_bytes(int64_t samples, int64_t heads, int64_t sequence);
/* Bytes of scratch memory of attention where context ranks gather keys (attr.parts): what is merged of one sample; in a
 * ring what passes, too. 0: they do not. */
int64_t zp_attention_merge_bytes(const zp_lowering *l, const zp_node *node, bool backward);

#endif
