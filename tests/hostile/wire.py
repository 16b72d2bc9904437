"""A client for invalid frames, over plain sockets, without code of the server under test."""

from __future__ import annotations

import itertools
import json
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

JSON, BINARY = 0, 1
ONE_WAY = 2
MAX_FRAME = 16 * 1024 * 1024
RECEIVE = 256 * 1024

SEND, PULL, QUERY, HEARTBEAT, CREATE_TOPIC, ROUTE = 310, 11, 12, 34, 17, 105
OK, NOT_FOUND, TOPIC_NOT_EXIST = 0, 19, 17

Address = tuple[str, int]
_opaques = itertools.count(1)


@dataclass(frozen=True)
class Answer:
    code: int
    opaque: int
    remark: str
    ext: Mapping[str, str]
    body: bytes


class Closed(Exception):
    """The server ended the connection."""


def frame(header: bytes, body: bytes = b"", kind: int = JSON) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def request(
    code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"", *, opaque: int = 0, flag: int = 0
) -> bytes:
    header = {"code": code, "extFields": ext or {}, "flag": flag, "language": "JAVA"}
    header |= {"opaque": opaque or next(_opaques), "serializeTypeCurrentRPC": "JSON", "version": 513}
    return frame(json.dumps(header, separators=(",", ":")).encode(), body)


def message(
    topic: str, queue: int = 0, properties: str = "TAGS\x01TagA\x02", **letters: str
) -> dict[str, str]:
    """Returns the header fields of a send, code 310."""
    fields = {"a": "HOSTILE", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0"}
    fields |= {
        "g": "1700000000000",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    }
    return fields | letters


def pull(
    topic: str, queue: int = 0, offset: int = 0, *, suspend: bool = False, **more: str
) -> dict[str, str]:
    """Returns the header fields of a pull with its subscription, code 11."""
    fields = {"consumerGroup": "HOSTILE", "topic": topic, "queueId": str(queue), "queueOffset": str(offset)}
    fields |= {"maxMsgNums": "32", "sysFlag": "6" if suspend else "4", "commitOffset": "0"}
    fields |= {
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return fields | more


def topic_settings(topic: str, queues: int = 4) -> dict[str, str]:
    """Returns the header fields of the creation of a topic, code 17."""
    counts = {"readQueueNums": str(queues), "writeQueueNums": str(queues)}
    kinds = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    return {"topic": topic, "defaultTopic": "TBW102", "perm": "6"} | counts | kinds


class Peer:
    """One connection."""

    def __init__(self, address: Address, timeout_s: float = 10.0, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout_s)
        try:
            self.socket.connect(address)
        except BaseException:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = bytearray()

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except ConnectionError as error:
            raise Closed from error

    def ask(self, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"") -> Answer:
        opaque = next(_opaques)
        self.send(request(code, ext, body, opaque=opaque))
        answer = self.answer()
        assert answer.opaque == opaque
        return answer

    def answer(self) -> Answer:
        """Returns the next answer. Raises Closed if the connection ended, TimeoutError if none arrives."""
        while not (whole := self._cut()):
            self._receive()
        return parse(whole)

    def is_closed(self, within_s: float) -> bool:
        """Tells whether the server ends the connection in time; skips answers before that."""
        deadline = time.monotonic() + within_s
        try:
            while (left := deadline - time.monotonic()) > 0:
                self.socket.settimeout(left)
                self._receive()
                self._input.clear()
        except Closed:
            return True
        except TimeoutError:
            pass
        return False

    def reset(self) -> None:
        """Resets the connection: RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self) -> None:
        try:
            data = self.socket.recv(RECEIVE)
        except ConnectionError as error:
            raise Closed from error
        if not data:
            raise Closed
        self._input += data

    def _cut(self) -> bytes:
        if len(self._input) < 4:
            return b""
        end = 4 + int.from_bytes(self._input[:4], "big")
        if len(self._input) < end:
            return b""
        whole = bytes(self._input[:end])
        del self._input[:end]
        return whole


def parse(whole: bytes) -> Answer:
    size = int.from_bytes(whole[5:8], "big")
    header = json.loads(whole[8 : 8 + size])
    assert header["flag"] & 1, "an answer without the response flag"
    ext = header.get("extFields") or {}
    return Answer(header["code"], header["opaque"], header.get("remark") or "", ext, whole[8 + size :])


@contextmanager
def crowd(address: Address, count: int, receive_buffer: int = 0) -> Iterator[list[Peer]]:
    """Opens many connections; closes all at the end."""
    with ExitStack() as stack:
        yield [stack.enter_context(Peer(address, receive_buffer=receive_buffer)) for _ in range(count)]
