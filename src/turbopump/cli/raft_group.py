"""`turbopump raft status` and `transfer`: ask the running members of a DLedger group."""

import argparse
import asyncio
import time

import msgspec

from turbopump.cli import connect
from turbopump.cli.failures import FAILED, CommandFailure
from turbopump.cli.raft_members import GroupTable, group_table
from turbopump.client.admin import Admin
from turbopump.client.admin.clusters import BrokerAt
from turbopump.protocol.bodies import RaftStatus
from turbopump.protocol.errors import Refused, ServiceNotAvailable

ELECTED_WITHIN_S = 10.0
POLL_S = 0.2


def add_group(action: argparse.ArgumentParser) -> None:
    """Adds what names a group: a broker name at the name servers, or the address of a member."""
    action.add_argument("name", metavar="BROKER_NAME", nargs="?", help="default: the only one there is")
    action.add_argument(
        "-n",
        "--namesrv",
        metavar="ADDR",
        help=f"name servers, separated by ';' (default: NAMESRV_ADDR or {connect.DEFAULT_ADDRESS})",
    )
    action.add_argument(
        "-b", "--broker", metavar="ADDR", help="ask this member, host:port, and no name server"
    )


# --- status ----------------------------------------------------------------------------------------------


def status(options: argparse.Namespace) -> int:
    return asyncio.run(_status(options))


async def _status(options: argparse.Namespace) -> int:
    found = await _ask(options)
    print(msgspec.json.encode(found).decode() if options.json else "\n".join(found.lines()))
    return FAILED if found.problems else 0


async def _ask(options: argparse.Namespace) -> GroupTable:
    if options.broker:
        async with Admin([]) as admin:
            return await _ask_one(admin, connect.checked(options.broker))
    async with connect.administration(options.namesrv) as admin:
        return await _ask_all(admin, options.name)


async def _ask_one(admin: Admin, address: str) -> GroupTable:
    """Returns the group as one of its members knows it."""
    try:
        status = await admin.brokers.raft_status(address)
    except OSError as error:
        raise CommandFailure(f"{address} does not answer: {error}") from None
    except Refused as refused:
        raise CommandFailure(f"{address} is no Turbopump broker of a DLedger group: {refused}") from None
    return group_table(status.brokerName, {address: status}, {})


async def _ask_all(admin: Admin, name: str | None) -> GroupTable:
    """Returns the group of a broker name, after asking all its members that are registered."""
    brokers = _brokers_of(name, (await admin.clusters.layout()).brokers)
    answers = await asyncio.gather(*(_answer(admin, broker.address) for broker in brokers))
    statuses = {
        broker.address: answer
        for broker, answer in zip(brokers, answers, strict=True)
        if isinstance(answer, RaftStatus)
    }
    if not statuses:
        reasons = "; ".join(
            f"{broker.address}: {answer}" for broker, answer in zip(brokers, answers, strict=True)
        )
        raise CommandFailure(f"no broker of {brokers[0].name} tells about a DLedger group ({reasons})")
    silent = {broker.id: broker.address for broker in brokers if broker.address not in statuses}
    return group_table(brokers[0].name, statuses, silent)


async def _answer(admin: Admin, address: str) -> RaftStatus | str:
    """Returns the status of a member, or why there is none."""
    try:
        return await admin.brokers.raft_status(address)
    except (OSError, Refused) as error:
        return str(error).splitlines()[0]


def _brokers_of(name: str | None, brokers: tuple[BrokerAt, ...]) -> list[BrokerAt]:
    names = sorted({broker.name for broker in brokers})
    if not names:
        raise CommandFailure("no broker is registered at the name servers: ask a member, with -b HOST:PORT")
    if name is None and len(names) > 1:
        raise CommandFailure(f"there are several broker names: give one of {', '.join(names)}")
    found = [broker for broker in brokers if broker.name == (name or names[0])]
    if not found:
        raise CommandFailure(f"there is no broker {name}: {', '.join(names)}")
    return found


# --- transfer --------------------------------------------------------------------------------------------


class Transferred(msgspec.Struct, rename="camel"):
    """Result of a transfer: who led before, who leads now."""

    broker_name: str
    before: str
    leader: str
    is_moved: bool

    def line(self) -> str:
        if not self.is_moved:
            return f"{self.leader} leads {self.broker_name} already"
        return f"{self.leader} leads {self.broker_name} now, in place of {self.before}"


def add_transfer(action: argparse.ArgumentParser) -> None:
    action.add_argument("member", metavar="MEMBER", help="the member that is to lead: n1")
    add_group(action)


def transfer(options: argparse.Namespace) -> int:
    return asyncio.run(_transfer(options))


async def _transfer(options: argparse.Namespace) -> int:
    found = await _ask(options)
    before, member = found.leader, options.member
    known = [row.member for row in found.members]
    if member not in known:
        raise CommandFailure(f"{member} is no member of {found.broker_name}: give one of {', '.join(known)}")
    if not before:
        raise CommandFailure(f"{found.broker_name} has no leader that could give the leadership away")
    if before != member:
        await _move(options, found)
    done = Transferred(found.broker_name, before, member, before != member)
    print(msgspec.json.encode(done).decode() if options.json else done.line())
    return 0


async def _move(options: argparse.Namespace, found: GroupTable) -> None:
    if not found.leader_address:
        raise CommandFailure(f"where {found.leader}, the leader, listens for clients is not known: give -n")
    async with Admin([]) as admin:
        try:
            await admin.brokers.raft_transfer(found.leader_address, options.member)
        except ServiceNotAvailable:
            await _until_leader(options)
        except OSError as error:
            raise CommandFailure(
                f"{found.leader} at {found.leader_address} did not answer ({error}); "
                "see who leads: turbopump raft status"
            ) from None


async def _until_leader(options: argparse.Namespace) -> None:
    """Waits until the wanted member leads, after the old leader has ended its role and does not know."""
    deadline = time.monotonic() + ELECTED_WITHIN_S
    while (leader := (await _ask(options)).leader) != options.member:
        if time.monotonic() > deadline:
            raise CommandFailure(f"{options.member} did not take over: {leader or 'no member'} leads")
        await asyncio.sleep(POLL_S)
