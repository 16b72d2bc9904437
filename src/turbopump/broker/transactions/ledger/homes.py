"""Reads the book of a transactional id: here, or by a request to the broker that is its home.

In: an id, its home by name, and the batches of interest. Out: the book with those entries, or None while its
home cannot be asked. A broker's address comes from the name servers and is cached until a call fails. Books
are not cached, although a decision never changes once it is made.
"""

import logging
from collections.abc import Sequence

from turbopump.broker.transactions.ledger.local_books import LocalBooks
from turbopump.protocol import ledger as wire
from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.bodies import ClusterInfo
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import request
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.headers.ledger import LedgerReadRequest
from turbopump.protocol.ledger import Book
from turbopump.remoting.client import Client
from turbopump.runtime.clock import Clock
from turbopump.runtime.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

CALL_TIMEOUT_S = 3.0
TROUBLE_INTERVAL_S, MAX_TROUBLE_LINES = 60.0, 5


class BookHomes:
    """Reads books of the ledger: those of this broker, and those of other brokers by a request."""

    def __init__(
        self, local: LocalBooks, broker_name: str, client: Client, name_servers: Sequence[str], clock: Clock
    ) -> None:
        self._local = local
        self._name = broker_name
        self._client = client
        self._name_servers = name_servers
        self._clock = clock
        self._addresses: dict[str, str] = {}
        self._trouble = RateLimitedLog(log, TROUBLE_INTERVAL_S, logging.WARNING, MAX_TROUBLE_LINES)

    async def book(self, id: str, home: str, batches: Sequence[int]) -> Book | None:
        """Returns the book of an id from its home broker; None: not reachable, or it does not know the id."""
        if home == self._name:
            return self._local.find(id)
        try:
            address = self._addresses.get(home) or await self._find(home)
            header = LedgerReadRequest(id=id)
            question = request(RequestCode.LEDGER_READ, header, wire.encode(batches))
            answer = await self._client.call(address, question, CALL_TIMEOUT_S)
            if answer.code != ResponseCode.SUCCESS:
                raise ConnectionError(f"it answers {answer.code} {answer.remark}")
            return wire.read_book(answer.body)
        except (OSError, BrokenBody) as error:
            self._addresses.pop(home, None)
            words = "Cannot ask broker %s, the home of %s; its half messages wait: %s"
            self._trouble.log(self._clock.monotonic(), words, home, id, error)
            return None

    async def _find(self, home: str) -> str:
        failure: OSError = ConnectionError("no name server knows it")
        for name_server in self._name_servers:
            try:
                question = request(RequestCode.GET_BROKER_CLUSTER_INFO)
                answer = await self._client.call(name_server, question, CALL_TIMEOUT_S)
            except OSError as error:
                failure = error
                continue
            found = ClusterInfo.decode(answer.body).brokerAddrTable.get(home)
            if found is not None and MASTER_ID in found.brokerAddrs:
                self._addresses[home] = found.brokerAddrs[MASTER_ID]
                return self._addresses[home]
        raise failure
