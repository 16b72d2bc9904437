"""Name servers over the wire in virtual time: brokers come, change, fall silent and leave."""

import asyncio
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.integration.namesrv.kit import Peer, World, in_world
from tests.integration.namesrv.registration_kit import ADDRESS, broker_fields, registration

from turbopump.protocol.command import Command, encode
from turbopump.remoting.http import TEXT
from turbopump.remoting.router import Answer, Request, Route, Router
from turbopump.remoting.server import Server
from turbopump.testing.loop import run_virtual


async def route(peer: Peer, topic: str = "T", **fields: str) -> Any:
    answer = await peer.ask(Command(105, ext={"topic": topic, **fields}))
    return json.loads(answer.body) if answer.code == 0 else None


@in_world
async def test_two_name_servers_know_nothing_of_one_another(world: World) -> None:
    _, one = await world.name_server("10.0.0.1")
    _, two = await world.name_server("10.0.0.2")
    broker_at_one, client_at_one = await world.peer(one), await world.peer(one)
    client_at_two = await world.peer(two)
    await broker_at_one.ask(registration("T", "U"))
    assert await route(client_at_one) is not None
    assert await route(client_at_two) is None
    broker_at_two = await world.peer(two)
    await broker_at_two.ask(registration("T", "U"))
    await broker_at_one.ask(Command(104, ext=broker_fields()))
    assert await route(client_at_one) is None
    assert await route(client_at_two) is not None


def test_a_refused_registration_is_a_warning_with_address_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @in_world
    async def refused(world: World) -> None:
        _, address = await world.name_server("10.0.0.1")
        peer = await world.peer(address)
        broken = registration("T")
        broken.body = broken.body.replace(b'"perm": 6', b'"perm": "six"')
        assert (await peer.ask(broken)).code == 1
        assert (await peer.ask(registration("T", bodyCrc32="5"))).remark == "crc32 not match"
        nameless = registration("T")
        assert nameless.ext is not None
        del nameless.ext["brokerName"]
        assert (await peer.ask(nameless)).code == 1

    refused()
    lines = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    reasons = [line.partition(" refused with code 1: ")[2] for line in lines]
    assert [reason[:40] for reason in reasons] == [
        "BrokenBody: no RegisterBrokerBody: Expected `int`, got `str`"[:40],
        "crc32 not match",
        "the field brokerName is missing",
    ]
    assert "topicConfigTable" in reasons[0]
    assert all(line.startswith("Registration of 10.") for line in lines)


@in_world
async def test_one_name_server_stops_and_the_other_goes_on(world: World) -> None:
    first, one = await world.name_server("10.0.0.1")
    _, two = await world.name_server("10.0.0.2")
    peers = [await world.peer(address) for address in (one, two)]
    for peer in peers:
        await peer.ask(registration("T", "U"))
    await first.stop()
    assert peers[0].closed
    assert await route(peers[1]) is not None
    _, again = await world.name_server("10.0.0.1")
    assert again == one


@in_world
async def test_a_silent_broker_is_dropped_after_two_minutes_and_its_connection_closed(world: World) -> None:
    _, address = await world.name_server(idle_s=1000)
    broker, client = await world.peer(address), await world.peer(address)
    await broker.ask(registration("T", "U"))
    await asyncio.sleep(118)
    assert await route(client) is not None
    await asyncio.sleep(8)
    assert await route(client) is None
    assert broker.closed
    assert json.loads((await client.ask(Command(106))).body) == {
        "brokerAddrTable": {},
        "clusterAddrTable": {},
    }


@in_world
async def test_heartbeats_and_version_queries_keep_a_broker_alive(world: World) -> None:
    _, address = await world.name_server()
    broker, client = await world.peer(address), await world.peer(address)
    await broker.ask(registration("T", "U"))
    for code, flag in ((904, 2), (322, 0), (904, 0)) * 2:
        await asyncio.sleep(100)
        answer = await broker.exchange(encode(Command(code, flag=flag, ext=broker_fields())))
        assert bool(answer) is not bool(flag)
        assert await route(client) is not None


@in_world
async def test_a_broker_may_promise_to_be_heard_sooner(world: World) -> None:
    _, address = await world.name_server()
    broker, client = await world.peer(address), await world.peer(address)
    await broker.ask(registration("T", "U", heartbeatTimeoutMillis="10000"))
    await asyncio.sleep(7)
    assert await route(client) is not None
    await asyncio.sleep(8)
    assert await route(client) is None


@in_world
async def test_a_broken_connection_drops_its_broker_at_once(world: World) -> None:
    _, address = await world.name_server()
    broker, client = await world.peer(address, "10.0.0.5"), await world.peer(address)
    await broker.ask(registration("T", "U"))
    world.network.break_connections("10.0.0.5")
    assert await route(client) is None


@in_world
async def test_a_broker_that_came_back_on_a_new_connection_survives_the_end_of_the_old_one(
    world: World,
) -> None:
    _, address = await world.name_server()
    old, new, client = [await world.peer(address) for _ in range(3)]
    await old.ask(registration("T", "U"))
    await new.ask(registration("T", "U"))
    old.close()
    assert await route(client) is not None
    new.close()
    assert await route(client) is None


@in_world
async def test_one_topic_before_the_full_table_is_refused(world: World) -> None:
    _, address = await world.name_server()
    broker = await world.peer(address)
    answer = await broker.ask(registration("T"))
    assert (answer.code, answer.remark, answer.ext) == (1, "register broker failed", {})
    assert (await broker.ask(registration("T", "U"))).code == 0
    assert (await broker.ask(registration("V", counter=2))).code == 0
    topics = json.loads((await broker.ask(Command(206))).body)["topicList"]
    assert sorted(topics) == ["T", "U", "V"]


@in_world
async def test_a_compressed_registration(world: World) -> None:
    _, address = await world.name_server()
    broker = await world.peer(address)

    def sized(data: bytes) -> bytes:
        return struct.pack(">i", len(data)) + data

    parts = [
        sized(b'{"counter":1,"timestamp":1}'),
        struct.pack(">i", 2),
        sized(b"T 8 8 6 SINGLE_TAG"),
        sized(b'U 4 2 6 SINGLE_TAG {"message.type":"FIFO"}'),
        sized(b"[]"),
    ]
    body = zlib.compress(b"".join(parts), 9)
    fields = broker_fields(compressed="true", bodyCrc32=str(zlib.crc32(body) & 0x7FFFFFFF))
    assert (await broker.ask(Command(103, version=407, ext=fields, body=body))).code == 0
    assert (await route(broker, "T"))["queueDatas"][0]["readQueueNums"] == 8
    assert (await route(broker, "U"))["queueDatas"][0]["writeQueueNums"] == 2
    newer = zlib.compress(b"".join((*parts, struct.pack(">i", 0))), 9)
    assert (await broker.ask(Command(103, ext=broker_fields(compressed="true"), body=newer))).code == 0
    broken = await broker.ask(Command(103, ext=broker_fields(compressed="true"), body=body[:-9]))
    assert broken.code == 1


@in_world
async def test_a_slave_learns_where_its_master_is(world: World) -> None:
    _, address = await world.name_server()
    master, slave = await world.peer(address), await world.peer(address)
    await master.ask(registration("T", "U"))
    answer = await slave.ask(registration("T", "U", number=1, address="10.0.0.6:10911"))
    assert answer.ext == {"haServerAddr": ADDRESS + "1", "masterAddr": ADDRESS}
    group = await slave.ask(Command(901, ext={"clusterName": "C", "brokerName": "a"}))
    assert group.body == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"10.0.0.5:10911",1:"10.0.0.6:10911"},'
        b'"brokerName":"a","cluster":"C"}}'
    )


@in_world
async def test_write_perm_by_wire(world: World) -> None:
    _, address = await world.name_server()
    peer = await world.peer(address)
    await peer.ask(registration("T", "U"))
    assert (await peer.ask(Command(205, ext={"brokerName": "a"}))).ext == {"wipeTopicCount": "2"}
    assert (await route(peer))["queueDatas"][0]["perm"] == 4
    assert (await peer.ask(Command(327, ext={"brokerName": "a"}))).ext == {"addTopicCount": "2"}
    assert (await route(peer))["queueDatas"][0]["perm"] == 6


@in_world
async def test_order_topics_reach_brokers_and_where_enabled_clients(world: World) -> None:
    _, address = await world.name_server(order_message_enable=True)
    peer = await world.peer(address)
    await peer.ask(Command(100, ext={"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "a:4"}))
    answer = await peer.ask(registration("T", "U"))
    assert json.loads(answer.body) == {"table": {"T": "a:4"}}
    assert (await route(peer, "T"))["orderTopicConf"] == "a:4"
    assert "orderTopicConf" not in await route(peer, "U")


@in_world
async def test_order_topics_may_be_kept_from_brokers(world: World) -> None:
    _, address = await world.name_server(return_order_topic_config=False)
    peer = await world.peer(address)
    await peer.ask(Command(100, ext={"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "a:4"}))
    assert (await peer.ask(registration("T", "U"))).body == b""
    assert "orderTopicConf" not in await route(peer, "T")


def test_keys_and_values_survive_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        world = World()
        path = str(tmp_path / "kvConfig.json")
        server, address = await world.name_server(kv_config_path=path)
        peer = await world.peer(address)
        await peer.ask(Command(100, ext={"namespace": "N", "key": "k", "value": "v"}))
        await server.stop()
        _, address = await world.name_server(kv_config_path=path)
        peer = await world.peer(address)
        assert (await peer.ask(Command(101, ext={"namespace": "N", "key": "k"}))).ext == {"value": "v"}

    run_virtual(main())


def test_configuration_is_changed_shown_kept_and_protected(tmp_path: Path) -> None:
    async def main() -> None:
        world = World()
        path = tmp_path / "namesrv.properties"
        _, address = await world.name_server(config_store_path=str(path))
        peer = await world.peer(address)
        assert (await peer.ask(Command(318, body=b"orderMessageEnable=true\nabc=1\n"))).code == 0
        shown = (await peer.ask(Command(319))).body
        assert b"orderMessageEnable=true\n" in shown
        assert path.read_bytes() == shown
        for body in (
            b"kvConfigPath=/x\n",
            b"configBlackList=\n",
            b"orderMessageEnable=false\nconfigStorePath=/x\n",
        ):
            answer = await peer.ask(Command(318, body=body))
            assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
        refused = await peer.ask(Command(318, body=b"orderMessageEnable=perhaps\n"))
        assert refused.code == 1
        assert "orderMessageEnable" in (refused.remark or "")
        assert (await peer.ask(Command(319))).body == shown

    run_virtual(main())


@in_world
async def test_lists_can_be_disabled(world: World) -> None:
    _, address = await world.name_server(all_topic_list_enable=False, topic_list_enable=False)
    peer = await world.peer(address)
    for command in (
        Command(206),
        Command(224, ext={"cluster": "C"}),
        Command(311),
        Command(312),
        Command(313),
    ):
        answer = await peer.ask(command)
        assert (answer.code, answer.remark) == (1, "disable")
    assert (await peer.ask(Command(304))).code == 0


@in_world
async def test_a_name_server_may_wait_for_its_brokers(world: World) -> None:
    _, address = await world.name_server(wait_for_service=True, wait_s=45)
    peer = await world.peer(address)
    answer = await peer.ask(Command(105, ext={"topic": "T"}))
    assert (answer.code, answer.remark) == (1, "name server not ready")
    await asyncio.sleep(45)
    assert (await peer.ask(Command(105, ext={"topic": "T"}))).code == 17


@in_world
async def test_a_static_topic_of_a_newer_broker_is_handed_on(world: World) -> None:
    _, address = await world.name_server()
    peer = await world.peer(address)
    command = registration("T", "U")
    body = json.loads(command.body)
    mapping = {
        "bname": "a",
        "currIdMap": {"0": 0},
        "dirty": False,
        "epoch": 1,
        "topic": "T",
        "totalQueues": 4,
    }
    body["topicConfigSerializeWrapper"]["topicQueueMappingInfoMap"] = {"T": mapping}
    command.body = json.dumps(body).encode().replace(b'{"0": 0}', b"{0:0}")
    assert (await peer.ask(command)).code == 0
    shown = (await route(peer, "T"))["topicQueueMappingByBroker"]["a"]
    assert (shown["totalQueues"], shown["currIdMap"]) == (4, {"0": 0})
    assert "topicQueueMappingByBroker" not in await route(peer, "U")


@in_world
async def test_a_topic_may_be_registered_alone_and_deleted(world: World) -> None:
    _, address = await world.name_server()
    peer = await world.peer(address)
    await peer.ask(registration("T", "U"))
    queue = {"brokerName": "a", "perm": 6, "readQueueNums": 2, "topicSysFlag": 0, "writeQueueNums": 2}
    body = json.dumps({"brokerDatas": [], "filterServerTable": {}, "queueDatas": [queue]}).encode()
    assert (await peer.ask(Command(217, ext={"topic": "S"}, body=body))).code == 0
    assert (await route(peer, "S"))["queueDatas"] == [queue]
    assert (await peer.ask(Command(217, ext={"topic": "S"}, body=b"{"))).code == 1
    assert (await peer.ask(Command(216, ext={"topic": "S"}))).code == 0
    assert await route(peer, "S") is None


@in_world
async def test_zones_see_their_own_brokers(world: World) -> None:
    _, address = await world.name_server()
    peer = await world.peer(address)
    for number, zone in enumerate(("z1", "z2")):
        command = registration("T", "U", broker=zone, address=f"10.0.1.{number}:1", __ZONE_NAME=zone)
        await peer.ask(command)
    near = await route(peer, "T", __ZONE_NAME="z1", __ZONE_MODE="true")
    assert [data["brokerName"] for data in near["brokerDatas"]] == ["z1"]
    assert len((await route(peer, "T", __ZONE_NAME="z1", __ZONE_MODE="false"))["brokerDatas"]) == 2


Told = list[dict[str, str] | None]


async def hearing_slave(world: World) -> tuple[str, Told]:
    """A slave's server, and what it is told of its group."""
    told: Told = []

    def hear(request: Request[None]) -> Answer:
        told.append(request.command.ext)
        return Answer()

    server = Server(Router({905: Route(None, hear)}), world.network.at("10.0.0.6"), world.clock)
    return f"10.0.0.6:{await server.start('10.0.0.6', 10911)}", told


@pytest.mark.parametrize("enabled", [True, False])
def test_a_group_is_told_of_its_new_smallest_id_only_when_asked_for(enabled: bool) -> None:
    @in_world
    async def lose_the_master(world: World) -> None:
        slave_address, told = await hearing_slave(world)
        _, address = await world.name_server(notify_min_broker_id_changed=enabled)
        master, slave = await world.peer(address), await world.peer(address)
        await master.ask(registration("T", "U", enableActingMaster="true"))
        await slave.ask(registration("T", "U", number=1, address=slave_address, enableActingMaster="true"))
        master.close()
        await asyncio.sleep(1)
        expected = {
            "minBrokerId": "1",
            "brokerName": "a",
            "minBrokerAddr": slave_address,
            "offlineBrokerAddr": ADDRESS,
            "haBrokerAddr": ADDRESS + "1",
        }
        assert told == ([expected] if enabled else [])

    lose_the_master()


@in_world
async def test_a_name_server_that_stops_tells_nobody_that_its_brokers_do(world: World) -> None:
    slave_address, told = await hearing_slave(world)
    server, address = await world.name_server(notify_min_broker_id_changed=True)
    master, slave, unread = [await world.peer(address) for _ in range(3)]
    await master.ask(registration("T", "U", enableActingMaster="true"))
    await slave.ask(registration("T", "U", number=1, address=slave_address, enableActingMaster="true"))
    # answers that are left unread keep the server from ending at once
    await unread.ask(Command(100, ext={"namespace": "n", "key": "k", "value": "v" * 500_000}))
    assert unread.transport is not None
    unread.transport.pause_reading()
    unread.transport.write(encode(Command(101, ext={"namespace": "n", "key": "k"})) * 4)
    await asyncio.sleep(1)
    await server.stop()
    await asyncio.sleep(1)
    assert master.closed
    assert told == []


@in_world
async def test_a_namespace_of_values_stays_within_a_frame(world: World) -> None:
    _, address = await world.name_server()
    peer = await world.peer(address)
    namespace = {"namespace": "ORDER_TOPIC_CONFIG"}
    for number, expected in ((0, 0), (1, 1)):
        put = Command(100, ext={**namespace, "key": f"k{number}", "value": "v" * 5_000_000})
        answer = await peer.ask(put)
        assert answer.code == expected
    assert answer.remark == "a key-value namespace must have at most 8388608 bytes"
    for key in ("a", "b"):
        assert (
            await peer.ask(Command(100, ext={**namespace, "key": key, "value": "v" * 9_000_000}))
        ).code == 1
    assert len((await peer.ask(Command(219, ext=namespace))).body) < 8 << 20
    assert len((await peer.ask(registration("T", "U"))).body) < 8 << 20


@in_world
async def test_names_that_are_too_long_and_filter_servers_that_are_too_many_are_ignored(world: World) -> None:
    _, address = await world.name_server()
    peer = await world.peer(address)
    longest, longer = "%RETRY%" + "g" * 248, "%RETRY%" + "g" * 249
    command = registration("T", longest, longer)
    body = json.loads(command.body)
    body["filterServerList"] = ["x" * 256] + [f"10.0.0.7:{number}" for number in range(100)]
    command.body = json.dumps(body).encode()
    assert (await peer.ask(command)).code == 0
    assert json.loads((await peer.ask(Command(206))).body)["topicList"] == ["T", longest]
    [servers] = (await route(peer, "T"))["filterServerTable"].values()
    assert servers == [f"10.0.0.7:{number}" for number in range(63)]
    queue = {"brokerName": "a", "perm": 6, "readQueueNums": 2, "topicSysFlag": 0, "writeQueueNums": 2}
    added = json.dumps({"queueDatas": [queue]}).encode()
    assert (await peer.ask(Command(217, ext={"topic": longer}, body=added))).code == 1
    assert (await peer.ask(Command(217, ext={"topic": longest}, body=added))).code == 0


@in_world
async def test_a_broker_with_long_names_or_large_mappings_is_refused(world: World) -> None:
    _, address = await world.name_server()
    peer = await world.peer(address)
    for field in ("brokerName", "clusterName", "brokerAddr", "haServerAddr", "__ZONE_NAME"):
        for length, code in ((255, 0), (256, 1)):
            command = registration("T", "U")
            command.ext = {**(command.ext or {}), field: "x" * length}
            assert (await peer.ask(command)).code == code, (field, length)
    for size, code in ((1 << 20, 0), (2 << 20, 1)):
        command = registration("T", "U")
        body = json.loads(command.body)
        body["topicConfigSerializeWrapper"]["topicQueueMappingInfoMap"] = {"T": {"topic": "x" * size}}
        command.body = json.dumps(body).encode()
        assert (await peer.ask(command)).code == code, size


@in_world
async def test_a_small_body_that_claims_many_topics_is_refused_and_the_broker_lives_on(world: World) -> None:
    _, address = await world.name_server()
    peer = await world.peer(address)
    await peer.ask(registration("T", "U"))
    topic = struct.pack(">i", 9) + b"a 1 1 6 S"
    claimed = struct.pack(">i", 2) + b"{}" + struct.pack(">i", 1_000_000) + topic * 1_000_000
    answer = await peer.ask(
        Command(103, ext=broker_fields(compressed="true"), body=zlib.compress(claimed, 9))
    )
    assert answer.code == 1
    assert "a count of 1000000" in (answer.remark or "")
    assert await route(peer) is not None


@in_world
async def test_the_address_list_and_health_are_served_over_http(world: World) -> None:
    server, address = await world.name_server(http_port=0, name_servers="10.0.0.1:9876;10.0.0.2:9876")
    assert server.http_port > 0
    browser = await world.peer(f"10.0.0.1:{server.http_port}")
    got = await browser.exchange(b"GET /rocketmq/nsaddr HTTP/1.1\r\nHost: x\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 200 OK")
    assert got.endswith(b"\r\n\r\n10.0.0.1:9876;10.0.0.2:9876")
    assert TEXT.encode() in got
    browser = await world.peer(f"10.0.0.1:{server.http_port}")
    assert (await browser.exchange(b"GET /health HTTP/1.1\r\n\r\n")).endswith(b"ok\n")
    await server.stop()
    with pytest.raises(ConnectionRefusedError):
        await world.peer(f"10.0.0.1:{server.http_port}")
    with pytest.raises(ConnectionRefusedError):
        await world.peer(address)


@in_world
async def test_without_a_list_the_name_server_names_itself(world: World) -> None:
    for host, told in (("10.0.0.1", b"10.0.0.1:9876"), ("fe80::1", b"[fe80::1]:9876")):
        server, _ = await world.name_server(http_port=0, host=host)
        for path in (b"/rocketmq/nsaddr", b"/rocketmq/nsaddr-unit1?nofix=1"):
            browser = await world.peer(f"10.0.0.1:{server.http_port}")
            got = await browser.exchange(b"GET %s HTTP/1.1\r\n\r\n" % path)
            assert got.endswith(b"\r\n\r\n" + told)
        await server.stop()


@in_world
async def test_requests_without_their_fields_are_answered_and_harm_nothing(world: World) -> None:
    _, address = await world.name_server()
    peer = await world.peer(address)
    for code in (100, 101, 102, 103, 104, 205, 216, 217, 219, 224, 322, 327, 901, 904):
        answer = await peer.ask(Command(code))
        assert answer.code == 1, code
    for code in (105, 106, 206, 304, 311, 312, 313, 318, 319):
        assert (await peer.ask(Command(code))).code in (0, 17)
    for code in (103, 217, 322):
        answer = await peer.ask(Command(code, ext=broker_fields(topic="T"), body=b"\xff garbage"))
        assert answer.code == 1, code


def test_connections_leave_descriptors_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turbopump.namesrv.server.descriptor_limit", lambda: 4)

    @in_world
    async def connect_three(world: World) -> None:
        _, address = await world.name_server()
        peers = [await world.peer(address) for _ in range(3)]
        await asyncio.sleep(1)
        assert [peer.closed for peer in peers] == [False, False, True]

    connect_three()


async def absent(peer: Peer, topic: str) -> str | None:
    asked = {"namespace": "TURBOPUMP_ABSENT_BROKERS", "key": topic}
    answer = await peer.ask(Command(101, ext=asked))
    return answer.ext["value"] if answer.code == 0 else None


def test_a_broker_that_left_is_absent_also_after_a_restart_until_it_is_forgotten(tmp_path: Path) -> None:
    kept = str(tmp_path / "kvConfig.json")

    @in_world
    async def before(world: World) -> None:
        server, address = await world.name_server(kv_config_path=kept)
        one, two, client = [await world.peer(address) for _ in range(3)]
        await one.ask(registration("T", "U", broker="a"))
        await two.ask(registration("T", "V", broker="b", address="10.0.0.6:10911"))
        assert await absent(client, "T") is None
        two.close()
        await asyncio.sleep(1)
        assert (await absent(client, "T"), await absent(client, "U")) == ("b", None)
        await server.stop()

    @in_world
    async def after(world: World) -> None:
        _, address = await world.name_server(kv_config_path=kept)
        one, client = [await world.peer(address) for _ in range(2)]
        await one.ask(registration("T", "U", broker="a"))
        assert (await absent(client, "T"), await absent(client, "U")) == ("b", "b")  # its topics are unknown
        await client.ask(Command(102, ext={"namespace": "TURBOPUMP_KNOWN_BROKERS", "key": "b"}))
        assert await absent(client, "T") is None

    before()
    after()
