# SPDX-License-Identifier: Apache-2.0
"""A Python script that was exported, read by `ast` and not run: its constants, whether it uses and has all of them, one function by itself."""
import ast
import math


class Script:
    """constants: {name: value} of assignments of literals at the top. unknown: constants that are used and not there; unused: the others."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.tree = ast.parse(text, path)
        self.code = compile(text, path, "exec")  # what a parser lets pass and a compiler does not
        self.lines = text.count("\n")
        self.constants = {}
        computed = {node.name for node in self.tree.body if isinstance(node, ast.ClassDef)}
        for node in self.tree.body:
            if isinstance(node, ast.Assign):
                names = [name.id for target in node.targets for name in getattr(target, "elts", [target])]
                try:
                    value = ast.literal_eval(node.value)
                except ValueError:
                    computed.update(names)
                    continue
                values = value if isinstance(node.targets[0], ast.Tuple) else [value]
                assert len(values) == len(names) and not self.constants.keys() & set(names), names
                self.constants.update(zip(names, values))
        used = {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id.isupper() and len(node.id) > 1}
        self.unknown, self.unused = used - self.constants.keys() - computed, self.constants.keys() - used

    def function(self, name):
        """One function at the top, with the constants and `math` alone."""
        nodes = [node for node in self.tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
        scope = {"math": math, **self.constants}
        exec(compile(ast.Module(nodes, []), name, "exec"), scope)  # pylint: disable=exec-used
        return scope[name]

    def parameters(self):
        """Parameters of the GPT-2 or Llama that the constants describe."""
        c = self.constants
        d, ff = c["WIDTH"], c["MLP_WIDTH"]
        if "KV_HEADS" in c:
            layer = 2 * d + 2 * d * c["HEAD_WIDTH"] * (c["HEADS"] + c["KV_HEADS"]) + 3 * d * ff
            return (1 if c["TIED"] else 2) * c["VOCABULARY"] * d + c["LAYERS"] * layer + d
        layer = 4 * d + (d * 3 * d + 3 * d) + (d * d + d) + (d * ff + ff) + (ff * d + d)
        return (c["VOCABULARY"] + c["POSITIONS"]) * d + c["LAYERS"] * layer + 2 * d
