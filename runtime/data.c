/* Which sample comes when. The order depends on the source and its seed, never on the plan:
 *
 * - A run counts its samples, whatever the batch: the next batch begins where the one before it ended.
 * - The stream has W = floor((tokens - 1) / S) windows. Window w has tokens [w * S, w * S + S], one more than S because
 *   labels are tokens shifted by one; neighbours share that token.
 * - sequential: sample n is window n mod W.
 * - shuffled: sample n is window perm(seed, n / W)[n mod W], a new permutation for every pass over the data.
 * - synthetic: sample n is made up from (seed, n); there are no windows.
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
  int64_t windows;
  int32_t *window; /* [S + 1] */
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
  bool ok = s->kind == ZPR_TOKENS ? zpr_stream_add_token_files(&data->stream, s->path, error)
                                  : zpr_stream_add_text(&data->stream, s->path, error);
  if (!ok) return;
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
  free(data->window);
  free(data);
}

/* ---- identity ---- */

static const char *const kind_names[] = {"", "tokens", "text", "synthetic"};
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
  if (id.kind == ZPR_SYNTHETIC) return id;
  id.tokens = data->stream.tokens;
  id.hash = zpr_stream_hash(&data->stream, id.tokens);
  return id;
}

bool zpr_data_begins_with(const zpr_data *data, const zpr_data_identity *earlier) {
  bool made_up = data->source.kind == ZPR_SYNTHETIC;
  if (made_up != (earlier->kind == ZPR_SYNTHETIC)) return false;
  return made_up ||
         (earlier->tokens <= data->stream.tokens && zpr_stream_hash(&data->stream, earlier->tokens) == earlier->hash);
}

/* ---- loading ---- */

static void read_sample(zpr_data *data, int64_t n) {
  zpr *c = data->c;
  int64_t S = c->program->sequence, V = c->program->vocabulary;
  if (data->source.kind == ZPR_SYNTHETIC) {
    zpr_synthetic(data->source.seed, (uint64_t)n, V, S + 1, data->window);
    return;
  }
  int64_t w = n % data->windows;
  if (data->source.shuffled) w = zpr_permute(data->source.seed, (uint64_t)(n / data->windows), data->windows, w);
  zpr_error error = {0};
  if (!zpr_stream_read(&data->stream, w * S, S + 1, V, data->window, &error)) zpr_fail(c, error.code, "%s", error.text);
}

void zpr_data_load(zpr *c, zpr_data *data, int64_t first) {
  const zpr_program *p = c->program;
  int64_t S = p->sequence, samples = p->microbatches * p->microbatch;
  size_t bytes = (size_t)S * sizeof(int32_t);
  int32_t *tokens = zpr_tokens_open(c, zpr_at(c, c->stage->inputs), (p->n_inputs > 1 ? 2 : 1) * samples * S);
  for (int64_t i = 0; i < samples; i++) {
    read_sample(data, first + c->first_sample + i);
    memcpy(tokens + i * S, data->window, bytes);
    if (p->n_inputs > 1) memcpy(tokens + (samples + i) * S, data->window + 1, bytes);
  }
  zpr_tokens_close(c);
}

const int32_t *zpr_input(zpr *c, int input, int64_t mb) {
  assert((input == 0 || input == 1) && mb >= 0 && mb < c->program->microbatches);
  const zpr_program *p = c->program;
  const int32_t *tokens = zpr_at(c, c->stage->inputs);
  return tokens + (input * p->microbatches + mb) * p->microbatch * p->sequence;
}
