"""Errors that are planted into the node, each by a small patch, and the anomalies by which they show.

`hunt` runs seeds until the checker has found one. A checker that finds nothing proves nothing.

    python -m tests.simulation.raft.bugs "two votes in a term"
"""

import contextlib
import sys
from dataclasses import dataclass

from tests.simulation.raft import planted
from tests.simulation.raft.check import check
from tests.simulation.raft.planted import Plant
from tests.simulation.raft.world import World

from turbopump.raft.incoming_pushes import IncomingPushes
from turbopump.raft.leader import Leader
from turbopump.raft.member import RaftMember as NodeState
from turbopump.raft.pending_appends import PendingAppends


@dataclass(frozen=True, slots=True)
class Bug:
    """A planted error, the anomalies that show it, and within how many seeds one of them must be found."""

    name: str
    plant: Plant
    shows_as: tuple[str, ...]
    within: int


def hunt(bug: Bug) -> int | None:
    """Returns how many seeds it took to find the bug; None: it was not found."""
    with bug.plant():
        for seed in range(bug.within):
            world = World(seed)
            with contextlib.suppress(Exception):  # what a broken node raises is no verdict of the checker
                world.run()
            if any(one.name in bug.shows_as for one in check(world.history)):
                return seed + 1
    return None


BUGS = (
    Bug(
        "vote answered before it is saved",
        lambda: planted.changed_effects(planted.answer_before_saving),
        ("vote not saved", "term not saved"),
        5,
    ),
    Bug("vote not saved", lambda: planted.changed_effects(planted.save_without_vote), ("vote not saved",), 5),
    Bug("term not saved", lambda: planted.changed_effects(planted.save_nothing), ("term not saved",), 5),
    Bug(
        "two votes in a term",
        lambda: planted.decide_otherwise(planted.vote_again),
        ("two votes", "two leaders"),
        20,
    ),
    Bug("votes without a look at the log", planted.ignore_logs, ("leader lacks a committed entry",), 60),
    Bug(
        "an empty disk votes at once",
        planted.forget_that_it_is_new,
        ("two votes", "two leaders", "leader lacks a committed entry", "two committed entries"),
        200,
    ),
    Bug(
        "an empty disk counts as an answer",
        lambda: planted.decide_otherwise(planted.answer_as_a_voter),
        ("no progress",),
        1000,
    ),
    Bug(
        "leader again in its term",
        planted.lead_again_in_a_term,
        ("log matching", "two committed entries"),
        500,
    ),
    Bug(
        "commit by counting an earlier term",
        planted.replaced(Leader, "_commit", planted.commit_any_term),
        ("commit of an earlier term",),
        20,
    ),
    Bug(
        "commit of what is not flushed",
        planted.replaced(Leader, "_commit", planted.commit_unsynced),
        ("commit without a majority",),
        20,
    ),
    Bug(
        "commit of an unverified index",
        planted.replaced(IncomingPushes, "_commit", planted.commit_unverified),
        ("two committed entries", "committed entry cut off"),
        200,
    ),
    Bug(
        "commit beyond the log",
        planted.replaced(IncomingPushes, "_commit", planted.commit_all_that_leader_says),
        ("commit beyond the log",),
        20,
    ),
    Bug(
        "commit beyond the log at start", planted.keep_commits_beyond_the_log, ("commit beyond the log",), 200
    ),
    Bug(
        "commit index falls",
        planted.replaced(NodeState, "commit", planted.commit_as_told),
        ("commit index fell",),
        20,
    ),
    Bug(
        "acknowledged index never falls",
        planted.never_lower_acknowledged_index,
        ("commit without a majority", "leader lacks a committed entry"),
        200,
    ),
    Bug("acknowledged before the flush", planted.acknowledge_unsynced, ("commit without a majority",), 20),
    Bug("truncation in memory only", planted.bring_back_what_was_cut, ("log matching", "log changed"), 500),
    Bug(
        "late truncation",
        planted.obey_late_truncates,
        ("committed entry cut off", "commit without a majority"),
        200,
    ),
    Bug("repeated push appended twice", planted.append_repeated_pushes, ("gap",), 20),
    Bug(
        "no truncation",
        planted.replaced(IncomingPushes, "_take", planted.take_without_truncating),
        ("log matching", "two committed entries"),
        60,
    ),
    Bug(
        "appends forgotten at the end of a role",
        planted.replaced(PendingAppends, "role_lost", planted.forget_appends),
        ("append not answered",),
        20,
    ),
    Bug(
        "appends without a deadline",
        planted.replaced(PendingAppends, "expire", planted.nothing),
        ("append not answered",),
        60,
    ),
    Bug("early pushes without an answer", planted.answer_no_early_pushes, ("request not answered",), 60),
    Bug(
        "leader without a majority",
        planted.replaced(Leader, "_majority_lost_ms", property(lambda self: 1 << 60)),
        ("leader without a majority",),
        60,
    ),
)


def main() -> int:
    names = sys.argv[1:] or [bug.name for bug in BUGS]
    missed = 0
    for bug in BUGS:
        if bug.name in names:
            seeds = hunt(bug)
            missed += seeds is None
            verdict = f"found by seed {seeds - 1}" if seeds else f"NOT FOUND within {bug.within} seeds"
            print(f"{bug.name}: {verdict}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
