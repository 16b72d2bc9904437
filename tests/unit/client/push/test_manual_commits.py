"""Ordered handlers with `auto_commit=False`: they say what is done, and what comes again."""

import time
from typing import Any

import pytest
from tests.kit import virtual
from tests.unit.admin.kit import MemoryCluster, cluster
from tests.unit.client.listening import committed, plain
from tests.unit.client.push.ordered_kit import send_in_order

from turbopump.client.errors import InvalidArgument
from turbopump.client.group.consume_status import ConsumeStatus, RetryLater
from turbopump.client.message import MessageExt
from turbopump.client.push.consumer import Consumer
from turbopump.testing.loop import run_virtual

COMMIT, ROLLBACK = ConsumeStatus.COMMIT, ConsumeStatus.ROLLBACK


class Script:
    """A handler that says for a message what it is told, and SUCCESS otherwise."""

    def __init__(self, **words: Any) -> None:
        self.words = {name.removeprefix("m"): list(given) for name, given in words.items()}
        self.texts: list[str] = []

    def say(self, message: MessageExt) -> Any:
        number = message.text[-1]
        self.texts.append(number)
        said = self.words.get(number) or [None]
        word = said.pop(0) if len(said) > 1 else said[0]
        if isinstance(word, Exception):
            raise word
        return word

    async def on_the_loop(self, message: MessageExt) -> Any:
        return self.say(message)

    def in_a_thread(self, message: MessageExt) -> Any:
        return self.say(message)


def manual(town: MemoryCluster, handler: Any, **settings: Any) -> Consumer:
    consumer = plain(town, **settings)
    consumer.subscribe("orders", handler, ordered=True, auto_commit=False)
    return consumer


async def told(
    town: MemoryCluster, script: Script, is_thread: bool, wait_s: float = 3.0
) -> tuple[str, int | None]:
    """What came, and what is committed when the consumer has ended."""
    await town.create_topic("orders", 1)
    await send_in_order(town, 0, 0, 5)
    async with manual(town, script.in_a_thread if is_thread else script.on_the_loop):
        until = time.monotonic() + 0.3 if is_thread else 0.0
        await town.clock.sleep(wait_s)
        while time.monotonic() < until:  # threads take real time
            await town.clock.sleep(0.1)
    return "".join(script.texts), (await committed(town, queues=1))[0]


@pytest.mark.parametrize("is_thread", [False, True])
@pytest.mark.parametrize(
    ("script", "came", "offset"),
    [
        (Script(), "01234", 0),
        (Script(m2=[COMMIT]), "01234", 3),
        (Script(m1=[COMMIT], m4=[COMMIT]), "01234", 5),
        (Script(m2=[ROLLBACK, COMMIT]), "01201234", 3),
        (Script(m0=[COMMIT], m2=[ROLLBACK, COMMIT]), "0121234", 3),
        (Script(m2=[ValueError("no"), COMMIT]), "012234", 3),
        (Script(m2=[ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, None]), "012234", 0),
    ],
    ids=["nothing", "one commit", "two", "rollback", "rollback to the last commit", "failure", "suspended"],
)
def test_what_a_handler_says_is_what_is_committed(
    is_thread: bool, script: Script, came: str, offset: int
) -> None:
    again = Script(**{f"m{name}": words for name, words in script.words.items()})  # they are used up

    async def scene() -> None:
        async with cluster() as town:
            assert await told(town, again, is_thread) == (came, offset)

    run_virtual(scene())


@virtual
async def test_what_was_not_committed_comes_again_after_a_restart() -> None:
    async with cluster() as town:
        first, second = Script(m1=[COMMIT]), Script(m4=[COMMIT])
        await told(town, first, is_thread=False)
        async with manual(town, second.on_the_loop, seed=2):
            await town.clock.sleep(3)
        assert "".join(second.texts) == "234"
        assert await committed(town, queues=1) == [5]


@virtual
async def test_a_rollback_waits_as_long_as_a_failure() -> None:
    async with cluster() as town:
        moments: list[float] = []

        async def handle(message: MessageExt) -> ConsumeStatus:
            moments.append(town.clock.monotonic())
            return COMMIT if len(moments) > 1 else ROLLBACK

        await town.create_topic("orders", 1)
        await send_in_order(town, 0, 0, 1)
        async with manual(town, handle, suspend_current_queue_time=2.0):
            await town.clock.sleep(5)
        first, second = moments
        assert 2.0 <= second - first < 2.5


@virtual
async def test_the_first_of_a_batch_that_are_consumed_are_kept_and_not_committed() -> None:
    async with cluster() as town:
        got: list[list[str]] = []

        async def handle(messages: list[MessageExt]) -> Any:
            got.append([message.text[-1] for message in messages])
            if len(got) == 1:
                raise RetryLater(consumed=2, pause=0.01)
            return ROLLBACK if len(got) == 2 else COMMIT

        await town.create_topic("orders", 1)
        await send_in_order(town, 0, 0, 4)
        one = plain(town)
        one.subscribe("orders", handle, ordered=True, auto_commit=False, batch=4)
        async with one:
            await town.clock.sleep(5)
        assert got == [["0", "1", "2", "3"], ["2", "3"], ["0", "1", "2", "3"]]
        assert await committed(town, queues=1) == [4]


def test_with_automatic_commits_these_words_mean_consumed(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        async with cluster() as town:
            script = Script(m0=[ROLLBACK])
            await town.create_topic("orders", 1)
            await send_in_order(town, 0, 0, 2)
            one = plain(town)
            one.subscribe("orders", script.on_the_loop, ordered=True)
            async with one:
                await town.clock.sleep(3)
            assert ("".join(script.texts), await committed(town, queues=1)) == ("01", [2])

    run_virtual(scene())
    assert "auto_commit=False" in caplog.text


def test_hooks_are_told_in_apaches_words() -> None:
    statuses: list[tuple[str, bool | None]] = []

    class Watch:
        def before(self, context: Any) -> None:
            pass

        def after(self, context: Any) -> None:
            statuses.append((context.status, context.success))

    async def scene() -> None:
        async with cluster() as town:
            script = Script(m1=[ROLLBACK, COMMIT])
            await town.create_topic("orders", 1)
            await send_in_order(town, 0, 0, 2)
            async with manual(town, script.on_the_loop, hooks=[Watch()]):
                await town.clock.sleep(3)

    run_virtual(scene())
    assert statuses == [("SUCCESS", True), ("ROLLBACK", False), ("SUCCESS", True), ("SUCCESS", True)]


def test_only_ordered_handlers_decide_what_is_committed() -> None:
    with pytest.raises(InvalidArgument, match="ordered"):
        Consumer("readers", name_servers="a:1").subscribe("orders", print, auto_commit=False)
