/* SPDX-License-Identifier: Apache-2.0 */
/* Private to exchange/export: a model as the fields of a GPT, the arguments of Megatron-LM as a table, and what all
 * formats share. */
#ifndef ZPLAN_EXPORT_INTERNAL_H
#define ZPLAN_EXPORT_INTERNAL_H

#include <zplan/buf.h>
#include <zplan/export.h>
#include <zplan/software.h>

/* ---- export.c: one export in the making ---- */
typedef struct zp_exporter {
  zp_arena *arena;
  const zp_plan *plan;
  const zp_spec *spec;
  const zp_choice *choice;
  const char *name;    /* of the file */
  const char *word;    /* of the command line: "megatron" */
  const char *program; /* "Megatron-LM", for messages */
  zp_export *result;
} zp_exporter;

/* help may be NULL. */
void zp_export_refuse(zp_exporter *e, const char *help, const char *format, ...) __attribute__((format(printf, 3, 4)));
void zp_export_note(zp_exporter *e, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* What every program but a batch script lacks: CPU devices, fp64, cuts inside layers,
 * rounded sums of gradients, delayed updates, averages of weights, several node types. */
void zp_export_check_common(zp_exporter *e);
/* Are parameters, gradients and optimizer state all on the host? For programs that move all of these or nothing, so
 * another placement is refused. who: the subject with its verb, "torchtitan offloads". */
bool zp_export_offloads_state(zp_exporter *e, const char *who);
/* For programs that run 1F1B and interleaved: notes schedules that become 1F1B, refuses folded stages. The others do
 * the same additions in another order of micro-batches. */
void zp_export_check_schedule(zp_exporter *e);
void zp_export_check_loss(zp_exporter *e); /* notes a loss in chunks, for programs that make it at once */
/* The strongest mode of all stages; a note when they differ. */
zp_recompute zp_export_recompute(zp_exporter *e);
/* "tensor 8 x pipeline 100 (3 chunks) x data 1, ZeRO 0, micro-batch 1". Arena. */
const char *zp_export_headline(const zp_exporter *e);
/* Text as comment lines of at most 118 columns, each after "# ". */
void zp_export_comment(zp_buf *out, const char *text);
/* The comment on top: model, decisions, estimates. program: with its version. */
void zp_export_title(zp_buf *out, const zp_exporter *e, const char *program);
/* That of a shell file, which says how to read it. version: after the program's name, " 0.3.0". */
void zp_export_head(zp_buf *out, const zp_exporter *e, const char *version);
void zp_export_differences(zp_buf *out, const zp_exporter *e); /* the notes so far as a comment; none: nothing */
/* Bytes of an element of summed gradients in the plan. */
int zp_export_grad_bytes(const zp_exporter *e);
int64_t zp_export_accumulation(const zp_exporter *e);
/* Shortest text that is the same double again. Arena. */
const char *zp_export_number(zp_arena *arena, double value);

void zp_export_megatron(zp_exporter *e);
void zp_export_bridge(zp_exporter *e);
void zp_export_deepspeed(zp_exporter *e);
void zp_export_torchtitan(zp_exporter *e);
void zp_export_fsdp2(zp_exporter *e);
void zp_export_slurm(zp_exporter *e);

/* ---- hf_encoders.c ---- */
/* config.json of the BERT or T5 that the model may be: its sizes, read off single operations. That it is that model is
 * proven elsewhere, by matching. The caller's to free. NULL: it is neither. */
struct zp_json *zp_export_encoder_config(const zp_model *model);

/* ---- gpt_model.c, gpt_layer.c: the model as a GPT ---- */
typedef enum zp_gpt_activation { ZP_GPT_GELU_TANH, ZP_GPT_GELU_ERF, ZP_GPT_RELU, ZP_GPT_SWIGLU } zp_gpt_activation;

/* Tables are the embeddings and the head; residual matrices those whose products are added to x. */
typedef enum zp_gpt_matrix { ZP_GPT_TABLE, ZP_GPT_INNER, ZP_GPT_RESIDUAL } zp_gpt_matrix;

/* A decoder of equal layers, x + attention(norm(x)), then x + mlp(norm(x)), between an embedding and a norm with a
 * head. What differs between layers of the same kind (biases, deviations of initial values) is kept apart. */
typedef struct zp_gpt {
  int64_t layers, hidden, heads, kv_heads, head_size, ff, vocabulary, sequence;
  bool rms_norm;
  double norm_eps;
  bool rope, rope_interleaved;
  double theta;
  int64_t positions; /* rows of a learned table; 0: none */
  bool qkv_bias, proj_bias, mlp_bias, tied;
  zp_gpt_activation activation;
  double dropout, attention_dropout;
  const zp_node *documents; /* an attention that keeps to documents of a sample; NULL: none does */
  int64_t experts, top_k;   /* 0: no experts */
  int64_t slots;            /* of an expert for one sample */
  double capacity, balance;
  bool normalize;
  int expert_param; /* model parameter: a matrix of experts; -1 */
  double std[3];    /* of initial values, by zp_gpt_matrix */
  bool one_std;     /* matrices of a kind begin alike */
} zp_gpt;

/* What was met that a GPT does not have. */
typedef struct zp_gpt_reader {
  zp_arena *arena;
  const zp_model *model;
  const zp_graph *graph;
  zp_gpt *gpt;
  const char *reason; /* NULL: none */
  zp_span span;
  bool seen_norm, seen_dropout, seen_rope; /* the first of them has set the fields */
} zp_gpt_reader;

/* NULL with *reason and *span when the model is no GPT. */
const zp_gpt *zp_gpt_recognise(zp_arena *arena, const zp_model *model, const char **reason, zp_span *span);

/* Matchers; false after setting reader->reason. Tensors are indices in reader->graph. */
bool zp_gpt_stop(zp_gpt_reader *r, zp_span span, const char *format, ...) __attribute__((format(printf, 3, 4)));
const zp_node *zp_gpt_node(const zp_gpt_reader *r, int tensor); /* that made it (a view: its base); NULL: none */
bool zp_gpt_match_norm(zp_gpt_reader *r, int tensor, int *x);
/* Strips a dropout and notes its rate. */
bool zp_gpt_match_dropout(zp_gpt_reader *r, int tensor, int *x);
typedef struct zp_gpt_linear {
  int x, param; /* param: of the model */
  bool bias;
  int64_t out;
  zp_span span;
} zp_gpt_linear;
bool zp_gpt_match_linear(zp_gpt_reader *r, int tensor, zp_gpt_linear *linear);
bool zp_gpt_note_std(zp_gpt_reader *r, int param, zp_gpt_matrix kind);
bool zp_gpt_match_layer(zp_gpt_reader *r);                                   /* gpt_layer.c */
bool zp_gpt_match_experts(zp_gpt_reader *r, const zp_node *combine, int *x); /* gpt_experts.c */

#endif
