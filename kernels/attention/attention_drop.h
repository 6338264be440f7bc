/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout of attention's probabilities for one instruction set: which keys of a tile a query keeps. Numbers are those
 * of zpk_philox_uniform, drawn again wherever they are needed: forward, backward, where activations are recomputed. */

/* Groups of four numbers: BLOCK keys have 12 of them, whole vectors of every instruction set are 16. */
enum { DRAWS = 16 };

static inline void philox_groups(uint32_t word[4][DRAWS], uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; round++, key0 += 0x9E3779B9, key1 += 0xBB67AE85)
    for (int i = 0; i < DRAWS; i++) {
      uint64_t a = (uint64_t)0xD2511F53 * word[0][i], b = (uint64_t)0xCD9E8D57 * word[2][i];
      uint32_t first = (uint32_t)(b >> 32) ^ word[1][i] ^ key0, third = (uint32_t)(a >> 32) ^ word[3][i] ^ key1;
      word[0][i] = first;
      word[1][i] = (uint32_t)b;
      word[2][i] = third;
      word[3][i] = (uint32_t)a;
    }
}

/* A document may begin in the middle of a group, and keys may stand in the opposite order, where the last ones of a
 * block may have no positions. kept[j]: does query `query` of head h keep key `key` + j, j < BLOCK? All ones or 0. */
static void draw_keys(const zpk_attention_args *args, int64_t b, int64_t h, int64_t query, int64_t key,
                      uint32_t kept[BLOCK]) {
  const zpk_attention_dropout *drop = &args->dropout;
  int64_t first = drop->turned ? key + BLOCK - 1 : key; /* the one with the lowest position */
  int64_t element = zpk_attention_element(drop, args->first_head + h, query, first), past = ((element % 4) + 4) % 4;
  uint32_t word[4][DRAWS], threshold = zpk_keep_threshold(drop->rate), drawn[4 * DRAWS];
  assert(past + BLOCK <= 4 * DRAWS);
  for (int i = 0; i < DRAWS; i++) {
    word[0][i] = (uint32_t)((element - past) / 4 + i);
    word[1][i] = (uint32_t)(drop->stream << 16 | drop->instance);
    word[2][i] = (uint32_t)(drop->first_sample + b);
    word[3][i] = (uint32_t)drop->step;
  }
  philox_groups(word, (uint32_t)drop->seed, (uint32_t)(drop->seed >> 32));
  for (int i = 0; i < DRAWS; i++)
    for (int w = 0; w < 4; w++) drawn[4 * i + w] = word[w][i] >= threshold ? UINT32_MAX : 0;
  memcpy(kept, drawn + past, BLOCK * sizeof *kept);
  for (int j = 0; drop->turned && j < BLOCK; j++) kept[j] = drawn[past + BLOCK - 1 - j];
}
