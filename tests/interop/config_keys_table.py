# SPDX-License-Identifier: Apache-2.0
"""Small configurations of every family with every key of its class in transformers 5.24, and what each key is changed to. Standard library only."""

# Keys that every class has, and keys of older files, of other classes and of none.
COMMON = {"transformers_version": "5.24.0", "output_hidden_states": False, "return_dict": True, "dtype": "float32", "chunk_size_feed_forward": 0,
          "is_encoder_decoder": False, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}, "problem_type": None}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None, "use_cache": True}
DECODER = dict(COMMON, **TOKENS, vocab_size=256, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
               initializer_range=0.02, tie_word_embeddings=False)
LLAMA = dict(DECODER, num_key_value_heads=2, head_dim=8, hidden_act="silu", rms_norm_eps=1e-6, attention_dropout=0.0,
             rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
QWEN = dict(LLAMA, num_hidden_layers=4, use_sliding_window=True, sliding_window=8, max_window_layers=2, layer_types=None)
GEMMA = dict(LLAMA, hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=12, sliding_window=8, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
             use_bidirectional_attention=False, attention_bias=False, layer_types=["sliding_attention", "full_attention"], tie_word_embeddings=True)
del GEMMA["hidden_act"]
ENCODER = dict(COMMON, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, hidden_act="gelu", hidden_dropout_prob=0.0,
               attention_probs_dropout_prob=0.0, initializer_range=0.02, layer_norm_eps=1e-12)

FAMILIES = {
    "llama": dict(LLAMA, architectures=["LlamaForCausalLM"], pretraining_tp=1, attention_bias=False, mlp_bias=False),
    "mistral": dict(LLAMA, architectures=["MistralForCausalLM"], sliding_window=8),
    "mixtral": dict(LLAMA, architectures=["MixtralForCausalLM"], sliding_window=8, num_experts_per_tok=2, num_local_experts=4, output_router_logits=False,
                    router_aux_loss_coef=0.02, router_jitter_noise=0.0, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    "qwen2": {key: value for key, value in dict(QWEN, architectures=["Qwen2ForCausalLM"]).items() if key != "head_dim"},
    "qwen3": dict(QWEN, architectures=["Qwen3ForCausalLM"], attention_bias=False),
    "phi3": dict({key: value for key, value in LLAMA.items() if key != "head_dim"}, architectures=["Phi3ForCausalLM"], sliding_window=8, resid_pdrop=0.0, embd_pdrop=0.0,
                 original_max_position_embeddings=64, rms_norm_eps=1e-5),
    "qwen3_moe": dict(LLAMA, architectures=["Qwen3MoeForCausalLM"], attention_bias=False, use_sliding_window=False, sliding_window=8, decoder_sparse_step=1,
                      moe_intermediate_size=24, num_experts_per_tok=2, num_experts=4, norm_topk_prob=True, output_router_logits=False, router_aux_loss_coef=0.02,
                      mlp_only_layers=[]),
    "olmo2": dict({key: value for key, value in LLAMA.items() if key != "head_dim"}, architectures=["Olmo2ForCausalLM"], attention_bias=False),
    "qwen2_moe": dict({key: value for key, value in LLAMA.items() if key != "head_dim"}, architectures=["Qwen2MoeForCausalLM"], use_sliding_window=False, sliding_window=8,
                      max_window_layers=2, layer_types=None, decoder_sparse_step=1, moe_intermediate_size=24, shared_expert_intermediate_size=40, num_experts_per_tok=2,
                      num_experts=4, norm_topk_prob=False, output_router_logits=False, router_aux_loss_coef=0.02, mlp_only_layers=[], qkv_bias=True),
    "gemma2": dict(GEMMA, architectures=["Gemma2ForCausalLM"]),
    "gemma3_text": dict(GEMMA, architectures=["Gemma3ForCausalLM"], rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                                                                                     "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}),
    "gpt2": dict(COMMON, **TOKENS, architectures=["GPT2LMHeadModel"], vocab_size=256, n_positions=64, n_embd=32, n_layer=2, n_head=4, n_inner=None,
                 activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=1e-5, initializer_range=0.02,
                 summary_type="cls_index", summary_use_proj=True, summary_activation=None, summary_proj_to_labels=True, summary_first_dropout=0.1,
                 scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, reorder_and_upcast_attn=False, add_cross_attention=False, tie_word_embeddings=True),
    "gpt_neox": dict(DECODER, hidden_size=64, architectures=["GPTNeoXForCausalLM"], hidden_act="gelu", attention_dropout=0.0, hidden_dropout=0.0, classifier_dropout=0.1,
                     layer_norm_eps=1e-5, use_parallel_residual=True, attention_bias=True, is_decoder=False,
                     rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
    "deepseek_v3": dict(DECODER, architectures=["DeepseekV3ForCausalLM"], num_key_value_heads=4, moe_intermediate_size=24, n_shared_experts=1, n_routed_experts=8,
                        output_router_logits=False, routed_scaling_factor=2.5, kv_lora_rank=12, q_lora_rank=16, qk_rope_head_dim=4, v_head_dim=8, qk_nope_head_dim=8,
                        n_group=4, topk_group=2, num_experts_per_tok=3, first_k_dense_replace=1, norm_topk_prob=True, hidden_act="silu", rms_norm_eps=1e-6,
                        pretraining_tp=1, rope_interleave=True, attention_bias=False, attention_dropout=0.0, num_nextn_predict_layers=1,
                        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
    "bert": dict(ENCODER, **TOKENS, architectures=["BertForMaskedLM"], vocab_size=256, max_position_embeddings=24, type_vocab_size=2, classifier_dropout=None,
                 is_decoder=False, add_cross_attention=False, tie_word_embeddings=True),
    "roberta": dict(ENCODER, **dict(TOKENS, pad_token_id=1), architectures=["RobertaForMaskedLM"], vocab_size=256, max_position_embeddings=26, type_vocab_size=2,
                    classifier_dropout=None, is_decoder=False, add_cross_attention=False, tie_word_embeddings=True),
    "t5": dict(COMMON, eos_token_id=2, pad_token_id=0, use_cache=True, architectures=["T5ForConditionalGeneration"], vocab_size=256, d_model=32, d_kv=8, d_ff=48,
               num_layers=2, num_decoder_layers=3, num_heads=4, relative_attention_num_buckets=8, relative_attention_max_distance=16, dropout_rate=0.0,
               layer_norm_epsilon=1e-6, initializer_factor=1.0, feed_forward_proj="relu", is_encoder_decoder=True, classifier_dropout=0.0, is_decoder=False,
               tie_word_embeddings=True),
    "mt5": dict(COMMON, **TOKENS, decoder_start_token_id=0, architectures=["MT5ForConditionalGeneration"], vocab_size=256, d_model=32, d_kv=8, d_ff=48, num_layers=2,
                num_decoder_layers=3, num_heads=4, relative_attention_num_buckets=8, relative_attention_max_distance=16, dropout_rate=0.0, layer_norm_epsilon=1e-6,
                initializer_factor=1.0, feed_forward_proj="gated-gelu", classifier_dropout=0.0, is_decoder=False, tie_word_embeddings=True),
    "vit": dict(ENCODER, architectures=["ViTForImageClassification"], image_size=16, patch_size=4, num_channels=3, qkv_bias=True, encoder_stride=16,
                pooler_output_size=None, pooler_act="tanh"),
}
FAMILIES["mt5"]["is_encoder_decoder"] = True
for family, config in FAMILIES.items():
    config["model_type"] = family

# Other values than those by type: of sizes, such as make a model.
VALUES = {
    "architectures": [["LlamaForSequenceClassification"], ["GPT2ForTokenClassification"], ["BertForSequenceClassification"], ["ViTForMaskedImageModeling"]],
    "vocab_size": [300], "hidden_size": [64, 32, 32.0], "intermediate_size": [64], "num_hidden_layers": [3, 5], "num_attention_heads": [2, 5], "num_key_value_heads": [1, 4, 3],
    "head_dim": [16, 7], "max_position_embeddings": [128], "hidden_act": ["gelu", "relu", "gelu_new", "mish"], "activation_function": ["gelu", "relu", "silu", "mish"],
    "hidden_activation": ["gelu", "relu", "mish"], "initializer_range": [0.5], "rms_norm_eps": [1e-2], "layer_norm_eps": [1e-2], "layer_norm_epsilon": [1e-2],
    "sliding_window": [4, 64], "max_window_layers": [0, 1, 4, 9], "n_positions": [96], "n_embd": [64], "n_layer": [3], "n_head": [2], "n_inner": [40],
    "layer_types": [["full_attention"], ["full_attention", "full_attention"], ["full_attention", "sliding_attention"], ["full_attention"] * 3,
                    ["full_attention"] * 4, ["full_attention"] * 3 + ["sliding_attention"], ["sliding_attention"] * 4, ["sliding_attention", "full_attention"] * 2,
                    ["chunked_attention"] * 2],
    "rope_parameters": [{"rope_type": "default", "rope_theta": 500.0}, {"rope_theta": 500.0}, {}, {"type": "default"}, {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
                        {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 500.0}, {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
                        {"rope_type": "default", "rope_theta": 10000.0, "factor": 8.0}, {"full_attention": {"rope_type": "default", "rope_theta": 500.0}},
                        {"sliding_attention": {"rope_type": "default", "rope_theta": 500.0}},
                        {"full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}],
    "num_experts_per_tok": [1, 2, 4], "num_local_experts": [3], "router_aux_loss_coef": [0.5], "router_jitter_noise": [0.3], "query_pre_attn_scalar": [5],
    "attn_logit_softcapping": [1.0], "final_logit_softcapping": [1.0], "moe_intermediate_size": [16], "n_shared_experts": [2], "n_routed_experts": [4], "kv_lora_rank": [8],
    "q_lora_rank": [8], "qk_rope_head_dim": [6], "v_head_dim": [4], "qk_nope_head_dim": [4], "n_group": [2], "topk_group": [1], "first_k_dense_replace": [0, 2],
    "routed_scaling_factor": [1.0], "num_nextn_predict_layers": [0, 2], "d_model": [64], "d_kv": [4], "d_ff": [64], "num_layers": [1], "num_decoder_layers": [2],
    "num_heads": [2], "relative_attention_num_buckets": [4], "relative_attention_max_distance": [32], "feed_forward_proj": ["gated-gelu", "gated-silu", "gelu"],
    "image_size": [8], "patch_size": [8], "num_channels": [1], "type_vocab_size": [3], "id2label": [{"0": "a", "1": "b", "2": "c"}], "problem_type": ["regression"],
    "pooler_output_size": [16], "summary_activation": ["tanh"], "classifier_dropout": [0.4], "dtype": ["bfloat16"], "label2id": [{"a": 0, "b": 1}],
    "transformers_version": ["4.30.0"], "model_type": [], "pad_token_id": [5], "eos_token_id": [7], "bos_token_id": [9],
    "output_router_logits": [True], "num_experts": [3], "mlp_only_layers": [[0]], "decoder_sparse_step": [2],
}

# Keys that the classes have not: of older files, of other families, of whole models, and one of nobody. In every family.
FOREIGN = {
    "rope_theta": [500.0], "rope_scaling": [{"type": "linear", "factor": 2.0}, {"rope_type": "default"}, {"rope_type": "default", "rope_theta": 500.0}, {}, None],
    "partial_rotary_factor": [0.5], "rotary_pct": [0.25, 0.75], "rotary_emb_base": [500], "rope_local_base_freq": [500.0], "sliding_window_pattern": [1],
    "_sliding_window_pattern": [1], "is_causal": [False, True], "per_layer_config": [{"1": {"intermediate_size": 24}}], "text_config": [{"hidden_size": 64}],
    "vision_config": [{"hidden_size": 64}], "quantization_config": [{"bits": 4, "quant_method": "gptq", "group_size": 128}], "attn_implementation": ["eager"],
    "_attn_implementation": ["eager"], "torch_dtype": ["bfloat16"], "num_labels": [3], "some_new_field": [3], "hidden_size": [64], "num_attention_heads": [2],
    "num_hidden_layers": [1], "max_position_embeddings": [128], "head_dim": [16], "num_experts": [3], "num_local_experts": [3], "num_mtp_layers": [0],
    "sliding_window": [4], "attention_bias": [True], "mlp_bias": [True], "layer_types": [["sliding_attention"] * 2], "qk_head_dim": [5], "tie_encoder_decoder": [True],
    "use_sliding_window": [True], "num_key_value_heads": [1], "attn_logit_softcapping": [1.0], "final_logit_softcapping": [1.0], "hidden_act": ["relu"],
    "n_ctx": [32], "is_decoder": [True], "add_cross_attention": [True], "position_embedding_type": ["relative_key"], "scale_decoder_outputs": [False],
    "dense_act_fn": ["silu"], "is_gated_act": [True], "gradient_checkpointing": [True], "auto_map": [{"AutoModel": "x.Y"}], "scoring_func": ["softmax"],
    "moe_layer_freq": [2], "topk_method": ["greedy"], "attention_chunk_size": [4], "fusion_config": [{}], "cache_implementation": ["hybrid"], "pruned_heads": [{"0": [1]}],
    "num_decoder_layers": [2], "layer_norm_eps": [1e-2], "unpadded_vocab_size": [200], "tie_word_embeddings": [True], "original_max_position_embeddings": [32],
}


def others(key, value):
    """By type."""
    if key in VALUES:
        return VALUES[key]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, float):
        return [value / 2 + 0.25]
    return ["x"]


def changes(family):
    """[(key, "missing" or "value", value)]; of all keys that a file of the family may have."""
    base, found = FAMILIES[family], []
    for key, value in base.items():
        if key == "model_type":
            continue
        found.append((key, "missing", None))
        if value is not None:
            found.append((key, "value", None))
        found += [(key, "value", other) for other in others(key, value) if other != value or isinstance(other, float) != isinstance(value, float)]
    for key, values in FOREIGN.items():
        if key not in base:
            found += [(key, "value", value) for value in values]
    return found + combined(family)


def combined(family):
    """Of two keys and more: the key is a dict of changes then."""
    own = FAMILIES[family]
    found = []
    if "rope_parameters" in own:
        older = {"rope_parameters": ..., "rope_theta": 500.0}
        found += [older, dict(older, rope_scaling={"rope_type": "default", "rope_theta": 700.0}), dict(older, partial_rotary_factor=0.5),
                  dict(older, rope_scaling={"rope_type": "linear", "factor": 2.0}), {"rope_parameters": ..., "rotary_emb_base": 500, "rotary_pct": 0.25},
                  {"rope_parameters": None, "rope_theta": 500.0}, {"rope_parameters": {"rope_type": "default"}, "rope_theta": 500.0},
                  dict(older, rope_local_base_freq=300.0), {"rope_parameters": {"rope_theta": 300.0}, "rope_scaling": {"rope_type": "default"}, "rope_theta": 500.0}]
    if "layer_types" in own:
        found += [{"layer_types": None, "sliding_window_pattern": 1}, {"layer_types": None, "_sliding_window_pattern": 1},
                  {"layer_types": None, "num_hidden_layers": 6, "sliding_window_pattern": 3}]
    if "use_sliding_window" in own:
        found += [{"use_sliding_window": False, "layer_types": ["full_attention"] * 4}, {"use_sliding_window": False, "layer_types": ["sliding_attention"] * 4},
                  {"sliding_window": None, "layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 2}, {"num_key_value_heads": ..., "num_attention_heads": 2},
                  {"num_key_value_heads": None, "num_attention_heads": 2}, {"max_window_layers": ..., "num_hidden_layers": 30}]
    if family == "mixtral":
        found += [{"output_router_logits": True, "router_aux_loss_coef": 0.0}, {"sliding_window": None, "num_experts_per_tok": 4}]
    return [(change, "several", None) for change in found]


def applied(family, change):
    key, kind, value = change
    config = dict(FAMILIES[family])
    for key, value in (key.items() if kind == "several" else [(key, ... if kind == "missing" else value)]):
        config.pop(key, None)
        if value is not ...:
            config[key] = value
    return config


def name_of(change):
    key, kind, value = change
    if kind == "several":
        return ", ".join("%s %s" % (k, "missing" if v is ... else v) for k, v in key.items())
    return "%s missing" % key if kind == "missing" else "%s %s" % (key, value)
