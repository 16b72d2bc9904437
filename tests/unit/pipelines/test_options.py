import pytest

from turbopump.pipelines.options import (
    BadOption,
    FormatOption,
    FormatOptions,
    choice,
    count,
    document,
    flag,
    text,
    words,
)

TABLE = (
    FormatOption("nameServer", text, aliases=("rocketmq.namesrv.addr",)),
    FormatOption("subscribe", words, aliases=("topic",)),
    FormatOption("assign", document),
    FormatOption("maxOffsetsPerTrigger", count()),
    FormatOption("failOnDataLoss", flag, True),
    FormatOption("delivery", choice("exactly-once", "at-least-once"), "exactly-once"),
)


def read(**given: str) -> FormatOptions:
    return FormatOptions(TABLE, given, "rocketmq")


def test_case_does_not_matter_and_an_alias_is_as_good():
    options = FormatOptions(TABLE, {"ROCKETMQ.namesrv.addr": " h:1 ", "SUBSCRIBE": "a, b,"}, "rocketmq")
    assert options["nameServer"] == "h:1"
    assert options["subscribe"] == ("a", "b")


def test_what_is_not_given_has_its_default():
    options = read(subscribe="a")
    assert options["failOnDataLoss"] is True
    assert options["maxOffsetsPerTrigger"] is None
    assert options.is_given("subscribe")
    assert not options.is_given("failOnDataLoss")


@pytest.mark.parametrize(
    ("word", "meant"),
    [("subscibe", "subscribe"), ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"), ("topics", "topic")],
)
def test_a_wrong_name_is_named_with_the_nearest_right_one(word, meant):
    with pytest.raises(BadOption, match=f"has no option '{word}': did you mean {meant}"):
        read(**{word: "1"})


def test_a_name_that_is_near_to_nothing_gets_the_whole_list():
    with pytest.raises(BadOption, match="there are assign, delivery, failOnDataLoss"):
        read(qqq="1")


def test_options_that_spark_adds_are_passed_over():
    assert FormatOptions(TABLE, {"checkpointLocation": "/c", "path": "p"}, "rocketmq")["subscribe"] is None


def test_an_option_and_its_alias_together_are_refused():
    with pytest.raises(BadOption, match="'subscribe' and 'topic' are the same"):
        read(subscribe="a", topic="b")


@pytest.mark.parametrize(
    ("word", "given", "wants"),
    [
        ("nameServer", " ", "nameServer must not be empty"),
        ("subscribe", ",", "must be a list separated by commas"),
        ("assign", "{", "must be JSON"),
        ("maxOffsetsPerTrigger", "many", "whole number"),
        ("maxOffsetsPerTrigger", "0", "1 or more"),
        ("failOnDataLoss", "yes", "true or false"),
        ("delivery", "once", "exactly-once, at-least-once"),
    ],
)
def test_a_value_that_cannot_be_read_is_told_with_what_is_wanted(word, given, wants):
    with pytest.raises(BadOption, match=wants):
        read(**{word: given})


def test_one_of_several_must_be_given():
    assert read(subscribe="a").one_of("subscribe", "assign", hint="which topics") == "subscribe"
    with pytest.raises(BadOption, match="none is given: which topics"):
        read().one_of("subscribe", "assign", hint="which topics")
    with pytest.raises(BadOption, match="subscribe and assign are given"):
        read(subscribe="a", assign="{}").one_of("subscribe", "assign", hint="which topics")


def test_a_missing_one_is_named():
    with pytest.raises(BadOption, match="nameServer is missing: host:port"):
        read().need("nameServer", "host:port")
