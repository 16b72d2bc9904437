"""The five steps of docs/security.md on a running cluster: open, dry run, users, signed clients, closed.

Two brokers and a name server on real sockets are restarted one after the other while clients produce and
consume. Those that sign are never refused, and every message that was acknowledged is consumed.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.integration.broker.tls_files import Files
from tests.unit.guard.kit import ALICE, INNER, KEY, ROOT

from turbopump.aio import Admin, Consumer, Message, MessageExt, Producer
from turbopump.auth.signature import Credentials
from turbopump.broker.config import load
from turbopump.broker.server import Broker
from turbopump.errors import ClientError
from turbopump.namesrv.config import NamesrvConfig, configure
from turbopump.namesrv.server import NameServer
from turbopump.runtime.chance import Chance
from turbopump.runtime.clock import SystemClock
from turbopump.runtime.disk import SystemDisk, SystemWorkers
from turbopump.runtime.network import SystemNetwork

HOST, TOPIC, GROUP = "127.0.0.1", "orders-in", "orders-readers"
PATIENCE_S = 120
GUARDED = (
    "authenticationEnabled=true",
    "authorizationEnabled=true",
    f"authKey={KEY}",
    f"initAuthenticationUser={json.dumps({'username': ROOT.access_key, 'password': ROOT.secret_key})}",
    "innerClientAuthenticationCredentials="
    + json.dumps({"accessKey": INNER.access_key, "secretKey": INNER.secret_key}),
)


@dataclass
class Place:
    """A cluster that keeps its ports and files while its servers are restarted with other settings."""

    files: Files
    names: NameServer | None = None
    names_port: int = 0
    brokers: dict[str, Broker] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    workers: list[SystemWorkers] = field(default_factory=list)

    def tls(self, mode: str) -> tuple[str, ...]:
        own, ca = self.files.path("server"), self.files.path("ca")
        return (
            f"tlsServerMode={mode}",
            f"tlsServerCertPath={own}",
            f"tlsServerTrustCertPath={ca}",
            "tlsEnable=true",
            f"tlsClientCertPath={own}",
            f"tlsClientTrustCertPath={ca}",
        )

    async def restart(self, *lines: str) -> None:
        """Restarts all servers with these settings, one after the other, the name server first."""
        if self.names is not None:
            await self.names.stop(0)
        below = self.files.directory / "namesrv"
        below.mkdir(exist_ok=True)
        plain = NamesrvConfig(
            listen_port=self.names_port, bind_address=HOST, kv_config_path=f"{below}/kvConfig.json"
        )
        config, unknown = configure(plain, "\n".join(lines))
        assert unknown == []
        self.names = NameServer(config, SystemNetwork(), SystemClock(), SystemDisk())
        self.names_port = await self.names.start()
        for name in ("broker-a", "broker-b"):
            await self.restart_broker(name, *lines)

    async def restart_broker(self, name: str, *lines: str) -> None:
        if name in self.brokers:
            await self.brokers.pop(name).stop()
        text = (
            f"bindAddress={HOST}",
            f"brokerIP1={HOST}",
            f"brokerName={name}",
            f"listenPort={self.ports.get(name, 0)}",
            f"namesrvAddr={HOST}:{self.names_port}",
            f"storePathRootDir={self.files.directory / name}",
            "mappedFileSizeCommitLog=1048576",
            "maxHashSlotNum=100",
            "maxIndexNum=400",
            "brokerFastFailureEnable=false",
            *lines,
        )
        self.workers.append(SystemWorkers())
        broker = Broker(
            load("".join(f"{line}\n" for line in text)).config,
            SystemNetwork(),
            SystemClock(),
            SystemDisk(),
            self.workers[-1],
            Chance(1),
        )
        await broker.start()
        self.brokers[name], self.ports[name] = broker, broker.port
        await asyncio.sleep(0.5)  # the other broker carries the sends meanwhile

    def events(self) -> list[tuple[str, str]]:
        """Events and users of the audit lines of all servers."""
        found = []
        for path in sorted(self.files.directory.rglob("access-audit.jsonl")):
            rows = map(json.loads, path.read_text().splitlines())
            found += [(row["event"], row["user"]) for row in rows]
        return found

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.stop()
        if self.names is not None:
            await self.names.stop(0)
        for workers in self.workers:
            workers.close()

    def where(self, who: Credentials | None, encrypts: bool) -> dict[str, object]:
        """Settings of a client: which of its options change in which step."""
        found: dict[str, object] = {"name_servers": f"{HOST}:{self.names_port}"}
        if who is not None:
            found |= {"access_key": who.access_key, "secret_key": who.secret_key}
        return found | (self.files.client("") if encrypts else {})


@dataclass
class Traffic:
    """A producer and a consumer with one kind of settings."""

    place: Place
    prefix: str
    who: Credentials | None
    encrypts: bool
    consumed: set[str]
    acknowledged: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    async def run(self, until: asyncio.Event) -> None:
        where = self.place.where(self.who, self.encrypts)
        consumer = Consumer(GROUP, **where)  # type: ignore[arg-type]
        consumer.subscribe(TOPIC, self._take)
        async with Producer("orders", **where) as producer, consumer:  # type: ignore[arg-type]
            while not until.is_set():
                await self._send(producer, f"{self.prefix}{len(self.acknowledged)}")
                await asyncio.sleep(0.02)

    async def _send(self, producer: Producer, text: str) -> None:
        try:
            await producer.send(Message(TOPIC, text.encode()))
        except ClientError as error:
            if any(word in str(error) for word in ("permission", "signature", "username", "not found")):
                self.refused.append(str(error))
            return  # a broker that restarts: sent again, with the same number
        self.acknowledged.append(text)

    async def _take(self, message: MessageExt) -> None:
        self.consumed.add(message.text)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S / 2):
        while not is_so():  # noqa: ASYNC110 - in real time
            await asyncio.sleep(0.1)


def test_a_cluster_goes_from_open_to_closed_and_no_signed_client_is_refused(tmp_path: Path) -> None:
    place = Place(Files.written(tmp_path))

    async def scene() -> None:
        try:
            await walk(place)
        finally:
            await place.stop()

    asyncio.run(asyncio.wait_for(scene(), PATIENCE_S))


async def walk(place: Place) -> None:
    consumed: set[str] = set()
    stops = asyncio.Event(), asyncio.Event()
    await place.restart()
    async with Admin(**place.where(None, False)) as admin:  # type: ignore[arg-type]
        await admin.topics.create(TOPIC, queues=4)
    before = Traffic(place, "plain-", None, False, consumed)
    after = Traffic(place, "signed-", ALICE, True, consumed)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(before.run(stops[0]))
        await until(lambda: len(before.acknowledged) > 20)

        # 1. a dry run, and TLS for those that want it
        await place.restart(*GUARDED, "authDryRun=true", *place.tls("permissive"))
        served = len(before.acknowledged)
        await until(lambda: len(before.acknowledged) > served + 20)
        assert ("would-refuse", "") in place.events()

        # 2. users and policies
        await make_users(place)

        # 3. clients that sign and encrypt, beside those that do not, and then instead of them
        tasks.create_task(after.run(stops[1]))
        await until(lambda: len(after.acknowledged) > 20)
        stops[0].set()

        # 4. nothing of theirs would be refused
        assert [user for event, user in place.events() if user == ALICE.access_key] == []

        # 5. closed, one server after the other
        await place.restart(*GUARDED, *place.tls("enforcing"))
        served = len(after.acknowledged)
        await until(lambda: len(after.acknowledged) > served + 20)
        await refuses_others(place)
        acknowledged = {*before.acknowledged, *after.acknowledged}
        await until(lambda: acknowledged <= consumed)
        stops[1].set()
    assert (before.refused, after.refused) == ([], [])
    signed = [event for event, user in place.events() if user == ALICE.access_key]
    assert [event for event in signed if event in ("refused", "would-refuse", "left-out")] == []


async def make_users(place: Place) -> None:
    resources, actions = ["Topic:orders*", "Group:orders*"], ["Pub", "Sub"]
    async with Admin(**place.where(ROOT, True)) as admin:  # type: ignore[arg-type]
        for port in (*place.ports.values(), place.names_port):
            address = f"{HOST}:{port}"
            await admin.users.create(address, ALICE.access_key, ALICE.secret_key)
            await admin.acls.create(address, f"User:{ALICE.access_key}", resources, actions, "Allow")


async def refuses_others(place: Place) -> None:
    """Without TLS nobody gets in; with it, nobody without credentials or with wrong ones."""
    wrong = Credentials(ROOT.access_key, "guessed")
    for who, encrypts in ((ALICE, False), (None, True), (wrong, True)):
        where = place.where(who, encrypts)
        async with Producer("orders", **where) as producer:  # type: ignore[arg-type]
            with pytest.raises(ClientError):
                await producer.send(Message(TOPIC, b"refused"))
