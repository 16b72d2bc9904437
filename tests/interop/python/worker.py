"""Sends and consumes until it is told to end, or killed, as Worker.java does; workers.py reads what it wrote.

Usage: worker.py NAMESRV DIRECTORY JOB..., jobs as workers.py describes them. EVERY_MS in the environment:
how often it asks for routes and commits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from turbopump import (
    ConsumeFromWhere,
    Consumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    SendResult,
    SendStatus,
)

AGAIN_S = 0.1
WORKERS = 4
EVERY_MS = os.environ.get("EVERY_MS")
SEND_TIMEOUT_S = os.environ.get("SEND_TIMEOUT_S")
REPEATED = ("keyed",)  # modes that try again until it is stored


def main(namesrv: str, directory: str, *jobs: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    with contextlib.ExitStack() as clients:
        for job in jobs:
            verb, name, *words = job.split(":")
            log = Log(Path(directory) / f"{name}.log")
            if verb == "produce":
                topic, keys, interval_ms, mode = words
                producer = clients.enter_context(
                    Producer(name, name_servers=namesrv, instance_name=name, **intervals(), **timeout())
                )
                sending = Sending(producer, log, name, topic, mode, told)
                load = threading.Thread(target=sending.run, args=(int(keys), int(interval_ms) / 1000))
                load.start()
                clients.callback(load.join)
            else:
                group, topic, mode = words
                clients.enter_context(consumer(name, namesrv, group, topic, mode, log))
        print("working", flush=True)
        told.wait()


class Sending:
    def __init__(
        self, producer: Producer, log: Log, name: str, topic: str, mode: str, ending: threading.Event
    ) -> None:
        self._producer = producer
        self._log = log
        self._name = name
        self._topic = topic
        self._mode = mode
        self._ending = ending

    def run(self, keys: int, interval_s: float) -> None:
        sequence = number = 0
        while not self._ending.is_set():
            sequence = max(sequence + 1, micros())  # larger than any before, over restarts too
            self._send(f"{self._name}-{number % keys}", sequence, number % keys)
            number += 1
            self._ending.wait(interval_s)

    def _send(self, key: str, sequence: int, which: int) -> None:
        message = Message(self._topic, f"{key} {sequence}".encode(), keys=key)
        while not self._ending.is_set():
            try:
                if self._send_once(message, key, sequence, which):
                    return
            except Exception as failed:
                self._log.line("failed", key, sequence, type(failed).__name__)
                if self._mode not in REPEATED:
                    return
            self._ending.wait(AGAIN_S)

    def _send_once(self, message: Message, key: str, sequence: int, which: int) -> bool:
        """Whether that is the end of it."""

        def by_number(queues: Sequence[MessageQueue], _: Message) -> MessageQueue:
            return queues[which % len(queues)]

        if self._mode in ("keyed", "strict"):
            stored = self._acknowledged(key, sequence, self._producer.send(message, select=by_number))
            return stored or self._mode == "strict"
        if self._mode == "sync":
            self._acknowledged(key, sequence, self._producer.send(message))
        elif self._mode == "async":
            self._producer.send_async(message).add_done_callback(
                lambda future: self._later(key, sequence, future)
            )
        else:
            self._producer.send_oneway(message)
            self._log.line("sent", key, sequence)
        return True

    def _later(self, key: str, sequence: int, future: Future[SendResult]) -> None:
        if error := future.exception():
            self._log.line("failed", key, sequence, type(error).__name__)
        else:
            self._acknowledged(key, sequence, future.result())

    def _acknowledged(self, key: str, sequence: int, result: SendResult) -> bool:
        stored = result.status is SendStatus.SEND_OK
        verb = "acknowledged" if stored else "failed"
        self._log.line(verb, key, sequence, result.queue.broker, result.queue.id, result.offset)
        return stored


def consumer(name: str, namesrv: str, group: str, topic: str, mode: str, log: Log) -> Consumer:
    made = Consumer(
        group,
        name_servers=namesrv,
        instance_name=name,
        **intervals(),
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_thread_min=WORKERS,
        consume_thread_max=WORKERS,
    )

    @made.on(topic, ordered=mode == "ordered")
    def got(message: MessageExt) -> None:
        key, sequence = message.text.split(" ")
        where = message.queue
        log.line("got", key, sequence, where.broker, where.id, message.offset, message.reconsume_times)

    return made


def intervals() -> dict[str, float]:
    """Returns the settings that EVERY_MS changes."""
    if EVERY_MS is None:
        return {}
    every_s = int(EVERY_MS) / 1000
    return {"poll_name_server_interval": every_s, "persist_consumer_offset_interval": every_s}


def timeout() -> dict[str, float]:
    """Returns the setting that SEND_TIMEOUT_S changes."""
    return {} if SEND_TIMEOUT_S is None else {"send_msg_timeout": float(SEND_TIMEOUT_S)}


def micros() -> int:
    return time.time_ns() // 1000


class Log:
    """A line is one write, so that a kill leaves whole lines, and leaves all that were written."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)

    def line(self, verb: str, *words: object) -> None:
        os.write(self._file, ("\t".join(map(str, (verb, micros(), *words))) + "\n").encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
