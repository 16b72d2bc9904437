"""Stories about sending."""

from __future__ import annotations

from collections import Counter

from turbopump import Message, MessageExt
from turbopump.protocol.sysflag import COMPRESSED

from .our_client_stage import MIB, SEND_S, Facts, Stage, Stories, failure, noise, text

STORIES = Stories()


@STORIES.tells(
    {"statuses": ["SEND_OK"], "bodies": "the same", "compressed": [False, False, True, True, True]}
)
def bodies_of_all_sizes(stage: Stage) -> Facts:
    topic = stage.topic(queues=1)
    bodies = [text(1), text(4095), text(4096), text(4 * MIB), noise(3 * MIB)]
    with stage.producer() as producer:
        results = [producer.send(Message(topic, body)) for body in bodies]
    stored = stage.stored(topic, len(bodies))
    return {
        "statuses": sorted({result.status.name for result in results}),
        "bodies": "the same" if [one.body for one in stored] == bodies else "others",
        "compressed": [bool(one.record.sys_flag & COMPRESSED) for one in stored],
    }


WORDS = "naïve ☃ 漢字 🚀"
OWN = {"größe": "vier ☃", "a": "=b;c&d\n", "漢": "字"}


@STORIES.tells(
    {
        "body": WORDS,
        "tags": "grün",
        "keys": ("k-1", "ключ"),
        "properties": OWN,
        "flag": 7,
        "receipt": "says where it is",
    }
)
def everything_of_a_message_comes_back(stage: Stage) -> Facts:
    topic = stage.topic(queues=1)
    sent = Message(topic, WORDS.encode(), tags="grün", keys=("k-1", "ключ"), properties=OWN, flag=7)
    with stage.producer() as producer:
        receipt = producer.send(sent)
    (one,) = stage.stored(topic, 1)
    ids = (one.message_id, one.offset_message_id, one.queue, one.offset)
    told = (receipt.message_id, receipt.offset_message_id, receipt.queue, receipt.offset)
    return {
        "body": one.text,
        "tags": one.tags,
        "keys": one.keys,
        "properties": {name: one.properties.get(name) for name in OWN},
        "flag": one.flag,
        "receipt": "says where it is" if ids == told else f"{told}, not {ids}",
    }


@STORIES.tells(
    {"results": 120, "offsets": "in order", "ids": 120, "stored": "all", "queues": 1, "big ones": 3}
)
def batches(stage: Stage) -> Facts:
    topic = stage.topic()
    big = stage.topic("-big")
    texts = [f"{number:03}" for number in range(120)]
    with stage.producer() as producer:
        queue = producer.queues(topic)[1]
        messages = [Message(topic, one.encode(), keys=one) for one in texts]
        results = producer.send_batch(messages, queue=queue)
        large = producer.send_batch([Message(big, noise(2 * MIB)) for _ in range(3)])
    stored = stage.stored(topic, len(texts))
    return {
        "results": len(results),
        "offsets": "in order" if [one.offset for one in results] == list(range(120)) else "mixed",
        "ids": len({one.message_id for one in results}),
        "stored": "all" if [one.text for one in stored] == texts else "others",
        "queues": len({one.queue for one in stored}),
        "big ones": len(stage.stored(big, 3)) if len(large) == 3 else len(large),
    }


@STORIES.tells({"oneway": 30, "async": 60, "statuses": ["SEND_OK"], "queues used": 4})
def sends_without_waiting(stage: Stage) -> Facts:
    topic = stage.topic()
    one_way = stage.topic("-oneway")
    with stage.producer() as producer:
        futures = [producer.send_async(Message(topic, b"%d" % number)) for number in range(60)]
        for number in range(30):
            producer.send_oneway(Message(one_way, b"%d" % number))
        results = [future.result(SEND_S) for future in futures]
        oneway = {one.text for one in stage.stored(one_way, 30)}
    stored = stage.stored(topic, 60)
    return {
        "oneway": len(oneway),
        "async": len({one.text for one in stored}),
        "statuses": sorted({result.status.name for result in results}),
        "queues used": len({one.queue for one in stored}),
    }


@STORIES.tells({"explicit": {2}, "selected": {3}, "turns": {0: 2, 1: 2, 2: 2, 3: 2}, "of a key": 1})
def queues_of_ones_choice(stage: Stage) -> Facts:
    topic = stage.topic()
    with stage.producer() as producer:
        queues = producer.queues(topic)
        sent = [producer.send(Message(topic, b"x"), queue=queues[2]) for _ in range(3)]
        chosen = [producer.send(Message(topic, b"x"), select=lambda all_, _: all_[-1]) for _ in range(3)]
        turns = [producer.send(Message(topic, b"x")) for _ in range(8)]
        keyed = [producer.send(Message(topic, b"x"), by="A-1") for _ in range(5)]
    return {
        "explicit": {one.queue.id for one in sent},
        "selected": {one.queue.id for one in chosen},
        "turns": dict(sorted(Counter(one.queue.id for one in turns).items())),
        "of a key": len({one.queue for one in keyed}),
    }


@STORIES.tells({"reply": "you said hello", "nobody": "RequestTimedOut", "no request": "InvalidArgument"})
def request_and_reply(stage: Stage) -> Facts:
    topic = stage.topic(queues=1)
    silent = stage.topic("-silent", queues=1)
    with (
        stage.producer(instance_name=f"{stage.name}-asking-{stage.cluster.kind}") as asking,
        stage.producer() as answering,
    ):
        consumer = stage.consumer()

        @consumer.on(topic)
        def answer(message: MessageExt) -> None:
            answering.reply(message, f"you said {message.text}".encode())

        with consumer:
            reply = asking.request(Message(topic, b"hello"), timeout=SEND_S)
        asking.send(Message(silent, b"x"))
        (one,) = stage.stored(silent, 1)
        return {
            "reply": reply.text,
            "nobody": failure(lambda: asking.request(Message(silent, b"?"), timeout=1.0)),
            "no request": failure(lambda: answering.reply(one, b"x")),
        }


@STORIES.tells({"too big for the broker": "MessageIllegal 13", "read-only topic": "TopicUnknown 10005"})
def what_brokers_refuse(stage: Stage) -> Facts:
    topic = stage.topic(queues=1)
    read_only = stage.topic("-read-only", perm=4)

    def sent_read_only() -> None:
        with stage.producer() as producer:
            producer.send(Message(read_only, b"x"))

    with stage.producer(max_message_size=8 * MIB) as producer:
        return {
            "too big for the broker": failure(lambda: producer.send(Message(topic, noise(6 * MIB)))),
            "read-only topic": failure(sent_read_only),
        }
