"""Shapes of load, the same for every client: how messages are sent, how a backlog is counted, the cost.

In: a `Job`, and from an adapter (`with_*.py`) the call that sends. Out: a `Measured`. Imports only the
standard library, since the clients of other systems run in an environment without ours.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

BODY = bytes(range(256)) * 4
IN_FLIGHT = 64
BULK = 1000  # messages handed over and awaited together
BATCH = 32  # messages of a call of a batch handler
WAIT_S = 1.0  # longest wait of a read
MESSAGES_PER_CHECK = 256  # of the clock

SEND_MANY, SEND_ONE, SEND_BLOCKING, SEND_BULK = "send many", "send one", "send blocking", "send bulk"
FILL = "fill"
CONSUME_ASYNC, CONSUME_BATCH, CONSUME_ONE = "consume async", "consume batch", "consume one"
SENDS = (SEND_MANY, SEND_ONE, SEND_BLOCKING, SEND_BULK)
CONSUMES = (CONSUME_ASYNC, CONSUME_BATCH, CONSUME_ONE)

now = time.perf_counter


@dataclass(frozen=True)
class Job:
    """What one client process is asked to do."""

    client: str
    shape: str
    address: str
    pids: tuple[int, ...]  # of the server
    topic: str
    group: str  # a new one for each run that consumes
    messages: int  # of the backlog
    warm_s: float
    seconds: float  # at most
    acks: str = "1"  # of Kafka


@dataclass(frozen=True)
class Measured:
    """Figures of a window. Latencies are those of sends, from the call to the acknowledgement."""

    messages: int
    rate: float
    client_us: float  # CPU time per message, all threads
    server_us: float
    p50_ms: float
    p99_ms: float
    other_cores: float  # used by other processes than client and server
    load_average: float


class Window:
    """Takes clocks and CPU times when it is made, after the warm-up, and again at `close`."""

    def __init__(self, pids: tuple[int, ...]) -> None:
        self._pids = pids
        self._began, self._client, self._server, self._machine = self._edge()

    def close(self, messages: int, latencies: list[float] | None = None) -> Measured:
        ended, client, server, machine = self._edge()
        seconds, used, served = ended - self._began, client - self._client, server - self._server
        sorted_ms = sorted(1e3 * latency for latency in latencies or [0.0])
        return Measured(
            messages=messages,
            rate=messages / seconds,
            client_us=used / messages * 1e6,
            server_us=served / messages * 1e6,
            p50_ms=sorted_ms[len(sorted_ms) // 2],
            p99_ms=sorted_ms[len(sorted_ms) * 99 // 100],
            other_cores=max(0.0, (machine - self._machine - used - served) / seconds),
            load_average=os.getloadavg()[0],
        )

    def _edge(self) -> tuple[float, float, float, float]:
        return now(), time.process_time(), sum(map(cpu_seconds, self._pids)), machine_busy_s()


# --- sending ---------------------------------------------------------------------------------------------


async def awaited(job: Job, send: Callable[[], Awaitable[object]], in_flight: int) -> Measured:
    """Sends from `in_flight` tasks, each of which awaits an acknowledgement before its next message."""
    await _tasks(job.warm_s, send, in_flight)
    window = Window(job.pids)
    latencies = await _tasks(job.seconds, send, in_flight)
    return window.close(len(latencies), latencies)


async def _tasks(seconds: float, send: Callable[[], Awaitable[object]], in_flight: int) -> list[float]:
    latencies: list[float] = []
    note, end = latencies.append, now() + seconds

    async def one_after_the_other() -> None:
        while (began := now()) < end:
            await send()
            note(now() - began)

    await asyncio.gather(*(one_after_the_other() for _ in range(in_flight)))
    return latencies


def blocking(job: Job, send: Callable[[], object]) -> Measured:
    """Sends from one thread, which waits for each acknowledgement."""
    _one_by_one(job.warm_s, send)
    window = Window(job.pids)
    latencies = _one_by_one(job.seconds, send)
    return window.close(len(latencies), latencies)


def _one_by_one(seconds: float, send: Callable[[], object]) -> list[float]:
    latencies: list[float] = []
    end = now() + seconds
    while (began := now()) < end:
        send()
        latencies.append(now() - began)
    return latencies


async def bulk(job: Job, send_all: Callable[[int], Awaitable[object]]) -> Measured:
    """Sends `BULK` messages without waiting, then awaits all their acknowledgements."""
    await _bulks(job.warm_s, send_all)
    window = Window(job.pids)
    return window.close(await _bulks(job.seconds, send_all))


async def _bulks(seconds: float, send_all: Callable[[int], Awaitable[object]]) -> int:
    sent, end = 0, now() + seconds
    while now() < end:
        await send_all(BULK)
        sent += BULK
    return sent


async def fill(job: Job, send_all: Callable[[int], Awaitable[object]]) -> Measured:
    """Sends the backlog that is consumed later. Its figures are not used."""
    window = Window(job.pids)
    for _ in range(0, job.messages, BULK):
        await send_all(BULK)
    return window.close(job.messages)


# --- consuming -------------------------------------------------------------------------------------------


class Backlog:
    """Counts messages and bytes for a handler.

    The first tenth is not counted (joining the group, first fetches); the window ends with the backlog or
    when the time is up. Handlers may run in several threads: CPython does not switch within `seen += 1`.
    """

    def __init__(self, job: Job, when_over: Callable[[], object] = lambda: None) -> None:
        self._job, self._when_over = job, when_over
        self._warm = job.messages // 10
        self._next = self._warm
        self._window: Window | None = None
        self._until = 0.0
        self.seen = self.bytes = 0
        self.over = False
        self.measured: Measured | None = None

    def count(self, body: bytes) -> None:
        size = len(body)
        self.bytes += size
        self.seen += 1
        if self.seen >= self._next:
            self._look()

    def result(self) -> Measured:
        assert self.measured is not None, f"{self.seen} messages of {self._job.messages}, then nothing more"
        return self.measured

    def _look(self) -> None:
        if self.over:
            return
        if self._window is None:
            self._window, self._until = Window(self._job.pids), now() + self._job.seconds
        elif self.seen >= self._job.messages or now() > self._until:
            self.over = True
            self.measured = self._window.close(self.seen - self._warm)
            self._when_over()
        self._next = min(self.seen + MESSAGES_PER_CHECK, self._job.messages)


# --- CPU time ---------------------------------------------------------------------------------------

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def machine_busy_s() -> float:
    """CPU seconds that all cores have spent on work; idle time and waiting for disks are left out."""
    user, nice, system, _idle, _waiting, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + sum(interrupts)) / TICK
