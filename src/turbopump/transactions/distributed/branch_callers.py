"""Calls the participants of TCC and SAGA by name: functions here, or other services by messages."""

import logging
from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from typing import Any

import msgspec

from turbopump.client.errors import InvalidArgument
from turbopump.transactions.distributed.commands import RemoteParticipants
from turbopump.transactions.distributed.driver import answer_of_error
from turbopump.transactions.distributed.fenced_calls import FencedCalls
from turbopump.transactions.distributed.machine import BranchAnswered, BranchVerdict, CallBranch, Phase
from turbopump.transactions.distributed.participants import BranchCall, DeclaredStep, Saga, Tcc
from turbopump.transactions.distributed.registrations import TccRegistration

log = logging.getLogger(__name__)

Raised = dict[str, Exception]
"""The exceptions that functions in this process raised, by branch, for the user's block."""


class BranchCallers:
    """The participants that a process knows, and how each of them is called."""

    def __init__(self, remote: RemoteParticipants, threads: Executor) -> None:
        self._remote = remote
        self._local = FencedCalls(threads)
        self._tcc: dict[str, Tcc[Any]] = {}
        self._sagas: dict[tuple[str, int], Saga[Any]] = {}

    def register(self, participant: Tcc[Any] | Saga[Any]) -> None:
        """Notes a participant by its name. Raises InvalidArgument for another one with that name."""
        if isinstance(participant, Tcc):
            known: object = self._tcc.setdefault(participant.name, participant)
            words = f"participant {participant.name}"
        else:
            known = self._sagas.setdefault((participant.name, participant.version), participant)
            words = f"saga {participant.name} in version {participant.version}"
        if known is not participant:
            raise InvalidArgument(f"{words} must be one object in a process, got a second one")

    def tcc(self, name: str) -> Tcc[Any] | None:
        return self._tcc.get(name)

    def saga(self, name: str, version: int) -> Saga[Any] | None:
        return self._sagas.get((name, version))

    async def forget(self, still_open: Collection[str]) -> int:
        """Deletes what fences of participants in this process no longer need; returns how many rows.

        A database that cannot be reached is logged, and cleaned the next time.
        """
        known: list[Tcc[Any] | DeclaredStep[Any]] = [*self._tcc.values()]
        known += [step for saga in self._sagas.values() for step in saga.steps.values()]
        here = [one.branch_functions() for one in known if not one.topic]
        local = {(one.connect, one.fence.table): one for one in here if one.connect is not None}
        deleted = 0
        for functions in local.values():
            try:
                deleted += await self._local.forget(functions, still_open)
            except Exception as error:
                log.warning("Cannot delete old rows of the fence of %s: %s", functions.name, error)
        return deleted

    async def call_tcc(self, gid: str, call: CallBranch, raised: Raised) -> BranchAnswered:
        """Calls a participant of TCC, as its branch was registered."""
        registration = TccRegistration.read(call.data)
        one = self._tcc[registration.participant]
        made = BranchCall(gid, call.branch, call.phase, registration.input)
        return await self._call(one, made, call, raised)

    async def call_step(
        self,
        gid: str,
        saga: Saga[Any],
        input: str,
        results: Mapping[str, str],
        call: CallBranch,
        raised: Raised,
    ) -> BranchAnswered:
        """Calls a step of a saga, or its compensation."""
        step = saga.steps[call.branch]
        result = call.data if call.phase is Phase.UNDO else _results(results)
        made = BranchCall(gid, call.branch, call.phase, input, result)
        return await self._call(step, made, call, raised)

    async def _call(
        self, one: Tcc[Any] | DeclaredStep[Any], made: BranchCall, call: CallBranch, raised: Raised
    ) -> BranchAnswered:
        if one.topic:
            return await self._remote.ask(one.topic, one.name, made, one.answer_timeout)
        final = one.retry.final if isinstance(one, DeclaredStep) else ()
        try:
            result = await self._local.perform(one.branch_functions(), made)
        except Exception as error:
            raised[call.branch] = error
            return answer_of_error(call, error, final)
        return BranchAnswered(call.branch, call.phase, BranchVerdict.DONE, result)


def _results(results: Mapping[str, str]) -> str:
    """Returns the results of steps, which are JSON texts, as one JSON object."""
    return msgspec.json.encode(
        {name: msgspec.Raw(text.encode() or b"null") for name, text in results.items()}
    ).decode()
