/* SPDX-License-Identifier: Apache-2.0 */
/* Private to exchange/import: a Hugging Face configuration, read and written. A family is a list of rows that say what
 * every field means (hf_rows.c), a template of a .dz file (families/NAME.dz.in, hf_template.c), and a table of the
 * names of tensors (hf_names.c). What rows read are values with names, of which all three are made. */
#ifndef ZPLAN_HF_H
#define ZPLAN_HF_H

#include <zplan/buf.h>
#include <zplan/import.h>
#include <zplan/json.h>

/* ---- values: what a configuration says, by name ---- */

typedef enum hf_value_kind {
  HF_POISON, /* of a field that was reported: what is computed of it is poison as well, and checks of it are silent */
  HF_INT,
  HF_FLOAT,
  HF_TEXT
} hf_value_kind;
typedef struct hf_value {
  hf_value_kind kind;
  int64_t n;        /* HF_INT; flags are 0 and 1 */
  double x;         /* HF_FLOAT */
  const char *text; /* HF_TEXT */
} hf_value;

typedef struct hf_named {
  const char *name;
  hf_value value;
} hf_named;

enum { HF_MOST_CLASSES = 4, HF_MOST_ROWS = 10, HF_MOST_TIES = 4 };
typedef struct hf_model {
  const struct hf_family *family;
  ZP_VEC(hf_named) values;
  bool tied[HF_MOST_TIES]; /* of the family's */
} hf_model;

/* Where an expression stands. */
typedef struct hf_scope {
  zp_arena *arena;
  const hf_model *model;
  const zp_json *root;  /* of given(key); NULL: nothing is given */
  int64_t i, j, expert; /* numbers of layers, loops and experts under these names */
  bool in_loop;         /* then "full" is "full.3" where i is 3 and there is such a value */
  bool for_people;      /* reals as messages have them: 1e-05, not 1e-5 */
} hf_scope;

/* The last one that was set counts. */
void hf_set(zp_arena *arena, hf_model *m, const char *name, hf_value value);
void hf_set_int(zp_arena *arena, hf_model *m, const char *name, int64_t n);
void hf_set_real(zp_arena *arena, hf_model *m, const char *name, double x);
void hf_set_text(zp_arena *arena, hf_model *m, const char *name, const char *text);
int64_t hf_int(const hf_model *m, const char *name); /* poison, or not set: 0 */
double hf_real(const hf_model *m, const char *name);
const char *hf_model_name(const hf_model *m); /* as its text has it */
bool hf_is_poison(const hf_model *m, const char *name);

/* hf_expression.c: "layers - dense", "gated ? 'relu' : act", "heads % kv_heads != 0 & !given(head_dim)": numbers,
 * 'texts', names, given(key), ! * / % + - < > <= >= == != & | and ? :, with / of whole numbers rounded down. Names must
 * be set. */
hf_value hf_evaluate(const hf_scope *scope, const char *expression);
bool hf_holds(const hf_scope *scope, const char *expression); /* NULL: yes; poison: no */

/* ---- families ---- */

typedef enum hf_row_kind {
  HF_END,
  /* Fields: checked, and set under a name. A field that is missing is what `missing` says, NULL: it must be there; that
   * is null what `null` says, NULL: it must not be. */
  HF_SIZE,       /* a whole number from low to high */
  HF_REAL,       /* a number from low to high */
  HF_FLAG,       /* null is false by itself */
  HF_WORD,       /* a text */
  HF_ACTIVATION, /* a word for an operation: `act` and `act_end` are what stands before and after its argument */
  /* What fields say together. */
  HF_LET,     /* `to` is the value of `missing` */
  HF_CALL,    /* a function reads it */
  HF_WRONG,   /* Z0683 with `text` at the key where `when` holds */
  HF_REFUSED, /* Z0684 likewise */
  HF_TELL,    /* a note likewise, with no place */
  /* Keys that nothing asked for. */
  HF_NOTHING, /* changes no logits and no parameters; several keys with spaces between */
  HF_NOTED,   /* the same, and a note says so: `text` after the key */
  HF_ONLY,    /* refused with `text` unless it is `missing`, as JSON */
  HF_SAME     /* another name of the field `missing`: refused unless it has that one's value */
} hf_row_kind;

typedef struct hf_reader hf_reader;
typedef struct hf_row {
  hf_row_kind kind;
  const char *key, *to;       /* of config.json; of the value */
  const char *missing, *null; /* expressions */
  double low, high;
  const char *when, *text, *help; /* an expression; texts with ${expression} */
  void (*call)(hf_reader *);
} hf_row;

#define SIZE(key, to, missing, high)                                                                                   \
  { HF_SIZE, key, to, missing, NULL, 1, high, NULL, NULL, NULL, NULL }
#define SIZE_OR_NULL(key, to, missing, null, high)                                                                     \
  { HF_SIZE, key, to, missing, null, 1, high, NULL, NULL, NULL, NULL }
#define COUNT(key, to, missing, high)                                                                                  \
  { HF_SIZE, key, to, missing, NULL, 0, high, NULL, NULL, NULL, NULL }
#define REAL(key, to, missing, low, high)                                                                              \
  { HF_REAL, key, to, missing, NULL, low, high, NULL, NULL, NULL, NULL }
#define REAL_OR_NULL(key, to, missing, null, low, high)                                                                \
  { HF_REAL, key, to, missing, null, low, high, NULL, NULL, NULL, NULL }
#define FLAG(key, to, missing)                                                                                         \
  { HF_FLAG, key, to, missing, "0", 0, 1, NULL, NULL, NULL, NULL }
#define FLAG_OR_NULL(key, to, missing, null)                                                                           \
  { HF_FLAG, key, to, missing, null, 0, 1, NULL, NULL, NULL, NULL }
#define WORD(key, to, missing)                                                                                         \
  { HF_WORD, key, to, missing, NULL, 0, 0, NULL, NULL, NULL, NULL }
#define ACTIVATION(key, missing)                                                                                       \
  { HF_ACTIVATION, key, "act", missing, NULL, 0, 0, NULL, NULL, NULL, NULL }
#define LET(to, expression)                                                                                            \
  { HF_LET, NULL, to, expression, NULL, 0, 0, NULL, NULL, NULL, NULL }
#define CALL(function)                                                                                                 \
  { HF_CALL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL, function }
#define WRONG(key, when, text)                                                                                         \
  { HF_WRONG, key, NULL, NULL, NULL, 0, 0, when, text, NULL, NULL }
#define REFUSED(key, when, text, help)                                                                                 \
  { HF_REFUSED, key, NULL, NULL, NULL, 0, 0, when, text, help, NULL }
#define TELL(when, text)                                                                                               \
  { HF_TELL, NULL, NULL, NULL, NULL, 0, 0, when, text, NULL, NULL }
#define NOTHING(key)                                                                                                   \
  { HF_NOTHING, key, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL }
#define NOTED(key, text)                                                                                               \
  { HF_NOTED, key, NULL, NULL, NULL, 0, 0, NULL, text, NULL, NULL }
#define ONLY(key, json, text)                                                                                          \
  { HF_ONLY, key, NULL, json, NULL, 0, 0, NULL, text, NULL, NULL }
#define SAME(key, other)                                                                                               \
  { HF_SAME, key, NULL, other, NULL, 0, 0, NULL, NULL, NULL, NULL }
/* What its class has where config.json does not say it, for hf_llama_sizes. */
#define OF_CLASS(theta, eps, kv_heads)                                                                                 \
  LET("theta_of_class", theta), LET("eps_of_class", eps), LET("kv_heads_of_class", kv_heads)
#define END                                                                                                            \
  { HF_END, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL }

/* A class that saves checkpoints, and which head of the family it has. */
typedef struct hf_class {
  const char *name;
  int head;
} hf_class;

/* How a parameter stands in its tensor. */
typedef enum hf_layout {
  HF_PLAIN,
  HF_TRANSPOSED, /* [in, out] there */
  HF_BY_HEAD,    /* rows of all queries, then keys, then values here; of every head its query, key and value there */
  HF_EXPERTS,    /* [experts, out, in] here; a tensor an expert there */
  HF_SHARED,     /* [n, d] here; [1, n, d] there: for all samples */
  HF_WINDOWS     /* [out, C * kernel * kernel] here; [out, C, kernel, kernel] there */
} hf_layout;

/* Parameters whose name begins with `ours` (then ends, or goes on with a dot) are `theirs` and what goes on. "{}"
 * stands for numbers, which are i and j in `theirs`: {"layers.{}.layer_{}", "model.layers.${i * group + j}"}. The first
 * row that fits counts. */
typedef struct hf_name {
  const char *ours, *theirs;
  hf_layout layout;
  const char *when; /* an expression; NULL: always */
} hf_name;

#define NAME(here, there)                                                                                              \
  { .ours = here, .theirs = there }
#define NAME_AS(as, here, there)                                                                                       \
  { .ours = here, .theirs = there, .layout = as }
#define NAME_WHEN(where, as, here, there)                                                                              \
  { .ours = here, .theirs = there, .layout = as, .when = where }
#define NAME_END                                                                                                       \
  { .ours = NULL }

/* A tensor that checkpoints may hold once more: another name of the tensor `of` where `when` holds. */
typedef struct hf_tie {
  const char *name, *when, *of;
  bool is_head; /* of the table of tokens */
} hf_tie;

typedef struct hf_family {
  const char *type;                      /* "llama": also the name of the model */
  hf_class classes[HF_MOST_CLASSES + 1]; /* the last one has no head; ends with NULL */
  const hf_row *rows[HF_MOST_ROWS + 1];  /* lists of rows, read in this order; ends with NULL */
  const hf_row *of_head;                 /* read when it is known which head is written; NULL: none */
  const char *text;                      /* the template */
  const char *prefix;            /* in front of all tensors but the head's, and of none in a file without a head */
  const hf_name *names;          /* ends with NULL */
  hf_tie ties[HF_MOST_TIES + 1]; /* ends with NULL */
  const hf_name *old_names;      /* endings of the first checkpoints' names; NULL: the same */
} hf_family;

/* The text of families/NAME.dz.in (made by CMakeLists.txt). */
const char *hf_template(const char *name); /* NULL: there is none */

/* ---- reading ---- */

struct hf_reader {
  zp_arena *arena;
  zp_diags *diags;
  const zp_json *root;
  int file;
  zp_strings used; /* keys that were asked for */
  int errors_before;
  bool for_weights; /* the forward pass alone counts: the user's own model says what is trained, and on which head */
  zp_imported *result;
  hf_model *model;
};

/* ---- hf_fields.c: fields by name; what is wrong is reported ---- */
const zp_json *hf_json(hf_reader *r, const char *key); /* NULL: absent or null */
bool hf_is_null(hf_reader *r, const char *key);        /* there, and null */
/* Z0683: `wanted` is expected. */
void hf_wrong(hf_reader *r, const char *key, const zp_json *value, const char *wanted);
/* Z0684 at the field. */
void hf_refuse(hf_reader *r, const char *key, const char *help, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void hf_note(hf_reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool hf_is_used(const hf_reader *r, const char *key);           /* somebody asked for it */
const char *hf_shown(const hf_reader *r, const zp_json *value); /* its text, cut to a few words; arena */
bool hf_is_sound(const hf_reader *r);                           /* nothing was reported yet */
zp_span hf_place(const hf_reader *r, const char *key);          /* where a key stands in the file */

/* ---- hf_rows.c ---- */
void hf_read_rows(hf_reader *r, const hf_row *rows);
hf_scope hf_scope_of(const hf_reader *r);
enum { HF_MOST_WIDTH = 1 << 24, HF_MOST_LAYERS = 100000, HF_MOST_EXPERTS = 1024, HF_MOST_TOP_K = 16 };

/* ---- hf_common.c: rows that several families share; values "..._of_class" are set before ---- */
extern const hf_row hf_llama_sizes[]; /* decoders with RMS norms and gated networks; theta, eps, kv_heads (0: heads) */
extern const hf_row hf_encoder_sizes[]; /* with BERT-Base's for defaults; eps, dropout */
extern const hf_row hf_head_dim[];      /* columns of a head: the hidden size over the heads where it is not said */
extern const hf_row hf_head_columns[];  /* they are pairs, and heads go into each other */
extern const hf_row hf_whole_heads[];   /* head_dim of families whose heads make up the hidden size */
extern const hf_row hf_expert_choice[]; /* what `top_k` of `experts` may be; `normalized` is set */
extern const hf_row hf_balance[];       /* the balancing loss of experts, which the language has otherwise */
extern const hf_row hf_capacity_note[];
extern const hf_row hf_std_note[];     /* layers of std.models begin with their own deviation */
extern const hf_name hf_llama_names[]; /* `full_layers` of a repeat of their own in front */

/* hf_rope.c: `theta` out of rope_scaling of older files or rope_parameters of newer ones; before it is what the
 * file says elsewhere. `has_rotary_share`: the class knows heads that turn in part, which are refused. */
void hf_read_rope(hf_reader *r);
void hf_read_neox_rope(hf_reader *r);   /* under GPT-NeoX's names, with `rotary` columns of a head; 0: all of them */
void hf_read_gemma3_rope(hf_reader *r); /* `theta` and `local_theta` */

/* hf_layer_types.c: which layers have a window. */
void hf_read_full_layers(
    hf_reader *r); /* `full_layers` in front see all; else as max_window_layers says; after `asked`, `given_window` */
/* Layers take turns: `group` of them, of which "full.0", "full.1", ... see all; `pattern` is set. */
void hf_read_groups(hf_reader *r);

/* ---- hf_keys.c ---- */
bool hf_is_whole(hf_reader *r);       /* false after refusing the file of a model that this type is a part of */
void hf_look_at_others(hf_reader *r); /* every key that nobody asked for changes nothing, is noted, or is refused */

/* ---- hf_families.c ---- */
bool hf_read_model(hf_reader *r); /* false after reporting an unknown or missing model_type */

/* ---- hf_template.c ---- */
/* The text with its holes filled in: ${expression}, and ${?expression:text} where it holds. Arena. */
const char *hf_fill_in(const hf_scope *scope, const char *text);
/* A template, line by line; values that it sets stay. Arena. */
const char *hf_expand(zp_arena *arena, hf_model *model, const char *text);
/* Shortest text that is the same double again, as the language writes it. Arena. */
const char *hf_number(zp_arena *arena, double value);

#endif
