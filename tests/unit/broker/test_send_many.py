"""The many-at-once path gives the bytes of the general one: the same answers, the same log."""

import contextlib
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.broker.desk import CONFIG, SMALL_STORE, letters

from turbopump.broker.groups import Groups
from turbopump.broker.receipt import Receipts
from turbopump.broker.schedule import Schedule
from turbopump.broker.send import Sending, SendRules
from turbopump.broker.send_many import SendMany
from turbopump.broker.topics import Topic, Topics
from turbopump.broker.traffic import Traffic
from turbopump.protocol import properties
from turbopump.protocol.errors import BrokenFrame
from turbopump.protocol.frame import JSON, Frame
from turbopump.remoting.connection import Connection
from turbopump.remoting.limits import Limits, Seldom, Unfinished
from turbopump.remoting.router import Router
from turbopump.runtime.chance import Chance
from turbopump.store.store import Store
from turbopump.testing.disk import SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock, run_virtual

LONG_NAMES = dict(
    zip(
        "abcdefghijklm",
        (
            *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag"),
            *(
                "bornTimestamp",
                "flag",
                "properties",
                "reconsumeTimes",
                "unitMode",
                "maxReconsumeTimes",
                "batch",
            ),
        ),
        strict=True,
    )
)


class Bench:
    """The sending parts of a broker over a store of their own, and what they answered."""

    def __init__(self) -> None:
        clock = VirtualClock()
        disk = SimulatedDisk(Chance(1), clock)
        self.disk = disk
        self.store = Store.open(SMALL_STORE, disk, clock, SimulatedWorkers(disk))
        self.store.store_host = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
        topics = Topics(CONFIG.topics, CONFIG.identity, clock)
        topics.update(Topic("T", 4, 4), {})
        topics.update(Topic("Multi", 1, 1, filter_type="MULTI_TAG"), {})
        receipts = Receipts(self.store.store_host, "DefaultRegion", True)
        rules = SendRules("127.0.0.1", "DefaultCluster", "DefaultRegion", True, 4 << 20)
        numbers = iter(range(1_000_000))
        sending = Sending(
            self.store,
            topics,
            Groups(CONFIG.groups, clock),
            receipts,
            rules,
            clock,
            Chance(1),
            lambda: f"GENERATED{next(numbers)}",
            Traffic(clock),
            Schedule(self.store),
        )
        self.router = Router(sending.routes())
        self.many = SendMany(self.store, topics, sending, receipts, self.router, 4 << 20)
        self.connection = Recorder()

    def log(self) -> bytes:
        return b"".join(
            bytes(self.disk.open_mapped(f"/store/commitlog/{entry.name}").buffer)
            for entry in self.disk.entries("/store/commitlog")
        )


class Recorder(Connection):
    def __init__(self) -> None:
        limits = Limits()
        super().__init__(lambda connection, frames: None, limits, Unfinished(), Seldom(None, 1))  # type: ignore[arg-type]
        self.peer = ("127.0.0.1", 4711)
        self.peer_host = bytes((127, 0, 0, 1, 0, 0, 0x12, 0x67))
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data


def frame(code: int, ext: dict[str, Any], body: bytes, opaque: int, flag: int = 0) -> Frame:
    if code == 10:
        ext = {LONG_NAMES[letter]: value for letter, value in ext.items()}
    head = {
        "code": code,
        "extFields": {name: str(value) for name, value in ext.items() if value is not None},
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
    }
    return JSON, msgspec.json.encode(head), body


names = st.sampled_from(
    ["UNIQ_KEY", "TAGS", "KEYS", "WAIT", "own", "CLUSTER", "DELAY", "TRAN_MSG", "POP_CK", "名"]
)
values = st.sampled_from(["", "A", "false", "true", "7F000001000100000000000000000001", "a b", 'quo"te', "Ü"])
property_texts = st.one_of(
    st.just("UNIQ_KEY\x017F000001000100000000000000000001\x02WAIT\x01true\x02"),
    st.dictionaries(names, values, max_size=4).map(properties.pack),
    st.lists(st.tuples(names, values), max_size=4).map(
        lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs)
    ),
    st.none(),
)


@st.composite
def sends(draw: st.DrawFn) -> tuple[int, dict[str, Any], bytes, int]:
    topics = ["T", "T", "T", "Multi", "Unknown", "bad topic", "SELF_TEST_TOPIC", "%RETRY%G", "TBW102"]
    ext = letters(draw(st.sampled_from(topics)), draw(st.integers(-2, 5)))
    ext["i"] = draw(property_texts)
    ext["j"] = draw(st.sampled_from([0, 1, 17, None]))
    ext["f"] = draw(st.sampled_from([0, 1, 4, 769]))
    ext["m"] = draw(st.sampled_from(["false", "false", "true", None]))
    ext["g"] = draw(st.sampled_from([1_794_732_388_420, "junk", -1]))
    body = draw(st.sampled_from([b"", b"x", b"y" * 1024]))
    return draw(st.sampled_from([10, 310])), ext, body, draw(st.sampled_from([0, 2]))


@settings(max_examples=150, deadline=None)
@given(st.lists(sends(), min_size=1, max_size=8))
def test_both_paths_answer_and_store_the_same_bytes(
    requests: list[tuple[int, dict[str, Any], bytes, int]],
) -> None:
    frames = [frame(code, ext, body, at, flag) for at, (code, ext, body, flag) in enumerate(requests)]

    async def compare() -> None:
        fast, general = Bench(), Bench()
        fast.many.serve(fast.connection, list(frames))
        general.router.serve(general.connection, list(frames))
        assert fast.connection.written == general.connection.written
        assert fast.log() == general.log()

    run_virtual(compare())


def test_a_header_that_cannot_be_read_does_not_take_its_neighbours_along() -> None:
    """One broken frame closes the connection, but the sends before it are stored and answered."""
    good = frame(310, letters("T"), b"kept", 1)
    broken = [
        (JSON, good[1].replace(b'"PG"', b'"\xff\xfe"').replace(b'"T"', b'"\xff"'), b"x"),
        (JSON, b'{"code":310,"extFields":' + b"[" * 100_000, b"x"),
    ]

    async def check() -> None:
        for bad in broken:
            bench = Bench()
            with contextlib.suppress(BrokenFrame):
                bench.many.serve(bench.connection, [good, bad])
            assert bench.connection.written.count(b'"code":0') == 1
            assert b"kept" in bench.log()

    run_virtual(check())


def test_a_plain_send_takes_the_short_path() -> None:
    async def check() -> None:
        bench = Bench()
        bench.router = None  # type: ignore[assignment]
        bench.many._router = None  # type: ignore[assignment]
        bench.many.serve(
            bench.connection, [frame(310, letters("T"), b"x", 1), frame(10, letters("T"), b"x", 2)]
        )
        assert bench.connection.written.count(b'"code":0') == 2

    run_virtual(check())
