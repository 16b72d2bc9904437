"""Every request of every client is signed when it has credentials, and its secrets are in no text."""

import asyncio
import logging
import pickle
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import NAMESRV, MemoryCluster, cluster
from tests.unit.client.recorded_network import RecordedNetwork

from turbopump import Decision, Message
from turbopump.auth.signature import is_signed_by
from turbopump.client.admin import Admin
from turbopump.client.errors import InvalidArgument
from turbopump.client.message import MessageExt
from turbopump.client.produce.producer import Producer
from turbopump.client.pull.consumer import PullConsumer
from turbopump.client.push.consumer import Consumer
from turbopump.client.settings import ConsumeFromWhere, ProducerSettings, made
from turbopump.client.world import World
from turbopump.protocol.codes import RequestCode
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk

SECRET, TOKEN = "Geheim-4711", "Token-4712"
USER: dict[str, Any] = {"access_key": "joe", "secret_key": SECRET, "security_token": TOKEN}
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def world(town: MemoryCluster, network: RecordedNetwork) -> World:
    return World(network, town.clock, Chance(3))


async def produce(town: MemoryCluster, network: RecordedNetwork) -> None:
    def check(message: MessageExt) -> Decision:
        return Decision.COMMIT

    async with Producer(
        "makers", name_servers=NAMESRV, world=world(town, network), check=check, enable_trace=True, **USER
    ) as producer:
        await producer.send(Message("orders", b"one"))
        await producer.send(Message("orders", b"long" * 2000, tags="x"))
        await producer.send_oneway(Message("orders", b"one-way"))
        await producer.send_batch([Message("orders", b"1"), Message("orders", b"2")])
        async with producer.transaction(Message("orders", b"half")):
            pass
        await producer.send_in_transaction(Message("orders", b"open"), lambda message: Decision.UNKNOWN)
        await asyncio.sleep(100)


async def consume(town: MemoryCluster, network: RecordedNetwork, ordered: bool) -> None:
    failed = asyncio.Event()

    async def fail_once(message: MessageExt) -> None:
        if not failed.is_set():
            failed.set()
            raise ValueError("not now")

    disk = SimulatedDisk(Chance(1), town.clock)
    consumer = Consumer(
        f"readers-{ordered}",
        name_servers=NAMESRV,
        world=world(town, network),
        disk=disk,
        consume_from_where=FIRST,
        enable_trace=True,
        **USER,
    )
    consumer.on("orders", ordered=ordered)(fail_once)
    async with consumer:
        await asyncio.sleep(60)


async def pull(town: MemoryCluster, network: RecordedNetwork) -> None:
    async with PullConsumer(
        "pullers",
        name_servers=NAMESRV,
        world=world(town, network),
        topics=["orders"],
        consume_from_where=FIRST,
        **USER,
    ) as reader:
        assert await reader.poll(5)
        await reader.commit()
        await asyncio.sleep(10)


@virtual
async def test_every_request_of_every_kind_of_client_is_signed() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 2)
        network = RecordedNetwork(town.network)
        await produce(town, network)
        await consume(town, network, ordered=False)
        await consume(town, network, ordered=True)
        await pull(town, network)
        async with Admin(NAMESRV, world=world(town, network), **USER) as admin:
            await admin.topics.create("more", queues=1)
            await admin.name_servers.configs()
            await admin.groups.configs(town.brokers[0].address)
    asked = network.requests()
    codes = {command.code for command in asked}
    assert codes >= {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.END_TRANSACTION,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.PULL_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.GET_NAMESRV_CONFIG,
    }
    assert any(command.is_oneway for command in asked)
    ends = [command.ext or {} for command in asked if command.code == RequestCode.END_TRANSACTION]
    assert {end["fromTransactionCheck"] for end in ends} == {"true", "false"}
    for command in asked:
        ext = command.ext or {}
        assert (ext.get("AccessKey"), ext.get("SecurityToken")) == ("joe", TOKEN), command.code
        assert is_signed_by(command, [SECRET]), command.code


@virtual
async def test_without_credentials_nothing_is_added() -> None:
    async with cluster() as town:
        network = RecordedNetwork(town.network)
        async with Producer("makers", name_servers=NAMESRV, world=world(town, network)) as producer:
            await producer.send(Message("orders", b"one"))
    for command in network.requests():
        assert not {"AccessKey", "SecurityToken", "Signature"} & (command.ext or {}).keys()


@virtual
async def test_clients_of_one_instance_have_the_same_credentials() -> None:
    async with cluster() as town:
        given = {"name_servers": NAMESRV, "instance_name": "shared"}
        first = Producer("a", world=World(town.network, town.clock, Chance(1)), **given, **USER)
        same = Producer("b", world=World(town.network, town.clock, Chance(1)), **given, **USER)
        other = Producer("c", world=World(town.network, town.clock, Chance(1)), **given)
        async with first, same:
            with pytest.raises(InvalidArgument, match="give this one another instance_name"):
                await other.start()


@virtual
async def test_secrets_are_in_no_text_of_a_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    async with cluster() as town:
        await town.create_topic("orders", 2)
        network = RecordedNetwork(town.network)
        disk = SimulatedDisk(Chance(1), town.clock)
        consumer = Consumer("readers", name_servers=NAMESRV, world=world(town, network), disk=disk, **USER)
        consumer.on("orders")(lambda message: None)
        async with (
            consumer,
            Producer("makers", name_servers=NAMESRV, world=world(town, network), **USER) as producer,
            Admin(NAMESRV, world=world(town, network), **USER) as admin,
        ):
            await producer.send(Message("orders", b"one"))
            await asyncio.sleep(5)
            info = await admin.groups.running_info("readers", consumer.client_id)
            texts += [repr(info), info.encode().decode()]
            for one in (consumer, producer, admin):
                texts += [repr(one), repr(one.settings), str(one.settings)]
    texts += [str(command) for command in network.requests()] + [caplog.text]
    assert "joe" in "".join(texts)
    for text in texts:
        assert SECRET not in text


def test_settings_with_a_secret_of_the_wrong_type_do_not_show_it() -> None:
    for name in ("secret_key", "security_token", "tls_key_password", "socks_proxy_config"):
        with pytest.raises(InvalidArgument, match=f"{name} must be a text, got int") as caught:
            made(ProducerSettings, {name: 47114712})
        assert "47114712" not in str(caught.value)


def test_settings_with_secrets_can_be_sent_to_another_process() -> None:
    settings = made(ProducerSettings, USER)
    assert pickle.loads(pickle.dumps(settings)) == settings
