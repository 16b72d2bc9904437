"""Requests to name servers. They are independent: any of them can answer, and each must get every change."""

from collections.abc import Sequence
from typing import Protocol

from turbopump.client.errors import NoNameServer, Unreachable
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import refusal
from turbopump.remoting.connection import SpeaksHttp
from turbopump.runtime.chance import Chance

AS_BROKER = (
    "it answers like a broker; give the address of the name server, whose port is 9876 by default (a "
    "broker's is 10911)"
)
IN_HTTP = "it answers in HTTP; give the address of the name server, whose port is 9876 by default"


class Caller(Protocol):
    """Interface of `remoting.Client`: sends a request to an address and returns the answer."""

    async def call(self, address: str, request: Command, timeout_s: float) -> Command: ...


def successful(answer: Command, server: str = "") -> Command:
    """Returns `answer` if its code is SUCCESS; else raises Refused, with a note that names the server."""
    if answer.code != ResponseCode.SUCCESS:
        refused = refusal(answer.code, answer.remark)
        if server:
            refused.add_note(f"refused by {server}")
        raise refused
    return answer


class NameServers:
    """Sends requests to one name server, chosen at random, and to another one when it does not answer.

    The other one is chosen at random too: if each client took the next in the list, all clients of a name
    server that is restarted would go to the same one, and after a restart of each, all clients to one. The
    first choice is the home of this client: it is asked separately whether it can be used again.
    """

    addresses: tuple[str, ...] = ()
    _current = 0
    _home = ""

    def __init__(self, calls: Caller, addresses: Sequence[str], chance: Chance) -> None:
        self._calls = calls
        self._chance = chance
        self.replace(addresses)

    def replace(self, addresses: Sequence[str]) -> None:
        """Replaces the addresses; keeps the server in use if it is among them, else chooses one at random."""
        used = self.addresses[self._current] if self.addresses else None
        self.addresses = tuple(addresses)
        if used in self.addresses:
            self._current = self.addresses.index(used)
        elif self.addresses:
            self._current = self._chance.randrange(len(self.addresses))
        if self.addresses and self._home not in self.addresses:
            self._home = self.addresses[self._current]

    @property
    def is_away(self) -> bool:
        """Whether another server is in use than the one that was chosen first."""
        return bool(self.addresses) and self.addresses[self._current] != self._home

    async def ask_home(self, question: Command, timeout_s: float) -> Command:
        """Returns the answer of the server that was chosen first, and uses it no more than that."""
        return await self._calls.call(self._home, question, timeout_s)

    def return_home(self) -> None:
        """Uses the server that was chosen first from now on."""
        self._current = self.addresses.index(self._home)

    async def ask(self, question: Command, timeout_s: float) -> Command:
        """Returns the first answer, also a refusal; `timeout_s` is per server. Raises Unreachable if none.

        Raises NoNameServer when it is another kind of server.
        """
        failure = OSError("none is known")
        left = list(self.addresses)
        while left:
            address = self._used(left)
            left.remove(address)
            try:
                answer = await self._calls.call(address, question, timeout_s)
                if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise NoNameServer(f"{address} is not a name server: {AS_BROKER}")
                return answer
            except NoNameServer:
                raise
            except SpeaksHttp as error:
                raise NoNameServer(f"{address} is not a name server: {IN_HTTP}") from error
            except OSError as error:
                failure = error
        advice = "check name_servers=, and that they run"
        raise Unreachable(f"no name server answers ({failure}): {advice}") from failure

    def _used(self, left: Sequence[str]) -> str:
        """Returns the server in use if it is among those that are left, else uses one of them at random."""
        if self.addresses and (used := self.addresses[self._current]) in left:
            return used
        address = left[self._chance.randrange(len(left))]
        if address in self.addresses:
            self._current = self.addresses.index(address)
        return address
