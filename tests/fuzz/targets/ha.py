"""Streams of the HA port, seeded from captured ones."""

from __future__ import annotations

from collections.abc import Iterator

from tests.compat.ha import VERSIONS, connection
from tests.fuzz.targets import Target

from turbopump.protocol import ha
from turbopump.protocol.errors import BrokenFrame

MAX_SEED = 2000  # bytes: a few frames


def reports(data: bytes) -> None:
    """A stream in two pieces gives the last report of the whole stream."""
    whole = ha.ReportReader()
    last = whole.feed(data)
    half, pieces = len(data) // 2, ha.ReportReader()
    try:
        found = pieces.feed(data[:half])
        found = pieces.feed(data[half:]) or found
    except BrokenFrame as error:
        raise AssertionError("refused only in pieces") from error
    assert found == last
    assert (pieces.greeting, pieces.proof) == (whole.greeting, whole.proof)
    if last is not None:
        again = ha.ReportReader()
        if whole.greeting is None:
            assert again.feed(ha.encode_report(last.end)) == last
        else:
            proof = b"" if whole.proof is None else ha.encode_proof(whole.proof)
            assert whole.greeting.is_signed is (whole.proof is not None)
            greeted = (
                ha.encode_greeting(whole.greeting) + proof + ha.encode_disk_report(last.end, last.synced)
            )
            assert again.feed(greeted) == last


def parts(data: bytes) -> None:
    """A stream in two pieces gives the parts and tables of the whole stream, which give its bytes again."""
    whole = _parts([data])
    half = len(data) // 2
    try:
        pieces = _parts([data[:half], data[half:]])
    except BrokenFrame as error:
        raise AssertionError("refused only in pieces") from error
    assert pieces == whole
    written = b"".join(
        ha.encode_table(where, contents) if isinstance(where, str) else ha.PART.pack(where, size) + contents
        for where, size, contents in whole
    )
    assert data.startswith(written)


def _parts(pieces: list[bytes]) -> list[tuple[int | str, int, bytes]]:
    reader, read = ha.PartReader(takes_tables=True), list[tuple[int | str, int, bytes]]()
    for piece in pieces:
        for found in reader.feed(piece):
            if isinstance(found, ha.SentPart):
                read.append((found.offset, found.size, b""))
            elif isinstance(found, ha.TableFile):
                read.append((found.name, len(found.contents), found.contents))
            elif isinstance(found, ha.Challenge):
                read.append((ha.CHALLENGE, len(found.nonce), found.nonce))
            else:
                where, size, body = read[-1]
                read[-1] = where, size, body + bytes(found)
    return read


def report_seeds() -> Iterator[bytes]:
    for version in VERSIONS:
        ours = [frame.data for frame in connection(version, "fresh", 0) if not frame.to_slave]
        yield b"".join(ours)[:MAX_SEED]
    greeting = ha.encode_greeting(ha.Greeting(7, 1 << 20, 1))
    yield greeting + ha.encode_disk_report(1 << 20, 0) + ha.encode_disk_report(2 << 20, 1 << 20)
    signed = ha.encode_greeting(ha.Greeting(7, 1 << 20, 1, is_signed=True))
    proof = ha.encode_proof(ha.GreetingProof("servers", bytes(range(ha.PROOF_SIZE))))
    yield signed + proof + ha.encode_disk_report(1 << 20, 0)


def part_seeds() -> Iterator[bytes]:
    for version in VERSIONS:
        sent = [
            frame for frame in connection(version, "fresh", 0) if frame.to_slave and len(frame.data) < 500
        ]
        yield b"".join(frame.data for frame in sent)[:MAX_SEED]
    yield ha.encode_challenge(bytes(ha.CHALLENGE_SIZE)) + ha.encode_part_head(5, 0)
    yield ha.encode_table("topics.json", b"{}") + ha.encode_part_head(5, 3) + b"abc"


WORDS = (
    ha.REPORT.pack(ha.GREETING),
    ha.REPORT.pack(ha.SIGNED_GREETING),
    ha.PART.pack(ha.CHALLENGE, ha.CHALLENGE_SIZE),
    ha.REPORT.pack(-1),
    b"\x7f" + b"\xff" * 7,
    bytes(8),
    ha.PART.pack(-1, 3),
)

TARGETS = {
    "ha-reports": Target(reports, report_seeds, (BrokenFrame,), WORDS),
    "ha-parts": Target(parts, part_seeds, (BrokenFrame,), WORDS),
}
