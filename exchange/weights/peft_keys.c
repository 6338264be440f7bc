/* SPDX-License-Identifier: Apache-2.0 */
/* What the fields of an adapter_config.json mean: those that are compared with `adapt`, those that change nothing once
 * tensors are saved, and those that ask for what is not built, which are rejected with a message.
 * tests/weights/peft_keys.py holds the table against PEFT's LoraConfig. */
#include "peft_read.h"

#include <stdio.h>

/* The version whose LoraConfig was read: a field that it lacks means nothing to it. */
enum { MAJOR = 0, MINOR = 21 };

typedef enum rule {
  USED,    /* compared with `adapt`, or considered where tensors get their places */
  NOTHING, /* of files, of start values, or which modules have an adapter: which the tensors tell */
  UNSET,   /* refused where it is set */
} rule;

static const struct field {
  const char *name;
  rule rule;
  const char *what; /* UNSET: what it asks for */
} fields[] = {
    {"peft_type", USED, NULL},
    {"r", USED, NULL},
    {"lora_alpha", USED, NULL},
    {"lora_dropout", USED, NULL},
    {"use_rslora", USED, NULL},
    {"fan_in_fan_out", USED, NULL},
    {"bias", USED, NULL},
    {"init_lora_weights", USED, NULL},
    {"target_modules", USED, NULL},
    {"target_parameters", USED, NULL},
    {"rank_pattern", USED, NULL},
    {"alpha_pattern", USED, NULL},
    {"layers_to_transform", USED, NULL},
    {"modules_to_save", USED, NULL},
    {"ensure_weight_tying", USED, NULL},
    {"peft_version", NOTHING, NULL},
    {"task_type", NOTHING, NULL},
    {"auto_mapping", NOTHING, NULL},
    {"base_model_name_or_path", NOTHING, NULL},
    {"revision", NOTHING, NULL},
    {"inference_mode", NOTHING, NULL},
    {"runtime_config", NOTHING, NULL},
    {"exclude_modules", NOTHING, NULL},
    {"layers_pattern", NOTHING, NULL},
    {"megatron_core", NOTHING, NULL},
    {"qalora_group_size", NOTHING, NULL},
    {"loftq_config", NOTHING,
     NULL}, /* these four only alongside an init_lora_weights that is refused, or kept start values */
    {"corda_config", NOTHING, NULL},
    {"eva_config", NOTHING, NULL},
    {"lora_ga_config", NOTHING, NULL},
    {"use_dora", UNSET, "DoRA's magnitudes"},
    {"lora_bias", UNSET, "biases of adapters"},
    {"layer_replication", UNSET, "layers that stand several times"},
    {"trainable_token_indices", UNSET, "tokens that are trained alongside adapters"},
    {"use_qalora", UNSET, "QALoRA"},
    {"use_bdlora", UNSET, "adapters in diagonal blocks"},
    {"arrow_config", UNSET, "Arrow's routing"},
    {"alora_invocation_tokens", UNSET, "aLoRA's invocation"},
    {"velora_config", UNSET, "VeLoRA"},
    {"kasa_config", UNSET, "KaSA"},
    {"monteclora_config", UNSET, "MonteCLoRA"},
    {"megatron_config", UNSET, "layers of Megatron"},
};

/* What PEFT does with the base model's weights and the adapter when it loads: these leave the weights alone, and train
 * a and b. The others take out of every weight what the adapter begins with (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA), or
 * freeze b (MiCA). */
static bool is_plain_start(const zp_json *start) {
  static const char *const plain[] = {"gaussian", "eva", "orthogonal"};
  if (!start || zp_json_is_null(start) || zp_json_is_bool(start)) return true;
  const char *word = zp_json_string(start, "");
  for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
    if (strcmp(plain[i], word) == 0) return true;
  return false;
}

static const struct field *field_of(const char *key) {
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    if (strcmp(fields[i].name, key) == 0) return &fields[i];
  return NULL;
}

static bool is_newer(const zp_peft_reader *r) {
  int major = 0, minor = 0;
  const char *version = zp_json_get_string(r->config, "peft_version", "");
  return sscanf(version, "%d.%d", &major, &minor) == 2 && (major > MAJOR || (major == MAJOR && minor > MINOR));
}

bool zp_peft_is_set(const zp_json *value) {
  if (!value || zp_json_is_null(value)) return false;
  if (zp_json_is_bool(value)) return zp_json_bool(value);
  if (zp_json_is_array(value)) return zp_json_count(value) > 0;
  if (zp_json_is_object(value)) return zp_json_key(value, 0) != NULL;
  return true;
}

/* Why the folder is not read; NULL: no field stands in the way. */
static const char *find_fault(zp_peft_reader *r) {
  const char *type = zp_json_get_string(r->config, "peft_type", ""), *key;
  const char *bias = zp_json_get_string(r->config, "bias", "none");
  const zp_json *start = zp_json_get(r->config, "init_lora_weights");
  if (strcmp(type, "LORA") != 0) return zp_format(r->arena, "`peft_type` is \"%.40s\"; adapters are LORA's", type);
  if (strcmp(bias, "none") != 0)
    return zp_format(r->arena, "`bias` is \"%.40s\": biases that are trained alongside adapters", bias);
  if (!is_plain_start(start))
    return zp_format(
        r->arena,
        "`init_lora_weights` is %.40s: PEFT changes the model's weights by it when it loads them, or trains "
        "a part of the adapter alone",
        zp_json_text(r->arena, start, false));
  for (int i = 0; (key = zp_json_key(r->config, i)) != NULL; i++) {
    const struct field *field = field_of(key);
    if (!zp_peft_is_set(zp_json_get(r->config, key))) continue;
    if (field && field->rule == UNSET) return zp_format(r->arena, "`%s` asks for %s", key, field->what);
    if (!field && is_newer(r))
      return zp_format(r->arena, "`%.60s` is no field of PEFT %d.%d, and the folder is of a later version", key, MAJOR,
                       MINOR);
    if (!field)
      zp_push(r->arena, r->notes,
              zp_format(r->arena, "`%.60s` of %s is no field of PEFT %d.%d, and was left out", key, r->config_path,
                        MAJOR, MINOR));
  }
  return NULL;
}

bool zp_peft_check_fields(zp_peft_reader *r) {
  const char *why = find_fault(r);
  return !why || zp_peft_refuse_folder(r, why);
}
