/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the runtime: its state and the seams between its files. */
#ifndef ZPLAN_RT_INTERNAL_H
#define ZPLAN_RT_INTERNAL_H

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <zplan/rt.h>
#include "denominators.h"

typedef struct zpr_options {
  int64_t steps; /* last step + 1 to run to; -1: the program's */
  bool resume, check_memory, progress;
  bool overwrite;      /* without resume: checkpoints that are there are removed */
  bool accept_changes; /* with resume: goes on with other data, or another seed */
  int64_t resume_from; /* with resume: 1 + the step to go on from; 0: the newest */
  const char *log_path, *data_path, *validate_path, *checkpoint_dir; /* NULL: the program's */
  bool no_checkpoint;                                                /* none is kept, whatever folder is named */
  const char *infer_path;  /* request of `zplan sample` or `zplan eval`; NULL: it trains */
  const char *init_path;   /* map of the weights to start from; NULL: the program's, or none */
  const char *offload_dir; /* where state on disk goes; NULL: $ZPLAN_OFFLOAD, or alongside the trainer */
  const char *comm;        /* how GPUs talk to each other: nccl, staged; NULL: the runtime chooses */
  const char *products;    /* who multiplies matrices on CPU ranks: openblas, onednn; NULL: the runtime chooses */
  bool sync;               /* GPUs: the host waits after every kernel, and names the one that failed */
  bool profile;            /* measures steps: every other one, or those that profile_first and _last name */
  int64_t profile_first, profile_last; /* 0: not given */
  int wait_warn, wait_end; /* seconds of waiting for another rank until a line says so, until the run ends; 0: never;
                              wait_end < 0: as watch.h has it */
  int grace;               /* seconds for the same after a signal that asks to end */
  int threads;             /* 0: cores / ranks of this host, at least 1, at most ZPR_MAX_WORKERS */
} zpr_options;
enum { ZPR_MOST_SECONDS = 1000000 };
extern const zpr_options zpr_default_options;
/* Status of zpr_options_parse. */
enum { ZPR_OPTIONS_RUN, ZPR_OPTIONS_HELP, ZPR_OPTIONS_WRONG };
/* Reads argv into options; message says what is wrong with it. */
int zpr_options_parse(int argc, char **argv, zpr_options *options, char *message, size_t size);
void zpr_options_help(FILE *out, const zpr_program *program);

/* What gradients of parameters are, on the device, on their way, on the host and on disks: f32 where operands have 16
 * bits, so that what is added up is never rounded to them. */
static inline zpk_dtype zpr_gradient_type(const zpr *c) { return zpk_real(c->program->dtype); }
static inline int64_t zpr_gradient_bytes(const zpr *c) { return zpk_bytes(zpr_gradient_type(c)); }
/* What of them a rank keeps on the device from one micro-batch to the next (stochastic_sums.h). */
static inline zpk_dtype zpr_sum_type(const zpr *c) {
  return c->program->stochastic_sums ? ZPK_BF16 : zpr_gradient_type(c);
}
static inline int64_t zpr_sum_bytes(const zpr *c) { return zpk_bytes(zpr_sum_type(c)); }

/* ---- setting up and tearing down (open.c) ---- */
/* Starts the ranks, checks their number (Z0820), opens arena and threads. What remains for training: weights, data,
 * log. */
void zpr_open(zpr *c, const zpr_program *program, const zpr_options *options, int *argc, char ***argv);
void zpr_close(zpr *c);

/* ---- trouble (fail.c); one rank's trouble on its own: zpr_fail in rt.h ---- */
typedef struct zpr_error {
  char code[8]; /* "" : none */
  char text[512];
} zpr_error;
void zpr_error_set(zpr_error *error, const char *code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Collective over all ranks. Returns when no rank has an error; otherwise the lowest such rank prints its message and
 * all ranks leave in an orderly way with status 1. */
void zpr_agree(zpr *c, const zpr_error *error);

/* ---- what came out of a file, said (say.c) ---- */
/* A line on a terminal or in its place, its end included; controls in it are shown and not obeyed. */
void zpr_say_line(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void zpr_say_list(FILE *out, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
/* A JSON string with its quotes. */
void zpr_put_json(FILE *out, const char *text);

/* ---- ranks (comm_self.c, comm_mpi.c): point-to-point back end. One table; the collectives stand on it (comm.c).
 * ---- */
typedef struct zpr_transport {
  const char *name;
  void (*init)(const zpr_options *options, int *argc, char ***argv, int *rank, int *ranks);
  /* Post; complete when *poll says so. A handle is >= 0; handles are small and reused. */
  int (*isend)(const void *data, int64_t bytes, int peer, int tag);
  int (*irecv)(void *data, int64_t bytes, int peer, int tag);
  bool (*poll)(int handle);
  /* Who a handle that is not complete is from or to, and its tag. */
  int (*peer)(int handle, int *tag);
  void (*finish)(void);
  void (*abort)(int status);
} zpr_transport;
extern const zpr_transport zpr_transport_self, zpr_transport_mpi;
/* Which one the trainer was linked with: libzplanrt_mpi.a defines it as mpi, libzplanrt_self.a as self. */
extern const zpr_transport *const zpr_linked_transport;

/* Members of this rank's group along an axis: world ranks in order, and my place. */
typedef struct zpr_group {
  int n, me;
  int local; /* several nodes with so many members each, 2 or more: sums and gathers go in two levels; else 0 */
  const int *rank;
} zpr_group;
/* Are sums that are counted so rounded where they leave a node (zpr_program.rounds_sums)? */
bool zpr_rounds_sum(const zpr *c, const zpr_group *group, zpr_axis counted_as);
/* Does the plan have the rank on another node than this one? */
bool zpr_is_elsewhere(const zpr *c, int rank);
/* Every axis but ZPR_TIE, which has a group per tie (zpr_tie_group: n is 1 where this stage does not hold the tie). */
zpr_group zpr_axis_group(zpr *c, zpr_axis axis);
zpr_group zpr_tie_group(zpr *c, int tie);
/* Members of an expert group. */
static inline int zpr_expert_ranks(const zpr_program *program) { return program->expert > 1 ? program->expert : 1; }
/* Members of a context group: data rank d has place d % context, and samples of its own as replica d / context. */
static inline int zpr_context_ranks(const zpr_program *program) { return program->context > 1 ? program->context : 1; }
/* Which of the equal stretches of a sample's positions is the rank's i-th: it has one of as many as there are context
 * ranks, or two of twice as many, a late one and an early one (by_keys.c). */
static inline int64_t zpr_positions_part(const zpr *c, int i) {
  int64_t ranks = zpr_context_ranks(c->program), me = c->d % ranks;
  return c->program->context_by_keys && i == 0 ? 2 * ranks - 1 - me : me;
}
/* Data ranks with samples of their own. */
static inline int zpr_replicas(const zpr_program *program) { return program->data / zpr_context_ranks(program); }
/* Do data ranks own pieces of the optimizer's state, of gradients, of parameters? ZeRO 1, 2 and 3. */
static inline bool zpr_shards_state(const zpr_program *program) { return program->zero >= 1; }
static inline bool zpr_shards_gradients(const zpr_program *program) { return program->zero >= 2; }
static inline bool zpr_shards_params(const zpr_program *program) { return program->zero >= 3; }
/* Do units hand their gradients over in buckets? */
static inline bool zpr_moves_gradients(const zpr_program *program) {
  return zpr_shards_gradients(program) || program->moves_gradients;
}
/* Data ranks that divide among them what ZeRO shares out: neighbours. */
static inline int zpr_shard_ranks(const zpr_program *program) {
  return program->shard > 0 ? program->shard : program->data;
}
zpr_group zpr_shard_group(zpr *c);
/* Those of them that hold the same experts. */
zpr_group zpr_replica_group(zpr *c);
/* Data ranks at one place of their shard groups, which have copies of the same shards; one alone: there are none. */
zpr_group zpr_copies_group(zpr *c);
/* Data ranks that divide a second copy of the parameters; one alone: there is none. */
zpr_group zpr_hpz_group(zpr *c);
void zpr_comm_init(zpr *c, int *argc, char ***argv);
void zpr_comm_finish(zpr *c);
/* Payload bytes that this rank has sent since the start; and what of them left its node. */
int64_t zpr_comm_sent_bytes(zpr *c, zpr_axis axis);
int64_t zpr_comm_across_bytes(zpr *c, zpr_axis axis);
/* Those of rows sorted by expert, of ZPR_EXPERT, as the gates' choices say: a second count of what routing sends. */
int64_t zpr_comm_routed_bytes(zpr *c);
/* Lets posted sends advance; called between kernels because MPI makes no progress on its own. */
void zpr_comm_progress(zpr *c);
/* Incoming pieces of a reduction wait here. Allocated once, outside the arena: reported as part of the process's
 * context. */
#define ZPR_STAGING_BYTES ((int64_t)4 << 20)
/* Collective over explicit members, in the arena (of the back end, see device.h). What is summed is of a dtype that the
 * caller names, what is gathered of the program's. */
void zpr_group_all_reduce(zpr *c, const zpr_group *group, zpr_axis counted_as, zpk_dtype dtype, void *data,
                          int64_t count);
/* Afterwards my shard of data[n * shard_count] holds the sum; and every member's shard goes to all others, in place. */
void zpr_group_reduce_scatter(zpr *c, const zpr_group *group, zpr_axis counted_as, zpk_dtype dtype, void *data,
                              int64_t shard_count);
void zpr_group_all_gather(zpr *c, const zpr_group *group, zpr_axis counted_as, void *data, int64_t shard_count);
/* Collectives between the two calls need not wait for each other: NCCL starts them as one. */
void zpr_together(zpr *c, bool begin);
/* Collectives over explicit members, on memory of the host. */
void zpr_host_all_reduce(zpr *c, const zpr_group *group, zpr_axis counted_as, zpk_dtype dtype, void *data,
                         int64_t count);
void zpr_host_reduce_scatter(zpr *c, const zpr_group *group, zpr_axis counted_as, zpk_dtype dtype, void *data,
                             int64_t shard_count);
void zpr_host_all_gather(zpr *c, const zpr_group *group, zpr_axis counted_as, void *data, int64_t shard_count);
/* The sum of my shard, in the program's dtype, goes to `out`, and data stay as they are. */
void zpr_host_reduce_scatter_to(zpr *c, const zpr_group *group, zpr_axis counted_as, const void *data,
                                int64_t shard_count, void *out);
/* Bytes at send + r * stride go to member r, and those of member r come to recv + r * bytes. */
void zpr_host_exchange(zpr *c, const zpr_group *group, zpr_axis counted_as, const void *send, int64_t stride,
                       int64_t bytes, void *recv);
/* zpr_spread_slots, or zpr_return_slots, over the ranks of an axis. */
void zpr_exchange_slots(zpr *c, zpr_axis axis, bool spread, const void *in, int64_t samples, int64_t experts,
                        int64_t elements, void *out);
void zpr_host_exchange_slots(zpr *c, zpr_axis axis, bool spread, const void *in, int64_t samples, int64_t experts,
                             int64_t elements, void *out);
/* As zpr_host_exchange, in the arena (of the back end). */
void zpr_group_exchange(zpr *c, const zpr_group *group, zpr_axis counted_as, const void *send, int64_t stride,
                        int64_t bytes, void *recv);
/* A message of the pipeline (comm_stages.c): to or from whom, which of the rank's message buffers, and its tag. */
typedef struct zpr_message {
  bool up;
  int peer, tag;
  int64_t buffer; /* below zpr_message_buffers; the same for all messages that wait for each other */
} zpr_message;
int64_t zpr_message_buffers(const zpr_program *program);                       /* of a rank */
int zpr_message_chunk(const zpr_program *program, const zpr_message *message); /* whose sender it is */
/* Messages between ranks, in the arena (of the back end) and on memory of the host. As zpr_send, _send_wait, _recv. */
void zpr_stage_send(zpr *c, const zpr_message *to, const void *data, int64_t count);
void zpr_stage_send_wait(zpr *c, const zpr_message *to);
void zpr_stage_recv(zpr *c, const zpr_message *from, void *data, int64_t count);
void zpr_host_send(zpr *c, const zpr_message *to, const void *data, int64_t count);
void zpr_host_send_wait(zpr *c, const zpr_message *to);
void zpr_host_recv(zpr *c, const zpr_message *from, void *data, int64_t count);
/* Until nothing is left to be sent. */
void zpr_wait_sends(zpr *c);
/* For a back end that sends by other means: bytes that it sent to rank `peer`, and the part of chunk r, of which
 * count elements have n, that lies in the round that starts `at` elements into every chunk and takes at most `most`
 * of each. */
typedef struct zpr_piece {
  int64_t begin, count;
} zpr_piece;
zpr_piece zpr_chunk_piece(int64_t count, int n, int r, int64_t at, int64_t most);
void zpr_comm_count(zpr *c, zpr_axis axis, int64_t bytes, int peer);
/* Control values of all ranks: collective over all ranks, the same bits everywhere. */
#define ZPR_GATHER_BYTES 256
void zpr_world_gather(zpr *c, const void *mine, int64_t bytes,
                      void *all); /* all[rank * bytes]; bytes <= ZPR_GATHER_BYTES */
void zpr_world_sum(zpr *c, double *values, int count);
void zpr_world_sums(zpr *c, double *values, int64_t n); /* as many as there are */
int64_t zpr_world_min(zpr *c, int64_t value);
/* The sums over all ranks, modulo 2^64, to rank 0; on the others the values are scratch afterwards. */
void zpr_first_sums(zpr *c, uint64_t *values, int64_t n);
/* Integers of a group's members, the sums at all of them. Counted as control values. */
void zpr_sum_counts(zpr *c, const zpr_group *group, int64_t *values, int64_t n);
void zpr_barrier(zpr *c);
int zpr_ranks_on_host(zpr *c); /* collective */
int zpr_rank_on_host(zpr *c);  /* how many lower ranks run on this host; collective */

/* ---- threads (pool.c) ---- */
typedef void zpr_task(void *arg, int64_t begin, int64_t end, int worker);
/* The task `name` that gives its range to a kernel: `call` has begin, end and `a`, the `type` that arg is. */
#define ZPR_TASK(name, type, call)                                                                                     \
  static void name(void *arg, int64_t begin, int64_t end, int worker) {                                                \
    const type *a = arg;                                                                                               \
    (void)worker;                                                                                                      \
    call;                                                                                                              \
  }
/* A task with such a call for every item i of its range. */
#define ZPR_TASK_EACH(name, type, call) ZPR_TASK(name, type, for (int64_t i = begin; i < end; i++) call)
/* spin: workers watch for the next task for some microseconds before they sleep; false when ranks share cores. */
typedef struct zpr_pool zpr_pool;
zpr_pool *zpr_pool_open(zpr *c, int threads, bool spin);
void zpr_pool_close(zpr_pool *pool); /* NULL: nothing */
/* Calls task on disjoint ranges covering [0, count), cut at multiples of `grain`; worker < ZPR_MAX_WORKERS. */
void zpr_pool_run(zpr_pool *pool, int64_t count, int64_t grain, zpr_task *task, void *arg);
/* The pool of the thread that runs the steps. */
void zpr_pool_start(zpr *c, int threads, bool spin);
void zpr_pool_stop(zpr *c);
void zpr_parallel(zpr *c, int64_t count, int64_t grain, zpr_task *task, void *arg);
int zpr_threads(const zpr *c);
/* Which of zpr_attention_shares a worker takes whose tasks begin at `begin`: of few tasks it may be any thread's. */
static inline int zpr_workspace_share(const zpk_attention_args *args, int64_t begin, int worker) {
  return args->B * args->G < ZPR_MAX_WORKERS ? (int)begin : worker;
}
/* Clocks of the processor time of that pool's threads but the caller's. Returns how many, < ZPR_MAX_WORKERS. */
int zpr_pool_clocks(const zpr *c, clockid_t clocks[]);

/* ---- data (data*.c) ---- */
typedef struct zpr_data zpr_data;
/* Every rank opens; errors through zpr_fail (Z0801 missing, Z0802 truncated or foreign, Z0803 id beyond the vocabulary,
 * Z0804 too short for one sample). */
zpr_data *zpr_data_open(zpr *c, const zpr_source *source); /* collective */
void zpr_data_close(zpr_data *data);
/* Fills the arena's inputs with this replica's samples of the batch that begins with sample `first` of the run: sample
 * first + c->first_sample + i. Order: see data.c's header comment. */
void zpr_data_load(zpr *c, zpr_data *data, int64_t first);
/* Labels of a loss in the batch that was loaded last, of all ranks; of a squared error its rows. */
int64_t zpr_data_labels(const zpr_data *data, int loss);
/* How many of the first `samples` samples come once, in whole batches where labels do not say which samples of a batch
 * there are; 0: not even one batch. Requires: samples is a multiple of the batch. */
int64_t zpr_data_once(const zpr_data *data, int64_t samples);
/* From now on samples from `end` on have no labels: a multiple of the batch, or what zpr_data_once answered. True where
 * the end was another one before. */
bool zpr_data_end(zpr_data *data, int64_t end);
/* Samples of one pass over the data; of made-up data, which has no end, 1. Of a mixture all samples of its sources. */
int64_t zpr_data_windows(const zpr_data *data);
/* Tokens of a sample as the source counts them: the program's sequence, but where spans are cut out of longer
 * samples. */
int64_t zpr_data_length(const zpr_data *data);
/* How often each of the sources that are mixed was gone through in the first `samples` samples of the run: whole passes
 * and a fraction, by its name. Returns how many sources there are; 0: it is no mixture. Made-up sources have no passes:
 * 0. */
typedef struct zpr_passes {
  const char *kind, *path; /* borrowed; path NULL: made up */
  int64_t samples;
  double passes;
} zpr_passes;
int zpr_data_passes(const zpr_data *data, int64_t samples, zpr_passes passes[ZPR_MOST_PARTS]);
/* What a checkpoint says of the data that it was trained on, and what a resumed run has. */
enum { ZPR_DATA_NAME = 256 };
typedef struct zpr_data_identity {
  int64_t kind;             /* of zpr_source; 0: nothing is known */
  char path[ZPR_DATA_NAME]; /* as given; for messages only */
  bool shuffled;
  int64_t seed;              /* of the order, or of made-up samples */
  int64_t tokens;            /* of the stream; 0 of made-up samples */
  uint64_t hash;             /* of tokens of the stream, see data_identity.c */
  char masks[160];           /* which tokens are masked or cut out, in words; "": none */
  char words[ZPR_DATA_NAME]; /* the vocabulary of whole words, from the root; for `zplan eval` only; "": none */
} zpr_data_identity;
/* Reads some pages all over the data. data NULL: nothing is known. */
zpr_data_identity zpr_data_identify(const zpr_data *data);
/* Does the stream begin with all of the tokens of `earlier`, by number and hash? */
bool zpr_data_begins_with(const zpr_data *data, const zpr_data_identity *earlier);
/* "text", "tokens", "synthetic": of a zpr_source.kind. */
const char *zpr_data_kind_name(int64_t kind);
/* The kind of that name; 0 for any other word. */
int64_t zpr_data_kind_of(const char *name);

/* ---- training (train.c, update.c, weights.c, schedule.c) ---- */
/* The loop, from c->step to `last`, with the data of the state; the process's exit status. */
int zpr_train(zpr *c, zpr_data *validate, int64_t last);
/* The forward passes of the samples that are loaded. */
void zpr_run_forwards(zpr *c);
/* validate.c: runs the first batches of the validation data and writes a line of the log. False on all ranks where one
 * of them could not load a batch (zpr_state.data_error). Collective. */
bool zpr_validate(zpr *c, zpr_data *data);
double zpr_learning_rate(const zpr_program *program, int64_t step);
void zpr_update_open(zpr *c);
void zpr_update_close(zpr *c);
/* After the weights to start from are there. */
void zpr_update_begin(zpr *c);
/* What zpr_sum_partial sums. */
void zpr_partial_open(zpr *c);
void zpr_partial_close(zpr *c);
/* Zeroes the gradients that micro-batches only add to. */
void zpr_begin_step(zpr *c);
typedef struct zpr_step_result {
  double loss, grad_norm; /* of the whole batch; the norm is the one before clipping */
  zpr_tally tally[ZPR_MOST_LOSSES];
  bool applied;       /* false: loss or norm is not finite and nothing was changed */
  bool no_data;       /* not applied: some rank could not load its batch (zpr_state.data_error) */
  bool rescaled;      /* f16: it was not applied, and the next one has half the loss scale */
  int64_t loss_scale; /* that the step had */
  int signal;         /* a signal that some rank received, or 0 */
} zpr_step_result;
/* After micro_batches: ties, data-parallel reduction, norm, clipping, update, all-gather. signal: what this rank
 * received. Collective over all ranks; the outcome is the same on all. */
void zpr_finish_step(zpr *c, double lr, int signal);
/* What came of the oldest finished step that was not asked for. Afterwards c knows of the steps that were skipped, and
 * the loss scale, as they are after that step. */
zpr_step_result zpr_step_outcome(zpr *c);
/* May the next step be started before the outcome of the last one was asked for? At most two are then open. */
bool zpr_runs_ahead(const zpr *c);
/* After a delayed update: the parameters on the device are those of one update before (zplan/rt_tables.h: delayed). */
bool zpr_is_behind(const zpr *c);
/* Until the host has done the last update, which then is in the optimizer's state; before state is read. */
void zpr_update_join(zpr *c);
/* Its weights go to the device: nothing is trained any more. Collective; requires zpr_is_behind. */
void zpr_update_catch_up(zpr *c);
/* ---- the scale of f16 gradients (loss_scale.c) ---- */
void zpr_loss_scale_start(zpr *c);
/* As a checkpoint left it; scale 0: it says nothing. A scale that does not change is the program's. */
void zpr_loss_scale_resume(zpr *c, int64_t scale, int64_t steps);
/* After a step: counts it, lowers or raises the scale. The same on all ranks. */
void zpr_loss_scale_step(zpr *c, bool applied);
bool zpr_loss_scale_can_fall(const zpr *c);
bool zpr_loss_scale_moves(const zpr_program *program);
static inline int zpr_n_losses(const zpr_program *p) { return p->n_losses > 0 ? p->n_losses : 1; }
/* Is it a squared error? Nothing is right or wrong then. */
static inline bool zpr_is_error(const zpr_program *p, int loss) { return p->losses && p->losses[loss].rows > 0; }
static inline const char *zpr_loss_name(const zpr_program *p, int loss) {
  return p->losses ? p->losses[loss].name : "loss";
}

/* Initial parameters; gradients and optimizer state zero. given: where parameters come from (given.h), with what goes
 * wrong in *error; NULL: they are drawn. */
struct zpr_given;
void zpr_init_weights(zpr *c, struct zpr_given *given, zpr_error *error);

/* What flat buffers have of one kind. */
typedef struct zpr_part {
  zpr_group holders;       /* of the shard group */
  int place;               /* of this rank among them */
  int64_t begin, elements; /* of the flat buffers */
  int64_t shard_elements;  /* what one holder updates: all of them without ZeRO */
  bool copied;             /* a shard group before this one has copies of the same */
  int64_t state_begin;     /* of the part in the optimizer state, and in all buffers of shards */
} zpr_part;
/* What is not trained: state_begin is the place among the parameters that a rank keeps. */
zpr_part zpr_part_of(zpr *c, zpr_kind kind);
/* Elements that instances of runs lie in: of the flat buffers, and what is frozen after them. */
static inline int64_t zpr_all_elements(const zpr_stage *stage) {
  return zpr_flat_elements(stage) + stage->flat[ZPR_KIND_FROZEN];
}

/* ---- shards of units (shards.c) ---- */
/* What this rank updates: flat elements [begin, end), which stand at `stored` of the optimizer state, with ZeRO 2 of
 * the gradients, too, and with ZeRO 3 of the parameters. */
typedef struct zpr_slice {
  int64_t begin, end, stored;
} zpr_slice;
/* What this rank updates of an instance of a run; ZeRO 0: of the part that it lies in. */
/* Gradients of a shard, summed over those who have copies of it. */
void zpr_sum_copies(zpr *c, void *shard, int64_t elements);
zpr_slice zpr_slice_of(zpr *c, const zpr_run *run, int64_t i);
/* The run whose instance *i is the bucket of flat element `first`. */
const zpr_run *zpr_bucket_of(const zpr *c, int64_t first, int64_t *i);
/* ZeRO 2 and 3: zeroes the gradients that several units add to. */
void zpr_zero_shared_shards(zpr *c);
/* ZeRO 1 to 3: sums this rank's shard of a tied gradient over the stages. */
void zpr_sum_tied_shards(zpr *c, const zpr_tie *tie, const zpr_group *stages);

/* A rank's piece of a logical parameter instance: called for every maximal contiguous local range.
 * local: element offset in the flat buffers; global: element offset in the logical tensor; both `count` long. */
typedef void zpr_piece_fn(void *arg, int64_t local, int64_t global, int64_t count);
/* Pieces of instance `i` (0-based in the run) of run->params[k] on this rank, padding left out. */
void zpr_param_pieces(zpr *c, const zpr_run *run, int64_t i, int k, zpr_piece_fn *fn, void *arg);
/* Does this rank count a parameter of a run, from element `begin` of the flat buffers on, where all ranks sum what they
 * have of each (norm, lengths)? (update.c) */
bool zpr_counts(zpr *c, const zpr_run *run, const zpr_param *param, int64_t begin);
/* What a share of a parameter is: blocks of `width` elements, padding left out, the first at `first` of the logical
 * tensor and at 0 of the share, strides from one to the next. */
typedef struct zpr_share {
  int64_t blocks, width, first, stride, local_stride;
} zpr_share;
zpr_share zpr_share_of(const zpr_program *program, const zpr_param *param, int share);
zpr_share zpr_my_share(const zpr *c, const zpr_param *param); /* this rank's */
/* "h.3.attn.weight" into buf. */
const char *zpr_instance_name(char *buf, size_t size, const char *pattern, int64_t instance);
/* Random numbers of a parameter's elements are drawn by it. */
uint64_t zpr_name_hash(const char *name);

/* ---- checkpoints (checkpoint.c, safetensors.c, json_scan.c) ---- */
/* Publishes <dir>/step_%06d atomically (model.safetensors, optimizer.safetensors, manifest.json), updates <dir>/latest,
 * removes all but `keep` newest (keep 0: keeps all). Collective over all ranks. Z0811 when it cannot be written (the
 * folder is left as it was). */
void zpr_checkpoint_save(zpr *c, const char *dir, int64_t step, int64_t keep);
/* Loads the newest complete checkpoint of any layout; the step to continue with, or -1 when the folder has none. Sets
 * c->samples. Z0812 corrupt, Z0813 of another model, Z0814 of other data or another seed. Collective. */
int64_t zpr_checkpoint_load(zpr *c, const char *dir);
/* That of this step, which has a manifest. */
int64_t zpr_checkpoint_load_step(zpr *c, const char *dir, int64_t step);
/* The weights that its next step computes with, where they are others (zpr_is_behind); after zpr_update_begin.
 * Collective. */
void zpr_checkpoint_load_stale(zpr *c, const char *dir);

/* ---- algorithms of products (algorithms.c) ---- */
/* After the first step of a run: tells them, and whether they are those of the checkpoint. Collective over all
 * ranks. */
void zpr_algorithms_note(zpr *c);

/* ---- losses far above the recent ones (spike.c) ---- */
enum { ZPR_RECENT_LOSSES = 32 };
typedef struct zpr_losses {
  int64_t count; /* seen so far */
  double value[ZPR_RECENT_LOSSES];
} zpr_losses;
/* Adds the loss of a step; true, and *usual is the median of the recent ones, when it is far above them. */
bool zpr_loss_is_spike(zpr_losses *losses, double loss, double *usual);

/* ---- output (log.c) ---- */
typedef struct zpr_record {
  int64_t step;
  double loss, grad_norm, lr, step_ms, tokens_per_s, mfu;
  const zpr_tally *tally;      /* of every loss; its `right` is NAN where the batch has no label of it */
  int64_t loss_scale, skipped; /* f16: that of this step, 0 with other dtypes; steps that were skipped so far */
  int64_t device_peak_bytes;   /* of rank 0, measured (zpr_device_used_bytes); 0: not measured */
  bool spike;                  /* the loss is far above the recent ones */
  int64_t samples;             /* that the run has used, those of this step included */
  int staleness;               /* updates that the weights of its gradients are behind; -1: updates are not delayed */
} zpr_record;
/* Rank 0 writes; the other ranks' calls do nothing. Collective (it may fail with Z0841). */
void zpr_log_open(zpr *c, const char *jsonl, bool append, bool progress);
void zpr_log_step(zpr *c, const zpr_record *record, double cpu_ms, int64_t steps, double eta_s);
/* tally: of every loss; its `right` is NAN where no sample has a label of it. exact_match: NULL where there is none. */
void zpr_log_validation(zpr *c, int64_t step, double loss, const zpr_tally *tally, const double *exact_match,
                        int64_t samples);
void zpr_log_checkpoint(zpr *c, int64_t step, const char *dir);
void zpr_log_event(zpr *c, const char *json); /* one line of the JSON log: a complete object */
void zpr_log_note(zpr *c, const char *format, ...) __attribute__((format(printf, 2, 3))); /* a line on the screen */
void zpr_log_clear(zpr *c); /* removes the status line before something else is printed */
void zpr_log_close(zpr *c);

/* ---- the closing table of a run (summary.c) ---- */
typedef struct zpr_totals {
  int64_t steps; /* run by this process */
  double median_step_ms;
  int64_t sent_bytes[ZPR_AXIS_COUNT];   /* by this rank, in training steps only */
  int64_t across_bytes[ZPR_AXIS_COUNT]; /* what of them left its node */
  int64_t routed_bytes;                 /* of sorted rows, by the gates' choices */
  int64_t applied_steps;                /* those that were not skipped */
  int64_t moved_bytes[ZPR_MOVE_COUNT];  /* likewise, in applied steps: a skipped one moves less than planned */
  int64_t frozen_steps;                 /* of 1-bit Adam: with a frozen variance, */
  int64_t exchanges;                    /* and those of them that were applied: a skipped one exchanges no momentum */
  int64_t exchanged_bytes;              /* sent over the data ranks in them, by this rank */
  int64_t summed_steps;                 /* 0/1 Adam: those of them that also summed gradients */
} zpr_totals;
/* Prints the table and the "end" event. With --check-memory: false when a peak or a byte count differs from the plan's.
 * Collective. */
bool zpr_summary(zpr *c, const zpr_totals *totals);
/* The most memory that this process ever had resident; 0: the system does not say. */
int64_t zpr_peak_rss_bytes(void);

#endif
