"""The compiled reader of signed sends gives the content that `auth.signature` signs, or nothing."""

import json
import os
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.properties import examples
from tests.unit.broker.desk import letters

from turbopump.auth.signature import Credentials, sign
from turbopump.compiled import PURE, SignedSend, twins
from turbopump.protocol.command import Command, decode, encode
from turbopump.protocol.frame import JSON, MAX_FRAME, ROCKETMQ, cut, pack

WANTED = bool(os.environ.get("CI")) and PURE not in os.environ  # in CI missing twins are a failure
pytestmark = pytest.mark.skipif(twins() is None and not WANTED, reason="the twins are not built")

USER = Credentials("user-1", "secret-1")


def read(data: bytes, at: int = 0) -> SignedSend | None:
    compiled = twins()
    assert compiled is not None
    return compiled.signed_send(data, at, MAX_FRAME)


FIELDS = {name: str(value) for name, value in letters("T").items()}

LONG_FIELDS = {
    "topic": "T",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1",
    "flag": "0",
    "properties": "a\x01b\x02",
}


def packed(fields: dict[str, str], body: bytes = b"body", code: int = 310, flag: int = 0) -> bytes:
    header = {
        "code": code,
        "extFields": fields,
        "flag": flag,
        "language": "JAVA",
        "opaque": 7,
        "version": 401,
    }
    return pack(JSON, msgspec.json.encode(header), body)


def signed(fields: dict[str, str], body: bytes = b"body", code: int = 310, flag: int = 0) -> bytes:
    return packed(USER.signed(fields, body), body, code, flag)


def signature_of(row: SignedSend) -> bytes:
    """Signs the content of a row as the client signs its fields and body."""
    return sign({}, row[4], USER.secret_key).encode()


@pytest.mark.parametrize("code", [10, 310])
def test_a_signed_send_gives_its_signer_its_topic_and_what_was_signed(code: int) -> None:
    fields = FIELDS if code == 310 else LONG_FIELDS
    data = signed(fields, code=code)
    row = read(data)
    assert row is not None
    size, access_key, signature, topic, _, body_size = row
    assert (size, access_key, topic, body_size) == (len(data), "user-1", "T", 4)
    assert signature == signature_of(row)


def test_the_sends_of_an_event_are_read_one_after_another() -> None:
    events = [signed(FIELDS, b"%d" % number) for number in range(3)]
    data = b"".join(events)
    at = 0
    for event in events:
        row = read(data, at)
        assert row is not None
        assert row[0] == len(event)
        at += row[0]
    assert read(data, at) is None


@examples(400)
@given(
    st.dictionaries(
        st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=4).filter(
            lambda name: name not in FIELDS
        ),
        st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E, exclude_characters='"\\'), max_size=20),
        max_size=8,
    ),
    st.text(st.characters(max_codepoint=0x7F), max_size=60),
    st.binary(max_size=40),
)
def test_whatever_ascii_is_signed_the_content_is_the_same(
    more: dict[str, str], properties: str, body: bytes
) -> None:
    data = signed({**more, **FIELDS, "i": properties}, body)
    row = read(data)
    if row is not None:  # else it is left to Python, which a test below bounds
        assert row[2] == signature_of(row)


@examples(400)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_damaged_frames_give_the_same_as_python_or_nothing(junk: bytes, at: int) -> None:
    data = signed(FIELDS)
    at = min(at, len(data))
    data = data[:at] + junk + data[at + len(junk) :]
    row = read(data)
    if row is None:
        return
    frames: list[Any] = []
    cut(data[: row[0]], frames)
    command = decode(frames[0])
    ext = dict(command.ext or {})
    assert (row[1], row[3]) == (ext["AccessKey"], ext["b" if command.code == 310 else "topic"])
    assert row[2].decode() == ext["Signature"]
    assert signature_of(row).decode() == sign(ext, command.body, USER.secret_key)


@pytest.mark.parametrize(
    "data",
    [
        packed(FIELDS),
        packed({**FIELDS, "AccessKey": "user-1"}),
        packed({**FIELDS, "Signature": "x"}),
        signed(FIELDS, code=11),
        signed(FIELDS, flag=1),
        signed({**FIELDS, "x": "ä"}),
        signed({**FIELDS, "i": "INNER_MULTI_DISPATCH\x01%LMQ%a\x02"}),
        signed({**FIELDS, **{f"f{number}": "1" for number in range(32)}}),
        signed(FIELDS)[:-1],
        b"",
    ],
    ids=[
        "unsigned",
        "no signature",
        "no key",
        "a pull",
        "a response",
        "not ASCII",
        "light",
        "many",
        "cut",
        "nothing",
    ],
)
def test_what_is_not_a_plain_signed_send_is_left_to_python(data: bytes) -> None:
    assert read(data) is None


def test_a_field_that_is_there_twice_is_left_to_python() -> None:
    ext = json.dumps(USER.signed(FIELDS, b"")).removesuffix("}") + ', "AccessKey": "other"}'
    header = ('{"code":310,"extFields":' + ext.replace(": ", ":").replace(", ", ",") + "}").encode()
    assert read(pack(JSON, header, b"")) is None


def test_binary_headers_are_left_to_python() -> None:
    command = Command(310, ext=USER.signed(FIELDS, b"x"), body=b"x", encoding=ROCKETMQ)
    assert read(encode(command)) is None


def test_a_position_outside_of_the_event_gives_nothing() -> None:
    data = signed(FIELDS)
    assert read(data, len(data) + 1) is None
    assert read(data, -1) is None
