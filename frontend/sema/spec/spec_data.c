/* SPDX-License-Identifier: Apache-2.0 */
/* Where the samples of a training come from: `data` of the train block and of its validation. Whether the model has the
 * inputs that they feed is considered when it is known (spec_data_check.c). */
#include "spec_internal.h"

bool zp_is_assignment(zp_reader *reader, const zp_attr *attr, const char *example) {
  if (attr->op == ZP_ATTR_SET && !attr->index.text) return true;
  zp_diag *d = zp_report(reader->diags, ZP_Z0305, attr->span, "`%s` is set with `=`", attr->key.text);
  zp_diag_help(d, "for example `%s`", example);
  return false;
}

static const zp_word orders[] = {{"sequential", false}, {"shuffled", true}, {NULL, 0}};
/* "llmc": shards of llm.c, which `zplan data` also writes; "megatron": indexed datasets. Files say themselves what they
 * are; a format that is named must agree with the name of the file. */
enum { ANY_FORMAT, FORMAT_LLMC, FORMAT_MEGATRON };
static const zp_word formats[] = {{"llmc", FORMAT_LLMC}, {"megatron", FORMAT_MEGATRON}, {NULL, 0}};

typedef struct data_args {
  zp_data data;
  int shuffled, format;
  int64_t seed, mask_token;
  double mask_rate;
  const char *mask_words;
  zp_span_rule spans;
} data_args;

static void read_masked_source(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);
static void read_cut_source(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base);

/* Masked: the share of arXiv 1810.04805; spans as in arXiv 1910.10683. */
static const data_args unwritten = {
    .data.end = -1, .mask_token = -1, .mask_rate = 0.15, .spans = {.rate = 0.15, .mean = 3, .sentinel = -1, .eos = 1}};

/* Fields that sources share. */
// clang-format off
#define PATH(what, name) \
  {"path", ZP_FIELD_STRING, .offset = offsetof(data_args, data.path), .meaning = what, \
   .example = "path = \"" name "\"", .missing = "required"}
#define ORDER \
  {"order", ZP_FIELD_WORD, .offset = offsetof(data_args, shuffled), .words = orders, \
   .example = "order = \"shuffled\"", .meaning = "whether samples are drawn in order or shuffled anew every epoch"}, \
  {"shuffle", ZP_FIELD_FOREIGN, .note = "write `order = \"shuffled\"`"}
#define SEED(what) \
  {"seed", ZP_FIELD_INT64, .offset = offsetof(data_args, seed), .range = ZP_RANGE_NOT_NEGATIVE, \
   .meaning = "seed " what, .example = "seed = 1"}
// clang-format on
static const zp_field tokens_fields[] = {
    PATH("token files, with * and ?", "*.bin"),
    ORDER,
    SEED("of the shuffle"),
    {"format", ZP_FIELD_WORD, .offset = offsetof(data_args, format), .words = formats, .meaning = "format of the files",
     .example = "format = \"llmc\"", .missing = "as the files say"},
};
static const zp_field text_fields[] = {
    PATH("text file", "text.txt"),
    ORDER,
    SEED("of the shuffle"),
    {"tokenizer", ZP_FIELD_REFUSED,
     .note = "`text` uses bytes as tokens; make others with `zplan data --tokenizer` and read them with `tokens`"},
};
static const zp_field lines_fields[] = {
    PATH("text file", "text.txt"),
    ORDER,
    SEED("of the shuffle"),
};
static const zp_field documents_fields[] = {
    PATH("token files, with * and ?", "*.bin"),
    {"end", ZP_FIELD_INT64, .offset = offsetof(data_args, data.end), .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "token that ends a sample", .example = "end = 0", .missing = "required"},
    ORDER,
    SEED("of the shuffle"),
};
static const zp_field synthetic_fields[] = {
    SEED("of the tokens"),
    ORDER,
};
static const zp_field arrays_fields[] = {
    PATH("folder of the arrays", "images"),
    ORDER,
    SEED("of the shuffle"),
};
/* Some tokens of another source are masked, and they are the labels. */
static const zp_field masked_fields[] = {
    {"source", ZP_FIELD_CUSTOM, .read = read_masked_source, .calls = &zp_data_calls,
     .meaning = "data whose tokens are masked", .example = "source = text(\"text.txt\")", .missing = "required",
     .outside = "source = 5"},
    {"token", ZP_FIELD_INT64, .offset = offsetof(data_args, mask_token), .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "id of the mask token", .example = "token = 103", .missing = "required"},
    {"rate", ZP_FIELD_SHARE, .offset = offsetof(data_args, mask_rate), .range = ZP_RANGE_FRACTION,
     .meaning = "share of tokens that are predicted", .example = "rate = 15%"},
    SEED("of the draw"),
    {"words", ZP_FIELD_STRING, .offset = offsetof(data_args, mask_words),
     .meaning = "vocab.txt, by which whole words are masked", .example = "words = \"vocab.txt\"",
     .missing = "single tokens"},
};
/* Spans of another source are cut out, and they are the labels. */
static const zp_field spans_fields[] = {
    {"source", ZP_FIELD_CUSTOM, .read = read_cut_source, .calls = &zp_data_calls,
     .meaning = "data that spans are cut out of", .example = "source = text(\"text.txt\")", .missing = "required",
     .outside = "source = 5"},
    {"sentinel", ZP_FIELD_INT64, .offset = offsetof(data_args, spans.sentinel), .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "id of the first sentinel; later ones are below it", .example = "sentinel = 255",
     .missing = "required"},
    {"eos", ZP_FIELD_INT64, .offset = offsetof(data_args, spans.eos), .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "id that ends both texts", .example = "eos = 1"},
    {"start", ZP_FIELD_INT64, .offset = offsetof(data_args, spans.start), .range = ZP_RANGE_NOT_NEGATIVE,
     .meaning = "id that the decoder begins with", .example = "start = 0"},
    {"rate", ZP_FIELD_SHARE, .offset = offsetof(data_args, spans.rate), .range = ZP_RANGE_FRACTION,
     .meaning = "share of tokens that are cut out", .example = "rate = 15%"},
    {"length", ZP_FIELD_REAL, .offset = offsetof(data_args, spans.mean), .range = ZP_RANGE_ONE_OR_MORE,
     .meaning = "mean length of a span in tokens", .example = "length = 3"},
    SEED("of the draw"),
};
enum { MASKED = -1, SPANS = -2 };
static const zp_function data_functions[] = {
    {"mix",
     ZP_DATA_MIX,
     {"mix", NULL, 0, 0, NULL},
     "several sources, each drawn as often as its weight says",
     "mix(0.7 * text(\"text.txt\"), 0.3 * text(\"text.txt\"))"}, /* read by read_mix */
    {"tokens", ZP_DATA_TOKENS, ZP_SCHEMA_WITH("tokens", tokens_fields, 1, &unwritten),
     "token files: shards of llm.c, or Megatron's indexed datasets", "tokens(\"*.bin\")"},
    {"text", ZP_DATA_TEXT, ZP_SCHEMA_WITH("text", text_fields, 1, &unwritten), "a text file; every byte is a token",
     "text(\"text.txt\")"},
    {"lines", ZP_DATA_LINES, ZP_SCHEMA_WITH("lines", lines_fields, 1, &unwritten),
     "a text file with a sample on every line; bytes are tokens", "lines(\"text.txt\")"},
    {"documents", ZP_DATA_DOCUMENTS, ZP_SCHEMA_WITH("documents", documents_fields, 1, &unwritten),
     "token files in which a token ends every sample", "documents(\"*.bin\", end = 0)"},
    {"synthetic", ZP_DATA_SYNTHETIC, ZP_SCHEMA_WITH("synthetic", synthetic_fields, 1, &unwritten),
     "tokens that are drawn at random: for measuring", "synthetic(seed = 1)"},
    {"arrays", ZP_DATA_ARRAYS, ZP_SCHEMA_WITH("arrays", arrays_fields, 1, &unwritten),
     "a folder with an array for every input of the model, as `zplan data` makes it", "arrays(\"images\")"},
    {"masked", MASKED, ZP_SCHEMA_WITH("masked", masked_fields, 1, &unwritten),
     "another source with tokens masked, which are the labels (BERT)", "masked(text(\"text.txt\"), token = 103)"},
    {"spans", SPANS, ZP_SCHEMA_WITH("spans", spans_fields, 1, &unwritten),
     "another source with spans cut out, which are the labels (T5)", "spans(text(\"text.txt\"), sentinel = 255)"},
};
const zp_functions zp_data_calls = ZP_FUNCTIONS(data_functions);
/* Stretches of the list: what may stand where. */
typedef struct choices {
  int first, count;
} choices;
static const choices everything = {0, sizeof data_functions / sizeof *data_functions}, of_tokens = {0, 6},
                     unchanged = {0, 7};
/* What a mixture may be of, where its own place takes `outer`. */
static choices in_mixture(choices outer) { return (choices){1, outer.count > of_tokens.count ? 6 : 5}; }

/* Paths in a file are relative to the file's folder, so that an example works from anywhere; paths of --set are
 * relative to the current folder, where the shell completed them. */
const char *zp_resolve(const zp_reader *reader, zp_span span, const char *path) {
  const char *file = zp_diags_source_path(reader->diags, span.file);
  const char *slash = strrchr(file, '/');
  if (path[0] == '/' || zp_is_setting(reader, span) || !slash) return path;
  return zp_format(reader->arena, "%.*s/%s", (int)(slash - file), file, path);
}

static void resolve_path(const zp_reader *reader, zp_span span, zp_data *data) {
  if (data->path[0] == '/' || zp_is_setting(reader, span)) return;
  data->written = data->path;
  data->path = zp_resolve(reader, span, data->path);
}

static bool is_index(const char *path) {
  size_t len = strlen(path);
  return len > 4 && strcmp(path + len - 4, ".idx") == 0;
}

/* A pattern as people write it in a shell. A file may have a star in its name, too; then mostly with odd letters. */
static bool is_pattern(const char *path) {
  static const char usual[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-/~*?[]";
  return strchr(path, '*') && path[strspn(path, usual)] == 0;
}

/* What a source says besides its kind: does it agree with itself? */
static bool check_source(zp_reader *reader, const zp_function *function, const data_args *args, zp_span span) {
  bool made_up = function->value == ZP_DATA_SYNTHETIC;
  if (!made_up && (!args->data.path || !args->data.path[0])) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0307, span, "`%s` needs a path", function->name);
    zp_diag_help(d, "for example `%s(\"%s\")`", function->name,
                 function->value == ZP_DATA_TOKENS || function->value == ZP_DATA_DOCUMENTS ? "train_*.bin"
                 : function->value == ZP_DATA_ARRAYS                                       ? "images"
                                                                                           : "book.txt");
    return false;
  }
  if (function->value == ZP_DATA_DOCUMENTS && args->data.end < 0) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0307, span, "`documents` needs the token that ends one");
    zp_diag_help(d, "for example `documents(\"train_*.bin\", end = 50256)`");
    return false;
  }
  if ((function->value == ZP_DATA_TEXT || function->value == ZP_DATA_LINES) && is_pattern(args->data.path)) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, span, "`%s` reads one file, `%s` may be several", function->name,
                           args->data.path);
    zp_diag_help(d, "`zplan data %s -o all.bin` puts them into one, `tokens(\"all.bin\")` reads it", args->data.path);
    return false;
  }
  if (args->format != ANY_FORMAT && is_index(args->data.path) != (args->format == FORMAT_MEGATRON)) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, span, "`%s` is not a file of that format", args->data.path);
    zp_diag_help(d, "Megatron's datasets are named by their .idx, all other files are shards of llm.c");
    return false;
  }
  if (!made_up && args->seed > 0 && !args->shuffled) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, span, "`seed` decides nothing where samples are in order");
    zp_diag_help(d, "it is that of `order = \"shuffled\"`");
    return false;
  }
  return true;
}

static bool read_source(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key, choices allowed,
                        zp_data *data);

/* mix(0.7 * tokens("a.bin"), 0.3 * text("b.txt")): as devices are counted; without a number it is 1. */
static bool read_mix(zp_reader *reader, const zp_env *env, const zp_expr *expr, choices allowed, zp_data *data) {
  int n = expr->kind == ZP_EXPR_CALL ? expr->args.len : 0;
  if (n < 2 || n > ZP_MOST_SOURCES) {
    zp_diag *d =
        zp_report(reader->diags, ZP_Z0304, expr->span, "`mix` has 2 to %d sources, not %d", ZP_MOST_SOURCES, n);
    zp_diag_help(d, "for example `mix(0.7 * tokens(\"web_*.bin\"), 0.3 * tokens(\"books.bin\"))`");
    return false;
  }
  *data = (zp_data){.kind = ZP_DATA_MIX,
                    .n_parts = n,
                    .parts = ZP_NEW_ARRAY(reader->arena, zp_data, n),
                    .weights = ZP_NEW_ARRAY(reader->arena, double, n),
                    .span = expr->span};
  for (int i = 0; i < n; i++) {
    const zp_arg *arg = &expr->args.data[i];
    const zp_expr *part = arg->value;
    bool weighted = part->kind == ZP_EXPR_BINARY && part->op == ZP_OPR_MUL;
    if (arg->name.text) {
      zp_diag *d = zp_report(reader->diags, ZP_Z0304, arg->name.span, "`%s` is no argument of `mix`", arg->name.text);
      zp_diag_help(d,
                   "order and seed are those of its sources; weights stand before them, as in `0.7 * text(\"a.txt\")`");
      return false;
    }
    data->weights[i] = 1;
    if (weighted &&
        !zp_read_number(reader, env, part->left, "mix", ZP_DIM_PERCENT, ZP_RANGE_POSITIVE, &data->weights[i]))
      return false;
    if (!read_source(reader, env, weighted ? part->right : part, "mix", in_mixture(allowed), &data->parts[i]))
      return false;
    if (zp_data_is_arrays(&data->parts[i]) == zp_data_is_arrays(&data->parts[0])) continue;
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, part->span, "arrays and tokens are mixed");
    zp_diag_help(d, "all sources of a mixture feed the same inputs: arrays by their names, or tokens");
    return false;
  }
  return true;
}

/* masked(...) and spans(...): what they change. */
static bool read_change(zp_reader *reader, const zp_expr *expr, bool masks, const data_args *args, zp_data *data) {
  bool none = args->data.kind == ZP_DATA_NONE;
  if (none || (masks && args->mask_token < 0)) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0307, expr->span, "`%s` needs %s", masks ? "masked" : "spans",
                           !none   ? "the id of the mask token"
                           : masks ? "what it masks"
                                   : "what they are cut out of");
    zp_diag_help(d, "for example `%s`",
                 masks ? "masked(tokens(\"train_*.bin\"), token = 103)"
                       : "spans(tokens(\"train_*.bin\"), sentinel = 32099)");
    return false;
  }
  *data = args->data;
  data->span = expr->span;
  if (masks) {
    data->mask_token = args->mask_token;
    data->mask_rate = args->mask_rate;
    data->mask_seed = (uint64_t)args->seed;
    if (args->mask_words) data->mask_words = zp_resolve(reader, expr->span, args->mask_words);
  } else {
    data->spans = args->spans;
    data->spans.seed = (uint64_t)args->seed;
  }
  return true;
}

/* text(["a.txt", "b.txt"]) */
static bool is_list_of_texts(const zp_expr *expr) {
  return expr->kind == ZP_EXPR_CALL && expr->args.len > 0 && !expr->args.data[0].name.text &&
         expr->args.data[0].value->kind == ZP_EXPR_LIST;
}

/* One of the functions that may stand here, with all that it was given. */
static bool read_source(zp_reader *reader, const zp_env *env, const zp_expr *expr, const char *key, choices allowed,
                        zp_data *data) {
  int before = zp_diags_errors(reader->diags);
  data_args args = unwritten;
  if (expr->kind == ZP_EXPR_STRING) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, expr->span, "`%s` must say what the file holds", key);
    zp_diag_help(d, "write `text(\"%s\")` for plain text or `tokens(\"%s\")` for token ids", expr->text, expr->text);
    return false;
  }
  bool is_mix = expr->kind == ZP_EXPR_CALL && expr->left->kind == ZP_EXPR_NAME && strcmp(expr->left->text, "mix") == 0;
  if (is_mix && allowed.first == 0) return read_mix(reader, env, expr, allowed, data);
  if (is_list_of_texts(expr)) {
    zp_diag *d = zp_report(reader->diags, ZP_Z0304, expr->span, "a source is one path, not a list");
    zp_diag_help(d, "`mix(text(\"a.txt\"), text(\"b.txt\"))` reads several, each as often; `zplan data a.txt b.txt -o "
                    "all.bin` puts them into one for `tokens(\"all.bin\")`");
    return false;
  }
  const zp_function *function =
      zp_read_call(reader, env, expr, key, data_functions + allowed.first, allowed.count, &args);
  if (!function || zp_diags_errors(reader->diags) != before) return false;
  if (function->value == ZP_DATA_MIX) return read_mix(reader, env, expr, allowed, data); /* without arguments */
  if (function->value == MASKED || function->value == SPANS)
    return read_change(reader, expr, function->value == MASKED, &args, data);
  if (!check_source(reader, function, &args, expr->span)) return false;
  *data = args.data;
  data->kind = (zp_data_kind)function->value;
  data->seed = (uint64_t)args.seed;
  data->shuffled = args.shuffled;
  data->span = expr->span;
  if (data->path) resolve_path(reader, expr->span, data);
  return true;
}

static void read_masked_source(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  data_args *args = base;
  read_source(reader, env, attr->value, attr->key.text, unchanged, &args->data);
}

static void read_cut_source(zp_reader *reader, const zp_env *env, const zp_attr *attr, void *base) {
  data_args *args = base;
  read_source(reader, env, attr->value, attr->key.text, of_tokens, &args->data);
}

void zp_read_data(zp_reader *reader, const zp_env *env, const zp_attr *attr, zp_data *data) {
  if (zp_is_assignment(reader, attr, "data = tokens(\"train_*.bin\")"))
    read_source(reader, env, attr->value, attr->key.text, everything, data);
}
