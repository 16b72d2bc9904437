"""Counts the files that a change touches, by package: what one more feature costs.

    git diff main..branch | python scripts/change_cost.py --own src/turbopump/replication
    python scripts/change_cost.py change.patch --own src/turbopump/auth

A feature's own package is new with it, so its size does not count; what counts is how many files outside
of it have to change (`--own` may be given more than once). Tests and documentation are listed and not
counted.
"""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

SOURCE = PurePosixPath("src/turbopump")
NO_FILE = "/dev/null"


@dataclass
class Touched:
    """A file of a patch."""

    path: str
    is_new: bool = False
    added: int = 0
    removed: int = 0

    @property
    def package(self) -> str:
        """The directory below `src/turbopump`, two levels deep, or the first one of another tree."""
        path = PurePosixPath(self.path)
        if path.is_relative_to(SOURCE):
            return "/".join(path.relative_to(SOURCE).parts[:-1][:2]) or "turbopump"
        return path.parts[0]

    @property
    def is_source(self) -> bool:
        return PurePosixPath(self.path).is_relative_to(SOURCE)

    def is_below(self, directories: Iterable[str]) -> bool:
        return any(PurePosixPath(self.path).is_relative_to(directory) for directory in directories)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("patch", nargs="?", help="output of git diff; standard input if left out")
    parser.add_argument("--own", action="append", default=[], help="path that belongs to the feature itself")
    options = parser.parse_args()
    text = Path(options.patch).read_text() if options.patch else sys.stdin.read()
    print(report(touched(text), options.own))


def touched(patch: str) -> list[Touched]:
    """The files of a unified diff. Lines of a hunk are counted, so that no content is taken for a header."""
    found: list[Touched] = []
    before, old_left, new_left = "", 0, 0
    for line in patch.splitlines():
        if old_left > 0 or new_left > 0:
            old_left -= line[:1] in (" ", "-", "")
            new_left -= line[:1] in (" ", "+", "")
            found[-1].added += line.startswith("+")
            found[-1].removed += line.startswith("-")
        elif line.startswith("--- "):
            before = line[4:].partition("\t")[0]
        elif line.startswith("+++ "):
            after = line[4:].partition("\t")[0]
            name = before if after == NO_FILE else after
            found.append(Touched(name.partition("/")[2], is_new=before == NO_FILE))
        elif line.startswith("@@ "):
            old_left, new_left = (hunk_length(part) for part in line.split()[1:3])
    return found


def hunk_length(part: str) -> int:
    """Lines of one side of a hunk: `-3,7` has 7, `+3` has 1."""
    _, comma, length = part.partition(",")
    return int(length) if comma else 1


def report(files: list[Touched], own: list[str]) -> str:
    outside = [file for file in files if file.is_source and not file.is_below(own)]
    inside = [file for file in files if file.is_below(own)]
    others = [file for file in files if not file.is_source and not file.is_below(own)]
    lines = [f"{len(outside)} files outside its own package:", *rows(outside)]
    lines += [f"{len(inside)} files of its own package:", *rows(inside)]
    lines += [f"{len(others)} files of tests, documentation and tools, not counted:", *rows(others)]
    return "\n".join(lines)


def rows(files: list[Touched]) -> list[str]:
    ordered = sorted(files, key=lambda file: (file.package, file.path))
    return [
        f"  {file.package:24} {file.path:60} {'new ' if file.is_new else ''}+{file.added} -{file.removed}"
        for file in ordered
    ]


if __name__ == "__main__":
    main()
