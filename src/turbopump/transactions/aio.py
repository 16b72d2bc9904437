"""Global transactions for asyncio, with the names of the blocking ones in `turbopump.transactions`.

    from turbopump.transactions.aio import Coordinator

    async with Coordinator("bank", resources={"icbc": icbc_connect, "ccb": ccb_connect}) as bank:
        async with bank.xa() as t:
            await t["icbc"].execute("UPDATE accounts SET cents = cents - 1000000 WHERE id = 'A'")
            await t["ccb"].execute("UPDATE accounts SET cents = cents + 1000000 WHERE id = 'B'")

A coordinator belongs to the event loop in which it is first used.
"""

from turbopump.client.settings import ClientSettings
from turbopump.client.signature import spelled_out
from turbopump.transactions.distributed.command_handler import participant
from turbopump.transactions.distributed.coordinator import Coordinator
from turbopump.transactions.distributed.figures import CoordinatorFigures
from turbopump.transactions.distributed.machine import GlobalOutcome, Phase
from turbopump.transactions.distributed.participants import BranchCall, Saga, Tcc
from turbopump.transactions.distributed.resources import SqliteLastResource, XaResource
from turbopump.transactions.distributed.retries import Retry
from turbopump.transactions.distributed.saga_runs import SagaOutcome
from turbopump.transactions.distributed.tcc_block import TccTransaction
from turbopump.transactions.distributed.xa_block import XaTransaction
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

spelled_out(ClientSettings)(Coordinator)
