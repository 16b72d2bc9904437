"""Foreign text on terminals and in JSON."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.protocol.body_text import body_fields, body_text, printable, printable_json

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E, 0x2066)]


@pytest.mark.parametrize("control", CONTROLS)
def test_every_control_character_is_escaped(control: str) -> None:
    shown = printable(f"a{control}b")
    assert shown == "a" + control.encode("unicode_escape").decode() + "b"
    assert shown.isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain text",
        "caf\u00e9",
        "\u4e2d\u6587\u3000\u5168\u89d2",
        "\U0001f468\u200d\U0001f469",
        "a\\nb \\x1b",
    ],
)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


def test_what_a_caller_keeps_is_kept() -> None:
    assert printable("a\n\tb\x1b", keep="\n\t") == "a\n\tb\\x1b"


def test_bytes_that_are_no_text_are_shown_as_bytes() -> None:
    assert body_text(b"ok\xff\x00\n") == r"ok\xff\x00\n"
    assert body_text("中".encode("gbk"), "gbk") == "中"


@given(st.binary())
def test_a_line_of_any_body_obeys_nothing(body: bytes) -> None:
    assert not set(body_text(body)) & set(CONTROLS)


@given(st.binary())
def test_any_body_can_be_had_back_from_its_json_field(body: bytes) -> None:
    fields = body_fields(body)
    assert len(fields) == 1
    assert (
        base64.b64decode(fields["bodyBase64"]) if "bodyBase64" in fields else fields["body"].encode()
    ) == body


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_says_the_same_after_the_escapes(text: str) -> None:
    document = json.dumps({"body": text}, ensure_ascii=False)
    shown = printable_json(document)
    assert json.loads(shown) == {"body": text}
    assert not set(shown) & set(CONTROLS)
