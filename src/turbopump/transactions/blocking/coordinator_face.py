"""The base of the blocking coordinator and of its blocks: a block belongs to the caller's thread.

The work of a block is done in the caller's thread, on connections that the background loop has opened; what
begins and ends it runs on the loop. So Ctrl-C in the block, or while it ends, reaches the async core as an
exception or a cancellation.
"""

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from turbopump.client import background
from turbopump.client.blocking.consumer_face import UntilSignal
from turbopump.transactions.distributed.blocks import GlobalBlock, enter_block, leave_block
from turbopump.transactions.distributed.coordinator import Coordinator

T = TypeVar("T")
B = TypeVar("B", bound=GlobalBlock)


class CoordinatorFace(UntilSignal[Coordinator]):
    """Base of the blocking coordinator."""

    def recover(self) -> None:
        """Finishes what others have left behind, until SIGINT (Ctrl-C), SIGTERM or `close()`, then closes.

        The whole work of a recovery process. In a thread other than the main one, which gets no signals, it
        runs until `close()` is called.
        """
        self._let_go()
        self._until_signal()

    def _start(self, start: Callable[[Coordinator], Coroutine[Any, Any, object]]) -> None:
        self._let_go()
        super()._start(start)

    def _let_go(self) -> None:
        """Forgets that it was used before its start: the start registers it again."""
        if self._open is not None:
            background.let_go(self._open)
            self._open = None

    def _run(self, call: Callable[[Coordinator], Coroutine[Any, Any, T]]) -> T:
        if self._open is None:  # used without `with`: connections are closed at the exit
            self._open = self._keep(self._of_this_process())
        return super()._run(call)

    def _new_block(self, make: Callable[[Coordinator], B]) -> B:
        """Returns a new block, which nothing of the loop knows yet."""
        return make(self._of_this_process())


class FaceBlock(Generic[B]):
    """Base of the blocks of a blocking coordinator: `with` begins one, and ends it as the block ends."""

    def __init__(self, coordinator: CoordinatorFace, core: B) -> None:
        self._coordinator = coordinator
        self._core = core

    @property
    def gid(self) -> str:
        """The id of the transaction."""
        return self._core.gid

    def __enter__(self) -> Self:
        token = enter_block(self._core)
        try:
            self._coordinator._run(lambda _: self._core._begin())
        except BaseException:
            leave_block(token)
            raise
        self._token = token
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave_block(self._token)
        self._coordinator._run(lambda _: self._core._end(error))

    def _run(self, call: Callable[[B], Coroutine[Any, Any, T]]) -> T:
        return self._coordinator._run(lambda _: call(self._core))

    def _call(self, call: Callable[[B], T]) -> T:
        return call(self._core)
