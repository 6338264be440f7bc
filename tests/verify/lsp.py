#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`zplan lsp`: a client of its own drives the server over examples, files with errors, and what no client should send.

usage: lsp.py
"""
import glob
import json
import os
import random
import re
import subprocess
import sys
import time
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "support"))
import harness  # noqa: E402

EXAMPLES = sorted(glob.glob(os.path.join(harness.ROOT, "examples", "**", "*.dz"), recursive=True))
ERRORS = os.path.join(harness.ROOT, "tests", "golden", "errors")
BROKEN_PARSE, INVALID_REQUEST, NO_METHOD, BAD_PARAMS, TOO_EARLY, CANCELLED = -32700, -32600, -32601, -32602, -32002, -32800


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def frame(message):
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


def uri_of(path):
    return "file://" + urllib.parse.quote(path)


class Server:
    """A server and what it has said. Positions are UTF-16 unless encodings say otherwise."""

    def __init__(self, encodings=None, markdown=False, start=True, command=None):
        self.process = subprocess.Popen(command or [harness.ZPLAN, "lsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.id, self.version, self.seen = 0, {}, []
        if start:
            capabilities = {"general": {"positionEncodings": encodings}} if encodings else {}
            if markdown:
                capabilities["textDocument"] = {"hover": {"contentFormat": ["markdown", "plaintext"]}}
            self.capabilities = self.ask("initialize", {"processId": None, "rootUri": None, "capabilities": capabilities})["capabilities"]
            self.tell("initialized", {})

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def receive(self):
        """The next message; None at the end of the output."""
        length = None
        while True:
            line = self.process.stdout.readline()
            if not line:
                return None
            if line == b"\r\n":
                break
            name, value = line.split(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return json.loads(self.process.stdout.read(length))

    def wait_for(self, wanted):
        while True:
            message = self.receive()
            if message is None:
                raise EOFError("the server has ended: %s" % self.process.stderr.read().decode(errors="replace"))
            if wanted(message):
                return message
            self.seen.append(message)

    def tell(self, method, params):
        self.send(frame({"jsonrpc": "2.0", "method": method, "params": params}))

    def request(self, method, params):
        """The whole answer."""
        self.id += 1
        self.send(frame({"jsonrpc": "2.0", "id": self.id, "method": method, "params": params}))
        return self.wait_for(lambda m: m.get("id") == self.id)

    def ask(self, method, params):
        answer = self.request(method, params)
        if "error" in answer:
            raise ValueError("%s: %s" % (method, answer["error"]))
        return answer["result"]

    def diagnostics(self, uri):
        found = self.wait_for(lambda m: m.get("method") == "textDocument/publishDiagnostics" and m["params"]["uri"] == uri)
        return found["params"]["diagnostics"]

    def show(self, uri, text):
        """Opens or replaces; its diagnostics."""
        if uri in self.version:
            self.version[uri] += 1
            self.tell("textDocument/didChange", {"textDocument": {"uri": uri, "version": self.version[uri]}, "contentChanges": [{"text": text}]})
        else:
            self.version[uri] = 1
            self.tell("textDocument/didOpen", {"textDocument": {"uri": uri, "languageId": "dz", "version": 1, "text": text}})
        return self.diagnostics(uri)

    def close(self, uri):
        del self.version[uri]
        self.tell("textDocument/didClose", {"textDocument": {"uri": uri}})

    def at(self, method, uri, line, character, **more):
        return self.ask("textDocument/" + method, {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}, **more})

    def end(self):
        """Shuts down; the exit status and what was on stderr."""
        self.ask("shutdown", None)
        self.tell("exit", None)
        return self.stop()

    def stop(self):
        _, err = self.process.communicate(timeout=harness.PATIENCE)
        return self.process.returncode, err.decode(errors="replace")

    def stop_at_end(self):
        """After its input was closed."""
        self.process.stdout.read()
        err = self.process.stderr.read().decode(errors="replace")
        return self.process.wait(harness.PATIENCE), err


# ---- diagnostics ----

def as_checked(err):
    """(level, code, line) of what `zplan check` prints in its JSON lines."""
    found = []
    for line in err.splitlines():
        if line.startswith("{"):
            message = json.loads(line)
            primary = [span for span in message["spans"] if span["is_primary"]]
            found.append((message["level"], message["code"]["code"], message["message"], primary[0]["line_start"] if primary else 1,
                          primary[0]["file_name"] if primary else None))
    return found


def check_examples(tally, server):
    """What is right has no errors; warnings are those of `check`."""
    wrong = []
    for path in EXAMPLES:
        shown = server.show(uri_of(path), read(path))
        errors = [d for d in shown if d["severity"] == 1]
        warned = [(d["code"], d["range"]["start"]["line"] + 1) for d in shown]
        checked = [(code, line) for _, code, _, line, _ in as_checked(harness.zplan("check", path, "--message-format", "json").err)] if shown else []
        if errors or warned != checked:
            wrong.append("%s: %s" % (os.path.basename(path), shown))
        server.close(uri_of(path))
    tally.check("%d examples: no errors, and the warnings of `check`" % len(EXAMPLES), len(EXAMPLES) > 20 and not wrong, "; ".join(wrong)[:400])


def check_errors(tally, server):
    """Files with errors: codes, lines, messages and helps as `check` prints them."""
    cases = [path for path in sorted(glob.glob(os.path.join(ERRORS, "*.dz"))) if re.match(r"# args: check\s*$", read(path).split("\n", 1)[0])]
    wrong = []
    for path in cases:
        expected = read(path[:-3] + ".txt")
        heads = re.findall(r"^(error|warning)\[(Z\d+)\]: (.*)(?:\n *--> ([^\n]*):(\d+):\d+)?", expected, re.M)
        wanted = [(level, code, text, int(line) if line and place == os.path.basename(path) else None) for level, code, text, place, line in heads]
        shown = server.show(uri_of(path), read(path))
        got = [({1: "error", 2: "warning"}[d["severity"]], d["code"], d["message"].split("\n")[0].replace(ERRORS + "/", ""), d["range"]["start"]["line"] + 1) for d in shown]
        helps = [text for text in re.findall(r"^ *= help: (.*)", expected, re.M) if not any("help: " + text in d["message"] for d in shown)]
        same = len(got) == len(wanted) and all(g[:2] == w[:2] and g[2].endswith(w[2]) and w[3] in (None, g[3]) for g, w in zip(got, wanted))
        if not same or helps:
            wrong.append("%s: %s, not %s %s" % (os.path.basename(path), got, wanted, helps))
        server.close(uri_of(path))
    tally.check("%d files with errors as `check` tells them" % len(cases), len(cases) > 100 and not wrong, "\n  ".join(wrong)[:2000])


# ---- what no client should send ----

def answers(data, count, start=True):
    """The codes of the next `count` answers to raw bytes, with their ids, and whether the server still works after them."""
    server = Server(start=start)
    server.send(data)
    got = []
    for _ in range(count):
        message = server.receive()
        got.append(((message.get("error") or {}).get("code"), message.get("id")))
    works = server.request("nothing/known", {})["error"]["code"] == (NO_METHOD if start else TOO_EARLY)
    server.process.stdin.close()
    return got, works, server.stop_at_end()


def request(**fields):
    return {"jsonrpc": "2.0", "id": 7, "method": "textDocument/formatting", "params": {}, **fields}


MALFORMED = {  # what is sent: (code, id) of its answers
    "no JSON": (frame(b"{]"), [(BROKEN_PARSE, None)]),
    "half of a JSON": (frame(b'{"jsonrpc": "2.0", "id": 7, "meth'), [(BROKEN_PARSE, None)]),
    "wrong UTF-8": (frame(b'{"jsonrpc": "2.0", "id": 7, "method": "\xff\xfe"}'), [(BROKEN_PARSE, None)]),
    "an empty body": (b"Content-Length: 0\r\n\r\n", [(BROKEN_PARSE, None)]),
    "a thousand brackets": (frame(b"[" * 100000), [(BROKEN_PARSE, None)]),
    "Content-Length: many": (b"Content-Length: many\r\n\r\n", [(BROKEN_PARSE, None)]),
    "Content-Length: -5": (b"Content-Length: -5\r\n\r\nabcde", [(BROKEN_PARSE, None)]),
    "Content-Length: 10^30": (b"Content-Length: 1%s\r\n\r\n" % (b"0" * 30), [(BROKEN_PARSE, None)]),
    "Content-Length one too small": (b"Content-Length: 9\r\n\r\n" + b'{"a": "b"}', [(BROKEN_PARSE, None)]),
    "no Content-Length": (b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n", [(BROKEN_PARSE, None)]),
    "another charset": (b"Content-Length: 2\r\nContent-Type: x; charset=latin-1\r\n\r\n{}", [(BROKEN_PARSE, None)]),
    "no header": (b"GET / HTTP/1.1\r\n", [(BROKEN_PARSE, None)]),
    "a header without end": (b"a" * 5000 + b"\r\n", [(BROKEN_PARSE, None)]),
    "a batch": (frame([request()]), [(INVALID_REQUEST, None)]),
    "no jsonrpc": (frame({"id": 7, "method": "shutdown"}), [(INVALID_REQUEST, 7)]),
    "no method": (frame({"jsonrpc": "2.0", "id": 7}), [(INVALID_REQUEST, 7)]),
    "a method that is a number": (frame(request(method=5)), [(INVALID_REQUEST, 7)]),
    "an id that is a list": (frame(request(id=[1])), [(INVALID_REQUEST, None)]),
    "an id that is null": (frame(request(id=None)), [(INVALID_REQUEST, None)]),
    "an unknown method": (frame(request(method="textDocument/dance")), [(NO_METHOD, 7)]),
    "an unknown method of the protocol": (frame(request(method="$/dance")), [(NO_METHOD, 7)]),
    "an unknown notification": (frame({"jsonrpc": "2.0", "method": "$/dance"}) + frame(request(method="a", id="b")), [(NO_METHOD, "b")]),
    "params that are a number": (frame(request(params=3)), [(BAD_PARAMS, 7)]),
    "no document": (frame(request()), [(BAD_PARAMS, 7)]),
    "a document that is not open": (frame(request(params={"textDocument": {"uri": "file:///x.dz"}})), [(BAD_PARAMS, 7)]),
    "initialize twice": (frame(request(method="initialize", params={"capabilities": {}})), [(INVALID_REQUEST, 7)]),
    "an answer to nothing": (frame({"jsonrpc": "2.0", "id": 3, "result": None}) + frame(request(method="a")), [(NO_METHOD, 7)]),
    "a cancelled request": (frame(request()) + frame({"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 7}}), [(CANCELLED, 7)]),
}


def check_malformed(tally):
    wrong = []
    for name, (data, wanted) in MALFORMED.items():
        got, works, status = answers(data, len(wanted))
        if got != wanted or not works or status != (1, ""):
            wrong.append("%s: %s, works %s, %s" % (name, got, works, status))
    tally.check("%d malformed messages: answered by their codes, and the server goes on" % len(MALFORMED), not wrong, "; ".join(wrong))
    got, works, _ = answers(frame(request()), 1, start=False)
    tally.check("before initialize: -32002", got == [(TOO_EARLY, 7)] and works, str(got))
    server = Server(start=False)
    answer = server.request("initialize", {})
    tally.check("initialize without capabilities: -32602", answer["error"]["code"] == BAD_PARAMS, str(answer))
    server.tell("exit", None)
    tally.check("exit without shutdown: status 1", server.stop() == (1, ""))
    server = Server()
    server.ask("shutdown", None)
    answer = server.request("textDocument/formatting", {})
    tally.check("after shutdown: -32600", answer["error"]["code"] == INVALID_REQUEST, str(answer))
    server.process.stdin.close()
    tally.check("the end of the input after shutdown: status 0", server.stop_at_end() == (0, ""))
    server = Server()
    server.send(b"Content-Length: 100\r\n\r\n{")
    server.process.stdin.close()
    tally.check("the end of the input in a message: status 1", server.stop_at_end() == (1, ""))
    server = Server()
    server.tell("textDocument/didChange", {"textDocument": {"uri": "file:///x.dz"}, "contentChanges": []})
    logged = server.receive()
    tally.check("a notification that is wrong is logged", logged["method"] == "window/logMessage", str(logged))
    length = (64 << 20) + 1
    server.send(b"Content-Length: %d\r\n\r\n" % length)
    for _ in range(65):
        server.send(b" " * min(1 << 20, length))
        length -= min(1 << 20, length)
    answer = server.receive()
    tally.check("a message above 64 MiB is refused and skipped", answer["error"]["code"] == BROKEN_PARSE and
                server.request("a", {})["error"]["code"] == NO_METHOD, str(answer))
    server.end()


# ---- text ----

def check_edits(tally, server):
    """Edits of ranges in every encoding, against the same edits of the text here."""
    draw, wrong = random.Random(1), []
    units = {"utf-8": lambda t: len(t.encode()), "utf-16": lambda t: len(t.encode("utf-16-le")) // 2, "utf-32": len}
    for encoding, count in units.items():
        other = Server([encoding, "utf-16"])
        uri, text, version = "untitled:edits.dz", "# \u00e9\U0001f600 x\r\n# two\r# three\n", 1
        other.show(uri, text)
        for _ in range(60):
            begin = draw.randrange(len(text) + 1)
            end = min(len(text), begin + draw.randrange(6))
            if any(text[i - 1:i + 1] == "\r\n" for i in (begin, end)):
                continue
            places = []
            for at in (begin, end):
                lines = re.split("\r\n|\r|\n", text[:at])
                places.append({"line": len(lines) - 1, "character": count(lines[-1])})
            new = draw.choice(["", "# a\n", "\u00e9", "\U0001f600", "x", "\r\n# "])
            text = text[:begin] + new + text[end:]
            version += 1
            other.tell("textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": [
                {"range": {"start": places[0], "end": places[1]}, "text": new}]})
        other.tell("textDocument/didChange", {"textDocument": {"uri": uri, "version": version + 1}, "contentChanges": [
            {"range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}, "text": "@"},
            {"range": {"start": {"line": 10 ** 6, "character": 0}, "end": {"line": 10 ** 6, "character": 5}}, "text": "\n\"\U0001f600\" ?"}]})
        while True:
            message = other.wait_for(lambda m: m.get("method") == "textDocument/publishDiagnostics")["params"]
            if message["version"] == version + 1:
                break
        # the server's text is seen in the place of the last error, the `?` at its end
        text = "@" + text + "\n\"\U0001f600\" ?"
        lines = re.split("\r\n|\r|\n", text)
        wanted = {"line": len(lines) - 1, "character": count(lines[-1]) - 1}
        last = message["diagnostics"][-1]["range"]["start"]
        if other.capabilities["positionEncoding"] != encoding or last != wanted:
            wrong.append("%s: %s, not %s" % (encoding, last, wanted))
        other.end()
    tally.check("edits of ranges in UTF-8, UTF-16 and UTF-32", not wrong, "; ".join(wrong))
    bad = server.show("file:///no/such/folder/x%20y.dz", "use \"z.dz\"\n")
    tally.check("a file that is used and not there is named on its line", [(d["code"], d["range"]["start"]["line"]) for d in bad[:1]] == [("Z0210", 0)],
                str(bad))
    server.close("file:///no/such/folder/x%20y.dz")


def applied(text, edits):
    lines = text.split("\n")
    starts = [sum(len(line) + 1 for line in lines[:i]) for i in range(len(lines))]
    for edit in edits:
        begin, end = (starts[p["line"]] + p["character"] for p in (edit["range"]["start"], edit["range"]["end"]))
        text = text[:begin] + edit["newText"] + text[end:]
    return text


def check_formatting(tally, server):
    wrong = []
    with harness.Scratch() as folder:
        for path in EXAMPLES:
            messy = read(path).replace(" = ", "=").replace("\n  ", "\n      ").rstrip() + "   # end"
            copy = os.path.join(folder, "m.dz")
            with open(copy, "w", encoding="utf-8") as file:
                file.write(messy)
            status = harness.zplan("fmt", copy).status
            server.show(uri_of(copy), messy)
            edits = server.ask("textDocument/formatting", {"textDocument": {"uri": uri_of(copy)}, "options": {}})
            if status or edits is None or applied(messy, edits) != read(copy):
                wrong.append(os.path.basename(path))
            server.close(uri_of(copy))
    tally.check("formatting as `zplan fmt` does it", not wrong, " ".join(wrong))
    server.show("untitled:f.dz", "train {")
    edits = server.ask("textDocument/formatting", {"textDocument": {"uri": "untitled:f.dz"}, "options": {}})
    tally.check("text with syntax errors is left as it is", edits is None, str(edits))
    server.close("untitled:f.dz")


def check_used(tally, server):
    """An edited file counts for those that use it, before it is saved."""
    with harness.Scratch() as folder:
        used, main = os.path.join(folder, "used.dz"), os.path.join(folder, "main.dz")
        with open(used, "w", encoding="utf-8") as file:
            file.write("let width = 64\n")
        text = "use \"used.dz\" as u\nuse std.hw\ncluster c { nodes = u.width  node = std.hw.dgx_a100 }\n"
        before = server.show(uri_of(main), text)
        server.tell("textDocument/didOpen", {"textDocument": {"uri": uri_of(used), "languageId": "dz", "version": 1, "text": "let wide = 64\n"}})
        after = server.diagnostics(uri_of(main))
        tally.check("a file that is used counts as it is edited", not before and [d["code"] for d in after] == ["Z0203"], "%s %s" % (before, after))
        server.tell("textDocument/didChange", {"textDocument": {"uri": uri_of(used), "version": 2}, "contentChanges": [{"text": "let wide = = 64\n"}]})
        after = server.diagnostics(uri_of(main))
        tally.check("what is wrong in it stands on the line of `use`", "used.dz:1" in after[0]["message"] and after[0]["range"]["start"]["line"] == 0, str(after))
        server.version[uri_of(used)] = 2
        server.close(uri_of(used))
        server.close(uri_of(main))


# ---- words ----

def squeezed(text):
    return " ".join(text.split())


def check_hover(tally, server):
    """Every key, call and block that a reference page writes out, hovered over in its place: the text of `explain`."""
    cases, wrong = 0, []
    places = re.compile(r"(\w+)\s*(<=|>=|=(?!=)|\(|\{)")
    for path in EXAMPLES[:12]:
        text, found = read(path), 0
        server.show(uri_of(path), text)
        for number, line in enumerate(text.split("\n")):
            code = re.sub(r'"[^"]*"', lambda m: "_" * len(m.group(0)), line.split("#")[0])
            for match in places.finditer(code):
                hover = server.at("hover", uri_of(path), number, match.start(1))
                if hover is None:
                    continue
                value, word = re.sub(r"^(\S+( = |: (i32)?\[|: the number|: a sum).*\n)+\n?", "", hover["contents"]["value"]), match.group(1)
                if not value:  # a name of the file: check_names
                    continue
                found += 1
                asked = value.split("\n")[0].split(":")[0].split()[0]
                if (hover["range"]["start"] != {"line": number, "character": match.start(1)} or asked.split(".")[-1] != word or
                        squeezed(value) not in squeezed(harness.zplan("explain", asked).out)):
                    wrong.append("%s:%d %s: %s" % (os.path.basename(path), number + 1, word, value[:60]))
        cases += found
        if found < 10:
            wrong.append("%s: only %d" % (os.path.basename(path), found))
        server.close(uri_of(path))
    tally.check("%d words of examples explained as `zplan explain` does" % cases, cases > 200 and not wrong, "; ".join(wrong)[:800])
    text = ("train {\n  batch = 16  # batch = 1\n  optimizer = adamw(lr = 1e-3)\n  data = text(\"batch = 3\")\n"
            "  checkpoint { every = 5 }  log { every = 1 }\n}\nmodel m(d = 4) {\n  batch = matmul(x, w)\n  y = linear(x, d)\n}\ncluster c { nodes = 2 ")
    server.show("untitled:h.dz", text)
    wanted = {(1, 4): "train.batch", (1, 15): None, (2, 20): "train.optimizer.adamw.lr", (3, 17): None, (4, 16): "train.checkpoint.every",
              (4, 36): "train.log.every", (7, 3): None, (7, 12): "matmul: operation", (10, 13): "cluster.nodes", (6, 7): None, (0, 7): None,
              (8, 8): "linear: block of the library; it comes with `use std.nn`"}
    got = {}
    for line, character in wanted:
        hover = server.at("hover", "untitled:h.dz", line, character)
        got[line, character] = hover and hover["contents"]["value"].split("\n")[0]
    tally.check("hover knows the block, comments and texts", got == wanted, str(got))
    answer = server.request("textDocument/hover", {"textDocument": {"uri": "untitled:h.dz"}, "position": {"line": "x"}})
    tally.check("hover without a position: -32602", answer["error"]["code"] == BAD_PARAMS, str(answer))
    server.close("untitled:h.dz")


NAMES = """use std.nn
use std.models
block twice(x: [B, S, d]) -> [B, S, d] {
  y = x + x
  return y
}
model m(V = 256, S = 64, d = 32) {
  input tokens: i32[B, S]
  input labels: i32[B, S]
  param embed: [V, d] ~ normal(std = 0.02)
  x = embedding(tokens, embed)  # gone = 1
  h = twice(linear(x, d))
  z = llama_layer(h, heads = 4, kv_heads = 4, head = 8, ff = 64, window = S)
  output loss = cross_entropy(matmul(z, transpose(embed)), labels)
}
"""


def check_names(tally, server):
    """Shapes, values, parameters and definitions of names, and completion with them."""
    uri, lines = "untitled:names.dz", NAMES.split("\n")
    server.show(uri, NAMES)

    def at(method, line, word):
        return server.at(method, uri, line, lines[line].index(word))

    wanted = {(9, "embed"): "embed: [256, 32], 8,192 parameters", (9, "d]"): "d = 32", (11, "h ="): "h: [B, 64, 32]", (10, "tokens"): "tokens: i32[B, 64]",
              (11, "linear"): "linear: [B, 64, 32], 1,056 parameters", (3, "y"): "y: [B, 64, 32]", (12, "llama"): "llama_layer: [B, 64, 32], 10,304 parameters"}
    got = {key: at("hover", *key) for key in wanted}
    wrong = {key: hover and hover["contents"]["value"] for key, hover in got.items() if not hover or wanted[key] not in hover["contents"]["value"]}
    tally.check("hover shows shapes, values and parameters", not wrong, str(wrong))
    wanted = {(13, "embed"): (uri, 9), (11, "twice"): (uri, 2), (10, "tokens"): (uri, 7), (3, "x"): (uri, 2), (13, "z"): (uri, 12), (11, "linear"): ("nn.dz", None)}
    got = {key: at("definition", *key) for key in wanted}
    wrong = {key: place for key, place in got.items() if not place or not place["uri"].endswith(wanted[key][0]) or
             wanted[key][1] not in (None, place["range"]["start"]["line"])}
    tally.check("names lead to where they are defined", not wrong, str(wrong))
    tally.check("a word of the language is defined nowhere", at("definition", 10, "embedding") is None and at("definition", 10, "gone") is None)
    server.show("untitled:half.dz", NAMES[:NAMES.index("output")] + "  w = mat")  # half written
    labels = {item["label"] for item in server.at("completion", "untitled:half.dz", 13, 9)}
    tally.check("completion offers the names of the file", {"embed", "x", "h", "z", "tokens", "twice", "V", "llama_layer", "matmul"} <= labels and
                not {"heads", "gone", "std", "mat"} & labels, str(sorted(labels)))
    server.close(uri)
    server.close("untitled:half.dz")


def check_completion(tally, server):
    """Every key of every block of the reference is offered in that block, and values and operations where they stand."""
    uri, wrong, keys = "untitled:c.dz", [], 0
    pages = re.split(r"^## ", read(os.path.join(harness.ROOT, "docs", "reference", "blocks.md")), flags=re.M)[1:]
    for page in pages:
        name = re.match(r"\S+", page).group(0).strip("`").split(".")[-1]
        listed = set(re.findall(r"^\| `(\w+)`", page, re.M))
        text = "%s {\n  " % name
        server.show(uri, text)
        labels = {item["label"] for item in server.at("completion", uri, 1, 2)}
        keys += len(listed)
        if not listed <= labels:
            wrong.append("%s lacks %s" % (name, sorted(listed - labels)))
    tally.check("%d keys of %d blocks are completed" % (keys, len(pages)), keys > 200 and not wrong, "; ".join(wrong)[:800])
    wanted = {"train {\n  optimizer = ": ("adamw", "batch"), "train {\n  ": ("optimizer", "adamw"), "model m() {\n  x = mat": ("matmul", "batch"),
              "": ("train", "batch"), "train {\n  schedule  = ": ("cosine", "schedule")}
    for text, (has, lacks) in wanted.items():
        server.show(uri, text)
        labels = {item["label"] for item in server.at("completion", uri, text.count("\n"), len(text.split("\n")[-1]))}
        if has not in labels or lacks in labels:
            wrong.append("%r: %s" % (text, sorted(labels)[:8]))
    server.show(uri, "# tra")
    tally.check("values, operations and blocks where they stand, nothing in comments", not wrong and server.at("completion", uri, 0, 5) is None, "; ".join(wrong))
    server.close(uri)


def check_stream(tally):
    """One session, cut into pieces at random: the same answers."""
    path = os.path.join(harness.ROOT, "examples", "gpt2.dz")
    session = frame({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"capabilities": {}}})
    session += frame({"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": {"textDocument": {"uri": uri_of(path), "version": 1, "text": read(path)}}})
    session += frame({"jsonrpc": "2.0", "id": 2, "method": "textDocument/formatting", "params": {"textDocument": {"uri": uri_of(path)}}})
    session += frame({"jsonrpc": "2.0", "id": 3, "method": "shutdown"}) + frame({"jsonrpc": "2.0", "method": "exit"})
    draw, outputs = random.Random(2), set()
    for turn in range(6):
        server = Server(start=False)
        at = 0
        while at < len(session):
            n = len(session) if turn == 0 else draw.choice([1, 3, 40, 2000])
            server.send(session[at:at + n])
            at += n
            time.sleep(0.0005 if turn else 0)
        out, _ = server.process.communicate()
        outputs.add(tuple(sorted(re.findall(rb'"id":\d.*?(?=Content-Length|$)', out))))
    tally.check("a stream in pieces", len(outputs) == 1 and len(next(iter(outputs))) == 3, str(len(outputs)))


def check_half_files(tally, server):
    """A document cut off everywhere is checked, and the server goes on."""
    path = os.path.join(harness.ROOT, "examples", "moe_tiny.dz")
    text, shown, uri = read(path), 0, "untitled:half.dz"
    for end in range(0, len(text), 50):
        shown += len(server.show(uri, text[:end])) > 0
    tally.check("documents cut off at every 50th byte", shown > 10 and server.show(uri, text) == [], str(shown))
    server.close(uri)


def check_time(tally):
    """Processor time of a change in a file of 2,000 lines."""
    path = os.path.join(harness.ROOT, "examples", "gpt2.dz")
    text = read(path)
    blocks = "".join("block b%d(x: [B, S, d], k: int = %d) -> [B, S, d] {\n  y = linear(x, out = d)\n  z = x + gelu(y)\n  return z\n}\n\n" % (i, i)
                     for i in range(2000 // 6 - text.count("\n") // 6))
    text = text + "\n" + blocks
    server, turns, uri = Server(), 20, uri_of(path)

    def used():
        with open("/proc/%d/stat" % server.process.pid, encoding="ascii") as file:
            return sum(int(n) for n in file.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")
    shown = server.show(uri, text)
    before = used()
    for turn in range(turns):
        shown = server.show(uri, text + "# %d\n" % turn)
    each = (used() - before) / turns * 1000
    tally.check("%d lines: %.1f ms of processor time a change" % (text.count("\n"), each), each < 50 and text.count("\n") > 1900 and
                not [d for d in shown if d["severity"] == 1], str(shown)[:300])
    server.end()


def check_options(tally):
    """What --help lists is what the verb takes, and --json, which all others take, is not among it."""
    said = subprocess.run([harness.ZPLAN, "lsp", "--help"], capture_output=True, text=True)
    tally.check("help lists no --json", said.returncode == 0 and "language server" in said.stdout and "--json" not in said.stdout, said.stdout)
    refused = subprocess.run([harness.ZPLAN, "lsp", "--json"], capture_output=True, text=True)
    tally.check("--json is refused", refused.returncode == 2 and "--json" in refused.stderr, refused.stderr)


def main():
    harness.require_zplan()
    tally = harness.Tally()
    server = Server()
    check_options(tally)
    check_examples(tally, server)
    check_errors(tally, server)
    check_edits(tally, server)
    check_formatting(tally, server)
    check_used(tally, server)
    check_half_files(tally, server)
    check_hover(tally, server)
    check_names(tally, server)
    check_completion(tally, server)
    check_malformed(tally)
    check_stream(tally)
    check_time(tally)
    status, err = server.end()
    tally.check("exit after shutdown: status 0, nothing on stderr", status == 0 and not err, "%d %s" % (status, err))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
