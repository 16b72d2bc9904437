"""Priority messages: the requests that were sent to Apache's 5.5.0 broker, sent to ours."""

import json
import lzma
from pathlib import Path

from tests.kit import virtual
from tests.unit.broker.desk import running
from tests.unit.broker.golden_exchanges_kit import command_of

from turbopump.protocol import properties
from turbopump.protocol.command import Command
from turbopump.protocol.record import decode_all

CAPTURED = Path(__file__).parents[2] / "compat" / "wire" / "priority-5.5.0.jsonl.xz"
ROWS = [json.loads(line) for line in lzma.decompress(CAPTURED.read_bytes()).splitlines()]


@virtual
async def test_the_sends_that_apache_was_asked_for_go_to_the_queues_that_apache_chose() -> None:
    async with running() as desk:
        for row in ROWS:
            if row["name"].endswith("transaction"):
                continue  # half messages are in a queue of their own, whatever they ask for
            asked = command_of(row["req"])
            answer = await desk.ask(asked.code, dict(asked.ext or {}), asked.body)
            assert outcome(answer, row["name"]) == outcome(command_of(row["resp"]), row["name"]), row["name"]


def outcome(answer: Command, name: str) -> object:
    """Code and queue of a send; of a pull, what is there, property by property."""
    if name.startswith("pull"):
        return answer.code, [
            (record.queue_offset, properties.parse(record.properties.decode()), record.body)
            for record in decode_all(answer.body)
        ]
    ext = answer.ext or {}
    return answer.code, ext.get("queueId"), ext.get("queueOffset")
