"""The answers of Apache's servers in tests/compat/recorded: a file per client and server, a line per step."""

from __future__ import annotations

import json
from pathlib import Path

from .artifacts import DASHBOARD, HERE, SERVERS
from .clients import CLIENTS, GO, Answers

FOLDER = HERE.parent / "compat" / "recorded"
REFERENCE = "5.5.0"  # where Apache's versions differ, we answer as this one
OLDER = "4.9.7"  # or as this one, where clients of its time would fail: a row of allowed.py says so

# What `record` runs.
PAIRS = tuple((client, server) for server in SERVERS for client in CLIENTS)
# Run again against the real server each time, so that a stale recording shows.
LIVE_PAIRS = (
    ("java-4.9.8", "4.9.7"),
    ("java-5.5.0", "5.5.0"),
    (f"dashboard-{DASHBOARD}", REFERENCE),
    (GO, REFERENCE),
)


def path(client: str, server: str) -> Path:
    return FOLDER / f"{client}-on-{server}.json"


def load(client: str, server: str) -> Answers:
    answers: Answers = json.loads(path(client, server).read_text())
    return answers


def save(client: str, server: str, answers: Answers) -> Path:
    FOLDER.mkdir(parents=True, exist_ok=True)
    target = path(client, server)
    target.write_text(pretty(answers))
    return target


def pretty(answers: Answers) -> str:
    """A changed answer is a changed line."""
    scenarios = []
    for scenario, steps in answers.items():
        lines = [f"  {_line(step)}: {_line(answer)}" for step, answer in steps.items()]
        scenarios.append(f" {_line(scenario)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(scenarios) + "\n}\n"


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, separators=(", ", ": "))
