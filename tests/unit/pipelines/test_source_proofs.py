"""Offsets with their proofs as JSON, and what is said of brokers that are missing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.client.admin.clusters import BrokerAt, Layout
from turbopump.client.message import MessageQueue
from turbopump.pipelines.source.broker_client import missing_of
from turbopump.pipelines.source.offsets import BadOffsets, missing_brokers, positions_of
from turbopump.pipelines.source.proofs import ProvenOffsets, full_document, host_and_time, mark_of, offsets_of
from turbopump.pipelines.source.removed_queues import is_of_removed
from turbopump.protocol.errors import Refused

NAMES = st.sampled_from(["a", "b-1"])
QUEUES = st.builds(MessageQueue, st.sampled_from(["T", "%RETRY%g"]), NAMES, st.integers(0, 5))
OFFSETS = st.builds(
    ProvenOffsets,
    st.dictionaries(QUEUES, st.integers(0, 1 << 62)),
    st.dictionaries(QUEUES, st.builds(mark_of, st.just("7F000001"), st.integers(0, 1 << 41))),
    st.dictionaries(NAMES, st.sampled_from(["C", "D"])),
    st.none() | st.integers(0, 1 << 41),
    st.frozensets(NAMES),
)


@given(OFFSETS)
def test_offsets_and_proofs_come_back_from_json(offsets):
    document = json.loads(json.dumps(full_document(offsets)))
    assert offsets_of(document) == offsets
    if offsets.positions:
        assert positions_of(document) == offsets.positions  # who wants the positions alone


def test_a_checkpoint_from_before_there_were_proofs_is_read():
    assert offsets_of({"T": {"a": {"0": 5}}}) == ProvenOffsets({MessageQueue("T", "a", 0): 5})


@pytest.mark.parametrize("proof", [[], {"marks": {"T": 5}}, {"clusters": 5}, {"missing": 5}])
def test_proofs_of_another_shape_are_refused(proof):
    with pytest.raises(BadOffsets):
        offsets_of({"T": {"a": {"0": 5}}, "@": proof or ["x"]})


def test_a_mark_names_the_host_and_the_time_of_a_record():
    mark = mark_of("7F00000100002A9F00000000000003E8", 1_700_000_000_000)
    assert host_and_time(mark) == ("7F00000100002A9F", 1_700_000_000_000)


def test_a_broker_is_missing_without_its_master():
    layout = Layout((BrokerAt("C", "a", 0, "h:1"), BrokerAt("C", "b", 1, "h:2")))
    missing = missing_of({"a", "b", "c"}, layout)
    assert missing == {"b": "has no master now", "c": "is not registered with the name server"}
    told = str(missing_brokers(missing, "T"))
    assert told.startswith("a part of T is missing: broker b has no master now; broker c is not registered")
    assert "allowMissingBrokers" in told


@pytest.mark.parametrize("code", [1, 29])
def test_the_refusal_of_a_queue_that_a_topic_does_not_have_any_more_is_known(code):
    words = "queueId[3] is illegal, topic:[T] topicConfig.readQueueNums:[2] consumer:[/127.0.0.1:5]"
    assert is_of_removed(Refused(code, words), MessageQueue("T", "a", 3))
    assert not is_of_removed(Refused(code, words), MessageQueue("T", "a", 2))
    assert not is_of_removed(
        Refused(code, "the topic[T] pulling message is forbidden"), MessageQueue("T", "a", 3)
    )
