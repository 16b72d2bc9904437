"""What differs in the SQL of the databases, and what is checked here because one of them would not.

`MARIADB` stands for MySQL too. Its INSERT IGNORE is the only insert whose row count tells a new row from an
old one whatever the driver asked for (ON DUPLICATE KEY UPDATE counts 1 for an old row where the client set
FOUND_ROWS, as SQLAlchemy and Django do). But it cuts a value that is too long, and writes `?` for characters
that the column does not have: two names would become one. So words of keys are checked before.
"""

import re
from collections.abc import Sequence

from turbopump.client.errors import InvalidArgument

SQLITE = "sqlite"
POSTGRESQL = "postgresql"
MARIADB = "mariadb"
DIALECTS = (SQLITE, POSTGRESQL, MARIADB)

ALCHEMY_NAMES = {"sqlite": SQLITE, "postgresql": POSTGRESQL, "mysql": MARIADB, "mariadb": MARIADB}

MARIADB_TABLE = "ENGINE=InnoDB DEFAULT CHARACTER SET ascii COLLATE ascii_bin"
"""Ends the definition of a table: other collations take upper and lower case for the same."""

_TABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
_PARAMETER = re.compile(r":(\w+)")


def checked_table(name: str) -> str:
    """Returns the name if it is a plain table name, since it becomes part of SQL. Raises InvalidArgument."""
    if not _TABLE.fullmatch(name):
        raise InvalidArgument(f"a table must have a name such as `outbox` or `schema.outbox`, got {name!r}")
    return name


def checked_word(what: str, word: str, length: int) -> str:
    """Returns a word that is the same in every database: printable ASCII, not longer, no space at its end.

    Raises InvalidArgument for others. MariaDB would cut it, or take it for another one.
    """
    if not isinstance(word, str) or not 0 < len(word) <= length or not is_plain(word):
        raise InvalidArgument(
            f"{what} must be 1 to {length} printable ASCII characters, no space at the end, got {word!r}"
        )
    return word


def is_plain(word: str) -> bool:
    """Returns whether a column of ASCII keeps the word apart from others; it ignores spaces at the end."""
    return word.isascii() and word.isprintable() and not word.endswith(" ")


def insert_if_absent(dialect: str, table: str, columns: Sequence[str], values: Sequence[str] = ()) -> str:
    """Returns an INSERT that writes 1 row, or 0 where one with its key is there already.

    >>> insert_if_absent(MARIADB, "seen", ["id", "at"])
    'INSERT IGNORE INTO seen (id, at) VALUES (:id, :at)'
    """
    names, given = ", ".join(columns), ", ".join(values or [f":{name}" for name in columns])
    if dialect == MARIADB:
        return f"INSERT IGNORE INTO {table} ({names}) VALUES ({given})"
    return f"INSERT INTO {table} ({names}) VALUES ({given}) ON CONFLICT DO NOTHING"


def pyformat(sql: str) -> str:
    """Returns the SQL with `%(name)s` for each parameter."""
    return _PARAMETER.sub(r"%(\1)s", sql)


def numbered(sql: str, parameters: Sequence[str]) -> str:
    """Returns the SQL with `$1`, `$2` for the parameters, in the order of their names here."""
    places = {name: place for place, name in enumerate(parameters, 1)}
    return _PARAMETER.sub(lambda match: f"${places[match[1]]}", sql)
