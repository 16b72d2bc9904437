"""A name server with access control: who may change routes, values and settings, and who may read them."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.kit import virtual
from tests.unit.guard.kit import ALICE, INNER, ROOT
from tests.unit.namesrv.guarded_kit import CONFIG, IP, TOOL, GuardedNameServer

from turbopump.auth.signature import Credentials
from turbopump.client.name_servers import successful
from turbopump.namesrv.config import NamesrvConfig, configure
from turbopump.pipelines.source.broker_client import BrokerClient
from turbopump.pipelines.source.settings import ClusterAccess
from turbopump.protocol.codes import RequestCode as Code
from turbopump.protocol.command import Command, encode
from turbopump.protocol.conf import ConfigError
from turbopump.protocol.errors import AccessRefused
from turbopump.protocol.headers.base import Header
from turbopump.protocol.names import (
    ABSENT_BROKERS_NAMESPACE,
    KNOWN_BROKERS_NAMESPACE,
    ORDER_TOPIC_NAMESPACE,
)
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk

NO_PERMISSION, TOPIC_NOT_EXIST, QUERY_NOT_FOUND = 16, 17, 22
BROKER = {
    "brokerName": "evil",
    "brokerAddr": "6.6.6.6:10911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "6.6.6.6:10912",
    "brokerId": 0,
}
CHANGES: dict[str, tuple[int, dict[str, Any], bytes]] = {
    "a value that is put": (Code.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": "v"}, b""),
    "a value that is deleted": (Code.DELETE_KV_CONFIG, {"namespace": "N", "key": "k"}, b""),
    "a broker that registers": (Code.REGISTER_BROKER, BROKER, b""),
    "a broker that leaves": (Code.UNREGISTER_BROKER, BROKER, b""),
    "permission that is wiped": (Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b"}, b""),
    "permission that is added": (Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "b"}, b""),
    "a topic that is deleted": (Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"}, b""),
    "a topic that is registered": (Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "T"}, b"{}"),
    "settings that change": (Code.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true\n"),
    "a sign of life": (Code.BROKER_HEARTBEAT, BROKER, b""),
    "settings that are read": (Code.GET_NAMESRV_CONFIG, {}, b""),
}


@pytest.mark.parametrize("what", CHANGES)
@virtual
async def test_hole_anybody_changes_routes_values_and_settings_of_a_name_server(what: str) -> None:
    code, ext, body = CHANGES[what]
    async with GuardedNameServer() as server:
        user = json.dumps({"password": ALICE.secret_key}).encode()
        created = await server.ask(ROOT, Code.AUTH_CREATE_USER, {"username": ALICE.access_key}, user)
        assert created.code == 0, created.remark
        for who in (None, Credentials("root", "guessed"), Credentials("eve", "guessed"), ALICE):
            assert (await server.ask(who, code, ext, body)).code == NO_PERMISSION
        for who in (ROOT, INNER):
            assert (await server.ask(who, code, ext, body)).code != NO_PERMISSION


@virtual
async def test_routes_are_open_to_everybody_unless_reads_are_signed() -> None:
    for reads, expected in (("open", TOPIC_NOT_EXIST), ("signed", NO_PERMISSION)):
        async with GuardedNameServer(replace(CONFIG, name_server_reads=reads)) as server:
            assert (await server.ask(None, Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})).code == expected
            assert (
                await server.ask(ROOT, Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
            ).code == TOPIC_NOT_EXIST


VALUES = (("CREDENTIALS", "T"), ("BLOCKED_CLIENTS", "T"), ("", "T"), (KNOWN_BROKERS_NAMESPACE, "broker-a"))


@virtual
async def test_hole_anybody_reads_the_values_of_a_name_server_with_open_reads() -> None:
    """Open are only those that belong to a route: where the messages of a topic are."""
    for reads, expected in (("open", QUERY_NOT_FOUND), ("signed", NO_PERMISSION)):
        async with GuardedNameServer(replace(CONFIG, name_server_reads=reads)) as server:
            user = json.dumps({"password": ALICE.secret_key}).encode()
            assert (await server.ask(ROOT, Code.AUTH_CREATE_USER, {"username": "alice"}, user)).code == 0
            for who in (None, ALICE):
                for namespace, key in VALUES:
                    asked = {"namespace": namespace, "key": key}
                    assert (await server.ask(who, Code.GET_KV_CONFIG, asked)).code == NO_PERMISSION
                    assert (await server.ask(ROOT, Code.GET_KV_CONFIG, asked)).code == QUERY_NOT_FOUND
                for namespace in (ABSENT_BROKERS_NAMESPACE, ORDER_TOPIC_NAMESPACE):
                    for key in ("T", "*"):
                        answer = await server.ask(
                            who, Code.GET_KV_CONFIG, {"namespace": namespace, "key": key}
                        )
                        assert answer.code == expected, (reads, who, namespace, key)


async def may_read(server: GuardedNameServer, who: Credentials, topic: str) -> None:
    entry = {"resource": f"Topic:{topic}", "actions": ["Sub"], "decision": "Allow"}
    for code, ext, body in (
        (Code.AUTH_CREATE_USER, {"username": who.access_key}, {"password": who.secret_key}),
        (
            Code.AUTH_CREATE_ACL,
            {"subject": f"User:{who.access_key}"},
            {"policies": [{"policyType": "Custom", "entries": [entry]}]},
        ),
    ):
        assert (await server.ask(ROOT, code, ext, json.dumps(body).encode())).code == 0


@virtual
async def test_who_may_read_a_topic_learns_which_of_its_brokers_are_absent() -> None:
    async with GuardedNameServer(replace(CONFIG, name_server_reads="signed")) as server:
        await may_read(server, ALICE, "T")
        asked = {"namespace": ABSENT_BROKERS_NAMESPACE, "key": "T"}
        assert (await server.ask(ALICE, Code.GET_KV_CONFIG, asked)).code == QUERY_NOT_FOUND
        refused = await server.ask(ALICE, Code.GET_KV_CONFIG, asked | {"key": "Other"})
        assert refused.code == NO_PERMISSION


@virtual
async def test_a_reader_that_may_not_ask_for_absent_brokers_fails_instead_of_leaving_rows_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = BrokerClient(ClusterAccess(f"{IP}:9876"))
    async with GuardedNameServer(replace(CONFIG, name_server_reads="signed")) as server:

        async def ask(address: str, code: int, header: Header) -> Command:
            return successful(await server.ask(ALICE, code, header.to_ext()), address)

        monkeypatch.setattr(brokers._admin, "asking", SimpleNamespace(ask=ask))
        await may_read(server, ALICE, "T")
        assert await brokers._trace(f"{IP}:9876", "T") == set()
        with pytest.raises(AccessRefused, match="has no permission to access Topic:Other"):
            await brokers._trace(f"{IP}:9876", "Other")
        with pytest.raises(AccessRefused, match="has no permission to access Cluster:"):
            await brokers._trace(f"{IP}:9876", "*")


@virtual
async def test_a_name_server_shows_no_secret_and_keeps_its_users() -> None:
    async with GuardedNameServer() as server:
        shown = (await server.ask(ROOT, Code.GET_NAMESRV_CONFIG)).body.decode()
        assert "initAuthenticationUser=******" in shown
        user = json.dumps({"password": ALICE.secret_key}).encode()
        assert (await server.ask(ROOT, Code.AUTH_CREATE_USER, {"username": "alice"}, user)).code == 0
        written = server.disk.read("/data/users.json").decode()
        for who in (ROOT, INNER, ALICE):
            assert who.secret_key not in shown
            assert who.secret_key not in written
    async with GuardedNameServer(disk=server.disk) as again:
        refused = await again.ask(ALICE, Code.GET_NAMESRV_CONFIG)
        assert "has no permission" in (refused.remark or "")


@virtual
async def test_a_name_server_knows_the_client_behind_a_named_proxy() -> None:
    config, unknown = configure(CONFIG, f"proxyProtocolFrom={TOOL}")
    assert unknown == []
    async with GuardedNameServer(config) as desk:
        heard = PlayedClient()
        await desk.network.at(TOOL).connect(lambda: heard, IP, 9876)
        head = b"PROXY TCP4 10.1.2.3 10.0.0.9 5 9876\r\n"
        heard.transport.write(head + encode(Command(Code.GET_NAMESRV_CONFIG, 1, ext=ALICE.signed({}, b""))))
        await asyncio.sleep(1)
        lines = [json.loads(line) for line in desk.disk.read("/data/access-audit.jsonl").splitlines()]
        assert [line["address"] for line in lines if line["event"] == "refused"] == ["10.1.2.3"]
        changed = await desk.ask(ROOT, Code.UPDATE_NAMESRV_CONFIG, {}, b"proxyProtocolFrom=10.0.0.1")
        assert changed.remark == "Can not update config in black list."


class PlayedClient(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)


@pytest.mark.parametrize("text", ["10.0.0", "0.0.0.0/0"])
def test_a_proxy_of_a_name_server_is_an_address_and_not_everybody(text: str) -> None:
    with pytest.raises(ConfigError, match="proxyProtocolFrom: must be IP addresses or networks, but not all"):
        configure(CONFIG, f"proxyProtocolFrom={text}")


@virtual
async def test_no_request_switches_access_control_of_a_name_server_off() -> None:
    async with GuardedNameServer() as server:
        for line in ("authenticationEnabled=false", "nameServerReads=open", "initAuthenticationUser="):
            answer = await server.ask(ROOT, Code.UPDATE_NAMESRV_CONFIG, {}, line.encode())
            assert (answer.code, answer.remark) == (NO_PERMISSION, "Can not update config in black list.")


@virtual
async def test_without_access_control_a_name_server_checks_nothing() -> None:
    async with GuardedNameServer(NamesrvConfig(listen_port=9876, bind_address=IP)) as server:
        assert (
            await server.ask(None, Code.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": "v"})
        ).code == 0
        assert server.server._router._before == ()


@virtual
async def test_a_broker_registers_with_its_inner_credentials() -> None:
    """And one without them is refused, with a warning of the name server."""
    from tests.unit.broker.desk import CONFIG as BROKER_CONFIG
    from tests.unit.guard.kit import guarded

    from turbopump.broker.config import BrokerConfig, NameServerConfig
    from turbopump.broker.server import Broker
    from turbopump.testing.disk import SimulatedWorkers

    async def is_registered(config: BrokerConfig) -> bool:
        async with GuardedNameServer() as server:
            disk = SimulatedDisk(Chance(2), server.clock)
            named = replace(config, name_servers=NameServerConfig(addresses=(f"{IP}:9876",)))
            listening = replace(named.listening, bind_address="10.0.0.1")
            broker = Broker(
                replace(named, listening=listening),
                *(server.network.at("10.0.0.1"), server.clock, disk, SimulatedWorkers(disk), Chance(2)),
                lambda: "10.0.0.1",
            )
            await broker.start()
            found = (await server.ask(None, Code.GET_BROKER_CLUSTER_INFO)).body
            await broker.stop()
            return b"broker-a" in found

    assert await is_registered(guarded(BROKER_CONFIG))
    assert not await is_registered(BROKER_CONFIG)


@virtual
async def test_changes_of_a_name_server_leave_audit_lines() -> None:
    async with GuardedNameServer() as server:
        for what in ("a value that is put", "settings that change", "permission that is wiped"):
            code, ext, body = CHANGES[what]
            assert (await server.ask(ROOT, code, ext, body)).code == 0
        disk = server.disk
    lines = map(json.loads, disk.read("/data/access-audit.jsonl").splitlines())
    assert [
        (line["user"], line["address"], line["what"]) for line in lines if line["event"] == "changed"
    ] == [
        ("root", TOOL, "PUT_KV_CONFIG: Update on Cluster:DefaultCluster; namespace=N; key=k; value=******"),
        ("root", TOOL, "UPDATE_NAMESRV_CONFIG: orderMessageEnable=true"),
        ("root", TOOL, "WIPE_WRITE_PERM_OF_BROKER: Update on Cluster:DefaultCluster; brokerName=b"),
    ]
