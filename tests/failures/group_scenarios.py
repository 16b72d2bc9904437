"""The failures of a DLedger group. Each row fails, waits until clients have noticed, and ends the failure.

`chance` chooses members and how long each part lasts. Waits are for what clients see; a failure that lasts
longer than an election lasts until another member has acknowledged appends.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.failures.callers import LARGE, SIZES, CallLoad
from tests.failures.members import MEMBERS, ProxiedGroup

GIVEN_UP_S = 60.0
"""A group that acknowledges nothing so long after all failures have ended never will."""
ELECTED_S = 30.0
IN_TROUBLE_S = 6.0

GroupStep = Callable[[ProxiedGroup, CallLoad, random.Random], None]


@dataclass(frozen=True)
class GroupScenario:
    """One row of the table."""

    name: str
    title: str
    run: GroupStep
    small_disks: bool = False


def _leader(group: ProxiedGroup, load: CallLoad) -> int:
    """Returns who leads when appends are acknowledged."""
    assert load.wait_acknowledged(20, GIVEN_UP_S), "the group acknowledges nothing"
    leader = group.leader_now()
    return leader if leader is not None else group.leader()


def _others_go_on(load: CallLoad, chance: random.Random) -> None:
    """Waits until the members that are left have acknowledged appends."""
    load.wait_acknowledged(chance.randint(20, 120), ELECTED_S)


def _in_trouble(load: CallLoad, chance: random.Random) -> None:
    """Waits until some appends have ended, although none may be acknowledged."""
    load.wait_appends(chance.randint(10, 60), IN_TROUBLE_S)


def kill_leader(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    leader = _leader(group, load)
    group.kill(leader)
    if chance.random() < 0.7:
        _others_go_on(load, chance)
    group.launch(leader)


def kill_follower(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    follower = group.follower(_leader(group, load))
    group.kill(follower)
    _others_go_on(load, chance)
    group.launch(follower)


def kill_majority(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    """Kills the leader and a follower: what one member alone has must not count."""
    leader = _leader(group, load)
    killed = [leader, group.follower(leader)] if chance.random() < 0.5 else list(MEMBERS[:2])
    for number in killed:
        group.kill(number)
    _in_trouble(load, chance)
    for number in killed:
        group.launch(number)


def kill_all(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    _leader(group, load)
    for number in chance.sample(MEMBERS, 3):
        group.kill(number)
    for number in chance.sample(MEMBERS, 3):
        group.launch(number)


def pause_leader(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    leader = _leader(group, load)
    group.pause(leader)
    _others_go_on(load, chance)
    group.resume(leader)


def pause_follower(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    follower = group.follower(_leader(group, load))
    group.pause(follower)
    _others_go_on(load, chance)
    group.resume(follower)


def isolate_leader(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    """Cuts the leader off from both others, while clients reach all of them."""
    leader = _leader(group, load)
    others = [number for number in MEMBERS if number != leader]
    if chance.random() < 0.3:
        for other in others:
            group.reset(leader, other)
    else:
        group.cut(*((leader, other) for other in others), *((other, leader) for other in others))
    _others_go_on(load, chance)
    group.mend()


def isolate_follower(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    follower = group.follower(_leader(group, load))
    others = [number for number in MEMBERS if number != follower]
    group.cut(*((follower, other) for other in others), *((other, follower) for other in others))
    _others_go_on(load, chance)
    group.mend()


def cut_one_pair(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    """Cuts the ways between the leader and one follower: the third member reaches both."""
    leader = _leader(group, load)
    follower = group.follower(leader)
    group.cut((leader, follower), (follower, leader))
    _others_go_on(load, chance)
    group.mend()


def cut_ways_to_leader(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    """What the leader sends arrives, and nothing reaches it."""
    leader = _leader(group, load)
    group.cut(*((other, leader) for other in MEMBERS if other != leader))
    _others_go_on(load, chance)
    group.mend()


def silence_leader(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    """What the leader sends does not arrive, and everything reaches it."""
    leader = _leader(group, load)
    group.cut(*((leader, other) for other in MEMBERS if other != leader))
    _others_go_on(load, chance)
    group.mend()


def cut_in_a_circle(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    """Each member reaches one other one only."""
    _leader(group, load)
    group.cut((0, 1), (1, 2), (2, 0))
    _in_trouble(load, chance)
    group.mend()


def fill_disk_of_leader(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    _fill(group, load, chance, _leader(group, load))


def fill_disk_of_follower(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    _fill(group, load, chance, group.follower(_leader(group, load)))


def _fill(group: ProxiedGroup, load: CallLoad, chance: random.Random, number: int) -> None:
    """The member is started again at the end, since Apache's loses threads on a full disk."""
    group.disks[number].fill()
    load.send(LARGE)
    load.wait_appends(chance.randint(60, 150))
    load.send(SIZES)
    group.disks[number].free()
    if chance.random() < 0.5:
        _others_go_on(load, chance)
    group.kill(number)
    group.launch(number)


def pause_and_kill(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    """Stops the leader with SIGSTOP until another one leads, kills that one, and lets the first go on."""
    first = _leader(group, load)
    group.pause(first)
    _others_go_on(load, chance)
    second = group.leader_now()
    if second is not None:
        group.kill(second)
    group.resume(first)
    _in_trouble(load, chance)
    if second is not None:
        group.launch(second)


def isolate_and_kill(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    """Cuts the leader off until another one leads, then kills it, and ends the cut."""
    leader = _leader(group, load)
    others = [number for number in MEMBERS if number != leader]
    group.cut(*((leader, other) for other in others), *((other, leader) for other in others))
    _others_go_on(load, chance)
    victim = group.leader_now() if chance.random() < 0.5 else chance.choice(others)
    if victim is not None:
        group.kill(victim)
    group.mend()
    _in_trouble(load, chance)
    if victim is not None:
        group.launch(victim)


def storm(group: ProxiedGroup, load: CallLoad, chance: random.Random) -> None:
    """Five failures one upon another: each begins while what is left of the one before may go on."""
    for _ in range(5):
        number, other = chance.sample(MEMBERS, 2)
        step = chance.randrange(6)
        if step == 0 and group.is_running(number):
            group.kill(number)
        elif step == 1 and group.is_running(number):
            group.pause(number)
        elif step == 2:
            group.cut((number, other))
        elif step == 3:
            group.cut((number, other), (other, number))
        elif step == 4:
            group.mend()
        else:
            group.restore()
        load.wait_appends(chance.randint(5, 60), chance.uniform(0.5, IN_TROUBLE_S))
    group.restore()


GROUP_TABLE = (
    GroupScenario("kill-leader", "the leader is killed and comes back", kill_leader),
    GroupScenario("pause-leader", "SIGSTOP of the leader, another one leads, SIGCONT", pause_leader),
    GroupScenario("isolate-leader", "the leader is cut off, another one leads", isolate_leader),
    GroupScenario("pause-kill", "SIGSTOP of the leader, its successor is killed, SIGCONT", pause_and_kill),
    GroupScenario(
        "unreached-leader", "nothing reaches the leader, what it sends arrives", cut_ways_to_leader
    ),
    GroupScenario("storm", "five failures, one upon another", storm),
    GroupScenario("kill-all", "all members are killed and come back", kill_all),
    GroupScenario("silent-leader", "what the leader sends does not arrive", silence_leader),
    GroupScenario("cut-pair", "leader and one follower do not reach each other", cut_one_pair),
    GroupScenario("kill-majority", "two members are killed and come back", kill_majority),
    GroupScenario("isolate-kill", "the leader is cut off, another one killed", isolate_and_kill),
    GroupScenario("cut-circle", "each member reaches one other one only", cut_in_a_circle),
    GroupScenario("full-leader", "the leader's disk is full, then has space", fill_disk_of_leader, True),
    GroupScenario("full-follower", "a follower's disk is full, then has space", fill_disk_of_follower, True),
    GroupScenario("kill-follower", "a follower is killed and comes back", kill_follower),
    GroupScenario("pause-follower", "SIGSTOP and SIGCONT of a follower", pause_follower),
    GroupScenario("isolate-follower", "a follower is cut off", isolate_follower),
)
