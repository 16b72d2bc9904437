"""Every key that can change while the broker runs does change something, at once; no other key does."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from tests.kit import virtual
from tests.unit.broker.desk import CONFIG, Desk, letters, records, running
from tests.unit.broker.flow_control_kit import hold_up
from tests.unit.broker.metrics_kit import SWITCHES

from turbopump.broker import readers, settings
from turbopump.broker.admin.configuration import NEVER
from turbopump.broker.config import load
from turbopump.broker.replicas.acknowledgement import ReplicaAcknowledgement
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.ledger import read_summaries
from turbopump.remoting.router import Request, Route
from turbopump.store.store import Store
from turbopump.testing.loop import run_virtual

BUSY = 2
NUMBERS = itertools.count()
START_HOUR = "22"  # of the virtual clock's first day, in UTC
SMALL_FILES: dict[str, Any] = {"commit_log_file_size": 8192, "file_reserved_hours": 0, "delete_when": "12"}


@dataclass(frozen=True)
class Case:
    """What is observed before the change, and after it."""

    text: str
    observe: Callable[[Desk], Awaitable[Any]]
    before: Any
    after: Any
    store: dict[str, Any] = field(default_factory=dict)
    role: str = "ASYNC_MASTER"
    first: str = ""  # changed beforehand
    around: Callable[[], AbstractContextManager[Any]] = nullcontext


def store_of(desk: Desk) -> Store:
    store = desk.broker._store
    assert store is not None
    return store


async def code_of(answer: Awaitable[Command]) -> int:
    return (await answer).code


# What is observed


async def send_to_a_new_topic(desk: Desk) -> int:
    return await code_of(desk.send(f"New{next(NUMBERS)}"))


async def send_with_a_time(desk: Desk) -> int:
    return await code_of(desk.send("T", pairs={"TIMER_DELAY_SEC": "100"}))


async def recall_nothing(desk: Desk) -> int:
    ext = {"topic": "T", "recallHandle": "x"}
    return await code_of(desk.ask(RequestCode.RECALL_MESSAGE, ext))


async def pull(desk: Desk) -> int:
    await desk.send("T")
    return await code_of(desk.pull("T", 0))


async def lite_pull(desk: Desk) -> int:
    await desk.send("T")
    return await code_of(desk.pull("T", 0, code=RequestCode.LITE_PULL_MESSAGE))


async def pull_by_an_expression(desk: Desk) -> int:
    await desk.send("T", pairs={"a": "1"})
    return await code_of(desk.pull("T", 0, subscription="a = 1", expressionType="SQL92"))


async def create(desk: Desk, topic: str, attributes: str = "") -> int:
    ext = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    ext |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", "attributes": attributes}
    return await code_of(desk.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, ext))


async def pull_by_a_new_group(desk: Desk, prefix: str = "G") -> int:
    await desk.send("T")
    return await code_of(desk.pull("T", 0, consumerGroup=f"{prefix}{next(NUMBERS)}"))


async def beat(desk: Desk, client_id: str, notices: list[int]) -> None:
    def noticed(request: Request[None]) -> None:
        notices.append(1)

    client = desk.visitor({RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: Route(None, noticed)})
    consumer = {"groupName": "CG", "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}]}
    data = {"clientID": client_id, "consumerDataSet": [consumer]}
    request = Command(RequestCode.HEART_BEAT, body=msgspec.json.encode(data))
    assert (await client.call(desk.address, request)).code == 0


async def notices(desk: Desk) -> bool:
    """Whether one member hears of another that joins."""
    heard: list[int] = []
    await beat(desk, f"one{next(NUMBERS)}", heard)
    await asyncio.sleep(2)
    heard.clear()
    await beat(desk, f"two{next(NUMBERS)}", [])
    await asyncio.sleep(2)
    return bool(heard)


async def members_after_15_s(desk: Desk) -> int:
    await beat(desk, f"c{next(NUMBERS)}", [])
    await asyncio.sleep(15)
    answer = await desk.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "CG"})
    return len(msgspec.json.decode(answer.body or b'{"consumerIdList":[]}')["consumerIdList"])


async def reset_offline(desk: Desk) -> int:
    await desk.send("T")
    await desk.pull("T", 0)
    ext = {"topic": "T", "group": "readers", "timestamp": 0, "isForce": "true"}
    return await code_of(desk.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext))


async def seconds_of_an_empty_pull(desk: Desk) -> float:
    await desk.send("T")
    began = asyncio.get_running_loop().time()
    queue = store_of(desk).queues.queue("T", 0)
    await desk.pull("T", queue.max_offset, sysFlag=6, suspendTimeoutMillis=3000)
    return round(asyncio.get_running_loop().time() - began, 1)


async def replies_kept(desk: Desk) -> int:
    topic = "DefaultCluster_REPLY_TOPIC"
    pairs = {"REPLY_TO_CLIENT": "nobody", "CORRELATION_ID": "c1", "MSG_TYPE": "reply", "TTL": "3000"}
    before = store_of(desk).queues.queue(topic, 0).max_offset
    await desk.ask(RequestCode.SEND_REPLY_MESSAGE_V2, letters(topic, pairs=pairs), b"answer")
    return store_of(desk).queues.queue(topic, 0).max_offset - before


async def send_to_a_slow_disk(desk: Desk) -> int:
    await desk.send("T")
    desk.workers.stall(2.0)
    answer = await desk.send("T")
    await asyncio.sleep(3)
    return answer.code


async def send_while_the_disk_is_stalled(desk: Desk) -> int:
    await desk.send("T")
    desk.workers.stall(0.9)
    first = asyncio.create_task(desk.send("T"))
    await asyncio.sleep(0.6)
    second = asyncio.create_task(desk.send("T"))
    await first
    await asyncio.sleep(1)
    return (await second).code


async def messages_in_one_pull(desk: Desk) -> int:
    while store_of(desk).queues.queue("T", 0).max_offset < 40:
        await desk.send("T", b"x" * 1000)
    return len(records(await desk.pull("T", 0)))


async def messages_in_one_query(desk: Desk) -> int:
    for _ in range(3):
        await desk.send("T", pairs={"KEYS": "k"})
    ext = {"topic": "T", "key": "k", "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 62}
    return len(records(await desk.ask(RequestCode.QUERY_MESSAGE, ext)))


async def fill(desk: Desk) -> Store:
    """Several whole files of the log."""
    store = store_of(desk)
    while len(store.commit_log.files.starts) < 6:
        await desk.send("T", b"x" * 1000)
    await asyncio.sleep(11)  # synced
    return store


async def files_deleted(desk: Desk) -> bool:
    store = await fill(desk)
    return await store.retention.round() > 0


async def files_deleted_at_once(desk: Desk) -> int:
    store = await fill(desk)
    store.retention.ask()
    return await store.retention.round()


async def seconds_of_deleting(desk: Desk) -> float:
    store = await fill(desk)
    store.retention.ask()
    began = asyncio.get_running_loop().time()
    deleted = await store.retention.round()
    return round((asyncio.get_running_loop().time() - began) / (deleted - 1), 1)


async def send_to_a_full_disk(desk: Desk) -> int:
    await store_of(desk).retention.round(may_delete=False)
    return await code_of(desk.send("T"))


def at(ratio: float, observe: Callable[[Desk], Awaitable[Any]]) -> Callable[[Desk], Awaitable[Any]]:
    """With a disk that is so full."""

    async def main(desk: Desk) -> Any:
        await fill(desk)
        desk.disk.used_ratio = ratio
        try:
            return await observe(desk)
        finally:
            desk.disk.used_ratio = None
            await store_of(desk).retention.round(may_delete=False)

    return main


def held_up(seconds: float, code: int) -> Callable[[Desk], Awaitable[bool]]:
    """Whether a request that waited so long is turned away."""

    async def main(desk: Desk) -> bool:
        await desk.send("T")
        hold_up(seconds)
        ext = letters("T") if code == RequestCode.SEND_MESSAGE_V2 else None
        if code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            return (await desk.pull("T", 0, code=code)).code == BUSY
        return (await desk.ask(code, ext, b"{}")).code == BUSY

    return main


async def server_suggested_to_a_reader_of_old_messages(desk: Desk) -> str:
    await messages_in_one_pull(desk)
    return ((await desk.pull("T", 0)).ext or {})["suggestWhichBrokerId"]


async def pull_beyond_the_end(desk: Desk) -> int:
    return await code_of(desk.pull("SELF_TEST_TOPIC", 5))


def with_slave(received: int, what: Callable[[Desk], Awaitable[Any]]) -> Callable[[Desk], Awaitable[Any]]:
    """With a slave that has reported this offset of the log."""

    async def main(desk: Desk) -> Any:
        acknowledgement = desk.broker._acknowledgement
        assert isinstance(acknowledgement, ReplicaAcknowledgement)
        acknowledgement._copies.reported("slave", received)
        return await what(desk)

    return main


async def send(desk: Desk) -> int:
    return await code_of(desk.send("T"))


async def seconds_of_a_send(desk: Desk) -> float:
    began = asyncio.get_running_loop().time()
    await desk.send("T")
    return round(asyncio.get_running_loop().time() - began, 1)


def all_cold() -> AbstractContextManager[Any]:
    return patch("turbopump.store.reading.machine_memory", lambda: 0)


def hours_of_a_second() -> AbstractContextManager[Any]:
    return patch.multiple("turbopump.broker.transactions.ledger.expiry", HOUR_MS=1000, ROUND_S=1.0)


async def state_of_an_idle_id(desk: Desk) -> str:
    fields = {"id": "query", "run": f"r{next(_runs)}", "home": "broker-a"}
    assert (await desk.ask(RequestCode.LEDGER_OPEN, fields)).code == 0
    await asyncio.sleep(10)
    (book,) = read_summaries((await desk.ask(RequestCode.LEDGER_LIST)).body)
    return book.state


_runs = itertools.count()


def little_memory() -> AbstractContextManager[Any]:
    return patch("turbopump.store.reading.machine_memory", lambda: 60_000)


SYNC = {"flush_disk_type": "SYNC_FLUSH"}
NOTHING, ALL = 0, 1 << 60  # offsets that a slave has reported
ALONE, LATE = ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT

CASES: dict[str, Case] = {
    "autoCreateTopicEnable": Case("false", send_to_a_new_topic, 0, 17),
    "brokerPermission": Case("2", pull, 0, 16),
    "transactionalIdRetentionHours": Case(
        "5", state_of_an_idle_id, "open", "expired", around=hours_of_a_second
    ),
    "timerMaxDelaySec": Case("50", send_with_a_time, 0, 13),
    "recallMessageEnable": Case("false", recall_nothing, 17, 16),
    "validateSystemTopicWhenUpdateTopic": Case("false", lambda desk: create(desk, "SELF_TEST_TOPIC"), 29, 0),
    "enableMixedMessageType": Case("true", lambda desk: create(desk, "Mixed", "+message.type=MIXED"), 29, 0),
    "autoCreateSubscriptionGroup": Case("false", pull_by_a_new_group, 0, 26),
    "enableCreateSysGroup": Case(
        "false",
        lambda desk: pull_by_a_new_group(desk, "CID_RMQ_SYS_"),
        0,
        26,
        first="autoCreateSubscriptionGroup=false",
    ),
    "notifyConsumerIdsChangedEnable": Case("false", notices, True, False),
    "channelExpiredTimeout": Case("2000", members_after_15_s, 1, 0),
    "useServerSideResetOffset": Case("false", reset_offline, 0, 206),
    "longPollingEnable": Case("false", seconds_of_an_empty_pull, 3.0, 1.0),
    "shortPollingTimeMills": Case("200", seconds_of_an_empty_pull, 1.0, 0.2, first="longPollingEnable=false"),
    "litePullMessageEnable": Case("false", lite_pull, 0, 16),
    "enablePropertyFilter": Case("true", pull_by_an_expression, 1, 0),
    "storeReplyMessageEnable": Case("false", replies_kept, 1, 0),
    "syncFlushTimeout": Case("1000", send_to_a_slow_disk, 0, 10, SYNC),
    "osPageCacheBusyTimeOutMills": Case("300", send_while_the_disk_is_stalled, 0, BUSY, SYNC),
    "accessMessageInMemoryMaxRatio": Case("100", messages_in_one_pull, 8, 32, around=little_memory),
    "maxTransferBytesOnMessageInMemory": Case("1", messages_in_one_pull, 32, 1),
    "maxTransferCountOnMessageInMemory": Case("3", messages_in_one_pull, 32, 3),
    "maxTransferBytesOnMessageInDisk": Case("1", messages_in_one_pull, 8, 1, around=all_cold),
    "maxTransferCountOnMessageInDisk": Case("3", messages_in_one_pull, 8, 3, around=all_cold),
    "maxMsgsNumBatch": Case("2", messages_in_one_query, 3, 2),
    "deleteCommitLogFilesInterval": Case("5000", seconds_of_deleting, 0.1, 5.0, SMALL_FILES),
    "deleteFileBatchMax": Case("2", files_deleted_at_once, 5, 2, SMALL_FILES),
    "deleteWhen": Case(START_HOUR, files_deleted, False, True, SMALL_FILES),
    "fileReservedTime": Case("1", files_deleted, True, False, SMALL_FILES | {"delete_when": START_HOUR}),
    "diskMaxUsedSpaceRatio": Case("20", at(0.5, files_deleted), False, True, SMALL_FILES),
    "diskSpaceCleanForciblyRatio": Case(
        "40", at(0.6, files_deleted), False, True, SMALL_FILES | {"file_reserved_hours": 9}
    ),
    "cleanFileForciblyEnable": Case(
        "false", at(0.87, files_deleted), True, False, SMALL_FILES | {"file_reserved_hours": 9}
    ),
    "diskSpaceWarningLevelRatio": Case("40", at(0.6, send_to_a_full_disk), 0, 14, SMALL_FILES),
    "slaveReadEnable": Case(
        "true", server_suggested_to_a_reader_of_old_messages, "0", "1", around=little_memory
    ),
    "offsetCheckInSlave": Case("true", pull_beyond_the_end, 19, 21, role="SLAVE"),
    "haSlaveFallbehindMax": Case("100", with_slave(NOTHING, send), LATE, ALONE, role="SYNC_MASTER"),
    "slaveTimeout": Case("700", with_slave(NOTHING, seconds_of_a_send), 3.0, 0.7, role="SYNC_MASTER"),
    "inSyncReplicas": Case("3", with_slave(ALL, send), 0, LATE, role="SYNC_MASTER"),
    "minInSyncReplicas": Case("2", send, ALONE, ResponseCode.SYSTEM_ERROR, role="SYNC_MASTER"),
    "enableAutoInSyncReplicas": Case(
        "true", with_slave(ALL, send), LATE, 0, role="SYNC_MASTER", first="inSyncReplicas=3"
    ),
    "brokerFastFailureEnable": Case("false", held_up(0.5, RequestCode.SEND_MESSAGE_V2), True, False),
    "waitTimeMillsInSendQueue": Case("700", held_up(0.5, RequestCode.SEND_MESSAGE_V2), True, False),
    "waitTimeMillsInPullQueue": Case("300", held_up(0.5, RequestCode.PULL_MESSAGE), False, True),
    "waitTimeMillsInLitePullQueue": Case("300", held_up(0.5, RequestCode.LITE_PULL_MESSAGE), False, True),
    "waitTimeMillsInHeartbeatQueue": Case("300", held_up(0.5, RequestCode.HEART_BEAT), False, True),
    "waitTimeMillsInTransactionQueue": Case("300", held_up(0.5, RequestCode.END_TRANSACTION), False, True),
    "waitTimeMillsInAckQueue": Case("300", held_up(0.5, RequestCode.ACK_MESSAGE), False, True),
    "waitTimeMillsInAdminBrokerQueue": Case(
        "300", held_up(0.5, RequestCode.GET_BROKER_RUNTIME_INFO), False, True
    ),
}


async def configure(desk: Desk, text: str) -> Command:
    return await desk.ask(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())


@pytest.mark.parametrize("key", CASES)
def test_a_change_takes_effect_at_once(key: str) -> None:
    case = CASES[key]
    broker_id = 1 if case.role == "SLAVE" else 0
    identity = replace(CONFIG.identity, role=case.role, broker_id=broker_id)

    async def main() -> None:
        async with running(replace(CONFIG, identity=identity), **case.store) as desk:
            if case.first:
                assert (await configure(desk, case.first)).code == 0
            assert await case.observe(desk) == case.before
            answer = await configure(desk, f"{key}={case.text}")
            assert answer.code == 0, answer.remark
            assert await case.observe(desk) == case.after
            shown = (await desk.ask(RequestCode.GET_BROKER_CONFIG)).body.decode()
            assert f"{key}={case.text}\n" in shown

    with case.around():
        run_virtual(main())


def test_no_key_is_called_hot_without_a_test() -> None:
    hot = {key for key, row in settings.SETTINGS.items() if row.hot}
    assert hot == {*CASES, *SWITCHES}  # the latter are in test_metrics.py


# What nobody may change over the wire


def test_nothing_that_can_change_names_a_path_a_host_or_a_command() -> None:
    texts = (
        readers.TEXT,
        readers.DIRECTORY,
        readers.HOST,
        readers.OPTIONAL_HOST,
        readers.ADDRESSES,
        readers.NAME,
    )
    for key, row in settings.SETTINGS.items():
        if row.hot:
            assert row.reader not in texts, key
            assert not NEVER.search(key), key


@pytest.mark.parametrize(
    "key",
    [
        "rocketmqHome",
        "brokerConfigPath",
        "configBlackList",
        "storePathRootDir",
        "storePathCommitLog",
        "storePathEpochFile",
        "authConfigPath",
        "readOnlyCommitLogStorePaths",
        "messageStorePlugIn",
        "authenticationProvider",
        "filterServerNums",
        "ROCKETMQHOME",
        "someFutureScript",
    ],
)
@virtual
async def test_a_key_that_names_a_path_or_a_command_is_refused_even_unchanged(key: str) -> None:
    async with running() as desk:
        before = (await desk.ask(RequestCode.GET_BROKER_CONFIG)).body
        for text in ("/tmp/x", "", "0", "-c $@|sh . echo id;"):
            answer = await configure(desk, f"brokerPermission=4\n{key}={text}")
            assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
        assert (await desk.ask(RequestCode.GET_BROKER_CONFIG)).body == before


def test_the_operator_may_put_more_keys_on_the_list() -> None:
    config = load("brokerName=b\nconfigBlackList=brokerPermission;fileReservedTime").config

    async def main() -> None:
        async with running(replace(CONFIG, remote=config.remote)) as desk:
            assert (await configure(desk, "brokerPermission=4")).code == 16
            assert (await configure(desk, "deleteWhen=05")).code == 0
            assert (await configure(desk, "configBlackList=")).code == 16

    run_virtual(main())


@virtual
async def test_an_unknown_key_is_refused_and_nothing_is_changed() -> None:
    async with running() as desk:
        before = (await desk.ask(RequestCode.GET_BROKER_CONFIG)).body
        answer = await configure(desk, "fileReservedTime=71\nfileReservedTimes=72")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == (
            "fileReservedTimes is an unknown key, nothing was changed; did you mean fileReservedTime?"
        )
        assert (await configure(desk, "xyzzy=1")).remark == "xyzzy is an unknown key, nothing was changed"
        assert (await desk.ask(RequestCode.GET_BROKER_CONFIG)).body == before


def test_a_key_without_effect_is_taken_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with running() as desk:
            assert (await configure(desk, "flushCommitLogTimed=false")).code == 0

    run_virtual(main())
    (line,) = [text for text in caplog.messages if "without effect" in text]
    assert line.endswith(": flushCommitLogTimed")


def test_a_time_that_looks_like_seconds_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with running() as desk:
            assert (await configure(desk, "channelExpiredTimeout=120")).code == 0

    run_virtual(main())
    assert "channelExpiredTimeout=120 means 120 milliseconds, not seconds" in caplog.text


@virtual
async def test_a_ratio_of_zero_makes_every_pull_one_of_old_messages() -> None:
    async with running() as desk:
        for _ in range(20):
            await desk.send("T")
        assert len(records(await desk.pull("T", 0))) == 20
        assert (await configure(desk, "accessMessageInMemoryMaxRatio=0")).code == 0
        assert len(records(await desk.pull("T", 0))) == 8


@virtual
async def test_a_change_is_gone_after_a_restart() -> None:
    """Apache rewrites its file. Ours is the operator's: what shall stay is written there by hand."""

    async with running() as desk:
        assert (await configure(desk, "brokerPermission=4")).code == 0
        disk = desk.disk
    async with running(disk=disk) as desk:
        assert b"brokerPermission=6\n" in (await desk.ask(RequestCode.GET_BROKER_CONFIG)).body


@virtual
async def test_what_an_old_mqadmin_exports_is_shown_too() -> None:
    async with running() as desk:
        shown = (await desk.ask(RequestCode.GET_BROKER_CONFIG)).body.decode().splitlines()
        assert {"useTLS=false", "slaveReadEnable=false", "filterServerNums=0"} <= set(shown)
