/* Which sample comes when. The order depends on the source and its seed, never on the plan:
 *
 * - A run counts its samples, whatever the batch: the next batch begins where the one before it ended.
 * - The stream has W = floor((tokens - 1) / S) windows. Window w has tokens [w * S, w * S + S], one more than S because
 *   labels are tokens shifted by one; neighbours share that token.
 * - sequential: sample n is window n mod W.
 * - shuffled: sample n is window perm(seed, n / W)[n mod W], a new permutation for every pass over the data.
 * - synthetic: sample n is made up from (seed, n); there are no windows.
 * - lines: a window is a line of the text, and its loss counts as far as it goes.
 * - arrays: a window is a row of every array.
 * - masked: of any of these; a sample that comes again is masked anew.
 *
 * The permutation is a four-round Feistel network over the smallest even number of bits that holds W, walked again
 * until the result is below W: any entry is computed on its own, so no table has to be kept or resumed. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "data.h"
#include "device.h"
#include "state.h"

struct zpr_data {
  zpr *c;
  zpr_source source;
  zpr_stream stream;
  zpr_lines lines;
  zpr_npy_files arrays;
  int64_t windows;
  int32_t *window; /* [S + 1] */
  int32_t *labels; /* of a sample, where they have no place in the arena */
};

/* ---- order ---- */

static uint32_t feistel_round(uint64_t seed, uint64_t epoch, uint32_t round, uint32_t half) {
  uint32_t counter[4] = {half, round, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
  zpk_philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
  return counter[0];
}

int64_t zpr_permute(uint64_t seed, uint64_t epoch, int64_t windows, int64_t index) {
  unsigned half_bits = 1;
  while (half_bits < 31 && ((int64_t)1 << (2 * half_bits)) < windows) half_bits++;
  uint64_t mask = ((uint64_t)1 << half_bits) - 1, x = (uint64_t)index;
  do {
    uint64_t left = x >> half_bits, right = x & mask;
    for (uint32_t round = 0; round < 4; round++) {
      uint64_t next = left ^ (feistel_round(seed, epoch, round, (uint32_t)right) & mask);
      left = right;
      right = next;
    }
    x = left << half_bits | right;
  } while (x >= (uint64_t)windows);
  return (int64_t)x;
}

/* ---- opening ---- */

static void open_stream(zpr_data *data, zpr_error *error) {
  const zpr_source *s = &data->source;
  int64_t S = data->c->program->sequence;
  if (s->kind == ZPR_NPY) {
    if (zpr_npy_files_open(data->c, s->path, &data->arrays, error)) data->windows = data->arrays.samples;
    return;
  }
  bool ok = s->kind == ZPR_TOKENS ? zpr_stream_add_token_files(&data->stream, s->path, error)
                                  : zpr_stream_add_text(&data->stream, s->path, error);
  if (!ok) return;
  if (s->kind == ZPR_LINES) {
    zpr_lines_open(data->c, &data->stream, &data->lines);
    data->windows = data->lines.n;
    if (data->windows < 1) zpr_error_set(error, "Z0804", "\"%s\" has no line that is not empty", s->path);
    return;
  }
  data->windows = (data->stream.tokens - 1) / S;
  if (data->windows < 1)
    zpr_error_set(error, "Z0804", "\"%s\" has %lld tokens, too few for one sample of %lld and its last label", s->path,
                  (long long)data->stream.tokens, (long long)S);
}

zpr_data *zpr_data_open(zpr *c, const zpr_source *source) {
  zpr_data *data = zpr_alloc(c, 1, sizeof *data);
  zpr_error error = {0};
  data->c = c;
  data->source = *source;
  data->window = zpr_alloc(c, (size_t)c->program->sequence + 1, sizeof *data->window);
  int64_t most = c->program->sequence; /* labels of a sample, by whatever source */
  for (int i = 0; i < c->program->n_named; i++)
    if (c->program->named[i].labels && c->program->named[i].elements > most) most = c->program->named[i].elements;
  data->labels = zpr_alloc(c, (size_t)most, sizeof *data->labels);
  if (source->kind == ZPR_NO_DATA)
    zpr_error_set(&error, "Z0801", "there is no data to train on: name some in the train block or with --data");
  else if (source->kind != ZPR_SYNTHETIC)
    open_stream(data, &error);
  zpr_agree(c, &error);
  return data;
}

void zpr_data_close(zpr_data *data) {
  if (!data) return;
  zpr_stream_close(&data->stream);
  zpr_lines_close(&data->lines);
  zpr_npy_files_close(&data->arrays);
  free(data->window);
  free(data->labels);
  free(data);
}

/* ---- identity ---- */

static const char *const kind_names[] = {"", "tokens", "text", "synthetic", "lines", "arrays"};
enum { KINDS = sizeof kind_names / sizeof *kind_names };

const char *zpr_data_kind_name(int64_t kind) {
  assert(kind > ZPR_NO_DATA && kind < KINDS);
  return kind_names[kind];
}

int64_t zpr_data_kind_of(const char *name) {
  for (int64_t kind = ZPR_NO_DATA + 1; kind < KINDS; kind++)
    if (strcmp(name, kind_names[kind]) == 0) return kind;
  return ZPR_NO_DATA;
}

zpr_data_identity zpr_data_identify(const zpr_data *data) {
  zpr_data_identity id = {0};
  if (!data) return id;
  id.kind = data->source.kind;
  id.shuffled = data->source.shuffled;
  id.seed = (int64_t)data->source.seed;
  if (data->source.path) snprintf(id.path, sizeof id.path, "%s", data->source.path);
  if (data->source.mask_rate > 0)
    snprintf(id.masks, sizeof id.masks, "token %lld, rate %.9g, seed %llu", (long long)data->source.mask_token,
             data->source.mask_rate, (unsigned long long)data->source.mask_seed);
  if (id.kind == ZPR_SYNTHETIC) return id;
  if (id.kind == ZPR_NPY) {
    id.tokens = data->arrays.samples;
    id.hash = zpr_npy_files_hash(data->c, &data->arrays, id.tokens);
    return id;
  }
  id.tokens = data->stream.tokens;
  id.hash = zpr_stream_hash(&data->stream, id.tokens);
  return id;
}

bool zpr_data_begins_with(const zpr_data *data, const zpr_data_identity *earlier) {
  bool made_up = data->source.kind == ZPR_SYNTHETIC, arrays = data->source.kind == ZPR_NPY;
  if (made_up != (earlier->kind == ZPR_SYNTHETIC) || arrays != (earlier->kind == ZPR_NPY)) return false;
  if (arrays)
    return earlier->tokens <= data->arrays.samples &&
           zpr_npy_files_hash(data->c, &data->arrays, earlier->tokens) == earlier->hash;
  return made_up ||
         (earlier->tokens <= data->stream.tokens && zpr_stream_hash(&data->stream, earlier->tokens) == earlier->hash);
}

/* ---- loading ---- */

static int64_t window_of(const zpr_data *data, int64_t n) {
  int64_t w = n % data->windows;
  return data->source.shuffled ? zpr_permute(data->source.seed, (uint64_t)(n / data->windows), data->windows, w) : w;
}

/* A stretch of S + 1 tokens: the labels are those that follow. */
static bool read_stretch(zpr_data *data, int64_t n, zpr_sample *sample, zpr_error *error) {
  int64_t S = data->c->program->sequence, V = data->c->program->vocabulary;
  if (data->source.kind == ZPR_SYNTHETIC)
    zpr_synthetic(data->source.seed, (uint64_t)n, V, S + 1, data->window);
  else if (!zpr_stream_read(&data->stream, window_of(data, n) * S, S + 1, V, data->window, error))
    return false;
  memcpy(sample->tokens, data->window, (size_t)S * sizeof(int32_t));
  memcpy(sample->labels, data->window + 1, (size_t)S * sizeof(int32_t));
  sample->length = (int32_t)S;
  return true;
}

static void read_sample(zpr_data *data, int64_t n, zpr_sample *sample) {
  const zpr_program *p = data->c->program;
  zpr_error error = {0};
  bool ok = data->source.kind == ZPR_LINES ? zpr_lines_read(&data->lines, &data->stream, window_of(data, n),
                                                            p->sequence, p->vocabulary, sample, &error)
                                           : read_stretch(data, n, sample, &error);
  if (!ok) zpr_fail(data->c, error.code, "%s", error.text);
  if (data->source.mask_rate > 0) zpr_mask(&data->source, n, p->sequence, p->vocabulary, sample);
}

static int64_t counted_of_sample(const zpr_data *data, int64_t n) {
  int64_t length = data->c->program->sequence;
  if (data->source.kind == ZPR_LINES)
    length = zpr_lines_length(&data->lines, &data->stream, window_of(data, n), length);
  return data->source.mask_rate > 0 ? zpr_masked_tokens(&data->source, length) : length;
}

/* Tokens of the batch that begins with sample `first` whose loss counts: of all ranks, which need not ask each other.
 */
static int64_t counted_tokens(const zpr_data *data, int64_t first) {
  const zpr_program *p = data->c->program;
  if (data->source.kind != ZPR_LINES) return p->batch * counted_of_sample(data, first);
  int64_t tokens = 0;
  for (int64_t i = 0; i < p->batch; i++) tokens += counted_of_sample(data, first + i);
  return tokens;
}

/* Elements of all samples in front of input i. */
static int64_t input_at(const zpr_program *p, int i) { return i * p->microbatches * p->microbatch * p->sequence; }

int64_t zpr_data_windows(const zpr_data *data) { return data->windows > 0 ? data->windows : 1; }

/* ---- inputs by name ---- */

static bool is_by_name(const zpr_data *data) { return data->source.kind == ZPR_NPY || data->c->program->n_inputs == 0; }

static void read_named(const zpr_data *data, int input, int64_t window, int32_t *to) {
  zpr_error error = {0};
  if (!zpr_named_read(data->c, &data->arrays, input, window, to, 0, &error))
    zpr_fail(data->c, error.code, "%s", error.text);
}

/* The classes of a loss with lengths are the first ones of a sample. */
static void check_label(const zpr_data *data, const zpr_loss *loss, int64_t window, int32_t label) {
  const zpr_named *named = data->c->program->named;
  int32_t length;
  if (loss->lengths < 0 || label < 0) return;
  read_named(data, loss->lengths, window, &length);
  if (label >= length)
    zpr_fail(data->c, "Z0803", "`%s` of sample %lld is %d, but its `%s` are %d", named[loss->labels].name,
             (long long)window, (int)label, named[loss->lengths].name, (int)length);
}

/* Labels of the batch that begins with sample `first`, of all ranks, which need not ask each other: each looks at them
 * all. */
static int64_t counted_labels(const zpr_data *data, int64_t first, const zpr_loss *loss, int32_t *labels) {
  const zpr_program *p = data->c->program;
  int64_t counted = 0;
  if (loss->rows > 0) return p->batch * loss->rows;
  if (data->source.kind == ZPR_SYNTHETIC) return p->batch;
  for (int64_t n = first; n < first + p->batch; n++) {
    read_named(data, loss->labels, window_of(data, n), labels);
    for (int64_t k = 0; k < p->named[loss->labels].elements; k++) counted += labels[k] >= 0;
    check_label(data, loss, window_of(data, n), labels[0]);
  }
  if (counted == 0)
    zpr_fail(data->c, "Z0803", "no sample of the batch has a label in `%s`", p->named[loss->labels].name);
  return counted;
}

static void count_labels(zpr *c, const zpr_data *data, int64_t first) {
  const zpr_program *p = c->program;
  zpr_loss alone = {.lengths = -1}; /* of the one input with labels */
  while (!p->losses && alone.labels < p->n_named - 1 && !p->named[alone.labels].labels) alone.labels++;
  for (int i = 0; i < zpr_n_losses(p); i++)
    c->token_weight[i] = 1 / (double)counted_labels(data, first, p->losses ? &p->losses[i] : &alone, data->labels);
}

/* Sample n of the data to place i of the rank's samples. */
static void read_arrays(zpr_data *data, int64_t n, int64_t i, char *inputs) {
  const zpr_program *p = data->c->program;
  zpr_error error = {0};
  for (int k = 0; k < p->n_named; k++) {
    if (!zpr_has_named(data->c, k)) continue;
    char *to = inputs + zpr_named_at(data->c, k, i / p->microbatch);
    int64_t at = i % p->microbatch * p->named[k].elements;
    if (data->source.kind == ZPR_SYNTHETIC)
      zpr_named_make_up(data->c, data->source.seed, (uint64_t)n, k, to, at);
    else if (!zpr_named_read(data->c, &data->arrays, k, window_of(data, n), to, at, &error))
      zpr_fail(data->c, error.code, "%s", error.text);
  }
}

static void load_arrays(zpr *c, zpr_data *data, int64_t first) {
  const zpr_program *p = c->program;
  int64_t samples = p->microbatches * p->microbatch, bytes = zpr_named_at(c, p->n_named, 0);
  count_labels(c, data, first);
  int32_t *inputs = zpr_tokens_open(c, zpr_at(c, c->stage->inputs), bytes / (int64_t)sizeof(int32_t));
  for (int64_t i = 0; i < samples; i++) read_arrays(data, first + c->first_sample + i, i, (char *)inputs);
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
    if (p->lengths) tokens[count + i] = sample.length;
  }
  zpr_tokens_close(c);
  for (int i = 0; i < zpr_n_losses(p); i++)
    c->token_weight[i] =
        1 / (double)(p->losses && p->losses[i].rows > 0 ? p->batch * p->losses[i].rows : counted_tokens(data, first));
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
