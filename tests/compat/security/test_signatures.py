"""Signatures that Apache's clients, tools and brokers made are right here, and ours are the same."""

import pytest
from tests.compat.security import VERSIONS, SignedFrame, decoded, exchanges, signed_frames

from turbopump.auth.signature import SIGNATURE, is_signed_by, sign

PARTLY_SIGNED = {"send-token", "query"}
"""Go leaves its token out, a 4.5.1 client the mark of a query by unique key."""

TAMPERED = {
    "4.5.1": set[str](),
    "4.9.7": {"field added after signing", "body changed after signing"},
    "5.5.0": {
        "stateful: same connection, wrong signature",
        "stateful: new connection, wrong signature first",
    },
}
"""Exchanges whose signature is of another content."""

NOT_READABLE = {"JSON null value signed as the text null"}
"""No client sends null in a JSON header: a null value counts as absent here."""


def test_there_are_many_signed_frames() -> None:
    assert len(signed_frames()) > 250
    assert {one.file.partition("-")[0] for one in signed_frames()} == {"client", "mqadmin", "broker"}


@pytest.mark.parametrize("one", signed_frames(), ids=lambda one: f"{one.file}-{one.scenario}")
def test_a_captured_signature_is_right_with_its_secret_alone(one: SignedFrame) -> None:
    command = decoded(one.data)
    assert is_signed_by(command, (one.secret,))
    assert is_signed_by(command, ("another-secret", one.secret))
    assert not is_signed_by(command, ("another-secret",))
    assert not is_signed_by(command, (f"{one.secret} ",))


def test_captured_signatures_are_reproduced_but_those_that_leave_a_field_out() -> None:
    different = set()
    for one in signed_frames():
        command = decoded(one.data)
        ext = command.ext or {}
        if sign(ext, command.body, one.secret) != ext[SIGNATURE]:
            different.add((one.file, one.scenario, command.code))
    assert {scenario for _, scenario, _ in different} <= PARTLY_SIGNED
    assert {file for file, scenario, _ in different if scenario == "query"} == {"client-4.5.1-server-4.5.1"}


@pytest.mark.parametrize("version", VERSIONS)
def test_signatures_made_by_hand_are_right_unless_the_request_was_changed_after_signing(version: str) -> None:
    wrong = set()
    for one in exchanges(version):
        command = one.command
        if one.secret is not None and not is_signed_by(command, (one.secret,)):
            wrong.add(one.name)
    assert wrong == TAMPERED[version] | (NOT_READABLE if version == "4.9.7" else set())


@pytest.mark.parametrize("one", signed_frames()[::7], ids=lambda one: f"{one.file}-{one.scenario}")
def test_a_changed_value_or_body_makes_a_captured_signature_wrong(one: SignedFrame) -> None:
    command = decoded(one.data)
    command.body += b"x"
    assert not is_signed_by(command, (one.secret,))
    command = decoded(one.data)
    assert command.ext is not None
    command.ext["AccessKey"] += "x"
    assert not is_signed_by(command, (one.secret,))
