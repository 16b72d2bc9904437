"""Simulates a cluster: masters and slaves, promotions, name servers, clients, and faults of every kind.

Whole brokers on disks that lose and tear writes, on a network with delays, breaks and partitions, also in
one direction, with clocks that jump. `world.py` runs it, `operator.py` promotes and repairs, `clients.py`
send and read, `check.py` judges the history at the end. `bugs.py` plants errors that the checker must find.
"""

from tests.simulation.cluster.check import Anomaly
from tests.simulation.cluster.world import ClusterWorld

from turbopump.testing.loop import run_virtual

MAX_SHOWN = 5  # anomalies of a failing seed


def run(seed: int) -> None:
    """Runs a seed. Raises AssertionError for a broken guarantee, with the last events."""
    world = ClusterWorld(seed)
    found = run_virtual(world.run())
    if found:
        shown = "\n".join(f"  {one}" for one in found[:MAX_SHOWN])
        raise AssertionError(f"{len(found)} anomalies\n{world.history.transcript}\n{shown}")


def anomalies(seed: int) -> list[Anomaly]:
    """Returns what is wrong in a seed."""
    return run_virtual(ClusterWorld(seed).run())
