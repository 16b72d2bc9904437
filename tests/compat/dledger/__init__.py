"""Reads captured traffic of a DLedger group; README.md says what it is."""

import json
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from turbopump.protocol import frame

CAPTURE = Path(__file__).parent / "dledger-4.9.7.jsonl.xz"


@dataclass(frozen=True, slots=True)
class DLedgerExchange:
    """A request of a node, and the answer it got, as whole frames."""

    scenario: str
    to: str
    code: int
    push_type: str
    answer_code: int
    vote_result: str
    request: bytes
    answer: bytes

    @property
    def request_body(self) -> bytes:
        return _body(self.request)

    @property
    def answer_body(self) -> bytes:
        return _body(self.answer)


@cache
def exchanges() -> tuple[DLedgerExchange, ...]:
    """Returns all captured exchanges, in their order."""
    rows = map(json.loads, lzma.decompress(CAPTURE.read_bytes()).splitlines())
    return tuple(
        DLedgerExchange(
            row["scenario"],
            row["to"],
            row["code"],
            row.get("type", ""),
            row["bodyCode"],
            row.get("voteResult", ""),
            bytes.fromhex(row["req"]),
            bytes.fromhex(row["resp"]),
        )
        for row in rows
    )


def _body(data: bytes) -> bytes:
    frames: list[frame.Frame] = []
    assert frame.cut(data, frames) == len(data)
    return frames[0][2]
