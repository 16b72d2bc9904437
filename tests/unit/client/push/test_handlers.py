"""What a handler is given, by its annotations, and what its return or its exception means."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from tests.kit import in_loop
from tests.unit.client.kit import record

from turbopump.client.errors import InvalidArgument, UnreadableMessage
from turbopump.client.group.consume_status import ConsumeStatus, RetryLater
from turbopump.client.message import MessageExt, MessageQueue
from turbopump.client.push.handlers import Handler

QUEUE = MessageQueue("orders", "broker-a", 0)


@dataclass
class Order:
    id: int
    total: float = 0.0


class Invoice(msgspec.Struct):
    id: int


class Model:
    """Shaped like a pydantic model."""

    def __init__(self, text: bytes) -> None:
        self.text = text

    @classmethod
    def model_validate_json(cls, text: bytes) -> "Model":
        if b"bad" in text:
            raise ValueError("1 validation error for Model\nid\n  Field required")
        return cls(text)


def message(body: bytes = b'{"id": 7}', offset: int = 0) -> MessageExt:
    return MessageExt(record(QUEUE, offset, 0, body), QUEUE)


def given(function: Callable[..., Any], body: bytes = b'{"id": 7}', batch: int | None = None) -> Any:
    """What the function returned when it was called with one message, or with two in a batch."""
    messages = [message(body)] if batch is None else [message(body), message(body, 1)]
    return Handler(function, batch).call(messages)


def test_a_parameter_without_annotation_gets_the_message() -> None:
    assert given(lambda message: message.body) == b'{"id": 7}'
    assert given(lambda messages: [one.offset for one in messages], batch=2) == [0, 1]


def test_an_annotation_says_as_what_the_body_is_read() -> None:
    def order(order: Order) -> Order:
        return order

    def invoice(invoice: Invoice) -> Invoice:
        return invoice

    def model(model: Model) -> bytes:
        return model.text

    def raw(body: bytes) -> bytes:
        return body

    def text(text: str) -> str:
        return text

    def fields(fields: dict[str, int]) -> dict[str, int]:
        return fields

    assert given(order) == Order(7)
    assert given(invoice) == Invoice(7)
    assert given(model) == given(raw) == b'{"id": 7}'
    assert given(text) == '{"id": 7}'
    assert given(fields) == {"id": 7}


def test_the_message_and_its_body_can_both_be_had_in_either_order() -> None:
    def first(message: MessageExt, order: Order) -> tuple[int, int]:
        return message.offset, order.id

    def last(order: Order, message: MessageExt) -> tuple[int, int]:
        return message.offset, order.id

    assert given(first) == given(last) == (0, 7)


def test_batches_are_decoded_item_by_item() -> None:
    def orders(orders: list[Order]) -> list[Order]:
        return orders

    def both(messages: Sequence[MessageExt], orders: Sequence[Order]) -> list[int]:
        return [one.offset + order.id for one, order in zip(messages, orders, strict=True)]

    assert given(orders, batch=2) == [Order(7), Order(7)]
    assert given(both, batch=2) == [7, 8]


def test_methods_partials_objects_and_defaults_are_handlers_too() -> None:
    class Store:
        def save(self, order: Order) -> int:
            return order.id

        def __call__(self, message: MessageExt, retries: int = 3) -> int:
            return retries

    def tagged(tag: str, order: Order) -> tuple[str, int]:
        return tag, order.id

    assert given(Store().save) == 7
    assert given(Store()) == 3
    assert given(functools.partial(tagged, "paid")) == ("paid", 7)
    assert given([].append) is None  # a builtin


def test_what_a_decorator_shows_counts() -> None:
    def face(given: Any) -> Any:
        return given

    shown = inspect.Parameter("order", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Order)
    face.__signature__ = inspect.Signature([shown])  # type: ignore[attr-defined]
    assert given(face) == Order(7)

    def quoted(order: "Order") -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821
        return order

    with pytest.raises(InvalidArgument, match="cannot resolve"):
        given(quoted)
    quoted.__annotations__.pop("return")
    assert given(quoted) == Order(7)


def test_a_body_that_does_not_fit_names_the_field() -> None:
    def order(order: Order) -> None: ...

    def model(model: Model) -> None: ...

    def text(text: str) -> None: ...

    for function, body, told in (
        (order, b'{"id": "seven"}', r"the body must be Order: .*\$.id"),
        (order, b"{", "the body must be Order"),
        (model, b"bad", "id\n  Field required"),
        (text, b"\xff", "must be UTF-8"),
    ):
        with pytest.raises(UnreadableMessage, match=told):
            given(function, body)


def test_functions_that_cannot_be_handlers_are_refused_with_what_could() -> None:
    def nothing() -> None: ...

    def too_much(first: int, second: int, third: int) -> None: ...

    def two_bodies(first: Order, second: Invoice) -> None: ...

    def unknown(order: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    for function in (nothing, too_much, two_bodies):
        with pytest.raises(InvalidArgument, match="write def handle"):
            Handler(function)
    with pytest.raises(InvalidArgument, match=r"message\.json"):
        Handler(unknown)
    with pytest.raises(InvalidArgument, match="a handler must be a function"):
        Handler("print")  # type: ignore[arg-type]


def test_async_is_seen_through_partials_and_objects() -> None:
    async def handle(tag: str, message: MessageExt) -> None: ...

    class Reader:
        async def __call__(self, message: MessageExt) -> None: ...

    assert Handler(functools.partial(handle, "x")).is_async
    assert Handler(Reader()).is_async
    assert not Handler(lambda message: None).is_async


def test_whatever_is_returned_is_consumed_but_javas_word_for_later() -> None:
    loop = asyncio.new_event_loop()
    try:
        for result in (None, True, False, 0, "later", ConsumeStatus.CONSUME_SUCCESS, ConsumeStatus.SUCCESS):
            assert Handler(lambda message, said=result: said).run([message()], loop) is None
        for later in (ConsumeStatus.RECONSUME_LATER, ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT):
            failure = Handler(lambda message, said=later: said).run([message()], loop)
            assert failure is not None
            assert failure.error is None
    finally:
        loop.close()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt(), RetryLater(5)])
def test_whatever_is_raised_is_a_failure_and_goes_no_further(error: BaseException) -> None:
    def fails(message: MessageExt) -> None:
        raise error

    async def fails_too(message: MessageExt) -> None:
        raise error

    async def scene() -> None:
        loop = asyncio.get_running_loop()
        for failure in (
            Handler(fails).run([message()], loop),
            await Handler(fails_too).deliver([message()]),
        ):
            assert failure is not None
            assert failure.error is error
            assert failure.delay_level == (5 if isinstance(error, RetryLater) else 0)

    asyncio.run(scene())


def test_a_level_that_does_not_exist_is_refused() -> None:
    for level in (-2, 19):
        with pytest.raises(InvalidArgument, match="between -1 and 18"):
            RetryLater(level)


@in_loop
async def test_an_async_function_behind_a_plain_wrapper_runs_on_the_loop() -> None:
    loop = asyncio.get_running_loop()
    seen: list[asyncio.AbstractEventLoop] = []

    async def handle(message: MessageExt) -> None:
        seen.append(asyncio.get_running_loop())
        raise ValueError("no")

    def wrapper(message: MessageExt) -> Any:
        return handle(message)

    failure = await asyncio.to_thread(Handler(wrapper).run, [message()], loop)
    assert seen == [loop]
    assert failure is not None
    assert isinstance(failure.error, ValueError)
