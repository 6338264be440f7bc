#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What PEFT says of folders of adapters alongside folders of weights: losses and gradients' norms of AdamW steps in f64, the first loss without dropout, and whether it saves the tensors of
the adapters as it read them. Needs torch, transformers and peft. Dropout takes its factors from what docs/guide/settings.md says of random numbers.

    peft_reference.py REQUEST.json ANSWER.json

REQUEST: {"text": PATH, "sequence": S, "batch": N, "steps": K, "seed": SEED, "optimizer": {...}, "cases": {name: {"base": PATH, "adapters": PATH,
"streams": {end of a module's name: stream}}}}
"""
import contextlib
import json
import os
import sys

import peft
import safetensors.torch
import torch
import transformers
from transformers.models.llama import modeling_llama
from transformers.models.mixtral import modeling_mixtral

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "torch"))
import masks  # noqa: E402


class Dropped(torch.nn.Module):
    """Dropout with given factors: of an adapter's input [samples, positions, columns]."""

    def __init__(self, name, rate, streams, clock, request):
        super().__init__()
        self.layer = int(next(part for part in name.split(".") if part.isdigit()))
        self.stream = next(stream for end, stream in streams.items() if end in name)
        self.rate, self.clock, self.request = rate, clock, request

    def forward(self, x):
        if not self.training:
            return x
        samples, positions, columns = x.shape
        factors = [masks.dropped(i, self.layer, 1, positions, columns, self.rate, self.request["seed"], self.clock["step"], self.stream)[0]
                   for i in range(samples)]
        return x * torch.tensor(factors, dtype=x.dtype)


def norm(self, x):
    """transformers computes the mean square in f32, whatever the model is in."""
    return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)


def angles(self, x, position_ids):
    """Likewise the angles."""
    size = self.config.hidden_size // self.config.num_attention_heads
    frequency = self.config.rope_parameters["rope_theta"] ** -(torch.arange(0, size, 2, dtype=x.dtype) / size)
    angle = position_ids[..., None].to(x.dtype) * frequency
    return torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()


def router(self, hidden_states):
    """Likewise the router's probabilities."""
    logits = torch.nn.functional.linear(hidden_states.reshape(-1, self.hidden_dim), self.weight)
    weights, chosen = torch.topk(torch.softmax(logits, -1), self.top_k, dim=-1)
    return logits, weights / weights.sum(-1, keepdim=True), chosen


def loaded(case, clock, request):
    model = transformers.AutoModelForCausalLM.from_pretrained(case["base"], dtype=torch.float64, experts_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, case["adapters"], is_trainable=True, autocast_adapter_dtype=False)
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.ModuleDict) and name.endswith("lora_dropout"):
            for adapter, dropout in module.items():
                if isinstance(dropout, torch.nn.Dropout) and any(end in name for end in case["streams"]):  # embeddings call none
                    module[adapter] = Dropped(name, dropout.p, case["streams"], clock, request)
    return model.double().train()


@contextlib.contextmanager
def undropped(model):
    model.eval()
    yield
    model.train()


def trained(case, text, request):
    clock, length = {"step": 0}, request["sequence"]
    windows = (len(text) - 1) // length
    model = loaded(case, clock, request)

    def loss_of(step):
        at = [(step * request["batch"] + i) % windows * length for i in range(request["batch"])]
        tokens = torch.tensor([list(text[a:a + length + 1]) for a in at])
        logits = model(input_ids=tokens[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    with torch.no_grad(), undropped(model):
        whole = float(loss_of(0))
    weights = [w for w in model.parameters() if w.requires_grad]
    decay = request["optimizer"]["weight_decay"]  # of matrices
    groups = [{"params": [w for w in weights if (w.dim() > 1) == decays], "weight_decay": decay * decays} for decays in (True, False)]
    optimizer = torch.optim.AdamW(groups, **request["optimizer"])
    losses, norms = [], []
    for step in range(request["steps"]):
        clock["step"] = step
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        losses.append(float(loss))
        norms.append(float(torch.nn.utils.get_total_norm([w.grad for w in weights])))
        optimizer.step()
    return {"losses": losses, "grad_norms": norms, "undropped": whole}


def saves_the_same(case, folder):
    """In the type that they were saved in, all bits come back."""
    model = transformers.AutoModelForCausalLM.from_pretrained(case["base"], dtype=torch.float32)
    peft.PeftModel.from_pretrained(model, case["adapters"]).save_pretrained(folder)
    one, other = (safetensors.torch.load_file(os.path.join(place, "adapter_model.safetensors")) for place in (case["adapters"], folder))
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


def main():
    torch.set_num_threads(1)
    modeling_llama.LlamaRMSNorm.forward, modeling_llama.LlamaRotaryEmbedding.forward = norm, angles
    modeling_mixtral.MixtralRMSNorm.forward, modeling_mixtral.MixtralRotaryEmbedding.forward = norm, angles
    modeling_mixtral.MixtralTopKRouter.forward = router
    with open(sys.argv[1], encoding="utf-8") as file:
        request = json.load(file)
    with open(request["text"], "rb") as file:
        text = file.read()
    answer = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__, "cases": {}}
    for name, case in request["cases"].items():
        answer["cases"][name] = dict(trained(case, text, request), saved=saves_the_same(case, case["adapters"] + "-saved"))
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(json.dumps(answer, indent=1) + "\n")


main()
