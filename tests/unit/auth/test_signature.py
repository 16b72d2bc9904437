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
