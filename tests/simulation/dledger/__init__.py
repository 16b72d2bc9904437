"""Simulates a DLedger group: three whole brokers that elect their master, a name server, clients, faults.

`world.py` runs it, `faults.py` says what may go wrong, `member_node.py` is one broker. Clients, history and
checker are those of the world `cluster`; in a group nothing that was acknowledged may be lost. `bugs.py`
plants errors that the checker must find.
"""

from tests.simulation.cluster import MAX_SHOWN
from tests.simulation.dledger.world import DLedgerWorld

from turbopump.testing.loop import run_virtual


def run(seed: int) -> None:
    """Runs a seed. Raises AssertionError for a broken guarantee, with the last events."""
    world = DLedgerWorld(seed)
    found = run_virtual(world.run())
    if found:
        shown = "\n".join(f"  {one}" for one in found[:MAX_SHOWN])
        raise AssertionError(f"{len(found)} anomalies\n{world.history.transcript}\n{shown}")
