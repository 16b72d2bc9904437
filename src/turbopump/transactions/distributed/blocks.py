"""What the blocks of global transactions share: they begin, and end well or by an exception."""

import asyncio
from contextvars import ContextVar, Token
from types import TracebackType
from typing import ClassVar, Self

from turbopump.client.errors import InvalidArgument

open_xa: ContextVar[str] = ContextVar("turbopump_open_xa")
"""The gid of the XA transaction whose block this task or thread is in."""


class GlobalBlock:
    """Base of the blocks: `async with` begins one, and ends it as the block ends."""

    forbids_nesting: ClassVar[bool] = False
    gid: str

    async def __aenter__(self) -> Self:
        token = enter_block(self)
        try:
            await self._begin()
        except BaseException:
            leave_block(token)
            raise
        self._token = token
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leave_block(self._token)
        await self._end(error)

    _token: "Token[str] | None" = None

    async def _begin(self) -> None:
        raise NotImplementedError

    async def _end(self, error: BaseException | None) -> None:
        raise NotImplementedError


def enter_block(block: GlobalBlock) -> "Token[str] | None":
    """Notes in this task or thread that it is in a block. Raises InvalidArgument for one in another."""
    if not block.forbids_nesting:
        return None
    if (outer := open_xa.get("")) != "":
        raise InvalidArgument(
            f"an XA transaction must not begin inside of another one ({outer}): leave that block first, or "
            "do all the work in one"
        )
    return open_xa.set(block.gid)


def leave_block(token: "Token[str] | None") -> None:
    if token is not None:
        open_xa.reset(token)


def reason_of(error: BaseException) -> str:
    """Returns why a block ended, for the journal: the kind of an exception and its text, cut."""
    if isinstance(error, asyncio.CancelledError):
        return "the caller was cancelled"
    return f"{type(error).__name__}: {error}"[:MAX_REASON]


MAX_REASON = 500
"""Characters: the book takes 1,024 bytes."""
