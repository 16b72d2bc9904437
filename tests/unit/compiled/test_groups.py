"""The compiled twin of group appends: which it handles, which it leaves to Python, with equal bytes."""

import os
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties import examples
from tests.unit.broker.desk import SMALL_STORE, letters
from tests.unit.broker.ledgers import LedgerBench
from tests.unit.broker.sends import Bench, frame
from tests.unit.store.lab import small

from turbopump.broker.topics import Topic
from turbopump.compiled import PURE, twins
from turbopump.protocol import batch, properties
from turbopump.protocol.frame import pack
from turbopump.protocol.record import decode_all
from turbopump.store.config import StoreConfig
from turbopump.store.flags import Reason

WANTED = bool(os.environ.get("CI")) and PURE not in os.environ  # in CI missing twins are a failure
pytestmark = pytest.mark.skipif(twins() is None and not WANTED, reason="the twins are not built")

Message = tuple[int, bytes, bytes]
KEYED = {"UNIQ_KEY": "A1", "KEYS": "order_1 order_2", "TAGS": "TagA", "own": "värde"}
WIDE = {"UNIQ_KEY": "Ü1", "KEYS": "名 𝄞", "TAGS": "名𝄞"}
PLACE = {"REAL_TOPIC": "T", "REAL_QID": "1"}


def message(body: bytes = b"x", flag: int = 0, **pairs: str) -> Message:
    return flag, body, properties.pack({"UNIQ_KEY": "U1", "WAIT": "true"} | pairs).encode()


def half(body: bytes = b"x", **pairs: str) -> Message:
    return message(body, 3, **(PLACE | pairs))


def send(*messages: Message, opaque: int = 1, **changes: Any) -> bytes:
    return pack(*frame(320, letters("T", m="true", **changes), batch.join(messages), opaque))


def benches(config: StoreConfig = SMALL_STORE) -> tuple[Bench, Bench]:
    found = Bench(twins(), config), Bench(None, config)
    for bench in found:
        bench.receive(send(message(b"the first makes the file")))
    return found


def ledgers(config: StoreConfig = SMALL_STORE) -> tuple[LedgerBench, LedgerBench]:
    found = LedgerBench(twins(), config), LedgerBench(None, config)
    for ledger in found:
        ledger.bench.receive(send(message(b"the first makes the file")))
    return found


def alone(bench: Bench) -> None:
    """Disables appends by Python."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("Python has appended it")

    bench.store.log.append = refuse  # type: ignore[method-assign]


# Batches


def test_a_plain_batch_is_taken_whole() -> None:
    compiled, pure = benches()
    alone(compiled)
    plain = [message(b"%d" % n, n, **KEYED | {"n": str(n)}) for n in range(99)]
    event = send(*plain, message(**WIDE), e=2, j=1, h=9)
    for bench in (compiled, pure):
        bench.receive(event)
    assert compiled.outcome() == pure.outcome()
    assert compiled.writer.traffic.together == {compiled.store.queues.queue("T", 2): 99}


def test_a_batch_to_a_topic_with_several_tags_is_marked_so() -> None:
    compiled, pure = benches()
    alone(compiled)
    for bench in (compiled, pure):
        bench.receive(send(message(TAGS="a||b"), message(), b="Multi"))
    assert compiled.outcome() == pure.outcome()


def test_whoever_waits_is_told_of_each_message_of_a_batch() -> None:
    told: list[list[tuple[int, int, int]]] = []
    for bench in benches():
        heard = bench.listen()
        bench.receive(send(message(), message(TAGS="a")))
        told.append(heard)
    assert told[0] == told[1]
    assert len(told[0]) == 2


LEFT: list[tuple[str, Message]] = [
    ("a delay", message(DELAY="1")),
    ("half of a transaction", message(TRAN_MSG="true")),
    ("a time of its own", message(TIMER_DELAY_SEC="1")),
    ("a light queue", message(INNER_MULTI_DISPATCH="%LMQ%a")),
    ("a tag that is no UTF-8", (0, b"x", b"TAGS\x01\xe5\x90\x02")),
    ("keys that are no UTF-8", (0, b"x", b"KEYS\x01a \xff\x02")),
    ("a name twice", (0, b"x", b"a\x01b\x02a\x01c\x02")),
    ("what is no pair", (0, b"x", b"TAGS\x02")),
    ("a string that does not end", (0, b"x", b"TAGS\x01A")),
    ("more pairs than it looks at", message(**{f"n{n}": "v" for n in range(64)})),
]


@pytest.mark.parametrize("odd", [odd for _, odd in LEFT], ids=[name for name, _ in LEFT])
def test_a_batch_with_a_message_that_is_not_plain_is_left_to_python(odd: Message) -> None:
    compiled, pure = benches()
    for bench in (compiled, pure):
        bench.receive(send(message(b"first"), odd, message(b"last")))
        bench.receive(send(message(b"next")))
    assert compiled.outcome() == pure.outcome()


def test_a_batch_without_room_in_the_file_begins_the_next_one() -> None:
    compiled, pure = benches(small())
    for number in range(60):
        event = send(*(message(bytes(number % 97 + 1)) for _ in range(number % 5 + 1)))
        for bench in (compiled, pure):
            bench.receive(event)
    assert compiled.store.log.end > 5 * 4096
    assert compiled.outcome() == pure.outcome()


def test_a_store_that_takes_nothing_refuses_a_batch_in_the_same_words() -> None:
    compiled, pure = benches()
    for bench in (compiled, pure):
        bench.store.flags.set(Reason.DISK_FULL, "[CL: 0.99]")
        bench.receive(send(message()))
    assert compiled.outcome() == pure.outcome()
    assert b"disk is full" in compiled.connection.written


names = st.sampled_from(
    ["UNIQ_KEY", "TAGS", "KEYS", "WAIT", "own", "DELAY", "INNER_NUM", "REAL_QID", "名", "TIMER_DELAY_SEC"]
)
values = st.sampled_from(["", "A", "false", "0", "1", "9", "a b", 'quo"te', "Ü", "名 𝄞", "x" * 300])
texts = st.one_of(
    st.just(properties.pack(KEYED)),
    st.dictionaries(names, values, max_size=4).map(properties.pack),
    st.lists(st.tuples(names, values), max_size=4).map(
        lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs)
    ),
).map(str.encode)
flags = st.integers(-(2**31), 2**31 - 1)
messages = st.tuples(flags, st.binary(max_size=40), texts)


@st.composite
def bodies(draw: st.DrawFn, one: st.SearchStrategy[Message] = messages) -> bytes:
    """Generates bodies of batches, some of them broken."""
    body = bytearray(batch.join(draw(st.lists(one, max_size=6))))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        if body:
            at = draw(st.integers(0, len(body) - 1))
            body[at] = draw(st.integers(0, 255))
    return bytes(body[: draw(st.sampled_from([len(body), len(body), max(0, len(body) - 3)]))])


@examples(100)
@given(
    st.lists(bodies(), min_size=1, max_size=4), st.sampled_from([0, 1, 16, 128, 4, -1]), st.integers(-1, 5)
)
def test_every_batch_is_the_same_to_both(bodies: list[bytes], sys_flag: int, queue_id: int) -> None:
    compiled, pure = benches()
    for body in bodies:
        event = pack(*frame(320, letters("T", m="true", f=sys_flag, e=queue_id), body, 5))
        for bench in (compiled, pure):
            bench.receive(event)
    assert compiled.outcome() == pure.outcome()


# Half messages


def test_half_messages_and_their_commit_are_taken_whole() -> None:
    compiled, pure = ledgers()
    alone(compiled.bench)
    rows = [half(b"%d" % n, REAL_QID=str(n % 4), **KEYED | {"n": str(n)}) for n in range(499)]
    rows.append(half(b"wide", **WIDE))
    for ledger in (compiled, pure):
        ledger.send(0, "a", batch.join(rows))
        ledger.send(0, "a", batch.join(rows[:7]))
        ledger.decide(0, "a")
        ledger.settle()
    assert compiled.outcome() == pure.outcome()
    assert compiled.answers[-1] == (507, 0)
    record = next(
        decode_all(compiled.bench.store.log.read(*compiled.bench.store.queues.queue("T", 1).entry(0)[:2]))
    )  # type: ignore[index, arg-type]
    assert (record.body, record.flag) == (b"1", 3)
    assert record.property_map().keys().isdisjoint({"REAL_TOPIC", "REAL_QID", "TURBOPUMP_TXN_TOKEN"})


def test_half_messages_with_a_time_are_left_to_python() -> None:
    compiled, pure = ledgers()
    times = ({}, {"DELAY": "3"}, {"TIMER_DELAY_SEC": "9"}, {"DELAY": "0"}, {"TIMER_DELIVER_MS": "5"})
    frames = [
        [half(b"%d" % n, **KEYED | times[n % 5]) for n in range(100)],
        [half(b"plain %d" % n) for n in range(100)],
        [half(b"delayed %d" % n, **WIDE, DELAY="99") for n in range(10)],
    ]
    for ledger in (compiled, pure):
        for rows in frames:
            ledger.send(0, "a", batch.join(rows))
        ledger.decide(0, "a")
        ledger.settle()
    assert compiled.outcome() == pure.outcome()
    assert compiled.answers[-1] == (210, 0)
    store = compiled.bench.store
    waiting = [("SCHEDULE_TOPIC_XXXX", 2), ("SCHEDULE_TOPIC_XXXX", 17), ("rmq_sys_wheel_timer", 0)]
    assert [store.queues.queue(*place).max_offset for place in waiting] == [20, 10, 20]


def test_properties_that_are_no_text_wait_as_they_are() -> None:
    """They do not grow, so a commit never fails."""
    compiled, pure = ledgers()
    odd = properties.pack(PLACE | {"UNIQ_KEY": "U", "DELAY": "99"}).encode() + b"own\x01" + b"\xff" * 30_000
    for ledger in (compiled, pure):
        ledger.send(0, "a", batch.join([(0, b"x", odd)]))
        ledger.decide(0, "a")
        ledger.settle()
    assert compiled.outcome() == pure.outcome()
    assert compiled.answers[-1] == (1, 0)


def test_losers_are_rolled_back_beside_winners() -> None:
    compiled, pure = ledgers()
    for ledger in (compiled, pure):
        for token in ("a", "b"):
            ledger.send(0, token, batch.join([half(token.encode())] * 3))
        ledger.decide(0, "b")
        ledger.settle()
    assert compiled.outcome() == pure.outcome()
    assert compiled.answers[-1] == (3, 3)


def _damaged(ledger: LedgerBench) -> None:
    """Flips a bit in the body of the first half record."""
    first = ledger.transactions.halves.first
    assert first is not None
    ledger.bench.store.commit_log.buffer[first.at + 88] ^= 1


def _renewed(ledger: LedgerBench) -> None:
    """Writes the first half record again."""
    first = ledger.transactions.halves.first
    assert first is not None
    record = ledger.bench.store.log.look_up(first.at)
    assert record is not None
    ledger.transactions.renew(first, record, 1)


def _fewer_queues(ledger: LedgerBench) -> None:
    """Reduces the queues, so that two destinations are one queue."""
    ledger.bench.topics.update(Topic("T", 1, 1), {})


@pytest.mark.parametrize("change", [_damaged, _renewed, _fewer_queues])
def test_what_happened_to_half_messages_before_their_commit(change: Callable[[LedgerBench], None]) -> None:
    compiled, pure = ledgers()
    for ledger in (compiled, pure):
        ledger.send(0, "a", batch.join([half(b"%d" % n, REAL_QID=str(n % 4)) for n in range(9)]))
        change(ledger)
        ledger.decide(0, "a")
        ledger.settle()
    assert compiled.outcome() == pure.outcome()
    assert compiled.answers[-1] == (9, 0)


def test_half_messages_in_several_files_of_the_log_are_committed_in_their_order() -> None:
    compiled, pure = ledgers(small())
    for ledger in (compiled, pure):
        for number in range(20):
            ledger.send(0, "a", batch.join([half(b"%d" % number)] * 3))
        ledger.decide(0, "a")
        ledger.settle()
    assert compiled.bench.store.log.end > 5 * 4096
    assert compiled.outcome() == pure.outcome()


REFUSED: list[tuple[str, list[Message]]] = [
    ("no place", [half(), message()]),
    ("a topic that is not there", [half(), half(REAL_TOPIC="Nobody"), half(REAL_TOPIC="Else")]),
    ("a queue that is not there", [half(REAL_QID="17")]),
    ("a queue that is no number", [half(REAL_QID="x")]),
    ("no body", [half(), half(b"")]),
    ("no unique key", [(0, b"x", properties.pack(PLACE).encode())]),
    ("a delay that is none", [half(), half(DELAY="x")]),
    ("a time that is too far ahead", [half(), half(TIMER_DELIVER_MS="9" * 18)]),
    ("a recall", [half(TIMER_DEL_UNIQKEY="U1")]),
    ("a stamp", [half(TURBOPUMP_TXN="mine")]),
    ("too many properties", [half(own="x" * 32_400)]),
    ("nothing", []),
]


@pytest.mark.parametrize("rows", [rows for _, rows in REFUSED], ids=[name for name, _ in REFUSED])
def test_half_messages_are_refused_in_the_same_words(rows: list[Message]) -> None:
    compiled, pure = ledgers()
    for ledger in (compiled, pure):
        ledger.send(0, "a", batch.join(rows))
    assert compiled.outcome() == pure.outcome()
    assert compiled.answers[0][0] != 0
    assert compiled.transactions.stamps.total == 0


places = st.fixed_dictionaries(
    {"REAL_TOPIC": st.sampled_from(["T", "T", "Multi"]), "REAL_QID": st.sampled_from(["0", "0", "3", "x"])}
)
halves = st.tuples(
    flags,
    st.binary(min_size=1, max_size=40),
    st.tuples(places, st.dictionaries(names.filter(lambda name: name != "REAL_QID"), values, max_size=3)).map(
        lambda both: properties.pack({"UNIQ_KEY": "U"} | both[1] | both[0]).encode()
    ),
)


@examples(100)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), bodies(halves)), max_size=5), st.sampled_from(["a", "b", "c"])
)
def test_every_frame_and_its_end_are_the_same_to_both(frames: list[tuple[str, bytes]], winner: str) -> None:
    compiled, pure = ledgers()
    for ledger in (compiled, pure):
        for token, body in frames:
            ledger.send(0, token, body)
        ledger.decide(0, winner)
        ledger.settle()
    assert compiled.outcome() == pure.outcome()
    assert compiled.transactions.stamps.total == 0  # accepted ones can be ended


# Construction, errors and garbage collection


@pytest.mark.parametrize("settings", [{"flush_disk_type": "SYNC_FLUSH"}, {"transient_pool": True}])
def test_where_messages_wait_for_the_disk_there_are_no_groups(settings: dict[str, Any]) -> None:
    assert Bench(twins(), small(**settings)).store.compiled.groups() is None


def test_wrong_arguments_are_type_errors() -> None:
    groups: Any = Bench(twins()).store.compiled.groups()
    for call in (groups.batch, groups.halves, groups.commit):
        with pytest.raises(TypeError):
            call()
        with pytest.raises(TypeError):
            call(*(["x"] * 11))


def test_a_frame_that_lies_about_its_sizes_is_read_no_further_than_it_is() -> None:
    compiled, pure = ledgers()
    whole = batch.join([half(b"body")])
    for at in (0, 16):
        for size in (-1, 0, 1, 21, 22, 2**31 - 1, -(2**31)):
            body = whole[:at] + struct.pack(">i", size) + whole[at + 4 :]
            for ledger in (compiled, pure):
                ledger.send(0, "a", body)
    assert compiled.outcome() == pure.outcome()
