"""Administers one broker, by its address: runtime figures, statistics, configuration, clean-up."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from turbopump.client.admin.calls import AdminCalls
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.conf import ConfigError, pack_properties, parse_properties
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.headers.admin import ViewBrokerStatsDataRequest
from turbopump.protocol.headers.replicas import RaftTransferRequest
from turbopump.protocol.headers.topics import GetBrokerConsumeStatsRequest

StatsName = Literal["TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS"]
"""Kinds of counters. The key is the topic, or `topic@group` for counters of groups."""

CONSUME_STATS_TIMEOUT_S = 50.0
RAFT_TRANSFER_TIMEOUT_S = 10.0  # a member that lacks entries gets them first: 3 s at most


@dataclass
class Brokers:
    """Administers one broker, by its address: runtime figures, statistics, configuration, clean-up.

    Example:

        for broker in (await admin.clusters.layout()).brokers:
            figures = await admin.brokers.figures(broker.address)
            print(broker.name, figures["brokerVersionDesc"], figures["msgPutTotalTodayNow"])
    """

    asking: AdminCalls

    async def figures(self, address: str) -> dict[str, str]:
        """Returns the runtime figures of a broker, as `mqadmin brokerStatus` shows them.

        Each version of a broker has its own set of keys.

        Example:

            (await admin.brokers.figures("127.0.0.1:10911"))["putTps"]
        """
        answer = await self.asking.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return bodies.KVTable.decode(answer.body).table

    async def ha_status(self, address: str) -> bodies.HARuntimeInfo:
        """Returns how far the slaves of a master are, or what a slave knows of its master. Needs 5.x.

        Example:

            for slave in (await admin.brokers.ha_status("127.0.0.1:10911")).haConnectionInfo:
                print(slave.addr, slave.diff, slave.inSync)
        """
        answer = await self.asking.ask(address, RequestCode.GET_BROKER_HA_STATUS)
        return bodies.HARuntimeInfo.decode(answer.body)

    async def raft_status(self, address: str) -> bodies.RaftStatus:
        """Returns what a broker knows of its DLedger group. Raises Refused at a broker in none, or of Apache.

        Example:

            status = await admin.brokers.raft_status("127.0.0.1:10911")
            print(status.member, status.role, status.term, status.leader, status.leaderAddress)
        """
        answer = await self.asking.ask(address, RequestCode.RAFT_STATUS)
        return bodies.RaftStatus.decode(answer.body)

    async def raft_transfer(
        self, address: str, member: str, timeout_s: float = RAFT_TRANSFER_TIMEOUT_S
    ) -> None:
        """Has the leader of a DLedger group, by its address, give the leadership to another member.

        Returns when that member leads. Raises Refused if the asked one does not lead, or with why it failed.

        Example:

            await admin.brokers.raft_transfer(status.leaderAddress, "n1")
        """
        header = RaftTransferRequest(member)
        await self.asking.ask(address, RequestCode.RAFT_TRANSFER, header, timeout_s=timeout_s)

    async def statistics(self, address: str, name: StatsName, key: str) -> bodies.BrokerStatsData:
        """Returns sum and rate of a counter over the last minute, hour and day. Raises Refused without data.

        Example:

            found = await admin.brokers.statistics(address, "TOPIC_PUT_NUMS", "OrderTopic")
            print(found.statsMinute.tps, found.statsDay.sum)
        """
        header = ViewBrokerStatsDataRequest(name, key)
        answer = await self.asking.ask(address, RequestCode.VIEW_BROKER_STATS_DATA, header)
        return bodies.BrokerStatsData.decode(answer.body)

    async def consume_stats(
        self, address: str, of_order_topics: bool = False, timeout_s: float = CONSUME_STATS_TIMEOUT_S
    ) -> bodies.ConsumeStatsList:
        """Returns the committed offsets of all groups in all queues of a broker, and the queues' ends.

        Example:

            for by_group in (await admin.brokers.consume_stats(address)).consumeStatsList: ...
        """
        header = GetBrokerConsumeStatsRequest(of_order_topics)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        answer = await self.asking.ask(address, code, header, timeout_s=timeout_s)
        return bodies.ConsumeStatsList.decode(answer.body)

    async def config(self, address: str) -> dict[str, str]:
        """Returns all settings of a broker, by Apache's names.

        Example:

            (await admin.brokers.config(address))["flushDiskType"]
        """
        answer = await self.asking.ask(address, RequestCode.GET_BROKER_CONFIG)
        return properties_of(answer.body)

    async def update_config(self, address: str, changes: Mapping[str, str]) -> None:
        """Changes settings while the broker runs, and in its file. Raises Refused for one that cannot change.

        Example:

            await admin.brokers.update_config(address, {"fileReservedTime": "48"})
        """
        body = pack_properties(changes)
        await self.asking.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    async def clean_expired_queues(self, address: str) -> None:
        """Makes a broker delete the consume-queue files whose messages are gone from its commit log."""
        await self.asking.ask(address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)

    async def clean_unused_topics(self, address: str) -> None:
        """Makes a broker delete the consume queues of topics that no longer exist there."""
        await self.asking.ask(address, RequestCode.CLEAN_UNUSED_TOPIC)

    async def delete_expired_files(self, address: str) -> None:
        """Makes a broker delete commit-log files past their retention now, instead of at `deleteWhen`."""
        await self.asking.ask(address, RequestCode.DELETE_EXPIRED_COMMITLOG)


def properties_of(body: bytes) -> dict[str, str]:
    try:
        return {entry.key: entry.value for entry in parse_properties(body)}
    except ConfigError as error:
        raise BrokenBody(f"no properties: {error}") from None
