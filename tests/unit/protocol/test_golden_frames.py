"""Decoding and encoding of frames, compared with the bytes of Apache's peers."""

import msgspec
import pytest
from tests.compat.wire import captured
from tests.unit.protocol.kit import readable

from turbopump.protocol.codes import RequestCode, ResponseCode
from turbopump.protocol.command import decode, encode
from turbopump.protocol.errors import BrokenFrame, Refused
from turbopump.protocol.frame import JSON, Frame, cut
from turbopump.protocol.headers.send import SEND_V2_DECODER
from turbopump.protocol.headers.table import REQUESTS, RESPONSES

TOLERATED_BY_JAVA_ONLY = ("lenient single quotes", "lenient unquoted names", "lenient trailing comma")
UNFINISHED = ("length max ok", "frame of 16777216 bytes")  # the rest of the frame was not kept
PREAMBLE = "PROXY"  # what 4.9 closed for came before the frame


def test_every_frame_apache_wrote_is_read() -> None:
    rows = [row for row in captured() if row.by_java]
    assert len(rows) > 2000
    for row in rows:
        frames: list[Frame] = []
        assert cut(row.data, frames) == len(row.data), row
        assert decode(frames[0]).flag in (0, 1, 2), row


def test_writing_it_again_gives_apaches_bytes() -> None:
    """Key order, the order of ext fields, escapes, absent fields: all of it, in both encodings."""
    encodings = set()
    for row, _, command in readable():
        if row.by_java:
            assert encode(command) == row.data, row
            encodings.add(command.encoding)
    assert encodings == {0, 1}


def test_hand_made_requests_keep_their_meaning_when_written_again() -> None:
    for row, _, command in readable():
        frames: list[Frame] = []
        cut(encode(command), frames)
        assert decode(frames[0]) == command, row


def test_what_made_java_close_the_connection_is_broken_here_too() -> None:
    seen = 0
    for row in captured():
        if (
            row.part != "req"
            or row.outcome != "closed"
            or any(word in row.about for word in (*UNFINISHED, PREAMBLE))
        ):
            continue
        frames: list[Frame] = []
        with pytest.raises(BrokenFrame):  # noqa: PT012
            cut(row.data, frames)
            decode(frames[0])
        seen += 1
    assert seen > 40


def test_nothing_java_answered_is_broken_here_but_for_three_oddities() -> None:
    for row in captured():
        if row.part != "req" or row.outcome is not None or "of 1677721" in row.about:
            continue
        if row.about in TOLERATED_BY_JAVA_ONLY:
            continue
        frames: list[Frame] = []
        cut(row.data, frames)
        assert frames, row
        decode(frames[0])


def test_codes_in_the_captures_have_names() -> None:
    for row, _, command in readable():
        if command.is_response:
            assert command.code in ResponseCode.__members__.values(), row
        elif row.by_java:
            assert command.code in RequestCode.__members__.values(), row


def test_java_headers_are_read_and_written_back_field_by_field() -> None:
    """What is not in our header is one of the fields any request may carry."""
    anywhere = {"AccessKey", "Signature", "ReqT", "ns", "nsd", "lo", "oway", "bname"}
    seen = set()
    for row, _, command in readable():
        kinds = RESPONSES if command.is_response else REQUESTS
        kind = kinds.get(row.asked if command.is_response else command.code)
        if not row.by_java or kind is None or command.ext is None:
            continue
        if command.is_response and command.code not in (0, 10, 11, 12):
            continue
        ours = kind.from_ext(command.ext).to_ext()
        assert {name: ours[name] for name in command.ext if name not in anywhere} == {
            name: value for name, value in command.ext.items() if name not in anywhere
        }, row
        seen.add(kind)
    assert len(seen) > 50


def test_a_header_that_lacks_what_java_needs_is_refused_by_name() -> None:
    refused = {}
    for row, _, command in readable():
        kind = REQUESTS.get(command.code)
        if command.is_response or kind is None:
            continue
        try:
            kind.from_ext(command.ext)
        except Refused as error:
            refused[row.about] = str(error)
    assert refused["create missing perm"] == "SYSTEM_ERROR (1): the field perm is missing"
    assert refused["create bad int"] == "SYSTEM_ERROR (1): the field perm cannot be 'six'"
    assert refused.keys() <= {
        "create missing perm",
        "create bad int",
        "pull missing queueOffset",
        "bin pop trunc",
        "send no ext",
        "send 10 no ext",
    }


def test_the_one_step_send_decoder_reads_what_the_general_path_reads() -> None:
    seen = 0
    for row, frame, command in readable():
        if command.code not in (310, 320) or command.is_response or frame[0] != JSON:
            continue
        kind = REQUESTS[command.code]
        try:
            whole = SEND_V2_DECODER.decode(frame[1])
        except msgspec.MsgspecError:  # no plain send: the general path judges it
            continue
        general = kind.from_ext(command.ext)
        for name in whole.extFields.__struct_fields__:
            assert getattr(whole.extFields, name) == getattr(general, name), row
        assert (whole.code, whole.flag, whole.opaque) == (command.code, command.flag, command.opaque)
        seen += 1
    assert seen > 100
