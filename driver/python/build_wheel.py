#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A wheel out of a build folder, without a network: the module, the command, libzplan, what trainers are built from, and the libraries
that these need besides the C library and MPI. METADATA names the oldest C library that it is for.

usage: build_wheel.py BUILD_FOLDER OUT_FOLDER        prints the wheel's path
"""
import base64
import glob
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BUNDLED = ("libjansson", "libexpat", "libpcre2-8", "libunistring")
WHEN = (1980, 1, 1, 0, 0, 0)  # the same input makes the same bytes
PYTHON = ">=3.9"


def run(*words):
    """What a command prints; the end of this one where it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit("build_wheel.py: %s: %s" % (" ".join(words), (done.stderr or done.stdout).strip()))
    return done.stdout


def libraries_of(binary):
    """Paths of the shared libraries that the wheel brings."""
    found = dict(re.findall(r"(\S+) => (/\S+)", run("ldd", binary)))
    return {name: path for name, path in found.items() if name.startswith(BUNDLED)}


def copyright_of(path):
    """Debian's copyright file of a library; None: not known here."""
    for place in (path, os.path.realpath(path)):
        done = subprocess.run(["dpkg", "-S", place], capture_output=True, text=True, check=False)
        name = done.stdout.split(":")[0]
        page = "/usr/share/doc/%s/copyright" % name
        if done.returncode == 0 and os.path.exists(page):
            return name, page
    return None


def collect(build, stage):
    """The tree of the wheel: the module, and in _home what is installed for programs. Texts about the libraries that it brings."""
    prefix = os.path.join(stage, "prefix")
    run("cmake", "--install", build, "--prefix", prefix, "--strip")
    package = os.path.join(stage, "wheel", "zplan")
    home = os.path.join(package, "_home")
    shutil.copytree(os.path.join(HERE, "zplan"), package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in ("bin", "lib/zplan", "include"):
        shutil.copytree(os.path.join(prefix, folder), os.path.join(home, folder))
    library = glob.glob(os.path.join(prefix, "lib", "**", "libzplan.so.*.*.*"), recursive=True)[0]
    shutil.copy(library, os.path.join(home, "lib", "libzplan.so.1"))
    for archive in glob.glob(os.path.join(home, "lib/zplan/*/*.a")):
        run("strip", "--strip-debug", "--enable-deterministic-archives", archive)
    licences = {"LICENSE": os.path.join(ROOT, "LICENSE")}
    for binary in (os.path.join(home, "bin", "zplan"), library):
        for name, path in libraries_of(binary).items():
            shutil.copy(os.path.realpath(path), os.path.join(home, "lib", name))
            known = copyright_of(path)
            if known:
                licences["copyright." + known[0]] = known[1]
    return os.path.join(stage, "wheel"), licences


def needed_glibc(tree):
    """The newest version of glibc that a binary of the tree names, as "2.36"."""
    versions = set()
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(folder, name)
            if read(path)[:4] == b"\x7fELF" and not name.endswith(".o"):
                versions.update(re.findall(r"GLIBC_(\d+)\.(\d+)", run("objdump", "-T", path)))
    return "%d.%d" % max((int(major), int(minor)) for major, minor in versions)


def metadata(version, glibc):
    """Texts of the .dist-info folder but for RECORD. The tag is no manylinux one: zplan-calibrate-mpi needs the system's Open MPI."""
    tag = "py3-none-linux_%s" % platform.machine()
    return tag, {
        "METADATA": "Metadata-Version: 2.1\nName: zplan\nVersion: %s\nSummary: plans, generates and runs the parallel training of large models\n"
                    "License: Apache-2.0\nRequires-Python: %s\nProvides-Extra: pandas\nRequires-Dist: pandas; extra == 'pandas'\n\n"
                    "For Linux on %s with glibc %s or newer.\n" % (version, PYTHON, platform.machine(), glibc),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: build_wheel.py\nRoot-Is-Purelib: false\nTag: %s\n" % tag,
        "entry_points.txt": "[console_scripts]\nzplan = zplan.__main__:main\n",
        "top_level.txt": "zplan\n",
    }


class Wheel:
    """A zip file that keeps its RECORD."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data, executable=False):
        info = zipfile.ZipInfo(name, WHEN)
        info.external_attr = (0o100755 if executable else 0o100644) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append("%s,sha256=%s,%d" % (name, digest, len(data)))

    def close(self, record):
        self.zip.writestr(zipfile.ZipInfo(record, WHEN), "\n".join(self.record + [record + ",,"]) + "\n")
        self.zip.close()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def main():
    if len(sys.argv) != 3 or not os.path.exists(os.path.join(sys.argv[1], "CMakeCache.txt")):
        sys.exit("usage: build_wheel.py BUILD_FOLDER OUT_FOLDER")
    build, out = map(os.path.abspath, sys.argv[1:])
    version = re.search(r"^CMAKE_PROJECT_VERSION:STATIC=(.*)$", read(os.path.join(build, "CMakeCache.txt")).decode(), re.M)[1]
    os.makedirs(out, exist_ok=True)
    with tempfile.TemporaryDirectory() as stage:
        tree, licences = collect(build, stage)
        tag, texts = metadata(version, needed_glibc(tree))
        path, info = os.path.join(out, "zplan-%s-%s.whl" % (version, tag)), "zplan-%s.dist-info/" % version
        wheel = Wheel(path + ".part")
        for folder, folders, names in os.walk(tree):
            folders.sort()
            for name in sorted(names):
                file = os.path.join(folder, name)
                wheel.add(os.path.relpath(file, tree), read(file), os.access(file, os.X_OK))
        for name, text in texts.items():
            wheel.add(info + name, text.encode())
        for name, file in sorted(licences.items()):
            wheel.add(info + "licenses/" + name, read(file))
        wheel.close(info + "RECORD")
    os.replace(path + ".part", path)
    print(path)


if __name__ == "__main__":
    main()
