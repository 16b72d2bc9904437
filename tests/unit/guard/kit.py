"""What the tests of access control share: signed requests, a guarded broker in memory, users to ask as."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.desk import CONFIG, Desk, running

from turbopump.auth.signature import Credentials
from turbopump.broker import server
from turbopump.broker.config import BrokerConfig, change
from turbopump.guard.config import KEYS
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.remoting.router import Router

ROOT = Credentials("root", "root-secret-word")
INNER = Credentials("inner", "inner-secret-word")
ALICE = Credentials("alice", "alice-secret-word")
NOBODY = Credentials("nobody", "nobody-secret-word")
SECRETS = tuple(who.secret_key for who in (ROOT, INNER, ALICE, NOBODY))

KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT.access_key, "password": ROOT.secret_key}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": INNER.access_key, "secretKey": INNER.secret_key}
    ),
    "authKey": KEY,
}


def guarded(config: BrokerConfig = CONFIG, **settings: str) -> BrokerConfig:
    """The configuration with access control by users, and more of its keys."""
    for key, text in (SETTINGS | settings).items():
        assert key in KEYS, key
        config = change(config, key, text)
    return config


class GuardedDesk:
    """A broker with access control, and somebody who asks it."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.client = desk.client
        self.heard: list[Command] = []
        """All answers so far."""

    async def ask(
        self,
        who: Credentials | None,
        code: int,
        ext: dict[str, Any] | None = None,
        body: bytes = b"",
        client: Client | None = None,
        port: int = 0,
    ) -> Command:
        """The answer to a request that is signed by `who`; None: by nobody."""
        fields = {name: str(value) for name, value in (ext or {}).items()}
        signed = fields if who is None else who.signed(fields, body)
        request = Command(code, ext=signed or None, body=body, language="JAVA")
        address = f"127.0.0.1:{port or self.desk.broker.port}"
        answer = await (client or self.client).call(address, request, 60)
        self.heard.append(answer)
        return answer

    async def done(
        self, who: Credentials | None, code: int, ext: dict[str, Any], body: bytes = b""
    ) -> Command:
        answer = await self.ask(who, code, ext, body)
        assert answer.code == 0, (code, answer.code, answer.remark)
        return answer

    async def create(self, who: Credentials, kind: str = "Normal", by: Credentials = ROOT) -> None:
        body = json.dumps({"username": who.access_key, "password": who.secret_key, "userType": kind})
        await self.done(by, Code.AUTH_CREATE_USER, {"username": who.access_key}, body.encode())

    async def grant(self, who: Credentials, resource: str, *actions: str, decision: str = "Allow") -> None:
        entry = {"resource": resource, "actions": list(actions), "decision": decision}
        body = json.dumps({"policies": [{"policyType": "Custom", "entries": [entry]}]}).encode()
        await self.done(ROOT, Code.AUTH_CREATE_ACL, {"subject": f"User:{who.access_key}"}, body)


@contextlib.asynccontextmanager
async def guarded_broker(config: BrokerConfig | None = None, **changes: Any) -> AsyncIterator[GuardedDesk]:
    """A broker with access control: root and inner are super users, alice and nobody have no right."""
    async with running(config or guarded(), **changes) as desk:
        found = GuardedDesk(desk)
        if changes.get("disk") is None:
            await found.create(ALICE)
            await found.create(NOBODY)
        yield found


def recorded_routers(monkeypatch: pytest.MonkeyPatch) -> list[Router]:
    """The routers of brokers that are started from now on."""
    found: list[Router] = []

    def made(*args: Any, **more: Any) -> Router:
        found.append(Router(*args, **more))
        return found[-1]

    monkeypatch.setattr(server, "Router", made)
    return found


def with_identity(config: BrokerConfig, **changes: Any) -> BrokerConfig:
    return replace(config, identity=replace(config.identity, **changes))
