# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V3 with dense layers as transformers has it, as a function of a dictionary with the parameter names of zplan's checkpoints; and its gate."""
from unittest import mock

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM
from transformers.models.deepseek_v3 import modeling_deepseek_v3


def their_name(name):
    if name in ("embed_tokens", "norm.weight"):
        return "model." + {"embed_tokens": "embed_tokens.weight"}.get(name, name)
    return "lm_head.weight" if name == "lm_head" else "model." + name


def norm(self, x):
    """transformers computes the mean square in f32, whatever the model is in."""
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def angles(self, x, position_ids):
    """Likewise the angles."""
    size = self.config.qk_rope_head_dim
    frequency = self.config.rope_parameters["rope_theta"] ** -(torch.arange(0, size, 2, dtype=x.dtype) / size)
    angle = position_ids[..., None].to(x.dtype) * frequency
    return torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()


def gate(scores, bias, top_k, groups, top_groups):
    """Weights and experts [B, S, k] of its router, which computes in f32 whatever the model is in, and is told that this is f64."""
    experts = scores.shape[-1]
    config = DeepseekV3Config(hidden_size=experts, n_routed_experts=experts, num_experts_per_tok=top_k, n_group=groups, topk_group=top_groups,
                              norm_topk_prob=True, routed_scaling_factor=1.0)
    router = modeling_deepseek_v3.DeepseekV3TopkRouter(config)
    router.weight = torch.nn.Parameter(torch.eye(experts, dtype=scores.dtype), requires_grad=False)
    router.e_score_correction_bias = bias.detach()
    with mock.patch.object(torch, "float32", scores.dtype):
        _, weight, expert = router(scores)
    return weight.reshape(*scores.shape[:-1], top_k), expert.reshape(*scores.shape[:-1], top_k)


def build(w, heads, nope, rotary, value):
    modeling_deepseek_v3.DeepseekV3RMSNorm.forward = norm
    modeling_deepseek_v3.DeepseekV3RotaryEmbedding.forward = angles
    vocabulary, width = w["embed_tokens"].shape
    layers = 1 + max(int(name.split(".")[1]) for name in w if name.startswith("layers."))
    config = DeepseekV3Config(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, first_k_dense_replace=layers, num_attention_heads=heads,
        num_key_value_heads=heads, q_lora_rank=len(w["layers.0.self_attn.q_a_proj.weight"]),
        kv_lora_rank=len(w["layers.0.self_attn.kv_a_layernorm.weight"]), qk_nope_head_dim=nope, qk_rope_head_dim=rotary, v_head_dim=value,
        intermediate_size=len(w["layers.0.mlp.gate_proj.weight"]), rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        rms_norm_eps=1e-6, attn_implementation="sdpa")
    return DeepseekV3ForCausalLM(config).to(w["embed_tokens"].dtype)


def mla(w, tokens, heads, nope, rotary, value, models={}):
    """Logits."""
    key = (heads, nope, rotary, value)
    if key not in models:
        models[key] = build(w, heads, nope, rotary, value)
    parameters = {**dict(models[key].named_buffers()), **{their_name(name): tensor for name, tensor in w.items()}}
    return torch.func.functional_call(models[key], parameters, kwargs={"input_ids": tokens, "use_cache": False}, strict=True).logits
