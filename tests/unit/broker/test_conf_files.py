"""The files below conf/, which have the names and keys of Apache's distribution."""

import re
from pathlib import Path

import pytest

from turbopump.broker.config import ConfigError, load
from turbopump.broker.settings import SETTINGS, variable
from turbopump.protocol.addresses import FAST_PORT_STEP
from turbopump.replication.dledger.group import DLedgerGroup

CONF = Path(__file__).parents[3] / "conf"
FILES = sorted(CONF.rglob("*.properties"))
MEMBERS = sorted((CONF / "dledger").iterdir())
PAIRS = {"broker-a", "broker-a-s", "broker-b", "broker-b-s"}


def test_the_names_are_apaches() -> None:
    names = {directory.name: {path.stem for path in directory.iterdir()} for directory in CONF.iterdir()}
    assert names == {
        "2m-2s-sync": PAIRS,
        "2m-2s-async": PAIRS,
        "2m-noslave": {"broker-a", "broker-b", "broker-trace"},
        "dledger": {"broker-n0", "broker-n1", "broker-n2"},
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


def test_the_members_of_a_dledger_group_fit_together() -> None:
    loaded = [load(path.read_bytes()) for path in MEMBERS]
    assert [found.warnings for found in loaded] == [(), (), ()]
    configs = [found.config for found in loaded]
    rules = [config.dledger for config in configs]
    assert all(one.enabled for one in rules)
    assert len({(one.group, one.peers) for one in rules}) == 1
    assert [one.self_id for one in rules] == [path.stem.removeprefix("broker-") for path in MEMBERS]
    assert len({config.identity.broker_name for config in configs}) == 1
    assert len({config.store.root_dir for config in configs}) == len(MEMBERS)
    members = DLedgerGroup.parse(rules[0].group, rules[0].self_id, rules[0].peers).addresses.values()
    ports = [int(address.rpartition(":")[2]) for address in members]
    for config in configs:
        ports += [config.listening.port, config.listening.port + FAST_PORT_STEP]
    assert len(set(ports)) == len(ports)  # all three start on one machine


def test_a_controller_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(ConfigError, match=r"enableControllerMode.*enableDLegerCommitLog=true"):
        load(b"enableControllerMode=true\n")


def test_the_compose_file_starts_these_with_settings_that_exist() -> None:
    text = (CONF.parent / "compose.cluster.yaml").read_text()
    assert set(re.findall(r"TURBOPUMP_\w+", text)) <= {variable(key) for key in SETTINGS}
    assert set(re.findall(r"/conf/(broker-[\w-]+)\.properties", text)) == PAIRS
