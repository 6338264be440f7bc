/* SPDX-License-Identifier: Apache-2.0 */
/* The `train` block. Keys of a block of another tool are refused with ours. */
#include <math.h>
#include "spec_internal.h"

static void read_train_data(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_read_data(reader, env, attr, &((zp_train *)base)->data);
}
static void read_validate_data(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_read_data(reader, env, attr, &((zp_train *)base)->validate_data);
}

static void read_init(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  zp_read_init(reader, env, attr, &((zp_train *)base)->init);
}

/* The model is elaborated elsewhere; zp_spec_read hands the expression on. Only its form is considered here. */
static void read_model(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  (void)env, (void)base;
  const zp_expr *name = attr->value && attr->value->kind == ZP_EXPR_CALL ? attr->value->left : attr->value;
  if (attr->op == ZP_ATTR_SET && zp_dotted_name(reader->arena, name)) return;
  zp_diag *d = zp_report(reader->diags, ZP_Z0304, attr->span, "`model` names a model");
  zp_diag_help(d, "for example `model = gpt2` or `model = gpt2(layers = 24)`");
}

/* ema = 0.999: an average of the weights that follows them. */
static void read_ema(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  static const char meaning[] = "it is what a step leaves of the average of the weights: `ema = 0.999`";
  zp_train *train = base;
  double ema;
  if (attr->op != ZP_ATTR_SET) {
    zp_diag_help(zp_report(reader->diags, ZP_Z0305, attr->span, "`ema` is set with `=`"), "%s", meaning);
    return;
  }
  if (!zp_read_number(reader, env, attr->value, "ema", ZP_DIM_NONE, ZP_RANGE_ANY, &ema)) return;
  if (zp_in_range(ema, ZP_RANGE_INSIDE)) {
    train->ema = ema;
    return;
  }
  zp_diag *d = zp_report(reader->diags, ZP_Z0306, attr->value->span, "`ema` must be %s, not %g",
                         zp_range_text(ZP_RANGE_INSIDE), ema);
  zp_diag_help(d, "%s; without the key there is no average", meaning);
}

static const zp_train train_unwritten = {
    .schedule = ZP_LR_CONSTANT, .log_every = 1, .validate_batches = 1, .checkpoint_keep = 2};

static const zp_field validate_fields[] = {
    {"data", ZP_FIELD_CUSTOM, .read = read_validate_data, .calls = &zp_data_calls,
     .meaning = "samples that the loss is computed on", .example = "data = text(\"text.txt\")", .missing = "required"},
    {"every", ZP_FIELD_INT64, .offset = offsetof(zp_train, validate_every), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "steps from one validation to the next", .example = "every = 250", .missing = "required"},
    {"batches", ZP_FIELD_INT64, .offset = offsetof(zp_train, validate_batches), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "batches of a validation", .example = "batches = 20"},
};
static const zp_schema validate_schema = ZP_SCHEMA_WITH("validate", validate_fields, 0, &train_unwritten);

static const zp_word checkpoint_formats[] = {{"safetensors", 0}, {NULL, 0}};
/* Output paths are relative to the current folder: the run's, not the example's. */
static const zp_field checkpoint_fields[] = {
    {"dir", ZP_FIELD_STRING, .offset = offsetof(zp_train, checkpoint_dir), .meaning = "folder of the checkpoints",
     .example = "dir = \"out\"", .missing = "required"},
    {"every", ZP_FIELD_INT64, .offset = offsetof(zp_train, checkpoint_every), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "steps from one checkpoint to the next", .example = "every = 500",
     .missing = "the end of the training only"},
    {"keep", ZP_FIELD_INT64, .offset = offsetof(zp_train, checkpoint_keep), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "how many of the newest checkpoints stay", .example = "keep = 2"},
    {"save_steps", ZP_FIELD_FOREIGN, .note = "write `every = 500`"},
    {"save_interval", ZP_FIELD_FOREIGN, .note = "write `every = 500`"},
    {"save_total_limit", ZP_FIELD_FOREIGN, .note = "write `keep = 2`"},
    {"path", ZP_FIELD_FOREIGN, .note = "write `dir = \"out\"`"},
    {"output_dir", ZP_FIELD_FOREIGN, .note = "write `dir = \"out\"`"},
    {"format", ZP_FIELD_WORD, .offset = ZP_CHECK_ONLY, .words = checkpoint_formats,
     .meaning = "file format of the tensors", .example = "format = \"safetensors\"", .missing = "=\"safetensors\""},
};
static const zp_word checkpoint_words[] = {{"none", 1}, {NULL, 0}}; /* in the place of the block */
static const zp_schema checkpoint_schema = ZP_SCHEMA_WITH("checkpoint", checkpoint_fields, 0, &train_unwritten);

static const zp_field log_fields[] = {
    {"jsonl", ZP_FIELD_STRING, .offset = offsetof(zp_train, log_path), .meaning = "file of JSON lines, one a step",
     .example = "jsonl = \"log.jsonl\"", .missing = "no file"},
    {"every", ZP_FIELD_INT64, .offset = offsetof(zp_train, log_every), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "steps from one line to the next", .example = "every = 10"},
    {"tensorboard", ZP_FIELD_REFUSED,
     .note = "write `jsonl = \"log.jsonl\"`; `zplan watch log.jsonl --tensorboard FOLDER` makes event files of it"},
};
static const zp_schema log_schema = ZP_SCHEMA_WITH("log", log_fields, 0, &train_unwritten);

static const zp_word gradient_sums[] = {{"fp32", 0}, {"bf16_stochastic", 1}, {NULL, 0}};
static const zp_word product_weights[] = {{"casts", 0}, {"bf16", 1}, {NULL, 0}};
static const zp_word reduce_dtypes[] = {{"fp32", 0}, {"bf16", 1}, {NULL, 0}};

static const char data_parallel_note[] =
    "derived: batch / (data x microbatch); only `batch` is given, the plan chooses the rest";
static const char fp8_note[] =
    "write `precision = \"mixed_fp8\"`: products of layers in fp8, scaled by what is current";
static const zp_field train_fields[] = {
    {"model", ZP_FIELD_CUSTOM, .read = read_model, .meaning = "model to train, with arguments where it takes some",
     .example = "model = tiny", .missing = "the only model of the file"},
    {"data", ZP_FIELD_CUSTOM, .read = read_train_data, .calls = &zp_data_calls, .meaning = "where samples come from",
     .example = "data = text(\"text.txt\")", .missing = "none: plans need no data, `run` does"},
    {"init", ZP_FIELD_CUSTOM, .read = read_init, .calls = &zp_init_calls, .meaning = "weights to start from",
     .example = "init = weights(\"gpt2\")", .missing = "weights drawn by `seed`"},
    {"batch", ZP_FIELD_INT64, .offset = offsetof(zp_train, batch), .range = ZP_RANGE_ONE_OR_MORE, .most = ZP_MOST_BATCH,
     .meaning = "sequences of an optimizer step, over all ranks and micro-batches", .example = "batch = 16",
     .missing = "required"},
    {"steps", ZP_FIELD_INT64, .offset = offsetof(zp_train, steps), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "optimizer steps of the training", .example = "steps = 2000",
     .missing = "required, unless `tokens` says how long"},
    {"tokens", ZP_FIELD_INT64, .offset = offsetof(zp_train, tokens), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "length of the training in tokens, instead of `steps`", .example = "tokens = 300e6",
     .missing = "required, unless `steps` says how long"},
    {"precision", ZP_FIELD_CUSTOM, .read = zp_read_precision, .offset = offsetof(zp_train, precision),
     .words = zp_precision_words,
     .meaning = "type that values are computed in; the mixed ones compute in 16 bits and keep weights and optimizer "
                "state in fp32",
     .example = "precision = \"mixed_bf16\""},
    {"loss_scale", ZP_FIELD_CUSTOM, .read = zp_read_loss_scale, .calls = &zp_loss_scale_calls,
     .meaning = "factor of the loss against underflow of fp16 gradients: a power of two, or `dynamic`",
     .example = "loss_scale = dynamic(initial = 65536, window = 2000)",
     .missing = "`dynamic` with mixed_fp16, else none", .outside = "loss_scale = 3"},
    {"reduce_dtype", ZP_FIELD_WORD, .offset = offsetof(zp_train, rounds_sums), .words = reduce_dtypes,
     .meaning = "type in which gradients are summed over data ranks", .example = "reduce_dtype = \"bf16\""},
    {"gradient_sums", ZP_FIELD_WORD, .offset = offsetof(zp_train, stochastic_sums), .words = gradient_sums,
     .meaning = "type in which gradients of micro-batches are summed; bf16 rounds at random",
     .example = "gradient_sums = \"bf16_stochastic\""},
    {"product_weights", ZP_FIELD_WORD, .offset = offsetof(zp_train, bf16_weights), .words = product_weights,
     .meaning = "how programs that can keep weights of products in 8 or 4 bits: as their casts alone, or in bf16, too",
     .example = "product_weights = \"bf16\""},
    {"optimizer", ZP_FIELD_CUSTOM, .read = zp_read_optimizer, .meaning = "update rule, with its learning rate",
     .example = "optimizer = adamw(lr = 6e-4)", .missing = "required"},
    {"groups", ZP_FIELD_CUSTOM, .read = zp_read_groups, .calls = &zp_group_calls,
     .meaning = "parameters with a learning rate or weight decay of their own, by patterns of names; the first that "
                "fits counts",
     .example = "groups = [group(\"*.bias\", weight_decay = 0)]", .missing = "none"},
    {"ema", ZP_FIELD_CUSTOM, .read = read_ema, .range = ZP_RANGE_INSIDE,
     .meaning = "share that a step leaves of an exponential average of the weights", .example = "ema = 0.999",
     .missing = "no average", .outside = "ema = 1"},
    {"delayed_update", ZP_FIELD_CUSTOM, .read = zp_read_delay, .calls = &zp_delay_calls,
     .meaning = "optimizer state on the host is updated alongside the next step, from this step on (DPU)",
     .example = "delayed_update = after(40)", .missing = "off"},
    {"frozen", ZP_FIELD_CUSTOM, .read = zp_read_frozen,
     .meaning = "parameters that are not trained, by patterns of names", .example = "frozen = [\"w*\"]",
     .missing = "none"},
    {"trained", ZP_FIELD_CUSTOM, .read = zp_read_trained,
     .meaning = "parameters that are trained where others are frozen, by patterns of names",
     .example = "trained = [\"w*\"]", .missing = "all"},
    {"adapt", ZP_FIELD_CUSTOM, .read = zp_read_adapt, .calls = &zp_adapt_calls,
     .meaning = "adapters alongside frozen weights", .example = "adapt = lora(rank = 4, alpha = 8, of = [\"w*\"])",
     .missing = "none"},
    {"schedule", ZP_FIELD_CUSTOM, .read = zp_read_schedule, .calls = &zp_schedule_calls,
     .meaning = "how the learning rate changes over the training",
     .example = "schedule = cosine(warmup = 10, min_lr = 6e-5)", .missing = "=constant()"},
    {"clip", ZP_FIELD_REAL, .offset = offsetof(zp_train, clip), .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "largest norm of the gradients; longer ones are scaled down to it", .example = "clip = 1.0",
     .missing = "no clipping"},
    {"dropout", ZP_FIELD_SHARE, .offset = offsetof(zp_train, dropout), .range = ZP_RANGE_BELOW_ONE,
     .meaning = "rate of every `dropout` of the model that has none of its own", .example = "dropout = 0.1"},
    {"seed", ZP_FIELD_INT64, .offset = offsetof(zp_train, seed), .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "seed of initial weights and dropout", .example = "seed = 1"},
    {"validate", ZP_FIELD_BLOCK, .block = &validate_schema, .meaning = "loss on other data during the training",
     .example = "validate { data = text(\"text.txt\")  every = 50 }", .missing = "none"},
    {"checkpoint", ZP_FIELD_BLOCK, .offset = offsetof(zp_train, checkpoint_none), .block = &checkpoint_schema,
     .words = checkpoint_words, .meaning = "where and how often the state is kept; `checkpoint = \"none\"` keeps none",
     .example = "checkpoint { dir = \"out\"  every = 500 }", .missing = "the last state, where `run` says"},
    {"log", ZP_FIELD_BLOCK, .block = &log_schema, .meaning = "the log of the training",
     .example = "log { jsonl = \"log.jsonl\" }", .missing = "on the terminal alone"},
    {"gradient_accumulation_steps", ZP_FIELD_FOREIGN, .note = data_parallel_note},
    {"gradient_accumulation", ZP_FIELD_FOREIGN, .note = data_parallel_note},
    {"micro_batch_size", ZP_FIELD_FOREIGN,
     .note = "the plan chooses it; to pin it write `microbatch = ...` in a `plan` block"},
    {"batch_size", ZP_FIELD_FOREIGN, .note = "write `batch = ...`: sequences per optimizer step, over all ranks"},
    {"global_batch_size", ZP_FIELD_FOREIGN,
     .note = "write `batch = ...`: sequences per optimizer step, over all ranks"},
    {"train_batch_size", ZP_FIELD_FOREIGN, .note = "write `batch = ...`: sequences per optimizer step, over all ranks"},
    {"lr", ZP_FIELD_FOREIGN,
     .note = "the learning rate is an argument of the optimizer: `optimizer = adamw(lr = 6e-4)`"},
    {"learning_rate", ZP_FIELD_FOREIGN,
     .note = "the learning rate is an argument of the optimizer: `optimizer = adamw(lr = 6e-4)`"},
    {"lr_scheduler", ZP_FIELD_FOREIGN, .note = "write `schedule = cosine(warmup = 100, min_lr = 6e-5)`"},
    {"gradient_clipping", ZP_FIELD_FOREIGN, .note = "write `clip = 1.0`"},
    {"grad_clip", ZP_FIELD_FOREIGN, .note = "write `clip = 1.0`"},
    {"max_grad_norm", ZP_FIELD_FOREIGN, .note = "write `clip = 1.0`"},
    {"max_steps", ZP_FIELD_FOREIGN, .note = "write `steps = 1000`"},
    {"train_iters", ZP_FIELD_FOREIGN, .note = "write `steps = 1000`"},
    {"weight_decay", ZP_FIELD_FOREIGN,
     .note = "it is an argument of the optimizer: `optimizer = adamw(lr = 6e-4, weight_decay = 0.1)`"},
    {"warmup", ZP_FIELD_FOREIGN, .note = "write `schedule = cosine(warmup = 100, min_lr = 6e-5)`"},
    {"warmup_steps", ZP_FIELD_FOREIGN, .note = "write `schedule = cosine(warmup = 100, min_lr = 6e-5)`"},
    {"dtype", ZP_FIELD_FOREIGN, .note = "write `precision = \"mixed_bf16\"`"},
    {"num_train_epochs", ZP_FIELD_FOREIGN, .note = "the length is given in steps or in tokens: `tokens = 300e9`"},
    {"seq_length", ZP_FIELD_FOREIGN, .note = "the model has it: its parameter `S`, as in `model = gpt2(S = 1024)`"},
    {"max_seq_length", ZP_FIELD_FOREIGN, .note = "the model has it: its parameter `S`, as in `model = gpt2(S = 1024)`"},
    {"fp8", ZP_FIELD_FOREIGN, .note = fp8_note},
    {"fp8_format", ZP_FIELD_FOREIGN, .note = fp8_note},
    {"fp8_recipe", ZP_FIELD_FOREIGN, .note = fp8_note},
    {"epochs", ZP_FIELD_FOREIGN, .note = "the length is given in steps or in tokens: `tokens = 300e9`"},
};
const zp_schema zp_train_schema = ZP_SCHEMA_WITH("train", train_fields, 0, &train_unwritten);

/* Sums of doubles are there to be exact. */
static void check_reduce_dtype(zp_reader *reader, const zp_train *train) {
  if (!train->rounds_sums || train->precision != ZP_PREC_F64) return;
  zp_diag *d = zp_report(reader->diags, ZP_Z0304, train->reduce_span,
                         "`reduce_dtype = \"bf16\"` does not go with precision \"fp64\"");
  zp_diag_help(d, "leave it out, or set precision = \"fp32\", \"mixed_bf16\" or \"mixed_fp16\"");
}

/* Was it meant by a misspelt key? That has its own message. */
static bool is_misspelt(const zp_attrs *attrs, const char *key) {
  for (int i = 0; i < attrs->len; i++)
    if (!zp_find_field(&zp_train_schema, attrs->data[i]->key.text) && zp_closest(attrs->data[i]->key.text, &key, 1))
      return true;
  return false;
}

static void require(zp_reader *reader, const zp_attrs *attrs, zp_span span, const char *key, const char *example) {
  if (zp_find_attr(attrs, key) || is_misspelt(attrs, key)) return;
  zp_diag *d = zp_report(reader->diags, ZP_Z0502, span, "`train` does not say `%s`", key);
  zp_diag_help(d, "for example `%s`", example);
}

static void check_length(zp_reader *reader, const zp_attrs *attrs, zp_span span) {
  const zp_attr *steps = zp_find_attr(attrs, "steps"), *tokens = zp_find_attr(attrs, "tokens");
  if (!steps && !tokens && (is_misspelt(attrs, "steps") || is_misspelt(attrs, "tokens"))) return;
  if (!steps && !tokens) {
    zp_diag *d =
        zp_report(reader->diags, ZP_Z0502, span, "`train` does not say how long: neither `steps` nor `tokens`");
    zp_diag_help(d, "for example `steps = 2000` or `tokens = 300e9`");
  } else if (steps && tokens) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0503, tokens->span, "both `steps` and `tokens` are given");
    zp_diag_also(d, steps->span, "the length is given here already");
    zp_diag_help(d, "steps = tokens / (batch x sequence length): leave one of them out");
  }
}

static void check_blocks(zp_reader *reader, const zp_attrs *attrs, const zp_train *train) {
  const zp_attr *validate = zp_find_attr(attrs, "validate"), *checkpoint = zp_find_attr(attrs, "checkpoint");
  if (validate && (train->validate_data.kind == ZP_DATA_NONE || train->validate_every == 0)) {
    const char *missing = train->validate_data.kind == ZP_DATA_NONE ? "data" : "every";
    zp_diag *d = zp_report(reader->diags, ZP_Z0502, validate->key.span, "`validate` does not say `%s`", missing);
    zp_diag_help(d, "for example `validate { data = tokens(\"val.bin\")  every = 250  batches = 20 }`");
  }
  if (checkpoint && !train->checkpoint_dir && !train->checkpoint_none) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0502, checkpoint->key.span, "`checkpoint` does not say `dir`");
    zp_diag_help(d, "for example `checkpoint { dir = \"out\"  every = 500  keep = 2 }`");
  }
  const zp_attr *schedule = zp_find_attr(attrs, "schedule");
  if (schedule && train->min_lr > train->lr)
    zp_report(reader->diags, ZP_Z0306, schedule->value->span, "`min_lr` %g is above the learning rate %g",
              train->min_lr, train->lr);
}

static zp_span span_of(const zp_attrs *attrs, const char *key, zp_span otherwise) {
  const zp_attr *attr = zp_find_attr(attrs, key);
  return attr ? attr->span : otherwise;
}

void zp_read_train(zp_reader *reader, const zp_env *env, const zp_attrs *attrs, zp_span span, zp_train *train) {
  int before = zp_diags_errors(reader->diags);
  *train = train_unwritten;
  train->span = span;
  zp_read_attrs(reader, env, &zp_train_schema, attrs, train);
  train->batch_span = span_of(attrs, "batch", span);
  train->precision_span = span_of(attrs, "precision", span);
  train->optimizer_span = span_of(attrs, "optimizer", span);
  train->schedule_span = span_of(attrs, "schedule", span);
  train->delay_span = span_of(attrs, "delayed_update", span);
  train->reduce_span = span_of(attrs, "reduce_dtype", span);
  train->sums_span = span_of(attrs, "gradient_sums", span);
  require(reader, attrs, span, "batch", "batch = 16");
  require(reader, attrs, span, "optimizer", "optimizer = adamw(lr = 6e-4)");
  check_length(reader, attrs, span);
  zp_check_loss_scale(reader, attrs, train);
  zp_check_delay(reader, train);
  check_reduce_dtype(reader, train);
  if (zp_diags_errors(reader->diags) == before) zp_check_relative_step(reader, attrs, train);
  if (zp_diags_errors(reader->diags) == before) check_blocks(reader, attrs, train);
}

bool zp_spec_finish(zp_diags *diags, zp_spec *spec) {
  zp_train *train = &spec->train;
  int before = zp_diags_errors(diags);
  spec->cluster.rounds_sums = train->rounds_sums;
  if (train->batch == 0) return true; /* a file without a train block */
  if (train->batch > ZP_MOST_BATCH)
    zp_report(diags, ZP_Z0306, train->batch_span, "`batch` must be at most %d sequences", ZP_MOST_BATCH);
  zp_check_data(diags, spec, &train->data);
  zp_check_data(diags, spec, &train->validate_data);
  zp_freeze(diags, spec);
  if (zp_diags_errors(diags) == before) zp_use_float8(diags, spec);
  if (zp_diags_errors(diags) == before) zp_check_groups(diags, spec);
  zp_check_eps(diags, spec);
  if (train->tokens > 0)
    train->steps = (int64_t)ceil((double)train->tokens / ((double)train->batch * (double)spec->model->sequence));
  if (train->warmup + train->decay_steps > train->steps) {
    zp_diag *d = zp_report(diags, ZP_Z0504, train->schedule_span, "the schedule is longer than the training");
    zp_diag_note(d, "warmup takes %lld steps and the last phase %lld, but the training has %lld",
                 (long long)train->warmup, (long long)train->decay_steps, (long long)train->steps);
  }
  zp_check_terms(diags, spec);
  zp_check_cut(diags, spec);
  return zp_diags_errors(diags) == before;
}
