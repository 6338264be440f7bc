"""The GPUs of this machine, and the .dz files about them."""
import os
import subprocess

# The library device whose rates the plan is made with: words of the GPU's name, the first that is found.
DEVICES = (("V100", "v100_sxm2_32"), ("A100", "a100_80"), ("H100 PCIe", "h100_pcie"), ("H100", "h100_sxm"), ("H200", "h200"),
           ("B200", "b200"), ("4090", "rtx4090"), ("3090", "rtx3090"))
# Ranks that share a GPU, where there are fewer GPUs than ranks of the largest layouts; their messages are staged.
SHARERS = 4
DZ = """use std.hw
use "%(model_file)s" as m

device here { base = std.hw.%(base)s  arch = "%(arch)s"  memory = %(memory)dMiB }
device part { base = std.hw.%(base)s  arch = "%(arch)s"  memory = %(part_memory)dMiB }
cluster gpu { nodes = 1  node = std.hw.workstation(devices = %(gpus)d * here) }
cluster shared { nodes = 1  node = std.hw.workstation(devices = %(devices)d * part) }
cluster cpu { nodes = 1  node = std.hw.cpu_generic(cores = %(cores)d, memory = %(host_memory)dGiB) }
train {
  model = m.%(model)s()  batch = %(batch)d  steps = %(steps)d  precision = "fp32"
  data = text("%(text)s", order = "shuffled")
  optimizer = adamw(lr = 3e-4)  clip = 1.0
}
"""
NAMES = {"sparse": "sparse_gpt"}


def query(*fields):
    return subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader,nounits"], capture_output=True,
                          text=True, check=True).stdout.strip().splitlines()


def machine_of(options):
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    m = {"cores": os.cpu_count(), "host_memory": max(1, memory // 2**30)}
    if options.arch:
        return dict(m, name="emulated GPU", driver="none", base="rtx4090", arch="sm_89", memory=24000, part_memory=24000, gpus=options.gpus,
                    devices=max(SHARERS, options.gpus), words=("--arch", options.arch))
    rows = [row.split(", ") for row in query("name", "compute_cap", "memory.total", "driver_version")]
    name, capability, megabytes, driver = rows[0]
    base = next((device for word, device in DEVICES if all(part in name for part in word.split())), "h100_sxm")
    devices, megabytes = max(SHARERS, len(rows)), int(float(megabytes))
    return dict(m, name=name, driver=driver, base=base, arch="sm_" + capability.replace(".", ""), memory=megabytes, gpus=len(rows), devices=devices,
                part_memory=megabytes // -(-devices // len(rows)), words=())


def write_model(path, machine, model, folder, batch, steps, text):
    values = dict(machine, model=NAMES.get(model, model), batch=batch, steps=steps, text=text, model_file=os.path.join(folder, model + ".dz"))
    with open(path, "w", encoding="utf-8") as file:
        file.write(DZ % values)
