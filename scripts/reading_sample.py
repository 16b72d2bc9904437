"""Picks ten files by a hash, for the reading test of docs/results/reading.md.

    python scripts/reading_sample.py SEED            # paths, one in each line
    python scripts/reading_sample.py SEED --outline  # names and first lines of docstrings, no bodies

SEED is any text, such as a commit: the same one picks the same files of the same tree. Generated files are
left out, and those with fewer than three classes, functions and methods.
"""

import argparse
import ast
import hashlib
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "src/turbopump"
GENERATED = "Written by scripts/"
MIN_NAMES = 3

Named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("seed", help="any text, such as a commit")
    parser.add_argument("--count", type=int, default=10, help="how many files (10)")
    parser.add_argument("--outline", action="store_true", help="print names and first lines of docstrings")
    options = parser.parse_args()
    for name in picked(PACKAGE, options.seed, options.count):
        print(name)
        if options.outline:
            for line in outline(ast.parse((PACKAGE / name).read_text())):
                print(f"    {line}")


def picked(package: Path, seed: str, count: int) -> list[str]:
    """Returns the paths below `package` whose hash with the seed is smallest."""
    names = [str(path.relative_to(package)) for path in package.rglob("*.py") if is_to_read(path)]
    return sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())[:count]


def is_to_read(path: Path) -> bool:
    tree = ast.parse(path.read_text())
    return GENERATED not in (ast.get_docstring(tree) or "") and sum(1 for _ in named(tree)) >= MIN_NAMES


def outline(tree: ast.Module) -> list[str]:
    """Returns a line for each class, function and method: its name, and the first line of its docstring."""
    return [f"{name}: {(ast.get_docstring(node) or '-').partition(chr(10))[0]}" for name, node in named(tree)]


def named(tree: ast.Module) -> Iterator[tuple[str, Named]]:
    """Yields classes, functions and methods with their names; functions inside of functions are left out."""
    for node in tree.body:
        if isinstance(node, Named):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{part.name}", part


if __name__ == "__main__":
    main()
