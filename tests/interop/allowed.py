"""Where our answers may differ from the recording of Apache 5.5.0, each row with its reason.

`where` is a glob over the path of a difference, `scenario / step / field`, `recorded` over Apache's words,
`seen` over ours.
Codes such as D10 are rows of docs/compatibility.md. A row that no run needs any more is an error: see
test_scenarios.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from .compare import Difference


@dataclass(frozen=True)
class Allowed:
    where: str
    reason: str
    recorded: str = "*"
    seen: str = "*"

    def covers(self, difference: Difference) -> bool:
        return (
            fnmatchcase(difference.path, self.where)
            and fnmatchcase(str(difference.recorded), self.recorded)
            and fnmatchcase(str(difference.seen), self.seen)
        )


RECEIPT = "our answer to a send says where the message was (D10)"
EXCEPTION = "Apache stumbles over it and answers with a Java exception, code 1, which a producer tries again"
REFUSED = f"{EXCEPTION}; we refuse it with code 13, as 4.9.7 does where it notices"
KEY_OF_4_9 = "a figure by its name of 4.9 as well, which its tools ask for"
NO_ACCESS_RIGHTS = "where access rights are off Apache answers with an exception, code 1; we do not have them"
BAD_SQL = "an expression that cannot be read is refused with 23; Apache returns everything (D22)"

ALLOWED = (
    Allowed("* / ext / durability", RECEIPT),
    Allowed("* / ext / replicas", RECEIPT),
    Allowed(
        "* / remark",
        "ours says what is too large, and how large it may be",
        recorded="the message is illegal, maybe msg body or properties length not matched.*",
    ),
    Allowed("send raw / no body / *", f"{REFUSED} (C1)"),
    Allowed("send sync / 0 bytes / code", f"{REFUSED} (C1)"),
    Allowed("send async / 0 bytes / code", f"{REFUSED} (C1)"),
    Allowed("send batch / one of 419430? bytes / *", REFUSED),
    Allowed("send batch / one byte and 419430? bytes / code", REFUSED),
    Allowed("send batch, raw / record of 4194305 bytes / *", REFUSED),
    Allowed("send batch, raw / empty / *", REFUSED),
    Allowed("property bytes / raw batch record of * / ext / *", EXCEPTION),
    Allowed(
        "property bytes / longest accepted*",
        "5.5.0 stops 24 bytes below the 32,767 that a record has room for, 4.9.7 does not; nor do we",
    ),
    Allowed("dashboard: cluster / fetchBrokerRuntimeStats / brokerVersion", KEY_OF_4_9),
    Allowed("dashboard: cluster / fetchBrokerRuntimeStats / getTransferedTps", KEY_OF_4_9),
    Allowed("dashboard: topics / *, type NONSENSE / remark", "a set, in the order of Java's hash table"),
    Allowed("dashboard: access / * / code", NO_ACCESS_RIGHTS, seen="3"),
    Allowed("dashboard: access / * / remark", NO_ACCESS_RIGHTS, seen="*not supported"),
    Allowed("pull, raw / bad SQL / *", BAD_SQL),
    Allowed("pull, raw / unknown expression type / *", BAD_SQL),
    Allowed('query by key / key "twice"', "a message that has a key twice is found once"),
    Allowed(
        "query, raw / index type T, tag", "only 5.5 keeps tags in the index, and only its tools ask for them"
    ),
)

# The same for push consumers: see test_push.
MARKED = "a message that was delayed says which one it was, so that a crash delivers it once"
ALLOWED_PUSH = (
    Allowed("retry* / preparedTransactionOffset", MARKED),
    Allowed("send back, raw / retries / * / preparedTransactionOffset", MARKED),
    Allowed("delay levels / * / preparedTransactionOffset", MARKED),
    Allowed("reset, raw / no time / *", "ours wants a time, and says so"),
    Allowed("request and reply / * / ext / durability", RECEIPT),
    Allowed("request and reply / * / ext / replicas", RECEIPT),
)
