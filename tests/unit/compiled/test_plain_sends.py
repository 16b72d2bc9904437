"""The compiled twin of plain sends: which it handles, which it leaves to Python, with equal bytes."""

import json
import os
import re
import zlib
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.compat.wire import captured
from tests.properties import examples
from tests.unit.broker.desk import SMALL_STORE, letters
from tests.unit.broker.sends import Bench, frame, header
from tests.unit.store.lab import small

from turbopump.compiled import PURE, Twins, twins
from turbopump.protocol.frame import JSON, Frame, cut, pack
from turbopump.protocol.record import decode
from turbopump.store.config import StoreConfig
from turbopump.store.flags import Reason

WANTED = bool(os.environ.get("CI")) and PURE not in os.environ  # in CI missing twins are a failure
pytestmark = pytest.mark.skipif(twins() is None and not WANTED, reason="the twins are not built")

KEYED = {"KEYS": "order_1 order_2", "TAGS": "TagA", "own": "value"}


def known(config: StoreConfig = SMALL_STORE, **rest: Any) -> Bench:
    """Returns a bench with the twin, which has looked up topic T."""
    bench = Bench(twins(), config, **rest)
    bench.receive(send())
    return bench


def pair(config: StoreConfig = SMALL_STORE) -> tuple[Bench, Bench]:
    """Returns benches with and without the twin, in the same state."""
    pure = Bench(None, config)
    pure.receive(send())
    return known(config), pure


def send(body: bytes = b"x", code: int = 310, opaque: int = 7, flag: int = 0, **changes: Any) -> bytes:
    return pack(*frame(code, letters("T", **changes), body, opaque, flag))


def with_header(head: dict[str, Any] | bytes, body: bytes = b"x") -> bytes:
    data = head if isinstance(head, bytes) else json.dumps(head, separators=(",", ":")).encode()
    return pack(JSON, data, body)


# Handled by the twin


@pytest.mark.parametrize("code", [10, 310])
def test_all_plain_sends_of_an_event_are_taken(code: int) -> None:
    compiled, pure = pair()
    event = b"".join(send(b"%d" % n, code, n, e=n % 4, pairs=KEYED | {"n": str(n)}) for n in range(100))
    assert compiled.receive(event) == len(event)
    pure.receive(event)
    assert compiled.outcome() == pure.outcome()


def test_what_apaches_clients_send_is_taken() -> None:
    """Every send captured from a Java client, but for batches, delays, retries, halves of transactions."""
    bench = known()
    taken = set()
    for row in captured():
        frames: list[Frame] = []
        if row.part != "hex" or b'{"code":310' not in row.data or not cut(row.data, frames):
            continue
        [(_, head, body)] = frames
        if any(word in head for word in (b'"m":"true"', b"DELAY", b'"b":"%RETRY%', b"TRAN_MSG")):
            continue
        data = pack(JSON, re.sub(rb'"b":"[^"]+"', b'"b":"T"', head), body)
        assert bench.receive(data) == len(data), (row, head)
        taken.add(row.file)
    assert {name for name in taken if name.startswith("client")} == {
        *("client-4.5.1-server-4.9.7", "client-4.9.7-server-4.9.7", "client-4.9.7-server-5.5.0"),
        *("client-5.5.0-server-4.9.7", "client-5.5.0-server-5.5.0"),
    }


@pytest.mark.parametrize("size", [*range(1, 200), 255, 256, 1023, 1024, 4095, 4096, 100_001])
def test_bodies_of_any_size_have_their_checksum(size: int) -> None:
    bench = known(small(commit_log_file_size=1 << 20))
    body = bytes(n * 7 & 0xFF for n in range(size))
    offset = bench.store.log.end
    data = send(body)
    assert bench.receive(data) == len(data)
    record = bench.store.log.look_up(offset)
    assert record is not None
    assert (record.body, record.body_crc) == (body, zlib.crc32(body) & 0x7FFFFFFF)


def test_properties_without_their_last_separator_are_taken() -> None:
    compiled, pure = pair()
    pure.many._router = None  # type: ignore[assignment]
    event = send(i="UNIQ_KEY\x01A\x02TAGS\x01B") + send(i="TAGS\x01B\x02UNIQ_KEY\x01A")
    assert compiled.receive(event) == len(event)
    pure.receive(event)
    assert compiled.outcome() == pure.outcome()


def test_one_way_sends_are_stored_without_an_answer() -> None:
    compiled, pure = pair()
    event = send(flag=2) + send(opaque=8)
    assert compiled.receive(event) == len(event)
    pure.receive(event)
    assert compiled.outcome() == pure.outcome()


def test_whoever_waits_is_told_of_each_message() -> None:
    told: list[list[tuple[int, int, int]]] = []
    for bench in pair():
        heard = bench.listen()
        bench.receive(send(e=1) + send(e=1, pairs=KEYED) + send(e=2))
        told.append(heard)
    assert told[0] == told[1]
    assert len(told[0]) == 3


# Left to Python


LEFT: list[tuple[str, bytes]] = [
    ("a topic that nobody asked for yet", pack(*frame(310, letters("New"), b"x", 1))),
    ("a queue that is not there", send(e=4)),
    ("a negative queue", send(e=-1)),
    ("no body", send(b"")),
    ("no unique key", send(i="TAGS\x01A\x02")),
    ("a unique key that JSON would escape", send(pairs={"UNIQ_KEY": 'a"b'})),
    ("what is no pair", send(i="UNIQ_KEY\x01A\x02TAGS\x02")),
    ("a name twice", send(i="UNIQ_KEY\x01A\x02a\x01b\x02a\x01c\x02")),
    ("an empty value", send(i="UNIQ_KEY\x01A\x02a\x01\x02")),
    ("a delay", send(pairs={"DELAY": "1"})),
    ("half of a transaction", send(pairs={"TRAN_MSG": "true"})),
    ("what the broker adds itself", send(pairs={"CLUSTER": "mine"})),
    ("more pairs than it looks at", send(pairs={f"n{n}": "v" for n in range(64)})),
    ("letters that are no ASCII", send(pairs={"TAGS": "名"})),
    ("a batch", send(m="true")),
    ("an address bit", send(f=16)),
    ("a number that does not fit", send(h=1 << 31)),
    ("a number in another spelling", send(h="+1")),
    ("an answer", send(flag=1)),
    ("another request", with_header({"code": 34, "flag": 0, "opaque": 1})),
    ("a field that is missing", send(g=None)),
    ("more properties than a record holds", send(pairs={"own": "v" * 32_700})),
]


@pytest.mark.parametrize("data", [data for _, data in LEFT], ids=[name for name, _ in LEFT])
def test_what_is_not_plain_is_left_to_python(data: bytes) -> None:
    compiled, pure = pair()
    event = send(opaque=1) + data + send(opaque=2)
    assert compiled.receive(event) == len(send(opaque=1))
    pure.receive(event)
    assert compiled.outcome() == pure.outcome()


@pytest.mark.parametrize("size", range(len(send())))
def test_a_frame_that_has_not_ended_is_left(size: int) -> None:
    bench = known()
    outcome = bench.outcome()
    assert bench.receive(send()[:size]) == 0
    assert bench.outcome()[:2] == outcome[:2]


def test_a_message_without_room_in_the_file_begins_the_next_one() -> None:
    compiled, pure = pair(small())
    for number in range(200):
        event = b"".join(send(bytes(number % 97 + 1), opaque=n) for n in range(number % 5 + 1))
        for bench in (compiled, pure):
            bench.receive(event)
    assert compiled.store.log.end > 10 * 4096
    assert compiled.outcome() == pure.outcome()


def test_a_store_that_takes_nothing_refuses_in_the_same_words() -> None:
    compiled, pure = pair()
    for bench in (compiled, pure):
        bench.store.flags.set(Reason.DISK_FULL, "[CL: 0.99]")
        bench.receive(send())
    assert compiled.outcome() == pure.outcome()
    assert b"disk is full" in compiled.connection.written


def test_a_deleted_topic_is_looked_up_again() -> None:
    compiled, pure = pair()
    for bench in (compiled, pure):
        bench.topics.delete("T")
        bench.store.queues.delete_topic("T")
        assert bench.receive(send()) == 0
        bench.receive(send())
    assert compiled.outcome() == pure.outcome()


def test_an_ipv6_peer_is_left_to_python() -> None:
    compiled, pure = pair()
    for bench in (compiled, pure):
        bench.connection.peer_host = bytes(20)
        assert bench.receive(send()) == 0
    assert compiled.outcome() == pure.outcome()


@pytest.mark.parametrize("settings", [{"flush_disk_type": "SYNC_FLUSH"}, {"transient_pool": True}])
def test_where_messages_wait_for_the_disk_there_is_no_shortcut(settings: dict[str, Any]) -> None:
    assert Bench(twins(), small(**settings)).many.shortcut is None


# Forms of a header


@st.composite
def spellings(draw: st.DrawFn) -> bytes:
    """Generates headers of plain sends, or nearly plain ones, in various forms of JSON."""
    code = draw(st.sampled_from([10, 310]))
    ext = letters("T", draw(st.integers(0, 4)), pairs=draw(st.sampled_from([{}, KEYED, {"TAGS": "Ü"}])))
    head = header(code, ext, draw(st.sampled_from([0, -1, 2**31 - 1])), draw(st.sampled_from([0, 2])))
    fields = head["extFields"]
    for name in draw(st.lists(st.sampled_from(sorted(fields)), max_size=2)):
        fields[name] = draw(odd_values)
    for name in draw(st.lists(st.sampled_from(["flag", "opaque", "version", "remark", "extra"]), max_size=2)):
        head[name] = draw(odd_values)
    fields.update(draw(st.dictionaries(st.sampled_from(["n", "extra", "\u00fc"]), odd_values, max_size=2)))
    head["extFields"] = dict(draw(st.permutations(list(fields.items()))))
    rest = dict(draw(st.permutations(list(head.items())[1:])))
    text = json.dumps(
        {"code": code, **rest},
        ensure_ascii=draw(st.booleans()),
        separators=draw(st.sampled_from([(",", ":"), (", ", ":"), (",", ": ")])),
    )
    for old, new in draw(st.lists(st.sampled_from(RESPELLED), max_size=2)):
        text = text.replace(old, new, draw(st.integers(1, 2)))
    return text.encode("utf-8", "surrogatepass")


odd_values = st.one_of(
    st.sampled_from(["", "0", "-0", "00", "1", " 1", "1.0", "1e3", "-2147483648", "2147483648", "9" * 19]),
    st.sampled_from([None, True, False, 0, 1, -1, 1.5, 2**31, 2**63, [], {}, "true", "false", "null"]),
    st.text(max_size=3),
)
RESPELLED = [
    ("\\u0001", "\x01"),
    ("\\u0001", "\\u0041"),
    ("\\u0002", "\\u00e4"),
    ("\\u0002", "\\u0002\\u0002"),
    ("\\u", "\\U"),
    ("T", "\\u0054"),
    ("A", "\\/"),
    ('"flag"', '"opaque"'),
    ('"extFields"', '"extFields":{},"extFields"'),
    ("}", "} "),
    ("}", ""),
    (":", ":-"),
    ('"code"', '"code" '),
]


@examples(400)
@given(st.lists(spellings(), min_size=1, max_size=4))
def test_every_spelling_of_a_header_means_the_same_to_both(heads: list[bytes]) -> None:
    compiled, pure = pair()
    for event in (b"".join(map(with_header, heads)), *map(with_header, heads)):
        compiled.receive(event)
        pure.receive(event)
    assert compiled.outcome() == pure.outcome()


# Construction, errors and garbage collection


def test_wrong_arguments_are_type_errors() -> None:
    bench = Bench(twins())
    sends = bench.many._twin()
    assert sends is not None
    for arguments in ((), (bytearray(), b"", None), (b"", "host", None), (b"", b"", ())):
        with pytest.raises(TypeError):
            sends.take(*arguments)
    with pytest.raises(TypeError):
        bench.store.compiled.plain_sends(targets={})  # type: ignore[call-arg]


def test_an_exception_on_the_way_leaves_what_was_written_before_it() -> None:
    """The clock is asked once per event; making pages present is asked of the log when it is needed."""
    compiled, pure = pair()
    log, asked = compiled.store.commit_log, count()

    def fails_at_last(position: int) -> None:
        if next(asked) == 2:
            raise OSError("on purpose")

    log.touch, log.touched = fails_at_last, 0  # type: ignore[method-assign]
    with pytest.raises(OSError, match="on purpose"):
        compiled.receive(send(opaque=1) + send(opaque=2) + send(opaque=3))
    pure.receive(send(opaque=1) + send(opaque=2))
    assert compiled.outcome()[1:] == pure.outcome()[1:]
    assert decode(log.buffer, 0).topic == "T"


def test_the_environment_can_say_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURBOPUMP_PURE", "1")
    assert twins() is None
    monkeypatch.setenv("TURBOPUMP_PURE", "0")
    assert isinstance(twins(), Twins)
