# SPDX-License-Identifier: Apache-2.0
"""What the packed folder trains: models, formats, homes of state, layouts; what is measured; bounds."""
import collections

import harness

# A training. words: further settings; homes: state to "tier:eighths" where it is off the device.
Case = collections.namedtuple("Case", "name model words homes tensor pipeline data zero", defaults=((), {}, 1, 1, 1, 0))
# Steps of a training, and of one on the emulated GPU.
STEPS, EMULATED_STEPS = 20, 2
# Of the models of the cases, where they differ from a file in examples/ and a batch of 32.
FOLDERS = {"moe": "tests/diff", "sparse": "tests/diff", "long": "tests/gpu"}
BATCHES = {"moe": 8, "sparse": 4, "llama_tiny": 4}
# Where a file's model has another name than the file.
NAMES = {"sparse": "sparse_gpt"}
# Models whose tokens are the text; the vocabularies of the others are smaller than a byte's, so theirs are made up.
TEXT_MODELS = ("gpt_tiny", "llama_tiny")
MADE_UP = ("train.data=synthetic(seed = 1)",)


def interleaved(schedule):
    return ('schedule="%s"' % schedule, "chunks=2")


FP16, BF16 = ('precision="mixed_fp16"',), ('precision="mixed_bf16"',)
# In f64: where two scores are nearly equal, an f32 rounding sends a token to another expert.
EXPERTS = ('precision="fp64"', *MADE_UP, "model.n=4")
# Without gradients that are rounding noise, in f64: signs hang on every bit. Plain Adam for one step, then compressed ones.
ONE_BIT = ("compress=true", 'precision="fp64"', "optimizer=adamw(lr = 3e-4, freeze_step = 1)")
SPARSE = (*MADE_UP, "model.S=256", "model.size=64")  # blocks that GPUs take in every format
SPARSE_16 = (*MADE_UP, "model.S=128", "model.size=16")  # in 16 bits also smaller ones
WIDE_HEADS = ("model.d=256", "model.heads=2", "model.layers=2")  # heads of 128
T = "gpt_tiny"

# In the order in which they matter: what no time is left for is skipped.
CASES = (
    Case("f32", T),
    Case("bf16", T, BF16),
    Case("fp16", T, FP16),
    Case("bf16 with wide heads", T, (*BF16, *WIDE_HEADS)),
    Case("bf16 with grouped queries and rotary positions", "llama_tiny", BF16),
    Case("block-sparse attention f32", "sparse", SPARSE),
    Case("block-sparse attention bf16", "sparse", (*SPARSE_16, *BF16)),
    Case("block-sparse attention fp16", "sparse", (*SPARSE, *FP16)),
    Case("experts f64", "moe", EXPERTS),
    Case("optimizer and gradients on the host", T, (), {"optimizer": "host:8", "gradients": "host:8"}),
    Case("optimizer on a disk", T, (), {"optimizer": "nvme:8"}),
    Case("parameters and saved values on the host", T, (), {"params": "host:8", "activations": "host:8"}),
    Case("saved values on a disk", T, ('recompute="full"',), {"activations": "nvme:8"}),
)
# Of several ranks: packed with --mpi alone, because their trainers need MPI.
RANKED = (
    Case("data", T, data=2),
    Case("data ZeRO 1 fp16", T, FP16, data=2, zero=1),
    Case("data ZeRO 2", T, data=2, zero=2),
    Case("data ZeRO 3", T, data=2, zero=3),
    Case("data ZeRO 3 parameters on the host", T, (), {"params": "host:8"}, data=2, zero=3),
    Case("pipeline x data ZeRO 3", T, pipeline=2, data=2, zero=3),
    Case("pipeline x data backward in two parts", T, ('schedule="zb_h1"',), pipeline=2, data=2),
    Case("tensor", T, tensor=2),
    Case("pipeline", T, pipeline=2),
    Case("tensor x data ZeRO 1", T, tensor=2, data=2, zero=1),
    Case("tensor x pipeline x data ZeRO 1", T, tensor=2, pipeline=2, data=2, zero=1),
    Case("interleaved", T, interleaved("interleaved"), pipeline=2),
    Case("folded (ZB-V)", T, interleaved("zb_v"), pipeline=2),
    Case("experts cut over tensor ranks", "moe", EXPERTS, tensor=2),
    Case("experts over data ranks", "moe", (*EXPERTS, "plan.expert=2"), data=2),
    Case("experts over data ranks pipeline", "moe", (*EXPERTS, "plan.expert=2"), pipeline=2, data=2, zero=1),
    Case("1-bit Adam", "llama_tiny", ONE_BIT, data=2),
    Case("1-bit Adam state on the host", "llama_tiny", ONE_BIT, {"optimizer": "host:5"}, data=2),
)
# What --small packs, and the tests of kernels that it runs.
SMALL = ("f32", "bf16", "1-bit Adam")
SMALL_KERNELS = ("kernels_cuda.embedding", "kernels_cuda_cross_entropy.whole_vocabulary", "kernels_cuda_mma.a_run_repeats",
                 "kernels_cuda_mma.sparse_bf16", "rowprog_cuda.bf16_small")
# Settings of the emulated GPU's models, which blocks of threads played by one thread take.
EMULATED = {T: ("model.layers=2", "model.S=32", "model.d=64"), "llama_tiny": ("model.layers=2", "model.S=32")}
EMULATED_BATCH = 4
# Tests of kernels that are not packed: attention without tensor cores in 16 bits, which no trainer of these archs runs, and that of Volta;
# large rows in f64 and f32 (those in bf16 are packed) and rows of 3,073 columns, whose code is large; small rows in f64 and f16, which
# trainings with experts in f64 and in fp16 have; kernels along axes in these formats. Watched ones are for the emulated GPU.
LEFT_OUT_KERNELS = ("kernels_cuda_attention.bf16", "kernels_cuda_attention.f16", "kernels_cuda_attention.sparse_bf16",
                    "kernels_cuda_lengths.plain_bf16", "rowprog_cuda.f64_large", "rowprog_cuda.f32_large",
                    "rowprog_cuda.f32_wide", "rowprog_cuda.f64_small", "rowprog_cuda.f16_small", "kernels_cuda_axes.f64",
                    "kernels_cuda_axes.f16", "without_races", "volta")

# Largest errors of losses and of norms. f32 on two kinds of processors: tests/diff/layouts.py says where these come from; f64 as
# there. 16-bit formats: bounds between layouts in tests/diff/bf16.py and fp16.py.
BOUNDS = {"fp64": (1e-10, 1e-10), "mixed_bf16": (2e-3, 3e-2), "mixed_fp16": (2e-3 / 8, 3e-2 / 8)}
OTHER_BOUNDS = (5e-6, 1e-4)


def bounds_of(case):
    return next((bounds for name, bounds in BOUNDS.items() if 'precision="%s"' % name in case.words), OTHER_BOUNDS)


def small_kernels():
    """The last, and half of the others by turns of commits."""
    return [name for number, name in enumerate(SMALL_KERNELS) if name == SMALL_KERNELS[-1] or harness.my_turn(number // 2, 2)]


def ranks_of(case):
    return case.tensor * case.pipeline * case.data


def reference_of(case):
    """What one CPU rank trains. 1-bit Adam depends on the layout: CPU ranks of the same one, with all state where they compute."""
    if "compress=true" in case.words:
        return case._replace(homes={})
    plain = tuple(word for word in case.words if not word.startswith(("schedule=", "chunks=", "recompute=", "plan.expert=")))
    return Case(case.name, case.model, plain)


# ---- what speed.sh measures ----

# One model in mixed_bf16 on one GPU. window: of blocks of 128; 0: dense.
Speed = collections.namedtuple("Speed", "name model V S d layers heads batch window", defaults=(0,))
SPEEDS = (
    Speed("gpt2_124m", "gpt2", 50257, 1024, 768, 12, 12, 32),
    Speed("gpt2_350m", "gpt2", 50257, 1024, 1024, 24, 16, 32),
    Speed("gpt_1.3b", "gpt2", 50257, 2048, 2048, 24, 16, 16),
    Speed("16k_dense", "long", 256, 16384, 768, 12, 12, 2),
    Speed("16k_25_percent", "windowed", 256, 16384, 768, 12, 12, 2, 35),
    Speed("16k_13_percent", "windowed", 256, 16384, 768, 12, 12, 2, 17),
    Speed("16k_5_percent", "windowed", 256, 16384, 768, 12, 12, 2, 7),
)
EMULATED_SPEEDS = (Speed("small_dense", "long", 256, 256, 64, 1, 2, 1), Speed("small_windowed", "windowed", 256, 256, 64, 1, 2, 1, 1))
SPEED_BLOCK = 128


def pairs_of(speed):
    """(queries x keys of a full matrix, those that are computed) of a layer, head and sequence."""
    causal = speed.S * (speed.S + 1) // 2
    if not speed.window:
        return speed.S ** 2, causal
    blocks, reach = speed.S // SPEED_BLOCK, (speed.window + 1) // 2
    whole = sum(min(i, reach - 1) for i in range(blocks))
    return speed.S ** 2, whole * SPEED_BLOCK ** 2 + blocks * (SPEED_BLOCK * (SPEED_BLOCK + 1) // 2)


def percent_of(speed):
    """Pairs that are computed, of those of dense causal attention."""
    return 100 * pairs_of(speed)[1] / pairs_of(speed._replace(window=0))[1]


def flop_of(speed):
    """FLOP of a training step, with the whole matrix of scores and with the pairs that are computed. Products of weights: 6 a token and
    weight (forward 2, backward 4); attention: 12 d a pair (scores and outputs, 2 d each, three times with backward)."""
    weights = speed.layers * 12 * speed.d ** 2 + speed.V * speed.d
    products = 6 * weights * speed.batch * speed.S
    return tuple(products + 12 * speed.d * speed.layers * speed.batch * pairs for pairs in pairs_of(speed))
