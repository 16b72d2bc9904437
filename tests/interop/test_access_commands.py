"""Apache's mqadmin manages users and accounts of ours, plain and over mutual TLS, as it does Apache's."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import access_commands, compare, guarded
from .access_control import V4, V5
from .allowed import Allowed
from .clients import Answers

ALLOWED = (
    Allowed("access / getUser *", "no secret is answered (D157)", "* *secret* *", "* null *"),
    Allowed("access / listUser *", "no secret is answered (D157)", "* *secret* *", "* null *"),
    Allowed("access / getAclConfig *", "no secret is answered (D157)", "secretKey : *-secret", "secretKey :"),
    Allowed(
        "access / updateAclConfig *",
        "no secret is in a refusal (D157)",
        "*and secretKey=short cannot*",
        "*and secretKey cannot*",
    ),
    Allowed(
        "access / copyUser -f {broker} -t {other} -u boss",
        "without the secret a user cannot be made elsewhere, only brought up to date (D153)",
        "*success*",
        "*password can not be blank*",
    ),
)
PAIRS = (
    pytest.param((V5, "5.5.0"), id="5.5.0"),
    pytest.param((V4, "4.9.7"), id="4.9.7"),
    pytest.param((V4, "4.9.8"), id="4.9.8", marks=pytest.mark.long),  # has no getAclConfig any more
)

_used: set[Allowed] = set()
_compared: set[tuple[str, str]] = set()


@pytest.fixture(scope="module", params=PAIRS)
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    chosen: tuple[str, str] = request.param
    return chosen


@pytest.fixture(scope="module")
def of_apache(pair: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return access_commands.of_apache(*pair, tmp_path_factory.mktemp("apache"))


@pytest.mark.parametrize(
    "is_encrypted",
    [pytest.param(False, id="plain", marks=pytest.mark.long), pytest.param(True, id="mutual TLS")],
)
def test_mqadmin_prints_of_access_to_ours_what_it_prints_of_apaches(
    pair: tuple[str, str], of_apache: Answers, is_encrypted: bool, tmp_path: Path
) -> None:
    pem = guarded.certificates(tmp_path / "pem") if is_encrypted else None
    seen = access_commands.of_ours(*pair, tmp_path, pem)
    assert seen["access"]
    found = []
    for difference in compare.differences(of_apache, seen):
        rows = [row for row in ALLOWED if row.covers(difference)]
        _used.update(rows)
        if not rows:
            found.append(difference)
    assert not found, compare.listing(found)
    _compared.add(pair)


def test_every_allowed_difference_of_access_is_still_needed() -> None:
    if not {(V5, "5.5.0"), (V4, "4.9.7")} <= _compared:
        pytest.skip("needs what mqadmin of both printed in this session")
    stale = [row.where for row in ALLOWED if row not in _used]
    assert not stale, stale
