"""`python -m tests.interop.filters`: records what Apache's filter classes answer, for the unit tests of ours.

Needs no server: the classes of 4.9.7 and 5.5.0 are asked directly. An expression stands with the letters of
5.5.0 and, where 4.9.7 says something else, with those too.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.compat import filters as generated

from . import artifacts

OLD, NEW = "4.9.7", "5.5.0"
SEED = 20261115
EXPRESSIONS = 6000
SETS = 12
BLOOMS = [(20, 32), (20, 64), (1, 100), (50, 1), (10, 7)]
RECORDED = Path(__file__).resolve().parents[1] / "compat" / "recorded" / "filters.json"
TIMEOUT_S = 120


def ask(version: str, lines: list[str], *options: str) -> list[str]:
    """One answer for each line that is no property set."""
    java = artifacts.tool("java", f"Java filter {version}")
    with tempfile.TemporaryDirectory() as work:
        questions, answers = Path(work) / "questions", Path(work) / "answers"
        questions.write_text("\n".join(lines) + "\n")
        program = ["-cp", artifacts.filter_programs(version), "Filters", str(questions), str(answers)]
        subprocess.run([java, *artifacts.JAVA_OPTIONS, *program, *options], check=True, timeout=TIMEOUT_S)
        return answers.read_text().splitlines()


def set_line(pairs: dict[str, str]) -> str:
    return " ".join(["set", *(quote(word, safe="") for pair in pairs.items() for word in pair)])


def sql_line(text: str) -> str:
    return f"sql {quote(text, safe='')}"


def bloom_line(error_percent: int, groups: int, text: str) -> str:
    return f"bloom {error_percent} {groups} {quote(text, safe='')}"


def main() -> None:
    chance = random.Random(SEED)
    sets = generated.property_sets(chance, SETS)
    texts = sorted(
        set(islice(generated.expressions(chance), EXPRESSIONS)), key=lambda text: (len(text), text)
    )
    lines = [*map(set_line, sets), *map(sql_line, texts)]
    old, new = ask(OLD, lines), ask(NEW, lines)
    cases = [
        [text, after] if before == after else [text, after, before]
        for text, before, after in zip(texts, old, new, strict=True)
    ]
    names = [
        "",
        "g#t",
        "CID_x#TopicTest",
        "%RETRY%g#" + "t" * 40,
        "grüppe#töpic",
        *("x" * n for n in range(34)),
    ]
    blooms = [(error, groups, name) for error, groups in BLOOMS for name in names]
    bits = ask(NEW, [bloom_line(*bloom) for bloom in blooms])
    asked = [[*bloom, answer] for bloom, answer in zip(blooms, bits, strict=True)]
    RECORDED.write_text(_table({"sets": sets, "blooms": asked, "cases": cases}))


def _table(parts: dict[str, list[Any]]) -> str:
    """JSON with a line for each row."""
    rows = {
        name: ",\n".join(json.dumps(row, ensure_ascii=False) for row in part) for name, part in parts.items()
    }
    return "{" + ",\n".join(f'"{name}": [\n{text}\n]' for name, text in rows.items()) + "}\n"


if __name__ == "__main__":
    main()
