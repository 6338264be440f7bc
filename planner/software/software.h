/* Shared inside this folder and with validation: how other training programs differ from the generated trainer, and
 * what that costs. A profile is data; what its fields mean stands in the files that read them. */
#ifndef ZPLAN_SOFTWARE_INTERNAL_H
#define ZPLAN_SOFTWARE_INTERNAL_H

#include <zplan/estimate.h>
#include <zplan/software.h>

/* A framework's context and kernels on such a device, without NCCL, as nvidia-smi shows them. */
int64_t zp_gpu_context_bytes(const char *device);

/* ---- communicators.c ---- */
/* How many NCCL communicators of a kind one process makes. */
typedef struct zp_software_groups {
  signed char world, tensor, data, pipeline; /* over all ranks; over groups of the plan */
  signed char model;                         /* tensor ranks of all stages */
  signed char ties;                          /* first and last stage, which share the embedding */
  signed char pairs;                         /* a stage and its neighbour */
} zp_software_groups;
/* Bytes of a device of the stage. */
int64_t zp_software_communicators(const zp_choice *choice, const zp_machine *machine, const zp_software_groups *made,
                                  int stage);

/* ---- reserved.c ---- */
enum { ZP_RESERVED_BLOCKS = 16 };
/* Memory that a caching allocator took, and large blocks of it that are free. */
typedef struct zp_reserved {
  int64_t bytes;
  int n;
  int64_t free[ZP_RESERVED_BLOCKS];
} zp_reserved;
/* What the allocator asks the driver for when no block fits. */
int64_t zp_reserved_segment(int64_t bytes);
/* A request: cut from the smallest free block that holds it, else new memory. */
void zp_reserved_take(zp_reserved *reserved, int64_t bytes);
/* A block comes back. */
void zp_reserved_give(zp_reserved *reserved, int64_t bytes);

/* ---- profiles ---- */
enum { ZP_SOURCE_WORDS = 5 };
/* How a measured program differs from the one that the planner lowers and the generator prints. All zero: not at all.
 */
struct zp_software {
  const char *name;
  const char *facts;  /* where the differences are documented */
  zp_trainer trainer; /* the program that it is a version of; NONE: of one that no plan can be made for */
  bool newest;        /* the version that plans are for which do not name one */

  /* which rows it stands for */
  const char *source_words[ZP_SOURCE_WORDS]; /* any of these in the row's source selects the profile; none: by year */
  int first_year, last_year;
  int zero, most_zero; /* only for runs of at least, and of at most, these ZeRO stages; 0: of any */
  int most_tensor;     /* only for runs of at most so many tensor ranks; 0: of any */
  bool only_compiled;  /* only for runs that say they went through torch.compile */

  /* its kernels (reprice.c) */
  bool score_matrix;         /* attention scores go through device memory (before FlashAttention) */
  bool fused_softmax;        /* scale, mask and softmax are one kernel, where its conditions hold */
  bool separate_scores;      /* they never are; queries, keys and values are copied */
  double attention_slowdown; /* of its fused attention against the library's rates; 0: none */
  bool separate_rows;        /* norms, dropout, sums and the loss are kernels of their own */
  bool separate_biases;      /* biases and dropouts too */
  bool separate_loss;        /* the loss alone: torch.compile fuses the rows of layers */
  bool separate_gates;       /* SiLU and the product with the other half of a gated MLP are kernels of their own */
  bool merged_products;      /* one product makes queries, keys and values, one both halves of a gated MLP */
  bool float_norms;          /* RMS norms are single operations in fp32 */
  bool float_rotary;         /* rotary positions are products of complex fp32 numbers */
  bool repeats_heads;        /* keys and values are copied for every query head */
  bool rearranges_heads;     /* queries, keys, values and the result of attention are copied from layout to layout */
  bool float_gradients;      /* gradients are kept and reduced in fp32 */
  bool replays_all;          /* recomputation runs the whole forward part again, needed or not */
  bool selects_operations;   /* "selective" recomputation keeps attention and every second product, replays the rest */
  double accumulate_bytes; /* moved per parameter and micro-batch to add a weight's gradient; 0: the product adds it */
  double update_bytes;     /* moved per updated parameter besides what the generated trainer's update moves */
  double host_call_s;      /* host time to issue one kernel, all Python and framework calls around it included */

  /* its stages and their messages (cut.c, messages.c) */
  bool cuts_units;          /* embedding and head count as layers in the cut */
  bool cuts_by_parameters;  /* stages have equal parameters, not equal layers */
  bool cuts_by_products;    /* stages have about equal matrix products, the head's included */
  bool interleaves;         /* it has the interleaved schedule: used where a row does not say, if it pays */
  bool blocking_messages;   /* a stage waits for its messages between stages */
  bool scatter_gather;      /* messages cross the network in one piece a tensor rank */
  bool whole_gradients;     /* but those of backward do not */
  bool partitioned_outputs; /* of what a stage has sent, a rank keeps its piece and gathers the rest for backward */

  /* its collectives (tensor_overlap.c, data_parallel.c) and copies to the host (offload.c) */
  bool overlaps_tensor; /* sequence-sharded gathers and scatters run beside their products, piece by piece */
  bool whole_pieces;    /* but as one NCCL collective each, beside the products that do not need it */
  bool scatters_wait;   /* and scatters of forward beside nothing */
  bool overlaps_data;   /* data-parallel communication runs beside the last backward and the next forward */
  bool sums_whole;      /* ZeRO 1 reduces whole gradients everywhere, and nothing runs beside that or its gather */
  double bucket_bytes;  /* gradients are reduced in pieces of this size; 0: in one */
  bool gathers_wait;    /* ZeRO 2 and 3: nothing runs beside gathers and scatters */
  bool lists_ranks;     /* collectives take lists with one piece a rank */
  bool offload_waits;   /* nothing runs beside copies to and from the host */

  /* its memory (memory.c) */
  bool autograd; /* its backward holds what PyTorch's does, not what the planner's program does */
  zp_software_groups communicators;
  bool dropout;            /* masks of a byte are kept: after the embedding, attention and the MLP */
  bool embedding_norm;     /* the embedding's output is normalised: its input is kept */
  bool joint_queries;      /* queries are a view of a block with keys and values, which stay with them */
  int loss_bytes;          /* per logit at the peak, besides one half-precision buffer */
  int update_copies;       /* bytes per updated parameter that exist in the update alone */
  int flat_copies;         /* more of them that exist before the update: half-precision gradients in one piece */
  int norm_bytes;          /* per element of the largest gradient, while its norm is taken */
  int sum_bytes;           /* the same while it is added to earlier ones */
  int reduce_copy;         /* bytes per parameter of a copy of all gradients that is reduced */
  int64_t reduce_bucket;   /* elements of a half-precision buffer for gradients, 0: none */
  bool gradient_buckets;   /* a second, half-precision copy of all gradients over the data ranks */
  bool half_gradients;     /* of one micro-batch, whole, beside the fp32 gradients that sum them */
  bool static_plan;        /* memory is laid out before the run: see memory.c */
  bool keeps_outputs;      /* what a stage has sent stays until its backward, in one buffer more than are in flight */
  bool holds_scattered;    /* what went into a reduce-scatter is not reused within a forward pass */
  bool gathers_tensors;    /* ZeRO 3 gathers tensor by tensor, DeepSpeed's limits */
  bool splits_checkpoints; /* saved inputs are split over the tensor ranks */
  bool host_checkpoints;   /* and copied to the host */
  bool prints_allocator;   /* printed memory is what the framework's allocator counts */
  bool prints_first_stage; /* of the first stage, whichever has most */
  bool prints_reserved;    /* printed memory is what the driver shows: all the allocator ever took */
};
/* ---- cut.c ---- */
/* First units of the stages, stages + 1 numbers. Arena. */
int64_t *zp_software_cut(zp_arena *arena, const zp_model *model, const zp_software *software, int stages);

/* ---- row_kernels.c ---- */
/* What separate kernels move besides the fused one of a step: passes of half-precision rows, bytes of masks an element.
 */
typedef struct zp_row_kernels {
  double passes, mask_bytes, kernels;
} zp_row_kernels;
zp_row_kernels zp_software_rows(const zp_software *software, const zp_step *step);

/* ---- tensor_overlap.c ---- */
/* Takes from the prices of sequence-sharded gathers and scatters what products hide. taken: share of the
 * multiprocessors that they keep from a product beside them. Returns how many more kernels that makes. */
double zp_software_overlap_tensor(zp_procedure *procedure, const zp_graph *graph, const zp_lowered *lowered,
                                  const zp_machine *machine, const zp_software *software, double taken, bool forward);

/* ---- reprice.c ---- */
/* Prices the steps again whose kernels differ from the generated trainer's. tensor: the link of its ranks. */
void zp_software_price(zp_lowered *lowered, const zp_machine *machine, const zp_software *software,
                       const zp_group_link *tensor);

/* ---- step.c ---- */
/* Adds to the estimate of the generated trainer's order what the software does otherwise around its kernels. */
void zp_software_step(zp_arena *arena, const zp_program *program, const zp_machine *machine,
                      const zp_software *software, zp_estimate *estimate);

/* Which terms of the generated trainer a step never falls below, whatever the software adds elsewhere: bounds use
 * these. reductions: sums of gradients and gathers of weights after the micro-batches; messages between stages;
 * offload: the update on the host. */
typedef struct zp_software_floor {
  bool reductions, messages, offload;
} zp_software_floor;
/* software may be NULL: all of them. */
zp_software_floor zp_software_floor_of(const zp_software *software);

/* ---- data_parallel.c ---- */
/* How much longer, or shorter, data-parallel communication delays the step; e: with the stages' times. */
double zp_software_data_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                          const zp_software *software);
/* How much longer the gathers and scatters of ZeRO 2 and 3 make the step. */
double zp_software_gathers_s(const zp_program *program, const zp_machine *machine, const zp_software *software);
/* How much longer the update of the fullest stage takes. */
double zp_software_update_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                            const zp_software *software);

/* ---- autograd.c ---- */
/* Bytes that one unit keeps from forward to backward in an eager framework; by_operations: with torchtitan's
 * checkpointing of single operations. */
int64_t zp_autograd_kept_bytes(zp_arena *arena, const zp_graph *local, int64_t microbatch, int compute_bytes,
                               bool by_operations);

/* Bytes of scores, for an attention that has them in device memory: what waits for backward, and what backward adds to
 * it. */
typedef struct zp_autograd_scores {
  int64_t kept, gradient;
} zp_autograd_scores;
/* The most that the backward of one unit holds: what is still kept, gradients, and, if `fresh`, of weights' gradients
 * the one that was just made. */
int64_t zp_autograd_backward_bytes(zp_arena *arena, const zp_graph *local, int64_t microbatch, int compute_bytes,
                                   const zp_autograd_scores *scores, bool fresh);
/* Keys and values that stay with the queries when these are a view of a block that had all three; 0 where keys have
 * fewer heads, which makes blocks apart. */
int64_t zp_autograd_joint_bytes(const zp_graph *local, int64_t microbatch, int compute_bytes);

/* ---- offload.c ---- */
/* How much longer the step takes with an optimizer on the host. */
double zp_software_offload_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                             const zp_software *software);

/* ---- temporaries.c ---- */
/* One stage of a predicted run, and how its memory is asked for. */
typedef struct asking {
  const zp_program *program;
  const zp_software *software;
  const zp_lowered *lowered; /* of the stage at hand */
  bool keeps_scores, by_operations;
} asking;
/* Bytes: of the largest gradient while it is added, of what is reduced at once, of the largest gradient while its norm
 * is taken, of gradients made one piece, of copies that the update works on. */
typedef struct zp_temporaries {
  int64_t sum, reduce, norm, flat, update;
} zp_temporaries;
zp_temporaries zp_software_temporaries(const asking *a, const zp_stage *stage);

/* ---- memory.c ---- */
typedef struct zp_software_memory {
  int64_t device;  /* what the fullest device needs, context and communicators included */
  int64_t printed; /* what the source's instrument shows for it */
} zp_software_memory;
/* known: the program recomputes what the choice says; else that is not published. */
zp_software_memory zp_software_peak(const zp_program *program, const zp_machine *machine, const zp_software *software,
                                    bool known);

/* ---- messages.c ---- */
/* How much longer the step takes than with the generated trainer's messages. */
double zp_software_message_s(zp_arena *arena, const zp_program *program, const zp_machine *machine,
                             const zp_software *software);

#endif
