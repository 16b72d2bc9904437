import pickle

import pytest

from turbopump.client.message import MessageQueue
from turbopump.pipelines.options import BadOption
from turbopump.pipelines.source.settings import OPTIONS, SourceFilter, SourceQuery, duration, query_of

PLAIN = {"nameserver": "h:9876", "subscribe": "T"}


def query(is_stream: bool = True, **given: str) -> SourceQuery:
    return query_of({**PLAIN, **given}, is_stream)


def test_a_query_is_what_its_options_say():
    found = query(
        tags="a||b", maxOffsetsPerTrigger="10", minOffsetsPerTrigger="3", maxTriggerDelay="2m", groupId="g"
    )
    assert found.filter == SourceFilter("a || b", "TAG", ("a", "b"))
    assert (found.max_offsets, found.min_offsets, found.max_delay_s, found.group) == (10, 3, 120.0, "g")
    assert found.access.group == "g"
    assert pickle.loads(pickle.dumps(found)) == found


def test_the_names_of_rocketmq_are_as_good():
    found = query_of({"rocketmq.namesrv.addr": "h:1", "topic": "A,B", "subExpression": "*"}, True)
    assert (found.access.name_server, found.topics.names()) == ("h:1", ("A", "B"))
    assert found.filter.is_all


def test_a_stream_begins_at_the_latest_and_a_batch_at_the_earliest():
    assert query().start.offsets == "latest"
    assert query(is_stream=False).start.offsets == "earliest"


def test_offsets_by_json():
    found = query(startingOffsets='{"T":{"a":{"0":5,"1":-2}}}')
    assert found.start.offsets == {MessageQueue("T", "a", 0): 5, MessageQueue("T", "a", 1): -2}


def test_assigned_queues():
    topics = query_of({"nameServer": "h:1", "assign": '{"T":[0],"U":{"a":[1]}}'}, True).topics
    assert topics.names() == ("T", "U")
    assert topics.wants(MessageQueue("T", "any", 0))
    assert topics.wants(MessageQueue("U", "a", 1))
    assert not topics.wants(MessageQueue("U", "b", 1))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"maxOffsetPerTrigger": "5"},
            "no option 'maxOffsetPerTrigger': did you mean maxOffsetsPerTrigger?",
        ),
        ({"failondataloss": "maybe"}, "option failondataloss must be true or false, got 'maybe'"),
        (
            {"assign": '{"T":[0]}'},
            "give one of subscribe, subscribePattern, assign; subscribe and assign",
        ),
        ({"startingOffsets": "first"}, "must be earliest, latest or JSON"),
        ({"startingOffsets": '{"T":5}'}, 'offsets must be {"topic":{"broker":{"0":17}}}, got 5'),
        (
            {"startingOffsets": "latest", "startingTimestamp": "1700000000000"},
            "startingOffsets and startingTimestamp",
        ),
        ({"endingOffsets": "latest"}, "option endingOffsets: a stream has no end"),
        (
            {"endingOffsetsByTimestamp": '{"T":{"a":{"0":5}}}'},
            "endingOffsetsByTimestamp: a stream has no end",
        ),
        ({"startingTimestamp": "1700000000"}, "looks like seconds: write 1700000000000"),
        ({"startingTimestamp": "2026-11-01T12:00"}, "must have a time zone"),
        ({"tags": "a", "sql": "b > 1"}, "options tags and sql are both given"),
        ({"sql": "b >"}, "option sql: "),
        ({"columns": "topic,bodi"}, "there is no column 'bodi': did you mean body?"),
        (
            {"maxTriggerDelay": "soon"},
            "option maxTriggerDelay must be a time such as 500ms, 90s, 15m or 1h, got 'soon'",
        ),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            "must be at most maxOffsetsPerTrigger (5), got 9",
        ),
        ({"subscribePattern": "("}, "option subscribePattern must be a regular expression"),
    ],
)
def test_what_is_wrong_is_told_with_the_fix(given, told):
    with pytest.raises(BadOption) as raised:
        query(**given)
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"startingOffsets": "latest"}, "a batch cannot begin at the latest message"),
        ({"startingOffsets": '{"T":{"a":{"0":-1}}}'}, "a batch cannot begin at the latest message"),
        ({"endingOffsets": "earliest"}, "a batch cannot end at the earliest message"),
        ({"endingOffsets": '{"T":{"a":{"0":-2}}}'}, "a batch cannot end at the earliest message"),
    ],
)
def test_what_a_batch_cannot_do(given, told):
    with pytest.raises(BadOption, match=told):
        query(is_stream=False, **given)


def test_servers_and_topics_are_needed():
    with pytest.raises(BadOption, match="option nameServer is missing"):
        query_of({"subscribe": "T"}, True)
    with pytest.raises(BadOption, match="none is given: what to read"):
        query_of({"nameServer": "h:1"}, True)


@pytest.mark.parametrize(("text", "s"), [("250", 0.25), ("250ms", 0.25), ("90s", 90), ("15m", 900)])
def test_durations(text, s):
    assert duration(text) == s


def test_every_option_says_what_it_is_for():
    assert all(option.help for option in OPTIONS)
