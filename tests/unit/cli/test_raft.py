"""`turbopump raft verify` on the stores of Apache's group."""

import json
from pathlib import Path

import pytest
from tests.unit.store.dledger.golden_kit import ENTRIES, NODES, dledger_store

from turbopump.cli.main import main


@pytest.fixture
def members(tmp_path):
    return [dledger_store(node, tmp_path) for node in NODES]


def test_equal_members_are_listed_with_their_state(members, capsys):
    assert main(["raft", "verify", *members]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"n0 {members[0]}: term 2, ")
    assert lines[0].endswith(f"; entries 0 to {ENTRIES - 1}, committed up to {ENTRIES - 1}")
    assert lines[-1] == f"{ENTRIES} entries are committed by two members or more, 0 to {ENTRIES - 1}: equal"


def test_a_difference_is_an_error(members, capsys):
    path = Path(members[2]) / "dledger-n2/data" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(16)
        file.write((2).to_bytes(8, "big"))  # the term of the first entry
    assert main(["raft", "verify", *members, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["differing"] > 0
    assert main(["raft", "verify", *members]) == 1
    assert "DIFFERENT: " in capsys.readouterr().out


def test_one_member_is_not_enough(members, capsys):
    assert main(["raft", "verify", members[0], members[0]]) == 1
    assert "two members or more" in capsys.readouterr().err


def test_a_plain_store_is_refused(members, tmp_path, capsys):
    (tmp_path / "plain/commitlog").mkdir(parents=True)
    assert main(["raft", "verify", members[0], str(tmp_path / "plain")]) == 1
    assert "must be the store of a DLedger member" in capsys.readouterr().err
