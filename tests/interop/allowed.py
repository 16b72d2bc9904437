"""Where our answers may differ from the recording of Apache 5.5.0, each row with its reason.

`where` is a glob over the path of a difference, `scenario / step / field`, `recorded` over Apache's words,
`seen` is one or more globs over ours, with | between them. `as_4_9_7`: ours is what Apache 4.9.7 answers.
Codes such as D10 are rows of docs/compatibility.md. A row that no run needs any more is an error, and so is
one that is wrong about 4.9.7: see test_scenarios.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from .compare import ABSENT, Difference, differences


@dataclass(frozen=True)
class Allowed:
    where: str
    reason: str
    recorded: str = "*"
    seen: str = "*"
    as_4_9_7: bool = False

    def covers(self, difference: Difference) -> bool:
        return (
            fnmatchcase(difference.path, self.where)
            and fnmatchcase(str(difference.recorded), self.recorded)
            and any(fnmatchcase(str(difference.seen), glob) for glob in self.seen.split("|"))
        )


@dataclass
class Judge:
    """Says what no row allows, and remembers what the rows were needed for."""

    rows: tuple[Allowed, ...]
    used: set[Allowed] = field(default_factory=set)
    unlike_4_9_7: set[Allowed] = field(default_factory=set)

    def unexpected(self, recorded: Any, of_4_9_7: Any, seen: Any) -> list[Difference]:
        """Differences from 5.5.0's recording that have no row, or only one that is wrong about 4.9.7."""
        found = []
        elsewhere = [difference.path for difference in differences(of_4_9_7, seen)]
        for difference in differences(recorded, seen):
            rows = {row for row in self.rows if row.covers(difference)}
            self.used |= rows
            if _touches(difference.path, elsewhere):
                self.unlike_4_9_7 |= rows
                rows = {row for row in rows if not row.as_4_9_7}
            if not rows:
                found.append(difference)
        return found

    def stale(self) -> list[str]:
        """Rows that were not needed, or are wrong about 4.9.7: a difference must be ours alone, or none."""
        unused = [f"{row.where}: {row.reason}" for row in self.rows if row not in self.used]
        wrong = [row for row in self.used if row.as_4_9_7 == (row in self.unlike_4_9_7)]
        return [*unused, *(f"{row.where}: as_4_9_7 must not be {row.as_4_9_7}" for row in wrong)]


def _touches(path: str, others: Iterable[str]) -> bool:
    """Whether one of the others is that place, above it or below."""
    return any(f"{path} / ".startswith(f"{other} / ") or other.startswith(f"{path} / ") for other in others)


RECEIPT = "our answer to a send says where the message was (D10)"
EXCEPTION = "Apache stumbles over it and answers with a Java exception, code 1, which a producer tries again"
REFUSED = f"{EXCEPTION}; we refuse it with code 13, as 4.9.7 does where it notices"
OUR_FIGURE = "a figure of ours: Apache's broker status says nothing about its slaves"
KEY_OF_4_9 = "a figure by its name of 4.9 as well, which its tools ask for"
NO_ACCESS_RIGHTS = "where access rights are off Apache answers with an exception, code 1; we do not have them"
EMPTY = "of an empty queue 5.5.0 says nothing, and a client then skips what arrives meanwhile (C13)"
EARLY_COMMIT = "5.5.0 refuses the commit of a group that it does not know yet, which nobody hears (C8)"
BAD_SQL = "an expression that cannot be read is refused with 23; Apache returns everything (D22)"
WORDS = "ours says what is wrong with it, and how large it may be"
ILLEGAL = "the message is illegal, maybe msg body or properties length not matched.*"
RAW_REFUSAL = "13|DefaultRegion|true"  # its code, and two fields that an exception's answer lacks

ALLOWED = (
    Allowed("* / ext / durability", RECEIPT, recorded=ABSENT, seen="memory"),
    Allowed("* / ext / replicas", RECEIPT, recorded=ABSENT, seen="1"),
    Allowed(
        "send * / 4194305 bytes* / remark",
        WORDS,
        recorded=ILLEGAL,
        seen="the message body has 4194305 bytes, more than maxMessageSize 4194304",
    ),
    Allowed(
        "property bytes / * / remark",
        f"{WORDS}; how many bytes the client adds is up to its version",
        recorded=ILLEGAL,
        seen="the message has [367]???? bytes of properties, more than 32767",
    ),
    Allowed(
        "property names / raw INNER_NUM=5; / remark",
        WORDS,
        recorded=ILLEGAL,
        seen="a message that is no inner batch has INNER_NUM",
    ),
    Allowed(
        "retry and dead-letter topics / raw send %DLQ% of 255 / remark",
        WORDS,
        recorded=ILLEGAL,
        seen="the topic's name has 255 bytes, 127 are allowed: %DLQ%ggg*",
    ),
    Allowed("send raw / no body / *", f"{REFUSED} (C1)", seen=RAW_REFUSAL),
    Allowed("send sync / 0 bytes / code", f"{REFUSED} (C1)", recorded="1", seen="13"),
    Allowed("send async / 0 bytes / code", f"{REFUSED} (C1)", recorded="1", seen="13"),
    Allowed("send by selector / 0 bytes by key c / code", f"{REFUSED} (C1)", recorded="1", seen="13"),
    Allowed("send batch / one of 419430? bytes / code", REFUSED, recorded="1", seen="13", as_4_9_7=True),
    Allowed(
        "send batch / one of 419430? bytes / failure",
        REFUSED,
        recorded="MQClientException",
        seen="MQBrokerException",
        as_4_9_7=True,
    ),
    Allowed(
        "send batch / one of 419430? bytes / cause",
        REFUSED,
        recorded="MQBrokerException",
        seen=ABSENT,
        as_4_9_7=True,
    ),
    Allowed(
        "send batch / one byte and 419430? bytes / code", REFUSED, recorded="1", seen="13", as_4_9_7=True
    ),
    Allowed("send batch, raw / record of 4194305 bytes / *", REFUSED, seen=RAW_REFUSAL, as_4_9_7=True),
    Allowed("send batch, raw / empty / *", REFUSED, seen=RAW_REFUSAL),
    Allowed(
        "property bytes / raw batch record of * / ext / *",
        EXCEPTION,
        recorded=ABSENT,
        seen="DefaultRegion|true",
    ),
    Allowed(
        "property bytes / longest accepted*",
        "5.5.0 stops 24 bytes below the 32,767 that a record has room for, 4.9.7 does not; nor do we. "
        "4.9.7 adds 82 bytes less of its own, so it takes as many more",
        seen="32660|16330",
    ),
    Allowed(
        "dashboard: cluster / fetchBrokerRuntimeStats / brokerVersion", KEY_OF_4_9, seen="True", as_4_9_7=True
    ),
    Allowed(
        "dashboard: cluster / fetchBrokerRuntimeStats / getTransferedTps",
        KEY_OF_4_9,
        seen="True",
        as_4_9_7=True,
    ),
    Allowed("dashboard: cluster / fetchBrokerRuntimeStats / replica*", OUR_FIGURE, seen="True"),
    Allowed(
        "dashboard: topics / *, type NONSENSE / remark",
        "a set, in the order of Java's hash table",
        seen="value is not in set: [[]UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION, MIXED, PRIORITY, LITE]",
    ),
    Allowed("dashboard: access / * / code", NO_ACCESS_RIGHTS, seen="3", as_4_9_7=True),
    Allowed("dashboard: access / * / remark", NO_ACCESS_RIGHTS, seen="*not supported", as_4_9_7=True),
    Allowed("consumer offsets / never committed, empty queue", EMPTY, recorded="-1", seen="0", as_4_9_7=True),
    Allowed("consumer offsets, raw / fetch, unknown * / code", EMPTY, recorded="22", seen="0", as_4_9_7=True),
    Allowed(
        "consumer offsets, raw / fetch, unknown * / remark",
        EMPTY,
        recorded="Not found, V3_0_6_SNAPSHOT*",
        seen="None",
        as_4_9_7=True,
    ),
    Allowed(
        "consumer offsets, raw / fetch, unknown * / ext / offset",
        EMPTY,
        recorded=ABSENT,
        seen="0",
        as_4_9_7=True,
    ),
    Allowed(
        "consumer offsets, raw / commit, unknown group / code",
        EARLY_COMMIT,
        recorded="26",
        seen="0",
        as_4_9_7=True,
    ),
    Allowed(
        "consumer offsets, raw / commit, unknown group / remark",
        EARLY_COMMIT,
        recorded="Group rawgroup not exist!",
        seen="None",
        as_4_9_7=True,
    ),
    Allowed(
        "consumer offsets, raw / fetch, unknown group / ext / offset",
        EARLY_COMMIT,
        recorded="0",
        seen="1",
        as_4_9_7=True,
    ),
    Allowed("consumer offsets, raw / fetch, zero * / ext / offset", EARLY_COMMIT, seen="1", as_4_9_7=True),
    Allowed(
        "consumer offsets, raw / fetch, zero not wanted / code",
        EARLY_COMMIT,
        recorded="22",
        seen="0",
        as_4_9_7=True,
    ),
    Allowed(
        "consumer offsets, raw / fetch, zero not wanted / remark",
        EARLY_COMMIT,
        recorded="Not found, do not set to zero*",
        seen="None",
        as_4_9_7=True,
    ),
    Allowed("pull, raw / bad SQL / code", BAD_SQL, recorded="0", seen="23"),
    Allowed(
        "pull, raw / bad SQL / remark",
        BAD_SQL,
        recorded="FOUND",
        seen="expected a property, a constant or (, got the end (line 1, column 4: a >[[]here])",
    ),
    Allowed("pull, raw / bad SQL / ext / *", BAD_SQL, seen=ABSENT),
    Allowed("pull, raw / unknown expression type / code", BAD_SQL, recorded="0", seen="23"),
    Allowed(
        "pull, raw / unknown expression type / remark",
        BAD_SQL,
        recorded="FOUND",
        seen="the expression type must be TAG or SQL92, got OTHER",
    ),
    Allowed("pull, raw / unknown expression type / ext / *", BAD_SQL, seen=ABSENT),
    Allowed(
        'query by key / key "twice"',
        "a message that has a key twice is found once",
        seen="[[]'0/42 tag 102 bytes fd26d91b']",
    ),
    Allowed(
        "query, raw / index type T, tag",
        "only 5.5 keeps tags in the index, and only its tools ask for them",
        recorded="0",
        seen="22",
        as_4_9_7=True,
    ),
)

# The same for push consumers: see test_push.
MARKED = (
    "a message that was delayed says which one it was, so that a crash delivers it once: a negative number, "
    "made of its place in the log, where the messages of all clients lie"
)
ALLOWED_PUSH = (
    Allowed("retry* / preparedTransactionOffset", MARKED, recorded="0", seen="-*"),
    Allowed("send back, raw / retries / * / preparedTransactionOffset", MARKED, recorded="0", seen="-*"),
    Allowed("delay levels / * / preparedTransactionOffset", MARKED, recorded="0", seen="-*"),
    Allowed(
        "reset, raw / no time / *",
        "ours wants a time, and says so",
        seen=f"1|the field timestamp is missing|{ABSENT}",
    ),
    Allowed("delay levels / committed / queue 0", EMPTY, recorded="code 22", seen="0", as_4_9_7=True),
    Allowed("request and reply / * / ext / durability", RECEIPT, recorded=ABSENT, seen="memory"),
    Allowed("request and reply / * / ext / replicas", RECEIPT, recorded=ABSENT, seen="1"),
)
