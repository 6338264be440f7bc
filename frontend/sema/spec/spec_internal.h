/* SPDX-License-Identifier: Apache-2.0 */
/* Private to spec*.c. Attribute blocks are read by tables: one zp_field per key says what it takes, in which range, and
 * where it is stored. The table is also the list for did-you-mean and for --set, so a key is described once. */
#ifndef ZPLAN_SEMA_SPEC_INTERNAL_H
#define ZPLAN_SEMA_SPEC_INTERNAL_H

#include "eval.h"

/* What one zp_spec_read works with. Sources [settings_begin, settings_end) are texts of --set. */
typedef struct zp_reader {
  zp_arena *arena;
  zp_diags *diags;
  zp_spec *spec;
  zp_module *main;
  const zp_load_options *options;
  int settings_begin, settings_end;
  const struct zp_field *field; /* whose value is being read; NULL: none's */
} zp_reader;

/* A formal of a `node` or `device` that stands for devices (`devices = 4 * v100`): kept as an expression, because a
 * device is no scalar value. */
typedef struct zp_binding zp_binding;
/* Where the names in a value are looked up, and (for `base` and calls) which items are being read right now. */
typedef struct zp_env zp_env;
struct zp_env {
  zp_module *module;
  zp_scope *scope;
  const zp_binding *devices; /* newest first */
  const zp_item *item;       /* being read, NULL at the top */
  const zp_env *caller;      /* who refers to `item` */
};
struct zp_binding {
  const char *name;
  const zp_expr *value;
  const zp_env *env;
  const zp_binding *next;
};

typedef enum zp_field_kind {
  ZP_FIELD_BYTES,   /* int64_t: 32GB */
  ZP_FIELD_RATE,    /* double: 25GB/s */
  ZP_FIELD_SECONDS, /* double: 2us */
  ZP_FIELD_FLOPS,   /* double: 125TFLOPS */
  ZP_FIELD_LENGTH,  /* double: seconds of a whole training: 30d */
  ZP_FIELD_WATTS,   /* double: 700W */
  ZP_FIELD_SHARE,   /* double: 62% or 0.62 */
  ZP_FIELD_INT,     /* int */
  ZP_FIELD_INT64,   /* int64_t */
  ZP_FIELD_REAL,    /* double without unit */
  ZP_FIELD_LIST,    /* [a, b]: `n` doubles, at `each`; `note` is an example */
  ZP_FIELD_BOOL,    /* bool */
  ZP_FIELD_STRING,  /* const char * */
  ZP_FIELD_WORD,    /* int (an enum), one of `words` */
  ZP_FIELD_BLOCK,   /* key { ... }, read with `block` into the same struct */
  ZP_FIELD_CUSTOM,  /* `read` does it */
  ZP_FIELD_REFUSED, /* known, not in this version; `note` says what to do instead */
  ZP_FIELD_FOREIGN, /* a word of another tool; `note` names ours */
} zp_field_kind;

typedef struct zp_word {
  const char *text;
  int value;
} zp_word;

typedef struct zp_schema zp_schema;
typedef struct zp_field {
  const char *key;
  zp_field_kind kind;
  size_t offset; /* in the struct being filled; ZP_CHECK_ONLY: the value is checked and not kept */
  zp_range range;
  const zp_word *words; /* ends with a NULL text */
  const zp_schema *block;
  void (*read)(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
  const char *note;
  int n;
  size_t each[ZP_OPTION_MOST_VALUES];
  /* The reference (<zplan/reference.h>), which tests/verify/reference.py reads as a file: */
  const char *meaning, *example; /* example: as it is written, `batch = 16` */
  /* What holds where the key is not written: in words, or as a value with '=' in front, which may be written as well.
   * NULL: what the schema's `unwritten` has. */
  const char *missing;
  const char *outside;              /* CUSTOM: a value that is refused; NULL: -1 is */
  const struct zp_functions *calls; /* CUSTOM: what may stand in its place */
  double most;                      /* largest value; 0: the kind's */
} zp_field;
/* Text of a constant. */
#define ZP_TEXT_OF(constant) #constant
#define ZP_TEXT(constant) ZP_TEXT_OF(constant)
#define ZP_CHECK_ONLY SIZE_MAX

struct zp_schema {
  const char *name; /* as in messages: "train", "adamw" */
  const zp_field *fields;
  int count;
  int positional;        /* calls: the first so many fields may be given without a name */
  const void *unwritten; /* the struct where nothing is written; NULL: all of it is 0 */
};
#define ZP_SCHEMA_WITH(name, fields, positional, unwritten)                                                            \
  { name, fields, (int)(sizeof(fields) / sizeof((fields)[0])), positional, unwritten }
#define ZP_SCHEMA(name, fields, positional) ZP_SCHEMA_WITH(name, fields, positional, NULL)

/* A function-like value: adamw(lr = 1e-3). */
typedef struct zp_function {
  const char *name;
  int value; /* of the enum it stands for */
  zp_schema schema;
  const char *meaning, *example;
} zp_function;
typedef struct zp_functions {
  const zp_function *data;
  int count;
} zp_functions;
#define ZP_FUNCTIONS(array)                                                                                            \
  { array, (int)(sizeof(array) / sizeof((array)[0])) }

/* Constants of several files. Nodes: a slip of the exponent. Sequences of a step: published runs stay below 1e5; far
 * above 1e8 micro-batches could not be simulated one by one. Shares of memory: assumed; on a GPU the rest covers what
 * the arena and `context` do not count, a CPU node also runs an operating system. */
enum { ZP_MOST_NODES = 1 << 20, ZP_MOST_BATCH = 100000000 };
#define ZP_GPU_MEMORY_PERCENT 94
#define ZP_CPU_MEMORY_PERCENT 80

/* ---- spec_value.c: single values. All report and return false on a wrong kind, unit or range. `key` names the
 * attribute in messages. ---- */
bool zp_read_number(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key, zp_dimension dimension,
                    zp_range range, double *number);
bool zp_read_whole(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key, zp_range range,
                   int64_t *number);
bool zp_read_string(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key, const char **text);
bool zp_read_word(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key, const zp_word *words,
                  int *value);
/* Like zp_read_number for a value that was computed already (elements of a list). */
bool zp_check_number(zp_reader *reader, const zp_value *value, const char *key, zp_dimension dimension, zp_range range,
                     double *number);
bool zp_in_range(double number, zp_range range);
/* "greater than 0". */
const char *zp_range_text(zp_range range);
/* Typed on the command line with --set? */
bool zp_is_setting(const zp_reader *reader, zp_span span);
/* The text of a span as written. Arena. */
const char *zp_source_of(const zp_reader *reader, zp_span span);

/* ---- spec_attr.c: blocks and calls by table ---- */
const zp_attr *zp_find_attr(const zp_attrs *attrs, const char *key);
const zp_field *zp_find_field(const zp_schema *schema, const char *key);
/* Reads `attrs` into the struct at `base`; `base = ...` comes first wherever it stands. */
void zp_read_attrs(zp_reader *reader, const zp_env *env, const zp_schema *schema, const zp_attrs *attrs, void *base);
/* Reads name(args) or a bare name as one of `functions`, the arguments into `base`. NULL after reporting. */
const zp_function *zp_read_call(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key,
                                const zp_function *functions, int count, void *base);
/* What every machine has: "at most 400 TB"; empty: no limit but the range. The range of a kind without its own. */
const char *zp_plausible_text(zp_field_kind kind);
zp_range zp_range_of(const zp_field *field);
void zp_report_unknown_attr(zp_reader *reader, const zp_schema *const *schemas, int n_schemas, const zp_attr *attr,
                            const char *where);

/* ---- spec_machine.c, spec_item.c: devices, nodes, references to them and to fabrics ---- */
/* An environment for the body of a library or user item: its module's names, its formals bound to the call's arguments.
 * NULL after reporting. `expr` is a name or a call of it. */
const zp_env *zp_enter_item(zp_reader *reader, const zp_env *env, const zp_expr *expr, zp_item_kind kind);
/* Enters it and reads its attributes into the struct at `base`; the item, NULL when it could not be entered. */
const zp_item *zp_read_item(zp_reader *reader, const zp_env *env, const zp_expr *expr, zp_item_kind kind,
                            const zp_schema *schema, void *base);
/* Does the expression mean devices: `16 * v100`, `v100`, or a formal bound to such? */
bool zp_names_device(zp_reader *reader, const zp_env *env, const zp_expr *expr);
/* Takes `16 * v100` apart, through formals: the count, the device's name or call, and where to look it up. NULL after
 * reporting. */
const zp_env *zp_resolve_devices(zp_reader *reader, const zp_env *env, const zp_expr *expr, int *count,
                                 const zp_expr **device);
/* Reads a node given by name or call, or (attr with a block) written in place. */
void zp_read_node(zp_reader *reader, const zp_env *env, const zp_attr *attr, zp_node_type *node);
/* A node given by name or call; errors without a better place are reported at `key`. */
void zp_read_named_node(zp_reader *reader, const zp_env *env, const zp_expr *expr, zp_name key, zp_node_type *node);

/* ---- spec_cluster.c, spec_train.c, spec_plan.c ---- */
void zp_read_cluster(zp_reader *reader, const zp_env *env, const zp_attrs *attrs, zp_name name, zp_cluster *cluster);
void zp_read_train(zp_reader *reader, const zp_env *env, const zp_attrs *attrs, zp_span span, zp_train *train);
void zp_read_plan(zp_reader *reader, const zp_env *env, const zp_attrs *attrs, zp_constraints *plan);
/* spec_groups.c; the check needs the model. */
void zp_read_groups(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
void zp_check_groups(zp_diags *diags, const zp_spec *spec);
/* Some names of the model, for somebody whose pattern fits none. Arena of the model. */
const char *zp_some_names(const zp_model *model);
/* spec_frozen.c */
/* Patterns of names, in a list. */
void zp_read_patterns(zp_reader *reader, const zp_env *env, const zp_attr *attr, zp_name_patterns *to);
void zp_read_frozen(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
void zp_read_trained(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
void zp_read_adapt(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
/* Gives the model its adapters, and freezes what is not trained. */
void zp_freeze(zp_diags *diags, zp_spec *spec);
/* spec_eps.c; needs the model. */
void zp_check_eps(zp_diags *diags, const zp_spec *spec);
/* spec_precision.c */
extern const zp_word zp_precision_words[];
void zp_read_precision(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
/* With mixed_fp8 products of the model's layers take operands of 8 bits; an error where none can. */
void zp_use_float8(zp_diags *diags, zp_spec *spec);
extern const zp_schema zp_cluster_schema, zp_node_schema, zp_device_schema, zp_fabric_schema, zp_train_schema,
    zp_plan_schema;
/* ---- what the reference shows of calls ---- */
extern const zp_functions zp_data_calls, zp_init_calls, zp_loss_scale_calls, zp_group_calls, zp_delay_calls,
    zp_adapt_calls, zp_schedule_calls, zp_freeze_calls;
/* Optimizers, whose options are those of their rows. Arena. */
zp_functions zp_optimizer_calls(zp_arena *arena);

/* ---- spec_data.c, spec_data_check.c: where samples come from ---- */
void zp_read_data(zp_reader *reader, const zp_env *env, const zp_attr *attr, zp_data *data);
/* Has the model the inputs that the data feed? Fills in what the model decides. */
void zp_check_data(zp_diags *diags, const zp_spec *spec, zp_data *data);
/* Is it `key = value`? Reports where not. */
bool zp_is_assignment(zp_reader *reader, const zp_attr *attr, const char *example);
/* A path as the program finds it. */
const char *zp_resolve(const zp_reader *reader, zp_span span, const char *path);

/* ---- spec_train_calls.c: the function-like values of train ---- */
void zp_read_init(zp_reader *reader, const zp_env *env, const zp_attr *attr, zp_initial *init);
void zp_read_optimizer(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *train);
void zp_read_delay(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *train);
void zp_check_delay(zp_reader *reader, const zp_train *train);
void zp_read_schedule(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *train);
void zp_read_loss_scale(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *train);
/* When all of `train` has been read: the default, and whether there is something to scale. */
void zp_check_loss_scale(zp_reader *reader, const zp_attrs *attrs, zp_train *train);
void zp_check_relative_step(zp_reader *reader, const zp_attrs *attrs, zp_train *train);
bool zp_is_schedule_name(const char *name);

/* ---- spec_cut.c: the layers of single stages in a plan block ---- */
/* Is it `cut = [9, 8]`, and no limit? */
bool zp_pins_cut(const zp_attr *attr);
void zp_read_cut_layers(zp_reader *reader, const zp_env *env, const zp_attrs *attrs, zp_constraints *plan);
/* They must go together with the block's limits; `pipeline` and `chunks` become their numbers. Requires: the limits are
 * read. */
void zp_check_cut_layers(zp_reader *reader, zp_constraints *plan);
/* Has the model these layers, and every part of it something to compute? */
void zp_check_cut(zp_diags *diags, const zp_spec *spec);

/* ---- spec_terms.c: objective, deadline and budget of a plan block ---- */
void zp_read_objective(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
/* Where they are written, for messages. */
void zp_place_terms(const zp_attrs *attrs, zp_terms *terms);
/* Has the cluster the price that the chosen plan block's terms need? */
void zp_check_terms(zp_diags *diags, const zp_spec *spec);

/* ---- spec_set.c: --set ---- */
typedef struct zp_settings {
  zp_attrs cluster, train, plan; /* prefixes removed; nested keys keep their dots: "checkpoint.dir", "model.layers" */
} zp_settings;
void zp_parse_settings(zp_reader *reader, zp_settings *settings);
/* The attributes of a block with the settings laid over them: a set key replaces all of the file's. */
zp_attrs zp_override_attrs(zp_reader *reader, const zp_attrs *written, const zp_attrs *settings);

/* ---- spec_limits.c: the keys of a plan block that limit the search ---- */
/* Checks the `[...]` of such keys; the attributes that are none. */
zp_attrs zp_check_limit_keys(zp_reader *reader, const zp_attrs *attrs);
/* What a key takes: "whole number", "word", "true, false"; its range: "1 or more", its words; a value that is refused,
 * `tensor = 0`. Arena. */
void zp_describe_limit(zp_arena *arena, const char *key, const char **type, const char **range, const char **outside);
/* Reads them all, in the order of their table. */
void zp_read_limits(zp_reader *reader, const zp_env *env, const zp_attrs *attrs, zp_constraints *plan);

/* ---- spec_stages.c: the modes of single stages and of layers of one in a plan block ---- */
/* `stage_recompute = ["full", "none"]` into the zp_constraints at `base`. */
void zp_read_stage_modes(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
/* They must go together with the block's limits; `pipeline` becomes their number. Requires: the limits are read. */
void zp_check_stage_modes(zp_reader *reader, zp_constraints *plan);
/* `recompute_layers = 3`, or a list, into the zp_constraints at `base`. */
void zp_read_mixed_layers(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
/* They must go together with the block's limits, too. Requires: zp_check_stage_modes. */
void zp_check_mixed_layers(zp_reader *reader, zp_constraints *plan);

#endif
