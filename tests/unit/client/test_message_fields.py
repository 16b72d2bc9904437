"""Mistakes in a message are reported when it is made."""

from typing import Any

import pytest

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import CopiedMessage, Message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topic": ""}, "the topic is empty"),
        ({"topic": "a b"}, "not allowed"),
        ({"topic": ["orders"]}, "a topic is text, not list"),
        ({"body": "text"}, "a body is bytes, not str"),
        ({"tags": "a||b"}, r"tags must be one tag, got 'a\|\|b'"),
        ({"tags": " paid"}, "write 'paid'"),
        ({"tags": 7}, "the tag is text, not int"),
        ({"tags": ["paid"]}, "the tag is text, not list"),
        ({"tags": "a\x01b"}, "which the protocol uses"),
        ({"keys": ""}, "a key must not be empty"),
        ({"keys": ["A-1", ""]}, "a key must not be empty"),
        ({"keys": " "}, "has a blank"),
        ({"keys": "A 1"}, "has a blank"),
        ({"keys": [1]}, "is no text"),
        ({"keys": 1}, "a key is text"),
        ({"properties": {"TAGS": "x"}}, "give it as tags="),
        ({"properties": {"a": 1}}, "properties are text"),
        ({"properties": {"a": ""}}, "must have a name and a value"),
        ({"delay_level": -1}, "0 is at once"),
        ({"delay_level": "3"}, "whole numbers"),
        ({"delay": -1}, "seconds, or a timedelta"),
        ({"delay": 1, "delay_level": 1}, "give one of them"),
        ({"priority": -1}, "from 0 on"),
        ({"priority": 1, "delay": 5}, "no priority"),
    ],
)
def test_what_is_wrong_with_a_message_is_known_when_it_is_made(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Message(**{"topic": "T", "body": b"x"} | fields)


def test_a_message_made_of_a_stored_one_is_not_checked() -> None:
    copy = CopiedMessage("T", b"", tags="a||b", properties={"RECONSUME_TIME": "3"})
    assert isinstance(copy, Message)
