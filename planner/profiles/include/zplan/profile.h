/* SPDX-License-Identifier: Apache-2.0 */
/* How other training programs differ from the generated trainer. A profile is data; what its fields mean stands in the
 * files that read them: prices in cost/software/, memory in validate/memory/. */
#ifndef ZPLAN_PROFILE_H
#define ZPLAN_PROFILE_H

#include <stdint.h>
#include <zplan/software.h>

/* How many NCCL communicators of a kind one process makes. */
typedef struct zp_software_groups {
  signed char world, tensor, data, pipeline; /* over all ranks; over groups of the plan */
  signed char model;                         /* tensor ranks of all stages */
  signed char ties;                          /* first and last stage, which share the embedding */
  signed char pairs;                         /* a stage and its neighbour */
} zp_software_groups;
/* How tokens come to experts: a copy for each of them, or one to every node and from there to its devices. */
typedef enum zp_dispatcher { ZP_DISPATCH_COPIES, ZP_DISPATCH_NODES } zp_dispatcher;
/* What CUDA graphs launch: nothing, gates and what they find out, all but experts, everything. */
typedef enum zp_graphs { ZP_GRAPHS_NONE, ZP_GRAPHS_GATES, ZP_GRAPHS_PARTS, ZP_GRAPHS_WHOLE } zp_graphs;
/* What a program computes again of layers that keep the rest, as flags. */
enum { ZP_AGAIN_ACTIVATION = 1, ZP_AGAIN_NORM = 2, ZP_AGAIN_UP = 4 };
enum { ZP_SOURCE_WORDS = 5 };
/* How a measured program differs from the one that the planner lowers and the generator prints. All zero: not at
 * all. */
struct zp_software {
  const char *name;
  const char *facts;  /* where the differences are documented */
  zp_trainer trainer; /* the program that it is a version of; NONE: of one that no plan can be made for */
  bool newest;        /* the version that plans are for which do not name one */
  int of_year;        /* of a newest profile: the program is later than it; 0: it is the program of today */

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
  bool fused_loss; /* the loss is one kernel that turns logits into their gradient, though rows are separate */
  int norm_passes, norm_grad_passes; /* of rows, of every norm, besides those of 16-bit operands */
  double loss_moved;                 /* bytes a logit, besides the fused loss in 16 bits */
  bool separate_gates;     /* SiLU and the product with the other half of a gated MLP are kernels of their own */
  bool merged_products;    /* one product makes queries, keys and values, one both halves of a gated MLP */
  bool float_norms;        /* RMS norms are single operations in fp32 */
  bool float_rotary;       /* rotary positions are products of complex fp32 numbers */
  bool repeats_heads;      /* keys and values are copied for every query head */
  bool rearranges_heads;   /* queries, keys, values and the result of attention are copied from layout to layout */
  bool float_gradients;    /* gradients are kept and reduced in fp32 */
  bool fp16_sums;          /* but those of fp16 trainings in fp16 */
  bool dropless;           /* experts take the tokens that come: nothing dropped, nothing padded */
  bool replays_all;        /* recomputation runs the whole forward part again, needed or not */
  bool selects_operations; /* "selective" recomputation keeps attention and every second product, replays the rest */
  bool rebuilds_modules;   /* of models with experts "selective" recomputation rebuilds norms and their activations */
  bool measured_narrow;    /* its measured runs have such products, too: ranges of predicted times are of both */
  bool engine;             /* its products in 8 bits are Transformer Engine's */
  double narrow_heads; /* share of its attention's rate with heads of 64 columns, of models with experts; 0: cuDNN's */
  double sm90_attention;   /* how many times faster its fused attention is on sm_90 than FlashAttention-2; 0: as fast */
  double product_rate;     /* of products of layers in 8 or 4 bits, against 16; 0: in 16 */
  double gathered;         /* bytes of an operand that is gathered, against 16 bits: it is cast before */
  int weight_32nds;        /* of a byte: kept of each weight of such products, besides the weight in 16 bits */
  bool casts_alone;        /* it can keep such weights as these casts alone (recipes.c) */
  double cast_bytes;       /* moved per element that is cast for them: operands once, gradients of results once */
  int cast_kernels;        /* for an operand of such a product */
  double accumulate_bytes; /* moved per parameter and micro-batch to add a weight's gradient; 0: the product adds it */
  double update_bytes;     /* moved per updated parameter besides what the generated trainer's update moves */
  double host_call_s;      /* host time to issue one kernel, all Python and framework calls around it included */

  /* its experts (experts.c) */
  bool own_experts; /* they are priced as follows; false: as the generated trainer's */
  zp_dispatcher dispatcher;
  zp_graphs graphs;
  bool hides_exchange;   /* exchanges run alongside another micro-batch */
  bool one_kernel;       /* the products of all experts are one, with what lies between them; false: one an expert */
  bool experts_in_a_row; /* the gate chooses consecutive ones */
  signed char expert_biases; /* products, of the last on, whose biases are added by operations of their own */

  /* its layers (core_layers.c) */
  bool splits_heads;     /* queries, keys and values come from one product, heads in groups */
  bool weighs_gates;     /* scores are multiplied into the experts' activation */
  bool clamps_gates;     /* whose operand is clamped by kernels of its own */
  bool single_rotary;    /* rotary positions are single operations in 16 bits */
  bool narrow_attention; /* attention is computed in 8 bits */
  int again;             /* ZP_AGAIN_* */

  /* its stages and their messages (cut.c, messages.c) */
  bool cuts_units;          /* embedding and head count as layers in the cut */
  bool cuts_by_parameters;  /* stages have equal parameters, not equal layers */
  bool cuts_by_products;    /* stages have about equal matrix products, the head's included */
  bool interleaves;         /* it has the interleaved schedule: used where a row does not say, if it pays */
  bool shards_all;          /* ZeRO 2 is not in its recipes: the optimizer's state is sharded, or everything */
  int most_chunks;          /* of a stage, in its recipes; 0: 8 are searched */
  bool blocking_messages;   /* a stage waits for its messages between stages */
  bool scatter_gather;      /* messages cross the network in one piece a tensor rank */
  bool whole_gradients;     /* but those of backward do not */
  bool partitioned_outputs; /* of what a stage has sent, a rank keeps its piece and gathers the rest for backward */

  /* its collectives (tensor_overlap.c, data_parallel.c) and copies to the host (offload.c) */
  bool overlaps_tensor; /* sequence-sharded gathers and scatters run alongside their products, piece by piece */
  bool whole_pieces;    /* but as one NCCL collective each, alongside the products that do not need it */
  bool scatters_wait;   /* and scatters of forward alongside nothing */
  bool overlaps_data;   /* data-parallel communication runs alongside the last backward and the next forward */
  bool sums_whole;      /* ZeRO 1 reduces whole gradients everywhere, and nothing runs alongside that or its gather */
  double bucket_bytes;  /* gradients are reduced in pieces of this size; 0: in one */
  bool broadcasts;      /* ZeRO 1: after the update every rank broadcasts what it owns, one after the other, alongside
                           nothing */
  double collective_s;  /* of every collective that products wait for: its issue, and events between two streams */
  bool gathers_wait;    /* ZeRO 2 and 3: nothing runs alongside gathers and scatters */
  bool lists_ranks;     /* collectives take lists with one piece a rank */
  bool offload_waits;   /* nothing runs alongside copies to and from the host */

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
  bool stand_ins;          /* empty gradients of weights exist where products add the true ones: stand_ins.c */
  bool half_gradients;     /* of one micro-batch, whole, alongside the fp32 gradients that sum them */
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

/* More special profiles come first: of those that fit a row's source, the first counts. */
typedef struct zp_profiles {
  const zp_software *data;
  int len;
} zp_profiles;
extern const zp_profiles zp_profiles_megatron, zp_profiles_deepspeed, zp_profiles_frameworks;

/* Which terms of the generated trainer a step never falls below, whatever the software adds elsewhere: bounds use
 * these. reductions: sums of gradients and gathers of weights after the micro-batches; messages between stages;
 * offload: the update on the host. */
typedef struct zp_software_floor {
  bool reductions, messages, offload;
} zp_software_floor;
/* software may be NULL: all of them. */
zp_software_floor zp_software_floor_of(const zp_software *software);

#endif
