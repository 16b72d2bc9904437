"""A name that is denied to a user is denied on every path of a broker that leads to it.

The user may do everything with every other topic and group, but nothing with the cluster.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit import virtual
from tests.properties import examples
from tests.unit.broker.desk import letters
from tests.unit.guard.accounts_kit import a_disk, accounts_broker
from tests.unit.guard.foreign_requests import FOREIGN, QUEUE, SUBSCRIPTION
from tests.unit.guard.kit import ALICE, NOBODY, ROOT, GuardedDesk, guarded_broker

from turbopump.auth.signature import Credentials
from turbopump.protocol import batch, properties
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command, encode
from turbopump.protocol.ids import parse_offset_id
from turbopump.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, TRACE_TOPIC
from turbopump.remoting.router import Route
from turbopump.testing.loop import run_virtual

NO_PERMISSION = 16
REFUSAL = re.compile("has no permission to access|No default permission for|Need admin permission")
BODY = b"of the denied name"
KEY = "order-17"
OPEN, OPEN_GROUP = "open", "open-group"

Path = tuple[int, dict[str, Any], bytes]


@dataclass(frozen=True)
class Places:
    """Message ids of what is stored for the denied name."""

    plain: str
    waiting: dict[str, str]
    """Half message, delayed message and timer."""


def at(message_id: str) -> int:
    return parse_offset_id(message_id)[2]


def sends(name: str) -> dict[str, Path]:
    """Every way to write a message to a topic."""
    dispatch = {properties.INNER_MULTI_DISPATCH: name}
    own = properties.pack({properties.REAL_TOPIC: name, properties.REAL_QUEUE_ID: "0"})
    inner = properties.pack(dispatch)
    found: dict[str, Path] = {
        "send": (Code.SEND_MESSAGE, FOREIGN | {"topic": name, "producerGroup": "PG"}, BODY),
        "short send": (Code.SEND_MESSAGE_V2, letters(name), BODY),
        "batch": (Code.SEND_BATCH_MESSAGE, letters(name, m="true"), batch.join([(0, BODY, b"")])),
        "reply": (Code.SEND_REPLY_MESSAGE, FOREIGN | {"topic": name}, BODY),
        "short reply": (Code.SEND_REPLY_MESSAGE_V2, letters(name), BODY),
        "half message": (Code.SEND_MESSAGE_V2, letters(name, f=4, pairs={"TRAN_MSG": "true"}), BODY),
        "delayed": (Code.SEND_MESSAGE_V2, letters(name, pairs={"DELAY": "1"}), BODY),
        "timer": (Code.SEND_MESSAGE_V2, letters(name, pairs={"TIMER_DELAY_SEC": "5"}), BODY),
        "ledger": (Code.LEDGER_SEND, {"id": OPEN_GROUP}, batch.join([(0, BODY, own.encode())])),
    }
    for store in (HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC):
        pairs = {properties.REAL_TOPIC: name, properties.REAL_QUEUE_ID: "0"}
        found[f"into {store}"] = (Code.SEND_MESSAGE_V2, letters(store, pairs=pairs), BODY)
    if name.startswith("%LMQ%"):
        rows = [(0, b"x", b""), (0, BODY, inner.encode())]
        found["beside"] = (Code.SEND_MESSAGE_V2, letters(OPEN, pairs=dispatch), BODY)
        found["beside a batch"] = (Code.SEND_BATCH_MESSAGE, letters(OPEN, m="true"), batch.join(rows))
    return found


def reads(name: str, places: Places) -> dict[str, Path]:
    """Every way to read a message of a topic, and facts about it, by its name or its place in the log."""
    subscription = SUBSCRIPTION | {"topic": name}
    beat = {
        "clientID": "x",
        "consumerDataSet": [{"groupName": "g"} | {"subscriptionDataSet": [subscription]}],
    }
    locks = {"consumerGroup": OPEN_GROUP, "clientId": "x", "mqSet": [QUEUE | {"topic": name}]}
    assignment = {"topic": name, "consumerGroup": OPEN_GROUP, "clientId": "x", "strategyName": "AVG"}
    by_name = {
        **FOREIGN,
        "topic": name,
        "topicList": name,
        **dict.fromkeys(("consumerGroup", "group", "compareGroup", "srcGroup", "destGroup"), OPEN_GROUP),
    }
    codes = (
        *(Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.QUERY_MESSAGE, Code.SEARCH_OFFSET_BY_TIMESTAMP),
        *(Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME),
        *(Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET, Code.GET_TOPIC_STATS_INFO),
        *(Code.QUERY_TOPIC_CONSUME_BY_WHO, Code.QUERY_CONSUME_QUEUE, Code.GET_TOPIC_CONFIG),
        *(Code.GET_CONSUME_STATS, Code.QUERY_CONSUME_TIME_SPAN, Code.QUERY_CORRECTION_OFFSET),
        *(Code.INVOKE_BROKER_TO_RESET_OFFSET, Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS),
        *(Code.CLONE_GROUP_OFFSET, Code.UPDATE_AND_GET_GROUP_FORBIDDEN, Code.RECALL_MESSAGE),
        *(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, Code.DELETE_TOPIC_IN_BROKER, Code.UPDATE_AND_CREATE_TOPIC),
        Code.RESUME_CHECK_HALF_MESSAGE,
    )
    found: dict[str, Path] = {code.name: (code, by_name, b"") for code in codes}
    found |= {
        "heartbeat": (Code.HEART_BEAT, {}, json.dumps(beat).encode()),
        "lock": (Code.LOCK_BATCH_MQ, {}, json.dumps(locks).encode()),
        "unlock": (Code.UNLOCK_BATCH_MQ, {}, json.dumps(locks).encode()),
        "assignment": (Code.QUERY_ASSIGNMENT, {}, json.dumps(assignment).encode()),
        "commit by a pull": (Code.PULL_MESSAGE, by_name | {"sysFlag": 1, "commitOffset": 1}, b""),
    }
    for what, message_id in {"plain": places.plain, **places.waiting}.items():
        found |= {f"{what}: {one}": path for one, path in by_place(message_id).items()}
    if "half" in places.waiting:
        found |= of_half(places.waiting["half"])
    return found


def of_half(message_id: str) -> dict[str, Path]:
    """Requests about a half message, that name an open topic if any."""
    ends = {
        **{"producerGroup": "PG", "tranStateTableOffset": 0, "commitLogOffset": at(message_id)},
        **{"commitOrRollback": 8, "msgId": "m", "fromTransactionCheck": "false"},
    }
    return {
        "end": (Code.END_TRANSACTION, ends, b""),
        "end as another": (Code.END_TRANSACTION, ends | {"topic": OPEN}, b""),
        "roll back": (Code.END_TRANSACTION, ends | {"commitOrRollback": 12, "topic": OPEN}, b""),
    }


def by_place(message_id: str) -> dict[str, Path]:
    """Requests that name a message by its place, and an open topic and group wherever they name one."""
    back = {"offset": at(message_id), "group": OPEN_GROUP, "delayLevel": 0, "originTopic": OPEN}
    direct = {"consumerGroup": OPEN_GROUP, "clientId": "c", "msgId": message_id}
    return {
        "view": (Code.VIEW_MESSAGE_BY_ID, {"offset": at(message_id)}, b""),
        "view as another": (Code.VIEW_MESSAGE_BY_ID, {"offset": at(message_id), "topic": OPEN}, b""),
        "send back": (Code.CONSUMER_SEND_MSG_BACK, back, b""),
        "send back as another": (Code.CONSUMER_SEND_MSG_BACK, back | {"topic": OPEN}, b""),
        "dead letter": (Code.CONSUMER_SEND_MSG_BACK, back | {"delayLevel": -1}, b""),
        "relay": (Code.CONSUME_MESSAGE_DIRECTLY, direct, b""),
        "relay as another": (Code.CONSUME_MESSAGE_DIRECTLY, direct | {"topic": OPEN}, b""),
    }


def of_group(name: str) -> dict[str, Path]:
    """Every way to use a group, its retry topic and what is relayed to its consumers."""
    ext = {
        **FOREIGN,
        "topic": OPEN,
        **dict.fromkeys(
            ("consumerGroup", "group", "groupName", "compareGroup", "srcGroup", "destGroup"), name
        ),
    }
    codes = (
        *(Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET),
        *(Code.UNREGISTER_CLIENT, Code.GET_CONSUMER_LIST_BY_GROUP, Code.GET_CONSUMER_CONNECTION_LIST),
        *(Code.GET_CONSUME_STATS, Code.GET_CONSUMER_RUNNING_INFO, Code.CONSUME_MESSAGE_DIRECTLY),
        *(Code.DELETE_SUBSCRIPTIONGROUP, Code.GET_SUBSCRIPTIONGROUP_CONFIG, Code.QUERY_TOPICS_BY_CONSUMER),
        *(Code.CONSUMER_SEND_MSG_BACK, Code.INVOKE_BROKER_TO_RESET_OFFSET, Code.CLONE_GROUP_OFFSET),
        *(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, Code.GLOBAL_OPEN, Code.GLOBAL_READ, Code.GLOBAL_CLAIM),
    )
    retry = f"%RETRY%{name}"
    own = {"consumerGroup": OPEN_GROUP, "group": OPEN_GROUP, "a": OPEN_GROUP, "topic": retry}
    beat = {"clientID": "x", "consumerDataSet": [{"groupName": name, "subscriptionDataSet": []}]}
    return {
        **{code.name: (code, ext, b"") for code in codes},
        "heartbeat": (Code.HEART_BEAT, {}, json.dumps(beat).encode()),
        "into its retry topic": (Code.SEND_MESSAGE_V2, letters(retry, a=OPEN_GROUP), BODY),
        "batch into its retry topic": (Code.SEND_BATCH_MESSAGE, letters(retry, a=OPEN_GROUP, m="true"), BODY),
        "delayed into its retry topic": (
            Code.SEND_MESSAGE_V2,
            letters(retry, a=OPEN_GROUP, pairs={"DELAY": "1"}),
            BODY,
        ),
        "out of its retry topic": (Code.PULL_MESSAGE, FOREIGN | own, b""),
        "out of its retry topic, as Spark": (Code.LITE_PULL_MESSAGE, FOREIGN | own, b""),
        "by key of its retry topic": (Code.QUERY_MESSAGE, FOREIGN | own, b""),
        "a ledger of its name": (Code.LEDGER_OPEN, {"id": name}, b""),
        "what a ledger of its name has": (Code.LEDGER_READ, {"id": name}, b""),
    }


async def sent(desk: GuardedDesk, topic: str, **more: Any) -> str:
    answer = await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters(topic, **more), BODY)
    return str((answer.ext or {})["msgId"])


async def store(desk: GuardedDesk, name: str) -> Places:
    """Stores messages of every kind for the name, and makes what is open."""
    await sent(desk, OPEN)
    pairs = {"KEYS": KEY}
    plain = await sent(desk, name, pairs=pairs)
    if name.startswith("%RETRY%"):
        return Places(plain, {})
    waiting = {
        "half": await sent(desk, name, f=4, pairs=pairs | {"TRAN_MSG": "true", "PGROUP": "PG"}),
        "delayed": await sent(desk, name, pairs=pairs | {"DELAY": "18"}),
        "timer": await sent(desk, name, pairs=pairs | {"TIMER_DELAY_SEC": "86400"}),
    }
    return Places(plain, waiting)


@asynccontextmanager
async def denied(resource: str) -> AsyncIterator[GuardedDesk]:
    """A broker at which alice may use all topics and groups but one; nobody may use that one, too."""
    async with guarded_broker() as desk:
        for who in (ALICE, NOBODY):
            for everything in ("Topic:*", "Group:*"):
                await desk.grant(who, everything, "All")
        await desk.grant(ALICE, resource, "All", decision="Deny")
        yield desk


@asynccontextmanager
async def denied_to_account(**lists: list[str]) -> AsyncIterator[GuardedDesk]:
    """A broker at which the account `alice-account` may use all topics and groups but those of its lists."""
    rows = [
        {"accessKey": ROOT.access_key + "-account", "secretKey": ROOT.secret_key, "admin": True},
        {
            **{"accessKey": ALICE.access_key + "-account", "secretKey": ALICE.secret_key},
            **{"defaultTopicPerm": "PUB|SUB", "defaultGroupPerm": "PUB|SUB"},
            **lists,
        },
    ]
    async with accounts_broker(a_disk(json.dumps({"accounts": rows}), "accounts: []")) as desk:
        yield AsAccounts(desk.desk)


class AsAccounts(GuardedDesk):
    """Asks as the accounts of 4.x that have the names of users, and a longer one."""

    async def ask(self, who: Credentials | None, *request: Any, **more: Any) -> Command:
        assert who is not None
        account = Credentials(f"{who.access_key}-account", who.secret_key)
        return await super().ask(account, *request, **more)


async def served(desk: GuardedDesk, who: Credentials, paths: dict[str, Path]) -> dict[str, Command]:
    """The answers to the requests that access control lets pass."""
    found = {}
    for what, (code, ext, body) in paths.items():
        answer = await desk.ask(who, code, ext, body)
        refused = answer.code == NO_PERMISSION and REFUSAL.search(answer.remark or "") is not None
        if not refused or answer.body:
            found[what] = answer
    return found


def heard(desk: GuardedDesk) -> bytes:
    return b"".join(encode(answer) for answer in desk.heard)


NAMES = st.text("abcXYZ019_-", min_size=1, max_size=20).filter(lambda name: name not in (OPEN, OPEN_GROUP))
TOPICS = st.one_of(NAMES, NAMES.map("%LMQ%{}".format), NAMES.map("%DLQ%{}".format), st.just(TRACE_TOPIC))


@given(TOPICS)
@examples(40)
def test_hole_nats_cve_2022_29946_a_denied_topic_is_open_on_one_path(name: str) -> None:
    run_virtual(_topic_is_denied(name))


@given(TOPICS)
@examples(20)
def test_a_topic_that_an_account_of_4x_denies_is_denied_on_every_path(name: str) -> None:
    run_virtual(_topic_is_denied(name, by_account=True))


async def _topic_is_denied(name: str, by_account: bool = False) -> None:
    broker = denied_to_account(topicPerms=[f"{name}=DENY"]) if by_account else denied(f"Topic:{name}")
    async with broker as desk:
        places = await store(desk, name)
        desk.heard.clear()
        end = desk.desk.store.log.end
        paths = sends(name) | reads(name, places)
        assert await served(desk, ALICE, paths) == {}
        assert BODY not in heard(desk)
        assert desk.desk.store.log.end == end


@given(NAMES)
@examples(40)
def test_hole_nats_cve_2022_29946_a_denied_group_is_open_on_one_path(name: str) -> None:
    run_virtual(_group_is_denied(name))


@given(NAMES)
@examples(20)
def test_a_group_that_an_account_of_4x_denies_is_denied_on_every_path(name: str) -> None:
    run_virtual(_group_is_denied(name, by_account=True))


async def _group_is_denied(name: str, by_account: bool = False) -> None:
    broker = denied_to_account(groupPerms=[f"{name}=DENY"]) if by_account else denied(f"Group:{name}")
    async with broker as desk:
        places = await store(desk, f"%RETRY%{name}")
        desk.heard.clear()
        end = desk.desk.store.log.end
        assert await served(desk, ALICE, of_group(name) | by_place(places.plain)) == {}
        assert BODY not in heard(desk)
        assert desk.desk.store.log.end == end


NEED_THE_CLUSTER = {f"into {store}" for store in (HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC)}


@pytest.mark.parametrize("name", ["T", "%LMQ%T", "%DLQ%G"])
@virtual
async def test_the_same_paths_are_open_to_a_user_without_the_denial(name: str) -> None:
    """Otherwise the tests above would show nothing: what is refused there is refused for the name alone."""
    async with denied(f"Topic:{name}") as desk:
        places = await store(desk, name)
        for what, path in (sends(name) | reads(name, places)).items():
            found = await served(desk, NOBODY, {what: path})
            assert (what in found) is (what not in NEED_THE_CLUSTER), (what, found)


@virtual
async def test_a_message_of_a_denied_topic_is_not_relayed_to_a_consumer_that_is_there() -> None:
    """309 and 307, with a consumer of the user's own group connected and listening."""
    seen: list[Command] = []

    def take(request: Any) -> Command:
        seen.append(request.command)
        return Command(0, request.command.opaque, 1)

    async with denied("Topic:T") as desk:
        places = await store(desk, "T")
        routes = {
            code: Route(None, take)
            for code in (Code.CONSUME_MESSAGE_DIRECTLY, Code.GET_CONSUMER_RUNNING_INFO)
        }
        consumer = desk.desk.visitor(routes)
        subscription = SUBSCRIPTION | {"topic": OPEN}
        beat = {
            "clientID": "c",
            "consumerDataSet": [{"groupName": OPEN_GROUP, "subscriptionDataSet": [subscription]}],
        }
        assert (await desk.ask(ALICE, Code.HEART_BEAT, {}, json.dumps(beat).encode(), consumer)).code == 0
        for message_id in (places.plain, *places.waiting.values()):
            relays = {k: v for k, v in by_place(message_id).items() if k.startswith("relay")}
            assert await served(desk, ALICE, relays) == {}
        assert seen == []
        direct = {"consumerGroup": OPEN_GROUP, "clientId": "c", "msgId": places.plain}
        await desk.ask(NOBODY, Code.CONSUME_MESSAGE_DIRECTLY, direct)
        assert [BODY in command.body for command in seen] == [True]
        seen.clear()
        running = {"consumerGroup": "G", "clientId": "c"}
        await desk.grant(ALICE, "Group:G", "All", decision="Deny")
        assert (await desk.ask(ALICE, Code.GET_CONSUMER_RUNNING_INFO, running)).code == NO_PERMISSION
        await asyncio.sleep(1)
        assert seen == []
        await consumer.close()
