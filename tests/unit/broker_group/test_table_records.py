"""Tables as records: pieces, damage, and the record that a new leader appends first."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turbopump.broker.dledger import table_records
from turbopump.broker.dledger.table_records import (
    MAX_PIECE,
    Table,
    TablePieces,
    TableWriter,
    bodies,
    no_op_record,
)
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.record import decode, measure
from turbopump.protocol.sysflag import ROLLBACK

WRITER = TableWriter(7, "10.0.0.1:10911", 4096)


def put_together(parts: list[bytes]) -> list[Table]:
    pieces = TablePieces()
    return [table for part in parts if (table := pieces.take(part)[1]) is not None]


@given(st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=3000)), max_size=5), st.integers(1, 64))
def test_tables_come_back_from_their_pieces(tables: list[tuple[str, bytes]], size: int) -> None:
    written = [Table(name, contents) for name, contents in tables]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table_records, "MAX_PIECE", size)
        parts = [part for table in written for part in bodies(table, WRITER)]
    assert put_together(parts) == written


def test_a_piece_fits_into_a_record_and_names_its_writer() -> None:
    table = Table("topics.json", random.Random(1).randbytes(3 * MAX_PIECE))
    parts = list(bodies(table, WRITER))
    assert len(parts) > 3
    assert max(map(len, parts)) < MAX_PIECE + 1000
    head, _ = TablePieces().take(parts[0])
    assert (head.term, head.address, head.begin) == (7, "10.0.0.1:10911", 4096)
    assert put_together(parts) == [table]


def test_a_table_whose_leader_stopped_on_the_way_is_dropped() -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table_records, "MAX_PIECE", 4)
        first = list(bodies(Table("topics.json", b"old" * 10), WRITER))
        second = list(bodies(Table("topics.json", b"new" * 10), TableWriter(8, "b:1", 0)))
    assert put_together([first[0], *second]) == [Table("topics.json", b"new" * 10)]
    assert put_together([*second[1:], *second]) == [Table("topics.json", b"new" * 10)]
    assert put_together([second[0], *second[2:]]) == []


@given(st.binary(max_size=200))
def test_what_is_no_table_is_broken(body: bytes) -> None:
    with pytest.raises(BrokenBody):
        TablePieces().take(b"\xff" + body)


def test_the_first_record_of_a_leader_is_whole_and_in_no_queue() -> None:
    made = no_op_record(1_794_732_388_000)
    assert measure(made, 0, len(made), True) == len(made)
    record = decode(made)
    assert record.topic == "rmq_sys_TURBOPUMP_TABLES"
    assert record.sys_flag == ROLLBACK
    assert record.body == b""
    assert record.store_timestamp == 1_794_732_388_000
