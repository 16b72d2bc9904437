import asyncio
import contextlib
import errno
import logging
import os
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit import virtual
from tests.properties import examples
from tests.unit.remoting.kit import LOG, RecordingTransport, asked, commands, connected, turn

from turbopump.protocol.command import Command, encode, reply
from turbopump.protocol.errors import BrokenFrame, Refused
from turbopump.protocol.frame import Frame, cut, pack
from turbopump.remoting.connection import Connection, ConnectionClosed, Shortcut, TooManyCalls
from turbopump.remoting.limits import Limits, UnfinishedFrames
from turbopump.runtime.rate_limited_log import RateLimitedLog
from turbopump.testing.loop import run_virtual


def nothing(connection: Connection, frames: list[Frame]) -> None: ...


def echo(connection: Connection, frames: list[Frame]) -> None:
    for encoding, header, body in frames:
        connection.write(pack(encoding, header, body))


@virtual
async def test_all_frames_of_a_read_event_are_served_together_and_answered_in_one_write() -> None:
    served: list[int] = []

    def serve(connection: Connection, frames: list[Frame]) -> None:
        served.append(len(frames))
        echo(connection, frames)

    connection, transport = connected(serve)
    data = b"".join(asked(1, number) for number in range(100))
    connection.data_received(data)
    assert served == [100]
    assert transport.writes == [data]


def first_echoed(most: int) -> Shortcut:
    """A shortcut that knows up to `most` frames at the front of an event."""

    def shortcut(connection: Connection, data: bytes) -> tuple[int, bytes]:
        frames: list[Frame] = []
        with contextlib.suppress(BrokenFrame):
            cut(data, frames)
        echoes = b"".join(pack(*frame) for frame in frames[:most])
        return len(echoes), echoes

    return shortcut


@virtual
async def test_a_shortcut_takes_what_it_knows_and_all_answers_leave_in_one_write() -> None:
    served: list[int] = []

    def serve(connection: Connection, frames: list[Frame]) -> None:
        served.append(len(frames))
        echo(connection, frames)

    connection, transport = connected(serve, shortcut=first_echoed(60))
    data = b"".join(asked(1, number) for number in range(100))
    connection.data_received(data)
    assert (served, transport.writes) == ([40], [data])
    connection.data_received(asked(1, 100) + asked(1, 101)[:20])  # nothing is left for `serve`
    connection.data_received(asked(1, 101)[20:])
    assert (served, transport.writes[1:]) == ([40, 0], [asked(1, 100), asked(1, 101)])


@virtual
async def test_what_a_shortcut_answered_leaves_before_a_broken_frame_ends_the_connection() -> None:
    connection, transport = connected(nothing, shortcut=first_echoed(1))
    connection.data_received(asked(1, 1) + b"\xff" * 8)
    assert (transport.writes, transport.closed) == ([asked(1, 1)], True)


@virtual
async def test_nothing_takes_a_shortcut_past_frames_that_wait() -> None:
    connection, transport = connected(
        deferring, Limits(output_high=1000, output_low=100), shortcut=first_echoed(2)
    )
    transport.reader_is_stuck = True
    events = [asked(1, number, bytes(400)) for number in range(12)]
    connection.data_received(b"".join(events[:8]))
    connection.data_received(b"".join(events[8:]))
    for _ in range(12):
        transport.read()
        await turn()
    assert b"".join(transport.writes) == b"".join(events)


@virtual
async def test_a_shortcut_that_fails_ends_its_connection() -> None:
    def fails(connection: Connection, data: bytes) -> tuple[int, bytes]:
        raise RuntimeError("on purpose")

    connection, transport = connected(nothing, shortcut=fails)
    connection.data_received(asked(1, 1))
    assert transport.closed


@virtual
async def test_outside_a_read_event_every_write_goes_out_at_once() -> None:
    connection, transport = connected(nothing)
    connection.write(b"one")
    connection.write(b"two")
    assert transport.writes == [b"one", b"two"]


@examples(60)
@given(
    bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 4000), max_size=30),
    most=st.integers(0, 3),
)
def test_frames_survive_any_segmentation(bodies: list[bytes], cuts: list[int], most: int) -> None:
    stream = b"".join(asked(7, number, body) for number, body in enumerate(bodies))
    edges = sorted({0, len(stream), *(edge for edge in cuts if edge < len(stream))})

    async def feed() -> None:
        unfinished: UnfinishedFrames[Connection] = UnfinishedFrames()
        shortcut = first_echoed(most) if most else None
        connection, transport = connected(echo, unfinished=unfinished, shortcut=shortcut)
        for start, end in pairwise(edges):
            connection.data_received(stream[start:end])
        assert unfinished.bytes == 0
        assert b"".join(transport.writes) == stream

    run_virtual(feed())


@virtual
async def test_a_large_frame_in_many_pieces_is_joined_once() -> None:
    seen: list[Frame] = []
    connection, _ = connected(lambda _, frames: seen.extend(frames))
    frame = asked(7, 1, bytes(8 << 20))
    for start in range(0, len(frame), 4096):
        connection.data_received(frame[start : start + 4096])
    assert len(seen) == 1
    assert len(seen[0][2]) == 8 << 20


@virtual
async def test_a_hopeless_length_closes_without_an_answer_as_soon_as_it_shows() -> None:
    connection, transport = connected(echo)
    connection.data_received((17 << 20).to_bytes(4, "big"))
    assert transport.closed
    assert transport.writes == []


@virtual
async def test_good_frames_before_a_broken_one_are_still_served() -> None:
    connection, transport = connected(echo)
    good = asked(1, 1)
    connection.data_received(good + b"\xff" * 8)
    assert transport.writes == [good]
    assert transport.closed


@virtual
async def test_a_header_longer_than_its_frame_is_refused_with_the_first_eight_bytes() -> None:
    connection, transport = connected(echo)
    for byte in b"\x00\x00\x10\x00\x00\xff\xff\xff":
        assert not transport.closed
        connection.data_received(bytes((byte,)))
    assert transport.closed


def test_tls_is_named_in_the_log_and_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        connection, transport = connected(echo)
        connection.data_received(bytes.fromhex("1603010200010001fc0303"))
        assert transport.closed

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    assert [record.getMessage() for record in caplog.records] == [
        "Closing 10.0.0.7:4711: it speaks TLS, which is not offered here"
    ]


@pytest.mark.parametrize(
    "head",
    [
        b"PROXY TCP4 10.0.0.9 10.0.0.5 4711 10911\r\n",
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes(12),
    ],
)
@virtual
async def test_the_head_that_a_proxy_puts_before_a_connection_closes_it(head: bytes) -> None:
    connection, transport = connected(echo)
    connection.data_received(head + asked(1))
    assert (transport.closed, transport.writes) == (True, [])


@virtual
async def test_an_unreadable_header_closes_the_connection_after_the_answers_before_it() -> None:
    def serve(connection: Connection, frames: list[Frame]) -> None:
        connection.write(b"answer")
        assert not transport.closed
        raise BrokenFrame("no JSON")

    connection, transport = connected(serve)
    connection.data_received(asked(1))
    assert transport.writes == [b"answer"]
    assert transport.closed


def test_a_bug_in_serve_closes_only_that_connection_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def serve(connection: Connection, frames: list[Frame]) -> None:
        connection.write(b"half an answer")
        raise KeyError("oops")

    async def main() -> RecordingTransport:
        connection, transport = connected(serve)
        connection.data_received(asked(1))
        return transport

    assert run_virtual(main()).closed
    assert "oops" in caplog.text


def test_bugs_in_serve_are_logged_seldom_and_without_what_the_peer_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def serve(connection: Connection, frames: list[Frame]) -> None:
        body = frames[0][2].decode()
        try:
            raise Refused(1, body)
        except Refused:
            raise ValueError(body)  # noqa: B904 - as a bug would, while something is answered

    async def main() -> None:
        failures = RateLimitedLog(LOG, 10.0, logging.ERROR)
        for body in (b"secret 1", b"secret 2", b"secret 3"):
            connection, _ = connected(serve, failures=failures)
            connection.data_received(asked(1, body=body))
            await asyncio.sleep(6)

    run_virtual(main())
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "in serve" in caplog.text
    assert "ValueError" in caplog.text
    assert "(and 1 more since the last such line)" in caplog.text
    assert "secret" not in caplog.text


def test_peers_that_send_garbage_do_not_hide_a_bug_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    def serve(connection: Connection, frames: list[Frame]) -> None:
        raise KeyError("a bug")

    async def main() -> None:
        peer_errors, failures = RateLimitedLog(LOG, 10.0), RateLimitedLog(LOG, 10.0, logging.ERROR)
        for data in (b"\xff" * 100, asked(1)):
            connection, _ = connected(serve, peer_errors=peer_errors, failures=failures)
            connection.data_received(data)

    run_virtual(main())
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR"]


def test_what_the_system_says_about_a_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def serve(connection: Connection, frames: list[Frame]) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def main() -> None:
        connection, _ = connected(serve)
        connection.data_received(asked(1))

    run_virtual(main())
    assert "OSError: [Errno 28] No space left on device" in caplog.text


@virtual
async def test_who_waits_for_an_answer_is_not_idle() -> None:
    connection, transport = connected(nothing)
    answer = connection.ask(Command(1), 200.0)
    for now in (100.0, 250.0):
        connection.examine(now)
    assert not transport.aborted
    answer.cancel()
    connection.answered(Command(0, opaque=1, flag=1))
    connection.examine(260.0)
    assert transport.aborted


@virtual
async def test_unfinished_frames_share_one_bound_and_beyond_it_the_largest_is_closed() -> None:
    limits = Limits(unfinished_bytes=1000)
    unfinished: UnfinishedFrames[Connection] = UnfinishedFrames()
    head = (5000).to_bytes(4, "big") + b"\x00\x00\x00\x09"
    first, first_transport = connected(nothing, limits, unfinished=unfinished)
    second, second_transport = connected(nothing, limits, unfinished=unfinished)
    first.data_received(head + bytes(600))
    second.data_received(head)
    second.data_received(bytes(500))
    assert first_transport.aborted
    assert not second_transport.aborted
    assert unfinished.bytes == 508
    second.data_received(bytes(500))  # alone beyond the bound
    assert second_transport.aborted
    second.connection_lost(None)
    first.connection_lost(None)
    assert unfinished.bytes == 0


@virtual
async def test_the_time_in_which_we_do_not_read_is_not_the_peers_fault() -> None:
    connection, transport = connected(nothing, Limits(requests_in_flight=1))
    connection.data_received(asked(1)[:20])
    assert [connection.unfinished_for(now) for now in (100.0, 130.0)] == [0, 30]
    connection.begin(0)
    assert transport.is_paused
    assert connection.unfinished_for(500.0) == 0
    connection.end(0)
    assert [connection.unfinished_for(now) for now in (510.0, 520.0)] == [0, 10]


# Back pressure


def deferring(connection: Connection, frames: list[Frame]) -> None:
    """As the router does: frames for which there is no room are handed back."""
    for position, frame in enumerate(frames):
        if connection.saturated:
            connection.defer(frames[position:])
            return
        echo(connection, [frame])


@virtual
async def test_a_peer_that_does_not_read_is_not_read_from_until_it_does() -> None:
    connection, transport = connected(deferring, Limits(output_high=10_000, output_low=1000))
    transport.reader_is_stuck = True
    stream = [asked(1, number, bytes(4000)) for number in range(20)]
    connection.data_received(b"".join(stream))
    assert transport.is_paused
    assert sum(map(len, transport.writes)) < 5 * 4100
    while b"".join(transport.writes) != b"".join(stream):
        before = len(transport.writes)
        transport.read()
        await turn()
        assert len(transport.writes) > before, "nothing came after the peer read"
    transport.read()
    await turn()
    assert not transport.is_paused


@virtual
async def test_frames_that_come_while_others_are_deferred_keep_their_order() -> None:
    connection, transport = connected(deferring, Limits(output_high=1000, output_low=100))
    transport.reader_is_stuck = True
    connection.data_received(b"".join(asked(1, number, bytes(900)) for number in range(5)))
    connection.data_received(asked(1, 5))
    for _ in range(10):
        transport.read()
        await turn()
    assert [command.opaque for command in commands(b"".join(transport.writes))] == list(range(6))


@virtual
async def test_answers_beyond_the_hard_limit_end_the_connection() -> None:
    connection, transport = connected(nothing, Limits(output_high=1000, output_low=100, output_hard=50_000))
    transport.reader_is_stuck = True
    for _ in range(50):
        connection.write(bytes(1000))
    assert not transport.aborted
    connection.write(bytes(1000))
    assert transport.aborted
    connection.write(bytes(1000))
    assert len(transport.writes) == 51


@virtual
async def test_running_handlers_stop_the_reading_at_their_bound_and_not_before() -> None:
    connection, transport = connected(nothing, Limits(requests_in_flight=2))
    connection.begin(10)
    assert not transport.is_paused
    connection.begin(10)
    assert transport.is_paused
    connection.end(10)
    assert not transport.is_paused


@virtual
async def test_the_bodies_of_running_handlers_are_bounded_too() -> None:
    connection, transport = connected(nothing, Limits(request_bytes_in_flight=1000))
    connection.begin(999)
    assert not transport.is_paused
    connection.begin(1)
    assert transport.is_paused


# Calls


@virtual
async def test_answers_are_matched_by_number_in_any_order() -> None:
    def serve(connection: Connection, frames: list[Frame]) -> None:
        for frame in frames:
            [command] = commands(pack(*frame))
            connection.answered(command)

    connection, transport = connected(serve)
    calls = [asyncio.ensure_future(connection.call(Command(code), 3.0)) for code in (1, 2, 3)]
    await turn()
    requests = commands(b"".join(transport.writes))
    assert len({request.opaque for request in requests}) == 3
    for request in reversed(requests):
        connection.data_received(encode(reply(request, remark=f"to {request.code}")))
    assert [(await call).remark for call in calls] == ["to 1", "to 2", "to 3"]


@virtual
async def test_a_call_times_out_and_its_late_answer_is_dropped() -> None:
    connection, transport = connected(nothing)
    with pytest.raises(TimeoutError, match="did not answer request 9 in 3"):
        await connection.call(Command(9), 3.0)
    assert asyncio.get_running_loop().time() == pytest.approx(3.0)
    [request] = commands(transport.writes[0])
    connection.answered(reply(request))


@virtual
async def test_a_lost_connection_fails_all_its_calls_at_once() -> None:
    connection, _ = connected(nothing)
    calls = [asyncio.ensure_future(connection.call(Command(1), 30.0)) for _ in range(3)]
    await turn()
    connection.connection_lost(None)
    for call in calls:
        with pytest.raises(ConnectionClosed):
            await call
    with pytest.raises(ConnectionClosed):
        await connection.call(Command(1), 3.0)
    assert asyncio.get_running_loop().time() == 0


@virtual
async def test_unanswered_calls_are_bounded() -> None:
    connection, _ = connected(nothing, Limits(calls_in_flight=1))
    call = asyncio.ensure_future(connection.call(Command(1), 3.0))
    await turn()
    with pytest.raises(TooManyCalls):
        await connection.call(Command(1), 3.0)
    call.cancel()


@virtual
async def test_one_way_requests_carry_their_flag_and_get_no_reply() -> None:
    connection, transport = connected(nothing)
    connection.send_oneway(Command(40))
    [request] = commands(transport.writes[0])
    assert request.is_oneway
    connection.reply(request, reply(request))
    assert len(transport.writes) == 1


# Ending


@virtual
async def test_everyone_who_asked_is_told_once_when_the_connection_ends() -> None:
    connection, _ = connected(nothing)
    told: list[Connection] = []
    connection.on_closed.append(told.append)
    connection.connection_lost(None)
    assert told == [connection]
    assert connection.is_closing


@virtual
async def test_draining_waits_for_running_handlers() -> None:
    connection, transport = connected(nothing)
    connection.begin(1)
    connection.drain()
    assert transport.is_paused
    assert not transport.closed
    connection.end(1)
    assert transport.closed


@virtual
async def test_draining_without_work_closes_at_once() -> None:
    connection, transport = connected(nothing)
    connection.drain()
    assert transport.closed


@virtual
async def test_silence_is_measured_from_the_last_progress() -> None:
    connection, transport = connected(nothing, Limits(output_high=10, output_low=1))
    assert connection.silent_for(100.0) == 0
    assert connection.silent_for(150.0) == 50
    connection.data_received(asked(1))
    assert connection.silent_for(160.0) == 0
    connection.write(b"x")
    assert connection.silent_for(170.0) == 0
    transport.reader_is_stuck = True
    connection.write(bytes(100))
    assert connection.silent_for(180.0) == 0
    assert connection.silent_for(190.0) == 10
    transport.buffered = 50  # the peer read some
    assert connection.silent_for(200.0) == 0


@pytest.mark.parametrize(
    ("peername", "peer", "packed"),
    [
        (("10.1.2.3", 80), ("10.1.2.3", 80), "0a01020300000050"),
        (("::ffff:10.1.2.3", 80, 0, 0), ("10.1.2.3", 80), "0a01020300000050"),
        (("fe80::1%eth0", 80, 0, 2), ("fe80::1", 80), "fe8000000000000000000000000000010" + "0000050"),
        (None, ("", 0), "0000000000000000"),
    ],
)
def test_the_peer_is_packed_as_records_keep_it(peername: object, peer: tuple[str, int], packed: str) -> None:
    async def main() -> Connection:
        return connected(nothing, peer=peername)[0]

    connection = run_virtual(main())
    assert connection.peer == peer
    assert connection.peer_host.hex() == packed
