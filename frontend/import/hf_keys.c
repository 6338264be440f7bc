/* What the keys of a configuration mean that no reader of the family asks for. Every key is one of these: used (a
 * reader asked for it), in this table, ignored by transformers and named in a note, or refused.
 * tests/interop/config_keys.py holds it against transformers, key by key. */
#include "hf.h"

#include <stdio.h>

/* The version whose configuration classes were read: a key that they lack means nothing to them. */
enum { MAJOR = 5, MINOR = 24 };

typedef enum hf_rule {
  NOTHING, /* changes no logits and no parameters */
  NOTED,   /* the same, and a note says so */
  ONLY,    /* refused unless it has this value */
  SAME,    /* another name of a field: refused unless it has that one's value */
} hf_rule;

typedef struct hf_key {
  const char *key, *families; /* "gpt2 t5"; NULL: all */
  hf_rule rule;
  const char *value; /* ONLY: as JSON; SAME: the field */
  const char *why;   /* NOTED: behind the key; ONLY: what the key asks for */
} hf_key;

static const hf_key keys[] = {
    /* files, and which program made them */
    {"_name_or_path", NULL, NOTHING, NULL, NULL},
    {"name_or_path", NULL, NOTHING, NULL, NULL},
    {"_commit_hash", NULL, NOTHING, NULL, NULL},
    {"architectures", NULL, NOTHING, NULL, NULL}, /* looked at by itself */
    {"model_type", NULL, NOTHING, NULL, NULL},
    {"transformers_version", NULL, NOTHING, NULL, NULL},
    {"transformers_weights", NULL, NOTHING, NULL, NULL},
    {"auto_map", NULL, NOTED, NULL,
     "names code of the checkpoint's own; what was written is transformers' model of this type"},
    {"quantization_config", NULL, NOTED, NULL,
     "is of the checkpoint's weights; what was written is the model before they were quantized"},
    {"compression_config", NULL, NOTED, NULL,
     "is of the checkpoint's weights; what was written is the model before they were compressed"},
    /* how the library runs the model */
    {"dtype", NULL, NOTHING, NULL, NULL},
    {"torch_dtype", NULL, NOTHING, NULL, NULL},
    {"use_bfloat16", NULL, NOTHING, NULL, NULL},
    {"torchscript", NULL, NOTHING, NULL, NULL},
    {"attn_implementation", NULL, NOTHING, NULL, NULL},
    {"_attn_implementation", NULL, NOTHING, NULL, NULL},
    {"_attn_implementation_autoset", NULL, NOTHING, NULL, NULL},
    {"experts_implementation", NULL, NOTHING, NULL, NULL},
    {"cache_implementation", NULL, NOTHING, NULL, NULL},
    {"use_cache", NULL, NOTHING, NULL, NULL},
    {"gradient_checkpointing", NULL, NOTHING, NULL, NULL},
    {"chunk_size_feed_forward", NULL, NOTHING, NULL, NULL}, /* the same sums, piece by piece */
    {"pretraining_tp", NULL, NOTHING, NULL, NULL},
    {"reorder_and_upcast_attn", NULL, NOTHING, NULL, NULL},
    {"output_attentions", NULL, NOTHING, NULL, NULL},
    {"output_hidden_states", NULL, NOTHING, NULL, NULL},
    {"output_past", NULL, NOTHING, NULL, NULL},
    {"output_router_logits", "deepseek_v3", NOTHING, NULL, NULL}, /* transformers has no balancing loss for it */
    {"return_dict", NULL, NOTHING, NULL, NULL},
    {"ep_size", "deepseek_v3", NOTHING, NULL, NULL},
    /* tokens and generation */
    {"bos_token_id", NULL, NOTHING, NULL, NULL},
    {"eos_token_id", NULL, NOTHING, NULL, NULL},
    {"pad_token_id", NULL, NOTHING, NULL, NULL},
    {"sep_token_id", NULL, NOTHING, NULL, NULL},
    {"unk_token_id", NULL, NOTHING, NULL, NULL},
    {"decoder_start_token_id", NULL, NOTHING, NULL, NULL},
    {"tokenizer_class", NULL, NOTHING, NULL, NULL},
    {"prefix", NULL, NOTHING, NULL, NULL},
    {"task_specific_params", NULL, NOTHING, NULL, NULL},
    {"max_length", NULL, NOTHING, NULL, NULL},
    {"min_length", NULL, NOTHING, NULL, NULL},
    {"do_sample", NULL, NOTHING, NULL, NULL},
    {"early_stopping", NULL, NOTHING, NULL, NULL},
    {"num_beams", NULL, NOTHING, NULL, NULL},
    {"temperature", NULL, NOTHING, NULL, NULL},
    {"top_k", NULL, NOTHING, NULL, NULL},
    {"top_p", NULL, NOTHING, NULL, NULL},
    {"repetition_penalty", NULL, NOTHING, NULL, NULL},
    {"length_penalty", NULL, NOTHING, NULL, NULL},
    {"no_repeat_ngram_size", NULL, NOTHING, NULL, NULL},
    {"num_return_sequences", NULL, NOTHING, NULL, NULL},
    {"num_nextn_predict_layers", "deepseek_v3", NOTHING, NULL, NULL},
    {"num_mtp_layers", "deepseek_v3", NOTHING, NULL, NULL},
    /* heads that are not written: `architectures` would ask for them */
    {"id2label", NULL, NOTHING, NULL, NULL},
    {"label2id", NULL, NOTHING, NULL, NULL},
    {"num_labels", NULL, NOTHING, NULL, NULL},
    {"problem_type", NULL, NOTHING, NULL, NULL},
    {"finetuning_task", NULL, NOTHING, NULL, NULL},
    {"classifier_dropout", NULL, NOTHING, NULL, NULL},
    {"predict_special_tokens", "gpt2", NOTHING, NULL, NULL},
    {"summary_activation", "gpt2", NOTHING, NULL, NULL},
    {"summary_first_dropout", "gpt2", NOTHING, NULL, NULL},
    {"summary_proj_to_labels", "gpt2", NOTHING, NULL, NULL},
    {"summary_type", "gpt2", NOTHING, NULL, NULL},
    {"summary_use_proj", "gpt2", NOTHING, NULL, NULL},
    {"pooler_fc_size", "bert", NOTHING, NULL, NULL},
    {"pooler_num_attention_heads", "bert", NOTHING, NULL, NULL},
    {"pooler_num_fc_layers", "bert", NOTHING, NULL, NULL},
    {"pooler_size_per_head", "bert", NOTHING, NULL, NULL},
    {"pooler_type", "bert", NOTHING, NULL, NULL},
    {"directionality", "bert", NOTHING, NULL, NULL},
    {"encoder_stride", "vit", NOTHING, NULL, NULL},
    {"pooler_act", "vit", NOTHING, NULL, NULL},
    {"pooler_output_size", "vit", NOTHING, NULL, NULL},
    /* once more what the type says, or another field */
    {"is_decoder", NULL, NOTHING, NULL, NULL},
    {"is_encoder_decoder", NULL, NOTHING, NULL, NULL},
    {"n_ctx", "gpt2", NOTHING, NULL, NULL},
    {"n_special", "gpt2", NOTHING, NULL, NULL},
    {"hidden_act", "gemma2 gemma3_text", NOTHING, NULL, NULL}, /* hidden_activation is read */
    {"_sliding_window_pattern", "gemma3_text", NOTHING, NULL, NULL},
    {"hidden_size", "gpt2", SAME, "n_embd", NULL},
    {"num_attention_heads", "gpt2", SAME, "n_head", NULL},
    {"num_hidden_layers", "gpt2", SAME, "n_layer", NULL},
    {"max_position_embeddings", "gpt2", SAME, "n_positions", NULL},
    {"hidden_size", "t5", SAME, "d_model", NULL},
    {"num_attention_heads", "t5", SAME, "num_heads", NULL},
    {"num_hidden_layers", "t5", SAME, "num_layers", NULL},
    {"head_dim", "t5", SAME, "d_kv", NULL},
    {"num_experts", "mixtral", SAME, "num_local_experts", NULL},
    {"num_local_experts", "deepseek_v3", SAME, "n_routed_experts", NULL},
    {"head_dim", "deepseek_v3", SAME, "qk_rope_head_dim", NULL},
    {"attn_logit_softcapping", "gemma3_text", NOTED, NULL,
     "was left out: transformers' Gemma 3 caps no scores of attention"},
    /* another model */
    {"is_causal", NULL, ONLY, "true", "attention that sees what follows; this import writes what the type has"},
    {"per_layer_config", NULL, ONLY, "null", "layers of their own sizes: all layers of a repeat are alike"},
    {"pruned_heads", NULL, ONLY, "{}", "heads that were taken out of single layers: all layers of a repeat are alike"},
    {"fusion_config", NULL, ONLY, "null", "layers that are put together in another way"},
    {"text_config", NULL, ONLY, "null", "a part of a larger model; a file with what stands in it is of that part"},
    {"vision_config", NULL, ONLY, "null", "a model that reads pictures as well"},
    {"audio_config", NULL, ONLY, "null", "a model that hears as well"},
    {"tie_encoder_decoder", NULL, ONLY, "false", "one set of weights for both halves"},
};

static bool is_of(const char *families, const char *type) {
  size_t n = strlen(type);
  for (const char *at = families; at && (at = strstr(at, type)); at += n)
    if ((at == families || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
  return !families;
}

static const hf_key *row_of(const hf_reader *r, const char *key) {
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(keys[i].key, key) == 0 && is_of(keys[i].families, r->model->type)) return &keys[i];
  return NULL;
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
              key, hf_shown(r, value), MAJOR, MINOR, r->model->type,
              zp_json_get_string(r->root, "transformers_version", ""));
  else
    hf_note(r,
            "field `%s` (%s) is not known to this import and was left out: transformers %d.%d's `%s` has no such field",
            key, hf_shown(r, value), MAJOR, MINOR, r->model->type);
}

static void look_at(hf_reader *r, const char *key) {
  const zp_json *value = zp_json_get(r->root, key);
  const hf_key *row = row_of(r, key);
  if (zp_json_is_null(value)) return; /* as if it were missing */
  if (!row) {
    look_at_unknown(r, key, value);
    return;
  }
  switch (row->rule) {
  case NOTHING: break;
  case NOTED: hf_note(r, "`%s` %s", key, row->why); break;
  case ONLY:
    if (strcmp(text_of(r, value), row->value) != 0)
      hf_refuse(r, key, NULL, "`%s` is %s: %s", key, hf_shown(r, value), row->why);
    break;
  case SAME:
    if (strcmp(text_of(r, value), text_of(r, zp_json_get(r->root, row->value))) != 0)
      hf_refuse(r, key, NULL, "`%s` is %s, and `%s`, which it is another name of here, is %s", key, hf_shown(r, value),
                row->value, text_of(r, zp_json_get(r->root, row->value)));
    break;
  }
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
