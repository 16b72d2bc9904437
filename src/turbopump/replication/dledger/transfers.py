"""Transfers of the leadership that the owner has asked for."""

import asyncio

from turbopump.raft.messages import PeerAnswer, RaftCode, TransferAnswer


class PendingTransfers:
    """Transfers that are not decided, by the number of their request."""

    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[TransferAnswer]] = {}

    async def outcome(self, number: int) -> TransferAnswer:
        """Waits for the answer to the transfer with this number, from now on."""
        answer: asyncio.Future[TransferAnswer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            return await answer
        finally:
            self._waiting.pop(number, None)

    def answered(self, number: int, answer: PeerAnswer) -> bool:
        """Takes in an answer of the node; returns whether it belongs to a transfer of the owner."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None and not waiting.done() and isinstance(answer, TransferAnswer):
            waiting.set_result(answer)
        return waiting is not None

    def fail_all(self, term: int) -> None:
        """Answers everything that waits: the node that was asked is no more."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(TransferAnswer(RaftCode.TAKE_LEADERSHIP_FAILED, term))
