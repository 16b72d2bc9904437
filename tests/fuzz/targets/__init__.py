"""The table of targets: the rows of each module in this directory with a `TARGETS` dict."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

CORPUS = Path(__file__).parent.parent / "corpus"


@dataclass(frozen=True)
class Target:
    run: Callable[[bytes], object]
    """Reads the input and checks what must hold of the result."""

    seeds: Callable[[], Iterable[bytes]]
    """Valid inputs to start from."""

    allowed: tuple[type[BaseException], ...]
    """What the decoder may raise."""

    words: tuple[bytes, ...] = ()
    """Pieces worth inserting."""

    taste: int = 600
    """Inputs among the unit tests."""


def all_targets() -> dict[str, Target]:
    table: dict[str, Target] = {}
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
        table |= getattr(importlib.import_module(f"{__name__}.{module.name}"), "TARGETS", {})
    return table


def kept(name: str) -> list[bytes]:
    """Returns inputs to replay: earlier crashes, and one for each way a decoder can end."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*")) if path.is_file()]
