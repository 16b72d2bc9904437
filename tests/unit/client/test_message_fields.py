"""Mistakes in a message are reported when it is made."""

from typing import Any

import pytest

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import CopiedMessage, Message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"topic": ""}, "the topic must not be empty"),
        ({"topic": "a b"}, "only letters"),
        ({"topic": ["orders"]}, "topic must be text, got list"),
        ({"body": "text"}, "body must be bytes, got str"),
        ({"tags": "a||b"}, r"tags must be one tag, got 'a\|\|b'"),
        ({"tags": " paid"}, "write 'paid'"),
        ({"tags": 7}, "tags must be text, got int"),
        ({"tags": ["paid"]}, "tags must be text, got list"),
        ({"tags": "a\x01b"}, "which separate properties"),
        ({"keys": ""}, "a key must not be empty"),
        ({"keys": ["A-1", ""]}, "a key must not be empty"),
        ({"keys": " "}, "not contain a blank"),
        ({"keys": "A 1"}, "not contain a blank"),
        ({"keys": [1]}, "a key must be text"),
        ({"keys": 1}, "keys must be text"),
        ({"properties": {"TAGS": "x"}}, "give it as tags="),
        ({"properties": {"a": 1}}, "properties must be text"),
        ({"properties": {"a": ""}}, "must have a name and a value"),
        ({"delay_level": -1}, "must be 0"),
        ({"delay_level": "3"}, "whole numbers"),
        ({"delay": -1}, "seconds or a timedelta"),
        ({"delay": 1, "delay_level": 1}, "only one of"),
        ({"priority": -1}, "at least 0"),
        ({"priority": 1, "delay": 5}, "priority must not be given"),
    ],
)
def test_what_is_wrong_with_a_message_is_known_when_it_is_made(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Message(**{"topic": "T", "body": b"x"} | fields)


def test_a_message_made_of_a_stored_one_is_not_checked() -> None:
    copy = CopiedMessage("T", b"", tags="a||b", properties={"RECONSUME_TIME": "3"})
    assert isinstance(copy, Message)
