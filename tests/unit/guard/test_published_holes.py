"""Published holes of Apache's servers and of other brokers, each a test that fails on the naive way.

Each is asked of a server without access control too, where it was found: there is no other defence.
"""

import asyncio
import json
import os
import posixpath
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import CONFIG, letters, running
from tests.unit.guard.foreign_requests import BODIES, FOREIGN
from tests.unit.guard.kit import ALICE, ROOT, SECRETS, GuardedDesk, guarded, guarded_broker, recorded_routers
from tests.unit.namesrv import guarded_kit as names

from turbopump.auth.needs import needs_of
from turbopump.auth.resources import ResourceType
from turbopump.broker import settings
from turbopump.guard.config import KEYS as ACCESS_KEYS
from turbopump.namesrv.config import SETTINGS as NAMESRV_SETTINGS
from turbopump.namesrv.config import NamesrvConfig, configure
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.protocol.conf import parse_properties
from turbopump.protocol.errors import SystemFailure
from turbopump.testing.disk import SimulatedDisk

NO_PERMISSION, INVALID_PARAMETER = 16, 29
BLACK_LIST = "Can not update config in black list."
STORE = "/store"


@asynccontextmanager
async def server(is_guarded: bool) -> AsyncIterator[GuardedDesk]:
    """A broker that decides who may ask, or one that serves everybody."""
    if is_guarded:
        async with guarded_broker() as desk:
            yield desk
    else:
        async with running(CONFIG) as plain:
            yield GuardedDesk(plain)


both_servers = pytest.mark.parametrize("is_guarded", [False, True], ids=["open", "guarded"])


def paths_of(disk: SimulatedDisk) -> set[str]:
    return {*disk._names.nodes, *disk._names.directories}


def outside(disk: SimulatedDisk, root: str = STORE) -> set[str]:
    """Paths of a disk that are not below a directory, wherever their dots lead."""
    parents = {root, posixpath.dirname(root), "/", "."}
    return {
        path
        for path in paths_of(disk)
        if ".." in path.split("/")
        or (not posixpath.normpath(path).startswith(f"{root}/") and posixpath.normpath(path) not in parents)
    }


# --- CVE-2019-17572: names that are paths ----------------------------------------------------------------

EVIL = ("../../../evil", "..", "/evil", "a/../../evil", "%RETRY%../../evil", "evil\x00", "..\\evil")
SUBSCRIBED = {"topic": "{}", "subString": "*", "expressionType": "TAG"}
TOPIC = {
    **{"defaultTopic": "TBW102", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6},
    **{"topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"},
}


def named(name: str) -> dict[str, tuple[int, dict[str, Any], object]]:
    """Requests with a name wherever it could become the name of a file: code, fields, body."""
    subscription = SUBSCRIBED | {"topic": name}
    group = {"groupName": name, "consumeEnable": True, "retryQueueNums": 1}
    return {
        "send": (Code.SEND_MESSAGE, {**FOREIGN, "producerGroup": "PG", "topic": name}, b"x"),
        "short send": (Code.SEND_MESSAGE_V2, letters(name), b"x"),
        "batch": (Code.SEND_BATCH_MESSAGE, letters(name, m="true"), b"x"),
        "reply": (Code.SEND_REPLY_MESSAGE_V2, letters(name), b"x"),
        "topic": (Code.UPDATE_AND_CREATE_TOPIC, TOPIC | {"topic": name}, b""),
        "topics": (Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, {"topicConfigList": [{"topicName": name}]}),
        "group": (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, group),
        "groups": (Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, {"groupConfigList": [group]}),
        "heartbeat of a group": (
            Code.HEART_BEAT,
            {},
            {
                "clientID": "c",
                "consumerDataSet": [
                    {"groupName": name, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
                    | {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription]}
                ],
                "producerDataSet": [{"groupName": name}],
            },
        ),
        "send back": (Code.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": name, "delayLevel": 0}, b""),
        "dead letter": (Code.CONSUMER_SEND_MSG_BACK, {"offset": 0, "group": name, "delayLevel": -1}, b""),
        "commit": (
            Code.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": name, "topic": name, "queueId": 0, "commitOffset": 1},
            b"",
        ),
        "pull": (Code.PULL_MESSAGE, FOREIGN | {"topic": name, "consumerGroup": name}, b""),
        "delete": (Code.DELETE_TOPIC_IN_BROKER, {"topic": name}, b""),
    }


MUST_REFUSE = {
    "send",
    "short send",
    "batch",
    "topic",
    "topics",
    "group",
    "groups",
    "send back",
    "dead letter",
}


@both_servers
@pytest.mark.parametrize("name", EVIL)
@virtual
async def test_hole_cve_2019_17572_a_name_is_a_path(name: str, is_guarded: bool) -> None:
    """10, 310, 320, 17, 18, 200, 225, 34, 36, … with dots and slashes: no directory or file of that name."""
    async with server(is_guarded) as desk:
        await desk.ask(ROOT, Code.SEND_MESSAGE_V2, letters("T"), b"first")
        for what, (code, ext, content) in named(name).items():
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            answer = await desk.ask(ROOT, code, ext, body)
            if what in MUST_REFUSE:
                assert answer.code != 0, (what, answer)
        await asyncio.sleep(60)  # all tables are written in this time
        disk = desk.desk.disk
        assert outside(disk) == set()
        assert not [path for path in paths_of(disk) if "evil" in path]


@both_servers
@virtual
async def test_hole_cve_2019_17572_is_refused_in_the_words_of_5x(is_guarded: bool) -> None:
    async with server(is_guarded) as desk:
        answer = await desk.ask(ROOT, Code.SEND_MESSAGE_V2, letters("../../../evil"), b"x")
        why = "contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        text = f"The specified topic: ../../../evil, {why}"
        assert (answer.code, answer.remark) == (INVALID_PARAMETER, text)


@asynccontextmanager
async def name_server(is_guarded: bool, **changes: Any) -> AsyncIterator[names.GuardedNameServer]:
    config = replace(names.CONFIG, config_store_path="/data/namesrv.properties", **changes)
    if not is_guarded:
        config = replace(config, access=NamesrvConfig().access)
    async with names.GuardedNameServer(config) as desk:
        yield desk


@both_servers
@pytest.mark.parametrize("name", EVIL)
@virtual
async def test_hole_cve_2019_17572_a_broker_registers_a_path_at_a_name_server(
    name: str, is_guarded: bool
) -> None:
    async with name_server(is_guarded) as desk:
        config = {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        version = {"counter": 1, "timestamp": 1}
        table = {"topicConfigTable": {name: config}, "dataVersion": version}
        body = json.dumps({"topicConfigSerializeWrapper": table, "filterServerList": [name]}).encode()
        broker = {
            **{"brokerName": name, "clusterName": name, "brokerAddr": "10.0.0.1:1", "haServerAddr": ""},
            "brokerId": 0,
        }
        await desk.ask(ROOT, Code.REGISTER_BROKER, broker, body)
        await desk.ask(ROOT, Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": name}, b'{"queueDatas":[]}')
        await desk.ask(ROOT, Code.PUT_KV_CONFIG, {"namespace": name, "key": name, "value": name})
        await asyncio.sleep(60)
        assert outside(desk.disk, "/data") == set()
        assert not [path for path in paths_of(desk.disk) if "evil" in path]


# --- CVE-2023-33246 and CVE-2025-27817: settings that name commands, files, classes and addresses ---------

COMMAND = "$(touch /tmp/turbopump-was-here)"
MARK = Path("/tmp/turbopump-was-here")
STARTS = {"subprocess.Popen", "os.system", "os.posix_spawn", "os.fork", "os.exec", "pty.spawn"}
_started: list[str] = []
_is_watched = False


def _watch(event: str, args: tuple[object, ...]) -> None:
    if _is_watched and event in STARTS:
        _started.append(f"{event} {args!r}")


@pytest.fixture(scope="module")
def _hook() -> None:
    sys.addaudithook(_watch)  # cannot be removed: it notes nothing unless a test watches


@pytest.fixture
def started(_hook: None) -> Iterator[list[str]]:
    """Processes that are started during a test."""
    global _is_watched
    _started.clear()
    _is_watched = True
    try:
        yield _started
    finally:
        _is_watched = False
        MARK.unlink(missing_ok=True)


def test_the_watch_sees_a_process_that_is_started(started: list[str]) -> None:
    subprocess.run(["true"], check=True)
    assert started


async def keys_of(desk: GuardedDesk) -> list[str]:
    """Every key that a broker knows or shows, and those with which Apache's could be taken over."""
    shown = (await desk.ask(ROOT, Code.GET_BROKER_CONFIG)).body
    own = {entry.key for entry in parse_properties(shown)}
    return sorted(own | {*settings.known_keys(), "rocketmqHome", "filterServerNums", "configBlackList"})


@both_servers
@virtual
async def test_hole_cve_2023_33246_a_key_of_request_25_runs_a_command(
    is_guarded: bool, started: list[str]
) -> None:
    """Every key, also beside the number of filter servers and the home that Apache's starter reads."""
    async with server(is_guarded) as desk:
        keys = await keys_of(desk)
        assert len(keys) > 200
        for key in keys:
            for text in (COMMAND, f"-c $@|sh . echo {COMMAND};", f"/tmp/x`touch {MARK}`"):
                body = f"{key}={text}\nfilterServerNums=1\nrocketmqHome={text}\n".encode()
                assert (await desk.ask(ROOT, Code.UPDATE_BROKER_CONFIG, {}, body)).code != 0, key
                await desk.ask(ROOT, Code.UPDATE_BROKER_CONFIG, {}, f"{key}={text}\n".encode())
        await asyncio.sleep(120)
        assert started == []
        assert not os.path.exists(MARK)  # noqa: ASYNC240
        assert outside(desk.desk.disk) == set()
        assert not [path for path in paths_of(desk.desk.disk) if "touch" in path]


PLACES = ("/etc/passwd", "file:///etc/passwd", "com.evil.Provider", "http://10.6.6.6/x", "ldap://10.6.6.6/x")


@both_servers
@virtual
async def test_hole_kafka_cve_2023_25194_a_setting_over_the_wire_names_a_class_a_file_or_a_url(
    is_guarded: bool, started: list[str]
) -> None:
    """And CVE-2025-27817. No key takes such a value, but names and lists of words that nothing opens."""
    async with server(is_guarded) as desk:
        taken: dict[str, str] = {}
        for key in await keys_of(desk):
            for text in PLACES:
                answer = await desk.ask(ROOT, Code.UPDATE_BROKER_CONFIG, {}, f"{key}={text}\n".encode())
                if answer.code == 0:
                    taken[key] = text
        of_effect = {key for key in taken if key not in settings.WITHOUT_EFFECT}
        assert of_effect == set()
        assert not [key for key in taken if any(word in key.lower() for word in ("path", "home", "plugin"))]
        await asyncio.sleep(120)
        assert outside(desk.desk.disk) == set()
        assert not [name for name in sys.modules if "evil" in name]
        assert started == []


@both_servers
@pytest.mark.parametrize("key", ["brokerConfigPath", "rocketmqHome", "configBlackList"])
@virtual
async def test_hole_request_25_changes_where_the_broker_writes_its_configuration(
    key: str, is_guarded: bool
) -> None:
    """Of 4.9.7: with brokerConfigPath, the next change of any key writes a file that the sender chose."""
    async with server(is_guarded) as desk:
        for body in (f"{key}=/tmp/evil", f"slaveReadEnable=true\n{key}=/tmp/evil", f" {key} : /tmp/evil"):
            answer = await desk.ask(ROOT, Code.UPDATE_BROKER_CONFIG, {}, body.encode())
            assert (answer.code, answer.remark) == (NO_PERMISSION, BLACK_LIST)
        assert b"slaveReadEnable=false" in (await desk.ask(ROOT, Code.GET_BROKER_CONFIG)).body


# --- CVE-2023-37582: the file of a name server's configuration --------------------------------------------


@both_servers
@pytest.mark.parametrize(
    "body",
    [
        "configStorePath=/tmp/evil",
        "rocketmqHome=/tmp/evil",
        "kvConfigPath=/tmp/evil",
        "configBlackList=x",
        "orderMessageEnable=true\nconfigStorePath=/tmp/evil",
        "configStorePath = /tmp/evil\n",
        "configStorePath\\\n=/tmp/evil",
        "config\\u0053torePath=/tmp/evil",
    ],
)
@virtual
async def test_hole_cve_2023_37582_request_318_names_the_file_that_is_written(
    body: str, is_guarded: bool
) -> None:
    async with name_server(is_guarded) as desk:
        answer = await desk.ask(ROOT, Code.UPDATE_NAMESRV_CONFIG, {}, body.encode())
        assert (answer.code, answer.remark) == (NO_PERMISSION, BLACK_LIST)
        assert outside(desk.disk, "/data") == set()
        assert not desk.disk.exists("/data/namesrv.properties")


@both_servers
@virtual
async def test_hole_cve_2023_37582_a_line_break_in_a_value_adds_a_key_to_the_file(is_guarded: bool) -> None:
    """What is read back at the next start is the same configuration: a value never becomes another line."""
    evil = "a\\nconfigStorePath=/tmp/evil\\nauthenticationEnabled=false\\r\\nkvConfigPath=/tmp/evil"
    async with name_server(is_guarded) as desk:
        taken = 0
        for key in NAMESRV_SETTINGS:
            answer = await desk.ask(ROOT, Code.UPDATE_NAMESRV_CONFIG, {}, f"{key}={evil}".encode())
            taken += answer.code == 0
        assert taken > 0
        stored = desk.disk.read("/data/namesrv.properties")
        entries = [(entry.key, entry.value) for entry in parse_properties(stored)]
        assert len(entries) == len({key for key, _ in entries})
        again, _ = configure(NamesrvConfig(), stored)
        assert (again.config_store_path, again.kv_config_path) == (
            "/data/namesrv.properties",
            "/data/kvConfig.json",
        )
        assert again.access.is_on is is_guarded
        shown = (await desk.ask(ROOT, Code.GET_NAMESRV_CONFIG)).body
        assert dict(entries).keys() == {entry.key for entry in parse_properties(shown)}


# --- §7.2: what a signature does not do -------------------------------------------------------------------


@virtual
async def test_limit_a_signed_request_that_was_read_is_served_again() -> None:
    """A signature has no time and no number: only TLS prevents this, as docs/security.md says."""
    async with guarded_broker() as desk:
        ext = ROOT.signed({name: str(value) for name, value in letters("T").items()}, b"x")
        for _ in range(2):
            for client in (desk.client, desk.desk.visitor()):
                again = Command(Code.SEND_MESSAGE_V2, ext=dict(ext), body=b"x")
                assert (await client.call(desk.desk.address, again, 10)).code == 0
        assert b"cannot" not in (desk.heard[0].remark or "").encode()


@virtual
async def test_limit_signed_fields_count_under_another_code_with_the_rights_of_that_code() -> None:
    """The identity is believed; the permission is that of the code that is served."""
    async with guarded_broker() as desk:
        await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters("T"), b"x")
        await desk.grant(ALICE, "Topic:T", "Get")
        signed = ALICE.signed({"topic": "T"}, b"")
        for code, answered in ((Code.GET_TOPIC_STATS_INFO, 0), (Code.DELETE_TOPIC_IN_BROKER, NO_PERMISSION)):
            request = Command(code, ext=dict(signed))
            answer = await desk.client.call(desk.desk.address, request, 10)
            assert answer.code == answered, answer.remark
        assert "has no permission to access Topic:T" in (answer.remark or "")


@virtual
async def test_limit_a_value_may_move_to_the_next_field_and_is_checked_where_it_is() -> None:
    """No field has a boundary in what is signed, so the same bytes name another topic; its rights decide."""
    async with guarded_broker() as desk:
        for topic in ("T", "TX"):
            await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters(topic), b"x")
        await desk.grant(ALICE, "Topic:T", "Get")
        signed = ALICE.signed({"topic": "T", "u": "X"}, b"")
        moved = {**signed, "topic": "TX", "u": ""}
        allowed = await desk.client.call(
            desk.desk.address, Command(Code.GET_TOPIC_STATS_INFO, ext=dict(signed)), 10
        )
        refused = await desk.client.call(desk.desk.address, Command(Code.GET_TOPIC_STATS_INFO, ext=moved), 10)
        assert (allowed.code, refused.code) == (0, NO_PERMISSION)
        assert "has no permission to access Topic:TX" in (refused.remark or "")


# --- NATS CVE-2025-30215: requests of administrators, asked by a tenant -----------------------------------


def needs_the_cluster(code: int, ext: dict[str, Any]) -> bool:
    command = Command(code, ext={key: str(value) for key, value in ext.items()})
    try:
        needs = needs_of(command, CONFIG.identity.cluster_name)
    except SystemFailure:  # its body names what it needs
        return False
    return any(need.resource.type is ResourceType.CLUSTER for need in needs)


@virtual
async def test_hole_nats_cve_2025_30215_a_tenant_asks_what_is_for_administrators(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everything on its own topics and groups gives a tenant nothing of the cluster, nor of other tenants."""
    routers = recorded_routers(monkeypatch)
    async with guarded_broker() as desk:
        await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters("T"), b"of another tenant")
        for resource in ("Topic:mine*", "Group:mine*"):
            await desk.grant(ALICE, resource, "All")
        await desk.done(ALICE, Code.UPDATE_AND_CREATE_TOPIC, TOPIC | {"topic": "mine"})
        await desk.done(ALICE, Code.SEND_MESSAGE_V2, letters("mine"), b"of the tenant")
        files = {path for path in paths_of(desk.desk.disk) if "/consumequeue/" in path}
        served = {}
        for code in sorted({code for router in routers for code in router._routes}):
            body = json.dumps(BODIES[code]).encode() if code in BODIES else b""
            answer = await desk.ask(ALICE, code, FOREIGN, body)
            if answer.code != NO_PERMISSION:
                served[code] = answer.code
        assert served == {}
        mine = {
            **FOREIGN,
            **dict.fromkeys(("topic", "b", "originTopic"), "mine"),
            **dict.fromkeys(("consumerGroup", "group", "groupName", "srcGroup", "destGroup"), "mine"),
        }
        for code in sorted({code for router in routers for code in router._routes}):
            answer = await desk.ask(ALICE, code, mine)
            if needs_the_cluster(code, mine):
                assert (answer.code, answer.body) == (NO_PERMISSION, b""), code
            assert b"of another tenant" not in answer.body
            assert not [secret for secret in SECRETS if secret.encode() in answer.body]
        assert files <= paths_of(desk.desk.disk) | {"/store/consumequeue/mine/0/00000000000000000000"}


@virtual
async def test_hole_a_tenant_finds_the_tenants_beside_it_in_what_it_lists() -> None:
    """Lists of topics, groups, producers and users name those of everybody, so they need the cluster."""
    lists = (
        *(Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Code.GET_ALL_CONSUMER_OFFSET),
        *(Code.GET_ALL_PRODUCER_INFO, Code.AUTH_LIST_USER, Code.AUTH_LIST_ACL, Code.VIEW_BROKER_STATS_DATA),
        *(Code.GET_BROKER_CONSUME_STATS, Code.GET_ALL_DELAY_OFFSET, Code.GET_ALL_MESSAGE_REQUEST_MODE),
    )
    async with guarded_broker() as desk:
        for resource in ("Topic:*", "Group:*"):
            await desk.grant(ALICE, resource, "All")
        for code in lists:
            answer = await desk.ask(ALICE, code, FOREIGN)
            assert (answer.code, answer.body) == (NO_PERMISSION, b""), code


@virtual
async def test_a_guarded_server_knows_more_keys_than_those_of_access_control() -> None:
    """Else the walks above would try little."""
    async with running(guarded()) as plain:
        assert set(await keys_of(GuardedDesk(plain))) > set(ACCESS_KEYS)
