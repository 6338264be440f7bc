/* SPDX-License-Identifier: Apache-2.0 */
/* Which layers attend to a window alone: those after the first ones (Qwen), or in turns with others (Gemma). */
#include "hf.h"

enum { MOST_OF_A_GROUP = 16 };
static const char key[] = "layer_types";

/* The list of the layers' types; NULL: there is none, or it was reported. */
static const zp_json *list_of(hf_reader *r, int64_t layers) {
  const zp_json *types = hf_json(r, key);
  if (!types || hf_is_poison(r->model, "layers")) return NULL;
  int n = zp_json_is_array(types) ? zp_json_count(types) : 0;
  if (n == layers) return types;
  zp_report(r->diags, ZP_Z0683, hf_place(r, key), "`layer_types` has %d entries for %lld layers", n, (long long)layers);
  return NULL;
}

void hf_read_full_layers(hf_reader *r) {
  int64_t layers = hf_int(r->model, "layers"), full = 0;
  bool windowed = hf_int(r->model, "asked") && hf_int(r->model, "given_window");
  const zp_json *types = list_of(r, layers);
  if (!types) return;
  for (int i = 0; i < layers; i++) {
    const char *type = zp_json_string(zp_json_at(types, i), "");
    bool sees_all = strcmp(type, "full_attention") == 0;
    if (sees_all && full == i) full++;
    if (sees_all ? full > i : windowed && strcmp(type, "sliding_attention") == 0) continue;
    hf_refuse(r, key, "known are layers of `full_attention`, and after them those of `sliding_attention`",
              "layer %d has `%s`%s", i, type, windowed ? "" : ", and `use_sliding_window` asks for no window");
    break;
  }
  hf_set_int(r->arena, r->model, "full_layers", full);
}

/* The smallest group that all layers are repetitions of, with layers of one kind after the last whole one. */
static void find_group(hf_reader *r, const bool *full, int64_t layers) {
  for (int64_t n = 1; n <= layers && n <= MOST_OF_A_GROUP; n++) {
    int64_t whole = layers / n * n;
    bool good = true;
    for (int64_t i = n; good && i < layers; i++) good = full[i] == full[i % n];
    for (int64_t i = whole + 1; good && i < layers; i++) good = full[i] == full[whole];
    if (!good) continue;
    hf_set_int(r->arena, r->model, "group", n);
    for (int64_t i = 0; i < n; i++)
      hf_set_int(r->arena, r->model, zp_format(r->arena, "full.%lld", (long long)i), full[i]);
    return;
  }
  hf_refuse(r, key, NULL, "layers with and without a window do not take turns in groups of at most %d",
            MOST_OF_A_GROUP);
}

void hf_read_groups(hf_reader *r) {
  int64_t layers = hf_int(r->model, "layers"), pattern = hf_int(r->model, "pattern");
  const zp_json *types = list_of(r, layers);
  if (!hf_is_sound(r)) return;
  bool *full = ZP_NEW_ARRAY(r->arena, bool, layers);
  for (int i = 0; i < layers; i++) {
    const char *type = types ? zp_json_string(zp_json_at(types, i), "") : "";
    full[i] = types ? strcmp(type, "full_attention") == 0 : (i + 1) % pattern == 0;
    if (!types || full[i] || strcmp(type, "sliding_attention") == 0) continue;
    hf_refuse(r, key, "known are sliding_attention and full_attention", "layer %d has `%s`", i, type);
    return;
  }
  find_group(r, full, layers);
}
