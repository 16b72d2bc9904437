"""`python -m tests.unit.raft.record [name ...]`: writes all transcripts again, or those named."""

import sys

from tests.unit.raft.transcript import FILES, played


def main(names: list[str]) -> None:
    """Plays each transcript and writes what happened into it."""
    for path in FILES:
        if not names or path.stem in names:
            path.write_text(played(path.read_text()))
            print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
