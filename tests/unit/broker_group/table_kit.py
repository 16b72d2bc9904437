"""Set-up of tests about tables that survive a failover."""

from tests.unit.broker_group.kit import Group
from tests.unit.replication.kit import Node

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.headers.offsets import QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest

SAVED_S = 8.0  # offsets are saved, and in the log of the group


async def commit(world: Group, node: Node, offset: int) -> None:
    header = UpdateConsumerOffsetRequest(consumerGroup="CG", topic="T", queueId=0, commitOffset=offset)
    answer = await world.call(node, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    assert answer.code == ResponseCode.SUCCESS, answer


async def committed(world: Group, node: Node) -> str | None:
    header = QueryConsumerOffsetRequest(consumerGroup="CG", topic="T", queueId=0)
    answer = await world.call(node, RequestCode.QUERY_CONSUMER_OFFSET, header)
    return (answer.ext or {}).get("offset")
