"""What speaks against the promotion of a slave, and the change of its configuration file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.cli.conf_file import change_file, edited
from turbopump.cli.promotion import MasterFacts, SlaveFacts, objections, overridden
from turbopump.protocol.conf import pack_properties, parse_properties

GOOD = MasterFacts(asked=2)


def slave(**facts: str) -> SlaveFacts:
    return SlaveFacts(**{"name": "broker-a", "role": "SLAVE", **facts})


def test_a_complete_slave_without_a_live_master_may_be_promoted() -> None:
    assert objections(slave(), GOOD) == []
    assert objections(slave(), MasterFacts(("10.0.0.1:9876",), asked=2)) == []  # the other one answered


@pytest.mark.parametrize(
    ("facts", "master", "words"),
    [
        (slave(role="SYNC_MASTER"), GOOD, "not a slave: its brokerRole is SYNC_MASTER"),
        (slave(missing="it lacks the last 7 bytes"), GOOD, "incomplete: it lacks the last 7 bytes"),
        (slave(stopped="this log ends at 9"), GOOD, "not to be a copy of its master's: this log ends at 9"),
        (slave(), MasterFacts(asked=1, live="10.0.0.5:10911"), "at 10.0.0.5:10911 answers: stop it first"),
        (slave(), MasterFacts(asked=0), "give --namesrv"),
        (slave(), MasterFacts(("10.0.0.1:9876",), asked=1), "no name server answers (10.0.0.1:9876)"),
    ],
)
def test_each_objection_is_named(facts: SlaveFacts, master: MasterFacts, words: str) -> None:
    (objection,) = objections(facts, master)
    assert words in objection


CHANGES = {"brokerRole": "ASYNC_MASTER", "brokerId": "0"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            b"# mine\nbrokerRole = SLAVE\nbrokerId=1\nx=1\n",
            b"# mine\nbrokerRole=ASYNC_MASTER\nbrokerId=0\nx=1\n",
        ),
        (b"x=1", b"x=1\nbrokerRole=ASYNC_MASTER\nbrokerId=0\n"),
        (b"", b"brokerRole=ASYNC_MASTER\nbrokerId=0\n"),
        (b"brokerId=1\nbrokerRole=SLAVE\nbrokerId=2\n", b"brokerRole=ASYNC_MASTER\nbrokerId=0\n"),
        (b"brokerId=1\\\n  2\ny=2\nbrokerRole:SLAVE", b"brokerId=0\ny=2\nbrokerRole=ASYNC_MASTER\n"),
    ],
)
def test_other_lines_of_the_file_stay(before: bytes, after: bytes) -> None:
    assert edited(before, CHANGES) == after


@given(
    st.lists(st.tuples(st.sampled_from(("brokerRole", "a", "b c", "#d")), st.text(max_size=8)), max_size=8)
)
def test_all_other_keys_keep_their_values(pairs: list[tuple[str, str]]) -> None:
    text = b"".join(pack_properties({key: value}) for key, value in pairs)
    wanted = {entry.key: entry.value for entry in parse_properties(text)} | CHANGES
    assert {entry.key: entry.value for entry in parse_properties(edited(text, CHANGES))} == wanted


def test_the_old_file_is_kept_beside_it(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerId=1\n")
    conf.chmod(0o640)
    first = change_file(str(conf), {"brokerId": "0"})
    second = change_file(str(conf), {"brokerId": "2"})
    assert [Path(path).name for path in (first, second)] == ["broker.conf.old", "broker.conf.old.2"]
    assert [Path(path).read_text() for path in (first, second)] == ["brokerId=1\n", "brokerId=0\n"]
    assert conf.read_text() == "brokerId=2\n"
    assert conf.stat().st_mode & 0o777 == 0o640
    assert len(list(tmp_path.iterdir())) == 3


def test_variables_that_win_over_the_file_are_named() -> None:
    (line,) = overridden({"TURBOPUMP_BROKER_ROLE": "SLAVE", "HOME": "/root"})
    assert line.startswith("TURBOPUMP_BROKER_ROLE in the environment wins over brokerRole")
