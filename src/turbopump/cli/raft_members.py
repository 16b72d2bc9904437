"""The members of a DLedger group as a table, from what those that answered know. Asks nothing itself."""

from collections.abc import Mapping

import msgspec

from turbopump.protocol.addresses import MASTER_ID
from turbopump.protocol.bodies import RaftPeer, RaftStatus
from turbopump.raft import Role
from turbopump.replication.dledger.group import slave_id

HEADINGS = ("MEMBER", "ROLE", "TERM", "LEADER", "COMMITTED/END", "BEHIND", "JOINED", "REACHABLE", "BROKER")
UNKNOWN = "-"


class MemberRow(msgspec.Struct, rename="camel"):
    """A member of a group; None where no member that answered knows it."""

    member: str
    peer_address: str
    """Where the other members reach it; empty: only it was asked, and it does not say."""
    role: str | None = None
    term: int | None = None
    leader: str | None = None
    committed_index: int | None = None
    end_index: int | None = None
    behind: int | None = None
    """Entries of the leader's log that it lacks."""
    is_joined: bool | None = None
    is_reachable: bool | None = None
    broker_address: str | None = None
    trouble: str = ""

    def cells(self) -> tuple[str, ...]:
        indexes = UNKNOWN if self.end_index is None else f"{_text(self.committed_index)}/{self.end_index}"
        return (
            self.member,
            _text(self.role),
            _text(self.term),
            _text(self.leader),
            indexes,
            _text(self.behind),
            _text(self.is_joined),
            _text(self.is_reachable),
            _text(self.broker_address),
        )


class GroupTable(msgspec.Struct, rename="camel"):
    """A group: its leader (empty: none), its members, and what is wrong with it."""

    group: str
    broker_name: str
    leader: str
    leader_address: str
    """Where clients reach the leader; empty: that is not known."""
    members: list[MemberRow]
    problems: list[str]

    def lines(self) -> list[str]:
        rows = [HEADINGS, *(row.cells() for row in self.members)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
        ]
        first = f"group {self.group}, broker name {self.broker_name}"
        return [first, *(line.rstrip() for line in table), *self.problems]


def group_table(name: str, statuses: Mapping[str, RaftStatus], silent: Mapping[int, str]) -> GroupTable:
    """Returns the table of a group.

    `statuses`: what members answered, by the address of their broker, at least one. `silent`: addresses of
    registered brokers that did not, by broker id: Apache's, or dead ones.
    """
    by_member = {status.member: (address, status) for address, status in statuses.items()}
    best = max((status for _, status in by_member.values()), key=lambda one: (_leads(one), one.term))
    leader = best.leader
    peers = {peer.member: peer for peer in best.peers}
    ends = {member: status.endIndex for member, (_, status) in by_member.items()}
    rows = []
    for member in sorted({*by_member, *peers}):
        if member in by_member:
            row = _asked(*by_member[member], _peer_address(member, statuses))
        else:
            row = _unasked(peers[member], silent.get(MASTER_ID if member == leader else _id_of(member)))
        if row.end_index is not None and (end := ends.get(leader)) is not None:
            row.behind = max(end - row.end_index, 0)
        rows.append(row)
    address = next((row.broker_address for row in rows if row.member == leader), None) or best.leaderAddress
    return GroupTable(best.group, name, leader, address or "", rows, _problems(leader, rows))


def _asked(address: str, status: RaftStatus, peer_address: str) -> MemberRow:
    return MemberRow(
        status.member,
        peer_address,
        status.role,
        status.term,
        status.leader or None,
        status.committedIndex,
        status.endIndex,
        is_joined=status.joined,
        is_reachable=True,
        broker_address=address,
        trouble=status.trouble,
    )


def _unasked(peer: RaftPeer, broker_address: str | None) -> MemberRow:
    return MemberRow(
        peer.member,
        peer.address,
        end_index=peer.matchIndex,
        is_reachable=peer.isReachable,
        broker_address=broker_address,
    )


def _problems(leader: str, rows: list[MemberRow]) -> list[str]:
    found = [] if leader else ["There is no leader: messages are refused until one is elected."]
    for row in rows:
        if not row.is_reachable:
            found.append(f"Member {row.member} at {row.peer_address} is missing.")
        if row.trouble:
            found.append(f"Member {row.member} stopped: {row.trouble}")
    return found


def _leads(status: RaftStatus) -> tuple[int, bool]:
    """Orders what members say of the leader: the later term, then the leader's own word."""
    return status.term if status.leader else -2, status.role == Role.LEADER.value


def _peer_address(member: str, statuses: Mapping[str, RaftStatus]) -> str:
    known = (peer.address for status in statuses.values() for peer in status.peers if peer.member == member)
    return next(known, "")


def _id_of(member: str) -> int:
    try:
        return slave_id(member)
    except ValueError:
        return -1


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return UNKNOWN if value is None else str(value)
