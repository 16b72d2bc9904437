"""Secrets get out by no way: all is asked here, and `tests/secrets_kept.py` looks in the whole suite."""

import asyncio
import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from tests import secrets_kept
from tests.kit import virtual
from tests.unit.broker.desk import letters
from tests.unit.guard.accounts_kit import ADMIN, TEAMUSER, USER, accounts_broker
from tests.unit.guard.accounts_kit import SECRETS as ACCOUNT_SECRETS
from tests.unit.guard.foreign_requests import FOREIGN, foreign_body
from tests.unit.guard.kit import ALICE, INNER, KEY, NOBODY, ROOT, SECRETS, guarded, guarded_broker
from tests.unit.namesrv.guarded_kit import CONFIG as NAMESRV
from tests.unit.namesrv.guarded_kit import GuardedNameServer

from turbopump.auth.signature import Credentials
from turbopump.broker.config import MetricsConfig
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.remoting.connection import Connection
from turbopump.remoting.http import answer
from turbopump.testing.disk import SimulatedDisk

ALL = (*SECRETS, *ACCOUNT_SECRETS)
WALK = tuple(range(50, 55))


def noted() -> list[str]:
    """What the plugin has found so far, which it forgets with this."""
    found, secrets_kept.found[:] = list(secrets_kept.found), []
    return found


def test_all_secrets_of_these_tests_are_marked() -> None:
    assert [one for one in (*ALL, KEY) if not one.endswith(secrets_kept.MARKED)] == []


def test_a_secret_in_a_log_line_is_found() -> None:
    watches = [one for one in logging.getLogger().handlers if isinstance(one, secrets_kept.SecretsInLogs)]
    assert len(watches) == 1
    error = ValueError(ROOT.secret_key)
    for fields in (
        {"name": "turbopump.guard", "msg": "the secret is %s", "args": (ALICE.secret_key,)},
        {"name": "turbopump", "msg": "failed", "exc_info": (ValueError, error, None)},
        {"name": "turbopump", "msg": "nothing"},
    ):
        watches[0].handle(logging.makeLogRecord(fields))
    lines = noted()
    assert len(lines) == 2
    assert ALICE.secret_key in lines[0]
    assert ROOT.secret_key in lines[1]


@virtual
async def test_a_secret_in_an_answer_a_page_or_a_file_is_found() -> None:
    """The ways out of a server are watched in the whole suite."""
    secret = ALICE.secret_key
    closing: Any = type("Closing", (), {"is_closing": True})()
    for response in (
        Command(0, remark=secret),
        Command(0, ext={"password": secret}),
        Command(0, body=secret.encode()),
    ):
        Connection.reply(closing, Command(7), response)
    await answer(b"GET /x HTTP/1.1\r\n\r\n", {"/x": lambda: (200, "text/plain", secret.encode())})
    async with guarded_broker() as desk:
        for path in ("/store/config/leak.json", "/conf/plain_acl.yml"):
            desk.desk.disk.write(path, secret.encode())
    where = [line.split(":")[0] for line in noted()]
    assert where == [*["answer to request 7"] * 3, "page over HTTP", "/store/config/leak.json"]


async def walk(ask: Any, who: Credentials | None, codes: tuple[int, ...]) -> bytes:
    """Everything that is answered to requests with and without fields and bodies."""
    answered = b""
    for code in codes:
        for ext, body in (
            ({}, b""),
            (FOREIGN | {"username": "alice", "subject": "User:alice"}, foreign_body(code)),
            ({"accessKey": USER.access_key, "secretKey": "short"}, b"{"),
            ({"accessKey": TEAMUSER.access_key, "secretKey": TEAMUSER.secret_key, "topicPerms": "T=NO"}, b""),
            ({"globalWhiteAddrs": "no address", "aclFileFullPath": "/etc/passwd"}, b""),
        ):
            found: Command = await ask(who, code, ext, body)
            answered += f"{found.remark}{found.ext}".encode() + found.body
    return answered


@pytest.mark.parametrize("who", [None, USER, TEAMUSER, ADMIN], ids=["nobody", "user", "team", "admin"])
@virtual
async def test_requests_50_to_54_answer_no_secret_to_anybody(who: Credentials | None) -> None:
    async with accounts_broker() as desk:
        answered = await walk(desk.ask, who, WALK)
        assert (b'"plainAccessConfigs"' in answered) is (who is ADMIN)
        assert not [one for one in ACCOUNT_SECRETS if one.encode() in answered]


@virtual
async def test_no_request_to_a_broker_with_accounts_answers_a_secret() -> None:
    async with accounts_broker() as desk:
        for who in (None, USER, ADMIN):
            codes = tuple(code for code in Code if code not in (*WALK, Code.DELETE_ACL_CONFIG))
            answered = await walk(desk.ask, who, codes)
            assert not [one for one in ACCOUNT_SECRETS if one.encode() in answered]
        assert len(answered) > 10_000


@pytest.mark.parametrize("reads", ["open", "signed"])
@virtual
async def test_no_request_to_a_name_server_answers_a_secret(reads: str) -> None:
    async with GuardedNameServer(replace(NAMESRV, name_server_reads=reads)) as server:
        user = json.dumps({"password": ALICE.secret_key}).encode()
        assert (await server.ask(ROOT, Code.AUTH_CREATE_USER, {"username": "alice"}, user)).code == 0
        for who in (None, NOBODY, ALICE, INNER, ROOT):
            codes = tuple(code for code in (*Code, 99_999) if code not in (Code.AUTH_DELETE_USER,))
            answered = await walk(server.ask, who, codes)
            assert not [one for one in ALL if one.encode() in answered]
        await asyncio.sleep(1)
        disk: SimulatedDisk = server.disk
        assert not [one for one in SECRETS if one.encode() in disk.read("/data/users.json")]
    assert noted() == []


@virtual
async def test_metrics_of_a_guarded_broker_have_no_secret() -> None:
    config = guarded(authUserQuotas="alice:requests=1000")
    async with guarded_broker(replace(config, metrics=MetricsConfig(exporter="PROM", port=5557))) as desk:
        await desk.done(ROOT, Code.SEND_MESSAGE_V2, letters("T"), b"x")
        await desk.ask(Credentials("alice", "wrong"), Code.SEND_MESSAGE_V2, letters("T"), b"x")
        page = bytearray()

        class Browser(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                transport.write(b"GET /metrics HTTP/1.1\r\n\r\n")  # type: ignore[attr-defined]

            def data_received(self, data: bytes) -> None:
                page.extend(data)

        await desk.desk.network.connect(Browser, "127.0.0.1", desk.desk.broker.metrics_port)
        await asyncio.sleep(1)
        assert page.startswith(b"HTTP/1.1 200 OK")
        assert page.count(b"# TYPE ") > 20
        assert not [one for one in SECRETS if one.encode() in page]
    assert noted() == []
