"""Three brokers of one DLedger group as processes, with a loopback proxy on each way between two members.

Each member has a file of its own in which the addresses of the others are those of links, so two proxies
stand between two members: one for each that connects. A way that is cut keeps the requests of one link and
the answers of the other. Clients and the name server are reached without a proxy. No network namespaces are
used, so no rights are needed.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.failures.disks import SmallDisk
from tests.failures.linear import Leadership
from tests.failures.links import HOST, Links, ThreadedLink, Way
from tests.interop import peers
from tests.interop.asking import Line, Refusal
from tests.interop.dledger_group import GROUP, DLedgerBrokers

from turbopump.protocol.bodies import RaftStatus
from turbopump.protocol.codes import RequestCode
from turbopump.protocol.dledger.codes import DLedgerRequestCode

MEMBERS = (0, 1, 2)
KINDS = {"group": peers.OURS, "group-4.9.7": "4.9.7"}
"""Which brokers a group has, by its name on the command line."""
DISK_SIZE = 320 << 20
"""Our index of entries takes 160 MiB of it at once."""
ASKED_S = 1.0
FAST_INTERVALS = {"dLegerHeartbeatInterval": "200", "dLegerMinVoteWait": "50", "dLegerMaxVoteWait": "200"}
UNKNOWN_MEMBER = "asks"
"""Not in the group: a vote for it is refused with the voter's term, and changes nothing."""

OneWay = tuple[int, int]
"""Two members: from which one to which."""


class ProxiedGroup(DLedgerBrokers):
    """A group whose members stop, lose sight of each other, and have full disks."""

    def __init__(self, kind: str, home: Path, *, fast: bool, small_disks: bool) -> None:
        self.links = Links()
        conf = FAST_INTERVALS if fast and kind == peers.OURS else {}
        super().__init__(home, [kind] * len(MEMBERS), conf=conf)
        self.kind = kind
        self.dledger_addresses = [one.partition("-")[2] for one in self.members.split(";")]
        self._ways: dict[OneWay, ThreadedLink] = {}
        self._cut: set[OneWay] = set()
        self.paused: set[int] = set()
        self.disks: list[SmallDisk] = []
        self._starts: list[Future[None]] = []
        self._has_small_disks = small_disks

    def __enter__(self) -> ProxiedGroup:
        try:
            for one in MEMBERS:
                for other in MEMBERS:
                    if one != other:
                        self._ways[one, other] = self.links.open(self.dledger_addresses[other])
            if self._has_small_disks:
                self._mount()
        except BaseException:
            self.__exit__()
            raise
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for disk in self.disks:
            disk.close()
        self.links.close()

    def _mount(self) -> None:
        for broker in self.brokers:
            self.disks.append(SmallDisk(broker.store_dir, DISK_SIZE))
            broker.prefix = self.disks[-1].prefix

    def _settings(self, number: int) -> dict[str, str]:
        addresses = [
            self.dledger_addresses[other] if other == number else self._ways[number, other].address
            for other in MEMBERS
        ]
        listed = ";".join(f"n{other}-{address}" for other, address in enumerate(addresses))
        return {**super()._settings(number), "dLegerPeers": listed}

    # processes

    def is_running(self, number: int) -> bool:
        return bool(self.brokers[number].servers) and number not in self.paused

    def kill(self, number: int) -> None:
        """Ends the process with SIGKILL."""
        self.paused.discard(number)
        if self.brokers[number].servers:
            super().kill(number)

    def launch(self, number: int) -> None:
        """Starts a member in the background: Apache's are not ready before the group has a leader."""
        peers.configure(self.brokers[number], self._settings(number))
        self._starts.append(self._threads.submit(self.brokers[number].start_broker))

    def pause(self, number: int) -> None:
        self.brokers[number].servers[-1].signal(signal.SIGSTOP)
        self.paused.add(number)

    def resume(self, number: int) -> None:
        self.paused.discard(number)
        self.brokers[number].servers[-1].signal(signal.SIGCONT)

    def restore(self) -> None:
        """Ends all failures: ways pass, processes go on or are started again, disks have space."""
        self.mend()
        for disk in self.disks:
            disk.free()
        for number in MEMBERS:
            if number in self.paused:
                self.resume(number)
            elif not self.brokers[number].servers:
                self.launch(number)

    def errors_of_starts(self) -> list[str]:
        """Returns why members did not start; one that was killed while it started is among them."""
        ended = [one.exception() for one in self._starts if one.done()]
        return [str(error) for error in ended if error is not None]

    # ways

    def cut(self, *ways: OneWay) -> None:
        """Lets nothing pass on these ways any more, without a word to either side."""
        self._cut |= set(ways)
        self._set_links()

    def reset(self, one: int, other: int) -> None:
        """Resets all connections between two members, and each new one."""
        self._ways[one, other].cut()
        self._ways[other, one].cut()

    def mend(self) -> None:
        """Lets everything pass, first what has been kept."""
        self._cut.clear()
        for link in self._ways.values():
            link.mend()

    def _set_links(self) -> None:
        for (one, other), link in self._ways.items():
            passes_requests, passes_answers = (way not in self._cut for way in ((one, other), (other, one)))
            if passes_requests and passes_answers:
                continue
            if passes_requests or passes_answers:
                link.one_way(Way.FORTH if passes_requests else Way.BACK)
            else:
                link.freeze()

    # what members say

    def leading(self, number: int, timeout_s: float = ASKED_S) -> Leadership | None:
        """Returns the term in which this member says that it leads; None: it does not, or does not answer."""
        if self.is_running(number):
            try:
                with Line(self.asked_at(number), timeout_s=timeout_s) as line:
                    return self.leadership_by(line, number)
            except (OSError, Refusal):
                return None
        return None

    def asked_at(self, number: int) -> str:
        """Returns the address that answers `leadership_by`."""
        is_ours = self.kind == peers.OURS
        return self.brokers[number].broker_addr if is_ours else self.dledger_addresses[number]

    def leadership_by(self, line: Line, number: int) -> Leadership | None:
        """Asks a member on an open connection whether it leads, and in which term."""
        if self.kind == peers.OURS:
            status = RaftStatus.decode(_body(line, RequestCode.RAFT_STATUS))
            return Leadership(status.term, number) if status.role == "leader" else None
        to = {"group": GROUP, "remoteId": f"n{number}"}
        vote = {**to, "localId": UNKNOWN_MEMBER, "leaderId": UNKNOWN_MEMBER, "term": -1}
        vote |= {"ledgerEndIndex": -1, "ledgerEndTerm": -1}
        before = _json(line, DLedgerRequestCode.VOTE, vote)["term"]
        leader = _json(line, DLedgerRequestCode.METADATA, to).get("leaderId")
        after = _json(line, DLedgerRequestCode.VOTE, vote)["term"]
        return Leadership(after, number) if leader == f"n{number}" and before == after else None

    def leader_now(self) -> int | None:
        """Returns the member that leads in the latest term, by its own words."""
        found = [one for number in MEMBERS if (one := self.leading(number)) is not None]
        return max(found).member if found else None

    def follower(self, leader: int) -> int:
        """Returns a member that runs and does not lead."""
        return next(number for number in (*MEMBERS[leader + 1 :], *MEMBERS) if number != leader)


def _json(line: Line, code: int, fields: Mapping[str, object]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_body(line, code, json.dumps(fields).encode()))
    return found


def _body(line: Line, code: int, body: bytes = b"") -> bytes:
    answer = line.ask(code, body)
    if answer.code not in (0, 200):
        raise Refusal(f"{HOST} answered {code} with {answer.code}: {answer.remark}")
    return answer.body
