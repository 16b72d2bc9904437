"""Reads captured replication traffic; README.md says what it is."""

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VERSIONS = ("4.9.7", "5.5.0")
TO_SLAVE, TO_MASTER = "m>s", "s>m"


@dataclass(frozen=True, slots=True)
class HaFrame:
    """A frame of the HA port."""

    version: str
    scenario: str
    connection: int
    at_s: float
    to_slave: bool
    data: bytes
    is_whole: bool
    """Whether the bytes of the part were kept, not only its head."""


@dataclass(frozen=True, slots=True)
class SlaveRequest:
    """A request that a slave made, and the answer it got."""

    version: str
    to: str
    code: int
    request: bytes
    answer: bytes


@cache
def frames(version: str) -> tuple[HaFrame, ...]:
    """Returns the frames of the HA port, in the order in which they were sent."""
    return tuple(
        HaFrame(
            version,
            row["scenario"],
            row["conn"],
            row["t"],
            row["dir"] == TO_SLAVE,
            bytes.fromhex(row.get("hex") or row["header"]),
            "hex" in row,
        )
        for row in _rows(f"ha-{version}")
        if row["dir"] in (TO_SLAVE, TO_MASTER)
    )


def connection(version: str, scenario: str, number: int) -> list[HaFrame]:
    """Returns the frames of one connection."""
    wanted = scenario, number
    return [frame for frame in frames(version) if (frame.scenario, frame.connection) == wanted]


@cache
def requests(version: str) -> tuple[SlaveRequest, ...]:
    """Returns what a slave asked of name server and master."""
    return tuple(
        SlaveRequest(version, row["to"], row["code"], bytes.fromhex(row["req"]), bytes.fromhex(row["resp"]))
        for row in _rows(f"slave-{version}")
    )


def _rows(name: str) -> Iterator[dict[str, Any]]:
    data = lzma.decompress((HERE / f"{name}.jsonl.xz").read_bytes())
    yield from map(json.loads, data.splitlines())
