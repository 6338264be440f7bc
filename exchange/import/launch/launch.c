/* SPDX-License-Identifier: Apache-2.0 */
/* What all readers of launches share: messages, settings and limits, batch and ranks. */
#include "launch.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>

enum { MOST_BATCH = 100000000 }; /* the language's most */

launch launch_begin(zp_arena *arena, zp_diags *diags, const char *path, const char *program, const char *word,
                    const zp_launch_words *words) {
  return (launch){.arena = arena,
                  .diags = diags,
                  .path = path ? path : "the command line",
                  .program = program,
                  .word = word,
                  .errors_before = zp_diags_errors(diags),
                  .result = ZP_NEW(arena, zp_imported),
                  .gpus = words->gpus,
                  .gpus_from = "--gpus",
                  .model = {.name = words->model_name},
                  .model_text = words->model,
                  .words = words};
}

zp_imported *launch_end(launch *l) {
  if (!launch_is_sound(l)) return NULL;
  launch_write(l);
  l->result->program = l->word;
  return l->result;
}

void launch_note(launch *l, const char *format, ...) {
  va_list args;
  va_start(args, format);
  zp_push(l->arena, &l->result->notes, zp_vformat(l->arena, format, args));
  va_end(args);
}

bool launch_is_sound(const launch *l) { return zp_diags_errors(l->diags) == l->errors_before; }

void launch_pin(launch *l, const char *key, const char *value, const char *from) {
  launch_line line = {key, value, from, false};
  zp_push(l->arena, &l->pins, line);
}

void launch_permit(launch *l, const char *key, const char *values, const char *from) {
  launch_line line = {key, values, from, true};
  zp_push(l->arena, &l->pins, line);
}

void launch_pin_int(launch *l, const char *key, int64_t value, const char *from) {
  launch_pin(l, key, zp_format(l->arena, "%lld", (long long)value), from);
}

int64_t launch_layers(const launch *l) {
  int64_t layers = 0;
  for (int i = 0; i < l->words->units.len; i++) layers += l->words->units.data[i].layer;
  return layers;
}

void launch_pin_cut(launch *l, const int64_t *layers, int64_t chunks, const char *from) {
  assert(chunks >= 1);
  zp_buf list = zp_buf_new(l->arena);
  for (int64_t k = 0; k < chunks; k++) zp_buf_printf(&list, "%s%lld", k ? ", " : "[", (long long)layers[k]);
  launch_pin(l, "cut", zp_format(l->arena, "%s]", list.data), from);
}

void launch_set(launch *l, const char *key, const char *value, const char *from) {
  launch_line line = {key, value, from, false};
  zp_push(l->arena, &l->train, line);
}

int64_t launch_times(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

const char *launch_number(zp_arena *arena, double value) {
  const char *text = "";
  for (int digits = 1; digits <= 17; digits++) {
    text = zp_format(arena, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  return strpbrk(text, ".e") ? text : zp_format(arena, "%s.0", text);
}

bool launch_among(const char *words, const char *word) {
  size_t n = strlen(word);
  for (const char *at = words; n > 0 && (at = strstr(at, word)) != NULL; at += n)
    if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
  return false;
}

const char *launch_name(zp_arena *arena, const char *path) {
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
  char *name = zp_strndup(arena, base, strcspn(base, "."));
  for (char *c = name; *c; c++)
    if (!isalnum((unsigned char)*c)) *c = '_';
  static const char words[] = /* that the language keeps, and names of the blocks that are written */
      "use as let block model input param output repeat in return if else assert and or not true false device node "
      "cluster "
      "fabric train plan state test sweep attention_of mlp_of experts_of shared_expert std";
  bool free = isalpha((unsigned char)*name) && !launch_among(words, name);
  return free ? name : zp_format(arena, "launch_%s", name);
}

bool launch_batch(launch *l, int64_t model_ranks, const char *model_ranks_from, int64_t micro, const char *micro_from,
                  int64_t batch, const char *batch_from, zp_span batch_at) {
  assert(model_ranks >= 1 && micro >= 1 && batch >= 0);
  if (l->gpus == 0) {
    launch_complain(l, ZP_NO_SPAN, "%s does not say how many GPUs there are: give --gpus N", l->path);
    return false;
  }
  if (l->gpus % model_ranks != 0) {
    zp_diag *d =
        launch_complain(l, ZP_NO_SPAN, "%lld GPUs (%s) are no multiple of the %lld ranks of a copy of the model (%s)",
                        (long long)l->gpus, l->gpus_from, (long long)model_ranks, model_ranks_from);
    zp_diag_help(d, "--gpus N says how many there are");
    return false;
  }
  int64_t data = l->gpus / model_ranks;
  if (batch == 0) batch = micro * data;
  if (batch > MOST_BATCH) {
    launch_complain(l, batch_at, "a batch of %lld (%s) is more than %d samples", (long long)batch, batch_from,
                    MOST_BATCH);
    return false;
  }
  if (batch % (micro * data) != 0) {
    launch_complain(l, batch_at, "a batch of %lld (%s) is no multiple of micro-batch %lld (%s) times %lld data ranks",
                    (long long)batch, batch_from, (long long)micro, micro_from, (long long)data);
    return false;
  }
  launch_pin_int(l, "data", data, zp_format(l->arena, "%lld GPUs, %s", (long long)l->gpus, l->gpus_from));
  launch_pin_int(l, "microbatch", micro, micro_from);
  launch_set(l, "batch", zp_format(l->arena, "%lld", (long long)batch), batch_from);
  return true;
}
