/* SPDX-License-Identifier: Apache-2.0 */
/* Where a launch of Megatron-LM cuts the model: --pipeline-model-parallel-layout, a first or last stage of its own
 * size, the embedding and the loss counted as layers, else equal parts. */
#include "megatron.h"

#include <ctype.h>
#include <stdlib.h>

enum { MOST_CHUNKS = 1 << 20, MOST_LAYERS = 1 << 20, MOST_DEPTH = 8 };

/* ---- layouts: "Et*3|(tt|)*29,m|L" ---- */

/* Layers (`t`) of chunks; each ends with a bar, or with the text. */
typedef struct layout {
  zp_arena *arena;
  ZP_VEC(int64_t) chunk; /* that have ended */
  int64_t open;          /* layers since the last bar */
} layout;

/* What was read since `from` and `open_before`, so many times in all. false: it is too much. */
static bool repeat(layout *to, int from, int64_t open_before, long times) {
  int length = to->chunk.len - from;
  int64_t grown = to->open - (length ? 0 : open_before);
  if (times > MOST_CHUNKS || (int64_t)to->chunk.len + (int64_t)length * (times - 1) > MOST_CHUNKS) return false;
  if (length == 0) {
    to->open += grown * (times - 1);
    return to->open <= MOST_LAYERS;
  }
  int64_t first = to->chunk.data[from] - open_before; /* of the group alone, up to its first bar */
  for (long t = 1; t < times; t++) {
    int64_t carried = to->open; /* after the group's last bar */
    for (int i = 0; i < length; i++)
      zp_push(to->arena, &to->chunk, i == 0 ? carried + first : to->chunk.data[from + i]);
    to->open = grown;
  }
  return true;
}

static bool read_group(layout *to, const char **at, int depth) {
  for (; **at && **at != ')';) {
    int from = to->chunk.len;
    int64_t open = to->open;
    char c = *(*at)++;
    if (c == '|') {
      zp_push(to->arena, &to->chunk, to->open);
      to->open = 0;
    } else if (c == '(') {
      if (depth > MOST_DEPTH || !read_group(to, at, depth + 1) || **at != ')') return false;
      ++*at;
    } else if (isalpha((unsigned char)c)) {
      to->open += c == 't';
    } else if (c != ',') {
      return false;
    }
    if (**at != '*') continue;
    char *end = NULL;
    long times = isdigit((unsigned char)(*at)[1]) ? strtol(*at + 1, &end, 10) : 0;
    if (times < 1 || !repeat(to, from, open, times)) return false;
    *at = end;
  }
  return to->chunk.len <= MOST_CHUNKS;
}

int64_t megatron_layout(zp_arena *arena, const char *text, const int64_t **layers) {
  layout all = {.arena = arena};
  const char *at = text;
  if (!read_group(&all, &at, 0) || *at) return -1;
  size_t n = strlen(text);
  if (n > 0 && text[n - 1] != '|') zp_push(arena, &all.chunk, all.open);
  *layers = all.chunk.data;
  return all.chunk.len;
}

/* ---- sizes by flags ---- */

/* Layers of every stage, where the flags say them or they follow. false after complaining. */
static bool stage_layers(megatron *m, int64_t pipeline, int64_t *stage) {
  bool first = megatron_has(m, F_FIRST_LAYERS), last = megatron_has(m, F_LAST_LAYERS);
  int64_t given = (first ? megatron_int(m, F_FIRST_LAYERS, 0) : 0) + (last ? megatron_int(m, F_LAST_LAYERS, 0) : 0);
  int64_t counted = megatron_has(m, F_COUNT_EMBEDDING) + megatron_has(m, F_COUNT_LOSS);
  int64_t left = m->l->model.layers + counted - given, others = pipeline - first - last;
  if (left < 0 || (others == 0 ? left != 0 : left % others != 0)) {
    megatron_flag says = first ? F_FIRST_LAYERS : last ? F_LAST_LAYERS : F_PIPELINE;
    launch_complain(m->l, m->given[says].at, "%lld layers do not divide over the other %lld of %lld stages",
                    (long long)left, (long long)others, (long long)pipeline);
    return false;
  }
  for (int64_t s = 0; s < pipeline; s++) stage[s] = others ? left / others : 0;
  if (first) stage[0] = megatron_int(m, F_FIRST_LAYERS, 0);
  if (last) stage[pipeline - 1] = megatron_int(m, F_LAST_LAYERS, 0);
  return true;
}

/* The layers of every chunk of the model in its order: of every stage the first chunk, then of every stage the second.
 * NULL after complaining. */
static const int64_t *chunk_layers(megatron *m, int64_t pipeline, int64_t chunks) {
  zp_arena *arena = m->l->arena;
  const int64_t *laid_out = NULL;
  if (megatron_has(m, F_LAYOUT))
    return megatron_layout(arena, m->given[F_LAYOUT].text, &laid_out) == pipeline * chunks ? laid_out : NULL;
  int64_t *stage = ZP_NEW_ARRAY(arena, int64_t, pipeline), *layers = ZP_NEW_ARRAY(arena, int64_t, pipeline * chunks);
  if (!stage_layers(m, pipeline, stage)) return NULL;
  for (int64_t k = 0; k < pipeline * chunks; k++) {
    int64_t all = stage[k % pipeline];
    if (all % chunks != 0) {
      launch_complain(m->l, m->given[F_PIPELINE].at, "the %lld layers of stage %lld do not divide into %lld chunks",
                      (long long)all, (long long)(k % pipeline), (long long)chunks);
      return NULL;
    }
    layers[k] = all / chunks;
  }
  if (megatron_has(m, F_COUNT_EMBEDDING)) layers[0]--;
  if (megatron_has(m, F_COUNT_LOSS)) layers[pipeline * chunks - 1]--;
  return layers;
}

void megatron_pin_cut(megatron *m, int64_t pipeline, int64_t chunks) {
  static const megatron_flag says[] = {F_LAYOUT,          F_FIRST_LAYERS, F_LAST_LAYERS,
                                       F_COUNT_EMBEDDING, F_COUNT_LOSS,   F_CHUNK_LAYERS};
  const int64_t *layers = launch_is_sound(m->l) ? chunk_layers(m, pipeline, chunks) : NULL;
  if (!layers) return;
  int64_t all = 0;
  for (int64_t k = 0; k < pipeline * chunks; k++) all += layers[k];
  const char *from = "stages of equal size";
  for (size_t i = sizeof says / sizeof *says; i-- > 0;)
    if (megatron_has(m, says[i])) from = megatron_from(m, says[i]);
  if (all != m->l->model.layers)
    launch_complain(m->l, m->given[megatron_has(m, F_LAYOUT) ? F_LAYOUT : F_PIPELINE].at,
                    "the stages have %lld layers, --num-layers is %lld", (long long)all, (long long)m->l->model.layers);
  else
    launch_pin_cut(m->l, layers, pipeline * chunks, from);
}
