import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from turbopump.cli import logs


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    top = logging.getLogger("turbopump")
    handlers, level = top.handlers[:], top.level
    yield
    for handler in top.handlers:
        if handler not in handlers:
            handler.close()
    top.handlers[:] = handlers
    top.setLevel(level)


def test_the_flag_wins_over_the_environment_over_the_default() -> None:
    assert logs.directory("/a", {"TURBOPUMP_LOG_DIR": "/b"}) == "/a"
    assert logs.directory(None, {"TURBOPUMP_LOG_DIR": "/b"}) == "/b"
    assert logs.directory(None, {}).endswith("/logs/rocketmqlogs")


def test_one_process_with_both_servers_keeps_two_files_apart(tmp_path: Path) -> None:
    logs.open_logs(str(tmp_path), ("namesrv", "broker"))
    logging.getLogger("turbopump.namesrv.server").info("route")
    logging.getLogger("turbopump.store.flush").info("sync")
    assert "route" in (tmp_path / "namesrv.log").read_text()
    assert "sync" not in (tmp_path / "namesrv.log").read_text()
    assert "sync" in (tmp_path / "broker.log").read_text()
    assert "route" not in (tmp_path / "broker.log").read_text()


def test_a_single_server_writes_everything_to_its_file(tmp_path: Path) -> None:
    logs.open_logs(str(tmp_path), ("namesrv",))
    logging.getLogger("turbopump.remoting.server").info("listening")
    assert "listening" in (tmp_path / "namesrv.log").read_text()


def test_a_dash_writes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    logs.open_logs("-", ("broker",))
    logging.getLogger("turbopump.broker").info("line")
    assert list(tmp_path.iterdir()) == []
