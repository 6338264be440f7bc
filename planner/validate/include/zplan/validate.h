/* SPDX-License-Identifier: Apache-2.0 */
/* Validation: tables of measured training runs, read, predicted with the planner's own cost model, and scored.
 *
 * A table's header says what kind it is: our own columns (docs/reference/runs.md), vTrain's, or those of the tables
 * that Megatron-Bridge, AutoModel and SimuMax publish. Units are those of the columns. */
#ifndef ZPLAN_VALIDATE_H
#define ZPLAN_VALIDATE_H

#include <zplan/page.h>
#include <zplan/plan_file.h>
#include <zplan/software.h>

/* The model of a run, as far as it is said. 0 or NULL: it is not. */
typedef struct zp_run_shape {
  int64_t layers, hidden, heads, kv_heads, head, ffn, vocab; /* head: columns of one; 0: hidden / heads */
  int64_t experts, top_k, expert_ffn, shared_experts, dense_layers;
  int64_t expert_groups, top_groups;                /* a token's experts lie in so many groups; 0: in any */
  int64_t q_rank, kv_rank, rotary_head, value_head; /* latent attention: `head` columns, so many of them rotary */
  int64_t further; /* tokens after the next that the model predicts, each by a layer of its own */
  int64_t window;  /* of every second layer; 0: none */
  bool head_norms; /* of queries and keys */
  bool expert_biases;
  bool clamped;       /* experts' gates have bounds, and rotary positions a scale: YaRN's */
  bool gated, rotary; /* SwiGLU or GeGLU: three MLP matrices; no learned positions */
  const char *unlike; /* why no graph stands for the model; NULL: one does */
} zp_run_shape;

/* One measured run. 0, -1 or NULL: the cell is empty. */
typedef struct zp_measured {
  int line; /* of the table, 1-based */
  const char *id, *family, *source, *model, *gpu, *notes;
  int year;
  const char *program, *version; /* that ran it, where a column says so */
  zp_run_shape shape;
  int64_t seq;
  bool flex_attention; /* by PyTorch's FlexAttention */
  const char *kernels; /* as AutoModel's table names them */
  double parameters;
  double gpu_memory_gb; /* where the GPU's name does not say */
  int gpus_per_node;
  double intra_bytes_per_s, inter_bytes_per_s; /* per GPU and direction; line rates */
  double collective_bytes_per_s;               /* measured bus bandwidth of collectives over nodes, per GPU */
  double collective_share; /* the same as a share of the line rate's payload, as a fabric's `collectives` */
  int gpus, tensor, pipeline, data, context, expert, chunks;
  int shard; /* data ranks over which ZeRO shards, where those are not all; 0: all */
  int64_t microbatch, batch;
  bool adapters; /* LoRA: only these are trained */
  int64_t lora_rank;
  const char *lora_of;    /* "qkv", "all": the products with adapters */
  const char *dispatcher; /* of tokens to experts: "alltoall", "deepep", "hybridep" */
  const char *graphs;     /* CUDA graphs: "none", "gates", "parts": all but experts, "whole" */
  bool hides_exchange;    /* of experts, alongside another micro-batch */
  bool one_kernel;        /* the products of all experts are one */
  bool narrow_attention;  /* attention in 8 bits */
  const char *again;      /* modules that backward computes again, by Megatron-Core's names: "mla_up_proj mlp" */
  bool experts_in_a_row;  /* of a token, as some gates of benchmarks choose; else at random */
  int flushes;            /* times that the pipeline is emptied before the update; 0: once */
  bool lays_out;          /* its stages may have unequal layers: a layout by hand, tables as layers */
  double tokens_per_s;    /* of one GPU */
  const char *precision, *offload;
  int zero;              /* -1: unknown */
  const char *recompute; /* "full", "selective", "none" */
  bool compiled;         /* through torch.compile, it says */
  bool interleaved;      /* the notes say so, whether or not they give the chunks */
  bool serial;           /* no collective overlaps a computation, they say */
  bool sequence_said;
  bool sequence, partitions; /* saved inputs are split over the tensor ranks (activation partitioning) */
  double tflops, step_s, memory_bytes;
  bool memory_reserved; /* what the allocator held, whatever was in use: an upper bound, not a peak */
  bool tflops_hardware; /* the printed TFLOP/s counts recomputation */
  int fits;             /* 1, 0; -1: nothing is claimed */
} zp_measured;

typedef struct zp_measured_table {
  ZP_VEC(zp_measured) runs;
  zp_strings malformed; /* one line each: "line 7: layers is `x`, not a number" */
  zp_strings ignored;   /* columns of no known name, one line each */
} zp_measured_table;
/* Reads CSV text. `name`: the file's name without folder and suffix, the family of vTrain's rows. NULL with *error when
 * the header is none that is known. */
zp_measured_table *zp_measured_read(zp_arena *arena, const char *text, size_t len, const char *name,
                                    const char **error);

/* A column of our own tables, as docs/reference/runs.md has it. */
typedef struct zp_run_column {
  const char *title, *type, *range, *holds;
  bool required;
} zp_run_column;
int zp_run_column_count(void);
zp_run_column zp_run_column_at(zp_arena *arena, int index);

/* What rows need of the library. device: that of the name ("a100_80"), NULL when it has none. model: of the text of a
 * .dz file, with the library's blocks; NULL when it is not sound. */
typedef struct zp_run_library {
  const zp_device *(*device)(void *user, const char *name);
  zp_model *(*model)(void *user, const char *text);
  void *user;
} zp_run_library;

/* A column that a row leaves open, and what was taken for it. */
typedef struct zp_open_column {
  const char *column, *taken;
} zp_open_column;

typedef struct zp_prediction {
  const zp_measured *run;
  bool predicted;
  const char *why_not;         /* not predicted: the reason */
  const char *assumed;         /* what the row did not say and was taken, in words; NULL: nothing */
  ZP_VEC(zp_open_column) open; /* the same and what has a usual value, column by column */
  const char *device;          /* name in the library */
  int nodes;
  const char *software; /* name of the profile */
  bool by_source;       /* which the row's source or its notes name; else its year was asked */
  zp_choice choice;
  zp_estimate estimate;
  double measured_s;  /* 0: the row has no speed */
  double error;       /* predicted / measured - 1; 0 without a speed */
  int64_t peak_bytes; /* in the row's counting: of the device, or of the framework's allocator */
  bool fits;
  bool fit_open; /* not decidable from what is published: no shape; or said not to fit, and another micro-batch would */
} zp_prediction;
zp_prediction zp_predict_run(zp_arena *arena, const zp_measured_table *table, const zp_measured *run,
                             const zp_run_library *library);

/* Errors in percent of the measured value; max_error_pct keeps its sign. Kendall's tau-b is over measured and predicted
 * step times, NAN for fewer than two rows. */
typedef struct zp_family_score {
  const char *name;
  int n, memory_n;
  double mean_abs_error_pct, bias_pct, max_error_pct, kendall_tau, memory_mean_abs_error_pct;
  int fit_agree, fit_total; /* runs and claims whose fit is decidable */
  int fit_open;             /* those whose fit is not */
} zp_family_score;
/* How many rows leave a column open. */
typedef struct zp_open_count {
  const char *column;
  int rows;
} zp_open_count;

/* How many rows a reason keeps from being predicted. */
typedef struct zp_left_out {
  const char *why;
  int rows;
} zp_left_out;

typedef struct zp_validation {
  ZP_VEC(zp_prediction) rows;
  ZP_VEC(zp_family_score) families;
  ZP_VEC(zp_open_count) open;
  ZP_VEC(zp_left_out) left_out;
} zp_validation;
/* Scores the rows; families, open columns and reasons in order of first appearance. */
void zp_validation_score(zp_arena *arena, zp_validation *validation);
/* tau-b of two rankings; NAN when one of them is constant. */
double zp_kendall_tau(const double *x, const double *y, int n);

/* A table of families, what was assumed and what was not predicted. */
void zp_validation_show(zp_page *page, const zp_validation *validation);
zp_json *zp_validation_json(const zp_validation *validation);

#endif
