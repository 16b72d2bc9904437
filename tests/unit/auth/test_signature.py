import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.auth import signature
from turbopump.auth.signature import Credentials, is_signed_by, sign
from turbopump.protocol.command import Command
from turbopump.protocol.frame import ROCKETMQ

ROCKETMQ_USER = Credentials("RocketMQ", "12345678")


def test_a_route_request_is_signed_as_by_the_java_client() -> None:
    assert ROCKETMQ_USER.signed({"topic": "TBW102"}, b"") == {
        "topic": "TBW102",
        "AccessKey": "RocketMQ",
        "Signature": "oSGRG6trLxifIhEAdvqaevu5fkU=",
    }
    assert (
        sign({"AccessKey": "RocketMQ", "topic": "topicB"}, b"", "12345678") == "3VG2cNKuHpI+aZbSOUSOxoEmKw0="
    )


def test_a_request_without_fields_is_signed_by_its_key_alone() -> None:
    signed = Credentials("inner1", "inner-secret").signed(None, b"")
    assert signed["Signature"] == "riR2m0PJmpsOxRVxwP17CYDM/qA="


def test_secrets_are_not_part_of_the_text_of_credentials() -> None:
    text = repr(Credentials("RocketMQ", "12345678", "token-1"))
    assert "12345678" not in text
    assert "token-1" not in text


def test_a_signature_is_right_with_any_of_the_secrets_and_wrong_with_others() -> None:
    command = Command(10, ext=ROCKETMQ_USER.signed({"topic": "a"}, b"body"), body=b"body")
    assert is_signed_by(command, ["new-secret", "12345678"])
    assert not is_signed_by(command, ["new-secret"])
    assert not is_signed_by(command, [])
    command.body = b"other"
    assert not is_signed_by(command, ["12345678"])


def test_a_field_that_was_added_after_the_signature_makes_it_wrong() -> None:
    command = Command(10, ext={**ROCKETMQ_USER.signed({"topic": "a"}, b""), "e": "1"})
    assert not is_signed_by(command, ["12345678"])


def test_a_unique_key_query_and_a_token_may_be_added_after_the_signature() -> None:
    signed = ROCKETMQ_USER.signed({"topic": "a", "key": "k"}, b"")
    assert is_signed_by(Command(12, ext={**signed, "_UNIQUE_KEY_QUERY": "true"}), ["12345678"])
    assert is_signed_by(Command(12, ext={**signed, "SecurityToken": "t"}), ["12345678"])


def test_an_empty_value_of_a_binary_header_counts_as_nothing_or_as_null() -> None:
    nothing = ROCKETMQ_USER.signed({"topic": "a", "i": ""}, b"")
    null = ROCKETMQ_USER.signed({"topic": "a", "i": "null"}, b"")["Signature"]
    assert is_signed_by(Command(10, ext=nothing, encoding=ROCKETMQ), ["12345678"])
    assert is_signed_by(Command(10, ext={**nothing, "Signature": null}, encoding=ROCKETMQ), ["12345678"])


def test_a_request_without_a_signature_is_not_signed() -> None:
    assert not is_signed_by(Command(10, ext={"AccessKey": "RocketMQ"}), ["12345678"])
    assert not is_signed_by(Command(10), ["12345678"])


FIELDS = st.dictionaries(st.text(max_size=6), st.text(max_size=12), max_size=8)
SECRETS = st.text(min_size=1, max_size=100)


@given(FIELDS, st.binary(max_size=40), SECRETS)
def test_a_signature_is_the_hmac_of_the_values_in_javas_order(
    fields: dict[str, str], body: bytes, secret: str
) -> None:
    fields.pop("Signature", None)
    names = sorted(fields, key=lambda name: name.encode("utf-16-be"))
    content = "".join(fields[name] for name in names).encode() + body
    expected = base64.b64encode(hmac.digest(secret.encode(), content, "sha1")).decode()
    assert sign(fields, body, secret) == sign({**fields, "Signature": "old"}, body, secret) == expected


@given(FIELDS, st.binary(max_size=40), SECRETS, st.booleans())
def test_what_is_signed_is_right_each_time(
    fields: dict[str, str], body: bytes, secret: str, is_binary: bool
) -> None:
    command = Command(310, ext=Credentials("key", secret).signed(fields, body), body=body)
    command.encoding = ROCKETMQ if is_binary else command.encoding
    for _ in range(2):  # the second time, the order of the fields is remembered
        assert is_signed_by(command, (secret,))
        assert not is_signed_by(command, (f"{secret}x",))


def test_names_are_ordered_by_their_utf_16_units() -> None:
    fields = {"\uffee": "last in utf-8 order", "\U0001f600": "first"}
    assert sign(fields, b"", "s") == sign({"a": "first", "b": "last in utf-8 order"}, b"", "s")


def test_a_secret_longer_than_a_block_is_shortened_by_its_digest() -> None:
    secret = "s" * 65
    expected = base64.b64encode(hmac.digest(secret.encode(), b"value", "sha1")).decode()
    assert sign({"name": "value"}, b"", secret) == expected


def test_only_a_query_may_leave_the_mark_of_a_unique_key_out() -> None:
    command = Command(11, ext={**ROCKETMQ_USER.signed({"topic": "a"}, b""), "_UNIQUE_KEY_QUERY": "true"})
    assert not is_signed_by(command, ["12345678"])


def test_the_fields_of_a_zone_may_be_added_after_the_signature() -> None:
    signed = ROCKETMQ_USER.signed({"topic": "a"}, b"")
    command = Command(105, ext={**signed, "__ZONE_NAME": "z", "__ZONE_MODE": "true"})
    assert is_signed_by(command, ["12345678"])


def test_an_empty_value_of_a_json_header_counts_as_nothing() -> None:
    null = ROCKETMQ_USER.signed({"topic": "a", "i": "null"}, b"")["Signature"]
    assert not is_signed_by(
        Command(10, ext={"topic": "a", "i": "", "AccessKey": "RocketMQ", "Signature": null}), ["12345678"]
    )


def test_the_number_of_variants_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("_UNIQUE_KEY_QUERY", "SecurityToken", "__ZONE_NAME", "__ZONE_MODE")
    command = Command(
        12, ext={**dict.fromkeys(names, ""), "Signature": "x", "AccessKey": "k"}, encoding=ROCKETMQ
    )
    made: list[bytes] = []
    right = signature.signature_of
    monkeypatch.setattr(
        signature, "signature_of", lambda content, key: made.append(content) or right(content, key)
    )
    assert not is_signed_by(command, ("one", "two"))
    assert len(made) == 2 * signature.MAX_VARIANTS


def test_orders_of_fields_are_remembered_for_right_signatures_only_and_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signature, "_ORDERS", {})
    monkeypatch.setattr(signature, "MAX_ORDERS", 2)
    for number in range(5):
        signed = ROCKETMQ_USER.signed({f"name{number}": "a"}, b"")
        assert not is_signed_by(Command(10, ext=signed), ["wrong"])
        assert tuple(signed) not in signature._ORDERS
        assert is_signed_by(Command(10, ext=signed), ["12345678"])
        assert tuple(signed) in signature._ORDERS
        assert len(signature._ORDERS) <= 2
    long = ROCKETMQ_USER.signed({"n" * signature.MAX_NAMES: "a"}, b"")
    assert is_signed_by(Command(10, ext=long), ["12345678"])
    assert tuple(long) not in signature._ORDERS
