"""Bodies whose values have other JSON types than Java writes, as fastjson and fastjson2 read them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocol.kit import relaxed

from turbopump.protocol import bodies
from turbopump.protocol.bodies import (
    ConsumerData,
    CreateTopicListRequestBody,
    DataVersion,
    HeartbeatData,
    LockBatchRequestBody,
    ResetOffsetBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
    WireQueue,
)
from turbopump.protocol.errors import BrokenBody

# As librocketmq 2.x writes it: enums by ordinal, the version as text, no `unitMode`.
OF_THE_CPP_CLIENT = b"""\
{"clientID":"127.0.0.1@7#c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"G",
"messageModel":1,"subscriptionDataSet":[{"codeSet":["2598919"],"subString":"a","subVersion":"1794892360419",
"tagsSet":["a"],"topic":"T"}]}],"producerDataSet":[]}
"""


def test_the_heartbeat_of_the_cpp_client_is_read() -> None:
    beat = HeartbeatData.decode(OF_THE_CPP_CLIENT)
    assert beat.consumerDataSet == [
        ConsumerData(
            consumeFromWhere="CONSUME_FROM_LAST_OFFSET",
            consumeType="CONSUME_PASSIVELY",
            groupName="G",
            messageModel="CLUSTERING",
            subscriptionDataSet=[
                SubscriptionData(
                    codeSet=[2598919], subString="a", subVersion=1794892360419, tagsSet=["a"], topic="T"
                )
            ],
        )
    ]


def read(kind: type[bodies.Body], name: str, value: Any) -> Any:
    return getattr(kind.decode(msgspec.json.encode({name: value})), name)


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (0, "CONSUME_ACTIVELY"),
        (2, "CONSUME_POP"),
        (1.0, "CONSUME_PASSIVELY"),
        ("1", "CONSUME_PASSIVELY"),
        ("CONSUME_ACTIVELY", "CONSUME_ACTIVELY"),
        ("consume_passively", "CONSUME_PASSIVELY"),
        ("ConsumePassively", "CONSUME_PASSIVELY"),
        ("CONSUME_BY_MAGIC", None),
        ("", None),
        (None, None),
    ],
)
def test_an_enum_is_a_name_or_an_ordinal(sent: object, found: str | None) -> None:
    assert read(ConsumerData, "consumeType", sent) == found


def test_an_unknown_name_is_the_default_where_there_is_one() -> None:
    assert read(TopicConfig, "topicFilterType", "NO_TAG") == "SINGLE_TAG"


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ("1794892360419", 1794892360419),
        ("-5", -5),
        ("+5", 5),
        ("1,234", 1234),
        ("1.7", 1),
        (1.7, 1),
        (-1.7, -1),
        (1e3, 1000),
        (True, 1),
        ("", 0),
        ("null", 0),
        (None, 0),
    ],
)
def test_a_number_may_be_text_or_have_a_fraction(sent: object, found: int) -> None:
    assert read(SubscriptionData, "subVersion", sent) == found


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (5, "5"),
        (1.5, "1.5"),
        (True, "true"),
        ({"a": 1}, '{"a":1}'),
        ([1], "[1]"),
        (None, ""),
    ],
)
def test_a_text_may_be_anything(sent: object, found: str) -> None:
    assert read(ConsumerData, "groupName", sent) == found


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ("true", True),
        ("TRUE", True),
        ("True", True),
        ("1", True),
        ("Y", True),
        (1, True),
        (1.0, True),
        ("false", False),
        ("0", False),
        ("N", False),
        (0, False),
        (2, False),
        ("", False),
        ("null", False),
        (None, False),
    ],
)
def test_a_boolean_may_be_a_number_or_text(sent: object, found: bool) -> None:
    assert read(ConsumerData, "unitMode", sent) is found


@pytest.mark.parametrize(
    ("kind", "name", "sent"),
    [
        (ConsumerData, "consumeType", 3),
        (ConsumerData, "consumeType", -1),
        (ConsumerData, "consumeType", "7"),
        (ConsumerData, "consumeType", True),
        (ConsumerData, "consumeType", {}),
        (ConsumerData, "consumeType", []),
        (ConsumerData, "unitMode", "yes"),
        (ConsumerData, "unitMode", []),
        (SubscriptionData, "subVersion", "x"),
        (SubscriptionData, "subVersion", " 5 "),
        (SubscriptionData, "subVersion", {}),
        (SubscriptionData, "subVersion", []),
        (SubscriptionData, "subVersion", "9" * 20),
        (SubscriptionData, "subVersion", "9" * 5000),
        (SubscriptionData, "codeSet", ["x"]),
        (SubscriptionData, "codeSet", [5000000000]),
        (HeartbeatData, "consumerDataSet", ["x"]),
        (HeartbeatData, "consumerDataSet", [5]),
        (HeartbeatData, "consumerDataSet", [None]),
        (LockBatchRequestBody, "mqSet", ["x"]),
        (LockBatchRequestBody, "mqSet", [None]),
        (TopicConfigSerializeWrapper, "topicConfigTable", {"T": None}),
        (TopicConfigSerializeWrapper, "topicConfigTable", {"T": 5}),
        (TopicConfigSerializeWrapper, "topicConfigTable", []),
        (TopicConfigSerializeWrapper, "dataVersion", "x"),
        (DataVersion, "counter", {"value": 3}),
    ],
)
def test_what_apaches_reader_refuses_is_broken(kind: type[bodies.Body], name: str, sent: object) -> None:
    with pytest.raises(BrokenBody):
        read(kind, name, sent)


def test_lists_take_one_object_or_one_text_and_leave_out_nulls() -> None:
    assert read(HeartbeatData, "consumerDataSet", {"groupName": "G"}) == [ConsumerData(groupName="G")]
    assert read(SubscriptionData, "tagsSet", "a") == ["a"]
    assert read(SubscriptionData, "tagsSet", [5, True, None, "a"]) == ["5", "true", "a"]
    assert read(SubscriptionData, "codeSet", [None, "5", 6]) == [5, 6]
    assert read(SubscriptionData, "tagsSet", None) == []


def test_values_of_maps_are_read_alike() -> None:
    group = SubscriptionGroupConfig.decode(b'{"groupName":7,"attributes":{"a":1,"b":null,"c":true}}')
    assert (group.groupName, group.attributes) == ("7", {"a": "1", "c": "true"})
    offsets = ResetOffsetBody.decode(b'{"offsetTable":{{"brokerName":5,"queueId":"3","topic":"T"}:"7"}}')
    assert offsets.offsetTable == {WireQueue("5", 3, "T"): 7}


def test_nulls_inside_are_defaults() -> None:
    group = SubscriptionGroupConfig.decode(
        b'{"groupName":"G","retryQueueNums":null,"attributes":null,"groupRetryPolicy":null}'
    )
    assert group == SubscriptionGroupConfig(groupName="G")
    queues = LockBatchRequestBody.decode(b'{"mqSet":[{"brokerName":"b","queueId":null,"topic":5}]}').mqSet
    assert queues == [WireQueue("b", 0, "5")]


def test_a_null_that_a_field_may_be_stays_beside_what_is_repaired() -> None:
    found = SubscriptionData.decode(b'{"expressionType":null,"topic":5,"unknown":{"a":[null]}}')
    assert (found.expressionType, found.topic) == (None, "5")


def test_a_list_of_topics_with_ordinals_is_read() -> None:
    body = b'{"topicConfigList":[{"topicName":"T","perm":"6","order":"true","topicFilterType":1}]}'
    assert CreateTopicListRequestBody.decode(body).topicConfigList == [
        TopicConfig(topicName="T", perm=6, order=True, topicFilterType="MULTI_TAG")
    ]


def all_bodies() -> list[type[bodies.Body]]:
    kinds = [bodies.Body]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return sorted(set(kinds) - {bodies.Body, bodies.DialectBody}, key=lambda kind: kind.__name__)


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=4
)


@given(st.data())
@relaxed
def test_no_value_raises_anything_but_broken_body(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(all_bodies()))
    fields = st.dictionaries(st.sampled_from(kind.__struct_fields__ or ("a",)), values)
    try:
        text = msgspec.json.encode(data.draw(fields))
    except OverflowError:
        return
    try:
        found = kind.decode(text)
    except BrokenBody:
        return
    assert kind.decode(found.encode()) == found
