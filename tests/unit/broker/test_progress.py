"""How far groups are, and the entries of a queue: what tools print about consumers."""

import re
from typing import Any

import msgspec
import pytest
from tests.kit import virtual
from tests.unit.broker.clients_kit import beat
from tests.unit.broker.kit import Bench, Peer

from turbopump.broker.topics import Topic
from turbopump.protocol.bodies import (
    ConsumeStats,
    ConsumeStatsList,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueryCorrectionOffsetBody,
    TopicList,
    WireQueue,
)
from turbopump.store.commit_log import CommitLog
from turbopump.testing.loop import run_virtual

HEARTBEAT, PROGRESS, ALL, SPAN, CORRECTION, CLONE, QUEUE, TOPICS = 34, 208, 317, 303, 308, 314, 321, 343
FORBID, STATISTICS = 353, 202


def read_by(*groups: str, topic: str = "T", queues: int = 2, messages: int = 10) -> Bench:
    bench = Bench()
    bench.topics.update(Topic(topic, queues, queues), {})
    bench.put(topic, 0, messages)
    for number, group in enumerate(groups):
        bench.groups.for_consume(group)
        bench.offsets.commit(group, topic, 0, 4 + number)
        bench.offsets.pulled(group, topic, 0, 6 + number)
    return bench


def at(queue_id: int, topic: str = "T") -> WireQueue:
    return WireQueue("broker-a", queue_id, topic)


async def progress(peer: Peer, **fields: Any) -> dict[WireQueue, tuple[int, int, int]]:
    answer = await peer.ask(PROGRESS, **({"consumerGroup": "G"} | fields))
    table = ConsumeStats.decode(answer.body).offsetTable
    return {
        queue: (one.brokerOffset, one.consumerOffset, one.pullOffset or 0) for queue, one in table.items()
    }


@virtual
async def test_a_group_is_behind_and_has_some_in_hand() -> None:
    bench = read_by("G")
    assert await progress(bench.connect()) == {at(0): (10, 4, 6), at(1): (0, 0, 0)}


@virtual
async def test_a_topic_that_a_living_group_has_left_does_not_count_unless_it_is_listed() -> None:
    bench = read_by("G")
    peer = bench.connect()
    await peer.ask(HEARTBEAT, beat("me", "G", topics=("other",)))
    assert await progress(peer) == {}
    assert await progress(peer, topic="T") == {}
    assert len(await progress(peer, topicList="T;nope;")) == 2
    peer.leave()
    assert len(await progress(bench.connect(), topic="T")) == 2


@virtual
async def test_all_groups_at_once_with_the_sum_of_what_is_left() -> None:
    bench = read_by("G", "H")
    answer = await bench.connect().ask(ALL, isOrder="false")
    body = ConsumeStatsList.decode(answer.body)
    assert body.brokerAddr == "127.0.0.1:30911"
    assert (body.totalDiff, body.totalInflightDiff) == (6 + 5, 2 + 2)
    found = {name: stats for row in body.consumeStatsList for name, stats in row.items()}
    assert {name for name, stats in found.items() if stats} == {"G", "H"}
    assert found["TOOLS_CONSUMER"] == []
    assert set(found["G"][0].offsetTable) == {at(0), at(1)}
    body = ConsumeStatsList.decode((await bench.connect().ask(ALL, isOrder="true")).body)
    assert (body.totalDiff, [row for row in body.consumeStatsList if row.get("G")]) == (0, [])


@virtual
async def test_the_time_of_what_was_consumed_and_how_long_the_next_one_waits() -> None:
    bench = read_by("G", messages=3)
    first_ms = bench.clock.now_ms()
    await bench.clock.sleep(5)
    bench.put("T", 0, 3)
    await bench.clock.sleep(2)
    answer = await bench.connect().ask(SPAN, topic="T", group="G")
    read, empty = QueryConsumeTimeSpanBody.decode(answer.body).consumeTimeSpanSet
    assert read.messageQueue == at(0)
    assert (read.minTimeStamp, read.maxTimeStamp) == (first_ms, first_ms + 5000)
    assert (read.consumeTimeStamp, read.delayTime) == (first_ms + 5000, 2000)
    assert re.fullmatch(r"2026-11-\d\d#\d\d:\d\d:\d\d:000", read.minTimeStampStr or "")
    assert (empty.minTimeStamp, empty.maxTimeStamp, empty.consumeTimeStamp, empty.delayTime) == (
        -1,
        -1,
        -1,
        0,
    )
    waits_ms = bench.clock.now_ms() - first_ms
    answer = await bench.connect().ask(SPAN, topic="T", group="new")
    fresh = QueryConsumeTimeSpanBody.decode(answer.body).consumeTimeSpanSet[0]
    assert (fresh.consumeTimeStamp, fresh.delayTime) == (first_ms, waits_ms)
    answer = await bench.connect().ask(SPAN, topic="nope", group="G")
    assert (answer.code, answer.remark) == (17, "topic[nope] not exist")


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (PROGRESS, {"consumerGroup": "G"}),
        (ALL, {"isOrder": "false"}),
        (SPAN, {"topic": "T", "group": "G"}),
        (STATISTICS, {"topic": "T"}),
    ],
)
def test_store_times_are_not_read_on_the_loop(
    code: int, fields: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        bench = read_by("G")
        stored_ms = bench.clock.now_ms()
        with monkeypatch.context() as patched:
            patched.setattr(CommitLog, "read", on_the_loop)
            answer = await bench.connect().ask(code, **fields)
        assert answer.code == 0, answer.remark
        assert str(stored_ms).encode() in answer.body

    def on_the_loop(log: CommitLog, offset: int, size: int) -> bytes:
        raise AssertionError("that may take a disk's time")

    run_virtual(main())


@virtual
async def test_the_least_offset_of_other_groups_and_nothing_is_deleted_by_asking() -> None:
    bench = read_by("G", "H", "I")

    async def corrections(**fields: str) -> dict[int, int]:
        answer = await bench.connect().ask(CORRECTION, topic="T", **fields)
        return QueryCorrectionOffsetBody.decode(answer.body).correctionOffsets

    assert await corrections(compareGroup="I") == {0: 4}
    assert await corrections(compareGroup="I", filterGroups="G") == {0: 5}
    assert await corrections(compareGroup="G", filterGroups="G") == {0: 2**63 - 1}
    assert await corrections(compareGroup="G", filterGroups="G,H,I") == {}
    assert bench.offsets.groups_of_topic("T") == ["G", "H", "I"]


@virtual
async def test_cloning_offsets_of_one_topic_or_all() -> None:
    bench = read_by("G")
    bench.topics.update(Topic("U", 1, 1), {})
    bench.offsets.commit("G", "U", 0, 7)
    bench.offsets.commit("G", "gone", 0, 7)
    bench.offsets.commit("H", "T", 1, 3)
    peer = bench.connect()
    assert (await peer.ask(CLONE, srcGroup="G", destGroup="H", topic="T", offline="false")).code == 0
    assert bench.offsets.of_group("H", "T") == {0: 4}
    assert (await peer.ask(CLONE, srcGroup="G", destGroup="I", offline="true")).code == 0
    assert bench.offsets.topics_of_group("I") == ["T", "U"]
    answer = await peer.ask(CLONE, srcGroup="G", destGroup="no such!", topic="T", offline="true")
    assert answer.code == 29
    bench.offsets.commit("G", "T", 0, 9)
    assert bench.offsets.query("I", "T", 0) == 4, "from here on each goes its own way"


@virtual
async def test_cloning_from_a_living_group_takes_what_it_reads() -> None:
    bench = read_by("G")
    peer = bench.connect()
    await peer.ask(HEARTBEAT, beat("me", "G", topics=("other",)))
    await peer.ask(CLONE, srcGroup="G", destGroup="H", topic="T", offline="false")
    assert bench.offsets.topics_of_group("H") == []
    await peer.ask(CLONE, srcGroup="G", destGroup="H", topic="T", offline="true")
    assert bench.offsets.topics_of_group("H") == ["T"]


@virtual
async def test_the_topics_that_a_group_has_committed_on() -> None:
    bench = read_by("G")
    answer = await bench.connect().ask(TOPICS, group="G")
    body = TopicList.decode(answer.body)
    assert (body.topicList, body.brokerAddr) == (["T"], "127.0.0.1:30911")


@virtual
async def test_the_entries_of_a_queue() -> None:
    bench = read_by("G")
    peer = bench.connect()
    answer = await peer.ask(QUEUE, topic="T", queueId=0, index=8, count=5, consumerGroup="G")
    body = QueryConsumeQueueResponseBody.decode(answer.body)
    assert (body.minQueueIndex, body.maxQueueIndex, len(body.queueData)) == (0, 10, 2)
    assert (body.filterData, body.subscriptionData) == ("G@T is not online!", None)
    offset, size, _ = bench.store.queues.queue("T", 0).entry(8) or (0, 0, 0)
    assert (body.queueData[0].physicOffset, body.queueData[0].physicSize) == (offset, size)
    await peer.ask(HEARTBEAT, beat("me", "G"))
    answer = await peer.ask(QUEUE, topic="T", queueId=0, index=0, count=0, consumerGroup="G")
    body = QueryConsumeQueueResponseBody.decode(answer.body)
    assert (body.filterData, body.queueData) == ("null", [])
    assert body.subscriptionData is not None


@pytest.mark.parametrize(
    ("topic", "queue_id", "index"), [("T", 0, 10), ("T", 0, -1), ("T", 7, 0), ("T", -1, 0), ("nope", 0, 0)]
)
def test_where_a_queue_does_not_reach_the_answer_has_no_body(topic: str, queue_id: int, index: int) -> None:
    @virtual
    async def test() -> None:
        bench = read_by("G")
        answer = await bench.connect().ask(QUEUE, topic=topic, queueId=queue_id, index=index, count=5)
        remark = f"Index {index} of {queue_id}@{topic} is not exist!"
        assert (answer.code, answer.remark, answer.body) == (0, remark, b"")

    test()


@virtual
async def test_a_group_can_be_shut_out_of_one_topic() -> None:
    bench = read_by("G")
    peer = bench.connect()

    async def may_read(**fields: str) -> tuple[int, Any]:
        answer = await peer.ask(FORBID, **({"group": "G", "topic": "T"} | fields))
        return answer.code, msgspec.json.decode(answer.body)["readable"] if answer.body else None

    assert await may_read() == (0, True)
    assert await may_read(readable="false") == (0, False)
    assert bench.settled == 1
    assert await may_read() == (0, False)
    assert await may_read(topic="other") == (0, True)
    again = type(bench.groups)(bench.config.groups, bench.clock)
    again.load(bench.groups.dump())
    assert again.is_forbidden("G", "T")
    assert await may_read(readable="true") == (0, True)
    assert not bench.groups.is_forbidden("G", "T")
    assert await may_read(group="nobody", readable="false") == (26, None)
    assert await may_read(topic="nope", readable="false") == (17, None)


@virtual
async def test_letting_a_group_into_one_topic_leaves_it_shut_out_of_another() -> None:
    bench = read_by("G")
    bench.topics.update(Topic("U", 1, 1), {})
    peer = bench.connect()
    for topic, readable in (("T", "false"), ("U", "false"), ("U", "true")):
        await peer.ask(FORBID, group="G", topic=topic, readable=readable)
    assert (bench.groups.is_forbidden("G", "T"), bench.groups.is_forbidden("G", "U")) == (True, False)
    bench.groups.delete("G")
    assert not bench.groups.is_forbidden("G", "T")
