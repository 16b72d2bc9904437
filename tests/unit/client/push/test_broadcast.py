"""Broadcasting: every member gets every message, and keeps its own offsets in Apache's file."""

from pathlib import Path
from typing import Any

from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client.listening import Reader, plain

from turbopump.client.group.offsets import LocalOffsets, local_path
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.consumer import Consumer
from turbopump.client.settings import MessageModel
from turbopump.runtime.chance import Chance
from turbopump.testing.disk import SimulatedDisk

WRITTEN_BY_JAVA = b"""{
\t"offsetTable":{{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":3,
\t\t\t"topic":"orders"
\t\t}:12,{
\t\t\t"brokerName":"broker-a",
\t\t\t"queueId":0,
\t\t\t"topic":"orders"
\t\t}:7
\t}
}"""


def broadcasting(town: MemoryCluster, reader: Any, name: str = "one", **settings: Any) -> Consumer:
    consumer = plain(town, len(name), instance_name=name, local_offset_store_dir="/offsets", **settings)
    consumer.subscribe("orders", reader, broadcast=True)
    return consumer


async def sent(town: MemoryCluster, count: int) -> None:
    for number in range(count):
        await town.send("orders", b"%03d" % number)


@virtual
async def test_every_member_gets_every_message_and_goes_on_where_it_was() -> None:
    async with cluster() as town:
        await town.create_topic("orders")
        disk = SimulatedDisk(Chance(1), town.clock)
        first, second, again = Reader(), Reader(), Reader()
        await sent(town, 10)
        async with (
            broadcasting(town, first, "one", disk=disk),
            broadcasting(town, second, "other", disk=disk),
        ):
            await town.clock.sleep(3)
        assert len(first.got) == len(second.got) == 10
        await sent(town, 4)
        async with broadcasting(town, again, "one", disk=disk):
            await town.clock.sleep(3)
        assert len(again.got) == 4


@virtual
async def test_offsets_are_in_apaches_place_in_apaches_words_every_five_seconds() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        disk = SimulatedDisk(Chance(1), town.clock)
        await sent(town, 3)
        async with broadcasting(town, Reader(), disk=disk) as member:
            await town.clock.sleep(6)
            path = f"/offsets/{member.client_id}/readers/offsets.json"
            assert member.client_id == "127.0.0.1@one"
            assert disk.read(path) == (
                b'{\n\t"offsetTable":{\n\t\t{"brokerName":"broker-a","queueId":0,"topic":"orders"}:3\n\t}\n}'
            )
            await sent(town, 2)
            await town.clock.sleep(6)
            assert b":5" in disk.read(path)
            assert b":3" in disk.read(path + ".bak")


@virtual
async def test_a_member_without_a_name_keeps_the_name_default_so_that_it_finds_its_file_again() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        member = plain(town, message_model=MessageModel.BROADCASTING, local_offset_store_dir="/offsets")
        member.subscribe("orders", Reader())
        async with member:
            assert member.is_broadcast
            assert member.client_id == "127.0.0.1@DEFAULT"


@virtual
async def test_a_failed_delivery_does_not_come_again() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 3)
        reader = Reader(lambda body: True)
        async with broadcasting(town, reader) as member:
            await town.clock.sleep(30)
            assert member._running.topics() == ["orders"]  # no retry topic
        assert reader.bodies == [b"000", b"001", b"002"]


@virtual
async def test_ordered_broadcast_needs_no_lock_and_repeats_what_fails() -> None:
    async with cluster() as town:
        await town.create_topic("orders", 1)
        await sent(town, 3)
        texts: list[str] = []

        async def handle(message: MessageExt) -> None:
            texts.append(message.text)
            if texts.count("001") == 1 and message.text == "001":
                raise ValueError("once")

        member = plain(town, instance_name="one", local_offset_store_dir="/offsets")
        member.subscribe("orders", handle, broadcast=True, ordered=True)
        async with member:
            await town.clock.sleep(5)
        assert texts == ["000", "001", "001", "002"]


@virtual
async def test_a_file_of_javas_is_read_and_a_broken_one_falls_back_to_the_copy() -> None:
    async with cluster() as town:
        disk = SimulatedDisk(Chance(1), town.clock)
        path = local_path("/offsets", "10.0.0.1@DEFAULT", "readers")
        assert path == Path("/offsets/10.0.0.1@DEFAULT/readers/offsets.json")
        disk.make_dirs(str(path.parent))
        disk.write(str(path), WRITTEN_BY_JAVA)
        offsets = LocalOffsets(disk, path)
        offsets.load()
        assert await offsets.query(MessageQueue("orders", "broker-a", 3)) == 12
        assert await offsets.query(MessageQueue("orders", "broker-a", 1)) is None
        disk.write(str(path), b"{torn")
        disk.write(str(path) + ".bak", WRITTEN_BY_JAVA)
        fallen_back = LocalOffsets(disk, path)
        fallen_back.load()
        assert await fallen_back.query(MessageQueue("orders", "broker-a", 0)) == 7
        await fallen_back.commit(MessageQueue("orders", "broker-a", 1), 2)
        read_again = LocalOffsets(disk, path)
        read_again.load()
        assert [await read_again.query(MessageQueue("orders", "broker-a", n)) for n in (0, 1, 3)] == [
            7,
            2,
            12,
        ]
