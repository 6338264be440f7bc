# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window, driven over its debugging pipe: no package is needed besides the browser. One page at a time."""
import base64
import json
import os
import shutil
import subprocess
import tempfile

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find():
    """The browser's path; None where none is installed."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """Messages are JSON objects with a zero byte behind them: commands on descriptor 3 of the browser, answers and events on 4."""

    def __init__(self, *flags):
        self.profile = tempfile.mkdtemp(prefix="zplan-browser-")
        commands, self.out = os.pipe()
        self.into, answers = os.pipe()
        words = [find(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                 "--user-data-dir=" + self.profile, "--no-first-run", "--disable-background-networking", *flags, "about:blank"]

        def place():  # the ends of the pipes where the browser looks for them, whatever their numbers are
            a, b = os.dup(commands), os.dup(answers)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=place)  # pylint: disable=subprocess-popen-preexec-fn,consider-using-with
        os.close(commands)
        os.close(answers)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Performance.enable", timeDomain="threadTicks")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.profile, ignore_errors=True)

    def read(self):
        while b"\0" not in self.rest:
            piece = os.read(self.into, 1 << 20)
            if not piece:
                raise RuntimeError("the browser ended")
            self.rest += piece
        line, self.rest = self.rest.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]["message"]))
                return answer["result"]
            self.events.append(answer)

    def run(self, script):
        """The value of an expression of JavaScript; promises are waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def open(self, url, width, height=900, theme="light"):
        """Loads a page and waits until it has drawn itself. Seconds of processor time by what they went to, TaskDuration: all of them; other
        work of the machine does not count."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.events = []
        self.call("Page.navigate", url=url)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.read())
        self.settle()
        return {m["name"]: m["value"] for m in self.call("Performance.getMetrics")["metrics"]}

    def settle(self):
        """Waits until sizes are known and two frames were drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def complaints(self):
        """Errors and warnings of the page since it was opened."""
        out = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                out.append(json.dumps(params["exceptionDetails"])[:600])
            elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                out.append(json.dumps(params["args"])[:600])
            elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                out.append(params["entry"]["text"])
        return out

    def requests(self):
        """Addresses that the page asked for."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def picture(self, path, whole=True, clip=None, quality=None):
        """A PNG, or a WebP where the path says so, of the page or of {x, y, width, height} of it."""
        words = {"format": "webp" if path.endswith(".webp") else "png", "captureBeyondViewport": whole or clip is not None}
        if quality:
            words["quality"] = quality
        if clip:
            words["clip"] = dict(clip, scale=clip.get("scale", 1))
        elif whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            words["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 16000), "scale": 1}
        data = self.call("Page.captureScreenshot", **words)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def key(self, name, text=None):
        words = {"key": name, "text": text} if text else {"key": name}
        self.call("Input.dispatchKeyEvent", type="keyDown", **words)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name)

    def point_at(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
