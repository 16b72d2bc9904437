"""Participants in other services, reached by messages of an embedded cluster in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.transactions.participants_kit import ORDER, Ledger, Order, coordinator, participant

from turbopump.client.errors import InvalidArgument
from turbopump.client.message import Message, MessageExt
from turbopump.testing.cluster import AsyncCluster
from turbopump.testing.loop import run_virtual
from turbopump.transactions.distributed.command_handler import participant as handler_of
from turbopump.transactions.distributed.coordinator import Coordinator
from turbopump.transactions.distributed.participants import BranchCall, Saga, Tcc
from turbopump.transactions.distributed.retries import Retry
from turbopump.transactions.errors import Aborted, Declined

TOPIC = "CreditCommands"


class LossyReplies:
    """A producer whose first replies are lost."""

    def __init__(self, producer: Any, lost: int) -> None:
        self.producer = producer
        self.lost = lost

    async def reply(self, to: MessageExt, body: bytes) -> None:
        if self.lost:
            self.lost -= 1
            raise ConnectionError("lost")
        await self.producer.reply(to, body)


@asynccontextmanager
async def service(cluster: AsyncCluster, ledger: Ledger, lost: int = 0) -> AsyncIterator[None]:
    """Another service, with a consumer that has the participant `credit`."""
    await cluster.create_topic(TOPIC, queues=1)
    async with cluster.producer("credit-service") as producer:
        consumer = cluster.consumer("credit-service")
        replies = LossyReplies(producer, lost)

        @consumer.on(TOPIC, tags="credit")
        @handler_of("credit", producer=replies)
        async def give(call: BranchCall, order: Order) -> str:
            await ledger.note(f"{call.phase} credit", order)
            return f"{call.phase} {order.cents}"

        @give.undo
        async def take_back(call: BranchCall, order: Order, result: str) -> None:
            await ledger.note(f"undo credit ({result})", order)

        @give.confirm
        async def confirm(call: BranchCall, order: Order) -> None:
            await ledger.note("confirm credit", order)

        @give.cancel
        async def cancel(call: BranchCall, order: Order) -> None:
            await ledger.note("cancel credit", order)

        async with consumer:
            yield


def with_service(scenario: Any, lost: int = 0) -> None:
    async def main() -> None:
        ledger = Ledger()
        async with AsyncCluster(1, clock="virtual") as cluster, service(cluster, ledger, lost):
            bank = coordinator(cluster)
            try:
                await scenario(bank, ledger)
            finally:
                await bank.close()

    run_virtual(main())


def transfer(ledger: Ledger) -> Saga[Order]:
    saga = Saga[Order]("transfer")

    async def take(call: BranchCall, order: Order) -> None:
        await ledger.note("do debit", order)

    async def give_back(call: BranchCall, order: Order) -> None:
        await ledger.note("undo debit", order)

    saga.step("debit", do=take, undo=give_back)
    saga.step("credit", on=TOPIC, retry=Retry(attempts=2))
    return saga


def test_a_tcc_participant_in_another_service_is_tried_and_confirmed_by_messages() -> None:
    async def scenario(bank: Coordinator, ledger: Ledger) -> None:
        async with bank.tcc() as t:
            await t.call(participant("debit", ledger), ORDER)
            assert await t.call(Tcc[Order]("credit", on=TOPIC), ORDER) == "try 10"
        assert ledger.done[:2] == ["try debit", "try credit"]
        assert sorted(ledger.done[2:]) == ["confirm credit", "confirm debit"]
        assert ledger.inputs == [ORDER] * 4

    with_service(scenario)


def test_a_no_of_another_service_is_declined_here() -> None:
    async def scenario(bank: Coordinator, ledger: Ledger) -> None:
        ledger.fails["try credit"] = [Declined("the account is closed")]
        with pytest.raises(Declined, match="the account is closed"):  # noqa: PT012
            async with bank.tcc() as t:
                await t.call(participant("debit", ledger), ORDER)
                await t.call(Tcc[Order]("credit", on=TOPIC), ORDER)
        assert ledger.done == ["try debit", "cancel credit", "cancel debit"]

    with_service(scenario)


def test_a_step_in_another_service_is_done_and_compensated_by_messages() -> None:
    async def scenario(bank: Coordinator, ledger: Ledger) -> None:
        outcome = await bank.run(transfer(ledger), ORDER)
        assert outcome.results == {"debit": None, "credit": "do 10"}
        ledger.done.clear()
        ledger.fails["do credit"] = [Declined("closed")]
        with pytest.raises(Aborted, match="closed"):
            await bank.run(transfer_again, ORDER)

    transfer_again = Saga[Order]("again")

    async def nothing(call: BranchCall, order: Order) -> None: ...

    transfer_again.step("credit", on=TOPIC)
    transfer_again.step("last", do=nothing)
    with_service(scenario)


def test_a_lost_answer_is_asked_again() -> None:
    async def scenario(bank: Coordinator, ledger: Ledger) -> None:
        async with bank.tcc() as t:
            assert await t.call(Tcc[Order]("credit", on=TOPIC), ORDER) == "try 10"
        # This participant has no fence: it sees each repetition.
        assert ledger.done == ["try credit"] * 3 + ["confirm credit"]

    with_service(scenario, lost=2)


def test_a_service_that_never_answers_is_unknown_and_cancelled() -> None:
    async def scenario(bank: Coordinator, ledger: Ledger) -> None:
        with pytest.raises(Aborted, match="no answer from credit by topic CreditCommands"):
            async with bank.tcc() as t:
                await t.call(Tcc[Order]("credit", on=TOPIC), ORDER)
        assert ledger.done[:3] == ["try credit"] * 3
        assert ledger.done[-1] == "cancel credit"

    with_service(scenario, lost=3)


def test_a_message_that_is_no_command_is_a_failed_delivery() -> None:
    async def main() -> None:
        ledger = Ledger()
        async with (
            AsyncCluster(1, clock="virtual") as cluster,
            service(cluster, ledger),
            cluster.producer() as producer,
        ):
            await producer.send(Message(TOPIC, b"hello", tags="credit"))
            with pytest.raises(Exception, match="is not of a global transaction"):
                await cluster.wait_until_consumed("credit-service", TOPIC)
            assert ledger.done == []

    run_virtual(main())


def test_what_takes_part_must_be_a_participant() -> None:
    with pytest.raises(InvalidArgument, match="a participant must be a name"):
        handler_of(3, producer=LossyReplies(None, 0))  # type: ignore[call-overload]
