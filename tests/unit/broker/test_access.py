"""A broker with access control in virtual time: what is refused and what is allowed, on every way."""

import asyncio
import json
import sys
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.broker.desk import CONFIG, letters, records, running
from tests.unit.broker.producers import Member
from tests.unit.guard.kit import (
    ALICE,
    INNER,
    NOBODY,
    ROOT,
    GuardedDesk,
    guarded,
    guarded_broker,
    recorded_routers,
)

from turbopump.auth.signature import Credentials
from turbopump.compiled import twins
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.remoting.accepted import AcceptedConnection
from turbopump.remoting.tls_settings import TlsSettings

NO_PERMISSION, SYSTEM_BUSY = 16, 2
PULL = {
    "consumerGroup": "G",
    "topic": "T",
    "queueId": 0,
    "queueOffset": 0,
    "maxMsgNums": 32,
    "sysFlag": 4,
    "commitOffset": 0,
    "suspendTimeoutMillis": 0,
    "subscription": "*",
    "subVersion": 0,
    "expressionType": "TAG",
}
OFFSET = {"consumerGroup": "G", "topic": "T", "queueId": 0}
TIME = {"topic": "T", "queueId": 0, "timestamp": 0}
TOPIC = {
    "topic": "New",
    "defaultTopic": "TBW102",
    "readQueueNums": 4,
    "writeQueueNums": 4,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": "false",
}
KEYS = {"topic": "T", "key": "k", "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**62}


@dataclass(frozen=True)
class Row:
    """A request, and the rights with which it is allowed."""

    code: int
    ext: dict[str, Any]
    grants: tuple[tuple[str, str], ...]
    body: bytes = b""
    answers: tuple[int, ...] = (0,)


SEND = (("Topic:T", "Pub"),)
READ = (("Topic:T", "Sub"), ("Group:G", "Sub"))
ROWS = {
    "a send": Row(Code.SEND_MESSAGE_V2, letters("T"), SEND, b"body"),
    "a pull": Row(Code.PULL_MESSAGE, PULL, READ),
    "a query by key": Row(Code.QUERY_MESSAGE, KEYS, (("Topic:T", "Get"),), answers=(22,)),
    "a commit": Row(
        Code.UPDATE_CONSUMER_OFFSET,
        OFFSET | {"commitOffset": 0},
        (("Topic:T", "Update"), ("Group:G", "Update")),
    ),
    "a committed offset": Row(
        Code.QUERY_CONSUMER_OFFSET, OFFSET, (("Topic:T", "Get"), ("Group:G", "Get")), answers=(0, 22)
    ),
    "an offset by time": Row(Code.SEARCH_OFFSET_BY_TIMESTAMP, TIME, (("Topic:T", "Get"),)),
    "a new topic": Row(Code.UPDATE_AND_CREATE_TOPIC, TOPIC, (("Topic:New", "Create"),)),
    "the configuration": Row(Code.GET_BROKER_CONFIG, {}, (("Cluster:DefaultCluster", "Get"),)),
    "a change of it": Row(
        Code.UPDATE_BROKER_CONFIG, {}, (("Cluster:DefaultCluster", "Update"),), b"slaveReadEnable=true\n"
    ),
    "a list of users": Row(Code.AUTH_LIST_USER, {}, (("Cluster:DefaultCluster", "Get"),)),
}


async def with_topic(desk: GuardedDesk) -> None:
    await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters("T"), b"first")


@pytest.mark.parametrize("name", ROWS)
@virtual
async def test_a_request_is_refused_unsigned_wrongly_signed_and_forbidden_and_allowed_with_its_rights(
    name: str,
) -> None:
    row = ROWS[name]
    async with guarded_broker() as desk:
        await with_topic(desk)
        unsigned = await desk.ask(None, row.code, row.ext, row.body)
        assert (unsigned.code, unsigned.remark) == (NO_PERMISSION, "username cannot be null.")
        wrong = await desk.ask(Credentials("alice", "guessed"), row.code, row.ext, row.body)
        assert (wrong.code, wrong.remark) == (NO_PERMISSION, "check signature failed.")
        stranger = await desk.ask(Credentials("eve", "guessed"), row.code, row.ext, row.body)
        assert (stranger.code, stranger.remark) == (NO_PERMISSION, "User:eve is not found.")
        forbidden = await desk.ask(ALICE, row.code, row.ext, row.body)
        assert forbidden.code == NO_PERMISSION
        assert "has no permission to access" in (forbidden.remark or "")
        for resource, action in row.grants:
            await desk.grant(ALICE, resource, action)
        allowed = await desk.ask(ALICE, row.code, row.ext, row.body)
        assert allowed.code in row.answers, allowed.remark
        assert (await desk.ask(NOBODY, row.code, row.ext, row.body)).code == NO_PERMISSION


@virtual
async def test_the_fast_port_is_guarded_as_the_main_port_is() -> None:
    async with guarded_broker() as desk:
        port = desk.desk.broker.port - 2
        for who, code in ((None, NO_PERMISSION), (ALICE, NO_PERMISSION), (ROOT, 0)):
            answer = await desk.ask(who, Code.SEND_MESSAGE_V2, letters("T"), b"body", port=port)
            assert answer.code == code


@pytest.mark.skipif(twins() is None, reason="needs the compiled twin")
@virtual
async def test_a_plain_send_of_an_unknown_user_over_the_compiled_path_is_refused() -> None:
    """Many plain sends in one read event go to compiled code, unless the gate keeps them from it."""
    async with guarded_broker() as desk:
        await with_topic(desk)
        before = desk.desk.store.log.end
        connection = await desk.client.connect(desk.desk.address)
        signed = Credentials("eve", "guessed").signed({k: str(v) for k, v in letters("T").items()}, b"x")
        sends = [Command(Code.SEND_MESSAGE_V2, ext=signed, body=b"x") for _ in range(20)]
        answers = await asyncio.gather(*(connection.call(send, 10) for send in sends))
        assert {answer.code for answer in answers} == {NO_PERMISSION}
        assert desk.desk.store.log.end == before


@virtual
async def test_without_access_control_the_router_has_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    routers = recorded_routers(monkeypatch)
    async with running(CONFIG) as desk:
        assert [router._before for router in routers] == [(), ()]
        assert (await desk.send("T")).code == 0
        answer = await desk.ask(Code.AUTH_LIST_USER)
        assert (answer.code, answer.remark) == (3, " request type 3005 not supported")


@virtual
async def test_a_right_that_is_taken_away_counts_from_the_next_request_of_an_open_connection() -> None:
    async with guarded_broker() as desk:
        await desk.grant(ALICE, "Topic:T", "Pub")
        assert (await desk.ask(ALICE, Code.SEND_MESSAGE_V2, letters("T"), b"x")).code == 0
        await desk.done(ROOT, Code.AUTH_UPDATE_USER, {"username": "alice"}, b'{"userStatus":"disable"}')
        refused = await desk.ask(ALICE, Code.SEND_MESSAGE_V2, letters("T"), b"x")
        assert (refused.code, refused.remark) == (NO_PERMISSION, "User:alice is disabled.")


@virtual
async def test_a_user_who_guesses_waits_and_others_at_the_same_address_do_not() -> None:
    async with guarded_broker() as desk:
        await desk.grant(ALICE, "Topic:T", "Pub")
        wrong = Credentials("alice", "guessed")
        for _ in range(6):
            await desk.ask(wrong, Code.SEND_MESSAGE_V2, letters("T"), b"x")
        held = await desk.ask(ALICE, Code.SEND_MESSAGE_V2, letters("T"), b"x")
        assert held.code == NO_PERMISSION
        assert "6 requests of this user from 127.0.0.1 failed; try again in" in (held.remark or "")
        assert (await desk.ask(ROOT, Code.SEND_MESSAGE_V2, letters("T"), b"x")).code == 0
        await asyncio.sleep(1)
        assert (await desk.ask(ALICE, Code.SEND_MESSAGE_V2, letters("T"), b"x")).code == 0


@pytest.mark.parametrize("before", [True, False])
@virtual
async def test_hole_who_guesses_at_an_address_locks_the_user_out_there(before: bool) -> None:
    """Six wrong signatures, again and again, from behind the address of a company: alice works on."""
    async with guarded_broker() as desk:
        await desk.grant(ALICE, "Topic:T", "Pub")
        guesser, alice = desk.desk.visitor(), desk.desk.visitor()
        if before:
            assert (await desk.ask(ALICE, Code.SEND_MESSAGE_V2, letters("T"), b"x", alice)).code == 0
        wrong = Credentials("alice", "guessed")
        for _ in range(20):
            for _ in range(10):
                await desk.ask(wrong, Code.SEND_MESSAGE_V2, letters("T"), b"x", guesser)
            assert (await desk.ask(ALICE, Code.SEND_MESSAGE_V2, letters("T"), b"x", alice)).code == 0
            held = await desk.ask(wrong, Code.SEND_MESSAGE_V2, letters("T"), b"x", guesser)
            assert "failed; try again in" in (held.remark or "")
        await guesser.close()
        await alice.close()


@virtual
async def test_a_user_beyond_its_quota_is_answered_system_busy_and_served_again_later() -> None:
    async with guarded_broker(guarded(authUserQuotas="alice:requests=2")) as desk:
        await desk.grant(ALICE, "Topic:T", "Pub")
        answers = [await desk.ask(ALICE, Code.SEND_MESSAGE_V2, letters("T"), b"x") for _ in range(3)]
        assert [answer.code for answer in answers] == [0, 0, SYSTEM_BUSY]
        assert answers[2].remark == "[QUOTA] User:alice may have 2 requests in a second; try again later"
        await asyncio.sleep(1)
        assert (await desk.ask(ALICE, Code.SEND_MESSAGE_V2, letters("T"), b"x")).code == 0


@virtual
async def test_refused_requests_count_against_the_quota_and_have_few_audit_lines() -> None:
    async with guarded_broker(guarded(authUserQuotas="nobody:requests=20")) as desk:
        answers = [await desk.ask(NOBODY, Code.SEND_MESSAGE_V2, letters("T"), b"x") for _ in range(30)]
        assert [answer.code for answer in answers] == [NO_PERMISSION] * 20 + [SYSTEM_BUSY] * 10
        await asyncio.sleep(200)
        lines = desk.desk.disk.read("/store/config/access-audit.jsonl").splitlines()
        refused = [line for line in map(json.loads, lines) if line["user"] == "nobody"]
        assert [line["event"] for line in refused] == ["refused"] * 10 + ["left-out"]
        assert refused[-1]["what"] == "10 refusals within 60 s have no line"


@virtual
async def test_names_that_fail_at_an_address_lock_no_other_user_out_there() -> None:
    async with guarded_broker() as desk:
        await desk.grant(ALICE, "Topic:T", "Pub")
        for number in range(120):
            await desk.ask(Credentials(f"u{number}", "guessed"), Code.SEND_MESSAGE_V2, letters("T"), b"x")
        for _ in range(20):
            await desk.ask(Credentials("never seen", "guessed"), Code.SEND_MESSAGE_V2, letters("T"), b"x")
        assert (await desk.ask(ALICE, Code.SEND_MESSAGE_V2, letters("T"), b"x")).code == 0
        unknown = await desk.ask(Credentials("u1", "guessed"), Code.SEND_MESSAGE_V2, letters("T"), b"x")
        assert unknown.remark == "User:u1 is not found."


@virtual
async def test_a_message_by_its_offset_needs_a_right_to_its_own_topic() -> None:
    async with guarded_broker() as desk:
        await with_topic(desk)
        asked = {"offset": 0, "topic": "Mine"}
        await desk.grant(ALICE, "Topic:Mine", "Get")
        refused = await desk.ask(ALICE, Code.VIEW_MESSAGE_BY_ID, asked)
        assert (refused.code, refused.remark) == (
            NO_PERMISSION,
            "User:alice has no permission to access Topic:T from 127.0.0.1, no matched policies.",
        )
        await desk.grant(ALICE, "Topic:T", "Get")
        assert [
            record.body for record in records(await desk.done(ALICE, Code.VIEW_MESSAGE_BY_ID, asked))
        ] == [b"first"]


@virtual
async def test_a_half_message_is_shown_only_to_producers_who_may_end_its_transaction() -> None:
    """Anybody may say in a heartbeat that they belong to its group."""
    async with guarded_broker() as desk:
        await with_topic(desk)
        await desk.grant(ALICE, "Topic:T", "Pub")
        stranger, own = Member(), Member()
        await stranger.join(desk.desk, "stranger", "PG", NOBODY)
        pairs = {"TRAN_MSG": "true", "PGROUP": "PG"}
        await desk.done(ALICE, Code.SEND_MESSAGE_V2, letters("T", f=4, pairs=pairs), b"half")
        await asyncio.sleep(200)
        assert stranger.questions == []
        await own.join(desk.desk, "own", "PG", ALICE)
        await asyncio.sleep(100)
        assert [half.body for half in own.shown][:1] == [b"half"]
        assert stranger.questions == []


@virtual
async def test_with_unchecked_heartbeats_signed_producers_are_asked_and_others_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with guarded_broker(guarded(authenticationWhitelist="34")) as desk:
        await with_topic(desk)
        await desk.grant(ALICE, "Topic:T", "Pub")
        unsigned, guessing, own = Member(), Member(), Member()
        await unsigned.join(desk.desk, "unsigned", "PG", None)
        await guessing.join(desk.desk, "guessing", "PG", Credentials("alice", "guessed"))
        pairs = {"TRAN_MSG": "true", "PGROUP": "PG"}
        await desk.done(ALICE, Code.SEND_MESSAGE_V2, letters("T", f=4, pairs=pairs), b"half")
        await asyncio.sleep(100)
        assert unsigned.questions == guessing.questions == []
        assert "are not asked about transactions: nobody has signed their heartbeat" in caplog.text
        await own.join(desk.desk, "own", "PG", ALICE)
        await asyncio.sleep(100)
        assert [half.body for half in own.shown][:1] == [b"half"]


@virtual
async def test_messages_that_are_pulled_count_against_the_quota_of_who_reads_them() -> None:
    async with guarded_broker(guarded(authUserQuotas="alice:bytes=1000")) as desk:
        for _ in range(20):
            await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters("T"), bytes(500))
        await desk.grant(ALICE, "Topic:T", "Sub")
        await desk.grant(ALICE, "Group:G", "Sub")
        found = await desk.done(ALICE, Code.PULL_MESSAGE, PULL)
        assert len(found.body) > 10_000
        held = await desk.ask(ALICE, Code.PULL_MESSAGE, PULL)
        assert (held.code, held.remark) == (
            SYSTEM_BUSY,
            "[QUOTA] User:alice may have 1000 bytes in a second; try again later",
        )
        await asyncio.sleep(9)
        assert (await desk.ask(ALICE, Code.PULL_MESSAGE, PULL)).code == SYSTEM_BUSY
        await asyncio.sleep(5)
        assert (await desk.ask(ALICE, Code.PULL_MESSAGE, PULL)).code == 0
        assert (await desk.ask(ROOT, Code.PULL_MESSAGE, PULL)).code == 0


@pytest.mark.parametrize("change", [{"userStatus": "disable"}, {"userType": "Normal"}])
@virtual
async def test_a_half_message_is_not_shown_to_a_producer_that_was_disabled_or_demoted(
    change: dict[str, str],
) -> None:
    """Its heartbeat was accepted while it had the rights, and its connection is still open."""
    async with guarded_broker() as desk:
        await with_topic(desk)
        other = Credentials("other", "other-secret-word")
        await desk.create(other, "Super")
        own = Member()
        client = await own.join(desk.desk, "own", "PG", other)
        own._beating.cancel()
        pairs = {"TRAN_MSG": "true", "PGROUP": "PG"}
        await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters("T", f=4, pairs=pairs), b"half")
        await desk.done(ROOT, Code.AUTH_UPDATE_USER, {"username": "other"}, json.dumps(change).encode())
        await asyncio.sleep(100)
        assert own.questions == []
        await client.close()


@virtual
async def test_a_transaction_ends_only_with_a_right_to_the_topic_of_its_half_message() -> None:
    async with guarded_broker() as desk:
        pairs = {"TRAN_MSG": "true", "PGROUP": "PG"}
        half = await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters("T", f=4, pairs=pairs), b"half")
        assert half.ext is not None
        end = {
            "producerGroup": "PG",
            "tranStateTableOffset": half.ext["queueOffset"],
            "commitLogOffset": int(half.ext["msgId"][16:], 16),
            "commitOrRollback": 8,
            "msgId": "m",
            "topic": "Mine",
        }
        await desk.grant(ALICE, "Topic:Mine", "Pub")
        refused = await desk.ask(ALICE, Code.END_TRANSACTION, end)
        assert (refused.code, "Topic:T" in (refused.remark or "")) == (NO_PERMISSION, True)
        await desk.grant(ALICE, "Topic:T", "Pub")
        assert (await desk.ask(ALICE, Code.END_TRANSACTION, end)).code == 0


@virtual
async def test_a_message_of_a_foreign_topic_cannot_be_sent_back_to_ones_own_group() -> None:
    async with guarded_broker() as desk:
        await with_topic(desk)
        await desk.grant(ALICE, "Group:G", "Sub")
        back = {"offset": 0, "group": "G", "delayLevel": 0, "originMsgId": "m", "originTopic": "Mine"}
        refused = await desk.ask(ALICE, Code.CONSUMER_SEND_MSG_BACK, back)
        assert (refused.code, "Topic:T" in (refused.remark or "")) == (NO_PERMISSION, True)
        await desk.grant(ALICE, "Topic:T", "Sub")
        assert (await desk.ask(ALICE, Code.CONSUMER_SEND_MSG_BACK, back)).code == 0


@virtual
async def test_a_message_of_a_foreign_topic_is_not_relayed_to_ones_own_consumer() -> None:
    async with guarded_broker() as desk:
        await with_topic(desk)
        await desk.grant(ALICE, "Group:G", "Sub")
        await desk.grant(ALICE, "Topic:Mine", "Sub")
        asked = {
            "consumerGroup": "G",
            "clientId": "c",
            "topic": "Mine",
            "msgId": "7F00000100002A9F0000000000000000",
        }
        refused = await desk.ask(ALICE, Code.CONSUME_MESSAGE_DIRECTLY, asked)
        assert (refused.code, "Topic:T" in (refused.remark or "")) == (NO_PERMISSION, True)
        await desk.grant(ALICE, "Topic:T", "Sub")
        passed = await desk.ask(ALICE, Code.CONSUME_MESSAGE_DIRECTLY, asked)
        assert passed.remark == "The Consumer <G> <c> not online"


@virtual
async def test_either_switch_of_5x_is_both_and_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "turbopump.guard")
    config = guarded(authenticationEnabled="false")
    async with guarded_broker(config) as desk:
        assert (await desk.ask(Credentials("root", "wrong"), Code.AUTH_LIST_USER)).code == NO_PERMISSION
    assert "authenticationEnabled is switched on as well" in caplog.text


@virtual
async def test_what_weakens_access_control_is_one_warning_line_each(caplog: pytest.LogCaptureFixture) -> None:
    user = json.dumps({"username": "admin", "password": "12345678"})
    config = guarded(authenticationWhitelist="105", initAuthenticationUser=user, authKey="")
    async with running(config):
        pass
    lines = [record.message for record in caplog.records if record.message.startswith("Access control")]
    assert len([line for line in lines if "connections are not encrypted" in line]) == 1
    assert "Access control: users with a password of Apache's examples: admin" in lines
    assert "Access control: authenticationWhitelist lets requests pass: 105" in lines
    assert [line for line in lines if "users.key, which decrypts the secrets beside it" in line]


@virtual
async def test_a_start_without_the_packages_of_the_extra_stops_and_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(Exception, match=r"pip install 'turbopump\[security\]'"):
        async with running(guarded()):
            pass


@virtual
async def test_users_of_another_key_stop_the_start_and_nothing_is_written_over() -> None:
    async with guarded_broker() as desk:
        disk = desk.desk.disk
    before = disk.read("/store/config/users.json")
    with pytest.raises(Exception, match="set authKey or authSecretKeyFile to the key that wrote it"):
        async with running(guarded(authKey="QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="), disk):
            pass
    assert disk.read("/store/config/users.json") == before


@virtual
async def test_the_inner_credentials_are_a_super_user() -> None:
    async with guarded_broker() as desk:
        assert (await desk.ask(INNER, Code.GET_BROKER_CONFIG)).code == 0


@virtual
async def test_a_dry_run_refuses_only_requests_about_access_and_notes_what_would_be_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with guarded_broker(guarded(authDryRun="true")) as desk:
        for who in (None, Credentials("eve", "guessed"), ALICE):
            assert (await desk.ask(who, Code.SEND_MESSAGE_V2, letters("T"), b"x")).code == 0
        assert (await desk.ask(None, Code.VIEW_MESSAGE_BY_ID, {"offset": 0})).code == 0
        for who in (None, Credentials("root", "guessed"), ALICE):
            assert (await desk.ask(who, Code.AUTH_LIST_USER)).code == NO_PERMISSION
        disk = desk.desk.disk
    lines = [json.loads(line) for line in disk.read("/store/config/access-audit.jsonl").splitlines()]
    noted = [(line["event"], line["user"], line.get("code")) for line in lines]
    assert noted[-8:] == [
        ("would-refuse", "", 310),
        ("would-refuse", "eve", 310),
        ("would-refuse", "alice", 310),
        ("would-refuse", "", 33),
        ("would-refuse", "", 33),
        ("refused", "", 3005),
        ("refused", "root", 3005),
        ("refused", "alice", 3005),
    ]
    assert "a dry run (authDryRun): nothing is refused" in caplog.text
    assert "Dry run: request 310 of 127.0.0.1" in caplog.text


@virtual
async def test_the_name_in_a_verified_certificate_is_a_user_whose_requests_need_no_signature(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = AcceptedConnection.connection_made

    def with_certificate(connection: AcceptedConnection, transport: asyncio.BaseTransport) -> None:
        made(connection, transport)
        connection.certificate = names.pop(0) if names else ""

    names: list[str] = []
    monkeypatch.setattr(AcceptedConnection, "connection_made", with_certificate)
    async with guarded_broker() as desk:
        await desk.grant(ALICE, "Topic:T", "Pub")
        for name, code in (("alice", 0), ("nobody", NO_PERMISSION), ("stranger", NO_PERMISSION)):
            names.append(name)
            visitor = desk.desk.visitor()
            answer = await desk.ask(None, Code.SEND_MESSAGE_V2, letters("T"), b"x", visitor)
            assert answer.code == code, answer.remark
            await visitor.close()


@virtual
async def test_a_broker_that_only_takes_tls_warns_of_no_plain_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for mode, count in (("permissive", 1), ("enforcing", 0)):
        caplog.clear()
        config = replace(guarded(), tls=TlsSettings(server_mode=mode, test_mode=True))  # type: ignore[arg-type]
        async with running(config):
            pass
        assert caplog.text.count("connections are not encrypted") == count
