# SPDX-License-Identifier: Apache-2.0
"""A recipe of Megatron-Bridge as Python's own parser reads it: parts of the container, their classes and fields. Nothing is run."""
import ast
import builtins


class BadRecipe(Exception):
    pass


def want(condition, text):
    if not condition:
        raise BadRecipe(text)


def value_of(node):
    """A constant, or a name as written: "torch.bfloat16"."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        want(isinstance(node, (ast.Name, ast.Attribute)), "a value is neither constant nor name: " + ast.dump(node))
        return ast.unparse(node)


def fields_of(call):
    want(not call.args, "an argument without a name")
    want(all(keyword.arg for keyword in call.keywords), "an argument by **")
    return {keyword.arg: keyword.value for keyword in call.keywords}


def modules_of(tree):
    """{name in the file: where it comes from}"""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            found.update({alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names})
        elif isinstance(node, ast.ImportFrom):
            want(node.level == 0, "a relative import")
            found.update({alias.asname or alias.name: "%s.%s" % (node.module, alias.name) for alias in node.names})
    return found


def check_names(tree, modules, function):
    """Every name that is read is there, every import is read."""
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    set_here = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    known = modules.keys() | {arg.arg for arg in function.args.args} | {function.name} | set_here | set(dir(builtins)) | {"__name__"}
    want(read <= known, "names that nothing defines: %s" % sorted(read - known))
    want(modules.keys() <= read, "imports that nothing reads: %s" % sorted(modules.keys() - read))


def read_recipe(text):
    """({part: (class with its module, {field: value})}, {variable of the environment: value}, parameters of the function)"""
    tree = ast.parse(text)
    compile(tree, "recipe", "exec")  # names given twice
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    want([f.name for f in functions] == ["recipe"], "one function")
    modules, function = modules_of(tree), functions[0]
    check_names(tree, modules, function)
    want(len(function.body) == 1 and isinstance(function.body[0], ast.Return), "the function returns at once")
    container = function.body[0].value
    want(modules[container.func.id] == "megatron.bridge.training.config.ConfigContainer", "what is returned")
    parts, environment = {}, {}
    for name, node in fields_of(container).items():
        if name == "env_vars":
            environment = ast.literal_eval(node)
        elif isinstance(node, ast.Call):
            parts[name] = (modules[node.func.id], {key: value_of(value) for key, value in fields_of(node).items()})
        else:
            parts[name] = (value_of(node), {})
    return parts, environment, [arg.arg for arg in function.args.args]
