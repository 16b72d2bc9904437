"""A coordinator and participants of TCC and SAGA."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from turbopump.testing.cluster import AsyncCluster
from turbopump.transactions.distributed.coordinator import Coordinator
from turbopump.transactions.distributed.participants import BranchCall, Tcc


@dataclass
class Order:
    id: str
    cents: int


@dataclass
class Ledger:
    """What participants have done, in order, with failures to come."""

    done: list[str] = field(default_factory=list)
    fails: dict[str, list[Exception]] = field(default_factory=dict)
    holds: dict[str, asyncio.Event] = field(default_factory=dict)
    inputs: list[object] = field(default_factory=list)

    async def note(self, what: str, input: object) -> None:
        if what in self.holds:
            await self.holds[what].wait()
        if self.fails.get(what):
            raise self.fails[what].pop(0)
        self.done.append(what)
        self.inputs.append(input)


def participant(name: str, ledger: Ledger) -> Tcc[Order]:
    made = Tcc[Order](name)

    @made.try_
    async def freeze(call: BranchCall, order: Order) -> str:
        await ledger.note(f"try {name}", order)
        return f"frozen {order.cents}"

    @made.confirm
    async def take(call: BranchCall, order: Order) -> None:
        await ledger.note(f"confirm {name}", order)

    @made.cancel
    async def release(call: BranchCall, order: Order) -> None:
        await ledger.note(f"cancel {name}", order)

    return made


def coordinator(cluster: AsyncCluster, *participants: Any) -> Coordinator:
    return Coordinator(
        "bank", name_servers=cluster.name_servers, participants=participants, world=cluster.world
    )


ORDER = Order("A-1", 10)
