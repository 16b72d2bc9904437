"""Simulates global transactions: XA, TCC and SAGA at once, with faults in every part; and 3PC, alone.

`coordinator.py` is the broker (TC), `databases.py` the participants (RM). Processes that open transactions
(TM) are in worlds with an odd seed those of users (`coordinators.py`: `Coordinator` as it is), in the others
the machines with as little as possible around them (`clients.py`). `world.py` has the faults and the judge,
`three_phase.py` is a world of its own, `bugs.py` has errors that are planted to try the judge.
"""

import asyncio
from typing import Any
from unittest import mock

from tests.simulation.globals.three_phase import TERMINATION, Fault, ThreePhaseWorld
from tests.simulation.globals.world import GlobalsWorld

from turbopump.runtime.tasks import Tasks
from turbopump.testing.loop import run_virtual


def run(seed: int) -> GlobalsWorld:
    """Runs a seed. Raises AssertionError for a broken guarantee."""
    for fault in (Fault.NONE, Fault.COORDINATOR, Fault.PARTICIPANT, Fault.BOTH):
        outcome = ThreePhaseWorld(seed, TERMINATION, fault).run()
        assert not outcome.split, f"3PC has split, although only this has happened: {fault}"
        assert not outcome.blocked, f"3PC has blocked: {fault}"
    outcome = ThreePhaseWorld(seed, TERMINATION, Fault.PARTITION).run()
    assert outcome.found == outcome.split, "the coordinator of 3PC has not found a split, or a wrong one"
    surprises: list[object] = []

    def ended(self: Tasks, task: "asyncio.Task[Any]") -> None:
        self._forget(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            surprises.append(error)

    async def main() -> GlobalsWorld:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: surprises.append(context))
        world = GlobalsWorld(seed)
        world.surprises = surprises
        await world.live()
        return world

    with mock.patch.object(Tasks, "_ended", ended):
        return run_virtual(main())
