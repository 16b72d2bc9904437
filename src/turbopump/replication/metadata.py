"""Pulls the tables of an Apache master as its slaves do: topics, groups, offsets, delays, request modes.

In: the address of the master. Out: the contents of the files that keep these tables, by file name; with those
that must not be ahead of the log, the end of the master's log at a moment after they were read. A master
of ours is not asked: it pushes its tables over the replication connection. What a table means is not known
here. How far timers are (60, 61) is not asked for: a slave that becomes the master finds it in its log.
"""

import logging
from collections.abc import Callable

from turbopump.protocol.addresses import FAST_PORT_STEP, join_address, split_address
from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import request
from turbopump.remoting.client import Client
from turbopump.replication.comparison import CannotCompare, LogComparison

log = logging.getLogger(__name__)

Hold = Callable[[str, bytes, int], None]
"""Called with a file, its contents, and the end of the master's log that they count at most."""

INTERVAL_S = 10.0
CALL_TIMEOUT_S = 5.0

TABLES: tuple[tuple[RequestCode, str], ...] = (
    (RequestCode.GET_ALL_TOPIC_CONFIG, "topics.json"),
    (RequestCode.GET_ALL_CONSUMER_OFFSET, "consumerOffset.json"),
    (RequestCode.GET_ALL_DELAY_OFFSET, "delayOffset.json"),
    (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscriptionGroup.json"),
    (RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, "messageRequestMode.json"),
)
"""Request, and the file that its answer is the contents of.

The requests have no fields: asked with a place and a number, as its own slaves ask, 5.5 sends at most
`splitMetadataSize` (2,000) topics or groups in one answer; asked without, it sends all of them.
"""

BEHIND_LOG = (RequestCode.GET_ALL_DELAY_OFFSET,)
"""Tables that must not be ahead of the log: a delayed message counts as delivered whose copy is not here.

Offsets of consumers may be: they are lowered to the ends of their queues when a slave becomes the master.
"""

SINCE_5 = (RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,)
"""Requests that masters before 5.0 do not know: they have no such table."""


class MetadataPuller:
    """Asks an Apache master for its tables, and passes each to `take` with the name of its file."""

    def __init__(
        self, client: Client, comparison: LogComparison, take: Callable[[str, bytes], None], hold: Hold
    ) -> None:
        """`hold` gets the tables that wait for the log, `take` all others."""
        self._client = client
        self._comparison = comparison
        self._take = take
        self._hold = hold
        self._failed = ""

    async def pull(self, address: str) -> bool:
        """Asks for all tables; stops at a failure, and logs only the first of a series. True: all came."""
        behind: list[tuple[str, bytes]] = []
        try:
            for code, file in TABLES:
                answer = await self._client.call(_port_for(code, address), request(code), CALL_TIMEOUT_S)
                if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and code in SINCE_5:
                    continue
                if answer.code != ResponseCode.SUCCESS:
                    raise ValueError(f"request {code} was answered {answer.code} {answer.remark}")
                if code in BEHIND_LOG:
                    behind.append((file, answer.body))
                else:
                    self._take(file, answer.body)
            end = (await self._comparison.extent(address, is_ours=False)).end  # after the tables were read
            for file, contents in behind:
                self._hold(file, contents, end)
        except (OSError, ValueError, CannotCompare) as error:
            if not self._failed:
                log.warning("Cannot copy the tables of the master at %s; retrying: %s", address, error)
            self._failed = str(error)
            return False
        if self._failed:
            log.info("Copied the tables of the master at %s again", address)
        self._failed = ""
        return True


def _port_for(code: RequestCode, address: str) -> str:
    """Returns the address for a request: Apache's slaves ask the fast port for topics."""
    if code is not RequestCode.GET_ALL_TOPIC_CONFIG:
        return address
    host, port = split_address(address)
    return join_address(host, port + FAST_PORT_STEP)
