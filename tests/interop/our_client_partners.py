"""Stories about other ways to the servers, and about a Java client at the other end."""

from __future__ import annotations

from urllib.parse import quote

from turbopump import Message, MessageExt
from turbopump.protocol.sysflag import COMPRESSED

from . import artifacts, clients, processes
from .our_client_stage import SEND_S, Facts, Stage, Stories, text

STORIES = Stories()


@STORIES.tells({"sent": "SEND_OK", "got": ["secret"], "pulled": ["secret"]}, artifacts.SERVERS)
def tls(stage: Stage) -> Facts:
    """Apache's servers take TLS and plain text on one port, with a certificate that they make themselves."""
    stage.settings |= {"use_tls": True, "tls_auth_server": False}
    topic = stage.topic(queues=1)
    with stage.producer() as producer, stage.reading(topic) as got:
        receipt = producer.send(Message(topic, b"secret"))
        came = got.wait("secret")
    return {"sent": receipt.status.name, "got": came, "pulled": [one.text for one in stage.stored(topic, 1)]}


@STORIES.tells({"sent": "SEND_OK", "got": ["x"]})
def vip_channel(stage: Stage) -> Facts:
    stage.settings["vip_channel_enabled"] = True
    topic = stage.topic(queues=1)
    with stage.producer() as producer, stage.reading(topic) as got:
        receipt = producer.send(Message(topic, b"x"))
        return {"sent": receipt.status.name, "got": got.wait("x")}


KEYS = ("a", "A-1", "order 7", "grün", "漢字", "🚀", "polygenelubricants", *map(str, range(20)))


@STORIES.tells(
    {
        "same queue for every key": True,
        "its compressed body": (True, "the same"),
        "our compressed body": "k-1 vier ☃ 100000 true",
        "its question, our reply": ["you said what?"],
    }
)
def a_java_client_as_partner(stage: Stage) -> Facts:
    names = [stage.topic(f"-{what}") for what in ("by-hash", "big", "question", "answered")]
    by_hash, big, question, answered = names
    stage.home.mkdir(parents=True)
    command = clients.program_of("java-5.5.0", "Partner", stage.home)
    partner = processes.Server(
        [*command, stage.cluster.namesrv, *names, *map(quote, KEYS)],
        stage.home / "partner.log",
        {"HOME": str(stage.home)},
    )
    consumer = stage.consumer()
    try:
        with stage.producer(instance_name=f"{stage.name}-asking-{stage.cluster.kind}") as producer:

            @consumer.on(question)
            def answer(message: MessageExt) -> None:
                producer.reply(message, f"you said {message.text}".encode())

            partner.wait_ready("working")
            theirs = {one.text: one.queue for one in stage.stored(by_hash, len(KEYS))}
            ours = {key: producer.send(Message(by_hash, b"x"), by=key).queue for key in KEYS}
            asked = Message(answered, text(100_000), keys="k-1", properties={"größe": "vier ☃"})
            # Java's 5.x consumers sometimes begin with their second heartbeat, after 30 s.
            seen = producer.request(asked, timeout=2 * SEND_S).text
            with consumer:
                stored = stage.stored(big, 2)
    finally:
        partner.kill()
    (body,) = [one for one in stored if one.tags == "big"]
    return {
        "same queue for every key": theirs == ours or {key: (theirs[key], ours[key]) for key in KEYS},
        "its compressed body": (
            bool(body.record.sys_flag & COMPRESSED),
            "the same" if body.body == text(100_000) else "another",
        ),
        "our compressed body": seen,
        "its question, our reply": [one.text for one in stored if one.tags == "reply"],
    }
