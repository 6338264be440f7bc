/* Private to frontend/import: a Hugging Face configuration, read and written. */
#ifndef ZPLAN_HF_H
#define ZPLAN_HF_H

#include <zplan/buf.h>
#include <zplan/import.h>
#include <zplan/json.h>

typedef enum hf_layers {
  HF_GPT2,
  HF_NEOX,
  HF_LLAMA,
  HF_DEEPSEEK,
  HF_BERT,
  HF_T5,
  HF_VIT,
  HF_GEMMA
} hf_layers; /* which blocks are written */
/* What stands on the layers, of families whose checkpoints come with several heads. */
enum { HF_BERT_MASKED, HF_BERT_PRETRAINING, HF_BERT_QUESTIONS, HF_BERT_HEADS };
enum { HF_T5_TIED, HF_T5_UNTIED, HF_T5_HEADS };
enum { HF_VIT_PIXELS, HF_VIT_PATCHES, HF_VIT_INPUTS }; /* and what stands below */
/* Layers with and without a window, and one kind of layer for samples that no window cuts. */
enum { HF_BY_WINDOW, HF_ALIKE, HF_ALIKE_VARIANTS };

/* What the families have in common. */
typedef struct hf_model {
  const char *type; /* "llama": also the name of the model */
  hf_layers layers_are;
  int64_t vocabulary, positions, hidden, layers, heads, kv_heads, head_size, ff;
  double eps, theta, std;
  bool qkv_bias, proj_bias, mlp_bias, tied, parallel;
  bool qk_norm;           /* queries and keys are normalised head by head */
  int64_t rotary;         /* GPT-NeoX, DeepSeek: so many columns of a head turn; 0: all */
  const char *activation; /* an expression over `x`: "gelu(x, approximate = \"tanh\")"; NULL: SwiGLU */
  double embedding_dropout, dropout;
  int64_t experts, top_k; /* 0: none */
  double balance;
  int64_t window;      /* positions that attention sees; 0: all */
  int64_t full_layers; /* so many layers in front see all positions nevertheless */
  int64_t longest;     /* samples for which what is written is the model; 0: any */
  int head, n_heads;   /* of those above; n_heads 1: the family has one */
  int64_t types;       /* BERT: rows of the table of token types */
  /* DeepSeek: columns that queries, and keys with values, go through; those of a head that do not turn, and of values;
   * dense layers in front; groups of experts, of which a token sees some; experts that all see; the others' factor */
  int64_t q_rank, kv_rank, nope, value, dense, groups, top_groups, shared, expert_ff;
  double scale;
  /* T5 */
  int64_t decoder_layers, buckets, max_distance;
  bool gated, scaled;                      /* gelus with gates; logits times 1 / sqrt(hidden) */
  int64_t image, patch, channels, classes; /* ViT: squares of so many pixels a side */
  /* Gemma: layers of a group, and which of them see all positions, the others a window with its own frequencies. */
  int64_t group, local_window;
  bool full[16];
  double local_theta, query_scalar, score_cap, logit_cap; /* caps 0: none */
} hf_model;

/* Parameter "layer.{}.dense" here, tensor "encoder.layer.{}.output.dense" there; {} is the number of the layer. */
typedef struct hf_name {
  const char *ours, *theirs;
} hf_name;

typedef struct hf_reader {
  zp_arena *arena;
  zp_diags *diags;
  const zp_json *root;
  int file;
  zp_strings used; /* keys that were asked for */
  int errors_before;
  bool for_weights; /* the forward pass alone counts: the user's own model says what is trained, and on which head */
  zp_imported *result;
  hf_model *model;
} hf_reader;

/* ---- hf_fields.c: fields by name; what is wrong is reported, and something harmless returned. null is no number and
 * no word: transformers computes with it, and does not take its default. As a flag it is false. */
/* missing < 0: the field must be there. Between 1 and `most`. */
int64_t hf_size(hf_reader *r, const char *key, int64_t missing, int64_t most);
/* `none` where the field is missing or null: of classes that replace None. */
int64_t hf_size_or_null(hf_reader *r, const char *key, int64_t none, int64_t most);
double hf_real(hf_reader *r, const char *key, double missing, double low, double high);
bool hf_flag(hf_reader *r, const char *key, bool missing);
const char *hf_word(hf_reader *r, const char *key, const char *missing); /* missing NULL: must be there */
const zp_json *hf_value(hf_reader *r, const char *key);                  /* NULL: absent or null */
bool hf_is_null(hf_reader *r, const char *key);                          /* there, and null */
/* Z0684 at the field. */
void hf_refuse(hf_reader *r, const char *key, const char *help, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void hf_note(hf_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool hf_is_used(const hf_reader *r, const char *key);           /* somebody asked for it */
const char *hf_shown(const hf_reader *r, const zp_json *value); /* its text, cut to a few words; arena */
/* Nothing was reported yet: what fields say together is looked at where each is sound by itself. */
bool hf_is_sound(const hf_reader *r);
/* hf_keys.c: false after refusing the file of a model that this type is a part of. */
bool hf_is_whole(hf_reader *r);
/* hf_keys.c: every key that nobody asked for changes nothing, is named in a note, or is refused. */
void hf_look_at_others(hf_reader *r);
/* Where a key stands in the file. */
zp_span hf_place(const hf_reader *r, const char *key);

/* ---- hf_families.c ---- */
/* False after reporting an unknown or missing model_type. */
bool hf_read_model(hf_reader *r);

/* What fields of several families mean. */
enum { HF_MOST_WIDTH = 1 << 24, HF_MOST_LAYERS = 100000, HF_MOST_EXPERTS = 1024, HF_MOST_TOP_K = 16 };
void hf_read_activation(hf_reader *r, const char *key, const char *usual);
void hf_note_attention_dropout(hf_reader *r, const char *key, double usual);
void hf_check_heads(hf_reader *r, const char *heads_key);
void hf_check_head_size(hf_reader *r); /* `head_dim` of families whose heads make up the hidden size */
/* rope_scaling of today's files; rope_parameters of newer ones, which hold theta too. */
void hf_read_rope(hf_reader *r, double usual);
/* Theta of such an object, the value of `key` or a part of it; `usual` where it is NULL or has none. */
double hf_rope_theta(hf_reader *r, const char *key, const zp_json *rope, double usual);
/* Sizes, activation and dropouts under the names of encoders, with BERT-Base's for defaults but `dropout`. */
void hf_read_encoder(hf_reader *r, double dropout);

/* ---- hf_deepseek.c ---- */
void hf_read_deepseek(hf_reader *r); /* what LLaMA has not; its heads are of sizes of their own */
void hf_write_deepseek(zp_buf *out, const hf_model *m);
/* A parameter of the text as the checkpoints number and call it, without the prefix; matrices of all experts: of one.
 * Arena. */
const char *hf_deepseek_name(zp_arena *arena, const hf_model *m, const char *name);

/* ---- hf_bert.c ---- */
void hf_read_bert(hf_reader *r);
void hf_write_bert(zp_buf *out, const hf_model *m); /* blocks and model */
extern const hf_name hf_bert_names[];               /* ends with NULL */
extern const char *const hf_bert_classes[HF_BERT_HEADS];

/* ---- hf_t5.c ---- */
void hf_read_t5(hf_reader *r);
void hf_write_t5(zp_buf *out, const hf_model *m);
extern const hf_name hf_t5_names[];

/* ---- hf_vit.c ---- */
void hf_read_vit(hf_reader *r);
void hf_write_vit(zp_buf *out, const hf_model *m);
void hf_shape_of_vit(const hf_model *m,
                     zp_hf_part *part); /* a matrix that stands in checkpoints with more dimensions */
extern const hf_name hf_vit_names[];

/* ---- hf_gemma.c ---- */
void hf_read_gemma2(hf_reader *r);
void hf_read_gemma3(hf_reader *r);
void hf_write_gemma(zp_buf *out, const hf_model *m);
/* The tensor of a parameter. Arena. */
const char *hf_gemma_name(zp_arena *arena, const hf_model *m, const char *name);

/* ---- hf_write.c, hf_blocks.c ---- */
int64_t hf_sample(const hf_model *m);                                        /* positions of a sample that is written */
const char *hf_dropped(const zp_buf *out, const hf_model *m, const char *x); /* "dropout(x)" */
/* ", bias = false, std = 0.01": what differs from the defaults of std.nn's linear. */
const char *hf_linear_options(const zp_buf *out, const hf_model *m, bool bias);
/* The activation with `argument` in the place of its x. */
const char *hf_activation_of(const zp_buf *out, const hf_model *m, const char *argument);
const char *hf_write(zp_arena *arena, const hf_model *m);
void hf_write_blocks(zp_buf *out, const hf_model *m);
/* Shortest text that is the same double again, as the language writes it. Arena. */
const char *hf_number(zp_arena *arena, double value);

#endif
