"""Compresses and expands message bodies, by the kind in the sys flag.

zlib is always available; LZ4 and zstd come with the extra `fast` and are imported at first use. Input may be
hostile, so no body is expanded beyond a limit: one that would exceed it raises `BrokenBody`.
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
"""Least number of bytes read at a time. They expand to at most 16 MiB: a limit is exceeded by no more."""
_ZSTD_GROWTH = 128 * 1024 // 4
"""Greatest expansion of one byte: four bytes can encode a block of 128 KiB."""
_ZSTD_FRAMES = 64


class CodecMissing(BrokenBody):
    """Raised when the library for a compression is not installed; the body may be valid."""

    def __init__(self, library: str) -> None:
        super().__init__(f"{library} is not installed; install turbopump[fast] to read and write such bodies")


def compress(data: bytes, kind: int = ZLIB, level: int = ZLIB_LEVEL) -> bytes:
    """Compresses a body; `kind` is LZ4, ZSTD or ZLIB of `sysflag`."""
    if kind == ZLIB:
        return zlib.compress(data, level)
    if kind == LZ4:
        return bytes(_lz4().compress(data))
    if kind == ZSTD:
        return bytes(_zstandard().ZstdCompressor(level=level).compress(data))
    raise BrokenBody(f"unknown compression type {kind >> 8}")


def decompress(data: bytes, sys_flag: int, limit: int = MAX_EXPANDED) -> bytes:
    """Expands a body whose sys flag has the compressed bit. Raises BrokenBody beyond `limit` bytes."""
    kind = compression_kind(sys_flag)
    if kind == ZLIB:
        return expand_zlib(data, limit)
    if kind == LZ4:
        return _expand_lz4(data, limit)
    if kind == ZSTD:
        return _expand_zstd(data, limit)
    raise BrokenBody(f"unknown compression type {kind >> 8}")


def expand_zlib(data: bytes, limit: int = MAX_EXPANDED) -> bytes:
    """Expands one whole zlib stream; ignores what follows it, as Java's inflater does."""
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
    """Expands one frame, or up to 64 if the first does not announce its size; anything else is broken.

    Reads in steps, as large as the rest of the limit allows: a frame that announces its size would otherwise
    be allocated at once."""
    library = _zstandard()
    parts: list[bytes] = []
    total = at = 0
    frames = 1
    try:
        # The window is limited too: a frame may ask for a history buffer of gigabytes.
        decompressor = library.ZstdDecompressor(max_window_size=1 << 27)
        frame = decompressor.decompressobj(write_size=_STEP)
        while at < len(data) and total <= limit:
            if frame.eof:
                frames += 1
                if frames > _ZSTD_FRAMES:
                    raise BrokenBody(f"a zstd body must have at most {_ZSTD_FRAMES} frames")
                frame = decompressor.decompressobj(write_size=_STEP)
            step = data[at : at + _ZSTD_STEP + (limit - total) // _ZSTD_GROWTH]
            part = frame.decompress(step)
            parts.append(part)
            total += len(part)
            at += len(step) - len(frame.unused_data)
        # The frame of a stream writer has no size to compare with; only its end can be checked.
        whole = frame.eof and library.frame_content_size(data) in (-1, total)
    except (library.ZstdError, ValueError, MemoryError) as error:
        raise BrokenBody(f"unreadable zstd body: {error}") from None
    return _checked(b"".join(parts), whole, limit)


def _checked(expanded: bytes, whole: bool, limit: int) -> bytes:
    if len(expanded) > limit:
        raise BrokenBody(f"a compressed body must expand to at most {limit} bytes")
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
