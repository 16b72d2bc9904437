"""Checks the columns of rows that become messages: which there may be, and of which types.

In: names and types of a query's columns, in Spark's terms. Out: nothing, or BadColumn with the fix, raised
when the query is planned. An unknown column is an error: ignoring it would send a message with something
missing.
"""

from collections.abc import Sequence

from turbopump.pipelines.refusals import nearest
from turbopump.pipelines.schema import BadColumn

INTEGERS = ("int", "bigint", "smallint", "tinyint")

TYPES = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string", "array<string>"),  # as text: several are separated by spaces
    "properties": ("map<string,string>",),
    "delayLevel": INTEGERS,
    "deliverTime": ("timestamp",),
    "shardingKey": ("string",),  # one key, one queue, in order
}
LOWER = {name.lower(): name for name in TYPES}
FIX = {
    "body": "CAST(x AS BINARY), or to_json(struct(*)) AS body",
    "properties": "map('name', CAST(x AS STRING), …) AS properties",
    "deliverTime": "CAST(x AS TIMESTAMP), which has a time zone",
}


def check_columns(columns: Sequence[tuple[str, str]], *, has_topic: bool) -> None:
    """Raises BadColumn for a column that is unknown, given twice, of a wrong type or missing.

    `has_topic`: an option names the topic of all rows.
    """
    found: set[str] = set()
    for name, type in columns:
        column = LOWER.get(name.lower())
        if column is None:
            raise BadColumn(_unknown(name))
        if column in found:
            raise BadColumn(f"there are two columns {column}: select one of them")
        if type not in TYPES[column]:
            raise BadColumn(_mistyped(column, type))
        found.add(column)
    if "body" not in found:
        raise BadColumn("the column body is missing: select to_json(struct(*)) AS body")
    if not has_topic and "topic" not in found:
        raise BadColumn("the topic is missing: give the option topic, or a column topic")


def _unknown(name: str) -> str:
    hint = nearest(name.lower(), LOWER, "select only what is to be sent.")
    return f"a message has no column {name!r}: {hint} There are {', '.join(TYPES)}"


def _mistyped(column: str, type: str) -> str:
    fix = FIX.get(column, f"CAST(x AS {TYPES[column][0].upper()})")
    return f"column {column} must be {' or '.join(TYPES[column])}, got {type}: write {fix}"
