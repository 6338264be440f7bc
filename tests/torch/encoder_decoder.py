# SPDX-License-Identifier: Apache-2.0
"""T5 as transformers has it, as a function of a dictionary with the parameter names of zplan's checkpoints."""
import re

import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5 import modeling_t5

PARTS = {"encoder": {"norm_1": "layer.0.layer_norm", "attention": "layer.0.SelfAttention", "norm_2": "layer.1.layer_norm", "mlp": "layer.1.DenseReluDense"},
         "decoder": {"norm_1": "layer.0.layer_norm", "attention": "layer.0.SelfAttention", "norm_2": "layer.1.layer_norm",
                     "cross": "layer.1.EncDecAttention", "norm_3": "layer.2.layer_norm", "mlp": "layer.2.DenseReluDense"}}


def their_name(name):
    match = re.fullmatch(r"(encoder|decoder)\.(\d+)\.(\w+)\.(.*)", name)
    if match:
        stack, layer, part, rest = match.groups()
        return "%s.block.%s.%s.%s" % (stack, layer, PARTS[stack][part], rest)
    return {"shared": "shared.weight", "encoder_norm.weight": "encoder.final_layer_norm.weight",
            "decoder_norm.weight": "decoder.final_layer_norm.weight", "lm_head.weight": "lm_head.weight",
            "encoder_bias": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            "decoder_bias": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"}[name]


def norm(self, x):
    """transformers computes the mean square in f32, whatever the model is in."""
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def build(w, heads, head, gated, max_distance):
    modeling_t5.T5LayerNorm.forward = norm
    vocabulary, width = w["shared"].shape
    ff = w["encoder.0.mlp.wo.weight"].shape[1]
    layers = 1 + max(int(name.split(".")[1]) for name in w if name.startswith("decoder."))
    config = T5Config(vocab_size=vocabulary, d_model=width, d_kv=head, d_ff=ff, num_layers=layers, num_heads=heads, dropout_rate=0.0,
                      relative_attention_num_buckets=len(w["encoder_bias"]), relative_attention_max_distance=max_distance,
                      feed_forward_proj="gated-gelu" if gated else "relu", tie_word_embeddings=not gated, scale_decoder_outputs=not gated,
                      pad_token_id=0, decoder_start_token_id=0, attn_implementation="eager")
    return T5ForConditionalGeneration(config).to(w["shared"].dtype)


def their_parameters(w, gated):
    parameters = {their_name(name): tensor for name, tensor in w.items()}
    if not gated:
        parameters["lm_head.weight"] = w["shared"]
    for stack in ("encoder", "decoder"):
        parameters[stack + ".embed_tokens.weight"] = w["shared"]
    return parameters


def greedy(w, prompts, new, heads, head, gated, max_distance):
    """What transformers' own generate() makes of prompts of bytes, each by itself: tokens and the logarithms of their shares."""
    model = build(w, heads, head, gated, max_distance)
    if gated:
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(w["lm_head.weight"]))  # transformers ties it whatever the config says
    model.load_state_dict(their_parameters({name: tensor.detach() for name, tensor in w.items()}, gated))
    model.generation_config.eos_token_id = None
    tokens, shares = [], []
    for prompt in prompts:
        out = model.generate(input_ids=torch.tensor([list(prompt.encode())]), max_new_tokens=new, do_sample=False, output_logits=True, return_dict_in_generate=True)
        made = out.sequences[0, 1:].tolist()
        tokens.append(made)
        shares.append([float(torch.log_softmax(logits[0].double(), -1)[token]) for logits, token in zip(out.logits, made)])
    return {"tokens": tokens, "logprobs": shares}


def t5(w, source, target, lengths, heads, head, gated, max_distance, models={}):
    """Logits. Padding is masked as keys of the encoder and of the decoder's view of it."""
    key = (heads, head, gated)
    if key not in models:
        models[key] = build(w, heads, head, gated, max_distance)
    mask = (torch.arange(source.shape[1])[None] < lengths[:, None]).long()
    parameters = their_parameters(w, gated)
    return torch.func.functional_call(models[key], parameters, kwargs={"input_ids": source, "attention_mask": mask, "decoder_input_ids": target,
                                                                       "use_cache": False}, tie_weights=False, strict=True).logits
