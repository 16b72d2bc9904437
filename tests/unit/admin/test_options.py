"""The syntax of options, as commons-cli of Apache's mqadmin reads them."""

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import cluster

from turbopump.admin.options import (
    JSON,
    NAME_SERVERS,
    UsageError,
    boolean,
    choice,
    defaulting,
    flag,
    number,
    optional,
    pairs_of_changes,
    parse,
    required,
    text,
)

TOPIC = required("t", "topic", "topic name", text)
COUNT = defaulting("c", "count", "how many", number, 7)
QUEUES = optional("qn", "totalQueueNum", "queues", number)
ALL = flag("a", "all", "everything")
MORE = flag("m", "more", "still more")
OPTIONS = (TOPIC, COUNT, QUEUES, ALL, MORE)


@pytest.mark.parametrize(
    "words",
    [
        "-t orders",
        "-torders",
        "--topic orders",
        "--topic=orders",
        "-topic orders",
        "-t=orders",
        "--top orders",
    ],
)
def test_an_option_can_be_spelled_in_these_ways(words: str) -> None:
    given = parse(words.split(), OPTIONS)
    assert given[TOPIC] == "orders"
    assert given[COUNT] == 7
    assert given[QUEUES] is None
    assert not given[ALL]
    assert COUNT not in given


def test_values_are_read_by_their_kind() -> None:
    given = parse(["-t", " orders ", "-c", "-3", "-qn", "5", "-am", "--json", "-n", "a:1;b:2"], OPTIONS)
    assert (given[TOPIC], given[COUNT], given[QUEUES]) == ("orders", -3, 5)
    assert given[ALL]
    assert given[MORE]
    assert given[JSON]
    assert given[NAME_SERVERS] == "a:1;b:2"


def test_of_an_option_given_twice_the_first_counts() -> None:
    assert parse(["-t", "a", "-t", "b"], OPTIONS)[TOPIC] == "a"


def test_words_without_an_option_are_told() -> None:
    assert parse(["-t", "a", "-a", "true", "-"], OPTIONS).ignored == ("true", "-")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "missing: -t (--topic)"),
        ("-t", "-t (--topic) needs a value"),
        ("-t -c", "-t (--topic) needs a value"),
        ("-t a -x", "there is no option -x"),
        ("-t a -ax", "there is no option -ax"),
        ("-t a -c many", "-c (--count) must be a whole number, got 'many'"),
        ("--to a", "--to matches several options"),
    ],
)
def test_wrong_use_is_explained(words: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words.split(), OPTIONS)
    assert str(caught.value) == why


def test_one_of_several_must_be_given_and_perhaps_only_one() -> None:
    choice_ = (optional("b", "broker", "", text), optional("c", "cluster", "", text))
    for kind in ("one_of", "any_of"):
        with pytest.raises(UsageError, match="missing: -b or -c"):
            parse([], (), **{kind: choice_})
        assert parse(["-b", "x"], (), **{kind: choice_})[choice_[0]] == "x"
    with pytest.raises(UsageError, match="only one of -b or -c can be given"):
        parse(["-b", "x", "-c", "y"], (), one_of=choice_)
    assert parse(["-b", "x", "-c", "y"], (), any_of=choice_)[choice_[1]] == "y"


def test_readers() -> None:
    assert [boolean(word) for word in ("true", "False", " TRUE ")] == [True, False, True]
    assert choice("a", "b")("b") == "b"
    assert pairs_of_changes("+a=b,-c, +d=") == {"+a": "b", "-c": "", "+d": ""}
    for reader, word in ((boolean, "1"), (choice("a", "b"), "c"), (pairs_of_changes, "a=b"), (number, "")):
        with pytest.raises(ValueError):
            reader(word)


@pytest.mark.parametrize(
    ("words", "told"), [(("a",), "a"), (("a", "b"), "a or b"), (("a", "b", "c"), "a, b or c")]
)
def test_a_word_that_is_no_choice_is_answered_with_the_choices(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(ValueError, match=f"^{told}$"):
        choice(*words)("x")


@pytest.mark.parametrize(
    "words",
    [
        ("resetOffsetByTime", "-g", "readers", "-t", "orders", "-s", "1700000000"),
        ("printMsg", "-t", "orders", "-b", "1700000000"),
        ("queryMsgByKey", "-t", "orders", "-k", "k", "-e", "1700000000"),
        ("queryMsgTraceById", "-i", "x", "-b", "1700000000"),
    ],
)
@virtual
async def test_a_time_that_looks_like_seconds_is_refused(words: tuple[str, ...]) -> None:
    async with cluster() as town:
        printed = await town.mqadmin(*words)
        assert printed.status == 2
        assert "for these seconds 1700000000000" in printed.err
