"""Where our answers may differ from the recording of Apache 5.5.0, each row with its reason.

`where` is a glob over the path of a difference, `scenario / step / field`. A row that no run needs any
more is an error: see test_scenarios.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from .compare import Difference


@dataclass(frozen=True)
class Allowed:
    where: str
    reason: str
    clients: str = "*"

    def covers(self, client: str, difference: Difference) -> bool:
        return fnmatchcase(client, self.clients) and fnmatchcase(difference.path, self.where)


ALLOWED: tuple[Allowed, ...] = ()
