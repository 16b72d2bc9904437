"""Traces walks of the broker: `python -m scripts.tree.broker_walks --src PATH` prints JSON.

The server runs in the main thread, which is traced; a second thread asks it. Called by `walks.py` with the
tree to be traced first on PYTHONPATH.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.tree.peer import (
    COMMIT,
    END_TRANSACTION,
    GROUP,
    HALF,
    PULL,
    SEND,
    TOPIC_STATS,
    Peer,
    broker_port,
    free_port,
    message,
    pull,
    up,
)
from scripts.tree.recorder import QUIET_S, ROUNDS, Recorder, Walk, common, package_of

MAX_QUIET_WAIT_S = 2.0
LONG_WALK_S = 0.5
IDLE_ROUNDS = 3
BODY = b"x" * 1024

# Work that goes on by itself is put off, so that a walk shows what the request set off.
PUT_OFF = {
    "TURBOPUMP_FLUSH_INTERVAL_COMMIT_LOG": "600000",
    "TURBOPUMP_FLUSH_INTERVAL_CONSUME_QUEUE": "600000",
    "TURBOPUMP_FLUSH_CONSUMER_OFFSET_INTERVAL": "600000",
    "TURBOPUMP_FLUSH_DELAY_OFFSET_INTERVAL": "600000",
    "TURBOPUMP_CLEAN_RESOURCE_INTERVAL": "600000",
    "TURBOPUMP_TIMER_FLUSH_INTERVAL_MS": "600000",
    "TURBOPUMP_BROKER_FAST_FAILURE_ENABLE": "false",  # no refusals on a busy machine
}


def main() -> None:
    package = package_of(sys.argv)
    recorder = Recorder(str(package))
    with tempfile.TemporaryDirectory(prefix="turbopump-walks-") as home:
        walks = traced(recorder, Path(home))
    print(json.dumps({name: walk.figures(package) for name, walk in walks.items()}))


def traced(recorder: Recorder, home: Path) -> dict[str, Walk]:
    os.environ.update(PUT_OFF)
    from turbopump.cli.main import main as turbopump

    namesrv_port = free_port()
    found: dict[str, Walk] = {}
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            asker = Asker(recorder, broker_port(namesrv_port))
            found.update({name: asker.walk(*steps) for name, steps in WALKS.items()})
        except BaseException as failure:
            failures.append(failure)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask)
    recorder.install()
    with contextlib.redirect_stdout(io.StringIO()):
        asking.start()
        turbopump(up(home, namesrv_port))
        asking.join()
    recorder.uninstall()
    if failures:
        raise failures[0]
    return found


class Asker:
    """Puts the scenarios to a broker and records its side of them."""

    def __init__(self, recorder: Recorder, port: int) -> None:
        self._recorder = recorder
        self._producer, self._consumer = Peer(port), Peer(port)
        self._ends: dict[str, int] = {}  # of queue 0 of each topic

    def walk(self, prepare: Step, act: Step) -> Walk:
        """Repeats a scenario. The first round, which creates topics and opens files, does not count."""
        topic = f"walks-{act.__name__}"
        rounds, took_s = [], 0.0
        for number in range(ROUNDS + 1):
            # Rounds as long as the period of a background task would all see it.
            time.sleep(number * QUIET_S / 2)
            prepare(self, topic)
            self._settle()
            self._recorder.begin()
            began = time.monotonic()
            act(self, topic)
            self._settle()
            took_s = time.monotonic() - began
            rounds.append(self._recorder.end())
        walk = common(rounds[1:])
        return walk.without(self._idle(took_s)) if took_s > LONG_WALK_S else walk

    def _idle(self, seconds: float) -> Walk:
        rounds = []
        for _ in range(IDLE_ROUNDS):
            self._recorder.begin()
            time.sleep(seconds)
            rounds.append(self._recorder.end())
        return common(rounds)

    def _settle(self) -> None:
        """Waits until the broker has nothing more to do."""
        deadline = time.monotonic() + MAX_QUIET_WAIT_S
        time.sleep(QUIET_S)
        while self._recorder.quiet_s < QUIET_S and time.monotonic() < deadline:
            time.sleep(QUIET_S / 3)

    # steps that come before a walk

    def create(self, topic: str) -> None:
        """Creates the topic by a first message."""
        if topic not in self._ends:
            self._send(topic)
            self._ends[topic] = 1

    def park(self, topic: str) -> None:
        """Leaves a pull at the end of the queue, where it waits for the next message."""
        self.create(topic)
        self._consumer.send(PULL, **pull(topic, self._ends[topic]))

    # walks

    def plain_send(self, topic: str) -> None:
        self._send(topic)
        self._woken(topic)

    def general_send(self, topic: str) -> None:
        self._send(topic, HALF, TRAN_MSG="true", PGROUP=GROUP)

    def pull(self, topic: str) -> None:
        self._consumer.ask(PULL, **pull(topic, 0))
        assert self._consumer.body

    def delayed(self, topic: str) -> None:
        self._send(topic, DELAY="1")
        self._woken(topic)

    def transaction(self, topic: str) -> None:
        half = self._send(topic, HALF, TRAN_MSG="true", PGROUP=GROUP)["extFields"]
        self._producer.ask(
            END_TRANSACTION,
            producerGroup=GROUP,
            tranStateTableOffset=half["queueOffset"],
            commitLogOffset=int(half["msgId"][16:], 16),
            commitOrRollback=COMMIT,
            msgId=half["transactionId"],
            transactionId=half["transactionId"],
            fromTransactionCheck="false",
        )
        self._woken(topic)

    def admin_request(self, topic: str) -> None:
        self._producer.ask(TOPIC_STATS, topic=topic)

    def _send(self, topic: str, sys_flag: int = 0, **properties: str) -> dict[str, Any]:
        return self._producer.ask(SEND, BODY, **message(topic, sys_flag, **properties))

    def _woken(self, topic: str) -> None:
        head, body = self._consumer.receive()
        assert head["code"] == 0, head
        assert body, head
        self._ends[topic] = int(head["extFields"]["nextBeginOffset"])


Step = Callable[[Asker, str], None]

WALKS: dict[str, tuple[Step, Step]] = {
    "plain send to woken pull": (Asker.park, Asker.plain_send),
    "general send (half message)": (Asker.create, Asker.general_send),
    "pull": (Asker.create, Asker.pull),
    "delayed message, send to delivery": (Asker.park, Asker.delayed),
    "transaction, half to commit": (Asker.park, Asker.transaction),
    "admin request (topic statistics)": (Asker.create, Asker.admin_request),
}


if __name__ == "__main__":
    main()
