"""Changes that tools make leave an audit line with who, from where and what."""

import asyncio
import json
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.auth.requests_kit import request_of
from tests.unit.guard.kit import ALICE, NOBODY, ROOT, GuardedDesk, guarded_broker

from turbopump.auth.needs import needs_of
from turbopump.auth.resources import Action
from turbopump.guard.changes import CHANGES, changed_by
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command

AUDIT = "/store/config/access-audit.jsonl"


async def changes(desk: GuardedDesk) -> list[dict[str, Any]]:
    await asyncio.sleep(1)
    lines = map(json.loads, desk.desk.disk.read(AUDIT).splitlines())
    return [line for line in lines if line["event"] == "changed" and line["code"] < 3000]


@virtual
async def test_a_changed_configuration_leaves_a_line() -> None:
    async with guarded_broker() as desk:
        body = b"brokerPermission=4\nmaxTransferCountOnMessageInMemory=7\n"
        await desk.done(ROOT, Code.UPDATE_BROKER_CONFIG, {}, body)
        refused = await desk.ask(ROOT, Code.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=99\n")
        assert refused.code != 0
        assert (await desk.ask(NOBODY, Code.UPDATE_BROKER_CONFIG, {}, body)).code == 16
        (line,) = await changes(desk)
        del line["time"]
        assert line == {
            "event": "changed",
            "user": "root",
            "address": "127.0.0.1",
            "code": 25,
            "what": "UPDATE_BROKER_CONFIG: brokerPermission=4; maxTransferCountOnMessageInMemory=7",
        }


@virtual
async def test_changed_topics_and_groups_leave_lines() -> None:
    async with guarded_broker() as desk:
        await desk.grant(ALICE, "Topic:orders", "Create")
        fields = {"topic": "orders", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1}
        more = {"perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
        await desk.done(ALICE, Code.UPDATE_AND_CREATE_TOPIC, fields | more)
        await desk.done(ROOT, Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, b'{"groupName":"billing"}')
        await desk.done(ROOT, Code.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        lines = await changes(desk)
        assert [(line["user"], line["what"].split("; ")[0]) for line in lines] == [
            ("alice", "UPDATE_AND_CREATE_TOPIC: Create on Topic:orders"),
            ("root", "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Create on Group:billing"),
            ("root", "DELETE_TOPIC_IN_BROKER: Delete on Topic:orders"),
        ]
        assert "readQueueNums=1" in lines[0]["what"]


def test_a_line_has_no_secret_and_no_signature() -> None:
    body = b"tlsServerKeyPassword=hush\ninitAuthenticationUser=hush\nbrokerPermission=6\n"
    text = changed_by(Command(Code.UPDATE_BROKER_CONFIG, body=body), "C")
    assert "hush" not in text
    assert "brokerPermission=6" in text
    signed = ROOT.signed({"topic": "orders"}, b"")
    text = changed_by(Command(Code.DELETE_TOPIC_IN_BROKER, ext=signed), "C")
    assert text == "DELETE_TOPIC_IN_BROKER: Delete on Topic:orders; topic=orders"


def test_a_line_names_the_value_that_is_put_but_does_not_show_it() -> None:
    """A value of a name server may be anything that a program keeps there, a password too."""
    put = {"namespace": "N", "key": "database", "value": "hush-hush"}
    text = changed_by(Command(Code.PUT_KV_CONFIG, ext=put), "C")
    assert text == "PUT_KV_CONFIG: Update on Cluster:C; namespace=N; key=database; value=******"
    text = changed_by(Command(Code.DELETE_TOPIC_IN_BROKER, ext={"topic": "T", "dbPassword": "hush"}), "C")
    assert text == "DELETE_TOPIC_IN_BROKER: Delete on Topic:T; topic=T; dbPassword=******"


@pytest.mark.parametrize("code", sorted(CHANGES))
def test_every_audited_request_changes_something(code: int) -> None:
    actions = {action for need in needs_of(request_of(code), "C") for action in need.any_of}
    assert actions & {Action.CREATE, Action.UPDATE, Action.DELETE}
