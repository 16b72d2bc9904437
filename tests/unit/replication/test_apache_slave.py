"""Our master answers what Apache's slaves ask: the captured requests, sent again."""

from __future__ import annotations

import json

import pytest
from tests.compat.ha import VERSIONS, requests
from tests.kit import virtual
from tests.unit.replication.kit import TOPIC, pair

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import Command, decode
from turbopump.protocol.frame import Frame, cut
from turbopump.protocol.headers.offsets import UpdateConsumerOffsetRequest

REGISTER_BROKER = 103
FAST_PORT = 10909


def _asked(version: str) -> dict[tuple[str, int], Command]:
    """Returns one request of each kind that a slave sent to its master, by port and code."""
    found: dict[tuple[str, int], Command] = {}
    for row in requests(version):
        if row.code != REGISTER_BROKER:
            frames: list[Frame] = []
            cut(row.request, frames)
            found[row.to, row.code] = decode(frames[0])
    return found


@pytest.mark.parametrize("version", VERSIONS)
@virtual
async def test_every_request_of_apaches_slaves_is_answered(version: str) -> None:
    async with pair() as world:
        master = world.node("brokerRole=ASYNC_MASTER\n")
        await master.start()
        await world.send(master, b"one")
        asked = _asked(version)
        assert {code for _, code in asked} >= {21, 43, 45, 201}
        answers = {}
        for (port, code), command in asked.items():
            address = f"{master.ip}:{FAST_PORT}" if "fast" in port else master.address
            answers[code] = await world.tool.call(address, command, 5.0)
        assert {code: answer.code for code, answer in answers.items() if answer.code} == {}
        topics = json.loads(answers[RequestCode.GET_ALL_TOPIC_CONFIG].body)["topicConfigTable"]
        assert topics[TOPIC]["topicName"] == TOPIC
        groups = json.loads(answers[RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG].body)
        assert "subscriptionGroupTable" in groups


@virtual
async def test_offsets_for_slaves_have_quoted_keys_everywhere() -> None:
    """Known failure 26: a slave of 5.5 cannot read numbers as keys of `pullOffsetTable`."""
    async with pair() as world:
        master = world.node("brokerRole=ASYNC_MASTER\n")
        await master.start()
        await world.send(master, b"one")
        header = UpdateConsumerOffsetRequest(consumerGroup="CG", topic=TOPIC, queueId=0, commitOffset=1)
        assert (await world.call(master, RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == 0
        await world.pull(master)  # whose offset is noted, too
        answer = await world.call(master, RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert answer.code == ResponseCode.SUCCESS
        tables = json.loads(answer.body)  # which reads quoted keys only
        assert tables["offsetTable"][f"{TOPIC}@CG"] == {"0": 1}
