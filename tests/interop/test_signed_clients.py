"""Our client signs: Apache's servers with access control let it in, and say why when they do not."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from turbopump import Admin, Consumer, Decision, Message, MessageExt, Producer, PullConsumer
from turbopump.client.admin import PlainAccessConfig
from turbopump.client.settings import ConsumeFromWhere
from turbopump.errors import AccessRefused, SendRefused
from turbopump.protocol.access_refusals import FORBIDDEN, UNKNOWN, UNSIGNED, WRONG

from . import access_control, artifacts, peers
from .access_control import OTHER, PULLERS, READERS, SUPER, TOPIC, USER, V4, V5

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
WAIT_S = 60.0

REMARKS = {
    V4: {
        UNSIGNED: "No accessKey is configured",
        UNKNOWN: "No acl config for nobody",
        WRONG: "Check signature failed for accessKey=writer1",
        FORBIDDEN: f"No default permission for topic:{OTHER}",
    },
    V5: {
        UNSIGNED: "username cannot be null.",
        UNKNOWN: "User:nobody is not found.",
        WRONG: "check signature failed.",
        FORBIDDEN: f"User:writer1 has no permission to access Topic:{OTHER} from 127.0.0.1, "
        "no matched policies.",
    },
}


@pytest.fixture(scope="module", params=artifacts.SERVERS)
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[peers.Cluster]:
    cluster = access_control.start(request.param, tmp_path_factory.mktemp(f"guarded-{request.param}"))
    yield cluster
    cluster.discard()


def test_every_kind_of_client_is_let_in(guarded: peers.Cluster) -> None:
    sent = send_all(guarded)
    got: list[str] = []
    checked = threading.Event()
    consumer = Consumer(READERS, name_servers=guarded.namesrv, consume_from_where=FIRST, **USER)

    @consumer.on(TOPIC)
    def take(message: MessageExt) -> None:
        got.append(message.text)
        if message.text == "single" and not checked.is_set():
            checked.set()
            raise ValueError("once more")  # comes back through the retry topic

    with consumer:
        until(lambda: set(got) >= sent and got.count("single") >= 2)
    with PullConsumer(
        PULLERS, topics=[TOPIC], name_servers=guarded.namesrv, consume_from_where=FIRST, **USER
    ) as reader:
        pulled: list[str] = []
        until(lambda: pulled.extend(one.text for one in reader.poll(1)) or set(pulled) >= sent)
        reader.commit()
    with Admin(guarded.namesrv, **SUPER) as admin:
        assert TOPIC in admin.topics.names()
        assert admin.groups.progress(READERS, TOPIC).offsetTable


def send_all(cluster: peers.Cluster) -> set[str]:
    """Sends in each way, and returns the bodies."""

    def check(message: MessageExt) -> Decision:
        return Decision.COMMIT

    with Producer("signed-makers", name_servers=cluster.namesrv, check=check, **USER) as producer:
        producer.send(Message(TOPIC, b"single", tags="a", keys="k"))
        producer.send(Message(TOPIC, "größe".encode(), properties={"größe": "ü"}))
        producer.send_batch([Message(TOPIC, b"batch-1"), Message(TOPIC, b"batch-2")])
        producer.send_oneway(Message(TOPIC, b"one-way"))
        with producer.transaction(Message(TOPIC, b"transaction")):
            pass
        time.sleep(0.5)  # a one-way send has no answer to wait for
    return {"single", "größe", "batch-1", "batch-2", "one-way", "transaction"}


@pytest.mark.parametrize(
    ("given", "advice", "topic"),
    [
        ({}, UNSIGNED, TOPIC),
        ({"access_key": "nobody", "secret_key": "nothing"}, UNKNOWN, TOPIC),
        ({**USER, "secret_key": "other-secret"}, WRONG, TOPIC),
        (USER, FORBIDDEN, OTHER),
    ],
)
def test_a_refused_send_says_what_to_do(
    guarded: peers.Cluster, given: dict[str, Any], advice: str, topic: str
) -> None:
    with (
        Producer("signed-makers", name_servers=guarded.namesrv, **given) as producer,
        pytest.raises(SendRefused) as caught,
    ):
        producer.send(Message(topic, b"x"))
    assert len(caught.value.tries) == 1
    assert (caught.value.code, caught.value.advice) == (1 if guarded.kind == V4 else 16, advice)
    assert caught.value.reason == REMARKS[guarded.kind][advice]
    assert "secret" not in str(caught.value).replace("secret_key", "").replace("the secret of", "")


def test_a_consumer_of_a_forbidden_group_does_not_start(guarded: peers.Cluster) -> None:
    consumer = Consumer("signed-strangers", name_servers=guarded.namesrv, **USER)
    consumer.on(TOPIC)(print)
    with pytest.raises(AccessRefused) as caught:
        consumer.start()
    assert caught.value.advice == FORBIDDEN


def test_a_plain_user_is_refused_what_administrators_do(guarded: peers.Cluster) -> None:
    with Admin(guarded.namesrv, **USER) as admin, pytest.raises(AccessRefused) as caught:
        admin.topics.create("SignedThird", queues=1)
    assert caught.value.advice == FORBIDDEN


def test_mqadmin_administers_users_and_accounts(guarded: peers.Cluster) -> None:
    at = ("-b", guarded.broker_addr)
    if guarded.kind == V5:
        told = mqadmin(guarded, "createUser", *at, "-u", "clerk01", "-p", "clerk-secret")
        assert told == f"create user to {guarded.broker_addr} success.\n"
        told = mqadmin(
            guarded, "createAcl", *at, "-s", "User:clerk01", "-r", "Topic:a*", "-a", "Pub", "-d", "Deny"
        )
        assert told == f"create acl to {guarded.broker_addr} success.\n"
        assert mqadmin(guarded, "listAcl", *at, "-s", "clerk01").split()[6:] == [
            *("User:clerk01", "Custom", "Topic:a*", "[Pub]", "null", "Deny")
        ]
        mqadmin(guarded, "updateUser", *at, "-u", "clerk01", "-s", "disable")
        row = mqadmin(guarded, "getUser", *at, "-u", "clerk01").split()[4:]
        assert row == ["clerk01", "clerk-secret", "Normal", "disable"]
        mqadmin(guarded, "deleteUser", *at, "-u", "clerk01")
        assert mqadmin(guarded, "getUser", *at, "-u", "clerk01") == ""
        return
    with Admin(guarded.namesrv, **SUPER) as admin:
        account = PlainAccessConfig(accessKey="clerk01", secretKey="clerk-secret", topicPerms=["a=PUB"])
        admin.accounts.update(guarded.broker_addr, account)
        found = {one.accessKey: one for one in admin.accounts.config(guarded.broker_addr).plainAccessConfigs}
        assert found["clerk01"].topicPerms == ["a=PUB"]
    told = mqadmin(guarded, "clusterAclConfigVersion", *at)
    assert f"{guarded.place.home}/conf/plain_acl.yml" in told
    assert "clerk01" in mqadmin(guarded, "getAclConfig", *at)
    mqadmin(guarded, "deleteAclConfig", *at, "-a", "clerk01")
    assert "clerk01" not in mqadmin(guarded, "getAclConfig", *at)


def mqadmin(cluster: peers.Cluster, *words: str) -> str:
    """Runs our mqadmin as the administrator, with the file of Apache's tools; returns what it prints."""
    home = cluster.place.home
    (home / "conf" / "tools.yml").write_text("accessKey: operator1\nsecretKey: super-secret\n")
    command = [sys.executable, "-m", "turbopump", "admin", *words, "-n", cluster.namesrv]
    environment = {**os.environ, "ROCKETMQ_HOME": str(home)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def until(condition: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
