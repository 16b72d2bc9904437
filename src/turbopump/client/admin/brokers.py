"""One broker, by its address: runtime figures, configuration, upkeep."""

from dataclasses import dataclass

from turbopump.client.admin.asking import Asking
from turbopump.protocol import bodies
from turbopump.protocol.codes import RequestCode


@dataclass
class Brokers:
    asking: Asking

    async def figures(self, address: str) -> dict[str, str]:
        """What `brokerStatus` shows: each broker version has its own set of keys."""
        answer = await self.asking.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return bodies.KVTable.decode(answer.body).table
