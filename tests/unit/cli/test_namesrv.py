import pytest

from turbopump.cli.conf_file import ConfFile
from turbopump.cli.failures import CommandFailure
from turbopump.cli.namesrv import load


def test_a_misspelt_key_is_refused_with_its_line_as_the_broker_does() -> None:
    with pytest.raises(CommandFailure) as caught:
        load(ConfFile("n.conf", b"\nlistenPrt=1\n"))
    assert str(caught.value) == "n.conf: line 2: listenPrt: unknown key; did you mean listenPort?"
    assert caught.value.status == 2


def test_any_other_unknown_key_is_named_with_its_line_and_skipped() -> None:
    config, warnings = load(ConfFile("n.conf", b"listenPort=1\nxyzzy=1\n"))
    assert config.listen_port == 1
    assert warnings == ["n.conf: line 2: xyzzy: unknown key, no effect"]
