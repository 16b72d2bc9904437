"""For blocking consumers that give messages out: an interrupted call loses none.

Ctrl-C may come after the core has given messages out and before the waiting thread has them. Nobody would
see them, and the next call would count them as done.
"""

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from turbopump.client import background
from turbopump.client.blocking.face import Core, Face
from turbopump.client.message import MessageExt

T = TypeVar("T")


class Reader(Core, Protocol):
    def give_back(self, messages: Sequence[MessageExt]) -> None: ...


R = TypeVar("R", bound=Reader)


class Reading(Face[R]):
    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return background.run(coroutine, unwanted=self._return_what_nobody_got)

    def _return_what_nobody_got(self, result: object) -> None:
        results = result if isinstance(result, list) else [result]
        self._core.give_back([one for one in results if isinstance(one, MessageExt)])
