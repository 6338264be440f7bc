/* SPDX-License-Identifier: Apache-2.0 */
/* The values of `train` that are written like calls: the weights to start from, the optimizer, its schedule. Data has
 * spec_data.c. */
#include "spec_internal.h"

/* ---- weights to start from ---- */
static void read_drawn(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_read_patterns(reader, env, attr, &((zp_initial *)base)->drawn);
}

static void read_unread(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_read_patterns(reader, env, attr, &((zp_initial *)base)->unread);
}

static const zp_field weights_fields[] = {
    {"path", ZP_FIELD_STRING, .offset = offsetof(zp_initial, path),
     .meaning = "folder of a checkpoint, of Hugging Face or of zplan", .example = "path = \"gpt2\"",
     .missing = "required"},
    {"adapters", ZP_FIELD_STRING, .offset = offsetof(zp_initial, adapters),
     .meaning = "folder of adapters that PEFT saved", .example = "adapters = \"peft\"", .missing = "none"},
    {"drawn", ZP_FIELD_CUSTOM, .read = read_drawn,
     .meaning = "parameters that the folder lacks and that are drawn, by patterns of names",
     .example = "drawn = [\"w*\"]", .missing = "none"},
    {"unread", ZP_FIELD_CUSTOM, .read = read_unread,
     .meaning = "tensors of the folder that the model has no use for, by patterns of names",
     .example = "unread = [\"lm_head*\"]", .missing = "none"}};
static const zp_function initials[] = {{"weights", 0, ZP_SCHEMA("weights", weights_fields, 1),
                                        "weights of a folder: a checkpoint of Hugging Face or of zplan",
                                        "weights(\"gpt2\")"}};
const zp_functions zp_init_calls = ZP_FUNCTIONS(initials);

void zp_read_init(zp_reader *reader, const zp_env *env, const zp_attr *attr, zp_initial *init) {
  static const char example[] = "init = weights(\"gpt2\")";
  int before = zp_diags_errors(reader->diags);
  zp_initial read = {.span = attr->value ? attr->value->span : attr->span};
  if (!zp_is_assignment(reader, attr, example)) return;
  if (attr->value->kind == ZP_EXPR_STRING) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, attr->value->span, "`init` says what the folder holds");
    zp_diag_help(d, "write `weights(\"%s\")` for a checkpoint of Hugging Face or of zplan", attr->value->text);
    return;
  }
  if (!zp_read_call(reader, env, attr->value, "init", initials, 1, &read) || zp_diags_errors(reader->diags) != before)
    return;
  if (!read.path || !read.path[0]) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0307, read.span, "`weights` needs a folder");
    zp_diag_help(d, "for example `%s`", example);
    return;
  }
  read.path = zp_resolve(reader, read.span, read.path);
  if (read.adapters) read.adapters = zp_resolve(reader, read.span, read.adapters);
  *init = read;
}

/* ---- optimizer ---- */
static const zp_word decays[] = {{"matrices", false}, {"all", true}, {NULL, 0}};

/* decay = "matrices" or "all": which parameters weight_decay shrinks. */
static void read_decay(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_train *train = base;
  int all;
  if (zp_read_word(reader, env, attr->value, "decay", decays, &all)) train->decay_all = all;
}

/* freeze = auto(threshold = 0.96): 1-bit Adam freezes its variance by itself; the default is that of arXiv
 * 2102.02888. */
static const zp_train freeze_unwritten = {
    .freeze_threshold = 0.96, .variance_every = 16, .local_after = 12500, .local_doubles = 32678, .local_most = 16};
static const zp_field freeze_fields[] = {
    {"threshold", ZP_FIELD_REAL, .offset = offsetof(zp_train, freeze_threshold), .range = ZP_RANGE_FRACTION,
     .meaning = "the variance freezes when its norm changes by less than 1 - this", .example = "threshold = 0.96"},
};
/* freeze = growing(every = 16, local_after = 12500, local_doubles = 32678, local_most = 16): 0/1 Adam. The defaults are
 * those of arXiv 2202.06009 for BERT, but for local_after, there the end of the rate's warm-up. */
static const zp_field growing_fields[] = {
    {"every", ZP_FIELD_INT64, .offset = offsetof(zp_train, variance_every), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "steps from one exchange of the variance to the next, at the beginning", .example = "every = 16"},
    {"local_after", ZP_FIELD_INT64, .offset = offsetof(zp_train, local_after), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "step after which some steps are local", .example = "local_after = 12500"},
    {"local_doubles", ZP_FIELD_INT64, .offset = offsetof(zp_train, local_doubles), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "steps in which the length of local stretches doubles", .example = "local_doubles = 32678"},
    {"local_most", ZP_FIELD_INT64, .offset = offsetof(zp_train, local_most), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "most steps in a local stretch", .example = "local_most = 16"},
};
enum { FREEZE_AUTO, FREEZE_GROWING };
static const zp_function freezes[] = {
    {"auto", FREEZE_AUTO, ZP_SCHEMA_WITH("auto", freeze_fields, 1, &freeze_unwritten),
     "when the variance has come to rest", "auto(threshold = 0.96)"},
    {"growing", FREEZE_GROWING, ZP_SCHEMA_WITH("growing", growing_fields, 0, &freeze_unwritten),
     "0/1 Adam: the variance is exchanged at growing intervals", "growing(every = 16)"}};
const zp_functions zp_freeze_calls = ZP_FUNCTIONS(freezes);

static void read_freeze(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_train *train = base;
  train->freeze_threshold = freeze_unwritten.freeze_threshold;
  train->variance_every = freeze_unwritten.variance_every;
  train->local_after = freeze_unwritten.local_after;
  train->local_doubles = freeze_unwritten.local_doubles;
  train->local_most = freeze_unwritten.local_most;
  const zp_function *call = zp_read_call(reader, env, attr->value, "freeze", freezes, 2, train);
  if (call && call->value == FREEZE_GROWING) train->freeze_threshold = 0;
  if (!call || call->value == FREEZE_AUTO) train->variance_every = 0;
}

/* The runtime follows the variance by the norm of the gradients, in which decay that is added to them is missing. */
static void check_freeze(zp_reader *reader, zp_span span, const zp_train *train) {
  if (train->freeze_threshold == 0 && train->variance_every == 0) return;
  if (train->freeze_step > 0) {
    zp_diag *d =
        zp_report(reader->diags, ZP_Z0304, span, "`freeze` and `freeze_step` both say when the variance freezes");
    zp_diag_help(d, "leave one of them out");
  } else if (zp_optimizer_facts(train)->decay_in_gradient && train->weight_decay > 0) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, span, "`freeze = %s` does not go with `%s` and `weight_decay`",
                           train->variance_every > 0 ? "growing" : "auto", zp_optimizer_name(train->optimizer));
    zp_diag_help(d, "take `adamw`, whose decay is not in the variance, or say `freeze_step`");
  }
}

/* The factor of 1-bit LAMB begins at 1, whatever its bounds. */
static void check_factor(zp_reader *reader, zp_span span, const zp_train *train) {
  if (train->factor_min <= train->factor_max) return;
  zp_diag *d = zp_report(reader->diags, ZP_Z0304, span, "`factor_min` is %g and `factor_max` is %g", train->factor_min,
                         train->factor_max);
  zp_diag_help(d, "the factor of 1-bit LAMB keeps between the two: write a `factor_max` of %g or more",
               train->factor_min);
}

/* ---- the rows' options as fields ---- */

static const zp_field_kind field_kinds[] = {
    [ZP_OPTION_REAL] = ZP_FIELD_REAL,   [ZP_OPTION_LIST] = ZP_FIELD_LIST,    [ZP_OPTION_BOOL] = ZP_FIELD_BOOL,
    [ZP_OPTION_COUNT] = ZP_FIELD_INT64, [ZP_OPTION_DECAY] = ZP_FIELD_CUSTOM, [ZP_OPTION_FREEZE] = ZP_FIELD_CUSTOM,
};

/* Options that several calls have mean the same in each. */
static const struct {
  const char *name, *meaning, *example, *missing;
} option_words[] = {
    {"lr", "learning rate", "lr = 6e-4", "required; of adafactor min(1e-2, 1 / sqrt(step))"},
    {"betas", "what a step leaves of the averages of the gradients and of their squares", NULL, NULL},
    {"beta1", "what a step leaves of the average of the gradients", "beta1 = 0.9", NULL},
    {"eps", "added to the root of the second moment", "eps = 1e-8", NULL},
    {"weight_decay", "share of a weight, times the learning rate, that a step subtracts", "weight_decay = 0.1", "=0"},
    {"decay", "which parameters `weight_decay` is for", "decay = \"matrices\"", "=\"matrices\""},
    {"momentum", "what a step leaves of the average of the gradients", "momentum = 0.9", NULL},
    {"freeze_step", "with `compress`: steps before exchanges are in 1 bit", "freeze_step = 50", "15% of the steps"},
    {"freeze", "with `compress`: when the variance freezes, instead of `freeze_step`",
     "freeze = auto(threshold = 0.96)", "at `freeze_step`"},
    {"clip_threshold", "largest root mean square of an update", "clip_threshold = 1.0", NULL},
    {"decay_rate", "the second moment of step t keeps 1 - t^-decay_rate", "decay_rate = 0.8", NULL},
    {"scale_parameter", "the learning rate is times the size of the parameter", "scale_parameter = true", NULL},
    {"coeff_beta", "1-bit LAMB: what a step leaves of the average of a tensor's ratios", "coeff_beta = 0.9", NULL},
    {"factor_min", "1-bit LAMB: least factor of that average once the variance is frozen", "factor_min = 0.5", NULL},
    {"factor_max", "1-bit LAMB: largest factor", "factor_max = 4.0", NULL},
    {"factor_threshold", "1-bit LAMB: largest change of the factor in a step", "factor_threshold = 0.1", NULL},
};

static void set_words(zp_field *field, const zp_optimizer_option *option) {
  for (size_t i = 0; i < sizeof option_words / sizeof *option_words; i++) {
    if (strcmp(option_words[i].name, option->name) != 0) continue;
    field->meaning = option_words[i].meaning;
    field->example = option_words[i].example ? option_words[i].example : option->example;
    field->missing = option_words[i].missing;
  }
  if (option->kind == ZP_OPTION_LIST && strcmp(option->name, "eps") == 0) { /* Adafactor's */
    field->meaning = "added to squared gradients; least size by which the learning rate is scaled";
    field->example = option->example;
  }
}

static zp_field field_of(const zp_optimizer_option *option) {
  zp_field field = {.key = option->name,
                    .kind = field_kinds[option->kind],
                    .offset = option->value[0].at,
                    .range = option->range,
                    .read = option->kind == ZP_OPTION_DECAY ? read_decay : read_freeze,
                    .note = option->example,
                    .n = option->n};
  for (int i = 0; i < option->n; i++) field.each[i] = option->value[i].at;
  if (option->kind == ZP_OPTION_DECAY) field.words = decays;
  if (option->kind == ZP_OPTION_FREEZE) field.calls = &zp_freeze_calls;
  set_words(&field, option);
  return field;
}

static double *number_at(zp_train *train, const zp_optimizer_value *value) {
  return (double *)(void *)((char *)train + value->at);
}

static void set_unwritten(zp_train *train, const zp_optimizer *row) {
  for (int i = 0; i < row->n_options; i++) {
    const zp_optimizer_option *o = &row->options[i];
    if (o->kind == ZP_OPTION_BOOL) *(bool *)((char *)train + o->value[0].at) = o->value[0].unwritten != 0;
    for (int n = 0; n < o->n && (o->kind == ZP_OPTION_REAL || o->kind == ZP_OPTION_LIST); n++)
      *number_at(train, &o->value[n]) = o->value[n].unwritten;
  }
}

static zp_function function_of(zp_arena *arena, zp_optimizer_kind kind) {
  const zp_optimizer *row = zp_optimizer_row(kind);
  zp_train *unwritten_train = ZP_NEW(arena, zp_train);
  set_unwritten(unwritten_train, row);
  zp_field *fields = ZP_NEW_ARRAY(arena, zp_field, row->n_options + 1);
  for (int i = 0; i < row->n_options; i++) fields[i] = field_of(&row->options[i]);
  fields[row->n_options] = (zp_field){"learning_rate", ZP_FIELD_FOREIGN, .note = "here it is called `lr`"};
  const char *example = zp_format(arena, "%s(lr = %s)", row->name, row->example_lr);
  return (zp_function){
      row->name, (int)kind, {row->name, fields, row->n_options + 1, 0, unwritten_train}, row->meaning, example};
}

/* Every number with a default, of all rows: is it written? Where it is not it has the default of its own optimizer, or
 * of the first one that has such an option. */
static const double unwritten = -1;

static int numbers_of(const zp_optimizer_option *o) {
  return o->kind == ZP_OPTION_REAL || o->kind == ZP_OPTION_LIST ? o->n : 0;
}

static void forget(zp_train *train) {
  for (int k = 0; k < ZP_OPT_COUNT; k++) {
    const zp_optimizer *row = zp_optimizer_row((zp_optimizer_kind)k);
    for (int i = 0; i < row->n_options; i++) {
      const zp_optimizer_option *o = &row->options[i];
      if (o->kind == ZP_OPTION_BOOL) *(bool *)((char *)train + o->value[0].at) = o->value[0].unwritten != 0;
      for (int n = 0; n < numbers_of(o); n++)
        if (o->value[n].unwritten >= 0) *number_at(train, &o->value[n]) = unwritten;
    }
  }
}

static void set_defaults(zp_train *train, const zp_optimizer *row) {
  for (int i = 0; i < row->n_options; i++) {
    const zp_optimizer_option *o = &row->options[i];
    for (int n = 0; n < numbers_of(o); n++) {
      double *number = number_at(train, &o->value[n]);
      if (*number == unwritten) *number = o->value[n].unwritten;
    }
  }
}

zp_functions zp_optimizer_calls(zp_arena *arena) {
  zp_function *functions = ZP_NEW_ARRAY(arena, zp_function, ZP_OPT_COUNT);
  for (int k = 0; k < ZP_OPT_COUNT; k++) functions[k] = function_of(arena, (zp_optimizer_kind)k);
  return (zp_functions){functions, ZP_OPT_COUNT};
}

static const zp_function *read_call(zp_reader *reader, const zp_env *env, const zp_attr *attr, zp_train *train) {
  zp_functions functions = zp_optimizer_calls(reader->arena);
  return zp_read_call(reader, env, attr->value, "optimizer", functions.data, functions.count, train);
}

void zp_read_optimizer(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_train *train = base;
  int before = zp_diags_errors(reader->diags);
  if (!zp_is_assignment(reader, attr, "optimizer = adamw(lr = 6e-4)")) return;
  forget(train);
  const zp_function *function = read_call(reader, env, attr, train);
  if (!function || zp_diags_errors(reader->diags) != before) return;
  train->optimizer = (zp_optimizer_kind)function->value;
  const zp_optimizer *row = zp_optimizer_facts(train);
  set_defaults(train, row);
  for (int k = 0; k < ZP_OPT_COUNT; k++) set_defaults(train, zp_optimizer_row((zp_optimizer_kind)k));
  if (train->lr == 0 && !row->relative_step) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0307, attr->value->span, "`%s` needs a learning rate", row->name);
    zp_diag_help(d, "for example `%s(lr = %s)`", row->name, row->example_lr);
  }
  check_freeze(reader, attr->value->span, train);
  check_factor(reader, attr->value->span, train);
}

/* ---- learning-rate schedule ---- */
#define WARMUP_FIELD                                                                                                   \
  {                                                                                                                    \
    "warmup", ZP_FIELD_INT64, .offset = offsetof(zp_train, warmup), .range = ZP_RANGE_NOT_NEGATIVE,                    \
                              .meaning = "steps in which the rate rises from 0", .example = "warmup = 10"              \
  }
#define MIN_LR_FIELD                                                                                                   \
  {                                                                                                                    \
    "min_lr", ZP_FIELD_REAL, .offset = offsetof(zp_train, min_lr), .range = ZP_RANGE_NOT_NEGATIVE,                     \
                             .meaning = "rate at the end", .example = "min_lr = 6e-5"                                  \
  }
static const zp_field constant_fields[] = {WARMUP_FIELD};
static const zp_field decaying_fields[] = {WARMUP_FIELD, MIN_LR_FIELD};
static const zp_field wsd_fields[] = {
    WARMUP_FIELD,
    {"decay", ZP_FIELD_INT64, .offset = offsetof(zp_train, decay_steps), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "steps of the last phase, in which the rate falls", .example = "decay = 20", .missing = "required"},
    MIN_LR_FIELD,
};
static const zp_function schedules[] = {
    {"constant", ZP_LR_CONSTANT, ZP_SCHEMA("constant", constant_fields, 0), "the same rate, after the warm-up",
     "constant(warmup = 10)"},
    {"linear", ZP_LR_LINEAR, ZP_SCHEMA("linear", decaying_fields, 0), "falls in a line to `min_lr`",
     "linear(warmup = 10, min_lr = 6e-5)"},
    {"cosine", ZP_LR_COSINE, ZP_SCHEMA("cosine", decaying_fields, 0), "falls to `min_lr` along half a cosine",
     "cosine(warmup = 10, min_lr = 6e-5)"},
    {"wsd", ZP_LR_WSD, ZP_SCHEMA("wsd", wsd_fields, 0), "warm-up, a constant rate, then a fall in a line",
     "wsd(warmup = 10, decay = 20)"},
};
const zp_functions zp_schedule_calls = ZP_FUNCTIONS(schedules);
static const int n_schedules = sizeof schedules / sizeof *schedules;

bool zp_is_schedule_name(const char *name) {
  for (int i = 0; i < n_schedules; i++)
    if (strcmp(schedules[i].name, name) == 0) return true;
  return false;
}

void zp_read_schedule(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_train *train = base;
  if (!zp_is_assignment(reader, attr, "schedule = cosine(warmup = 100, min_lr = 6e-5)")) return;
  if (attr->value->kind == ZP_EXPR_STRING && !zp_is_schedule_name(attr->value->text)) {
    zp_diag *d =
        zp_report(reader->diags, ZP_Z0304, attr->value->span, "`schedule` in `train` is that of the learning rate");
    zp_diag_help(d, "the pipeline's schedule belongs in a `plan` block");
    return;
  }
  const zp_function *function = zp_read_call(reader, env, attr->value, "schedule", schedules, n_schedules, train);
  if (!function) return;
  train->schedule = (zp_lr_kind)function->value;
  if (train->schedule == ZP_LR_WSD && train->decay_steps == 0) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0307, attr->value->span, "`wsd` needs the length of its last phase");
    zp_diag_help(d, "for example `wsd(warmup = 100, decay = 500)`, in steps");
  }
}

/* An optimizer without a learning rate, if it may be, takes relative steps, which a schedule would not know. */
void zp_check_relative_step(zp_reader *reader, const zp_attrs *attrs, zp_train *train) {
  const zp_attr *attr = zp_find_attr(attrs, "schedule");
  if (!zp_optimizer_facts(train)->relative_step || train->lr > 0) return;
  train->schedule = ZP_LR_RELATIVE;
  train->lr = 1;
  if (!attr) return;
  zp_diag *d = zp_report(reader->diags, ZP_Z0304, attr->span,
                         "`%s` without `lr` has a schedule of its own, min(1e-2, 1 / sqrt(step))",
                         zp_optimizer_name(train->optimizer));
  zp_diag_help(d, "leave `schedule` out, or write a learning rate: `%s(lr = 1e-2)`",
               zp_optimizer_name(train->optimizer));
}

/* ---- loss scale ---- */
static const zp_field dynamic_fields[] = {
    {"initial", ZP_FIELD_INT64, .offset = offsetof(zp_train, loss_scale), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "scale at the first step, a power of two", .example = "initial = 65536"},
    {"window", ZP_FIELD_INT64, .offset = offsetof(zp_train, scale_window), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "steps without overflow after which the scale doubles", .example = "window = 2000"},
};
/* The start and the window of torch.amp.GradScaler. */
enum { FIRST_SCALE = 65536, WINDOW = 2000, MOST_SCALE = 1 << 30 };
static const zp_train dynamic_unwritten = {.loss_scale = FIRST_SCALE, .scale_window = WINDOW};
static const zp_function loss_scales[] = {
    {"dynamic", 0, ZP_SCHEMA_WITH("dynamic", dynamic_fields, 0, &dynamic_unwritten),
     "halved at an overflow, doubled after a while without one", "dynamic(initial = 65536, window = 2000)"}};
const zp_functions zp_loss_scale_calls = ZP_FUNCTIONS(loss_scales);

/* A number stays as it is; dynamic(...) falls and rises from its start. A power of two, so that dividing by it again
 * rounds nothing. */
void zp_read_loss_scale(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_train *train = base;
  double scale;
  if (!zp_is_assignment(reader, attr, "loss_scale = dynamic(initial = 65536, window = 2000)")) return;
  if (attr->value->kind == ZP_EXPR_CALL) {
    train->loss_scale = FIRST_SCALE;
    train->scale_window = WINDOW;
    if (!zp_read_call(reader, env, attr->value, "loss_scale", loss_scales, 1, base)) return;
  } else {
    if (!zp_read_number(reader, env, attr->value, "loss_scale", ZP_DIM_NONE, ZP_RANGE_ONE_OR_MORE, &scale)) return;
    train->loss_scale = scale > MOST_SCALE || scale != (double)(int64_t)scale ? -1 : (int64_t)scale;
    train->scale_window = 0;
  }
  bool power = train->loss_scale > 0 && (train->loss_scale & (train->loss_scale - 1)) == 0;
  if (power && train->loss_scale <= MOST_SCALE) return;
  zp_diag *d =
      zp_report(reader->diags, ZP_Z0306, attr->value->span, "a loss scale is a power of two from 1 to %d", MOST_SCALE);
  zp_diag_help(d, "dividing by it again then rounds nothing: 32768, 65536");
}

void zp_check_loss_scale(zp_reader *reader, const zp_attrs *attrs, zp_train *train) {
  const zp_attr *attr = zp_find_attr(attrs, "loss_scale");
  bool fp16 = train->precision == ZP_PREC_MIXED_FP16;
  if (fp16 && !attr) {
    train->loss_scale = FIRST_SCALE;
    train->scale_window = WINDOW;
  }
  if (fp16 || !attr) return;
  train->loss_scale = train->scale_window = 0;
  zp_diag *d = zp_report(reader->diags, ZP_Z0507, attr->span, "`loss_scale` without `precision = \"mixed_fp16\"`");
  zp_diag_help(d, "leave `loss_scale` out, or set precision = \"mixed_fp16\"");
}

/* ---- delayed update ---- */
static const zp_field after_fields[] = {
    {"steps", ZP_FIELD_INT64, .offset = offsetof(zp_train, delay_after), .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "first step whose update is delayed", .example = "steps = 40"},
};
/* The default is about what arXiv 2101.06840, section 5.2, waits: early gradients change fast. */
static const zp_train delay_unwritten = {.delay_after = 40};
static const zp_function delays[] = {{"after", 0, ZP_SCHEMA_WITH("after", after_fields, 1, &delay_unwritten),
                                      "after so many steps that are as ever", "after(40)"}};
const zp_functions zp_delay_calls = ZP_FUNCTIONS(delays);

void zp_read_delay(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_train *train = base;
  if (!zp_is_assignment(reader, attr, "delayed_update = after(40)")) return;
  train->delay_after = delay_unwritten.delay_after;
  train->delayed = zp_read_call(reader, env, attr->value, "delayed_update", delays, 1, train) != NULL;
}

static const char *by_element(zp_arena *arena) {
  const char *names = "";
  for (int k = 0; k < ZP_OPT_COUNT; k++) {
    const zp_optimizer *row = zp_optimizer_row((zp_optimizer_kind)k);
    if (row->needs == ZP_NEEDS_ELEMENT) names = zp_format(arena, "%s%s%s", names, *names ? ", " : "", row->name);
  }
  return names;
}

/* Optimizers whose update is not element by element work on the device, or ask other ranks. */
void zp_check_delay(zp_reader *reader, const zp_train *train) {
  const zp_optimizer *row = zp_optimizer_facts(train);
  if (!train->delayed || row->needs == ZP_NEEDS_ELEMENT) return;
  zp_diag *d =
      zp_report(reader->diags, ZP_Z0304, train->delay_span, "`delayed_update` does not go with `%s`", row->name);
  zp_diag_help(d, "a thread of the host updates alongside the next step, element by element: %s",
               by_element(reader->arena));
}
