"""Long tables of a broker, read in pages where the broker has pages (5.4 on); older ones give everything at
once. A table that changes while it is read is read anew from its beginning.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from turbopump.protocol.bodies import DataVersion

PAGE = 2000
BEGINNINGS = 10  # of a table that changes faster than it can be read

T = TypeVar("T")


@dataclass
class Page(Generic[T]):
    items: dict[str, T] = field(default_factory=dict)
    version: DataVersion = field(default_factory=DataVersion)
    total: int | None = None
    """Of the whole table; None: this is the whole table."""


async def all_pages(ask: Callable[[int, str], Awaitable[Page[T]]]) -> Page[T]:
    """`ask` gets the number of the first item and the version that the earlier pages had, as JSON."""
    whole: Page[T] = Page()
    beginnings = 0
    while True:
        version = whole.version.encode().decode() if whole.items else ""
        page = await ask(len(whole.items), version)
        if whole.items and page.version != whole.version and beginnings < BEGINNINGS:
            whole = Page()
            beginnings += 1
            continue
        before = len(whole.items)
        whole.items |= page.items
        whole.version = page.version
        if page.total is None or len(whole.items) >= page.total or len(whole.items) == before:
            return whole
