/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for Megatron-Bridge: a file of Python whose function makes the configuration, from the arguments of
 * Megatron-LM that the plan has (megatron_arguments.c) and their fields (bridge_fields.c). */
#include "bridge.h"

static const struct {
  const char *keyword, *class, *module;
} parts[] = {
#define BRIDGE_PART(id, keyword, class, module) {keyword, class, module},
#include "bridge.def"
};

static bool is_mock(const zp_bridge *b) { return zp_megatron_find(b->m, ZP_MEGATRON_MOCK_DATA); }

static bool is_set(const zp_bridge *b, zp_bridge_part part, const char *name) {
  for (int i = 0; i < b->fields[part].len; i++)
    if (strcmp(b->fields[part].data[i].name, name) == 0) return true;
  return false;
}

static const char *class_of(const zp_bridge *b, int part) {
  return part == ZP_BRIDGE_DATASET && is_mock(b) ? "MockGPTDatasetConfig" : parts[part].class;
}

/* Parts that the container has without being given them, where the plan says nothing. */
static bool is_left_out(const zp_bridge *b, int part) {
  return (part == ZP_BRIDGE_DIST || part == ZP_BRIDGE_MIXED) && b->fields[part].len == 0;
}

/* One name a line, in the order of parts, which is also that of modules. */
static void put_imports(zp_buf *out, const zp_bridge *b) {
  zp_buf_puts(out, is_mock(b) ? "" : "import sys\n\n");
  if (is_set(b, ZP_BRIDGE_MIXED, "params_dtype")) zp_buf_puts(out, "import torch\n");
  if (is_set(b, ZP_BRIDGE_MODEL, "activation_func")) zp_buf_puts(out, "import torch.nn.functional as F\n");
  const char *module = NULL;
  for (int p = 0; p < ZP_BRIDGE_PARTS; p++) {
    if (is_left_out(b, p)) continue;
    bool new = !module || strcmp(module, parts[p].module) != 0;
    if (new) zp_buf_printf(out, "%sfrom megatron.bridge.%s import (\n", module ? ")\n" : "", parts[p].module);
    module = parts[p].module;
    zp_buf_printf(out, "    %s,\n", class_of(b, p));
    if (p == ZP_BRIDGE_MODEL && is_set(b, ZP_BRIDGE_MODEL, "transformer_layer_spec"))
      zp_buf_puts(out, "    local_layer_spec,\n");
    if (p == ZP_BRIDGE_TRAIN) zp_buf_puts(out, "    ConfigContainer,\n");
  }
  zp_buf_puts(out, ")\nfrom megatron.bridge.training.gpt_step import forward_step\n"
                   "from megatron.bridge.training.pretrain import pretrain\n");
}

static void put_part(zp_buf *out, const zp_bridge *b, int part) {
  if (is_left_out(b, part)) return;
  if (part == ZP_BRIDGE_TOKENIZER && !is_mock(b)) {
    zp_buf_puts(out, "        tokenizer=tokenizer,\n");
    return;
  }
  bool empty = b->fields[part].len == 0; /* of data sets none is */
  zp_buf_printf(out, "        %s=%s(%s\n", parts[part].keyword, class_of(b, part), empty ? ")," : "");
  if (empty) return;
  if (part == ZP_BRIDGE_DATASET && !is_mock(b)) zp_buf_puts(out, "            data_path=data_path,\n");
  for (int i = 0; i < b->fields[part].len; i++)
    zp_buf_printf(out, "            %s=%s,\n", b->fields[part].data[i].name, b->fields[part].data[i].text);
  zp_buf_puts(out, "        ),\n");
}

static void put_function(zp_buf *out, const zp_bridge *b) {
  zp_buf_printf(out, "\n\ndef recipe(%s) -> ConfigContainer:\n    return ConfigContainer(\n",
                is_mock(b) ? "" : "tokenizer: TokenizerConfig, data_path: list[str]");
  if (zp_megatron_one_connection(b->m))
    zp_buf_puts(out, "        # Megatron-LM requires it where tensors are split, before Blackwell\n"
                     "        env_vars={\"CUDA_DEVICE_MAX_CONNECTIONS\": 1},\n");
  for (int p = 0; p < ZP_BRIDGE_PARTS; p++) put_part(out, b, p);
  zp_buf_puts(out, "    )\n\n\nif __name__ == \"__main__\":\n");
  zp_buf_puts(out, is_mock(b) ? "    pretrain(recipe(), forward_step)\n"
                              : "    tokenizer = TokenizerConfig(tokenizer_type=\"HuggingFaceTokenizer\", "
                                "tokenizer_model=sys.argv[1])\n"
                                "    pretrain(recipe(tokenizer, data_path=sys.argv[2:]), forward_step)\n");
}

void zp_export_bridge(zp_exporter *e) {
  static const zp_megatron_words words = {.local = "local_layer_spec", .data = "give the recipe its data_path"};
  zp_megatron m = {.e = e, .words = &words};
  if (!zp_megatron_collect(&m)) return;
  zp_bridge b = {.m = &m};
  zp_bridge_fill(&b);
  zp_buf out = zp_buf_new(e->arena);
  zp_export_head(&out, e, " (" ZP_BRIDGE_VERSION ")");
  zp_buf_printf(&out, "#   torchrun ... %s%s\n", e->name, is_mock(&b) ? "" : " TOKENIZER DATA...");
  zp_export_differences(&out, e);
  zp_buf_puts(&out, "\n");
  put_imports(&out, &b);
  put_function(&out, &b);
  e->result->text = out.data;
}
