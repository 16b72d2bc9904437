"""Three whole brokers of one DLedger group and a name server, in memory and virtual time."""

import contextlib
from collections.abc import AsyncIterator

from tests.unit.replication.kit import Node, Pair

from turbopump.broker.dledger.member import GroupMember
from turbopump.broker.server import Broker
from turbopump.protocol.bodies import RaftStatus
from turbopump.protocol.codes import RequestCode
from turbopump.raft import Role

RAFT_PORT = 40911
MEMBERS = ("n0", "n1", "n2")
PEERS = ";".join(f"n{number}-10.0.0.{number + 1}:{RAFT_PORT}" for number in range(len(MEMBERS)))


def conf(member: str, more: str = "", peers: str = PEERS) -> str:
    """Returns the settings that make a broker a member of the group."""
    group = f"dLegerGroup=broker-a\ndLegerPeers={peers}\ndLegerSelfId={member}\n"
    return f"enableDLegerCommitLog=true\n{group}{more}"


class Group(Pair):
    """A name server and the brokers of a group."""

    async def start(self, more: str = "", members: tuple[str, ...] = MEMBERS) -> None:
        for member in members:
            await self.node(conf(member, more)).start()
        await self.joined()

    async def joined(self, within_s: float = 60.0) -> None:
        """Waits until every member votes: one with an empty disk does not at once."""
        await self.until(
            lambda: all(member_of(node).server.status().joined for node in self.running), within_s
        )

    @property
    def running(self) -> list[Node]:
        return [node for node in self.nodes if node.broker is not None]

    def leader_now(self) -> Node | None:
        """Returns the broker that serves as master of the highest term; None: there is none."""
        serving = [node for node in self.running if not broker_of(node).config.identity.is_slave]
        return max(serving, key=lambda node: member_of(node).term, default=None)

    async def leader(self, within_s: float = 30.0) -> Node:
        """Waits until a broker serves as master."""

        def serves() -> bool:
            node = self.leader_now()
            return node is not None and member_of(node).server.role is Role.LEADER

        await self.until(serves, within_s)
        node = self.leader_now()
        assert node is not None
        return node

    def followers(self) -> list[Node]:
        return [node for node in self.running if node is not self.leader_now()]

    async def equal(self, within_s: float = 30.0) -> None:
        """Waits until all brokers have committed and dispatched the same."""
        logs = [node.store.log for node in self.running]
        await self.until(
            lambda: (
                len({log.dispatched for log in logs}) == 1
                and logs[0].dispatched == max(log.end for log in logs)
            ),
            within_s,
        )

    async def status(self, node: Node) -> RaftStatus:
        return RaftStatus.decode((await self.call(node, RequestCode.RAFT_STATUS)).body)


def broker_of(node: Node) -> Broker:
    assert node.broker is not None, "the broker does not run"
    return node.broker


def member_of(node: Node) -> GroupMember:
    member = broker_of(node).member
    assert member is not None, "the broker is in no group"
    return member


@contextlib.asynccontextmanager
async def group(more: str = "", seed: int = 1) -> AsyncIterator[Group]:
    """Runs a name server and three brokers of one group."""
    world = Group(seed)
    await world.name_server.start()
    try:
        await world.start(more)
        yield world
    finally:
        await world.close()
