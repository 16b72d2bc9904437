"""Questions to name servers. They know nothing of each other: any of them can answer, all must be told."""

from collections.abc import Sequence
from typing import Protocol

from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command
from turbopump.protocol.errors import refusal
from turbopump.runtime.chance import Chance


class Calls(Protocol):
    """What the client needs of `remoting.Client`."""

    async def call(self, address: str, request: Command, timeout_s: float) -> Command: ...


def successful(answer: Command, server: str = "") -> Command:
    """The answer, if it is one; else the refusal that it stands for is raised, noting who refused."""
    if answer.code != ResponseCode.SUCCESS:
        refused = refusal(answer.code, answer.remark)
        if server:
            refused.add_note(f"refused by {server}")
        raise refused
    return answer


class NameServers:
    def __init__(self, calls: Calls, addresses: Sequence[str], chance: Chance) -> None:
        if not addresses:
            raise ValueError("a client needs the address of a name server")
        self._calls = calls
        self.addresses = tuple(addresses)
        self._current = chance.randrange(len(addresses))

    async def ask(self, question: Command, timeout_s: float) -> Command:
        """The answer of one of them, whatever its code. Raises OSError when none answers."""
        failure: OSError | None = None
        for _ in self.addresses:
            try:
                return await self._calls.call(self.addresses[self._current], question, timeout_s)
            except OSError as error:
                failure = error
                self._current = (self._current + 1) % len(self.addresses)
        assert failure is not None
        raise failure
