"""Writes metric families in Prometheus' text format, version 0.0.4.

# HELP name words
# TYPE name counter
name{label="value",other="value"} 1
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = Mapping[str, str]


class Histogram:
    """Counts of values by bucket; upper bounds are inclusive, and the last bucket has none."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0

    def add(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


Value: TypeAlias = int | float | Histogram


@dataclass(frozen=True, slots=True)
class Family:
    """Prometheus metric family: name, type, help text, and all samples with their labels."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    words: str
    samples: list[tuple[Labels, Value]] = field(default_factory=list)


def lines(family: Family, common: Labels) -> Iterator[str]:
    """Yields the text lines of a family, with `common` labels added to every sample; none without samples."""
    if family.samples:
        yield f"# HELP {family.name} {_escaped(family.words)}\n"
        yield f"# TYPE {family.name} {family.kind}\n"
    for labels, value in family.samples:
        merged = {**common, **labels}
        if isinstance(value, Histogram):
            yield from _histogram(family.name, merged, value)
        else:
            yield f"{family.name}{_braced(merged)} {value}\n"


def _histogram(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    below = 0
    for bound, count in zip((*map(str, histogram.bounds), "+Inf"), histogram.counts, strict=True):
        below += count
        yield f"{name}_bucket{_braced({**labels, 'le': bound})} {below}\n"
    yield f"{name}_count{_braced(labels)} {below}\n"
    yield f"{name}_sum{_braced(labels)} {histogram.sum}\n"


def _braced(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{_quoted(value)}"' for name, value in sorted(labels.items()))
    return f"{{{pairs}}}" if pairs else ""


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
