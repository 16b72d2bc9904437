"""Participants of TCC and SAGA as programs declare them: functions by phase, and where they are called.

In: functions of the user, and connections' factories. Out: values that a coordinator reads: names, functions,
types of inputs, plans. Nothing is called here, and nothing is known of messages.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar, get_type_hints

from turbopump.client.bodies import from_json, to_json
from turbopump.client.errors import InvalidArgument
from turbopump.client.rules import check_topic
from turbopump.transactions.distributed.gids import MAX_BRANCH_NAME
from turbopump.transactions.distributed.machine import Phase
from turbopump.transactions.distributed.retries import Retry
from turbopump.transactions.distributed.saga import SagaGraph, SagaStep
from turbopump.transactions.fence import TABLE, Fence

__all__ = ["BranchCall", "BranchFunctions", "DeclaredStep", "Saga", "Tcc", "decoded", "encoded"]

T = TypeVar("T")
R = TypeVar("R")

ANSWER_TIMEOUT_S = 3.0
"""How long another service may take to answer a command, before it is asked again."""

Connect: TypeAlias = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class BranchCall:
    """One call of a participant: what a function without a database gets in place of a connection."""

    gid: str
    branch: str
    phase: Phase
    input: str = ""
    """The input of the transaction for this participant, as JSON."""
    result: str = ""
    """As JSON. For CONFIRM, CANCEL and UNDO what Try or DO returned; for DO the steps' results by name."""


@dataclass(frozen=True)
class BranchFunctions:
    """The functions of one participant, by phase, the database they work in, and the type of their input."""

    name: str
    connect: Connect | None
    fence: Fence
    functions: Mapping[Phase, Callable[..., Any]]
    input_type: Any = None

    @property
    def is_async(self) -> bool:
        """Whether its functions are `async def`, and so its connections async."""
        return any(inspect.iscoroutinefunction(one) for one in self.functions.values())

    def find(self, phase: Phase) -> Callable[..., Any]:
        """Returns the function of a phase. Raises InvalidArgument when there is none."""
        if phase not in self.functions:
            raise InvalidArgument(f"participant {self.name} must have a function for {phase}, got none")
        return self.functions[phase]

    def has(self, phase: Phase) -> bool:
        return phase in self.functions

    def arguments(self, call: BranchCall) -> list[Any]:
        """Returns the arguments of a function after its connection: the input, a result if it takes one."""
        function = self.find(call.phase)
        given = [decoded(call.input, self.input_type or _input_type(self.functions.values()))]
        if _positional(function) > 2:
            given.append(decoded(call.result, None))
        return given


class Tcc(Generic[T]):
    """A participant that tries, and is then confirmed or cancelled: three functions of one type.

        debit = Tcc[Transfer]("debit", connect=icbc_connect)

        @debit.try_
        def freeze(connection: Connection, order: Transfer) -> None: ...

        @debit.confirm
        def take(connection: Connection, order: Transfer) -> None: ...

        @debit.cancel
        def release(connection: Connection, order: Transfer) -> None: ...

    A Try reserves, so that Confirm and Cancel are always possible; it raises `Declined` where it cannot. The
    functions are `def` or `async def`, with a connection as `connect` makes them, and do not commit: the call
    is recorded in the table `turbopump_fence` of the same transaction. So each has its effect once, in
    whatever order calls arrive. A third parameter of Confirm and Cancel gets what Try returned.

    Without `connect` the functions get a BranchCall, and must recognise repetitions themselves. With `on`
    they run in another service: commands go to that topic, whose consumer has a `participant`.
    """

    def __init__(
        self,
        name: str,
        *,
        connect: Connect | None = None,
        on: str = "",
        answer_timeout: float = ANSWER_TIMEOUT_S,
        table: str = TABLE,
    ) -> None:
        self.name = checked_participant(name)
        self.connect = connect
        self.topic = _checked_on(on)
        self.answer_timeout = checked_seconds("answer_timeout", answer_timeout)
        self.fence = Fence(table)
        self._functions: dict[Phase, Callable[..., Any]] = {}

    def try_(self, function: Callable[[Any, T], R]) -> Callable[[Any, T], R]:
        """Registers the Try, and returns it."""
        return self._add(Phase.TRY, function)

    def confirm(self, function: Callable[..., R]) -> Callable[..., R]:
        """Registers the Confirm, and returns it."""
        return self._add(Phase.CONFIRM, function)

    def cancel(self, function: Callable[..., R]) -> Callable[..., R]:
        """Registers the Cancel, and returns it."""
        return self._add(Phase.CANCEL, function)

    def _add(self, phase: Phase, function: Callable[..., R]) -> Callable[..., R]:
        check_function(self.name, phase, function)
        self._functions[phase] = function
        return function

    def branch_functions(self) -> BranchFunctions:
        """Returns its functions, checked. Raises InvalidArgument when one is missing."""
        missing = [
            phase for phase in (Phase.TRY, Phase.CONFIRM, Phase.CANCEL) if phase not in self._functions
        ]
        if missing:
            raise InvalidArgument(
                f"participant {self.name} must have Try, Confirm and Cancel, got no {', '.join(missing)}: "
                f"decorate functions with @{self.name}.try_, .confirm and .cancel, or name a topic: on="
            )
        given = _type_argument(self) or _input_type(self._functions.values())
        return BranchFunctions(self.name, self.connect, self.fence, dict(self._functions), given)


@dataclass(frozen=True)
class DeclaredStep(Generic[T]):
    """A step of a saga with its functions, or with the topic of the service that has them."""

    name: str
    do: Callable[..., Any] | None = None
    undo: Callable[..., Any] | None = None
    connect: Connect | None = None
    retry: Retry = field(default_factory=Retry)
    topic: str = ""
    answer_timeout: float = ANSWER_TIMEOUT_S
    fence: Fence = field(default_factory=Fence)
    input_type: Any = None

    def branch_functions(self) -> BranchFunctions:
        """Returns its functions. Raises InvalidArgument when it has no work."""
        if self.do is None:
            raise InvalidArgument(f"step {self.name} must have do=, got None")
        functions = {Phase.DO: self.do}
        if self.undo is not None:
            functions[Phase.UNDO] = self.undo
        given = self.input_type or _input_type(functions.values())
        return BranchFunctions(self.name, self.connect, self.fence, functions, given)


class Saga(Generic[T]):
    """A transaction of steps that commit one by one, and are compensated in reverse when one cannot be done.

        transfer = Saga[Transfer]("transfer", version=1)
        transfer.step("debit", do=take, undo=give_back, connect=icbc_connect, retry=Retry(attempts=5))
        transfer.step("credit", do=give, undo=take_back, connect=ccb_connect)
        bank.run(transfer, order, gid="order-4711")

    Others see the effects of a step before the saga ends: there is no isolation. A change of the steps needs
    another `version`: a saga goes on in processes that have the version it began with.
    """

    def __init__(self, name: str, *, version: int = 1, timeout: float | None = None) -> None:
        """`timeout`: seconds for all steps, or those before the pivot; then it is compensated."""
        self.name = checked_participant(name)
        if version < 1:
            raise InvalidArgument(f"version must be at least 1, got {version}")
        self.version = version
        self.timeout = None if timeout is None else checked_seconds("timeout", timeout)
        self.graph: SagaGraph | None = None
        self.steps: dict[str, DeclaredStep[T]] = {}

    def step(
        self,
        name: str,
        *,
        do: Callable[[Any, T], Any] | Callable[[Any, T, Any], Any] | None = None,
        undo: Callable[[Any, T], Any] | Callable[[Any, T, Any], Any] | None = None,
        connect: Connect | None = None,
        after: Sequence[str] | None = None,
        on: str = "",
        retry: Retry | None = None,
        pivot: bool = False,
        answer_timeout: float = ANSWER_TIMEOUT_S,
        table: str = TABLE,
    ) -> DeclaredStep[T]:
        """Declares the next step, and returns it.

        `do` and `undo` get a connection and the saga's input; a third parameter of `undo` gets what `do`
        returned, one of `do` the results of the steps before it, by name. `after`: the steps that must be
        done first; None: the one declared before, `[]`: none, so that it runs beside others. `on`: the topic
        of another service, which gets commands. `pivot`: once it is done nothing is compensated, and what
        follows it is tried until it is done. A step without `undo` has nothing to compensate; one of another
        service that names no functions here is always compensated by a command, except behind the pivot.
        """
        checked_participant(name)
        if name in self.steps:
            raise InvalidArgument(f"saga {self.name} must have one step {name}, got a second one")
        if do is None and not on:
            raise InvalidArgument(f"step {name} must have do=, or on= for another service")
        for phase, function in ((Phase.DO, do), (Phase.UNDO, undo)):
            if function is not None:
                check_function(name, phase, function)
        is_remote = bool(on) and do is None
        before = tuple(self.steps)[-1:] if after is None else tuple(after)
        self.graph = self._extended(SagaStep(name, before, undo is not None, pivot, retry or Retry()))
        if is_remote and not self.graph.is_behind_pivot(name):
            self.graph = self._extended(SagaStep(name, before, True, pivot, retry or Retry()))
        step: DeclaredStep[T] = DeclaredStep(
            name,
            do,
            undo,
            connect,
            retry or Retry(),
            _checked_on(on),
            checked_seconds("answer_timeout", answer_timeout),
            Fence(table),
            _type_argument(self),
        )
        self.steps[name] = step
        return step

    def _extended(self, step: SagaStep) -> SagaGraph:
        """Returns the graph with one more step in place of one with its name. Raises InvalidArgument."""
        steps = self.graph.steps if self.graph is not None else ()
        return SagaGraph((*(one for one in steps if one.name != step.name), step))

    @property
    def input_type(self) -> Any:
        """The type of its input, of `Saga[…]` or of the first function that names one; None: any JSON."""
        functions = [one for step in self.steps.values() for one in (step.do, step.undo) if one is not None]
        return _type_argument(self) or _input_type(functions)


# inputs and results


def encoded(value: object) -> str:
    """Returns a value as JSON text, empty for None. Raises InvalidArgument for what JSON cannot represent."""
    if value is None:
        return ""
    try:
        return to_json(value).decode()
    except TypeError as error:
        raise InvalidArgument(
            f"inputs and results are stored as JSON: use a dataclass, msgspec struct, pydantic model or "
            f"plain values, got {type(value).__name__}: {error}"
        ) from None


def decoded(text: str, kind: Any) -> Any:
    """Returns the value of JSON text, as a `kind` if given; None for an empty text."""
    return from_json(text.encode(), kind) if text else None


# checks


def checked_participant(name: str) -> str:
    """Returns the name of a participant, a step or a resource. Raises InvalidArgument."""
    is_plain = isinstance(name, str) and name.isascii() and name.isprintable()
    if not is_plain or not 0 < len(name) <= MAX_BRANCH_NAME or set(name) & set(" ,;'\"\\/"):
        raise InvalidArgument(
            f"a participant must have a name of 1 to {MAX_BRANCH_NAME} ASCII characters without space, "
            f"comma, quote or slash, got {name!r}"
        )
    return name


def checked_seconds(what: str, seconds: float) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidArgument(f"{what} must be more than 0 seconds, got {seconds!r}")
    return float(seconds)


def _checked_on(topic: str) -> str:
    if topic:
        check_topic(topic)
    return topic


def check_function(name: str, phase: Phase, function: Callable[..., Any]) -> None:
    """Raises InvalidArgument for what cannot be called with a connection and an input."""
    if not callable(function):
        raise InvalidArgument(f"{phase} of {name} must be a function, got {function!r}")
    count = _positional(function)
    if not 2 <= count <= 3:
        raise InvalidArgument(
            f"{phase} of {name} must take (connection, input) or (connection, input, result), got {count} "
            "parameters"
        )


def _positional(function: Callable[..., Any]) -> int:
    """Returns how many parameters a function needs; 3 for one that takes any number."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return 3
    return sum(one.kind in kinds and one.default is one.empty for one in parameters)


def _type_argument(made: object) -> Any:
    """Returns T of `Tcc[T](…)`, which typing notes on what it makes; None: it was made without."""
    written = getattr(made, "__orig_class__", None)
    (kind,) = getattr(written, "__args__", (None,))
    return None if isinstance(kind, TypeVar) else kind


def _input_type(functions: Any) -> Any:
    """Returns the type that a function names for its input; None: no function names one."""
    for function in functions:
        try:
            hints = get_type_hints(function)
        except (NameError, TypeError):  # a type that only type checkers import, or a callable object
            continue
        names = list(inspect.signature(function).parameters)
        kind = hints.get(names[1]) if len(names) > 1 else None
        if kind is not None and kind is not Any and not isinstance(kind, TypeVar):
            return kind
    return None
