"""Messages with a priority, as a user sends them."""

from typing import Any

import pytest

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message
from turbopump.client.rules import SendRules
from turbopump.testing import Cluster

RULES = SendRules(max_message_size=1000)


def test_a_message_goes_to_the_queue_of_its_priority_or_to_the_last() -> None:
    with Cluster(clock="virtual") as cluster, cluster.producer() as producer:
        topic = cluster.create_topic(queues=4)
        wishes = (0, 2, 3, 100)
        chosen = [producer.send(Message(topic, b"x", priority=wish)).queue.id for wish in wishes]
        assert chosen == [0, 2, 3, 3]
        found = {message.properties["_SYS_MSG_PRIORITY_"] for message in cluster.messages(topic)}
        assert found == {"0", "2", "3", "100"}


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"priority": -1}, "a whole number, at least 0"),
        ({"priority": 2**31}, "a whole number, at least 0"),
        ({"priority": "3"}, "a whole number, at least 0"),
        ({"priority": True}, "a whole number, at least 0"),
        ({"priority": 3, "delay": 1}, "not be given for a delayed message"),
        ({"priority": 3, "delay_level": 1}, "not be given for a delayed message"),
    ],
)
def test_what_cannot_be_one_is_said_before_anything_is_sent(wish: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        RULES.check(Message("T", b"x", **wish))


def test_a_batch_holds_none_of_them() -> None:
    with pytest.raises(InvalidArgument, match="one by one"):
        RULES.check_batch([Message("T", b"x", priority=1)])
