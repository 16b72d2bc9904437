"""Measures how fast our Python push consumer empties a backlog of 1 KiB messages, one process.

`python -m benchmarks.client_consumes [--messages N] [--handler async] [--loop asyncio]` starts a broker of
ours in a process of its own; `--name-servers` measures against another cluster. For each kind of handler it
prints messages per second and the CPU time of the client per message. The first tenth of the messages warms
the client up and is not counted.

Imports public names alone, so that `benchmarks.paired` can run it with another checkout of the client.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import time
from collections.abc import Callable

from turbopump.aio import ConsumeFromWhere, Consumer, Message, MessageExt, Producer

from .client_sends import BODY, LOOPS, loop_factory, our_broker

TOPIC = "ClientConsumes"
BATCH = 32
FILL_BATCH = 512
MAX_MEASURE_S = 120.0


class Counter:
    """Counts messages and bytes for a handler, and takes the time from message `warm` to the last one."""

    def __init__(self, warm: int, messages: int) -> None:
        self.warm, self.messages = warm, messages
        self.seen = self.bytes = 0
        self.began = self.spent = self.seconds = 0.0
        self.enough = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def count(self, message: MessageExt) -> None:
        self.bytes += len(message.body)
        self.seen += 1
        if self.seen == self.warm:
            self.began, self.spent = time.perf_counter(), time.process_time()
        elif self.seen == self.messages:
            self.seconds = time.perf_counter() - self.began
            self.spent = time.process_time() - self.spent
            self._loop.call_soon_threadsafe(self.enough.set)

    def count_all(self, messages: list[MessageExt]) -> None:
        for message in messages:
            self.count(message)


def handle_async(consumer: Consumer, topic: str, counter: Counter) -> None:
    @consumer.on(topic)
    async def handle(message: MessageExt) -> None:
        counter.count(message)


def handle_one(consumer: Consumer, topic: str, counter: Counter) -> None:
    consumer.subscribe(topic, counter.count)


def handle_batch(consumer: Consumer, topic: str, counter: Counter) -> None:
    consumer.subscribe(topic, counter.count_all, batch=BATCH)


def handle_ordered(consumer: Consumer, topic: str, counter: Counter) -> None:
    @consumer.on(topic, ordered=True)
    async def handle(message: MessageExt) -> None:
        counter.count(message)


HANDLERS: dict[str, Callable[[Consumer, str, Counter], None]] = {
    "async": handle_async,
    "batch": handle_batch,
    "one": handle_one,
    "ordered": handle_ordered,
}
LABELS = {
    "async": "async def",
    "batch": f"def, batches of {BATCH}",
    "one": "def, one by one",
    "ordered": "async def, ordered",
}


def main() -> None:
    options = arguments().parse_args()
    with contextlib.ExitStack() as stack:
        where = options.name_servers or stack.enter_context(our_broker())
        with asyncio.Runner(loop_factory=loop_factory(options.loop)) as runner:
            if not options.filled:
                runner.run(fill(where, options.topic, options.messages))
            for number in range(options.rounds):
                for kind in options.handler or HANDLERS:
                    with profiled(options.profile):
                        print(
                            runner.run(measure(where, options.topic, kind, number, options.messages)),
                            flush=True,
                        )


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.client_consumes", description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000, help="number of messages, of 1 KiB each")
    parser.add_argument(
        "--handler", action="append", choices=HANDLERS, help="only this kind (may be repeated)"
    )
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--loop", choices=LOOPS, default="uvloop", help="event loop")
    parser.add_argument("--topic", default=TOPIC)
    parser.add_argument("--filled", action="store_true", help="the topic has its messages already")
    parser.add_argument("--name-servers", help="address of a cluster that is running already")
    parser.add_argument("--profile", action="store_true", help="print where the time goes, by function")
    return parser


async def fill(name_servers: str, topic: str, messages: int) -> None:
    async with Producer("bench", name_servers=name_servers) as producer:
        await producer.send(Message(topic, BODY, "bench"))
        for start in range(1, messages, FILL_BATCH):
            count = min(FILL_BATCH, messages - start)
            await producer.send_batch([Message(topic, BODY, "bench") for _ in range(count)])


async def measure(name_servers: str, topic: str, kind: str, number: int, messages: int) -> str:
    consumer = Consumer(
        f"bench-{kind}-{number}",
        name_servers=name_servers,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )
    counter = Counter(messages // 10, messages)
    HANDLERS[kind](consumer, topic, counter)
    async with consumer, asyncio.timeout(MAX_MEASURE_S):
        await counter.enough.wait()
    counted = messages - messages // 10
    rate, cpu_us = counted / counter.seconds, counter.spent / counted * 1e6
    return f"{LABELS[kind]:22} {rate:10,.0f} messages/s, {cpu_us:6.2f} us CPU each"


@contextlib.contextmanager
def profiled(wanted: bool):  # type: ignore[no-untyped-def]
    if not wanted:
        yield
        return
    with cProfile.Profile(time.process_time) as profile:
        yield
    profile.print_stats("tottime")


if __name__ == "__main__":
    main()
