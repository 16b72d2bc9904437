"""The two brokers of one name as processes, with a name server."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.cli.conftest import PATIENCE_S, Home, Server

CONF = """
brokerName = broker-a
brokerIP1 = 127.0.0.1
bindAddress = 127.0.0.1
listenPort = 0
# a comment that stays
mappedFileSizeCommitLog = {file_size}
storePathRootDir = {store}
"""


class Pair:
    """A name server, and the two brokers of one name."""

    def __init__(self, home: Home) -> None:
        self.home = home
        (home.path / "namesrv.conf").write_text("listenPort = 0\nbindAddress = 127.0.0.1\n")
        name_server = home.start("mqnamesrv", "-c", "namesrv.conf")
        self.name_server = name_server.wait_for(r"boot success.* address (\S+)$")[1]
        home.environment["NAMESRV_ADDR"] = self.name_server

    def configure(self, node: str, role: str, file_size: int = 1 << 20) -> Path:
        path = self.home.path / f"{node}.conf"
        path.write_text(CONF.format(store=self.store(node), file_size=file_size) + role)
        return path

    def store(self, node: str) -> Path:
        return self.home.path / f"store-{node}"

    def start(self, node: str) -> tuple[Server, str]:
        broker = self.home.start("mqbroker", "-c", f"{node}.conf", "--log-dir", f"logs-{node}")
        return broker, broker.wait_for(r"The broker\[.*, (\S+)\] boot success")[1]

    def send(self, text: str) -> None:
        sent = self.home.run("turbopump", "send", "orders", text)
        assert sent.returncode == 0, sent.stderr

    def read(self, count: int) -> str:
        return self.home.run("turbopump", "tail", "orders", "--from", "first", "-n", str(count)).stdout

    def status(self, address: str) -> dict[str, object]:
        shown = self.home.run("turbopump", "replica", "status", address, "--json")
        assert shown.returncode == 0, shown.stderr
        status: dict[str, object] = json.loads(shown.stdout)
        return status

    def until(self, address: str, what: Callable[[dict[str, object]], bool]) -> dict[str, object]:
        """Waits until the status of a broker is as wanted."""
        deadline = time.monotonic() + PATIENCE_S
        while not what(status := self.status(address)):
            assert time.monotonic() < deadline, status
            time.sleep(0.2)
        return status
