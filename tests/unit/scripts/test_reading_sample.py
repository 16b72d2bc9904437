"""The files of the reading test."""

import ast
from pathlib import Path

from scripts import reading_sample

THREE = """\
def one(): ...
def two(): ...
class Three:
    '''Counts.

    More.
    '''

    def four(self): ...
"""


def test_a_seed_picks_the_same_files_again_and_another_one_others(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"m{number}.py").write_text(THREE)
    first = reading_sample.picked(tmp_path, "one", 5)
    assert len(first) == 5
    assert reading_sample.picked(tmp_path, "one", 5) == first
    assert reading_sample.picked(tmp_path, "another", 5) != first


def test_generated_and_tiny_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "read.py").write_text(THREE)
    (tmp_path / "tiny.py").write_text("def one(): ...\n")
    (tmp_path / "face.py").write_text(f'"""Written by scripts/faces.py."""\n\n{THREE}')
    assert reading_sample.picked(tmp_path, "seed", 10) == ["read.py"]


def test_the_outline_has_names_and_first_lines_alone() -> None:
    assert reading_sample.outline(ast.parse(THREE)) == ["one: -", "two: -", "Three: Counts.", "Three.four: -"]
