# SPDX-License-Identifier: Apache-2.0
"""The comparisons: what gpt2.dz, llama.dz, lora.dz, moe.dz, lines.dz, bert.dz, gemma2.dz, gemma3.dz, qwen3.dz, vit.dz, vit_pixels.dz, audio.dz, squad.dz, axes.dz, mixer.dz, packed.dz, mla.dz, t5.dz, t5_v1_1.dz and missing.dz alongside this say, once more for PyTorch. Change both together."""
import os

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT, LINES, IMAGES, SPANS, AXES, PACKED, MISSING, PAIRS = (os.path.join(HERE, name) for name in ("text.txt", "lines.txt", "images", "squad", "axes", "packed", "missing", "../data/pairs"))
STEPS, BATCH, LENGTH = 20, 4, 32
LR, MIN_LR, WARMUP = 1e-3, 1e-4, 5
BETAS, EPS, WEIGHT_DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0
ARCHITECTURES = {
    "gpt2": {"layers": 3, "heads": 4},
    "llama": {"layers": 3, "heads": 6, "kv_heads": 2},
    "lora": {"layers": 3, "heads": 6, "kv_heads": 2},
    "moe": {"layers": 2, "heads": 6, "kv_heads": 2, "top_k": 2, "capacity": 0.9, "balance": 0.1},
    "deepseek": {"layers": 2, "heads": 6, "kv_heads": 2, "top_k": 2, "capacity": 0.9, "balance": 0.1, "scale": 2.5},
    "deepseek_groups": {"layers": 2, "heads": 6, "kv_heads": 2, "top_k": 3, "capacity": 0.9, "balance": 0.1, "scale": 2.5, "groups": (4, 2)},
    "deepseek_lines": {"layers": 2, "heads": 6, "kv_heads": 2, "top_k": 2, "capacity": 0.9, "balance": 0.1, "scale": 2.5},
    "lines": {"layers": 3, "heads": 4},
    "bert": {"layers": 3, "heads": 4},
    "sparse_bert": {"layers": 3, "heads": 4, "pattern": {"block": 16, "local": 2, "number": 1, "patterns": 2}},
    "dropped_bert": {"layers": 3, "heads": 4, "dropout": {"rate": 0.2, "seed": 20}},
    "gemma2": {"pairs": 2, "heads": 4, "kv_heads": 2, "head": 16, "window": 7, "softcap": 0.5, "final_softcap": 2.0},
    "gemma3": {"pairs": 2, "heads": 4, "kv_heads": 2, "head": 16, "window": 7, "query_scalar": 20.0},
    "qwen3": {"layers": 3, "heads": 4, "kv_heads": 2, "head": 16, "smoothing": 0.1, "z_loss": 0.01},
    "vit": {"layers": 3, "heads": 4},
    "vit_pixels": {"patch": 3, "heads": 4},
    "audio": {"layers": 2, "heads": 4},
    "squad": {"layers": 3, "heads": 4},
    "missing": {"layers": 2, "heads": 6, "kv_heads": 2, "top_k": 2, "capacity": 0.9, "balance": 0.5, "smoothing": 0.1, "z_loss": 0.01},
    "axes": {"layers": 2, "heads": 4},
    "mixer": {"layers": 2},
    "packed": {"layers": 3, "heads": 6, "kv_heads": 2},
    "mla": {"heads": 4, "nope": 10, "rotary": 6, "value": 12},
    "t5": {"heads": 4, "head": 12, "gated": False, "max_distance": 16},
    "t5_v1_1": {"heads": 4, "head": 12, "gated": True, "max_distance": 16},
    "t5_adafactor": {"heads": 4, "head": 12, "gated": False, "max_distance": 16},
}
# Experts in f64: where two scores are nearly equal, an f32 rounding sends a token to another expert.
DTYPES = {"gpt2": "float32", "llama": "float32", "moe": "float64", "deepseek": "float64", "deepseek_groups": "float64", "deepseek_lines": "float64", "lines": "float32", "bert": "float32", "sparse_bert": "float64", "dropped_bert": "float64",
          "gemma2": "float64", "gemma3": "float64", "qwen3": "float64", "vit": "float64", "vit_pixels": "float64", "audio": "float64", "squad": "float64", "missing": "float64", "t5": "float64", "t5_v1_1": "float64", "t5_adafactor": "float64", "lora": "float64", "mla": "float64", "axes": "float64", "mixer": "float64", "packed": "float64"}
# Where the model is not that of the file of its name, as it stands there.
FILES = {"missing": ("missing", ("microbatch=1",)),  # some of them without a label
         "deepseek": ("moe", ("model.deepseek=true",)),
         "deepseek_groups": ("moe", ("model.deepseek=true", "model.experts=12", "model.top_k=3", "model.groups=4", "model.top_groups=2")),
         "deepseek_lines": ("moe", ("model.deepseek=true", 'data=lines("%s")' % LINES)),
         "t5_adafactor": ("t5", ("optimizer=adafactor(lr = 1e-3, beta1 = 0.9, weight_decay = 0.1)",)),
         "dropped_bert": ("bert", ("model.attention_dropout=0.2", 'precision="fp64"')),
         "sparse_bert": ("bert", ("model.sparse=true", "model.S=64", 'precision="fp64"'))}
ADAFACTOR = {"t5_adafactor": {"beta1": 0.9, "weight_decay": 0.1}}  # models that transformers' Adafactor trains
BIAS_RATE = 0.01  # of what choices of experts are corrected by
LENGTHS = {"sparse_bert": 64}
LORA = {"alpha": 6, "trained": ("norm.weight",)}  # the rank is in the shapes
LOSSES = {"start_loss": 0.5, "end_loss": 0.5, "possible_loss": 0.25}  # of squad, with their weights
MISSING_LOSSES = {"word_loss": 1.0, "kind_loss": 0.5}
AXES_LOSSES = {"target_loss": 1.0, "numbers_loss": 0.5, "place_loss": 0.25}  # the first two are squared errors
VALIDATED = {"squad": 12, "missing": 10}  # samples of a validation: 3 batches; 4, where there are not so many
LOOKED_AT = {"squad": SPANS, "missing": MISSING}
MASKS = {"vocabulary": 256, "token": 1, "rate": 0.15, "seed": 3}


def expected_file(name):
    return os.path.join(HERE, "expected_%s.json" % name)
# 20 texts of 1 to 20 tokens for the encoders, of bytes that the models have tokens for
PROMPTS = ["".join(chr(33 + (7 * i * i + 5 * k * k + 3 * i * k + k) % 28) for k in range(i + 1)) for i in range(20)]
NEW_TOKENS = 11
