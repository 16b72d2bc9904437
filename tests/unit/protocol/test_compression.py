import io
import random
import sys
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.protocol.kit import relaxed

from turbopump.protocol.compression import CodecMissing, compress, decompress
from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.sysflag import COMPRESSED, LZ4, ZLIB, ZSTD

KINDS = [ZLIB, LZ4, ZSTD]


@given(st.binary(max_size=500), st.sampled_from(KINDS))
@relaxed
def test_bodies_come_back(data: bytes, kind: int) -> None:
    assert decompress(compress(data, kind), COMPRESSED | kind) == data


@given(st.binary(max_size=100), st.sampled_from(KINDS))
@relaxed
def test_arbitrary_bytes_are_expanded_or_broken(data: bytes, kind: int) -> None:
    try:
        decompress(data, kind)
    except BrokenBody:
        return


def test_no_kind_means_zlib() -> None:
    assert decompress(zlib.compress(b"x"), COMPRESSED) == b"x"


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_grows_to_its_limit_and_not_beyond(kind: int) -> None:
    data = compress(bytes(100_000), kind)
    assert decompress(data, kind, limit=100_000) == bytes(100_000)
    with pytest.raises(BrokenBody, match="at most 99999 bytes"):
        decompress(data, kind, limit=99_999)


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_cut_short_is_broken(kind: int) -> None:
    data = compress(bytes(range(256)) * 10, kind)
    for length in range(len(data) - 1):
        with pytest.raises(BrokenBody):
            decompress(data[:length], kind)


def streamed_zstd(data: bytes) -> bytes:
    """As stream writers, Java's among them, write it: the frame does not say how long its content is."""
    into = io.BytesIO()
    with zstandard.ZstdCompressor().stream_writer(into, closefd=False) as writer:
        writer.write(data)
        writer.flush()
        writer.write(data)
    return into.getvalue()


def test_a_zstd_frame_that_does_not_say_its_size_is_read_and_cut_short_is_broken() -> None:
    content = bytes(range(256)) * 10
    data = streamed_zstd(content)
    assert zstandard.frame_content_size(data) == -1
    assert decompress(data, ZSTD) == content * 2
    for length in range(len(data)):
        with pytest.raises(BrokenBody):
            decompress(data[:length], ZSTD)


@pytest.mark.parametrize("behind", [b"\x00", b"left over" * 200])
@pytest.mark.parametrize("write", [streamed_zstd, lambda data: compress(data, ZSTD)])
def test_what_is_no_frame_behind_a_zstd_frame_is_broken(
    write: Callable[[bytes], bytes], behind: bytes
) -> None:
    with pytest.raises(BrokenBody):
        decompress(write(b"x") + behind, ZSTD)


def test_zstd_frames_behind_one_that_does_not_say_its_size_are_read_too() -> None:
    content = random.Random(1).randbytes(1000)  # more than one step of reading
    first, second = streamed_zstd(content), compress(content, ZSTD)
    assert decompress(first + second + first, ZSTD) == content * 5
    for length in range(len(first) + 1, len(first + second)):
        with pytest.raises(BrokenBody):
            decompress((first + second)[:length], ZSTD)
    with pytest.raises(BrokenBody, match="too early"):
        decompress(second + first, ZSTD)


@pytest.mark.parametrize("write", [streamed_zstd, lambda data: compress(data, ZSTD)])
def test_a_zstd_body_of_very_many_frames_is_broken(write: Callable[[bytes], bytes]) -> None:
    """Each costs far more time than the few bytes that it may have."""
    with pytest.raises(BrokenBody, match="at most 64 frames"):
        decompress(write(b"") * 65, ZSTD)
    assert decompress(streamed_zstd(b"x") * 64, ZSTD) == b"x" * 128


def test_a_small_zstd_frame_that_would_fill_the_memory_stops_soon_after_its_limit() -> None:
    blocks = 100_000
    repeated = (131_072 << 3 | 1 << 1).to_bytes(3, "little") + b"x"  # a block: one byte, 128 KiB of times
    data = b"\x28\xb5\x2f\xfd\x00\x58" + repeated * blocks
    tracemalloc.start()
    with pytest.raises(BrokenBody, match="must expand to at most"):
        decompress(data, ZSTD, limit=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20


def test_a_zstd_frame_may_not_announce_its_way_into_memory() -> None:
    """A frame header that promises 2^60 bytes of content, and one that asks for a window of 2^41."""
    for data in (b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little"), b"\x28\xb5\x2f\xfd\x00\xf8"):
        with pytest.raises(BrokenBody):
            decompress(data + b"\x01\x00\x00", ZSTD)


@pytest.mark.parametrize("kind", [0x400, 0x700])
def test_an_unknown_kind_is_broken(kind: int) -> None:
    with pytest.raises(BrokenBody, match=f"type {kind >> 8}"):
        decompress(b"", kind)
    with pytest.raises(BrokenBody):
        compress(b"", kind)


@pytest.mark.parametrize(("kind", "library"), [(LZ4, "lz4"), (ZSTD, "zstandard")])
def test_an_absent_library_is_named_with_the_extra(
    kind: int, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(CodecMissing, match=rf"{library} is not installed.*turbopump\[fast\]"):
        decompress(b"", kind)
    with pytest.raises(BrokenBody):
        compress(b"", kind)
