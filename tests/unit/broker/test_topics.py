import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.kit import HandClock
from tests.unit.store.kit import apache_store

from turbopump.broker.config import BrokerIdentity, TopicRules
from turbopump.broker.topics import Topic, TopicTable
from turbopump.protocol.errors import BrokenBody, InvalidParameter, Refused, SystemFailure, TopicNotFound

PEER = ("10.0.0.1", 1234)
IDENTITY = BrokerIdentity(broker_name="broker-a")


def table(rules: TopicRules | None = None) -> TopicTable:
    return TopicTable(rules or TopicRules(), IDENTITY, HandClock())


def told(topics: TopicTable) -> list[list[str]]:
    changes: list[list[str]] = []
    topics.on_change = lambda changed: changes.append([topic.name for topic in changed])
    return changes


def test_the_built_in_topics_are_those_of_apache() -> None:
    topics = {topic.name: (topic.read_queues, topic.perm) for topic in table().all()}
    assert topics == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "DefaultCluster": (16, 7),
        "broker-a": (1, 7),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "DefaultCluster_REPLY_TOPIC": (1, 6),
        "rmq_sys_REVIVE_LOG_DefaultCluster": (8, 6),
        "rmq_sys_SYNC_BROKER_MEMBER_broker-a": (1, 1),
        "RMQ_SYS_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_TRANS_OP_HALF_TOPIC": (1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC": (1, 6),
        "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC": (1, 6),
        "rmq_sys_wheel_timer": (1, 6),
    }


def test_the_rules_decide_about_some_of_them() -> None:
    topics = table(TopicRules(auto_create=False, cluster_topic=False, broker_topic=False, trace_topic=True))
    assert topics.find("TBW102") is None
    assert topics.find("RMQ_SYS_TRACE_TOPIC") is not None
    assert [topics.find(name).perm for name in ("DefaultCluster", "broker-a")] == [1, 1]  # type: ignore[union-attr]


def test_a_send_creates_its_topic_after_the_default_topic() -> None:
    topics = table()
    changes = told(topics)
    topic = topics.for_send("New", "TBW102", 4, unit_mode=False, peer=PEER)
    assert topic == Topic("New", 4, 4, 6)
    assert topics.for_send("New", "TBW102", 99, unit_mode=False, peer=PEER) is topic
    assert topics.version.counter == 1
    assert changes == [["New"]]


@pytest.mark.parametrize(("asked", "queues"), [(4, 4), (100, 8), (0, 0), (-3, 0)])
def test_it_gets_no_more_queues_than_the_default_topic_has(asked: int, queues: int) -> None:
    assert table().for_send("New", "TBW102", asked, False, PEER).write_queues == queues


def test_the_topic_of_the_cluster_can_be_the_model_too() -> None:
    assert table().for_send("New", "DefaultCluster", 10, False, PEER).write_queues == 10


@pytest.mark.parametrize(
    ("rules", "default_topic"),
    [
        (TopicRules(auto_create=False), "TBW102"),
        (TopicRules(), "NOPE"),
        (TopicRules(), "BenchmarkTest"),
    ],
)
def test_a_send_to_an_unknown_topic_is_refused_without_a_model(rules: TopicRules, default_topic: str) -> None:
    topics = table(rules)
    with pytest.raises(TopicNotFound) as refused:
        topics.for_send("NEW1", default_topic, 4, False, PEER)
    assert refused.value.remark.startswith("topic[NEW1] not exist, apply first please!\nSee https://")
    assert topics.version.counter == 0


def test_tbw102_of_an_older_file_creates_nothing_once_auto_creation_is_off() -> None:
    before = table()
    before.for_send("x", "TBW102", 1, False, PEER)
    topics = table(TopicRules(auto_create=False))
    topics.load(before.dump())
    assert topics.find("TBW102") is not None
    with pytest.raises(TopicNotFound):
        topics.for_send("y", "TBW102", 1, False, PEER)


def test_a_retry_topic_is_created_even_without_a_model() -> None:
    topics = table(TopicRules(auto_create=False))
    assert topics.for_send("%RETRY%G", "TBW102", 4, unit_mode=True, peer=PEER) == Topic(
        "%RETRY%G", 1, 1, 6, sys_flag=2
    )
    assert table().for_send("Unit", "TBW102", 4, unit_mode=True, peer=PEER).sys_flag == 1


def test_the_topic_of_a_group_grows_with_its_retry_queues_and_never_shrinks() -> None:
    topics = table()
    changes = told(topics)
    topics.for_group("%RETRY%G", 2)
    assert topics.for_group("%RETRY%G", 5) == Topic("%RETRY%G", 5, 5)
    assert topics.for_group("%RETRY%G", 1) == Topic("%RETRY%G", 5, 5)
    assert len(changes) == 2


def test_the_topic_of_a_group_follows_its_order() -> None:
    topics = table()
    changes = told(topics)
    assert topics.for_group("%RETRY%G", 2) == Topic("%RETRY%G", 2, 2)
    assert topics.for_group("%RETRY%G", 1) == Topic("%RETRY%G", 2, 2)
    assert topics.for_group("%RETRY%G", 5, order=True).order
    assert topics.for_group("%RETRY%G", 1).order, "who does not say leaves it as it is"
    assert changes == [["%RETRY%G"], ["%RETRY%G"]]


def test_an_update_replaces_the_topic_but_its_attributes_are_altered() -> None:
    topics = table()
    assert topics.update(Topic("T", 1, 1), {"+message.type": "DELAY"})
    assert topics.update(Topic("T", 4, 2, 4), {})
    assert topics.find("T") == Topic("T", 4, 2, 4, attributes={"message.type": "DELAY"})
    changes = told(topics)
    assert not topics.update(Topic("T", 4, 2, 4), {})
    assert changes == []


@pytest.mark.parametrize(
    ("topic", "kind", "remark"),
    [
        (Topic("bad topic!"), InvalidParameter, "contains illegal characters"),
        (Topic(""), InvalidParameter, "The specified topic is blank."),
        (Topic("x" * 128), InvalidParameter, "is longer than topic max length: 127"),
        (
            Topic("SCHEDULE_TOPIC_XXXX"),
            InvalidParameter,
            "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system",
        ),
        (
            Topic("DefaultCluster"),
            InvalidParameter,
            "The topic[DefaultCluster] is conflict with system topic.",
        ),
        (Topic("broker-a"), InvalidParameter, "conflict with system topic"),
        (Topic("rmq_sys_anything"), InvalidParameter, "conflict with system topic"),
        (Topic("T", filter_type="ZZ"), SystemFailure, "topicFilterType = [ZZ] value invalid"),
        (Topic("T", write_queues=65_537), InvalidParameter, "queues"),
    ],
)
def test_topics_that_cannot_be_are_refused(topic: Topic, kind: type[Refused], remark: str) -> None:
    topics = table()
    with pytest.raises(kind) as refused:
        topics.update(topic, {})
    assert remark in refused.value.remark
    assert topics.version.counter == 0


@pytest.mark.parametrize(
    "topic", [Topic("x" * 127), Topic("%RETRY%" + "g" * 248), Topic("T", 65_536, -1, -1)]
)
def test_topics_at_the_bounds_are_accepted(topic: Topic) -> None:
    assert table().update(topic, {})


def test_a_list_is_created_whole_or_not_at_all() -> None:
    topics = table()
    with pytest.raises(InvalidParameter):
        topics.update_all([(Topic("A"), {}), (Topic("bad one"), {})])
    assert topics.find("A") is None
    assert topics.update_all([(Topic("A"), {}), (Topic("B"), {})])
    assert topics.version.counter == 1


def test_mixed_message_types_need_a_rule_that_allows_them() -> None:
    with pytest.raises(InvalidParameter, match="MIXED message type is not supported"):
        table().update(Topic("T"), {"+message.type": "MIXED"})
    assert table(TopicRules(mixed_types=True)).update(Topic("T"), {"+message.type": "MIXED"})


def test_system_topics_can_be_changed_when_the_guard_is_down() -> None:
    assert table(TopicRules(guard_system_topics=False)).update(Topic("BenchmarkTest", 2, 2), {})


def test_a_deleted_topic_is_gone_and_a_second_delete_is_none() -> None:
    topics = table()
    topics.update(Topic("T"), {})
    changes = told(topics)
    assert topics.delete("T")
    assert not topics.delete("T")
    assert topics.find("T") is None
    assert changes == [[]]
    for name in ("", "  ", "SELF_TEST_TOPIC"):
        with pytest.raises(InvalidParameter):
            topics.delete(name)


def test_name_servers_can_mark_topics_as_ordered() -> None:
    topics = table()
    topics.update(Topic("T"), {})
    changes = told(topics)
    topics.mark_ordered(["T", "unknown"])
    topics.mark_ordered(["T"])
    assert topics.find("T") == Topic("T", order=True)
    assert changes == [[]]


def test_routes_show_no_more_permission_than_the_broker_has() -> None:
    topics = table()
    assert topics.registrations(["TBW102"]).topicConfigTable["TBW102"].perm == 7
    changes = told(topics)
    topics.configure(TopicRules(permission=4))
    assert len(changes) == 1
    assert len(changes[0]) == len(topics.all())
    registered = topics.registrations(["TBW102", "BenchmarkTest", "unknown"]).topicConfigTable
    assert {name: config.perm for name, config in registered.items()} == {"TBW102": 4, "BenchmarkTest": 4}
    assert topics.find("TBW102").perm == 7  # type: ignore[union-attr]


def test_a_topic_prints_as_in_apaches_remarks() -> None:
    assert str(Topic("T1", 1, 1)) == (
        "TopicConfig [topicName=T1, readQueueNums=1, writeQueueNums=1, perm=RW-, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false, attributes={}]"
    )


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.5.0-clean"])
def test_the_file_of_an_apache_broker_is_read_and_ours_holds_the_same(name: str, tmp_path: Path) -> None:
    with open(apache_store(name, tmp_path) + "/config/topics.json", "rb") as file:
        data = file.read()
    topics = table()
    count = topics.load(data)
    theirs = json.loads(data)
    assert count == len(theirs["topicConfigTable"])
    assert topics.version.counter == theirs["dataVersion"]["counter"]
    for topic_name, config in theirs["topicConfigTable"].items():
        found = topics.find(topic_name)
        assert found is not None
        assert (found.read_queues, found.write_queues) == (config["readQueueNums"], config["writeQueueNums"])
        assert (found.perm, found.order, found.sys_flag) == (
            config["perm"],
            config["order"],
            config["topicSysFlag"],
        )
    again = table()
    again.load(topics.dump())
    assert again.all() == topics.all()
    assert again.version == topics.version
    ours = json.loads(topics.dump())
    assert {
        key: ours["topicConfigTable"][key] | {"attributes": {}} for key in theirs["topicConfigTable"]
    } == {key: config | {"attributes": {}} for key, config in theirs["topicConfigTable"].items()}


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"topicConfigTable":{"T":7}}', b"\0" * 100])
def test_a_damaged_file_is_refused_and_leaves_the_table_as_it_was(data: bytes) -> None:
    topics = table()
    before = topics.all()
    with pytest.raises(BrokenBody):
        topics.load(data)
    assert topics.all() == before


TOPICS = st.builds(
    Topic,
    st.from_regex(r"[a-zA-Z0-9_%|-]{1,20}", fullmatch=True),
    st.integers(0, 1000),
    st.integers(0, 1000),
    st.integers(0, 7),
    st.sampled_from(["SINGLE_TAG", "MULTI_TAG"]),
    st.integers(0, 3),
    st.booleans(),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
)


@given(st.lists(TOPICS, max_size=5))
def test_what_is_dumped_is_loaded_again(wanted: list[Topic]) -> None:
    topics = table(TopicRules(guard_system_topics=False))
    for topic in wanted:
        topics.update(replace(topic, attributes={}), {})
    again = table()
    again.load(topics.dump())
    assert {topic.name: topic for topic in again.all()} == {topic.name: topic for topic in topics.all()}
