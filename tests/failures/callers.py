"""Clients of a group that append to a few queues and read them, and record each call with its two times.

Each caller is a thread with one connection, and has one call at a time. It speaks the wire past every client
library, so that nothing is sent again or answered from a cache unseen. A call that fails or takes too long
ends the connection; the caller then looks for a leader, or stays with the member that it asked. All times
are of one monotonic clock.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.failures.linear import AppendCall, Leadership, ReadCall
from tests.failures.members import MEMBERS, ProxiedGroup
from tests.failures.pairs import body_of, name_of
from tests.interop.asking import Answer, Line, Refusal
from tests.interop.dledger_group import send_fields
from tests.interop.replica_pair import GROUP, READ_UNKNOWN_GROUP

from turbopump.protocol import record
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.codes import ResponseCode

TOPIC = "linear"
QUEUES = 3
CALLERS = 6
TIMEOUTS_S = (0.3, 1.0, 3.0, 6.0)
CONNECT_S = 0.5
PAUSE_S = 0.004
AFTER_FAILURE_S = 0.05
LOOK_S = 0.05
SIZES = (100, 300, 2000)
LARGE = (50_000, 100_000)
BATCH = 32
NOTHING_THERE = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED)
CALLS = ("append",) * 5 + ("tail",) * 3 + ("old",) + ("end",) * 2
AT_ANY_MEMBER = 0.1
SENT_AGAIN = 0.5
STAYS = 0.3
"""How often a caller asks the same member again that has just failed."""
ERRORS = (OSError, Refusal, ValueError)


@dataclass
class CallHistory:
    """What all callers have done. Lists are only appended to, so threads may share them."""

    appends: list[AppendCall] = field(default_factory=list)
    reads: list[ReadCall] = field(default_factory=list)
    leaderships: list[Leadership] = field(default_factory=list)

    def acknowledged(self) -> int:
        return sum(one.offset >= 0 for one in list(self.appends))


class QueueCaller:
    """One client: a connection to one member, and what it knows of it."""

    def __init__(self, name: str, group: ProxiedGroup, history: CallHistory, seed: int) -> None:
        self._name = name
        self._group = group
        self._history = history
        self._chance = random.Random(f"{seed} {name}")
        self._member = self._chance.choice(MEMBERS)
        self._lines: ExitStack | None = None
        self._line: Line
        self._status: Line
        self._leadership: Leadership | None = None
        self._ends = [0] * QUEUES
        self._number = 0
        self._again: tuple[int, int, int] | None = None
        self.sizes: tuple[int, ...] = SIZES
        """Sizes of bodies from now on."""

    def call_until(self, end: threading.Event) -> None:
        """Makes calls until the event is set."""
        while not end.is_set():
            try:
                self._connect()
                self._call()
            except ERRORS:
                self._disconnect()
                if self._chance.random() >= STAYS:
                    self._member = self._chance.choice(MEMBERS)
                end.wait(AFTER_FAILURE_S)
            end.wait(PAUSE_S)
        self._disconnect()

    # connections

    def _connect(self) -> None:
        if self._lines is not None:
            return
        broker, asked_at = self._group.brokers[self._member].broker_addr, self._group.asked_at(self._member)
        with ExitStack() as stack:
            self._line = stack.enter_context(Line(broker, timeout_s=CONNECT_S))
            self._status = stack.enter_context(Line(asked_at, timeout_s=CONNECT_S))
            self._leadership = self._led()
            self._lines = stack.pop_all()

    def _disconnect(self) -> None:
        if self._lines is not None:
            self._lines.close()
        self._lines, self._leadership = None, None

    def _led(self) -> Leadership | None:
        self._status.wait_at_most(self._chance.choice(TIMEOUTS_S))
        found = self._group.leadership_by(self._status, self._member)
        if found is not None:
            self._history.leaderships.append(found)
        return found

    def _through(self) -> Leadership | None:
        """Returns in which term the member has led since the last such look; None: not all the time."""
        before, self._leadership = self._leadership, self._led()
        return before if before == self._leadership else None

    # calls

    def _call(self) -> None:
        if self._leadership is None and self._chance.random() >= AT_ANY_MEMBER:
            raise Refusal(f"n{self._member} does not lead")
        self._line.wait_at_most(self._chance.choice(TIMEOUTS_S))
        queue = self._chance.randrange(QUEUES)
        kind = self._chance.choice(CALLS)
        if kind == "append":
            self._append(queue)
        elif kind == "end":
            self._ask_end(queue)
        else:
            known = self._ends[queue]
            self._pull(queue, max(0, known - 3) if kind == "tail" else self._chance.randint(0, known))

    def _append(self, queue: int) -> None:
        queue, number, attempt = self._next(queue)
        value = f"{self._name}-{number}-{attempt}"
        body = body_of(value, self._chance.choice(self.sizes))
        self._again = (queue, number, attempt + 1) if self._chance.random() < SENT_AGAIN else None
        called = time.monotonic()
        try:
            answer = self._line.ask(Code.SEND_MESSAGE, body, **send_fields(TOPIC, queue))  # type: ignore[arg-type]
            returned = time.monotonic()
            _expect_success(answer)
        except BaseException:
            self._history.appends.append(AppendCall(queue, value, called))
            raise
        self._again = None
        offset = int(answer.ext["queueOffset"])
        assert int(answer.ext["queueId"]) == queue
        leadership = None
        try:
            leadership = self._through()
        finally:
            done = AppendCall(queue, value, called, returned, offset, leadership)
            self._history.appends.append(done)
        self._ends[queue] = max(self._ends[queue], offset + 1)

    def _next(self, queue: int) -> tuple[int, int, int]:
        """Returns queue, number and attempt of the next append: of one that failed, if it is sent again."""
        if self._again is not None:
            return self._again
        self._number += 1
        return queue, self._number, 0

    def _ask_end(self, queue: int) -> None:
        called = time.monotonic()
        answer = self._line.ask(Code.GET_MAX_OFFSET, topic=TOPIC, queueId=queue)
        returned = time.monotonic()
        _expect_success(answer)
        length = int(answer.ext["offset"])
        self._read(ReadCall(queue, called, returned, self._member, (), length, length))

    def _pull(self, queue: int, offset: int) -> None:
        called = time.monotonic()
        answer = self._line.ask(
            Code.PULL_MESSAGE, consumerGroup=GROUP, topic=TOPIC, queueId=queue, queueOffset=offset,
            maxMsgNums=BATCH, sysFlag=READ_UNKNOWN_GROUP, commitOffset=0, suspendTimeoutMillis=0,
            subscription="*", subVersion=0,
        )  # fmt: skip
        returned = time.monotonic()
        if answer.code in NOTHING_THERE:
            self._read(ReadCall(queue, called, returned, self._member, (), 0, offset))
            return
        _expect_success(answer)
        records = record.decode_all(answer.body)
        found = tuple((one.queue_offset, name_of(record.body_of(one))) for one in records)
        least = 1 + max(at for at, _ in found)
        self._read(ReadCall(queue, called, returned, self._member, found, least))
        self._ends[queue] = max(self._ends[queue], least)

    def _read(self, read: ReadCall) -> None:
        leadership = None
        try:
            leadership = self._through()
        finally:
            self._history.reads.append(
                ReadCall(
                    read.queue, read.called, read.returned, read.member,
                    read.found, read.least, read.most, leadership,
                )
            )  # fmt: skip


class CallLoad:
    """All callers of a group, until it is stopped."""

    def __init__(self, group: ProxiedGroup, seed: int) -> None:
        self.history = CallHistory()
        self._end = threading.Event()
        self._callers = [QueueCaller(f"c{number}", group, self.history, seed) for number in range(CALLERS)]
        self._threads = [
            threading.Thread(target=one.call_until, args=(self._end,), name=f"caller-{number}")
            for number, one in enumerate(self._callers)
        ]

    def __enter__(self) -> CallLoad:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Returns when the last call has ended."""
        self._end.set()
        for thread in self._threads:
            thread.join()

    def send(self, sizes: tuple[int, ...]) -> None:
        """Sends messages of these sizes from now on."""
        for one in self._callers:
            one.sizes = sizes

    @property
    def is_alive(self) -> bool:
        """Whether no caller has ended by an error of its own."""
        return all(thread.is_alive() for thread in self._threads)

    def wait_acknowledged(self, count: int = 30, within_s: float = 30.0) -> bool:
        """Returns whether that many further appends were called and acknowledged within the time."""
        return self._wait(count, within_s, lambda one: one.offset >= 0)

    def wait_appends(self, count: int = 30, within_s: float = 15.0) -> bool:
        """Returns whether that many further appends were called and have ended, with whichever result."""
        return self._wait(count, within_s, lambda one: True)

    def _wait(self, count: int, within_s: float, wanted: Callable[[AppendCall], bool]) -> bool:
        seen, begin = len(self.history.appends), time.monotonic()
        while time.monotonic() < begin + within_s:
            latest = self.history.appends[seen:]
            if sum(one.called >= begin and wanted(one) for one in latest) >= count:
                return True
            time.sleep(LOOK_S)
        return False


def _expect_success(answer: Answer) -> None:
    """Any other answer leaves it open whether the call had an effect."""
    if answer.code != ResponseCode.SUCCESS:
        raise Refusal(f"answered with {answer.code}: {answer.remark}")
