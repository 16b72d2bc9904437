"""The table of failures: each row starts with a pair in sync under load, and ends with the broker to read.

A function says with `pair.lost` which broker has lost messages or is out of the pair from then on; everything
else is counted from the history. `chance` decides how long each part lasts.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.failures.count import OK
from tests.failures.links import ThreadedLink, Way
from tests.failures.load import LARGE, SIZES, Load
from tests.failures.pairs import Node, Pair

DISK_SIZE = 96 << 20
SLOW_BYTES_PER_S = 20_000
SELDOM_SYNCED = {"flushIntervalCommitLog": "2000"}
GIVEN_UP_S = 25.0
"""A pair that is not in sync after this time will not be."""
TRUSTED_S = 12.0
"""So long after its start a master whose slave has another log may answer SEND_OK, which must not be."""


@dataclass(frozen=True)
class End:
    """The broker whose messages count, and the other one if it must have the same."""

    read: Node
    copy: Node | None = None


Run = Callable[[Pair, Load, random.Random], End]


@dataclass(frozen=True)
class Scenario:
    """One row of the table."""

    name: str
    title: str
    run: Run
    conf: Mapping[str, str] = field(default_factory=dict)
    disk_of: str = ""
    """The broker whose disk is small."""


def work(load: Load, chance: random.Random) -> None:
    """Lets the pair work in sync for a while."""
    load.wait(OK, chance.randint(40, 200))


def kill_master(pair: Pair, load: Load, chance: random.Random) -> End:
    pair.a.kill()
    pair.lost(pair.a)
    load.wait_sends(chance.randint(4, 12))
    return End(pair.b)


def restart_master(pair: Pair, load: Load, chance: random.Random) -> End:
    pair.a.kill()
    load.wait_sends(chance.randint(1, 8))
    pair.a.start()
    load.wait(OK, within_s=GIVEN_UP_S)
    return End(pair.a, pair.b)


def destroy_master(pair: Pair, load: Load, chance: random.Random) -> End:
    pair.destroy(pair.a)
    return go_on_at_slave(pair, load, chance)


def join_empty_slave(pair: Pair, load: Load, chance: random.Random) -> End:
    load.wait(OK, 1000)  # more than one file of the log
    pair.destroy(pair.b)
    load.wait_answers(4)
    pair.follow_empty(pair.b, pair.a)
    load.wait(OK, within_s=GIVEN_UP_S)
    return End(pair.a, pair.b)


def replace_disk_of_master(pair: Pair, load: Load, chance: random.Random) -> End:
    pair.destroy(pair.a)
    pair.a.start()
    pair.make_topic(pair.a)
    load.wait(OK, chance.randint(20, 60), TRUSTED_S)
    return promote_slave(pair, load, chance)


def cut_power_of_master(pair: Pair, load: Load, chance: random.Random) -> End:
    pair.a.cut_power()
    pair.lost(pair.a)
    pair.a.start()
    load.wait(OK, chance.randint(20, 60), TRUSTED_S)
    return promote_slave(pair, load, chance)


def promote_slave(pair: Pair, load: Load, chance: random.Random) -> End:
    """Takes the master out of the pair; its slave becomes the master."""
    pair.a.kill()
    pair.lost(pair.a)
    return go_on_at_slave(pair, load, chance)


def go_on_at_slave(pair: Pair, load: Load, chance: random.Random) -> End:
    """Promotes the slave of a master that is dead."""
    pair.promote(pair.b)
    load.wait_answers(chance.randint(5, 20))
    return End(pair.b)


def return_old_master(pair: Pair, load: Load, chance: random.Random) -> End:
    """The old master has records that the new one never had; it returns as a slave, then it is alone."""
    pair.a.link.cut()
    load.wait_answers(chance.randint(4, 20))
    promote_slave(pair, load, chance)
    pair.follow(pair.a, pair.b)
    load.wait(OK, chance.randint(20, 60), TRUSTED_S)
    pair.destroy(pair.b)
    pair.promote(pair.a)
    load.wait_answers(5)
    return End(pair.a)


def kill_slave(pair: Pair, load: Load, chance: random.Random) -> End:
    pair.b.kill()
    load.wait_answers(chance.randint(4, 20))
    pair.b.start()
    load.wait(OK, within_s=GIVEN_UP_S)
    return End(pair.a, pair.b)


def cut_power_of_slave(pair: Pair, load: Load, chance: random.Random) -> End:
    pair.b.cut_power()
    return return_slave(pair, load, chance)


def tear_log_of_slave(pair: Pair, load: Load, chance: random.Random) -> End:
    """Brokers print what is not synced in tenths of a unit: the cut may even be below what was synced."""
    pair.b.cut_power(unit=1)
    return return_slave(pair, load, chance)


def return_slave(pair: Pair, load: Load, chance: random.Random) -> End:
    """Starts the slave again, and promotes it when its master is gone."""
    load.wait_answers(chance.randint(4, 20))
    pair.b.start()
    if not load.wait(OK, within_s=GIVEN_UP_S):
        pair.lost(pair.b)
    return promote_slave(pair, load, chance)


def pause_slave(pair: Pair, load: Load, chance: random.Random) -> End:
    pair.b.pause()
    load.wait_sends(chance.randint(4, 12))
    pair.b.resume()
    load.wait(OK, within_s=GIVEN_UP_S)
    return End(pair.a, pair.b)


def pause_master(pair: Pair, load: Load, chance: random.Random) -> End:
    pair.a.pause()
    load.wait_sends(chance.randint(4, 8))
    pair.a.resume()
    load.wait(OK, within_s=GIVEN_UP_S)
    return End(pair.a, pair.b)


def resume_after_promotion(pair: Pair, load: Load, chance: random.Random) -> End:
    """The master goes on when its slave has been promoted: for a while there are two masters."""
    pair.a.pause()
    pair.promote(pair.b)
    load.wait_answers(chance.randint(5, 20))
    pair.a.resume()
    load.wait_sends(chance.randint(20, 100))
    pair.a.kill()
    pair.lost(pair.a)
    load.wait_answers(chance.randint(5, 20))
    return End(pair.b)


def fail_and_mend(fail: Callable[[ThreadedLink], None]) -> Run:
    """Returns a scenario in which the link fails and is restored."""

    def run(pair: Pair, load: Load, chance: random.Random) -> End:
        fail(pair.a.link)
        load.wait_sends(chance.randint(8, 24))
        pair.a.link.mend()
        load.wait(OK, within_s=GIVEN_UP_S)
        return End(pair.a, pair.b)

    return run


def fail_link(fail: Callable[[ThreadedLink], None]) -> Run:
    """Returns a scenario in which the link fails and is restored, then fails again, and the master dies."""

    def run(pair: Pair, load: Load, chance: random.Random) -> End:
        fail_and_mend(fail)(pair, load, chance)
        fail(pair.a.link)
        load.wait_sends(chance.randint(4, 12))
        pair.a.kill()
        pair.lost(pair.a)
        pair.a.link.cut()  # what it has kept is lost
        return End(pair.b)

    return run


LINK_FAILURES: tuple[Callable[[ThreadedLink], None], ...] = (
    ThreadedLink.cut,
    ThreadedLink.freeze,
    lambda link: link.one_way(Way.FORTH),
    lambda link: link.one_way(Way.BACK),
    lambda link: link.slow(SLOW_BYTES_PER_S, 0.05),
)


def storm(pair: Pair, load: Load, chance: random.Random) -> End:
    """Some failures that a pair survives, one after another; then the master's disk is gone."""
    steps = [restart_master, kill_slave, pause_slave, pause_master, *map(fail_and_mend, LINK_FAILURES)]
    for step in chance.sample(steps, 3):
        step(pair, load, chance)
    return destroy_master(pair, load, chance)


def fill_disk(pair: Pair, load: Load, chance: random.Random) -> End:
    """The broker is started again at the end, since Apache's loses threads on a full disk."""
    assert pair.disk is not None
    full = pair.a if pair.disk_of == "a" else pair.b
    pair.disk.fill()
    load.sizes = LARGE
    assert load.wait_trouble(chance.randint(4, 20)), "the full disk was not noticed"
    load.sizes = SIZES
    pair.disk.free()
    load.wait(OK, within_s=TRUSTED_S)
    full.kill()
    full.start()
    load.wait(OK, within_s=GIVEN_UP_S)
    return End(pair.a, pair.b)


TABLE = (
    Scenario("kill-master", "the master is killed; its slave is read", kill_master),
    Scenario("restart-master", "the master is killed and comes back", restart_master),
    Scenario("destroy-master", "the master's disk is gone; its slave is promoted", destroy_master),
    Scenario(
        "replace-disk",
        "the master comes back with an empty disk; later its slave is promoted",
        replace_disk_of_master,
    ),
    Scenario(
        "power-master",
        "the master loses what it had not synced; later its slave is promoted",
        cut_power_of_master,
        SELDOM_SYNCED,
    ),
    Scenario(
        "old-master",
        "the slave is promoted, the old master returns as its slave, then is promoted",
        return_old_master,
    ),
    Scenario("kill-slave", "the slave is killed and comes back", kill_slave),
    Scenario("empty-slave", "the slave comes back with an empty disk", join_empty_slave),
    Scenario(
        "power-slave",
        "the slave loses what it had not synced and comes back; then it is promoted",
        cut_power_of_slave,
        SELDOM_SYNCED,
    ),
    Scenario(
        "torn-slave",
        "the same, but the cut is at any byte, inside of a record",
        tear_log_of_slave,
        SELDOM_SYNCED,
    ),
    Scenario("pause-slave", "SIGSTOP and SIGCONT of the slave", pause_slave),
    Scenario("pause-master", "SIGSTOP and SIGCONT of the master", pause_master),
    Scenario(
        "two-masters",
        "SIGSTOP of the master, its slave is promoted, SIGCONT of the old master",
        resume_after_promotion,
    ),
    Scenario(
        "cut-link",
        "the link is cut and restored; it fails again, and the master dies",
        fail_link(LINK_FAILURES[0]),
    ),
    Scenario("freeze-link", "the link passes nothing; the same", fail_link(LINK_FAILURES[1])),
    Scenario("link-to-master", "the link passes reports and no data; the same", fail_link(LINK_FAILURES[2])),
    Scenario("link-to-slave", "the link passes data and no reports; the same", fail_link(LINK_FAILURES[3])),
    Scenario(
        "slow-link",
        f"the link passes {SLOW_BYTES_PER_S // 1000} kB/s, 50 ms late; the same",
        fail_link(LINK_FAILURES[4]),
    ),
    Scenario("storm", "three failures in turn, then the master's disk is gone", storm),
    Scenario(
        "full-slave",
        "the slave's disk is full, has space again, and the slave is restarted",
        fill_disk,
        disk_of="b",
    ),
    Scenario(
        "full-master",
        "the master's disk is full, has space again, and the master is restarted",
        fill_disk,
        disk_of="a",
    ),
)
