"""What is pure below the databases: names of branches, words of keys, SQL by dialect, meanings of errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.database import MARIADB, POSTGRESQL, SQLITE, checked_word, insert_if_absent
from turbopump.transactions.database.dialects import numbered, pyformat
from turbopump.transactions.database.driver import Statement
from turbopump.transactions.database.faults import is_retriable, number_of, state_of
from turbopump.transactions.database.mariadb import with_hex_bytes
from turbopump.transactions.distributed.gids import FORMAT_ID, Xid
from turbopump.transactions.distributed.resources.values import (
    checked_xid,
    mariadb_literal,
    postgresql_literal,
    read_mariadb,
    read_postgresql,
)

WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=32)


@given(gid=WORDS, branch=WORDS)
def test_a_branch_is_read_as_it_was_written_whatever_its_name(gid: str, branch: str) -> None:
    xid = checked_xid(Xid(gid, branch))
    literal = postgresql_literal(xid)
    assert literal.strip("'").count("'") == 0
    assert len(literal) - 2 <= 199
    assert read_postgresql(literal.strip("'")) == xid
    gtrid, bqual, format_id = mariadb_literal(xid).split(",")
    data = bytes.fromhex(gtrid[2:-1]) + bytes.fromhex(bqual[2:-1])
    for given_data in (data, data.decode()):
        assert read_mariadb(int(format_id), len(gid), len(branch), given_data) == xid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mine",
        "29808",
        "29808_x",
        "29808_%%_cGc=",
        "1_cGc=_cGc=",
        "29808_cGc=_cGc=_cGc=",
        "29808_/w==_cGc=",
    ],
)
def test_names_of_others_in_postgresql_are_not_ours(text: str) -> None:
    assert read_postgresql(text) is None


@pytest.mark.parametrize(
    "row", [(1, 1, 1, b"ab"), (FORMAT_ID, 1, 1, b"a\xff"), (FORMAT_ID, 9, 9, b"ab"), (FORMAT_ID, 1, 1, "ä")]
)
def test_names_of_others_in_mariadb_are_not_ours(row: tuple[int, int, int, bytes | str]) -> None:
    assert read_mariadb(*row) is None


def test_a_name_of_64_bytes_is_taken_and_one_of_65_is_refused() -> None:
    checked_xid(Xid("g" * 64, "b" * 32))
    for xid in (Xid("g" * 65, "b"), Xid("g", "b" * 33), Xid("", "b"), Xid("ü", "b"), Xid("g\n", "b")):
        with pytest.raises(InvalidArgument, match="printable ASCII"):
            checked_xid(xid)


def test_words_of_keys_are_taken_at_their_bound_and_refused_beyond() -> None:
    assert checked_word("gid", "a" * 8, 8) == "a" * 8
    for word in ("a" * 9, "", "a ", "é", "a\x00"):
        with pytest.raises(InvalidArgument, match="gid must be 1 to 8 printable ASCII"):
            checked_word("gid", word, 8)


def test_an_insert_of_a_row_that_may_be_there() -> None:
    for dialect in (SQLITE, POSTGRESQL):
        assert insert_if_absent(dialect, "seen", ["id"]) == (
            "INSERT INTO seen (id) VALUES (:id) ON CONFLICT DO NOTHING"
        )
    assert insert_if_absent(MARIADB, "seen", ["id"]) == "INSERT IGNORE INTO seen (id) VALUES (:id)"


def test_parameters_as_drivers_write_them() -> None:
    sql = "UPDATE a SET b = :b, c = :b WHERE id = :id"
    assert pyformat(sql) == "UPDATE a SET b = %(b)s, c = %(b)s WHERE id = %(id)s"
    assert numbered(sql, ["id", "b"]) == "UPDATE a SET b = $2, c = $2 WHERE id = $1"
    assert with_hex_bytes(Statement("VALUES (:b, :body)", {"b": 1, "body": b"\x00'"})) == Statement(
        "VALUES (:b, X'0027')", {"b": 1}
    )


class _Fault(Exception):
    def __init__(self, *args: object, **fields: object) -> None:
        super().__init__(*args)
        self.__dict__.update(fields)


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (_Fault(1213, "Deadlock found"), True),
        (_Fault(1205, "Lock wait timeout exceeded"), True),
        (_Fault(1062, "Duplicate entry"), False),
        (_Fault("x", sqlstate="40001"), True),
        (_Fault("x", pgcode="40P01"), True),
        (_Fault("x", sqlstate="23505"), False),
        (_Fault("x", sqlite_errorname="SQLITE_BUSY"), True),
        (_Fault("x", sqlite_errorname="SQLITE_CONSTRAINT"), False),
        (_Fault("x", orig=_Fault(1213, "below SQLAlchemy")), True),
        (ValueError("of the user"), False),
    ],
)
def test_errors_that_came_from_another_transaction(error: Exception, is_one: bool) -> None:
    assert is_retriable(error) is is_one


def test_an_error_is_known_by_what_it_was_raised_from() -> None:
    def work() -> None:
        try:
            raise _Fault(1397, "XAER_NOTA")
        except _Fault as error:
            raise RuntimeError("in the work") from error

    with pytest.raises(RuntimeError) as raised:
        work()
    assert (number_of(raised.value), state_of(raised.value)) == (1397, "")
