"""Bytes of the HA port: what Apache's nodes sent, read and written again, and any way to cut a stream."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.compat.ha import VERSIONS, connection, frames
from tests.properties import examples

from turbopump.protocol import ha, record
from turbopump.protocol.errors import BrokenFrame

OFFSETS = st.integers(0, 2**63 - 1)


# --- what Apache's nodes sent ------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_every_report_of_apaches_slaves_is_read_and_written_again(version: str) -> None:
    reports = [frame for frame in frames(version) if not frame.to_slave]
    assert len(reports) > 140
    for frame in reports:
        reader = ha.ReportReader()
        report = reader.feed(frame.data)
        assert report is not None
        assert report.synced == -1
        assert reader.greeting is None
        assert ha.encode_report(report.end) == frame.data


@pytest.mark.parametrize("version", VERSIONS)
def test_every_part_of_apaches_masters_is_read_and_written_again(version: str) -> None:
    parts = [frame for frame in frames(version) if frame.to_slave]
    assert len(parts) > 90
    heartbeats = 0
    for frame in parts:
        head, *pieces = ha.PartReader().feed(frame.data)
        assert isinstance(head, ha.SentPart)
        body = b"".join(bytes(piece) for piece in pieces if isinstance(piece, memoryview))
        assert ha.encode_part_head(head.offset, head.size) + body == frame.data
        assert len(body) == (head.size if frame.is_whole else 0)
        heartbeats += not head.size
    assert heartbeats > 5


@pytest.mark.parametrize("version", VERSIONS)
def test_the_parts_of_a_connection_are_one_log_of_whole_records(version: str) -> None:
    log, reported = bytearray(), 0
    for frame in itertools.islice(connection(version, "fresh", 0), 46):
        if not frame.to_slave:
            report = ha.ReportReader().feed(frame.data)
            assert report is not None
            reported = report.end
            continue
        head, *pieces = ha.PartReader().feed(frame.data)
        assert isinstance(head, ha.SentPart)
        assert head.offset == len(log)
        for piece in pieces:
            assert isinstance(piece, memoryview)
            log += piece
    assert reported in (len(log), len(log) - head.size)
    found = list(record.decode_all(bytes(log)))
    assert sum(one.size for one in found) == len(log)
    assert {one.topic for one in found} >= {"Main"}


def test_a_master_of_4_9_begins_with_a_heartbeat_and_one_of_5_5_with_data() -> None:
    """A slave of 4.9 reports 5 s after it has connected, so its master has been silent for too long then."""
    first = {
        version: next(frame for frame in connection(version, "fresh", 0) if frame.to_slave)
        for version in VERSIONS
    }
    assert ha.PART.unpack_from(first["4.9.7"].data) == (0, 0)
    assert ha.PART.unpack_from(first["5.5.0"].data)[1] > 0


@pytest.mark.parametrize("version", VERSIONS)
def test_a_late_empty_slave_of_apaches_gets_the_last_file_only(version: str) -> None:
    first = next(frame for frame in connection(version, "late", 0) if frame.to_slave)
    assert ha.PART.unpack_from(first.data)[0] == 2 << 20


# --- any way to cut a stream -------------------------------------------------------------------------


@st.composite
def _cut(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    at = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return [stream[begin:end] for begin, end in itertools.pairwise([0, *at, len(stream)])]


def _read_reports(pieces: list[bytes]) -> tuple[ha.Greeting | None, ha.Report | None]:
    reader, last = ha.ReportReader(), None
    for piece in pieces:
        last = reader.feed(piece) or last
    return reader.greeting, last


@given(st.data(), st.lists(OFFSETS, max_size=8))
@examples(200)
def test_reports_are_the_same_however_they_are_cut(data: st.DataObject, ends: list[int]) -> None:
    stream = b"".join(map(ha.encode_report, ends))
    expected = ha.Report(ends[-1]) if ends else None
    assert _read_reports(data.draw(_cut(stream))) == (None, expected)


@given(
    st.data(),
    st.builds(ha.Greeting, st.integers(-(2**63), 2**63 - 1), OFFSETS, OFFSETS),
    st.lists(st.tuples(OFFSETS, OFFSETS), max_size=8),
)
@examples(200)
def test_reports_behind_a_greeting_are_the_same_however_they_are_cut(
    data: st.DataObject, greeting: ha.Greeting, reports: list[tuple[int, int]]
) -> None:
    stream = ha.encode_greeting(greeting) + b"".join(ha.encode_disk_report(*one) for one in reports)
    expected = ha.Report(*reports[-1]) if reports else None
    assert _read_reports(data.draw(_cut(stream))) == (greeting, expected)


@given(st.data(), st.lists(OFFSETS, max_size=3), st.integers(-(2**63), -1), st.lists(OFFSETS, max_size=3))
@examples(100)
def test_a_negative_report_is_refused_however_it_is_cut(
    data: st.DataObject, before: list[int], bad: int, after: list[int]
) -> None:
    if not before and bad in (ha.GREETING, ha.SIGNED_GREETING):
        return
    stream = b"".join(map(ha.encode_report, [*before, bad, *after]))
    with pytest.raises(BrokenFrame):
        _read_reports(data.draw(_cut(stream)))


Sent = tuple[int, bytes] | tuple[str, bytes]
PARTS = st.lists(
    st.one_of(
        st.tuples(OFFSETS, st.binary(max_size=40)),
        st.tuples(st.from_regex(r"[a-z][a-z.]{0,20}", fullmatch=True), st.binary(max_size=40)),
    ),
    max_size=6,
)


def _encode_sent(sent: Sent) -> bytes:
    where, contents = sent
    if isinstance(where, str):
        return ha.encode_table(where, contents)
    return ha.encode_part_head(where, len(contents)) + contents


def _read_parts(pieces: list[bytes]) -> list[Sent]:
    reader, read = ha.PartReader(takes_tables=True), list[Sent]()
    for piece in pieces:
        for found in reader.feed(piece):
            if isinstance(found, ha.SentPart):
                read.append((found.offset, b""))
            elif isinstance(found, ha.TableFile):
                read.append((found.name, found.contents))
            else:
                offset, body = read[-1]
                assert isinstance(offset, int)
                read[-1] = offset, body + bytes(found)
    return read


@given(st.data(), PARTS)
@examples(300)
def test_parts_and_tables_are_the_same_however_they_are_cut(data: st.DataObject, sent: list[Sent]) -> None:
    stream = b"".join(map(_encode_sent, sent))
    assert _read_parts(data.draw(_cut(stream))) == sent


# --- bounds ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "size"), [(-1, 5), (-2, 0), (0, -1), (0, ha.MAX_PART + 1), (ha.GREETING, 0)]
)
def test_an_impossible_part_is_refused(offset: int, size: int) -> None:
    with pytest.raises(BrokenFrame):
        list(ha.PartReader().feed(ha.encode_part_head(offset, size)))


def test_the_largest_part_is_taken() -> None:
    assert list(ha.PartReader().feed(ha.encode_part_head(7, ha.MAX_PART))) == [ha.SentPart(7, ha.MAX_PART)]


@pytest.mark.parametrize("size", [0, -1, ha.MAX_TABLE + 1])
def test_an_impossible_table_is_refused(size: int) -> None:
    with pytest.raises(BrokenFrame, match="table"):
        list(ha.PartReader(takes_tables=True).feed(ha.encode_part_head(ha.TABLE, size)))


@pytest.mark.parametrize("body", [b"\0", b"\5ab", b"\2a/b", b"\2..x", b"\1\xff"])
def test_a_table_whose_name_is_no_file_is_refused(body: bytes) -> None:
    with pytest.raises(BrokenFrame, match="name"):
        list(ha.PartReader(takes_tables=True).feed(ha.encode_part_head(ha.TABLE, len(body)) + body))


def test_a_table_is_no_part_of_an_apache_master() -> None:
    with pytest.raises(BrokenFrame, match="impossible part"):
        list(ha.PartReader().feed(ha.encode_table("topics.json", b"{}")))


@pytest.mark.parametrize("name", ["", "x" * (ha.MAX_TABLE_NAME + 1)])
def test_a_table_name_beyond_its_limit_is_not_sent(name: str) -> None:
    with pytest.raises(ValueError, match="too large"):
        ha.encode_table(name, b"")


def test_a_greeting_without_a_place_in_the_log_is_refused() -> None:
    for start, broker_id in ((-1, 1), (0, -1)):
        with pytest.raises(BrokenFrame, match="greeting"):
            ha.ReportReader().feed(ha.encode_greeting(ha.Greeting(1, start, broker_id)))


PROOFS = st.builds(ha.GreetingProof, st.text(min_size=1, max_size=60), st.binary(min_size=32, max_size=32))


@given(st.data(), PROOFS, st.lists(st.tuples(OFFSETS, OFFSETS), max_size=8))
@examples(100)
def test_a_signed_greeting_and_its_proof_are_the_same_however_they_are_cut(
    data: st.DataObject, proof: ha.GreetingProof, reports: list[tuple[int, int]]
) -> None:
    greeting = ha.Greeting(-7, 5, 1, is_signed=True)
    stream = ha.encode_greeting(greeting) + ha.encode_proof(proof)
    stream += b"".join(ha.encode_disk_report(*one) for one in reports)
    reader, last = ha.ReportReader(), None
    for piece in data.draw(_cut(stream)):
        last = reader.feed(piece) or last
    assert (reader.greeting, reader.proof) == (greeting, proof)
    assert last == (ha.Report(*reports[-1]) if reports else None)


def test_reports_before_the_proof_of_a_signed_greeting_are_not_read() -> None:
    reader = ha.ReportReader()
    assert reader.feed(ha.encode_greeting(ha.Greeting(1, 0, 1, is_signed=True)) + b"\x07servers") is None
    assert reader.proof is None
    assert reader.feed(bytes(ha.PROOF_SIZE) + ha.encode_disk_report(5, 5)) == ha.Report(5, 5)
    assert reader.proof == ha.GreetingProof("servers", bytes(ha.PROOF_SIZE))


@pytest.mark.parametrize("start", [b"\0", b"\1\xff"])
def test_a_proof_without_a_user_is_refused(start: bytes) -> None:
    with pytest.raises(BrokenFrame, match="must name a user"):
        ha.ReportReader().feed(
            ha.encode_greeting(ha.Greeting(1, 0, 1, is_signed=True)) + start + bytes(ha.PROOF_SIZE)
        )


@pytest.mark.parametrize("name", ["", "x" * (ha.MAX_USER_NAME + 1)])
def test_a_user_beyond_the_limit_of_a_proof_is_not_sent(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        ha.encode_proof(ha.GreetingProof(name, bytes(ha.PROOF_SIZE)))


def test_a_challenge_is_read_in_pieces_and_only_from_masters_of_ours() -> None:
    sent = ha.encode_challenge(bytes(range(32)))
    for at in range(len(sent)):
        reader = ha.PartReader(takes_tables=True)
        assert [*reader.feed(sent[:at]), *reader.feed(sent[at:])] == [ha.Challenge(bytes(range(32)))]
    with pytest.raises(BrokenFrame, match="impossible part"):
        list(ha.PartReader().feed(sent))
    with pytest.raises(BrokenFrame, match="a challenge must have 32 bytes, got 31"):
        list(ha.PartReader(takes_tables=True).feed(ha.encode_part_head(ha.CHALLENGE, 31)))
