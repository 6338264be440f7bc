/* SPDX-License-Identifier: Apache-2.0 */
/* Data and the model that they feed: are there inputs of the right names and shapes, and are tokens that mean something
 * among the model's? */
#include "spec_internal.h"

static const char *word_of(const zp_data *data) {
  static const char *const words[] = {[ZP_DATA_NONE] = "",       [ZP_DATA_TOKENS] = "tokens",
                                      [ZP_DATA_TEXT] = "text",   [ZP_DATA_SYNTHETIC] = "synthetic",
                                      [ZP_DATA_LINES] = "lines", [ZP_DATA_ARRAYS] = "arrays",
                                      [ZP_DATA_MIX] = "mix",     [ZP_DATA_DOCUMENTS] = "documents"};
  return data->spans.rate > 0 ? "spans" : data->mask_rate > 0 ? "masked" : words[data->kind];
}

static bool is_documents(const zp_data *data) { return data->kind == ZP_DATA_LINES || data->kind == ZP_DATA_DOCUMENTS; }

static bool has_documents(const zp_data *data) {
  for (int i = 0; i < data->n_parts; i++)
    if (is_documents(&data->parts[i])) return true;
  return is_documents(data);
}

/* The end of a document is the label of its last token. */
static void check_ends(zp_diags *diags, const zp_model *model, const zp_data *data) {
  for (int i = 0; i < data->n_parts; i++) check_ends(diags, model, &data->parts[i]);
  if (data->kind != ZP_DATA_DOCUMENTS || data->end < model->vocabulary) return;
  zp_report(diags, ZP_Z0306, data->span, "`end` %lld is not one of the model's %lld tokens", (long long)data->end,
            (long long)model->vocabulary);
}

static const zp_input *input_of(const zp_model *model, const char *name) {
  for (int i = 0; i < model->inputs.len; i++)
    if (strcmp(model->inputs.data[i].name, name) == 0) return &model->inputs.data[i];
  return NULL;
}

static bool is_ids(const zp_input *input, int rank) {
  return input && input->element == ZP_ELEM_I32 && input->shape.rank == rank;
}

/* Tokens and the labels that arrays have in their places, of which the masks leave some. */
static bool check_masked_arrays(zp_diags *diags, const zp_spec *spec, const zp_data *data) {
  const zp_input *tokens = input_of(spec->model, "tokens"), *labels = input_of(spec->model, "labels");
  if (data->mask_rate == 0 || !zp_data_is_arrays(data)) return true;
  if (is_ids(tokens, 2) && is_ids(labels, 2) && tokens->shape.dim[1] == labels->shape.dim[1]) return true;
  zp_diag *d = zp_report(diags, ZP_Z0238, data->span, "`masked` does not feed the inputs of this model");
  zp_diag_help(d, "of arrays it masks `tokens: i32[B, S]` and leaves labels in `labels: i32[B, S]`; whatever else the "
                  "model reads stays as it is");
  return false;
}

/* Where a line ends before the sequence does, and where no token is masked, labels say that nothing counts there. */
static void check_labels(zp_diags *diags, const zp_spec *spec, const zp_data *data) {
  bool masked = data->mask_rate > 0;
  if (!masked && !has_documents(data)) return;
  if (masked && data->mask_token >= spec->model->vocabulary) {
    zp_diag *d = zp_report(diags, ZP_Z0306, data->span, "mask token %lld is not one of the model's %lld tokens",
                           (long long)data->mask_token, (long long)spec->model->vocabulary);
    zp_diag_help(d, "take an id from 0 to %lld that the data do not use", (long long)spec->model->vocabulary - 1);
  }
  if (input_of(spec->model, "labels")) return;
  zp_diag *d = zp_report(diags, ZP_Z0238, data->span, "`%s` feeds labels, which the model does not have",
                         masked ? "masked" : word_of(data));
  zp_diag_help(d, "declare `input labels: i32[B, S]`: where nothing counts there are none, and no loss");
}

/* What stands for none is read as such from arrays alone: labels of text are the tokens that follow. */
static void check_ignored(zp_diags *diags, const zp_spec *spec, const zp_data *data) {
  if (zp_data_is_arrays(data)) return;
  for (int i = 0; i < spec->model->inputs.len; i++) {
    const zp_input *input = &spec->model->inputs.data[i];
    if (input->none == -1) continue;
    zp_diag *d = zp_report(diags, ZP_Z0238, data->span, "`ignore_index = %lld` of `%s` is read from arrays alone",
                           (long long)input->none, input->name);
    zp_diag_help(d, "leave it out: where `%s` has no label it has -1", word_of(data));
  }
}

/* Text and tokens are one stream, in which nothing says where a document ends. */
static bool check_documents(zp_diags *diags, const zp_spec *spec, const zp_data *data) {
  for (int i = 0; i < spec->model->inputs.len; i++) {
    const zp_input *input = &spec->model->inputs.data[i];
    if (!input->documents || zp_data_is_arrays(data)) continue;
    zp_diag *d =
        zp_report(diags, ZP_Z0238, data->span, "`%s` does not say which documents positions are of", word_of(data));
    zp_diag_also(d, input->span, "attention asks `%s` for them", input->name);
    zp_diag_help(d, "`zplan data jsonl TEXTS --field text --length N --pack --documents -o FOLDER` makes `data = "
                    "arrays(\"FOLDER\")` that does");
    return false;
  }
  return true;
}

/* Made-up samples are numbers with a label; nothing says what other ids would mean. */
static bool can_be_made_up(const zp_model *model) {
  for (int i = 0; i < model->inputs.len; i++) {
    const zp_input *input = &model->inputs.data[i];
    if (input->element == ZP_ELEM_I32 && !(input->labels && input->shape.rank == 1)) return false;
  }
  return true;
}

/* Does the source have what the model reads? Arrays have any input by its name; all others have tokens. */
static void check_source(zp_diags *diags, const zp_spec *spec, const zp_data *data) {
  bool masked = data->mask_rate > 0;
  if (spec->model->inputs.len == 0 || zp_data_is_arrays(data) || zp_model_reads_tokens(spec->model) ||
      (data->kind == ZP_DATA_SYNTHETIC && !masked && can_be_made_up(spec->model)))
    return;
  const zp_input *first = zp_model_foreign_input(spec->model);
  zp_diag *d = zp_report(diags, ZP_Z0238, data->span, "`%s` does not feed the inputs of this model", word_of(data));
  zp_diag_also(d, first->span, "it reads `%s` %s", first->name, zp_shape_text(spec->model->arena, &first->shape));
  zp_diag_help(d, "`arrays(\"FOLDER\")` feeds any input from a file of its name: %s.npy", first->name);
}

/* ---- spans ---- */

/* Encoder, decoder and labels, which are all that a model may read alongside the lengths of the first. */
static bool reads_spans(const zp_model *model) {
  const zp_input *source = input_of(model, "source"), *target = input_of(model, "target"),
                 *labels = input_of(model, "labels"), *lengths = input_of(model, "lengths");
  if (!is_ids(source, 2) || !is_ids(target, 2) || !is_ids(labels, 2) || (lengths && !is_ids(lengths, 1))) return false;
  return target->shape.dim[1] == labels->shape.dim[1] && model->inputs.len == (lengths ? 4 : 3);
}

static void check_spans(zp_diags *diags, const zp_model *model, zp_data *data) {
  enum { LEAST = 3 }; /* of two tokens: one of them, a sentinel, the end */
  zp_span_rule *rule = &data->spans;
  if (!reads_spans(model)) {
    zp_diag *d = zp_report(diags, ZP_Z0238, data->span, "`spans` does not feed the inputs of this model");
    zp_diag_help(d,
                 "it feeds `source: i32[B, S]`, `target: i32[B, T]`, `labels: i32[B, T]` and `lengths: i32[B]`, which "
                 "may be left out");
    return;
  }
  int64_t room = input_of(model, "source")->shape.dim[1], out = input_of(model, "labels")->shape.dim[1];
  if (rule->sentinel < 0) rule->sentinel = model->vocabulary - 1;
  if (room < LEAST || out < LEAST)
    zp_report(diags, ZP_Z0306, data->span, "%lld and %lld positions have no room for a sample: %d are the least",
              (long long)room, (long long)out, LEAST);
  const struct {
    const char *word;
    int64_t id;
  } ids[] = {{"sentinel", rule->sentinel}, {"eos", rule->eos}, {"start", rule->start}};
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    if (ids[i].id < model->vocabulary) continue;
    zp_diag *d = zp_report(diags, ZP_Z0306, data->span, "`%s` %lld is not one of the model's %lld tokens", ids[i].word,
                           (long long)ids[i].id, (long long)model->vocabulary);
    zp_diag_help(d, "take an id from 0 to %lld that the data do not use", (long long)model->vocabulary - 1);
  }
}

void zp_check_data(zp_diags *diags, const zp_spec *spec, zp_data *data) {
  if (!spec->model || data->kind == ZP_DATA_NONE) return;
  if (!check_documents(diags, spec, data)) return;
  check_ends(diags, spec->model, data);
  if (data->spans.rate > 0) {
    check_spans(diags, spec->model, data);
    check_ignored(diags, spec, data);
    return;
  }
  check_source(diags, spec, data);
  if (check_masked_arrays(diags, spec, data)) check_labels(diags, spec, data);
  check_ignored(diags, spec, data);
}
