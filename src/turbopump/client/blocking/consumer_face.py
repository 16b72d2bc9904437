"""`run()` of blocking consumers: consumes until a signal comes, or another thread closes the consumer."""

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from turbopump.client import background
from turbopump.client.blocking.face import C, Face

LOOK_S = 1.0  # an unlimited wait could not be interrupted on Windows
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class UntilSignal(Face[C]):
    """Base of blocking clients that run until a signal comes, or another thread closes them."""

    def _until_signal(self) -> None:
        """Starts unless it is started, waits for SIGINT, SIGTERM or `close()`, and closes."""
        background.refuse_inside_loop()
        self._ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        with _caught(self._ended.put):
            if self._open is None:
                self.__enter__()
            _wait(self._ended)
        self._close()

    def _close(self, close: Callable[[C], Coroutine[Any, Any, object]] = lambda core: core.close()) -> None:
        super()._close(close)
        if (ended := getattr(self, "_ended", None)) is not None:
            ended.put(0)


class ConsumerFace(UntilSignal[C]):
    """Base of blocking consumers with `run()`, which consumes until a signal or `close()`."""

    def run(self) -> None:
        """Consumes until SIGINT (Ctrl-C), SIGTERM or `close()`, then closes the consumer.

        Closing lets running handlers finish, commits and leaves the group; a second Ctrl-C does not wait any
        more. Starts the consumer if it is not started. In a thread other than the main one, which gets no
        signals, it runs until `close()` is called.
        """
        self._until_signal()


def _wait(ended: "queue.SimpleQueue[int]") -> None:
    while True:
        with contextlib.suppress(queue.Empty):
            ended.get(timeout=LOOK_S)
            return


@contextlib.contextmanager
def _caught(tell: Callable[[int], None]) -> Iterator[None]:
    """Calls `tell` with each SIGINT or SIGTERM during its block, in place of the handlers; main thread only.

    `tell` must be safe in signal handlers, as `SimpleQueue.put` is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda number, _: tell(number)) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
