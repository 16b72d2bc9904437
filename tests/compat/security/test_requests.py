"""Requests about users and policies are answered as 5.5.0 answered them, but without passwords."""

import asyncio
import base64
from typing import Any

import msgspec
from tests.compat.security import Exchange, decoded, exchanges
from tests.kit import virtual
from tests.unit.broker.desk import running
from tests.unit.guard.kit import KEY, guarded

from turbopump.auth.book import UserBook
from turbopump.auth.book_values import to_plain
from turbopump.guard.cipher import SecretCipher
from turbopump.protocol.bodies import AclInfo, UserInfo, decode
from turbopump.protocol.command import Command
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock

DIFFERENT = {
    "create, no body": "the name of a Java class",
    "create acl no body": "the name of a Java class",
    "create acl no policies": "the name of a Java class",
    "now give itself everything": "policies about everything are for super users",
}
"""Exchanges that are answered in another way, and why."""


def test_requests_about_users_and_policies_are_answered_as_5_5_0_did() -> None:
    differences: dict[str, tuple[Any, Any]] = {}
    compared = 0

    @virtual
    async def replay() -> None:
        nonlocal compared
        async with running(guarded(), _disk_with_users()) as desk:
            for one in exchanges("5.5.0"):
                if one.peer == "name server" or one.answer is None:
                    continue
                answer = await _asked(desk, one.request)
                if not 3001 <= one.command.code <= 3010:
                    continue
                compared += 1
                ours, theirs = _facts(one, answer), _facts(one, decoded(one.answer))
                if ours != theirs:
                    differences[one.name] = (ours, theirs)

    replay()
    assert compared > 50
    assert {name: pair for name, pair in differences.items() if name not in DIFFERENT} == {}
    assert set(differences) == set(DIFFERENT)


async def _asked(desk: Any, data: bytes) -> Command:
    """The broker's answer to the bytes of a captured request, on a connection of its own."""
    received = bytearray()

    class Speaker(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport
            transport.write(data)  # type: ignore[attr-defined]

        def data_received(self, answer: bytes) -> None:
            received.extend(answer)

    speaker = Speaker()
    await desk.network.connect(lambda: speaker, "127.0.0.1", desk.broker.port)
    for _ in range(100):
        if received:
            break
        await asyncio.sleep(1)
    speaker.transport.close()
    return decoded(bytes(received)) if received else Command(-1)


def _facts(one: Exchange, answer: Command) -> tuple[int, str, object]:
    """Code, remark and body of an answer, without passwords and without the users of one's own server."""
    body: Any = msgspec.json.decode(answer.body) if answer.body and answer.code == 0 else None
    if one.command.code in (3004, 3005) and body is not None:
        rows = body if isinstance(body, list) else [body]
        body = sorted(
            (row["username"], row["userType"], row["userStatus"])
            for row in rows
            if row["username"] not in ("root", "inner")
        )
    elif isinstance(body, list):
        body = sorted(body, key=lambda info: info["subject"])
    return answer.code, answer.remark or "", body


def _disk_with_users() -> SimulatedDisk:
    """A disk with the users and policies that the captured server listed first."""
    users, acls = (one.answer for one in exchanges("5.5.0")[:2])
    assert users is not None
    assert acls is not None
    book = UserBook()
    for user in decode(list[UserInfo], decoded(users).body):
        book = book.created(user.username or "", user, by_super=True)
    for info in decode(list[AclInfo], decoded(acls).body):
        book = book.granted(info.subject, info, by_super=True)
    plain, cipher = to_plain(book), SecretCipher(base64.b64decode(KEY))
    for row in plain["users"]:
        row["secrets"] = [cipher.encrypt(secret, row["name"]) for secret in row["secrets"]]
    disk = SimulatedDisk(Chance(1), VirtualClock())
    disk.write("/store/config/users.json", msgspec.json.encode(plain), private=True)
    return disk
