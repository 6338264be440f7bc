#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NCCL's topology files: machines drawn here, what becomes of them, and what is refused; hostile and damaged XML.

The files are made from a few words a machine; expected rates are the data sheets' and NCCL's own (in hw.dz and nccl.c).
"""
import os
import random
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

failures, passed = [], [0]


def expect(name, condition, detail=""):
    if condition:
        passed[0] += 1
    else:
        failures.append(name)
        print("FAILED %s %s" % (name, detail))
    return condition


# ---- files ----

def attributes(**values):
    return "".join(' %s="%s"' % (key.rstrip("_"), value) for key, value in values.items() if value is not None)


def element(tag, inside="", **values):
    return "<%s%s>\n%s</%s>\n" % (tag, attributes(**values), inside, tag) if inside else "<%s%s/>\n" % (tag, attributes(**values))


def pci(bus, class_, inside="", speed="16.0 GT/s PCIe", width=16, **values):
    return element("pci", inside, busid="0000:%02x:00.0" % bus, class_=class_, link_speed=speed, link_width=width, **values)


def gpu(bus, dev, device="0x20b2", sm=80, links="", vendor="0x10de", gdr=1, **how):
    inside = element("gpu", links, dev=dev, sm=sm, rank=dev, gdr=gdr)
    return pci(bus, "0x030200", inside, vendor=vendor, device=device, **how)


def to_switch(*counts):
    return "".join(element("nvlink", target="0000:%02x:00.0" % (0xc4 + i), count=n, tclass="0x068000") for i, n in enumerate(counts))


def to_gpus(**counts):
    return "".join(element("nvlink", target="0000:%s:00.0" % bus[1:], count=n, tclass="0x030200") for bus, n in counts.items())


def card(bus, nets, class_="0x020700", **how):
    return pci(bus, class_, element("nic", nets), vendor="0x15b3", device="0x101b", **how)


def net(dev, speed=200000, port=1, guid=None, **how):
    values = {"name": "mlx5_%d" % dev, "dev": dev, "speed": speed, "port": port, "guid": guid or "0x%x" % (dev + 7), "gdr": 1}
    return element("net", **dict(values, **how))


def bridge(bus, inside, **how):
    return pci(bus, "0x060400", inside, vendor="0x1000", device="0xc010", **how)


def cpu(number, inside, **how):
    return element("cpu", inside, numaid=number, affinity="0000ffff", arch="x86_64", vendor="AuthenticAMD", familyid=143,
                   modelid=49, **how)


def system(*cpus):
    return element("system", "".join(cpus), version=1)


def dgx_a100():
    """Four switches, on each two GPUs and two cards; a card with a second, slower port."""
    def switch(i):
        b = 0x10 * (i + 1)
        inside = "".join(bridge(b + 1 + 4 * k, gpu(b + 2 + 4 * k, 2 * i + k, links=to_switch(2, 2, 2, 2, 2, 2)) +
                                card(b + 3 + 4 * k, net(2 * i + k))) for k in range(2))
        return cpu(i, bridge(b, inside), host_hash="0x8393fb66b8b750c5")
    storage = card(0xa0, net(8, guid="0xaa") + net(9, speed=100000, port=2, guid="0xaa"))
    return system(*[switch(i) for i in range(4)], cpu(7, storage, host_hash="0x8393fb66b8b750c5"))


def eight_h100(**how):
    return system(*[cpu(i, "".join(bridge(0x10 * (4 * i + k + 1), gpu(
        0x10 * (4 * i + k + 1) + 1, 4 * i + k, "0x2330", 90, to_switch(5, 4, 5, 4), speed="32.0 GT/s", **how) + card(
            0x10 * (4 * i + k + 1) + 2, net(4 * i + k, 400000, gdr=0), speed="32.0 GT/s"), speed="32.0 GT/s") for k in range(4)))
        for i in range(2)])


def mesh():
    """Four V100 as half of a DGX-1: six links each, two of them to GPUs that are not in the file's communicator."""
    links = [to_gpus(b02=1, b03=1, b04=2, b81=2), to_gpus(b01=1, b03=2, b04=1, b82=2), to_gpus(b01=1, b02=2, b04=1, b83=2),
             to_gpus(b01=2, b02=1, b03=1, b84=2)]
    half = lambda first: bridge(0x10 + first, "".join(gpu(1 + i, i, "0x1db5", 70, links[i], speed="8 GT/s")
                                                      for i in (first, first + 1)), speed="8 GT/s")
    return system(cpu(0, half(0) + half(2) + card(0x30, net(0, 100000), speed="8 GT/s")))


def pairs():
    """Four cards, bridged two by two, on PCIe; one of them has eight lanes."""
    links = [to_gpus(b02=4), to_gpus(b01=4), to_gpus(b04=4), to_gpus(b03=4)]
    return system(cpu(0, "".join(gpu(1 + i, i, "0x2204", 86, links[i], width=8 if i == 3 else 16) for i in range(4))))


def workstation(**how):
    return system(cpu(0, gpu(1, 0, "0x2684", 89, **how) + gpu(2, 1, "0x2684", 89, **how) +
                      card(3, net(0, 10000), "0x020000", speed="8.0 GT/s PCIe", width=8)))


def by_hand():
    """As clouds write them for NCCL_TOPO_FILE: PCI devices alone."""
    return system(*[element("cpu", "".join(element("pci", busid="000%d:00:00.0" % (2 * i + k), class_="0x030200", link_speed="",
                                                   link_width=0) for k in range(2)) +
                            element("pci", busid="010%d:00:00.0" % i, class_="0x020700", link_speed="16 GT/s", link_width=16),
                            numaid=i) for i in range(2)])


MACHINES = {  # file, further words, lines of the block, words of the notes, what a plan for it calls the machine
    "dgx a100": (dgx_a100(), [], ["devices = 8 * std.hw.a100_80", 'link { kind = "nvswitch"  bandwidth = 300GB/s  latency = 3.4us }',
                                  "host { pcie = 24GB/s  pcie_devices_per_root = 2 }",
                                  'nic { kind = "infiniband"  count = 9  bandwidth = 25GB/s  latency = 14us }'],
                 ["another kind are left out: 1", "nothing is offloaded"], "8 x a100_80"),
    "eight h100": (eight_h100(), [], ["devices = 8 * std.hw.h100_sxm", 'kind = "nvswitch"  bandwidth = 450GB/s', "host { pcie = 48GB/s }",
                                      "count = 8  bandwidth = 50GB/s"], ["fabric { staged = true }"], "8 x h100_sxm"),
    "mesh": (mesh(), [], ["4 * std.hw.v100_sxm2_32", 'link { kind = "nvlink"  bandwidth = 150GB/s  latency = 3.4us }',
                          "host { pcie = 12GB/s  pcie_devices_per_root = 2 }", "count = 1  bandwidth = 12.5GB/s"],
             ["all 6 links"], "4 x v100_sxm2_32"),
    "pairs": (pairs(), [], ["4 * std.hw.rtx3090", 'link { kind = "pcie"  bandwidth = 12GB/s  latency = 6us }', "host { pcie = 12GB/s }"],
              ["only some of the GPUs", "no network"], "4 x rtx3090"),
    "workstation": (workstation(), [], ["2 * std.hw.rtx4090", 'link { kind = "pcie"  bandwidth = 24GB/s  latency = 6us }',
                                        'nic { kind = "ethernet"  count = 1  bandwidth = 1.25GB/s  latency = 15us }'], [], "2 x rtx4090"),
    "first generation": (workstation(speed="2.5 GT/s PCIe"), [], ["bandwidth = 3GB/s"], [], "2 x rtx4090"),
    "second generation": (workstation(speed="5.0 GT/s PCIe", width=4), [], ["bandwidth = 1.5GB/s"], [], "2 x rtx4090"),
    "no PCI device": (workstation().replace(' device="0x2684"', ""), ["--gpu", "rtx4090"],
                      ["2 * std.hw.rtx4090"], [], "2 x rtx4090"),
    "named": (dgx_a100(), ["--gpu", "a100_80"], ["8 * std.hw.a100_80"], [], "8 x a100_80"),
    "unlisted": (dgx_a100().replace("0x20b2", "0x20f3"), ["--gpu", "a100_80"], ["8 * std.hw.a100_80"], [], "8 x a100_80"),
    "one gpu": (system(cpu(0, gpu(1, 0, "0x2335", 90, speed="", width=0))), [], ["devices = 1 * std.hw.h200"],
                ["PCIe: no speed", "no network"], "1 x h200"),
    "ranks on one gpu": (system(cpu(0, pci(1, "0x030200", element("gpu", dev=0, sm=80, rank=0) + element("gpu", dev=0, sm=80, rank=1),
                                           device="0x20b0"))), [], ["devices = 1 * std.hw.a100_40"], [], "1 x a100_40"),
    "plug-ins": (system(cpu(0, gpu(1, 0) + card(2, net(0) + net(0) + net(1, net=0) + net(2, keep=0) + net(3, speed=-1)))), [],
                 ["count = 1  bandwidth = 25GB/s"], ["speed is not said are left out: 1"], "1 x a100_80"),
    "no gpu direct": (system(cpu(0, gpu(1, 0, gdr=0) + card(2, net(0)))), [], ["count = 1"], ["staged"], "1 x a100_80"),
    "grace": (system(cpu(0, gpu(1, 0, "0x2342", 90, element("c2c", bw=372, count=10)))), ["--gpu", "h100_sxm_96"],
              ["1 * std.hw.h100_sxm_96"], ["between GPUs and CPUs"], "1 x h100_sxm_96"),
    "virtual machine": (system(cpu(0, "".join(bridge(0x10 * i + 1, gpu(0x10 * i + 2, i, "0x2330", 90, to_switch(5, 4, 5, 4), width=0),
                                                     speed="2.5 GT/s PCIe", width=1) for i in range(8)))), [],
                        ["bandwidth = 450GB/s"], ["bridges of one lane", "no speed is said"], "8 x h100_sxm"),
    "a card below the CPU": (system(cpu(0, gpu(1, 0) + element("nic", net(0, name="mlx5_0+mlx5_1")))), [],
                             ['kind = "ethernet"  count = 1  bandwidth = 25GB/s'], ["Ethernet is written"], "1 x a100_80"),
    "comments": ("<?xml version=\"1.0\"?>\n<!-- by hand -->\n" + workstation(), [], ["2 * std.hw.rtx4090"], [], "2 x rtx4090"),
}

DEVICES = {"v100_sxm2_16": 70, "v100_sxm2_32": 70, "v100_sxm3_32": 70, "v100_pcie_16": 70, "v100_pcie_32": 70, "a100_40": 80,
           "a100_80": 80, "rtx3090": 86, "rtx4090": 89, "h100_sxm": 90, "h100_pcie": 90, "h100_sxm_96": 90, "h200": 90, "b200": 100}

LAUGHS = '<!DOCTYPE s [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>\n<system>&b;</system>\n'
OUTSIDE = '<!DOCTYPE s [<!ENTITY a SYSTEM "file:///etc/passwd">]>\n<system>&a;</system>\n'

BAD = {  # file, further words, code, line (0: none), words
    "no XML": ("NCCL INFO Bootstrap", [], "Z0687", 1, "no XML"),
    "empty": ("", [], "Z0687", 0, "no XML"),
    "cut off": (workstation()[:300], [], "Z0687", 6, "no XML"),
    "two roots": (workstation() + "<system/>", [], "Z0687", 16, "no XML"),
    "wrong nesting": ("<system>\n<cpu>\n</system>\n</cpu>\n", [], "Z0687", 3, "mismatched tag"),
    "another root": ("<topology/>\n", [], "Z0687", 1, "NCCL_TOPO_DUMP_FILE"),
    "entities that grow": (LAUGHS, [], "Z0687", 1, "document type"),
    "entities from files": (OUTSIDE, [], "Z0687", 1, "document type"),
    "an entity that is none": ("<system>\n<cpu numaid='&x;'/></system>\n", [], "Z0687", 2, "undefined entity"),
    "a NUL byte": ("<system>\n\0</system>\n", [], "Z0687", 2, "no XML"),
    "too deep": ("<system>" + "\n<pci>" * 70 + "</pci>" * 70 + "</system>", [], "Z0687", 65, "deep"),
    "too many": ("<system>" + "<pci/>" * 70000 + "</system>", [], "Z0687", 1, "65536 elements"),
    "too large": ("<system>" + " " * (17 << 20) + "</system>", [], "Z0687", 0, "bytes"),
    "no GPU": (system(cpu(0, card(2, net(0)))), [], "Z0687", 1, "no GPU"),
    "words for a number": (workstation().replace('sm="89"', 'sm="new"', 1), [], "Z0687", 4, "`sm` of `gpu` is \"new\""),
    "a number too large": (workstation().replace('sm="89"', 'sm="99999999999999999999"', 1), [], "Z0687", 4, "0 to 999"),
    "a negative width": (workstation().replace('link_width="16"', 'link_width="-16"', 1), [], "Z0687", 3, "`link_width`"),
    "a speed of words": (workstation(speed="fast"), [], "Z0687", 3, "`link_speed` is \"fast\""),
    "a speed with another unit": (workstation(speed="16.0 GB/s"), [], "Z0687", 3, "GT/s"),
    "no speed between GPUs": (workstation(speed=""), [], "Z0687", 3, "link_speed"),
    "unknown speed": (workstation(speed="Unknown"), [], "Z0687", 3, "link_speed"),
    "no count": (dgx_a100().replace(' count="2"', "", 1), [], "Z0687", 7, "`nvlink` needs"),
    "no kind of target": (dgx_a100().replace(' tclass="0x068000"', "", 1), [], "Z0687", 7, "`nvlink` needs"),
    "another target": (dgx_a100().replace("0x068000", "0x010000", 1), [], "Z0687", 7, "neither a GPU"),
    "two kinds": (workstation().replace("0x2684", "0x2685", 1), [], "Z0687", 6, "several kinds"),
    "one GPU twice": (workstation().replace("0000:02:", "0000:01:"), [], "Z0687", 6, "stands twice"),
    "two hosts": (dgx_a100().replace("0x8393fb66b8b750c5", "0x1", 1), [], "Z0687", None, "several hosts"),
    "a card anywhere": ("<system><cpu numaid='0'>\n<net speed='1'/></cpu></system>", [], "Z0687", 2, "outside of a `nic`"),
    "a GPU anywhere": ("<system><cpu numaid='0'>\n<gpu sm='80'/></cpu></system>", [], "Z0687", 2, "outside of a `pci`"),
    "too many GPUs": (system(cpu(0, "".join(gpu(i, i) for i in range(70)))), [], "Z0687", None, "more than 64 GPUs"),
    "too many ports": (system(cpu(0, gpu(1, 0) + card(2, "".join(net(i) for i in range(1100))))), [], "Z0687", None, "1024"),
    "another maker": (workstation().replace("0x10de", "0x1002"), [], "Z0686", 3, "0x1002"),
    "40 or 80 GB": (dgx_a100().replace(' device="0x20b2"', ""), [], "Z0686", 5, "--gpu NAME, one of a100_40, a100_80"),
    "an A30": (dgx_a100().replace("0x20b2", "0x20b7"), [], "Z0686", 5, "0x20b7, sm_80, are not in the library"),
    "by hand, not named": (by_hand(), [], "Z0686", 3, "--gpu NAME"),
    "no such device": (dgx_a100(), ["--gpu", "a100_8"], "Z0686", 0, "did you mean `a100_"),
    "another device": (dgx_a100(), ["--gpu", "a100_40"], "Z0686", 5, "0x20b2 is a100_80"),
    "another capability": (dgx_a100(), ["--gpu", "h200"], "Z0686", 5, "one of a100_40, a100_80"),
    "links where none are": (workstation(links=to_switch(2)), [], "Z0686", 3, "rtx4090 has none"),
    "a capability that is newer": (dgx_a100().replace("0x20b2", "0x3182").replace('sm="80"', 'sm="103"'), [], "Z0686", 5, "sm_103"),
}

MODEL = os.path.join(harness.ROOT, "examples", "gpt2.dz")


def write(path, content):
    with open(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


def machines(folder):
    topology, block, model = folder + "/topo.xml", folder + "/cluster.dz", folder + "/with_cluster.dz"
    with open(MODEL, encoding="utf-8") as file:
        gpt2 = file.read()
    for name, (text, words, lines, notes, machine) in MACHINES.items():
        write(topology, text)
        run = harness.zplan("import", "nccl", topology, "-o", block, *words)
        if not expect("import " + name, run.status == 0 and run.out == "", run.err[:400]):
            continue
        with open(block, encoding="utf-8") as file:
            written = file.read()
        flat = re.sub(r" +", " ", written)
        for line in lines:
            expect("%s has %s" % (name, line), re.sub(r" +", " ", line) in flat, written)
        for note in notes:
            expect("%s notes %s" % (name, note), note in run.err, run.err)
        expect("canonical layout, " + name, harness.zplan("fmt", "--check", block).status == 0)
        write(model, gpt2 + written)
        expect("check " + name, harness.zplan("check", model, "--cluster", "nccl").status == 0)
        plan = harness.zplan("plan", model, "--cluster", "nccl", "--set", "batch=64")
        expect("plan for " + name, plan.status == 0 and machine in plan.out, plan.out[:200] + plan.err[:200])
    write(topology, by_hand())
    run = harness.zplan("import", "nccl", topology, "--gpu", "a100_40")
    expect("by hand, NVLink is not said", run.status == 1 and "NVLinks" in run.err and "topo.xml:3:" in run.err, run.err)
    run = harness.zplan("import", "nccl", topology, "--gpu", "v100_pcie_16")
    expect("by hand, PCIe is not said", run.status == 1 and "link_speed" in run.err, run.err)
    several_nodes(folder, gpt2)
    for name, sm in DEVICES.items():
        write(topology, system(cpu(0, gpu(1, 0, None, sm))))
        run = harness.zplan("import", "nccl", topology, "--gpu", name, "-o", block)
        with open(block, encoding="utf-8") as file:
            write(model, gpt2 + file.read())
        expect("the library has " + name, run.status == 0 and harness.zplan("check", model, "--cluster", "nccl").status == 0, run.err)


def several_nodes(folder, gpt2):
    """An imported DGX A100 is priced as the library's, where both say the same: 16 GPUs on two nodes."""
    topology, model = folder + "/topo.xml", folder + "/two.dz"
    write(topology, dgx_a100().replace(net(8, guid="0xaa"), "").replace(net(9, speed=100000, port=2, guid="0xaa"), ""))
    block = harness.zplan("import", "nccl", topology).out
    write(model, gpt2 + block + "cluster library { nodes = 2  node = std.hw.dgx_a100 }\n")
    pins = ["--gpus", "16", "--set", "tensor=2", "--set", "pipeline=1", "--set", "batch=64"]
    times = []
    for name in ("nccl", "library"):
        run = harness.zplan("plan", model, "--cluster", name, *pins, "--json")
        expect("two nodes, " + name, run.status == 0, run.err[:300])
        found = re.search(r'"step_s": ([0-9.e-]+)', run.out)
        times.append(float(found[1]) if found else None)
    expect("the same price", times[0] is not None and times[0] == times[1], str(times))


def refusals(folder):
    topology = folder + "/bad.xml"
    for name, (text, words, code, line, says) in BAD.items():
        write(topology, text)
        run = harness.zplan("import", "nccl", topology, *words)
        expect("refused: " + name, run.status == 1 and run.out == "" and code in run.err and says in run.err, run.err[-400:])
        if line:
            expect("place: " + name, "bad.xml:%d:" % line in run.err, run.err[-400:])
    run = harness.zplan("import", "nccl", folder + "/none.xml")
    expect("a missing file", run.status == 1 and "Z0687" in run.err, run.err)
    expect("no file", harness.zplan("import", "nccl").status == 2)
    run = harness.zplan("import", "slurm", topology, "--gpu", "h200")
    expect("--gpu of another format", run.status == 2 and "import nccl" in run.err, run.err)


def damaged(folder):
    """Bytes changed from a seed: an answer or a refusal, never a crash; what is written is a file that `check` reads."""
    draw, path, block, model = random.Random(11), folder + "/damaged.xml", folder + "/damaged.dz", folder + "/with_damaged.dz"
    with open(MODEL, encoding="utf-8") as file:
        gpt2 = file.read()
    texts, bad = [text.encode() for text, _, _, _, _ in MACHINES.values()], []
    for i in range(300):
        data = bytearray(draw.choice(texts))
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(data))
            kind = draw.randrange(4)
            if kind == 0:
                data[at] = draw.randrange(256)
            elif kind == 1:
                del data[at:at + draw.randint(1, 60)]
            elif kind == 2:
                data[at:at] = data[draw.randrange(len(data)):][:draw.randint(1, 200)]
            else:
                data[at:at] = draw.choice([b"9", b"-", b"0x", b"<pci>", b"</pci>", b"&#0;", b"\xff", b"\"", b"e9"])
        write(path, bytes(data))
        run = harness.zplan("import", "nccl", path, "-o", block)
        if run.status not in (0, 1) or (run.status == 1) != ("error" in run.err):
            bad.append((i, run.status, run.err[-200:]))
        elif run.status == 0:
            with open(block, encoding="utf-8") as file:
                text = file.read()
            write(model, gpt2 + text)
            if harness.zplan("check", model, "--cluster", "nccl").status != 0:
                bad.append((i, text))
    expect("damaged files", not bad, str(bad[:3]))


def main():
    harness.require_zplan()
    with harness.Scratch() as folder:
        machines(folder)
        refusals(folder)
        damaged(folder)
    print("%d passed, %d failed" % (passed[0], len(failures)))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
