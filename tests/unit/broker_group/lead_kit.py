"""Has a chosen member of a group lead."""

from tests.unit.broker_group.kit import Group, member_of
from tests.unit.replication.kit import Node

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.headers.replicas import RaftTransferRequest

OK = ResponseCode.SUCCESS


async def lead(world: Group, target: Node) -> None:
    """Gives the leadership to a member."""
    leader = await world.leader()
    if leader is not target:
        header = RaftTransferRequest(member=member_of(target).group.own_id)
        answer = await world.call(leader, RequestCode.RAFT_TRANSFER, header)
        assert answer.code == OK, answer
        await world.until(lambda: world.leader_now() is target)
