"""Simulates global transactions: XA, TCC and SAGA at once, with faults in every part; and 3PC, alone.

`coordinator.py` is the broker (TC), `databases.py` the participants (RM), `clients.py` the processes that
open transactions (TM), `world.py` the faults and the judge, `three_phase.py` a world of its own, `bugs.py`
errors that are planted to try the judge.
"""

import asyncio

from tests.simulation.globals.three_phase import TERMINATION, Fault, ThreePhaseWorld
from tests.simulation.globals.world import GlobalsWorld

from turbopump.testing.loop import run_virtual


def run(seed: int) -> GlobalsWorld:
    """Runs a seed. Raises AssertionError for a broken guarantee."""

    async def main() -> GlobalsWorld:
        world = GlobalsWorld(seed)
        surprises: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: surprises.append(context))
        await world.live()
        assert not surprises, f"an unforeseen exception: {surprises[0]}"
        return world

    for fault in (Fault.NONE, Fault.COORDINATOR, Fault.PARTICIPANT, Fault.BOTH):
        outcome = ThreePhaseWorld(seed, TERMINATION, fault).run()
        assert not outcome.split, f"3PC has split, although only this has happened: {fault}"
        assert not outcome.blocked, f"3PC has blocked: {fault}"
    outcome = ThreePhaseWorld(seed, TERMINATION, Fault.PARTITION).run()
    assert outcome.found == outcome.split, "the coordinator of 3PC has not found a split, or a wrong one"
    return run_virtual(main())
