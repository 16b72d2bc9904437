import pytest

from turbopump.broker.attributes import altered, parse_changes
from turbopump.protocol.errors import SystemFailure


def test_changes_are_read_from_text() -> None:
    assert parse_changes("+message.type=FIFO,-reserve.time") == {"+message.type": "FIFO", "-reserve.time": ""}
    assert parse_changes("") == {}
    assert parse_changes(None) == {}


@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("message.type=DELAY", "add/alter attribute format is wrong: message.type"),
        ("message.type", "delete attribute format is wrong: message.type"),
        ("+a=1,+a=2", "key duplication: +a"),
    ],
)
def test_text_that_says_neither_add_nor_remove_is_refused(text: str, remark: str) -> None:
    with pytest.raises(SystemFailure) as refused:
        parse_changes(text)
    assert refused.value.remark == remark


def test_a_new_topic_gets_its_attributes_and_an_old_one_keeps_the_rest() -> None:
    assert altered(None, {"+message.type": "DELAY"}) == {"message.type": "DELAY"}
    before = {"message.type": "DELAY", "reserve.time": "5"}
    assert altered(before, {"+message.type": "FIFO"}) == {"message.type": "FIFO", "reserve.time": "5"}
    assert altered(before, {"-reserve.time": ""}) == {"message.type": "DELAY"}
    assert before == {"message.type": "DELAY", "reserve.time": "5"}


@pytest.mark.parametrize(
    ("current", "changes", "remark"),
    [
        (
            None,
            {"-message.type": ""},
            "only add attribute is supported while creating topic. key: message.type",
        ),
        (None, {"+zz": "1"}, "unsupported key: zz"),
        (None, {"+": "1"}, "kv string format wrong."),
        (None, {"++a": "1"}, "kv string format wrong."),
        ({}, {"*message.type": "FIFO"}, "wrong format key: message.type"),
        ({}, {"-message.type": ""}, "attempt to delete a nonexistent key: message.type"),
        (
            {"message.type": "X"},
            {"+message.type": "FIFO", "-message.type": ""},
            "alter duplication key. key: message.type",
        ),
        ({}, {"+queue.type": "SimpleCQ"}, "attempt to update an unchangeable attribute. key: queue.type"),
        (None, {"+reserve.time": "-2"}, "value is not in range(-1, 9223372036854775807)"),
        (None, {"+reserve.time": "soon"}, "value is not in range(-1, 9223372036854775807)"),
        (None, {"+queue.type": "OtherCQ"}, "value is not in set: [SimpleCQ, BatchCQ]"),
        ({}, {"+queue.type": "BatchCQ"}, "attempt to update an unchangeable attribute. key: queue.type"),
        (None, {"+cleanup.policy": "COMPACTION"}, "cleanup.policy=COMPACTION is not supported yet"),
    ],
)
def test_changes_that_cannot_be_are_refused_in_apaches_words(
    current: dict[str, str] | None, changes: dict[str, str], remark: str
) -> None:
    with pytest.raises(SystemFailure) as refused:
        altered(current, changes)
    assert refused.value.remark == remark


def test_a_value_outside_its_set_is_refused() -> None:
    with pytest.raises(SystemFailure, match="value is not in set"):
        altered(None, {"+message.type": "SLOW"})
