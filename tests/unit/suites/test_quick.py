"""What `make quick` leaves out, and what it refuses."""

import pytest
from tests import quick

LISTED = """
# a comment
[starts a process]
cli/test_main.py::test_it_starts

[slow]
broker/test_timers.py
"""


def test_the_list_has_a_reason_for_each_line() -> None:
    assert quick.parse(LISTED) == {
        "cli/test_main.py::test_it_starts": "starts a process",
        "broker/test_timers.py": "slow",
    }
    assert all(quick.parse(quick.LIST.read_text()).values())


@pytest.mark.parametrize(
    ("text", "trouble"), [("a.py", "must stand below a heading"), ("[slow]\na.py\na.py", "is listed twice")]
)
def test_a_list_that_cannot_be_meant_is_refused(text: str, trouble: str) -> None:
    with pytest.raises(ValueError, match=trouble):
        quick.parse(text)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("cli/test_main.py::test_it_starts", "starts a process"),
        ("cli/test_main.py::test_it_starts_twice", None),
        ("cli/test_main.py::test_other", None),
        ("broker/test_timers.py::test_any", "slow"),
    ],
)
def test_a_line_names_one_test_or_all_of_a_file(name: str, reason: str | None) -> None:
    assert quick.reason_of(name, quick.parse(LISTED)) == reason


def test_a_line_whose_test_is_gone_is_found() -> None:
    assert quick.unknown(quick.parse(LISTED), ["cli/test_main.py::test_it_starts"]) == [
        "broker/test_timers.py"
    ]
    names = ["cli/test_main.py::test_renamed", "broker/test_timers.py::test_any"]
    assert quick.unknown(quick.parse(LISTED), names) == ["cli/test_main.py::test_it_starts"]


CALLS = {
    "import subprocess; subprocess.run(['true'])": "starts a process",
    "import socket; socket.create_connection(('127.0.0.1', 9))": "opens a socket",
    "import socket; socket.create_server(('127.0.0.1', 0))": "opens a socket",
    "import time; time.sleep(0)": "sleeps in real time",
}


def test_a_test_that_is_not_pure_and_not_listed_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(quick.UNIT.parents[1]))
    tests = [f"def test_{number}():\n    {call}\n" for number, call in enumerate(CALLS)]
    pytester.makepyfile("\n".join(tests) + "import asyncio\ndef test_pure(): asyncio.run(asyncio.sleep(0))\n")
    found = pytester.runpytest_subprocess("-p", "tests.quick", "--quick", "-n", "2")
    found.assert_outcomes(failed=len(CALLS), passed=1)
    for number, reason in enumerate(CALLS.values()):
        found.stdout.fnmatch_lines_random(
            [f"*test_{number} {reason} (*) and is not listed in *not_quick.txt"]
        )
    found.stdout.fnmatch_lines(["ran: 5 tests; left out: 0, see tests/unit/not_quick.txt"])


def test_every_line_of_the_list_names_a_test_that_exists() -> None:
    missing = []
    for line in quick.parse(quick.LIST.read_text()):
        path, _, test = line.partition("::")
        file = quick.UNIT / path
        name = test.rpartition("::")[2]
        if not file.exists() or (name not in ("", "runTest") and f"def {name}(" not in file.read_text()):
            missing.append(line)
    assert not missing, f"remove or rename in {quick.LIST}: {missing}"
