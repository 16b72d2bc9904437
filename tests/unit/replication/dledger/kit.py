"""A group of members in one process: in-memory network, simulated disks, virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.unit.store.dledger.kit import all_entries, body, check, marked

from turbopump.broker.config import DLedgerRules
from turbopump.broker.dledger.member import timings_of
from turbopump.protocol.codes import ResponseCode
from turbopump.protocol.command import Command, request
from turbopump.protocol.dledger.messages import DLedgerAnswer, decode_answer
from turbopump.raft import AppendResult, Role, RoleChanged
from turbopump.remoting.client import Client
from turbopump.remoting.connection import Sign
from turbopump.replication.dledger.group import DLedgerGroup
from turbopump.replication.dledger.server import DLedgerServer, NodeEnvironment
from turbopump.replication.dledger.timings import APACHE_TIMINGS, DLedgerTimings
from turbopump.store.config import FlushDiskType, StoreConfig
from turbopump.store.dledger.entry_log import EntryLog
from turbopump.store.flags import Flags
from turbopump.store.flush import Flusher
from turbopump.testing.disk import PowerCut, SimulatedDisk, SimulatedWorkers
from turbopump.testing.loop import VirtualClock
from turbopump.testing.network import MemoryNetwork
from turbopump.testing.simulated_files import Survival

GROUP = "broker-a"
PORT = 40911
NO_OP = 1_000_000  # plus the term: the number of a leader's first record in a term
MAX_WAIT_S = 120
FAST = timings_of(DLedgerRules(heartbeat_ms=200, min_vote_wait_ms=50, max_vote_wait_ms=200))
"""What docs/cluster.md names for groups of our own members."""


@dataclass
class MemberBench:
    """One member with its disk: it can be started, killed and started again."""

    member: str
    ip: str
    disk: SimulatedDisk
    server: DLedgerServer
    log: EntryLog
    flusher: Flusher
    workers: SimulatedWorkers
    changes: list[RoleChanged] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    is_up: bool = True

    @property
    def numbers(self) -> list[int]:
        """The numbers of the appended bodies, without the first records of leaders."""
        return [number for number in map(marked, all_entries(self.log)) if number < NO_OP]

    @property
    def committed(self) -> list[int]:
        """The numbers of the bodies that are committed."""
        entries = [entry for entry in all_entries(self.log) if entry.index <= self.log.committed_index]
        return [number for number in map(marked, entries) if number < NO_OP]

    def append(self, *numbers: int) -> int:
        """Appends bodies with these numbers and returns the index of the last."""
        self.server.append([body(number) for number in numbers])
        return self.server.end_index


class GroupBench:
    """The members of a group, by id, and what happens to them."""

    def __init__(
        self,
        members: int = 3,
        flush: FlushDiskType = "ASYNC_FLUSH",
        seed: int = 1,
        timings: DLedgerTimings = APACHE_TIMINGS,
        preferred: str = "",
        sign: Sign | None = None,
    ) -> None:
        self.sign = sign
        self.timings = timings
        self.preferred = preferred
        self.clock = VirtualClock()
        self.chance = random.Random(seed)
        self.network = MemoryNetwork(self.chance)
        self.flush = flush
        self.ips = {f"n{n}": f"10.0.0.{n + 1}" for n in range(members)}
        self.peers = ";".join(f"{member}-{ip}:{PORT}" for member, ip in self.ips.items())
        self.benches: dict[str, MemberBench] = {}

    async def start(self, *members: str) -> None:
        """Starts members, or all, on empty disks."""
        for member in members or tuple(self.ips):
            await self.start_on(member, SimulatedDisk(self.chance, self.clock))

    async def start_on(self, member: str, disk: SimulatedDisk) -> MemberBench:
        config = StoreConfig(
            root_dir="/store",
            dledger_id=member,
            commit_log_file_size=1 << 14,
            dledger_index_units=64,
            open_log_files=4,
            flush_disk_type=self.flush,
        )
        log = EntryLog.open(config, disk)
        check(log)
        workers = SimulatedWorkers(disk)
        flusher = Flusher(log, Flags(), self.clock, workers, config)
        flusher.start()
        group = DLedgerGroup.parse(GROUP, member, self.peers)
        host = self.network.at(self.ips[member])
        environment = NodeEnvironment(self.clock, host, self.chance, workers, self.sign)
        node_config = group.node_config(self.timings, self.preferred)
        server = DLedgerServer(group, log, flusher, environment, lambda term: body(NO_OP + term), node_config)
        bench = MemberBench(member, self.ips[member], disk, server, log, flusher, workers)
        server.on_role_changed = bench.changes.append
        server.on_commit = bench.commits.append
        self.benches[member] = bench
        await server.start()
        return bench

    async def kill(self, member: str, survival: Survival = Survival.KEPT) -> SimulatedDisk:
        """Ends a member without a warning; returns its disk as the next start finds it."""
        bench = self.benches[member]
        self.network.unplug(bench.ip)
        bench.is_up = False
        disk = bench.disk.crash(survival)
        with contextlib.suppress(PowerCut):
            await bench.server.stop()
        return disk

    async def restart(self, member: str, survival: Survival = Survival.KEPT) -> MemberBench:
        return await self.start_on(member, await self.kill(member, survival))

    async def stop(self) -> None:
        for bench in self.benches.values():
            if bench.is_up:
                await bench.server.stop()
                await bench.flusher.stop()

    # what a test waits for

    async def until(self, condition: Callable[[], bool], what: str = "") -> None:
        """Waits in virtual time until something holds."""
        for _ in range(MAX_WAIT_S * 100):
            if condition():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"{what or 'it'} did not come in {MAX_WAIT_S} s")

    async def leader(self, *among: str) -> MemberBench:
        """Waits until one member leads and all others that are up, or those named, follow it."""
        await self.until(lambda: self._agreed(among) is not None, "a leader")
        found = self._agreed(among)
        assert found is not None
        return found

    def _agreed(self, among: tuple[str, ...]) -> MemberBench | None:
        up = [one for one in self.benches.values() if one.is_up and (not among or one.member in among)]
        leaders = [one for one in up if one.server.role is Role.LEADER]
        if len(leaders) != 1:
            return None
        leader = leaders[0].server
        views = {(one.server.leader, one.server.term) for one in up}
        return leaders[0] if views == {(leader.group.own_id, leader.term)} else None

    def followers(self) -> list[MemberBench]:
        return [one for one in self.benches.values() if one.is_up and one.server.role is Role.FOLLOWER]

    async def until_committed(self, *numbers: int) -> None:
        """Waits until all members that are up have committed exactly these."""
        wanted = list(numbers)
        up = [one for one in self.benches.values() if one.is_up]
        # Bodies are compared only when the last entry of everybody is committed.
        await self.until(
            lambda: (
                all(one.log.committed_index == one.log.end_index >= len(wanted) for one in up)
                and all(one.committed == wanted for one in up)
            ),
            "commits",
        )
        for one in up:
            check(one.log)

    # what a test asks

    async def committed(self, bench: MemberBench, *numbers: int, timeout_ms: int = 2500) -> AppendResult:
        """Appends, and returns what became of it."""
        return await self.outcome(bench, bench.append(*numbers), timeout_ms)

    async def outcome(self, bench: MemberBench, index: int, timeout_ms: int = 2500) -> AppendResult:
        result: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        bench.server.when_committed(index, timeout_ms, result.set_result)
        return await result

    async def ask(self, member: str, code: int, body: bytes, language: str = "") -> Command:
        """Sends a request from a host that is no member."""
        client = Client(self.network.at("10.0.9.9"), self.clock)
        try:
            command = request(code, body=body)
            command.language = language or command.language
            return await client.call(f"{self.ips[member]}:{PORT}", command)
        finally:
            await client.close()

    async def answer(self, member: str, message: Any, code: int) -> DLedgerAnswer:
        """Sends a request and returns the body of the answer, whose command must say that all is well."""
        command = await self.ask(member, code, message.encode())
        assert command.code == 200 != ResponseCode.SUCCESS
        return decode_answer(code, command.body)
