"""Every request that a router of ours serves, sent by each kind of sender to real servers.

`python -m tests.unit.guard.sweep` prints sweep.txt, which people read: look at each changed line.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.auth.decisions import ACCOUNTS, CLUSTER, SECRET, USERS
from tests.unit.auth.requests_kit import name_of, request_of
from tests.unit.broker.desk import CONFIG, Desk, running
from tests.unit.broker_group.kit import RAFT_PORT, group, member_of
from tests.unit.guard.kit import ROOT, guarded, recorded_routers, with_identity
from tests.unit.namesrv.guarded_kit import CONFIG as NAMESRV
from tests.unit.namesrv.guarded_kit import IP, TOOL, GuardedNameServer
from tests.unit.replication.users_kit import CONF

from turbopump.auth.signature import ACCESS_KEY, Credentials
from turbopump.guard import failures
from turbopump.guard.config import AccessConfig
from turbopump.namesrv.config import NamesrvConfig
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command
from turbopump.remoting.client import Client
from turbopump.remoting.router import Router
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk
from turbopump.testing.loop import VirtualClock, run_virtual

FILE = Path(__file__).parent / "sweep.txt"
NO_PERMISSION = 16
REFUSAL = re.compile(
    r"username cannot be null|User:\S* is (not found|disabled)|[Cc]heck signature failed|has no permission to"
    r"|No accessKey is configured|No acl config for|Need admin permission|No default permission"
    r"|needs the signature|is not permitted"
)
"""What the gate says; a handler that refuses with the same code has other words."""

HEAD = """\
# Every request that a server of ours serves, and whose requests it serves: asked of real servers.
# nobody: without a key; forged: the name of a super user (administrator) with a wrong secret; eve: no such
# user; off: a disabled one. The others are those of tests/unit/auth/decisions.txt. white1: an account at its
# white address, with its name and no signature; global1: nobody, at a global white address.
"""


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends all requests, and in which column of the table the answers are."""

    column: str
    name: str = ""
    secret: str = SECRET

    def sign(self, request: Command) -> Command:
        if not self.name:
            return request
        if not self.secret:
            request.ext = {**(request.ext or {}), ACCESS_KEY: self.name}
        else:
            request.ext = Credentials(self.name, self.secret).signed(request.ext, request.body)
        return request


OF_USERS = (
    Sender("nobody"),
    Sender("forged", "super", "guessed"),
    Sender("eve", "eve"),
    Sender("off", "off"),
    *(Sender(name, name) for name in USERS),
)
OF_ACCOUNTS = (
    Sender("nobody1"),
    Sender("forged1", "full-admin", "guessed"),
    Sender("eve1", "eve-user"),
    Sender("white1", "white-user", ""),
    *(
        Sender(f"{one['accessKey']}".split("-")[0] + "1", f"{one['accessKey']}")
        for one in ACCOUNTS["accounts"]
    ),
)
OF_WHITE = (Sender("global1"),)

Row = dict[str, bool]
Rows = dict[int, Row]
Call = Callable[[Client, Command], Awaitable[Command]]


@dataclass(slots=True)
class Door:
    """A port of a running server: the codes that its router serves, and how to ask it."""

    router: Router
    codes: list[int]
    call: Call
    client: Callable[[], Client]


def codes_of(router: Router) -> list[int]:
    return sorted(router._routes)


async def rows_of(door: Door, senders: Iterable[Sender]) -> Rows:
    """Sends every request as each sender, each on a connection of its own; returns who was served."""
    found: Rows = {code: {} for code in door.codes}
    for sender in senders:
        client = door.client()
        for code in door.codes:
            answer = await door.call(client, sender.sign(request_of(code)))
            refused = answer.code == NO_PERMISSION and REFUSAL.search(answer.remark or "") is not None
            assert not (refused and answer.body), (sender, code)
            found[code][sender.column] = not refused
        await client.close()
    return found


def merged(*tables: Rows) -> Rows:
    """Joins the columns of the same server with and without a global white address."""
    assert len({tuple(table) for table in tables}) == 1, "the same server has other routes"
    return {code: {k: v for table in tables for k, v in table[code].items()} for code in tables[0]}


# --- who is known ---------------------------------------------------------------------------------------

Ask = Callable[[Credentials, int, dict[str, str], bytes], Awaitable[Command]]


async def make_users(ask: Ask) -> None:
    """Makes each kind of user, as `decisions.users` does, and one that is disabled."""
    kinds: dict[str, dict[str, str]] = {name: {} for name in USERS}
    kinds |= {"super": {"userType": "Super"}, "off": {"userStatus": "disable"}}
    for name, more in kinds.items():
        body = json.dumps({"password": SECRET, **more}).encode()
        made = await ask(ROOT, Code.AUTH_CREATE_USER, {"username": name}, body)
        assert made.code == 0, made.remark
        entries = [
            {"resource": resource, "actions": actions, "decision": "Allow"}
            for resource, actions in USERS.get(name, {}).items()
        ]
        if entries:
            body = json.dumps({"policies": [{"entries": entries}]}).encode()
            made = await ask(ROOT, Code.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, body)
            assert made.code == 0, made.remark


def accounts_disk(white: str = "", everywhere: str = "") -> SimulatedDisk:
    """A disk with the file of each kind of account; `white`, `everywhere`: white addresses."""
    rows = [*ACCOUNTS["accounts"]]
    if white:
        rows.append({"accessKey": "white-user", "secretKey": SECRET, "whiteRemoteAddress": white})
    text = json.dumps({"globalWhiteRemoteAddresses": [everywhere] if everywhere else [], "accounts": rows})
    disk = SimulatedDisk(Chance(1), VirtualClock())
    disk.write("/conf/plain_acl.yml", text.encode(), private=True)
    return disk


BY_ACCOUNTS = AccessConfig(accounts=True, accounts_dir="/conf")


# --- the servers ----------------------------------------------------------------------------------------


@asynccontextmanager
async def broker_doors(
    patch: pytest.MonkeyPatch, disk: SimulatedDisk | None = None
) -> AsyncIterator[tuple[Door, Door, Desk]]:
    """The main and the fast port of a broker with users; with accounts, if `disk` has them."""
    routers = recorded_routers(patch)
    config = with_identity(guarded(CONFIG), cluster_name=CLUSTER)
    if disk is not None:
        config = with_identity(replace(CONFIG, access=BY_ACCOUNTS), cluster_name=CLUSTER)
    async with running(config, disk) as desk:
        doors = []
        ports = (desk.broker.port, desk.broker.port - 2)
        for router, port in zip(routers, ports, strict=True):
            assert router._before, "a router without a gate"

            def call(client: Client, request: Command, port: int = port) -> Awaitable[Command]:
                return client.call(f"127.0.0.1:{port}", request, 60)

            doors.append(Door(router, codes_of(router), call, desk.visitor))
        if disk is None:
            await make_users(
                lambda who, code, ext, body: desk.client.call(
                    desk.address, Command(code, ext=who.signed(ext, body), body=body), 60
                )
            )
        yield doors[0], doors[1], desk


@asynccontextmanager
async def name_server_door(
    reads: str, disk: SimulatedDisk | None = None, config: NamesrvConfig = NAMESRV
) -> AsyncIterator[Door]:
    config = replace(config, name_server_reads=reads, cluster_name=CLUSTER)
    if disk is not None:
        config = replace(config, access=BY_ACCOUNTS)
    async with GuardedNameServer(config, disk) as desk:
        if disk is None:
            await make_users(desk.ask)
        router = desk.server._router
        yield Door(
            router,
            codes_of(router),
            lambda client, request: client.call(f"{IP}:9876", request, 10),
            lambda: Client(desk.network.at(TOOL), desk.clock),
        )


@asynccontextmanager
async def member_door() -> AsyncIterator[Door]:
    """The DLedger port of the leader of a group."""
    async with group(CONF) as world:
        leader = await world.leader()
        await make_users(
            lambda who, code, ext, body: world.tool.call(
                leader.address, Command(code, ext=who.signed(ext, body), body=body), 30
            )
        )
        router = member_of(leader).server._router
        yield Door(
            router,
            codes_of(router),
            lambda client, request: client.call(f"{leader.ip}:{RAFT_PORT}", request, 30),
            lambda: Client(world.network.at("10.0.7.7"), world.clock),
        )


async def group_rows(patch: pytest.MonkeyPatch) -> Rows:
    """The rows of the main port of a broker that leads a group."""
    routers = recorded_routers(patch)
    patch.setattr(failures, "FREE_FAILURES", 1_000_000)
    async with group(CONF) as world:
        leader = await world.leader()
        await make_users(
            lambda who, code, ext, body: world.tool.call(
                leader.address, Command(code, ext=who.signed(ext, body), body=body), 30
            )
        )
        main = max(routers, key=lambda router: len(router._routes))
        door = Door(
            main,
            codes_of(main),
            lambda client, request: client.call(leader.address, request, 30),
            lambda: Client(world.network.at("10.0.7.7"), world.clock),
        )
        return await rows_of(door, OF_USERS)


# --- the tables -----------------------------------------------------------------------------------------

HERE = "127.0.0.1"
USERS_OF_5, ACCOUNTS_OF_4 = "users", "accounts"
"""What a server knows: each kind has requests of its own."""


async def broker_rows(patch: pytest.MonkeyPatch, kind: str) -> tuple[Rows, Rows]:
    """The rows of the main port and of the fast port of a broker."""
    if kind == USERS_OF_5:
        async with broker_doors(patch) as (main, fast, _):
            return await rows_of(main, OF_USERS), await rows_of(fast, OF_USERS)
    async with broker_doors(patch, accounts_disk(white=HERE)) as (main, fast, _):
        found = await rows_of(main, OF_ACCOUNTS), await rows_of(fast, OF_ACCOUNTS)
    async with broker_doors(patch, accounts_disk(everywhere=HERE)) as (main, fast, _):
        white = await rows_of(main, OF_WHITE), await rows_of(fast, OF_WHITE)
    return merged(found[0], white[0]), merged(found[1], white[1])


async def name_server_rows(reads: str, kind: str) -> Rows:
    if kind == USERS_OF_5:
        async with name_server_door(reads) as door:
            return await rows_of(door, OF_USERS)
    async with name_server_door(reads, accounts_disk(white=TOOL)) as door:
        found = await rows_of(door, OF_ACCOUNTS)
    async with name_server_door(reads, accounts_disk(everywhere=TOOL)) as door:
        return merged(found, await rows_of(door, OF_WHITE))


async def member_rows() -> Rows:
    async with member_door() as door:
        return await rows_of(door, OF_USERS)


def shown(title: str, rows: Rows) -> str:
    columns = list(next(iter(rows.values())))
    widths = {one: max(5, len(one)) for one in columns}
    lines = [f"[{title}]", f"{'code':>6} {'name':42} {' '.join(f'{one:{widths[one]}}' for one in columns)}"]
    for code, row in rows.items():
        marks = " ".join(f"{'yes' if row[one] else '-':{widths[one]}}" for one in columns)
        lines.append(f"{code:>6} {name_of(code):42} {marks}")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def parsed(text: str) -> dict[str, Rows]:
    """Reads tables as `shown` writes them: title → code → column → whether it is served."""
    found: dict[str, Rows] = {}
    columns: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if line.startswith("["):
            rows = found.setdefault(line.strip("[]"), {})
        elif words[:1] == ["code"]:
            columns = words[2:]
        elif words and words[0] != "#":
            rows[int(words[0])] = {c: w == "yes" for c, w in zip(columns, words[2:], strict=True)}
    return found


BROKER, NAME_SERVER, OPEN_NAME_SERVER, MEMBER = "broker", "name server", "open name server", "DLedger"


async def tables(patch: pytest.MonkeyPatch) -> dict[str, Rows]:
    """Returns the rows of every server with users and with accounts, by the titles of the tables.

    The fast port of a broker has no table: its rows must be those of the main port.
    """
    patch.setattr(failures, "FREE_FAILURES", 1_000_000)  # so that each wrong signature is looked at
    found: dict[str, Rows] = {}
    for kind in (USERS_OF_5, ACCOUNTS_OF_4):
        main, fast = await broker_rows(patch, kind)
        assert fast == {code: main[code] for code in fast}
        found[f"{BROKER}, {kind}"] = main
        for title, reads in ((OPEN_NAME_SERVER, "open"), (NAME_SERVER, "signed")):
            found[f"{title}, {kind}"] = await name_server_rows(reads, kind)
    found[f"{MEMBER}, {USERS_OF_5}"] = await member_rows()
    return found


def page(found: dict[str, Rows]) -> str:
    return HEAD + "".join("\n" + shown(title, rows) for title, rows in found.items())


def _print() -> None:
    found: list[dict[str, Any]] = []

    async def run() -> None:
        with pytest.MonkeyPatch.context() as patch:
            found.append(await tables(patch))

    run_virtual(run())
    print(page(found[0]), end="")


if __name__ == "__main__":
    _print()
