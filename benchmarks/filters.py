"""`python -m benchmarks.filters`: compares evaluations of SQL92 expressions, ours and Apache's.

Each expression is evaluated over the same 20 property sets of ordinary messages, again and again, on one
thread; Java after a warm-up as long as its window, with both compilers. Rates are per second of CPU time of
that thread, so that other work on the machine does not count. Ours takes the property string as it is stored
and looks for what it needs. Apache's gets a finished map, which its broker first has to make from that string
for every message; `with parsing` includes that work.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
import time
from pathlib import Path

from tests.interop import artifacts, filters

from turbopump.filter import compile_sql
from turbopump.protocol import properties

EXPRESSIONS = (
    "a > 5",
    "s = 'gold'",
    "a BETWEEN 10 AND 90",
    "region IN ('EU', 'UK', 'US')",
    "a > 5 AND s = 'gold' AND region IS NOT NULL",
    "(a > 50 OR s = 'gold') AND NOT (region = 'EU') AND b <= 7.5",
)
VERSION = filters.NEW
BATCH = 50


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.filters", description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a window")
    options = parser.parse_args()
    sets = messages(random.Random(7))
    theirs = apache(sets, options.seconds)
    parsing = apache(sets, options.seconds, "parsing")
    packed = [properties.pack(one).encode() for one in sets]
    print(f"{'expression':62} {'ours /s':>12} {'Apache /s':>12} {'with parsing':>13}  ratio")
    for text, rate, with_parsing in zip(EXPRESSIONS, theirs, parsing, strict=True):
        own = ours(text, packed, options.seconds)
        ratio = own / with_parsing
        print(f"{text:62} {own:12,.0f} {rate:12,.0f} {with_parsing:13,.0f}  {ratio:.2f}")


def messages(chance: random.Random) -> list[dict[str, str]]:
    def one(number: int) -> dict[str, str]:
        return {
            "UNIQ_KEY": f"7F000001{number:024X}",
            "WAIT": "true",
            "a": str(chance.randrange(100)),
            "b": str(chance.randrange(100) / 10),
            "s": chance.choice(("gold", "silver", "tin")),
            "region": chance.choice(("EU", "US", "UK", "JP")),
            "TAGS": "paid",
            "CLUSTER": "DefaultCluster",
        }

    return [one(number) for number in range(20)]


def ours(text: str, packed: list[bytes], seconds: float) -> float:
    matches = compile_sql(text).matches
    count = 0
    begun = time.thread_time()
    end = begun + seconds
    while time.thread_time() < end:
        for _ in range(BATCH):
            for message in packed:
                matches(message)
        count += BATCH * len(packed)
    return count / (time.thread_time() - begun)


def apache(sets: list[dict[str, str]], seconds: float, *how: str) -> list[float]:
    java = artifacts.tool("java", f"Java filter {VERSION}")
    lines = [*map(filters.set_line, sets), *map(filters.sql_line, EXPRESSIONS)]
    with tempfile.TemporaryDirectory() as work:
        questions, answers = Path(work) / "questions", Path(work) / "answers"
        questions.write_text("\n".join(lines) + "\n")
        program = ["-cp", artifacts.filter_programs(VERSION), "Filters", str(questions), str(answers)]
        subprocess.run([java, *program, str(seconds), *how], check=True)
        return [float(line) for line in answers.read_text().split()]


if __name__ == "__main__":
    main()
