"""`turbopump replica`: shows how far copies of a log are, compares two, sets the tail of one aside."""

import argparse
import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import msgspec

from turbopump.admin.render import json_text
from turbopump.cli import connect
from turbopump.cli.arguments import add_action
from turbopump.cli.broker import load as load_config
from turbopump.cli.conf_file import ConfFile
from turbopump.cli.exits import warn
from turbopump.cli.failures import FAILED, CommandFailure
from turbopump.cli.promote import status_of
from turbopump.cli.records import moment
from turbopump.cli.store import store_in
from turbopump.protocol.bodies import ReplicaStatus
from turbopump.protocol.errors import BrokenRecord
from turbopump.protocol.record import Record, decode
from turbopump.remoting.client import Client
from turbopump.replication.comparison import CannotCompare, Extent
from turbopump.replication.difference import (
    BrokerLog,
    DirectoryLog,
    first_difference,
    first_foreign_record,
)
from turbopump.replication.progress import FILE, CopyState
from turbopump.runtime.clock import Clock, SystemClock
from turbopump.runtime.disk import AlreadyLocked, Disk, SystemDisk, SystemWorkers, Workers
from turbopump.store.config import StoreConfig
from turbopump.store.config_files import ConfigFiles
from turbopump.store.rebuild import config_of
from turbopump.store.stopped_log import StoppedLog
from turbopump.store.tail import Tail, set_aside, tail_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    added = {
        name: add_action(actions, name, summary, EXAMPLES[name]) for name, (summary, _) in ACTIONS.items()
    }
    added["status"].add_argument("address", metavar="ADDRESS", help="a broker of ours, host:port")
    compare, resync = added["compare"], added["resync"]
    compare.add_argument("slave", metavar="SLAVE", help="a slave, host:port, or the store of a stopped one")
    compare.add_argument("master", metavar="MASTER", help="its master, host:port")
    compare.add_argument(
        "--whole", action="store_true", help="compare every byte instead of searching by bisection"
    )
    resync.add_argument(
        "directory", metavar="STORE_DIR", help="store of a stopped slave, or of an old master"
    )
    resync.add_argument("master", metavar="MASTER", help="the master that it will follow, host:port")
    resync.add_argument(
        "-c", "--configFile", metavar="FILE", help="the broker's configuration, for its store"
    )
    resync.add_argument("--yes", action="store_true", help="do it; without, only tell what would be done")
    for action in added.values():
        action.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    _, action = ACTIONS[options.action]
    return asyncio.run(action(options))


@contextlib.asynccontextmanager
async def _client() -> AsyncIterator[Client]:
    client = connect.client()
    try:
        yield client
    except CannotCompare as error:
        raise CommandFailure(str(error)) from None
    finally:
        await client.close()


# --- status ----------------------------------------------------------------------------------------------


async def _status(options: argparse.Namespace) -> int:
    async with _client() as client:
        status = await status_of(client, connect.checked(options.address))
    print(status.encode().decode() if options.json else status_text(options.address, status))
    return 0


def status_text(address: str, status: ReplicaStatus) -> str:
    """Returns the status of a broker in lines."""
    lines = [
        f"{address}  {status.brokerName} id {status.brokerId}  {status.role}",
        f"  log         {status.begin} to {status.end}, on disk up to {status.synced}, "
        f"in queues up to {status.dispatched}",
    ]
    if status.role == "SLAVE":
        lines.append(f"  state       {status.state}" + (f": {status.trouble}" if status.trouble else ""))
        lines.append(f"  master      {status.master or 'unknown'}, last heard {_heard(status.heardMs)}")
        lines.append(f"  copy        {'incomplete: ' + status.missing if status.missing else 'complete'}")
        return "\n".join(lines)
    if not status.slaves:
        lines.append("  no slave is connected")
    for slave in status.slaves:
        name = "Apache's" if slave.brokerId < 0 else f"id {slave.brokerId}"
        on_disk = "" if slave.synced < 0 else f", on disk up to {slave.synced}"
        sync = "in sync" if slave.isInSync else "not in sync"
        lines.append(
            f"  slave       {slave.address} {name}: {sync}, has the log up to {slave.received}{on_disk}, "
            f"behind by {slave.behindBytes} bytes, {slave.behindMs} ms"
        )
    return "\n".join(lines)


def _heard(heard_ms: int) -> str:
    return moment(heard_ms) if heard_ms else "never"


# --- compare ---------------------------------------------------------------------------------------------


class Compared(msgspec.Struct, rename="camel"):
    """Result of comparing a slave's log with its master's: both extents, and the first difference."""

    slave: str
    slave_begin: int
    slave_end: int
    master: str
    master_begin: int
    master_end: int
    difference: int | None
    """First log offset at which the two differ; None: equal as far as both reach."""
    slave_record: str = ""
    master_record: str = ""

    @property
    def is_copy(self) -> bool:
        """Whether the slave's log is a part of the master's."""
        return self.difference is None and self.slave_end <= self.master_end

    def lines(self) -> list[str]:
        found = [
            f"slave   {self.slave}  {self.slave_begin} to {self.slave_end}",
            f"master  {self.master}  {self.master_begin} to {self.master_end}",
        ]
        ahead = self.slave_end - self.master_end
        if self.difference is not None:
            found.append(f"They differ from log offset {self.difference} on.")
            found.append(f"  slave   {self.slave_record or 'no record begins there'}")
            found.append(f"  master  {self.master_record or 'no record begins there'}")
        elif ahead > 0:
            found.append(
                f"Equal up to {self.master_end}; the slave has {ahead} bytes that the master does not."
            )
        else:
            found.append(f"Equal up to {self.slave_end}; the slave lacks {-ahead} bytes.")
        if not self.is_copy:
            found.append("To set aside what the slave alone has: turbopump replica resync")
        return found


async def _compare(options: argparse.Namespace) -> int:
    async with _client() as client:
        compared = await compare(client, options.slave, connect.checked(options.master), options.whole)
    print(msgspec.json.encode(compared).decode() if options.json else "\n".join(compared.lines()))
    return 0 if compared.is_copy else FAILED


async def compare(client: Client, slave: str, master: str, is_whole: bool = False) -> Compared:
    """Compares the log of a slave, running or stopped, with that of its master. Raises CannotCompare."""
    theirs = BrokerLog(client, master)
    stopped = stopped_log(slave)
    running = BrokerLog(client, connect.checked(slave)) if stopped is None else None
    mine = DirectoryLog(stopped) if stopped is not None else running
    assert mine is not None, "one of the two was made"
    extents = await mine.extent(), await theirs.extent()
    if await theirs.is_ours() and (running is None or await running.is_ours()):
        difference = await first_difference(mine, theirs, is_whole)
        if difference is not None and stopped is not None:
            difference = stopped.boundary(difference)
    elif stopped is not None:
        difference = await first_foreign_record(stopped, theirs)
    else:
        raise CannotCompare(
            f"{slave} and {master} are not both Turbopump: stop the slave and give its store directory"
        )
    found = Compared(
        slave, extents[0].begin, extents[0].end, master, extents[1].begin, extents[1].end, difference
    )
    if difference is not None:
        found.master_record = _shown(await theirs.record(difference))
        if stopped is not None:
            found.slave_record = _line(stopped.record(difference))
        elif running is not None:
            found.slave_record = _shown(await running.record(difference))
    return found


def stopped_log(directory: str) -> StoppedLog | None:
    """Returns the log in a directory; None when this is no directory."""
    return StoppedLog(store_in(directory), SystemDisk()) if os.path.isdir(directory) else None


def _shown(data: bytes | None) -> str:
    """Returns a record in one line; empty when there is none."""
    if not data:
        return ""
    try:
        return _line(decode(data))
    except BrokenRecord:
        return ""


def _line(record: Record | None) -> str:
    if record is None:
        return ""
    place = f"{record.topic} queue {record.queue_id} offset {record.queue_offset}"
    return f"{place}, {record.size} bytes, stored {moment(record.store_timestamp)}"


# --- resync ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResyncPlan:
    """What a resync does: the tail to be set aside, and the master's extent."""

    tail: Tail
    begin: int
    master: Extent
    note: str = ""

    def lines(self, directory: str, master: str) -> list[str]:
        tail = self.tail
        mine = f"{directory}: log {self.begin} to {tail.end}"
        first = f"{mine}; master {master}: {self.master.begin} to {self.master.end}"
        if self.note:
            return [first, self.note]
        return [
            first,
            f"Both have the records before {tail.begin}. Behind it this store alone has {tail.records} "
            f"records ({tail.bytes} bytes): log offsets {tail.begin} to {tail.last}.",
        ]


async def _resync(options: argparse.Namespace) -> int:
    directory, master = store_in(options.directory), connect.checked(options.master)
    config = _config(directory, options.configFile)
    _check_unused(directory)
    async with _client() as client:
        plan = await plan_of(StoppedLog(directory, SystemDisk(), config.log_dir), BrokerLog(client, master))
    document: dict[str, object] = {
        "directory": directory, "master": master, "cut": plan.tail.begin, "end": plan.tail.end,
        "records": plan.tail.records, "last": plan.tail.last, "done": False, "files": [],
    }  # fmt: skip
    lines = plan.lines(directory, master)
    if plan.tail.bytes and options.yes:
        kept = await _set_aside(config, plan)
        document |= {"done": True, "files": kept}
        lines.append(f"Set aside as {', '.join(kept)}. Start the broker as a slave; it copies the rest.")
    elif plan.tail.bytes:
        lines.append("Nothing was changed; --yes sets them aside. Nothing is deleted.")
    print(json_text(document) if options.json else "\n".join(lines))
    return 0


def _config(directory: str, file: str | None) -> StoreConfig:
    if file is None:
        return config_of(directory, SystemDisk())
    config = load_config(ConfFile.read(file), {}).config.store
    if os.path.realpath(config.root_dir) != os.path.realpath(directory):
        raise CommandFailure(f"{file} is about the store {config.root_dir}, not {directory}")
    return config


def _check_unused(directory: str) -> None:
    try:
        SystemDisk().lock(os.path.join(directory, "lock")).release()
    except AlreadyLocked:
        raise CommandFailure(f"the broker on {directory} runs: stop it first") from None


async def plan_of(log: StoppedLog, master: BrokerLog) -> ResyncPlan:
    """Finds where a stopped log has to end so that it is a part of the master's. Raises CannotCompare."""
    theirs = await master.extent()

    def nothing(note: str) -> ResyncPlan:
        return ResyncPlan(tail_of(log, log.end), log.min_offset, theirs, note)

    if log.is_empty:
        return nothing("The store is empty: it copies everything when it starts as a slave.")
    if log.end < theirs.begin:
        return nothing("The master has deleted what would continue this log: a slave starts over by itself.")
    if await master.is_ours():
        difference = await first_difference(DirectoryLog(log), master)
    else:
        difference = await first_foreign_record(log, master)
    cut = log.boundary(min(log.end, theirs.end) if difference is None else difference)
    if cut == log.end:
        return nothing("This log is a part of the master's: nothing has to be set aside.")
    return ResyncPlan(tail_of(log, cut), log.min_offset, theirs)


async def _set_aside(config: StoreConfig, plan: ResyncPlan) -> list[str]:
    workers = SystemWorkers()
    try:
        return await set_tail_aside(config, plan, SystemDisk(), SystemClock(), workers)
    finally:
        workers.close()


async def set_tail_aside(
    config: StoreConfig, plan: ResyncPlan, disk: Disk, clock: Clock, workers: Workers
) -> list[str]:
    """Cuts the tail off the log into files, returns their paths, and notes that the copy is incomplete.

    A doubt is saved before, which only ends when the log is cut: with a part of the tail this store must not
    be promoted. Raises OSError when the disk fails: the tail may be there then, and another try may succeed.
    """
    files = ConfigFiles(config.config_dir, disk)
    state = CopyState(plan.begin, plan.master.begin, plan.master.end, is_compared=True)
    state.doubt, state.differs = f"{UNFINISHED} {plan.tail.begin}", True
    files.save(FILE, msgspec.json.encode(state))
    kept = await set_aside(config, plan.tail.begin, disk, clock, workers)
    state.doubt, state.differs = "", False
    try:
        files.save(FILE, msgspec.json.encode(state))
    except OSError as error:  # the log is right: the next comparison as a slave ends the doubt
        warn(f"turbopump replica: cannot write {FILE}: {error}; until it runs as a slave it is not promoted")
    return kept


UNFINISHED = "turbopump replica resync has not finished: its log was to be cut at"

EXAMPLES = {
    "status": "turbopump replica status 10.0.0.6:10911",
    "compare": "turbopump replica compare 10.0.0.6:10911 10.0.0.5:10911\n"
    "turbopump replica compare /data/store 10.0.0.5:10911 --whole",
    "resync": "turbopump replica resync /data/store 10.0.0.5:10911\n"
    "turbopump replica resync /data/store 10.0.0.5:10911 --yes",
}

ACTIONS: dict[str, tuple[str, Callable[[argparse.Namespace], Coroutine[Any, Any, int]]]] = {
    "status": ("show role, state and extent of a broker's log, and how far its slaves are", _status),
    "compare": ("find the first place at which the log of a slave differs from its master's", _compare),
    "resync": ("set aside what the log of a stopped slave has and its master has not", _resync),
}
