/* SPDX-License-Identifier: Apache-2.0 */
/* Private to the import of launches: what a launch of any program says, and the .dz file of it. */
#ifndef ZPLAN_LAUNCH_H
#define ZPLAN_LAUNCH_H

#include <zplan/buf.h>
#include <zplan/import.h>

typedef enum launch_activation { LAUNCH_GELU_TANH, LAUNCH_GELU, LAUNCH_SQUARED_RELU, LAUNCH_SWIGLU } launch_activation;

/* A decoder: x + attention(norm(x)), then x + mlp(norm(x)), a norm and a head. layers 0: the model is given as text. */
typedef struct launch_model {
  const char *name;
  int64_t layers, hidden, ff, heads, kv_heads, head, vocabulary, sequence;
  int64_t positions; /* rows of a learned table; 0: rotary */
  bool no_positions;
  double theta;
  bool interleaved, rms_norm, tied, qkv_bias, bias, qk_norm;
  launch_activation activation;
  double eps, std, residual_std, table_std, attention_dropout;
  bool dropout;                                 /* there are dropouts; their rate is train's */
  int64_t experts, top_k, expert_ff, shared_ff; /* experts 0: none */
  double capacity, balance;                     /* capacity 0: no token is dropped */
  bool normalize, sigmoid;
} launch_model;

/* A setting or a limit as it is written, and where the launch says so. */
typedef struct launch_line {
  const char *key, *value, *from; /* from: "--tensor-model-parallel-size 8"; NULL: nothing to say */
  bool permits;                   /* `in`: the value is a list of what may be */
} launch_line;
typedef ZP_VEC(launch_line) launch_lines;

typedef struct launch {
  zp_arena *arena;
  zp_diags *diags;
  const char *path, *program; /* "Megatron-LM" */
  const char *word;           /* of --for: "megatron" */
  int errors_before;
  zp_imported *result; /* its notes */
  launch_model model;
  const char *model_text; /* a .dz text whose model is trained; NULL: `model` */
  launch_lines train, pins;
  int64_t gpus; /* 0: not said */
  const char *gpus_from;
  const zp_launch_words *words;
} launch;

/* ---- launch.c ---- */
launch launch_begin(zp_arena *arena, zp_diags *diags, const char *path, const char *program, const char *word,
                    const zp_launch_words *words);
/* The .dz file of what has been read; NULL if an error was reported. */
zp_imported *launch_end(launch *l);
/* What cannot be read or contradicts itself (Z0688). A format and its values follow. */
#define launch_complain(l, at, ...) zp_report((l)->diags, ZP_Z0688, at, __VA_ARGS__)
/* What the language or a plan does not have (Z0689). */
#define launch_refuse(l, at, ...) zp_report((l)->diags, ZP_Z0689, at, __VA_ARGS__)
void launch_note(launch *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool launch_is_sound(const launch *l);
void launch_pin(launch *l, const char *key, const char *value, const char *from);
void launch_permit(launch *l, const char *key, const char *values, const char *from);
void launch_pin_int(launch *l, const char *key, int64_t value, const char *from);
void launch_set(launch *l, const char *key, const char *value, const char *from);
int64_t launch_layers(const launch *l); /* of the model that the command line names; 0: it names none */
/* Layers of every chunk of the model, in its order. */
void launch_pin_cut(launch *l, const int64_t *layers, int64_t chunks, const char *from);
/* The product of numbers from 0 on; INT64_MAX if it is larger. */
int64_t launch_times(int64_t a, int64_t b);
/* Shortest text that is the same double again, with a point or an exponent. Arena. */
const char *launch_number(zp_arena *arena, double value);
/* Is it among the words, which blanks divide? */
bool launch_among(const char *words, const char *word);
/* A file's name as a name of the language: "train_gpt3-175b.sh" is train_gpt3_175b. */
const char *launch_name(zp_arena *arena, const char *path);
/* Whole numbers and degrees that every program has: data ranks, batch. model_ranks: ranks of one copy of the model. On
 * success pins data and microbatch, and sets train.batch. batch 0: one micro-batch a data rank. */
bool launch_batch(launch *l, int64_t model_ranks, const char *model_ranks_from, int64_t micro, const char *micro_from,
                  int64_t batch, const char *batch_from, zp_span batch_at);

/* ---- launch_model.c, launch_write.c ---- */
void launch_put_model(zp_buf *out, const launch_model *model);
void launch_write(launch *l);

#endif
