"""DLedger's protocol: what Apache's nodes sent is read and written again; any bytes are read or refused."""

from __future__ import annotations

import json
from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.compat.dledger import exchanges

from turbopump.protocol import command, frame, record
from turbopump.protocol.dledger import entry as entries
from turbopump.protocol.dledger import messages
from turbopump.protocol.dledger.answers import answer_push, answer_vote, refuse
from turbopump.protocol.dledger.codes import DLedgerCode, DLedgerRequestCode, DLedgerVoteResult, PushType
from turbopump.protocol.dledger.entry import DLedgerEntry
from turbopump.protocol.dledger.messages import (
    HeartbeatAnswerBody,
    LeaderHeartbeatBody,
    PushRequestBody,
    TransferAnswerBody,
    TransferRequestBody,
    VoteRequestBody,
    decode_answer,
    decode_request,
)
from turbopump.protocol.errors import BrokenBody, BrokenRecord, RequestNotSupported

I64 = st.integers(-(2**63), 2**63 - 1)
PLACES = st.integers(0, 2**62)
NAMES = st.none() | st.text(max_size=8)


# --- what Apache's nodes sent ------------------------------------------------------------------------


def test_the_capture_has_every_request_between_nodes_that_is_sent() -> None:
    codes = Counter(DLedgerRequestCode(one.code) for one in exchanges())
    between_nodes = {code for code in DLedgerRequestCode if code > 51000}
    assert set(codes) == between_nodes - {DLedgerRequestCode.PULL}
    assert {one.push_type for one in exchanges() if one.push_type} == set(PushType)


def test_every_body_of_apaches_nodes_is_read_and_written_again() -> None:
    for one in exchanges():
        assert decode_request(one.code, one.request_body).encode() == one.request_body
        assert decode_answer(one.code, one.answer_body).encode() == one.answer_body


def test_every_frame_of_apaches_nodes_is_read_and_written_again() -> None:
    for one in exchanges():
        for data in (one.request, one.answer):
            frames: list[frame.Frame] = []
            frame.cut(data, frames)
            assert command.encode(command.decode(frames[0])) == data


def test_codes_and_vote_results_of_apaches_answers_are_known() -> None:
    for one in exchanges():
        answer = decode_answer(one.code, one.answer_body)
        assert DLedgerCode(answer.code) == one.answer_code
        if isinstance(answer, messages.VoteAnswerBody):
            assert DLedgerVoteResult(answer.voteResult) == one.vote_result


def test_votes_are_answered_with_the_fields_that_apache_answers() -> None:
    votes = [one for one in exchanges() if one.code == DLedgerRequestCode.VOTE]
    for one in votes:
        request = decode_request(one.code, one.request_body)
        answer = decode_answer(one.code, one.answer_body)
        assert isinstance(request, VoteRequestBody)
        ours = answer_vote(request, DLedgerVoteResult(one.vote_result), answer.term)
        assert ours.encode() == one.answer_body


def test_pushes_are_answered_with_the_fields_that_apache_answers() -> None:
    for one in exchanges():
        request, answer = decode_request(one.code, one.request_body), decode_answer(one.code, one.answer_body)
        if isinstance(request, PushRequestBody):
            assert isinstance(answer, messages.PushAnswerBody)
            code = DLedgerCode(answer.code)
            ours = answer_push(request, code, answer.term, answer.beginIndex, answer.endIndex)
            assert ours.encode() == one.answer_body


def test_a_heartbeat_is_answered_with_code_and_term_alone() -> None:
    for one in exchanges():
        if one.code == DLedgerRequestCode.HEART_BEAT:
            assert HeartbeatAnswerBody(code=one.answer_code).encode() == one.answer_body


def test_a_refused_transfer_is_answered_as_apache_refuses_it() -> None:
    transfers = [one for one in exchanges() if one.code == DLedgerRequestCode.LEADERSHIP_TRANSFER]
    assert [one.answer_code for one in transfers] == [409, 409, 200]
    for one in transfers:
        request = decode_request(one.code, one.request_body)
        assert isinstance(request, TransferRequestBody)
        ours = refuse(TransferAnswerBody, request, DLedgerCode.INCONSISTENT_LEADER)
        if one.answer_code == DLedgerCode.SUCCESS:
            ours = TransferAnswerBody(term=2)
        assert ours.encode() == one.answer_body


def test_an_entry_that_apache_pushed_is_packed_and_read_again() -> None:
    for one in exchanges():
        request = decode_request(one.code, one.request_body)
        for pushed in request.entries if isinstance(request, PushRequestBody) else ():
            data = entries.pack_entry(pushed)
            assert len(data) == pushed.size
            read = entries.read_entry(data, 0, len(data))
            assert msgspec.structs.replace(read, bodyCrc=0) == pushed
            assert read.bodyCrc == entries.body_crc(pushed.body) != 0
            assert record.decode(read.body).physical_offset == pushed.pos + entries.HEAD_SIZE


# --- pushes ------------------------------------------------------------------------------------------


def test_what_java_derives_from_the_entries_is_ignored_when_it_is_read() -> None:
    body = b'{"batch":true,"count":7,"firstEntryIndex":9,"lastEntryIndex":9,"totalSize":5,"type":"COMMIT"}'
    read = decode_request(DLedgerRequestCode.PUSH, body)
    assert isinstance(read, PushRequestBody)
    assert read.entries == []
    assert json.loads(read.encode())["count"] == 0


def test_a_batch_names_its_first_and_last_entry_and_the_size_of_all() -> None:
    batch = [entries.entry_of(bytes(100 + n), n, 3, 1000 * n) for n in (4, 5, 6)]
    written = json.loads(PushRequestBody(batch, group="g").encode())
    assert (written["batch"], written["count"], written["totalSize"]) == (True, 3, 3 * 148 + 15)
    assert (written["firstEntryIndex"], written["lastEntryIndex"]) == (4, 6)
    assert "entry" not in written


# --- any values, any bytes ---------------------------------------------------------------------------

ENTRIES = st.builds(
    entries.entry_of, st.binary(min_size=1, max_size=60), index=PLACES, term=PLACES, pos=PLACES
)
REQUESTS = st.one_of(
    st.builds(VoteRequestBody, group=NAMES, leaderId=NAMES, localId=NAMES, remoteId=NAMES, term=I64),
    st.builds(LeaderHeartbeatBody, group=NAMES, localId=NAMES, term=I64),
    st.builds(TransferRequestBody, group=NAMES, transferId=NAMES, takeLeadershipLedgerIndex=I64),
    st.builds(
        PushRequestBody,
        batchEntry=st.lists(ENTRIES, max_size=3),
        commitIndex=I64,
        entry=st.none() | ENTRIES,
        group=NAMES,
        type=st.sampled_from([str(one) for one in PushType]),
    ),
)


@given(REQUESTS)
def test_any_request_comes_back(request: messages.DLedgerRequest) -> None:
    assert type(request).decode(request.encode()) == request


@given(st.sampled_from(list(DLedgerRequestCode)), st.binary(max_size=200))
def test_any_bytes_are_a_body_or_broken(code: DLedgerRequestCode, data: bytes) -> None:
    for decode in (decode_request, decode_answer):
        try:
            read = decode(code, data)
        except BrokenBody:
            continue
        assert decode(code, read.encode()) == read


@given(st.integers(-(2**31), 2**31 - 1).filter(lambda code: code not in messages.REQUESTS))
def test_an_unknown_request_is_refused_with_apaches_words(code: int) -> None:
    with pytest.raises(RequestNotSupported, match=f" request type {code} not supported"):
        decode_request(code, b"{}")


@given(ENTRIES, st.binary(max_size=20), st.binary(max_size=20))
def test_any_entry_comes_back_from_its_bytes(entry: DLedgerEntry, before: bytes, behind: bytes) -> None:
    packed = entries.pack_entry(entry)
    data = before + packed + behind
    assert entries.read_entry(data, len(before), len(data)) == entry
    assert entries.measure(data, len(before), len(data), check_crc=True) == len(packed)
    with pytest.raises(BrokenRecord):
        entries.read_entry(data, len(before), len(before) + len(packed) - 1)


@given(ENTRIES, st.data())
def test_a_changed_bit_of_a_body_is_noticed(entry: DLedgerEntry, data: st.DataObject) -> None:
    packed = bytearray(entries.pack_entry(entry))
    at = data.draw(st.integers(entries.HEAD_SIZE, len(packed) - 1))
    packed[at] ^= 1 << data.draw(st.integers(0, 7))
    assert entries.measure(packed, 0, len(packed), check_crc=True) == entries.NO_ENTRY
    assert entries.measure(packed, 0, len(packed), check_crc=False) == len(packed)


@given(st.binary(max_size=120))
def test_any_bytes_are_an_entry_or_broken(data: bytes) -> None:
    try:
        read = entries.read_entry(data, 0, len(data))
    except BrokenRecord:
        return
    assert data.startswith(entries.pack_entry(read)) or read.bodyCrc == 0


def test_a_checksum_of_zero_is_not_checked() -> None:
    entry = msgspec.structs.replace(entries.entry_of(b"body", 1, 1, 0), bodyCrc=0)
    data = bytearray(entries.pack_entry(entry))
    data[40:44] = bytes(4)
    assert entries.read_entry(data, 0, len(data)) == entry


def test_the_mark_at_the_end_of_a_file_is_told_from_an_entry() -> None:
    assert entries.measure(entries.END_MARK.pack(-1, 8), 0, 8, True) == entries.END_OF_FILE
    assert entries.measure(entries.END_MARK.pack(-1, 7), 0, 8, True) == entries.NO_ENTRY
    assert entries.measure(bytes(8), 0, 8, True) == entries.NO_ENTRY
    assert entries.measure(b"\xff" * 7, 0, 7, True) == entries.NO_ENTRY


@given(st.lists(st.binary(min_size=36, max_size=80), min_size=1, max_size=5), PLACES, PLACES, PLACES)
def test_entries_packed_together_follow_one_another(bodies, index, term, pos) -> None:
    out = bytearray(b"before")
    positions = entries.pack_entries(out, bodies, index, term, pos)
    at = len(b"before")
    for number, body in enumerate(bodies):
        read = entries.read_entry(out, at, len(out))
        assert (read.index, read.term, read.pos) == (index + number, term, positions[number])
        assert read.pos == pos + at - len(b"before")
        assert read.body[28:36] == (read.pos + 48).to_bytes(8, "big")
        assert read.body[:28] + read.body[36:] == body[:28] + body[36:]
        at += read.size
    assert at == len(out)


def test_heads_and_units_have_the_sizes_of_the_format() -> None:
    assert (entries.HEAD_SIZE, entries.UNIT_SIZE, entries.END_MARK.size) == (48, 32, 8)
    unit = entries.read_unit(entries.UNIT.pack(1, 65536, 170, 3, 2), 0)
    assert (unit.pos, unit.size, unit.index, unit.term) == (65536, 170, 3, 2)
