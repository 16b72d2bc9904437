"""Reads captured signed traffic; README.md says what it is."""

import json
import lzma
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from turbopump.protocol import command, frame
from turbopump.protocol.command import Command

HERE = Path(__file__).parent
VERSIONS = ("4.5.1", "4.9.7", "5.5.0")

ACCOUNTS = {
    "globalWhiteRemoteAddresses": ["127.0.0.9", "127.0.1.*", "127.0.2.5-9", "127.0.3.{4,6}"],
    "accounts": [
        {
            "accessKey": "RocketMQ",
            "secretKey": 12345678,
            "admin": False,
            "defaultTopicPerm": "DENY",
            "defaultGroupPerm": "SUB",
            "topicPerms": ["topicA=DENY", "topicB=PUB|SUB", "topicC=SUB", "topicP=PUB"],
            "groupPerms": ["groupA=DENY", "groupB=PUB|SUB", "groupC=SUB"],
        },
        {
            "accessKey": "rocketmq2",
            "secretKey": "abcdefgh",
            "whiteRemoteAddress": "127.0.4.*",
            "admin": True,
        },
        {"accessKey": "adminperm", "secretKey": "abcdefgh", "admin": True, "topicPerms": ["topicB=SUB"]},
        {
            "accessKey": "teamuser",
            "secretKey": "teamsecret",
            "defaultTopicPerm": "PUB|SUB",
            "defaultGroupPerm": "PUB|SUB",
        },
        {"accessKey": "nothing1", "secretKey": "nothing-secret"},
    ],
}
"""The accounts of the 4.9.7 server, as its files had them."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request made by hand, and what the server answered: None and "" without an answer."""

    name: str
    peer: str
    request: bytes
    answer: bytes | None
    code: int | None
    remark: str
    secret: str | None
    """With which the request was signed; None: it was not."""

    @property
    def command(self) -> Command:
        return decoded(self.request)


@dataclass(frozen=True, slots=True)
class SignedFrame:
    """A request that a client, tool or broker of Apache's signed."""

    file: str
    scenario: str
    data: bytes
    secret: str


@cache
def exchanges(version: str) -> tuple[Exchange, ...]:
    return tuple(
        Exchange(
            row["name"],
            row["peer"],
            bytes.fromhex(row["req"]),
            bytes.fromhex(row["resp"]) if "resp" in row else None,
            row.get("rcode"),
            row.get("remark", ""),
            row.get("secret"),
        )
        for row in _rows(HERE / f"exchanges-{version}.jsonl.xz")
    )


@cache
def signed_frames() -> tuple[SignedFrame, ...]:
    files = sorted(path for path in HERE.glob("*.jsonl.xz") if not path.name.startswith("exchanges"))
    return tuple(
        SignedFrame(
            path.name.removesuffix(".jsonl.xz"), row["scenario"], bytes.fromhex(row["hex"]), row["secret"]
        )
        for path in files
        for row in _rows(path)
        if row["dir"] == "c>s" and "secret" in row
    )


def decoded(data: bytes) -> Command:
    """Returns the command of one whole frame."""
    frames: list[frame.Frame] = []
    assert frame.cut(data, frames) == len(data)
    return command.decode(frames[0])


def _rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]
