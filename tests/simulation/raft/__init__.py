"""Simulates a DLedger group: pure nodes, a network, disks and clocks, from one seed, without an event loop.

    python -m tests.simulation.raft --seeds 2000 --jobs 2       runs many seeds, prints those that fail
    python -m tests.simulation.raft --seed 17 --nodes 5         repeats one seed, prints what led to a failure
    python -m tests.simulation.raft.bugs "two votes in a term"  plants an error, which the checker must find

`world.py` runs a seed, `member.py` drives a node, `network.py` carries messages, `faults.py` has what goes
wrong, `check.py` judges the history. `bugs.py` plants errors into the node.
"""

from tests.simulation.raft.check import Anomaly, check
from tests.simulation.raft.transcript import transcript
from tests.simulation.raft.world import World

MAX_SHOWN = 5  # anomalies of a failing seed


def run(seed: int, members: int | None = None) -> None:
    """Runs a seed. Raises AssertionError for a broken promise, with what happened before it."""
    found = anomalies(seed, members)
    if not found:
        return
    history = World(seed, members, is_traced=True).run()
    shown = "\n".join(f"  {one}" for one in found[:MAX_SHOWN])
    raise AssertionError(f"{len(found)} anomalies\n{transcript(history, found[0])}\n{shown}")


def anomalies(seed: int, members: int | None = None) -> list[Anomaly]:
    """Returns what is wrong in a seed."""
    return check(World(seed, members).run())
