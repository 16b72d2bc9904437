"""Records that hold several messages: consumers and `tail` get the messages."""

from tests.kit import virtual
from tests.unit.admin.kit import NAMESRV, MemoryCluster, cluster
from tests.unit.client.pulling import all_of, consumer

from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.pull.puller import Puller
from turbopump.client.push.consumer import Consumer
from turbopump.client.world import World
from turbopump.protocol import batch, properties
from turbopump.protocol.command import Command
from turbopump.runtime.chance import Chance

QUEUE = MessageQueue("B", "broker-a", 0)


async def send_batch(town: MemoryCluster, key: str, *texts: str) -> None:
    """As Java's client 5.x sends it: with a key for the whole."""
    pairs = [{"UNIQ_KEY": f"{key}{text}", "TAGS": f"tag-{text}"} for text in texts]
    body = batch.join(
        (number, text.encode(), properties.pack(own).encode())
        for number, (text, own) in enumerate(zip(texts, pairs, strict=True))
    )
    outer = properties.pack({"UNIQ_KEY": key, "WAIT": "true"})
    fields = {"a": "G", "b": "B", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": outer}
    ask = Command(320, ext=fields | {"j": "0", "k": "false", "m": "true"}, body=body, language="JAVA")
    answer = await town.admin.client.call(town.brokers[0].address, ask, 10)
    assert answer.code == 0, answer.remark


async def fill(town: MemoryCluster) -> None:
    words = ("-n", NAMESRV, "-b", town.brokers[0].address, "-t", "B", "-r", "1", "-w", "1")
    made = await town.mqadmin("updateTopic", *words, "-a", "+queue.type=BatchCQ")
    assert made.status == 0, made
    await town.registered()
    await send_batch(town, "first", "one", "two", "three")
    await town.send("B", b"four")
    await send_batch(town, "second", "five", "six")


TEXTS = ["one", "two", "three", "four", "five", "six"]


@virtual
async def test_a_pull_consumer_gets_the_messages_and_commits_behind_them() -> None:
    async with cluster() as town:
        await fill(town)
        async with consumer(town, topics=["B"]) as reader:
            found = await all_of(reader)
        assert [(message.offset, message.text) for message in found] == list(enumerate(TEXTS))
        assert found[1].message_id == "firsttwo"
        assert found[1].tags == "tag-two"
        async with consumer(town, topics=["B"]) as reader:
            assert await all_of(reader) == []


@virtual
async def test_a_pull_from_the_middle_of_a_batch_begins_there() -> None:
    async with cluster() as town:
        await fill(town)
        puller = Puller(town.admin.client, town.admin.routes)
        result = await puller.pull(QUEUE, 1, hold_s=0)
        assert [record.queue_offset for record in result.records] == [1, 2, 3, 4, 5]
        assert [record.body.decode() for record in result.records] == TEXTS[1:]
        assert result.next_offset == 6


@virtual
async def test_a_push_consumer_gets_the_messages_and_tries_one_of_them_again() -> None:
    got: list[str] = []

    async def take(message: MessageExt) -> None:
        got.append(message.text)
        if message.text == "two" and got.count("two") == 1:
            raise ValueError("not yet")

    async with cluster() as town:
        await fill(town)
        world = World(town.network, town.clock, Chance(1))
        reader = Consumer("pushed", name_servers=NAMESRV, world=world)
        reader.subscribe("B", take)
        async with reader:
            await town.clock.sleep(60)
    assert sorted(got) == sorted([*TEXTS, "two"])
