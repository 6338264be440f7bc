"""What parts.py trains: models, layouts, homes of state, formats."""
import collections

# A training. words: further settings; homes: state to "tier:eighths" where it is off the device.
Case = collections.namedtuple("Case", "name model tensor pipeline data zero words homes", defaults=(1, 1, 1, 0, (), {}))

# name, batch, steps on the GPU, steps that the CPU trainer is asked for too
MODELS = (("gpt_tiny", 32, 100, 20), ("gpt2", 4, 30, 3))
PRETENDED_MODELS = (("gpt_tiny", 4, 2, 2),)
# Of the models of the parts, where they differ from a file in examples/ in f32 and a batch of 32.
FOLDERS = {"moe": "tests/diff", "sparse": "tests/diff"}
BATCHES = {"moe": 8, "sparse": 4, "llama_tiny": 4}


def interleaved(schedule):
    return ('schedule="%s"' % schedule, "chunks=2")


# In f64: where two scores are nearly equal, an f32 rounding sends a token to another expert.
EXPERTS = ('precision="fp64"', "train.data=synthetic(seed = 1)", "model.n=4")
# Without gradients that are rounding noise, in f64: signs hang on every bit. Plain Adam for one step, then compressed ones.
ONE_BIT = ("compress=true", 'precision="fp64"', "optimizer=adamw(lr = 3e-4, freeze_step = 1)")
SPARSE = ("train.data=synthetic(seed = 1)", "model.S=256", "model.size=64")  # blocks that GPUs take
FP16, BF16 = ('precision="mixed_fp16"',), ('precision="mixed_bf16"',)
T = "gpt_tiny"

# In the order in which they matter: what no time is left for is skipped.
PARTS = (
    ("16-bit formats", (
        Case("fp16", T, words=FP16),
        Case("bf16", T, words=BF16))),
    ("block-sparse attention", (
        Case("block-sparse attention", "sparse", words=SPARSE),)),
    ("state off the device", (
        Case("optimizer and gradients on the host", T, homes={"optimizer": "host:8", "gradients": "host:8"}),
        Case("optimizer on a disk", T, homes={"optimizer": "nvme:8"}),
        Case("parameters and saved values on the host", T, homes={"params": "host:8", "activations": "host:8"}),
        Case("saved values on a disk", T, words=('recompute="full"',), homes={"activations": "nvme:8"}))),
    ("data ranks beside the units", (
        Case("data", T, data=2),
        Case("data, ZeRO 1", T, data=2, zero=1),
        Case("data, ZeRO 2", T, data=2, zero=2),
        Case("data, ZeRO 3", T, data=2, zero=3),
        Case("data, ZeRO 3, parameters on the host", T, data=2, zero=3, homes={"params": "host:8"}),
        Case("data, ZeRO 1, fp16", T, data=2, zero=1, words=FP16),
        Case("pipeline x data, ZeRO 3", T, pipeline=2, data=2, zero=3),
        Case("pipeline x data, backward in two parts", T, pipeline=2, data=2, words=('schedule="zb_h1"',)))),
    ("layouts", (
        Case("tensor", T, tensor=2),
        Case("pipeline", T, pipeline=2),
        Case("tensor x data", T, tensor=2, data=2, zero=1),
        Case("pipeline x data", T, pipeline=2, data=2, zero=1),
        Case("tensor x pipeline x data", T, tensor=2, pipeline=2, data=2, zero=1),
        Case("interleaved", T, pipeline=2, words=interleaved("interleaved")),
        Case("folded (ZB-V)", T, pipeline=2, words=interleaved("zb_v")),
        Case("interleaved x data", T, pipeline=2, data=2, zero=1, words=interleaved("interleaved")))),
    ("experts", (
        Case("experts", "moe", words=EXPERTS),
        Case("experts cut over tensor ranks", "moe", tensor=2, words=EXPERTS),
        Case("experts over data ranks", "moe", data=2, words=(*EXPERTS, "plan.expert=2")),
        Case("experts over data ranks, pipeline", "moe", pipeline=2, data=2, zero=1, words=(*EXPERTS, "plan.expert=2")))),
    ("1-bit Adam", (
        Case("1-bit Adam", "llama_tiny", data=2, words=ONE_BIT),
        Case("1-bit Adam, pipeline", "llama_tiny", pipeline=2, data=2, words=ONE_BIT),
        Case("1-bit Adam, state on the host", "llama_tiny", data=2, words=ONE_BIT, homes={"optimizer": "host:5"}))),
)
# Largest errors of losses and of norms. f32 on two kinds of processors: tests/diff/layouts.py says where these come from; f64 as
# there. 16-bit formats: bounds between layouts in tests/diff/bf16.py and fp16.py.
BOUNDS = {"fp64": (1e-10, 1e-10), "mixed_bf16": (2e-3, 3e-2), "mixed_fp16": (2e-3 / 8, 3e-2 / 8)}
OTHER_BOUNDS = (5e-6, 1e-4)


def bounds_of(case):
    return next((bounds for name, bounds in BOUNDS.items() if 'precision="%s"' % name in case.words), OTHER_BOUNDS)


def ranks_of(case):
    return case.tensor * case.pipeline * case.data


def reference_of(case):
    """What one CPU rank trains. 1-bit Adam depends on the layout: CPU ranks of the same one, with all state where they compute."""
    if "compress=true" in case.words:
        return case._replace(homes={})
    plain = tuple(word for word in case.words if not word.startswith(("schedule=", "chunks=", "recompute=", "plan.expert=")))
    return Case("reference", case.model, words=plain)
