"""Effects that happen once, messages that are part of a database transaction, and transactions over several.

`idempotent` records which messages a group has processed, in the transaction of their effects. `outbox`
stores messages in the transaction that causes them and relays them until a broker has stored them. A
`Coordinator` makes work in several databases, services and brokers one transaction: XA, TCC or SAGA.

    from turbopump.transactions import Coordinator

    with Coordinator("bank", resources={"icbc": icbc_connect, "ccb": ccb_connect}) as bank:
        with bank.xa() as t:
            t["icbc"].execute("UPDATE accounts SET cents = cents - 1000000 WHERE id = 'A'")
            t["ccb"].execute("UPDATE accounts SET cents = cents + 1000000 WHERE id = 'B'")

The coordinator here is blocking; `turbopump.transactions.aio` has the one for asyncio. Names are imported
when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turbopump.transactions.blocking.coordinator import Coordinator, TccTransaction, XaTransaction
    from turbopump.transactions.distributed.command_handler import participant
    from turbopump.transactions.distributed.figures import CoordinatorFigures
    from turbopump.transactions.distributed.machine import GlobalOutcome, Phase
    from turbopump.transactions.distributed.participants import BranchCall, Saga, Tcc
    from turbopump.transactions.distributed.resources import SqliteLastResource, XaResource
    from turbopump.transactions.distributed.retries import Retry
    from turbopump.transactions.distributed.saga_runs import SagaOutcome
    from turbopump.transactions.errors import (
        Aborted,
        Contradicted,
        Declined,
        FenceRefused,
        InDoubt,
        Later,
        NotTried,
        Parked,
        WorkUndone,
    )

__all__ = [
    "Aborted",
    "BranchCall",
    "Contradicted",
    "Coordinator",
    "CoordinatorFigures",
    "Declined",
    "FenceRefused",
    "GlobalOutcome",
    "InDoubt",
    "Later",
    "NotTried",
    "Parked",
    "Phase",
    "Retry",
    "Saga",
    "SagaOutcome",
    "SqliteLastResource",
    "Tcc",
    "TccTransaction",
    "WorkUndone",
    "XaResource",
    "XaTransaction",
    "participant",
]

_DISTRIBUTED = "turbopump.transactions.distributed"
_HOMES = {
    **dict.fromkeys(
        ("Coordinator", "TccTransaction", "XaTransaction"), "turbopump.transactions.blocking.coordinator"
    ),
    **dict.fromkeys(("BranchCall", "Saga", "Tcc"), f"{_DISTRIBUTED}.participants"),
    **dict.fromkeys(("GlobalOutcome", "Phase"), f"{_DISTRIBUTED}.machine"),
    **dict.fromkeys(("SqliteLastResource", "XaResource"), f"{_DISTRIBUTED}.resources"),
    "participant": f"{_DISTRIBUTED}.command_handler",
    "CoordinatorFigures": f"{_DISTRIBUTED}.figures",
    "Retry": f"{_DISTRIBUTED}.retries",
    "SagaOutcome": f"{_DISTRIBUTED}.saga_runs",
}
"""Name → the module that defines it; all others are exceptions."""


def __getattr__(name: str) -> Any:
    """Imports a name at its first use: a program with an outbox does not load a coordinator."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name!r}")
    found = getattr(import_module(_HOMES.get(name, "turbopump.transactions.errors")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
