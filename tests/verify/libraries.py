#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which of a machine's CUDA libraries are used, by small stand-ins for them that are compiled here: 13 before 12, 12 where an arch or
the driver needs it, in folders of CUDA_HOME and of Python wheels; what `zplan doctor` shows; one message for each thing that is missing.

usage: libraries.py      (ZPLAN=path: another binary)
"""
import ctypes
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
import harness  # noqa: E402

MODEL = os.path.join(ROOT, "tests", "diff", "gpt.dz")
MINOR = 77  # of all stand-ins: no library has such a version
ARCHS = {13: (75, 80, 86, 89, 90, 100, 120), 12: (50, 60, 70, 75, 80, 86, 89, 90)}

# A cubin as far as anybody looks: an ELF header for the machine that NVIDIA's number means, and a word to find again.
NVRTC = """
#include <string.h>
static const int archs[] = {%(archs)s};
int nvrtcVersion(int *major, int *minor) { *major = %(major)d; *minor = %(minor)d; return 0; }
int nvrtcGetNumSupportedArchs(int *count) { *count = sizeof archs / sizeof *archs; return 0; }
int nvrtcGetSupportedArchs(int *to) { memcpy(to, archs, sizeof archs); return 0; }
int nvrtcCreateProgram(void **p, const char *t, const char *n, int h, const char *const *a, const char *const *b) { *p = 0; return 0; }
int nvrtcDestroyProgram(void **p) { return 0; }
int nvrtcCompileProgram(void *p, int n, const char *const *options) { return 0; }
int nvrtcGetProgramLogSize(void *p, size_t *bytes) { *bytes = 0; return 0; }
int nvrtcGetProgramLog(void *p, char *log) { return 0; }
int nvrtcGetCUBINSize(void *p, size_t *bytes) { *bytes = 96; return 0; }
int nvrtcGetCUBIN(void *p, char *to) {
  memset(to, 0, 96);
  memcpy(to, "\\177ELF", 4);
  to[18] = (char)190;
  strcpy(to + 64, "made by NVRTC %(major)d");
  return 0;
}
"""
CUBLAS = """
#include <stdio.h>
int cublasLtGetProperty(int which, int *value) { *value = which == 0 ? %(major)d : which == 1 ? %(minor)d : 0; return 0; }
int cublasLtCreate(void **handle) { fprintf(stderr, "cuBLASLt %(major)d starts\\n"); *handle = 0; return 0; }
"""
DRIVER = """
#include <stdlib.h>
static int number(const char *name, int missing) { const char *text = getenv(name); return text ? atoi(text) : missing; }
static char memory[1 << 24];
int cuDriverGetVersion(int *version) { *version = number("FAKE_DRIVER", 13000); return 0; }
int cuDeviceGetCount(int *count) { *count = number("FAKE_GPUS", 1); return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) {
  int sm = number("FAKE_SM", 90);
  *value = which == 75 ? sm / 10 : which == 76 ? sm % 10 : 4;
  return 0;
}
int cuGetErrorName(int result, const char **text) { *text = "CUDA_ERROR_OF_THE_STAND_IN"; return 0; }
int cuGetErrorString(int result, const char **text) { *text = "no such thing"; return 0; }
int cuModuleLoadData(void **module, const void *image) { return 209; }
"""


def compile_library(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    source = path + ".c"
    with open(source, "w", encoding="utf-8") as file:
        file.write(text)
    outcome = harness.run(("cc", "-shared", "-fPIC", "-w", "-o", path, source))
    assert outcome.status == 0, outcome.err


def functions(table):
    """Names of the functions that the runtime asks a library for, as gpu_api.h lists them."""
    with open(os.path.join(ROOT, "runtime", "cuda", "gpu_api.h"), encoding="utf-8") as file:
        text = file.read()
    body = text[text.index("#define " + table):]
    return re.findall(r'X\(\w+, "(\w+)"', body[:body.index("\n\n")])


def with_all(text, table):
    """Functions that are only there return success."""
    return text + "".join("int %s() { return 0; }\n" % name for name in functions(table) if " %s(" % name not in text)


def make_nvrtc(folder, major, minor=MINOR, archs=None, text=NVRTC):
    path = os.path.join(folder, "libnvrtc.so.%d" % major)
    compile_library(path, text % {"major": major, "minor": minor, "archs": ", ".join(map(str, archs or ARCHS[major]))})
    return path


def make_cublas(folder, major, minor=MINOR):
    path = os.path.join(folder, "libcublasLt.so.%d" % major)
    compile_library(path, with_all(CUBLAS % {"major": major, "minor": minor}, "GPU_BLAS_FUNCTIONS"))
    return path


def is_there(name):
    """Does the loader of this machine find it?"""
    try:
        ctypes.CDLL(name)
        return True
    except OSError:
        return False


def doctor(**env):
    """{name: what was found, a line each} of `zplan doctor`."""
    rows = {}
    for row in json.loads(harness.zplan("doctor", "--json", env=env).out)["result"]["found"]:
        rows[row["name"]] = rows.get(row["name"], "") + (row["found"] or "") + "\n"
    return rows


def row_of(rows, arch):
    """An arch's row: "sm_75" or one that it stands in the range of."""
    order = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
    for name, text in rows.items():
        first, _, last = name.partition("..")
        if first in order and order.index(first) <= order.index(arch) <= order.index("sm_" + last if last else first):
            return text
    return ""


def check_order(tally, folder):
    """CUDA_HOME counts before everything else, in it 13 before 12, and an arch takes the first that has it."""
    home = os.path.join(folder, "both")
    paths = {(kind, major): make(os.path.join(home, "lib64"), major) for kind, make in (("nvrtc", make_nvrtc), ("cublas", make_cublas))
             for major in (13, 12)}
    rows = doctor(CUDA_HOME=home)
    for kind in ("nvrtc", "cublas"):
        listed = rows.get({"nvrtc": "NVRTC", "cublas": "cuBLASLt"}[kind], "")
        at = [listed.find("%s (%d.%d)" % (paths[kind, major], major, MINOR)) for major in (13, 12)]
        tally.check("doctor: %s 13, then 12" % kind, 0 <= at[0] < at[1], listed)
    for arch, major in (("sm_70", 12), ("sm_75", 13), ("sm_90", 13), ("sm_120", 13)):
        text = row_of(rows, arch)
        tally.check("doctor: %s takes CUDA %d" % (arch, major), paths["nvrtc", major] in text and paths["cublas", major] in text, text)
    for arch, major in (("sm_70", 12), ("sm_90", 13)):
        tree = os.path.join(folder, arch)
        built = harness.zplan("build", MODEL, "--cluster", "gpu", "--ranks", 1, "--arch", arch, "-o", tree, env={"CUDA_HOME": home})
        with open(os.path.join(tree, "kernels.image"), "rb") as file:
            image = file.read()
        tally.check("build: %s by NVRTC %d" % (arch, major), built.status == 0 and b"made by NVRTC %d" % major in image, built.tail())


def check_lacking(tally, folder):
    """A library without what is asked for is passed over, and named where there is no other."""
    home = os.path.join(folder, "new")
    path = make_nvrtc(os.path.join(home, "lib"), 13)
    make_cublas(os.path.join(home, "lib"), 13)
    if not is_there("libnvrtc.so.12"):
        rows = doctor(CUDA_HOME=home)
        tally.check("doctor: sm_70 has none", "NVRTC none, it needs CUDA 12" in row_of(rows, "sm_70"), row_of(rows, "sm_70"))
        told = harness.zplan("build", MODEL, "--cluster", "gpu", "--ranks", 1, "--arch", "sm_70", "-o", os.path.join(folder, "none"), env={"CUDA_HOME": home})
        tally.check("build: sm_70 with 13 alone", told.status == 1 and told.err.count("error[") == 1 and "needs that of CUDA 12, because 13 has no Volta" in
                    told.err and path in told.err, told.tail())
    broken = os.path.join(folder, "broken")
    make_nvrtc(os.path.join(broken, "lib"), 13, text=NVRTC.replace("nvrtcGetCUBINSize", "nvrtcGetNothing"))
    good = make_nvrtc(os.path.join(broken, "lib"), 12)
    rows = doctor(CUDA_HOME=broken)
    tally.check("doctor: a library that lacks a function", good in row_of(rows, "sm_70") and "lib/libnvrtc.so.13 (13.77)" not in rows.get("NVRTC", ""),
                rows.get("NVRTC", ""))


def check_wheels(tally, folder):
    """pip's folders of the python3 that a shell would start."""
    venv = os.path.join(folder, "venv")
    packages = os.path.join(venv, "lib", "python3.11", "site-packages", "nvidia")
    paths = [make_nvrtc(os.path.join(packages, "cuda_nvrtc", "lib"), 12), make_cublas(os.path.join(packages, "cublas", "lib"), 12)]
    os.makedirs(os.path.join(venv, "bin"))
    os.symlink(sys.executable, os.path.join(venv, "bin", "python3"))
    if is_there("libnvrtc.so.12") or is_there("libcublasLt.so.12"):
        print("note: this machine has CUDA 12, which counts before wheels")
        return
    text = row_of(doctor(PATH=os.path.join(venv, "bin") + ":" + os.environ["PATH"]), "sm_70")
    tally.check("doctor: sm_70 takes the wheels'", all(path in text for path in paths), text)
    text = row_of(doctor(), "sm_70")
    tally.check("doctor: not those of another python3", not any(path in text for path in paths), text)


def check_trainers(tally, folder):
    """What a trainer says of its driver and of cuBLAS; it chooses by GPU and driver."""
    trainer = os.path.join(folder, "sm_90", "trainer")
    driver = os.path.join(folder, "driver")
    compile_library(os.path.join(driver, "libcuda.so.1"), with_all(DRIVER, "GPU_DRIVER_FUNCTIONS"))
    both, new, none = (os.path.join(folder, name) for name in ("both", "new", "empty"))
    os.mkdir(none)

    def run(home, sm, version, **env):
        return harness.run((trainer, "--steps", 1), env=dict(env, LD_LIBRARY_PATH=driver, CUDA_HOME=home, FAKE_SM=str(sm), FAKE_DRIVER=str(version)))

    if not is_there("libcuda.so.1"):
        told = harness.run((trainer, "--steps", 1))
        tally.check("trainer: no driver", told.status == 1 and "error[Z0851]: this trainer needs a GPU: there is no CUDA driver" in told.err, told.tail())
    cases = [("an old driver", both, 90, 11040, {}, "the CUDA driver is one of CUDA 11.4, and 12.0 is the oldest"),
             ("no GPU", both, 90, 13000, {"FAKE_GPUS": "0"}, "the CUDA driver finds none that can be used")]
    if not is_there("libcublasLt.so.12"):
        cases += [("cuBLAS without the GPU's arch", new, 70, 13000, {}, "has no kernels for sm_70, which needs cuBLAS 12"),
                  ("cuBLAS too new for the driver", new, 90, 12040, {}, "needs a driver of CUDA 13, and this one is of CUDA 12.4")]
    if not is_there("libcublasLt.so.13") and not is_there("libcublasLt.so.12") and not os.path.exists("/usr/local/cuda"):
        cases += [("no cuBLAS", none, 90, 13000, {}, "there is no libcublasLt.so.13 or .12")]
    for name, home, sm, version, env, words in cases:
        told = run(home, sm, version, **env)
        tally.check("trainer: " + name, told.status == 1 and "error[Z0851]" in told.err and words in told.err and told.err.count("error") == 1, told.tail())
    for sm, version, major in ((90, 13000, 13), (90, 12040, 12), (70, 13000, 12), (100, 12080, 12)):
        told = run(both, sm, version)
        tally.check("trainer: sm_%d and a driver of CUDA %d take cuBLAS %d" % (sm, version // 1000, major), "cuBLASLt %d starts" % major in told.err and
                    told.status == 5 and "error[Z0852]: cannot load the kernels: they were built for another kind of GPU" in told.err, told.tail())


def main():
    harness.require_zplan()
    for name in ("CUDA_HOME", "CUDA_PATH"):
        os.environ.pop(name, None)
    tally = harness.Tally()
    with harness.Scratch() as folder:
        for part in (check_order, check_lacking, check_wheels, check_trainers):
            part(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
