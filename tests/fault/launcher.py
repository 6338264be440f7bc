#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Versions of Open MPI: stand-ins for its launcher that answer `--version` as 4 and 5 do, take only words of that version, and start the
ranks by the launcher of this machine; then launchers of other versions, of other programs, and that do not answer.

tests/packages.sh trains under Open MPI 5 itself."""
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

MODEL = os.path.join(HERE, "tiny.dz")
STEPS = 2
NO_TOOL = 127
# What each version takes, by its manual page (mpirun(1) of 4.1.4; 5.0.7's, and prte_info and ompi_info of Debian 13): options with the
# number of their words, then settings a family.
OPTIONS = {4: {"--allow-run-as-root": 0, "--oversubscribe": 0, "--bind-to": 1, "-n": 1, "--hostfile": 1},
           5: {"--allow-run-as-root": 0, "--map-by": 1, "--bind-to": 1, "-n": 1, "--hostfile": 1}}
MPI = {"mpi_yield_when_idle", "btl_base_warn_component_unused", "coll", "osc", "topo", "io", "op", "reachable", "pml", "btl"}
SETTINGS = {4: {"--mca": MPI | {"orte_tmpdir_base", "btl_vader_backing_directory", "plm", "oob_tcp_if_include", "oob_tcp_keepalive_time",
                                "oob_tcp_keepalive_intvl", "oob_tcp_keepalive_probes"}},
            5: {"--mca": MPI | {"btl_sm_backing_directory"},
                "--prtemca": {"prte_tmpdir_base", "plm", "oob_tcp_keepalive_time", "oob_tcp_keepalive_intvl", "oob_tcp_keepalive_probes"}}}
# Parts that a value may name.
PARTS = {4: {"btl": {"self", "vader", "tcp", "sm"}, "plm": {"isolated", "rsh", "slurm"}}, 5: {"btl": {"self", "sm", "tcp"}, "plm": {"ssh", "slurm"}}}
VERSION = {4: "mpirun.openmpi (OpenRTE) 4.1.4", 5: "mpirun.openmpi (Open MPI) 5.0.7"}
STAND_IN = """#!/bin/sh
echo asked >>%(folder)s/calls
case $1 in
--version)
  echo '%(version)s'
  echo
  echo 'Report bugs to nobody'
  exit 0 ;;
esac
tr '\\0' '\\n' </proc/$$/environ | grep PRELOAD >%(folder)s/variables
: >%(folder)s/words
for word; do echo "$word" >>%(folder)s/words; done
while [ "$1" != -n ]; do shift; done
ranks=$2
shift 2
exec %(real)s %(root)s -q --oversubscribe --bind-to none -n "$ranks" "$@"
"""


class Launcher:
    def __init__(self, folder, text):
        os.makedirs(folder)
        self.folder, self.path = folder, os.path.join(folder, "mpirun.openmpi")
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(self.path, 0o755)

    def lines(self, name):
        path = os.path.join(self.folder, name)
        return open(path, encoding="utf-8").read().splitlines() if os.path.exists(path) else []

    def train(self, *options, **variables):
        """Two ranks, in the stand-in's folder."""
        env = dict(PATH=self.folder + ":" + os.environ["PATH"], TMPDIR=self.folder, **variables)
        return harness.zplan("run", MODEL, "--ranks", "2", "-o", os.path.join(self.folder, "tree"), "--steps", STEPS, "--no-checkpoint", *options,
                             cwd=self.folder, env=env)


    def doctor(self):
        """What `zplan doctor` says of it after its path."""
        rows = json.loads(harness.zplan("doctor", "--json", env={"PATH": self.folder + ":" + os.environ["PATH"]}).out)["result"]["found"]
        return [row["found"] for row in rows if row["name"] == "mpirun"][0].partition(self.path + " ")[2]


def refused(major, words):
    """Words that the version does not take, up to the program; then how often each setting is made."""
    bad, made, i = [], {}, 0
    while i < len(words) and words[i].startswith("-"):
        word = words[i]
        if word in SETTINGS[major]:
            name, value = words[i + 1:i + 3]
            made[name] = made.get(name, 0) + 1
            if name not in SETTINGS[major][word]:
                bad.append("%s %s" % (word, name))
            if name in PARTS[major] and not set(value.split(",")) <= PARTS[major][name]:
                bad.append("%s=%s" % (name, value))
            i += 3
        elif word in OPTIONS[major]:
            i += 1 + OPTIONS[major][word]
        else:
            bad.append(word)
            i += 1
    return bad, made


def check_version(tally, folder, major):
    name = "Open MPI %d: " % major
    root = "--allow-run-as-root" if os.geteuid() == 0 else ""
    launcher = Launcher(os.path.join(folder, str(major)), STAND_IN % {
        "folder": os.path.join(folder, str(major)), "version": VERSION[major], "real": shutil.which("mpirun.openmpi"), "root": root})
    done = launcher.train()
    words = launcher.lines("words")
    tally.check(name + "trains on 2 ranks", done.status == 0 and "step 2/2" in done.out, done.tail())
    tally.check(name + "its version is needed once", len(launcher.lines("calls")) == 2, str(launcher.lines("calls")))
    bad, made = refused(major, words)
    tally.check(name + "takes all words", words and not bad, str(bad))
    tally.check(name + "each setting once", made and set(made.values()) == {1}, str(made))
    folders = [word for word in words if "zplan-mpi-" in word]
    tally.check(name + "folders of its own, gone afterwards", 1 <= len(folders) <= 2 and folders[0].startswith(launcher.folder)
                and not any(map(os.path.exists, folders)), str(folders))
    said = dict(line.split("=", 1) for line in launcher.lines("variables"))
    tally.check(name + "the loopback's library is for its last program", said.get("ZPLAN_LD_PRELOAD_PROGRAMS") == {4: "1", 5: "2"}[major]
                and "libzplan_loopback.so" in said.get("LD_PRELOAD", ""), str(said))
    base = {4: "OMPI_MCA_orte_%stmpdir_base", 5: "PRTE_MCA_prte_%stmpdir_base"}[major]
    done = launcher.train(**{base % "": folder, "OMPI_MCA_btl": "vader,self"})
    _, made = refused(major, launcher.lines("words"))
    tally.check(name + "what the user chose stays", done.status == 0 and "btl" not in made and not any("tmpdir_base" in n for n in made), str(made) + done.tail())
    for other in ("local_", "remote_"):  # which it refuses with the base; ranks of 4.1.4 do not start with local_ alone
        launcher.train(**{base % other: folder})
        _, made = refused(major, launcher.lines("words"))
        tally.check(name + "a folder chosen by " + other, "btl" in made and not any("tmpdir_base" in n for n in made), str(made))
    hosts = os.path.join(launcher.folder, "hosts")
    with open(hosts, "w", encoding="utf-8") as file:
        file.write("localhost slots=2\n")
    done = launcher.train("--hostfile", hosts)
    bad, made = refused(major, launcher.lines("words"))
    tally.check(name + "a hostfile", done.status == 0 and not bad and "oob_tcp_keepalive_time" in made and "pml" not in made
                and hosts in launcher.lines("words"), str(bad) + done.tail())


OF_DOCTOR = {"an old one": "(Open MPI 1.10.7: not used, 4 and 5 are)", "of MPICH": "(names no version of Open MPI: not used)"}


def check_others(tally, folder):
    for name, text, said in (
            ("a version to come", "echo 'mpirun (Open MPI) 6.0.0'", "is of Open MPI 6.0.0, whose words are not known"),
            ("two digits", "echo 'mpirun (Open MPI) 41.0'", "is of Open MPI 41.0, whose words"),
            ("an old one", "echo 'mpirun (Open MPI) 1.10.7'", "is of Open MPI 1.10.7, whose words"),
            ("of MPICH", "printf 'HYDRA build details:\\n    Version:   4.0.2\\n'", "names no version of Open MPI: HYDRA build details:"),
            ("no answer", "exit 1", "names no version of Open MPI: no answer"),
            ("letters of a terminal", "printf '\\033[31mred\\n'", "names no version of Open MPI: "),
            ("a long answer", "yes mpirun | head -c 300000", "names no version of Open MPI: mpirun")):
        launcher = Launcher(os.path.join(folder, name.replace(" ", "-")), "#!/bin/sh\n[ \"$1\" = --version ] || echo started >>%s/words\n%s\n"
                            % (os.path.join(folder, name.replace(" ", "-")), text))
        done = launcher.train()
        tally.check("%s: refused" % name, done.status == NO_TOOL and done.err.count("error[Z0704]") == 1 and said in done.err and "by hand" in done.err
                    and "\033" not in done.err, done.tail())
        if name in OF_DOCTOR:
            tally.check("%s: doctor" % name, launcher.doctor() == OF_DOCTOR[name], launcher.doctor())
        tally.check("%s: nothing is started or left" % name, not launcher.lines("words") and not [f for f in os.listdir(launcher.folder) if f.startswith("zplan-mpi-")])


def main():
    harness.require_zplan()
    os.environ.update(harness.QUICK)
    for name in [name for name in os.environ if name.startswith(("OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_"))]:
        del os.environ[name]  # zplan's own settings are wanted
    tally = harness.Tally()
    if not shutil.which("mpirun.openmpi"):
        sys.exit("mpirun.openmpi is not there (Debian: openmpi-bin)")
    with harness.Scratch() as folder:
        for major in VERSION:
            check_version(tally, folder, major)
        check_others(tally, folder)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
