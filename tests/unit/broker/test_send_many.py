"""Many at once, compiled or not, gives the bytes of the general path: the same answers, the same log."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties import examples
from tests.unit.broker.desk import letters
from tests.unit.broker.sends import Bench, frame

from turbopump.broker.produce.plain_sends import MAX_TARGETS
from turbopump.broker.topics import Topic
from turbopump.compiled import twins
from turbopump.protocol import properties
from turbopump.protocol.errors import BrokenFrame
from turbopump.protocol.frame import JSON, pack

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


@examples(150)
@given(st.lists(sends(), min_size=1, max_size=8))
def test_all_ways_answer_and_store_the_same_bytes(
    requests: list[tuple[int, dict[str, Any], bytes, int]],
) -> None:
    frames = [frame(code, ext, body, at, flag) for at, (code, ext, body, flag) in enumerate(requests)]
    general, many, compiled = Bench(), Bench(), Bench(twins())
    general.router.serve(general.connection, list(frames))
    outcome = general.outcome()
    many.many.serve(many.connection, list(frames))
    assert many.outcome() == outcome
    for one in frames:  # in an event each: the twin takes a topic that Python has looked up
        compiled.receive(pack(*one))
    assert compiled.outcome() == outcome


def test_a_header_that_cannot_be_read_does_not_take_its_neighbours_along() -> None:
    """One broken frame closes the connection, but the sends before it are stored and answered."""
    good = frame(310, letters("T"), b"kept", 1)
    broken = [
        (JSON, good[1].replace(b'"PG"', b'"\xff\xfe"').replace(b'"T"', b'"\xff"'), b"x"),
        (JSON, b'{"code":310,"extFields":' + b"[" * 100_000, b"x"),
    ]

    for bad in broken:
        bench = Bench()
        with contextlib.suppress(BrokenFrame):
            bench.many.serve(bench.connection, [good, bad])
        assert bench.connection.written.count(b'"code":0') == 1
        assert b"kept" in bench.log()


@pytest.mark.parametrize("pairs", ["", "WAIT\x01falKEYS\x01true\x02"])  # the second: plain for the twin alone
@pytest.mark.parametrize(
    ("name", "value"), [(b'"PG"', b'"\xff\xfe"'), (b'"version":479', b'"version":2147483648')]
)
def test_what_no_way_needs_of_a_header_is_read_by_all_of_them(pairs: str, name: bytes, value: bytes) -> None:
    good = frame(310, letters("T", i=f"UNIQ_KEY\x01A\x02{pairs}"), b"x", 1)
    bad = JSON, good[1].replace(name, value), b"x"
    assert bad[1] != good[1]
    for bench in (Bench(), Bench(twins())):
        bench.receive(pack(*good) + pack(*bad) + pack(*good))
        assert bench.connection.written.count(b'"code":0') == 1


@pytest.mark.parametrize(
    "odd", ["KEYS\x01\x02UNIQ_KEY\x01A\x02", "KEYS\x01UNIQ_KEY\x01A\x02UNIQ_KEY\x01\x02"]
)
def test_what_was_learned_from_one_message_is_true_of_the_next(odd: str) -> None:
    """Properties that look alike without the values of both keys."""
    plain = frame(310, letters("T", i="KEYS\x01k\x02UNIQ_KEY\x01A\x02"), b"x", 1)
    strange = frame(310, letters("T", i=odd), b"x", 2)
    for events in ([plain, strange], [strange, plain]):
        general, many = Bench(), Bench()
        general.router.serve(general.connection, list(events))
        many.many.serve(many.connection, list(events))
        assert many.outcome() == general.outcome()
    many.many._router = None  # type: ignore[assignment]
    many.many.serve(many.connection, [plain])  # still the short path


def test_a_topic_whose_queues_cannot_be_had_is_refused_in_words() -> None:
    bench = Bench(twins())
    name = "%DLQ%" + "g" * 124  # a group may have that name, but no queue a topic of it
    bench.topics.for_group(name, 1)
    bench.receive(pack(*frame(310, letters(name), b"body", 1)))
    assert b"the topic's name has 129 bytes" in bench.connection.written


@pytest.mark.parametrize("queues", [MAX_TARGETS, MAX_TARGETS + 1, 65_536])
def test_a_send_does_not_open_the_queues_of_a_topic_that_has_thousands(queues: int) -> None:
    general, many, compiled = Bench(), Bench(), Bench(twins())
    for bench in (general, many, compiled):
        bench.topics.update(Topic("Wide", queues, queues), {})
    one = frame(310, letters("Wide", queues - 1), b"x", 1)
    general.router.serve(general.connection, [one, one])
    many.many.serve(many.connection, [one, one])
    for _ in range(2):
        compiled.receive(pack(*one))
    assert general.outcome() == many.outcome() == compiled.outcome()
    assert general.connection.written.count(b'"code":0') == 2
    for bench in (many, compiled):
        assert (bench.store.queues.find("Wide", 0) is not None) == (queues <= MAX_TARGETS)


def test_a_plain_send_takes_the_short_path() -> None:
    bench = Bench()
    bench.many._router = None  # type: ignore[assignment]
    bench.many.serve(bench.connection, [frame(310, letters("T"), b"x", 1), frame(10, letters("T"), b"x", 2)])
    assert bench.connection.written.count(b'"code":0') == 2
