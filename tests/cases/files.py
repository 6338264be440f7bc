#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small inputs made after public bug reports of other training programs, with their right values: rows, token files, configurations, plans, exports.

    files.py

Parameter counts are those of transformers 5.24 for Llama, for Qwen 3 without head_dim and for kv_null.json; the others are what zplan counts today, which
tests/interop/config_keys.py compares with transformers on other sizes. Trainings are in cases.py.
"""
import json
import os
import re
import shutil
import struct
import sys

import cases
import harness

# The file, what is said of it; tokens and texts, or None: refused.
ROWS = {
    "empty_first": (b'{"text": "", "id": 1}\n{"text": "hello world"}\n{"text": "caf\\u00e9 \\u2014 na\\u00efve \\ud83d\\ude00"}\n{"text": "line one\\r\\nline two"}\n{"text": "   "}\n{"text": "last"}\n',
                    "1 empty texts are left out", (62, 5)),
    "bom": (b"\xef\xbb\xbf" + b'{"text": "hello"}\n{"text": "two"}\n', "", (10, 2)),
    "crlf": (b'{"text": "hello"}\r\n{"text": "two"}\r\n', "", (10, 2)),
    "blank": (b'{"text": "hello"}\n\n{"text": "two"}\n\n', "", (10, 2)),
    "nolast": (b'{"text": "hello"}\n{"text": "two"}', "", (10, 2)),
    "badutf": (b'{"text": "caf\xe9"}\n', "badutf.jsonl:1: no JSON", None),
    "null": (b'{"text": null}\n{"text": "x"}\n', "1 empty texts are left out", (2, 1)),
    "num": (b'{"text": 3}\n', "num.jsonl:1: `text` is no text", None),
    "missing": (b'{"txt": "a"}\n', "missing.jsonl:1: there is no field `text`", None),
    "surr": (b'{"text": "bad \\ud83d half"}\n{"text":"pair \\ud83d\\ude00"}\n', "halves of surrogate pairs", (23, 2)),
    "nul": (b'{"text": "a\\u0000b"}\n', "U+FFFD", (6, 1)),
    "dup": (b'{"text": "first", "text": "second"}\n', "", (7, 1)),
    "array": (b'[{"text": "hello"},\n {"text": "two"}]\n', "the file is one array", None),
    "trunc": (b'{"text": "hello"}\n{"text": "tw', "trunc.jsonl:2: no JSON", None),
    "nan": (b'{"text": "hello", "score": NaN}\n', "", (6, 1)),
    "all_empty": (b'{"text": ""}\n{"text": ""}\n', "2 empty texts are left out", (0, 0)),
}

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "num_attention_heads": 8,
         "num_key_value_heads": 2, "max_position_embeddings": 2048, "vocab_size": 1000, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "initializer_range": 0.02, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "use_cache": True}
DEFAULT = {"rope_type": "default", "rope_theta": 500000.0}
LLAMA3 = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}
MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}
QWEN2 = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
QWEN3 = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "attention_bias": False}
GEMMA2 = {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 512, "attn_logit_softcapping": 50.0,
          "final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh"}
MIXTRAL = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None,
           "router_aux_loss_coef": 0.02, "output_router_logits": False}
BASE, MHA, WIDE, BIASED = 3283200, 3676416, 3938560, 3284736
FULL, SLIDING = "full_attention", "sliding_attention"
# Name, fields, those that are left out; parameters, or a word of what is refused; a pattern in what is written or said.
CONFIGURATIONS = (
    ("base", {}, (), BASE, r"theta = 10000\.0"),
    ("rope_null", {"rope_scaling": None}, (), BASE, ""),
    ("rope_linear_old", {"rope_scaling": {"type": "linear", "factor": 4.0}}, (), "linear", ""),
    ("rope_dynamic", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, (), "dynamic", ""),
    ("rope_llama3", {"rope_scaling": LLAMA3, "rope_theta": 500000.0, "max_position_embeddings": 131072}, (), "llama3", ""),
    ("rope_default", {"rope_scaling": {"rope_type": "default"}}, (), BASE, ""),
    ("rope_yarn", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}, (), "yarn", ""),
    ("v5_params", {"rope_parameters": DEFAULT, "dtype": "bfloat16"}, ("rope_theta", "torch_dtype"), BASE, r"theta = 500000\.0"),
    ("v5_params_and_theta", {"rope_parameters": DEFAULT, "dtype": "bfloat16"}, ("torch_dtype",), BASE, r"theta = 500000\.0"),
    ("v5_null", {"rope_parameters": None, "dtype": "bfloat16"}, ("torch_dtype",), BASE, r"theta = 10000\.0"),
    ("v5_llama3", {"rope_parameters": dict(LLAMA3, rope_theta=500000.0)}, ("rope_theta",), "llama3", ""),
    ("v5_partial", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}}, (), BASE, "note: `partial_rotary_factor`"),
    ("partial_llama", {"partial_rotary_factor": 0.5}, (), BASE, "note: field `partial_rotary_factor`"),
    ("kv_missing", {}, ("num_key_value_heads",), MHA, ""),
    ("kv_null", {"num_key_value_heads": None}, (), MHA, ""),
    ("headdim_null", {"head_dim": None}, (), BASE, ""),
    ("headdim_odd", {"head_dim": 64}, (), WIDE, ""),
    ("theta_int", {"rope_theta": 1000000}, (), BASE, r"theta = 1000000\.0"),
    ("theta_missing", {}, ("rope_theta",), BASE, r"theta = 10000\.0"),
    ("eps_string_like", {"rms_norm_eps": 1e-06}, (), BASE, "eps = 1e-6"),
    ("tie_missing", {}, ("tie_word_embeddings",), BASE, ""),
    ("tie_missing_gemma2", GEMMA2, ("tie_word_embeddings",), 3029248, ""),
    ("attn_bias", {"attention_bias": True}, (), BASE + 2560, ""),
    ("mlp_bias", {"mlp_bias": True}, (), BASE + 6528, ""),
    ("quant", {"quantization_config": {"bits": 4, "quant_method": "gptq", "group_size": 128}}, (), BASE, "note: `quantization_config`"),
    ("unk_field_harmless", {"some_new_field": 3}, (), BASE, "note: field `some_new_field`"),
    ("no_arch", {}, ("architectures",), BASE, ""),
    ("seqcls", {"architectures": ["LlamaForSequenceClassification"], "num_labels": 3}, (), "LlamaForSequenceClassification", ""),
    ("mistral_nullwin", dict(MISTRAL, sliding_window=None), (), BASE, r"^(?!.*window = )"),
    ("mistral_nowin", MISTRAL, (), BASE, "window = 4096"),
    ("mistral_win", dict(MISTRAL, sliding_window=512), (), BASE, "window = 512"),
    ("mistral_nemo", dict(MISTRAL, sliding_window=None, head_dim=64), (), WIDE, ""),
    ("qwen2_off", dict(QWEN2, use_sliding_window=False, sliding_window=512, max_window_layers=2), (), BIASED, r"^(?!.*window = )"),
    ("qwen2_null", dict(QWEN2, use_sliding_window=False, sliding_window=None, max_window_layers=2), (), BIASED, ""),
    ("qwen2_on", dict(QWEN2, use_sliding_window=True, sliding_window=512, max_window_layers=2), (), BIASED, "window = "),
    ("qwen2_layertypes", dict(QWEN2, use_sliding_window=False, sliding_window=None, max_window_layers=4, layer_types=[FULL] * 4), (), BIASED, ""),
    ("qwen2_mixedtypes", dict(QWEN2, use_sliding_window=True, sliding_window=512, max_window_layers=2, layer_types=[FULL, FULL, SLIDING, SLIDING]), (), BIASED, "window = "),
    ("qwen2_layertypes_short", dict(QWEN2, layer_types=[FULL] * 3), (), "`layer_types` has 3 entries for 4 layers", ""),
    ("qwen2_tie", dict(QWEN2, tie_word_embeddings=True), (), BIASED - 256000, ""),
    ("vocab_padded", {"vocab_size": 1024}, (), BASE + 2 * 24 * 256, ""),
    ("vl_nested", {"model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"]}, ("hidden_size",), "qwen2_vl", ""),
    ("textconfig", {"text_config": {"hidden_size": 256}}, ("hidden_size",), "text_config", ""),
    ("heads_not_div", {"num_attention_heads": 7, "num_key_value_heads": 7}, (), "num_attention_heads", ""),
    ("kv_not_div", {"num_key_value_heads": 3}, (), "num_key_value_heads", ""),
    ("float_hidden", {"hidden_size": 256.0}, (), "`hidden_size` is 256.0", ""),
    ("mixtral", MIXTRAL, (), 9627904, r"balance = 0\.0|^(?!.*balance = 0\.02)"),
    ("mixtral_jitter", dict(MIXTRAL, router_jitter_noise=0.1), (), "noisy", ""),
    ("qwen3", dict(QWEN3, head_dim=64, use_sliding_window=False, sliding_window=None, max_window_layers=4), (), 3939072, ""),
    ("qwen3_nohd", QWEN3, (), 5250304, ""),
)


def rows(tally, folder):
    """20"""
    for name, (data, said, tokens) in ROWS.items():
        path, written = os.path.join(folder, name + ".jsonl"), os.path.join(folder, name + ".bin")
        with open(path, "wb") as file:
            file.write(data)
        outcome = harness.zplan("data", "jsonl", path, "--field", "text", "-o", written)
        if tokens:
            good = outcome.status == 0 and "%d tokens of %d texts" % tokens in outcome.out + outcome.err and said in outcome.err
        elif tokens is None:
            good = outcome.status == 1 and said in outcome.err and not os.path.exists(written)
        tally.check("rows: " + name, good, "%d %s" % (outcome.status, outcome.tail()))
        if tokens is None:
            outcome = harness.zplan("data", "jsonl", path, "--field", "text", "-o", written, "--skip-bad")
            tally.check("rows: %s, bad ones left out" % name, "rows that cannot be read are left out" in outcome.err, outcome.tail())


def count(tally, path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    outcome = harness.zplan("check", path, "--json")
    return json.loads(outcome.out)["parameters"] if outcome.status == 0 else outcome.tail()


def configurations(tally, folder):
    """22, 32"""
    for name, fields, left_out, want, pattern in CONFIGURATIONS:
        config = {key: value for key, value in dict(LLAMA, **fields).items() if key not in left_out}
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        outcome = harness.zplan("import", "hf", path)
        if isinstance(want, str):
            tally.check("refused: " + name, outcome.status == 1 and outcome.err.count("error[Z068") == 1 and want in outcome.err, outcome.err[-500:])
            continue
        got = count(tally, os.path.join(folder, "imported.dz"), outcome.out) if outcome.status == 0 else outcome.tail()
        tally.check("parameters: " + name, got == want, "%s for %d" % (got, want))
        tally.check("written or said: " + name, re.search(pattern, outcome.out + outcome.err, re.S) is not None, outcome.err[-500:])
    outcome = harness.zplan("import", "hf", os.path.join(cases.HERE, "kv_null.json"))
    got = count(tally, os.path.join(folder, "imported.dz"), outcome.out)
    tally.check("64 key/value heads of null", got == 9456128, str(got))


def token_files(bench):
    """27"""
    with open(bench.path("tokens.bin"), "rb") as file:
        ids = list(file.read())

    def shard(name, magic, version, element, values, cut=0):
        data = struct.pack("<256i", magic, version, len(values), *[0] * 253) + struct.pack("<%d%s" % (len(values), element), *values)
        with open(bench.path(name), "wb") as file:
            file.write(data[:len(data) - cut])

    shard("llmc.bin", 20240520, 1, "H", ids)
    shard("llama3.bin", 20240801, 7, "I", ids)
    shard("beyond.bin", 20240520, 1, "H", ids[:3500] + [67] + ids[3501:])
    shard("short.bin", 20240520, 1, "H", ids[:500], cut=300)
    with open(bench.path("nano.bin"), "wb") as file:
        file.write(struct.pack("<4000H", *ids))
    bench.variant("all_labels", "llama", "labels, ignore_index = -100)", "labels)")
    kept, trained = bench.path("beyond"), {}
    for name in ("llmc", "llama3", "beyond", "short", "nano"):
        settings = ('train.data=tokens("%s.bin")' % name, "train.batch=4", "microbatch=4")
        trained[name] = bench.train("all_labels", *settings, weights="hf", steps=60, kept=kept if name == "beyond" else None)
    outcome, steps = trained["llmc"]
    losses = [s["loss"] for s in steps]
    good = outcome.status == 0 and len(losses) == 60 and abs(losses[0] - 4.657134) < 1e-6 and abs(losses[-1] - 4.786018) < 1e-6
    bench.tally.check("a shard of llm.c", good, "%s %s" % (losses[:1], losses[-1:]))
    bench.tally.check("the same for Llama 3", [s["loss"] for s in trained["llama3"][1]] == losses, trained["llama3"][0].tail())
    bench.refused("an id beyond the vocabulary", trained["beyond"][0], "step 55", "beyond.bin", "id 67 at token 3500", "the checkpoint of step 54 is saved")
    bench.tally.check("what was trained before it", os.path.exists(os.path.join(harness.step_folder(kept, 54), "manifest.json")), str(os.listdir(kept)))
    bench.refused("a truncated shard", trained["short"][0], "500 tokens need 2024 bytes, it has 1724")
    bench.refused("ids without a header", trained["nano"][0], "need one: 256 int32", "4000")


def planned(*words):
    outcome = harness.zplan("plan", *words, "--json")
    return json.loads(outcome.out) if outcome.out else {}, outcome


def plans(bench):
    """08, 17, 30"""
    tally, model = bench.tally, bench.path("llama7b.dz")
    plan, outcome = planned(model, "--gpus", 8, "--for", "deepspeed")
    memory = plan["stages"][0]["memory"]
    tally.check("gradients of 4 bytes for DeepSpeed", memory["gradients"] == 4 * 6738415616, str(memory))
    exported = harness.zplan("export", "deepspeed", model, "--gpus", 8)
    tally.check("so the file says", '"grad_accum_dtype": "fp32"' in exported.out, exported.tail(30))
    cut = ("model.layers=30", "train.batch=64", "pipeline=4", "tensor=2", "microbatch=1", 'schedule="1f1b"')
    cut = [word for setting in cut for word in ("--set", setting)]
    plan, outcome = planned(model, "--gpus", 8, "--for", "megatron", *cut)
    memory = plan["stages"][0]["memory"]
    tally.check("gradients of 4 bytes for Megatron-LM", memory["gradients"] == 2 * memory["weights"], str(memory))
    exported = harness.zplan("export", "megatron", model, "--gpus", 8, *cut)
    tally.check("nothing else is asked for", exported.status == 0 and "--bf16" in exported.out and "grad-reduce-in-bf16" not in exported.out, exported.tail(40))

    for gpus in (3, 5, 6, 7):  # 8: below, and on tensor ranks
        plan, outcome = planned(bench.path("qwen7b.dz"), "--gpus", gpus, "--set", "train.batch=64")
        degrees = plan.get("degrees", {})
        tally.check("28 heads on %d GPUs" % gpus, degrees and degrees["tensor"] * degrees["pipeline"] * degrees["data"] + plan["idle"] == gpus, "%s %s" % (degrees, outcome.tail()))
    outcome = harness.zplan("plan", bench.path("qwen7b.dz"), "--gpus", 8, "--set", "tensor=8", "--set", "train.batch=64", "--verbose")
    tally.check("4 key/value heads on 8 ranks", "a rank has 1 of the 4 units" in outcome.out and "padding" in outcome.out, outcome.tail(20))
    plan, _ = planned(bench.path("qwen7b.dz"), "--gpus", 8, "--set", "data=8", "--set", "zero=1", "--set", "train.batch=64")
    memory, count_of = plan["stages"][0]["memory"], plan["model"]["parameters"]
    state = memory["weights"] + memory["gradients"] + memory["optimizer"]
    tally.check("state of ZeRO 1: 2 + 4 + 12 / 8 bytes a parameter", harness.number_error(state, 7.5 * count_of) < 1e-3, "%d %d" % (state, count_of))
    outcome = harness.zplan("plan", bench.path("llama.dz"), "--gpus", 4, "--set", "train.batch=6", "--set", "data=4")
    tally.check("a batch of 6 on 4 data ranks", outcome.status == 3 and "with a batch of 8 it fits" in outcome.err, "%d %s" % (outcome.status, outcome.tail(20)))

    bench.variant("small", "llama7b", "node  = std.hw.dgx_h100", "node  = std.hw.workstation(devices = 4 * std.hw.rtx4090, memory = 512GiB)")
    small = (bench.path("small.dz"), "--gpus", 4, "--for", "deepspeed", "--set", "train.batch=4")
    outcome = harness.zplan("plan", *small)
    tally.check("7B on 24 GB: refused", outcome.status == 3 and "with optimizer allowed on the host it fits" in outcome.err, "%d %s" % (outcome.status, outcome.tail(20)))
    away = ['offload[%s]="cpu"' % what for what in ("optimizer", "params", "gradients")] + ["zero=3", "tensor=1", "pipeline=1"]
    plan, outcome = planned(*small, *(word for setting in away for word in ("--set", setting)))
    memory = plan["stages"][0]["memory"]
    total = sum(bytes_of for where, bytes_of in memory.items() if where not in ("host", "nvme"))
    tally.check("7B on 24 GB, all state on hosts", 17.5e9 < memory["saved"] < 17.7e9 and 14.7e9 < total < 21.5e9, str(memory))


def main():
    harness.require_zplan()
    harness.build_quickly()
    tally = harness.Tally()
    with harness.Scratch() as folder:
        bench = cases.Bench(tally, os.path.join(folder, "cases"))
        shutil.copytree(cases.HERE, bench.folder)
        rows(tally, folder)
        configurations(tally, folder)
        token_files(bench)
        plans(bench)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
