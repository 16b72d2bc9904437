"""Ends sends that wait at a silent broker when another one has become the master in its place.

A process that stands still, or that cannot be reached, keeps its connections: a send would wait until its
time is over, though another member of its DLedger group leads by now. So connections with sends that got
no answer for a while are looked at, and the name servers asked: if the address is no master any longer, the
connection is ended, and the sends go on to the next master. A broker that is only slow keeps them.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from turbopump.client.produce.sender import main_address
from turbopump.client.routes import RouteCache
from turbopump.protocol.codes import RequestCode
from turbopump.runtime.clock import Clock
from turbopump.runtime.tasks import Tasks

log = logging.getLogger(__name__)

LOOK_S = 1.0
SILENT_S = 2.0  # without an answer, before a name server is asked
SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})


class WaitingCalls(Protocol):
    """What is used of `remoting.Client`: which connections are silent, and their end."""

    def silent(self, codes: Collection[int], for_s: float) -> list[str]:
        """Returns the addresses where a request of these codes waits so long, and nothing came since."""

    def is_waiting(self, codes: Collection[int]) -> bool:
        """Whether a request of these codes waits for its answer."""

    def abandon(self, address: str) -> None:
        """Ends the connection; its calls fail."""


@dataclass
class MovedMasters:
    """Looks for sends that wait at a broker that is no master any longer, every second while sends wait."""

    calls: WaitingCalls
    routes: RouteCache
    clock: Clock
    is_vip: bool = False
    """Whether sends go to the fast ports of brokers."""
    is_idle: bool = True
    """Whether no send waited at the last look, so that the next one has to say `sending`."""
    _tasks: Tasks = field(default_factory=lambda: Tasks(log))

    def sending(self) -> None:
        """Begins to look, until no send waits any more: an idle producer never wakes up."""
        self.is_idle = False
        self._tasks.start(self._run(), name="look for masters that have moved")

    async def close(self) -> None:
        await self._tasks.close()
        self.is_idle = False  # nothing is begun any more

    async def _run(self) -> None:
        try:
            await self.clock.sleep(LOOK_S)
            while self.calls.is_waiting(SENDS):
                for address in self.calls.silent(SENDS, SILENT_S):
                    await self._look(address)
                await self.clock.sleep(LOOK_S)
        finally:
            self.is_idle = True

    async def _look(self, address: str) -> None:
        """Ends the connection to an address when its brokers have other masters by now."""
        master = main_address(address) if self.is_vip else address
        brokers = self.routes.led_from(master)
        for topic, broker in brokers:
            await self.routes.renew(topic)
            route = self.routes.known(topic)
            if route is None or route.master(broker) in (master, None):
                return  # nobody has taken over yet
        if brokers:
            log.info("%s does not answer, and is no master any more: sends go to the new one", address)
            self.calls.abandon(address)
