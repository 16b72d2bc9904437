"""Options of `turbopump send`; sending is tested in tests/integration/cli."""

import argparse
from datetime import timedelta

import pytest

from turbopump.cli.failures import CommandFailure
from turbopump.cli.main import parser_of
from turbopump.cli.send import messages_of, queue_among
from turbopump.client.message import Message, MessageQueue

NOW_MS = 1_700_000_000_000
QUEUES = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in (0, 1)]


def options(*words: str) -> argparse.Namespace:
    return parser_of("send", "turbopump send").read(words)


def messages(*words: str) -> list[Message]:
    return messages_of(options(*words), NOW_MS)


@pytest.mark.parametrize(
    "words",
    [
        ("t", "hello", "--tag", "x", "--key", "k"),
        ("--tag", "x", "t", "hello", "--key", "k"),
        ("t", "--tag", "x", "--key", "k", "hello"),
        ("--key", "k", "--tag", "x", "t", "hello"),
        ("--tag=x", "--key=k", "t", "--", "hello"),
    ],
)
def test_options_and_words_come_in_any_order(words: tuple[str, ...]) -> None:
    assert messages(*words) == [Message("t", b"hello", "x", ("k",))]


def test_a_body_may_begin_with_a_dash() -> None:
    assert messages("t", "-5")[0].body == b"-5"
    assert messages("t", "--", "-x")[0].body == b"-x"


def test_properties_delay_and_count() -> None:
    made = messages("t", "x", "--property", "a=1", "--property", "b=2=3", "--delay", "1h30m", "--count", "3")
    assert made == [Message("t", b"x", properties={"a": "1", "b": "2=3"}, delay=timedelta(minutes=90))] * 3


def test_a_time_of_delivery() -> None:
    (made,) = messages("t", "x", "--at", "2023-11-14T22:14:20Z")
    assert made.deliver_at == NOW_MS + 60_000


@pytest.mark.parametrize("at", ["10m", "2023-11-14T22:13:20Z", "1700000000", "soon"])
def test_a_time_that_has_passed_or_is_none_is_asked_wrongly(at: str) -> None:
    with pytest.raises(CommandFailure, match="--at") as caught:
        messages("t", "x", "--at", at)
    assert caught.value.status == 2


def test_each_line_is_a_message_and_empty_lines_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    made = messages("t", "one\r\n\ntwo\n\n", "--lines", "--count", "2")
    assert [message.body for message in made] == [b"one", b"two"] * 2
    assert capsys.readouterr().err == "turbopump: 2 empty lines are not sent\n"


@pytest.mark.parametrize(
    ("words", "blamed"),
    [
        (("--property", "novalue"), "must be NAME=VALUE"),
        (("--delay", "soon"), "a duration must be written as"),
        (("--delay", "1m", "--at", "2030-01-01T00:00Z"), "not allowed with"),
        (("--by", "k", "--queue", "1"), "not allowed with"),
        (("--queue", "x"), "must be a number of 0 or more"),
        (("--fly",), "--fly"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_right_help(
    words: tuple[str, ...], blamed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        options("t", "x", *words)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert blamed in line
    assert line.endswith("see turbopump send --help")


def test_a_queue_is_named_by_its_number_and_its_broker_where_several_have_it() -> None:
    assert queue_among(QUEUES, ("b", 1)) == QUEUES[3]
    assert queue_among(QUEUES[:2], ("", 1)) == QUEUES[1]
    with pytest.raises(CommandFailure, match="several brokers have it; write one of a:0, a:1, b:0, b:1"):
        queue_among(QUEUES, ("", 1))
    with pytest.raises(CommandFailure, match="there is none"):
        queue_among(QUEUES, ("", 7))
