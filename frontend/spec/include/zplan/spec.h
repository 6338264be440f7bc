/* SPDX-License-Identifier: Apache-2.0 */
/* What a .dz file says besides the model: machines, training settings, plan constraints; and the whole input of a
 * run. */
#ifndef ZPLAN_SPEC_H
#define ZPLAN_SPEC_H

#include <stdint.h>
#include <zplan/diag.h>
#include <zplan/optimizer.h>
#include <zplan/vec.h>

struct zp_model;

/* ---- machines. All rates are per device and per direction, in bytes/s, FLOP/s, seconds. 0 = absent. ---- */
typedef struct zp_device {
  const char *name; /* "v100_sxm3_32" */
  bool is_cpu;      /* then memory and rates are those of the whole node, which its ranks share */
  int64_t memory_bytes;
  int64_t context_bytes; /* outside the arena: CUDA context, libraries, code */
  double memory_bytes_per_s;
  double flop_per_s_fp64, flop_per_s_fp32, flop_per_s_half; /* dense peak; half: fp16 or bf16 tensor cores */
  bool has_bf16;
  bool has_nccl; /* its ranks talk through NCCL, whose buffers lie outside of arena and context */
  double eff_matmul, eff_attention, eff_memory; /* share of peak reached by large operations */
  bool calibrated;                              /* GPU: shares of products and memory are those of this machine */
  double launch_s;                              /* fixed cost of one kernel */
  double power_w;                               /* that it may draw; 0: not known */
  const struct zp_cpu_kernels
      *measured;    /* CPU: what calibration found out about kernels (cpu_kernels.h), NULL: nothing */
  const char *arch; /* GPUs: what kernels are compiled for, "sm_90"; NULL: not said */
  int cores;        /* CPU devices: cores of the whole node; GPUs: multiprocessors */
} zp_device;

typedef struct zp_link {
  const char *kind; /* "nvswitch", "pcie", "shared_memory", "ethernet", "infiniband" */
  double bytes_per_s;
  double latency_s;
} zp_link;

typedef struct zp_node_type {
  const char *name;
  int devices; /* per node; CPU nodes: ranks are not limited by it (see zp_cluster) */
  zp_device device;
  zp_link link; /* between devices of a node */
  int64_t host_memory_bytes;
  double host_bytes_per_s, pcie_bytes_per_s; /* of all memory channels; of one PCIe link and direction */
  int host_sockets;                          /* the channels are divided over them; 0: one */
  int pcie_devices_per_root;                 /* devices behind one link to the host; 0: one */
  int64_t nvme_bytes;
  double nvme_read_bytes_per_s, nvme_write_bytes_per_s;
  int nics;
  zp_link nic; /* one NIC */
} zp_node_type;

/* So many nodes of a cluster, from the first on: 0 is the first of all in the order that is written. */
typedef struct zp_node_range {
  int first, nodes;
} zp_node_range;

/* Nodes of one type side by side, in a cluster of several. */
typedef struct zp_node_group {
  int nodes;
  zp_node_type type;
  double price_per_gpu_hour; /* dollars, 0 unknown */
} zp_node_group;
/* As they are listed; a part of the last group that is used makes one more. */
enum { ZP_MOST_NODE_TYPES = 6, ZP_MOST_NODE_GROUPS = ZP_MOST_NODE_TYPES + 1 };
typedef unsigned zp_node_set; /* bit g: group g */

/* What lies between the nodes. Rails: devices with the same index in their nodes share a leaf switch, so that only
 * other traffic meets the oversubscription. */
typedef enum zp_topology { ZP_FAT_TREE, ZP_RAIL } zp_topology;

/* The program that a plan is for: whose kernels, messages and memory are priced, and whose abilities bound the space.
 * NONE: nobody's in particular, the libraries' kernels in the generated trainer's order. */
#define ZP_TRAINERS(X)                                                                                                 \
  X(NONE, "none", "no program")                                                                                        \
  X(ZPLAN, "zplan", "zplan's own trainer")                                                                             \
  X(MEGATRON, "megatron", "Megatron-LM")                                                                               \
  X(DEEPSPEED, "deepspeed", "DeepSpeed")                                                                               \
  X(FSDP, "fsdp", "PyTorch FSDP")
typedef enum zp_trainer {
#define ZP_TRAINER_ROW(name, word, text) ZP_TRAINER_##name,
  ZP_TRAINERS(ZP_TRAINER_ROW)
#undef ZP_TRAINER_ROW
      ZP_TRAINER_COUNT
} zp_trainer;

typedef struct zp_cluster {
  const char *name;
  int nodes;
  int64_t ranks; /* devices in use: --gpus, else nodes * node.devices. They fill the nodes in order; the last one may be
                  * partly used. node.devices * nodes >= ranks always (more CPU ranks than cores: node.devices grows) */
  zp_node_type node; /* of all nodes; several types: the slowest of them, made by zp_cluster_mix */
  /* Empty unless types are mixed. Ranks fill the groups in this order, which is also their order along the pipeline. */
  ZP_VEC(zp_node_group) groups;
  bool arranged; /* nodes are in another order than the written one, which is that of `ranges` (zp_cluster_arrange) */
  zp_node_range *ranges;
  int n_ranges;
  zp_node_type *slowest; /* [1 << groups.len]: what every device of a set of groups has at least; from 1 on */
  zp_topology topology;
  double fabric_latency_s, oversubscription; /* oversubscription 1.0: full bisection */
  double
      collective_share; /* of the network's bandwidth that collectives over several nodes reach; 0: not measured, 1 */
  bool host_staged;     /* no GPU-direct: what crosses the network passes through host memory and PCIe */
  int64_t rank_memory_bytes;                /* CPU: no rank may use more, however few share a node; 0: its share */
  double price_per_gpu_hour;                /* dollars, 0 unknown */
  double power_w;                           /* of a device with its share of hosts and cooling; 0: the devices' own */
  double energy_price;                      /* dollars of a kilowatt-hour; 0: in the price, or not counted */
  const struct zp_calibration *calibration; /* <zplan/calibration.h> that replaced rates; NULL: as written */
  zp_trainer trainer;                       /* what its devices run */
  bool rounds_sums;                         /* zp_train's: half of the bytes between nodes */
  const struct zp_software *software; /* <zplan/software.h>: profile of a trainer that is not zplan's; NULL: none */
  zp_span span;
} zp_cluster;

/* "sm_" and two or three digits, perhaps with the suffix a or f. */
bool zp_is_gpu_arch(const char *text);
/* Are nodes of both types alike in everything that is planned with? */
bool zp_node_type_equal(const zp_node_type *a, const zp_node_type *b);
/* Fills in `slowest`, `node` and `nodes` from the groups, after any change of them. Requires: at least one group. */
void zp_cluster_mix(zp_arena *arena, zp_cluster *cluster);
/* Changes every node type of the cluster, whose groups are copied first. */
typedef void zp_on_node(zp_node_type *node, const void *user);
void zp_cluster_change(zp_arena *arena, zp_cluster *cluster, zp_on_node *change, const void *user);
/* Gives `out` the nodes of `written` in the order of `ranges`, which ranks then fill: false where these do not have
 * every node once, or one of them has nodes of two groups. Requires: a mixed cluster as it is written. */
bool zp_cluster_arrange(zp_arena *arena, const zp_cluster *written, const zp_node_range *ranges, int n,
                        zp_cluster *out);
/* "2 x old (5-6 as written), then 4 x box (1-4 as written)"; requires: arranged. */
const char *zp_show_nodes(zp_arena *arena, const zp_cluster *cluster);
/* Devices of all nodes as written; mixed clusters only. */
int64_t zp_cluster_devices(const zp_cluster *cluster);
/* Mean dollars of a device hour over the first `devices`, their energy included; 0 unknown. */
double zp_cluster_price(const zp_cluster *cluster, int64_t devices);
/* What the energy has of them; 0: it has no price, or a device's power is not known. */
double zp_cluster_energy_price(const zp_cluster *cluster, int64_t devices);

/* ---- training ---- */
typedef enum zp_precision {
#define PRECISION(id, ...) ZP_PREC_##id,
#include <zplan/precisions.def>
  ZP_PRECISIONS
} zp_precision;
const char *zp_precision_name(zp_precision precision); /* as in the language: "mixed_bf16" */
/* Bytes of an operand as it is stored, and of what is summed or kept for the optimizer. */
int zp_precision_bytes(zp_precision precision);
int zp_precision_real_bytes(zp_precision precision);
/* The recipe of products of layers in 8 or 4 bits: "fp8_current"; NULL: they have no other type than the rest. */
const char *zp_precision_recipe(zp_precision precision);
/* How CPU ranks round an operand of a product in a recipe: "E4M3" (zpk_float8 without ZPK_); NULL: they do not. */
typedef enum zp_product_side { ZP_SIDE_VALUE, ZP_SIDE_WEIGHT, ZP_SIDE_GRADIENT, ZP_SIDES } zp_product_side;
const char *zp_precision_rounded(zp_precision precision, zp_product_side side);
/* What rows and columns of parameters of its products are multiples of; 0: there is no recipe. */
int zp_precision_multiple(zp_precision precision);
/* Does it compute in bf16 where it does not say otherwise? */
static inline bool zp_computes_bf16(zp_precision precision) {
  return precision == ZP_PREC_MIXED_BF16 || zp_precision_recipe(precision);
}
/* RELATIVE: Adafactor's own, min(1e-2, 1 / sqrt(step)), where no learning rate is written. */
typedef enum zp_lr_kind { ZP_LR_CONSTANT, ZP_LR_LINEAR, ZP_LR_COSINE, ZP_LR_WSD, ZP_LR_RELATIVE } zp_lr_kind;
typedef enum zp_data_kind {
  ZP_DATA_NONE,
  ZP_DATA_TOKENS,
  ZP_DATA_TEXT,
  ZP_DATA_SYNTHETIC,
  ZP_DATA_LINES,
  ZP_DATA_ARRAYS,    /* path: a folder with a .npy file of the name of every input */
  ZP_DATA_DOCUMENTS, /* tokens, where `end` ends a sample */
  ZP_DATA_MIX,       /* several of these by weight, all of tokens or all arrays */
} zp_data_kind;
enum { ZP_MOST_SOURCES = 16 };

/* spans(...): what T5 does with a sample (runtime/data/data_spans.c). */
typedef struct zp_span_rule {
  double rate, mean; /* rate 0: no spans are cut out */
  int64_t sentinel;  /* of the first span; -1 until the model is known: its last token */
  int64_t eos, start;
  uint64_t seed;
} zp_span_rule;

typedef struct zp_data {
  zp_data_kind kind;
  const char *path;    /* relative paths: to the folder of the .dz file (resolved by sema); globs for TOKENS */
  int64_t end;         /* DOCUMENTS: the token after each */
  const char *written; /* such a relative path as the file says it; NULL: `path` is as it was given */
  uint64_t seed;       /* of what is synthetic, or of the order */
  bool shuffled; /* order = "shuffled", by `seed`; default "sequential": sample n starts at token n * S (mod windows) */
  /* masked(...): the share of a sample's tokens that are labels, and which of them, by seed; rate 0: labels are the
   * tokens that follow. */
  double mask_rate;
  int64_t mask_token;
  uint64_t mask_seed;
  const char *mask_words; /* words = ...: WordPiece's vocabulary, relative as `path` is; NULL: not whole words */
  zp_span_rule spans;
  int n_parts; /* of a mixture, 2 to ZP_MOST_SOURCES; arena */
  struct zp_data *parts;
  double *weights;
  zp_span span;
} zp_data;

static inline bool zp_data_is_arrays(const zp_data *data) {
  return (data->kind == ZP_DATA_MIX ? data->parts[0].kind : data->kind) == ZP_DATA_ARRAYS;
}

/* Whether a group says that Muon takes its parameters. */
typedef enum zp_muon_choice { ZP_MUON_UNSAID, ZP_MUON_NO, ZP_MUON_YES } zp_muon_choice;

/* Parameters with names like the pattern, in which `*` stands for any characters and `?` for one. */
typedef struct zp_param_group {
  const char *pattern;
  double lr_factor;    /* of the learning rate */
  double weight_decay; /* instead of the optimizer's, whatever the parameter's dimensions; only where it `decays` */
  bool decays;
  zp_muon_choice muon;
  zp_span span;
} zp_param_group;

/* Names of parameters: `*` stands for any characters, `?` for one. */
typedef struct zp_name_pattern {
  const char *pattern;
  zp_span span;
} zp_name_pattern;
typedef ZP_VEC(zp_name_pattern) zp_name_patterns;

/* Where weights come from: a folder, relative to that of the .dz file as data is. Of a checkpoint of another model:
 * parameters that are drawn, and tensors that are not read. */
typedef struct zp_initial {
  const char *path;     /* NULL: all are drawn */
  const char *adapters; /* a folder of PEFT; NULL: adapters are drawn */
  zp_name_patterns drawn, unread;
  zp_span span;
} zp_initial;

/* Low-rank adapters (LoRA, arXiv 2106.09685): a product x w of a weight in `of` gets + alpha / rank dropout(x) a b.
 * They are trained, and of the model's own parameters those in zp_train.trained. */
typedef struct zp_adapt {
  int64_t rank;   /* 0: none */
  double alpha;   /* 0: as the rank, so that the product is added as it is */
  double dropout; /* rate */
  bool by_root;   /* alpha / sqrt(rank) instead (rsLoRA, arXiv 2312.03732) */
  zp_name_patterns of;
  zp_span span;
} zp_adapt;

typedef struct zp_train {
  zp_data data;
  zp_initial init; /* init = weights("FOLDER") */
  int64_t batch;   /* sequences per optimizer step, all ranks together */
  int64_t steps;   /* derived from tokens when only that was given */
  int64_t tokens;  /* as written; 0 when steps was given */
  zp_precision precision;
  /* MIXED_FP16: what gradients are multiplied by at the start, a power of two, and steps without overflow after which
   * it doubles; window 0: it stays as it is. Of other precisions 0. */
  int64_t loss_scale, scale_window;
  zp_optimizer_kind optimizer;
#define SETTING(type, name, use) type name;
#include <zplan/optimizers.def>
  double weight_decay;
  int64_t freeze_step;     /* 1-bit Adam: steps of plain Adam, as written; 0: not written, ask zp_freeze_step */
  double freeze_threshold; /* 1-bit Adam: freeze = auto(threshold = ...); 0: it freezes at zp_freeze_step */
  /* 0/1 Adam: freeze = growing(every = ..., ...), which planner/program/moves/intervals.c says; variance_every 0: not
   * that. */
  int64_t variance_every, local_after, local_doubles, local_most;
  bool decay_all;                /* decay = "all"; default "matrices": only parameters with two or more dimensions */
  ZP_VEC(zp_param_group) groups; /* a parameter is in the first that fits */
  double ema;                    /* what a step leaves of the average of the weights; 0: there is none */
  int rounds_sums; /* reduce_dtype = "bf16": sums of gradients over data ranks are rounded to leave a node; else 0 */
  int stochastic_sums; /* gradient_sums = "bf16_stochastic": a rank keeps sums of gradients over the micro-batches in
                        * bf16, every addition rounded stochastically; else 0 */
  int bf16_weights;    /* product_weights = "bf16": kept so alongside their casts to 8 or 4 bits; else 0 */
  /* delayed_update = after(40): from step 41 on an update runs on the host alongside the next step, whose gradients are
   * taken of the weights before it (arXiv 2101.06840, section 5.2). */
  bool delayed;
  int64_t delay_after; /* steps that are as ever */
#define ZP_STALENESS 1 /* updates that the weights are behind */
  /* Parameters in `frozen` are not trained, but those in `trained` are. With `trained` alone all others are frozen. */
  zp_name_patterns frozen, trained;
  zp_adapt adapt;
  zp_lr_kind schedule;
  int64_t warmup, decay_steps; /* decay_steps: WSD's last phase */
  double min_lr;
  double clip;    /* 0: no clipping */
  double dropout; /* default rate of dropout(x) without an own rate */
  uint64_t seed;
  zp_data validate_data;
  int64_t validate_every, validate_batches;  /* every 0: never */
  const char *checkpoint_dir;                /* NULL: none is named */
  int checkpoint_none;                       /* 1: `checkpoint = none`, a run keeps nothing */
  int64_t checkpoint_every, checkpoint_keep; /* every 0: only at the end */
  const char *log_path;                      /* jsonl, NULL: none */
  int64_t log_every;
  zp_span span, batch_span, precision_span, optimizer_span, schedule_span, delay_span, reduce_span, sums_span;
} zp_train;

/* bf16 keeps 8 bits of a number, so that rounding to the nearest one moves it by this share of itself at most: of every
 * node's sum that leaves the node, each element. */
#define ZP_ROUNDED_SUM_ERROR (1.0 / 256)

/* 16-bit operands, fp32 master weights. */
static inline bool zp_is_mixed(const zp_train *train) {
  return zp_precision_bytes(train->precision) < zp_precision_real_bytes(train->precision);
}

bool zp_matches_pattern(const char *pattern, const char *name);
bool zp_matches_some(const zp_name_patterns *patterns, const char *name);

/* Steps of plain Adam before 1-bit Adam freezes the variance: as written, otherwise 15 % of the steps, the share that
 * the authors of arXiv 2102.02888 took for BERT-Large, and at least one. */
static inline int64_t zp_freeze_step(const zp_train *train) {
  if (train->freeze_step > 0) return train->freeze_step;
  return train->steps * 15 / 100 > 0 ? train->steps * 15 / 100 : 1;
}

/* ---- plan constraints: for every key a set of allowed values ---- */
typedef struct zp_limit {
  bool set;          /* mentioned at all, or given a default when the file was read */
  double low, high;  /* inclusive */
  ZP_VEC(double) in; /* when not empty: one of these */
  zp_span span;
} zp_limit;

/* SELECTIVE rebuilds what is cheap for its bytes (row kernels: norms, activations); FULL rebuilds a unit from its
 * input. */
typedef enum zp_recompute { ZP_RECOMPUTE_NONE, ZP_RECOMPUTE_FULL, ZP_RECOMPUTE_SELECTIVE } zp_recompute;

/* What one pipeline stage keeps from forward to backward: a zp_recompute, and with ZP_RECOMPUTE_FULL the bit
 * ZP_STAGE_SPLIT when every tensor rank keeps its share of the unit inputs. Users write "none", "selective", "full" and
 * "full/tensor". */
typedef uint8_t zp_stage_mode;
enum {
  ZP_STAGE_SPLIT = 4,
  ZP_STAGE_MODES = ZP_STAGE_SPLIT + ZP_RECOMPUTE_FULL + 1
}; /* every mode is below the second */
static inline zp_stage_mode zp_stage_mode_of(zp_recompute recompute, bool split) {
  return (zp_stage_mode)(recompute | (split && recompute == ZP_RECOMPUTE_FULL ? ZP_STAGE_SPLIT : 0));
}
static inline zp_recompute zp_stage_mode_recompute(zp_stage_mode mode) {
  return (zp_recompute)(mode & ~ZP_STAGE_SPLIT);
}
static inline bool zp_stage_mode_split(zp_stage_mode mode) { return (mode & ZP_STAGE_SPLIT) != 0; }

/* Order of micro-batches on the stages; names as users write them. */
#define ZP_SCHEDULES(X)                                                                                                \
  X(1F1B, "1f1b")                                                                                                      \
  X(GPIPE, "gpipe")                                                                                                    \
  X(INTERLEAVED, "interleaved") /* chunks > 1 */                                                                       \
  X(ZB_H1, "zb_h1")             /* backward split into input and weight gradients */                                   \
  X(ZB_H2, "zb_h2")                                                                                                    \
  X(ZB_V, "zb_v")           /* two chunks a stage, folded back: stage s has chunks s and 2 * pipeline - 1 - s */       \
  X(DUALPIPEV, "dualpipev") /* as zb_v, forwards of one chunk beside backwards of the other */
typedef enum zp_schedule {
#define ZP_SCHEDULE_ROW(name, text) ZP_SCHEDULE_##name,
  ZP_SCHEDULES(ZP_SCHEDULE_ROW)
#undef ZP_SCHEDULE_ROW
      ZP_SCHEDULE_COUNT
} zp_schedule;
/* How ranks are numbered, and with that which of them share a node: the axis that varies fastest first. Nodes are
 * filled in order. Megatron-LM calls them tp-cp-ep-dp-pp (its default) and tp-cp-ep-pp-dp (--use-tp-pp-dp-mapping). */
#define ZP_RANK_ORDERS(X)                                                                                              \
  X(TDP, "tdp") /* tensor, data, pipeline: rank = (p * data + d) * tensor + t */                                       \
  X(TPD, "tpd") /* tensor, pipeline, data: rank = (d * pipeline + p) * tensor + t */
typedef enum zp_rank_order {
#define ZP_RANK_ORDER_ROW(name, text) ZP_ORDER_##name,
  ZP_RANK_ORDERS(ZP_RANK_ORDER_ROW)
#undef ZP_RANK_ORDER_ROW
      ZP_ORDER_COUNT
} zp_rank_order;
const char *zp_rank_order_name(zp_rank_order order);
/* ZP_ORDER_COUNT when unknown. */
zp_rank_order zp_rank_order_by_name(const char *name);
/* In which order ranks fill nodes of several types: as they are written, or as is best. */
typedef enum zp_node_order { ZP_NODES_WRITTEN, ZP_NODES_ANY } zp_node_order;
const char *zp_recompute_name(zp_recompute recompute); /* "none", "full", "selective" */
const char *zp_stage_mode_name(zp_stage_mode mode);
/* False when no mode has that name. */
bool zp_stage_mode_by_name(const char *name, zp_stage_mode *mode);
const char *zp_schedule_name(zp_schedule schedule);
/* ZP_SCHEDULE_COUNT when unknown. */
zp_schedule zp_schedule_by_name(const char *name);

/* Where a class of state lives. */
typedef enum zp_tier { ZP_TIER_DEVICE, ZP_TIER_HOST, ZP_TIER_NVME } zp_tier;
typedef enum zp_state {
  ZP_STATE_OPTIMIZER,
  ZP_STATE_GRADIENTS,
  ZP_STATE_PARAMS,
  ZP_STATE_ACTIVATIONS,
  ZP_STATE_COUNT
} zp_state;

/* Memory that a search may hold unless the plan block or --search-memory says otherwise. */
#define ZP_SEARCH_MEMORY (INT64_C(2) << 30)

/* What makes one number of devices, or one machine, better than another. With one machine and one number of devices
 * both objectives choose the same plan: all devices are paid for, in use or not. */
typedef enum zp_objective { ZP_MINIMIZE_STEP_TIME, ZP_MINIMIZE_COST } zp_objective;

/* What a buyer asks of a whole training. */
typedef struct zp_terms {
  zp_objective objective;
  double deadline_s; /* from the first step to the last; 0: none */
  double budget;     /* dollars; 0: none */
  zp_span objective_span, deadline_span, budget_span;
} zp_terms;

typedef struct zp_constraints {
  const char *name; /* of the plan block, NULL for the unnamed one */
  zp_limit tensor, pipeline, data, zero, microbatch;
  zp_limit loss_chunks;     /* equal parts of a micro-batch's tokens that the loss is made by */
  zp_limit idle;            /* devices that are left out; unset: any number of them */
  zp_limit expert;          /* data ranks that share the experts of a tensor rank; unset: all that divide them */
  zp_limit context;         /* data ranks that share the positions of every sample; unset: 1 */
  zp_limit context_by;      /* what they exchange for attention: values of zp_context_by; unset: all */
  zp_limit shard;           /* data ranks that divide the state of ZeRO 1 to 3, of ZeRO 0 one; unset: all */
  zp_limit hpz;             /* data ranks that divide a second copy of ZeRO 3's parameters; unset, 1: there is none */
  zp_limit recompute;       /* values of zp_recompute; names none, selective/attention, layer/full; "auto" = all */
  zp_limit recompute_shard; /* 0 none, 1 tensor */
  ZP_VEC(zp_stage_mode) stage_recompute; /* pinned mode of every stage, `pipeline` then is their number; empty: free */
  zp_span stage_recompute_span;
  /* Layers of a stage that recompute, the first ones of every chunk: of every stage, or one number for all; empty: all
   * layers. Of the others `recompute_rest` says what they recompute: none, selective; unset: none. */
  ZP_VEC(int64_t) recompute_layers;
  bool recompute_layers_listed; /* of every stage: `pipeline` then is their number */
  zp_span recompute_layers_span;
  zp_limit recompute_rest;
  zp_limit schedule; /* values of zp_schedule */
  zp_limit chunks;   /* interleaving: model chunks a stage */
  zp_limit sequence; /* 0, 1: norms and residuals split over the tensor ranks along the sequence; default: free,
                      * 0 on CPU clusters */
  zp_limit offload[ZP_STATE_COUNT]; /* values of zp_tier: where the offloaded share may go; unset: device only */
  zp_limit cut;                     /* 0 between layers, 1 also inside them (pieces.h); unset: both */
  zp_limit compress;                /* 0, 1: 1-bit compressed data-parallel communication; unset: 0 */
  zp_limit rank_order;              /* values of zp_rank_order */
  zp_limit node_order;              /* values of zp_node_order; unset: both */
  double robust;                    /* a less exposed plan may be slower by this share; 0: the fastest is wanted */
  double search_gap;                /* the search may stop when no plan is faster by more than this share */
  int64_t search_memory;            /* bytes that the search may hold; 0: ZP_SEARCH_MEMORY */
  double memory_fraction;           /* of device memory the arena + context may use; default 0.94, CPU 0.8 */
  zp_terms terms;
  /* Pinned layers of every stage, of several chunks a stage of every chunk in the model's order; empty: free. What is
   * no layer goes with the layer after it, and after the last one with that. */
  ZP_VEC(int64_t) cut_layers;
  zp_span cut_layers_span;
  const char *program; /* `for`: the program that the plan is for, in the words of --for; NULL: not written */
  zp_span program_span;
  zp_span span;
} zp_constraints;

/* ---- one run ---- */
enum { ZP_MOST_RANKS = 1 << 20 }; /* the largest plans that are made */
typedef struct zp_source_text {
  const char *path, *text;
  size_t len;
  bool is_absolute; /* what `use` names from the root: it stands there wherever the others are moved */
} zp_source_text;
typedef struct zp_spec {
  struct zp_model *model; /* <zplan/model.h> */
  struct zp_model *base; /* as it is written, where `model` has adapters: parameters have the same indices; else NULL */
  zp_cluster cluster;
  zp_train train;
  ZP_VEC(zp_constraints) plans;   /* at least one; the unnamed or first is the default */
  int plan;                       /* chosen index */
  ZP_VEC(zp_source_text) sources; /* the .dz file first, then the files it uses (library files excluded) */
  const char *path;               /* of the .dz file, as given */
  zp_strings
      options; /* command-line words that shaped it ("--gpus", "800", "--set", "tensor=8"): kept in the plan file */
} zp_spec;

/* The model without adapters. */
static inline struct zp_model *zp_spec_base(const zp_spec *spec) { return spec->base ? spec->base : spec->model; }
/* Does the limit allow the value? Unset limits allow everything. */
bool zp_limit_allows(const zp_limit *limit, double value);
/* The limit of a class of state (zp_constraints.offload): may it leave the device? */
bool zp_limit_leaves_device(const zp_limit *limit);
/* Does every plan use all devices of the cluster? Where `idle` is not written: CPU ranks share what their node has, so
 * those that are asked for are all started. */
bool zp_uses_all_devices(const zp_constraints *constraints, const zp_cluster *cluster);

#endif
