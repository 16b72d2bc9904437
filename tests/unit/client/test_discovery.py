"""Where name servers come from, in Apache's order; the HTTP endpoint that is asked when nobody says."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import NAMESRV, cluster

from turbopump.client import discovery
from turbopump.client.admin.admin import Admin
from turbopump.client.errors import InvalidArgument, NoNameServer
from turbopump.client.instance import instances
from turbopump.client.produce.producer import Producer
from turbopump.client.push.consumer import Consumer
from turbopump.client.settings import ClientSettings
from turbopump.client.world import World
from turbopump.remoting.http import TEXT, HttpServer
from turbopump.runtime.chance import Chance
from turbopump.testing.loop import run_virtual


@pytest.fixture(autouse=True)
def _nothing_is_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("TURBOPUMP_CONFIG", raising=False)
    discovery.configure()
    yield
    discovery.configure()


def test_the_argument_counts_most_then_configure_then_the_file_then_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "turbopump.toml"
    file.write_text('[client]\nname_servers = "file:1"\nsend_msg_timeout = 9\n')
    environment = {"NAMESRV_ADDR": "environment:1"}
    with_file = {**environment, "TURBOPUMP_CONFIG": str(file)}
    assert discovery.name_servers(None, environment) == ("environment:1",)
    assert discovery.name_servers(None, with_file) == ("file:1",)
    assert discovery.defaults(with_file)["send_msg_timeout"] == 9
    discovery.configure(name_servers="configured:1", send_msg_timeout=5)
    assert discovery.name_servers(None, with_file) == ("configured:1",)
    assert discovery.defaults(with_file)["send_msg_timeout"] == 5
    assert discovery.name_servers("argument:1;argument:2", with_file) == ("argument:1", "argument:2")
    discovery.configure()
    assert discovery.name_servers(None, {}, domain="ns.example") == (), "the HTTP endpoint is asked"
    assert discovery.name_servers(None, environment, domain="ns.example") == ("environment:1",)
    assert discovery.name_servers(None, {}) == ("127.0.0.1:9876",)


def test_addresses_come_as_a_text_or_several() -> None:
    assert discovery.addresses("a:1; b:2;;a:1") == ("a:1", "b:2")
    assert discovery.addresses(["a:1", "b:2;c:3"]) == ("a:1", "b:2", "c:3")
    assert discovery.addresses("http://MQ_INST.example:8080/a:1") == ("a:1",)
    assert discovery.addresses("[::1]:9876") == ("[::1]:9876",)


@pytest.mark.parametrize("wrong", ["localhost", "host:", ":9876", "host:port", "host:99999", "host:0"])
def test_what_is_no_address_is_named(wrong: str) -> None:
    with pytest.raises(InvalidArgument, match="must be host:port"):
        discovery.addresses(wrong)


def test_a_misspelt_key_is_refused_where_it_stands(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="did you mean send_msg_timeout"):
        discovery.configure(send_timeout=3)
    file = tmp_path / "turbopump.toml"
    file.write_text("[client]\nsend_timeout = 3\n")
    with pytest.raises(InvalidArgument, match=r"turbopump.toml: there is no setting send_timeout"):
        discovery.defaults({"TURBOPUMP_CONFIG": str(file)})
    file.write_text("[client\n")
    with pytest.raises(InvalidArgument, match="must be TOML"):
        discovery.defaults({"TURBOPUMP_CONFIG": str(file)})
    with pytest.raises(InvalidArgument, match="must name a readable file"):
        discovery.defaults({"TURBOPUMP_CONFIG": str(tmp_path / "absent")})


def test_the_endpoint_is_apaches() -> None:
    default = discovery.endpoint(ClientSettings(name_server_domain="ns.example"))
    assert (default.host, default.port, default.path) == ("ns.example", 8080, "/rocketmq/nsaddr")
    other = discovery.endpoint(
        ClientSettings(name_server_domain="ns.example:80", name_server_subgroup="east", unit_name="u1")
    )
    assert (other.host, other.port, other.path) == ("ns.example", 80, "/rocketmq/east-u1?nofix=1")


@virtual
async def test_name_servers_are_asked_for_over_http_and_again_every_two_minutes() -> None:
    async with cluster() as town:
        said = [f"{NAMESRV}\nmore"]
        pages = {"/rocketmq/nsaddr": lambda: (200, TEXT, said[0].encode())}
        server = HttpServer(pages, town.network)
        port = await server.start("127.0.0.1", 0)
        world = World(town.network, town.clock, Chance(1))
        producer = Producer("p", world=world, name_server_domain=f"127.0.0.1:{port}")
        async with producer:
            (instance,) = instances().named.values()
            assert instance.name_servers.addresses == (NAMESRV,)
            said[0] = f"{NAMESRV};127.0.0.1:9999"
            await asyncio.sleep(121)
            assert instance.name_servers.addresses == (NAMESRV, "127.0.0.1:9999")
            await server.stop()
            await asyncio.sleep(121)
            assert instance.name_servers.addresses == (NAMESRV, "127.0.0.1:9999"), "what is known stays"


@virtual
async def test_without_an_address_no_foreign_host_is_asked() -> None:
    async with cluster() as town:
        asked: list[str] = []
        connect = town.network.connect

        async def noted(factory: Any, host: str, port: int) -> Any:
            asked.append(f"{host}:{port}")
            return await connect(factory, host, port)

        town.network.connect = noted  # type: ignore[method-assign]
        world = World(town.network, town.clock, Chance(1))
        async with Producer("p", world=world):
            assert set(asked) == {"127.0.0.1:9876"}
        asked.clear()
        Admin(world=world)
        assert asked == []


@pytest.mark.parametrize("kind", [Producer, Consumer])
@virtual
async def test_a_broker_given_as_name_server_is_recognised_at_the_start(kind: type[Any]) -> None:
    async with cluster() as town:
        world = World(town.network, town.clock, Chance(1))
        client = kind("p", world=world, name_servers=town.brokers[0].address)
        if kind is Consumer:
            client.subscribe("orders", print)
        with pytest.raises(NoNameServer, match="is not a name server: it answers like a broker"):
            await client.start()
        async with Admin(town.brokers[0].address, world=world) as admin:
            with pytest.raises(OSError, match="is not a name server: it answers like a broker"):
                await admin.topics.route("orders")


@pytest.mark.parametrize("waits", [False, True], ids=["answers at once", "waits for a whole request"])
def test_an_http_port_given_as_name_server_is_recognised_at_the_start(
    waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if waits:
        monkeypatch.setattr("turbopump.remoting.http._is_http", lambda received: True)

    async def scene() -> None:
        async with cluster() as town:
            server = HttpServer({}, town.network)
            port = await server.start("127.0.0.1", 0)
            world = World(town.network, town.clock, Chance(1))
            producer = Producer("p", world=world, name_servers=f"127.0.0.1:{port}")
            with pytest.raises(NoNameServer, match="is not a name server: it answers in HTTP"):
                await producer.start()
            await server.stop()

    run_virtual(scene())


@virtual
async def test_without_any_the_error_says_how_to_give_one() -> None:
    async with cluster() as town:
        world = World(town.network, town.clock, Chance(1))
        producer = Producer("p", world=world, name_server_domain="127.0.0.1:1")
        with pytest.raises(NoNameServer, match="NAMESRV_ADDR"):
            await producer.start()
        assert not instances().named
