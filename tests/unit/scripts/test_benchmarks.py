"""Benchmarks run seldom: what they import and set from our modules must exist all the same."""

import ast
import importlib
from pathlib import Path

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
