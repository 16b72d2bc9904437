"""What goes wrong in a group, and what an operator does: a table of actions on a world."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.raft.history import Note, Stop
from tests.simulation.raft.network import TOOL

from turbopump.raft import PeerUnreachable, Role, Transfer
from turbopump.raft.messages import TransferRequest

if TYPE_CHECKING:
    from tests.simulation.raft.member import Member
    from tests.simulation.raft.world import World

MAX_TIMEOUTS_FROZEN = 2
MAX_TIMEOUTS_CUT = 3
"""How many leader timeouts a member stands still, and ways are cut, at most."""
MAX_EFFECTS_TO_DEATH = 8
MAX_APPENDS_BEFORE_FAULT = 4
MAX_MOMENT_MS = 20
LEADER_SHARE = 0.5
"""How often a fault meets a leader."""


def _kill(world: "World") -> None:
    if (member := _victim(world)) is not None:
        _append_some(world)
        world.later(MAX_MOMENT_MS * world.chance.random(), _die, world, member, member.life)


def _die(world: "World", member: "Member", life: int) -> None:
    if member.life == life:
        world.die(member)


def _kill_all(world: "World") -> None:
    _append_some(world)
    for member in list(world.members.values()):
        if member.node is not None:
            world.die(member)


def _kill_soon(world: "World") -> None:
    """Lets a member die between two of its next effects."""
    if (member := _victim(world)) is not None:
        member.fuse = int(world.chance.random() * MAX_EFFECTS_TO_DEATH)
        _append_some(world)


def _append_some(world: "World") -> None:
    """Lets a leader have entries that others lack, sometimes."""
    if not world.is_calm and world.chance.random() < 0.5:
        world.append_at_leader("a", 1 + int(MAX_APPENDS_BEFORE_FAULT * world.chance.random()))


def _replace_disk(world: "World") -> None:
    """Gives a member an empty disk, unless another one still lacks what it lost.

    Sometimes the present leader is cut off at the same time, so that earlier ones are heard by the new disk.
    """
    member = _victim(world)
    if member is None or not all(one.disk.saved.joined for one in world.members.values()):
        return
    world.die(member, Stop.DISK_LOST)
    leading = [one for one in world.members.values() if one.node and one.node.role is Role.LEADER]
    if leading and world.chance.random() < LEADER_SHARE:
        last = max(leading, key=lambda one: one.node.term if one.node else 0)
        _cut_off(world, {last.name})


def _cut_group(world: "World") -> None:
    """Cuts some members off from the others."""
    names = list(world.members)
    leader = world.leader()
    world.chance.shuffle(names)
    _cut_off(
        world,
        {leader.name} if leader and world.chance.random() < LEADER_SHARE else set(names[: len(names) // 2]),
    )


def _cut_off(world: "World", side: set[str]) -> None:
    names = list(world.members)
    ways = {(one, other) for one in names for other in names if (one in side) != (other in side)}
    _cut(world, ways, f"{' '.join(sorted(side))} cut off")


def _cut_ways(world: "World") -> None:
    """Cuts some ways, each in one direction."""
    names = list(world.members)
    share = 0.15 + 0.35 * world.chance.random()
    ways = {
        (one, other) for one in names for other in names if one != other and world.chance.random() < share
    }
    _cut(world, ways, "ways cut: " + " ".join(f"{one}→{other}" for one, other in sorted(ways)))


def _cut(world: "World", ways: set[tuple[str, str]], text: str) -> None:
    world.network.cut = ways
    world.note(Note(world.now, text))
    for part in (0.01, 0.1, 0.2):
        world.later(part * world.plan.timeout_ms, _append_some, world)
    world.later(_while(world, MAX_TIMEOUTS_CUT), _heal, world, ways)


def _heal(world: "World", ways: set[tuple[str, str]]) -> None:
    if world.network.cut is ways:
        world.network.cut = set()
        world.note(Note(world.now, "all ways open"))
        if "kill soon" in world.plan.fault_kinds and world.chance.random() < LEADER_SHARE:
            _kill_soon(world)  # while logs are compared and cut


def _break_connections(world: "World") -> None:
    """Ends the connections between two members."""
    one, other = world.chance.sample(list(world.members.values()), 2)
    one.do(one.event, PeerUnreachable(other.name))
    other.do(other.event, PeerUnreachable(one.name))


def _freeze(world: "World") -> None:
    member = _victim(world)
    if member is None or member.is_busy:
        return
    member.freeze()
    world.note(Note(world.now, f"{member.name} is stopped for a while"))
    world.later(_while(world, MAX_TIMEOUTS_FROZEN), _thaw, world, member, member.life)


def _thaw(world: "World", member: "Member", life: int) -> None:
    if member.life == life and member.is_frozen:
        world.note(Note(world.now, f"{member.name} goes on"))
        member.thaw()


def _slow_disk(world: "World") -> None:
    member = world.chance.choice(list(world.members.values()))
    member.save_ms, member.flush_ms = 300 * world.chance.random(), 1000 * world.chance.random()
    world.note(Note(world.now, f"slow disk of {member.name}: {member.save_ms:.0f}, {member.flush_ms:.0f} ms"))
    world.later(_while(world, MAX_TIMEOUTS_FROZEN), member.usual_disk)


def _transfer(world: "World") -> None:
    """Asks a leader, mostly, to give the leadership to a member: an operator at its host, or a tool."""
    asked = world.leader() or _victim(world)
    if asked is None or asked.node is None:
        return
    to_member = world.chance.choice(list(world.members))
    world.note(Note(world.now, f"an operator asks {asked.name} to let {to_member} lead"))
    if world.chance.random() < 0.5:
        asked.do(asked.event, Transfer(to_member))
    else:
        request = TransferRequest(asked.node.term, asked.name, to_member, -1)
        asked.do(asked.receive, TOOL, 0, request, request)


def _expire(world: "World") -> None:
    if (member := _victim(world)) is not None and not member.is_busy:
        member.expire_log()


def _while(world: "World", max_timeouts: float) -> float:
    """Returns how long something lasts, more often short than long."""
    return float(world.plan.timeout_ms * max_timeouts * world.chance.random() ** 2)


def _victim(world: "World") -> "Member | None":
    """Returns a running member, often one that leads."""
    running = [member for member in world.members.values() if member.node is not None]
    if not running:
        return None
    if world.chance.random() < LEADER_SHARE:
        leading = [member for member in running if member.node and member.node.role is Role.LEADER]
        if leading:
            return world.chance.choice(leading)
    return world.chance.choice(running)


FAULTS: dict[str, Callable[["World"], None]] = {
    "kill": _kill,
    "kill all": _kill_all,
    "kill soon": _kill_soon,
    "replace a disk": _replace_disk,
    "cut a group": _cut_group,
    "cut ways": _cut_ways,
    "break connections": _break_connections,
    "freeze": _freeze,
    "slow disk": _slow_disk,
    "transfer": _transfer,
    "expire": _expire,
}
