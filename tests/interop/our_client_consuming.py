"""Stories about push consumers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from turbopump import Admin, Message, MessageExt, RetryLater
from turbopump.client.admin.dead_letters import Window
from turbopump.errors import NotFound, TopicNotFound
from turbopump.protocol.bodies import TopicConfig

from . import artifacts
from .console import Console
from .our_client_stage import FIRST, LAST, TIMESTAMP, Facts, Got, Stage, Stories, is_known, lag, must

STORIES = Stories()


@STORIES.tells(
    {"got": [f"{n:02}" for n in range(20)], "batches": "of at most 8", "in batches": 20, "committed": 20}
)
def concurrent_handlers(stage: Stage) -> Facts:
    topic = stage.topic()
    texts = [f"{number:02}" for number in range(20)]
    with stage.producer() as producer:
        stage.send(producer, topic, *texts)
    with stage.reading(topic) as got:
        came = got.wait(*texts)
    with stage.reading(topic, more="-batch", batch=8) as batches_:
        batches_.wait(*texts)
    with stage.pull_consumer() as census, stage.admin() as admin:
        group = f"{stage.name}-readers"
        committed = [admin.offsets.committed(group, queue) or 0 for queue in census.queues(topic)]
    return {
        "got": came,
        "batches": "of at most 8" if max(batches_.sizes) <= 8 else str(batches_.sizes),
        "in batches": len(set(batches_.texts)),
        "committed": sum(committed),
    }


@dataclass
class Order:
    id: int
    name: str


@STORIES.tells({"async": ["1", "2", "3"], "typed": [Order(7, "grün")], "in lists": [1, 2, 3]})
def handlers_of_all_kinds(stage: Stage) -> Facts:
    topic = stage.topic(queues=1)
    orders = stage.topic("-orders", queues=1)
    coming: list[str] = []
    typed: list[Order] = []
    numbers: list[int] = []
    one, two, three = (stage.consumer(f"-{number}") for number in range(3))

    @one.on(topic)
    async def note(message: MessageExt) -> None:
        coming.append(message.text)

    @two.on(orders)
    def store(order: Order) -> None:
        typed.append(order)

    @three.on(topic, batch=2)
    async def add(messages: list[MessageExt]) -> None:
        numbers.extend(int(message.text) for message in messages)

    with one, two, three, stage.producer() as producer:
        stage.send(producer, topic, "1", "2", "3")
        producer.send(Message.json(orders, Order(7, "grün")))
        must(lambda: len(coming) == 3 and len(typed) == 1 and len(numbers) == 3)
    return {"async": sorted(coming), "typed": typed, "in lists": sorted(numbers)}


@STORIES.tells({"in order": True, "held up": ["1", "2", "2", "2", "3"]})
def ordered_handlers(stage: Stage) -> Facts:
    topic = stage.topic()
    held = stage.topic("-held", queues=1)
    numbers = [str(number) for number in range(100, 140)]
    with stage.producer() as producer:
        for number in numbers:
            producer.send(Message(topic, number.encode()), by=int(number) % 8)
        stage.send(producer, held, "1", "2", "3")
    with stage.reading(topic, ordered=True) as got:
        got.wait(*numbers)
    per_key = [[one for one in got.texts if int(one) % 8 == key] for key in range(8)]
    stuck = Got({"2": 2})
    with stage.reading(held, stuck, "-held", ordered=True, suspend_current_queue_time=0.1):
        stuck.wait("3")
    return {"in order": per_key == [sorted(one) for one in per_key], "held up": stuck.texts}


@STORIES.tells({"first": ["1", "2", "3"], "second": ["1", "2", "3"], "goes on": ["4"], "file": True})
def broadcast(stage: Stage) -> Facts:
    topic = stage.topic(queues=2)
    how = {"broadcast": True, "local_offset_store_dir": str(stage.home)}
    with stage.producer() as producer:
        reading = stage.reading(topic, instance_name="one", **how)
        with reading as one, stage.reading(topic, instance_name="two", **how) as two:
            stage.send(producer, topic, "1", "2", "3")
            came = [each.wait("1", "2", "3") for each in (one, two)]
        stage.send(producer, topic, "4")
        with stage.reading(topic, instance_name="one", **how) as again:
            on = again.wait("4")
    kept = any(path.name == "offsets.json" for path in stage.home.rglob("*"))
    return {"first": came[0], "second": came[1], "goes on": on, "file": kept}


@STORIES.tells({"tags": ["a", "b"], "changed": ["c"]})
def tags(stage: Stage) -> Facts:
    topic = stage.topic(queues=1)
    with stage.producer() as producer:
        for tag in ("a", "b", "c"):
            producer.send(Message(topic, tag.encode(), tags=tag))
        with stage.reading(topic, tags="a || b") as tagged:
            wanted = tagged.wait("a", "b")
        with stage.reading(topic, more="-later", tags="nothing") as later:
            later.consumer.subscribe(topic, later, "c")

            def heard() -> bool:
                """What is sent before the broker has heard of it may be passed over."""
                producer.send(Message(topic, b"c", tags="c"))
                return "c" in later.texts

            must(heard)
            changed = later.texts
    return {"tags": wanted, "changed": sorted(set(changed))}


@STORIES.tells({"chosen": ["7", "8", "9"], "polled": ["7", "8", "9"], "changed": ["1"]})
def sql(stage: Stage) -> Facts:
    topic = stage.topic(queues=1)
    with stage.producer() as producer:
        for number in range(10):
            producer.send(Message(topic, b"%d" % number, properties={"n": str(number)}))
    with stage.reading(topic, sql="n > 6") as got:
        chosen = got.wait("7", "8", "9")
    with stage.pull_consumer("-pulling") as consumer:
        queue = consumer.queues(topic)[0]
        polled = [message.text for message in consumer.pull(queue, 0, 32, sql="n > 6").messages]
        changed = [message.text for message in consumer.pull(queue, 0, 32, sql="n = 1").messages]
    return {"chosen": chosen, "polled": polled, "changed": changed}


@STORIES.tells(
    {"times": [0, 1, 2], "others": 1, "dead": ["bad"], "dead at once": ["worse"], "properties": True}
)
def retries_and_dead_letters(stage: Stage) -> Facts:
    topic = stage.topic()
    with stage.producer() as producer:
        stage.send(producer, topic, "good", "bad")
        once = stage.topic("-once", queues=1)
        stage.send(producer, once, "worse")
    got = Got({"bad": 9})
    dead = Got({"worse": 9}, RetryLater(-1))
    with (
        stage.reading(topic, got, max_reconsume_times=2),
        stage.reading(once, dead, "-once"),
        stage.admin() as admin,
    ):
        must(lambda: _letters(admin, f"{stage.name}-readers") == ["bad"])
        must(lambda: _letters(admin, f"{stage.name}-readers-once") == ["worse"])
        bad = [one for one in got.messages if one.text == "bad"]
        return {
            "times": [one.reconsume_times for one in bad],
            "others": len(got.messages) - len(bad),
            "dead": _letters(admin, f"{stage.name}-readers"),
            "dead at once": _letters(admin, f"{stage.name}-readers-once"),
            "properties": {one.topic for one in bad} == {topic} and len({one.message_id for one in bad}) == 1,
        }


def _letters(admin: Admin, group: str) -> list[str]:
    try:
        return [one.text for one in admin.dead_letters(group).within(Window())]
    except (NotFound, TopicNotFound):
        return []


@STORIES.tells({"came": ["later", "now"], "not before its time": True, "chosen level": True})
def delays(stage: Stage) -> Facts:
    topic = stage.topic(queues=1)
    got = Got({"now": 1}, RetryLater(delay_level=4))
    with stage.reading(topic, got), stage.producer() as producer:
        sent = time.time()
        producer.send(Message(topic, b"later", delay_level=2))
        producer.send(Message(topic, b"now"))
        must(lambda: sorted(got.texts) == ["later", "now", "now"])
    (late,) = [one for one in got.messages if one.text == "later"]
    first, second = [one for one in got.messages if one.text == "now"]
    return {
        "came": sorted(set(got.texts)),
        "not before its time": late.store_timestamp / 1000 - sent >= 1.9,
        "chosen level": second.store_timestamp - first.store_timestamp >= 3900,
    }


@STORIES.tells(
    {
        "first": ["first-1", "first-2", "new", "second-1", "second-2"],
        "time": ["new", "second-1", "second-2"],
        "last": ["new"],
        "committed": ["newer"],
    }
)
def where_a_group_begins(stage: Stage) -> Facts:
    old = stage.old
    wheres: dict[str, Any] = {
        "first": {"consume_from_where": FIRST},
        "time": {"consume_from_where": TIMESTAMP, "consume_timestamp": round((old.half - 0.5) * 1000)},
        "last": {"consume_from_where": LAST},
    }
    facts: Facts = {}
    with stage.producer() as producer:
        readers = {}
        for where, settings in wheres.items():
            consumer = stage.consumer(f"-{where}", **settings)
            readers[where] = (consumer, Got())
            consumer.subscribe(old.topic, readers[where][1])
            consumer.start()
            must(lambda consumer=consumer: len(consumer.queues()) == 1)  # type: ignore[misc]
        stage.send(producer, old.topic, "new")
        for where, (consumer, got) in readers.items():
            facts[where] = got.wait("new")
            consumer.close()
        with stage.admin() as admin:
            group = f"{stage.name}-readers-first"
            must(lambda: lag(admin, group, old.topic) == 0, lambda: admin.groups.progress(group, old.topic))
        stage.send(producer, old.topic, "newer")
        with stage.reading(old.topic, more="-first", consume_from_where=LAST) as again:
            facts["committed"] = again.wait("newer")
    return facts


@STORIES.tells({"before": ["1", "2", "3", "4"], "again": ["1", "2", "3", "4"], "printed": True})
def reset_by_mqadmin_while_consuming(stage: Stage) -> Facts:
    topic = stage.topic(queues=2)
    group = f"{stage.name}-readers"
    stage.home.mkdir(parents=True)
    with stage.producer() as producer:
        stage.send(producer, topic, "1", "2", "3", "4")
    with (
        Console(artifacts.TOOLS[-1], stage.cluster, stage.home) as console,
        stage.reading(topic, persist_consumer_offset_interval=0.5) as got,
        stage.admin() as admin,
    ):
        before = got.wait("1", "2", "3", "4")
        must(lambda: lag(admin, group, topic) == 0)
        got.messages.clear()
        words = ["resetOffsetByTime", "-n", stage.cluster.namesrv, "-g", group, "-t", topic, "-s", "0"]
        printed = console.mqadmin(*words)
        again = got.wait("1", "2", "3", "4")
    return {"before": before, "again": sorted(set(again)), "printed": topic in printed.text}


@STORIES.tells({"paused": [], "resumed": ["3", "4"], "fewer workers": ["5"], "unsubscribed": ()})
def pause_and_resume(stage: Stage) -> Facts:
    topic = stage.topic(queues=1)
    with stage.producer() as producer, stage.reading(topic) as got:
        stage.send(producer, topic, "1")
        got.wait("1")
        got.consumer.pause()
        stage.send(producer, topic, "2")  # a pull that waits at the broker may still bring this one
        got.messages.clear()
        stage.send(producer, topic, "3", "4")
        paused = [one for one in got.texts if one != "2"]
        got.consumer.resume()
        resumed = [one for one in got.wait("3", "4") if one != "2"]
        got.consumer.workers = (1, 2)
        stage.send(producer, topic, "5")
        last = [one for one in got.wait("5") if one == "5"]
        got.consumer.unsubscribe(topic)
        return {
            "paused": paused,
            "resumed": resumed,
            "fewer workers": last,
            "unsubscribed": got.consumer.queues(),
        }


@STORIES.tells({"shared": (4, 4), "together": 40, "given back": 8})
def two_members(stage: Stage) -> Facts:
    topic = stage.topic(queues=8)
    with stage.producer() as producer, stage.reading(topic, instance_name="one") as one:
        with stage.reading(topic, instance_name="two") as two:
            must(lambda: len(one.consumer.queues()) == len(two.consumer.queues()) == 4)
            shared = (len(one.consumer.queues()), len(two.consumer.queues()))
            stage.send(producer, topic, *map(str, range(40)))
            must(lambda: len({*one.texts, *two.texts}) == 40)
            together = len([*one.texts, *two.texts])
        must(lambda: len(one.consumer.queues()) == 8)
        return {"shared": shared, "together": together, "given back": len(one.consumer.queues())}


@STORIES.tells({"got": ["inside"], "topic": "apart-own", "stored in": ["team%apart-own"], "outside": []})
def apart_namespaces(stage: Stage) -> Facts:
    stage.topic("-unused")
    name = "apart-own"
    with stage.admin() as admin:
        config = TopicConfig(topicName=f"team%{name}", readQueueNums=1, writeQueueNums=1)
        admin.topics.create(stage.cluster.broker_addr, config)
        must(lambda: is_known(admin, f"team%{name}"))
    with stage.producer(namespace="team") as producer, stage.reading(name, namespace="team") as got:
        stage.send(producer, name, "inside")
        came = got.wait("inside")
    with stage.admin() as admin:
        outside = [topic for topic in admin.topics.names() if topic == name]
    return {
        "got": came,
        "topic": got.messages[0].topic,
        "stored in": sorted({one.record.topic for one in got.messages}),
        "outside": outside,
    }
