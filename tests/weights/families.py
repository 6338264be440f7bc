# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints of the families that zplan knows, as transformers 5.24 saves them: names, shapes and files written down here from its
files, values drawn from a seed. Standard library only."""
import array
import json
import os
import random
import struct

VOCABULARY, SEQUENCE, BATCH = 256, 32, 4


def with_biases(name, rows, columns, conv=False):
    """columns 0: of a norm"""
    return [(name + ".weight", [columns, rows] if conv else [rows, columns][:2 if columns else 1]), (name + ".bias", [rows])]


def gpt2(d=48, layers=3):
    tensors = [("transformer.wte.weight", [VOCABULARY, d]), ("transformer.wpe.weight", [SEQUENCE, d])]
    for i in range(layers):
        at = "transformer.h.%d." % i
        tensors += with_biases(at + "attn.c_attn", 3 * d, d, conv=True) + with_biases(at + "attn.c_proj", d, d, conv=True)
        tensors += with_biases(at + "mlp.c_fc", 4 * d, d, conv=True) + with_biases(at + "mlp.c_proj", d, 4 * d, conv=True)
        tensors += [(at + norm + part, [d]) for norm in ("ln_1", "ln_2") for part in (".weight", ".bias")]
    return tensors + [("transformer.ln_f.weight", [d]), ("transformer.ln_f.bias", [d])]


def neox(d=48, layers=2, ff=96):
    tensors = [("gpt_neox.embed_in.weight", [VOCABULARY, d]), ("embed_out.weight", [VOCABULARY, d])]
    for i in range(layers):
        at = "gpt_neox.layers.%d." % i
        tensors += with_biases(at + "attention.query_key_value", 3 * d, d) + with_biases(at + "attention.dense", d, d)
        tensors += with_biases(at + "mlp.dense_h_to_4h", ff, d) + with_biases(at + "mlp.dense_4h_to_h", d, ff)
        tensors += [(at + norm + part, [d]) for norm in ("input_layernorm", "post_attention_layernorm") for part in (".weight", ".bias")]
    return tensors + [("gpt_neox.final_layer_norm.weight", [d]), ("gpt_neox.final_layer_norm.bias", [d])]


def llama(d=48, layers=3, ff=80, kv=16, tied=False, qkv_bias=False, experts=0, qk_norm=0):
    tensors = [("model.embed_tokens.weight", [VOCABULARY, d])] + ([] if tied else [("lm_head.weight", [VOCABULARY, d])])
    for i in range(layers):
        at = "model.layers.%d." % i
        for name, rows in (("q_proj", d), ("k_proj", kv), ("v_proj", kv)):
            tensors += with_biases(at + "self_attn." + name, rows, d)[:2 if qkv_bias else 1]
        tensors += [(at + "self_attn.o_proj.weight", [d, d]), (at + "input_layernorm.weight", [d]), (at + "post_attention_layernorm.weight", [d])]
        tensors += [(at + "self_attn.%s_norm.weight" % name, [qk_norm]) for name in "qk" if qk_norm]
        if experts:
            tensors += [(at + "block_sparse_moe.gate.weight", [experts, d])]
            tensors += [(at + "block_sparse_moe.experts.%d.%s.weight" % (e, w), [d, ff] if w == "w2" else [ff, d])
                        for e in range(experts) for w in ("w1", "w2", "w3")]
        else:
            tensors += [(at + "mlp.gate_proj.weight", [ff, d]), (at + "mlp.up_proj.weight", [ff, d]), (at + "mlp.down_proj.weight", [d, ff])]
    return tensors + [("model.norm.weight", [d])]


def qwen_moe(d=48, layers=2, heads=6, kv_heads=2, head=8, experts=5, ff=24, qk_norm=0, shared=0):
    tensors = [("model.embed_tokens.weight", [VOCABULARY, d]), ("lm_head.weight", [VOCABULARY, d])]
    for i in range(layers):
        at = "model.layers.%d." % i
        tensors += [("%sself_attn.%s_proj.weight" % (at, name), [rows * head, d]) for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads))]
        tensors += [(at + "self_attn.o_proj.weight", [d, heads * head])] + [(at + "self_attn.%s_norm.weight" % name, [qk_norm]) for name in "qk" if qk_norm]
        tensors += [("%s%s_layernorm.weight" % (at, name), [d]) for name in ("input", "post_attention")] + [(at + "mlp.gate.weight", [experts, d])]
        tensors += [("%smlp.experts.%d.%s_proj.weight" % (at, e, name), [d, ff] if name == "down" else [ff, d]) for e in range(experts) for name in ("gate", "up", "down")]
        if shared:
            tensors += [("%sself_attn.%s_proj.bias" % (at, name), [rows * head]) for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads))]
            tensors += [("%smlp.shared_expert.%s_proj.weight" % (at, name), [d, shared] if name == "down" else [shared, d]) for name in ("gate", "up", "down")]
            tensors += [(at + "mlp.shared_expert_gate.weight", [1, d])]
    return tensors + [("model.norm.weight", [d])]


def olmo2(d=48, layers=2, heads=6, kv_heads=2, head=8, ff=80):
    tensors = [("model.embed_tokens.weight", [VOCABULARY, d]), ("lm_head.weight", [VOCABULARY, d])]
    for i in range(layers):
        at = "model.layers.%d." % i
        tensors += [("%sself_attn.%s_proj.weight" % (at, name), [rows * head, d]) for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads))]
        tensors += [("%sself_attn.%s_norm.weight" % (at, name), [rows * head]) for name, rows in (("q", heads), ("k", kv_heads))]
        tensors += [(at + "self_attn.o_proj.weight", [d, heads * head]), (at + "mlp.gate_proj.weight", [ff, d]), (at + "mlp.up_proj.weight", [ff, d])]
        tensors += [(at + "mlp.down_proj.weight", [d, ff])] + [("%spost_%s_layernorm.weight" % (at, name), [d]) for name in ("attention", "feedforward")]
    return tensors + [("model.norm.weight", [d])]


def phi3(d=48, layers=2, heads=6, kv_heads=2, head=8, ff=80):
    tensors = [("model.embed_tokens.weight", [VOCABULARY, d]), ("lm_head.weight", [VOCABULARY, d])]
    for i in range(layers):
        at = "model.layers.%d." % i
        tensors += [(at + "self_attn.qkv_proj.weight", [(heads + 2 * kv_heads) * head, d]), (at + "self_attn.o_proj.weight", [d, heads * head])]
        tensors += [(at + "mlp.gate_up_proj.weight", [2 * ff, d]), (at + "mlp.down_proj.weight", [d, ff])]
        tensors += [("%s%s_layernorm.weight" % (at, name), [d]) for name in ("input", "post_attention")]
    return tensors + [("model.norm.weight", [d])]


def gemma(layers, qk_norm=0, d=48, heads=4, kv_heads=2, head=16, ff=80):
    tensors = [("model.embed_tokens.weight", [VOCABULARY, d])]
    for i in range(layers):
        at = "model.layers.%d." % i
        tensors += [("%sself_attn.%s_proj.weight" % (at, name), [rows * head, d]) for name, rows in (("q", heads), ("k", kv_heads), ("v", kv_heads))]
        tensors += [(at + "self_attn.o_proj.weight", [d, heads * head])]
        tensors += [(at + "self_attn.%s_norm.weight" % name, [qk_norm]) for name in "qk" if qk_norm]
        tensors += [("%s%s_layernorm.weight" % (at, name), [d]) for name in ("input", "post_attention", "pre_feedforward", "post_feedforward")]
        tensors += [(at + "mlp.gate_proj.weight", [ff, d]), (at + "mlp.up_proj.weight", [ff, d]), (at + "mlp.down_proj.weight", [d, ff])]
    return tensors + [("model.norm.weight", [d])]


def deepseek(d=48, layers=3, dense=1, ff=80, expert_ff=32, experts=8, shared=2, heads=4, q_rank=24, kv_rank=20, nope=10, rotary=6, value=12):
    tensors = [("model.embed_tokens.weight", [VOCABULARY, d]), ("lm_head.weight", [VOCABULARY, d]), ("model.norm.weight", [d])]
    for i in range(layers):
        at = "model.layers.%d." % i
        tensors += [(at + norm + ".weight", [d]) for norm in ("input_layernorm", "post_attention_layernorm")]
        tensors += [(at + "self_attn.%s.weight" % name, shape) for name, shape in (
            ("q_a_proj", [q_rank, d]), ("q_a_layernorm", [q_rank]), ("q_b_proj", [heads * (nope + rotary), q_rank]),
            ("kv_a_proj_with_mqa", [kv_rank + rotary, d]), ("kv_a_layernorm", [kv_rank]), ("kv_b_proj", [heads * (nope + value), kv_rank]),
            ("o_proj", [d, heads * value]))]
        networks = [("mlp.", ff)] if i < dense else [("mlp.experts.%d." % e, expert_ff) for e in range(experts)] + [("mlp.shared_experts.", shared * expert_ff)]
        for name, width in networks:
            tensors += [(at + name + "gate_proj.weight", [width, d]), (at + name + "up_proj.weight", [width, d]), (at + name + "down_proj.weight", [d, width])]
        if i >= dense:
            tensors += [(at + "mlp.gate.weight", [experts, d]), (at + "mlp.gate.e_score_correction_bias", [experts])]
    return tensors


def bert(head, d=32, layers=2, ff=64):
    tensors = [("bert.embeddings.%s_embeddings.weight" % name, [rows, d]) for name, rows in (("word", VOCABULARY), ("position", SEQUENCE), ("token_type", 2))]
    tensors += with_biases("bert.embeddings.LayerNorm", d, 0)
    for i in range(layers):
        at = "bert.encoder.layer.%d." % i
        for name, rows, columns in (("attention.self.query", d, d), ("attention.self.key", d, d), ("attention.self.value", d, d),
                                    ("attention.output.dense", d, d), ("attention.output.LayerNorm", d, 0), ("intermediate.dense", ff, d),
                                    ("output.dense", d, ff), ("output.LayerNorm", d, 0)):
            tensors += with_biases(at + name, rows, columns)
    if head == "BertForQuestionAnswering":
        return tensors + with_biases("qa_outputs", 2, d)
    tensors += with_biases("cls.predictions.transform.dense", d, d) + with_biases("cls.predictions.transform.LayerNorm", d, 0)
    tensors += [("cls.predictions.bias", [VOCABULARY])]
    return tensors if head == "BertForMaskedLM" else tensors + with_biases("bert.pooler.dense", d, d) + with_biases("cls.seq_relationship", 2, d)


def roberta(head, pad, d=32):
    """BERT's encoder under another name, with rows of positions in front, and one type of tokens."""
    tensors = [(name.replace("bert.", "roberta.", 1), shape) for name, shape in bert("BertForQuestionAnswering" if head == "RobertaForQuestionAnswering" else "BertForMaskedLM")]
    moved = {"roberta.embeddings.position_embeddings.weight": [SEQUENCE + pad + 1, d], "roberta.embeddings.token_type_embeddings.weight": [2, d]}
    names = (("cls.predictions.transform.dense", "lm_head.dense"), ("cls.predictions.transform.LayerNorm", "lm_head.layer_norm"), ("cls.predictions.bias", "lm_head.bias"))
    for old, new in names:
        tensors = [(name.replace(old, new), shape) for name, shape in tensors]
    return [(name, moved.get(name, shape)) for name, shape in tensors]


def t5(gated, d=32, heads=4, head=12, ff=48, layers=2, decoder_layers=3):
    tensors = [("shared.weight", [VOCABULARY, d])] + ([("lm_head.weight", [VOCABULARY, d])] if gated else [])
    for stack, n, mlp in (("encoder", layers, 1), ("decoder", decoder_layers, 2)):
        tensors += [(stack + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight", [32, heads]), (stack + ".final_layer_norm.weight", [d])]
        for i in range(n):
            at = stack + ".block.%d.layer." % i
            for attention in ("0.SelfAttention", "1.EncDecAttention")[:mlp]:
                tensors += [("%s%s.%s.weight" % (at, attention, part), [heads * head, d]) for part in "qkv"]
                tensors += [(at + attention + ".o.weight", [d, heads * head])]
            tensors += [("%s%d.DenseReluDense.%s.weight" % (at, mlp, wi), [ff, d]) for wi in (("wi_0", "wi_1") if gated else ("wi",))]
            tensors += [("%s%d.DenseReluDense.wo.weight" % (at, mlp), [d, ff])]
            tensors += [("%s%d.layer_norm.weight" % (at, k), [d]) for k in range(mlp + 1)]
    return tensors


def vit(d=32, layers=2, ff=64, image=12, patch=4, channels=3, classes=5):
    tensors = [("vit.embeddings.cls_token", [1, 1, d]), ("vit.embeddings.position_embeddings", [1, (image // patch) ** 2 + 1, d]),
               ("vit.embeddings.patch_embeddings.projection.weight", [d, channels, patch, patch]), ("vit.embeddings.patch_embeddings.projection.bias", [d])]
    for i in range(layers):
        at = "vit.encoder.layer.%d." % i
        for name, rows, columns in (("attention.attention.query", d, d), ("attention.attention.key", d, d), ("attention.attention.value", d, d),
                                    ("attention.output.dense", d, d), ("layernorm_before", d, 0), ("layernorm_after", d, 0), ("intermediate.dense", ff, d),
                                    ("output.dense", d, ff)):
            tensors += with_biases(at + name, rows, columns)
    return tensors + with_biases("vit.layernorm", d, 0) + with_biases("classifier", classes, d)


GROUPED = {"vocab_size": VOCABULARY, "hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 64,
           "bos_token_id": None, "eos_token_id": None}
GEMMA = dict(GROUPED, num_attention_heads=4, head_dim=16, intermediate_size=80, sliding_window=7, query_pre_attn_scalar=20, pad_token_id=None)
FAMILIES = {  # config, tensors, dtype, files
    "gpt2": ({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": VOCABULARY, "n_positions": SEQUENCE, "n_embd": 48,
              "n_layer": 3, "n_head": 4, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None},
             gpt2(), "F32", 1),
    "gpt_neox": ({"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "vocab_size": VOCABULARY, "hidden_size": 48,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 64, "rotary_pct": 1.0,
                  "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
                  "bos_token_id": None, "eos_token_id": None}, neox(), "F16", 1),
    "gpt_neox_part": ({"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "vocab_size": VOCABULARY, "hidden_size": 48,
                       "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 64,
                       "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
                       "bos_token_id": None, "eos_token_id": None}, neox(), "F32", 1),
    "llama": (dict(GROUPED, architectures=["LlamaForCausalLM"], model_type="llama", num_hidden_layers=3, intermediate_size=80), llama(), "F32", 3),
    "qwen2": (dict(GROUPED, architectures=["Qwen2ForCausalLM"], model_type="qwen2", num_hidden_layers=2, intermediate_size=80,
                   tie_word_embeddings=True), llama(layers=2, tied=True, qkv_bias=True), "BF16", 1),
    "qwen3": (dict(GROUPED, architectures=["Qwen3ForCausalLM"], model_type="qwen3", num_hidden_layers=2, intermediate_size=80, head_dim=8,
                   tie_word_embeddings=True), llama(layers=2, tied=True, qk_norm=8), "F32", 1),
    "phi3": (dict(GROUPED, architectures=["Phi3ForCausalLM"], model_type="phi3", num_hidden_layers=2, intermediate_size=80, sliding_window=9,
                  pad_token_id=None), phi3(), "BF16", 1),
    "qwen3_moe": (dict(GROUPED, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", num_hidden_layers=2, intermediate_size=80, head_dim=8,
                       moe_intermediate_size=24, num_experts=5, num_experts_per_tok=3, norm_topk_prob=True), qwen_moe(qk_norm=8), "F32", 2),
    "olmo2": (dict(GROUPED, architectures=["Olmo2ForCausalLM"], model_type="olmo2", num_hidden_layers=2, intermediate_size=80, rms_norm_eps=1e-6,
                   rope_theta=500000.0, pad_token_id=None), olmo2(), "F32", 1),
    "qwen2_moe": (dict(GROUPED, architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe", num_hidden_layers=2, intermediate_size=80,
                       moe_intermediate_size=24, shared_expert_intermediate_size=40, num_experts=5, num_experts_per_tok=2), qwen_moe(shared=40), "F32", 1),
    # As published, without a list of layers; as transformers 5 saves it, with layers left after the last whole group.
    "gemma2": (dict(GEMMA, architectures=["Gemma2ForCausalLM"], model_type="gemma2", num_hidden_layers=4, attn_logit_softcapping=2.0,
                    final_logit_softcapping=3.0, rope_theta=10000.0, hidden_act="gelu_pytorch_tanh"), gemma(4), "BF16", 1),
    "gemma3_text": (dict(GEMMA, architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", num_hidden_layers=3,
                         layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                         rope_parameters={"full_attention": {"rope_theta": 1000000.0, "rope_type": "default"},
                                          "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}), gemma(3, qk_norm=16), "F32", 2),
    "deepseek_v3": ({"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "vocab_size": VOCABULARY, "hidden_size": 48,
                     "intermediate_size": 80, "moe_intermediate_size": 32, "num_hidden_layers": 3, "first_k_dense_replace": 1, "num_attention_heads": 4,
                     "num_key_value_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 20, "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 12,
                     "n_routed_experts": 8, "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "routed_scaling_factor": 2.5,
                     "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None}, deepseek(), "F32", 2),
    "mixtral": (dict(GROUPED, architectures=["MixtralForCausalLM"], model_type="mixtral", num_hidden_layers=2, intermediate_size=64,
                     num_local_experts=4, num_experts_per_tok=2, sliding_window=None), llama(layers=2, ff=64, experts=4), "F32", 1),
}


def bert_config(head):
    return {"architectures": [head], "attention_probs_dropout_prob": 0.0, "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": 32,
            "intermediate_size": 64, "layer_norm_eps": 1e-12, "max_position_embeddings": SEQUENCE, "model_type": "bert", "num_attention_heads": 4,
            "num_hidden_layers": 2, "tie_word_embeddings": True, "type_vocab_size": 2, "vocab_size": VOCABULARY}


PAD = 3  # no token of the samples of encoders.py


def roberta_config(head):
    return dict(bert_config(head), model_type="roberta", max_position_embeddings=SEQUENCE + PAD + 1, pad_token_id=PAD)


def t5_config(gated):
    return {"architectures": ["T5ForConditionalGeneration"], "d_ff": 48, "d_kv": 12, "d_model": 32, "decoder_start_token_id": 0, "dropout_rate": 0.0,
            "feed_forward_proj": "gated-gelu" if gated else "relu", "model_type": "t5", "num_decoder_layers": 3, "num_heads": 4, "num_layers": 2,
            "relative_attention_max_distance": 24, "relative_attention_num_buckets": 32, "tie_word_embeddings": not gated, "vocab_size": VOCABULARY}


VIT = {"architectures": ["ViTForImageClassification"], "attention_probs_dropout_prob": 0.0, "encoder_stride": 16, "hidden_act": "gelu",
       "hidden_dropout_prob": 0.0, "hidden_size": 32, "id2label": {str(i): "LABEL_%d" % i for i in range(5)}, "image_size": 12, "intermediate_size": 64,
       "label2id": {"LABEL_%d" % i: i for i in range(5)}, "layer_norm_eps": 1e-12, "model_type": "vit", "num_attention_heads": 4, "num_channels": 3,
       "num_hidden_layers": 2, "patch_size": 4, "pooler_act": "tanh", "pooler_output_size": 32, "qkv_bias": True}
ENCODERS = {  # as above; published checkpoints of T5 v1.1 have a head of their own
    "bert_masked": (bert_config("BertForMaskedLM"), bert("BertForMaskedLM"), "F16", 1),
    "bert_pretraining": (bert_config("BertForPreTraining"), bert("BertForPreTraining"), "F32", 2),
    "bert_questions": (bert_config("BertForQuestionAnswering"), bert("BertForQuestionAnswering"), "BF16", 1),
    "roberta_masked": (roberta_config("RobertaForMaskedLM"), roberta("RobertaForMaskedLM", PAD), "F32", 1),
    "roberta_questions": (roberta_config("RobertaForQuestionAnswering"), roberta("RobertaForQuestionAnswering", PAD), "BF16", 1),
    "t5": (t5_config(False), t5(False), "F32", 3),
    "t5_v1_1": (t5_config(True), t5(True), "F16", 1),
    # As mT5 is published: gated, with a head of its own, which transformers takes though it says otherwise.
    "mt5": (dict(t5_config(True), architectures=["MT5ForConditionalGeneration"], model_type="mt5"), t5(True), "F32", 1),
    "vit": (VIT, vit(), "F32", 2),
}


def values(name, tensor, shape):
    """f32 numbers of a tensor; gains around 1."""
    draw, count = random.Random(name + tensor), 1
    for size in shape:
        count *= size
    middle, spread = (1.0, 0.1) if len(shape) == 1 and tensor.endswith(".weight") else (0.0, 1.0 if tensor == "shared.weight" else 0.2)
    return array.array("f", (draw.gauss(middle, spread) for _ in range(count)))


def encoded(numbers, dtype):
    if dtype == "F32":
        return numbers.tobytes()
    if dtype == "F16":
        return struct.pack("<%de" % len(numbers), *numbers)
    bits = struct.unpack("<%dI" % len(numbers), numbers.tobytes())  # BF16: to the nearest, ties to even
    return struct.pack("<%dH" % len(bits), *((b + 0x7fff + (b >> 16 & 1)) >> 16 for b in bits))


def write_safetensors(path, tensors):
    """[(name, dtype, shape, bytes)], in this order: as the reference writes them, sorted by name by the caller."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape, data in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, _, data in tensors))


def write(folder, name):
    """A folder as save_pretrained makes it. Returns it."""
    config, tensors, dtype, files = (FAMILIES if name in FAMILIES else ENCODERS)[name]
    os.makedirs(folder)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        file.write(json.dumps(config, indent=2) + "\n")
    parts = [sorted(tensors[i * len(tensors) // files:(i + 1) * len(tensors) // files]) for i in range(files)]
    names = ["model.safetensors"] if files == 1 else ["model-%05d-of-%05d.safetensors" % (i + 1, files) for i in range(files)]
    for file, part in zip(names, parts):
        write_safetensors(os.path.join(folder, file),
                          [(tensor, dtype, shape, encoded(values(name, tensor, shape), dtype)) for tensor, shape in part])
    if files > 1:
        elements = sum(len(values(name, *tensor)) for tensor in tensors)
        size = elements * {"F32": 4, "F16": 2, "BF16": 2}[dtype]
        index = {"metadata": {"total_parameters": elements, "total_size": size},
                 "weight_map": dict(sorted((tensor, file) for file, part in zip(names, parts) for tensor, _ in part))}
        with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as file:
            file.write(json.dumps(index, indent=2) + "\n")
    return folder
