"""The signature that `help()` shows of a constructor with settings: each keyword with its default."""

import dataclasses
import inspect
from collections.abc import Callable
from enum import Enum
from typing import TypeVar, get_type_hints

from turbopump.client.settings import ClientSettings

K = TypeVar("K", bound=type)


def spelled_out(settings: type[ClientSettings]) -> Callable[[K], K]:
    """Returns a decorator that adds all settings to a class's signature and docstring, for `help()`.

    The constructor still gets them as `**settings`, so that missing ones can come from
    `turbopump.configure()` or the configuration file.
    """

    def decorate(kind: K) -> K:
        if "__signature__" not in vars(kind):
            kind.__signature__ = _shown(inspect.signature(kind), settings)  # type: ignore[attr-defined]
            kind.__doc__ = f"{inspect.cleandoc(kind.__doc__ or '')}\n\n{_list(settings)}"
        return kind

    return decorate


def _list(settings: type[ClientSettings]) -> str:
    """Returns the end of a docstring: one line for each setting, with its default."""
    lines = [
        f"    {field.name} = {default_text(field.default)}: {field.metadata['doc']}"
        for field in dataclasses.fields(settings)
    ]
    return "\n".join(["Settings; durations are seconds, sizes are bytes:", "", *lines, ""])


def _shown(given: inspect.Signature, settings: type[ClientSettings]) -> inspect.Signature:
    plain = [one for one in given.parameters.values() if one.kind is not one.VAR_KEYWORD]
    types = get_type_hints(settings)
    keywords = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=ShownDefault(default_text(field.default)),
            annotation=types[field.name],
        )
        for field in dataclasses.fields(settings)
    ]
    return inspect.Signature([*plain, *keywords])


class ShownDefault:
    """A stand-in for a default in a signature, whose `repr` is the given text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def default_text(value: object) -> str:
    """Returns a setting's default as Python source, as a reader would write it.

    >>> default_text(frozenset({2, 1}))
    '{1, 2}'
    """
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, frozenset):
        return "{" + ", ".join(str(int(one)) for one in sorted(value)) + "}"
    if isinstance(value, str | int | float | tuple) or value is None:
        return repr(value)
    return str(getattr(value, "__name__", value))
