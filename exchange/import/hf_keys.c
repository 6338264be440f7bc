/* SPDX-License-Identifier: Apache-2.0 */
/* What the keys of a configuration mean that no row of the family reads. Every key is one of these: used, without
 * effect or refused by a row of the family or of this table, ignored by transformers and named in a note, or refused.
 * tests/interop/config_keys.py holds it against transformers, key by key. */
#include "hf.h"

#include <stdio.h>

/* The version whose configuration classes were read: a key that they lack means nothing to them. */
enum { MAJOR = 5, MINOR = 24 };

/* Whatever the family. */
/* clang-format off */
static const hf_row of_all[] = {
    /* files, and which program made them */
    NOTHING("_name_or_path name_or_path _commit_hash"),
    NOTHING("architectures"), /* considered by itself */
    NOTHING("model_type transformers_version transformers_weights"),
    NOTED("auto_map", "names code of the checkpoint's own; what was written is transformers' model of this type"),
    NOTED("quantization_config",
          "is of the checkpoint's weights; what was written is the model before they were quantized"),
    NOTED("compression_config",
          "is of the checkpoint's weights; what was written is the model before they were compressed"),
    /* how the library runs the model */
    NOTHING("dtype torch_dtype use_bfloat16 torchscript attn_implementation _attn_implementation "
            "_attn_implementation_autoset experts_implementation cache_implementation use_cache "
            "gradient_checkpointing"),
    NOTHING("chunk_size_feed_forward"), /* the same sums, piece by piece */
    NOTHING("pretraining_tp reorder_and_upcast_attn output_attentions output_hidden_states output_past "
            "return_dict"),
    /* tokens and generation */
    NOTHING("bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id decoder_start_token_id "
            "tokenizer_class prefix task_specific_params max_length min_length do_sample early_stopping "
            "num_beams temperature top_k top_p repetition_penalty length_penalty no_repeat_ngram_size "
            "num_return_sequences"),
    /* heads that are not written: `architectures` would ask for them */
    NOTHING("id2label label2id num_labels problem_type finetuning_task classifier_dropout"),
    /* once more what the type says */
    NOTHING("is_decoder is_encoder_decoder"),
    /* another model */
    ONLY("is_causal", "true", "attention that sees what follows; this import writes what the type has"),
    ONLY("per_layer_config", "null", "layers of their own sizes: all layers of a repeat are alike"),
    ONLY("pruned_heads", "{}", "heads that were taken out of single layers: all layers of a repeat are alike"),
    ONLY("fusion_config", "null", "layers that are put together in another way"),
    ONLY("text_config", "null", "a part of a larger model; a file with what stands in it is of that part"),
    ONLY("vision_config", "null", "a model that reads pictures as well"),
    ONLY("audio_config", "null", "a model that hears as well"),
    ONLY("tie_encoder_decoder", "false", "one set of weights for both halves"),
    END};
/* clang-format on */

/* Is it one of the words? */
static bool is_among(const char *words, const char *key) {
  size_t n = strlen(key);
  for (const char *at = words; n > 0 && (at = strstr(at, key)) != NULL; at += n)
    if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
  return false;
}

static const hf_row *find_row(const hf_row *row, const char *key) {
  for (; row->kind != HF_END; row++)
    if (row->kind >= HF_NOTHING && is_among(row->key, key)) return row;
  return NULL;
}

static const hf_row *row_of(const hf_reader *r, const char *key) {
  const hf_row *row = NULL;
  for (int i = 0; !row && i < HF_MOST_ROWS && r->model->family->rows[i]; i++)
    row = find_row(r->model->family->rows[i], key);
  return row ? row : find_row(of_all, key);
}

static const char *text_of(const hf_reader *r, const zp_json *value) {
  return value ? zp_json_text(r->arena, value, false) : "missing";
}

/* A file of a later version may have it for something that the table does not know. */
static bool is_newer(const hf_reader *r) {
  int major = 0, minor = 0;
  const char *version = zp_json_get_string(r->root, "transformers_version", "");
  return sscanf(version, "%d.%d", &major, &minor) >= 1 && (major > MAJOR || (major == MAJOR && minor > MINOR));
}

static void look_at_unknown(hf_reader *r, const char *key, const zp_json *value) {
  if (is_newer(r))
    hf_refuse(r, key, "a copy of the file without the field is of a model that lacks what it asks for",
              "field `%s` (%s) is not of transformers %d.%d's `%s`, and the file is of %s: it may change the model",
              key, hf_shown(r, value), MAJOR, MINOR, r->model->family->type,
              zp_json_get_string(r->root, "transformers_version", ""));
  else
    hf_note(r,
            "field `%s` (%s) is not known to this import and was left out: transformers %d.%d's `%s` has no such field",
            key, hf_shown(r, value), MAJOR, MINOR, r->model->family->type);
}

static void look_at(hf_reader *r, const char *key) {
  const zp_json *value = zp_json_get(r->root, key);
  const hf_row *row = row_of(r, key);
  if (zp_json_is_null(value)) return; /* as if it were missing */
  if (!row) {
    look_at_unknown(r, key, value);
    return;
  }
  const char *text = text_of(r, value);
  if (row->kind == HF_NOTED)
    hf_note(r, "`%s` %s", key, row->text);
  else if (row->kind == HF_ONLY && strcmp(text, row->missing) != 0)
    hf_refuse(r, key, NULL, "`%s` is %s: %s", key, hf_shown(r, value), row->text);
  else if (row->kind == HF_SAME && strcmp(text, text_of(r, zp_json_get(r->root, row->missing))) != 0)
    hf_refuse(r, key, NULL, "`%s` is %s, and `%s`, which it is another name of here, is %s", key, hf_shown(r, value),
              row->missing, text_of(r, zp_json_get(r->root, row->missing)));
}

bool hf_is_whole(hf_reader *r) {
  static const char *const parts[] = {"text_config", "vision_config", "audio_config"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (zp_json_get(r->root, parts[i])) look_at(r, parts[i]);
  return hf_is_sound(r);
}

void hf_look_at_others(hf_reader *r) {
  const char *key;
  for (int i = 0; (key = zp_json_key(r->root, i)) != NULL; i++)
    if (!hf_is_used(r, key)) look_at(r, key);
}
