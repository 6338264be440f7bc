/* SPDX-License-Identifier: Apache-2.0 */
/* The tables that a generated trainer supplies, constants that its generator prints: what zpr_program holds. Ranks are
 * numbered as rt.h says. */
#ifndef ZPLAN_RT_TABLES_H
#define ZPLAN_RT_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zplan/zpk.h>

typedef enum zpr_axis {
  ZPR_TENSOR,
  ZPR_DATA,
  ZPR_PIPELINE,
  ZPR_TIE,
  ZPR_EXPERT,
  ZPR_CONTEXT,
  ZPR_CONTROL,
  ZPR_AXIS_COUNT
} zpr_axis;

/* What offloading moves: between device and host, between host and disk. */
typedef enum zpr_move { ZPR_DOWN, ZPR_UP, ZPR_READ, ZPR_WRITTEN, ZPR_MOVE_COUNT } zpr_move;

#define ZPR_OPTIMIZER_ID(id, row) id,
typedef enum zpr_optimizer { ZPR_OPTIMIZERS(ZPR_OPTIMIZER_ID) } zpr_optimizer;
#undef ZPR_OPTIMIZER_ID
/* Kinds that the tables name; the first is what kernels call zpk_initial_weight's kind. */
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
  bool orthogonal;   /* a matrix that Muon updates; others take AdamW alongside it */
  bool adapter;      /* where weights are given without it, it is drawn */
} zpr_param;

/* Kinds of parameters, in the order in which flat buffers have them (the planner's zplan/kinds.h): those that all data
 * ranks hold; matrices of experts, which the ranks at one place of the expert groups hold; those that are not trained,
 * which have no gradients and no state. */
typedef enum zpr_kind { ZPR_KIND_WHOLE, ZPR_KIND_SPREAD, ZPR_KIND_FROZEN, ZPR_KINDS } zpr_kind;
static inline bool zpr_is_trained(zpr_kind kind) { return kind != ZPR_KIND_FROZEN; }

/* `count` consecutive instances of a segment that live on a stage, side by side in the flat buffers. Its parameters are
 * of one kind. zero >= 1,
 * moves_gradients, zpr_reduce_grads: an instance is a bucket, what moves over the ranks that hold the same at once; a
 * parameter declared outside repeats has a run of its own. With zero >= 1 its stride divides by those ranks. */
typedef struct zpr_run {
  const char *segment;
  zpr_kind kind;
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

/* The offloaded part of a class of state: the last `elements` of those that the rank updates. If the rank holds the
 * class unsharded while data ranks own shards, the last `elements` of each owner's shard are offloaded. */
typedef struct zpr_offloaded {
  int64_t elements; /* 0: all of it is on the device */
  bool on_disk;
  int64_t host;   /* byte of the host arena where it stands; of a class on disks, where its windows stand */
  int64_t file;   /* byte of the file */
  int64_t window; /* of parameters and gradients on disks: elements of each of ZPR_OFFLOADED_WINDOWS windows */
} zpr_offloaded;
enum { ZPR_OFFLOADED_WINDOWS = 4 };

/* Byte offsets in the arena of every rank of a stage. */
typedef struct zpr_stage {
  int64_t arena_bytes; /* the arena is exactly this large */
  /* host arena and file on disk of what lives off the device, exactly as large; 0: none */
  int64_t host_bytes, file_bytes;
  /* What lasts from step to step, -1 when absent: params, grads, master, moment1 ... (state_regions.def). With zero >=
   * 2 gradients, with 3 parameters are those of zpr_shard_elements; all state is. */
#define STATE_REGION(region, field, memory, key, name) int64_t field;
#include <zplan/state_regions.def>
  int64_t n_statistics; /* Adafactor's, of the type of moments: so many, of whole parameters, on every rank */
  /* Elements by kind, one after the other; what is not trained stands in `params` alone. Each is padded so that it
   * divides over those who hold the same when zero >= 1. shard: what this rank updates, all without ZeRO; of what is
   * not trained what it keeps, with zero == 3 a shard. */
  int64_t flat[ZPR_KINDS], shard[ZPR_KINDS];
  int64_t products; /* 16-bit dtypes on CPU ranks: ZPR_MAX_WORKERS tiles of ZPR_PRODUCT_BYTES; GPUs: the
                       workspace of products; else -1 */
  /* 1-bit Adam: error and server_error are of elements whose state is on the device: of zpr_flat_elements, and of the
   * zpr_flat_elements / data that a rank averages. Of the others on the host, and a place there for records. */
  int64_t host_error, host_server_error, host_records;
  int64_t scratch,
      scratch_bytes; /* free between steps: where partial gradients travel together, where Muon and Adafactor work */
  zpr_offloaded params_offloaded; /* of the elements of `params` */
  int64_t hpz_params; /* where program->hpz > 0: byte of the arena with this rank's part of the second copy */
  int64_t param_ring, grad_ring; /* where either leave: byte of the arena with two buffers of bucket_elements */
  zpr_offloaded state_offloaded,
      grads_offloaded; /* of zpr_shard_elements of optimizer state, weights included; of the gradients */
  /* The update on the host works on so many elements at once; gradients come in and rounded weights go out through two
   * windows each, bytes of the host arena; state on disks passes through state_windows, which state_offloaded.host
   * has. */
  int64_t window_elements, state_windows, grads_in, weights_out;
  int64_t delayed;         /* where program->delayed: of the host arena, in place of these windows room for all of
                              state_offloaded's         gradients, and then for its rounded weights */
  int64_t bucket_elements; /* of a buffer of these rings */
  bool saved_on_disk;      /* saved values that leave the device go to the file, through four buffers of the host: */
  int64_t saved_staging, saved_staging_bytes; /* byte of the host arena where they stand, bytes of each */
  int64_t inputs; /* int32 [inputs][micro-batches][microbatch][S]: tokens, then labels, of the whole step; after them
                   * [micro-batches][microbatch]: lengths */
  /* GPUs: byte of the arena where the next message of every channel that comes from another stage arrives, before the
   * chunk begins that reads it, and bytes from one to the next. 0: messages are received where they are needed. */
  int64_t arrivals, arrival_stride;
  bool lacks_numbers; /* of the inputs: it reads none, and they have no place at `inputs` */
  int n_runs;
  const zpr_run *runs;
} zpr_stage;

/* Elements that are trained: of the flat buffers; of them what a rank updates. */
static inline int64_t zpr_flat_elements(const zpr_stage *stage) {
  return stage->flat[ZPR_KIND_WHOLE] + stage->flat[ZPR_KIND_SPREAD];
}
static inline int64_t zpr_shard_elements(const zpr_stage *stage) {
  return stage->shard[ZPR_KIND_WHOLE] + stage->shard[ZPR_KIND_SPREAD];
}

/* Span corruption (runtime/data/data_spans.c). */
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

/* What a rank does alongside the steps of its procedures: identifier, kind, name. From ZPR_AT_REDUCE on they end a
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
  const char
      *precision; /* as the language has it, where products of layers are in 8 or 4 bits; NULL: the dtype says all */
  int tensor, pipeline, data, zero;
  bool rounds_sums;       /* of gradients over data ranks, once to bf16, where they leave a node. Gradients are f32 */
  bool stochastic_sums;   /* of gradients over micro-batches: the shard is bf16, additions are rounded stochastically */
  bool moves_gradients;   /* in buckets to the host, also without ZeRO 2 and 3 */
  bool moves_overlap;     /* GPUs: micro_batches moves buckets between zpr_overlapped and zpr_overlapped_end */
  int expert;             /* neighbouring data ranks that share the experts of a tensor rank; 0, 1: none do */
  int context;            /* neighbouring data ranks that share the positions of their samples; 0, 1: none do */
  bool context_by_keys;   /* in two stretches (by_keys.c), else in one */
  bool context_ring;      /* by keys: these are not gathered but met rank after rank (ring.c) */
  unsigned shared_inputs; /* bit i: a context rank reads its positions of input i, else it has those of the sample */
  int hpz;   /* zero 3: neighbouring data ranks that divide a second copy of the parameters; 0: there is none */
  int shard; /* zero 1 to 3: neighbouring data ranks that divide the state among them, in whole expert groups;
              * other groups of them have copies. 0: all do */
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
  int64_t batch, microbatch;
  int64_t microbatches; /* a replica, of which there are data / context: batch / (replicas * microbatch) */
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
  double lr, clip, min_lr;
  ZPK_SETTINGS(ZPK_SETTING_MEMBER)
  /* Adafactor: beta2 of step t is 1 - t^-decay_rate; what updates and parameters are scaled by */
  double decay_rate, clip_threshold, least_scale;
  bool scale_parameter;
  /* 1-bit LAMB: what is left of an average of ratios after a step; bounds of the factor, and what share of itself it
   * moves by in a step at most */
  double coeff_beta, factor_min, factor_max, factor_threshold;
  double ema;           /* what a step leaves of the average of the weights; 0: there is none */
  bool delayed;         /* after delay_after steps the update of a step runs alongside the next one, whose gradients */
  int64_t delay_after;  /* are of the weights before it. All optimizer state is on the host */
  int64_t loss_scale;   /* f16: to start with, a power of two up to ZPR_MOST_LOSS_SCALE; 0: 1 */
  int64_t scale_window; /* f16: steps without overflow after which it doubles; 0: it stays as it is */
  int64_t freeze_step;  /* > 0: 1-bit Adam, whose variance is frozen after so many applied steps of plain Adam */
  double freeze_threshold;    /* > 0: 1-bit Adam, which freezes it when its norm changes by less than 1 less this */
  int n_variance, n_phases;   /* 0/1 Adam: applied steps, from 0 on, that sum gradients and update the variance; and */
  const int64_t *variance_at; /* from which on one of how many exchanges signs */
  const zpr_phase *phases;
  zpr_rate schedule; /* of the learning rate */
  int64_t warmup, decay_steps, steps;
  uint64_t seed;
  bool starts_from_weights; /* those that weights.json alongside the trainer maps, unless --init names another map */
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
  int64_t expected_routed_bytes;       /* alongside those of ZPR_EXPERT, where routing decides: of an even load */
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

#endif
