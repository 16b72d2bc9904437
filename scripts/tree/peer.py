"""A RocketMQ client of a few bytes, so that a traced tree is asked without any module of its own."""

import contextlib
import json
import re
import socket
import struct
import time
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
TIMEOUT_S = 20.0
POLL_S = 0.05
GROUP, BROKER = "walks", "broker-a"

CLUSTER_INFO = 106
SEND, PULL, END_TRANSACTION, TOPIC_STATS = 310, 11, 37, 202
SUSPEND, WITH_SUBSCRIPTION = 2, 4  # bits of a pull's sysFlag
HALF, COMMIT = 4, 8  # bits of a message's sysFlag; COMMIT is also the decision of END_TRANSACTION


class Peer:
    """A connection that sends requests with JSON headers and reads answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), TIMEOUT_S)
        self._opaque = 0

    def send(self, code: int, body: bytes = b"", **fields: object) -> int:
        self._opaque += 1
        head = {
            "code": code,
            "extFields": {name: str(value) for name, value in fields.items()},
            "flag": 0,
            "language": "JAVA",
            "opaque": self._opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": 513,
        }
        header = json.dumps(head, separators=(",", ":")).encode()
        prefix = struct.pack(">II", 4 + len(header) + len(body), len(header))
        self._socket.sendall(prefix + header + body)
        return self._opaque

    def receive(self) -> tuple[dict[str, Any], bytes]:
        (length,) = struct.unpack(">I", self._read(4))
        frame = self._read(length)
        size = struct.unpack_from(">I", frame)[0] & 0xFFFFFF
        return json.loads(frame[4 : 4 + size]), frame[4 + size :]

    def ask(self, code: int, body: bytes = b"", **fields: object) -> dict[str, Any]:
        """The answer's header; the connection is one on which no other answer is due."""
        opaque = self.send(code, body, **fields)
        head, self.body = self.receive()
        assert head["opaque"] == opaque, head
        assert head["code"] == 0, head
        return head

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise EOFError("the server closed the connection")
            data += more
        return bytes(data)

    def close(self) -> None:
        self._socket.close()


_serial = iter(range(1 << 30))


def message(topic: str, sys_flag: int = 0, **properties: str) -> dict[str, object]:
    """Fields of a send as Java's client writes them."""
    pairs = {
        **properties,
        "UNIQ_KEY": f"7F0000012B674E0E2F2A{next(_serial):012X}",
        "WAIT": "true",
        "TAGS": "TagA",
    }
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())
    born = int(time.time() * 1000)
    names = {"a": GROUP, "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": sys_flag, "g": born, "h": 0}
    return {**names, "i": text, "j": 0, "k": "false", "m": "false", "n": BROKER}


def pull(topic: str, offset: int) -> dict[str, object]:
    return {
        "consumerGroup": GROUP,
        "topic": topic,
        "queueId": 0,
        "queueOffset": offset,
        "maxMsgNums": 32,
        "sysFlag": SUSPEND | WITH_SUBSCRIPTION,
        "commitOffset": 0,
        "suspendTimeoutMillis": 15000,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
        return port


def broker_port(namesrv_port: int) -> int:
    """Waits until the broker has registered itself, and asks the name server where it is."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, EOFError):
            peer = Peer(namesrv_port)
            peer.ask(CLUSTER_INFO)
            # Apache's JSON has numbers as names of fields, which `json` does not read.
            found = re.search(rb'"brokerAddrs":\{0:"[^":]+:(\d+)"', peer.body)
            if found is not None:
                return int(found[1])
        time.sleep(POLL_S)
    raise TimeoutError(f"the broker did not register within {TIMEOUT_S} s")


def up(home: Path, namesrv_port: int) -> list[str]:
    ports = ["--namesrv-port", str(namesrv_port), "--broker-port", "0"]
    return ["up", "--data", str(home / "data"), *ports, "--log-dir", "-"]
