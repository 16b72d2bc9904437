"""`python -m benchmarks.micro [NAME...]`: what the steps of a send and a pull cost, one by one.

Thread CPU time, so that other processes on the cores matter little; all steps are measured in turn, many
times over, and the median of the rounds is reported beside the least. A round of a step takes milliseconds.
A step costs what it costs with warm caches: compare it with itself on another day, not with a profile.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from turbopump.broker.receipt import Receipts
from turbopump.broker.send import SendRules, _added_properties
from turbopump.broker.send_many import SendMany
from turbopump.protocol import command, frame, ids, properties, record
from turbopump.protocol.frame import Frame
from turbopump.protocol.hashing import index_hash
from turbopump.protocol.headers.send import SEND_V2_DECODER
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.store.config import StoreConfig
from turbopump.store.store import Draft, Store

from .generator import CACHE

BATCH = 64  # frames of a read event, as with 64 requests in flight
PULL = 32
BODY = b"a" * 1024
HOST = ids.pack_host("127.0.0.1", 10911)
ROUND_NS = 4_000_000
PROPERTIES = "UNIQ_KEY\x017F0000012B674E0E2F2A%012X\x02WAIT\x01true\x02TAGS\x01TagA\x02"
KEYED = "KEYS\x01order_%012X\x02" + PROPERTIES
HEADER = (
    '{"code":310,"extFields":{"a":"BENCH","b":"bench","c":"TBW102","d":"4","e":"%d","f":"0","g":"1700000000000",'
    '"h":"0","i":"%s","j":"0","k":"false","m":"false","n":"broker-a"},"flag":0,"language":"JAVA","opaque":%d,'
    '"serializeTypeCurrentRPC":"JSON","version":513}'
)


@dataclass(frozen=True)
class Step:
    """`run` does the work `per` times."""

    name: str
    per: int
    run: Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.micro", description=__doc__)
    parser.add_argument("names", nargs="*", help="only steps whose name contains one of these")
    parser.add_argument("--rounds", type=int, default=31)
    options = parser.parse_args()
    asyncio.run(measure(options.names, options.rounds))


async def measure(names: list[str], rounds: int) -> None:
    home = CACHE / "micro"
    shutil.rmtree(home, ignore_errors=True)
    try:
        async with opened(home) as store:
            steps = [
                step for step in all_steps(store) if not names or any(name in step.name for name in names)
            ]
            costs: dict[str, list[float]] = {step.name: [] for step in steps}
            for _ in range(rounds):
                for step in steps:
                    costs[step.name].append(cost_ns(step))
                    await asyncio.sleep(0)  # the store's own work
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(f"{'step':36} {'median ns':>10} {'least ns':>10}")
    for name, found in costs.items():
        print(f"{name:36} {statistics.median(found):10,.0f} {min(found):10,.0f}")


def cost_ns(step: Step) -> float:
    clock = time.thread_time_ns
    calls, began = 0, clock()
    while (spent := clock() - began) < ROUND_NS:
        step.run()
        calls += 1
    return spent / (calls * step.per)


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Store]:
    config = StoreConfig(root_dir=str(home))
    store = Store.open(config, SystemDisk(), SystemClock(), SystemWorkers())
    store.store_host = HOST
    await store.start()
    try:
        yield store
    finally:
        await store.close()


def all_steps(store: Store) -> Iterator[Step]:
    yield from protocol_steps()
    yield from store_steps(store)
    yield from send_steps(store)


def protocol_steps() -> Iterator[Step]:
    plain, text = requests(PROPERTIES), PROPERTIES % 1
    event = b"".join(frame.pack(*one) for one in plain)
    yield Step("frame.cut", BATCH, lambda: frame.cut(event, []))
    yield Step("command.decode", 1, lambda: command.decode(plain[0]))
    yield Step("header of a send, typed", 1, lambda: SEND_V2_DECODER.decode(plain[0][1]))
    yield Step("properties.parse", 1, lambda: properties.parse(text))
    yield Step("record.crc31 of 1 KiB", 1, lambda: record.crc31(BODY))
    request = command.decode(plain[0])
    yield Step(
        "command.reply + encode", 1, lambda: command.encode(command.reply(request, 0, None, {"queueId": "1"}))
    )


def store_steps(store: Store) -> Iterator[Step]:
    queues = [store.queue("micro", number) for number in range(4)]
    serial = count()

    def drafts() -> list[Draft]:
        return [draft(queues[number % 4], number) for number in range(BATCH)]

    def draft(queue: Any, number: int) -> Draft:
        unique = f"7F0000012B674E0E2F2A{next(serial):012X}"
        stored = (PROPERTIES % number).encode()
        return Draft(queue, BODY, stored, 0, 0, 1_700_000_000_000, HOST, 2598919, unique, "", 0)

    yield Step("making a Draft", BATCH, drafts)
    yield Step("making a Draft + store.append", BATCH, lambda: store.append(drafts()))
    for _ in range(32):
        store.append(drafts())
    offsets = count(0, PULL)
    yield Step(
        f"store.get of {PULL}, a message",
        PULL,
        lambda: store.get(queues[0], next(offsets) % 448, PULL, 262_144, None).body,
    )
    if (index := store.index) is not None:
        entries = count(1)

        def put_many() -> None:
            first = next(entries) * BATCH
            index.put_many(
                (first + n, 1_700_000_000_000, index_hash(f"micro#{first + n}")) for n in range(BATCH)
            )

        yield Step("index_hash + index.put_many", BATCH, put_many)


def send_steps(store: Store) -> Iterator[Step]:
    """The whole of a send but the socket: frames of a read event in, answers out."""
    rules = SendRules("127.0.0.1", "DefaultCluster", "DefaultRegion", True, 4_194_304)
    sending = SimpleNamespace(added=_added_properties(rules), append=store.append)
    topic = SimpleNamespace(read_queues=4, write_queues=4, perm=6, filter_type="SINGLE_TAG", order=False)
    topics = SimpleNamespace(find=lambda name: topic)
    receipts = Receipts(HOST, "DefaultRegion", True)
    answered: list[bytes] = []
    connection = cast(Any, SimpleNamespace(peer_host=HOST, saturated=False, write=answered.append))

    def refuse(_connection: object, one: Frame) -> None:
        raise AssertionError(f"not a plain send: {one[1]!r}")

    def serve(kind: str) -> Callable[[], None]:
        sends = SendMany(
            store,
            cast(Any, topics),
            cast(Any, sending),
            receipts,
            cast(Any, SimpleNamespace(one=refuse)),
            4_194_304,
        )
        serial = count()
        events = [requests(kind, next(serial) * BATCH) for _ in range(256)]  # more keys than anyone remembers
        turn = count()

        def run() -> None:
            sends.serve(connection, events[next(turn) % len(events)])
            answered.clear()

        return run

    yield Step("send_many.serve", BATCH, serve(PROPERTIES))
    yield Step("send_many.serve, keyed messages", BATCH, serve(KEYED))


def requests(properties_text: str, first: int = 0) -> list[Frame]:
    """Frames of plain sends, as `cut` gives them."""
    out: list[Frame] = []
    for number in range(first, first + BATCH):
        numbers = (number,) * properties_text.count("%")
        text = (properties_text % numbers).replace("\x01", "\\u0001").replace("\x02", "\\u0002")
        out.append((frame.JSON, (HEADER % (number % 4, text, number)).encode(), BODY))
    return out


if __name__ == "__main__":
    main()
