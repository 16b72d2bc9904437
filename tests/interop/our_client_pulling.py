"""Stories about pull consumers and administration."""

from __future__ import annotations

import threading

from turbopump import Message, MessageQueue, PullConsumer

from .our_client_stage import Facts, Stage, Stories, by_key, failure, is_known, lag, must

STORIES = Stories()


@STORIES.tells({"polled": ["1", "2", "3", "4"], "goes on": ["5"], "iterated": ["5"], "shared": 4})
def lite_pull(stage: Stage) -> Facts:
    topic = stage.topic()
    with stage.producer() as producer:
        stage.send(producer, topic, "1", "2", "3", "4")
        with stage.pull_consumer(topics=[topic]) as consumer:
            polled = _poll(consumer, 4)
            consumer.commit()
            shared = len(consumer.assignment())
        stage.send(producer, topic, "5")
        with stage.pull_consumer(topics=[topic], auto_commit=False) as consumer:
            on = _poll(consumer, 1)
        with stage.pull_consumer(topics={topic: "*"}) as consumer:
            iterated = [next(iter(consumer)).text]
    return {"polled": polled, "goes on": on, "iterated": iterated, "shared": shared}


def _poll(consumer: PullConsumer, count: int) -> list[str]:
    found: list[str] = []

    def enough() -> bool:
        found.extend(one.text for one in consumer.poll(timeout=1.0))
        return len(found) >= count

    must(enough)
    return sorted(found)


def _await_end(consumer: PullConsumer, queue: MessageQueue, end: int) -> None:
    """Apache's broker acknowledges a message before its queue shows it."""
    must(lambda: consumer.max_offset(queue) == end)


@STORIES.tells(
    {
        "offset": ["3", "4"],
        "begin": ["0", "1", "2", "3", "4"],
        "end": [],
        "time": ["second-1", "second-2"],
        "beyond": "InvalidArgument",
        "committed": (0, 2),
        "paused": [],
        "resumed": ["4"],
        "goes on": ["2", "3", "4"],
    }
)
def assign_seek_and_commit(stage: Stage) -> Facts:
    topic = stage.topic(queues=1)
    facts: Facts = {}
    with stage.producer() as producer:
        stage.send(producer, topic, *"01234")
    with stage.pull_consumer(auto_commit=False) as consumer:
        (queue,) = consumer.queues(topic)
        _await_end(consumer, queue, 5)
        consumer.assign([queue])
        consumer.seek(queue, 3)
        facts["offset"] = _poll(consumer, 2)
        consumer.seek_to_begin()
        facts["begin"] = _poll(consumer, 5)
        consumer.seek_to_end()
        facts["end"] = [one.text for one in consumer.poll(timeout=0.5)]
        facts["beyond"] = failure(lambda: consumer.seek(queue, 99))
        before = consumer.committed(queue)
        consumer.commit({queue: 2})
        facts["committed"] = (before, consumer.committed(queue))
        consumer.seek(queue, 4)
        consumer.pause()
        facts["paused"] = [one.text for one in consumer.poll(timeout=0.5)]
        consumer.resume()
        facts["resumed"] = _poll(consumer, 1)
    with stage.pull_consumer(auto_commit=False) as consumer:
        consumer.assign([queue])
        facts["goes on"] = _poll(consumer, 3)
    with stage.pull_consumer("-time", auto_commit=False) as consumer:
        consumer.assign(consumer.queues(stage.old.topic))
        consumer.seek_to_time(round((stage.old.half - 0.5) * 1000))
        facts["time"] = _poll(consumer, 2)[-2:]
    return facts


@STORIES.tells(
    {
        "found": ("FOUND", ["1", "2"], 2),
        "tag": ["2"],
        "nothing": ("NO_NEW_MSG", 3),
        "beyond": "OFFSET_ILLEGAL",
        "waited for": ["late"],
        "offsets": (0, 3),
        "sent back": ["1"],
    }
)
def single_pulls(stage: Stage) -> Facts:
    topic = stage.topic(queues=1)
    with stage.producer() as producer, stage.pull_consumer() as consumer:
        for tag in "123":
            producer.send(Message(topic, tag.encode(), tags=tag))
        (queue,) = consumer.queues(topic)
        _await_end(consumer, queue, 3)
        found = consumer.pull(queue, 0, 2)
        nothing = consumer.pull(queue, 3)
        facts: Facts = {
            "found": (found.status.name, [one.text for one in found.messages], found.next_offset),
            "tag": [one.text for one in consumer.pull(queue, 0, expression="2").messages],
            "nothing": (nothing.status.name, nothing.next_offset),
            "beyond": consumer.pull(queue, 99).status.name,
            "offsets": (consumer.min_offset(queue), consumer.max_offset(queue)),
        }
        late = threading.Timer(0.5, lambda: stage.send(producer, topic, "late"))
        late.start()
        facts["waited for"] = [one.text for one in consumer.pull(queue, 3, wait=20).messages]
        late.join()
        consumer.send_back(found.messages[0], 1)
        retry = f"%RETRY%{consumer.group}"
        facts["sent back"] = [one.text for one in stage.stored(retry, 1)]
    return facts


@STORIES.tells(
    {
        "listed": True,
        "queues": (3, 3),
        "stats": 4,
        "by key": ["b"],
        "by id": "b",
        "by offset id": "b",
        "member": 1,
        "lag": 0,
        "deleted": True,
        "no such topic": "TopicNotFound 17",
    }
)
def administration(stage: Stage) -> Facts:
    topic = stage.topic(queues=3)
    with stage.producer() as producer, stage.admin() as admin, stage.reading(topic) as got:
        receipts = [producer.send(Message(topic, key.encode(), keys=key)) for key in "abcd"]
        got.wait("a", "b", "c", "d")
        group = f"{stage.name}-readers"
        config = admin.topics.config(stage.cluster.broker_addr, topic)
        must(lambda: len(by_key(admin, topic, "b")) == 1)
        must(lambda: lag(admin, group, topic) == 0)
        facts: Facts = {
            "listed": topic in admin.topics.names(),
            "queues": (config.readQueueNums, config.writeQueueNums),
            "stats": sum(
                one.maxOffset - one.minOffset for one in admin.topics.stats(topic).offsetTable.values()
            ),
            "by key": [one.text for one in by_key(admin, topic, "b")],
            "by id": admin.messages.find(topic, receipts[1].message_id).text,
            "by offset id": admin.messages.at_offset_id(receipts[1].offset_message_id, topic).text,
            "member": len(admin.connections.consumers(group).connectionSet),
            "lag": lag(admin, group, topic),
            "no such topic": failure(lambda: admin.topics.route(f"{topic}-none")),
        }
    with stage.admin() as admin:
        admin.topics.delete(topic)
        must(lambda: not is_known(admin, topic))
        facts["deleted"] = topic not in admin.topics.names()
    return facts
