/* SPDX-License-Identifier: Apache-2.0 */
/* Which sample comes when. The order depends on the source and its seed, never on the plan:
 *
 * - A run counts its samples, whatever the batch: the next batch begins where the one before it ended.
 * - The stream has W = floor((tokens - 1) / S) windows. Window w has tokens [w * S, w * S + S], one more than S because
 *   labels are tokens shifted by one; neighbours share that token.
 * - sequential: sample n is window n mod W.
 * - shuffled: sample n is window perm(seed, n / W)[n mod W], a new permutation for every pass over the data.
 * - synthetic: sample n is made up from (seed, n); there are no windows.
 * - lines, documents: a window is a line of the text, a document or a piece of one, and its loss counts as far as it
 *   goes.
 * - arrays: a window is a row of every array.
 * - mixed: sample n is sample m of one of several of these (data_order.c).
 * - masked, or with spans cut out: a sample that comes again is changed anew. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "data.h"
#include "device.h"
#include "state.h"

static bool cuts_spans(const zpr_data *data) { return data->source.spans.rate > 0; }
static bool masks_tokens(const zpr_data *data) { return data->source.mask_rate > 0; }

/* ---- opening ---- */

static void open_parts(zpr_data *data, zpr_error *error) {
  const zpr_source *s = &data->source;
  static const double alone = 1;
  int n = s->kind == ZPR_MIX ? s->n_parts : 1;
  assert(n >= 1 && n <= ZPR_MOST_PARTS);
  data->parts = zpr_alloc(data->c, (size_t)n, sizeof *data->parts);
  data->mix = zpr_mix_of(n, s->kind == ZPR_MIX ? s->weights : &alone);
  for (int i = 0; i < n && !error->code[0]; i++) {
    data->n_parts++;
    zpr_data_part_open(data->c, s->kind == ZPR_MIX ? &s->parts[i] : s, data->length, &data->parts[i], error);
  }
}

zpr_data *zpr_data_open(zpr *c, const zpr_source *source) {
  zpr_data *data = zpr_alloc(c, 1, sizeof *data);
  zpr_error error = {0};
  data->c = c;
  data->source = *source;
  data->length = c->program->sequence;
  data->end = INT64_MAX;
  if (source->kind == ZPR_NO_DATA)
    zpr_error_set(&error, "Z0801", "there is no data to train on: name some in the train block or with --data");
  else if (cuts_spans(data) && zpr_spans_open(c, &source->spans, &data->spans, &error))
    data->length = data->spans.length;
  else if (masks_tokens(data))
    zpr_masks_open(c, source, &data->masks, &error);
  int64_t most = data->length; /* labels of a sample, by whatever source */
  for (int i = 0; i < c->program->n_named; i++)
    if (c->program->named[i].labels && c->program->named[i].elements > most) most = c->program->named[i].elements;
  data->labels = zpr_alloc(c, (size_t)most, sizeof *data->labels);
  data->window = zpr_alloc(c, (size_t)data->length + 1, sizeof *data->window);
  if (cuts_spans(data) || masks_tokens(data)) data->tokens = zpr_alloc(c, (size_t)most, sizeof *data->tokens);
  if (!error.code[0]) open_parts(data, &error);
  zpr_agree(c, &error);
  return data;
}

void zpr_data_close(zpr_data *data) {
  if (!data) return;
  for (int i = 0; i < data->n_parts; i++) zpr_data_part_close(&data->parts[i]);
  zpr_spans_close(&data->spans);
  zpr_masks_close(&data->masks);
  free(data->parts);
  free(data->window);
  free(data->tokens);
  free(data->labels);
  free(data);
}

/* ---- what is counted ---- */

int64_t zpr_data_length(const zpr_data *data) { return data->length; }

int64_t zpr_data_labels(const zpr_data *data, int loss) {
  assert(loss >= 0 && loss < zpr_n_losses(data->c->program));
  return data->counted[loss];
}

int64_t zpr_data_windows(const zpr_data *data) {
  int64_t windows = 0;
  for (int i = 0; i < data->n_parts; i++) windows += data->parts[i].windows;
  return windows > 0 ? windows : 1;
}

int zpr_data_passes(const zpr_data *data, int64_t samples, zpr_passes passes[ZPR_MOST_PARTS]) {
  int64_t count[ZPR_MOST_PARTS];
  if (data->source.kind != ZPR_MIX) return 0;
  zpr_mix_count(&data->mix, samples, count);
  for (int i = 0; i < data->n_parts; i++) {
    const zpr_data_part *part = &data->parts[i];
    passes[i] = (zpr_passes){.kind = zpr_data_kind_name(part->source.kind),
                             .path = part->source.path,
                             .samples = count[i],
                             .passes = part->windows > 0 ? (double)count[i] / (double)part->windows : 0};
  }
  return data->n_parts;
}

/* ---- loading ---- */

/* Sample n of the run: sample m of one of the sources. */
typedef struct place {
  const zpr_data_part *part;
  int64_t m;
} place;

static place place_of(const zpr_data *data, int64_t n) {
  place at;
  at.part = &data->parts[zpr_mix_source(&data->mix, n, &at.m)];
  return at;
}

/* What is wrong with the batch is kept, the first of it, and loading goes on to its end: the step is not applied, and
 * all ranks end after it with a checkpoint (train.c). */
static bool troubled(const zpr_data *data) { return data->c->state->data_error.code[0] != 0; }

static void keep_trouble(const zpr_data *data, const zpr_error *error) {
  zpr_error_set(&data->c->state->data_error, error->code, "%s", error->text);
}

/* How many of its tokens are masked. */
static int64_t read_sample(const zpr_data *data, int64_t n, zpr_sample *sample) {
  const zpr_program *p = data->c->program;
  zpr_error error = {0};
  place at = place_of(data, n);
  if (troubled(data)) return 0;
  if (!zpr_data_part_read(at.part, at.m, p->vocabulary, data->window, sample, &error)) {
    keep_trouble(data, &error);
    return 0;
  }
  return masks_tokens(data) ? zpr_mask(&data->masks, n, sample) : 0;
}

static int64_t counted_of_sample(const zpr_data *data, int64_t n) {
  place at = place_of(data, n);
  int64_t length = zpr_data_part_tokens(at.part, at.m);
  if (cuts_spans(data)) return zpr_span_labels(&data->source.spans, length);
  if (data->masks.whole_words) return read_sample(data, n, &(zpr_sample){data->tokens, data->labels, 0});
  return masks_tokens(data) ? zpr_masked_tokens(&data->masks, length) : length;
}

/* Are samples of several lengths? */
static bool has_documents(const zpr_data *data) {
  for (int i = 0; i < data->n_parts; i++)
    if (data->parts[i].documents.n > 0) return true;
  return false;
}

/* Samples of the batch that begins with sample `first` that have labels at all. */
static int64_t labelled_samples(const zpr_data *data, int64_t first) {
  int64_t left = data->end - first, batch = data->c->program->batch;
  return left < 0 ? 0 : left < batch ? left : batch;
}

/* Tokens of the batch that begins with sample `first` whose loss counts: of all ranks, which need not ask each
 * other. */
static int64_t counted_tokens(const zpr_data *data, int64_t first) {
  int64_t tokens = 0, samples = labelled_samples(data, first);
  if (!has_documents(data) && !data->masks.whole_words) return samples * counted_of_sample(data, first);
  for (int64_t i = 0; i < samples; i++) tokens += counted_of_sample(data, first + i);
  return tokens;
}

static int64_t rows_of_loss(const zpr_program *p, int loss) { return p->losses ? p->losses[loss].rows : 0; }

static void weigh(zpr *c, zpr_data *data, int loss, int64_t counted) {
  data->counted[loss] = counted;
  c->token_weight[loss] = zpr_label_weight(counted);
}

static void weigh_tokens(zpr *c, zpr_data *data, int64_t first) {
  const zpr_program *p = c->program;
  for (int i = 0; i < zpr_n_losses(p); i++)
    weigh(c, data, i, rows_of_loss(p, i) > 0 ? p->batch * rows_of_loss(p, i) : counted_tokens(data, first));
}

/* Elements of all samples in front of input i. */
static int64_t input_at(const zpr_program *p, int i) { return i * p->microbatches * p->microbatch * p->sequence; }

/* ---- inputs by name ---- */

static bool is_by_name(const zpr_data *data) {
  return data->parts[0].source.kind == ZPR_NPY || data->c->program->n_inputs == 0;
}

static void read_named(const zpr_data *data, int input, place from, int32_t *to) {
  zpr_error error = {0};
  if (!zpr_named_read(data->c, &from.part->arrays, input, zpr_data_part_window(from.part, from.m), to, 0, &error))
    keep_trouble(data, &error);
}

/* The classes of a loss with lengths are the first ones of a sample. */
static void check_label(const zpr_data *data, const zpr_loss *loss, place from, int32_t label) {
  const zpr_named *named = data->c->program->named;
  int32_t length;
  if (loss->lengths < 0 || label < 0) return;
  read_named(data, loss->lengths, from, &length);
  if (label >= length && !troubled(data))
    zpr_error_set(&data->c->state->data_error, "Z0803", "`%s` of sample %lld is %d, but its `%s` are %d, in \"%s\"",
                  named[loss->labels].name, (long long)zpr_data_part_window(from.part, from.m), (int)label,
                  named[loss->lengths].name, (int)length, from.part->source.path);
}

static void mask_named(const zpr_data *data, int64_t n, place from, int32_t *tokens, int32_t *labels) {
  zpr_error error = {0};
  if (troubled(data)) return;
  if (!zpr_mask_named(&data->masks, n, zpr_data_part_window(from.part, from.m), tokens, labels, &error))
    keep_trouble(data, &error);
}

/* The labels of sample n that a loss has, masked as they will be. */
static void read_labels(const zpr_data *data, int64_t n, place from, int input, int32_t *labels) {
  read_named(data, input, from, labels);
  if (!masks_tokens(data) || input != data->masks.labels) return;
  read_named(data, data->masks.tokens, from, data->tokens);
  mask_named(data, n, from, data->tokens, labels);
}

/* Labels of the batch that begins with sample `first`, of all ranks, which need not ask each other: each looks at them
 * all. */
static int64_t counted_labels(const zpr_data *data, int64_t first, const zpr_loss *loss, int32_t *labels) {
  const zpr_program *p = data->c->program;
  int64_t counted = 0;
  if (loss->rows > 0) return p->batch * loss->rows;
  if (data->source.kind == ZPR_SYNTHETIC) return p->batch;
  for (int64_t n = first; n < first + labelled_samples(data, first); n++) {
    place from = place_of(data, n);
    read_labels(data, n, from, loss->labels, labels);
    for (int64_t k = 0; k < p->named[loss->labels].elements; k++) counted += labels[k] >= 0;
    check_label(data, loss, from, labels[0]);
  }
  return counted;
}

/* A loss may go without, as tasks that take turns do; a step without any label would be none. */
static void count_labels(zpr *c, zpr_data *data, int64_t first) {
  const zpr_program *p = c->program;
  bool some = false;
  zpr_loss alone = {.lengths = -1}; /* of the one input with labels */
  while (!p->losses && alone.labels < p->n_named - 1 && !p->named[alone.labels].labels) alone.labels++;
  for (int i = 0; i < zpr_n_losses(p); i++) {
    weigh(c, data, i, counted_labels(data, first, p->losses ? &p->losses[i] : &alone, data->labels));
    some |= data->counted[i] > 0;
  }
  if (some || !c->training || troubled(data)) return;
  const char *name = p->named[p->losses ? p->losses[0].labels : alone.labels].name;
  zpr_error_set(&c->state->data_error, "Z0803",
                zpr_n_losses(p) == 1
                    ? "no sample of the batch has a label in `%s`: samples %lld to %lld of the run, of \"%s\""
                    : "no sample of the batch has a label of any loss, `%s` the first: samples %lld to %lld of the "
                      "run, of \"%s\"",
                name, (long long)first, (long long)(first + p->batch - 1), place_of(data, first).part->source.path);
}

/* Where an input of sample i of the rank's goes; input -1: nowhere. */
static int32_t *ids_at(const zpr *c, char *inputs, int input, int64_t i) {
  const zpr_program *p = c->program;
  if (input < 0) return NULL;
  char *to = inputs + zpr_named_at(c, input, i / p->microbatch);
  return (int32_t *)(void *)to + i % p->microbatch * p->named[input].elements;
}

/* Sample n of the data to place i of the rank's samples. */
static void read_arrays(zpr_data *data, int64_t n, int64_t i, char *inputs) {
  const zpr_program *p = data->c->program;
  zpr_error error = {0};
  place from = place_of(data, n);
  for (int k = 0; k < p->n_named; k++) {
    if (!zpr_has_named(data->c, k)) continue;
    char *to = inputs + zpr_named_at(data->c, k, i / p->microbatch);
    int64_t at = i % p->microbatch * p->named[k].elements;
    if (from.part->source.kind == ZPR_SYNTHETIC)
      zpr_named_make_up(data->c, from.part->source.seed, (uint64_t)from.m, k, to, at);
    else if (!zpr_named_read(data->c, &from.part->arrays, k, zpr_data_part_window(from.part, from.m), to, at, &error))
      keep_trouble(data, &error);
  }
  if (masks_tokens(data))
    mask_named(data, n, from, ids_at(data->c, inputs, data->masks.tokens, i),
               ids_at(data->c, inputs, data->masks.labels, i));
}

/* Sample n of the run, without its spans, to place i of the rank's samples. */
static void cut_sample(zpr_data *data, int64_t n, int64_t i, char *inputs) {
  const zpr *c = data->c;
  const zpr_spans *spans = &data->spans;
  zpr_error error = {0};
  zpr_sample sample = {.tokens = data->tokens, .labels = data->labels};
  zpr_span_places places = {.source = ids_at(c, inputs, spans->source, i),
                            .target = ids_at(c, inputs, spans->target, i),
                            .labels = ids_at(c, inputs, spans->labels, i),
                            .length = ids_at(c, inputs, spans->lengths, i)};
  read_sample(data, n, &sample);
  if (!troubled(data) && !zpr_spans_make(spans, n, sample.tokens, sample.length, &places, &error))
    keep_trouble(data, &error);
}

/* Inputs that every kernel may read, for a batch that will not count. */
static void put_legal(const zpr *c, char *inputs) {
  const zpr_program *p = c->program;
  memset(inputs, 0, (size_t)zpr_named_at(c, p->n_named, 0));
  for (int k = 0; k < p->n_named; k++)
    for (int64_t i = 0; i < p->microbatches * p->microbatch && zpr_has_named(c, k) && !p->named[k].numbers; i++)
      for (int64_t e = 0; e < p->named[k].elements; e++)
        ids_at(c, inputs, k, i)[e] = p->named[k].documents ? 0 : (int32_t)p->named[k].least;
}

/* ---- samples that are left out ---- */

/* Does every loss find out by its labels which samples there are? Labels that something else reads, too, are never
 * marked with -1. */
static bool can_leave_out(const zpr_data *data) {
  const zpr_program *p = data->c->program;
  if (!is_by_name(data)) return p->n_inputs > 1 && p->n_losses <= 1 && rows_of_loss(p, 0) == 0;
  bool can = true;
  for (int i = 0; i < p->n_losses; i++) can &= p->losses[i].labels >= 0;
  for (int k = 0; k < p->n_named && can; k++) can = !p->named[k].labels || p->named[k].least < 0 || p->named[k].recoded;
  return can;
}

/* The first sample that comes again, at most `samples`. */
static int64_t first_again(const zpr_data *data, int64_t samples) {
  int64_t m;
  for (int64_t n = 0; n < samples; n++) {
    const zpr_data_part *part = &data->parts[zpr_mix_source(&data->mix, n, &m)];
    if (part->windows > 0 && m >= part->windows) return n;
  }
  return samples;
}

int64_t zpr_data_once(const zpr_data *data, int64_t samples) {
  int64_t batch = data->c->program->batch;
  assert(samples >= batch && samples % batch == 0);
  int64_t once = first_again(data, samples);
  if (can_leave_out(data)) return once;
  return once / batch * batch;
}

bool zpr_data_end(zpr_data *data, int64_t end) {
  assert(end >= 1);
  bool changes = data->end != end;
  data->end = end;
  return changes;
}

static void take_labels(int32_t *labels, int64_t n) {
  for (int64_t k = 0; k < n; k++) labels[k] = -1;
}

static void take_named_labels(const zpr *c, int64_t i, char *inputs) {
  const zpr_program *p = c->program;
  for (int k = 0; k < p->n_named; k++)
    if (p->named[k].labels && zpr_has_named(c, k)) take_labels(ids_at(c, inputs, k, i), p->named[k].elements);
}

/* ---- shares of positions ---- */

/* Keeps the positions of this place in the context group: of n samples, one after the other, with so many each. A late
 * stretch stands before an early one, so it is moved last. */
static void keep_share(const zpr *c, int32_t *ids, int64_t n, int64_t positions) {
  int stretches = c->program->context_by_keys ? 2 : 1;
  int64_t share = positions / zpr_context_ranks(c->program), each = share / stretches;
  for (int64_t b = 0; b < n; b++)
    for (int i = stretches; i-- > 0;)
      memmove(ids + b * share + i * each, ids + b * positions + zpr_positions_part(c, i) * each,
              (size_t)each * sizeof *ids);
}

/* Samples were read whole; each micro-batch's shares begin where its samples did. */
static void keep_shares(const zpr *c, char *inputs) {
  const zpr_program *p = c->program;
  int n = p->n_named > 0 ? p->n_named : p->n_inputs;
  for (int i = 0; i < n && zpr_context_ranks(p) > 1; i++)
    for (int64_t mb = 0; mb < p->microbatches && p->shared_inputs >> i & 1; mb++) {
      if (p->n_named == 0)
        keep_share(c, (int32_t *)(void *)inputs + input_at(p, i) + mb * p->microbatch * p->sequence, p->microbatch,
                   p->sequence);
      else if (zpr_has_named(c, i))
        keep_share(c, (int32_t *)(void *)(inputs + zpr_named_at(c, i, mb)), p->microbatch, p->named[i].elements);
    }
}

/* ---- a batch ---- */

static void load_arrays(zpr *c, zpr_data *data, int64_t first) {
  const zpr_program *p = c->program;
  int64_t samples = p->microbatches * p->microbatch, bytes = zpr_named_at(c, p->n_named, 0);
  if (cuts_spans(data))
    weigh_tokens(c, data, first);
  else
    count_labels(c, data, first);
  int32_t *inputs = zpr_tokens_open(c, zpr_at(c, c->stage->inputs), bytes / (int64_t)sizeof(int32_t));
  for (int64_t i = 0; i < samples; i++) {
    int64_t n = first + c->first_sample + i;
    (cuts_spans(data) ? cut_sample : read_arrays)(data, n, i, (char *)inputs);
    if (n >= data->end) take_named_labels(c, i, (char *)inputs);
  }
  if (troubled(data)) put_legal(c, (char *)inputs);
  keep_shares(c, (char *)inputs);
  zpr_tokens_close(c);
}

void zpr_data_load(zpr *c, zpr_data *data, int64_t first) {
  const zpr_program *p = c->program;
  if (is_by_name(data)) {
    load_arrays(c, data, first);
    return;
  }
  int64_t S = p->sequence, samples = p->microbatches * p->microbatch, count = input_at(p, p->n_inputs);
  int32_t *tokens = zpr_tokens_open(c, zpr_at(c, c->stage->inputs), count + (p->lengths ? samples : 0));
  for (int64_t i = 0; i < samples; i++) {
    zpr_sample sample = {.tokens = tokens + i * S, .labels = data->labels};
    if (p->n_inputs > 1) sample.labels = tokens + input_at(p, 1) + i * S;
    read_sample(data, first + c->first_sample + i, &sample);
    if (first + c->first_sample + i >= data->end) take_labels(sample.labels, S);
    if (p->lengths) tokens[count + i] = sample.length;
  }
  if (troubled(data)) memset(tokens, 0, (size_t)(count + (p->lengths ? samples : 0)) * sizeof *tokens);
  for (int64_t i = 0; i < samples && p->lengths && troubled(data); i++) tokens[count + i] = 1;
  keep_shares(c, (char *)tokens);
  zpr_tokens_close(c);
  weigh_tokens(c, data, first);
}

const int32_t *zpr_input(zpr *c, int input, int64_t mb) {
  const zpr_program *p = c->program;
  const char *inputs = zpr_at(c, c->stage->inputs);
  if (p->n_named > 0) {
    assert(input >= 0 && input < p->n_named && !p->named[input].numbers);
    return (const int32_t *)(const void *)(inputs + zpr_named_at(c, input, mb));
  }
  assert(input >= 0 && input < p->n_inputs + p->lengths && mb >= 0 && mb < p->microbatches);
  return (const int32_t *)(const void *)inputs + input_at(p, input) +
         mb * p->microbatch * (input < p->n_inputs ? p->sequence : 1);
}

const void *zpr_numbers(zpr *c, int input, int64_t mb) {
  assert(input >= 0 && input < c->program->n_named && c->program->named[input].numbers);
  assert(!c->stage->lacks_numbers);
  return (const char *)zpr_at(c, c->stage->inputs) + zpr_named_at(c, input, mb);
}
