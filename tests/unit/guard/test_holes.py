"""Holes of Apache's servers, each a test named after it that fails when the server has it too."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import CONFIG, letters, running
from tests.unit.guard.accounts_kit import (
    ADMIN,
    MAIN,
    MAIN_TEXT,
    UPDATE_FAILED,
    USER,
    WHITE_FAILED,
    a_disk,
    accounts_broker,
    sends,
)
from tests.unit.guard.accounts_kit import SECRETS as ACCOUNT_SECRETS
from tests.unit.guard.foreign_requests import FOREIGN, foreign_body
from tests.unit.guard.kit import (
    ALICE,
    NOBODY,
    ROOT,
    SECRETS,
    GuardedDesk,
    guarded,
    guarded_broker,
    recorded_routers,
)

from turbopump.auth.needs import NEEDS
from turbopump.auth.signature import Credentials
from turbopump.broker.config import change
from turbopump.guard.config import KEYS, SECRET_KEYS, AccessConfig
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command, encode

NO_PERMISSION = 16
AUDIT = "/store/config/access-audit.jsonl"


async def with_message(desk: GuardedDesk) -> None:
    await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters("T"), b"of another")


@virtual
async def test_hole_requests_without_a_row_are_open_to_every_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """320, 325, 33, 37, 41, 14, 30, 361, 18, 200, …: a walk through the routers' tables without any right."""
    routers = recorded_routers(monkeypatch)
    async with guarded_broker() as desk:
        await with_message(desk)
        codes = sorted({code for router in routers for code in router._routes})
        assert len(codes) > 80
        end = desk.desk.store.log.end
        refused = {}
        for code in (*codes, 99_999):
            answer = await desk.ask(NOBODY, code, FOREIGN, foreign_body(code))
            refused[code] = answer.code
        assert {code for code, answer in refused.items() if answer != NO_PERMISSION} == set()
        assert desk.desk.store.log.end == end


@virtual
async def test_hole_a_code_that_nobody_thought_of_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with guarded_broker() as desk:
        monkeypatch.delitem(NEEDS, Code.GET_TOPIC_NAME_LIST, raising=False)
        monkeypatch.delitem(NEEDS, Code.GET_BROKER_RUNTIME_INFO)
        answer = await desk.ask(ROOT, Code.GET_BROKER_RUNTIME_INFO)
        assert answer.code == NO_PERMISSION
        assert "28" in (answer.remark or "")


@virtual
async def test_hole_request_26_gives_the_credentials_of_super_users_to_any_user() -> None:
    async with guarded_broker() as desk:
        assert (await desk.ask(NOBODY, Code.GET_BROKER_CONFIG)).code == NO_PERMISSION
        shown = (await desk.ask(ROOT, Code.GET_BROKER_CONFIG)).body.decode()
        assert "initAuthenticationUser=******" in shown
        assert not [secret for secret in SECRETS if secret in shown]


@pytest.mark.parametrize(
    "key", [*KEYS, "rocketmqHome", "brokerConfigPath", "filterServerNums", "configBlackList"]
)
@virtual
async def test_hole_request_25_switches_access_control_off_or_names_a_command(key: str) -> None:
    async with guarded_broker() as desk:
        for text in ("false", "$(touch /tmp/x)"):
            body = f"{key}={text}\n".encode()
            assert (await desk.ask(NOBODY, Code.UPDATE_BROKER_CONFIG, {}, body)).code == NO_PERMISSION
            before = (await desk.ask(ROOT, Code.GET_BROKER_CONFIG)).body
            answer = await desk.ask(ROOT, Code.UPDATE_BROKER_CONFIG, {}, body)
            has_it_already = body in before and key not in SECRET_KEYS
            assert (answer.code == 0) is has_it_already, answer.remark
            assert (await desk.ask(ROOT, Code.GET_BROKER_CONFIG)).body == before


@virtual
async def test_hole_a_retry_topic_of_a_foreign_group_is_written_by_naming_ones_own_group() -> None:
    async with guarded_broker() as desk:
        await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters("%RETRY%theirs"), b"x")
        await desk.grant(ALICE, "Group:mine", "Sub")
        for code in (Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE):
            answer = await desk.ask(ALICE, code, letters("%RETRY%theirs", a="mine"), b"x")
            assert (answer.code, "Group:theirs" in (answer.remark or "")) == (NO_PERMISSION, True)
        answer = await desk.ask(ALICE, Code.SEND_MESSAGE, {"group": "mine", "topic": "%RETRY%theirs"}, b"x")
        assert answer.code == NO_PERMISSION


@virtual
async def test_hole_a_retry_topic_of_a_foreign_group_is_read_with_ones_own_group() -> None:
    async with guarded_broker() as desk:
        await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters("%RETRY%theirs"), b"x")
        await desk.grant(ALICE, "Group:mine", "Sub")
        pull = FOREIGN | {"topic": "%RETRY%theirs", "consumerGroup": "mine"}
        for code in (Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE):
            answer = await desk.ask(ALICE, code, pull)
            assert (answer.code, "Group:theirs" in (answer.remark or "")) == (NO_PERMISSION, True)


@virtual
async def test_hole_a_batch_or_a_reply_is_not_checked() -> None:
    async with guarded_broker() as desk:
        await with_message(desk)
        end = desk.desk.store.log.end
        for code in (Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2):
            assert (await desk.ask(NOBODY, code, FOREIGN, b"body")).code == NO_PERMISSION
        assert desk.desk.store.log.end == end


@virtual
async def test_hole_33_and_37_without_a_topic_need_no_right() -> None:
    async with guarded_broker() as desk:
        await with_message(desk)
        found = await desk.ask(NOBODY, Code.VIEW_MESSAGE_BY_ID, {"offset": 0})
        assert (found.code, found.body) == (NO_PERMISSION, b"")
        pairs = {"TRAN_MSG": "true", "PGROUP": "PG"}
        half = await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters("T", f=4, pairs=pairs), b"half")
        assert half.ext is not None
        end = FOREIGN | {
            "commitLogOffset": int(half.ext["msgId"][16:], 16),
            "tranStateTableOffset": half.ext["queueOffset"],
        }
        del end["topic"]
        assert (await desk.ask(NOBODY, Code.END_TRANSACTION, end)).code == NO_PERMISSION


@virtual
async def test_hole_a_good_request_on_a_connection_lets_any_signature_pass_after_it() -> None:
    """Apache's Stateful strategy: the setting is accepted and has no effect."""
    config = guarded(
        authenticationStrategy="org.apache.rocketmq.auth.authentication.strategy.StatefulAuthenticationStrategy"
    )
    async with guarded_broker(config) as desk:
        assert (await desk.ask(ROOT, Code.GET_BROKER_CONFIG)).code == 0
        forged = await desk.ask(Credentials("root", "guessed"), Code.GET_BROKER_CONFIG)
        assert (forged.code, forged.remark) == (NO_PERMISSION, "check signature failed.")
        assert (await desk.ask(ROOT, Code.GET_BROKER_CONFIG)).code == 0


@virtual
async def test_hole_authorization_without_authentication_trusts_a_name() -> None:
    async with guarded_broker(guarded(authenticationEnabled="false")) as desk:
        claimed = await desk.desk.ask(Code.AUTH_LIST_USER, {"AccessKey": "root"})
        assert (claimed.code, claimed.remark) == (NO_PERMISSION, "check signature failed.")


@virtual
async def test_hole_a_request_without_fields_has_nothing_to_check() -> None:
    async with guarded_broker(guarded(authenticationEnabled="false")) as desk:
        for code in (Code.GET_BROKER_CONFIG, Code.GET_ALL_TOPIC_CONFIG, Code.AUTH_LIST_USER, 99_999):
            assert (await desk.desk.ask(code)).code == NO_PERMISSION


@virtual
async def test_hole_a_source_address_is_taken_from_a_proxy_line_that_anybody_sends() -> None:
    async with guarded_broker() as desk:
        entry = {"resource": "Topic:T", "actions": ["Pub"], "sourceIps": ["10.1.2.0/24"], "decision": "Allow"}
        body = json.dumps({"policies": [{"policyType": "Custom", "entries": [entry]}]}).encode()
        await desk.done(ROOT, Code.AUTH_CREATE_ACL, {"subject": "User:alice"}, body)
        fields = {name: str(value) for name, value in letters("T").items()}
        send = encode(Command(Code.SEND_MESSAGE_V2, 1, ext=ALICE.signed(fields, b"x"), body=b"x"))
        received = await spoken(desk, b"PROXY TCP4 10.1.2.3 10.1.2.4 5 10911\r\n" + send)
        assert b'"code":0' not in received
        received = await spoken(desk, send)
        assert b"from 127.0.0.1, no matched policies" in received


@virtual
async def test_the_client_behind_a_named_proxy_is_the_one_that_counts() -> None:
    """For addresses in policies, back-off, quotas and audit lines."""
    config = change(guarded(authUserQuotas="alice:connections=1"), "proxyProtocolFrom", "127.0.0.0/8")
    async with guarded_broker(config) as desk:
        entry = {"resource": "Topic:T", "actions": ["Pub"], "sourceIps": ["10.1.2.0/24"], "decision": "Allow"}
        body = json.dumps({"policies": [{"policyType": "Custom", "entries": [entry]}]}).encode()
        await desk.done(ROOT, Code.AUTH_CREATE_ACL, {"subject": "User:alice"}, body)
        fields = {name: str(value) for name, value in letters("T").items()}

        def send(who: Credentials) -> bytes:
            return encode(Command(Code.SEND_MESSAGE_V2, 1, ext=who.signed(fields, b"x"), body=b"x"))

        def head(address: str) -> bytes:
            return f"PROXY TCP4 {address} 10.0.0.1 5 10911\r\n".encode()

        assert b'"code":0' in await spoken(desk, head("10.1.2.3") + send(ALICE))
        assert b"from 10.1.3.3, no matched policies" in await spoken(desk, head("10.1.3.3") + send(ALICE))
        assert b"from 127.0.0.1, no matched policies" in await spoken(desk, send(ALICE))
        wrong = Credentials("alice", "a guess")
        held = await spoken(desk, head("10.1.2.9") + send(wrong) * 7)
        assert b"6 requests of this user from 10.1.2.9 failed" in held
        assert b'"code":0' in await spoken(desk, head("10.1.2.3") + send(ALICE))
        await asyncio.sleep(1)
        lines = [json.loads(line) for line in desk.desk.disk.read(AUDIT).splitlines()]
        refused = {line["address"] for line in lines if line["event"] == "refused"}
        assert refused == {"10.1.3.3", "127.0.0.1", "10.1.2.9"}


@virtual
async def test_hole_a_user_with_rights_to_the_cluster_makes_itself_a_super_user() -> None:
    async with guarded_broker() as desk:
        await desk.grant(ALICE, "Cluster:DefaultCluster", "Update")
        attempts = (
            (Code.AUTH_CREATE_USER, {"username": "evil"}, {"password": "p", "userType": "Super"}),
            (Code.AUTH_UPDATE_USER, {"username": "root"}, {"password": "hacked"}),
            (Code.AUTH_UPDATE_USER, {"username": "alice"}, {"userType": "Super"}),
            (Code.AUTH_DELETE_USER, {"username": "root"}, {}),
            (
                Code.AUTH_UPDATE_ACL,
                {"subject": "User:alice"},
                {"policies": [{"entries": [{"resource": "*", "actions": ["All"], "decision": "Allow"}]}]},
            ),
        )
        for code, ext, body in attempts:
            answer = await desk.ask(ALICE, code, ext, json.dumps(body).encode())
            assert answer.code in (1, NO_PERMISSION), (code, answer.remark)
        assert (await desk.ask(ALICE, Code.AUTH_LIST_USER)).code == NO_PERMISSION
        assert (await desk.ask(ROOT, Code.AUTH_LIST_USER)).code == 0


@virtual
async def test_hole_requests_about_users_answer_secrets(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing that a broker answers, logs or writes has a secret: it is asked everything, as a super user."""
    caplog.set_level("DEBUG")
    async with guarded_broker(guarded(authAuditGrants="true")) as desk:
        await with_message(desk)
        await desk.grant(ALICE, "Topic:T", "Pub")
        for code in (*Code, 99_999):
            if code not in (Code.AUTH_DELETE_USER, Code.AUTH_UPDATE_USER):
                await desk.ask(
                    ROOT, code, FOREIGN | {"username": "alice", "subject": "User:alice"}, foreign_body(code)
                )
            await desk.ask(NOBODY, code, FOREIGN, foreign_body(code))
        for body in (b"", b"{", b'{"password":["' + ALICE.secret_key.encode() + b'"]}'):
            for code in (Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_CREATE_ACL):
                await desk.ask(ROOT, code, {"username": "x", "subject": "User:x"}, body)
        disk = desk.desk.disk
    answered = b"".join(encode(answer) for answer in desk.heard)
    logged = "\n".join(str(record.__dict__) for record in caplog.records).encode()
    written = b"".join(bytes(node.pages) for node in disk._names.nodes.values())
    assert len(answered) > 10_000
    assert len(disk.read("/store/config/access-audit.jsonl").splitlines()) > 100
    for secret in (*SECRETS, *(json.dumps(secret) for secret in SECRETS)):
        assert secret.encode() not in answered
        assert secret.encode() not in logged
        assert secret.encode() not in written
    assert b"Signature" not in disk.read("/store/config/access-audit.jsonl")


@virtual
async def test_hole_a_relayed_request_gives_its_signature_to_a_consumer() -> None:
    """A consumer could send the fields of an administrator again, under another code."""
    seen: list[Command] = []

    def heard(request: Any) -> Command:
        seen.append(request.command)
        return Command(0, request.command.opaque, 1)

    from turbopump.remoting.router import Route

    async with guarded_broker() as desk:
        await desk.grant(ALICE, "Group:G", "Sub")
        await desk.grant(ALICE, "Topic:T", "Sub")
        consumer = desk.desk.visitor({Code.GET_CONSUMER_RUNNING_INFO: Route(None, heard)})
        beat = foreign_body(Code.HEART_BEAT)
        assert (await desk.ask(ALICE, Code.HEART_BEAT, {}, beat, consumer)).code == 0
        info = {"consumerGroup": "G", "clientId": "c"}
        await desk.ask(ROOT, Code.GET_CONSUMER_RUNNING_INFO, info)
        await consumer.close()
    assert [sorted(command.ext or {}) for command in seen] == [["clientId", "consumerGroup"]]


# --- accounts of 4.x ---


@virtual
async def test_hole_request_50_makes_any_account_an_administrator() -> None:
    async with accounts_broker() as desk:
        asked = {"accessKey": USER.access_key, "secretKey": USER.secret_key, "admin": "true"}
        assert (await desk.ask(USER, Code.UPDATE_AND_CREATE_ACL_CONFIG, asked)).code == NO_PERMISSION
        assert await sends(desk, USER, "Other") == NO_PERMISSION
        assert b"admin: true\n- accessKey: plainuser" in desk.desk.disk.read(MAIN)


@virtual
async def test_hole_request_53_opens_the_broker_to_everybody() -> None:
    async with accounts_broker() as desk:
        asked = {"globalWhiteAddrs": "*"}
        assert (await desk.ask(USER, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, asked)).code == NO_PERMISSION
        assert await sends(desk, None) == NO_PERMISSION


WHITE_TEXT = MAIN_TEXT.replace("  topicPerms:", "  whiteRemoteAddress: 127.0.0.1\n  topicPerms:")
GLOBAL_TEXT = MAIN_TEXT.replace("Addresses: []", "Addresses: [127.0.0.1]")


@pytest.mark.parametrize("text", [WHITE_TEXT, GLOBAL_TEXT], ids=["of an account", "for everybody"])
@virtual
async def test_hole_a_white_address_makes_administrators_and_changes_the_configuration(text: str) -> None:
    """50, 51, 53, 25 and the like need the signature of an administrator, wherever they come from."""
    changes: list[tuple[int, dict[str, Any], bytes]] = [
        (
            Code.UPDATE_AND_CREATE_ACL_CONFIG,
            {"accessKey": USER.access_key, "secretKey": USER.secret_key, "admin": "true"},
            b"",
        ),
        (Code.DELETE_ACL_CONFIG, {"accessKey": "teamuser"}, b""),
        (Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "*"}, b""),
        (Code.GET_BROKER_CLUSTER_ACL_INFO, {}, b""),
        (Code.GET_BROKER_CLUSTER_ACL_CONFIG, {}, b""),
        (Code.AUTH_EXPLAIN, {"user": "plainuser", "action": "Pub", "resource": "Topic:T"}, b""),
        (Code.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4"),
        (Code.DELETE_EXPIRED_COMMITLOG, {}, b""),
        (Code.REPLICA_PROMOTE, {}, b""),
    ]
    async with accounts_broker(a_disk(text)) as desk:
        files = desk.desk.disk.read(MAIN)
        for code, ext, body in changes:
            named = {"AccessKey": USER.access_key} | {name: str(value) for name, value in ext.items()}
            for fields in (named, USER.signed({k: v for k, v in named.items() if k != "AccessKey"}, body)):
                command = Command(code, ext=fields, body=body)
                answer = await desk.client.call(f"127.0.0.1:{desk.desk.broker.port}", command, 60)
                assert answer.code == NO_PERMISSION, (code, answer)
        assert desk.desk.disk.read(MAIN) == files
        assert desk.desk.broker.config.topics.permission == 6
        unsigned = {**{name: str(value) for name, value in letters("Z").items()}, "AccessKey": "plainuser"}
        sent = await desk.client.call(
            f"127.0.0.1:{desk.desk.broker.port}", Command(Code.SEND_MESSAGE_V2, ext=unsigned, body=b"x"), 60
        )
        assert sent.code == 0
        await desk.done(ADMIN, Code.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4")
        await desk.done(ADMIN, Code.DELETE_ACL_CONFIG, {"accessKey": "teamuser"})


@virtual
async def test_hole_request_54_answers_all_secrets() -> None:
    async with accounts_broker() as desk:
        assert (await desk.ask(USER, Code.GET_BROKER_CLUSTER_ACL_CONFIG)).code == NO_PERMISSION
        shown = (await desk.done(ADMIN, Code.GET_BROKER_CLUSTER_ACL_CONFIG, {})).body
        rows = json.loads(shown)["plainAccessConfigs"]
        assert [row["accessKey"] for row in rows] == ["administrator", "plainuser", "teamuser"]
        assert not [secret for secret in ACCOUNT_SECRETS if secret.encode() in shown]


@virtual
async def test_hole_request_50_answers_the_secret_in_its_remark() -> None:
    async with accounts_broker() as desk:
        for secret in ("abc", "correct-secret"):
            asked = {"accessKey": "toolong-or-not", "secretKey": secret, "topicPerms": "T=NO"}
            answer = await desk.ask(ADMIN, Code.UPDATE_AND_CREATE_ACL_CONFIG, asked)
            assert answer.code == UPDATE_FAILED
            assert secret not in (answer.remark or "")


@virtual
async def test_hole_request_50_loses_what_it_does_not_repeat() -> None:
    async with accounts_broker() as desk:
        asked = {"accessKey": USER.access_key, "secretKey": USER.secret_key, "defaultTopicPerm": "SUB"}
        await desk.done(ADMIN, Code.UPDATE_AND_CREATE_ACL_CONFIG, asked)
        assert await sends(desk, USER) == 0


@virtual
async def test_hole_a_bad_address_pattern_is_written_and_answered_with_success() -> None:
    async with accounts_broker() as desk:
        before = desk.desk.disk.read(MAIN)
        for bad in ("300.1.1.1", "10.0.*", "{"):
            answer = await desk.ask(ADMIN, Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": bad})
            assert answer.code == WHITE_FAILED, bad
        assert desk.desk.disk.read(MAIN) == before


@virtual
async def test_hole_a_migrated_unknown_permission_allows_everything() -> None:
    access = AccessConfig(authentication=True, migrates_accounts=True, accounts_dir="/conf")
    with pytest.raises(Exception, match="PBU"):
        async with running(replace(CONFIG, access=access), a_disk(MAIN_TEXT.replace("T=PUB", "T=PBU"))):
            pass


async def spoken(desk: GuardedDesk, data: bytes) -> bytes:
    """What the broker answers to bytes on a connection of their own."""
    received = bytearray()

    class Speaker(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport
            transport.write(data)  # type: ignore[attr-defined]

        def data_received(self, answer: bytes) -> None:
            received.extend(answer)

    speaker = Speaker()
    await desk.desk.network.connect(lambda: speaker, "127.0.0.1", desk.desk.broker.port)
    await asyncio.sleep(1)
    speaker.transport.close()
    return bytes(received)
