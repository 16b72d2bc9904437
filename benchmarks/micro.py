"""`python -m benchmarks.micro [NAME...]`: measures the steps of a send and a pull one by one.

Thread CPU time, so that other processes on the cores matter little. All steps are measured in turn, many
times over; median and minimum of the rounds are reported. A round of a step takes milliseconds. Caches are
warm: compare a step with itself on another day, not with a profile.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from turbopump.auth.access import Source, UserAccess
from turbopump.auth.account_access import AccountAccess
from turbopump.auth.accounts import read_accounts
from turbopump.auth.book import UserBook
from turbopump.auth.needs import needs_of
from turbopump.auth.signature import Credentials
from turbopump.broker.config import BrokerConfig, ListenConfig, NameServerConfig
from turbopump.broker.server import Broker
from turbopump.compiled import twins
from turbopump.guard.failures import FailedSignatures, SignedNames
from turbopump.guard.quotas import UserQuotas
from turbopump.guard.signed_sends import SignedSends
from turbopump.protocol import command, frame, ids, properties, record
from turbopump.protocol.bodies import AclEntry, AclInfo, AclPolicy, UserInfo
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.frame import Frame
from turbopump.protocol.hashing import index_hash
from turbopump.protocol.headers.send import SEND_V2_DECODER
from turbopump.remoting.connection import Connection
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.runtime.network import ProtocolFactory
from turbopump.store.append import Draft
from turbopump.store.config import StoreConfig
from turbopump.store.store import Store

from .generator import CACHE
from .report import sends as sends_by

BATCH = 64  # frames of a read event, as with 64 requests in flight
PULL = 32
TOPIC = "micro"
BODY = b"a" * 1024
HOST = ids.pack_host("127.0.0.1", 10911)
ROUND_NS = 4_000_000
EVENTS = 256  # different read events, so that no cache holds all their keys
PROPERTIES = "UNIQ_KEY\x017F0000012B674E0E2F2A%012X\x02WAIT\x01true\x02TAGS\x01TagA\x02"
KEYED = "KEYS\x01order_%012X\x02" + PROPERTIES
SEND = (
    '{"code":310,"extFields":{"a":"BENCH","b":"micro","c":"TBW102","d":"4","e":"%d","f":"0","g":"1700000000000",'
    '"h":"0","i":"%s","j":"0","k":"false","m":"false","n":"broker-a"},"flag":0,"language":"JAVA","opaque":%d,'
    '"serializeTypeCurrentRPC":"JSON","version":513}'
)


@dataclass(frozen=True)
class Step:
    """Work to be timed: `run` does it `per` times."""

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
        async with store_in(home / "store") as store, broker_in(home / "broker") as connect:
            steps = [
                *protocol_steps(),
                *access_steps(),
                *signed_steps(),
                *store_steps(store),
                *event_steps(connect),
            ]
            steps = [step for step in steps if not names or any(name in step.name for name in names)]
            costs: dict[str, list[float]] = {step.name: [] for step in steps}
            for _ in range(rounds):
                for step in steps:
                    costs[step.name].append(cost_ns(step))
                    await asyncio.sleep(0)  # the store's own work
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(f"sends: {sends_by()}\n{'step':44} {'median ns':>10} {'minimum ns':>10}")
    for name, found in costs.items():
        print(f"{name:44} {statistics.median(found):10,.0f} {min(found):10,.0f}")


def cost_ns(step: Step) -> float:
    clock = time.thread_time_ns
    calls, began = 0, clock()
    while (spent := clock() - began) < ROUND_NS:
        step.run()
        calls += 1
    return spent / (calls * step.per)


# Protocol


def protocol_steps() -> Iterator[Step]:
    frames, text = sends(BATCH, PROPERTIES), PROPERTIES % 1
    event = packed(frames)
    yield Step("frame.cut", BATCH, lambda: frame.cut(event, []))
    yield Step("command.decode", 1, lambda: command.decode(frames[0]))
    yield Step("header of a send, typed", 1, lambda: SEND_V2_DECODER.decode(frames[0][1]))
    yield Step("properties.parse", 1, lambda: properties.parse(text))
    yield Step("record.crc31 of 1 KiB", 1, lambda: record.crc31(BODY))
    request = command.decode(frames[0])
    answer = command.reply(request, 0, None, {"queueId": "1"})
    yield Step("command.encode of an answer", 1, lambda: command.encode(answer))


# Access control


def access_steps() -> Iterator[Step]:
    """Steps of access control for plain sends, each decoded by itself: all that it costs beyond decoding."""
    entry = AclEntry(resource=f"Topic:{TOPIC}", actions=["Pub"], decision="Allow")
    book = UserBook().created("client", UserInfo(password="12345678"), by_super=True)
    acl = AclInfo(policies=[AclPolicy(entries=[entry])])
    access, source = UserAccess(book.granted("User:client", acl, by_super=True)), Source("127.0.0.1")
    client, cluster = Credentials("client", "12345678"), "DefaultCluster"
    requests = [command.decode(one) for one in sends(BATCH, PROPERTIES)]
    for request in requests:
        request.ext = client.signed(request.ext, request.body)
    requests = [command.decode(one) for one in frames_of(map(command.encode, requests))]
    identity, needs = access.identify(requests[0], source), needs_of(requests[0], cluster)

    def check() -> None:
        for request in requests:
            access.authorize(access.identify(request, source), needs_of(request, cluster), source, 310)

    yield Step("access control of a send", BATCH, check)
    yield Step("  identify", BATCH, lambda: [access.identify(request, source) for request in requests])
    yield Step("  needs_of", BATCH, lambda: [needs_of(request, cluster) for request in requests])
    yield Step("  authorize", BATCH, lambda: [access.authorize(identity, needs, source) for _ in requests])


def signed_steps() -> Iterator[Step]:
    """The whole check of signed plain sends that are stored together, with users and with accounts."""
    compiled = twins()
    if compiled is None:
        return
    entry = AclEntry(resource=f"Topic:{TOPIC}", actions=["Pub"], decision="Allow")
    book = UserBook().created("client-1", UserInfo(password="12345678"), by_super=True)
    acl = AclInfo(policies=[AclPolicy(entries=[entry])])
    users = UserAccess(book.granted("User:client-1", acl, by_super=True))
    account = {"accessKey": "client-1", "secretKey": "12345678", "topicPerms": [f"{TOPIC}=PUB"]}
    white = ["10.1.2.*", "10.9.9.9"]
    accounts = AccountAccess(read_accounts({"accounts": [account], "globalWhiteRemoteAddresses": white}))
    requests = [command.decode(one) for one in sends(BATCH, PROPERTIES)]
    for request in requests:
        request.ext = Credentials("client-1", "12345678").signed(request.ext, request.body)
    event = b"".join(map(command.encode, requests))
    connection, shown, source = cast(Connection, None), SignedNames(), Source("127.0.0.1")
    for name, access in (("users", users), ("accounts and white addresses", accounts)):
        checks = SignedSends(
            compiled.signed_send, lambda access=access: access, "C", FailedSignatures(), UserQuotas({})
        )
        assert checks.prefix(connection, event, source, shown, 0.0) == len(event), "all of them pass"

        def check(checks: SignedSends = checks) -> None:
            checks.prefix(connection, event, source, shown, 0.0)

        yield Step(f"signed send of 1 KiB, {name}", BATCH, check)


def frames_of(packed_frames: Iterable[bytes]) -> list[Frame]:
    found: list[Frame] = []
    frame.cut(b"".join(packed_frames), found)
    return found


# Store


@asynccontextmanager
async def store_in(home: Path) -> AsyncIterator[Store]:
    workers = SystemWorkers()
    store = Store.open(StoreConfig(root_dir=str(home)), SystemDisk(), SystemClock(), workers)
    store.log.store_host = HOST
    await store.start()
    try:
        yield store
    finally:
        await store.close()
        workers.close()


def store_steps(store: Store) -> Iterator[Step]:
    queues = [store.queues.queue(TOPIC, number) for number in range(4)]
    stored = (PROPERTIES % 1).encode()
    serial = count()

    def draft() -> Draft:
        number = next(serial)
        unique_key = f"7F0000012B674E0E2F2A{number:012X}"
        return Draft(
            queues[number % 4], BODY, stored, 0, 0, 1_700_000_000_000, HOST, 2598919, unique_key, "", 0
        )

    def append() -> None:
        store.log.append([draft() for _ in range(BATCH)])

    yield Step("Draft", 1, draft)
    yield Step("Draft + store.append", BATCH, append)
    for _ in range(32):
        append()
    turn = count()

    def get() -> object:
        return store.reader.get(queues[0], next(turn) % 14 * PULL, PULL, 262_144, None).body

    yield Step(f"store.get of {PULL}, each message", PULL, get)
    index, first = store.index, count(1)
    assert index is not None

    def put_many() -> None:
        start = next(first) * BATCH
        keys = range(start, start + BATCH)
        index.put_many((key, 1_700_000_000_000, index_hash(f"micro#{key}")) for key in keys)

    yield Step("index_hash + index.put_many", BATCH, put_many)


# The whole broker except the socket: bytes of a read event in, bytes of its answers out


class ListeningNetwork:
    """A network that keeps the factories of listeners and refuses every connection."""

    def __init__(self) -> None:
        self.factories: list[ProtocolFactory] = []

    async def listen(self, factory: ProtocolFactory, host: str, port: int) -> Any:
        self.factories.append(factory)
        return SimpleNamespace(port=port, close=lambda: None)

    async def connect(self, factory: ProtocolFactory, host: str, port: int) -> asyncio.Protocol:
        raise OSError("this network has no peers")

    async def resolve(self, host: str) -> str:
        return host


class Wire(asyncio.Transport):
    """A transport that keeps the last write and never pauses its writer."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 50_000), "sockname": ("127.0.0.1", 10_911)})
        self.last = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.last = bytes(data)

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


Connect = Callable[[], tuple[asyncio.Protocol, Wire]]


@asynccontextmanager
async def broker_in(home: Path) -> AsyncIterator[Connect]:
    network, workers = ListeningNetwork(), SystemWorkers()
    config = BrokerConfig(
        listening=ListenConfig(bind_address="127.0.0.1", advertised_address="127.0.0.1"),
        name_servers=NameServerConfig(),
        store=StoreConfig(root_dir=str(home)),
    )
    broker = Broker(config, network, SystemClock(), SystemDisk(), workers, Chance())
    await broker.start()

    connected: list[asyncio.Protocol] = []

    def connect() -> tuple[asyncio.Protocol, Wire]:
        protocol, wire = network.factories[0](), Wire()
        protocol.connection_made(wire)
        connected.append(protocol)
        return protocol, wire

    try:
        yield connect
    finally:
        for protocol in connected:
            protocol.connection_lost(None)
        await broker.stop()
        workers.close()


def event_steps(connect: Connect) -> Iterator[Step]:
    def step(name: str, per: int, events: list[bytes]) -> Step:
        protocol, wire = connect()
        turn = count()

        def run() -> None:
            protocol.data_received(events[next(turn) % len(events)])

        run()
        assert b'"code":0' in wire.last, wire.last
        return Step(name, per, run)

    connect()[0].data_received(packed(sends(1, PROPERTIES)))  # creates the topic
    for name, text in (("plain", PROPERTIES), ("keyed", KEYED)):
        for batch in (BATCH, 1):
            events = [packed(sends(batch, text, number * batch)) for number in range(EVENTS)]
            yield step(f"read event of {batch} {name} sends, each", batch, events)
    connect()[0].data_received(packed(sends(BATCH * 16, PROPERTIES)))
    yield step(
        f"read event of a pull of {PULL}, each message", PULL, [pull(offset) for offset in range(0, 128, 8)]
    )


def sends(number: int, properties_text: str, first: int = 0) -> list[Frame]:
    """Frames of plain sends, as `cut` gives them."""
    out: list[Frame] = []
    for serial in range(first, first + number):
        text = properties_text % ((serial,) * properties_text.count("%"))
        text = text.replace("\x01", "\\u0001").replace("\x02", "\\u0002")
        out.append((frame.JSON, (SEND % (serial % 4, text, serial)).encode(), BODY))
    return out


def pull(offset: int) -> bytes:
    fields = {"consumerGroup": "BENCH", "topic": TOPIC, "queueId": "0", "queueOffset": str(offset)}
    fields |= {"maxMsgNums": str(PULL), "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "15000"}
    fields |= {"subscription": "*", "subVersion": "0", "expressionType": "TAG"}
    return command.encode(command.Command(RequestCode.PULL_MESSAGE, 7, language="JAVA", ext=fields))


def packed(frames: list[Frame]) -> bytes:
    return b"".join(frame.pack(*one) for one in frames)


if __name__ == "__main__":
    main()
