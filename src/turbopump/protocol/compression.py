"""Message bodies compressed and expanded, by the kind the sys flag names.

zlib is always there; LZ4 and zstd come with the extra `fast` and are imported when first met. What comes in
may be hostile, so nothing is expanded beyond a bound: a body that would grow past it raises `BrokenBody`.
"""

import zlib
from typing import Any

from turbopump.protocol.errors import BrokenBody
from turbopump.protocol.sysflag import LZ4, ZLIB, ZSTD, compression_kind

MAX_EXPANDED = 64 * 1024 * 1024
ZLIB_LEVEL = 5
"""Apache's default for message bodies."""

_STEP = 64 * 1024

_ZSTD_STEP = 512
"""Bytes read at a time, at least: they become 16 MiB at most, so that is how far a limit is overstepped."""
_ZSTD_GROWTH = 128 * 1024 // 4
"""What a byte becomes at most: four of them may stand for a block of 128 KiB."""
_ZSTD_FRAMES = 64


class CodecMissing(BrokenBody):
    """The body may be fine, but the library that reads it is not installed."""

    def __init__(self, library: str) -> None:
        super().__init__(f"{library} is not installed; install turbopump[fast] to read and write such bodies")


def compress(data: bytes, kind: int = ZLIB, level: int = ZLIB_LEVEL) -> bytes:
    """`kind` is LZ4, ZSTD or ZLIB of `sysflag`."""
    if kind == ZLIB:
        return zlib.compress(data, level)
    if kind == LZ4:
        return bytes(_lz4().compress(data))
    if kind == ZSTD:
        return bytes(_zstandard().ZstdCompressor(level=level).compress(data))
    raise BrokenBody(f"unknown compression type {kind >> 8}")


def decompress(data: bytes, sys_flag: int, limit: int = MAX_EXPANDED) -> bytes:
    """The body behind a sys flag with the compressed bit; at most `limit` bytes of it."""
    kind = compression_kind(sys_flag)
    if kind == ZLIB:
        return expand_zlib(data, limit)
    if kind == LZ4:
        return _expand_lz4(data, limit)
    if kind == ZSTD:
        return _expand_zstd(data, limit)
    raise BrokenBody(f"unknown compression type {kind >> 8}")


def expand_zlib(data: bytes, limit: int = MAX_EXPANDED) -> bytes:
    """One whole zlib stream; what follows it is ignored, as Java's inflater does."""
    stream = zlib.decompressobj()
    try:
        expanded = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise BrokenBody(f"unreadable zlib body: {error}") from None
    return _checked(expanded, stream.eof, limit)


def _expand_lz4(data: bytes, limit: int) -> bytes:
    frames = _lz4()
    stream = frames.LZ4FrameDecompressor()
    try:
        expanded = bytes(stream.decompress(data, limit + 1))
    except (RuntimeError, ValueError, MemoryError) as error:
        raise BrokenBody(f"unreadable LZ4 body: {error}") from None
    return _checked(expanded, stream.eof, limit)


def _expand_zstd(data: bytes, limit: int) -> bytes:
    """One frame, or a few of which the first does not say its size; what else follows is broken.

    Read in steps: a frame that announces its size would otherwise be allocated at once. They are as large
    as what is left to the limit allows."""
    library = _zstandard()
    parts: list[bytes] = []
    total = at = 0
    frames = 1
    try:
        # the window is bounded too: a frame may ask for a history buffer of gigabytes
        decompressor = library.ZstdDecompressor(max_window_size=1 << 27)
        frame = decompressor.decompressobj(write_size=_STEP)
        while at < len(data) and total <= limit:
            if frame.eof:
                frames += 1
                if frames > _ZSTD_FRAMES:
                    raise BrokenBody(f"a zstd body of more than {_ZSTD_FRAMES} frames")
                frame = decompressor.decompressobj(write_size=_STEP)
            step = data[at : at + _ZSTD_STEP + (limit - total) // _ZSTD_GROWTH]
            part = frame.decompress(step)
            parts.append(part)
            total += len(part)
            at += len(step) - len(frame.unused_data)
        # a stream writer's frame has no size to compare with: whether it has ended is all there is to know
        whole = frame.eof and library.frame_content_size(data) in (-1, total)
    except (library.ZstdError, ValueError, MemoryError) as error:
        raise BrokenBody(f"unreadable zstd body: {error}") from None
    return _checked(b"".join(parts), whole, limit)


def _checked(expanded: bytes, whole: bool, limit: int) -> bytes:
    if len(expanded) > limit:
        raise BrokenBody(f"a compressed body grows beyond {limit} bytes")
    if not whole:
        raise BrokenBody("a compressed body ends too early")
    return expanded


def _lz4() -> Any:
    try:
        import lz4.frame  # type: ignore[import-untyped]
    except ImportError:
        raise CodecMissing("lz4") from None
    return lz4.frame


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise CodecMissing("zstandard") from None
    return zstandard
