"""Runs the Python blocks of a page, in order and in one namespace, and compares what they print.

`consumer.run()` would never return; here it does as soon as the expected text was printed, or after a while.
"""

import contextlib
import io
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from turbopump.client.blocking.consumer_face import ConsumerFace

PATIENCE_S = 30.0
LOOK_S = 0.01
NAME_SERVER = "127.0.0.1:9876"

BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@dataclass(frozen=True)
class Block:
    line: int
    code: str
    expected: str | None

    def fits(self, printed: str) -> bool:
        """Handlers that run in several threads print their lines in any order."""
        if self.expected is None:
            return printed != "" or "print(" not in self.code
        if "consumer.run()" in self.code and "ordered=True" not in self.code:
            return sorted(printed.splitlines()) == sorted(self.expected.splitlines())
        return printed == self.expected


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(text.count("\n", 0, found.start(1)) + 1, found[1], found[2]) for found in BLOCK.finditer(text)
    ]


def run(page: Path, block: Block, name_server: str, namespace: dict[str, Any]) -> None:
    """Raises AssertionError when something else is printed."""
    code = "\n" * (block.line - 1) + block.code.replace(NAME_SERVER, name_server)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), _runs_until(lambda: block.fits(printed.getvalue())):
        exec(compile(code, str(page), "exec"), namespace)
    assert block.fits(printed.getvalue()), f"{page.name}, line {block.line}: {printed.getvalue()}"


@contextlib.contextmanager
def _runs_until(condition: Any) -> Iterator[None]:
    def until_printed(consumer: Any) -> None:
        with consumer:
            deadline = time.monotonic() + PATIENCE_S
            while not condition() and time.monotonic() < deadline:
                time.sleep(LOOK_S)

    with mock.patch.object(ConsumerFace, "run", until_printed):
        yield
