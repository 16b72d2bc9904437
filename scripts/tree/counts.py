"""Counts in a source tree what makes it hard to read: `python -m scripts.tree.counts [--src PATH]`.

Reads the files with `ast` and imports nothing, so any checkout can be counted. Generated files ("Written by
scripts/…" in the module's docstring) are left out, because nobody reads or edits them.

    start_lines           lines of `Broker._start` (of `start`, where there is no `_start`)
    wide_classes          classes with more than 25 public methods and properties of their own
    repeated_class_names  names of two or more top-level classes, with their modules
    store_imports         modules of the broker that import the concrete `turbopump.store.store`, also if only
                          for types
    long_files            files with more than 500 lines
    wide_constructors     `__init__` with more than 10 parameters, and dataclasses with behaviour (a public
                          method) and more than 10 fields that a caller gives; values without behaviour, such
                          as configuration and bodies of the protocol, may be wide
    task_starts           calls of `create_task` and `ensure_future` outside `runtime/tasks.py`
    function_lines        median and 90th percentile of the lines of functions and methods, from `def` to the
                          last line; declarations without a body (`...`) do not count
"""

import argparse
import ast
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MAX_METHODS = 25
MAX_FILE_LINES = 500
MAX_PARAMETERS = 10
GENERATED = "Written by scripts/"
STORE = "turbopump.store.store"
TASKS = "runtime/tasks.py"
STARTS = ("create_task", "ensure_future")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A parsed source file."""

    path: str  # below the package, "broker/server.py"
    tree: ast.Module
    lines: int

    @property
    def is_generated(self) -> bool:
        return GENERATED in (ast.get_docstring(self.tree) or "")

    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--src", default=str(ROOT / "src"), help="directory that holds the package turbopump")
    print(json.dumps(counts(Path(parser.parse_args().src) / "turbopump"), indent=1))


def counts(package: Path) -> dict[str, Any]:
    modules = [module for module in read(package) if not module.is_generated]
    lengths = sorted(length for module in modules for length in function_lengths(module.tree))
    return {
        "files": len(modules),
        "lines": sum(module.lines for module in modules),
        "start_lines": start_lines(modules),
        "wide_classes": wide_classes(modules),
        "repeated_class_names": repeated_class_names(modules),
        "store_imports": store_imports(modules),
        "long_files": {module.path: module.lines for module in modules if module.lines > MAX_FILE_LINES},
        "wide_constructors": wide_constructors(modules),
        "task_starts": task_starts(modules),
        "function_lines": {
            "count": len(lengths),
            "median": statistics.median(lengths) if lengths else 0,
            "p90": lengths[len(lengths) * 9 // 10] if lengths else 0,
        },
    }


def read(package: Path) -> list[Module]:
    found = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text()
        found.append(Module(str(path.relative_to(package)), ast.parse(text), len(text.splitlines())))
    return found


def start_lines(modules: list[Module]) -> int:
    for module in modules:
        for node in module.classes():
            if node.name == "Broker":
                methods = {method.name: method for method in methods_of(node)}
                start = methods.get("_start") or methods.get("start")
                return 0 if start is None else length(start)
    return 0


def wide_classes(modules: list[Module]) -> dict[str, int]:
    found = {}
    for module in modules:
        for node in module.classes():
            public = {method.name for method in methods_of(node) if not method.name.startswith("_")}
            if len(public) > MAX_METHODS:
                found[f"{module.path}:{node.name}"] = len(public)
    return found


def repeated_class_names(modules: list[Module]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for module in modules:
        for node in module.classes():
            found.setdefault(node.name, []).append(module.path)
    return {name: paths for name, paths in sorted(found.items()) if len(paths) > 1}


def store_imports(modules: list[Module]) -> list[str]:
    return [
        module.path
        for module in modules
        if module.path.startswith("broker/") and STORE in set(imported(module.tree))
    ]


def imported(tree: ast.AST) -> Iterator[str]:
    """Dotted names of everything that a module imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def wide_constructors(modules: list[Module]) -> dict[str, int]:
    found = {}
    for module in modules:
        for node in module.classes():
            count = parameters(node)
            if count > MAX_PARAMETERS:
                found[f"{module.path}:{node.name}"] = count
    return found


def parameters(node: ast.ClassDef) -> int:
    methods = {method.name: method for method in methods_of(node)}
    if "__init__" in methods:
        given = methods["__init__"].args
        return len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
    is_dataclass = any("dataclass" in ast.unparse(mark) for mark in node.decorator_list)
    behaves = any(not name.startswith("_") and not method.decorator_list for name, method in methods.items())
    if not (is_dataclass and behaves):
        return 0
    fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
    return sum(
        "ClassVar" not in ast.unparse(field.annotation)
        and not (field.value is not None and "init=False" in ast.unparse(field.value))
        for field in fields
    )


def task_starts(modules: list[Module]) -> dict[str, int]:
    found: dict[str, int] = {}
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and module.path != TASKS:
                called = node.func
                name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
                if name in STARTS:
                    found[module.path] = found.get(module.path, 0) + 1
    return found


def function_lengths(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, Function) and not is_empty(node):
            yield length(node)


def is_empty(node: Function) -> bool:
    """True for a declaration: nothing but a docstring, `...` or `pass`."""
    return all(
        isinstance(part, ast.Pass) or (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
        for part in node.body
    )


def length(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def methods_of(node: ast.ClassDef) -> list[Function]:
    return [part for part in node.body if isinstance(part, Function)]


if __name__ == "__main__":
    main()
