"""Bytes that are not frames, incomplete frames, and frames with wrong lengths, to both servers."""

from __future__ import annotations

import contextlib
import random
import struct
import time
from contextlib import ExitStack

import pytest

from . import wire
from .target import Target
from .wire import MAX_FRAME, Peer, frame

CLOSED_WITHIN_S = 5.0
MIB = 1024 * 1024
HEADER = b'{"code":105,"extFields":{"topic":"x"},"flag":0,"language":"JAVA","opaque":1,"version":513}'


def binary(remark: int, remark_text: bytes, ext: int, ext_bytes: bytes) -> bytes:
    """Returns a binary header with arbitrary inner lengths."""
    return (
        struct.pack(">hBhiii", 105, 0, 513, 1, 0, remark) + remark_text + struct.pack(">i", ext) + ext_bytes
    )


HOPELESS = {
    "length 0": struct.pack(">i", 0) + bytes(16),
    "length 3": struct.pack(">i", 3) + bytes(16),
    "negative length": struct.pack(">i", -1) + bytes(16),
    "length just over the bound": struct.pack(">iI", MAX_FRAME - 3, 16) + HEADER,
    "length 2 GiB": struct.pack(">iI", 0x7FFFFFFF, 16) + HEADER,
    "header longer than the frame": struct.pack(">iI", 20, 21) + bytes(16),
    "header of 16 MiB in a small frame": struct.pack(">iI", 20, 0xFFFFFF) + bytes(16),
    "unknown serialisation": frame(HEADER, kind=7),
    "empty header": frame(b"") + bytes(16),
    "header is no object": frame(b"[1,2,3]      "),
    "header is text": frame(b'"just a string"'),
    "bytes after the object": frame(HEADER + b"}}"),
    "header cut short": frame(HEADER[:-10]),
    "header is no UTF-8": frame(HEADER.replace(b'"x"', b'"\xff\xfe"')[:-1]),
    "100,000 nested arrays": frame(b'{"code":105,"x":' + b"[" * 100_000),
    "50,000 nested objects": frame(b'{"a":' * 50_000),
    "a number of 100,000 digits": frame(b'{"code":' + b"9" * 100_000 + b"}"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS that is none": b"\x16\x03\x01\x02\x00" + bytes(range(256)),
    "binary: remark of 2 GiB": frame(binary(0x7FFFFFFF, b"", 0, b""), kind=wire.BINARY),
    "binary: negative remark": frame(binary(-5, b"", 0, b""), kind=wire.BINARY),
    "binary: fields of 2 GiB": frame(binary(0, b"", 0x7FFFFFFF, b""), kind=wire.BINARY),
    "binary: key longer than the fields": frame(binary(0, b"", 6, b"\x7f\xffabcd"), kind=wire.BINARY),
    "binary: value longer than the fields": frame(
        binary(0, b"", 9, b"\x00\x01a\x7f\xff\xff\xffbc"), kind=wire.BINARY
    ),
    "binary: three bytes": frame(b"\x00\x01\x02", kind=wire.BINARY) + bytes(16),
}


@pytest.mark.parametrize("name", HOPELESS)
def test_a_hopeless_frame_costs_its_sender_the_connection_or_an_answer(
    target: Target, role: str, name: str
) -> None:
    with Peer(target.addresses[role]) as liar:
        liar.socket.settimeout(CLOSED_WITHIN_S)
        try:
            liar.send(HOPELESS[name])
            liar.answer()
        except wire.Closed:
            pass
        except TimeoutError:
            assert not target.strict, "neither closed nor answered"
            target.figures.append(f"{name}: the {role} neither closed nor answered in {CLOSED_WITHIN_S:g} s")
        target.is_served(f"after {name}", role)


@pytest.mark.parametrize("seed", range(5))
def test_garbage_is_survived(target: Target, role: str, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(50):
        with Peer(target.addresses[role]) as liar, contextlib.suppress(wire.Closed):
            liar.send(mutilated(chance))
    target.is_served(f"after garbage {seed}", role)


def mutilated(chance: random.Random) -> bytes:
    """Returns noise, noise with a correct length, or a correct frame with some bytes changed."""
    match chance.randrange(3):
        case 0:
            return chance.randbytes(chance.randrange(1, 5000))
        case 1:
            return frame(chance.randbytes(chance.randrange(200)), chance.randbytes(50), chance.randrange(2))
        case _:
            whole = bytearray(frame(HEADER, b"body"))
            for _ in range(chance.randrange(1, 6)):
                whole[chance.randrange(len(whole))] = chance.randrange(256)
            return bytes(whole)


def test_a_request_that_comes_byte_by_byte_is_answered(target: Target, role: str) -> None:
    with Peer(target.addresses[role]) as slow:
        for byte in question(role):
            slow.send(bytes([byte]))
        assert slow.answer().code == wire.TOPIC_NOT_EXIST


def test_half_frames_wait_without_disturbing_others(target: Target, role: str) -> None:
    whole = question(role)
    with ExitStack() as connected, target.growth("200 half frames", 16, role):
        halves = connected.enter_context(wire.crowd(target.addresses[role], 200))
        for peer in halves:
            peer.send(whole[: len(whole) // 2])
        target.is_served("among 200 half frames", role)
        for peer in halves[:100]:
            peer.send(whole[len(whole) // 2 :])
        assert {peer.answer().code for peer in halves[:100]} == {wire.TOPIC_NOT_EXIST}


def test_frames_that_never_end_cost_what_was_sent_of_them(target: Target, role: str) -> None:
    """Each announces 16 MiB and sends one of them."""
    count = 40
    announced = struct.pack(">iI", MAX_FRAME - 4, len(HEADER)) + HEADER
    grown = target.growth(f"{count} frames of 16 MiB, 1 MiB sent of each", 3 * count, role)
    with wire.crowd(target.addresses[role], count) as endless, grown:
        for peer in endless:
            peer.send(announced + bytes(MIB))
        target.is_served(f"among {count} endless frames", role)
    target.is_served(f"after {count} endless frames", role)


def test_a_large_frame_in_small_pieces_is_put_together_once(target: Target, role: str) -> None:
    """Joining the received pieces at each read would cost the square of the length."""
    whole = question(role, bytes(8 * MIB))
    before = target.cpu_s(role)
    with Peer(target.addresses[role], timeout_s=30) as slow:
        for start in range(0, len(whole), 4096):
            slow.send(whole[start : start + 4096])
        assert slow.answer().code == wire.TOPIC_NOT_EXIST
    target.bound(f"8 MiB in pieces of 4 KiB, CPU of the {role}", target.cpu_s(role) - before, 2.0, "s")


def test_the_bound_of_a_frame_is_exact(target: Target, role: str) -> None:
    room = MAX_FRAME - len(question(role))
    with Peer(target.addresses[role], timeout_s=30) as peer:
        assert exchange(peer, question(role, bytes(room))).code == wire.TOPIC_NOT_EXIST
    with Peer(target.addresses[role], timeout_s=30) as peer, pytest.raises(wire.Closed):
        exchange(peer, question(role, bytes(room + 1)))


def exchange(peer: Peer, data: bytes) -> wire.Answer:
    peer.send(data)
    return peer.answer()


def test_many_small_requests_in_one_write_are_all_answered(target: Target, role: str) -> None:
    requests = [question(role, opaque=opaque) for opaque in range(1, 1001)]
    with Peer(target.addresses[role], timeout_s=30) as peer:
        began = time.monotonic()
        peer.send(b"".join(requests))
        assert {peer.answer().opaque for _ in requests} == set(range(1, 1001))
        target.note(f"1,000 requests in one write, answered by the {role} in", time.monotonic() - began, "s")


def question(role: str, body: bytes = b"", opaque: int = 7) -> bytes:
    """Returns a correct request that every server of the role answers with "no such topic"."""
    code = wire.ROUTE if role == "namesrv" else wire.PULL
    return wire.request(code, wire.pull("no_such_topic"), body, opaque=opaque)
