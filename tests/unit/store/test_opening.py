"""The very first start, on real directories."""

from pathlib import Path

from tests.unit.store.lab import HandClock, Workers, check, fill, small

from turbopump.runtime.disk import SystemDisk
from turbopump.store.store import Store
from turbopump.testing.loop import run_virtual


def test_the_first_start_makes_the_root_also_when_the_log_is_elsewhere(tmp_path: Path) -> None:
    config = small(root_dir=str(tmp_path / "one" / "store"), commit_log_dir=str(tmp_path / "two" / "log"))
    for count in (0, 5):
        store = Store.open(config, SystemDisk(), HandClock(), Workers())
        assert len(check(store)) == count
        fill(store, 5, start=count)
        run_virtual(store.close())
