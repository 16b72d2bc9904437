"""The files below conf/, which have the names and keys of Apache's distribution."""

import re
from pathlib import Path

import pytest

from turbopump.broker.config import load
from turbopump.broker.settings import SETTINGS, variable

CONF = Path(__file__).parents[3] / "conf"
FILES = sorted(CONF.rglob("*.properties"))
PAIRS = {"broker-a", "broker-a-s", "broker-b", "broker-b-s"}


def test_the_names_are_apaches() -> None:
    names = {directory.name: {path.stem for path in directory.iterdir()} for directory in CONF.iterdir()}
    assert names == {
        "2m-2s-sync": PAIRS,
        "2m-2s-async": PAIRS,
        "2m-noslave": {"broker-a", "broker-b", "broker-trace"},
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_each_loads_without_a_warning_and_is_what_its_name_says(path: Path) -> None:
    loaded = load(path.read_bytes())
    assert loaded.warnings == ()
    identity = loaded.config.identity
    assert identity.broker_name == path.stem.removesuffix("-s")
    assert identity.is_slave == path.stem.endswith("-s")
    masters = "SYNC_MASTER" if path.parent.name.endswith("-sync") else "ASYNC_MASTER"
    assert identity.role == ("SLAVE" if identity.is_slave else masters)
    assert identity.broker_id == int(identity.is_slave)
    assert loaded.config.store.file_reserved_hours == 48


def test_the_compose_file_starts_these_with_settings_that_exist() -> None:
    text = (CONF.parent / "compose.cluster.yaml").read_text()
    assert set(re.findall(r"TURBOPUMP_\w+", text)) <= {variable(key) for key in SETTINGS}
    assert set(re.findall(r"/conf/(broker-[\w-]+)\.properties", text)) == PAIRS
