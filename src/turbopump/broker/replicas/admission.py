"""Decides whether an Apache slave may count: its last record must be the one that this log has there.

Apache's slaves compare nothing and say only where their log ends. In: the connection of such a slave and that
end. Out: why it is no copy, or None. The last whole record before its end is looked up in this log, the
slave's own address with the name servers, and the slave is asked for the record there (33). A slave that
cannot be asked is not admitted: it is sent the log, and asked again for the record before the end that it
had at first, also on its next connection. What it was sent here would prove nothing.
"""

import asyncio
import logging
from collections.abc import Callable

from turbopump.broker.config import BrokerConfig
from turbopump.protocol.addresses import MASTER_ID, split_address
from turbopump.protocol.bodies import ClusterInfo, KVTable
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import request
from turbopump.protocol.errors import BrokenBody
from turbopump.remoting.client import Client
from turbopump.replication.comparison import CALL_TIMEOUT_S, LogComparison
from turbopump.replication.master import NotCompared
from turbopump.replication.slave_connection import SlaveConnection
from turbopump.runtime.clock import Clock
from turbopump.runtime.network import Network
from turbopump.store.reading import QueueReader
from turbopump.store.replica_log import ReplicaLog

log = logging.getLogger(__name__)

MAX_TRIES = 3  # a slave whose master is configured may connect before it registers
RETRY_S = 2.0
MAPPED_IPV4 = "::ffff:"  # how a socket for both families shows an IPv4 peer
MAX_OPEN_HOSTS = 1000  # whose slaves are remembered as not compared yet
BYTES_PER_TURN = 256 << 10  # walked in one turn of the loop: about 1.5 ms with the smallest records


class SlaveAdmission:
    """Compares Apache slaves with the log of this broker before they count."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        client: Client,
        network: Network,
        clock: Clock,
        mine: ReplicaLog,
        reader: QueueReader,
    ) -> None:
        self._config = config
        self._client = client
        self._network = network
        self._clock = clock
        self._mine = mine
        self._reader = reader
        self._comparison = LogComparison(client, mine)
        self._open: dict[str, int] = {}  # the end of a slave's log that was not compared yet, by its host

    async def admit(self, connection: SlaveConnection, end: int) -> str | None:
        """Returns why the slave that reported `end` at first is no copy of this log; None: it is one.

        Raises NotCompared when the slave cannot be asked.
        """
        host = _host_of(connection)
        first_end = self._open.pop(host, end)
        if end == 0:
            return None
        end = min(end, first_end) if first_end > self._mine.min_offset else end
        try:
            offset, record = await self._compared_record(end)
            different = await self._asked_until_answered(connection, end, offset, record)
        except NotCompared:
            self._open[host] = end
            while len(self._open) > MAX_OPEN_HOSTS:
                del self._open[next(iter(self._open))]
            raise
        if not different:
            return None
        return (
            f"its log ended at {end}, but at {offset} it has another record than this log, or none (asked at "
            f"{different}): it is not a copy. Stop it, move its store away, and start it empty"
        )

    # the record in this log

    async def _compared_record(self, end: int) -> tuple[int, bytes]:
        """Returns log offset and bytes of the record that a slave whose log ended at `end` must have.

        It is the last one that ends by `end`, or the first of this log if `end` lies in that. Raises
        NotCompared if there is none.
        """
        mine = self._mine
        begin = end - 1 - (end - 1) % mine.file_size
        while begin >= mine.min_offset:
            offset = await self._last_in_file(begin, end)
            record = mine.record(offset) if offset >= mine.min_offset else None
            if record is not None:
                return offset, record
            begin -= mine.file_size
        first = mine.min_offset
        await self._reader.bring(((first, min(BYTES_PER_TURN, mine.end - first)),))
        record = mine.record(first) if first < end else None
        if record is None:
            raise NotCompared(f"this log has no record before its end {end}: start it empty")
        return first, record

    async def _last_in_file(self, begin: int, end: int) -> int:
        """Returns the log offset of the last record of the file at `begin` that ends by `end`; -1: none."""
        mine, last, at = self._mine, -1, begin
        stop = min(begin + mine.file_size, end)
        while mine.min_offset <= at < stop:
            part = min(at + BYTES_PER_TURN, stop)
            await self._reader.bring(((at, part - at),))
            if at < mine.min_offset:  # deleted meanwhile
                break
            found, at = mine.walk(at, part, end)
            last = max(last, found)
            await asyncio.sleep(0)
        return last

    # the record of the slave

    async def _asked_until_answered(
        self, connection: SlaveConnection, end: int, offset: int, record: bytes
    ) -> str:
        """Returns the address of a slave that lacks the record; empty when it has it. Raises NotCompared."""
        end = max(end, offset + len(record))
        if end > max(connection.acknowledged, connection.next_offset):
            raise NotCompared(f"its log ends at {connection.next_offset}, in the first record of this one")
        for attempt in range(1, MAX_TRIES + 1):
            try:
                addresses = await self._addresses(connection, end)
                for address in addresses:
                    if not await self._comparison.has_record(address, offset, record):
                        return address
                return ""
            except (OSError, BrokenBody, ValueError, NotCompared) as error:
                if attempt == MAX_TRIES:
                    raise NotCompared(str(error)) from error
            await self._clock.sleep(RETRY_S)
        raise AssertionError("the last attempt returns or raises")

    async def _addresses(self, connection: SlaveConnection, end: int) -> list[str]:
        """Returns addresses registered on the connection's host whose logs end where it reports.

        That is at `end`, or between the last report and what it was sent. Raises NotCompared without one.
        """
        host = _host_of(connection)
        there = [address for address in await self._registered() if await self._is_at(address, host)]
        if not there:
            raise NotCompared(f"no slave of this broker is registered with a name server on host {host}")
        least = max(end, connection.acknowledged)
        ends = [(address, await self._end_of(address)) for address in there]
        found = [address for address, its_end in ends if least <= its_end <= max(end, connection.next_offset)]
        if not found:
            raise NotCompared(f"no slave on host {host} has a log that ends at {least}")
        return found

    async def _registered(self) -> list[str]:
        """Returns the addresses of this broker's slaves, from a name server that answers. Raises OSError."""
        config = self._config()
        failure: OSError = ConnectionError("no name server is configured")
        for name_server in config.name_servers.addresses:
            try:
                question = request(RequestCode.GET_BROKER_CLUSTER_INFO)
                answer = await self._client.call(name_server, question, CALL_TIMEOUT_S)
            except OSError as error:
                failure = error
                continue
            found = ClusterInfo.decode(answer.body).brokerAddrTable.get(config.identity.broker_name)
            addresses = {} if found is None else found.brokerAddrs
            return [address for broker_id, address in addresses.items() if broker_id != MASTER_ID]
        raise failure

    async def _is_at(self, address: str, host: str) -> bool:
        try:
            registered = split_address(address)[0]
            return host in (registered, await self._network.resolve(registered))
        except (OSError, ValueError):
            return False

    async def _end_of(self, address: str) -> int:
        """Returns where the log of the slave at `address` ends; -1: it does not say."""
        question = request(RequestCode.GET_BROKER_RUNTIME_INFO)
        answer = await self._client.call(address, question, CALL_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            return -1
        figure = KVTable.decode(answer.body).table.get("commitLogMaxOffset", "")
        return int(figure) if figure.isdecimal() else -1


def _host_of(connection: SlaveConnection) -> str:
    return connection.address.rpartition(":")[0].removeprefix(MAPPED_IPV4)
