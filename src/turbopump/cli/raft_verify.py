"""`turbopump raft verify`: compares the directories of stopped members of a DLedger group."""

import argparse

import msgspec

from turbopump.cli.failures import FAILED, CommandFailure
from turbopump.cli.store import store_in
from turbopump.runtime.disk import SystemDisk
from turbopump.store.dledger.member_comparison import MemberComparison, MemberState, compare_members
from turbopump.store.location import dledger_id


def add_directories(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directories", metavar="DIR", nargs="+", help="store directory of a member, with dledger-ID/ in it"
    )


def verify(options: argparse.Namespace) -> int:
    directories = [_member_in(directory) for directory in options.directories]
    if len(set(directories)) < 2:
        raise CommandFailure("give the store directories of two members or more")
    found = compare_members(dict.fromkeys(directories), SystemDisk())
    print(msgspec.json.encode(found).decode() if options.json else text_of(found))
    return 0 if found.is_equal else FAILED


def _member_in(directory: str) -> str:
    found = store_in(directory, with_dledger=True)
    if not dledger_id(found, SystemDisk()):
        raise CommandFailure(f"{directory} must be the store of a DLedger member, but has no dledger-ID/data")
    return found


def text_of(found: MemberComparison) -> str:
    lines = [_line_of(member) for member in found.members]
    lines += [f"note: {note}" for note in found.notes]
    lines += [f"DIFFERENT: {difference}" for difference in found.differences]
    if (hidden := found.differing - len(found.differences)) > 0:
        lines.append(f"and {hidden} more differences")
    compared = f"{found.compared} entries are committed by two members or more"
    if found.compared:
        compared += f", {found.first} to {found.last}"
    lines.append(f"{compared}: " + ("equal" if found.is_equal else f"{found.differing} differences"))
    return "\n".join(lines)


def _line_of(member: MemberState) -> str:
    vote = f"voted for {member.vote}" if member.vote else "no vote"
    term = f"term {member.term}, {vote}" if member.term >= 0 else "no term yet"
    entries = f"entries {member.begin} to {member.end}" if member.end >= 0 else "no entries"
    committed = (
        f"committed up to {member.committed}" if member.committed >= 0 else "none known to be committed"
    )
    return f"{member.node} {member.directory}: {term}; {entries}, {committed}"
