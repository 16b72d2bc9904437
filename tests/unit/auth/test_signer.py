"""A signer adds the same signature to commands and packed sends as is computed from all their fields."""

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.auth import signer as module
from turbopump.auth.signature import Credentials, is_signed_by
from turbopump.auth.signer import Signer
from turbopump.protocol.command import Command, decode
from turbopump.protocol.frame import ROCKETMQ, Frame, cut
from turbopump.protocol.packed_send import PackedSend, head_of

NAMES = st.sampled_from([*"abcdefhjklmn", "nsd", "ns", "ReqT", "ä", "𐀀", "～"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=100)


def read(frame: bytes) -> Command:
    frames: list[Frame] = []
    assert cut(frame, frames) == len(frame)
    return decode(frames[0])


@given(st.dictionaries(NAMES, TEXTS, min_size=1), TEXTS, st.binary(max_size=100), TEXTS, SECRETS, TEXTS)
def test_a_packed_send_is_signed_as_the_command_with_the_same_fields(
    fields: dict[str, str], properties: str, body: bytes, key: str, secret: str, token: str
) -> None:
    credentials = Credentials(key, secret, token)
    send = PackedSend(310, head_of(310, fields), 1_700_000_000_000, properties, body)
    Signer(credentials)(send)
    command = read(send.frame(7))
    assert command.ext == credentials.signed({**fields, "g": "1700000000000", "i": properties}, body)
    assert is_signed_by(command, [secret])


@given(st.none() | st.dictionaries(NAMES, TEXTS), st.binary(max_size=100), SECRETS)
def test_a_command_is_signed_over_all_its_fields_and_its_body(
    fields: dict[str, str] | None, body: bytes, secret: str
) -> None:
    credentials = Credentials("RocketMQ", secret)
    command = Command(11, ext=fields, body=body)
    Signer(credentials)(command)
    assert command.ext == credentials.signed(fields, body)
    Signer(credentials)(command)  # once more, for a second server
    assert command.ext == credentials.signed(fields, body)


def test_a_route_request_has_the_signature_of_the_java_client() -> None:
    command = Command(105, ext={"topic": "TBW102"})
    Signer(Credentials("RocketMQ", "12345678"))(command)
    assert command.ext is not None
    assert command.ext["Signature"] == "oSGRG6trLxifIhEAdvqaevu5fkU="


def test_empty_values_of_binary_headers_are_left_out_since_servers_read_them_as_null() -> None:
    command = Command(10, ext={"a": "g", "i": ""}, encoding=ROCKETMQ)
    Signer(Credentials("RocketMQ", "12345678"))(command)
    assert command.ext is not None
    assert "i" not in command.ext


def test_two_sends_of_one_queue_share_the_values_of_their_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_HEADS", 2)
    sign = Signer(Credentials("RocketMQ", "12345678"))
    for queue in ("0", "0", "1", "1"):
        sign(PackedSend(310, head_of(310, {"e": queue}), 1, "", b""))
    assert len(sign._heads) == 2
    sign(PackedSend(310, head_of(310, {"e": "2"}), 1, "", b""))
    assert len(sign._heads) == 1


def test_neither_secret_is_in_the_text_of_a_signer() -> None:
    text = repr(Signer(Credentials("RocketMQ", "12345678", "token-1")))
    assert "RocketMQ" in text
    assert "12345678" not in text
    assert "token-1" not in text


def test_a_client_signs_where_sha1_is_allowed_only_outside_of_security(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine in FIPS mode refuses SHA-1 without `usedforsecurity=False`."""
    real = hashlib.sha1

    def in_fips_mode(data: bytes = b"", *, usedforsecurity: bool = True) -> Any:
        if usedforsecurity:
            raise ValueError("disabled for FIPS")
        return real(data, usedforsecurity=False)

    monkeypatch.setattr(hashlib, "sha1", in_fips_mode)
    for secret in ("short in fips mode", "longer than a block of SHA-1 " * 4):
        request = Command(1, ext={"a": "1"}, body=b"body")
        Signer(Credentials("alice", secret))(request)
        assert is_signed_by(request, (secret,))
