#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every key of a config.json is used, changes nothing, or is refused: all families, against what transformers makes of the same file.

    config_keys.py [--all] [--update] [--run FOLDER] [--family NAME]

expected_config_keys.json has, of every change of config_keys_table.py, transformers' parameters and the loss of samples longer than any window. What `import hf`
writes must have as many parameters; where it writes the text of the unchanged file, the loss must be the unchanged one's; what it refuses must name the key, and be
refused already in the file (`zplan`), so that nothing that imported before is refused. What is used writes the text that it wrote when --run compared its loss (`crc`). A fifth of the changes is checked, and all of the keys that were wrong once; --all takes all.
--update asks transformers (PYTHON=path names a Python that has it) and writes
the file: read the difference. --run FOLDER trains 0 steps from the checkpoints that config_keys_reference.py leaves there: every loss must be transformers' (minutes, by hand).
"""
import json
import os
import re
import sys
import zlib

import config_keys_table as table

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

EXPECTED = os.path.join(HERE, "expected_config_keys.json")
# T5 v1.1: transformers' class ties the head in any case, and takes another one out of a checkpoint that has it. Those of T5 v1.1 have it.
EXCEPTIONS = {("t5", "tie_word_embeddings False"), ("mt5", "tie_word_embeddings False")}
# Other texts of which the same comes out: windows that reach over the sample, groups of layers that are all alike, all groups of experts; and rates of dropout.
FREE = {"sliding_window", "layer_types", "topk_group", "resid_pdrop", "embd_pdrop"}
# Fields of which null is false, or which no layer reads.
NULLS = {"return_dict", "use_cache", "tie_word_embeddings", "attention_bias", "mlp_bias", "qkv_bias", "use_sliding_window", "use_parallel_residual", "is_decoder", "add_cross_attention",
         "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn", "output_router_logits", "chunk_size_feed_forward", "classifier_dropout", "attention_dropout", "attn_pdrop",
         "attention_probs_dropout_prob", "encoder_stride", "pooler_act", "num_key_value_heads", "embd_pdrop", "norm_topk_prob", "original_max_position_embeddings"}
SAME_LOSS = 1e-12  # relative; f64, and the same program with the same numbers


def imported(path, config):
    """(text or None, what was said)"""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)
    outcome = harness.zplan("import", "hf", path)
    if outcome.status not in (0, 1) or (outcome.status == 1) != ("error[Z068" in outcome.err):
        return None, "crash: %d %s" % (outcome.status, outcome.err[-300:])
    return (outcome.out if outcome.status == 0 else None), outcome.err


def parameters_of(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    check = harness.zplan("check", path, "--json")
    return json.loads(check.out)["parameters"] if check.status == 0 else check.err[-300:]


# What was another model than transformers' before there was this list.
ONCE_WRONG = {"sliding_window", "num_key_value_heads", "layer_types", "max_window_layers", "use_sliding_window", "architectures", "is_causal", "rope_scaling", "rotary_emb_base",
              "num_experts", "router_aux_loss_coef", "output_router_logits", "num_experts_per_tok", "num_labels", "attn_logit_softcapping", "norm_topk_prob", "rope_interleave"}


def is_chosen(family, change):
    if {"--all", "--update", "--run"} & set(sys.argv) or change[1] == "several" or change[0] in ONCE_WRONG:
        return True
    return zlib.crc32((family + table.name_of(change)).encode()) % 5 == 0


def keys_of(change):
    return list(change[0]) if change[1] == "several" else [change[0]]


def computation(text):
    """Lines of a text without what no loss depends on: comments, the longest sample, start values, the training."""
    lines = re.sub(r"#.*", "", text[:text.index("cluster gpus")]).split("\n")
    return tuple(re.sub(r"\bS = \d+|(, )?(residual_)?std = [^,)]*|~ \S+\(\)", "", line) for line in lines)


def judge(tally, folder, family, change, rows, texts, by_loss):
    """refused, used or nothing."""
    name, row = "%s: %s" % (family, table.name_of(change)), rows[table.name_of(change)]
    text, said = imported(os.path.join(folder, "config.json"), table.applied(family, change))
    last["text"] = text
    if text is None:
        place = re.search(r"config\.json:(\d+):", said)
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            line = file.read().split("\n")[int(place[1]) - 1] if place else ""
        named = any("`%s`" % key in said for key in keys_of(change)) or re.match(r' "\w+":', line)
        tally.check(name + " is rejected with a message", named, said[-400:])
        return "refused"
    if "error" in row:  # no model for transformers: nothing to compare with
        tally.check(name + ": a null that transformers does not take is not the default", change[1:] != ("value", None) or change[0] in NULLS or change[0].startswith("summary_"),
                    "taken")
        return "taken"
    if text not in texts:
        texts[text] = parameters_of(os.path.join(folder, "m.dz"), text)
    tally.check(name + ": parameters", (family, table.name_of(change)) in EXCEPTIONS or texts[text] == row["parameters"], "%s instead of %d" % (texts[text], row["parameters"]))
    if (family, table.name_of(change)) in EXCEPTIONS:
        return "used"
    unchanged = rows["unchanged"]
    same = "loss" in row and abs(row["loss"] - unchanged["loss"]) <= SAME_LOSS * abs(unchanged["loss"])
    compared = "loss" in row and not set(keys_of(change)) & FREE
    computed = by_loss.setdefault(row["loss"], computation(text)) if compared else None
    tally.check(name + ": what gives the same loss computes the same", computed in (None, computation(text)), str(set(computation(text)) ^ set(computed or ())))
    if text == unchanged["text"] and not tally.check(name + " changes nothing", same, "%s, the unchanged file gives %s" % (row.get("loss"), unchanged["loss"])):
        return "SILENT"
    return "nothing" if text == unchanged["text"] else "used"


last = {}  # the text that was written last
REST = """
cluster cpu { nodes = 1  node = std.hw.cpu_generic(cores = 2, memory = 8GiB) }
train {
  model = %s  data = arrays("%s")  batch = 2  steps = 1  precision = "fp64"  dropout = 0.0  optimizer = adamw(lr = 1e-3)
}
"""


def check_rope(tally, folder, family):
    """What stands among the rotary positions is of its type, or refused: no default takes its place. transformers computes with it, and fails."""
    objects = table.FAMILIES[family].get("rope_parameters")
    if not objects:
        return
    for part in [key for key in objects if isinstance(objects[key], dict)] or [None]:
        for key, value in [(key, value) for key in ("rope_theta", "rope_type") for value in ("1e6" if key == "rope_theta" else 3, None, True, [], {})]:
            rope = dict(objects[part] if part else objects, **{key: value})
            text, said = imported(os.path.join(folder, "config.json"), dict(table.FAMILIES[family], rope_parameters=dict(objects, **{part: rope}) if part else rope))
            tally.check("%s: %s %s of rope_parameters is refused" % (family, key, value), text is None and "`%s`" % key in said, said[-300:])
    if family == "gpt_neox":
        return  # its key is another one
    config = {key: value for key, value in table.FAMILIES[family].items() if key != "rope_parameters"}
    text, said = imported(os.path.join(folder, "config.json"), dict(config, rope_theta=None))
    tally.check("%s: rope_theta null alone is refused" % family, text is None and "`rope_theta`" in said, said[-300:])


def run_family(tally, folder, family, rows, checkpoints):
    """By hand: the losses of what is used, each once."""
    seen, log = set(), os.path.join(folder, "log.jsonl")
    for index, change in enumerate(table.changes(family)):
        row, init = rows[table.name_of(change)], os.path.join(checkpoints, family, "%04d" % index)
        if row.get("zplan") != "used" or "loss" not in row or row["loss"] in seen or not os.path.isdir(init):
            continue
        seen.add(row["loss"])
        text, _ = imported(os.path.join(folder, "config.json"), table.applied(family, change))
        model = os.path.join(folder, "m.dz")
        with open(model, "w", encoding="utf-8") as file:
            file.write(text[:text.index("cluster gpus")] + REST % (family, os.path.abspath(checkpoints)))
        outcome = harness.zplan("run", model, "--init", init, "--ranks", 1, "--steps", 1, "--overwrite", "--log", log, "-o", os.path.join(folder, "tree"), "--set", "model.S=24")
        loss = harness.read_log(log)[0][0]["loss"] if outcome.status == 0 else None
        name = "%s: the loss of %s" % (family, table.name_of(change))
        tally.check(name, outcome.status == 0 and harness.number_error(loss, row["loss"]) <= 1e-6, "%s instead of %s %s" % (loss, row["loss"], outcome.tail()))


def main():
    update = "--update" in sys.argv[1:]
    harness.require_zplan()
    tally = harness.Tally()
    with open(EXPECTED, encoding="utf-8") as file:
        expected = json.load(file)
    with harness.Scratch() as folder:
        for family in table.FAMILIES:
            if "--family" in sys.argv and family not in sys.argv:
                continue
            rows, texts, by_loss = expected["families"][family], {}, {}
            text, said = imported(os.path.join(folder, "config.json"), table.FAMILIES[family])
            if not tally.check(family + " imports", text is not None, said):
                continue
            rows["unchanged"]["text"] = text
            by_loss[rows["unchanged"]["loss"]] = computation(text)
            for change in (one for one in table.changes(family) if is_chosen(family, one)):
                found, row = judge(tally, folder, family, change, rows, texts, by_loss), rows[table.name_of(change)]
                written = ("crc", zlib.crc32(repr(computation(last["text"])).encode())) if found == "used" else ("crc", None)
                if update:
                    row.update({"zplan": found}, **dict([written] if written[1] else []))
                tally.check("%s: %s writes what gave transformers' loss (`--run` asks again)" % (family, table.name_of(change)), row.get("crc") == written[1], str(written[1]))
                tally.check("%s: %s is %s as before" % (family, table.name_of(change), row.get("zplan")), row.get("zplan") == found, found)
            del rows["unchanged"]["text"]
            check_rope(tally, folder, family)
            if "--run" in sys.argv and family not in ("bert", "roberta", "t5", "mt5", "vit"):
                run_family(tally, folder, family, rows, sys.argv[sys.argv.index("--run") + 1])
    if update:
        write(expected)
    return tally.finish()


def write(expected):
    with open(EXPECTED, "w", encoding="utf-8") as file:
        file.write("{\"transformers\": %s, \"families\": {\n" % json.dumps(expected["transformers"]))
        file.write(",\n".join("%s: {\n%s}" % (json.dumps(family), ",\n".join(" %s: %s" % (json.dumps(name), json.dumps(row)) for name, row in rows.items()))
                              for family, rows in expected["families"].items()))
        file.write("}}\n")


if __name__ == "__main__":
    sys.exit(main())
