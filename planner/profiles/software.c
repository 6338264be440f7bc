/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that plans are made for, and their profiles by name. */
#include <zplan/buf.h>

#include <assert.h>
#include "profiles.h"

static const zp_profiles *const lists[] = {&zp_profiles_megatron, &zp_profiles_deepspeed, &zp_profiles_frameworks};
enum { N_LISTS = sizeof lists / sizeof *lists };

static const struct {
  const char *word, *title;
} trainers[ZP_TRAINER_COUNT] = {
#define TRAINER_TEXT(name, word, title) {word, title},
    ZP_TRAINERS(TRAINER_TEXT)
#undef TRAINER_TEXT
};

const char *zp_trainer_word(zp_trainer trainer) {
  assert(trainer < ZP_TRAINER_COUNT);
  return trainers[trainer].word;
}
const char *zp_trainer_title(zp_trainer trainer) {
  assert(trainer < ZP_TRAINER_COUNT);
  return trainers[trainer].title;
}
const char *zp_software_name(const zp_software *software) {
  assert(software);
  return software->name;
}

static const zp_software *find_profile(const char *word) {
  for (int l = 0; l < N_LISTS; l++)
    for (int i = 0; i < lists[l]->len; i++) {
      const zp_software *software = &lists[l]->data[i];
      if (software->trainer == ZP_TRAINER_NONE) continue;
      bool newest = software->newest && strcmp(trainers[software->trainer].word, word) == 0;
      if (newest || strcmp(software->name, word) == 0) return software;
    }
  return NULL;
}

bool zp_software_find(const char *word, zp_trainer *trainer, const zp_software **software) {
  assert(word && trainer && software);
  *software = find_profile(word);
  *trainer = *software ? (*software)->trainer : ZP_TRAINER_NONE;
  if (strcmp(word, trainers[ZP_TRAINER_ZPLAN].word) == 0) *trainer = ZP_TRAINER_ZPLAN;
  return *trainer != ZP_TRAINER_NONE;
}

int zp_software_of_year(const zp_software *software) { return software ? software->of_year : 0; }

bool zp_software_dropless(const zp_software *software) { return software && software->dropless; }

bool zp_software_launches_whole(const zp_software *software) { return software && software->graphs == ZP_GRAPHS_WHOLE; }

static bool is_listed(const zp_strings *words, const char *word) {
  for (int i = 0; i < words->len; i++)
    if (strcmp(words->data[i], word) == 0) return true;
  return false;
}

zp_strings zp_software_words(zp_arena *arena) {
  zp_strings words = {0};
  for (int t = ZP_TRAINER_ZPLAN; t < ZP_TRAINER_COUNT; t++) zp_push(arena, &words, trainers[t].word);
  for (int l = 0; l < N_LISTS; l++)
    for (int i = 0; i < lists[l]->len; i++) {
      const zp_software *software = &lists[l]->data[i];
      if (software->trainer != ZP_TRAINER_NONE && !is_listed(&words, software->name))
        zp_push(arena, &words, software->name);
    }
  return words;
}

int zp_software_grad_bytes(const zp_software *software, zp_precision precision, int compute_bytes) {
  assert(compute_bytes >= 2 && compute_bytes <= 8);
  enum { FLOAT_BYTES = 4 };
  if (!software) return compute_bytes < FLOAT_BYTES ? FLOAT_BYTES : compute_bytes;
  bool halves = precision == ZP_PREC_MIXED_FP16 && software->fp16_sums;
  return software->float_gradients && !halves ? FLOAT_BYTES : compute_bytes;
}

const char *zp_trainer_phrase(zp_arena *arena, const zp_cluster *cluster) {
  assert(cluster->trainer < ZP_TRAINER_COUNT);
  const char *title = trainers[cluster->trainer].title;
  if (!cluster->software) return zp_format(arena, "for %s", title);
  if (cluster->software->of_year)
    return zp_format(arena, "for %s as of %d (profile %s): later versions are likely to be faster", title,
                     cluster->software->of_year, cluster->software->name);
  return zp_format(arena, "for %s (profile %s)", title, cluster->software->name);
}

zp_software_floor zp_software_floor_of(const zp_software *software) {
  if (!software) return (zp_software_floor){true, true, true};
  return (zp_software_floor){.reductions = !software->overlaps_data,
                             .messages = !software->scatter_gather,
                             .offload = !software->offload_waits};
}
