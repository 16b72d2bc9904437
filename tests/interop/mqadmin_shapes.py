"""What of an answer is a fact, for commands whose words change with the moment or come in no order."""

from __future__ import annotations

import re
from functools import partial

from . import printed
from .printed import Facts, N

equations = partial(printed.settings, separator="=")
# What a broker says of itself that is neither a figure of this run nor of this machine.
LASTING_FIGURES = re.compile(r"brokerVersionDesc|brokerActive|commitLogMinOffset|\w*Capacity|msg\w+Morning")
CHANGED = ("fileReservedTime ", "flushCommitLogTimed ", "nosuchkey ", "rocketmqHome ")


def figures(lines: list[str]) -> Facts:
    """Figures of this run are only there or not; capacities and the version have a value."""
    found = printed.settings([line.removeprefix("<broker> ") for line in lines], ":")
    assert isinstance(found, dict)
    return {name: value if LASTING_FIGURES.fullmatch(name) else N for name, value in found.items()}


def more_statistics(lines: list[str]) -> Facts:
    """Messages of today: how many depends on how often clients asked."""
    return [re.sub(r" [1-9]\d*", f" {N}", line) for line in lines]


def sums(lines: list[str]) -> Facts:
    return printed.without_chance(
        [line for line in lines if not line.startswith("broker-a ")]
    )  # tools send to it


def overview(lines: list[str]) -> Facts:
    """All groups; how many messages a second is of the moment."""
    return printed.without_chance([re.sub(r" \d+ (\d+)$", rf" {N} \1", line) for line in lines])


def progress_rows(lines: list[str]) -> Facts:
    """A queue of retries that is empty is shown once a pull of it has ended, which takes some seconds."""
    return [line for line in lines if not re.match(r"%RETRY%\w+ broker-a 0 0 0 ", line)]


def running_facts(lines: list[str]) -> Facts:
    """Queues, subscriptions and whether threads are shown; all else is the client's own affair."""
    facts = {line for line in lines if re.search(r"\bTopic: ", line)}
    facts.update(
        found[0] for line in lines if (found := re.match(r"\S+ broker-a \d+(?= ProcessQueue)", line))
    )
    facts.update("threads" for line in lines if "ConsumeMessageThread" in line)
    return sorted(facts)


def changed_settings(lines: list[str]) -> Facts:
    return equations([line for line in lines if line.startswith(CHANGED)])


def traces(lines: list[str]) -> Facts:
    return [re.sub(r"\b\d+ms\b", f"{N}ms", line) for line in lines]


def round_trips(lines: list[str]) -> Facts:
    return [re.sub(r"\d+$", N, line) for line in lines]


def counted_sends(lines: list[str]) -> Facts:
    """To which queue and offset is chance."""
    return [re.sub(r"(ueueId=|ueOffset=)\d+", rf"\1{N}", line) for line in lines]


def how_many(lines: list[str]) -> Facts:
    """How many topics of its own a broker has is its own affair."""
    return [re.sub(r"OK, \d+", f"OK, {N}", line) for line in lines]


def unknown_place(lines: list[str]) -> Facts:
    """Java's client refuses the broker itself unless another topic has told it of the broker just before."""
    by_client = r"MQClientException: The broker\[broker-a\] not exist"
    by_broker = r"MQBrokerException: CODE: 17 DESC: topic\[nowhere\] not exist, .*"
    said = re.compile(rf"Caused by: \S+\.(?:{by_client}|{by_broker})")
    return [said.sub("Caused by: <no such place>", line) for line in lines]


def any_number(lines: list[str]) -> Facts:
    return [re.sub(r"(?<= )\d+\b", N, line) for line in lines]
