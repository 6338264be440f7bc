"""What parts.py finds, as it comes: on the screen, in summary.txt and results.json, and at the end as a page, gpu.md."""
import json
import os
import platform
import subprocess
import time

WORDS = {True: "passed", False: "FAILED", None: ""}


def output_of(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


class Report:
    def __init__(self, folder, seconds):
        self.folder, self.found = folder, []
        self.began = time.time()
        self.end = self.began + seconds
        os.makedirs(folder, exist_ok=True)
        for old in ("summary.txt", "results.json", "gpu.md"):
            if os.path.exists(self.path(old)):
                os.remove(self.path(old))

    def path(self, name):
        return os.path.join(self.folder, name)

    def left(self):
        """Seconds until parts are skipped."""
        return self.end - time.time()

    def say(self, text):
        print(text, flush=True)
        with open(self.path("summary.txt"), "a", encoding="utf-8") as file:
            file.write(text + "\n")

    def add(self, part, good, detail, **numbers):
        """One finding. good: None where there is nothing to judge."""
        self.found.append(dict(part=part, good=good, detail=detail, **numbers))
        with open(self.path("results.json"), "w", encoding="utf-8") as file:
            json.dump(self.found, file, indent=1)
        self.say("%-7s %s: %s" % ("skipped" if numbers.get("skipped") else WORDS[good], part, detail))

    def skip(self, part, why):
        self.add(part, None, why, skipped=True)

    def keep(self, name, outcome):
        with open(self.path(name + ".out"), "w", encoding="utf-8") as file:
            file.write(outcome.out + outcome.err)

    def count(self, good):
        return sum(one["good"] is good for one in self.found)

    def skipped(self):
        return sum(one.get("skipped", False) for one in self.found)

    def totals(self):
        return "%d passed, %d failed, %d skipped, %.0f s" % (self.count(True), self.count(False), self.skipped(), time.time() - self.began)

    def write_page(self, machine, root):
        """For docs/: what ran where, and every finding."""
        lines = ["# GPU trainers on a GPU" if not machine["words"] else "# GPU trainers on an emulated GPU: a trial of the script, no finding about GPUs", "",
                 "`tests/gpu/run.sh`, %s, commit %s: %s." % (time.strftime("%d %B %Y", time.gmtime(self.began)),
                                                             output_of("git", "-C", root, "rev-parse", "--short", "HEAD"), self.totals()), "",
                 "%d x %s, %s, driver %s; %d CPU cores, %s; planned as `%s`." % (machine["gpus"], machine["name"], machine["arch"], machine["driver"],
                                                                                machine["cores"], platform.system(), machine["base"]), "",
                 "| part | verdict | finding |", "|---|---|---|"]
        for one in self.found:
            verdict = "skipped" if one.get("skipped") else WORDS[one["good"]]
            lines.append("| %s | %s | %s |" % (one["part"], verdict, " ".join(one["detail"].replace("|", "/").split())))
        with open(self.path("gpu.md"), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
