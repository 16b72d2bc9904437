import asyncio

from tests.kit import virtual
from tests.unit.broker.kit import Bench

from turbopump.protocol.record import decode, decode_all

BY_KEY, BY_OFFSET, BY_TIME, MAX, MIN, EARLIEST = 12, 33, 29, 30, 31, 32
EVER = {"beginTimestamp": 0, "endTimestamp": 2**63 - 1}


def with_topic() -> Bench:
    bench = Bench()
    bench.topics.for_group("T", 2)
    return bench


@virtual
async def test_messages_are_found_by_key_and_by_unique_key() -> None:
    bench = with_topic()
    peer = bench.connect()
    bench.put("T", 0, KEYS="red green", UNIQ_KEY="U1")
    bench.put("T", 1, KEYS="green", UNIQ_KEY="U2")
    for key, unique, found in (
        ("green", "false", ["U1", "U2"]),
        ("red", "false", ["U1"]),
        ("U2", "true", ["U2"]),
    ):
        answer = await peer.ask(BY_KEY, topic="T", key=key, maxNum=64, _UNIQUE_KEY_QUERY=unique, **EVER)
        assert answer.code == 0
        assert [record.unique_key for record in decode_all(answer.body)] == found
        assert set(answer.ext or {}) == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}


@virtual
async def test_the_number_of_messages_is_bounded_by_the_asker_or_for_unique_keys_by_us() -> None:
    bench = with_topic()
    peer = bench.connect()
    bench.put("T", 0, 40, KEYS="k", UNIQ_KEY="U")
    for unique, asked, count in (("false", 5, 5), ("false", 64, 40), ("true", 5, 32)):
        answer = await peer.ask(BY_KEY, topic="T", key="U", maxNum=asked, _UNIQUE_KEY_QUERY=unique, **EVER)
        assert len(list(decode_all(answer.body))) == count


@virtual
async def test_a_key_without_a_message_is_an_answer_of_its_own() -> None:
    bench = with_topic()
    peer = bench.connect()
    bench.put("T", 0, KEYS="k", TAGS="A")
    zeros = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
    for fields in (
        {"topic": "T", "key": "other", **EVER},
        {"topic": "U", "key": "k", **EVER},
        {"topic": "T", "key": "k", "beginTimestamp": 0, "endTimestamp": 1000},
        {"topic": "T", "key": "A", "indexType": "T", **EVER},
    ):
        answer = await peer.ask(BY_KEY, maxNum=32, **fields)
        assert (answer.code, answer.ext, answer.body) == (22, zeros, b"")


@virtual
async def test_less_than_no_message_cannot_be_asked_for() -> None:
    peer = with_topic().connect()
    assert (await peer.ask(BY_KEY, topic="T", key="k", maxNum=-1, **EVER)).code == 1


@virtual
async def test_a_message_is_found_by_its_offset_and_by_no_other() -> None:
    bench = with_topic()
    peer = bench.connect()
    first, second = bench.put("T", 0, 2)
    answer = await peer.ask(BY_OFFSET, offset=second)
    assert decode(answer.body).physical_offset == second
    for offset in (second + 1, first - 1, 1 << 40):
        answer = await peer.ask(BY_OFFSET, offset=offset)
        assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")


@virtual
async def test_offsets_are_found_by_time_with_both_boundaries() -> None:
    bench = with_topic()
    peer = bench.connect()
    start = bench.clock.now_ms()
    for _ in range(3):
        bench.put("T", 0, 2)
        await asyncio.sleep(1)

    async def at(time_ms: int, **fields: str) -> str:
        answer = await peer.ask(BY_TIME, topic="T", queueId=0, timestamp=time_ms, **fields)
        return (answer.ext or {})["offset"]

    assert [await at(start + ms) for ms in (-1, 0, 1, 1000, 2000, 2001)] == ["0", "0", "2", "2", "4", "6"]
    upper = [await at(start + ms, boundaryType="upper") for ms in (-1, 0, 1, 1000, 2000, 2001)]
    assert upper == ["0", "1", "1", "3", "5", "5"]


@virtual
async def test_bounds_of_queues_and_of_what_is_none() -> None:
    bench = with_topic()
    peer = bench.connect()
    bench.put("T", 0, 3)

    async def ask(code: int, topic: str, queue_id: int) -> str:
        fields = {"timestamp": 0} if code == BY_TIME else {}
        answer = await peer.ask(code, topic=topic, queueId=queue_id, **fields)
        assert answer.code == 0
        return next(iter((answer.ext or {}).values()))

    assert [await ask(code, "T", 0) for code in (MAX, MIN)] == ["3", "0"]
    assert await ask(EARLIEST, "T", 0) == str(bench.clock.now_ms())
    for topic, queue_id in (("T", 1), ("T", 99), ("T", -1), ("nope", 0), ("../commitlog", 0), ("", 0)):
        assert [await ask(code, topic, queue_id) for code in (BY_TIME, MAX, MIN, EARLIEST)] == [
            "0",
            "0",
            "0",
            "-1",
        ]
