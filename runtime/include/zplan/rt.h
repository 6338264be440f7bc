/* libzplanrt: what a generated trainer links. The trainer supplies constant tables (zpr_program) and one function that
 * runs the micro-batches of a step; the runtime does the rest: options, ranks, arena, data, loop, optimizer, log,
 * checkpoints.
 *
 * Ranks: rank = (p * data + d) * tensor + t, tensor fastest. "Collective" = all ranks of the named axis must call it,
 * in the same order. Errors of the environment end all ranks with one message (zpr_fail); nothing returns half-done.
 * What the tables and the calls of a trainer require is asserted: its generator is wrong otherwise. */
#ifndef ZPLAN_RT_H
#define ZPLAN_RT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zplan/zpk.h>

typedef enum zpr_axis { ZPR_TENSOR, ZPR_DATA, ZPR_PIPELINE, ZPR_TIE, ZPR_EXPERT, ZPR_CONTROL, ZPR_AXIS_COUNT } zpr_axis;

/* What offloading moves: between device and host, between host and disk. */
typedef enum zpr_move { ZPR_DOWN, ZPR_UP, ZPR_READ, ZPR_WRITTEN, ZPR_MOVE_COUNT } zpr_move;

/* ---- tables that the generator prints ---- */

/* Kinds that the tables name. The first two are what kernels call zpk_update.kind and zpk_initial_weight's kind. */
typedef enum zpr_optimizer { ZPR_ADAMW, ZPR_ADAM, ZPR_SGD, ZPR_LION, ZPR_LAMB, ZPR_MUON, ZPR_ADAFACTOR } zpr_optimizer;
typedef enum zpr_init { ZPR_INIT_NORMAL, ZPR_INIT_UNIFORM, ZPR_INIT_CONSTANT } zpr_init;
typedef enum zpr_rate {
  ZPR_RATE_CONSTANT,
  ZPR_RATE_LINEAR,
  ZPR_RATE_COSINE,
  ZPR_RATE_STABLE_DECAY,
  ZPR_RATE_RELATIVE
} zpr_rate;
typedef enum zpr_source_kind {
  ZPR_NO_DATA,
  ZPR_TOKENS,
  ZPR_TEXT,
  ZPR_SYNTHETIC,
  ZPR_LINES,
  ZPR_NPY,
  ZPR_DOCUMENTS,
  ZPR_MIX
} zpr_source_kind;

/* What the optimizer has for a parameter alone: of its group, or of all that are in none. */
typedef struct zpr_recipe {
  double lr_factor, weight_decay; /* lr_factor: of the learning rate */
  double sign_rate;               /* above 0: so much against the sign of the gradient; it counts in no norm */
} zpr_recipe;

/* A parameter as one segment uses it. Local elements are row-major in the local (padded) shape. */
typedef struct zpr_param {
  const char *name; /* "wte", or with {} for the layer: "h.{}.mlp.c_fc.weight" */
  int rank;
  int64_t shape[4]; /* logical */
  int split_dim;    /* -1: every tensor rank has all of it, unpadded */
  /* the split dimension is [outer][units][unit size]; share i has units i*L ..., L as `elements` says: at
   * least ceil(units/shares) */
  int64_t outer, units;
  bool spread;      /* false: `tensor` shares, i = t. true: tensor * expert shares, i = t * expert + d % expert */
  int64_t offset;   /* elements from the start of its instance in the flat buffers */
  int64_t elements; /* local, padding included */
  zpr_init init;
  double init_a, init_b;
  zpr_recipe recipe;
  bool zero_first;   /* the gradient is only ever added to: zero it at the start of a step */
  bool grad_partial; /* every tensor rank has a part of the gradient, that of its positions: summed once a step */
  bool orthogonal;   /* a matrix that Muon updates; others take AdamW beside it */
  bool adapter;      /* where weights are given without it, it is drawn */
} zpr_param;

/* `count` consecutive instances of a segment that live on a stage, side by side in the flat buffers. Its parameters are
 * all spread over expert groups, or none of them is, and all of them are trained, or none of them is. zero >= 1,
 * moves_gradients, zpr_reduce_grads: an instance is a bucket, what moves over the ranks that hold the same at once; a
 * parameter declared outside repeats has a run of its own. With zero >= 1 its stride divides by those ranks. */
typedef struct zpr_run {
  const char *segment;
  bool frozen;          /* they are not trained: no gradients, no state */
  int64_t first, count; /* first instance: names h.{first} ... */
  int64_t base, stride; /* elements in the flat buffers */
  int n_params;
  const zpr_param *params;
} zpr_run;

/* A parameter that several stages hold (tied weights): gradients are summed over the stages before the update. */
typedef struct zpr_tie {
  const char *name;
  int n_stages;
  const int *stages;     /* ascending; the first is the owner for norms and checkpoints */
  const int64_t *offset; /* per entry of stages: element offset in that stage's flat buffers */
  int64_t elements;
} zpr_tie;

/* The part of a class of state that does not live on the device: the last `elements` of those that the rank updates. Of
 * a class that it has whole, while data ranks own pieces, as many of every owner's. */
typedef struct zpr_away {
  int64_t elements; /* 0: all of it is on the device */
  bool on_disk;
  int64_t host;   /* byte of the host arena where it stands; of a class on disks, where its windows stand */
  int64_t file;   /* byte of the file */
  int64_t window; /* of parameters and gradients on disks: elements of each of ZPR_AWAY_WINDOWS windows */
} zpr_away;
enum { ZPR_AWAY_WINDOWS = 4 };

/* Byte offsets in the arena of every rank of a stage. */
typedef struct zpr_stage {
  int64_t arena_bytes; /* the arena is exactly this large */
  /* host arena and file on disk of what lives off the device, exactly as large; 0: none */
  int64_t host_bytes, file_bytes;
  /* Flat buffers of flat_elements, of the program's dtype; with zero >= 2 gradients, with 3 parameters of
   * shard_elements. */
  int64_t params, grads;
  int64_t moment1, moment2; /* of shard_elements, f32 with 16-bit dtypes; -1 when the optimizer has none */
  int64_t average;          /* of the weights, as moments; only where program->ema > 0 */
  int64_t statistics,
      n_statistics; /* Adafactor's, of the type of moments: so many, of whole parameters, on every rank */
  /* The flat buffers end with what is spread over expert groups. Either part is padded so that it divides over those
   * who hold the same when zero >= 1: all data ranks, or data / expert of them. Moments have shards of both parts. */
  int64_t flat_elements, shard_elements;          /* both parts; this rank's shards of them, all of them without ZeRO */
  int64_t spread_elements, spread_shard_elements; /* of them the second part; 0 when expert == 1 */
  /* Behind them `params` has what is not trained, numbered from flat_elements on; with zero == 3 a rank has its shards,
   * otherwise all of it. */
  int64_t frozen_elements, frozen_shard_elements;
  int64_t master;   /* 16-bit dtypes: f32 weights of shard_elements, which the update changes and weights are rounded
                       from; else -1 */
  int64_t products; /* 16-bit dtypes on CPU ranks: ZPR_MAX_WORKERS tiles of ZPR_PRODUCT_BYTES; GPUs: the
                       workspace of products; else -1 */
  /* 1-bit Adam: what worker and server side still owe, f32, of elements whose state is on the device: of flat_elements,
   * and of the flat_elements / data that a rank averages; -1: of none. Of the others on the host, and a place there
   * for records. */
  int64_t error, server_error, host_error, host_server_error, host_records;
  int64_t local_sum, anchor; /* 0/1 Adam: of moments, since the last exchange; weights then, -1: the master copy */
  int64_t fresh,
      momentum_before; /* 1-bit LAMB: of moments, variance as it would be, and momentum before the step (ZeRO 1: -1) */
  int64_t scratch,
      scratch_bytes;    /* free between steps: where partial gradients travel together, where Muon and Adafactor work */
  zpr_away params_away; /* of the elements of `params` */
  int64_t param_ring, grad_ring;   /* where either leave: byte of the arena with two buffers of bucket_elements */
  zpr_away state_away, grads_away; /* of shard_elements of optimizer state, weights included; of the gradients */
  /* The update on the host works on so many elements at once; gradients come in and rounded weights go out through two
   * windows each, bytes of the host arena; state on disks passes through state_windows, which state_away.host has. */
  int64_t window_elements, state_windows, grads_in, weights_out;
  int64_t delayed; /* where program->delayed: of the host arena, in place of these windows room for all of state_away's
                      gradients, and then for its rounded weights */
  int64_t bucket_elements; /* of a buffer of these rings */
  bool saved_on_disk;      /* saved values that leave the device go to the file, through four buffers of the host: */
  int64_t saved_staging, saved_staging_bytes; /* byte of the host arena where they stand, bytes of each */
  int64_t inputs; /* int32 [inputs][micro-batches][microbatch][S]: tokens, then labels, of the whole step; behind them
                   * [micro-batches][microbatch]: lengths */
  /* GPUs: byte of the arena where the next message of every channel that comes from another stage arrives, before the
   * chunk begins that reads it, and bytes from one to the next. 0: messages are received where they are needed. */
  int64_t arrivals, arrival_stride;
  bool lacks_numbers; /* of the inputs: it reads none, and they have no place at `inputs` */
  int n_runs;
  const zpr_run *runs;
  /* Predicted, for the closing table of a run. */
  int64_t weights_bytes, gradient_bytes, optimizer_bytes, saved_bytes, buffer_bytes;
} zpr_stage;

/* Span corruption (runtime/data_spans.c). */
typedef struct zpr_span_rule {
  double rate;      /* share of a sample's tokens that are cut out; 0: there is none */
  double mean;      /* length of a span that is cut out */
  int64_t sentinel; /* the token in place of the first span; the next ones count down */
  int64_t eos, start;
  uint64_t seed;
} zpr_span_rule;

enum { ZPR_MOST_PARTS = 16 };
typedef struct zpr_source {
  zpr_source_kind kind; /* ZPR_TOKENS: path is a glob; ZPR_TEXT: bytes; ZPR_LINES: bytes, a line a sample;
                           ZPR_DOCUMENTS: tokens between those that are `end`; ZPR_NPY: a folder with NAME.npy of every
                           input; ZPR_MIX: `parts` */
  const char *path;
  int64_t end;
  uint64_t seed;
  bool shuffled;
  double mask_rate; /* share of a sample's tokens that are masked, and are its labels; 0: the next tokens are */
  int64_t mask_token;
  uint64_t mask_seed;
  const char
      *mask_words; /* the vocabulary that says which tokens continue a word; NULL: tokens are masked by themselves */
  zpr_span_rule spans;
  int n_parts; /* sources that are mixed, at most ZPR_MOST_PARTS, each with its weight; none of them is a mixture,
                  masked or cut */
  const struct zpr_source *parts;
  const double *weights;
} zpr_source;

/* An input of a name, of one sample: shape[rank], so many elements. */
typedef struct zpr_named {
  const char *name;
  int rank;
  int64_t shape[2], elements;
  bool numbers;   /* of the program's dtype; else int32 from `least` to before `limit` */
  bool labels;    /* those of a loss; -1 where there is none */
  bool documents; /* of positions, see zpk_attention_args */
  bool recoded;   /* labels: the file has `none` instead of -1 */
  int64_t none;
  int64_t least, limit;
} zpr_named;
/* A cross-entropy, or a squared error, of the model: the loss that is trained is their sum, each times its weight. */
typedef struct zpr_loss {
  const char *name;
  double weight;
  int labels, lengths; /* the named inputs with its labels, and with how many classes a sample has; -1: none is named */
  int64_t rows;        /* a squared error: of a sample, all of which count; else 0 */
} zpr_loss;
enum { ZPR_MOST_LOSSES = 8 };
/* This rank's sums over the labels of one loss, times its token weight; right: of those that have the largest logit. */
typedef struct zpr_tally {
  double loss, right;
} zpr_tally;

/* Micro-batches of numbers begin at multiples of this in the arena. */
enum { ZPR_INPUT_ALIGN = 256 };

/* ---- trainers built with --profile: what their steps are, and what the plan says of them ---- */

typedef enum zpr_step_kind {
  ZPR_STEP_KERNEL,
  ZPR_STEP_PRODUCT,
  ZPR_STEP_ATTENTION,
  ZPR_STEP_MESSAGE,
  ZPR_STEP_COPY,
  ZPR_STEP_UPDATE,
  ZPR_STEP_OTHER,
  ZPR_STEP_KINDS
} zpr_step_kind;

/* A step of a procedure: "h forward", "matmul attn.c_attn.matmul", "nn.dz:9". */
typedef struct zpr_profile_step {
  zpr_step_kind kind;
  const char *procedure, *name, *place;
} zpr_profile_step;

/* What a rank does beside the steps of its procedures: identifier, kind, name. From ZPR_AT_REDUCE on they end a
 * training step, and what they call counts as theirs. */
#define ZPR_FIXED_STEPS(X)                                                                                             \
  X(ZPR_AT_BETWEEN, ZPR_STEP_OTHER, "between the steps")                                                               \
  X(ZPR_AT_LOAD, ZPR_STEP_COPY, "tokens of the batch")                                                                 \
  X(ZPR_AT_ZERO, ZPR_STEP_KERNEL, "gradients set to zero")                                                             \
  X(ZPR_AT_RECEIVE, ZPR_STEP_MESSAGE, "messages from other stages, and the wait for them")                             \
  X(ZPR_AT_SEND, ZPR_STEP_MESSAGE, "messages to other stages")                                                         \
  X(ZPR_AT_DATA, ZPR_STEP_MESSAGE, "parameters and gradients of units over the data ranks")                            \
  X(ZPR_AT_MOVE, ZPR_STEP_COPY, "copies to and from host and disks")                                                   \
  X(ZPR_AT_REDUCE, ZPR_STEP_MESSAGE, "sums of gradients at the end")                                                   \
  X(ZPR_AT_MEET, ZPR_STEP_MESSAGE, "agreement on loss and norm, and the wait for other ranks")                         \
  X(ZPR_AT_UPDATE, ZPR_STEP_UPDATE, "norm and optimizer")                                                              \
  X(ZPR_AT_GATHER, ZPR_STEP_MESSAGE, "updated parameters to the data ranks")
#define ZPR_FIXED_STEP(id, kind, name) id,
typedef enum zpr_fixed_step { ZPR_FIXED_STEPS(ZPR_FIXED_STEP) ZPR_FIXED_COUNT } zpr_fixed_step;
#undef ZPR_FIXED_STEP

/* Predicted, for every rank of a stage. */
typedef struct zpr_profile_stage {
  const double *step_ns;           /* of one call of every step of the table; 0 where the stage does not run it */
  double fixed_s[ZPR_FIXED_COUNT]; /* of one training step; negative: the plan says nothing of it */
} zpr_profile_stage;

typedef struct zpr_profile_table {
  int n_steps;
  const zpr_profile_step *steps;
  const zpr_profile_stage *stages; /* [pipeline] */
} zpr_profile_table;

typedef struct zpr zpr;

/* Positions first .. first + n - 1 of a sample. */
typedef struct zpr_positions {
  int64_t first, n;
} zpr_positions;

/* A loss scale does not grow beyond this. */
#define ZPR_MOST_LOSS_SCALE ((int64_t)1 << 30)

typedef struct zpr_phase {
  int64_t begin, every;
} zpr_phase;

/* So many nodes side by side with so many ranks each. */
typedef struct zpr_nodes {
  int nodes, ranks;
} zpr_nodes;

typedef struct zpr_program {
  const char *name, *plan_hash;
  const char *model_hash; /* of its operations, whatever the plan; NULL: not known */
  zpk_dtype dtype;
  int tensor, pipeline, data, zero;
  bool moves_gradients;      /* in buckets to the host, also without ZeRO 2 and 3 */
  bool moves_beside;         /* GPUs: micro_batches moves buckets between zpr_beside and zpr_beside_end */
  int expert;                /* neighbouring data ranks that share the experts of a tensor rank; 0, 1: none do */
  bool pipeline_before_data; /* ranks are numbered tensor, pipeline, data, fastest first; otherwise tensor, data,
                                pipeline */
  /* Where the plan has the ranks, which fill nodes in order: which messages leave a node. n_nodes: rows; 0: all are in
   * one. Hosts may have others, nothing but speed depends on them. */
  int n_nodes;
  const zpr_nodes *nodes;
  /* The pipeline runs `chunks` parts of the model on every stage (0: one), numbered along the stages, again and again
   * from the first one; folded: two parts, the second back from the last stage to the first. */
  int chunks;
  bool folded;
  int64_t messages; /* buffers of a chunk in each direction (0: one); micro-batch mb takes buffer mb % messages */
  int64_t batch, microbatch, microbatches; /* microbatches a replica: batch / (data * microbatch) */
  int64_t sequence, vocabulary;
  int n_inputs;           /* 1: tokens; 2: tokens, labels; 0: none of these, see named */
  bool lengths;           /* one input more: how many positions of every sample are there */
  int n_named;            /* all inputs by their names, where they are others, or data has them so; else 0 */
  const zpr_named *named; /* numbers first */
  int n_losses;           /* 0: one, called "loss", with weight 1 */
  const zpr_loss *losses;
  const zpr_stage *stages; /* [pipeline] */
  int n_ties;
  const zpr_tie *ties;
  /* Runs all micro-batches of a training step in the plan's order: afterwards the flat gradient buffer holds this
   * replica's gradient of (sum of token losses * token_weight * weight * loss_scale), or where it has called
   * zpr_scatter_grads with zero >= 2, or zpr_reduce_grads, that of all replicas. */
  void (*micro_batches)(zpr *c);
  /* What is sent once a step, before the norm and after the update: calls of zpr_sum_flat .. zpr_gather_updated. NULL:
   * nothing is. */
  void (*sum_gradients)(zpr *c);
  void (*share_weights)(zpr *c);
  /* Forward only for all micro-batches of the loaded inputs (validation). */
  void (*forwards)(zpr *c);
  /* Forward for these positions of the only sample alone; those before them were done by earlier calls, and what they
   * left is still in the arena: the keys and values of attention, and what depends on no position of the text. The
   * input that is the text, and how many positions it has. NULL: it cannot be so. */
  void (*decode)(zpr *c, zpr_positions p);
  int text_input;
  int64_t text_positions;
  /* Training settings. */
  zpr_optimizer optimizer;
  double lr, beta1, beta2, eps, momentum, clip, min_lr;
  /* Adafactor: beta2 of step t is 1 - t^-decay_rate; what updates and parameters are scaled by */
  double decay_rate, clip_threshold, least_scale;
  bool scale_parameter;
  /* 1-bit LAMB: what is left of an average of ratios after a step; bounds of the factor, and what share of itself it
   * moves by in a step at most */
  double coeff_beta, factor_min, factor_max, factor_threshold;
  double ema;               /* what a step leaves of the average of the weights; 0: there is none */
  bool delayed;             /* after delay_after steps the update of a step runs beside the next one, whose gradients */
  int64_t delay_after;      /* are of the weights before it. All optimizer state is on the host */
  int64_t loss_scale;       /* f16: to start with, a power of two up to ZPR_MOST_LOSS_SCALE; 0: 1 */
  int64_t scale_window;     /* f16: steps without overflow after which it doubles; 0: it stays as it is */
  int64_t freeze_step;      /* > 0: 1-bit Adam, whose variance is frozen after so many applied steps of plain Adam */
  double freeze_threshold;  /* > 0: 1-bit Adam, which freezes it when its norm changes by less than 1 less this */
  int n_variance, n_phases; /* 0/1 Adam: applied steps, from 0 on, that sum gradients and update the variance; and */
  const int64_t *variance_at; /* from which on one of how many exchanges signs */
  const zpr_phase *phases;
  zpr_rate schedule; /* of the learning rate */
  int64_t warmup, decay_steps, steps;
  uint64_t seed;
  bool starts_from_weights; /* those that weights.json beside the trainer maps, unless --init names another map */
  zpr_source train, validate;
  int64_t validate_every, validate_batches;
  const char *checkpoint_dir;
  int64_t checkpoint_every, checkpoint_keep;
  const char *log_path;
  int64_t log_every;
  /* Predictions of the plan. */
  double predicted_step_s, model_flop_per_step, peak_flop_per_s; /* peak of all ranks together; 0 unknown */
  int64_t
      predicted_bytes[ZPR_AXIS_COUNT]; /* communicated by all ranks together in one step; CONTROL is not predicted */
  int64_t predicted_across[ZPR_AXIS_COUNT];         /* what of them leaves a node; below 0: not known */
  int64_t predicted_moves[ZPR_MOVE_COUNT];          /* bytes that offloading moves, all ranks together in one step */
  int64_t predicted_exchange_moves[ZPR_MOVE_COUNT]; /* 1-bit Adam: more in the steps with a frozen variance, or less */
  int64_t predicted_warmup_data_bytes;              /* 1-bit Adam: of ZPR_DATA in the steps of plain Adam */
  int64_t predicted_warmup_data_across;
  /* Trainers for GPUs only (linked with libzplanrt_cuda). The image is a cubin, or for `--arch host` the shared object
   * with the same kernels, byte for byte as the compiler wrote it: its ELF header says which of the two it is. */
  const void *device_image;
  int64_t device_image_bytes;
  /* Columns of the largest attention head, when the kernels have attention on tensor cores and the plan its memory;
   * sm_75, and sm_70 but for f16, use the other kernels. 0: nobody does. */
  int tensor_core_head;
  int64_t products_bytes;           /* of zpr_stage.products */
  const zpr_profile_table *profile; /* NULL: built without --profile */
} zpr_program;

/* ---- context: fields that generated code reads ---- */
struct zpr {
  const zpr_program *program;
  const zpr_stage *stage; /* this rank's */
  int rank, ranks, t, d, p;
  char *arena;
  int64_t step;         /* of the learning rate and the random numbers, from 0 */
  int64_t samples;      /* of the data used so far: the number of the next one */
  int64_t frozen_steps; /* those of them that left the variance as it was: 1-bit Adam */
  bool training;        /* false during validation */
  /* For every loss 1 / (labels of the batch that are there), 0 where none is; 1 during validation, whose tallies are
   * sums (runtime/denominators.h). */
  double token_weight[ZPR_MOST_LOSSES];
  double loss; /* this rank's share of the step's loss: the losses of the tally times their weights */
  zpr_tally tally[ZPR_MOST_LOSSES];
  /* f16: what gradients are multiplied by, so that small ones do not vanish; a power of two, 1 with other dtypes. */
  int64_t loss_scale;
  int64_t scale_steps; /* applied with this scale and no overflow between them: doubled after program->scale_window */
  int64_t
      skipped_steps; /* not applied, because loss or norm was not finite: `step` counts them, the optimizer does not */
  int64_t first_sample;    /* index, inside the batch, of this replica's first sample */
  struct zpr_state *state; /* private to the runtime */
};

/* Exit statuses of a trainer; the command of `zplan run` ends with the same. Interrupted by SIGINT or SIGTERM: 130,
 * 143. */
enum {
  ZPR_EXIT_REFUSED = 1, /* data, checkpoint, log, number of ranks: nothing that another plan would help */
  ZPR_EXIT_USAGE = 2,   /* options */
  ZPR_EXIT_FAILED =
      5, /* loss or norm stayed NaN or infinite, communication broke, memory or traffic was not as planned */
  ZPR_EXIT_MEMORY = 8, /* the system refused memory */
};

/* Runs the trainer; the exit status of the process. Options: --steps N, --resume, --init MAP, --log F, --data PATH,
 * --validate PATH,
 * --checkpoint DIR, --offload DIR, --threads N, --products LIBRARY, --check-memory, --profile, --profile-steps A..B,
 * --no-progress, --help. */
int zpr_main(int argc, char **argv, const zpr_program *program);

/* ---- what the step functions of a generated trainer call ---- */

/* Address of byte `offset` of the arena; on a GPU it is the device's, so only kernels and zpr_ functions may read it.
 */
static inline void *zpr_at(zpr *c, int64_t offset) { return c->arena + offset; }
/* Ids of model input i (0 tokens, 1 labels) of micro-batch mb: int32 [microbatch][S]; behind them, where the program
 * has lengths, input n_inputs: int32 [microbatch]. */
const int32_t *zpr_input(zpr *c, int input, int64_t mb);
/* Input i where it is numbers, of the program's dtype. */
const void *zpr_numbers(zpr *c, int input, int64_t mb);

/* Products of 16-bit operands that are widened are made of tiles of this size, in f32: a worker's share of
 * zpr_stage.products holds one of either operand and one of the result. */
enum { ZPR_PRODUCT_M = 128, ZPR_PRODUCT_N = 128, ZPR_PRODUCT_K = 256 };
#define ZPR_PRODUCT_BYTES                                                                                              \
  (((int64_t)ZPR_PRODUCT_M * ZPR_PRODUCT_K + ZPR_PRODUCT_K * ZPR_PRODUCT_N + ZPR_PRODUCT_M * ZPR_PRODUCT_N) * 4)
/* y[m,n] (+)= op(a) op(b): a is [m,k] (or [k,m] when trans_a), b is [k,n] (or [n,k] when trans_b). With 16 bits nothing
 * is added. */
void zpr_gemm(zpr *c, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda,
              const void *b, int64_t ldb, bool accumulate, void *y, int64_t ldy);
/* The gradient of a parameter: dw[m,n] (+)= a' b, where a is [k,m] and b is [k,n]. Gradients of parameters are what
 * operands are computed in, f32 for 16 bits, wherever a function of this header makes them or adds to them: of many
 * micro-batches, replicas, stages and experts a sum in 16 bits would stand still. */
void zpr_wgrad(zpr *c, int64_t m, int64_t n, int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb,
               bool accumulate, void *dw);

/* Trainers for GPUs only: a product with row operations that it does to its result before it is written, as cuBLASLt
 * has them (its epilogues). y[m,n] = op(a) op(b), then one of bias, residual           y += bias of every row, y +=
 * residual[m,n]; either or both bias, gelu_input         y += bias goes to gelu_input, and y = gelu of it, in the
 * approximation by tanh gelu_of, sum_of Y        y *= gelu'(gelu_of), and sum = the sum of y's rows sum_of A, B sum[m]
 * = the sum of op(a) over k, sum[n] = that of op(b); y is a gradient of a parameter, the plain product, added where
 * `accumulate`. `sum` is one, too: of a bias. Sums are f32 and rounded once; sum_of Y is rounded as y is before it is
 * added to, or written. */
typedef enum zpr_sum_of { ZPR_SUM_NOTHING, ZPR_SUM_A, ZPR_SUM_B, ZPR_SUM_Y } zpr_sum_of;
typedef struct zpr_matmul_call {
  bool trans_a, trans_b, accumulate;
  int64_t m, n, k;
  const void *a;
  int64_t lda;
  const void *b;
  int64_t ldb;
  void *y;
  int64_t ldy;
  const void *bias, *residual;
  int64_t residual_ld;
  void *gelu_input;
  const void *gelu_of;
  int64_t gelu_ld; /* of either; a multiple of 8 */
  zpr_sum_of sum_of;
  void *sum;
  bool accumulate_sum; /* sum += instead of = */
  void *workspace;     /* as long as sum, with any sum */
} zpr_matmul_call;
void zpr_matmul(zpr *c, const zpr_matmul_call *call);

/* One product for every expert of every sample: y[samples, experts, slots, n] = x[.., k] w[expert], which is [k, n], or
 * [n, k] with trans. */
void zpr_batched_gemm(zpr *c, bool trans, int64_t samples, int64_t experts, int64_t slots, int64_t n, int64_t k,
                      const void *x, int64_t x_ld, const void *w, void *y, int64_t y_ld);
/* dw[expert] (+)= the sum over samples of a' b: a is [samples, experts, slots, m], b [.., n], dw[expert] is [m, n]. */
void zpr_batched_wgrad(zpr *c, int64_t samples, int64_t experts, int64_t slots, int64_t m, int64_t n, const void *a,
                       int64_t lda, const void *b, int64_t ldb, bool accumulate, void *dw);

/* A kernel of the device image. The runtime looks the function up at the first launch. */
typedef struct zpr_device_kernel {
  const char *name; /* as in the kernels' text, "row_h_ln_1" */
  void *function;   /* NULL until then */
  int tiles;        /* of columns that a row is cut into; 0: a row is not cut */
} zpr_device_kernel;

/* One generated row kernel over `rows` rows, spread over the threads of this rank, or over a GPU. */
typedef struct zpr_rows_call {
  zpk_row_kernel *kernel;    /* on the host */
  zpr_device_kernel *device; /* on a GPU */
  int64_t first, rows;       /* number of the first one, 0 where there are sums and on a GPU; how many */
  const void *const *in;
  const int64_t *in_ld;
  void *const *out;
  const int64_t *out_ld;
  int n_in, n_out; /* for zpr_slot_rows and on a GPU: at most ZPD_OPERANDS there */
  const int64_t
      *in_step; /* for zpr_slot_rows; elements from row to row: in_ld, or 0 where all rows read the same one */
  int n_sums;   /* column sums: added over chunks into sum[i] (of sum_cols[i] elements) */
  const int64_t *sum_cols;
  void *const *sum;
  const bool *accumulate; /* per sum: add to what is there, or overwrite */
  void *workspace; /* ZPK_CHUNKS, on a GPU zpd_row_chunks(rows), * (total of sum_cols) reals; NULL without sums */
  int64_t instance, first_sample, first_column, logical_columns; /* of the random stream */
} zpr_rows_call;
void zpr_rows(zpr *c, const zpr_rows_call *call);
/* Runs a row kernel over slots that an expert group has spread, [samples, experts, n, slots] rows: the random stream of
 * every sample is that of the member who has it. first_column: of the rank's first expert. */
void zpr_slot_rows(zpr *c, const zpr_rows_call *call, int64_t samples, int64_t experts, int64_t slots);

void zpr_embedding(zpr *c, const int32_t *ids, const void *table, int64_t first_row, int64_t n_rows, int64_t rows,
                   int64_t cols, void *out);
void zpr_embedding_grad(zpr *c, const int32_t *ids, const void *dy, int64_t first_row, int64_t n_rows, int64_t rows,
                        int64_t cols, void *grad);
void zpr_position_grad(zpr *c, const void *dy, int64_t ld, int64_t samples, int64_t S, int64_t cols, bool accumulate,
                       void *grad);
/* Stretches of positions: what of them `to` has no place for is left out. */
void zpr_move_positions(zpr *c, const zpk_positions *positions);
void zpr_mean_positions(zpr *c, const void *x, int64_t samples, int64_t S, int64_t cols, double scale, void *y);
void zpr_spread_positions(zpr *c, const void *dy, int64_t samples, int64_t S, int64_t cols, double scale, void *dx);
/* Positions by number; windows over them; one axis made one number. */
void zpr_gather(zpr *c, const zpk_gather_args *args);
void zpr_gather_grad(zpr *c, const zpk_gather_args *args);
void zpr_unfold(zpr *c, const zpk_unfold_args *args);
void zpr_unfold_grad(zpr *c, const zpk_unfold_args *args);
void zpr_reduce(zpr *c, const zpk_reduce_args *args);
void zpr_reduce_grad(zpr *c, const zpk_reduce_args *args);
/* y[b] is x[b] turned over, of x[samples, rows, cols]. */
void zpr_transpose(zpr *c, const void *x, int64_t samples, int64_t rows, int64_t cols, void *y);
/* args->workspace holds ZPR_MAX_WORKERS shares of zpk_attention_workspace bytes, bias_lines as many lines; kernels run
 * one BLAS thread each. On a GPU with attention on tensor cores it is zpd_attention.facts of backward; else it may be
 * NULL. args->lengths lies where the tensors do. */
void zpr_attention(zpr *c, const zpk_attention_args *args);
void zpr_attention_grad(zpr *c, const zpk_attention_args *args);
/* The number of workspace shares that a plan reserves, a constant: never more threads than this take part in a task. */
#define ZPR_MAX_WORKERS 8
/* Cross-entropy over `classes` classes. loss: which one of the program's; lengths: as for zpk_ce_stats, or NULL. */
void zpr_ce_stats(zpr *c, int loss, const void *logits, int64_t V, int64_t first_col, int64_t classes,
                  const int32_t *labels, const int32_t *lengths, int64_t rows, void *stat);
void zpr_ce_loss(zpr *c, int loss, const void *stat, int ranks, int64_t rows, int64_t classes, const int32_t *labels,
                 void *lse); /* adds to c->loss and to the loss's tally */
void zpr_ce_grad(zpr *c, int loss, const void *logits, int64_t V, int64_t first_col, int64_t classes,
                 const int32_t *labels, const int32_t *lengths, const void *lse, zpk_targets targets, int64_t rows,
                 void *dlogits);
/* Squared errors of rows beside a target of numbers, as statistics for zpr_ce_loss, which then takes no labels;
 * `share`: what of the gradient is this rank's. */
void zpr_squared_error(zpr *c, int loss, const void *x, const void *target, int64_t rows, int64_t cols, void *stat);
void zpr_squared_error_grad(zpr *c, int loss, const void *x, const void *target, int64_t rows, int64_t cols,
                            double share, void *dx);
/* Mixture of experts; r->B samples. */
void zpr_top_k_gate(zpr *c, const zpk_routing *r, const void *score, const void *bias, void *weight, int32_t *slot);
void zpr_load_grad(zpr *c, const zpk_routing *r, const int32_t *slot, bool accumulate, void *grad);
void zpr_top_k_gate_grad(zpr *c, const zpk_routing *r, const void *score, const int32_t *slot, const void *d_weight,
                         void *d_score);
void zpr_dispatch(zpr *c, const zpk_routing *r, const void *x, const int32_t *slot, void *out);
void zpr_combine(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot, void *out);
void zpr_combine_grad(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot,
                      const void *d_out, void *dy, void *d_weight);
/* ---- incremental decoding, of trainers with zpr_program.decode: one sample ---- */

/* Attention of those queries alone, whose log-sum-exps stay unwritten but where p.first is 0. Keys and values of
 * positions before them are where earlier calls have left them. */
void zpr_attention_stretch(zpr *c, const zpk_attention_args *args, zpr_positions p);
/* What routes those tokens alone; a gate has all positions up to them for a sample of its own. Slots of other tokens
 * stay as they are. */
void zpr_dispatch_stretch(zpr *c, const zpk_routing *r, const void *x, const int32_t *slot, void *out, zpr_positions p);
void zpr_combine_stretch(zpr *c, const zpk_routing *r, const void *y, const void *weight, const int32_t *slot,
                         void *out, zpr_positions p);
/* Some of a rank's [experts, slots] rows, of which row 0 has the number `first`: those whose numbers are slot[0 .. n -
 * 1], where they are here; negative ones are none's. Tokens take an expert's slots in order, so that those of a stretch
 * lie side by side. */
typedef struct zpr_chosen {
  const int32_t *slot;
  int64_t n, first, experts, slots;
} zpr_chosen;
void zpr_chosen_rows(zpr *c, const zpr_rows_call *call, zpr_chosen chosen);
void zpr_chosen_gemm(zpr *c, bool trans, int64_t n, int64_t k, const void *x, int64_t x_ld, const void *w, void *y,
                     int64_t y_ld, zpr_chosen chosen);
/* Collective over the tensor ranks, which have parts of all experts: sums the chosen rows, of cols elements. */
void zpr_chosen_all_reduce(zpr *c, void *x, int64_t cols, zpr_chosen chosen);
/* The logits of the last position, which zpr_ce_stats would have seen. */
void zpr_show_logits(zpr *c, int loss, const void *logits, int64_t V, int64_t classes);

/* Saved values of a unit that leave the device: where the unit works, and its slot, whose first bytes are on the
 * device. */
typedef struct zpr_saved {
  void *at, *here;
  int64_t here_bytes;
  int64_t away, away_bytes; /* byte of the host arena, or of the file */
} zpr_saved;
/* Start after the work that the device has been given. put: from where the unit worked to its slot; get: back. At most
 * two are under way. */
void zpr_saved_put(zpr *c, zpr_saved saved);
void zpr_saved_get(zpr *c, zpr_saved saved);
/* On disks only: starts to read what the next but one zpr_saved_get asks for (before the first one: the first two). */
void zpr_saved_read(zpr *c, zpr_saved saved);
/* Work that the device is given from now on finds all of them done but the last `under_way`. */
void zpr_saved_wait(zpr *c, int under_way);
void zpr_copy(zpr *c, void *dst, const void *src, int64_t bytes);
void zpr_zero(zpr *c, void *dst, int64_t bytes);

/* Collective over the axis. Elements of the program's dtype; 16-bit ones are added in f32 and rounded once.
 * Reduce-scatter then all-gather; every element is summed in rank order, so the bits are the same on every rank and do
 * not depend on where in a buffer the element lies. All ranks together send 2(n-1) * count elements, as a ring does
 * (all-gather: (n-1) * n * count). */
void zpr_all_reduce(zpr *c, zpr_axis axis, void *data, int64_t count);
/* out[i * count ..] = rank i's `in`; in may be its own place in out. */
void zpr_all_gather(zpr *c, zpr_axis axis, const void *in, int64_t count, void *out);
/* Collective over the n tensor ranks, between a rank's share of every sample's positions, [samples, elements], and all
 * of them, [samples, n, elements]; `elements` are those of one share of one sample. The gather sends as n ranks'
 * all-gather of samples * elements each. The reduce-scatter adds what the ranks have for my share, in rank order on the
 * host, and leaves `in` as it is; all ranks together send (n-1) * n * samples * elements. */
void zpr_all_gather_sequence(zpr *c, const void *in, int64_t samples, int64_t elements, void *out);
void zpr_reduce_scatter_sequence(zpr *c, const void *in, int64_t samples, int64_t elements, void *out);
/* Collective over an expert group, n ranks, of which each has `experts`: from the slots of all experts for this rank's
 * samples, in[samples, n, experts, elements], to those of this rank's experts for the samples of all members,
 * out[samples, experts, n, elements]; `elements` are the slots of one expert for one sample. And back. Each rank sends
 * all but 1/n. */
void zpr_spread_slots(zpr *c, const void *in, int64_t samples, int64_t experts, int64_t elements, void *out);
void zpr_return_slots(zpr *c, const void *in, int64_t samples, int64_t experts, int64_t elements, void *out);
/* Collective over the data ranks that hold the same. The bucket that begins at flat element `first` (zpr_run), from the
 * shards of these ranks to all of it at `to` (zero == 3). */
void zpr_gather_params(zpr *c, int64_t first, void *to);
/* Parameters on disks: starts to read what this rank has of the bucket, which zpr_fetch_params will ask for. Not
 * collective. */
void zpr_read_params(zpr *c, int64_t first);
/* Parameters that are off the device (params_away): starts to bring what this rank has of the bucket to its place at
 * `to`, for which zpr_gather_params then does the rest, also with zero == 0. Not collective. */
void zpr_fetch_params(zpr *c, int64_t first, void *to);
/* Work that the device is given from now on finds all that was fetched. */
void zpr_await_params(zpr *c);
/* zero >= 2: sums the bucket's gradients `from` over these ranks; this rank's shard of the sum replaces the one that it
 * has, or is added to it. moves_gradients: the whole bucket does so, and ranks are summed once a step, later.
 * Overwrites `from`. Padding counts as zero. */
void zpr_scatter_grads(zpr *c, int64_t first, void *from, bool add);
/* Collective over the data ranks that hold the same, zero 0 or 1, once a step: the gradients of the bucket that begins
 * at flat element `first` are complete. Sums them in place; with zero == 1 every rank the shard that it owns, and the
 * rest is undefined. Padding counts as zero. */
void zpr_reduce_grads(zpr *c, int64_t first);
/* Once a step, behind the micro-batches, in this order. Over the data ranks that hold the same, zero 0 or 1: the flat
 * gradients all at once, but not when 1-bit Adam exchanges momentum instead; or bucket by bucket, as zpr_reduce_grads,
 * also of what is off the device. Over the stages of every tie. Over the tensor ranks, what is partial there. */
void zpr_sum_flat(zpr *c);
void zpr_sum_buckets(zpr *c);
void zpr_sum_ties(zpr *c);
void zpr_sum_partial(zpr *c);
/* After the update, zero 1 or 2: parameters from their owners to all. */
void zpr_gather_updated(zpr *c);
/* Where gradients leave the device: the buffer of the ring for the next unit's, of stage->bucket_elements each. What is
 * computed from now on waits until it is free. */
void *zpr_grad_buffer(zpr *c, void *ring);
/* GPUs: buckets move beside the units, in a stream of their own. A ring in the arena has two buffers, 0 and 1,
 * that neighbouring units use in turn. What is called between zpr_beside and zpr_beside_end (gathers, scatters,
 * reductions) runs when the units have left the buffer; a unit that uses it comes after zpr_ring_wait and before
 * zpr_ring_done. For zpr_reduce_grads there is no buffer to wait for: gradients are reduced where they stand, after
 * zpr_ring_done of their unit. */
typedef enum zpr_ring { ZPR_PARAM_RING, ZPR_GRAD_RING } zpr_ring;
void zpr_beside(zpr *c, zpr_ring ring, int64_t buffer);
void zpr_beside_end(zpr *c, zpr_ring ring, int64_t buffer);
void zpr_ring_wait(zpr *c, zpr_ring ring, int64_t buffer);
void zpr_ring_done(zpr *c, zpr_ring ring, int64_t buffer);
/* Messages along the pipeline, same t and d: from this rank's `chunk` to the next part of the model (up) or the one
 * before. A send returns at once; its buffer may be written again after zpr_send_wait of the same chunk, direction and
 * mb modulo program->messages. Receives wait. Where the next part is on the same stage nothing is sent: the receiver
 * copies. */
void zpr_send(zpr *c, int chunk, bool up, const void *data, int64_t count, int64_t mb);
void zpr_send_wait(zpr *c, int chunk, bool up, int64_t mb);
void zpr_recv(zpr *c, int chunk, bool from_below, void *data, int64_t count, int64_t mb);

/* Trainers built with --profile. From here on step i of the profile's table; what is between steps; micro-batch mb of
 * `what`: 'F' forward, 'B' backward, 'I' its gradients of inputs, 'W' of weights. They do nothing while a training step
 * is not measured. */
void zpr_step(zpr *c, int i);
void zpr_step_end(zpr *c);
void zpr_begin_action(zpr *c, char what, int chunk, int64_t mb);

/* Ends all ranks with one line on stderr: "error[Z0801]: ...". Codes as in `zplan explain`; the code decides
 * the exit status. */
_Noreturn void zpr_fail(zpr *c, const char *code, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
