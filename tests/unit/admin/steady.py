"""What commands printed, without what is another one each time: ids, ports, clients and times."""

import re
from dataclasses import replace
from typing import Any

from tests.unit.admin.kit import MemoryCluster, Printed

from turbopump.client.message import Message, MessageQueue, SendResult

CHANGES = (
    (re.compile(r"7F000001(?!00002A9F|00002AA9)[0-9A-F]{24}"), "7F000001~unique~key~of~a~sender~"),
    (re.compile(r"127.0.0.1@\d+#\d+ +(?=V5)"), "127.0.0.1@client "),
    (re.compile(r"127.0.0.1@\d+#\d+"), "127.0.0.1@client"),
    (re.compile(r"127.0.0.1:2\d{4}\b"), "127.0.0.1:2pppp"),
    (re.compile(r"\b17\d{11}\b"), "1700000000mmm"),
    (re.compile(r"\b2023\d{13}\b"), "20231114hhmmssmmm"),
    (re.compile(r"(2023-11-14) \d\d:\d\d:\d\d\b(?!,)"), r"\1 hh:mm:ss"),
)


def steady(*printed: Printed) -> list[Printed]:
    return [
        replace(each, words=tuple(map(_clean, each.words)), out=_clean(each.out), err=_clean(each.err))
        for each in printed
    ]


def _clean(text: str) -> str:
    for pattern, shown in CHANGES:
        text = pattern.sub(shown, text)
    return text


async def sent(town: MemoryCluster, queue_id: int, body: bytes = b"hello", **message: Any) -> SendResult:
    queue = MessageQueue("orders", "broker-a", queue_id)
    return await town.producer.send_to(queue, Message("orders", body, **message))
