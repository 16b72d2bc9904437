"""Every answer in which the recordings of Apache 4.9.7 and 5.5.0 differ is a row of docs/compatibility.md.

A difference that no glob covers is one that nobody has decided about: can somebody lose a message or an
offset without an error? A glob that covers nothing any more is an error too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
from tests.interop import compare, recordings
from tests.interop.clients import CLIENTS
from tests.interop.push import CLIENTS as PUSH_CLIENTS

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"

# Row of the page -> globs over `scenario / step / field`, of scenarios with ordinary and with push consumers.
CHOICES: dict[str, tuple[str, ...]] = {
    "C1": (
        "send * / 0 bytes* / *",
        "send raw / no body / *",
        "send * / * bytes* / offset",
        "send sync / compressed / offset",
        "send sync / flag / offset",
        "send * / stored",
        "send raw / without its group / ext / queueOffset",
    ),
    "C2": (
        "* / *queue* / code",
        "* / *queue* / remark",
        "read and write queues differ / * / code",
        "read and write queues differ / * / remark",
        "topic created by a send / raw, -1 wanted / *",
    ),
    "C3": (
        "illegal topics / * / code",
        "illegal topics / * / remark",
        "long topics / *",
        "reserved topics / * / code",
        "create topic, raw / without a topic / remark",
        "dashboard: topics / *, bad name / *",
        "dashboard: removing / deleteTopic of the system / code",
    ),
    "C5": ("send * / properties / CLUSTER",),
    "C6": ("retry and dead-letter topics / raw send %?*% of 255 / *",),
    "C8": (
        "consumer offsets, raw / commit, unknown * / *",
        "consumer offsets, raw / fetch, unknown group / ext / offset",
        "consumer offsets, raw / fetch, zero * / ext / offset",
    ),
    "C13": (
        "consumer offsets / never committed, empty queue",
        "consumer offsets, raw / fetch, unknown * / *",
        "delay levels / committed / queue 0",
    ),
    "C14": ("consumer offsets, raw / fetch, zero not wanted / *",),
    "C15": ("* / transactionId",),
    "C16": (
        "* / properties / MSG_REGION",
        "* / properties / TRACE_ON",
        "* / properties / WAIT",
        "* / storeSizeLessIds",
    ),
    "C17": ("send raw / stored * / properties / UNIQ_KEY",),
    "C18": ("property names / raw INNER_NUM=5; / *", "property names / stored"),
    "C19": ("create topic, raw / unknown attribute / *", "dashboard: topics / *, type NONSENSE / *"),
    "C20": ("reserved topics / create CHECKPOINT_TOPIC / *", "dashboard: topics / getSystemTopicList"),
    "C21": ("illegal groups / pull as * / *",),
    "C22": ("pull, raw / at most -1 / *",),
    "C23": ("* / ext / groupSysFlag", "* / ext / topicSysFlag"),
    "C24": ("pull, raw / lite pull code / *", "lite pull / *"),
    "C25": (
        "offset by time / *",
        "queue bounds / three messages, by time",
        "lite pull / offset for time past the end",
        "dashboard: messages / message page / *",
    ),
    "C26": (
        "reset* / * / code",
        "reset* / * / remark",
        "reset* / * / offsets*",
        "reset of a stopped group / delivered*",
        "reset, raw / offsets in the end / *",
        "dashboard: offsets / resetOffset*",
    ),
    "C27": ("ordered, to dead letters / dead letter / 0 / properties / *",),
    "C28": ("consumer offsets, raw / commit without an offset / code",),
    "C29": ("queue bounds / *, raw 31 / remark",),
    "C30": (
        "dashboard: * / GET_TOPIC_CONFIG of * / *",
        "dashboard: topics / examineTopicStats of * / *",
        "dashboard: topics / createAndUpdateTopicConfig, type * / *",
        "dashboard: * / examineConsumeStats *",
        "dashboard: consumers / *",
        "dashboard: access / *",
        "dashboard: messages / messageTrackDetail *",
    ),
    "C31": ("dashboard: cluster / fetchBrokerRuntimeStats / *",),
    "D19": ("send batch* / *",),
    "D20": ("property bytes / *",),
    "D21": ("query, raw / index type T, *",),
}


def test_every_difference_between_4_9_7_and_5_5_0_has_a_row() -> None:
    globs = [glob for row in CHOICES.values() for glob in row]
    undecided = [one for one in _all() if not any(fnmatchcase(one, glob) for glob in globs)]
    assert not undecided, "\n".join(undecided)


def test_no_glob_is_left_over() -> None:
    left = [
        glob for row in CHOICES.values() for glob in row if not any(fnmatchcase(one, glob) for one in _all())
    ]
    assert not left


@pytest.mark.parametrize("row", CHOICES)
def test_the_row_is_on_the_page(row: str) -> None:
    assert re.search(rf"^\| {row} \|", PAGE.read_text(), re.MULTILINE)


@cache
def _all() -> frozenset[str]:
    return frozenset(path for client in (*CLIENTS, *PUSH_CLIENTS) for path in _differences(client))


def _differences(client: str) -> Iterator[str]:
    older, newer = (recordings.load(client, server) for server in (recordings.OLDER, recordings.REFERENCE))
    return (difference.path for difference in compare.differences(older, newer))
