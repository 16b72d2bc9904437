"""`python -m benchmarks.tls [--loop asyncio]`: what a request costs a server without TLS, and with it.

CPU time of the server's thread for each request of 1 KiB that is asked and answered one by one over a real
socket, and for each connection that brings one request. "beside TLS" is a plain connection to a port that
takes both. All are measured in turn, several times; the median and the minimum are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import socket
import ssl
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop
from tests.interop import peers

from turbopump.protocol.command import Command, encode
from turbopump.remoting.certificates import self_signed
from turbopump.remoting.router import Answer, Route, Router
from turbopump.remoting.server import Server
from turbopump.remoting.tls import networks_of
from turbopump.remoting.tls_settings import TlsSettings
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk
from turbopump.runtime.network import SystemNetwork

REQUEST = encode(Command(1, body=b"a" * 1024))
REQUESTS, CONNECTIONS = 4000, 1000
HOST = peers.HOST
Peer = Callable[[int, Connection], None]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tls", description=__doc__)
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    factory = uvloop.new_event_loop if options.loop == "uvloop" else None
    with tempfile.TemporaryDirectory() as directory, asyncio.Runner(loop_factory=factory) as runner:
        pem, pair = Path(directory) / "pem", self_signed(days=1)
        pem.write_bytes(pair.cert + pair.key)
        runner.run(measure(pem, options.rounds))


async def measure(pem: Path, rounds: int) -> None:
    without, beside = TlsSettings(), TlsSettings(cert_path=str(pem))
    cases: dict[str, tuple[TlsSettings, Peer, int]] = {
        "request, port without TLS": (without, ask, REQUESTS),
        "request, beside TLS": (beside, ask, REQUESTS),
        "request, with TLS": (beside, ask_with_tls, REQUESTS),
        "connection, port without TLS": (without, connect, CONNECTIONS),
        "connection, beside TLS": (beside, connect, CONNECTIONS),
    }
    costs: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            costs[name].append(await cost_us(*case))
    print(f"{'CPU of the server for each':34} {'median us':>10} {'minimum us':>10}")
    for name, found in costs.items():
        print(f"{name:34} {statistics.median(found):10.1f} {min(found):10.1f}")


async def cost_us(settings: TlsSettings, peer: Peer, count: int) -> float:
    network = networks_of(settings, SystemNetwork(), SystemDisk()).requests
    server = Server(Router({1: Route(None, lambda request: Answer())}), network, SystemClock())
    port = await server.start(HOST, peers.free_port())
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=peer, args=(port, theirs))
    began = time.thread_time()
    process.start()
    await asyncio.to_thread(ours.recv)
    spent = time.thread_time() - began
    process.join()
    await server.stop(0)
    return spent / count * 1e6


def ask(port: int, done: Connection) -> None:
    with closing(dial(port)) as peer:
        exchange(peer, REQUESTS)
    done.send(None)


def ask_with_tls(port: int, done: Connection) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with closing(context.wrap_socket(dial(port))) as peer:
        exchange(peer, REQUESTS)
    done.send(None)


def connect(port: int, done: Connection) -> None:
    for _ in range(CONNECTIONS):
        with closing(dial(port)) as peer:
            exchange(peer, 1)
    done.send(None)


def dial(port: int) -> socket.socket:
    peer = socket.create_connection((HOST, port))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def exchange(peer: socket.socket, count: int) -> None:
    for _ in range(count):
        peer.sendall(REQUEST)
        received = b""
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            received += peer.recv(65_536)


if __name__ == "__main__":
    main()
