"""The ports between brokers with access control: who copies the log, who speaks in a DLedger group."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.kit import virtual
from tests.unit.broker_group.kit import RAFT_PORT, Group, group, member_of
from tests.unit.guard.kit import ALICE, INNER, NOBODY, ROOT, SETTINGS
from tests.unit.remoting.tls_kit import certificates
from tests.unit.replication import tls_kit as tls
from tests.unit.replication.ha_peers import PlayedSlave
from tests.unit.replication.kit import Node, Pair, pair
from tests.unit.replication.users_kit import CONF, SLAVE, ask, create_alice

from turbopump.auth.peer_proof import greeting_proof
from turbopump.auth.signature import Credentials
from turbopump.protocol import ha
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.dledger import messages as dledger
from turbopump.protocol.dledger.codes import DLedgerRequestCode
from turbopump.protocol.headers.replicas import ReplicaCompareRequest, ReplicaCompareResponse
from turbopump.remoting.client import Client
from turbopump.remoting.tls import ServerNetworks, networks_of
from turbopump.replication.master import MAX_NEWCOMERS, MAX_SLAVES, NEWCOMER_TIMEOUT_S

HA_PORT = 10912
STRANGER_IP = "10.0.7.7"
FIRST = b"what only brokers may copy"
LETTERS = {
    "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0",
    "g": "1794732388000", "h": "0", "i": "", "j": "0", "k": "false",
}  # fmt: skip


class Peer(PlayedSlave):
    """A peer of the replication port that signs as the test says."""

    def __init__(self) -> None:
        super().__init__(takes_tables=True)
        self.greeting = b""
        self.proofs: list[bytes] = []
        self.nonces: list[bytes] = []
        self.sign: Callable[[bytes, bytes], bytes] | None = None
        """Makes the proof of a challenge and the greeting."""
        self.user = ""

    def data_received(self, data: bytes) -> None:
        size = ha.PART.size + ha.CHALLENGE_SIZE
        if self.greeting and not self.nonces and ha.PART.unpack_from(data)[0] == ha.CHALLENGE:
            self.nonces.append(data[ha.PART.size : size])
            data = data[size:]
            self.answer()
        super().data_received(data)

    def answer(self) -> None:
        if self.sign is not None:
            proof = self.sign(self.nonces[0], self.greeting)
            self.proofs.append(proof)
            self.transport.write(ha.encode_proof(ha.GreetingProof(self.user, proof)))
            self.report(0, 0)

    def greet_signed(self, run: int, who: Credentials, start: int = 0, broker_id: int = 1) -> None:
        self.user = who.access_key
        self.sign = lambda nonce, greeting: greeting_proof(who.secret_key, nonce, greeting)
        self.greet_with(run, start, broker_id)

    def greet_with(self, run: int, start: int = 0, broker_id: int = 1) -> None:
        self.greeting = ha.encode_greeting(ha.Greeting(run, start, broker_id, is_signed=True))
        self.transport.write(self.greeting)


async def run_of(world: Pair, master: Node) -> int:
    header = ReplicaCompareRequest(0, 0).to_ext()
    answer = await ask(world, master, INNER, Code.REPLICA_COMPARE, header)
    return ReplicaCompareResponse.from_ext(answer.ext).run


async def peer(world: Pair, master: Node, ip: str = STRANGER_IP) -> Peer:
    found = Peer()
    await world.network.at(ip).connect(lambda: found, master.ip, HA_PORT)
    return found


async def a_master(world: Pair, more: str = "") -> Node:
    """A master with one message, and a user `alice` who has no right."""
    master = world.node(CONF + more)
    await master.start()
    assert (await create_alice(world, master)).code == 0
    sent = await world.tool.call(
        master.address, Command(int(Code.SEND_MESSAGE_V2), ext=ROOT.signed(LETTERS, FIRST), body=FIRST), 30.0
    )
    assert sent.code == ResponseCode.SUCCESS, sent.remark
    return master


def places(master: Node) -> int:
    """How many peers have a place among the slaves of a master."""
    assert master.broker is not None
    assert master.broker.replication.master is not None
    return len(master.broker.replication.master.connections)


# --- the replication port --------------------------------------------------------------------------------


@pytest.mark.parametrize("signs", [False, True])
@virtual
async def test_hole_anybody_copies_the_log_from_the_replication_port(signs: bool) -> None:
    """As an Apache slave, and as one of ours that knows the run of the master."""
    async with pair() as world:
        master = await a_master(world)
        stranger = await peer(world, master)
        if signs:
            stranger.greet(0, await run_of(world, master))
        stranger.report(0, 0 if signs else None)
        await asyncio.sleep(1)
        assert (stranger.is_lost, bytes(stranger.data), stranger.tables) == (True, b"", [])
        assert places(master) == 0


@virtual
async def test_a_slave_that_signs_copies_the_log_and_the_users() -> None:
    async with pair() as world:
        master = await a_master(world)
        slave = world.node(CONF + SLAVE)
        await slave.start()
        await world.copied(master, slave)
        assert slave.log == master.log
        assert places(master) == 1


@virtual
async def test_a_slave_without_credentials_is_refused_and_both_say_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the comparison that comes first, and by the replication port if it knew the run of the master."""
    async with pair() as world:
        master = await a_master(world)
        unsigned = "".join(f"{line}\n" for line in CONF.splitlines() if not line.startswith("innerClient"))
        slave = world.node(unsigned + SLAVE)
        await slave.start()
        await asyncio.sleep(30)
        assert slave.store.replica.end == 0
        assert "what this broker asks of its master or its group is not signed" in caplog.text
        assert "username cannot be null" in caplog.text
        stranger = await peer(world, master)
        stranger.report(0)
        await asyncio.sleep(1)
        assert f"Slave {STRANGER_IP}" in caplog.text
        assert "or have its address in authTrustedPeers" in caplog.text


@pytest.mark.parametrize(
    "who",
    [Credentials("inner", "a guess at the secret"), Credentials("not a user", "x"), ALICE],
    ids=["wrong secret", "no user", "user without rights"],
)
@virtual
async def test_a_greeting_with_a_wrong_signature_or_of_an_ordinary_user_is_refused(who: Credentials) -> None:
    async with pair() as world:
        master = await a_master(world)
        stranger = await peer(world, master)
        stranger.greet_signed(await run_of(world, master), who)
        await asyncio.sleep(1)
        assert len(stranger.proofs) == 1
        assert (stranger.is_lost, bytes(stranger.data), stranger.tables) == (True, b"", [])
        lines = map(json.loads, master.disk.read("/store/config/access-audit.jsonl").splitlines())
        assert [line["user"] for line in lines if line["event"] == "refused"] == [who.access_key]


@virtual
async def test_hole_a_greeting_that_was_recorded_is_sent_again() -> None:
    """Each connection has a challenge of its own, so what was proved on another one proves nothing."""
    async with pair() as world:
        master = await a_master(world)
        run = await run_of(world, master)
        first = await peer(world, master)
        first.greet_signed(run, INNER)
        await asyncio.sleep(1)
        assert FIRST in first.data
        again = await peer(world, master)
        again.user = INNER.access_key
        again.sign = lambda nonce, greeting: first.proofs[0]
        again.greet_with(run)
        await asyncio.sleep(1)
        assert again.nonces[0] != first.nonces[0]
        assert (again.is_lost, bytes(again.data)) == (True, b"")


@virtual
async def test_a_proof_holds_for_the_greeting_that_it_was_made_for_alone() -> None:
    async with pair() as world:
        master = await a_master(world)
        run = await run_of(world, master)
        other = ha.encode_greeting(ha.Greeting(run, 0, 7, is_signed=True))
        stranger = await peer(world, master)
        stranger.user = INNER.access_key
        stranger.sign = lambda nonce, greeting: greeting_proof(INNER.secret_key, nonce, other)
        stranger.greet_with(run)
        await asyncio.sleep(1)
        assert stranger.is_lost


@virtual
async def test_an_apache_slave_is_admitted_by_its_named_address_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pair() as world:
        master = await a_master(world, f"authTrustedPeers={STRANGER_IP};10.2.0.0/16\n")
        for ip in (STRANGER_IP, "10.2.3.4"):
            named = await peer(world, master, ip)
            named.report(0)
            await asyncio.sleep(1)
            assert FIRST in named.data
        other = await peer(world, master, "10.0.7.8")
        other.report(0)
        await asyncio.sleep(1)
        assert (other.is_lost, bytes(other.data)) == (True, b"")
        warning = f"authTrustedPeers: {STRANGER_IP}, 10.2.0.0/16 may copy all messages and users without"
        assert warning in caplog.text


@virtual
async def test_silent_connections_take_no_place_of_a_slave() -> None:
    async with pair() as world:
        master = await a_master(world)
        silent = [await peer(world, master) for _ in range(MAX_SLAVES + MAX_NEWCOMERS)]
        await asyncio.sleep(0.1)
        assert places(master) == 0
        assert [one.is_lost for one in silent].count(False) <= MAX_NEWCOMERS
        slave = world.node(CONF + SLAVE)
        await slave.start()
        await world.copied(master, slave)
        assert places(master) == 1
        await asyncio.sleep(NEWCOMER_TIMEOUT_S)
        assert all(one.is_lost for one in silent)


@virtual
async def test_a_greeting_that_is_never_proved_is_closed_after_a_while() -> None:
    async with pair() as world:
        master = await a_master(world)
        stranger = await peer(world, master)
        stranger.greet_with(await run_of(world, master))
        await asyncio.sleep(NEWCOMER_TIMEOUT_S / 2)
        assert (len(stranger.nonces), stranger.is_lost) == (1, False)
        await asyncio.sleep(NEWCOMER_TIMEOUT_S)
        assert stranger.is_lost


@virtual
async def test_a_dry_run_serves_a_peer_and_notes_that_it_would_be_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pair() as world:
        master = await a_master(world, "authDryRun=true\n")
        stranger = await peer(world, master)
        stranger.report(0)
        await asyncio.sleep(2)
        assert FIRST in stranger.data
        assert b'"event":"would-refuse"' in master.disk.read("/store/config/access-audit.jsonl")
        assert f"Dry run: the slave {STRANGER_IP} would be refused" in caplog.text


@virtual
async def test_without_access_control_the_port_is_open_as_before() -> None:
    async with pair() as world:
        master = world.node()
        await master.start()
        await world.send(master, FIRST)
        stranger = await peer(world, master)
        stranger.report(0)
        await asyncio.sleep(1)
        assert FIRST in stranger.data


# --- certificates ----------------------------------------------------------------------------------------


async def with_alice(world: tls.SecureWorld, master: Node, kind: str) -> ServerNetworks:
    """Creates alice and stores a message; returns the networks of who shows the certificate of alice."""
    made, disk = certificates(), master.disk
    disk.write("/pem/alice", made.client.cert)
    disk.write("/pem/alice-key", made.client.key)
    tool = Client(networks_of(tls.settings(), world.network.at("10.0.0.8"), disk).requests, world.clock)
    body = json.dumps({"password": ALICE.secret_key, "userType": kind}).encode()
    create = Command(Code.AUTH_CREATE_USER, ext=ROOT.signed({"username": "alice"}, body), body=body)
    send = Command(int(Code.SEND_MESSAGE_V2), ext=ROOT.signed(LETTERS, FIRST), body=FIRST)
    for request in (create, send):
        answer = await tool.call(master.address, request, 10.0)
        assert answer.code == 0, answer.remark
    await tool.close()
    shown = replace(tls.settings(), client_cert_path="/pem/alice", client_key_path="/pem/alice-key")
    return networks_of(shown, world.network.at(STRANGER_IP), disk)


@pytest.mark.parametrize(("kind", "is_admitted"), [("Normal", False), ("Super", True)])
@virtual
async def test_a_certificate_copies_the_log_only_if_its_user_may_change_the_cluster(
    kind: str, is_admitted: bool
) -> None:
    """`turbopump tls init --client alice` signs alice by the authority of the servers: she is no slave."""
    async with tls.SecureWorld() as world:
        master = world.node(CONF + tls.conf())
        await master.start()
        networks = await with_alice(world, master, kind)
        found = Peer()
        await networks.copies.connect(lambda: found, master.ip, HA_PORT)
        found.report(0)
        await asyncio.sleep(1)
        assert (FIRST in found.data, found.is_lost) == (is_admitted, not is_admitted)


@pytest.mark.parametrize(("kind", "code"), [("Normal", ResponseCode.NO_PERMISSION), ("Super", 200)])
@virtual
async def test_a_certificate_speaks_in_a_group_only_if_its_user_may_change_the_cluster(
    kind: str, code: int
) -> None:
    async with tls.SecureWorld() as world:
        await world.start(CONF + tls.conf())
        leader = await world.leader()
        networks = await with_alice(world, leader, kind)
        client = Client(networks.copies, world.clock)
        ask = Command(DLedgerRequestCode.GET, body=b'{"group":"broker-a","beginIndex":0,"remoteId":"n0"}')
        answer = await client.call(f"{leader.ip}:{RAFT_PORT}", ask, 5.0)
        assert answer.code == code, answer.remark
        await client.close()


@virtual
async def test_brokers_whose_certificate_is_that_of_the_servers_need_no_signature() -> None:
    """The user of the certificate is that of the servers by its name alone; no member signs anything."""
    async with tls.SecureWorld() as world:
        inner = json.dumps({"accessKey": "broker", "secretKey": INNER.secret_key})
        lines = [line for line in CONF.splitlines() if not line.startswith("innerClient")]
        unsigned = "".join(f"{line}\n" for line in lines)
        master = world.node(f"{unsigned}innerClientAuthenticationCredentials={inner}\n{tls.conf()}")
        slave = world.node(f"{unsigned}initAuthenticationUser=\n{SLAVE}{tls.conf()}")
        await master.start()
        await slave.start()
        await world.until(lambda: places(master) == 1)


# --- the DLedger port ------------------------------------------------------------------------------------


def a_vote(term: int) -> bytes:
    return dledger.VoteRequestBody(
        group="broker-a",
        leaderId="n1",
        localId="n1",
        remoteId="n0",
        term=term,
        ledgerEndIndex=1 << 40,
        ledgerEndTerm=term - 1,
    ).encode()


async def ask_member(
    world: Group, node: Node, who: Credentials | None, code: int, body: bytes = b"", ip: str = STRANGER_IP
) -> Command:
    client = Client(world.network.at(ip), world.clock)
    try:
        ext = None if who is None else who.signed({}, body)
        return await client.call(f"{node.ip}:{RAFT_PORT}", Command(code, ext=ext, body=body), 5.0)
    finally:
        await client.close()


@pytest.mark.parametrize("who", [None, NOBODY, ALICE, Credentials("inner", "a guess at the secret")])
@virtual
async def test_hole_anybody_votes_pushes_and_reads_on_the_port_of_a_group(who: Credentials | None) -> None:
    async with group(CONF) as world:
        leader = await world.leader()
        assert (await create_alice(world, leader)).code == 0
        term = member_of(leader).term
        for node in world.nodes:
            for code in DLedgerRequestCode:
                answer = await ask_member(world, node, who, code, a_vote(term + 100))
                assert answer.code == ResponseCode.NO_PERMISSION, (code, answer)
                assert answer.body == b""
        await asyncio.sleep(5)
        assert (await world.leader(), member_of(leader).term) == (leader, term)


@virtual
async def test_members_that_sign_elect_replicate_and_elect_again() -> None:
    async with group(CONF) as world:
        leader = await world.leader()
        assert (await create_alice(world, leader)).code == 0
        await world.equal()
        await leader.kill()
        successor = await world.leader()
        assert successor is not leader
        await leader.start()
        await world.joined()
        await world.equal()


@virtual
async def test_a_member_of_apaches_is_admitted_by_its_named_address_alone() -> None:
    async with group(f"{CONF}authTrustedPeers={STRANGER_IP}\n") as world:
        leader = await world.leader()
        body = b'{"group":"broker-a"}'
        named = await ask_member(world, leader, None, DLedgerRequestCode.METADATA, body)
        assert (named.code, b"leaderId" in named.body) == (200, True)
        other = await ask_member(world, leader, None, DLedgerRequestCode.METADATA, body, "10.0.7.8")
        assert (other.code, other.body) == (ResponseCode.NO_PERMISSION, b"")


@virtual
async def test_a_member_that_missed_the_change_of_the_servers_secret_copies_it() -> None:
    """Its users are those of before, and it has the users of now only once it has copied the log."""
    new = Credentials("inner", "inner-secret-of-later")
    after = CONF.replace(
        SETTINGS["innerClientAuthenticationCredentials"],
        json.dumps({"accessKey": new.access_key, "secretKey": new.secret_key}),
    )
    async with group(CONF) as world:
        leader = await world.leader()
        late = world.followers()[0]
        await late.stop()
        update = json.dumps({"password": new.secret_key}).encode()
        changed = await ask(
            world, leader, ROOT, Code.AUTH_UPDATE_USER, {"username": "inner", "keepSecret": "true"}, update
        )
        assert changed.code == 0, changed.remark
        for node in world.nodes:
            if node is not late:
                await node.stop()
                await node.start(node.conf.replace(CONF, after))
        leader = await world.leader()
        removed = await ask(world, leader, ROOT, Code.AUTH_UPDATE_USER, {"username": "inner"}, update)
        assert removed.code == 0, removed.remark
        await late.start(late.conf.replace(CONF, after))
        await world.joined()
        await world.equal()
        assert late.disk.read("/store/config/users.json") == leader.disk.read("/store/config/users.json")


@virtual
async def test_what_a_member_is_refused_is_in_its_log(caplog: pytest.LogCaptureFixture) -> None:
    wrong = CONF.replace("inner-secret-word", "another-secret")
    async with group(CONF) as world:
        leader, follower = await world.leader(), world.followers()[0]
        await follower.stop()
        await leader.kill()
        with caplog.at_level(logging.WARNING):
            await follower.start(follower.conf.replace(CONF, wrong))
            await asyncio.sleep(30)
        assert "refused VoteRequest: code 16 check signature failed." in caplog.text
