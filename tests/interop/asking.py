"""Requests to a server, past every client: frames with a JSON header.

`ask` and `asked` use a fresh connection each; a `Line` is a connection for what a server remembers with it.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 15.0
VERSION = 407  # as a 4.9.7 client: every server knows it


@dataclass(frozen=True)
class Answer:
    code: int
    remark: str | None
    ext: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Refusal(Exception):
    """The server answered, with another code than 0."""


class Line:
    """A connection. `answers` says what to answer to a request of the server's, by its code.

    `heard` are the requests that were answered, header and body.
    """

    def __init__(
        self, address: str, answers: Mapping[int, bytes] | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._answers = answers or {}
        self.heard: list[tuple[dict[str, Any], bytes]] = []

    def ask(self, code: int, body: bytes = b"", version: int = VERSION, **ext: object) -> Answer:
        header = {
            "code": code,
            "flag": 0,
            "language": "JAVA",
            "opaque": 1,
            "version": version,
            "serializeTypeCurrentRPC": "JSON",
            "extFields": {name: _text(value) for name, value in ext.items()},
        }
        self._socket.sendall(_frame(json.dumps(header).encode(), body))
        while True:  # a broker may speak first
            answered, rest = _read(self._socket)
            if answered["flag"] & 1:
                return Answer(answered["code"], answered.get("remark"), answered.get("extFields") or {}, rest)
            self._answer(answered, rest)

    def wait_at_most(self, timeout_s: float) -> None:
        """Sets how long the next answers may take; what comes later than that is an OSError."""
        self._socket.settimeout(timeout_s)

    def serve_one(self) -> None:
        """Waits for a request of the server's that wants an answer, and gives it."""
        while not self._answer(*_read(self._socket)):
            pass

    def _answer(self, asked: dict[str, Any], sent: bytes) -> bool:
        body = self._answers.get(asked["code"])
        if body is None or asked["flag"] & 2:
            return False
        header = {**asked, "code": 0, "flag": 1, "remark": None, "extFields": {}}
        self.heard.append((asked, sent))
        self._socket.sendall(_frame(json.dumps(header).encode(), body))
        return True

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def ask(address: str, code: int, body: bytes = b"", **ext: object) -> Answer:
    with Line(address) as line:
        return line.ask(code, body, **ext)  # type: ignore[arg-type]  # no field is called `version`


def asked(address: str, code: int, body: bytes = b"", **ext: object) -> Answer:
    """The same; any answer but success is an error of the test."""
    answer = ask(address, code, body, **ext)
    if answer.code != 0:
        raise Refusal(f"{address} answered {code} with {answer.code}: {answer.remark}")
    return answer


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _frame(header: bytes, body: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def _read(connection: socket.socket) -> tuple[dict[str, Any], bytes]:
    length, header_length = struct.unpack(">ii", _exactly(connection, 8))
    header = json.loads(_exactly(connection, header_length & 0xFFFFFF))
    return header, _exactly(connection, length - 4 - (header_length & 0xFFFFFF))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("the server closed the connection")
        data += chunk
    return bytes(data)
