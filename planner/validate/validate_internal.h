/* Shared inside this folder: CSV records, the model of a row, software profiles and their prices. */
#ifndef ZPLAN_VALIDATE_INTERNAL_H
#define ZPLAN_VALIDATE_INTERNAL_H

#include <zplan/validate.h>

/* ---- csv.c ---- */
typedef struct zp_csv {
  const char *text;
  size_t len, at;
  int line;          /* of the next record */
  const char *wrong; /* about the record last read; NULL: it is sound */
} zp_csv;
/* Reads the next record's fields (arena) into *fields and its first line into *line; false at the end of the text. A
 * record that is not sound is read on to its end. */
bool zp_csv_next(zp_arena *arena, zp_csv *csv, zp_strings *fields, int *line);

/* ---- gpus.c ---- */
/* hw.dz name of a GPU as tables print it; memory_gb: what another column says, 0 for nothing. NULL when unknown, or
 * made with several memories and neither says which. */
const char *zp_gpu_device(const char *printed, double memory_gb);

/* Bytes of device memory that the driver of such devices reports; 0 when unknown. */
int64_t zp_gpu_board_bytes(const char *device);

/* Host memory, PCIe and disks of a node with such devices. */
void zp_gpu_host(const char *device, zp_node_type *node);

/* ---- model.c ---- */
/* Fills in what the row leaves open (heads, ffn, vocabulary) and says so in *assumed. */
zp_measured zp_run_complete(zp_arena *arena, const zp_measured_table *table, const zp_measured *run,
                            const char **assumed);
zp_model *zp_run_model(zp_arena *arena, const zp_measured *run);
/* FLOPs of one step as the row's source counts them: full attention, recomputation when `hardware`. */
double zp_run_flop(const zp_measured *run, bool hardware);

/* ---- software.c ---- */
enum { ZP_SOURCE_WORDS = 5 };
/* How a measured program differs from the one that the planner lowers and the generator prints. All zero: not at all.
 */
struct zp_software {
  const char *name;
  const char *facts; /* where the differences are documented */

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
  bool blocking_messages;   /* a stage waits for its messages between stages */
  bool scatter_gather;      /* messages cross the network in one piece a tensor rank */
  bool whole_gradients;     /* but those of backward do not */
  bool partitioned_outputs; /* of what a stage has sent, a rank keeps its piece and gathers the rest for backward */

  /* its collectives (reprice.c, data_parallel.c) and copies to the host (offload.c) */
  bool overlaps_tensor; /* sequence-sharded gathers and scatters run beside their products, piece by piece */
  bool whole_pieces;    /* but as one NCCL collective each: a gather beside the product of the rank's own rows alone */
  bool scatters_wait;   /* and scatters of forward beside nothing */
  bool overlaps_data;   /* data-parallel communication runs beside the last backward and the next forward */
  bool sums_whole;      /* ZeRO 1 reduces whole gradients everywhere, and nothing runs beside that or its gather */
  double bucket_bytes;  /* gradients are reduced in pieces of this size; 0: in one */
  bool gathers_wait;    /* ZeRO 2 and 3: nothing runs beside gathers and scatters */
  bool lists_ranks;     /* collectives take lists with one piece a rank */
  bool offload_waits;   /* nothing runs beside copies to and from the host */

  /* its memory (memory.c) */
  int loss_bytes;          /* per logit at the peak, besides one half-precision buffer */
  int update_copies;       /* bytes per updated parameter that exist in the update alone */
  bool gradient_buckets;   /* a second, half-precision copy of all gradients over the data ranks */
  bool half_gradients;     /* of one micro-batch, whole, beside the fp32 gradients that sum them */
  int64_t reduce_bucket;   /* elements of a half-precision buffer for gradients, 0: none */
  int64_t context_bytes;   /* of a process without communicators; 0: the library's figure, which has one */
  bool keeps_outputs;      /* what a stage has sent stays until its backward, in one buffer more than are in flight */
  bool holds_scattered;    /* what went into a reduce-scatter is not reused within a forward pass */
  bool gathers_tensors;    /* ZeRO 3 gathers tensor by tensor, DeepSpeed's limits */
  bool splits_checkpoints; /* saved inputs are split over the tensor ranks */
  bool host_checkpoints;   /* and copied to the host */
  bool prints_allocator;   /* printed memory is what the framework's allocator counts */
  bool prints_reserved;    /* printed memory is what the driver shows: all the allocator ever took */
};
const zp_software *zp_software_of(const zp_measured *run);

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

/* ---- reprice.c ---- */
/* Prices the steps again whose kernels differ from the generated trainer's. tensor: the link of its ranks. */
void zp_software_price(zp_lowered *lowered, const zp_machine *machine, const zp_software *software,
                       const zp_group_link *tensor, bool selective);

/* ---- data_parallel.c ---- */
/* How much longer, or shorter, data-parallel communication delays the step; e: with the stages' times. */
double zp_software_data_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                          const zp_software *software);
/* The same for the gathers and scatters of ZeRO 2 and 3. */
double zp_software_gathers_s(const zp_program *program, const zp_machine *machine, const zp_software *software);
/* How much longer the update of the fullest stage takes. */
double zp_software_update_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                            const zp_software *software);

/* ---- autograd.c ---- */
/* Bytes that one unit keeps from forward to backward in an eager framework; by_operations: with torchtitan's
 * checkpointing of single operations. */
int64_t zp_autograd_kept_bytes(zp_arena *arena, const zp_graph *local, int64_t microbatch, int compute_bytes,
                               bool by_operations);

/* ---- offload.c ---- */
/* How much longer the step takes with an optimizer on the host. */
double zp_software_offload_s(const zp_program *program, const zp_machine *machine, const zp_estimate *e,
                             const zp_software *software);

/* ---- memory.c ---- */
typedef struct zp_software_memory {
  int64_t device;  /* what the fullest device needs, context and communicators included */
  int64_t printed; /* what the source's instrument shows for it */
} zp_software_memory;
/* `recompute`: the row's word; NULL: unpublished. */
zp_software_memory zp_software_peak(const zp_program *program, const zp_machine *machine, const zp_software *software,
                                    const char *recompute);

/* ---- messages.c ---- */
/* How much longer the step takes than with the generated trainer's messages. */
double zp_software_message_s(zp_arena *arena, const zp_program *program, const zp_machine *machine,
                             const zp_software *software);

#endif
