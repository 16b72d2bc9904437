"""Reads long tables of a broker in pages; brokers before 5.4 return everything at once.

A table that changes while it is read is read again from its beginning.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from turbopump.protocol.bodies import DataVersion

PAGE = 2000
MAX_RESTARTS = 10  # for a table that changes faster than it can be read

T = TypeVar("T")


@dataclass
class Page(Generic[T]):
    """Entries of a table of a broker by name: one part of the table, or all of it."""

    items: dict[str, T] = field(default_factory=dict)
    version: DataVersion = field(default_factory=DataVersion)
    total: int | None = None
    """Number of items in the whole table; None: this is the whole table."""


async def all_pages(ask: Callable[[int, str], Awaitable[Page[T]]]) -> Page[T]:
    """Returns a whole table, read page by page with `ask(first, version)`.

    `first` is the index of the first item of the page, `version` that of earlier pages, as JSON.
    """
    whole: Page[T] = Page()
    restarts = 0
    while True:
        version = whole.version.encode().decode() if whole.items else ""
        page = await ask(len(whole.items), version)
        if whole.items and page.version != whole.version and restarts < MAX_RESTARTS:
            whole = Page()
            restarts += 1
            continue
        before = len(whole.items)
        whole.items |= page.items
        whole.version = page.version
        if page.total is None or len(whole.items) >= page.total or len(whole.items) == before:
            return whole
