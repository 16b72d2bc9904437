import pytest

from turbopump.pipelines.schema import BadColumn
from turbopump.pipelines.sink.columns import check_columns


def check(*columns: tuple[str, str], has_topic: bool = True) -> None:
    check_columns(columns, has_topic=has_topic)


def test_all_columns_are_taken_in_any_case_of_letters():
    check(
        ("BODY", "string"),
        ("topic", "string"),
        ("Tags", "string"),
        ("keys", "array<string>"),
        ("properties", "map<string,string>"),
        ("delaylevel", "int"),
        ("deliverTime", "timestamp"),
        ("shardingKey", "string"),
        has_topic=False,
    )


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([("tags", "string")], "the column body is missing"),
        ([("body", "binary"), ("tag", "string")], r"no column 'tag': did you mean tags\?"),
        (
            [("body", "binary"), ("brokerName", "string")],
            "no column 'brokerName': select only what is to be sent",
        ),
        ([("body", "binary"), ("Body", "binary")], "two columns body"),
        ([("body", "int")], r"column body must be binary or string, got int: write CAST\(x AS BINARY\)"),
        ([("body", "binary"), ("keys", "bigint")], r"keys must be .*got bigint.*CAST\(x AS STRING\)"),
        ([("body", "binary"), ("deliverTime", "timestamp_ntz")], "which has a time zone"),
    ],
)
def test_what_is_wrong_is_named_with_the_fix(columns, words):
    with pytest.raises(BadColumn, match=words):
        check(*columns)


def test_something_has_to_say_where_messages_go():
    with pytest.raises(BadColumn, match="give the option topic, or a column topic"):
        check(("body", "binary"), has_topic=False)
