import asyncio
import logging
from typing import Any

import msgspec
import pytest
from tests.kit import virtual
from tests.unit.broker.clients_kit import beat
from tests.unit.broker.kit import Bench, Peer

from turbopump.broker.config import GroupRules
from turbopump.broker.groups.members import MAX_COMPARED_SUBSCRIPTIONS, ConsumerGroup
from turbopump.broker.topics import Topic
from turbopump.protocol.bodies import ConsumerListBody, SubscriptionGroupConfig
from turbopump.protocol.command import Command
from turbopump.remoting.router import Request
from turbopump.testing.loop import run_virtual

HEARTBEAT, UNREGISTER, LIST, CHECK, NOTICE = 34, 35, 38, 46, 40


async def ids(peer: Peer, group: str) -> list[str]:
    answer = await peer.ask(LIST, consumerGroup=group)
    assert answer.code == 0
    assert answer.ext == {}
    return ConsumerListBody.decode(answer.body).consumerIdList


def notices(heard: list[Command]) -> list[str]:
    return [command.ext["consumerGroup"] for command in heard if command.code == NOTICE and command.ext]


@virtual
async def test_a_consumer_is_known_and_told_before_its_heartbeat_is_answered() -> None:
    bench = Bench()
    peer = bench.connect()
    await peer.ask(HEARTBEAT, beat("me", "G"))
    notice, answer = peer.heard()
    assert (notice.code, notice.flag, notice.ext) == (NOTICE, 2, {"consumerGroup": "G"})
    assert (answer.code, answer.ext) == (0, {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})
    assert answer.version > 232
    assert await ids(peer, "G") == ["me"]
    assert bench.topics.find("%RETRY%G") == Topic("%RETRY%G", 1, 1)
    assert bench.groups.find("G") is not None


@virtual
async def test_a_consumer_of_the_cpp_library_joins_its_group() -> None:
    """It names enums by ordinal and numbers as text."""
    bench = Bench()
    peer = bench.connect()
    body = beat("me", "G").replace(b'"CONSUME_PASSIVELY"', b"1").replace(b'"CLUSTERING"', b"1")
    body = body.replace(b'"CONSUME_FROM_FIRST_OFFSET"', b"4").replace(b'"subVersion":1', b'"subVersion":"1"')
    assert (await peer.ask(HEARTBEAT, body)).code == 0
    assert await ids(peer, "G") == ["me"]
    group = bench.members.consumer_group("G")
    assert group is not None
    assert (group.consume_type, group.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert group.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"


def test_a_refused_heartbeat_is_a_warning_with_address_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> str:
        peer = Bench().connect()
        answer = await peer.ask(HEARTBEAT, beat("me", "G").replace(b'"CONSUME_PASSIVELY"', b"99"))
        assert answer.code == 1
        return str(peer.connection)

    address = run_virtual(main())
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line.startswith(f"Heartbeat of {address} refused with code 1: BrokenBody: no HeartbeatData: ")
    assert "$.consumerDataSet[0].consumeType" in line


@virtual
async def test_everyone_in_the_group_hears_of_one_who_comes_or_goes() -> None:
    bench = Bench()
    one, two = bench.connect(1), bench.connect(2)
    await one.ask(HEARTBEAT, beat("one", "G"))
    one.transport.writes.clear()
    await two.ask(HEARTBEAT, beat("two", "G"))
    assert notices(one.heard()) == ["G"]
    assert notices(two.heard()) == ["G"]
    assert await ids(one, "G") == ["one", "two"]
    one.transport.writes.clear()
    await two.ask(HEARTBEAT, beat("two", "G"))
    assert notices(one.heard()) == notices(two.heard()) == []
    answer = await two.ask(UNREGISTER, clientID="two", consumerGroup="G")
    assert (answer.code, answer.ext) == (0, {})
    assert notices(one.heard()) == ["G"]
    assert await ids(one, "G") == ["one"]


@virtual
async def test_a_lost_connection_is_a_goodbye() -> None:
    bench = Bench()
    one, two = bench.connect(1), bench.connect(2)
    await one.ask(HEARTBEAT, beat("one", "G"))
    await two.ask(HEARTBEAT, beat("two", "G", producers=("P",)))
    one.transport.writes.clear()
    two.leave()
    assert notices(one.heard()) == ["G"]
    assert bench.members.producer_groups() == []
    one.leave()
    answer = await bench.connect(3).ask(LIST, consumerGroup="G")
    assert (answer.code, answer.remark, answer.ext) == (1, "no consumer for this group, G", {})


@virtual
async def test_a_client_without_heartbeats_for_two_minutes_has_left() -> None:
    bench = Bench()
    silent, lively = bench.connect(1), bench.connect(2)
    watch = asyncio.create_task(bench.clients.watch())
    await silent.ask(HEARTBEAT, beat("silent", "G"))
    await lively.ask(HEARTBEAT, beat("lively", "G"))
    for _ in range(4):
        await asyncio.sleep(30)
        await lively.ask(HEARTBEAT, beat("lively", "G"))
    assert await ids(lively, "G") == ["silent", "lively"]
    lively.transport.writes.clear()
    await asyncio.sleep(15)
    assert notices(lively.heard()) == ["G"]
    assert await ids(lively, "G") == ["lively"]
    assert silent.transport.is_closing()
    watch.cancel()


@virtual
async def test_a_client_that_goes_silent_for_one_group_leaves_that_group_alone() -> None:
    bench = Bench()
    fickle, steady = bench.connect(1), bench.connect(2)
    watch = asyncio.create_task(bench.clients.watch())
    await fickle.ask(HEARTBEAT, beat("fickle", "G", "H"))
    await steady.ask(HEARTBEAT, beat("steady", "G", "H"))
    for _ in range(5):
        await asyncio.sleep(28)
        await fickle.ask(HEARTBEAT, beat("fickle", "H"))
        await steady.ask(HEARTBEAT, beat("steady", "G", "H"))
    assert await ids(steady, "G") == ["steady"]
    assert await ids(steady, "H") == ["fickle", "steady"]
    assert not fickle.transport.is_closing()
    watch.cancel()


@virtual
async def test_in_a_rush_the_newcomer_is_told_at_once_and_the_others_together_a_moment_later() -> None:
    bench = Bench()
    peers = [bench.connect(port) for port in range(1, 101)]
    for number, peer in enumerate(peers):
        await peer.ask(HEARTBEAT, beat(f"c{number:03}", "G"))
        assert notices(peer.heard()) == ["G"], "told before its own heartbeat is answered"
    told = [len(notices(peer.heard())) for peer in peers]
    assert sum(told) < 100 * 100 / 2
    for peer in peers:
        peer.transport.writes.clear()
    await asyncio.sleep(0.2)
    assert [notices(peer.heard()) for peer in peers] == [["G"]] * 100
    for peer in peers:
        peer.transport.writes.clear()
    peers[0].leave()
    assert [notices(peer.heard()) for peer in peers[1:]] == [["G"]] * 99


def test_members_that_subscribe_differently_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    def subscribing(client: str, **topics: str) -> bytes:
        body = msgspec.json.decode(beat(client, "G", topics=()))
        body["consumerDataSet"][0]["subscriptionDataSet"] = [
            {"topic": topic, "subString": text, "subVersion": 1} for topic, text in topics.items()
        ]
        return msgspec.json.encode(body)

    async def main() -> None:
        bench = Bench()
        one, two = bench.connect(1), bench.connect(2)
        for _ in range(3):
            await one.ask(HEARTBEAT, subscribing("c1", T="A || B", U="*"))
            await two.ask(HEARTBEAT, subscribing("c2", T="B||A"))
        assert len(warnings()) == 1
        await two.ask(HEARTBEAT, subscribing("c2", T="B||A", U="*"))
        await one.ask(HEARTBEAT, subscribing("c1", T="A", U="*"))
        assert len(warnings()) == 2
        two.leave()
        await one.ask(HEARTBEAT, subscribing("c1", T="B", U="*"))
        assert len(warnings()) == 2

    def warnings() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    run_virtual(main())
    first, second = warnings()
    begin = "Members of group G have different subscriptions, and the last heartbeat counts: "
    assert first == begin + "c1: U *; c2: nothing more"
    assert second == begin + "c1: T A; c2: T A || B"


def test_a_quarrel_is_looked_at_only_when_somebody_says_something_new(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = 0
    compare = ConsumerGroup.differences

    def differences(group: ConsumerGroup[Any]) -> Any:
        nonlocal compared
        compared += 1
        return compare(group)

    async def main() -> None:
        bench = Bench()
        one, two = bench.connect(1), bench.connect(2)
        for _ in range(10):
            await one.ask(HEARTBEAT, beat("c1", "G", topics=("T",)))
            await two.ask(HEARTBEAT, beat("c2", "G", topics=("U",)))
        assert compared == 2
        for extra in ("X", "Y"):
            many = (*(f"T{number}" for number in range(MAX_COMPARED_SUBSCRIPTIONS)), extra)
            await two.ask(HEARTBEAT, beat("c2", "G", topics=many))
        assert compared == 2

    monkeypatch.setattr(ConsumerGroup, "differences", differences)
    run_virtual(main())
    first, second = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert first.endswith("c1: T *; c2: U *")
    assert second.endswith("the last heartbeat counts: too many to list")


@virtual
async def test_members_stay_when_the_clock_of_the_machine_is_set() -> None:
    bench = Bench()
    peer = bench.connect()
    await peer.ask(HEARTBEAT, beat("me", "G", producers=("P",)))
    bench.clock._start_ms += 600_000
    bench.clients.expire()
    assert await ids(peer, "G") == ["me"]
    assert not peer.transport.is_closing()
    bench.clock._start_ms -= 1_200_000
    await asyncio.sleep(121)
    bench.clients.expire()
    assert not bench.members.knows("G")
    assert peer.transport.is_closing()


@virtual
async def test_the_retry_topic_of_an_ordered_group_changes_once() -> None:
    bench = Bench()
    bench.topics.update(Topic("T", 4, 4, order=True), {})
    peer = bench.connect()
    changes: list[object] = []
    bench.topics.on_change = changes.append
    for _ in range(3):
        await peer.ask(HEARTBEAT, beat("me", "G", fingerprint=7))
        bench.topics.for_group("%RETRY%G", 1)  # as one who sends a message back
        await peer.ask(HEARTBEAT, beat("me", "G", topics=(), fingerprint=7, without=True))
    assert len(changes) == 1
    assert bench.topics.find("%RETRY%G") == Topic("%RETRY%G", 1, 1, order=True)


@virtual
async def test_members_of_a_broadcasting_group_are_not_told() -> None:
    peer = Bench().connect()
    await peer.ask(HEARTBEAT, beat("me", "G", model="BROADCASTING"))
    assert notices(peer.heard()) == []


@virtual
async def test_the_notice_can_be_turned_off_for_a_group_and_for_the_broker() -> None:
    bench = Bench()
    bench.groups.update_all([SubscriptionGroupConfig(groupName="G", notifyConsumerIdsChangedEnable=False)])
    peer = bench.connect(1)
    await peer.ask(HEARTBEAT, beat("me", "G"))
    assert notices(peer.heard()) == []
    bench.clients.configure(GroupRules(notify_members=False))
    await peer.ask(HEARTBEAT, beat("me", "H"))
    assert notices(peer.heard()) == []


@virtual
async def test_without_auto_creation_an_unknown_group_has_no_members() -> None:
    bench = Bench("autoCreateSubscriptionGroup=false")
    peer = bench.connect()
    answer = await peer.ask(HEARTBEAT, beat("me", "G", producers=("P",)))
    assert answer.code == 0
    assert notices(peer.heard()) == []
    assert (await peer.ask(LIST, consumerGroup="G")).code == 1
    assert bench.topics.find("%RETRY%G") is None
    assert bench.members.producer_groups() == ["P"]


@virtual
async def test_the_retry_topic_follows_group_and_topics() -> None:
    bench = Bench()
    bench.groups.update_all([SubscriptionGroupConfig(groupName="G", retryQueueNums=3)])
    bench.topics.update(Topic("Ordered", order=True), {})
    await bench.connect().ask(HEARTBEAT, beat("me", "G", topics=("Ordered",)))
    assert bench.topics.find("%RETRY%G") == Topic("%RETRY%G", 3, 3, order=True)


@virtual
async def test_a_short_heartbeat_keeps_the_subscriptions_while_its_fingerprint_does_not_change() -> None:
    bench = Bench()
    peer = bench.connect()

    async def asks_again(fingerprint: int, without: bool) -> bool:
        topics = () if without else ("T",)
        body = beat("me", "G", topics=topics, fingerprint=fingerprint, without=without)
        answer = await peer.ask(HEARTBEAT, body)
        return answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}

    assert not await asks_again(77, without=False)
    assert not await asks_again(77, without=True)
    assert bench.members.subscription("G", "T") is not None
    assert await asks_again(78, without=True)
    assert bench.members.subscription("G", "T") is not None


@virtual
async def test_a_short_heartbeat_to_a_broker_that_knows_no_subscriptions_asks_for_them() -> None:
    peer = Bench().connect()
    answer = await peer.ask(HEARTBEAT, beat("me", "G", topics=(), fingerprint=77, without=True))
    assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}


@virtual
async def test_heartbeats_that_cannot_be_read_are_refused_and_empty_ones_are_not() -> None:
    peer = Bench().connect()
    assert (await peer.ask(HEARTBEAT, b"")).code == 1
    assert (await peer.ask(HEARTBEAT, b"nonsense")).code == 1
    assert (await peer.ask(HEARTBEAT, b"{}")).code == 0
    assert (await peer.ask(HEARTBEAT, beat("me", ""))).code == 0


@virtual
async def test_goodbyes_of_strangers_are_answered_too() -> None:
    peer = Bench().connect()
    for fields in (
        {},
        {"consumerGroup": "zz"},
        {"producerGroup": "zz"},
        {"consumerGroup": "z", "producerGroup": "z"},
    ):
        answer = await peer.ask(UNREGISTER, clientID="zz", **fields)
        assert (answer.code, answer.ext) == (0, {})


@virtual
async def test_a_heartbeat_on_a_connection_that_is_closing_leaves_nothing_behind() -> None:
    bench = Bench()
    peer = bench.connect()
    peer.connection.is_closing = True
    command = Command(HEARTBEAT, body=beat("me", "G", producers=("P",)))
    bench.clients.heartbeat(Request(command, None, peer.connection))
    assert not bench.members.knows("G")
    assert bench.members.producer_groups() == []


@pytest.mark.parametrize(("kind", "code"), [("TAG", 0), (None, 0), ("", 0), ("SQL92", 1), ("ZZ", 1)])
def test_only_tags_can_be_subscribed_to(kind: str | None, code: int) -> None:
    @virtual
    async def test() -> None:
        peer = Bench().connect()
        body = {"clientId": "x", "group": "G", "subscriptionData": {"expressionType": kind, "topic": "T"}}
        answer = await peer.ask(CHECK, msgspec.json.encode(body))
        assert answer.code == code
        if code:
            assert answer.remark == f"The broker does not support consumer to filter message by {kind}"
        assert (await peer.ask(CHECK)).code == 0

    test()


# Large heartbeats


@virtual
async def test_a_heartbeat_with_too_many_groups_or_subscriptions_is_refused_as_a_whole() -> None:
    bench = Bench()
    peer = bench.connect()
    groups = [f"G{number}" for number in range(1000)]
    answer = await peer.ask(HEARTBEAT, beat("me", *groups, producers=("P",)))
    assert (answer.code, answer.remark) == (1, "a heartbeat must have at most 1000 groups, got 1001")
    topics = tuple(f"T{number}" for number in range(5001))
    answer = await peer.ask(HEARTBEAT, beat("me", "G1", "G2", topics=topics))
    assert answer.remark == "a heartbeat must have at most 10000 subscriptions, got 10002"
    assert bench.groups.find("G1") is None
    assert bench.members.consumers("G1") == []


def test_a_thousand_groups_in_one_heartbeat_are_taken_with_few_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        bench = Bench()
        groups = [f"G{number}" for number in range(1000)]
        answer = await bench.connect().ask(HEARTBEAT, beat("me", *groups))
        assert answer.code == 0
        assert bench.topics.find("%RETRY%G999") is not None
        assert bench.groups.find("G999") is not None

    with caplog.at_level(logging.INFO, "turbopump.broker"):
        run_virtual(main())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) < 50
    assert "Consumer group G0 is created" in lines
    assert lines[-1] == "Consumer groups changed by me on 127.0.0.1:4711: G0, G1, G2, G3, G4 and 995 more"
