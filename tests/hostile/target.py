"""The server under attack, Turbopump's or Apache's, with checks of its health and memory."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop import peers, processes

from . import wire
from .wire import Address, Peer

OURS = "ours"
SERVED_WITHIN_S = 2.0
NOTEWORTHY_S = 0.25
ASK_WITHIN_S = 30
# On a busy machine the broker must not refuse requests because they waited for it.
PATIENT = {
    "TURBOPUMP_WAIT_TIME_MILLS_IN_SEND_QUEUE": "20000",
    "TURBOPUMP_OS_PAGE_CACHE_BUSY_TIME_OUT_MILLS": "20000",
}


@dataclass
class Target:
    kind: str
    addresses: dict[str, Address]  # by role: namesrv, broker
    pids: dict[str, int]
    home: Path | None = None
    figures: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")

    @property
    def broker(self) -> Address:
        return self.addresses["broker"]

    @property
    def strict(self) -> bool:
        """Tells whether limits are checked; for Apache's servers the figures are only printed."""
        return self.kind == OURS

    def bound(self, what: str, value: float, limit: float, unit: str) -> None:
        self.figures.append(f"{what}: {value:.2f} {unit} (bound {limit:g})")
        assert value <= limit or not self.strict, self.figures[-1]

    def note(self, what: str, value: float, unit: str) -> None:
        self.figures.append(f"{what}: {value:.2f} {unit}")

    def is_served(self, what: str, role: str = "broker", within_s: float = SERVED_WITHIN_S) -> None:
        """Checks that a new client gets a correct answer in time."""
        began = time.monotonic()
        try:
            self._ask(role)
        except TimeoutError:
            assert not self.strict, f"{what}: not served"
            self.figures.append(f"{what}, another client of the {role}: not served in {ASK_WITHIN_S} s")
            return
        seconds = time.monotonic() - began
        if seconds > NOTEWORTHY_S or what.startswith("among"):
            self.note(f"{what}, another client of the {role} served in", seconds, "s")
        self.slowest = max(self.slowest, (seconds, what))
        assert seconds <= within_s or not self.strict, f"{what}: served after {seconds:.2f} s"

    def _ask(self, role: str) -> None:
        with Peer(self.addresses[role], timeout_s=ASK_WITHIN_S) as peer:
            if role == "broker":
                assert peer.ask(wire.SEND, wire.message("hostile_alive"), b"alive").code == wire.OK
            else:
                assert peer.ask(wire.ROUTE, {"topic": "no_such_topic"}).code == wire.TOPIC_NOT_EXIST

    def anonymous_mib(self, role: str = "broker") -> float:
        for line in Path(f"/proc/{self.pids[role]}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) / 1024
        raise LookupError("Anonymous")

    def cpu_s(self, role: str = "broker") -> float:
        fields = Path(f"/proc/{self.pids[role]}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def growth(self, what: str, limit_mib: float, role: str = "broker") -> Iterator[None]:
        """Checks that the memory of the server grows by at most a limit in the `with` block."""
        before = self.anonymous_mib(role)
        yield
        self.bound(
            f"{what}, memory of the {role} grew by", self.anonymous_mib(role) - before, limit_mib, "MiB"
        )


@contextmanager
def started(kind: str, home: Path) -> Iterator[Target]:
    """Starts a server. `kind`: ours, an Apache version, or `BROKER,NAMESRV,PID` of a running one."""
    if "," in kind:
        broker, namesrv, pid = kind.split(",")
        addresses = {"namesrv": address(namesrv), "broker": address(broker)}
        yield Target("running", addresses, dict.fromkeys(addresses, int(pid)))
        return
    place = peers.place(home)
    addresses = {"namesrv": (peers.HOST, place.namesrv_port), "broker": (peers.HOST, place.broker_port)}
    with ours(place) if kind == OURS else peers.start(kind, place) as cluster:
        pids = [server._process.pid for server in cluster.servers]  # namesrv and broker, or both in one
        yield Target(kind, addresses, {"namesrv": pids[0], "broker": pids[-1]}, home)


def ours(place: peers.Place) -> peers.Cluster:
    ports = ["--namesrv-port", str(place.namesrv_port), "--broker-port", str(place.broker_port)]
    run = [sys.executable, "-m", "turbopump", "up", "--data", str(place.store_dir)]
    environment = {"HOME": str(place.home), "NAMESRV_ADDR": "", **PATIENT}
    server = processes.Server([*run, *ports, "--host", peers.HOST], place.home / "up.log", environment)
    server.wait_ready("is ready")
    return peers.Cluster(OURS, place, [server])


def address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)
