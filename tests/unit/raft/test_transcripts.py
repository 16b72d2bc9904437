"""Transcripts: small groups in virtual time, every message, role and commit compared as text.

`python -m tests.unit.raft.record` writes them again; look at the difference before you commit it.
"""

from pathlib import Path

import pytest
from tests.unit.raft.transcript import FILES, played


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_transcript_happens_as_it_is_written(path: Path) -> None:
    text = path.read_text()
    assert played(text) == text


def test_a_transcript_is_the_same_each_time() -> None:
    text = FILES[0].read_text()
    assert played(text) == played(text)
