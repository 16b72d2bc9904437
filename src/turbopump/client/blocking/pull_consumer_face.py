"""The base of blocking consumers that return messages: an interrupted call loses none.

Ctrl-C may come after the core has given messages out and before the waiting thread has them. Without this
they would be lost, because the next call would count them as done.
"""

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from turbopump.client import background
from turbopump.client.blocking.face import Core, Face
from turbopump.client.message import MessageExt

T = TypeVar("T")


class PullConsumerCore(Core, Protocol):
    """Interface of an async consumer that takes back messages which did not reach the caller."""

    def give_back(self, messages: Sequence[MessageExt]) -> None: ...


R = TypeVar("R", bound=PullConsumerCore)


class PullConsumerFace(Face[R]):
    """Base of blocking consumers that return messages: an interrupted call gives its messages back."""

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return background.run(coroutine, unwanted=self._give_back)

    def _give_back(self, result: object) -> None:
        results = result if isinstance(result, list) else [result]
        self._core.give_back([one for one in results if isinstance(one, MessageExt)])
