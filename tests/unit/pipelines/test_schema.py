import pytest

from turbopump.pipelines.schema import COLUMNS, KAFKA_COLUMNS, BadColumn, schema_of


def test_rows_have_what_is_there_always_unless_columns_are_named():
    assert "body" in schema_of().names
    assert "properties" not in schema_of().names
    assert "properties" in schema_of(has_properties=True).names
    assert schema_of(["Body", "TOPIC"]).names == ("body", "topic")


def test_kafkas_names_on_request():
    assert schema_of(is_kafka=True).names[:2] == ("key", "value")
    assert schema_of(is_kafka=True, has_properties=True).names[-1] == "headers"


def test_a_wrong_column_is_named_with_the_nearest_right_one():
    with pytest.raises(BadColumn, match="no column 'bdy': did you mean body"):
        schema_of(["bdy"])
    with pytest.raises(BadColumn, match="there are key, value"):
        schema_of(["zzz"], is_kafka=True)


@pytest.mark.parametrize("column", [*COLUMNS, *KAFKA_COLUMNS], ids=lambda column: column.name)
def test_both_words_for_a_type_mean_the_same(column):
    words = {
        "string": "string",
        "int": "int32",
        "bigint": "int64",
        "binary": "binary",
        "timestamp": "timestamp[us, tz=UTC]",
        "map<string,string>": "map<string, string>",
        "array<struct<key:string,value:binary>>": "list<element: struct<key: string, value: binary>>",
    }
    assert str(column.type) == words[column.sql]
