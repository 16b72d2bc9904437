"""Producers and consumers that run until ended or killed (Worker.java, worker.go, worker.py), and their logs.

A job is `produce:NAME:TOPIC:KEYS:INTERVAL_MS:MODE` or `consume:NAME:GROUP:TOPIC:MODE`. A worker does some
jobs in one process; when it is started again it goes on under the same names. Its lines, tab-separated,
times in microseconds:

    acknowledged TIME KEY SEQUENCE BROKER QUEUE OFFSET      a send that was answered with SEND_OK
    failed       TIME KEY SEQUENCE ...                      one that was not; a keyed producer tries again
    sent         TIME KEY SEQUENCE                          one that nobody answers
    got          TIME KEY SEQUENCE BROKER QUEUE OFFSET TIMES

A sequence is the time at which the producer first tried: those of a key increase, over restarts too.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from . import clients, processes

READY = "working"


class Sent(NamedTuple):
    at: float
    key: str
    sequence: int
    broker: str = ""
    queue: int = -1
    offset: int = -1


class Got(NamedTuple):
    at: float
    member: str
    key: str
    sequence: int
    broker: str
    queue: int
    offset: int
    times: int


class Worker:
    def __init__(
        self, client: str, namesrv: str, work: Path, *jobs: str, env: Mapping[str, str] | None = None
    ) -> None:
        self.client = client
        self.jobs = [job.split(":") for job in jobs]
        self._name = f"{self.jobs[0][1]}+{len(jobs) - 1}"
        home = work / self._name
        home.mkdir(parents=True)
        self._command = [*clients.program_of(client, "Worker", home), namesrv, str(work), *jobs]
        self._log = home / "log"
        self._process: processes.Server | None = None
        self._env = {"HOME": str(home), **(env or {})}
        self.started: list[float] = []

    def __str__(self) -> str:
        return f"{self.client} {self._name}"

    def start(self) -> None:
        """Ready after a while: `wait_ready` waits for that."""
        self.started.append(time.time())
        self._process = processes.Server(self._command, self._log, self._env)

    def wait_ready(self) -> None:
        self._running.wait_ready(READY)

    def stop(self) -> None:
        """An orderly end: consumers commit and say good-bye."""
        self._running.stop()

    def kill(self) -> None:
        self._running.kill()

    def pause(self) -> None:
        """It says nothing any more, and its connections stay."""
        self._running.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running.signal(signal.SIGCONT)

    @property
    def _running(self) -> processes.Server:
        assert self._process is not None, f"{self} was never started"
        return self._process


class Crew:
    """Workers that share a directory of logs."""

    def __init__(self, namesrv: str, work: Path, env: Mapping[str, str] | None = None) -> None:
        self._namesrv = namesrv
        self._work = work
        self._env = env
        self.workers: list[Worker] = []
        self._read: dict[
            str, tuple[int, list[list[str]]]
        ] = {}  # by file: bytes that were read, and their lines

    def add(self, client: str, *jobs: str) -> Worker:
        worker = Worker(client, self._namesrv, self._work, *jobs, env=self._env)
        self.workers.append(worker)
        worker.start()
        return worker

    def wait_ready(self) -> None:
        for worker in self.workers:
            worker.wait_ready()

    def kill(self) -> None:
        for worker in self.workers:
            worker.kill()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def acknowledged(self, topic: str) -> list[Sent]:
        return list(self._sends(topic, "acknowledged"))

    def failed(self, topic: str) -> list[Sent]:
        return list(self._sends(topic, "failed"))

    def unanswered(self, topic: str) -> list[Sent]:
        return list(self._sends(topic, "sent"))

    def got(self, group: str) -> list[Got]:
        """What the members of the group got, in the order of time."""
        lines = [
            Got(
                int(line[1]) / 1e6,
                name,
                line[2],
                int(line[3]),
                line[4],
                int(line[5]),
                int(line[6]),
                int(line[7]),
            )
            for name in self._names("consume", 2, group)
            for line in self._lines(name)
        ]
        return sorted(lines)

    def began(self, member: str, at: float) -> float:
        """When the process was started in which this member was at that time."""
        for worker in self.workers:
            if any(job[1] == member for job in worker.jobs):
                return max(start for start in worker.started if start <= at)
        raise KeyError(member)

    def _sends(self, topic: str, verb: str) -> Iterator[Sent]:
        for name in self._names("produce", 2, topic):
            for line in self._lines(name):
                if line[0] == verb:
                    at, key, sequence = int(line[1]) / 1e6, line[2], int(line[3])
                    if verb == "acknowledged":
                        yield Sent(at, key, sequence, line[4], int(line[5]), int(line[6]))
                    else:
                        yield Sent(at, key, sequence)

    def _names(self, verb: str, index: int, word: str) -> list[str]:
        return [
            job[1] for worker in self.workers for job in worker.jobs if job[0] == verb and job[index] == word
        ]

    def _lines(self, name: str) -> list[list[str]]:
        """Returns the whole lines of a log. It only grows, so that each line is read once."""
        size, lines = self._read.get(name, (0, []))
        with contextlib.suppress(FileNotFoundError), (self._work / f"{name}.log").open("rb") as file:
            file.seek(size)
            new = file.read()
            new = new[: new.rfind(b"\n") + 1]
            lines = [*lines, *(line.split("\t") for line in new.decode().splitlines())]
            self._read[name] = size + len(new), lines
        return lines


@dataclass(frozen=True)
class Tally:
    """How often the same message came."""

    messages: int
    deliveries: int
    stored_twice: int  # a producer tried again what had been stored
    repeated: int  # the same place in a queue, delivered again


def tally(got: Iterable[Got]) -> Tally:
    deliveries = list(got)
    places = {(one.broker, one.queue, one.offset) for one in deliveries}
    messages = {(one.key, one.sequence) for one in deliveries}
    return Tally(len(messages), len(deliveries), len(places) - len(messages), len(deliveries) - len(places))


def lost(sent: Iterable[Sent], got: Iterable[Got]) -> list[Sent]:
    consumed = {(one.key, one.sequence) for one in got}
    return [one for one in sent if (one.key, one.sequence) not in consumed]


def disorder(got: Iterable[Got]) -> list[str]:
    """Messages that came for the first time after a later one of their key."""
    seen: set[tuple[str, int]] = set()
    last: dict[str, int] = defaultdict(int)
    found = []
    for one in got:
        if (one.key, one.sequence) in seen:
            continue
        seen.add((one.key, one.sequence))
        if one.sequence < last[one.key]:
            found.append(
                f"{one.member} got {one.key} {one.sequence} at {one.queue}/{one.offset} after {last[one.key]}"
            )
        last[one.key] = max(last[one.key], one.sequence)
    return found


def owners(got: Iterable[Got], since: float) -> dict[str, set[tuple[str, int]]]:
    """The queues from which each member got something since then."""
    queues: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for one in got:
        if one.at >= since:
            queues[one.member].add((one.broker, one.queue))
    return dict(queues)


def eventually(condition: Callable[[], bool], timeout_s: float, poll_s: float = 0.25) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(poll_s)
    return condition()
