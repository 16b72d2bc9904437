"""Benchmarks run seldom: what they import and set from our modules must exist all the same."""

import ast
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

HOME = Path(__file__).parents[3] / "benchmarks"
OTHERS = {"sampler", "spark_log", "with_aiokafka", "with_confluent", "with_confluent_aio", "with_nats"}
"""Modules that need packages of another environment, or only run as a program."""

MODULES = sorted(
    path.relative_to(HOME.parent).with_suffix("").as_posix().replace("/", ".")
    for path in HOME.rglob("*.py")
    if path.stem not in OTHERS | {"with_redis", "drive", "__init__"}
)


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_can_be_imported_and_sets_only_attributes_that_exist(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                owner = getattr(module, target.value.id, None)
                if type(owner) is type(ast):
                    assert hasattr(owner, target.attr), f"{name} sets {target.value.id}.{target.attr}"


@pytest.mark.parametrize("name", MODULES)
def test_a_benchmark_calls_functions_of_benchmarks_with_the_arguments_that_they_take(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None
    for call in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if not isinstance(call, ast.Call) or any(isinstance(one, ast.Starred) for one in call.args):
            continue
        function = called(module, call.func)
        if function is not None and all(keyword.arg for keyword in call.keywords):
            arguments = {keyword.arg: None for keyword in call.keywords if keyword.arg}
            try:
                inspect.signature(function).bind(*call.args, **arguments)
            except TypeError as error:
                pytest.fail(f"{name}, line {call.lineno}: {ast.unparse(call)}: {error}")


def called(module: ModuleType, name: ast.expr) -> Callable[..., object] | None:
    """Returns the function of a benchmark that `name` stands for in a module; None: something else."""
    match name:
        case ast.Name(id):
            found = getattr(module, id, None)
        case ast.Attribute(ast.Name(owner), attribute):
            found = getattr(getattr(module, owner, None), attribute, None)
        case _:
            return None
    is_ours = inspect.isfunction(found) and found.__module__.startswith("benchmarks")
    return found if is_ours else None
